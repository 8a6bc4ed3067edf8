"""Whether a variant computes numbers at all: a limit that is always on, since no comparison tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.analyses import accuracy
from rtlab.analyses.check.record import CheckRow
from rtlab.core.facts import VariantResult
from rtlab.core.phrases import pluralize
from rtlab.core.slices import Slice, SliceSums

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIMIT = "outputs are numbers"


def check_numbers(facts: VariantResult, fp32: VariantResult | None) -> CheckRow:
    """NaN, infinities and parts that became 0 in outputs, NaN of fp32 itself, and its score of 0 %.

    Two models that answer nothing are equal, and a drop from nothing is none.
    """
    faults = find_faults(facts, fp32)
    errors = accuracy.compute_accuracy(facts)
    samples = facts.score.samples if facts.score is not None else errors.samples if errors is not None else 0
    on = f"on {pluralize(samples, 'sample')}"
    if faults:
        remedy = " ".join(dict.fromkeys(faults.values()))
        first, *others = faults
        return CheckRow(
            "numbers", _LIMIT, first, "broken", "measured", "; ".join([*others, on]),
            remedy=remedy, value=float(len(faults)), bound=0.0,
        )  # fmt: skip
    if not _count_faults(facts, fp32):
        return CheckRow("numbers", "", "", "not checked", None, reason="no outputs were compared with fp32")
    return CheckRow("numbers", _LIMIT, "all of them", "holds", "measured", on, value=0.0, bound=0.0)


def find_faults(facts: VariantResult, fp32: VariantResult | None) -> dict[str, str]:
    """What is wrong with the outputs of a variant, each fault in words with its remedy; empty where nothing is.

    Args:
        facts: The variant.
        fp32: The same model in fp32, ``facts`` itself where it is that; None where it is not known.
    """
    faults = {}
    for name, (elements, undefined, overflow_count) in _count_faults(facts, fp32).items():
        if undefined:
            faults[f'{undefined} of {elements} elements of "{name}" are NaN in fp32 itself'] = (
                "Look at the model and at the data, study.accuracy.diagnose names the first node: no precision can "
                "keep what fp32 has not."
            )
        if overflow_count:
            faults[
                f'{overflow_count} of {elements} elements of "{name}" are NaN or infinite, and finite in fp32'
            ] = "study.accuracy.diagnose names the first node, and rtlab repair MODEL keeps it in fp32."
    for part in _find_slices(facts, fp32):
        if part.zero:
            faults[f"{part.fault}, and not in fp32"] = (
                "One scale for numbers of two kinds: rtlab repair MODEL looks for another."
            )
    score = None if fp32 is None else fp32.score
    if score is not None and score.unit == "%" and score.higher and score.value == 0:
        faults[f"fp32 itself scores 0 % on {pluralize(score.samples, 'sample')}"] = (
            "Check labels, preprocessing and data: beside such an fp32 nothing can get worse."
        )
    return faults


def _pair_outputs(
    facts: VariantResult, fp32: VariantResult | None
) -> dict[str, list[tuple[NDArray[Any], NDArray[Any]]]]:
    """By output, its batches in fp32 and in the variant, where both were scored.

    A model in fp32 with pairs of its own is told by its errors, to the model without them, and not by itself.
    """
    if facts.score is None or fp32 is None or fp32.score is None or (fp32 is facts and facts.errors):
        return {}
    reference, variant = fp32.score.predictions.parts(), facts.score.predictions.parts()
    pairs = {n: [*zip(p, variant[n], strict=False)] for n, p in reference.items() if n in variant}
    return {n: batches for n, batches in pairs.items() if batches}


def _count_faults(facts: VariantResult, fp32: VariantResult | None) -> dict[str, tuple[int, int, int]]:
    """By output: its elements, those that are NaN in fp32, and those that are finite in fp32 alone."""
    if pairs := _pair_outputs(facts, fp32):
        counts = {n: np.sum([_count_batch(*p) for p in some], axis=0) for n, some in pairs.items()}
        return {n: (int(c[0]), int(c[1]), int(c[2])) for n, c in counts.items()}
    errors, outputs = accuracy.compute_accuracy(facts), {*facts.source.outputs}
    values = [v for v in errors.values if v.value in outputs] if errors else []
    return {v.value: (v.elements, v.undefined, v.overflowed) for v in values}


def _find_slices(facts: VariantResult, fp32: VariantResult | None) -> list[Slice]:
    """The part of each output that lost most, where one fares worse than the whole."""
    if pairs := _pair_outputs(facts, fp32):
        sums = {n: SliceSums(n) for n in pairs}
        for name, batches in pairs.items():
            for reference, variant in batches:
                sums[name].add(reference, variant, len(reference) if reference.ndim else 1)
    else:
        sums = {} if facts.errors is None else {**facts.errors.slices}
    return [part for one in sums.values() if (part := one.worst()) is not None]


def _count_batch(reference: NDArray[Any], variant: NDArray[Any]) -> tuple[int, int, int]:
    overflow_count = 0
    if reference.shape == variant.shape:
        overflow_count = int(np.count_nonzero(np.isfinite(reference) & ~np.isfinite(variant)))
    return reference.size, int(np.count_nonzero(np.isnan(reference))), overflow_count
