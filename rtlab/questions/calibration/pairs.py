"""What a compiler made of each quantize and dequantize pair that a model brings along."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.schema import Meaning
from rtlab.relation.flow import VIEWS
from rtlab.relation.mapping import Mapping
from rtlab.relation.roles import SERVING

Verdict = Literal["absorbed", "round trip", "own step", "folded", "unknown"]

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
#: Nodes that do not make a step more than quantization.
_LIGHT = {_QUANTIZE, _DEQUANTIZE, "Constant"} | VIEWS


@dataclasses.dataclass(frozen=True)
class PairUse:
    """One pair, or the DequantizeLinear of a stored weight, and where it went.

    ``q`` is the id of the QuantizeLinear, empty for stored integers; ``dq`` that of the DequantizeLinear; ``value`` the
    name of what is quantized. ``layers`` are the ids of the engine's layers with one of the two, in execution order.

    The verdict is *absorbed* where each of its layers also runs an operator, *round trip* where it is quantized and
    dequantized inside one such layer, so that no INT8 comes of it, *own step* where a layer does nothing but quantize
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
    def nodes(self) -> Annotated[tuple[str, ...], Meaning("Nodes", links="nodes")]:
        """Those of the two that there are."""
        return tuple(n for n in (self.q, self.dq) if n)


def pairs(model: Model, mapping: Mapping, engine: Engine) -> tuple[PairUse, ...]:
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
    return _Reader(model, mapping, engine).uses()


class _Reader:
    def __init__(self, model: Model, mapping: Mapping, engine: Engine) -> None:
        self.model, self.mapping, self.engine = model, mapping, engine
        self.layers = {layer.id: layer for layer in engine.layers}
        self.declared: dict[str, set[str]] = {}
        running = {p.node for p in mapping.pairs if p.evidence == "declared" and p.role not in SERVING}
        for pair in mapping.pairs:
            # A kernel that quantizes may bear the label of the weight's pair as well, which runs elsewhere.
            if pair.evidence == "declared" and (pair.role not in SERVING or pair.node not in running):
                self.declared.setdefault(pair.node, set()).add(pair.layer)
        self.served = {(p.node, p.layer) for p in mapping.pairs if p.role in SERVING}
        self.inside = {i: [n for n in mapping.nodes(i) if i in self._of(n)] for i in self.layers}

    def uses(self) -> tuple[PairUse, ...]:
        fixed: set[str] = set()
        found: list[PairUse] = []
        for node in self.model.top:
            read = [v for v in node.inputs if v]
            if node.op == "Constant" or (read and all(self._constant(v, fixed) for v in read)):
                fixed.update(node.outputs)
            if node.op == _DEQUANTIZE and node.inputs and node.inputs[0]:
                maker = self.model.producers.get(node.inputs[0])
                q = maker if maker is not None and maker.op == _QUANTIZE and maker.inputs else None
                value = q.inputs[0] if q is not None else node.inputs[0]
                found.append(self._use(q, node, value, weight=self._constant(value, fixed)))
        return tuple(self._twin(use, found) or use for use in found)

    def _constant(self, value: str, fixed: set[str]) -> bool:
        known = self.model.values.get(value)
        made = value in self.model.producers
        return value in fixed or (not made and known is not None and known.kind == "constant")

    def _of(self, node: str) -> set[str]:
        return self.declared.get(node) or set(self.mapping.layers(node))

    def _use(self, q: Node | None, dq: Node, value: str, *, weight: bool) -> PairUse:
        nodes = [n for n in (q, dq) if n is not None]
        told = [self.declared.get(n.id, set()) for n in nodes]
        ends = [e & set(self.layers) for e in (told if any(told) else [self._of(n.id) for n in nodes])]
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
        lonely = [i for i in layers if all(self._light(n, i) for n in self.inside[i])]
        if lonely:
            names = ", ".join(f'"{self.layers[i].name}"' for i in lonely)
            first = q is not None and value in self.model.inputs and ends[0] >= set(lonely)
            why = " The model's input arrives in FP32, and nothing runs before it." if first else ""
            return use("own step", f"{names} only quantizes or dequantizes.{why}")
        host = next(n for i in layers for n in self.inside[i] if not self._light(n, i))
        if q is not None and not weight and ends[0] == ends[1]:
            note = f'Quantized and dequantized again within the step of "{host}": no INT8 tensor comes of it.'
            return use("round trip", note)
        silent = next((n.id for n, e in zip(nodes, ends, strict=True) if not e), None)
        rest = f' The compiler names no layer for "{silent}".' if silent else ""
        return use("absorbed", f'It runs in the step of "{host}".{rest}')

    def _twin(self, use: PairUse, found: list[PairUse]) -> PairUse | None:
        """What became of an equal pair on the same value, for one of which the compiler itself names no layer."""
        if self.declared.keys() & {use.q, use.dq} or not use.q:
            return None
        for other in found:
            if (
                other is use
                or other.value != use.value
                or not self.declared.keys() & {other.q, other.dq} - {""}
            ):
                continue
            if self._numbers(use.dq) == self._numbers(other.dq):
                note = f'The compiler names only the equal pair "{other.q}" on the same value.'
                return dataclasses.replace(use, verdict=other.verdict, layers=other.layers, note=note)
        return None

    def _numbers(self, node: str) -> list[tuple[object, ...]]:
        known = self.model.constants(node)
        return [
            (t.dtype, t.numpy().tolist()) if (t := known.get(v)) is not None else (v,)
            for v in self.model.by_id[node].inputs[1:]
        ]

    def _light(self, node: str, layer: str) -> bool:
        known = self.model.by_id.get(node)
        return known is None or known.op in _LIGHT or (node, layer) in self.served
