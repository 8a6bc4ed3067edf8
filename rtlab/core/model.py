"""A loaded ONNX model: nodes and values under stable ids.

The nodes of ``Model.ir`` have their *id* as ONNX name; the name in the file is ``Node.name``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import TensorProtocol

from rtlab.core import check, onnx_file, partial_shapes
from rtlab.core.check import infer_types
from rtlab.core.cut import cut
from rtlab.core.external_data import (
    ExternalWeight,
    is_weight,
    iter_constants,
    iter_initializers,
    make_stub,
    materialize_weights,
    read_small_constants,
    serialize_constant,
    set_external_folder,
    strip_weights,
)
from rtlab.core.input_uses import InputUses
from rtlab.core.inputs import FileFingerprint, fingerprint_file
from rtlab.core.node import (
    NAME,
    Node,
    assign_ids,
    find_constant_values,
    project,
    read_constant,
    values_of,
    walk,
)
from rtlab.core.node_instances import NodeInstance, Subgraph, list_subgraphs
from rtlab.core.partial_shapes import Proposal, propose_shapes
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.sizes import Sizes, find_written_batch
from rtlab.core.trt_operators import TRT_OPS, is_dequantizer
from rtlab.core.value import Value, shape_text
from rtlab.errors import ModelError, boundary

#: Operators between a dequantization and its product that change no number.
_TURNS = frozenset({"Transpose", "Cast", "Identity"})


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A checked ONNX model.

    ``nodes`` come in graph order, those of a body after its owner, those of local functions last. ``shapes`` are the
    sizes that the user named for dynamic dimensions, by input name (a tuple) or by symbol (an int). ``notes`` are the
    repairs made in memory when the model was loaded. ``stamp`` is the fingerprint of its file, ``beside`` has those of
    the files with its weights, by the names in it. ``declined`` has, by the id of a finding, the effect of its repair
    on samples, where that was tried and undone.
    """

    name: str
    ir: ir.Model = dataclasses.field(repr=False)
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...] | int]
    path: Path | None = None
    notes: tuple[str, ...] = ()
    stamp: FileFingerprint | None = None
    beside: Mapping[str, FileFingerprint | None] = dataclasses.field(default_factory=dict)
    declined: dict[str, str] = dataclasses.field(default_factory=dict)

    def __reduce__(self) -> tuple[object, ...]:
        # The nodes of a graph refer to each other, and a pickle of them goes as deep as the graph is long.
        rest = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "ir"}
        light, weights = strip_weights(self.ir)
        return _restore, (light.SerializeToString(), weights, rest)

    def __repr__(self) -> str:
        return f"<Model {self.name}: {self.size}, opset {self.opset}>"

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><td>{html.escape(n)}</td><td>{self.values[n].kind}</td><td>{self.values[n].dtype}</td>"
            f"<td>{html.escape(shape_text(self.values[n].shape))}</td></tr>"
            for n in (*self.inputs, *self.outputs)
        )
        return (
            f"<b>{html.escape(self.name)}</b> · {self.size} · opset {self.opset}"
            f"<table><tr><th>value</th><th>kind</th><th>type</th><th>shape</th></tr>{rows}</table>"
        )

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        return int(self.ir.graph.opset_imports.get("", 0))

    @functools.cached_property
    def by_id(self) -> Mapping[str, Node]:
        """Nodes by id."""
        return {n.id: n for n in self.nodes}

    @functools.cached_property
    def top(self) -> tuple[Node, ...]:
        """Nodes of the main graph, without bodies and functions."""
        return tuple(n for n in self.nodes if not n.scope)

    @functools.cached_property
    def node_count(self) -> int:
        """How many nodes the main graph has that compute: constants are counted apart. Every surface shows it."""
        return sum(n.op != "Constant" for n in self.top)

    @property
    def size(self) -> str:
        """That count in words, with constants and nodes of bodies and functions: "330 nodes · 342 constants"."""
        parts = [pluralize(self.node_count, "node")]
        if constants := len(self.top) - self.node_count:
            parts.append(pluralize(constants, "constant"))
        if len(self.nodes) > len(self.top):
            inner = sum(bool(self.owners[i]) and p.node.op != "Constant" for i, p in self.places.items())
            parts.append(f"{inner} in bodies")
        return " · ".join(parts)

    @functools.cached_property
    def scopes(self) -> tuple[Subgraph, ...]:
        """The main graph, the bodies, and each call of a local function, an owner's scope before its bodies'."""
        return list_subgraphs(
            self.ir, {id(n): node for (n, _), node in zip(walk(self.ir), self.nodes, strict=True)}
        )

    @functools.cached_property
    def places(self) -> Mapping[str, NodeInstance]:
        """Where nodes run, by place id; a function's nodes run once per call."""
        return {p.id: p for s in self.scopes for p in s.places}

    @functools.cached_property
    def owners(self) -> Mapping[str, str]:
        """The place of the node that owns the body or the call in which a place stands; empty in the main graph."""
        return {p.id: s.owner for s in self.scopes for p in s.places}

    @functools.cached_property
    def _copies(self) -> Mapping[str, tuple[str, ...]]:
        copies: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for place in self.places.values():
            copies[place.node.id] += (place.id,)
        return copies

    def where(self, node: str) -> tuple[str, ...]:
        """Ids of the places where a node runs: its own, in a function one per call."""
        return self._copies.get(node, ())

    def chosen(self, nodes: Iterable[str]) -> list[str]:
        """The places of nodes by id, place or unique name; raises ``ModelError`` where there is no such node."""
        return [p for n in nodes for p in ((n,) if n in self.places else self.where(self.node(n).id))]

    @functools.cached_property
    def producers(self) -> Mapping[str, Node]:
        """The main-graph node that writes each value."""
        return {out: n for n in self.top for out in n.outputs if out}

    @functools.cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The main-graph nodes that read each value, once each."""
        table: dict[str, list[Node]] = {}
        for n in self.top:
            for name in dict.fromkeys(i for i in n.inputs if i):
                table.setdefault(name, []).append(n)
        return {k: tuple(v) for k, v in table.items()}

    def find_dequantizer(self, value: str) -> Node | None:
        """The main-graph node that dequantizes a value, looked up behind views and casts; None where none does."""
        maker = self.producers.get(value)
        while maker is not None and maker.op in _TURNS:
            maker = self.producers.get(maker.inputs[0])
        # No schema says how many inputs an operator of TensorRT has.
        if maker is None or not is_dequantizer(maker.domain, maker.op) or not any(maker.inputs[:1]):
            return None
        return maker

    def node(self, id: str) -> Node:  # noqa: A002 - the field's word
        """The node with this id or at this place, or with this original name or title when it is unique.

        Raises:
            ModelError: there is none, or several have this name; the message names their ids or the nearest.
        """
        if id in self.by_id:
            return self.by_id[id]
        if id in self.places:
            return self.places[id].node
        named = [n for n in self.nodes if id in {n.name, n.title}]
        if len(named) == 1:
            return named[0]
        if named:
            raise ModelError(
                f'Cannot choose node "{id}" in model "{self.name}": {len(named)} nodes have this name. '
                f"Choose one of the ids {quote_names(n.id for n in named)}."
            )
        import difflib

        near = quote_names(difflib.get_close_matches(str(id), self.by_id, n=3))
        hint = f"Did you mean {near}?" if near else "See model.nodes."
        raise ModelError(f'Cannot find node "{id}" in model "{self.name}": no node has this id. {hint}')

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the serialized model with its weights and the named shapes."""
        work = hashlib.sha256()
        for chunk in onnx_file.iter_chunks(*self.outline()):
            work.update(chunk)
        work.update(repr(sorted(self.shapes.items())).encode())
        return work.hexdigest()

    @functools.cached_property
    def structure(self) -> str:
        """SHA-256 of what decides a compiler's layers: the graph without the numbers of its weights."""
        ends = ([self.values[n] for n in names] for names in (self.inputs, self.outputs))
        return hash_structure(self.ir, self.shapes, *ends)

    def proto(self, *, static: bool = False) -> onnx.ModelProto:
        """The model as a new ``ModelProto`` with all weights inside; protobuf serializes no more than 2 GiB of it.

        ``static`` fixes every input dimension to ``input_shape`` and drops inner shapes.

        Raises:
            ModelError: the external data cannot be read any more, or was changed; or a dynamic size has no name.
        """
        proto, weights = self.outline(static=static)
        for tensor in proto.graph.initializer:
            if tensor.name in weights:
                tensor.CopyFrom(serialize_constant(weights[tensor.name], tensor.name))
        return proto

    def find_changed_file(self) -> Path | None:
        """A file with its weights that changed since it was loaded."""
        home = self.path.parent if self.path else Path()
        loaded = {home / name: stamp for name, stamp in self.beside.items() if stamp is not None}
        return next((file for file, stamp in loaded.items() if fingerprint_file(file) != stamp), None)

    def _fix_shapes(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        """The proto itself, with every input dimension fixed and without inner shapes."""
        if self._static:
            return proto
        del proto.graph.value_info[:]
        for info in proto.graph.input:
            if info.name in self.inputs:
                dims = info.type.tensor_type.shape.dim
                for dim, size in zip(dims, self.input_shape(info.name), strict=True):
                    dim.Clear()
                    dim.dim_value = size
        for info in proto.graph.output:
            info.type.tensor_type.ClearField("shape")
        return proto

    def outline(self, *, static: bool = False) -> tuple[onnx.ModelProto, Mapping[str, TensorProtocol]]:
        """A ``ModelProto`` whose large weights have types and shapes alone, and their tensors by name, for ``wrap``.

        Other constants are inside, also those in files. ``static`` and errors are those of ``proto``.
        """
        light, weights = strip_weights(read_small_constants(self.ir))
        return (self._fix_shapes(light) if static else light), weights

    def bytes(self) -> bytes:
        """The model as one ONNX file with all weights inside; raises ``ModelError`` where they do not fit into one."""
        light, weights = self.outline()
        if (size := onnx_file.count_bytes(light, weights)) > onnx_file.MOST_BYTES:
            raise ModelError(
                f'Cannot put model "{self.name}" into one file: it takes {size / 2**30:.2f} GiB, and one ONNX file '
                "holds at most 2 GiB. Take a part of it with model.extract, or write a variant with study.export, "
                "which puts the weights into a file beside the model."
            )
        return b"".join(onnx_file.iter_chunks(light, weights))

    @functools.cached_property
    def weight_bytes(self) -> int:
        """Bytes of the initializers of the main graph."""
        return sum(t.nbytes for v in self.ir.graph.initializers.values() if (t := v.const_value) is not None)

    @functools.cached_property
    def known(self) -> Mapping[str, TensorProtocol]:
        """Main-graph values known before the first inference: of initializers and Constants, also through Identity."""
        return find_constant_values(self.ir.graph, set(self.inputs))

    @functools.cached_property
    def weightless(self) -> bool:
        """Whether a file that holds weights was missing at the first access."""
        constants = (t for t, _ in iter_constants(self.ir) if isinstance(t, ExternalWeight))
        return any(not t.is_there for t in constants)

    def constants(self, node: str) -> Mapping[str, TensorProtocol]:
        """The constants that a node reads, by value: initializers and Constant nodes; ``ModelError`` for none such."""
        inner, _ = next(itertools.islice(walk(self.ir), self.node(node).index, None))
        table: dict[str, TensorProtocol] = {}
        for value in (v for v in inner.inputs if v is not None):
            tensor, maker = value.const_value, value.producer()
            if tensor is None and maker is not None:
                tensor = read_constant(maker)
            if tensor is not None:
                table[value.name or ""] = tensor
        return table

    def extract(self, ids: Iterable[str]) -> Model:
        """The chosen nodes as a model of their own, whose inputs and outputs are where it was cut.

        A node of a body or of a function stands for the node of the main graph that it runs in.

        Raises:
            ModelError: there is no such node, none is chosen, or weights cannot be read.
        """
        chosen = {owner for id_ in ids for owner in self.iter_top_nodes(id_)}
        proto, weights = extract_nodes(self.ir, self.name, chosen)
        return self._with_own_sizes(wrap(proto, name=f"{self.name}_part", weights=weights))

    def extract_until(self, values: Sequence[str]) -> Model:
        """What some values follow from as a model of its own, of which they are the outputs.

        Raises:
            ModelError: no node writes such a value, or weights cannot be read.
        """
        light, weights = self.outline()
        cut(light, values, self.name)
        part = wrap(light, name=f"{self.name}_part", notes=(_describe_cut(values),), weights=weights)
        return self._with_own_sizes(part)

    def _with_own_sizes(self, part: Model) -> Model:
        """A part of this model at the sizes that are named for this one, and at those that follow inside it."""
        declared = part.declared_shapes
        symbols = partial_shapes.list_open_symbols(declared)
        sizes = self.sizes_by_name.items()
        shapes = {k: s for k, s in sizes if k in (symbols if isinstance(s, int) else declared)}
        for name, dims in declared.items():
            if partial_shapes.list_unsized_axes(name, dims or (), shapes) and (
                size := self.sizes().get(name)
            ):
                shapes[name] = size
        return part.sized(shapes)

    def iter_top_nodes(self, id_: str) -> Iterator[str]:
        """The nodes of the main graph in which a node runs."""
        node = self.node(id_)
        for place in (id_,) if id_ in self.places else self.where(node.id):
            at = place
            while self.owners[at]:
                at = self.owners[at]
            yield at

    def edit(self, change: Callable[[Any], Any]) -> Model:
        """This model as a function of yours changes it, with ONNX GraphSurgeon; the model itself stays as it is.

        ``change`` takes an ``onnx_graphsurgeon.Graph`` whose nodes are named by their ids, and changes that in place or
        returns another: ``model.edit(lambda graph: graph.fold_constants())``. Unread nodes are removed, nodes are
        sorted, and the result is checked like a file.

        Raises:
            ModelError: the result is no graph, or no valid model.
        """
        return load(edit_graph(self.proto(), self.name, change), name=self.name, shapes=self.shapes)

    def input_shape(self, name: str) -> tuple[int, ...]:
        """An input's shape: as named, else its own with a batch of 1; raises ``Unsized`` for an open dimension."""
        return partial_shapes.resolve_shape(
            name, self.declared_shapes[name] or (), self.sizes_by_name, self._list_missing_sizes
        )

    @functools.cached_property
    def sizes_by_name(self) -> Mapping[str, tuple[int, ...] | int]:
        """The named sizes, and those of symbols that follow from a named shape."""
        return {**partial_shapes.collect_symbols(self.declared_shapes, self.shapes), **self.shapes}

    @functools.cached_property
    def input_uses(self) -> InputUses:
        """What the graph does with its inputs, where they are those of a language model."""
        return InputUses(self.nodes, self.values, self.inputs, self.known)

    @functools.cached_property
    def declared_shapes(self) -> dict[str, tuple[int | str | None, ...] | None]:
        """The shapes of the inputs as the graph has them, with one symbol for sizes that are equal."""
        return {n: partial_shapes.substitute_symbols(self.values[n].shape, self._equal) for n in self.inputs}

    @functools.cached_property
    def _equal(self) -> Mapping[str, str]:
        """Symbols that stand for the size of another, which takes their place; see ``find_equal_symbols``."""
        return partial_shapes.find_equal_symbols(
            self.ir, self.scopes, {n: self.values[n].shape for n in self.inputs}
        )

    def _name_sizes(self, sizes: Mapping[str, Sequence[int] | int]) -> dict[str, tuple[int, ...] | int]:
        parsed = partial_shapes.parse_sizes(sizes, self.inputs)
        return partial_shapes.rename_symbols(self.name, parsed, self._equal)

    def _with_shapes(self, shapes: Mapping[str, tuple[int, ...] | int], notes: tuple[str, ...]) -> Model:
        """This model at these sizes, which symbols that equal others have too: a part may have these alone."""
        own = {name: size for name, size in shapes.items() if name not in self._equal}
        symbols = partial_shapes.collect_symbols(self.declared_shapes, own)
        sizes = {name: partial_shapes.resolve_size(text, symbols) for name, text in self._equal.items()}
        model = dataclasses.replace(
            self, shapes={**own, **{n: s for n, s in sizes.items() if s is not None}}, notes=notes
        )
        model.__dict__["_equal"] = self._equal
        return model

    @property
    def proposed(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the inputs, with sizes to try where a dimension is open; see ``propose_shapes``."""
        return self.proposal.shapes

    @functools.cached_property
    def proposal(self) -> Proposal:
        """Those shapes, and whether the graph accepts them."""
        return propose_shapes(
            self.ir,
            self.scopes,
            self.declared_shapes,
            self.shapes,
            written=self.input_uses.list_written_lengths(),
            longest=self.input_uses.count_positions(),
            picture=_read_picture_size(self.ir.metadata_props),
        )

    def _list_missing_sizes(self) -> Mapping[str, tuple[int, ...] | int]:
        """What is proposed for the dimensions that lack a size."""
        return partial_shapes.list_missing_sizes(self.declared_shapes, self.sizes_by_name, self.proposed)

    def sized(self, shapes: Mapping[str, Sequence[int] | int]) -> Model:
        """This model with sizes named for its dynamic dimensions, as ``rtlab.load(..., shapes=...)`` takes them.

        Raises:
            ModelError: a name is neither an input nor a symbol, or a shape does not fit.
        """
        declared = self.declared_shapes
        named = self._name_sizes(shapes)
        partial_shapes.check(self.name, declared, named)
        sized_model = self._with_shapes(named, self.notes)
        batch = sized_model.written_batch
        if not batch or batch == sized_model.named_batch:
            return sized_model
        fixed = partial_shapes.with_batch(declared, named, batch)
        rejected_batch = f", not of {sized_model.named_batch}" if sized_model.named_batch else ""
        note = f"A batch of {batch} is written inside the model: it is run in batches of {batch}{rejected_batch}."
        return self._with_shapes(fixed, tuple(dict.fromkeys((*self.notes, note))))

    def resized(self, sizes: Mapping[str, Sequence[int] | int]) -> Model:
        """This model with other sizes of some dimensions, and all others as they are named; one object for each choice.

        Raises:
            ModelError: a name is neither an input nor a symbol, or a shape does not fit.
        """
        key = repr(sorted(sizes.items()))
        if key not in self._resized:
            declared = self.declared_shapes
            shapes = {name: size for name, size in self.shapes.items() if name not in self._equal}
            named = partial_shapes.override_sizes(declared, shapes, self._name_sizes(sizes))
            self._resized[key] = self.sized(named)
        return self._resized[key]

    @functools.cached_property
    def _resized(self) -> dict[str, Model]:
        return {}

    def sizes(self, *, batch: int | None = None, shapes: Mapping[str, Sequence[int]] | None = None) -> Sizes:
        """The shape of every value; computed once for each choice of shapes.

        Args:
            batch: The first dimension of every input whose first dimension is dynamic; 1 by default.
            shapes: Shapes of inputs by name, in place of those named when the model was loaded.
        """
        inputs = partial_shapes.resolve_partial_shapes(self.declared_shapes, self.shapes, batch, shapes or {})
        key = tuple(inputs.items())
        if key not in self._sizes:
            self._sizes[key] = Sizes(self.ir, self.scopes, inputs)
        return self._sizes[key]

    @functools.cached_property
    def _sizes(self) -> dict[tuple[object, ...], Sizes]:
        return {}

    @property
    def file(self) -> Path | None:
        """The model's file where it is equal to this model: same names, not repaired, static, unchanged."""
        if self.origin is None or self.notes or not self._static:
            return None
        return None if any(NAME in node.metadata_props for node, _ in walk(self.ir)) else self.path

    @property
    def origin(self) -> Path | None:
        """The file that it was loaded from; None where there was none, or it or its weights have changed since."""
        if self.path is None or self.stamp != fingerprint_file(self.path) or self.find_changed_file():
            return None
        return self.path

    @property
    def dynamic_batch(self) -> bool:
        """Whether the first dimension of every input is dynamic in the graph, and none of them is a length."""
        return partial_shapes.has_batch(self.declared_shapes)

    @property
    def free_batch(self) -> bool:
        """Whether any batch size can be run: the batch is dynamic, and was not named for all inputs."""
        return self.dynamic_batch and not self.named_batch

    @functools.cached_property
    def written_batch(self) -> int:
        """The only batch that constants inside the graph allow, where its inputs leave it open; 0 where none does."""
        if not self.dynamic_batch:
            return 0
        return find_written_batch(self.ir.graph, self.known, lambda batch: self.sizes(batch=batch))

    @property
    def named_batch(self) -> int:
        """The batch that was named for all inputs; 0 where there is none, or they differ."""
        named = {self._named_batch(n) for n in self.inputs}
        return named.pop() if len(named) == 1 else 0

    def _named_batch(self, name: str) -> int:
        """The first dimension of an input as it was named with the model's sizes; 0 where it was not."""
        named_shape, shape = self.shapes.get(name), self.values[name].shape or ()
        if isinstance(named_shape, tuple):
            return named_shape[0] if named_shape else 0
        size = self.shapes.get(shape[0]) if shape and isinstance(shape[0], str) else 0
        return size if isinstance(size, int) else 0

    @property
    def _static(self) -> bool:
        return all(isinstance(d, int) for n in self.inputs for d in self.values[n].shape or ())

    def static(self) -> Model:
        """This model with every input dimension fixed to ``input_shape``; itself when nothing is dynamic."""
        if self._static:
            return self
        light, weights = self.outline(static=True)
        return wrap(light, name=self.name, path=self.path, notes=self.notes, weights=weights)


def _restore(content: bytes, weights: Mapping[str, TensorProtocol], rest: Mapping[str, Any]) -> Model:
    """Unpickle; weights in external data stay in their files."""
    graph = ir.from_proto(onnx.load_from_string(content))
    materialize_weights(graph)
    _set_weights(graph, weights)
    set_external_folder(graph, rest["path"].parent.absolute() if rest["path"] else None, rest["beside"])
    return Model(ir=graph, **rest)


@boundary("load the model", ModelError)
def load(
    source: str | Path | bytes | onnx.ModelProto,
    *,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    name: str | None = None,
    weights: bool = True,
    until: str | Sequence[str] = (),
) -> Model:
    """Read and check an ONNX model. The source is never written to.

    Args:
        source: A path, the bytes of a file, or a ``ModelProto``. External data is found beside a path.
        shapes: Sizes of dynamic dimensions, by input name (all dimensions) or by symbol (one size).
        name: What to call the model; the file's name by default.
        weights: False where the files that hold them may be missing: the graph is shown, and layers of an engine
            are mapped to its nodes; reading a number raises ``ModelError``.
        until: Values that become the outputs; what they do not follow from is cut off.

    Raises:
        ModelError: not an ONNX file, truncated, without nodes, not valid, external data is missing or lies outside the
            model's folder, or no node writes a value of ``until``.
    """
    before = fingerprint_file(Path(source)) if isinstance(source, (str, Path)) else None
    proto, path = check.read(source)
    check.escape(proto)
    title = name or (path.stem if path else "") or proto.graph.name or "model"
    values = [until] if isinstance(until, str) else list(until)
    cut_notes = (_describe_cut(values),) if values else ()
    if values:
        cut(proto, values, title)
    external_files = {
        name: fingerprint_file(path.parent / name) if path else None
        for name in check.list_external_files(proto)
    }
    notes = (*cut_notes, *check.check(proto, path, title, weights=weights))
    wrapped = wrap(proto, name=title, path=path, notes=notes, external_files=external_files)
    return dataclasses.replace(wrapped, stamp=before).sized(shapes or {})


def make_empty_model() -> Model:
    """A model without nodes, for an engine that was read without its ONNX model."""
    return wrap(onnx.helper.make_model(onnx.helper.make_graph([], "none", [], [])), name="no ONNX model")


def wrap(
    proto: onnx.ModelProto,
    *,
    name: str,
    path: Path | None = None,
    shapes: Mapping[str, tuple[int, ...] | int] | None = None,
    notes: tuple[str, ...] = (),
    weights: Mapping[str, TensorProtocol] | None = None,
    external_files: Mapping[str, FileFingerprint | None] | None = None,
) -> Model:
    """Make a ``Model`` of a valid proto.

    ``weights`` are the tensors of initializers of which the proto has types and shapes alone; ``external_files`` are
    the fingerprints of files with others.
    """
    try:
        graph = ir.from_proto(proto)
    except ir.serde.SerdeError as error:
        raise ModelError(
            f'Cannot load model "{name}": onnx-ir cannot read a part of it. Export the model again.',
            details=str(error),
        ) from error
    _set_weights(graph, weights or {})
    materialize_weights(graph)
    set_external_folder(graph, path.parent.absolute() if path else None, external_files or {})
    assign_ids(graph)
    # Shapes are a help, not a condition: the checker has accepted the model.
    with contextlib.suppress(Exception):
        infer_types(graph, proto)
    # A name stands in one line, wherever it is printed.
    model = of(graph, name=" ".join(name.splitlines()), shapes=shapes)
    return dataclasses.replace(model, path=path, notes=notes, beside=external_files or {})


def _describe_cut(values: Iterable[str]) -> str:
    return f"cut at {quote_names(values)}: nothing behind is in this model"


def _set_weights(graph: ir.Model, weights: Mapping[str, TensorProtocol]) -> None:
    """Put tensors in the place of initializers that have types and shapes alone."""
    initializers = graph.graph.initializers
    for name, tensor in weights.items():
        if name in initializers:
            initializers[name].const_value = tensor


def of(graph: ir.Model, *, name: str, shapes: Mapping[str, tuple[int, ...] | int] | None = None) -> Model:
    """Make a ``Model`` of a graph whose nodes have their ids and whose values have their types."""
    initializers = graph.graph.initializers
    inputs = tuple(v.name or "" for v in graph.graph.inputs if v.name not in initializers)
    return Model(
        name=name,
        ir=graph,
        nodes=tuple(project(graph)),
        values=values_of(graph, set(inputs)),
        inputs=inputs,
        outputs=tuple(v.name or "" for v in graph.graph.outputs),
        shapes=dict(shapes or {}),
    )


_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"}) | TRT_OPS
#: Digits of a single number that are the same on all processors.
_DIGITS = 5


def hash_structure(
    graph: ir.Model, shapes: Mapping[str, object], inputs: Iterable[Value], outputs: Iterable[Value]
) -> str:
    """SHA-256 of operators, attributes, names, topology, types, shapes, and constants that decide about shapes.

    ``shapes`` are the sizes that a user named.

    Of a weight's numbers only a common value counts, of scales and quantized weights nothing; integers and single
    numbers count, to five digits.
    """
    work = hashlib.sha256()
    edges = [f"{v.name} {v.dtype} {v.shape}" for v in inputs] + [f"{v.name} {v.dtype} " for v in outputs]
    header = (repr(sorted(graph.graph.opset_imports.items())), repr(sorted(shapes.items())), *edges)
    for piece in (*header, *_iter_pieces(graph)):
        work.update(piece.encode("utf-8", "surrogatepass"))
        work.update(b"\0")
    return work.hexdigest()


def _iter_pieces(graph: ir.Model) -> Iterator[str]:
    """Each node and each constant, in order."""
    nodes = [node for node, _ in walk(graph)]
    roles = _collect_roles(nodes)
    for node in nodes:
        read = [v.name or "" if v is not None else "" for v in node.inputs]
        outputs = [v.name or "" for v in node.outputs]
        yield f"{node.domain} {node.op_type} {node.overload} {node.name} {read} {outputs}"
        for name, attribute in sorted(node.attributes.items()):
            yield f"{name} {_describe_attribute(attribute, roles.get(outputs[0] if outputs else '', set()))}"
    for initializer in iter_initializers(graph):
        name = initializer.name or ""
        yield f"{name} {_describe_constant(initializer.const_value, roles.get(name, set()))}"


def _collect_roles(nodes: Iterable[ir.Node]) -> dict[str, set[int]]:
    """By value, as which of their inputs pairs read it: 0 is what is quantized, 1 the scale, 2 the zero point."""
    roles: dict[str, set[int]] = {}
    for node in nodes:
        for place, value in enumerate(node.inputs if node.op_type in _PAIRS else ()):
            if value is not None and value.name:
                roles.setdefault(value.name, set()).add(place)
    return roles


def _describe_attribute(attribute: ir.Attr, roles: set[int]) -> str:
    """An attribute; the nodes of a graph come by themselves."""
    if attribute.is_ref():
        return f"of the function: {attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.TENSOR:
        return _describe_constant(attribute.as_tensor(), roles)
    if attribute.type == ir.AttributeType.TENSORS:
        return " ".join(_describe_constant(t, roles) for t in attribute.as_tensors())
    if attribute.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}:
        graphs = [attribute.value] if attribute.type == ir.AttributeType.GRAPH else attribute.as_graphs()
        ends = [([v.name for v in g.inputs], [v.name for v in g.outputs]) for g in graphs]
        return repr(ends)
    return f"{attribute.type} {attribute.value!r}"


def _describe_constant(tensor: ir.TensorProtocol | None, roles: set[int]) -> str:
    """A constant: its type and shape, and as much of its numbers as counts. ``roles`` are its places in pairs."""
    if tensor is None:
        return ""
    description = f"{tensor.dtype} {tensor.shape}"
    if roles & {0, 1}:
        return description
    if tensor.dtype == ir.DataType.STRING:
        return f"{description} {tensor.string_data() if hasattr(tensor, 'string_data') else ''}"
    if not getattr(tensor, "is_there", True):
        return f"{description} not here"
    array = np.asarray(tensor.numpy())
    if array.dtype.kind in "iub":
        return f"{description} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    if not array.size:
        return description
    plain = array.astype(np.float32) if array.dtype.kind not in "fc" else array
    one = plain.reshape(-1)[0]
    if array.size == 1 or bool((plain == one).all()):
        return f"{description} {one:.{_DIGITS}g}"
    return description


#: First IR version in which an initializer need not be a graph input as well.
_MIN_IR = 8


def extract_nodes(
    source: ir.Model, title: str, chosen: Collection[str]
) -> tuple[onnx.ModelProto, Mapping[str, TensorProtocol]]:
    """The chosen nodes of the main graph, by name, as a model of their own, in the form of ``Model.outline``.

    Values from outside become inputs, or are included where they are constant; values that the rest of the model or no
    node reads become outputs. Types and shapes are kept as far as they are known. ``title`` is the name of the source
    in errors.

    Raises:
        ModelError: none is chosen, or weights cannot be read.
    """
    graph = read_small_constants(source).graph
    nodes = [n for n in graph if n.name in chosen]
    if not nodes:
        raise ModelError(
            f'Cannot extract a part of model "{title}": no node is chosen. Select at least one node.'
        )
    reads = {id(n): list(iter_reads(n)) for n in graph}
    produced_ids = {id(v) for n in nodes for v in n.outputs}
    outside = {id(v): v for n in nodes for v in reads[id(n)] if id(v) not in produced_ids}
    # A Constant node is an initializer in another form, so it comes along like one.
    makers = [p for v in outside.values() if (p := v.producer()) is not None]
    constants = {id(p) for p in makers if p.op_type == "Constant"}
    nodes = [n for n in graph if n.name in chosen or id(n) in constants]
    produced_ids = {id(v) for n in nodes for v in n.outputs}
    constant_values = [v for v in outside.values() if v.const_value is not None and id(v) not in produced_ids]
    inputs = [v for v in outside.values() if v.const_value is None and id(v) not in produced_ids]
    read = {id(v) for n in graph for v in reads[id(n)]}
    elsewhere = {id(v) for n in graph if n.name not in chosen for v in reads[id(n)]}
    elsewhere |= {id(v) for v in graph.outputs}
    outputs = [
        v for n in nodes if id(n) not in constants or n.name in chosen for v in n.outputs
        if v.name and (id(v) in elsewhere or id(v) not in read)
    ]  # fmt: skip
    inner = [v for n in nodes for v in n.outputs if v.name and v.type is not None]
    proto = onnx.ModelProto(ir_version=source.ir_version, producer_name="rtlab")
    proto.graph.name = f"{graph.name or title} (part)"
    graph_output_ids = {id(v) for v in outputs}
    proto.graph.node.extend(ir.serde.serialize_node(n) for n in nodes)
    proto.graph.input.extend(_info(v) for v in inputs)
    proto.graph.output.extend(_info(v) for v in outputs)
    proto.graph.value_info.extend(_info(v) for v in inner if id(v) not in graph_output_ids)
    weights: dict[str, TensorProtocol] = {}
    for value in constant_values:
        name, tensor = value.name or "", value.const_value
        if tensor is not None and is_weight(tensor):
            weights[name] = tensor
            proto.graph.initializer.append(make_stub(tensor, name))
        elif tensor is not None:
            proto.graph.initializer.append(serialize_constant(tensor, name))
    proto.functions.extend(map(ir.serde.serialize_function, source.functions.values()))
    for domain, version in graph.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    return proto, weights


def iter_reads(node: ir.Node) -> Iterator[ir.Value]:
    """Values that a node reads from the graph that it stands in, those that its bodies read included."""
    local_ids: set[int] = set()
    read_values: dict[int, ir.Value] = {}
    todo = [node]
    while todo:
        at = todo.pop()
        read_values |= {id(v): v for v in at.inputs if v is not None and v.name}
        for attribute in at.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                body = attribute.as_graph()
                local_ids |= {id(v) for v in (*body.inputs, *body.initializers.values())}
                local_ids |= {id(v) for inner in body for v in inner.outputs}
                read_values |= {id(v): v for v in body.outputs}
                todo += body
    yield from (v for k, v in read_values.items() if k not in local_ids)


def _info(value: ir.Value) -> onnx.ValueInfoProto:
    if value.type is not None:
        return ir.serde.serialize_value(value)
    # A value needs a type, and "undefined" is one; a shape that nobody knows is not invented.
    return onnx.helper.make_tensor_value_info(value.name or "", onnx.TensorProto.UNDEFINED, None)


def edit_graph(source: onnx.ModelProto, title: str, change: Callable[[Any], Any]) -> onnx.ModelProto:
    """A model with its graph changed by a function: see ``Model.edit``. ``title`` is its name in errors."""
    import onnx_graphsurgeon as gs

    with gs.logger.G_LOGGER.suppress():
        graph = gs.import_onnx(source)
    changed = change(graph)
    changed = graph if changed is None else changed
    if not isinstance(changed, gs.Graph):
        raise ModelError(
            f'Cannot edit model "{title}": the function returned {type(changed).__name__}. Return the graph, or '
            "nothing where it was changed in place."
        )
    try:
        with gs.logger.G_LOGGER.suppress():
            proto: onnx.ModelProto = gs.export_onnx(changed.cleanup().toposort(), do_type_check=False)
    except Exception as error:
        raise ModelError(
            f'Cannot edit model "{title}": ONNX GraphSurgeon cannot export the result of the function. Try it on '
            "onnx_graphsurgeon.import_onnx(model.proto()).",
            details=str(error),
        ) from error
    # ONNX Runtime may not know the newest one.
    proto.ir_version = max(source.ir_version, _MIN_IR)
    # GraphSurgeon drops metadata, such as original names, and documentation.
    source_nodes = {(node.name, node.op_type): node for node in source.graph.node}
    for node in proto.graph.node:
        if (was := source_nodes.get((node.name, node.op_type))) is not None:
            del node.metadata_props[:]
            node.metadata_props.extend(was.metadata_props)
            node.doc_string = was.doc_string
    del proto.metadata_props[:]
    proto.metadata_props.extend(source.metadata_props)
    return proto


#: Where exporters write the size of the picture that a model was made for: Ultralytics, timm and others.
_PICTURE_KEYS = ("imgsz", "image_size", "img_size", "input_size")


def _read_picture_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """Height and width as a file's metadata name them, such as ``imgsz: [320, 320]``; None where they do not."""
    for key in _PICTURE_KEYS:
        sizes = [int(n) for n in re.findall(r"\d+", metadata.get(key, ""))][-2:]
        if sizes and all(0 < n < 1 << 16 for n in sizes):
            return sizes[0], sizes[-1]
    return None
