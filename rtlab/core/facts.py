"""Results of one variant by stage, raw."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from rtlab.core.bootstrap import Interval, interval
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.memo import Memoizable
from rtlab.core.message import MessageMatch
from rtlab.core.metrics import Tally
from rtlab.core.model import Model
from rtlab.core.prepared import Prepared
from rtlab.core.ranges import Ranges
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.core.slices import SliceSums
from rtlab.core.stage import Stage, StageStatus
from rtlab.core.task import Predictions, Task
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Calibrator, Precision, Variant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Samples that the task is scored on at most.
SCORED = 2000


@dataclasses.dataclass(frozen=True, eq=False)
class Errors(Memoizable):
    """Sums over the samples compared so far, from which the errors of each value follow.

    ``sums`` has by value a float64 array of shape ``(9,)``: the sums of x², (x - y)², xy and y² of the reference x and
    the variant y over elements that are finite in both, the largest magnitude of x - y, and the numbers of elements
    that are finite or the same in both, finite in one alone, zero in the variant alone, and NaN in the reference.
    ``sample_counts`` are the samples of each value. ``source`` names runner and data; ``synthetic`` is True for random
    samples.

    ``isolated_errors`` has by value the energy and the largest magnitude of its node's error on exact inputs, an array
    of shape ``(2,)``, and ``saturated`` the number of its elements beyond the threshold, on the same samples; a value
    without is computed as in fp32. Both are None where the variant was run by its own engine. ``slices`` has the sums
    of each output of the model by index of its axes.
    """

    source: str
    sums: Mapping[str, NDArray[np.float64]] = dataclasses.field(repr=False)
    sample_counts: Mapping[str, int] = dataclasses.field(repr=False)
    synthetic: bool = False
    isolated_errors: Mapping[str, NDArray[np.float64]] | None = dataclasses.field(default=None, repr=False)
    saturated: Mapping[str, float] | None = dataclasses.field(default=None, repr=False)
    slices: Mapping[str, SliceSums] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True)
class Score:
    """The task's metric for one variant, measured on ``samples`` held-out samples.

    ``higher`` says that more of it is better. ``predictions`` are the model's outputs on these samples, to which others
    can be added; ``tally`` has the amounts of each, from which ``interval`` follows.
    """

    name: str
    value: float
    unit: str
    samples: int
    source: str
    higher: bool = True
    predictions: Annotated[Predictions, UNSENT] = dataclasses.field(
        default_factory=Predictions, repr=False, compare=False
    )
    tally: Annotated[Tally | None, UNSENT] = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, task: Task, predictions: Predictions, source: str) -> Score:
        """The score of a model's outputs; raises ``CalibrationError`` as ``Task.tally`` does."""
        tally, samples = task.tally(predictions.concatenate(), predictions.samples), predictions.samples
        higher = task.higher is not False
        return cls(task.name, tally.value, task.unit or "", samples, source, higher, predictions, tally)

    @classmethod
    def worst(cls, task: Task, predictions: Predictions, source: str) -> Score:
        """The score of outputs that the metric cannot count, such as NaN: worse than any."""
        higher = task.higher is not False
        worst = -math.inf if higher else math.inf
        return cls(task.name, worst, task.unit or "", predictions.samples, source, higher, predictions)

    @property
    def better(self) -> float:
        """The score, negated where less is better."""
        return self.value if self.higher else -self.value

    @functools.cached_property
    def interval(self) -> Annotated[Interval | None, FieldMeta("95 % interval")]:
        """The interval of the score; None where the metric has none."""
        return None if self.tally is None else interval(self.tally)


@dataclasses.dataclass(frozen=True)
class Ranked:
    """One calibrator on the task, measured on the CPU.

    ``sqnr`` is that of the part of the model's first output that fares worst, in decibel, over ``samples`` samples;
    ``score`` is None without a task, ``delta`` its difference from fp32 in the same unit.
    """

    calibrator: Annotated[Calibrator, FieldMeta("Calibrator")]
    precision: Precision
    score: Score | None
    delta: Annotated[float | None, FieldMeta("To fp32", origin="measured")]
    sqnr: Annotated[float, FieldMeta("Output SQNR", "dB", "measured", infinite=True)]
    samples: int
    source: str

    @property
    def note(self) -> Annotated[str, FieldMeta()]:
        """The meaning of an infinite signal to noise ratio."""
        return "" if math.isfinite(self.sqnr) else "equal to fp32" if self.sqnr > 0 else "not finite"

    def __repr__(self) -> str:
        score = f"{self.score.value:.2f} {self.score.unit}, " if self.score else ""
        delta = f"{self.delta:+.2f} to fp32, " if self.delta is not None else ""
        return f"<Ranked {self.calibrator}: {score}{delta}output {format_decibel(self.sqnr)}>"


@dataclasses.dataclass(frozen=True, eq=False)
class VariantResult(Memoizable):
    """The results of one variant of ``source``, the study's model; what is not known is None.

    Prepared: ``prepared``; ``ranges`` are those that the calibrator observed, with ``random_scales`` of random input.

    Compiled: ``engine``; ``recorded`` where it was read from files of another machine, with the ``build_log`` among
    them and its ``messages``; ``inferred`` where the layers follow from that log's decisions.

    Timed: ``profile``, of ``measured``, which is ``engine`` itself or, where that cannot run here, another one of the
    same prepared model. Compared: ``errors``, and ``outputs``, tensors among the files. Scored: ``score``.

    ``stages`` has the progress of each stage, and why one is missing.
    """

    name: str
    variant: Variant
    source: Model
    prepared: Prepared
    engine: Engine
    measured: Engine | None = None
    profile: Profile | None = None
    errors: Errors | None = None
    score: Score | None = None
    ranges: Ranges | None = None
    random_scales: bool = False
    recorded: bool = False
    inferred: bool = False
    build_log: BuildLog | None = None
    outputs: Outputs | None = None
    messages: tuple[MessageMatch, ...] = ()
    stages: Mapping[Stage, StageStatus] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Facts {self.name}: {self.prepared.model.node_count} nodes, {self.engine.size}>"

    @property
    def missing(self) -> tuple[StageStatus, ...]:
        """Incomplete stages."""
        return tuple(s for s in self.stages.values() if s.is_incomplete)


def format_decibel(value: float) -> str:
    """A signal to noise ratio as text."""
    return f"{value:.1f} dB" if math.isfinite(value) else "equal" if value > 0 else "—"
