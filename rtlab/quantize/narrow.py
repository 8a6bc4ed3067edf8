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
_MASK_SHARE = 0.25
#: All bits of a number but its sign.
_MAGNITUDE = np.uint16(0x7FFF)


@dataclasses.dataclass(frozen=True)
class HalfType:
    """A floating-point type of 16 bits, as ONNX and NumPy know it, and its largest number as people write it."""

    number: int
    numpy: Any
    text: str
    title: str
    largest_text: str
    max_value: float


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
class _NarrowedConstant:
    """What there is to know of one constant in one type; ``tensor`` keeps the key alive."""

    tensor: ir.TensorProtocol
    half_values: NDArray[Any]
    overflows: bool
    underflow_count: int


class HalfConstants:
    """The constants of a model in types of 16 bits.

    Each is read and converted once, however many passes ask: weights are hundreds of megabytes. ``check`` is called
    between pieces of them, and may raise.
    """

    def __init__(
        self, tensors: Mapping[str, ir.TensorProtocol], check: Callable[[], object] | None = None
    ) -> None:
        self.tensors = tensors
        self._check = check or (lambda: None)
        self._cache: dict[tuple[int, HalfType], _NarrowedConstant] = {}

    def overflows(self, tensor: ir.TensorProtocol, half: HalfType) -> bool:
        """Whether a finite number of it is beyond the type."""
        return self._get_converted(tensor, half).overflows

    def count_underflows(self, tensor: ir.TensorProtocol, half: HalfType) -> int:
        """How many numbers become zero without being it."""
        return self._get_converted(tensor, half).underflow_count

    def to_half(self, tensor: ir.TensorProtocol, half: HalfType, *, as_mask: bool = False) -> NDArray[Any]:
        """Its numbers in 16 bits; a finite one stays finite, and one that hides leaves room for a sum."""
        if not as_mask:
            return self._get_converted(tensor, half).half_values
        values, limit = np.asarray(tensor.numpy()), half.max_value * _MASK_SHARE
        return narrow_values(np.where(np.isfinite(values), values.clip(-limit, limit), values), half)

    def _get_converted(self, tensor: ir.TensorProtocol, half: HalfType) -> _NarrowedConstant:
        key = (id(tensor), half)
        if key not in self._cache:
            self._cache[key] = self._convert(tensor, half)
        return self._cache[key]

    def _convert(self, tensor: ir.TensorProtocol, half: HalfType) -> _NarrowedConstant:
        values = np.asarray(tensor.numpy(), order="C")
        half_values = np.empty(values.shape, half.numpy)
        source, target = values.reshape(-1), half_values.reshape(-1)
        convert_piece: Callable[[NDArray[Any], NDArray[Any]], tuple[int, bool]] = _convert_generic
        if half.numpy is np.float16 and values.dtype == np.float32:
            convert_piece = functools.partial(
                _convert_fp16, room=np.empty((2, min(PIECE, source.size)), np.uint32)
            )
        underflow_count, infinite = 0, False
        with np.errstate(over="ignore"):
            for start in range(0, source.size, PIECE):
                self._check()
                piece_underflows, has_infinity = convert_piece(
                    source[start : start + PIECE], target[start : start + PIECE]
                )
                underflow_count, infinite = underflow_count + piece_underflows, infinite or has_infinity
        if infinite:
            half_values = narrow_values(values, half)
            return _NarrowedConstant(
                tensor,
                half_values,
                overflows=_overflows(values, half),
                underflow_count=_count_underflows(values, half_values),
            )
        return _NarrowedConstant(tensor, half_values, overflows=False, underflow_count=underflow_count)


def _convert_fp16(
    source: NDArray[np.float32], target: NDArray[np.float16], *, room: NDArray[np.uint32]
) -> tuple[int, bool]:
    """Write numbers in FP16; how many become zero without being it, and whether one is infinite or none."""
    other = to_fp16(source, target, room)
    subnormal = target[other]
    return _count_underflows(source[other], subnormal), not np.isfinite(subnormal).all()


def _convert_generic(source: NDArray[Any], target: NDArray[Any]) -> tuple[int, bool]:
    """The same in any type of 16 bits."""
    target[:] = source
    # Magnitudes are in the order of their bits, which are looked through in a tenth of the time.
    bits = target.view(np.uint16) & _MAGNITUDE
    there = int(np.count_nonzero(bits))
    underflow_count = int(np.count_nonzero(source)) - there if there < source.size else 0
    return underflow_count, int(bits.max()) >= int(np.array(np.inf, target.dtype).view(np.uint16))


def narrow_values(values: NDArray[Any], half: HalfType) -> NDArray[Any]:
    """Numbers in 16 bits, to nearest; a finite one beyond the type becomes its largest number of that sign."""
    with np.errstate(over="ignore"):
        half_values = values.astype(half.numpy)
        limit = np.where(values < 0, -half.max_value, half.max_value).astype(half.numpy)
    return np.where(
        np.isinf(half_values.astype(np.float32)) & np.isfinite(values), limit, half_values
    ).astype(half.numpy)


def is_out_of_range(value: float, half: HalfType) -> bool:
    """Whether a finite number is beyond the type."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(value) and np.isinf(np.float64(value).astype(half.numpy).astype(np.float32)))


def _overflows(values: NDArray[Any], half: HalfType) -> bool:
    finite = np.abs(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        return bool(finite.size) and bool(np.isinf(finite.max().astype(half.numpy)))


def _count_underflows(values: NDArray[Any], half_values: NDArray[Any]) -> int:
    return int(np.count_nonzero(values)) - int(np.count_nonzero(half_values))
