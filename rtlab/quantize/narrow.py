"""The types of 16 bits, and the constants of a model as they hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.variant import Precision
from rtlab.quantize.blocks import PIECE

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What masks become, as a share of the largest number: two of them and a score still have a sum.
_MASK_SHARE = 0.25
#: All bits of a number but its sign.
_MAGNITUDE = np.uint16(0x7FFF)


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
        self._cache: dict[tuple[int, Precision], _NarrowedConstant] = {}

    def overflows(self, tensor: ir.TensorProtocol, half: Precision) -> bool:
        """Whether a finite number of it is beyond the type."""
        return self._get_converted(tensor, half).overflows

    def count_underflows(self, tensor: ir.TensorProtocol, half: Precision) -> int:
        """How many numbers become zero without being it."""
        return self._get_converted(tensor, half).underflow_count

    def to_half(self, tensor: ir.TensorProtocol, half: Precision, *, as_mask: bool = False) -> NDArray[Any]:
        """Its numbers in 16 bits; a finite one stays finite, and one that hides leaves room for a sum."""
        if not as_mask:
            return self._get_converted(tensor, half).half_values
        values, limit = np.asarray(tensor.numpy()), half.stored.largest * _MASK_SHARE
        return narrow_values(np.where(np.isfinite(values), values.clip(-limit, limit), values), half)

    def _get_converted(self, tensor: ir.TensorProtocol, half: Precision) -> _NarrowedConstant:
        key = (id(tensor), half)
        if key not in self._cache:
            self._cache[key] = self._convert(tensor, half)
        return self._cache[key]

    def _convert(self, tensor: ir.TensorProtocol, half: Precision) -> _NarrowedConstant:
        values = np.asarray(tensor.numpy(), order="C")
        half_values = np.empty(values.shape, half.stored.dtype)
        source, target = values.reshape(-1), half_values.reshape(-1)
        underflow_count, infinite = 0, False
        with np.errstate(over="ignore"):
            for start in range(0, source.size, PIECE):
                self._check()
                piece_underflows, has_infinity = _convert_piece(
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


def _convert_piece(source: NDArray[Any], target: NDArray[Any]) -> tuple[int, bool]:
    """Write numbers in 16 bits; how many become zero without being it, and whether one is infinite or none."""
    target[:] = source
    # Magnitudes are in the order of their bits, which are looked through in a tenth of the time.
    bits = target.view(np.uint16) & _MAGNITUDE
    there = int(np.count_nonzero(bits))
    underflow_count = int(np.count_nonzero(source)) - there if there < source.size else 0
    return underflow_count, int(bits.max()) >= int(np.array(np.inf, target.dtype).view(np.uint16))


def get_onnx_type(precision: Precision) -> ir.DataType:
    """ONNX's type of a precision's numbers."""
    return ir.DataType.from_numpy(np.dtype(precision.stored.dtype))


def get_type_text(precision: Precision) -> str:
    """The same as operators' schemas write it."""
    return f"tensor({np.dtype(precision.stored.dtype).name})"


def narrow_values(values: NDArray[Any], half: Precision) -> NDArray[Any]:
    """Numbers in 16 bits, to nearest; a finite one beyond the type becomes its largest number of that sign."""
    with np.errstate(over="ignore"):
        half_values = values.astype(half.stored.dtype)
        limit = np.where(values < 0, -half.stored.largest, half.stored.largest).astype(half.stored.dtype)
    return np.where(
        np.isinf(half_values.astype(np.float32)) & np.isfinite(values), limit, half_values
    ).astype(half.stored.dtype)


def is_out_of_range(value: float, half: Precision) -> bool:
    """Whether a finite number is beyond the type."""
    with np.errstate(over="ignore"):
        return bool(
            np.isfinite(value) and np.isinf(np.float64(value).astype(half.stored.dtype).astype(np.float32))
        )


def _overflows(values: NDArray[Any], half: Precision) -> bool:
    finite = np.abs(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        return bool(finite.size) and bool(np.isinf(finite.max().astype(half.stored.dtype)))


def _count_underflows(values: NDArray[Any], half_values: NDArray[Any]) -> int:
    return int(np.count_nonzero(values)) - int(np.count_nonzero(half_values))
