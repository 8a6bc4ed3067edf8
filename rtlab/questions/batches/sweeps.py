"""What a variant takes at several batch sizes."""

from __future__ import annotations

import dataclasses
import datetime

from rtlab.core.trace import Processor
from rtlab.questions.samples.spread import Spread


@dataclasses.dataclass(frozen=True)
class BatchTime:
    """Measured milliseconds of whole inferences of ``batch`` samples."""

    batch: int
    times: Spread

    @property
    def rate(self) -> float:
        """Samples per second at the median."""
        return self.batch / self.times.median * 1e3 if self.times.median else 0.0


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Times of one variant by batch size, in rising order; ``note`` says why it ended before the last."""

    variant: str
    source: str
    device: str
    processor: Processor
    taken: datetime.datetime
    rows: tuple[BatchTime, ...]
    note: str = ""

    def __repr__(self) -> str:
        return f"<Sweep {self.variant}: batch {', '.join(str(r.batch) for r in self.rows)}, measured>"

    @property
    def best(self) -> BatchTime:
        """The batch of most samples per second."""
        return max(self.rows, key=lambda r: r.rate)

    @property
    def knee(self) -> BatchTime:
        """The smallest batch that reaches nine tenths of the highest rate: beyond it only the latency grows."""
        return next(r for r in self.rows if r.rate >= 0.9 * self.best.rate)
