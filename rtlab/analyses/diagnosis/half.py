"""What 16 bits cannot hold: numbers beyond the largest, numbers below the smallest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.phrases import pluralize
from rtlab.core.precision import compute_sqnr
from rtlab.core.variant import Precision
from rtlab.documents.numbers import format_number

if TYPE_CHECKING:
    from rtlab.analyses.diagnosis.quantizer_site import QuantizerSite
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model

#: The largest finite number of FP16; what rounds to more than it, from 65,520 on, is infinite (IEEE 754-2019, 4.3.1).
LARGEST = 65504.0
_INFINITE = 65520.0
#: Half the smallest subnormal of FP16, 2**-24: what is no larger becomes zero.
_VANISHES = 2.0**-25
#: The step of subnormal numbers, and the SQNR in decibels below which what it leaves is not worth much.
_STEP, _POOR = 2.0**-24, 30.0


def find_too_large_values(peaks: Mapping[str, float]) -> frozenset[str]:
    """Values that FP16 cannot hold, by the largest magnitude of each in the reference."""
    return frozenset(v for v, peak in peaks.items() if not peak < _INFINITE)


def find_regions(model: Model, peaks: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Groups of neighbouring nodes that have to compute in more than FP16, in graph order.

    A node belongs to one where it reads or writes a value that FP16 cannot hold: pinning the one that writes it alone
    changes nothing, because the next one rounds to FP16 again.
    """
    large = find_too_large_values(peaks)
    groups: list[tuple[list[str], set[str]]] = []
    for node in model.top:
        touched_values = large & {*node.inputs, *node.outputs}
        if not touched_values:
            continue
        touching_groups = [g for g in groups if g[1] & touched_values]
        nodes, values = (
            [n for g in touching_groups for n in g[0]],
            touched_values.union(*(g[1] for g in touching_groups)),
        )
        groups = [*(g for g in groups if g not in touching_groups), ([*nodes, node.id], set(values))]
    order = {n.id: i for i, n in enumerate(model.top)}
    regions = (tuple(sorted(nodes, key=order.__getitem__)) for nodes, _ in groups)
    return tuple(sorted(regions, key=lambda g: order[g[0]]))


def find_overflow(place: QuantizerSite) -> Iterator[Finding]:
    """A value beyond what FP16 holds."""
    stats = place.stats
    if place.precision is not Precision.FP16 or stats is None or stats.amax < _INFINITE:
        return
    overflow_mask = stats.samples >= _INFINITE
    region = place.region or (place.node.id,)
    yield place.make_finding(
        "fp16-overflow",
        f'"{place.value}" leaves the range of FP16.',
        f"It reaches {format_number(stats.amax)} in {int(overflow_mask.sum())} of {len(overflow_mask)} samples, and "
        f"FP16 ends at {LARGEST:,.0f}: what is larger becomes infinite.",
        f"Keep {pluralize(len(region), 'node')} in FP32, from where the values grow to where they fit again, or choose "
        "BF16.",
        nodes=region,
        samples=tuple(int(i) for i in np.flatnonzero(overflow_mask)[:5]),
    )


def find_underflow(place: QuantizerSite) -> Iterator[Finding]:
    """A value so small that FP16 leaves little or nothing of it."""
    stats = place.stats
    if place.precision is not Precision.FP16 or stats is None or not 0 < stats.rms < 1:
        return
    # Rounding to subnormals errs by a step over the root of 12, whatever the magnitude is.
    sqnr = compute_sqnr(stats.rms**2, _STEP**2 / 12)
    if sqnr >= _POOR:
        return
    is_all_zero = stats.amax <= _VANISHES
    yield place.make_finding(
        "fp16-underflow",
        f'"{place.value}" is too small for FP16.',
        f"It is {format_number(stats.rms)} on the root mean square and at most {format_number(stats.amax)}; the "
        f"smallest number of FP16 is {format_number(_STEP)}, so that "
        f"{'all of it becomes zero' if is_all_zero else 'a few steps are left of it'}.",
        "Keep what writes and what reads it in FP32, scale it up before and down behind, or choose BF16.",
    )
