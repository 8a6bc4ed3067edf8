"""What is known of a model's activations, and what each calibrator makes of it."""

from __future__ import annotations

import dataclasses
import functools
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.core.facts import Ranked
from rtlab.core.ranges import Ranges
from rtlab.documents.results import ResultTable
from rtlab.quantize.thresholds import Threshold, thresholds

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Observed activations of a model, and every calibrator's view of them.

    ``wanted`` is how many samples the data has (None when it does not tell); fewer were seen when the work was
    stopped, and ``complete`` says whether all were. ``ranking`` has the best first, and is empty before
    ``study.calibration.rank``.
    """

    ranges: Ranges
    wanted: int | None
    source: str
    ranking: tuple[Ranked, ...] = ()
    complete: bool = True

    def __repr__(self) -> str:
        of = f" of {self.wanted}" if self.wanted is not None and self.samples < self.wanted else ""
        best = f", best {self.ranking[0].calibrator}" if self.ranking else ""
        return f"<Calibration of {len(self.ranges.values)} values on {self.samples}{of} samples{best}>"

    def _repr_html_(self) -> str:
        """Thresholds by value and calibrator, and the ranking where there is one."""
        frame = self.frame().pivot_table("amax", "value", "calibrator", sort=False)
        ranking = ResultTable(Ranked, self.ranking).html() if self.ranking else ""
        return f"{html.escape(repr(self)[1:-1])}{ranking}{frame.to_html(float_format='{:.4g}'.format)}"

    @property
    def samples(self) -> int:
        """How many samples were seen."""
        return self.ranges.samples

    @functools.cached_property
    def values(self) -> Mapping[str, tuple[Threshold, ...]]:
        """Thresholds by value, one for each calibrator with default parameters; ``auto`` says which it took."""
        ranges = self.ranges.values  # noqa: PD011 - no data frame but a mapping
        return {name: thresholds(one) for name, one in ranges.items()}

    def frame(self) -> pd.DataFrame:
        """One row for each value and calibrator: ``amax``, ``clipped`` (a share), ``sqnr`` (dB, estimated).

        ``chosen`` is the method that ``auto`` took and ``why`` its reason; ``doubt`` says where a threshold clips more
        than is healthy. All three are empty elsewhere.
        """
        import pandas as pd

        table: pd.DataFrame = pd.DataFrame(
            [
                {
                    "value": v,
                    "calibrator": str(t.calibrator),
                    "amax": t.amax,
                    "clipped": t.clipped,
                    "sqnr": t.sqnr,
                    "chosen": str(t.choice.calibrator) if t.choice else "",
                    "why": t.choice.why if t.choice else "",
                    "doubt": t.doubt,
                }
                for v, row_thresholds in self.values.items()
                for t in row_thresholds
            ]
        )
        return table
