"""How a value is quantized."""

from __future__ import annotations

import dataclasses

import numpy as np

from rtlab.core.variant import Calibrator


@dataclasses.dataclass(frozen=True)
class CalibratorChoice:
    """The method that ``auto`` took for one value, and why, in words without it."""

    calibrator: Calibrator
    why: str


@dataclasses.dataclass(frozen=True)
class Scale:
    """How one value is quantized: ``q = saturate(round(x / scale))``.

    ``amax`` is ``largest`` scales, the largest quantized number: 127 for INT8, 448 for FP8 E4M3. ``choice`` is what
    ``auto`` took, None where the calibrator was another. ``doubt`` says in words what is wrong where more is clipped
    than is healthy, empty otherwise.
    """

    amax: float
    note: str = ""
    largest: float = 127.0
    choice: CalibratorChoice | None = None
    doubt: str = ""

    @property
    def scale(self) -> float:
        """``amax / largest`` rounded to float32, as the graph holds it; never zero."""
        smallest = float(np.finfo(np.float32).tiny)
        return max(float(np.float32(self.amax) / np.float32(self.largest)), smallest)
