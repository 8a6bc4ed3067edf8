"""Whether a variant computes numbers at all: a limit that is always on, since no comparison tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.facts import Facts
from rtlab.core.phrases import many
from rtlab.questions import accuracy
from rtlab.questions.check.row import CheckRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIMIT = "outputs are numbers"


def check_numbers(facts: Facts, fp32: Facts | None) -> CheckRow:
    """NaN and infinities in outputs, of the variant and of fp32 itself, and a score of 0 % of fp32 itself.

    Two models that answer nothing are equal, and a drop from nothing is none.
    """
    counts = _count(facts, fp32)
    problems, remedies = [], []
    for name, (elements, undefined, lost) in counts.items():
        if undefined:
            problems.append(f'{undefined} of {elements} elements of "{name}" are NaN in fp32 itself')
            remedies.append("Look at the model and at the data: no precision can keep what fp32 has not.")
        if lost:
            problems.append(
                f'{lost} of {elements} elements of "{name}" are NaN or infinite, and finite in fp32'
            )
            remedies.append("study.diagnose names the first node, and rtlab repair MODEL keeps it in fp32.")
    score = None if fp32 is None else fp32.score
    if score is not None and score.unit == "%" and score.higher and score.value == 0:
        problems.append(f"fp32 itself scores 0 % on {many(score.samples, 'sample')}")
        remedies.append("Check labels, preprocessing and data: beside such an fp32 nothing can get worse.")
    errors = accuracy.of(facts)
    samples = facts.score.samples if facts.score is not None else errors.samples if errors is not None else 0
    if problems:
        return CheckRow(
            "numbers", _LIMIT, "; ".join(problems), "broken", "measured", f"on {many(samples, 'sample')}",
            remedy=" ".join(dict.fromkeys(remedies)), value=float(len(problems)), bound=0.0,
        )  # fmt: skip
    if not counts:
        return CheckRow("numbers", "", "", "not checked", None, reason="no outputs were compared with fp32")
    return CheckRow(
        "numbers",
        _LIMIT,
        "all of them",
        "holds",
        "measured",
        f"on {many(samples, 'sample')}",
        value=0.0,
        bound=0.0,
    )


def _count(facts: Facts, fp32: Facts | None) -> dict[str, tuple[int, int, int]]:
    """By output: its elements, those that are NaN in fp32, and those that are finite in fp32 alone."""
    if facts.score is not None and fp32 is not None and fp32.score is not None:
        reference, variant = fp32.score.held.parts(), facts.score.held.parts()
        pairs = {n: [*zip(p, variant[n], strict=False)] for n, p in reference.items() if n in variant}
        if any(pairs.values()):
            counts = {n: np.sum([_count_one(*p) for p in some], axis=0) for n, some in pairs.items() if some}
            return {n: (int(c[0]), int(c[1]), int(c[2])) for n, c in counts.items()}
    errors, outputs = accuracy.of(facts), {*facts.source.outputs}
    values = [v for v in errors.values if v.value in outputs] if errors else []
    return {v.value: (v.elements, v.undefined, v.overflowed) for v in values}


def _count_one(reference: NDArray[Any], variant: NDArray[Any]) -> tuple[int, int, int]:
    lost = 0
    if reference.shape == variant.shape:
        lost = int(np.count_nonzero(np.isfinite(reference) & ~np.isfinite(variant)))
    return reference.size, int(np.count_nonzero(np.isnan(reference))), lost
