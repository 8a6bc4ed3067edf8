"""Going over large weights in pieces that stay in the processor's cache while several steps are taken on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def to_fp16(
    values: NDArray[np.float32], out: NDArray[np.float16], scratch: NDArray[np.uint32]
) -> NDArray[np.intp]:
    """Write numbers of one dimension as FP16, to nearest with ties to even: what NumPy gives, in half of its time.

    Half of the last bit that stays, less one where that bit is even, is added to the bits, and the rest is cut off; the
    exponent is counted from another number. That is right for what is a normal number of FP16; what is not, NumPy
    converts.

    Args:
        values: The numbers.
        out: Where they are written.
        scratch: Two rows for what is computed, as long as the numbers or longer; fresh memory takes longer than the
            sums.

    Returns:
        Where those are that are no normal numbers of FP16: zero, smaller, larger, and none.
    """
    bits, (magnitude, work) = values.view(np.uint32), scratch[:, : values.size]
    out_bits = out.view(np.uint16)
    np.bitwise_and(bits, np.uint32(0x7FFFFFFF), out=magnitude)
    np.right_shift(magnitude, np.uint32(13), out=work)
    work &= np.uint32(1)
    work += magnitude
    work += _REBASED
    work >>= np.uint32(13)
    out_bits[...] = work
    np.right_shift(bits, np.uint32(16), out=work)
    work &= np.uint32(0x8000)
    out_bits |= work.astype(np.uint16)
    magnitude -= _LEAST
    (other,) = np.nonzero(magnitude >= _SPAN)
    if other.size:
        out[other] = values[other]
    return other


#: Bits in FP32 of 2^-14, the smallest normal number of FP16, and how far those of 65,520, which is none, lie beyond.
_LEAST, _SPAN = np.uint32(0x38800000), np.uint32(0x477FF000 - 0x38800000)
#: What rounds at bit 13, with the exponent's 127 taken to the 15 of FP16; modulo 2^32.
_REBASED = np.uint32((0xFFF - (112 << 23)) % 2**32)
