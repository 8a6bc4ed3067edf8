"""Layers beside those of an earlier check: what is no longer fused, and what computes in a wider type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rtlab.core.engine import NARROWEST_FIRST, Layer
from rtlab.core.model import Model, absent
from rtlab.core.phrases import many
from rtlab.core.schema import Origin
from rtlab.errors import VariantError
from rtlab.questions.check.record import CheckRecord
from rtlab.questions.check.row import NOT_WORSE, CheckName, CheckRow, CheckVerdict
from rtlab.questions.difference import diff
from rtlab.questions.difference.diff import Difference, Group
from rtlab.relation.roles import SERVING

#: What to do about each.
_REMEDIES: Mapping[CheckName, str] = {
    "fusion": "rtlab why MODEL A B tells why two nodes are not one layer.",
    "precision": "rtlab inspect MODEL lists the layers with their types.",
    "findings": "Each finding's remedy is in rtlab inspect MODEL --ask findings.",
}


def difference(then: CheckRecord, now: CheckRecord, model: Model) -> Difference:
    """Both engines by groups of nodes; by their layers alone, where the nodes were named anew since.

    Raises:
        VariantError: they are of different models.
    """
    sides = then.side("then"), now.side("now")
    found = diff.difference(*sides, model)
    if found.overlap.enough or then.digest == now.digest != "":
        return found
    bare = diff.difference(*sides, absent())
    if bare.overlap.enough and bare.overlap.share is not None:
        return bare
    why = (
        f"of the layers that multiply, only {found.overlap} run the same nodes as some of the other engine, and by "
        f"kernels and shapes {bare.overlap} have one like them"
    )
    raise VariantError(
        f'Cannot check "{now.model}" against a check of "{then.model}": {why}, so that they are of different models. '
        "Save a new one of this model, with rtlab check --save."
    )


def unlike(then: CheckRecord, now: CheckRecord) -> str:
    """Why layers of both say nothing beside each other; empty where they do."""
    one, two = then.engine, now.engine
    if one.compiler != two.compiler:
        return f"it was compiled by {one.compiler} then, and by {two.compiler} now"
    # Where the files of an engine name its GPU, its target may be a guess.
    if one.target != two.target and not one.device == two.device != "":
        return f"it was compiled for {one.target} then, and for {two.target} now"
    if not (one.layers and two.layers):
        return f"the {'earlier' if not one.layers else 'present'} engine tells no layers"
    return ""


def fusion(then: CheckRecord, now: CheckRecord, found: Difference, fail_on: Sequence[str]) -> CheckRow:
    """What was one layer, or fewer of them, and is more layers now; those that only convert are counted, not named."""
    split = [
        f"{_named(group)}: {many(len(before), 'layer')} became {len(after)}"
        for group, before, after in _working(then, now, found)
        if 0 < len(before) < len(after)
    ]
    counts = f"{then.engine.count} → {many(now.engine.count, now.engine.step)}"
    what = f", {many(len(split), 'group')} of nodes split" if split else ", none split"
    return _row("fusion", f"{counts}{what}", split, fail_on, now.engine.origin)


def precision(then: CheckRecord, now: CheckRecord, found: Difference, fail_on: Sequence[str]) -> CheckRow:
    """What computes in a wider type than before."""
    wider = [
        f"{_named(group)}: {one} became {two}"
        for group, before, after in _working(then, now, found)
        for one, two in [(_narrowest(before), _narrowest(after))]
        if one and two and NARROWEST_FIRST.index(one) < NARROWEST_FIRST.index(two)
    ]
    what = f"{many(len(wider), 'group')} of nodes wider than before" if wider else "none wider than before"
    return _row("precision", what, wider, fail_on, now.engine.origin)


def _working(
    then: CheckRecord, now: CheckRecord, found: Difference
) -> Iterator[tuple[Group, list[Layer], list[Layer]]]:
    """Groups of nodes with the layers that compute them, then and now: not those that convert for a neighbour."""
    known = []
    for held in (then, now):
        work = {p.layer for p in held.engine.pairs if p.role not in SERVING}
        # Without the model nobody knows whom a layer serves.
        known.append({y.id: y for y in held.engine.layers if y.id in work or not work})
    for group in found.groups:
        if group.basis != "moves":
            one, two = (
                [mine[i] for i in half.layers if i in mine]
                for half, mine in zip((group.first, group.second), known, strict=True)
            )
            yield group, one, two


def _narrowest(layers: Sequence[Layer]) -> str:
    told = {y.precision for y in layers}
    return next((p for p in NARROWEST_FIRST if p in told), "")


def findings(then: CheckRecord, now: CheckRecord, fail_on: Sequence[str]) -> CheckRow:
    """What is worth changing now and was not there before."""
    fresh = [title for one, title in now.findings.items() if one not in then.findings]
    gone = sum(one not in now.findings for one in then.findings)
    what = f"{many(len(now.findings), 'finding')}, {len(fresh)} new, {gone} gone"
    return _row("findings", what, fresh, fail_on, now.engine.origin)


def _row(
    check: CheckName, found: str, worse: Sequence[str], fail_on: Sequence[str], origin: Origin
) -> CheckRow:
    """What got worse, with the verdict; broken where it may not."""
    if check not in fail_on:
        return CheckRow(check, "", found, "told", origin, changes=tuple(worse))
    verdict: CheckVerdict = "broken" if worse else "holds"
    remedy = _REMEDIES[check] if worse else ""
    return CheckRow(
        check, NOT_WORSE[check], found, verdict, origin, "", "", remedy, tuple(worse), float(len(worse)), 0.0
    )  # fmt: skip


def _named(group: Group) -> str:
    nodes = group.nodes[:3] or (group.title,)
    more = f" + {len(group.nodes) - 3} more" if len(group.nodes) > 3 else ""
    return " + ".join(nodes) + more
