"""Sizes to begin with for what a model leaves open: of the usual ones the first that its operators take."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Protocol

from rtlab.core import partial_shapes
from rtlab.core.partial_shapes import Named
from rtlab.core.sizes import Shaped, Sizes

#: Heights and widths of pictures, and lengths of anything else, such as words, frames and samples of sound.
_PICTURES = (
    (224, 224),
    (320, 320),
    (48, 320),
    (32, 320),
    (640, 640),
    (256, 256),
    (512, 512),
    (64, 64),
    (32, 32),
    (28, 28),
)
_LENGTHS = (128, 512, 16000, 1024, 64, 256, 32, 4096)
#: Seconds after which no further sizes are tried, of which a large model may take one.
_SECONDS = 1.5


class Sizable(Shaped, Protocol):
    """What of a model is read to propose sizes."""

    @property
    def shapes(self) -> Named:
        """Those that were named."""

    @property
    def proposed(self) -> Mapping[str, tuple[int, ...]]:
        """What ``propose_shapes`` found."""


def find_missing_shapes(model: Sizable) -> Mapping[str, tuple[int, ...]]:
    """What is proposed for the inputs that lack a size."""
    declared = {n: model.values[n].shape or () for n in model.inputs}
    return {
        n: s
        for n, s in model.proposed.items()
        if partial_shapes.list_unsized_axes(n, declared[n], model.shapes)
    }


def propose_shapes(model: Sizable) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the inputs, with something to try where a dimension is open and has no named size.

    They are told from the graph alone, by the shapes of what its nodes write; nothing is run. Where no usual size fits,
    and where there is no time to try more, they are those that fit best. An input of no known rank is left out.
    """
    declared = {n: model.values[n].shape for n in model.inputs}
    candidates: list[dict[str, tuple[int, ...]]] = []
    for picture, length in itertools.product(_PICTURES, _LENGTHS):
        shapes = partial_shapes.suggest_shapes(declared, model.shapes, picture=picture, length=length)
        if shapes not in candidates:
            candidates.append(shapes)
    best_shapes, *others = candidates
    end = time.monotonic() + _SECONDS
    fewest = Sizes(model, best_shapes).misfits if others else 0
    for shapes in others:
        if not fewest or time.monotonic() > end:
            break
        misfits = Sizes(model, shapes).misfits
        if misfits < fewest:
            best_shapes, fewest = shapes, misfits
    return best_shapes
