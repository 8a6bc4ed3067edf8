"""Small models on the CPU, one beside the other, so that their times can be compared."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends import cpu, streamed, vendor
from rtlab.backends.attending import Attendant
from rtlab.backends.live import inference
from rtlab.backends.live.apart import BUILDING
from rtlab.backends.live.inference import IN_TURN, SessionOrder
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.protocols import Progress
from rtlab.core.trace import Outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Milliseconds that nobody minds to wait for.
_BRIEF = 100.0


class OrtBench:
    """ONNX Runtime with all of its optimizations; ``threads`` is the number that it takes by itself.

    What it does ends soon after ``progress`` asks for it, by raising ``Cancelled``.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._runner = OnnxRuntime()
        self.threads = self._runner.threads
        self.device = cpu.name()
        self.source = self._runner.source.partition(",")[0]

    def values(self, model: Model, names: Sequence[str], batch: Batch) -> Outputs:
        """What a model computes of a batch: the named values, its inputs among them.

        Raises:
            BuildError, RunError: ONNX Runtime refuses the model or the batch.
            Cancelled: it was asked to stop.
        """
        with self._runner.reading(model, names, progress=self._progress) as read:
            # What is read lies in the session's memory, which ends with it.
            found = {name: np.array(array) for name, array in read(batch).items()}
        return {**{n: np.asarray(batch[n]) for n in names if n in batch}, **found}

    def open(self, model: bytes, batch: Batch, threads: int) -> Opened:
        """A model with its input in place.

        Raises:
            BuildError: ONNX Runtime refuses the model.
            Cancelled: it was asked to stop.
        """
        return Opened(model, batch, threads, self._progress)


class Opened:
    """A session that runs one batch again and again, without copying it."""

    def __init__(self, model: bytes, batch: Batch, threads: int, progress: Progress | None = None) -> None:
        ort = vendor.onnxruntime()
        self._progress, self._told = progress, ort.RunOptions()
        #: Milliseconds of the fastest run, of the same batch always.
        self._least = float("inf")
        # Threads that wait for more work would take the processor from the session that is timed next.
        order = SessionOrder(model, "Cannot open a formulation", threads, entries=(IN_TURN,))
        opening = Attendant(order.doing, progress, work=BUILDING)
        self._session = streamed.session(lambda: contextlib.nullcontext(model), order, opening)
        self._names = [o.name for o in self._session.get_outputs()]
        self._binding = self._session.io_binding()
        # Bound memory is not copied, so it must live as long as the binding.
        self._inputs = {
            k: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(v)) for k, v in batch.items()
        }
        given = {i.name for i in self._session.get_inputs()}
        for name in given & set(self._inputs):
            self._binding.bind_ortvalue_input(name, self._inputs[name])
        for name in self._names:
            self._binding.bind_output(name)

    def outputs(self) -> Outputs:
        """Run once.

        Raises:
            RunError: ONNX Runtime fails on the batch, or the limit of time is passed.
            Cancelled: it was asked to stop.
        """
        self._attended(1)
        arrays: list[NDArray[Any]] = self._binding.copy_outputs_to_cpu()
        return dict(zip(self._names, arrays, strict=True))

    def time(self, repeats: int = 1) -> float:
        """Milliseconds of one run, the mean of ``repeats`` in a row.

        Raises:
            RunError: ONNX Runtime fails on the batch, or the limit of time is passed.
            Cancelled: it was asked to stop.
        """
        # What is known to end soon needs nobody beside it, who would take the processor from it.
        brief = repeats * self._least <= _BRIEF
        taken = self._timed(repeats) if brief else self._attended(repeats)
        self._least = min(self._least, taken)
        return taken

    def _timed(self, repeats: int) -> float:
        with inference.running():
            started = time.perf_counter()
            for _ in range(repeats):
                self._session.run_with_iobinding(self._binding, self._told)
            return (time.perf_counter() - started) * 1e3 / repeats

    def _attended(self, repeats: int) -> float:
        stop = functools.partial(setattr, self._told, "terminate", True)  # noqa: FBT003 - it has no name
        attendant = Attendant("Cannot run a formulation", self._progress)
        return attendant.do(lambda _: self._timed(repeats), stop)
