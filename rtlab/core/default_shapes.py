"""Sizes to try for open dimensions: the first of the usual ones that the operators accept."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab.core import partial_shapes
from rtlab.core.partial_shapes import Declared, Named
from rtlab.core.sizes import Sizes

if TYPE_CHECKING:
    import onnx_ir as ir

    from rtlab.core.node_instances import Subgraph

#: Heights and widths of pictures.
_SQUARES = (640, 256, 512, 64, 32, 28)
_PICTURES = ((224, 224), (320, 320), (48, 320), (32, 320), *((size, size) for size in _SQUARES))
#: Lengths of anything else, such as words, frames and samples of sound.
_LENGTHS = (128, 512, 16000, 1024, 64, 256, 32, 4096)
#: Seconds after which no further sizes are tried, of which a large model may take one.
_SECONDS = 1.5


def propose_shapes(
    model: ir.Model, scopes: Sequence[Subgraph], declared: Mapping[str, Declared], named: Named
) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the inputs, with something to try where a dimension is open and has no named size.

    They follow from shape inference; nothing is run. Where no usual size fits, and where there is no time to try more,
    they are those that fit best. An input of no known rank is left out. ``declared`` are the shapes of the inputs in
    the graph, ``named`` the sizes that the user gave.
    """
    candidates: list[dict[str, tuple[int, ...]]] = []
    for picture, length in itertools.product(_PICTURES, _LENGTHS):
        shapes = partial_shapes.suggest_shapes(declared, named, picture=picture, length=length)
        if shapes not in candidates:
            candidates.append(shapes)
    best_shapes, *others = candidates
    end = time.monotonic() + _SECONDS
    fewest = Sizes(model, scopes, best_shapes).misfits if others else 0
    for shapes in others:
        if not fewest or time.monotonic() > end:
            break
        misfits = Sizes(model, scopes, shapes).misfits
        if misfits < fewest:
            best_shapes, fewest = shapes, misfits
    return best_shapes
