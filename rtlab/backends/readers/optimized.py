"""A model that ONNX Runtime optimized, as an engine's layers, and the times that its profiler tells of them."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from rtlab.core.engine import Layer, Tensor
from rtlab.core.model import Model, wrap
from rtlab.core.node import Node
from rtlab.core.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What the profiler adds to the name of a node for the time of its kernel.
KERNEL = "_kernel_time"
#: How each event begins in its file, and the name in an event.
_EVENT, _NAME = '{"cat" : "', re.compile(r'"name" :"(.*)","args" : \{', re.DOTALL)
#: What ONNX Runtime adds to the name of a value that it keeps in FP32, and the set of its operators in blocked layout.
_FREE_CAST, _BLOCKED = "InsertedPrecisionFreeCast_", "nchwc"
#: What it adds to the name of a value for the node that computes it in blocked layout; with a number where a node of
#: the model has that name.
_NCHWC = re.compile(r"_nchwc(_token_\d+)?$")
#: Which input of a blocked convolution is added to what it computes.
_SUM = 3


def read(
    proto: ModelProto, name: str, source: Model | None
) -> tuple[tuple[Layer, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Layers, inputs and outputs of a model as ONNX Runtime wrote it; ``source`` is the model before, where at hand."""
    # The profiler speaks of nodes by the names in this file, whatever their author called them.
    names = [n.name for n in proto.graph.node]
    model = wrap(proto, name=name)
    values = model.values
    value_maps = [_map_values(node, name, source) for node, name in zip(model.top, names, strict=True)]
    types = (
        {} if source is None else _infer_blocked_types(zip(model.top, names, value_maps, strict=True), source)
    )

    def to_typed_tensors(names: Iterable[str]) -> tuple[Tensor, ...]:
        tensors = to_tensors(values, names)
        return tuple(t if t.dtype else dataclasses.replace(t, dtype=types.get(t.name, "")) for t in tensors)

    layers = tuple(
        Layer(
            id=f"{i}:{name or node.op}",
            name=name or node.op,
            kind=node.op,
            index=i,
            inputs=to_typed_tensors(n for n in node.inputs if n and not _is_constant(values, n)),
            outputs=to_typed_tensors(filter(None, node.outputs)),
            constants=to_typed_tensors(n for n in node.inputs if n and _is_constant(values, n)),
            attributes={"values": table},
        )
        for i, (node, name, table) in enumerate(zip(model.top, names, value_maps, strict=True))
    )
    return layers, to_tensors(values, model.inputs), to_tensors(values, model.outputs)


def to_tensors(values: Mapping[str, Value], names: Iterable[str]) -> tuple[Tensor, ...]:
    """Values of a model as an engine's tensors; a dimension that is not fixed is -1."""
    tensors = []
    for name in names:
        value = values.get(name)
        shape = None
        if value is not None and value.shape is not None:
            shape = tuple(d if isinstance(d, int) else -1 for d in value.shape)
        tensors.append(Tensor(name, value.dtype if value else "", shape))
    return tuple(tensors)


@dataclasses.dataclass(frozen=True)
class NodeRuns:
    """What the profiler told of one node: who ran it, its number there, and the milliseconds of its runs in order."""

    provider: str
    index: int
    milliseconds: array.array[float]


def collect_kernel_times(events: Iterable[Mapping[str, Any]]) -> dict[str, NodeRuns]:
    """What the profiler told, by the name of the node, in the order of the first runs."""
    runs_by_node: dict[str, NodeRuns] = {}
    for event in events:
        if event.get("cat") != "Node" or not str(event.get("name", "")).endswith(KERNEL):
            continue
        name = str(event["name"]).removesuffix(KERNEL)
        if name not in runs_by_node:
            args = event.get("args") or {}
            runs_by_node[name] = NodeRuns(
                str(args.get("provider", "")), int(args.get("node_index") or 0), array.array("d")
            )
        runs_by_node[name].milliseconds.append(float(event["dur"]) / 1e3)
    return runs_by_node


def read_events(path: Path, *, names_escaped: bool) -> Iterator[Mapping[str, Any]]:
    """The events of the file that ONNX Runtime's profiler wrote, one after the other.

    It writes each on a line of its own, of about a kilobyte; thirty runs of 5,000 nodes are 150 MB. An event that
    cannot be read is left out. ``names_escaped`` says that names are JSON, as from release 1.31 on; before, quotes,
    backslashes and line breaks stand in them as they are.
    """
    for text in _split_events(path):
        raw = None if names_escaped else _NAME.search(text)
        with contextlib.suppress(json.JSONDecodeError):
            if raw is None:
                yield json.loads(text)
            else:
                yield {**json.loads(text[: raw.start(1)] + text[raw.end(1) :]), "name": raw[1]}


def _split_events(path: Path) -> Iterator[str]:
    """The text of each event."""
    event_lines: list[str] = []
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in itertools.chain(lines, ("]",)):
            if event_lines and line.startswith((_EVENT, "]")):
                yield "".join(event_lines).rstrip().rstrip(",")
                event_lines.clear()
            if event_lines or line.startswith(_EVENT):
                event_lines.append(line)


def collect_samples(
    runs_by_node: Mapping[str, NodeRuns], layers: Iterable[Layer]
) -> dict[str, NDArray[np.float64]]:
    """Milliseconds per layer and run."""
    return {
        layer.id: np.asarray(runs_by_node[layer.name].milliseconds)
        for layer in layers
        if layer.name in runs_by_node and runs_by_node[layer.name].milliseconds
    }


def _map_values(node: Node, name: str, source: Model | None) -> dict[str, str]:
    """Values of the optimized graph that stand for values of the model under another name."""
    table = {v: v.removeprefix(_FREE_CAST) for v in (*node.inputs, *node.outputs) if v.startswith(_FREE_CAST)}
    # A node in blocked layout is named after the value that it computes, and writes a nameless one.
    value_name = _NCHWC.sub("", name)
    if value_name != name and _BLOCKED in node.domain and node.outputs:
        table[node.outputs[0]] = _follow_fused_nodes(node, value_name.removeprefix(_FREE_CAST), source)
    if source is None:
        # Where the names of the model's values are not at hand, the blocked layout tells them by its own.
        return {v: value for v, value in table.items() if value == value_name}
    return {v: value for v, value in table.items() if value in source.values}


def _infer_blocked_types(nodes: Iterable[tuple[Node, str, dict[str, str]]], source: Model) -> dict[str, str]:
    """Types of values in blocked layout, each that of what it stands for; adds to the maps what is only known here."""
    types: dict[str, str] = {}
    for node, name, value_map in nodes:
        if _BLOCKED in node.domain or any(v in types for v in node.inputs):
            source_node = source.by_id.get(name)
            if source_node is not None and source_node.op == node.op:
                # It keeps its name on blocked values, since it does not care about the layout.
                outputs = zip(node.outputs, source_node.outputs, strict=False)
                value_map.update({v: value for v, value in outputs if v not in source.values})
            sources = {node.outputs[0]: node.inputs[0]} if node.op == "ReorderInput" else value_map
            types |= {
                v: source.values[sources[v]].dtype for v in node.outputs if sources.get(v) in source.values
            }
    return types


def _follow_fused_nodes(node: Node, value: str, source: Model | None) -> str:
    """The value that a blocked convolution computes: a sum and an activation that went into it stand behind its own."""
    if source is None:
        return value
    has_sum = len(node.inputs) > _SUM and bool(node.inputs[_SUM])
    for op in ("Add" if has_sum else "", str(node.attributes.get("activation", ""))):
        readers = source.consumers.get(value, ())
        if op and len(readers) == 1 and readers[0].op == op:
            value = readers[0].outputs[0]
    return value


def _is_constant(values: Mapping[str, Value], name: str) -> bool:
    return name in values and values[name].kind == "constant"
