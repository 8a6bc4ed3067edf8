"""Cross-layer equalization: channels of neighbouring weights get one range, and the model computes the same.

Nagel, van Baalen, Blankevoort and Welling, Data-Free Quantization Through Weight Equalization and Bias Correction
(ICCV 2019): with r1 and r2 the largest weights that write and that read a channel, ``s = sqrt(r1 r2) / r2`` divides the
former and multiplies the latter, so that both become ``sqrt(r1 r2)``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.phrases import pluralize
from rtlab.core.precision import compute_amax
from rtlab.quantize import passes
from rtlab.quantize.scale_migration import (
    MIGRATION_PROMISES,
    ChannelLink,
    Constants,
    compute_read_peaks,
    compute_write_peaks,
    find_links,
    move_scale,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

#: Chains are repeated until no channel changes by more than this share, at most so many times.
_STILL, _ROUNDS = 1e-3, 20


def plan(model: Model, nodes: Collection[str] | None = None) -> tuple[ChannelLink, ...]:
    """The links whose first node is among ``nodes``; all by default."""
    return tuple(link for link in find_links(model) if nodes is None or link.first in nodes)


def equalize(links: tuple[ChannelLink, ...]) -> passes.Pass:
    """One range for each channel where it is written and where it is read."""

    def edit_graph(edit: Edit) -> None:
        constants = Constants(edit.model)
        for _ in range(_ROUNDS):
            largest_change = 0.0
            for link in links:
                scale = compute_scale_factors(constants, link)
                largest_change = max(largest_change, float(compute_amax(np.log(scale))))
                if (scale != 1).any():
                    move_scale(constants, link, scale)
            if largest_change < _STILL:
                break
        constants.write(edit)

    return passes.Pass("equalization", edit_graph, MIGRATION_PROMISES)


def compute_scale_factors(constants: Constants, link: ChannelLink) -> NDArray[np.float64]:
    """``sqrt(r1 / r2)`` for each channel; 1 where a channel is not used.

    A channel of small weights and a large bias would get a bias that takes the whole range of the value, so no offset
    becomes larger than the largest offset or weight; the paper moves such biases into the next layer.
    """
    write_peaks, start = compute_write_peaks(constants, link)
    read_peaks = compute_read_peaks(constants, link)
    used = (write_peaks > 0) & (read_peaks > 0) & np.isfinite(write_peaks) & np.isfinite(read_peaks)
    scale = np.sqrt(np.divide(write_peaks, read_peaks, out=np.ones_like(write_peaks), where=used))
    largest_offset = max(float(compute_amax(start)), float(write_peaks.max(initial=0)))
    if largest_offset > 0:
        scale = np.maximum(scale, np.minimum(1, np.abs(start) / largest_offset))
    return np.where(used, scale, 1.0)


def describe_equalization(channel_links: Iterable[ChannelLink]) -> tuple[str, ...]:
    """What was done, in words."""
    count = len(tuple(channel_links))
    if not count:
        return (
            "nothing to equalize: no two products are joined by what keeps multiples (Relu, no Gelu or Clip)",
        )
    return (f"{pluralize(count, 'product')} equalized with what reads {'it' if count == 1 else 'them'}",)
