"""What a compiler made of each quantize and dequantize pair that a model brings along."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.schema import FieldMeta
from rtlab.relation.flow import VIEWS
from rtlab.relation.mapping import Mapping
from rtlab.relation.roles import SERVING

Verdict = Literal["absorbed", "round trip", "own layer", "folded", "unknown"]

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
#: Nodes that do not make a step more than quantization.
_LIGHT = {_QUANTIZE, _DEQUANTIZE, "Constant"} | VIEWS


@dataclasses.dataclass(frozen=True)
class PairUse:
    """One pair, or the DequantizeLinear of a stored weight, and where it went.

    ``q`` is the id of the QuantizeLinear, empty for stored integers; ``dq`` that of the DequantizeLinear; ``value`` the
    name of what is quantized. ``layers`` are the ids of the engine's layers with one of the two, in execution order.

    The verdict is *absorbed* where each of its layers also runs an operator, *round trip* where it is quantized and
    dequantized inside one such layer, so that no INT8 comes of it, *own layer* where a layer does nothing but quantize
    or dequantize, *folded* where a weight was computed at build time, and *unknown* where the compiler named no layer.
    ``note`` says in words how we know.
    """

    q: str
    dq: str
    value: str
    weight: bool
    verdict: Verdict
    layers: tuple[str, ...]
    note: str

    @property
    def nodes(self) -> Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]:
        """Those of the two that there are."""
        return tuple(n for n in (self.q, self.dq) if n)


def trace_pairs(model: Model, mapping: Mapping, engine: Engine) -> tuple[PairUse, ...]:
    """Where each pair of a model's main graph went, in graph order.

    Layers that the compiler declared for a node count; inferred ones only where it declared none for both nodes.

    Args:
        model: The source model, whose nodes the mapping knows.
        mapping: Of this model and ``engine``.
        engine: For the order of the layers and their names.
    """
    # A model without any is the usual one, and a large engine takes a while to be read for nothing.
    if not any(node.op == _DEQUANTIZE for node in model.top):
        return ()
    return _PairTracer(model, mapping, engine).trace()


class _PairTracer:
    def __init__(self, model: Model, mapping: Mapping, engine: Engine) -> None:
        self.model, self.mapping, self.engine = model, mapping, engine
        self.layers = {layer.id: layer for layer in engine.layers}
        self.declared_layers: dict[str, set[str]] = {}
        running = {p.node for p in mapping.pairs if p.evidence == "declared" and p.role not in SERVING}
        for pair in mapping.pairs:
            # A kernel that quantizes may bear the label of the weight's pair as well, which runs elsewhere.
            if pair.evidence == "declared" and (pair.role not in SERVING or pair.node not in running):
                self.declared_layers.setdefault(pair.node, set()).add(pair.layer)
        self.served_pairs = {(p.node, p.layer) for p in mapping.pairs if p.role in SERVING}
        self.layer_nodes = {
            i: [n for n in mapping.nodes(i) if i in (self.declared_layers.get(n) or mapping.layers(n))]
            for i in self.layers
        }

    def trace(self) -> tuple[PairUse, ...]:
        model, uses = self.model, list[PairUse]()
        constants = {n for n, v in model.values.items() if v.kind == "constant" and n not in model.producers}
        for node in model.top:
            input_names = [v for v in node.inputs if v]
            if node.op == "Constant" or (input_names and constants.issuperset(input_names)):
                constants.update(node.outputs)
            if node.op == _DEQUANTIZE and node.inputs and node.inputs[0]:
                maker = model.producers.get(node.inputs[0])
                q = maker if maker is not None and maker.op == _QUANTIZE and maker.inputs else None
                value = q.inputs[0] if q is not None else node.inputs[0]
                uses.append(self._trace_pair(q, node, value, weight=value in constants))
        return tuple(self._copy_twin_verdict(use, uses) or use for use in uses)

    def _trace_pair(self, q: Node | None, dq: Node, value: str, *, weight: bool) -> PairUse:
        nodes = [n for n in (q, dq) if n is not None]
        ends = [self.declared_layers.get(n.id, set()) & self.layers.keys() for n in nodes]
        if not any(ends):
            ends = [{*self.mapping.layers(n.id)} & self.layers.keys() for n in nodes]
        layers = tuple(sorted(set().union(*ends), key=lambda i: self.layers[i].index))
        workers = {i: [n for n in self.layer_nodes[i] if not self._is_light(n, i)] for i in layers}
        idle_layers = {i for i, working_nodes in workers.items() if not working_nodes}
        verdict: Verdict
        if not layers:
            missing = self.mapping.why(dq.id)
            verdict = "folded" if weight and missing is not None and missing.reason == "folded" else "unknown"
            note = missing.text if missing is not None else "The mapping does not know this node."
            if verdict == "folded":
                note = "The weight is known, so this is done at build time (inferred from the graph)."
        elif idle_layers:
            verdict = "own layer"
            names = ", ".join(f'"{self.layers[i].name}"' for i in layers if i in idle_layers)
            note = f"{names} only quantizes or dequantizes."
            if q is not None and value in self.model.inputs and ends[0] >= idle_layers:
                note += " The model's input arrives in FP32, and nothing runs before it."
        elif q is not None and not weight and ends[0] == ends[1]:
            verdict, host = "round trip", workers[layers[0]][0]
            note = (
                f'Quantized and dequantized again within the layer of "{host}": no INT8 tensor comes of it.'
            )
        else:
            verdict, note = "absorbed", f'It runs in the layer of "{workers[layers[0]][0]}".'
            unmapped_node = next((n.id for n, e in zip(nodes, ends, strict=True) if not e), None)
            note += f' The compiler names no layer for "{unmapped_node}".' if unmapped_node else ""
        return PairUse(q.id if q is not None else "", dq.id, value, weight, verdict, layers, note)

    def _is_light(self, node: str, layer: str) -> bool:
        model_node = self.model.by_id.get(node)
        return model_node is None or model_node.op in _LIGHT or (node, layer) in self.served_pairs

    def _copy_twin_verdict(self, use: PairUse, uses: list[PairUse]) -> PairUse | None:
        """The verdict of an equal pair on the same value, where the compiler names a layer for that one alone."""
        declared_nodes = self.declared_layers.keys()
        if not use.q or declared_nodes & {use.q, use.dq}:
            return None
        twins = (
            other
            for other in uses
            if other.value == use.value
            and declared_nodes & {other.q, other.dq}
            and self._get_parameters(use.dq) == self._get_parameters(other.dq)
        )
        if (twin := next(twins, None)) is None:
            return None
        note = f'The compiler names only the equal pair "{twin.q}" on the same value.'
        return dataclasses.replace(use, verdict=twin.verdict, layers=twin.layers, note=note)

    def _get_parameters(self, node: str) -> list[tuple[object, ...]]:
        constants = self.model.constants(node)
        return [
            (t.dtype, t.numpy().tolist()) if (t := constants.get(v)) is not None else (v,)
            for v in self.model.by_id[node].inputs[1:]
        ]
