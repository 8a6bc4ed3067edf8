"""Formulations of one layer, or whole models, run in turn: which compute the same, and which is fastest."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rtlab.core.arrays import Batch
from rtlab.core.budget import WorkContext
from rtlab.core.model import Model
from rtlab.core.trace import Outputs
from rtlab.errors import BackendError, ModelError
from rtlab.experiments.running import difference
from rtlab.formulations import DIRECT, Formulation, WeightedNode, build_layer_model
from rtlab.formulations.trial import ModelTrial, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Runs before the first round, after one that is not timed; the least rounds, from which quartiles mean something,
#: and the most.
FIRST, LEAST, ROUNDS = 3, 10, 60
#: The rounds of whole models whose time is over.
FEWEST = 5
#: What takes this many times the fastest of a layer in its first runs is not timed further.
HOPELESS = 4.0
_OVER = "not tried: timed out"
#: Milliseconds that one sample lasts at least; short runs are repeated.
_SAMPLE_MS = 0.5
#: What rounding may change in an output of a whole model, relative to its greatest value.
MODEL_TOLERANCE = 5e-3


class LoadedModel(Protocol):
    """A model that is ready to run one batch."""

    def outputs(self) -> Outputs:
        """Run once."""

    def time(self, repeats: int = 1) -> float:
        """Milliseconds of one run, the mean of several."""


class BenchmarkRunner(Protocol):
    """Where models are run: the device, what runs them, and the number of threads that it takes by itself."""

    device: str
    source: str
    threads: int

    def values(self, model: Model, names: Sequence[str], batch: Batch) -> Outputs:
        """What a model computes of a batch."""

    def open(self, model: bytes, batch: Batch, threads: int) -> LoadedModel:
        """A model with its input in place; raises ``BackendError`` where it is refused."""


@dataclasses.dataclass(eq=False)
class BenchmarkCandidate:
    """A trial under way; ``ready`` is None once it is refused or dropped."""

    formulation: Formulation
    threads: int
    ready: LoadedModel | None = None
    error: float | None = None
    note: str = ""
    times: list[float] = dataclasses.field(default_factory=list)
    repeats: int = 1

    def judge(self, actual: NDArray[Any], expected: NDArray[Any]) -> None:
        """Refuse what does not compute the same."""
        self.error = difference(actual, expected)
        if not self.error <= self.formulation.tolerance:
            self.ready = None
            self.note = (
                f"refused: it differs by {self.error:.1e} from the direct one, and rounding explains "
                f"{self.formulation.tolerance:g}"
            )

    def trial(self) -> Trial:
        """Its times and error up to now."""
        done = bool(self.times)
        low, median, high = _compute_quartiles(self.times) if done else (0.0, 0.0, 0.0)
        return Trial(
            self.formulation.name,
            self.threads,
            median if done else None,
            (low, high) if done else None,
            len(self.times),
            self.error,
            self.formulation.tolerance,
            done,
            self.note,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Benchmark:
    """Where trials run, and with which numbers of threads."""

    context: WorkContext[BenchmarkRunner]
    threads: tuple[int, ...]
    #: An order, not a secret.
    order: random.Random = dataclasses.field(default_factory=lambda: random.Random(0))  # noqa: S311

    def time_layer(
        self,
        layer: WeightedNode,
        data: NDArray[Any],
        formulations: Sequence[Formulation],
        seconds: float,
        latest: float = float("inf"),
    ) -> tuple[Trial, ...]:
        """All formulations of one layer with all numbers of threads, the direct one first among them.

        Further rounds are run for ``seconds``, once each has been timed, until ``latest`` on the monotonic clock at
        most; candidates for which there is no time are left out.

        Raises:
            ModelError: the direct one does not run.
        """
        end = min(time.monotonic() + seconds, latest)
        candidates: list[BenchmarkCandidate] = []
        expected: NDArray[Any] | None = None
        for formulation in formulations:
            mine = [BenchmarkCandidate(formulation, t) for t in self.threads]
            candidates += mine
            if formulation.name != DIRECT and time.monotonic() > latest:
                for candidate in mine:
                    candidate.note = _OVER
                continue
            content = build_layer_model(layer, formulation).SerializeToString()
            for candidate in mine:
                actual = self._open_candidate(layer, data, candidate, content)
                if actual is None:
                    continue
                expected = actual if expected is None else expected
                candidate.judge(actual, expected)
        self._rounds([e for e in candidates if e.ready is not None], end, latest)
        return tuple(e.trial() for e in candidates)

    def _open(self, content: bytes, batch: Batch, threads: int) -> LoadedModel:
        self.context.count(builds=1)
        return self.context.tool.open(content, batch, threads)

    def _sample(self, candidate: BenchmarkCandidate) -> None:
        """Take one more time of a candidate."""
        if candidate.ready is not None:
            candidate.times.append(candidate.ready.time(candidate.repeats))
            self.context.count(runs=candidate.repeats)

    def _open_candidate(
        self, layer: WeightedNode, data: NDArray[Any], candidate: BenchmarkCandidate, content: bytes
    ) -> NDArray[Any] | None:
        """Make a candidate ready; what it computes, None where it is refused."""
        try:
            candidate.ready = self._open(content, {layer.data: data}, candidate.threads)
            return np.asarray(candidate.ready.outputs()[layer.output])
        except BackendError as error:
            if candidate.formulation.name == DIRECT:
                raise ModelError(
                    f'Cannot tune layer "{layer.node}": it does not run by itself. Choose another batch, or leave '
                    "the layer out of the model.",
                    details=str(error),
                ) from error
            candidate.note, candidate.ready = str(error), None
            return None

    def compare_models(
        self,
        batch: Batch,
        plain: bytes,
        tuned_models: Mapping[int, tuple[tuple[str, ...], bytes]],
        end: float,
    ) -> tuple[ModelTrial, ...]:
        """A model as it is and, for each number of threads, with the nodes that have another formulation there."""
        opened: list[tuple[int, tuple[str, ...], float, list[tuple[LoadedModel, list[float]]]]] = []
        for count in reversed(self.threads):
            # The most threads are what ONNX Runtime takes by itself; fewer are compared while there is time.
            if opened and time.monotonic() > end:
                continue
            changed, content = tuned_models[count]
            models = [(self._open(plain, batch, count), list[float]())]
            error = 0.0
            if changed:
                models.append((self._open(content, batch, count), []))
                expected, actual = (model.outputs() for model, _ in models)
                error = max(difference(actual[name], array) for name, array in expected.items())
            opened.insert(0, (count, changed, error, models))
        running = [one for *_, models in opened for one in models]
        for model, _ in running:
            model.time()
        for turn in range(ROUNDS):
            if turn >= FEWEST and (time.monotonic() > end or self.context.is_cancelled()):
                break
            self.order.shuffle(running)
            for model, measured_times in running:
                measured_times.append(model.time())
                self.context.count(runs=1)
        return tuple(_summarize(*comparison) for comparison in opened)

    def _rounds(self, candidates: Sequence[BenchmarkCandidate], end: float, latest: float) -> None:
        """Some runs of each, then rounds of those that have a chance, until the time is over."""
        for candidate in candidates:
            if candidate.formulation.name != DIRECT and time.monotonic() > latest:
                candidate.note, candidate.ready = _OVER, None
                continue
            self._sample(candidate)
            candidate.repeats = max(1, min(100, int(_SAMPLE_MS / max(1e-4, candidate.times.pop()))))
            for _ in range(FIRST):
                self._sample(candidate)
        candidates = [e for e in candidates if e.ready is not None]
        fastest = min((min(e.times) for e in candidates), default=0.0)
        running = []
        remaining_ms = 1000 * (latest - time.monotonic())
        # A layer as the model has it is what all others are compared with, so it has its time first.
        for candidate in sorted(candidates, key=lambda e: (e.formulation.name != DIRECT, min(e.times))):
            direct, best = candidate.formulation.name == DIRECT, min(candidate.times)
            remaining_ms -= LEAST * candidate.repeats * best
            if direct or best <= fastest or (best <= HOPELESS * fastest and remaining_ms >= 0):
                # The first runs were only to know who has a chance.
                candidate.times.clear()
                running.append(candidate)
            else:
                slow = best > HOPELESS * fastest
                why = f"over {HOPELESS:g} times the fastest in its first runs" if slow else "timed out"
                candidate.note, candidate.ready = f"not timed further: {why}", None
        for turn in range(ROUNDS):
            if turn >= LEAST and (time.monotonic() > end or self.context.is_cancelled()):
                break
            self.order.shuffle(running)
            for candidate in running:
                self._sample(candidate)


def _summarize(
    threads: int, changed: tuple[str, ...], error: float, models: Sequence[tuple[LoadedModel, list[float]]]
) -> ModelTrial:
    """A model as it is, the first, beside the tuned one, the last: the same where nothing is changed."""
    before, after = (_compute_quartiles(models[i][1]) for i in (0, -1))
    return ModelTrial(
        threads, before[1], (before[0], before[2]), after[1], (after[0], after[2]), len(models[0][1]), error,
        error <= MODEL_TOLERANCE, changed,
    )  # fmt: skip


def _compute_quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = np.percentile(times, (25, 50, 75)).tolist()
    return low, median, high
