"""A model that ONNX Runtime optimized, as an engine's layers, and the times that its profiler tells of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from rtlab.core.engine import Layer, Tensor
from rtlab.core.model import wrap
from rtlab.core.node import Node
from rtlab.core.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What the profiler adds to the name of a node for the time of its kernel.
KERNEL = "_kernel_time"
#: What ONNX Runtime adds to the name of a value: a node in its blocked layout, and an FP16 value kept in FP32.
_NCHWC, _FREE_CAST = "_nchwc", "InsertedPrecisionFreeCast_"


def read(
    proto: ModelProto, name: str, known: Collection[str] | None
) -> tuple[tuple[Layer, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Layers, inputs and outputs of an optimized model.

    Args:
        proto: The model as ONNX Runtime wrote it.
        name: A name for it.
        known: Names of the values of the model that was optimized, None where that model is not at hand.
    """
    # The profiler speaks of nodes by the names in this file, whatever their author called them.
    names = [n.name for n in proto.graph.node]
    model = wrap(proto, name=name)
    values = model.values
    layers = tuple(
        Layer(
            id=f"{i}:{name or node.op}",
            name=name or node.op,
            kind=node.op,
            index=i,
            inputs=tensors(values, (n for n in node.inputs if n and not _constant(values, n))),
            outputs=tensors(values, filter(None, node.outputs)),
            constants=tensors(values, (n for n in node.inputs if n and _constant(values, n))),
            attributes={"values": _stands_for(node, name, known)},
        )
        for i, (node, name) in enumerate(zip(model.top, names, strict=True))
    )
    return layers, tensors(values, model.inputs), tensors(values, model.outputs)


def tensors(values: Mapping[str, Value], names: Iterable[str]) -> tuple[Tensor, ...]:
    """Values of a model as an engine's tensors; a dimension that is not fixed is -1."""
    return tuple(_tensor(name, values.get(name)) for name in names)


def samples(
    events: Iterable[Mapping[str, Any]], layers: Iterable[Layer], warmup: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Milliseconds per layer and run; the events of one node come in the order of the runs."""
    by_name: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(KERNEL):
            by_name.setdefault(str(event["name"]).removesuffix(KERNEL), []).append(float(event["dur"]) / 1e3)
    return {
        layer.id: np.asarray(found[warmup:])
        for layer in layers
        if len(found := by_name.get(layer.name, [])) > warmup
    }


def _stands_for(node: Node, name: str, known: Collection[str] | None) -> dict[str, str]:
    """Values of the optimized graph that stand for values of the model under another name."""
    table = {v: v.removeprefix(_FREE_CAST) for v in (*node.inputs, *node.outputs) if v.startswith(_FREE_CAST)}
    # A node in blocked layout is named after the value that it computes, and writes a nameless one.
    own = name.removesuffix(_NCHWC)
    if name.endswith(_NCHWC) and node.outputs:
        table[node.outputs[0]] = own.removeprefix(_FREE_CAST)
    # Where the names of the model's values are not at hand, the blocked layout tells them by its own.
    return {v: model for v, model in table.items() if model in ({own} if known is None else known)}


def _tensor(name: str, value: Value | None) -> Tensor:
    if value is None:
        return Tensor(name)
    shape = None if value.shape is None else tuple(d if isinstance(d, int) else -1 for d in value.shape)
    return Tensor(name, value.dtype, shape)


def _constant(values: Mapping[str, Value], name: str) -> bool:
    return name in values and values[name].kind == "constant"
