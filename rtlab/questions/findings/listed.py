"""What is worth changing in an engine, and in a model's own quantization."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab import questions
from rtlab.core.finding import Finding
from rtlab.core.schema import Meaning
from rtlab.core.variant import Precision
from rtlab.quantize.findings import check
from rtlab.questions.findings.rules.fusions import REQUANTIZED

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What is worth changing, the most costly first, with nodes in every place where they run.

    ``note`` says what was looked at of the model's own quantization, or that there is nothing to look at; empty where
    something of it is placed badly.
    """

    note: Annotated[str, Meaning("Quantization")]
    items: tuple[Finding, ...]


def beside(findings: Sequence[Finding], facts: Facts, others: Iterable[Facts]) -> tuple[Finding, ...]:
    """Findings of a variant, that of convolutions which do not requantize with the layers of its plain variant.

    ``others`` are variants of the same study; the plain one has the same compiler, release and target, and FP32.
    """
    if not any(f.rule == REQUANTIZED for f in findings):
        return tuple(findings)
    plain = next((o for o in others if _plain(o, facts)), None)
    if plain is None:
        return tuple(findings)
    one, other = (len(f.engine.layers) - f.engine.sync for f in (plain, facts))
    told = f'The same model has {one} layers as "{plain.name}" and {other} as "{facts.name}".'
    return tuple(
        dataclasses.replace(f, evidence=f"{f.evidence} {told}") if f.rule == REQUANTIZED else f
        for f in findings
    )


def _plain(other: Facts, facts: Facts) -> bool:
    one, two = ((f.engine.backend, f.engine.version, f.engine.target) for f in (other, facts))
    return one == two and {*other.variant.precisions} == {Precision.FP32}


def findings(model: Model, facts: Facts | None = None, others: Iterable[Facts] = ()) -> Findings:
    """What a variant's engine shows, then what the model alone does: where its own quantization is placed badly.

    ``others`` are the variants of the study, beside which some findings are told.
    """
    misplaced = check(model, calibrated=True)
    found = (*(beside(questions.findings.of(facts), facts, others) if facts else ()), *misplaced)
    pairs = sum(n.op == "QuantizeLinear" for n in model.nodes)
    if not model.nodes:
        note = "No ONNX model was given: what is known comes from the engine's files."
    elif not any(n.op in _QUANTIZED for n in model.nodes):
        note = (
            "This model has no Q/DQ pairs of its own: rtlab places them when a variant asks for int8 or fp8. "
            "Load a model from quantization-aware training to have its placement checked."
        )
    elif misplaced:
        note = ""
    else:
        note = (
            f"{pairs} Q/DQ pair{'s' if pairs != 1 else ''} checked: all stand where TensorRT can absorb them."
        )
    return Findings(
        note,
        tuple(dataclasses.replace(f, nodes=tuple(i for n in f.nodes for i in model.where(n))) for f in found),
    )
