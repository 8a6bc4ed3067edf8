"""Small models on the CPU, one beside the other, so that their times can be compared."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.backends import cpu, vendor
from rtlab.backends.attending import Attendant
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.backends.providers import CPU
from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.protocols import Progress
from rtlab.core.trace import Outputs
from rtlab.errors import BuildError, RtlabError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray


T = TypeVar("T")
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
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        # Threads that wait for more work would take the processor from the session that is timed next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            self._session = Attendant("Cannot open a formulation", progress, failure=BuildError).do(
                lambda _: ort.InferenceSession(model, options, providers=[CPU.name]),
                functools.partial(options.set_load_cancellation_flag, True),  # noqa: FBT003 - it has no name
            )
        except RtlabError:
            raise
        except Exception as error:
            raise BuildError(
                f"Cannot open a formulation: ONNX Runtime refuses it: {str(error).strip().splitlines()[0]} "
                "Leave it out of candidates=...",
                details=str(error),
            ) from error
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
        self._attended(self._run)
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
        taken = self._timed(repeats) if brief else self._attended(functools.partial(self._timed, repeats))
        self._least = min(self._least, taken)
        return taken

    def _timed(self, repeats: int) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            self._run()
        return (time.perf_counter() - started) * 1e3 / repeats

    def _attended(self, work: Callable[[], T]) -> T:
        stop = functools.partial(setattr, self._told, "terminate", True)  # noqa: FBT003 - it has no name
        return Attendant("Cannot run a formulation", self._progress).do(lambda _: work(), stop)

    def _run(self) -> None:
        try:
            self._session.run_with_iobinding(self._binding, self._told)
        except Exception as error:
            raise RunError(
                f"Cannot run a formulation: {str(error).strip().splitlines()[0]} Check the shapes of the batch.",
                details=str(error),
            ) from error
