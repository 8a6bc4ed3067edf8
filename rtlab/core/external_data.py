"""Constants that lie in a file beside the model, as those of large models do, and are read as they are needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core.inputs import FileFingerprint, fingerprint_file
from rtlab.core.node import walk
from rtlab.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Elements beyond which a constant is a weight, whose numbers no rule about nodes needs.
LARGE = 1024
#: Bytes of a model's weights from which to open a session of them takes seconds.
LARGE_WEIGHTS = 1 << 30


def strip_weights(model: ir.Model) -> tuple[onnx.ModelProto, Mapping[str, ir.TensorProtocol]]:
    """A proto in which large initializers of the main graph have a type and a shape alone, and their tensors by name.

    Those that are inputs or outputs as well keep their numbers.
    """
    graph = model.graph
    weights: dict[str, ir.TensorProtocol] = {}
    light: dict[str, Any] = dict(graph.initializers)
    for value in _iter_weights(graph):
        assert value.name and value.const_value is not None  # noqa: S101, PT018 - by what they are
        weights[value.name] = value.const_value
        stub = ir.TensorProtoTensor(make_stub(value.const_value, value.name))
        light[value.name] = _AttributeProxy(value, const_value=stub)
    outline: Any = _AttributeProxy(model, graph=_AttributeProxy(graph, initializers=light))
    return ir.serde.serialize_model(outline), weights


def _iter_weights(graph: ir.Graph) -> Iterator[ir.Value]:
    """Large initializers that are neither inputs nor outputs."""
    ends = {v.name for v in (*graph.inputs, *graph.outputs)}
    for name, value in graph.initializers.items():
        if name not in ends and value.const_value is not None and is_weight(value.const_value):
            yield value


def is_weight(tensor: ir.TensorProtocol) -> bool:
    """Whether a constant is so large that protos of the graph go without its numbers."""
    return bool(tensor.size > LARGE) and tensor.dtype != ir.DataType.STRING


def make_stub(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """A constant under a name, in the form in which it is serialized, without its numbers."""
    bare: Any = _AttributeProxy(tensor, tobytes=bytes, name=name)
    stub = ir.serde.serialize_tensor(bare)
    stub.ClearField("raw_data")
    if isinstance(tensor, ir.ExternalTensor) and not isinstance(tensor, DetachedWeight):
        # ONNX's own loader leaves this behind, and digests of files rest on it.
        stub.data_location = onnx.TensorProto.DEFAULT
    return stub


def serialize_constant(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """A constant under a name with its numbers inside; raises ``ModelError`` where they cannot be read."""
    if isinstance(tensor, DetachedWeight):
        return serialize_constant(tensor.fetch(), name)
    if isinstance(tensor, ir.ExternalTensor):
        proto = make_stub(tensor, name)
        proto.raw_data = tensor.tobytes()
    else:
        proto = ir.serde.serialize_tensor(tensor)
        proto.name = name
    return proto


def copy_graph(model: ir.Model) -> ir.Model:
    """A copy that shares its tensors."""
    clone = model.clone()
    for (old, _), (new, _) in zip(walk(model), walk(clone), strict=True):
        for old_value, new_value in zip(old.outputs, new.outputs, strict=True):
            # onnx-ir 0.1.14 does not copy these.
            new_value.type = old_value.type
            new_value.shape = None if old_value.shape is None else old_value.shape.copy()
    return clone


def read_small_constants(model: ir.Model) -> ir.Model:
    """A model whose weights alone lie in files: itself, or a copy into which all else was read.

    Raises ``ModelError`` where something cannot be read.
    """
    attributes = (a for node, _ in walk(model) for a in node.attributes.values() if not a.is_ref())
    constants = (
        *(v.const_value for v in iter_initializers(model)),
        *(a.value for a in attributes if a.type == ir.AttributeType.TENSOR),
    )
    if not any(isinstance(t, ExternalWeight) for t in constants):
        return model
    clone = copy_graph(model)
    map_tensors(clone, _load, skip={id(v.const_value) for v in _iter_weights(clone.graph)})
    return clone


def _load(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    is_external = isinstance(tensor, ExternalWeight)
    return ir.TensorProtoTensor(serialize_constant(tensor, tensor.name or "")) if is_external else tensor


def is_lazy(tensor: ir.TensorProtocol) -> bool:
    """Whether a constant is read or computed anew at each access, so that it takes no memory in between."""
    return isinstance(tensor, (ExternalWeight, ir.LazyTensor))


def derive_constant(
    tensor: ir.TensorProtocol, compute: Callable[[NDArray[Any]], NDArray[Any]], dtype: Any
) -> NDArray[Any] | ir.LazyTensor:
    """What a function of a module makes of a constant, of the same shape; at each access where that is lazy itself."""
    if not is_lazy(tensor):
        return compute(np.asarray(tensor.numpy()))
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    return ir.LazyTensor(functools.partial(_compute, tensor, compute), kind, ir.Shape(tensor.shape.numpy()))


def _compute(tensor: ir.TensorProtocol, compute: Callable[[NDArray[Any]], NDArray[Any]]) -> ir.TensorProtocol:
    return ir.Tensor(compute(np.asarray(tensor.numpy())))


class _AttributeProxy:
    """An object of onnx-ir with some attributes replaced, as long as it is serialized; the object stays as it is."""

    def __init__(self, target: Any, **replaced: object) -> None:
        self._target = target
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._target)

    def __len__(self) -> int:
        return len(self._target)


#: Stands for the folder of a model that came as bytes: no file lies there.
_NOWHERE = Path("folder not given")


class ExternalWeight(ir.ExternalTensor):
    """A constant that is read from its file at each access; raises ``ModelError`` where that fails.

    Unlike its base it maps nothing into memory: a mapped file that is cut short ends the process. Numbers of a file
    that was written since the model was loaded are refused.
    """

    #: The file as it was when the model was loaded; None where there was none.
    loaded: FileFingerprint | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is such a file."""
        return Path(self.path).is_file()

    def numpy(self) -> NDArray[Any]:
        """Its numbers; raises ``ModelError`` where the file is gone, cannot be read, or was changed."""
        content, shape = self.tobytes(), self.shape.numpy()
        if self.dtype.bitwidth % 8:
            proto = onnx.TensorProto(data_type=int(self.dtype), dims=shape, raw_data=content)
            return np.asarray(ir.TensorProtoTensor(proto).numpy())
        # Through a proto, it would be in memory three times.
        return np.frombuffer(content, self.dtype.numpy().newbyteorder("<")).reshape(shape)

    def __array__(self, dtype: Any = None) -> NDArray[Any]:
        """Its numbers, for NumPy."""
        return self.numpy().__array__(dtype)

    def tobytes(self) -> bytes:
        """Its bytes in the file; raises ``ModelError`` as ``numpy`` does."""
        size = self.nbytes
        if self.base_dir == _NOWHERE:
            raise ModelError(
                f'Cannot read the weights "{self.name}": the file with them was not given. Load the model from its '
                "path, with that file beside it."
            )
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self.offset or 0)
                content = file.read(size)
            if len(content) < size:
                raise OSError("the file ends early")  # noqa: TRY301 - the same message
        except (OSError, ValueError) as error:
            raise ModelError(
                f'Cannot read the weights "{self.name}": "{self.path}", the file that holds them, is missing, or '
                "is not as it was when the model was loaded. Put it back beside the model, and load the model again.",
                details=str(error),
            ) from error
        # It may have been written in the middle of being read.
        if self.loaded is not None and fingerprint_file(Path(self.path)) != self.loaded:
            raise weights_changed_error(f'read the weights "{self.name}"', Path(self.path))
        return content

    def tofile(self, file: Any) -> None:
        """Write it to an open file."""
        file.write(self.tobytes())


class DetachedWeight(ExternalWeight):
    """A constant of a saved graph, whose numbers are not in the file that the graph is in.

    Args:
        tensor: Type, shape and name.
        fetch: Returns the constant with its numbers, at each access; None where they cannot be had.
        remedy: What to do about missing numbers: a sentence.
    """

    def __init__(
        self, tensor: ir.TensorProtocol, fetch: Callable[[], ir.TensorProtocol] | None, remedy: str
    ) -> None:
        super().__init__(
            "", None, None, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or ""
        )
        self._fetch, self._remedy = fetch, remedy

    @property
    def is_there(self) -> bool:
        """Whether its numbers can be had."""
        return self._fetch is not None

    def fetch(self) -> ir.TensorProtocol:
        """The constant with its numbers; raises ``ModelError`` where they cannot be had."""
        if self._fetch is None:
            raise ModelError(
                f'Cannot read the weights "{self.name}": they are not in the saved study. {self._remedy}'
            )
        tensor = self._fetch()
        if tensor.dtype != self.dtype or tuple(tensor.shape.numpy()) != tuple(self.shape.numpy()):
            raise ModelError(
                f'Cannot read the weights "{self.name}": made anew from the model they have another type or shape '
                "than in the saved study. Build the variant again, study.run([...], again=True)."
            )
        return tensor

    def tobytes(self) -> bytes:
        """Its bytes; raises ``ModelError`` where they cannot be had."""
        return self.fetch().tobytes()


def iter_constants(
    model: ir.Model,
) -> Iterator[tuple[ir.TensorProtocol, Callable[[ir.TensorProtocol], None]]]:
    """The constants of a graph, of initializers and then of attributes, each with a function that replaces it."""
    for value in iter_initializers(model):
        if value.const_value is not None:
            yield value.const_value, functools.partial(setattr, value, "const_value")
    for node, _ in walk(model):
        for attribute in tuple(node.attributes.values()):
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                yield attribute.as_tensor(), functools.partial(_set_attribute, node, attribute)


def _set_attribute(node: ir.Node, attribute: ir.Attr, tensor: ir.TensorProtocol) -> None:
    node.attributes[attribute.name] = ir.AttrTensor(attribute.name, tensor, doc_string=attribute.doc_string)


def weights_changed_error(action: str, path: Path) -> ModelError:
    """The error of weights that are not those that were loaded."""
    return ModelError(
        f'Cannot {action}: "{path}", the file that holds them, was written since the model was loaded, and numbers of '
        "both would mix. Load the model again."
    )


def set_external_folder(
    model: ir.Model, folder: Path | None, stamps: Mapping[str, FileFingerprint | None]
) -> None:
    """Set the folder of external constants that have none yet, and the expected fingerprints of their files by name."""

    def settle(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if isinstance(tensor, ir.ExternalTensor) and not isinstance(tensor, ExternalWeight):
            return _make_external_weight(tensor, folder, stamps)
        return tensor

    map_tensors(model, settle)


def map_tensors(
    model: ir.Model,
    change: Callable[[ir.TensorProtocol], ir.TensorProtocol],
    *,
    skip: Collection[int] = frozenset(),
) -> None:
    """Replace each constant by ``change`` of it, but for initializers whose tensors have an id among ``skip``."""
    for value in iter_initializers(model):
        if value.const_value is not None and id(value.const_value) not in skip:
            value.const_value = change(value.const_value)
    for node, _ in walk(model):
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                node.attributes[name] = ir.AttrTensor(
                    name, change(attribute.value), doc_string=attribute.doc_string
                )
            elif attribute.type == ir.AttributeType.TENSORS and not attribute.is_ref():
                tensors = [change(t) for t in attribute.as_tensors()]
                node.attributes[name] = ir.AttrTensors(name, tensors, doc_string=attribute.doc_string)


def iter_initializers(model: ir.Model) -> Iterator[ir.Value]:
    """Those of the main graph and of all bodies."""
    graphs = {id(model.graph): model.graph}
    for node, _ in walk(model):
        if isinstance(node.graph, ir.Graph):
            graphs.setdefault(id(node.graph), node.graph)
    for graph in graphs.values():
        yield from graph.initializers.values()


def _make_external_weight(
    tensor: ir.ExternalTensor, folder: Path | None, stamps: Mapping[str, FileFingerprint | None]
) -> ExternalWeight:
    weight = ExternalWeight(
        tensor.location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=tensor.metadata_props,
        base_dir=folder or _NOWHERE,
    )
    weight.loaded = stamps.get(str(tensor.location))
    return weight


def materialize_weights(model: ir.Model) -> None:
    """Copy large weights of a graph into arrays and others into protos of their own, so that the source can be freed.

    Constants that are small, or stored in another form than an array's, keep their bytes.
    """
    map_tensors(model, lambda t: _materialize(t) if isinstance(t, ir.TensorProtoTensor) else t)


def _materialize(tensor: ir.TensorProtoTensor) -> ir.TensorProtocol:
    if tensor.size > LARGE and tensor.raw.HasField("raw_data") and tensor.dtype.bitwidth % 8 == 0:
        return ir.Tensor(
            tensor.numpy(),
            dtype=tensor.dtype,
            shape=tensor.shape,
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
    proto_copy = onnx.TensorProto()
    proto_copy.CopyFrom(tensor.raw)
    return ir.TensorProtoTensor(proto_copy)
