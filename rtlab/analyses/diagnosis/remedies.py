"""Changes of a variant against causes of lost accuracy: another scale, a pin, a granularity."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.core.phrases import pluralize
from rtlab.core.variant import Calibrator, Precision
from rtlab.quantize.existing_qdq import SURPLUS

if TYPE_CHECKING:
    from rtlab.core.finding import Finding
    from rtlab.core.variant import Variant

#: Causes that a threshold has which clips rare values, or one that clips less.
_CLIPS = frozenset({"one-sample-range", "outlier-channels", "long-tail"})
_KEEPS = frozenset({"threshold-far-off", "clipping"})
#: Causes that another scale helps against.
SCALED = _CLIPS | _KEEPS
#: Causes that a higher precision alone takes away.
_PINS = frozenset({"fp16-overflow", "fp16-underflow", "delicate-operator"})


def list_pair_rewrites(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What ``Study.add`` takes as ``rewrites`` so that pairs of the model itself no longer stand in a wrong place."""
    pairs = (f.id.partition(":")[2] for f in findings if f.rule in SURPLUS and f.fixable)
    return tuple(f"mend {pair}" for pair in dict.fromkeys(pairs))


def choose_calibrators(findings: Iterable[Finding], variant: Variant) -> Mapping[str, Calibrator]:
    """Calibrators of single values that causes ask for, of which the variant's others keep theirs; by value."""
    calibrators: dict[str, Calibrator] = {}
    for finding in findings:
        if finding.rule in SCALED and finding.value:
            calibrators.setdefault(finding.value, _choose_calibrator(finding, variant))
    return {value: c for value, c in calibrators.items() if c != variant.calibrator}


def _choose_calibrator(finding: Finding, variant: Variant) -> Calibrator:
    """What calibrates in another way than the variant's, as a cause wants it."""
    preference = Calibrator.PERCENTILE if finding.rule in _CLIPS else Calibrator.MSE
    if variant.calibrator == preference:
        return Calibrator.MSE if preference is Calibrator.PERCENTILE else Calibrator.MINMAX
    return preference


@dataclasses.dataclass(frozen=True)
class Cure:
    """One change of a variant: what a button says, what the new variant is called, and the arguments of ``add``."""

    label: str
    title: str
    choice: Mapping[str, Any]


def pin_to_fp32(
    arguments: Mapping[str, Any], nodes: Iterable[str], quantized_nodes: Collection[str] = ()
) -> dict[str, Any]:
    """The arguments of ``add`` with some nodes in FP32; those that the model itself quantizes leave their pairs."""
    node_ids = tuple(nodes)
    pins = {**arguments["precision"], **dict.fromkeys(node_ids, Precision.FP32)}
    return {**_release_nodes(arguments, node_ids, quantized_nodes), "precision": pins}


def requantize(arguments: Mapping[str, Any], nodes: Iterable[str], calibrator: Calibrator) -> dict[str, Any]:
    """The arguments of ``add`` with nodes that the model itself quantizes in INT8 once more, by scales found here."""
    node_ids, precisions = tuple(nodes), arguments["precision"]
    # Said only where it is not so already.
    pins = {n: Precision.INT8 for n in node_ids if precisions.get(n, precisions["*"]) != Precision.INT8}
    return {
        **_release_nodes(arguments, node_ids, node_ids),
        "precision": {**precisions, **pins},
        "calibrator": calibrator,
    }


def _release_nodes(
    arguments: Mapping[str, Any], nodes: Iterable[str], quantized_nodes: Collection[str]
) -> dict[str, Any]:
    released = (f"release {n}" for n in nodes if n in quantized_nodes)
    return {**arguments, "rewrites": [*arguments["rewrites"], *released]}


def propose_cure(
    finding: Finding, name: str, variant: Variant, quantized_nodes: Collection[str] = ()
) -> Cure | None:
    """What may be done about a cause, the cheapest first; None where no choice of the variant helps.

    ``quantized_nodes`` are the nodes that the model itself quantizes: they know no calibrator until they leave their
    pairs.
    """
    arguments = get_add_arguments(variant)
    is_quantized = bool(finding.nodes) and finding.nodes[0] in quantized_nodes
    if rewrites := list_pair_rewrites([finding]):
        choice = {**arguments, "rewrites": [*arguments["rewrites"], *rewrites]}
        return Cure("Put this pair right", f"{name} mended", choice)
    if finding.rule in SCALED:
        scale = _choose_calibrator(finding, variant)
        choice = {**arguments, "calibrator": scale}
        if is_quantized:
            choice = requantize(arguments, finding.nodes[:1], scale)
        return Cure(f"Another scale: {scale}", f"{name} {scale}", choice)
    if finding.rule == "unequal-channels" and variant.weights == "tensor":
        return Cure("Scale weights per channel", f"{name} per channel", {**arguments, "weights": "channel"})
    if finding.rule == "unequal-channels" and not variant.treatments and not is_quantized:
        choice = {**arguments, "treatments": [*variant.treatments, "equalize"]}
        return Cure("Equalize the channels", f"{name} equalized", choice)
    if finding.rule in _PINS:
        count = pluralize(len(finding.nodes), "node")
        region = "region" if len(finding.nodes) > 1 else "node"
        choice = pin_to_fp32(arguments, finding.nodes, quantized_nodes)
        return Cure(f"Pin this {region}: {count} in FP32", f"{name} {count} pinned", choice)
    return None
