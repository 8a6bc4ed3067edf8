"""Cross-layer equalization: channels of neighbouring weights get one range, and the model computes the same.

Nagel, van Baalen, Blankevoort and Welling, Data-Free Quantization Through Weight Equalization and Bias Correction
(ICCV 2019): with r1 and r2 the largest weights that write and that read a channel, ``s = sqrt(r1 r2) / r2`` divides the
former and multiplies the latter, so that both become ``sqrt(r1 r2)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.phrases import many
from rtlab.quantize import passes
from rtlab.quantize.links import ChannelLink, Constants, links, move, read, written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

#: Chains are gone over until no channel changes by more than this share, and no more often than so many times.
_STILL, _ROUNDS = 1e-3, 20


def plan(model: Model, nodes: Collection[str] | None = None) -> tuple[ChannelLink, ...]:
    """The links whose first node is among the given ones; all by default."""
    return tuple(link for link in links(model) if nodes is None or link.first in nodes)


@dataclasses.dataclass(frozen=True)
class Equalize:
    """One range for each channel where it is written and where it is read."""

    links: tuple[ChannelLink, ...]
    notes: tuple[str, ...] = ()
    name = "equalization"
    needs = ()
    promises = (passes.INTERFACE, passes.NODES, passes.VALUES, passes.ORDER, passes.TYPES)
    changes = "the same but for rounding; channels between have another scale"

    def __call__(self, edit: Edit) -> None:
        """Do it."""
        constants = Constants(edit.model)
        for _ in range(_ROUNDS):
            most = 0.0
            for link in self.links:
                scale = factors(constants, link)
                most = max(most, float(np.abs(np.log(scale)).max(initial=0)))
                if (scale != 1).any():
                    move(constants, link, scale)
            if most < _STILL:
                break
        constants.write(edit)


def factors(constants: Constants, link: ChannelLink) -> NDArray[np.float64]:
    """``sqrt(r1 / r2)`` for each channel; 1 where a channel is not used, or nothing is written.

    A channel of small weights and a large bias would get a bias that takes the whole range of the value. So none gets a
    larger offset than the largest offset or weight that there was; the paper moves such biases into the next layer.
    """
    (before, start), after = written(constants, link), read(constants, link)
    used = (before > 0) & (after > 0) & np.isfinite(before) & np.isfinite(after)
    scale = np.sqrt(np.divide(before, after, out=np.ones_like(before), where=used))
    most = max(float(np.abs(start).max(initial=0)), float(before.max(initial=0)))
    if most > 0:
        scale = np.maximum(scale, np.minimum(1, np.abs(start) / most))
    return np.where(used, scale, 1.0)


def notes(found: Iterable[ChannelLink]) -> tuple[str, ...]:
    """What was done, in words."""
    count = len(tuple(found))
    if not count:
        return (
            "nothing to equalize: no two products are joined by what keeps multiples (Relu, no Gelu or Clip)",
        )
    return (f"{many(count, 'product')} equalized with what reads {'it' if count == 1 else 'them'}",)
