"""Going over large weights in pieces that stay in the processor's cache while several steps are taken on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

#: Elements of a piece: with what is computed of them, half a megabyte.
PIECE = 1 << 16


def iter_blocks(shape: Sequence[int], along: int = 0) -> Iterator[tuple[slice, ...]]:
    """Slices along one axis that part an array of this shape into pieces, of one element of the axis at least."""
    if not shape:
        yield ()
        return
    step = max(1, PIECE * shape[along] // max(math.prod(shape), 1))
    for start in range(0, shape[along], step):
        yield (*[slice(None)] * along, slice(start, start + step))
