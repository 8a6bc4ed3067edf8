"""The axes of a figure: where a value lies, which values are told beside it, and how they are written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: Pixels between ticks where a figure does not say how many there are.
_ACROSS, _UP = 80, 36
#: What is left free at the ends of an axis that shows points.
_PAD = 0.05
_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis over pixels ``start`` to ``end``, of values ``low`` to ``high`` (of their logarithms, if ``log``)."""

    given: Mapping[str, Any]
    low: float
    high: float
    start: float
    end: float
    log: bool = False
    names: tuple[str, ...] = ()

    def at(self, value: Any) -> float | None:
        """The pixel of a value; None where it has none, as zero on a logarithmic axis."""
        if value is None:
            return None
        if self.names:
            if isinstance(value, (int, float)):
                place = float(value)
            elif str(value) in self.names:
                place = float(self.names.index(str(value)))
            else:
                return None
        else:
            place = float(value)
            if not math.isfinite(place):
                return None
            if self.log:
                if place <= 0:
                    return None
                place = math.log10(place)
        span = self.high - self.low or 1.0
        return self.start + (place - self.low) / span * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Pixels and texts of what stands beside the axis."""
        if self.given.get("visible") is False or self.given.get("showticklabels") is False:
            return []
        found = [(at, text) for value, text in self._told() if (at := self.at(value)) is not None]
        least, most = sorted((self.start, self.end))
        return [(at, text) for at, text in found if least - 0.5 <= at <= most + 0.5]

    def _told(self) -> Iterable[tuple[Any, str]]:
        values = self.given.get("tickvals")
        if values is not None:
            texts = self.given.get("ticktext") or [_written(v) for v in values]
            return list(zip(values, map(str, texts), strict=False))
        if self.names:
            return [(name, name) for name in self.names]
        least, most = sorted((self.low, self.high))
        if self.log:
            decades = range(math.ceil(least - 1e-9), math.floor(most + 1e-9) + 1)
            apart = max(1, math.ceil(len(decades) / 8))
            return [(10.0**d, _written(10.0**d)) for d in decades if d % apart == 0]
        step = self.given.get("dtick") or _step(most - least, self._wanted())
        first = math.ceil(least / step - 1e-9)
        return [
            (k * step, _written(k * step))
            for k in range(first, first + 200)
            if k * step <= most + 1e-9 * step
        ]

    def _wanted(self) -> int:
        room = abs(self.end - self.start)
        apart = _ACROSS if self.end > self.start else _UP
        return max(2, min(int(self.given.get("nticks") or 99), int(room / apart)))


def axis_of(
    given: Mapping[str, Any], values: Sequence[Any], bars: Sequence[float], start: float, end: float
) -> Axis:
    """An axis of what is drawn over it.

    Args:
        given: What the layout says of it, in Plotly's words.
        values: Positions of points along it, or names.
        bars: Where bars begin and end along it; these end at its edge, and zero is in view.
        start: The first pixel.
        end: The last; below ``start`` where values rise upward.
    """
    named = any(isinstance(v, str) for v in values) or given.get("type") == "category"
    if named:
        seen = dict.fromkeys(str(v) for v in values if v is not None)
        order = [str(n) for n in given.get("categoryarray") or () if str(n) in seen]
        names = tuple(dict.fromkeys([*order, *seen]))
        low, high = -0.5, max(0.5, len(names) - 0.5)
        if given.get("autorange") == "reversed":
            low, high = high, low
        return Axis(given, low, high, start, end, names=names)
    log = given.get("type") == "log"
    if given.get("range"):
        low, high = map(float, given["range"])
        return Axis(given, low, high, start, end, log)
    numbers = [float(v) for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
    ends = [float(v) for v in bars if math.isfinite(v) and (v > 0 or not log)]
    if log:
        numbers, ends = [math.log10(v) for v in numbers], [math.log10(v) for v in ends]
    low, high = min([*numbers, *ends], default=0.0), max([*numbers, *ends], default=1.0)
    pad = _PAD * (high - low or abs(high) or 1.0)
    if log:
        return Axis(given, low - pad, high + pad, start, end, log)
    if given.get("rangemode") == "tozero" or (ends and low >= 0):
        low = min(0.0, low)
        return Axis(given, low - (pad if low < 0 else 0.0), high + pad, start, end)
    return Axis(given, low - pad, high + pad, start, end)


def _step(span: float, wanted: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives about as many ticks as wanted."""
    rough = (span or 1.0) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def _written(value: float) -> str:
    """A number beside an axis: short, with a letter for thousands and more."""
    size = abs(value)
    for scale, letter in _SI:
        if size >= scale and (scale > 1e3 or size >= 1e4):
            return f"{value / scale:.6g}{letter}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")
