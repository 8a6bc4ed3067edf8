"""SmoothQuant: scale moves from channels of activations into the weights that read them.

Xiao, Lin, Seznec, Wu, Demouth and Han, SmoothQuant (ICML 2023): ``s_j = max|X_j|^alpha / max|W_j|^(1 - alpha)`` divides
channel j of a normalization's output, in its factor and its offset, and multiplies the weights that read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.phrases import pluralize
from rtlab.quantize import passes
from rtlab.quantize.scale_migration import (
    MIGRATION_PROMISES,
    NORMS,
    ChannelLink,
    Constants,
    compute_read_peaks,
    find_links,
    move_scale,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.ptq_transform import PtqTransform
    from rtlab.quantize.edit import Edit

#: Scales are within this factor of 1, so that a channel of tiny activations stays finite.
_MOST = 1e4


def plan(model: Model, nodes: Collection[str] | None = None) -> tuple[ChannelLink, ...]:
    """Normalizations, and products with a constant, whose channels only products of matrices read.

    With ``nodes``, those that are among them or are read by one of them.
    """
    matching_links = []
    for link in find_links(model, NORMS):
        linked_nodes = {link.first, *(r.node for r in link.readers)}
        matrices = all(model.by_id[r.node].op in {"MatMul", "Gemm"} and r.repeat == 1 for r in link.readers)
        if matrices and not link.factors and (nodes is None or not linked_nodes.isdisjoint(nodes)):
            matching_links.append(link)
    return tuple(matching_links)


def smooth(
    links: tuple[ChannelLink, ...], peaks: Mapping[str, NDArray[np.float64]], alpha: float = 0.5
) -> passes.Pass:
    """Channels of links divided by their smoothing factors; ``peaks`` are the largest magnitudes of each by value."""

    def edit_graph(edit: Edit) -> None:
        constants = Constants(edit.model)
        for link in links:
            channel_peaks = [peaks[r.value] for r in link.readers if r.value in peaks]
            if len(channel_peaks) == len(link.readers):
                activations = np.max(channel_peaks, axis=0)
                factors = compute_smoothing_factors(activations, compute_read_peaks(constants, link), alpha)
                move_scale(constants, link, factors)
        constants.write(edit)

    return passes.Pass("smoothing", edit_graph, MIGRATION_PROMISES)


def compute_smoothing_factors(
    activations: NDArray[np.float64], weights: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """``max|X_j|^alpha / max|W_j|^(1 - alpha)``; 1 where a channel is not used."""
    used = (activations > 0) & (weights > 0)
    over = np.where(used, activations, 1.0) ** alpha
    under = np.where(used, weights, 1.0) ** (1 - alpha)
    return np.where(used, np.clip(over / under, 1 / _MOST, _MOST), 1.0)


def describe_smoothing(
    channel_links: Collection[ChannelLink], treatments: Iterable[PtqTransform]
) -> tuple[str, ...]:
    """What was done, in words."""
    if not channel_links:
        return ("nothing to smooth: no normalization is read by products of matrices alone",)
    alphas = " and ".join(sorted({f"{t.setting:g}" for t in treatments}))
    return (f"{pluralize(len(channel_links), 'normalization')} smoothed with alpha {alphas}",)
