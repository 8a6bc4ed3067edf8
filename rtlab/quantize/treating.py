"""The model that a variant rounds: its source in other forms, pruned, with scale moved between neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rtlab.core.phrases import many
from rtlab.errors import VariantError
from rtlab.quantize import equalize, passes, rewrites, smooth, sparsity
from rtlab.quantize.assign import fitting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.treatment import Treatment
    from rtlab.core.variant import Variant
    from rtlab.quantize.links import ChannelLink

#: Those that change the model before it is rounded.
MOVES = frozenset({"equalize", "smooth"})


def treated(
    model: Model, variant: Variant, peaks: Mapping[str, NDArray[np.float64]] | None = None
) -> tuple[Model, tuple[str, ...]]:
    """The source that a variant's precisions are expressed in, and what was done, in words.

    What is pruned is so by the source's own magnitudes, before scale moves.

    Args:
        model: The source.
        variant: Its rewrites, its pruning and its treatments.
        peaks: The largest magnitude of each channel of the values that ``uneven`` names, which smoothing needs;
            without, it is left out with a note.

    Raises:
        VariantError: a node lacks a form, or a pattern fits none.
        ModelError: a weight that is pruned holds NaN or infinity.
    """
    made, notes = rewrites.rewritten(model, variant.rewrites), list[str]()
    if variant.sparsity:
        chosen = sparsity.matching(made, variant.sparsity)
        made = sparsity.prune(made, chosen)
        notes.append(f"2:4 by magnitude in the weights of {many(len(chosen), 'node')}")
    asked = [t for t in variant.treatments if t.kind == "equalize"]
    if asked:
        links = equalize.plan(made, meant(made, asked))
        notes += equalize.notes(links)
        if links:
            made = passes.run(made, [equalize.Equalize(links)], source=True)
    asked = [t for t in variant.treatments if t.kind == "smooth"]
    if asked and peaks is None:
        notes.append("not smoothed: channels of activations were not observed")
    elif asked and peaks is not None:
        found = _smoothed(made, asked)
        notes += smooth.notes([link for links, _ in found for link in links], asked)
        made = passes.run(made, [smooth.Smooth(links, peaks, alpha) for links, alpha in found], source=True)
    return made, tuple(notes)


def uneven(model: Model, variant: Variant) -> tuple[Model, Mapping[str, int]]:
    """What is to be observed before a variant's activations are smoothed: a model, and its values with their axes.

    Raises:
        VariantError: as ``treated``.
    """
    others = tuple(t for t in variant.treatments if t.kind != "smooth")
    made, _ = treated(model, dataclasses.replace(variant, treatments=others))
    asked = [t for t in variant.treatments if t.kind == "smooth"]
    return made, smooth.values([link for links, _ in _smoothed(made, asked) for link in links])


def _smoothed(model: Model, treatments: Iterable[Treatment]) -> list[tuple[tuple[ChannelLink, ...], float]]:
    """Links by the treatment that is for them; of several the last."""
    mine: dict[str, tuple[ChannelLink, float]] = {}
    for one in treatments:
        mine.update((link.first, (link, one.setting)) for link in smooth.plan(model, meant(model, [one])))
    settings = dict.fromkeys(alpha for _, alpha in mine.values())
    return [(tuple(link for link, a in mine.values() if a == alpha), alpha) for alpha in settings]


def meant(model: Model, treatments: Iterable[Treatment]) -> frozenset[str]:
    """Ids of the nodes that treatments are for."""
    return frozenset(n for t in treatments for n in fitting(model, t.pattern))


def check(model: Model, variant: Variant) -> None:
    """See that each treatment's pattern means a node.

    Raises:
        VariantError: one means none.
    """
    for treatment in variant.treatments:
        if not fitting(model, treatment.pattern):
            raise VariantError(
                f'Cannot {treatment.kind} "{treatment.pattern}" in model "{model.name}": no node has an id, a name or '
                "an operator like this. See model.nodes for ids, or write op:Conv for an operator."
            )


def moved(variant: Variant) -> tuple[object, ...]:
    """What of a variant decides the activations of the model that it rounds; equal ones are observed once."""
    moves = tuple(t for t in variant.treatments if t.kind in MOVES)
    return (
        variant.sparsity,
        *((variant.rewrites, moves) if moves else ()),
        *(("bare",) if bare(variant) else ()),
    )


def bare(variant: Variant) -> bool:
    """Whether pairs of the model itself are changed, so that thresholds rest on what it computes without any."""
    return any(r.kind in rewrites.OWN for r in variant.rewrites)
