"""Constants that lie in a file beside the model, as those of large models do; and others as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def strip_weights(model: ir.Model) -> tuple[onnx.ModelProto, Mapping[str, ir.TensorProtocol]]:
    """A proto in which large initializers of the main graph have a type and a shape alone, and their tensors by name.

    Those that are inputs or outputs as well keep their numbers.
    """
    graph = model.graph
    listed = {v.name for v in (*graph.inputs, *graph.outputs)}
    weights: dict[str, ir.TensorProtocol] = {}
    light: dict[str, Any] = dict(graph.initializers)
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if (
            tensor is not None
            and name not in listed
            and tensor.size > LARGE
            and tensor.dtype != ir.DataType.STRING
        ):
            stub = onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
            weights[name] = tensor
            light[name] = _AttributeProxy(value, const_value=ir.TensorProtoTensor(stub))
    outline: Any = _AttributeProxy(model, graph=_AttributeProxy(graph, initializers=light))
    return ir.serde.serialize_model(outline), weights


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
        proto = onnx.TensorProto(
            data_type=int(self.dtype), dims=self.shape.numpy(), raw_data=self.tobytes()[: self.nbytes]
        )
        return np.asarray(ir.TensorProtoTensor(proto).numpy())

    def __array__(self, dtype: Any = None) -> NDArray[Any]:
        """Its numbers, for NumPy."""
        return self.numpy().__array__(dtype)

    def tobytes(self) -> bytes:
        """Its bytes in the file; raises ``ModelError`` as ``numpy`` does."""
        size = self.length or self.nbytes
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


def weights_changed_error(action: str, path: Path) -> ModelError:
    """The error of weights that are not those that were loaded."""
    return ModelError(
        f'Cannot {action}: "{path}", the file that holds them, was written since the model was loaded, and numbers of '
        "both would mix. Load the model again."
    )


def set_external_folder(
    model: ir.Model, folder: Path | None, stamps: Mapping[str, FileFingerprint | None]
) -> None:
    """Set the folder of a model's external constants, and the expected fingerprints of their files by name."""
    map_tensors(
        model, lambda t: _make_external_weight(t, folder, stamps) if isinstance(t, ir.ExternalTensor) else t
    )


def iter_external_weights(model: ir.Model) -> Iterator[ExternalWeight]:
    """The initializers of a settled model that lie in files."""
    return (v.const_value for v in iter_initializers(model) if isinstance(v.const_value, ExternalWeight))


def load_body_constants(model: ir.Model) -> None:
    """Load the constants of bodies and nodes from their files; raises ``ModelError`` as ``ExternalWeight`` does."""

    def load(t: ir.TensorProtocol) -> ir.TensorProtocol:
        if not isinstance(t, ExternalWeight):
            return t
        return ir.Tensor(t.numpy(), dtype=t.dtype, shape=t.shape, name=t.name)

    map_tensors(model, load, main=False)


def map_tensors(
    model: ir.Model, change: Callable[[ir.TensorProtocol], ir.TensorProtocol], *, main: bool = True
) -> None:
    """Replace each constant by ``change`` of it; without ``main`` not the initializers of the main graph."""
    for value in iter_initializers(model):
        if value.const_value is not None and (main or value.graph is not model.graph):
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
