"""A model's own quantization, and the model without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from rtlab.core.variant import Precision
from rtlab.quantize import findings, passes
from rtlab.quantize.qdq import INT8, QdqPair, QuantizedGraph, is_nonnegative
from rtlab.quantize.requantize import QdqEditor

if TYPE_CHECKING:
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

_EIGHT_BIT_FLOATS = frozenset({ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E4M3FNUZ})
_PRECISIONS = {
    **dict.fromkeys(_EIGHT_BIT_FLOATS, Precision.FP8),
    **dict.fromkeys((ir.DataType.INT4, ir.DataType.UINT4), Precision.INT4),
    ir.DataType.FLOAT4E2M1: Precision.FP4,
}

_PAIR_OPS = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Rules of ``findings`` about pairs that round for nothing.
SURPLUS = frozenset({"chain", "before-activation", "no-int8-kernel", "between", "output", "vector"})


def separate_existing_qdq(source: Model, emulation: Model) -> tuple[Model, Model]:
    """A prepared model without its own quantize and dequantize pairs, and an emulation to compare with it.

    The emulation computes the same as before. Weights stored as integers stay, since their former numbers are not
    known, and so does a pair whose ends have different parameters.
    """
    if not has_rounding_pairs(source):
        return source, emulation
    bare_model = passes.run(source, [_RELUS, _NO_PAIRS, passes.INFER], source=True)
    return bare_model, passes.run(emulation, [_RELUS], keep_origins=True)


@dataclasses.dataclass(frozen=True)
class ExistingPair:
    """How an input of a node is quantized in the model itself.

    Attributes:
        pair: The QuantizeLinear of the pair.
        precision: What it rounds to.
        amax: The threshold, None where there is a scale for each channel, or another type than INT8 and FP8.
        channels: Whether there is a scale for each channel.
    """

    pair: str
    precision: Precision
    amax: float | None
    channels: bool


def has_rounding_pairs(model: Model) -> bool:
    """Whether a model has pairs that ``separate_existing_qdq`` takes out."""
    return any(_only_rounds(p) for p in QuantizedGraph(model.ir.graph).pairs.values())


def release(edit: Edit, nodes: Iterable[str]) -> None:
    """Let nodes read the unquantized values, dequantized weights included, and write unquantized outputs of the model.

    Relus that are left to pairs are inserted first, everywhere, so that values have the same names whatever is
    released.
    """
    _insert_relus(edit)
    editor, reading = QdqEditor(edit), QuantizedGraph(edit.graph)
    ends = {_find_output_producer(pair): pair for pair in reading.pairs.values()}
    for node in [edit.nodes[n] for n in nodes]:
        for position, value in enumerate(node.inputs):
            pair = reading.pairs.get(value) if value is not None else None
            if pair is None or pair.opaque:
                continue
            if pair.q is not None:
                editor.reroute(node, position, editor.get_rectified_source(pair))
            elif len(reading.readers(pair.out)) == 1:
                editor.dequantize_weight(pair)
        if node in ends:
            editor.remove(ends[node])
    edit.sort_and_reindex()


def _find_output_producer(pair: QdqPair) -> ir.Node | None:
    """The node that writes an output of the model that a pair rounds."""
    return pair.source.producer() if _only_rounds(pair) and pair.out.is_graph_output() else None


def release_all_nodes(model: Model) -> Model:
    """A model with every node released, which a calibration observes."""
    nodes = find_quantized_nodes(model)
    promises = (passes.INTERFACE, passes.ORDER, passes.TYPES)
    released = passes.Pass("released nodes", lambda edit: release(edit, nodes), promises)
    return passes.run(model, [released], source=True)


def find_quantized_nodes(model: Model) -> tuple[str, ...]:
    """The nodes that read pairs of the model itself, or write an output that one rounds, in graph order."""
    pairs = QuantizedGraph(model.ir.graph).pairs.values()
    ends = {u.node.name for p in pairs if not p.opaque for u in p.out.uses()}
    ends |= {producer.name for p in pairs if (producer := _find_output_producer(p)) is not None}
    return tuple(n.id for n in model.top if n.id in ends and n.op not in _PAIR_OPS)


@dataclasses.dataclass(frozen=True)
class ExistingQuantization:
    """A model's own quantization: its pairs by the quantizer that each is, and findings on pairs that gain nothing."""

    pairs: Mapping[str, ExistingPair] = dataclasses.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, model: Model) -> ExistingQuantization:
        """That of a model; empty where it has none."""
        pairs: dict[str, ExistingPair] = {}
        for pair in QuantizedGraph(model.ir.graph).pairs.values():
            if not _only_rounds(pair):
                continue
            precision = _PRECISIONS.get(pair.dtype, Precision.INT8)
            one = ExistingPair(pair.id, precision, _compute_amax(pair), pair.axis is not None)
            part = "weight" if pair.is_constant else "input"
            pairs.update({f"{u.node.name}/{part}{u.idx}": one for u in pair.out.uses()})
            if (maker := _find_output_producer(pair)) is not None:
                pairs[f"{maker.name}/output{pair.source.index()}"] = one
        return cls(pairs, tuple(f for f in findings.check(model) if f.rule in SURPLUS) if pairs else ())

    def iter_issues(self, quantizer: str) -> Iterator[Finding]:
        """The findings on the pair of a quantizer."""
        one = self.pairs.get(quantizer)
        if one is not None:
            yield from (f for f in self.findings if f.nodes[0] == one.pair)


def _only_rounds(pair: QdqPair) -> bool:
    """Whether a pair rounds numbers, and does no more than that."""
    return pair.q is not None and not pair.opaque


def _compute_amax(pair: QdqPair) -> float | None:
    if pair.scale is None or pair.scale.size != 1:
        return None
    scale = float(pair.scale.ravel()[0])
    if pair.dtype in _EIGHT_BIT_FLOATS:
        return scale * Precision.FP8.stored.largest
    if pair.dtype not in INT8:
        return None
    low, high = (abs(b - int(pair.zero.ravel()[0])) for b in pair.bounds)
    # INT8 has one more number below zero than above it.
    return scale * (high if pair.is_symmetric else max(low, high))


def _insert_relus(edit: Edit) -> None:
    """Insert a Relu in front of each pair that clips at zero, where ONNX Runtime's quantizer has removed it."""
    editor = QdqEditor(edit)
    for pair in list(QuantizedGraph(edit.graph).activations):
        if pair.q is not None and pair.rectifies and not is_nonnegative(pair.q.inputs[0]):
            editor.reroute(pair.q, 0, editor.get_rectified_source(pair))
    edit.sort_and_reindex()


def _remove_pairs(edit: Edit) -> None:
    editor = QdqEditor(edit)
    for pair in list(QuantizedGraph(edit.graph).pairs.values()):
        if _only_rounds(pair):
            editor.remove(pair)
    edit.sort_and_reindex()


_RELUS = passes.Pass("rectifying pairs", _insert_relus, (passes.INTERFACE,))
_NO_PAIRS = passes.Pass("without own pairs", _remove_pairs, (passes.INTERFACE,))
