"""The card of a layer: its work, by its kernel and its kind, the nodes that it serves, and the family that colours it.

The same words are on the card, below its bar, in tables and panels, and in ``Study.explain`` and the command line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from rtlab.analyses.cards.picture import Box, Family, OpChip, make_box
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.reformats.reasons import build_flow
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.phrases import pluralize
from rtlab.core.trt_operators import TRT_OPS
from rtlab.relation.attention import find_attention
from rtlab.relation.dataflow import MOVES, SCALED_TYPES, kernel
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import Pair as NodePair
from rtlab.relation.mapping import map_to_places
from rtlab.relation.names import infer_work, operator, split_name
from rtlab.relation.roles import QUANTIZING_OPS, SERVING, Role, words

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult

#: Netron's families of operators, after its own grouping of ONNX.
_FAMILIES: Mapping[Family, str] = {
    "convolution": "Conv ConvTranspose ConvInteger QLinearConv FusedConv DeformConv NhwcFusedConv QLinearConvTranspose",
    "matmul": "Gemm MatMul MatMulInteger QLinearMatMul FusedMatMul FusedGemm LSTM GRU RNN Attention Einsum "
    "MultiHeadAttention QGemm MatMulNBits DynamicQuantizeMatMul",
    "activation": "Relu LeakyRelu PRelu Sigmoid Tanh Clip Softmax LogSoftmax HardSigmoid HardSwish Elu Selu Celu "
    "Gelu Softplus Softsign ThresholdedRelu Mish QuickGelu BiasGelu FastGelu QLinearSigmoid QLinearLeakyRelu Swish",
    "pool": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool MaxUnpool ReduceMean "
    "QLinearAveragePool QLinearGlobalAveragePool",
    "normalization": "BatchNormalization LayerNormalization InstanceNormalization GroupNormalization LRN "
    "LpNormalization MeanVarianceNormalization SkipLayerNormalization RMSNormalization",
    "shape": "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Concat Expand Tile Gather GatherElements "
    "GatherND Pad Shape Size Resize Upsample DepthToSpace SpaceToDepth ReorderInput ReorderOutput QLinearConcat",
    "quantize": "QuantizeLinear DequantizeLinear DynamicQuantizeLinear Cast CastLike",
    "control": "If Loop Scan SequenceMap",
}
_FAMILY: Mapping[str, Family] = {op: f for f, ops in _FAMILIES.items() for op in ops.split()} | dict.fromkeys(
    TRT_OPS, "quantize"
)
_SHORT = {"BatchNormalization": "BN", "GlobalAveragePool": "GAP", "LayerNormalization": "LN", "Relu": "ReLU",
          "QuantizeLinear": "Q", "DequantizeLinear": "DQ", "MaxPool": "MaxPool",
          **{op: QUANTIZING_OPS[op] for op in sorted(TRT_OPS)}}  # fmt: skip
#: Words in a compiler's kinds of layers that compute something, with the family of what it is.
_COMPUTES: Mapping[str, Family] = {
    "conv": "convolution", "gemm": "matmul", "matmul": "matmul", "matrix": "matmul", "pool": "pool",
    "scale": "normalization", "norm": "normalization", "softmax": "activation", "activation": "activation",
    "elementwise": "other", "pointwise": "other", "reduce": "pool", "resize": "shape", "padding": "shape",
}  # fmt: skip


def get_family(op: str) -> Family:
    """The colour family of an operator."""
    return _FAMILY.get(op, "other")


def shorten_op(op: str) -> str:
    """An operator's name as cards write it, such as BN for BatchNormalization."""
    return _SHORT.get(op, op)


@functools.lru_cache(1024)
def get_kind_family(word: str) -> Family | None:
    """The family of what a compiler's word for a kind of layer computes; None where it tells no such kind."""
    return next((f for part, f in _COMPUTES.items() if part in word.lower()), None)


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


def name_layers(result: VariantResult, model: Model) -> dict[str, str]:
    """What each layer of a variant is called, by its id: the words of its card, such as ``Conv · BN · ReLU``."""
    cards = BoxBuilder(result, model, map_to_places(map_nodes(result), model))
    return {layer.id: format_box_name(cards.build_box(layer)) for layer in result.engine.layers}


def number_layers(layer_names: Mapping[str, str]) -> dict[str, str]:
    """Names of all layers behind their steps, ``3: Conv · BN · ReLU``, where one must be told from another."""
    return {id_: f"{step}: {layer_name}" for step, (id_, layer_name) in enumerate(layer_names.items(), 1)}


def format_exact_names(layer_names: Mapping[str, str], engine: Engine) -> dict[str, str]:
    """Names of all layers with their steps and the compiler's own names, for a hover text."""
    return {id_: f"{name}, {engine.layer(id_).name}" for id_, name in number_layers(layer_names).items()}


def format_box_name(box: Box, most: int | None = None) -> str:
    """The words of a card as one text, the first ``most`` of them and how many follow, or all."""
    if not box["chips"]:
        return box["title"]
    ops = [c["op"] for c in box["chips"]]
    more = [f"+{len(ops) - most}"] if most and len(ops) > most else []
    return " · ".join([*ops[:most], *more])


class BoxBuilder:
    """Makes the boxes of an engine's layers; ``mapping`` is that of the places of the model's nodes."""

    def __init__(self, result: VariantResult, model: Model, mapping: NodeMapping) -> None:
        self.model, self.mapping, self.flow = model, mapping, build_flow(result.engine)

    def build_box(self, layer: Layer) -> Box:
        """The box of a layer, without its details."""
        # Execution order is graph order; the compiler lists labels in an order of its own.
        pairs = sorted(self.mapping.of(layer.id), key=lambda p: self.model.places[p.node].node.index)
        computes = get_kind_family(layer.kind)
        title = self._describe_service(pairs) if pairs else self._describe_idle(layer, computes)
        chips = (
            [] if title else self._build_chips(layer, pairs) if pairs else _parse_name_chips(layer, computes)
        )
        nodes = [self.model.places[p.node].node for p in pairs if p.role == "work"]
        attention = find_attention(layer, nodes, self.model) if nodes and not title else None
        lines = []
        if attention is not None:
            parts = [c for c in chips if c["role"] == "work"]
            chips = [_join_chips("attention", parts), *(c for c in chips if c["role"] != "work")]
            lines = [*filter(None, [str(attention)]), pluralize(len(parts), "node")]
        return make_box(
            layer.id,
            "layer",
            layer.kind,
            _choose_family(chips, title, computes if not pairs else None),
            title or layer.name,
            lines=lines,
            chips=chips,
            precision=layer.precision,
            reads=layer.reads,
            writes=layer.writes,
            stream=layer.stream,
            slim=bool(title),
        )

    def _get_op(self, pair: NodePair) -> str:
        return self.model.places[pair.node].node.op

    def _describe_service(self, pairs: Sequence[NodePair]) -> str:
        """What a layer is called that runs no node but only serves some, such as "Q for Conv"; empty for others."""
        if not all(p.role in SERVING or self._get_op(p) in QUANTIZING_OPS for p in pairs):
            return ""
        own_role = QUANTIZING_OPS.get(self._get_op(pairs[0]), "Q")
        role = next((p.role for p in pairs if p.role != "work"), own_role)
        ops = [op for p in pairs if (op := self._get_op(p)) not in QUANTIZING_OPS]
        ops = ops or [n.op for n in self._find_served_nodes(pairs[0].node)]
        return words(role, shorten_op(ops[0])) if ops else role

    def _describe_idle(self, layer: Layer, computes: Family | None) -> str:
        """What a layer without nodes does where it computes nothing, from kind, name and types; empty for others."""
        work_kind, kernel_info = self.flow.works[layer.id], kernel(layer)
        if work_kind == "quantization":
            narrows = layer.writes in SCALED_TYPES and layer.reads not in SCALED_TYPES
            role: Role = QUANTIZING_OPS.get(layer.kind, "Q" if narrows else "DQ")
            readers = self.flow.after(layer, through=MOVES | {"quantization"})
            return words(role, next(filter(None, map(self._get_main_op, readers)), "")) or role
        if computes or (kernel_info and kernel_info.rest):
            return ""
        moves = kernel_info or work_kind in MOVES | {"control"}
        return (_describe_move(layer) or "layout move") if moves else ""

    def _get_main_op(self, layer: Layer) -> str:
        """The first operator that a layer runs, by its nodes or its name; empty where none is told."""
        for node in self.mapping.run(layer.id):
            return shorten_op(self.model.places[node].node.op)
        chips = [] if self.mapping.pairs else _parse_name_chips(layer, None)
        return next((c["op"] for c in chips if c["family"] != "quantize" and c["op"] != layer.kind), "")

    def _find_served_nodes(self, node: str) -> list[Node]:
        """The nodes that read what a model's own Q or DQ makes, the next ones behind such pairs."""
        todo, visited, served_nodes = [self.model.places[node].node], set[str](), list[Node]()
        while todo:
            for value in todo.pop().outputs:
                for reader in self.model.consumers.get(value, ()):
                    if reader.op not in QUANTIZING_OPS:
                        served_nodes.append(reader)
                    elif reader.id not in visited:
                        visited.add(reader.id)
                        todo.append(reader)
        return served_nodes

    def _build_chips(self, layer: Layer, pairs: Sequence[NodePair]) -> list[OpChip]:
        chips = [self._build_chip(p, layer) for p in pairs]
        kernel_info = kernel(layer)
        if kernel_info and kernel_info.quantizes and not any(c["role"] in {"Q", "Q/DQ"} for c in chips):
            # It narrows numbers amid the work of its nodes, and perhaps widens them again.
            does: Role = "Q/DQ" if kernel_info.dequantizes else "Q"
            chips.append(_build_unlinked_chip(does, "quantize", does))
        visible_chips = [c for c in chips if c["role"] not in _QUIET] or chips
        quantizing_nodes = {p.node for p in pairs if p.role == "work" and self._get_op(p) in QUANTIZING_OPS}
        # A kernel that reads a narrow type takes in what dequantizes it; a step of its own would be in its name. That a
        # model's own Q is done at all is told alike: of weights it is folded.
        takes = {
            "DQ": not kernel_info.dequantizes if kernel_info else layer.reads in SCALED_TYPES,
            "Q": not kernel_info.quantizes if kernel_info else layer.writes not in SCALED_TYPES,
        }
        absorbed_chips = [
            c
            for c in visible_chips
            if takes.get(c["role"]) and (c["role"] == "DQ" or c["node"] in quantizing_nodes)
        ]
        remaining_chips = [c for c in visible_chips if c not in absorbed_chips]
        if not remaining_chips:
            remaining_chips, absorbed_chips = visible_chips, []
        # One Q may serve several nodes.
        listed_chips: dict[tuple[str, str, str], OpChip] = {}
        for chip in remaining_chips:
            node = chip["node"] if chip["role"] == "work" else ""
            listed_chips.setdefault((chip["role"], chip["title"], node), chip)
        # One mark for all of a model's own Q and DQ that the kernel takes in: the card names the work.
        marks = [c for c in absorbed_chips if c["node"] in quantizing_nodes]
        if not marks:
            return [*listed_chips.values()]
        role: Role = marks[0]["role"] if len({c["role"] for c in marks}) == 1 else "Q/DQ"
        served_op = next((c["op"] for c in listed_chips.values() if c["role"] == "work"), "")
        title = words(role, served_op) or role
        mark = OpChip(op=role, family="quantize", node=marks[0]["node"], role=role, title=title)
        return [*listed_chips.values(), mark]

    def _build_chip(self, pair: NodePair, layer: Layer) -> OpChip:
        op = self._get_op(pair)
        role, brief, colour = pair.role, shorten_op(op), get_family(op)
        if role != "work":
            # What was dequantized for another node first may be read here by one of the layer's own.
            is_elsewhere = role == "DQ" and pair.node not in self.mapping.run(layer.id)
            title = role if is_elsewhere else words(role, brief)
            label = role if role in _BRIEF else title
            colour = _ROLE_FAMILY.get(role, colour)
        elif op in QUANTIZING_OPS:
            role, label = QUANTIZING_OPS[op], brief
            run_nodes = {self.model.places[i].node.id for i in self.mapping.run(layer.id)}
            # What the layer runs itself is named first.
            served_nodes = sorted(self._find_served_nodes(pair.node), key=lambda n: n.id not in run_nodes)
            title = words(role, shorten_op(served_nodes[0].op) if served_nodes else "") or role
        else:
            label, title = brief, op
        return OpChip(op=label, family=colour, node=pair.node, role=role, title=title)


#: The colours of what is read out of a name, where its operators do not tell.
_READ: Mapping[str, Family] = {"reformat": "shape", "shuffle": "shape"}


def _parse_name_chips(layer: Layer, computes: Family | None) -> list[OpChip]:
    """The operators that a layer's name tells without a model, and its kind where they do not tell what computes."""
    # Torch-TensorRT writes kinds in capitals.
    operators = [op.capitalize() if op.isupper() else op for op in map(operator, split_name(layer))]
    reading = infer_work(layer)
    chips = [
        _build_unlinked_chip(
            shorten_op(op),
            get_kind_family(op) or get_family(op),
            QUANTIZING_OPS.get(op, "work"),
            from_name=bool(reading),
        )
        for op in operators
        if onnx.defs.has(op) or get_kind_family(op)
    ]
    if not chips and (kernel_info := kernel(layer)):
        return [_build_unlinked_chip("·".join(kernel_info.operations[:4]), "other")]
    if not chips or (computes in _MAIN and computes not in {c["family"] for c in chips}):
        colour = computes or _READ.get(reading, "other")
        chips.insert(
            0, _build_unlinked_chip(layer.kind or reading or "layer", colour, from_name=bool(reading))
        )
    return chips


def _join_chips(name: str, parts: Sequence[OpChip]) -> OpChip:
    """One chip for what several nodes compute together."""
    title = f"{name} ({', '.join(c['op'] for c in parts)})"
    return OpChip(op=name, family="matmul", node=parts[0]["node"] if parts else "", role="work", title=title)


def _choose_family(chips: Sequence[OpChip], title: str, computes: Family | None) -> Family:
    """The colour of a layer: what its kind computes, if told, else that of the first node that it runs."""
    if computes or not chips:
        return computes or ("quantize" if _QUANTIZES.match(title) else "shape")
    return next((c["family"] for c in chips if c["role"] == "work"), chips[0]["family"])


def _build_unlinked_chip(op: str, colour: Family, role: Role = "work", *, from_name: bool = False) -> OpChip:
    """A mark without a node; ``from_name`` says that it is read out of the layer's name, and nothing else says it."""
    return OpChip(op=op, family=colour, node="", role=role, title=f"{op} (by its name)" if from_name else op)


def _describe_move(layer: Layer) -> str:
    """What a step without nodes does, from the layouts and types that it reads and writes."""
    if not layer.inputs or not layer.outputs:
        return "layout move" if layer.kind == "kgen" else layer.kind or infer_work(layer)
    a, b = layer.inputs[0], layer.outputs[0]
    if a.dtype != b.dtype and a.dtype and b.dtype:
        return f"reformat {a.dtype} → {b.dtype}"
    before, after = _parse_layout(a.format), _parse_layout(b.format)
    if before and after and before != after:
        return f"layout move {before} → {after}"
    return "layout move" if layer.kind in {"kgen", "ReorderInput", "ReorderOutput", "copy"} else layer.kind


def _parse_layout(text: str) -> str:
    """The short name of a memory layout: the word in brackets that the compiler prints first."""
    inside = text.partition("(")[2].partition(")")[0]
    return {"Linear": "NCHW"}.get(inside, inside)


def explain(facts: VariantResult, model: Model, node: str) -> str:
    """Which layers a node became and how we know, or why it has none."""
    mapping = map_nodes(facts)
    model_node = model.node(node)
    layers = mapping.layers(model_node.id)
    if not layers:
        missing = mapping.why(model_node.id)
        return f'"{model_node.title}" has no layer ({missing.reason}): {missing.text}' if missing else ""
    lines = []
    cards = BoxBuilder(facts, model, map_to_places(mapping, model))
    for pair in sorted((p for p in mapping.pairs if p.node == model_node.id), key=lambda p: p.role != "work"):
        layer = facts.engine.layer(pair.layer)
        # A Q or DQ that the model brought along is overhead of what reads it.
        runs = "is quantization" if model_node.op in QUANTIZING_OPS else "runs"
        does = runs if pair.role == "work" else f"has its {pair.role}"
        box = cards.build_box(layer)
        others = [c["title"] for c in box["chips"] if c["node"] != model_node.id]
        shared = f" with {', '.join(others)}" if others else ""
        title = f'{does} in layer {layer.index + 1}, "{format_box_name(box)}" ("{layer.name}")'
        lines.append(f'"{model_node.title}" {title}{shared} ({pair.evidence}). {pair.note}')
    return "\n".join(lines)
