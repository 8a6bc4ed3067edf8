"""What a variant is called wherever people read of it: chips, tables, charts, panels, reports, the command line."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtlab.core.variant import Variant
    from rtlab.questions.difference.diff import Difference
    from rtlab.questions.snapshot import Snapshot


def titles(study: Snapshot) -> Mapping[str, str]:
    """The title of each variant, by its name in the study; no two are equal.

    A name that the user chose stays. One that only repeats the choice, such as ``int8`` or ``int8·entropy2@sm86``, is
    written as ``int8·entropy2``, with the target where such variants differ by it, and
    with the release of the compiler.
    """
    variants, results = study.variants, study.facts
    read = {n for n, r in results.items() if r.recorded}
    plain = {n: v for n, v in variants.items() if _repeats(n, v) and n not in read}
    targets = {v.target for v in plain.values()}
    several = len(targets) > 1
    found = {n: f"{v.name}@{v.target}" if several else v.name for n, v in plain.items()}
    if len({v.backend for v in plain.values()}) > 1:
        # What stands behind the colon tells releases and providers of one backend apart.
        parts = {n: (v.backend or "").partition(":")[2] for n, v in plain.items()}
        found = {n: f"{title} · {parts[n]}" if parts[n] else title for n, title in found.items()}
    known = dict.fromkeys((*variants, *results))
    counts = Counter(found.get(n, n) for n in known)
    # Variants that differ in what no title tells, such as a pattern, are known by their names.
    return {n: found[n] if n in found and counts[found[n]] == 1 else n for n in known}


def titled(found: Difference, called: Mapping[str, str]) -> Difference:
    """A difference whose sides bear the titles of their variants."""
    first, second = (dataclasses.replace(s, name=called[s.name]) for s in (found.first, found.second))
    return dataclasses.replace(found, first=first, second=second)


def _repeats(name: str, variant: Variant) -> bool:
    # A choice is called without its builder, which is found when it is planned.
    chosen = dataclasses.replace(variant, backend=None).id
    return name in {variant.id, chosen, variant.name, str(variant.precision)}
