"""A model cut at some of its values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

import onnx

from rtlab.core.check import is_heavy, replace_weights_with_inputs
from rtlab.core.phrases import quote_names
from rtlab.errors import ModelError


def cut(proto: onnx.ModelProto, until: Sequence[str], title: str) -> None:
    """Leave what some values follow from, which become the outputs, in this order; ``title`` is the model's in errors.

    Raises:
        ModelError: no node writes such a value, or nothing says of which type it is.
    """
    graph = proto.graph
    makers = {value: i for i, node in enumerate(graph.node) for value in node.output if value}
    for value in until:
        if value not in makers:
            close = difflib.get_close_matches(value, makers, n=3, cutoff=0.5)
            hint = f"Did you mean {quote_names(close)}?" if close else "Name the output of a node."
            raise ModelError(f'Cannot cut model "{title}" at "{value}": no node writes this value. {hint}')
    stack, chosen = list(until), set[int]()
    read = set[str]()
    while stack:
        value = stack.pop()
        if value in makers and makers[value] not in chosen:
            chosen.add(makers[value])
            inputs = set(_iter_reads(graph.node[makers[value]]))
            read |= inputs
            stack += inputs
    infos = {v.name: v for v in (*_infer_values(proto), *graph.value_info, *graph.output)}
    for value in until:
        if not _is_tensor(infos.get(value)):
            infos[value] = _describe_scores(proto, value)
    if untyped := [v for v in until if not _is_tensor(infos.get(v))]:
        raise ModelError(
            f'Cannot cut model "{title}" at "{untyped[0]}": it is no tensor, or ONNX does not infer its type. '
            "Name another value."
        )
    nodes = [node for i, node in enumerate(graph.node) if i in chosen]
    outputs = [infos[v] for v in until]
    _replace(graph.node, nodes)
    _replace(graph.output, outputs)
    for field in (graph.input, graph.initializer):
        _replace(field, [v for v in field if v.name in read])


def _iter_reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, those of its bodies included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _iter_reads(inner)


def _infer_values(proto: onnx.ModelProto) -> Iterable[onnx.ValueInfoProto]:
    light = replace_weights_with_inputs(proto, is_heavy)
    try:
        return tuple(onnx.shape_inference.infer_shapes(light).graph.value_info)
    except Exception:  # noqa: BLE001 - what is inferred is all that is asked for
        return ()


def _describe_scores(proto: onnx.ModelProto, value: str) -> onnx.ValueInfoProto:
    """What a ZipMap reads: FP32 numbers by sample and class, which ONNX does not infer; elsewhere without a type."""
    for node in proto.graph.node:
        if node.op_type == "ZipMap" and value in node.input:
            classes = [
                len(a.ints) or len(a.strings) for a in node.attribute if a.name.startswith("classlabels")
            ]
            return onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [None, *classes])
    return onnx.ValueInfoProto(name=value)


def _is_tensor(info: onnx.ValueInfoProto | None) -> bool:
    kind = onnx.TypeProto.Tensor() if info is None else info.type.tensor_type
    return bool(kind.elem_type) and kind.HasField("shape")


def _replace(field: object, items: Sequence[object]) -> None:
    copies = [type(i).FromString(i.SerializeToString()) for i in items]  # type: ignore[attr-defined]
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]
