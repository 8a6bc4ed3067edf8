"""The model that a variant rounds: its source rewritten, pruned, equalized and smoothed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.phrases import pluralize
from rtlab.core.precision import compute_amax
from rtlab.errors import VariantError
from rtlab.quantize import passes, rewrites, smoothquant, sparsity
from rtlab.quantize.assign import match_nodes
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
    from rtlab.core.ptq_transform import PtqTransform
    from rtlab.core.variant import Variant
    from rtlab.quantize.edit import Edit

#: Chains are repeated until no channel changes by more than this share, at most so many times.
_STILL, _ROUNDS = 1e-3, 20


def plan_equalization(model: Model, nodes: Collection[str]) -> tuple[ChannelLink, ...]:
    """The links whose first node is among ``nodes``."""
    return tuple(link for link in find_links(model) if link.first in nodes)


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


#: Those that change the model before it is rounded.
MOVES = frozenset({"equalize", "smooth"})


def apply_transforms(
    model: Model, variant: Variant, peaks: Mapping[str, NDArray[np.float64]] | None = None
) -> tuple[Model, tuple[str, ...]]:
    """The model that a variant's precisions are expressed in, and what was done, in words.

    Weights are pruned by the source's magnitudes, before scale moves.

    Args:
        model: The source.
        variant: Its rewrites, its pruning and its treatments.
        peaks: The largest magnitude of each channel of the values of ``plan_smoothing_observation``, which smoothing
            needs; without, it is left out with a note.

    Raises:
        VariantError: a node lacks a form, or a pattern fits none.
        ModelError: a weight that is pruned holds NaN or infinity.
    """
    transformed_model, notes = rewrites.apply_rewrites(model, variant.rewrites), list[str]()
    if variant.sparsity:
        prunable = sparsity.select_prunable_weights(transformed_model, variant.sparsity)
        transformed_model = sparsity.prune(transformed_model, prunable)
        notes.append(f"2:4 by magnitude in the weights of {pluralize(len(prunable), 'node')}")
    treatments = [t for t in variant.treatments if t.kind == "equalize"]
    if treatments:
        links = plan_equalization(transformed_model, match_treated_nodes(transformed_model, treatments))
        notes += describe_equalization(links)
        if links:
            transformed_model = passes.run(transformed_model, [equalize(links)], source=True)
    treatments = [t for t in variant.treatments if t.kind == "smooth"]
    if treatments and peaks is None:
        notes.append("not smoothed: channels of activations were not observed")
    elif treatments and peaks is not None:
        plans = _plan_smoothing(transformed_model, treatments)
        notes += smoothquant.describe_smoothing([link for links, _ in plans for link in links], treatments)
        smoothing = [smoothquant.smooth(links, peaks, alpha) for links, alpha in plans]
        transformed_model = passes.run(transformed_model, smoothing, source=True)
    return transformed_model, tuple(notes)


def plan_smoothing_observation(model: Model, variant: Variant) -> tuple[Model, Mapping[str, int]]:
    """What is to be observed before smoothing: a model, and its values with their axes."""
    others = tuple(t for t in variant.treatments if t.kind != "smooth")
    transformed_model, _ = apply_transforms(model, dataclasses.replace(variant, treatments=others))
    treatments = [t for t in variant.treatments if t.kind == "smooth"]
    plans = _plan_smoothing(transformed_model, treatments)
    readers = (r for links, _ in plans for link in links for r in link.readers)
    return transformed_model, {r.value: r.axis for r in readers}


def _plan_smoothing(
    model: Model, treatments: Iterable[PtqTransform]
) -> list[tuple[tuple[ChannelLink, ...], float]]:
    """Links with the setting of the last treatment that means them."""
    links_by_node: dict[str, tuple[ChannelLink, float]] = {}
    for treatment in treatments:
        links_by_node.update(
            (link.first, (link, treatment.setting))
            for link in smoothquant.plan(model, match_treated_nodes(model, [treatment]))
        )
    settings = dict.fromkeys(alpha for _, alpha in links_by_node.values())
    return [(tuple(link for link, a in links_by_node.values() if a == alpha), alpha) for alpha in settings]


def match_treated_nodes(model: Model, treatments: Iterable[PtqTransform]) -> frozenset[str]:
    """Ids of the nodes that treatments mean."""
    return frozenset(n for t in treatments for n in match_nodes(model, t.pattern))


def check(model: Model, variant: Variant) -> None:
    """Raise VariantError where a treatment's pattern means no node."""
    for treatment in variant.treatments:
        if not match_nodes(model, treatment.pattern):
            raise VariantError(
                f'Cannot {treatment.kind} "{treatment.pattern}" in model "{model.name}": no node has an id, a name or '
                "an operator like this. See model.nodes for ids, or write op:Conv for an operator."
            )


def make_activation_key(variant: Variant) -> tuple[object, ...]:
    """What of a variant decides the activations of the model that it rounds."""
    moves = tuple(t for t in variant.treatments if t.kind in MOVES)
    # The nodes of a function write values that the source does not have.
    inlined = tuple(r for r in variant.rewrites if r.kind == "inline")
    return (
        variant.sparsity,
        *((inlined,) if inlined else ()),
        *((variant.rewrites, moves) if moves else ()),
        *(("bare",) if changes_existing_pairs(variant) else ()),
    )


def changes_existing_pairs(variant: Variant) -> bool:
    """Whether pairs of the model itself are changed, so that thresholds are those of the model without any."""
    return any(r.kind in rewrites.QDQ_REWRITES for r in variant.rewrites)
