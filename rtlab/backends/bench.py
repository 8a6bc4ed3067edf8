"""Small models on the CPU, one beside the other, so that their times can be compared."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends import vendor
from rtlab.backends.onnxruntime import OnnxRuntime, get_cpu_name
from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import STOP_SPINNING, SessionSpec
from rtlab.backends.workers.process import Bounds
from rtlab.backends.workers.session_child import BUILDING, RUNNING
from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.core.trace import Outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OrtBench:
    """ONNX Runtime with all of its optimizations, and as many ``threads`` as it takes by itself."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress or Silent()
        self._runner = OnnxRuntime()
        self.threads = self._runner.threads
        self.device = get_cpu_name()
        self.source = self._runner.source.partition(",")[0]

    def values(self, model: Model, names: Sequence[str], batch: Batch) -> Outputs:
        """What a model computes of a batch: the named values, its inputs among them.

        Raises:
            BuildError, RunError: ONNX Runtime refuses the model or the batch.
            Cancelled: it was asked to stop.
        """
        with self._runner.reading(model, names, progress=self._progress) as read:
            # The arrays lie in the session's memory, which ends with it.
            outputs = {name: np.array(array) for name, array in read(batch).items()}
        return {**{n: np.asarray(batch[n]) for n in names if n in batch}, **outputs}

    def open(self, model: bytes, batch: Batch, threads: int) -> BoundSession:
        """A model with its input in place; errors are those of ``values``."""
        return BoundSession(model, batch, threads, self._progress)


class BoundSession:
    """A session that runs one batch again and again, without copying it."""

    def __init__(self, model: bytes, batch: Batch, threads: int, progress: Progress) -> None:
        ort = vendor.onnxruntime()
        self._progress, self._run_options = progress, ort.RunOptions()
        # Threads that wait for more work would take the processor from the session that is timed next.
        spec = SessionSpec(model, "Cannot open a formulation", threads, entries=(STOP_SPINNING,))
        bounds = Bounds(spec.error_prefix, BUILDING, Limits(), progress)
        self._session = inference.open_cancellable_session(
            lambda: contextlib.nullcontext(model), spec, bounds
        )
        self._names = [o.name for o in self._session.get_outputs()]
        self._binding = self._session.io_binding()
        # Bound memory is not copied, so it must live as long as the binding.
        self._inputs = {
            i.name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(batch[i.name]))
            for i in self._session.get_inputs()
            if i.name in batch
        }
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name in self._names:
            self._binding.bind_output(name)

    def outputs(self) -> Outputs:
        """Run once.

        Raises:
            RunError: ONNX Runtime fails on the batch, or the limit of time is passed.
            Cancelled: it was asked to stop.
        """
        self._run(1)
        arrays: list[NDArray[Any]] = self._binding.copy_outputs_to_cpu()
        return dict(zip(self._names, arrays, strict=True))

    def time(self, repeats: int = 1) -> float:
        """Milliseconds of one run, the mean of ``repeats`` in a row; errors are those of ``outputs``."""
        return self._run(repeats)

    def _run(self, repeats: int) -> float:
        stop = functools.partial(setattr, self._run_options, "terminate", True)  # noqa: FBT003 - it has no name
        bounds = Bounds("Cannot run a formulation", RUNNING, Limits(), self._progress)
        return inference.call_cancellable(lambda: self._measure(repeats), stop, bounds)

    def _measure(self, repeats: int) -> float:
        with inference.translate_errors():
            start = time.perf_counter()
            for _ in range(repeats):
                self._session.run_with_iobinding(self._binding, self._run_options)
            return (time.perf_counter() - start) * 1e3 / repeats
