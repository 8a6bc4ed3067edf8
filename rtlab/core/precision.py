"""The precisions of a variant, one entry each, and the arithmetic of rounding to them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import ml_dtypes
import numpy as np

from rtlab.errors import VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A name that is meant as an arithmetic.
_PRECISION = re.compile(
    r"(nv|mx)?(u?int|fp|bf|tf|b?float)[-_ ]?\d+([-_ ]?e\dm\d)?|half|e\dm\d", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, eq=False)
class NumberFormat:
    """How the numbers of a precision are stored.

    Attributes:
        dtype: NumPy's type of a stored number; its width and its grid follow.
        scaled: What is stored as multiples of a scale: activations and weights, both in blocks whose scales follow from
            the numbers of each run, weights alone, or nothing.
        opset: The first ONNX opset that has the type with the scales that rtlab writes.
        min_sm: The first compute capability with this arithmetic, such as 89; 0 where all have it.
    """

    dtype: Any
    scaled: Literal["activations", "blocks", "weights", ""] = ""
    opset: int = 0
    min_sm: int = 0

    @functools.cached_property
    def bits(self) -> int:
        """Bits of a stored number."""
        four_bit_types = (ml_dtypes.int4, ml_dtypes.float4_e2m1fn)
        return 4 if self.dtype in four_bit_types else 8 * np.dtype(self.dtype).itemsize

    @property
    def is_small_float(self) -> bool:
        """Whether a stored number is a float of 8 bits."""
        return self.bits == 8 and self.dtype not in _INTEGERS

    @functools.cached_property
    def magnitudes(self) -> NDArray[np.float64]:
        """The magnitudes of a type of 8 bits or fewer, in scales and ascending from 0.

        The one negative number of an integer type without a positive twin is left out: scales are symmetric.
        """
        codes = np.arange(1 << self.bits, dtype=np.uint8).view(self.dtype).astype(np.float64)
        return np.unique(np.abs(codes[np.isfinite(codes) & np.isin(-codes, codes)]))

    @functools.cached_property
    def largest(self) -> float:
        """The largest magnitude: 127 for INT8, 448 for FP8 E4M3, 65,504 for FP16."""
        if self.scaled:
            return float(self.magnitudes[-1])
        return float(ml_dtypes.finfo(self.dtype).max)  # type: ignore[no-untyped-call]

    @functools.cached_property
    def largest_text(self) -> str:
        """The largest magnitude as people write it."""
        return f"{self.largest:,.0f}" if self.largest < 1e6 else f"{self.largest:.3g}".replace("e+", "e")

    def quantize(self, steps: NDArray[np.floating]) -> NDArray[Any]:
        """Multiples of a scale in ``dtype``, to nearest with ties to even; magnitudes beyond the largest saturate."""
        saturated = np.clip(steps, -self.largest, self.largest)
        numbers: NDArray[Any] = np.rint(saturated) if self.dtype in _INTEGERS else saturated
        return numbers.astype(self.dtype)

    def round(self, steps: NDArray[Any]) -> NDArray[Any]:
        """What ``quantize`` stores, in the type of the given numbers."""
        return self.quantize(steps).astype(steps.dtype)


_INTEGERS = (np.int8, ml_dtypes.int4)


class Precision(str, enum.Enum):
    """The arithmetic a variant asks for. A member equals its lower-case name.

    ``int4`` is a type of weights only: the product is computed in the activations' type. ``fp8`` is E4M3 and ``fp4``
    NVFP4: E2M1 numbers in blocks of 16 with scales in E4M3, weights and activations. INT8 has one scale per channel
    from opset 13 on.
    """

    _value_: str
    #: How its numbers are stored.
    stored: NumberFormat

    FP32 = "fp32", NumberFormat(np.float32)
    TF32 = "tf32", NumberFormat(np.float32, min_sm=80)
    FP16 = "fp16", NumberFormat(np.float16)
    BF16 = "bf16", NumberFormat(ml_dtypes.bfloat16, min_sm=80)
    INT8 = "int8", NumberFormat(np.int8, "activations", opset=13)
    FP8 = "fp8", NumberFormat(ml_dtypes.float8_e4m3fn, "activations", opset=19, min_sm=89)
    INT4 = "int4", NumberFormat(ml_dtypes.int4, "weights", opset=21)
    FP4 = "fp4", NumberFormat(ml_dtypes.float4_e2m1fn, "blocks", opset=23, min_sm=120)

    def __new__(cls, name: str, stored: NumberFormat = NumberFormat(np.float32)) -> Precision:  # noqa: PYI034 - has no subclass
        """A member of this name."""
        member = str.__new__(cls, name)
        member._value_, member.stored = name, stored
        return member

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def called(cls, name: str) -> Precision:
        """The precision that a variant of this name has where nobody gave one: fp32 where the name is of no precision.

        Raises:
            VariantError: it is written like a precision, such as ``int3``, and is none.
        """
        if name in {p.value for p in cls}:
            return cls(name)
        return parse_member(cls, name, "precision") if _PRECISION.fullmatch(name) else cls.FP32

    @property
    def needs_calibrator(self) -> bool:
        """Whether activations need scales."""
        return self.stored.scaled in {"activations", "blocks"}

    @property
    def is_half(self) -> bool:
        """Whether values are of 16 bits."""
        return self.stored.bits == 16


E = TypeVar("E", bound=enum.Enum)


def parse_member(kind: type[E], choice: str | E, noun: str) -> E:
    """The member of an enumeration that a text names.

    Raises:
        VariantError: there is none; ``noun`` says what was to be chosen.
    """
    try:
        return kind(choice)
    except ValueError:
        names = ", ".join(f'"{m.value}"' for m in kind)
        raise VariantError(
            f'Cannot choose {noun} "{choice}": no such {noun} exists. Choose one of {names}.'
        ) from None


#: Multiples of the scale of a whole tensor that NVFP4 reaches, the largest number times the largest scale of a block;
#: and the smallest scale of a block, E4M3's smallest number above zero.
NVFP4_RANGE, SMALLEST_BLOCK_SCALE = 6.0 * 448.0, 2.0**-9


def get_activation_format(precision: Precision) -> NumberFormat:
    """The format whose range a threshold of activations is chosen for; of FP4 that of the blocks' scales, E4M3.

    Raises:
        VariantError: activations have no scale in this precision.
    """
    if not precision.needs_calibrator:
        raise VariantError(
            f'Cannot scale activations for "{precision}": only "int8", "fp8" and "fp4" quantize them. Choose one of '
            "these."
        )
    return Precision.FP8.stored if precision is Precision.FP4 else precision.stored


def quantize_linear(
    numbers: NDArray[np.floating], scale: Any, zero_point: Any, bounds: tuple[int, int]
) -> NDArray[np.floating]:
    """ONNX's QuantizeLinear to whole numbers: ``saturate(round(x / scale) + zero_point)``, ties to even."""
    integers: NDArray[np.floating] = np.clip(np.rint(numbers / scale) + zero_point, *bounds)
    return integers


def compute_amax(numbers: NDArray[Any], axis: int | tuple[int, ...] | None = None) -> NDArray[Any]:
    """The largest magnitude, of all numbers or along axes; 0 where there are none."""
    largest: NDArray[Any] = np.abs(numbers).max(axis=axis, initial=0)
    return largest


def compute_relative_error(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference of two arrays of one shape, relative to the largest expected magnitude unless 0."""
    difference = actual.astype(np.float64) - expected.astype(np.float64)
    return float(compute_amax(difference)) / (float(compute_amax(expected)) or 1.0)


def compute_sqnr(signal: float, noise: float) -> float:
    """``10 log10(signal / noise)`` in decibels, of sums of squares.

    Infinite without noise; negative infinite where there is no signal, or the noise is no finite number.
    """
    if not math.isfinite(noise):
        return -math.inf
    return math.inf if noise == 0 else -math.inf if signal == 0 else 10 * math.log10(signal / noise)
