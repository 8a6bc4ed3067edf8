"""What the card of a layer says: the work that it does, by its kernel and its kind, and whom it serves.

The same words stand wherever people read of the layer: on the card, below its bar, in tables and panels, and in what
``Study.explain`` and the command line tell.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from rtlab import questions
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.questions.cards.families import family, kind_family, short
from rtlab.questions.cards.picture import Box, Family, OpChip, drawn
from rtlab.relation.dataflow import MOVES, Dataflow, Work
from rtlab.relation.kernel import QUANTIZED, kernel
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import Pair as NodePair
from rtlab.relation.mapping import placed
from rtlab.relation.named import by_name, joined
from rtlab.relation.names import operator
from rtlab.relation.roles import QUANTIZING_OPS, SERVING, Role, words

if TYPE_CHECKING:
    from rtlab.core.facts import Facts

#: Families of what a fused layer is built around.
_MAIN = frozenset({"convolution", "matmul", "pool"})
#: Services that need no word beside what a layer computes, and those that a chip says in short.
_QUIET = frozenset({"cast", "layout", "control", "body"})
_BRIEF = frozenset({"Q", "DQ", "Q/DQ"})
_ROLE_FAMILY: Mapping[str, Family] = {
    "Q": "quantize", "DQ": "quantize", "Q/DQ": "quantize", "cast": "quantize", "layout": "shape", "control": "control",
    "body": "control",
}  # fmt: skip
_QUANTIZES = re.compile(r"(Q|DQ|Q/DQ|cast)\b")
_QUANTIZING: frozenset[Work] = frozenset({"quantization"})


def names(result: Facts, model: Model) -> dict[str, str]:
    """What each layer of a variant is called, by its id: the words of its card, such as ``Conv · BN · ReLU``."""
    cards = Cards(result, model, placed(questions.fusion.mapping(result), model))
    return {layer.id: name(cards.box(layer)) for layer in result.engine.layers}


def numbered(called: Mapping[str, str]) -> dict[str, str]:
    """Names of all layers behind their steps, ``3: Conv · BN · ReLU``, where one must be told from another."""
    return {id_: f"{step}: {named}" for step, (id_, named) in enumerate(called.items(), 1)}


def exact(called: Mapping[str, str], engine: Engine) -> dict[str, str]:
    """Names of all layers with their steps and the compiler's own names, for a hover text."""
    steps = numbered(called)
    return {y.id: f"{steps[y.id]}, {y.name}" for y in engine.layers}


def name(box: Box, most: int | None = None) -> str:
    """The words of a card as one text, the first ``most`` of them and how many follow, or all."""
    if not box["chips"]:
        return box["title"]
    said = [c["op"] for c in box["chips"]]
    more = [f"+{len(said) - most}"] if most and len(said) > most else []
    return " · ".join([*said[:most], *more])


class Cards:
    """Makes the boxes of an engine's layers; ``mapping`` is that of the places of the model's nodes."""

    def __init__(self, result: Facts, model: Model, mapping: NodeMapping) -> None:
        self.model, self.mapping, self.engine = model, mapping, result.engine
        self.built = result.prepared.model

    @functools.cached_property
    def _flow(self) -> Dataflow:
        return Dataflow(self.engine)

    def box(self, layer: Layer) -> Box:
        """The box of a layer; what it tells besides the picture comes later."""
        # Execution order is graph order; the compiler lists labels in an order of its own.
        pairs = sorted(self.mapping.of(layer.id), key=lambda p: self.model.places[p.node].node.index)
        computes = kind_family(layer.kind)
        title = self._serving(pairs) if pairs else self._idle(layer, computes)
        chips = [] if title else self._chips(layer, pairs) if pairs else _told(layer, computes)
        return drawn(
            layer.id,
            "layer",
            layer.kind,
            _colour(chips, title, computes if not pairs else None),
            title or layer.name,
            chips=chips,
            precision=layer.precision,
            reads=layer.reads,
            writes=layer.writes,
            stream=layer.stream,
            slim=bool(title),
        )

    def _op(self, pair: NodePair) -> str:
        return self.model.places[pair.node].node.op

    def _serving(self, pairs: Sequence[NodePair]) -> str:
        """What a layer is called that runs no node but only serves some, such as "Q for Conv"; empty for others."""
        if not all(p.role in SERVING or self._op(p) in QUANTIZING_OPS for p in pairs):
            return ""
        role = next((p.role for p in pairs if p.role != "work"), QUANTIZING_OPS.get(self._op(pairs[0]), "Q"))
        served = [p for p in pairs if self._op(p) not in QUANTIZING_OPS]
        ops = [self._op(p) for p in served] or [n.op for n in self._served(pairs[0].node)]
        return words(role, short(ops[0])) if ops else role

    def _idle(self, layer: Layer, computes: Family | None) -> str:
        """What a layer without nodes does where it computes nothing, from kind, name and types; empty for others."""
        done, told = self._flow.works[layer.id], kernel(layer)
        if done == "quantization":
            narrows = layer.writes in QUANTIZED and layer.reads not in QUANTIZED
            role: Role = QUANTIZING_OPS.get(layer.kind, "Q" if narrows else "DQ")
            readers = self._flow.after(layer, through=MOVES | _QUANTIZING)
            return words(role, next(filter(None, map(self._main, readers)), "")) or role
        if computes or (told and told.rest):
            return ""
        return (_move(layer) or "layout move") if told or done in MOVES | {"control"} else ""

    def _main(self, layer: Layer) -> str:
        """The first operator that a layer runs, by its nodes or its name; empty where none is told."""
        for node in self.mapping.run(layer.id):
            return short(self.model.places[node].node.op)
        chips = [] if self.mapping.pairs else _told(layer, None)
        return next((c["op"] for c in chips if c["family"] != "quantize" and c["op"] != layer.kind), "")

    def _served(self, node: str) -> list[Node]:
        """The nodes that read what a model's own Q or DQ makes, the next ones behind such pairs."""
        todo, seen, found = [self.model.places[node].node], set[str](), list[Node]()
        while todo:
            for value in todo.pop().outputs:
                for reader in self.model.consumers.get(value, ()):
                    if reader.op not in QUANTIZING_OPS:
                        found.append(reader)
                    elif reader.id not in seen:
                        seen.add(reader.id)
                        todo.append(reader)
        return found

    def _chips(self, layer: Layer, pairs: Sequence[NodePair]) -> list[OpChip]:
        found = [self._chip(p, layer) for p in pairs]
        told = kernel(layer)
        if told and told.quantizes and not any(c["role"] in {"Q", "Q/DQ"} for c in found):
            # It narrows numbers amid the work of its nodes, and perhaps widens them again.
            does: Role = "Q/DQ" if told.dequantizes else "Q"
            found.append(_unlinked(does, "quantize", does))
        shown = [c for c in found if c["role"] not in _QUIET] or found
        own = {p.node for p in pairs if p.role == "work" and self._op(p) in QUANTIZING_OPS}
        # A kernel that reads a narrow type takes in what dequantizes it; a step of its own would be in its name. That a
        # model's own Q is done at all is told alike: of weights it is folded.
        takes = {
            "DQ": not told.dequantizes if told else layer.reads in QUANTIZED,
            "Q": not told.quantizes if told else layer.writes not in QUANTIZED,
        }
        taken = [c for c in shown if takes.get(c["role"]) and (c["role"] == "DQ" or c["node"] in own)]
        kept = [c for c in shown if c not in taken]
        if not kept:
            kept, taken = shown, []
        # One Q may serve several nodes.
        said = {(c["role"], c["title"]): c for c in reversed(kept) if c["role"] != "work"}
        listed = [c for c in kept if c["role"] == "work" or said[c["role"], c["title"]] is c]
        return listed + self._mark([c for c in taken if c["node"] in own], listed)

    @staticmethod
    def _mark(taken: Sequence[OpChip], beside: Sequence[OpChip]) -> list[OpChip]:
        """One mark for all of a model's own Q and DQ that a kernel takes in: the card names the work."""
        if not taken:
            return []
        roles = {c["role"] for c in taken}
        role: Role = taken[0]["role"] if len(roles) == 1 else "Q/DQ"
        served = next((c["op"] for c in beside if c["role"] == "work"), taken[0]["title"].rpartition(" ")[2])
        return [
            OpChip(op=role, family="quantize", node=taken[0]["node"], role=role, title=words(role, served))
        ]

    def _chip(self, pair: NodePair, layer: Layer) -> OpChip:
        op = self._op(pair)
        if pair.role == "work":
            role = QUANTIZING_OPS.get(op, pair.role)
            title = op if role == "work" else words(role, short(self._reads(pair.node, layer))) or role
            return OpChip(op=short(op), family=family(op), node=pair.node, role=role, title=title)
        brief = short(op)
        if pair.role == "DQ":
            brief = short(self._reader(pair.node, layer) or op)
        title = words(pair.role, brief)
        shown = pair.role if pair.role in _BRIEF else title
        colour = _ROLE_FAMILY.get(pair.role, family(op))
        return OpChip(op=shown, family=colour, node=pair.node, role=pair.role, title=title)

    def _reads(self, node: str, layer: Layer) -> str:
        """The operator that a model's own Q or DQ serves: one that the layer runs, else the first that reads it."""
        served = self._served(node)
        run = {self.model.places[i].node.id for i in self.mapping.run(layer.id)}
        return next((n.op for n in served if n.id in run), served[0].op if served else "")

    def _reader(self, node: str, layer: Layer) -> str:
        """The operator that a layer runs on what it dequantizes, where that was put there for another node first."""
        run = set(self.mapping.run(layer.id))
        for id_ in layer.origins:
            put = self.built.by_id.get(id_)
            if put is not None and put.origin == node and put.op == "DequantizeLinear":
                for value in put.outputs:
                    for reader in self.built.consumers.get(value, ()):
                        if reader.origin in run and reader.op not in QUANTIZING_OPS:
                            return reader.op
        return ""


#: The colours of what is read out of a name, where its operators do not tell.
_READ: Mapping[str, Family] = {"reformat": "shape", "shuffle": "shape"}


def _told(layer: Layer, computes: Family | None) -> list[OpChip]:
    """The operators that a layer's name tells without a model, and its kind where they do not tell what computes."""
    # Torch-TensorRT writes kinds in capitals.
    told = [op.capitalize() if op.isupper() else op for op in map(operator, joined(layer))]
    reading = by_name(layer)
    found = [
        _unlinked(
            short(op), kind_family(op) or family(op), QUANTIZING_OPS.get(op, "work"), told=bool(reading)
        )
        for op in told
        if onnx.defs.has(op) or kind_family(op)
    ]
    if not found and (known := kernel(layer)):
        return [_unlinked("·".join(known.operations[:4]), "other")]
    if not found or (computes in _MAIN and computes not in {c["family"] for c in found}):
        colour = computes or _READ.get(reading, "other")
        found.insert(0, _unlinked(layer.kind or reading or "layer", colour, told=bool(reading)))
    return found


def _colour(chips: Sequence[OpChip], title: str, computes: Family | None) -> Family:
    """The colour of a layer: what its kind computes, if told, else that of the first node that it runs."""
    if computes or not chips:
        return computes or ("quantize" if _QUANTIZES.match(title) else "shape")
    return next((c["family"] for c in chips if c["role"] == "work"), chips[0]["family"])


def _unlinked(op: str, colour: Family, role: Role = "work", *, told: bool = False) -> OpChip:
    """A mark without a node; ``told`` says that it is read out of the layer's name, and nothing else says it."""
    return OpChip(op=op, family=colour, node="", role=role, title=f"{op} (by its name)" if told else op)


def _move(layer: Layer) -> str:
    """What a step without nodes does, from the layouts and types that it reads and writes."""
    if not layer.inputs or not layer.outputs:
        return "layout move" if layer.kind == "kgen" else layer.kind or by_name(layer)
    a, b = layer.inputs[0], layer.outputs[0]
    if a.dtype != b.dtype and a.dtype and b.dtype:
        return f"reformat {a.dtype} → {b.dtype}"
    before, after = _layout(a.format), _layout(b.format)
    if before and after and before != after:
        return f"layout move {before} → {after}"
    return "layout move" if layer.kind in {"kgen", "ReorderInput", "ReorderOutput", "copy"} else layer.kind


def _layout(text: str) -> str:
    """The short name of a memory layout: the word in brackets that the compiler prints first."""
    inside = text.partition("(")[2].partition(")")[0]
    return {"Linear": "NCHW"}.get(inside, inside)
