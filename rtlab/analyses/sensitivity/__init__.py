"""What causes a variant's error: what each node, or each place that rounds, does to the outputs."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import numpy as np

from rtlab.core.bootstrap import compare_paired
from rtlab.core.metrics import Metric, Tally, apply_link
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.results import ResultTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.task import Task

#: Which question is asked: what a place harms alone, or what it would win back alone.
Asks: TypeAlias = Literal["only", "released"]
#: What is ranked: nodes with all that they round, or each place that rounds.
By: TypeAlias = Literal["node", "quantizer"]
#: Samples below which no ranking is worth its name.
FEW = 8
#: Numbers of samples at which it is decided whether a ranking needs more; there is one look more, at all of them.
LOOKS = (32, 128, 512)
#: Chance that an interval misses. A ranking stops at the look that suits it, so each takes a part (Bonferroni).
_MISS = 0.05 / (len(LOOKS) + 1)
_LOWER, _UPPER = (f"{end} end of the 95 % interval." for end in ("Lower", "Upper"))
_SCORE = "How far the task's score falls with it; where it is released, how far it comes back."
_RELIABILITY = "Spearman of two halves of the samples, Spearman-Brown."
#: Skewness below which a distribution is symmetric as far as rounding can tell.
_SKEWED = 1e-6
#: Halvings of the samples that a reliability is the mean of.
_HALVINGS = 16

ASKS: Mapping[Asks, str] = {
    "only": "only this one quantized: what it harms alone",
    "released": "only this one released: what it would win back alone",
}
BY: Mapping[By, str] = {"node": "nodes, each with all that it rounds", "quantizer": "places that round"}
#: What effects are differences of.
DIVERGENCE = (
    "divergence of the outputs from those of fp32: of class scores Kullback and Leibler's, in nats, of others the "
    "squared error over the energy"
)


@dataclasses.dataclass(frozen=True)
class SensitivityRow:
    """What one node, or one place that rounds, does to the loss.

    ``effect`` is estimated where it follows from gradients, and measured where the model was run. ``verified`` is what
    runs of the model say, None where there was none; ``best_effect`` the best that is known of the two, and ``low`` and
    ``high`` are the ends of its 95 % interval over the samples. ``score_effect`` is the same in the task's score, in
    its unit, positive where the node harms; None where none was counted. ``causes`` say why in words.
    """

    rank: Annotated[int, FieldMeta("Rank")]
    node: Annotated[str, FieldMeta("Node", links="nodes")]
    quantizer: Annotated[str, FieldMeta("Quantizer", omit=True)]
    effect: Annotated[float, FieldMeta("Effect", origin="{self.origin}")]
    low: Annotated[float, FieldMeta("From", origin="{self.origin}", note=_LOWER, infinite=True)]
    high: Annotated[float, FieldMeta("To", origin="{self.origin}", note=_UPPER, infinite=True)]
    verified: Annotated[float | None, FieldMeta("Verified", origin="measured")]
    origin: Literal["estimated", "measured"]
    causes: tuple[str, ...] = ()
    score_effect: Annotated[
        float | None, FieldMeta("Score lost", origin="measured", note=_SCORE, omit=True)
    ] = None

    @property
    def best_effect(self) -> float:
        """The effect, as it was measured where it was."""
        return self.effect if self.verified is None else self.verified

    @property
    def interval(self) -> Annotated[tuple[float, float], FieldMeta()]:
        """Both ends of the 95 % interval of the effect."""
        return self.low, self.high

    @property
    def note(self) -> Annotated[str, FieldMeta()]:
        """Why, in words."""
        return " ".join(self.causes)


@dataclasses.dataclass(frozen=True, eq=False)
class Effects:
    """Effects of places on each sample, from which a ranking follows; more samples are added later.

    Attributes:
        places: What is ranked, by id: nodes or quantizers.
        estimated: Estimates, ``(places, samples)``; NaN where a place has none. Without columns where none was made.
        measured: The same by running the model, as far as a place was.
        probes: Random directions of the outputs that each estimate is the mean of; 0 where none was made.
        losses: The loss of the variant itself on each sample.
        data: The samples.
        work: Seconds that estimates and runs took, and those of the source alone on the same samples.
        scores: The task's amounts on each sample, ``(places + 2, samples)``: of each place as far as it was run, of
            fp32 and of the variant. Without columns where nothing was counted; ``weights`` are those of the samples.
        metric: What counted them; ``task`` is what says which labels the samples have.
        loss: What effects are differences of.
    """

    places: tuple[str, ...]
    estimated: NDArray[np.float64]
    measured: NDArray[np.float64]
    losses: NDArray[np.float64]
    probes: int = 0
    data: CalibrationData | None = None
    work: tuple[float, float, float] = (0.0, 0.0, 0.0)
    scores: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    weights: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    metric: Metric | None = None
    task: Task | None = None
    loss: str = DIVERGENCE

    @property
    def combined_effects(self) -> NDArray[np.float64]:
        """Effects by place and sample: estimates, and what was measured where a place has none."""
        if not self.probes:
            return self.measured
        padded = np.full(self.estimated.shape, np.nan)
        padded[:, : self.measured.shape[1]] = self.measured[:, : self.estimated.shape[1]]
        return np.where(np.isnan(self.estimated), padded, self.estimated)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return max(int(self.estimated.shape[1]), int(self.measured.shape[1]))


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """Which nodes, or which places that round, cause a variant's error.

    Attributes:
        variant: Its name.
        asks: Which question is answered.
        by: What is ranked.
        ranking: One row each, the largest effect first.
        loss: The loss that effects are differences of.
        total: What the variant loses, all of it together, measured.
        samples: How many samples there were.
        probes: Random directions of the outputs that each estimate is the mean of; 0 where all was measured.
        reliability: How far rankings on two halves of the samples agree, Spearman's coefficient, corrected to all of
            them after Spearman and Brown; None for too few samples.
        cost_x_plain: What the ranking took, in plain inferences of the same samples; sessions that are opened once are
            not counted.
        seconds: What all of it took, verification and opening included.
        source: What ran, on what.
        said: What else is to be known.
        effects: What the ranking follows from.
    """

    variant: Annotated[str, FieldMeta()]
    asks: Asks
    by: By
    ranking: tuple[SensitivityRow, ...]
    loss: Annotated[str, FieldMeta("Measure")]
    total: Annotated[float, FieldMeta("The variant's divergence", origin="measured")]
    samples: Annotated[int, FieldMeta("Samples")]
    probes: Annotated[int, FieldMeta("Probes")]
    reliability: Annotated[float | None, FieldMeta("Reliability", origin="measured", note=_RELIABILITY)]
    cost_x_plain: Annotated[float | None, FieldMeta("Cost", "x plain", "measured")]
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")]
    source: Annotated[str, FieldMeta("Source")]
    said: tuple[str, ...] = ()
    effects: Annotated[Effects | None, UNSENT] = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def question(self) -> Annotated[str, FieldMeta("Question")]:
        """What the ranking answers, in words."""
        return ASKS[self.asks]

    @property
    def notes(self) -> Annotated[tuple[str, ...], FieldMeta()]:
        """What cannot be concluded, and what else is to be known."""
        few = f"fewer than {FEW} samples: no ranking can be trusted"
        return (few, *self.said) if self.samples < FEW else self.said

    def __repr__(self) -> str:
        first = f", first {self.ranking[0].node}" if self.ranking else ""
        rows = f"{len(self.ranking)} rows on {self.samples} samples"
        return f"<Sensitivity of {self.variant}, {self.asks}: {rows}{first}>"

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{html.escape(n)}</p>" for n in (self.title, *self.notes))
        return f"{words}{ResultTable(SensitivityRow, self.ranking, placeholder='').html()}"

    @property
    def title(self) -> str:
        """The question, what it rests on, and how far it can be trusted."""
        trust = "not known" if self.reliability is None else f"{self.reliability:.2f}"
        return f"{self.question}; {self.samples} samples, reliability {trust} (measured)"

    def to_text(self, rows: int = 20) -> str:
        """The result in words, with a table of the first rows."""
        cost = "" if self.cost_x_plain is None else f", {self.cost_x_plain:.3g} x plain inference (measured)"
        loss = f"effects: {self.loss}; the variant's: {self.total:.3g} (measured)"
        table = ResultTable(SensitivityRow, self.ranking[:rows], placeholder="").text()
        return "\n\n".join(
            (self.title, table, "\n".join((loss, f"took {self.seconds:.2g} s{cost}", *self.notes)))
        )


def spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's coefficient of two rows of numbers, with mean ranks where some are equal; NaN for fewer than three."""
    if len(one) < 3:
        return float("nan")
    import pandas as pd

    return float(pd.Series(one).rank().corr(pd.Series(other).rank()))


def reliability(effects: NDArray[np.float64]) -> float | None:
    """How far the ranking of rows of ``(places, samples)`` would agree with that on other samples, as many.

    The mean of Spearman's coefficient between random halves of the samples, corrected for the whole by 2 r / (1 + r)
    (Spearman 1910, Brown 1910). None for fewer than four samples or three places.
    """
    places, samples = effects.shape
    if samples < 4 or places < 3:
        return None
    rng, coefficients = np.random.default_rng(0), []
    for _ in range(_HALVINGS):
        order = rng.permutation(samples)
        halves = (effects[:, part].mean(axis=1) for part in (order[: samples // 2], order[samples // 2 :]))
        coefficients.append(spearman(*halves))
    mean = float(np.mean(coefficients))
    if not np.isfinite(mean):
        return None
    return 2 * mean / (1 + mean) if mean > 0 else mean


def compute_interval(samples: NDArray[np.float64]) -> tuple[float, float]:
    """Both ends of an interval of the mean of samples of shape ``(n,)``, which holds at any of the looks; NaN for one.

    Student's, of ``t = sqrt(n) (W + g W²/3 + g² W³/27 + g/(6n))`` with ``W = (mean - truth) / s`` and the skewness g of
    the samples (Hall 1992, "On the removal of skewness by transformation"), since losses have a long tail on one side.
    """
    # Importing it takes a while, and much address space.
    from scipy import special

    count = len(samples)
    if count < 2:
        return np.nan, np.nan
    mean, s = float(samples.mean()), float(samples.std(ddof=1))
    if not s:
        return mean, mean
    skewness = float((((samples - mean) / s) ** 3).mean())
    quantile = float(special.stdtrit(count - 1, 1 - _MISS / 2))
    ends = []
    for t in (quantile, -quantile):
        w = t / count**0.5
        if abs(skewness) > _SKEWED:
            w = 3 / skewness * (np.cbrt(1 + skewness * (w - skewness / (6 * count))) - 1)
        ends.append(mean - s * float(w))
    return ends[0], ends[1]


def _compare_scores(effects: Effects, row: int, asks: Asks) -> tuple[float | None, bool]:
    """How far the score falls by a place, or comes back without it, and whether the samples suffice to say so."""
    if effects.metric is None or not effects.scores.shape[1]:
        return None, False
    pair = effects.scores[[-2, row] if asks == "only" else [row, -1]]
    counted = ~np.isnan(pair).any(axis=0)
    weights, metric = effects.weights[counted], effects.metric
    if not weights.sum():
        return None, False
    first, second = (
        Tally(
            float(apply_link(metric.link, amounts.sum() / weights.sum())),
            amounts,
            weights,
            metric.link,
            higher=metric.higher,
        )
        for amounts in pair[:, counted]
    )
    compared = compare_paired(first, second)
    if compared is None:
        return None, False
    harm = -compared.difference if metric.higher else compared.difference
    return harm, harm > 0 and compared.sure


def rank_effects(
    effects: Effects, by: By, nodes: Mapping[str, str], asks: Asks = "only"
) -> tuple[SensitivityRow, ...]:
    """The rows of a ranking, the largest known effect first; ``nodes`` are those of places by id.

    Where the variant's score fell, places that surely cost score stand before the others, the costliest first.
    """
    rows: list[tuple[float, SensitivityRow]] = []
    has_fallen = _compare_scores(effects, -1, "only")[1]
    for i, place in enumerate(effects.places):
        guess, true = (table[i][~np.isnan(table[i])] for table in (effects.estimated, effects.measured))
        samples = guess if len(guess) else true
        if len(samples):
            mean, verified = float(samples.mean()), float(true.mean()) if len(true) else None
            origin: Literal["estimated", "measured"] = "estimated" if len(guess) else "measured"
            quantizer = place if by == "quantizer" else ""
            low, high = compute_interval(true if len(true) else guess)
            # No noise brings outputs nearer to fp32 than fp32 itself.
            low = max(low, 0.0) if asks == "only" else low
            harm, is_sure = _compare_scores(effects, i, asks) if len(true) else (None, False)
            row = SensitivityRow(
                0, nodes[place], quantizer, mean, low, high, verified, origin, score_effect=harm
            )
            rows.append((harm if has_fallen and is_sure and harm else 0.0, row))
    rows.sort(key=lambda r: (-r[0], -r[1].best_effect))
    return tuple(dataclasses.replace(row, rank=rank) for rank, (_, row) in enumerate(rows, 1))
