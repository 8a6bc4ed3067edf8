"""What a variant is called wherever people read of it: chips, tables, charts, panels, reports, the command line."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.variant import Variant


def get_variant_titles(study: StudyState) -> Mapping[str, str]:
    """The title of each variant, by its name in the study; no two are equal.

    A name that the user chose stays. One that only repeats the choice, such as ``int8`` or ``int8·entropy2@sm86``, is
    written as ``int8·entropy2``, with the target where such variants differ by it, and
    with the release of the compiler.
    """
    variants, results = study.variants, study.results
    recorded_names = {n for n, r in results.items() if r.recorded}
    plain = {n: v for n, v in variants.items() if _repeats(n, v) and n not in recorded_names}
    titles = {n: v.name for n, v in plain.items()}
    if len({v.target for v in plain.values()}) > 1:
        titles = {n: f"{v.name}@{v.target}" for n, v in plain.items()}
    if len({v.backend for v in plain.values()}) > 1:
        # What stands behind the colon tells releases and providers of one backend apart.
        parts = {n: (v.backend or "").partition(":")[2] for n, v in plain.items()}
        titles = {n: f"{title} · {parts[n]}" if parts[n] else title for n, title in titles.items()}
    names = dict.fromkeys((*variants, *results))
    counts = Counter(titles.get(n, n) for n in names)
    # Variants that differ in what no title tells, such as a pattern, are known by their names.
    return {n: titles[n] if n in titles and counts[titles[n]] == 1 else n for n in names}


def _repeats(name: str, variant: Variant) -> bool:
    # A choice is called without its builder, which is found when it is planned.
    choice_id = dataclasses.replace(variant, backend=None).id
    return name in {variant.id, choice_id, variant.name, str(variant.precision)}
