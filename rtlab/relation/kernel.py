"""The operations that the name of a generated kernel glues together, such as Mul, Min, Max, Roun and Cast."""

from __future__ import annotations

import dataclasses
import functools
import re

from rtlab.core.engine import Layer

_NAME = re.compile(r"^(?:\d+:)?__myl_([A-Za-z]+?)(?:_|$)")
#: The end of a name that is too long for its kernel; what it leaves out is not known.
_CUT = "Etc"
#: Types that need a scale.
QUANTIZED = frozenset({"int8", "uint8", "fp8", "int4", "fp4"})
#: Operations that only move or retype numbers.
MOVING = frozenset({
    "Cast", "Conc", "Copy", "Expa", "Move", "Pad", "Repl", "Res", "Resh", "Reve", "Slic", "Squ", "Tran", "Unsq",
})  # fmt: skip
#: Operations that multiply matrices, convolutions among them.
PRODUCTS = frozenset({"Corr", "Deco", "Fc", "Gemm"})
# A quantization multiplies by the inverse of a scale, clamps, rounds and narrows. The first of these may stand in the
# kernel before, and FP8 needs no rounding. A dequantization widens and multiplies.
_QUANTIZE = re.compile(r"(?:Mul|Div)?(?:Min|Max){0,2}Roun(?:Min|Max){0,2}Cast")
_NARROW = re.compile(r"(?:Mul|Div)(?:Min|Max){0,2}Cast")
_DEQUANTIZE = re.compile(r"Cast(?:Sub)?(?:Mul|Div)")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What the name of a generated kernel says of its work.

    ``operations`` are all that it tells, in order, and ``rest`` those that neither quantize nor dequantize nor move
    numbers. ``is_complete`` is False where the name is cut, so that more may follow.
    """

    operations: tuple[str, ...]
    rest: tuple[str, ...]
    quantizes: bool
    dequantizes: bool
    is_complete: bool


def operations(layer: Layer) -> tuple[str, ...]:
    """The operations in the name of a generated kernel, in order; none of other layers."""
    return tuple(o for o in (_parse_operations(layer.tactic) or _parse_operations(layer.name)) if o != _CUT)


def kernel(layer: Layer) -> Kernel | None:
    """What the name of a layer's kernel says; None where it tells no operations."""
    reads = bool(QUANTIZED & {t.dtype for t in layer.inputs})
    writes = bool(QUANTIZED & {t.dtype for t in layer.outputs})
    ops = _parse_operations(layer.tactic) or _parse_operations(layer.name)
    return _parse_kernel(ops, reads, writes) if ops else None


@functools.lru_cache(4096)
def _parse_operations(name: str) -> tuple[str, ...]:
    match = _NAME.match(name)
    return tuple(re.findall("[A-Z][a-z]*", match[1])) if match else ()


@functools.lru_cache(4096)
def _parse_kernel(ops: tuple[str, ...], reads: bool, writes: bool) -> Kernel:  # noqa: FBT001 - keys of the cache
    op_names = tuple(o for o in ops if o != _CUT)
    rest, rounds = _QUANTIZE.subn("", "".join(op_names))
    narrows = 0
    if writes and not rounds:
        rest, narrows = _NARROW.subn("", rest)
    widens = 0
    if reads or rounds or narrows:
        rest, widens = _DEQUANTIZE.subn("", rest)
    remaining = tuple(o for o in re.findall("[A-Z][a-z]*", rest) if o not in MOVING)
    return Kernel(op_names, remaining, bool(rounds or narrows), bool(widens), _CUT not in ops)
