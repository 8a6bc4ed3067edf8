"""Formulations of one layer, or whole models, run in turn: which computes the same, and which is fastest."""

from __future__ import annotations

import dataclasses
import datetime
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.trace import Outputs
from rtlab.errors import BackendError, ModelError
from rtlab.experiments.experiment import Rig
from rtlab.formulations import DIRECT, Formulation, WeightedNode, alone
from rtlab.formulations.cache import TimingCache
from rtlab.formulations.trial import Trial, Whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Runs before the first round, after one that is not timed; the least rounds, from which quartiles mean something,
#: and the most.
FIRST, LEAST, ROUNDS = 3, 10, 60
#: The rounds of whole models whose time is over.
FEWEST = 5
#: The next formulation has at most so many times the weights of the one before, and takes as long to make ready.
GROWTH = 4.0
#: What takes this many times the fastest of a layer in its first runs is not timed further.
HOPELESS = 4.0
_OVER = "not tried: the time was over"
#: Milliseconds that one sample lasts at least; short runs are repeated.
_SAMPLE_MS = 0.5
#: What rounding may change in an output of a whole model, relative to its greatest value.
WHOLE_TOLERANCE = 5e-3


class Ready(Protocol):
    """A model that is ready to run one batch."""

    def outputs(self) -> Outputs:
        """Run once."""

    def time(self, repeats: int = 1) -> float:
        """Milliseconds of one run, the mean of several."""


class Bench(Protocol):
    """Where models are run: the device, what runs them, and the number of threads that it takes by itself."""

    device: str
    source: str
    threads: int

    def values(self, model: Model, names: Sequence[str], batch: Batch) -> Outputs:
        """What a model computes of a batch."""

    def open(self, model: bytes, batch: Batch, threads: int) -> Ready:
        """A model with its input in place; raises ``BackendError`` where it is refused."""


@dataclasses.dataclass(eq=False)
class Entrant:
    """A trial under way; ``ready`` is None once it is refused, dropped or known from a cache."""

    formulation: Formulation
    threads: int
    ready: Ready | None = None
    error: float | None = None
    note: str = ""
    times: list[float] = dataclasses.field(default_factory=list)
    repeats: int = 1
    known: Trial | None = None

    def judge(self, made: NDArray[Any], wanted: NDArray[Any]) -> bool:
        """Refuse what does not compute the same."""
        self.error = difference(made, wanted)
        if self.error <= self.formulation.tolerance:
            return True
        self.ready = None
        self.note = (
            f"refused: it differs by {self.error:.1e} from the direct one, and rounding explains "
            f"{self.formulation.tolerance:g}"
        )
        return False

    def trial(self) -> Trial:
        """What is known of it now."""
        if self.known is not None:
            return dataclasses.replace(self.known, error=self.error)
        done = bool(self.times)
        low, median, high = _quartiles(self.times) if done else (0.0, 0.0, 0.0)
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
            datetime.datetime.now(datetime.timezone.utc) if done else None,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Race:
    """How to race: where, with which numbers of threads, with which known times."""

    rig: Rig[Bench]
    threads: tuple[int, ...]
    cache: TimingCache | None = None
    #: An order, not a secret.
    order: random.Random = dataclasses.field(default_factory=lambda: random.Random(0))  # noqa: S311

    def layer(
        self,
        layer: WeightedNode,
        data: NDArray[Any],
        formulations: Sequence[Formulation],
        seconds: float,
        latest: float = float("inf"),
    ) -> tuple[Trial, ...]:
        """All formulations of one layer with all numbers of threads, the direct one first among them.

        Args:
            layer: The layer.
            data: What it reads.
            formulations: The candidates.
            seconds: How long further rounds are run, once each has been timed.
            latest: When it must be over, of the monotonic clock; candidates that do not fit are left out.

        Raises:
            ModelError: the direct one does not run.
        """
        end = min(time.monotonic() + seconds, latest)
        entrants: list[Entrant] = []
        wanted: NDArray[Any] | None = None
        took = 0.0
        for formulation in formulations:
            begun, mine = time.monotonic(), [Entrant(formulation, t) for t in self.threads]
            entrants += mine
            if formulation.name != DIRECT and begun + GROWTH * took > latest:
                for entrant in mine:
                    entrant.note = _OVER
                continue
            content = alone(layer, formulation).SerializeToString()
            for entrant in mine:
                made = self._opened(layer, data, entrant, content)
                if made is None:
                    continue
                wanted = made if wanted is None else wanted
                if entrant.judge(made, wanted):
                    self._recall(layer, entrant)
            took = time.monotonic() - begun
        self._rounds([e for e in entrants if e.ready is not None], end, latest)
        trials = tuple(e.trial() for e in entrants)
        if self.cache is not None:
            for trial in trials:
                self.cache.keep(layer.key, trial)
        return trials

    def _open(self, content: bytes, batch: Batch, threads: int) -> Ready:
        self.rig.count(builds=1)
        return self.rig.tool.open(content, batch, threads)

    def _sample(self, entrant: Entrant) -> None:
        """Take one more time of an entrant."""
        if entrant.ready is not None:
            entrant.times.append(entrant.ready.time(entrant.repeats))
            self.rig.count(runs=entrant.repeats)

    def _opened(
        self, layer: WeightedNode, data: NDArray[Any], entrant: Entrant, content: bytes
    ) -> NDArray[Any] | None:
        """Make an entrant ready; what it computes, None where it is refused."""
        try:
            entrant.ready = self._open(content, {layer.data: data}, entrant.threads)
            return np.asarray(entrant.ready.outputs()[layer.output])
        except BackendError as error:
            if entrant.formulation.name == DIRECT:
                raise ModelError(
                    f'Cannot tune layer "{layer.node}": it does not run by itself. Choose another batch, or leave '
                    "the layer out of the model.",
                    details=str(error),
                ) from error
            entrant.note, entrant.ready = str(error), None
            return None

    def once(self, layer: WeightedNode, formulation: Formulation, data: NDArray[Any]) -> NDArray[Any]:
        """What one formulation of a layer computes."""
        content = alone(layer, formulation).SerializeToString()
        opened = self._open(content, {layer.data: data}, self.threads[0])
        return np.asarray(opened.outputs()[layer.output])

    def wholes(
        self,
        batch: Batch,
        plain: bytes,
        tuned: Mapping[int, tuple[tuple[str, ...], bytes]],
        end: float,
    ) -> tuple[Whole, ...]:
        """A model as it is and, for each number of threads, with the nodes that are put in other words there."""
        pairs: list[_Pair] = []
        for count in reversed(self.threads):
            # The most threads are what ONNX Runtime takes by itself; fewer are compared while there is time.
            if not pairs or time.monotonic() <= end:
                pairs.insert(0, _Pair.of(self._open, batch, count, plain, tuned=tuned[count]))
        running = [opened for pair in pairs for opened in pair.running]
        for entrant in running:
            entrant.ready.time()
        for turn in range(ROUNDS):
            if turn >= FEWEST and (time.monotonic() > end or self.rig.cancelled()):
                break
            self.order.shuffle(running)
            for entrant in running:
                entrant.times.append(entrant.ready.time())
                self.rig.count(runs=1)
        return tuple(pair.whole() for pair in pairs)

    def _recall(self, layer: WeightedNode, entrant: Entrant) -> None:
        """Take the times of a timing cache; that it computes the same was seen."""
        if self.cache is None:
            return
        known = self.cache.recall(layer.key, entrant.trial())
        if known.cached:
            entrant.known, entrant.ready = known, None

    def _rounds(self, entrants: Sequence[Entrant], end: float, latest: float) -> None:
        """Some runs of each, then rounds of those that have a chance, until the time is over."""
        for entrant in entrants:
            if entrant.formulation.name != DIRECT and time.monotonic() > latest:
                entrant.note, entrant.ready = _OVER, None
                continue
            self._sample(entrant)
            entrant.repeats = max(1, min(100, int(_SAMPLE_MS / max(1e-4, entrant.times.pop()))))
            for _ in range(FIRST):
                self._sample(entrant)
        entrants = [e for e in entrants if e.ready is not None]
        fastest = min((min(e.times) for e in entrants), default=0.0)
        running = []
        left = 1000 * (latest - time.monotonic())
        # A layer as the model has it is what all others are compared with, so it has its time first.
        for entrant in sorted(entrants, key=lambda e: (e.formulation.name != DIRECT, min(e.times))):
            direct, best = entrant.formulation.name == DIRECT, min(entrant.times)
            left -= LEAST * entrant.repeats * best
            if direct or best <= fastest or (best <= HOPELESS * fastest and left >= 0):
                # The first runs were only to know who has a chance.
                entrant.times.clear()
                running.append(entrant)
            else:
                slow = best > HOPELESS * fastest
                why = (
                    f"over {HOPELESS:g} times the fastest in its first runs" if slow else "the time was over"
                )
                entrant.note, entrant.ready = f"not timed further: {why}", None
        for turn in range(ROUNDS):
            if turn >= LEAST and (time.monotonic() > end or self.rig.cancelled()):
                break
            self.order.shuffle(running)
            for entrant in running:
                self._sample(entrant)


@dataclasses.dataclass(eq=False)
class _Opened:
    ready: Ready
    times: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, eq=False)
class _Pair:
    """A model as it is, and the tuned one, None where no layer of it is changed."""

    threads: int
    changed: tuple[str, ...]
    error: float
    plain: _Opened
    tuned: _Opened | None

    @classmethod
    def of(
        cls,
        ready: Callable[[bytes, Batch, int], Ready],
        batch: Batch,
        threads: int,
        plain: bytes,
        *,
        tuned: tuple[tuple[str, ...], bytes],
    ) -> _Pair:
        changed, content = tuned
        default = ready(plain, batch, threads)
        if not changed:
            return cls(threads, (), 0.0, _Opened(default), None)
        other = ready(content, batch, threads)
        wanted, made = default.outputs(), other.outputs()
        error = max(difference(made[name], array) for name, array in wanted.items())
        return cls(threads, changed, error, _Opened(default), _Opened(other))

    @property
    def running(self) -> list[_Opened]:
        return [self.plain, self.tuned] if self.tuned is not None else [self.plain]

    def whole(self) -> Whole:
        before = _quartiles(self.plain.times)
        after = _quartiles(self.tuned.times) if self.tuned is not None else before
        return Whole(
            threads=self.threads,
            default=before[1],
            default_quartiles=(before[0], before[2]),
            tuned=after[1],
            tuned_quartiles=(after[0], after[2]),
            runs=len(self.plain.times),
            error=self.error,
            ok=self.error <= WHOLE_TOLERANCE,
            changed=self.changed,
        )


def _quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = np.percentile(times, (25, 50, 75)).tolist()
    return low, median, high


def difference(made: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The greatest difference of two tensors, relative to the greatest value of the second.

    Infinite where shapes differ, where one is not a number, and where whole numbers are not the same.
    """
    if made.shape != wanted.shape:
        return float("inf")
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(made, wanted) else float("inf")
    scale = float(np.abs(wanted).max(initial=0)) or 1.0
    error = float(np.abs(made.astype(np.float64) - wanted).max(initial=0)) / scale
    return error if np.isfinite(error) else float("inf")
