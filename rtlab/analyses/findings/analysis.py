"""What is worth changing in an engine, and in a model's own quantization."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.findings import list_findings
from rtlab.analyses.findings.rules.fusions import REQUANTIZED
from rtlab.analyses.score import compare_scores, format_difference, format_score_value
from rtlab.core.finding import Finding
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Precision
from rtlab.quantize.findings import check

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model

#: The rule of a treatment that makes the score worse.
HARMFUL = "harmful-treatment"

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What is worth changing, the most costly first, with nodes in every place where they run.

    ``note`` says what was looked at of the model's own quantization, or that there is nothing to look at; empty where
    something of it is placed badly.
    """

    note: Annotated[str, FieldMeta("Quantization")]
    items: tuple[Finding, ...]


def add_comparative_findings(
    findings: Sequence[Finding], facts: VariantResult, others: Iterable[VariantResult]
) -> tuple[Finding, ...]:
    """Findings of a variant, with what its like in the study, ``others``, tell: first of all a treatment that harms."""
    study = tuple(others)
    return (*_find_harmful_treatments(facts, study), *_extend_requantization_evidence(findings, facts, study))


def _find_harmful_treatments(facts: VariantResult, others: Iterable[VariantResult]) -> Iterator[Finding]:
    """That the variant scores worse than the same one without some of its treatments, where the samples can tell.

    Of several it is the best one that the variant is compared with. One that nobody built or scored tells nothing.
    """
    comparisons = [
        (o.score, o, comparison)
        for o in others
        if facts.score is not None and o.score is not None and _has_fewer_treatments(o, facts)
        # A difference has the metric's sign, and is harm where it goes against what is better.
        if (comparison := compare_scores(facts, o)) is not None and comparison.sure
        if (comparison.difference < 0) == facts.score.higher
    ]
    if not comparisons or facts.score is None:
        return
    without, best, comparison = max(comparisons, key=lambda k: k[0].better)
    score, remaining_treatments = facts.score, set(best.variant.treatments)
    treatments = [str(t) for t in facts.variant.treatments if t not in remaining_treatments]
    named = " and ".join(f'"{t}"' for t in treatments)
    flips = f" {comparison.lost} lost, {comparison.won} won." if comparison.lost is not None else ""
    yield Finding(
        id=f"{HARMFUL}:{', '.join(treatments)}",
        rule=HARMFUL,
        title=f"The score is worse than without {named}.",
        nodes=(),
        cost=f"{score.name} {format_score_value(score)}, without {named} {format_score_value(without)}: "
        f"{format_difference(comparison, score, best.name)} (measured, {score.source}).",
        fix=f'Leave {named} out: "{best.name}" is the same variant without. Where that loses too much too, Repair, or '
        f"study.accuracy.repair({best.name!r}), tries other scales and then each transform on the task.",
        evidence=f"The difference is that of the {comparison.samples} samples on which both were scored; nothing else "
        f"differs between the variants.{flips}",
        fixable=False,
    )


def _has_fewer_treatments(other: VariantResult, facts: VariantResult) -> bool:
    """Whether another variant is the same one with fewer treatments."""
    one, two = (dataclasses.replace(f.variant, treatments=()) for f in (other, facts))
    return one == two and {*other.variant.treatments} < {*facts.variant.treatments}


def _extend_requantization_evidence(
    findings: Sequence[Finding], facts: VariantResult, others: Iterable[VariantResult]
) -> tuple[Finding, ...]:
    """Findings, that of convolutions which do not requantize with the layers of the variant's plain one.

    The plain one has the same compiler, release and target, and FP32.
    """
    if not any(f.rule == REQUANTIZED for f in findings):
        return tuple(findings)
    plain = next((o for o in others if o is not facts and _is_plain_variant(o, facts)), None)
    if plain is None:
        return tuple(findings)
    one, other = (len(f.engine.layers) - f.engine.sync for f in (plain, facts))
    layer_comparison = f'The same model has {one} layers as "{plain.name}" and {other} as "{facts.name}".'
    return tuple(
        dataclasses.replace(f, evidence=f"{f.evidence} {layer_comparison}") if f.rule == REQUANTIZED else f
        for f in findings
    )


def _is_plain_variant(other: VariantResult, facts: VariantResult) -> bool:
    one, two = ((f.engine.backend, f.engine.version, f.engine.target) for f in (other, facts))
    return one == two and {*other.variant.precisions} == {Precision.FP32}


def summarize_findings(
    model: Model, facts: VariantResult | None = None, others: Iterable[VariantResult] = ()
) -> Findings:
    """What a variant's engine shows, then what the model alone does: where its own quantization is placed badly.

    ``others`` are the variants of the study, beside which some findings are told.
    """
    misplaced = check(model, calibrated=True)
    all_findings = (
        *(add_comparative_findings(list_findings(facts), facts, others) if facts else ()),
        *misplaced,
    )
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
        tuple(
            dataclasses.replace(f, nodes=tuple(i for n in f.nodes for i in model.where(n)))
            for f in all_findings
        ),
    )
