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
            i: [n for n in mapping.nodes(i) if i in self._find_layers(n)] for i in self.layers
        }

    def trace(self) -> tuple[PairUse, ...]:
        constant_values: set[str] = set()
        uses: list[PairUse] = []
        for node in self.model.top:
            input_names = [v for v in node.inputs if v]
            if node.op == "Constant" or (
                input_names and all(self._is_constant(v, constant_values) for v in input_names)
            ):
                constant_values.update(node.outputs)
            if node.op == _DEQUANTIZE and node.inputs and node.inputs[0]:
                maker = self.model.producers.get(node.inputs[0])
                q = maker if maker is not None and maker.op == _QUANTIZE and maker.inputs else None
                value = q.inputs[0] if q is not None else node.inputs[0]
                uses.append(
                    self._trace_pair(q, node, value, weight=self._is_constant(value, constant_values))
                )
        return tuple(self._copy_twin_verdict(use, uses) or use for use in uses)

    def _is_constant(self, value: str, constant_values: set[str]) -> bool:
        model_value = self.model.values.get(value)
        is_produced = value in self.model.producers
        return value in constant_values or (
            not is_produced and model_value is not None and model_value.kind == "constant"
        )

    def _find_layers(self, node: str) -> set[str]:
        return self.declared_layers.get(node) or set(self.mapping.layers(node))

    def _trace_pair(self, q: Node | None, dq: Node, value: str, *, weight: bool) -> PairUse:
        nodes = [n for n in (q, dq) if n is not None]
        declared_layers = [self.declared_layers.get(n.id, set()) for n in nodes]
        ends = [
            e & set(self.layers)
            for e in (declared_layers if any(declared_layers) else [self._find_layers(n.id) for n in nodes])
        ]
        layers = tuple(sorted(set().union(*ends), key=lambda i: self.layers[i].index))

        def use(verdict: Verdict, note: str) -> PairUse:
            return PairUse(q.id if q is not None else "", dq.id, value, weight, verdict, layers, note)

        if not layers:
            missing = self.mapping.why(dq.id)
            if weight and missing is not None and missing.reason == "folded":
                return use(
                    "folded", "The weight is known, so this is done at build time (inferred from the graph)."
                )
            return use(
                "unknown", missing.text if missing is not None else "The mapping does not know this node."
            )
        quantize_only_layers = [i for i in layers if all(self._is_light(n, i) for n in self.layer_nodes[i])]
        if quantize_only_layers:
            names = ", ".join(f'"{self.layers[i].name}"' for i in quantize_only_layers)
            first = q is not None and value in self.model.inputs and ends[0] >= set(quantize_only_layers)
            why = " The model's input arrives in FP32, and nothing runs before it." if first else ""
            return use("own layer", f"{names} only quantizes or dequantizes.{why}")
        host = next(n for i in layers for n in self.layer_nodes[i] if not self._is_light(n, i))
        if q is not None and not weight and ends[0] == ends[1]:
            note = (
                f'Quantized and dequantized again within the layer of "{host}": no INT8 tensor comes of it.'
            )
            return use("round trip", note)
        unmapped_node = next((n.id for n, e in zip(nodes, ends, strict=True) if not e), None)
        rest = f' The compiler names no layer for "{unmapped_node}".' if unmapped_node else ""
        return use("absorbed", f'It runs in the layer of "{host}".{rest}')

    def _copy_twin_verdict(self, use: PairUse, uses: list[PairUse]) -> PairUse | None:
        """What became of an equal pair on the same value, for one of which the compiler itself names no layer."""
        if self.declared_layers.keys() & {use.q, use.dq} or not use.q:
            return None
        for other in uses:
            if (
                other is use
                or other.value != use.value
                or not self.declared_layers.keys() & {other.q, other.dq} - {""}
            ):
                continue
            if self._get_parameters(use.dq) == self._get_parameters(other.dq):
                note = f'The compiler names only the equal pair "{other.q}" on the same value.'
                return dataclasses.replace(use, verdict=other.verdict, layers=other.layers, note=note)
        return None

    def _get_parameters(self, node: str) -> list[tuple[object, ...]]:
        constants = self.model.constants(node)
        return [
            (t.dtype, t.numpy().tolist()) if (t := constants.get(v)) is not None else (v,)
            for v in self.model.by_id[node].inputs[1:]
        ]

    def _is_light(self, node: str, layer: str) -> bool:
        model_node = self.model.by_id.get(node)
        return model_node is None or model_node.op in _LIGHT or (node, layer) in self.served_pairs
