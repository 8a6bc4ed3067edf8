"""The types of 16 bits, and the constants of a model as they hold them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx

from rtlab.core.variant import Precision
from rtlab.quantize.blocks import PIECE, to_fp16

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import NDArray

#: What masks become, as a share of the largest number: two of them and a score still have a sum.
_ROOM = 0.25
#: All bits of a number but its sign.
_MAGNITUDE = np.uint16(0x7FFF)


@dataclasses.dataclass(frozen=True)
class HalfType:
    """A floating-point type of 16 bits, as ONNX and NumPy know it, and its largest number as people write it."""

    number: int
    numpy: Any
    text: str
    title: str
    largest: str
    most: float


HALVES: Mapping[Precision, HalfType] = {
    Precision.FP16: HalfType(
        int(onnx.TensorProto.FLOAT16), np.float16, "tensor(float16)", "FP16", "65,504", 65504.0
    ),
    Precision.BF16: HalfType(
        int(onnx.TensorProto.BFLOAT16),
        ml_dtypes.bfloat16,
        "tensor(bfloat16)",
        "BF16",
        "3.39e38",
        (2 - 2**-7) * 2.0**127,
    ),
}


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What there is to know of one constant in one type; ``tensor`` keeps the key alive."""

    tensor: ir.TensorProtocol
    narrowed: NDArray[Any]
    overflows: bool
    lost: int


class Narrowing:
    """The constants of a model in types of 16 bits.

    Each is read and converted once, however many passes ask: weights are hundreds of megabytes. ``check`` is called
    between pieces of them, and may raise.
    """

    def __init__(
        self, known: Mapping[str, ir.TensorProtocol], check: Callable[[], object] | None = None
    ) -> None:
        self.known = known
        self._check = check or (lambda: None)
        self._seen: dict[tuple[int, HalfType], _Seen] = {}

    def overflows(self, tensor: ir.TensorProtocol, half: HalfType) -> bool:
        """Whether a finite number of it is beyond the type."""
        return self._look(tensor, half).overflows

    def lost(self, tensor: ir.TensorProtocol, half: HalfType) -> int:
        """How many numbers become zero without being it."""
        return self._look(tensor, half).lost

    def half(self, tensor: ir.TensorProtocol, half: HalfType, *, hides: bool = False) -> NDArray[Any]:
        """Its numbers in 16 bits; a finite one stays finite, and one that hides leaves room for a sum."""
        if not hides:
            return self._look(tensor, half).narrowed
        values, most = np.asarray(tensor.numpy()), half.most * _ROOM
        return narrowed(np.where(np.isfinite(values), values.clip(-most, most), values), half)

    def _look(self, tensor: ir.TensorProtocol, half: HalfType) -> _Seen:
        key = (id(tensor), half)
        if key not in self._seen:
            self._seen[key] = self._convert(tensor, half)
        return self._seen[key]

    def _convert(self, tensor: ir.TensorProtocol, half: HalfType) -> _Seen:
        values = np.asarray(tensor.numpy(), order="C")
        found = np.empty(values.shape, half.numpy)
        source, target = values.reshape(-1), found.reshape(-1)
        pieces: Callable[[NDArray[Any], NDArray[Any]], tuple[int, bool]] = _others
        if half.numpy is np.float16 and values.dtype == np.float32:
            pieces = functools.partial(_halves, room=np.empty((2, min(PIECE, source.size)), np.uint32))
        lost, infinite = 0, False
        with np.errstate(over="ignore"):
            for start in range(0, source.size, PIECE):
                self._check()
                gone, beyond_it = pieces(source[start : start + PIECE], target[start : start + PIECE])
                lost, infinite = lost + gone, infinite or beyond_it
        if infinite:
            found = narrowed(values, half)
            return _Seen(tensor, found, overflows=_overflows(values, half), lost=_lost(values, found))
        return _Seen(tensor, found, overflows=False, lost=lost)


def _halves(
    source: NDArray[np.float32], target: NDArray[np.float16], *, room: NDArray[np.uint32]
) -> tuple[int, bool]:
    """Write numbers in FP16; how many become zero without being it, and whether one is infinite or none."""
    other = to_fp16(source, target, room)
    written = target[other]
    return _lost(source[other], written), not np.isfinite(written).all()


def _others(source: NDArray[Any], target: NDArray[Any]) -> tuple[int, bool]:
    """The same in any type of 16 bits."""
    target[:] = source
    # Magnitudes are in the order of their bits, which are looked through in a tenth of the time.
    bits = target.view(np.uint16) & _MAGNITUDE
    there = int(np.count_nonzero(bits))
    lost = int(np.count_nonzero(source)) - there if there < source.size else 0
    return lost, int(bits.max()) >= int(np.array(np.inf, target.dtype).view(np.uint16))


def narrowed(values: NDArray[Any], half: HalfType) -> NDArray[Any]:
    """Numbers in 16 bits, to nearest; a finite one beyond the type becomes its largest number of that sign."""
    with np.errstate(over="ignore"):
        found = values.astype(half.numpy)
        most = np.where(values < 0, -half.most, half.most).astype(half.numpy)
    return np.where(np.isinf(found.astype(np.float32)) & np.isfinite(values), most, found).astype(half.numpy)


def beyond(value: float, half: HalfType) -> bool:
    """Whether a finite number is beyond the type."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(value) and np.isinf(np.float64(value).astype(half.numpy).astype(np.float32)))


def _overflows(values: NDArray[Any], half: HalfType) -> bool:
    finite = np.abs(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        return bool(finite.size) and bool(np.isinf(finite.max().astype(half.numpy)))


def _lost(values: NDArray[Any], found: NDArray[Any]) -> int:
    return int(np.count_nonzero(values)) - int(np.count_nonzero(found))
