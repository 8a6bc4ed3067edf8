"""What a variant is told otherwise where a cause of lost accuracy is known: another scale, a pin, a granularity."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rtlab.core.phrases import many
from rtlab.core.variant import Calibrator, Precision
from rtlab.questions.variants.variations import given

if TYPE_CHECKING:
    from rtlab.core.finding import Finding
    from rtlab.core.variant import Variant

#: Causes that a threshold has which clips rare values, or one that clips less.
_CLIPS = frozenset({"one-sample-range", "outlier-channels", "long-tail"})
_KEEPS = frozenset({"threshold-far-off", "clipping"})
#: Causes that a higher precision alone takes away.
_PINS = frozenset({"fp16-overflow", "fp16-underflow", "delicate-operator", "two-scales"})


def scales_apart(findings: Iterable[Finding], variant: Variant) -> Mapping[str, Calibrator]:
    """Calibrators of single values that causes ask for, of which the variant's others keep theirs; by value."""
    found: dict[str, Calibrator] = {}
    for finding in findings:
        if finding.rule in _CLIPS | _KEEPS and finding.value:
            found.setdefault(finding.value, _other_scale(finding, variant))
    return {value: c for value, c in found.items() if c != variant.calibrator}


def _other_scale(finding: Finding, variant: Variant) -> Calibrator:
    """What calibrates in another way than the variant's, as a cause wants it."""
    wanted = Calibrator.PERCENTILE if finding.rule in _CLIPS else Calibrator.MSE
    if variant.calibrator == wanted:
        return Calibrator.MSE if wanted is Calibrator.PERCENTILE else Calibrator.MINMAX
    return wanted


@dataclasses.dataclass(frozen=True)
class Cure:
    """One change of a variant: what a button says, what the new variant is called, and the arguments of ``add``."""

    label: str
    title: str
    choice: Mapping[str, Any]


def cure(finding: Finding, name: str, variant: Variant) -> Cure | None:
    """What may be done about a cause, the cheapest first; None where no choice of the variant helps."""
    told = given(variant)
    if finding.rule in _CLIPS | _KEEPS:
        wanted = _other_scale(finding, variant)
        return Cure(f"Another scale: {wanted}", f"{name} {wanted}", {**told, "calibrator": wanted})
    if finding.rule == "unequal-channels" and variant.weights == "tensor":
        return Cure("Scale weights per channel", f"{name} per channel", {**told, "weights": "channel"})
    if finding.rule == "unequal-channels" and not variant.treatments:
        choice = {**told, "treatments": [*variant.treatments, "equalize"]}
        return Cure("Equalize the channels", f"{name} equalized", choice)
    if finding.rule in _PINS:
        pins = {**told["precision"], **dict.fromkeys(finding.nodes, Precision.FP32)}
        count = many(len(finding.nodes), "node")
        region = "region" if len(finding.nodes) > 1 else "node"
        return Cure(
            f"Pin this {region}: {count} in FP32", f"{name} {count} pinned", {**told, "precision": pins}
        )
    if finding.rule == "coarse-weights":
        pins = {**told["precision"], finding.nodes[0]: Precision.INT8}
        return Cure("Give it eight bits", f"{name} 1 node in int8", {**told, "precision": pins})
    return None
