"""What a variant takes at several batch sizes."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Annotated

from rtlab.analyses.samples.spread import Spread
from rtlab.core.schema import FieldMeta
from rtlab.core.trace import Processor


@dataclasses.dataclass(frozen=True)
class BatchTime:
    """Measured milliseconds of whole inferences of ``batch`` samples."""

    batch: Annotated[int, FieldMeta("Batch")]
    times: Spread

    @property
    def rate(self) -> Annotated[float, FieldMeta("Rate", "samples/s", "measured")]:
        """Samples per second at the median."""
        return self.batch / self.times.median * 1e3 if self.times.median else 0.0

    @property
    def median(self) -> Annotated[float, FieldMeta("Median", "ms", "measured")]:
        """Of all inferences."""
        return self.times.median

    @property
    def lower(self) -> Annotated[float, FieldMeta("Lower quartile", "ms", "measured")]:
        """A quarter took no longer."""
        return self.times.lower

    @property
    def upper(self) -> Annotated[float, FieldMeta("Upper quartile", "ms", "measured")]:
        """Three quarters took no longer."""
        return self.times.upper


_ENOUGH = FieldMeta("Enough", origin="measured", note="The smallest with nine tenths of the highest rate.")


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
    def highest(self) -> Annotated[str, FieldMeta("Highest rate", origin="measured")]:
        """That of ``best`` in words."""
        return f"{self.best.rate:.4g}/s at batch {self.best.batch}"

    @property
    def enough(self) -> Annotated[str, _ENOUGH]:
        """The batch of ``knee`` in words."""
        return f"batch {self.knee.batch}"

    @property
    def best(self) -> BatchTime:
        """The batch of most samples per second."""
        return max(self.rows, key=lambda r: r.rate)

    @property
    def knee(self) -> BatchTime:
        """The smallest batch that reaches nine tenths of the highest rate: beyond it only the latency grows."""
        return next(r for r in self.rows if r.rate >= 0.9 * self.best.rate)
