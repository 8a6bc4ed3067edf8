"""Layers beside those of an earlier check: what is no longer fused, and what computes in a wider type."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from rtlab.analyses.check.record import NOT_WORSE, CheckName, CheckRecord, CheckRow, CheckVerdict
from rtlab.analyses.difference import Difference, Group, compute_difference
from rtlab.core.engine import NARROWEST_FIRST, Layer
from rtlab.core.model import Model, make_empty_model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import Origin
from rtlab.errors import VariantError
from rtlab.relation.roles import SERVING

#: What to do about each.
_REMEDIES: Mapping[CheckName, str] = {
    "fusion": "rtlab why MODEL A B says why two nodes are not one layer.",
    "precision": "rtlab inspect MODEL lists the layers with their types.",
    "findings": "Each finding's remedy is in rtlab inspect MODEL --ask findings.",
}


def compare_engines(previous: CheckRecord, current: CheckRecord, model: Model) -> Difference:
    """Both engines by groups of nodes; by their layers alone, where the nodes were named anew since.

    Raises:
        VariantError: they are of different models.
    """
    sides = previous.to_side("then"), current.to_side("now")
    difference = compute_difference(*sides, model)
    if difference.overlap.is_enough or previous.digest == current.digest != "":
        return difference
    bare = compute_difference(*sides, make_empty_model())
    if bare.overlap.is_enough and bare.overlap.share is not None:
        return bare
    why = (
        f"of the layers that multiply, only {difference.overlap} run the same nodes as some of the other engine, and "
        f"by kernels and shapes {bare.overlap} have one like them"
    )
    raise VariantError(
        f'Cannot check "{current.model}" against a check of "{previous.model}": {why}, so that they are of different '
        "models. Save a new one of this model, with rtlab check --save."
    )


def explain_incomparable(previous: CheckRecord, current: CheckRecord) -> str:
    """Why layers of both say nothing beside each other; empty where they do."""
    one, two = previous.engine, current.engine
    if one.compiler != two.compiler:
        return f"it was compiled by {one.compiler} then, and by {two.compiler} now"
    # Where the files of an engine name its GPU, its target may be a guess.
    if one.target != two.target and not one.device == two.device != "":
        return f"it was compiled for {one.target} then, and for {two.target} now"
    if not (one.layers and two.layers):
        return f"the {'earlier' if not one.layers else 'present'} engine lists no layers"
    return ""


def check_fusion(
    previous: CheckRecord, current: CheckRecord, difference: Difference, fail_on: Sequence[str]
) -> CheckRow:
    """What was one layer, or fewer of them, and is more layers now; those that only convert are counted, not named."""
    split = [
        f"{_format_group(group)}: {pluralize(len(before), 'layer')} became {len(after)}"
        for group, before, after in _iter_compute_layers(previous, current, difference)
        if 0 < len(before) < len(after)
    ]
    counts = f"{previous.engine.count} → {pluralize(current.engine.count, current.engine.step)}"
    what = f", {pluralize(len(split), 'group')} of nodes split" if split else ", none split"
    return _build_row("fusion", f"{counts}{what}", split, fail_on, current.engine.origin)


def check_precision(
    previous: CheckRecord, current: CheckRecord, difference: Difference, fail_on: Sequence[str]
) -> CheckRow:
    """What computes in a wider type than before."""
    wider = [
        f"{_format_group(group)}: {one} became {two}"
        for group, before, after in _iter_compute_layers(previous, current, difference)
        for one, two in [(_find_narrowest(before), _find_narrowest(after))]
        if one and two and NARROWEST_FIRST.index(one) < NARROWEST_FIRST.index(two)
    ]
    what = f"{pluralize(len(wider), 'group')} of nodes" if wider else "none"
    what += " wider than before"
    return _build_row("precision", what, wider, fail_on, current.engine.origin)


def _iter_compute_layers(
    previous: CheckRecord, current: CheckRecord, difference: Difference
) -> Iterator[tuple[Group, list[Layer], list[Layer]]]:
    """Groups of nodes with the layers that compute them, then and now: not those that convert for a neighbour."""
    compute_layers = []
    for record in (previous, current):
        work = {p.layer for p in record.engine.pairs if p.role not in SERVING}
        # Without the model nobody knows whom a layer serves.
        compute_layers.append({y.id: y for y in record.engine.layers if y.id in work or not work})
    for group in difference.groups:
        if group.basis != "moves":
            one, two = (
                [mine[i] for i in half.layers if i in mine]
                for half, mine in zip((group.first, group.second), compute_layers, strict=True)
            )
            yield group, one, two


def _find_narrowest(layers: Sequence[Layer]) -> str:
    precisions = {y.precision for y in layers}
    return next((p for p in NARROWEST_FIRST if p in precisions), "")


def check_findings(previous: CheckRecord, current: CheckRecord, fail_on: Sequence[str]) -> CheckRow:
    """What is worth changing now and was not there before."""
    new_titles = [title for one, title in current.findings.items() if one not in previous.findings]
    resolved_count = sum(one not in current.findings for one in previous.findings)
    what = f"{pluralize(len(current.findings), 'finding')}, {len(new_titles)} new, {resolved_count} gone"
    return _build_row("findings", what, new_titles, fail_on, current.engine.origin)


def _build_row(
    check: CheckName, summary: str, worse: Sequence[str], fail_on: Sequence[str], origin: Origin
) -> CheckRow:
    """What got worse, with the verdict; broken where it may not."""
    row = CheckRow(check, "", summary, "told", origin, changes=tuple(worse))
    if check not in fail_on:
        return row
    verdict: CheckVerdict = "broken" if worse else "holds"
    remedy, value = _REMEDIES[check] if worse else "", float(len(worse))
    limit = NOT_WORSE[check]
    return dataclasses.replace(row, limit=limit, verdict=verdict, remedy=remedy, value=value, bound=0.0)


def _format_group(group: Group) -> str:
    nodes = group.nodes[:3] or (group.title,)
    more = f" + {len(group.nodes) - 3} more" if len(group.nodes) > 3 else ""
    return " + ".join(nodes) + more
