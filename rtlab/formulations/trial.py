"""What tuning found: each formulation that was tried for each layer, and the whole model made of the fastest."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math

#: Upper by lower quartile, beyond which a machine was busy with something else.
_STEADY = 2.0


@dataclasses.dataclass(frozen=True)
class Trial:
    """One formulation of one layer with one number of threads.

    ``median`` and ``quartiles`` are milliseconds *measured* over ``runs`` rounds after warm-up, None where it was not
    timed. ``error`` is the greatest difference from the direct formulation on the layer's own input, relative to the
    greatest value, None where it did not run; ``tolerance`` is what rounding explains. ``ok`` says that it computes the
    same and was timed; ``note`` says why not. ``taken`` is when.
    """

    formulation: str
    threads: int
    median: float | None
    quartiles: tuple[float, float] | None
    runs: int
    error: float | None
    tolerance: float
    ok: bool
    note: str = ""
    taken: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class TunedLayer:
    """The trials of one layer.

    ``default`` is the layer as the model has it with ONNX Runtime's own number of threads. ``like`` is the node whose
    times it shares since operator, shapes and attributes are the same; empty where it was timed itself. ``flops``
    counts a multiplication and an addition as two; ``key`` is the same for layers that share times.
    """

    node: str
    title: str
    key: str
    flops: int
    trials: tuple[Trial, ...]
    default: Trial
    like: str = ""

    @functools.cached_property
    def ranking(self) -> tuple[Trial, ...]:
        """The trials that may win, the fastest first."""
        return tuple(sorted((t for t in self.trials if t.ok), key=lambda t: t.median or 0.0))

    @property
    def winner(self) -> Trial:
        """The fastest by its median, with any number of threads."""
        return self.ranking[0] if self.ranking else self.default

    def best(self, threads: int) -> Trial | None:
        """The fastest with this number of threads; None where none was timed with it."""
        return next((t for t in self.ranking if t.threads == threads), None)

    def direct(self, threads: int) -> Trial | None:
        """The layer as the model has it with this number of threads."""
        return next(
            (t for t in self.trials if t.formulation == self.default.formulation and t.threads == threads),
            None,
        )

    @property
    def gain(self) -> float | None:
        """Time of the default by that of the winner: 1.2 is won by 20 %."""
        return _ratio(self.default, self.winner)

    @property
    def margin(self) -> float | None:
        """Time of the best *other* formulation by that of the winner; None where there is none."""
        first = self.winner
        second = next((t for t in self.ranking if t.formulation != first.formulation), None)
        return _ratio(second, first) if second else None

    @property
    def is_clear(self) -> bool:
        """Whether the winner is faster than the default by more than noise."""
        return is_clearly_faster(self.winner, self.default)


def _ratio(slow: Trial, fast: Trial) -> float | None:
    return slow.median / fast.median if slow.median and fast.median else None


def notch(median: float, quartiles: tuple[float, float], runs: int) -> tuple[float, float]:
    """Where the median of further runs would lie: two such ranges apart are two medians apart, by more than noise.

    McGill, Tukey and Larsen, *Variations of Box Plots*, The American Statistician 32 (1978): 1.57 times the distance of
    the quartiles by the root of the number of runs, on both sides.
    """
    half = 1.57 * (quartiles[1] - quartiles[0]) / math.sqrt(max(1, runs))
    return median - half, median + half


def is_clearly_faster(fast: Trial, slow: Trial) -> bool:
    """Whether the first is faster by more than noise."""
    if fast.median is None or slow.median is None or fast.quartiles is None or slow.quartiles is None:
        return False
    return notch(fast.median, fast.quartiles, fast.runs)[1] < notch(slow.median, slow.quartiles, slow.runs)[0]


@dataclasses.dataclass(frozen=True)
class ModelTrial:
    """The whole model with one number of threads: as it is, and with its ``changed`` layers in other words.

    Milliseconds *measured* in turn in the same ``runs`` rounds; ``error`` is the greatest difference of an output from
    that of the model as it is, relative to its greatest value.
    """

    threads: int
    default: float
    default_quartiles: tuple[float, float]
    tuned: float
    tuned_quartiles: tuple[float, float]
    runs: int
    error: float
    ok: bool
    changed: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TunedModel:
    """A model tuned on one device for one batch.

    ``layers`` come in the order of the graph. ``model_trials`` compares whole models, one for each number of threads,
    empty where it was stopped before. ``complete`` says that nothing was cut short; ``notes`` say what was left out.
    ``seconds`` is how long it took.
    """

    layers: tuple[TunedLayer, ...]
    model_trials: tuple[ModelTrial, ...]
    device: str
    source: str
    taken: datetime.datetime
    seconds: float
    complete: bool
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        improved_count = sum(layer.winner.formulation != layer.default.formulation for layer in self.layers)
        return f"<Tuned {self.device}: {len(self.layers)} layers, another formulation is fastest for {improved_count}>"

    @property
    def disturbed_count(self) -> int:
        """Layers whose times spread so much that other work must have run beside: one quartile twice the other."""
        pairs = ((y.default.quartiles, y.winner.quartiles) for y in self.layers)
        return sum(any(q is not None and q[1] > _STEADY * q[0] for q in pair) for pair in pairs)

    @property
    def default(self) -> ModelTrial | None:
        """The comparison with ONNX Runtime's own number of threads, which is the greatest."""
        return max(self.model_trials, key=lambda w: w.threads, default=None)

    @property
    def best(self) -> ModelTrial | None:
        """The comparison in which the tuned model is fastest, of those that compute the same."""
        return min((w for w in self.model_trials if w.ok), key=lambda w: w.tuned, default=None)
