"""What is known of a model's activations, and what each calibrator makes of it."""

from __future__ import annotations

import dataclasses
import functools
import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab.core.facts import Ranked, format_decibel
from rtlab.core.ranges import Ranges
from rtlab.core.variant import CALIBRATORS
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
        rows = "".join(
            f"<tr><td>{html.escape(v)}</td>{''.join(_format_cell(t, row_thresholds) for t in row_thresholds)}</tr>"
            for v, row_thresholds in self.values.items()
        )
        head = "".join(f"<th>{c}</th>" for c in CALIBRATORS)
        return (
            f"{html.escape(repr(self)[1:-1])}{self._format_ranking()}<table><tr><th>value</th>{head}</tr>{rows}</table>"
            "<small>threshold, and below it the SQNR, ○ estimated from the histogram; the best of a row is bold; "
            "⚠ clips more than is healthy</small>"
        )

    def _format_ranking(self) -> str:
        """The ranking as a table."""
        if not self.ranking:
            return ""
        rows = "".join(
            f"<tr><td>{r.calibrator}</td><td>{f'● {r.score.value:.2f} {r.score.unit}' if r.score else '—'}</td>"
            f"<td>{f'{r.delta:+.2f}'.replace('-', '−') if r.delta is not None else '—'}</td>"
            f"<td>● {format_decibel(r.sqnr)}</td></tr>"
            for r in self.ranking
        )
        one = self.ranking[0]
        task = html.escape(one.score.name) if one.score else "task"
        caption = html.escape(f"measured, {one.source}, {one.samples} samples")
        return (
            f"<table><tr><th>calibrator</th><th>{task}</th><th>to fp32</th><th>output SQNR</th></tr>{rows}</table>"
            f"<small>{caption}</small>"
        )

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


def _format_cell(one: Threshold, row: Sequence[Threshold]) -> str:
    mark = f" {one.choice.calibrator}" if one.choice else " ⚠" if one.doubt else ""
    text = f"{one.amax:.4g}{mark}<br><small>○ {format_decibel(one.sqnr)}</small>"
    best = one.sqnr == max(t.sqnr for t in row)
    tooltip = one.doubt or (one.choice.why if one.choice else "")
    return f'<td title="{html.escape(tooltip)}">{f"<b>{text}</b>" if best else text}</td>'
