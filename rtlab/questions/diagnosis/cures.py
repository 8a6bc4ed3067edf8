"""What a variant is told otherwise where a cause of lost accuracy is known: another scale, a pin, a granularity."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rtlab.core.phrases import many
from rtlab.core.variant import Calibrator, Precision
from rtlab.quantize.own import SURPLUS
from rtlab.questions.variants.variations import given

if TYPE_CHECKING:
    from rtlab.core.finding import Finding
    from rtlab.core.variant import Variant

#: Causes that a threshold has which clips rare values, or one that clips less.
_CLIPS = frozenset({"one-sample-range", "outlier-channels", "long-tail"})
_KEEPS = frozenset({"threshold-far-off", "clipping"})
#: Causes that another scale helps against.
SCALED = _CLIPS | _KEEPS
#: Causes that a higher precision alone takes away.
_PINS = frozenset({"fp16-overflow", "fp16-underflow", "delicate-operator", "two-scales"})


def mends(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What ``Study.add`` takes as ``rewrites`` so that pairs of the model itself no longer stand in a wrong place."""
    asked = (f.id.partition(":")[2] for f in findings if f.rule in SURPLUS and f.fixable)
    return tuple(f"mend {pair}" for pair in dict.fromkeys(asked))


def scales_apart(findings: Iterable[Finding], variant: Variant) -> Mapping[str, Calibrator]:
    """Calibrators of single values that causes ask for, of which the variant's others keep theirs; by value."""
    found: dict[str, Calibrator] = {}
    for finding in findings:
        if finding.rule in SCALED and finding.value:
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


def kept_high(told: Mapping[str, Any], nodes: Iterable[str], own: Collection[str] = ()) -> dict[str, Any]:
    """The arguments of ``add`` with some nodes in FP32; those that the model itself quantizes leave their pairs."""
    chosen = tuple(nodes)
    pins = {**told["precision"], **dict.fromkeys(chosen, Precision.FP32)}
    return {**_released(told, chosen, own), "precision": pins}


def anew(told: Mapping[str, Any], nodes: Iterable[str], calibrator: Calibrator) -> dict[str, Any]:
    """The arguments of ``add`` with nodes that the model itself quantizes in INT8 once more, by scales found here."""
    chosen, known = tuple(nodes), told["precision"]
    # Said only where it is not so already.
    other = {n: Precision.INT8 for n in chosen if known.get(n, known["*"]) != Precision.INT8}
    return {**_released(told, chosen, chosen), "precision": {**known, **other}, "calibrator": calibrator}


def _released(told: Mapping[str, Any], nodes: Iterable[str], own: Collection[str]) -> dict[str, Any]:
    return {**told, "rewrites": [*told["rewrites"], *(f"release {n}" for n in nodes if n in own)]}


def cure(finding: Finding, name: str, variant: Variant, own: Collection[str] = ()) -> Cure | None:
    """What may be done about a cause, the cheapest first; None where no choice of the variant helps.

    ``own`` are the nodes that the model itself quantizes: they know no calibrator until they leave their pairs.
    """
    told = given(variant)
    mine = bool(finding.nodes) and finding.nodes[0] in own
    if wanted := mends([finding]):
        return Cure(
            "Put this pair right", f"{name} mended", {**told, "rewrites": [*told["rewrites"], *wanted]}
        )
    if finding.rule in SCALED:
        scale = _other_scale(finding, variant)
        choice = anew(told, finding.nodes[:1], scale) if mine else {**told, "calibrator": scale}
        return Cure(f"Another scale: {scale}", f"{name} {scale}", choice)
    if finding.rule == "unequal-channels" and variant.weights == "tensor":
        return Cure("Scale weights per channel", f"{name} per channel", {**told, "weights": "channel"})
    if finding.rule == "unequal-channels" and not variant.treatments and not mine:
        choice = {**told, "treatments": [*variant.treatments, "equalize"]}
        return Cure("Equalize the channels", f"{name} equalized", choice)
    if finding.rule in _PINS:
        count = many(len(finding.nodes), "node")
        region = "region" if len(finding.nodes) > 1 else "node"
        choice = kept_high(told, finding.nodes, own)
        return Cure(f"Pin this {region}: {count} in FP32", f"{name} {count} pinned", choice)
    if finding.rule == "coarse-weights":
        pins = {**told["precision"], finding.nodes[0]: Precision.INT8}
        return Cure("Give it eight bits", f"{name} 1 node in int8", {**told, "precision": pins})
    return None
