"""What is known of the tensors around one node: the weights that it reads, the values that it writes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from rtlab.analysis import tensors as _tensors
from rtlab.core.data import CalibrationData
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import check
from rtlab.core.protocols import Progress
from rtlab.core.value import dtype_text
from rtlab.errors import RunError
from rtlab.quantize import display, quantizable
from rtlab.quantize.ranges import Ranges, collect
from rtlab.study.job import batch_size, fixed_batch, reference, runner_of

#: Samples on which a node is observed that calibration did not watch.
_OBSERVED = 4


class Observer:
    """Observes a model: all values at once for calibration, those of one node on demand.

    ``Study`` has the same three methods and says what they give.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._ranges: Ranges | None = None
        self._engine: Engine | None = None
        self._busy = threading.Lock()

    def ranges(self, data: CalibrationData, progress: Progress) -> Ranges:
        """Activation ranges on the data of the first call."""
        if self._ranges is None:
            runner = runner_of("onnxruntime")
            names = quantizable(self.model)
            engine = reference(self.model, progress)
            size = batch_size(self.model, names)
            progress.phase("Calibrating", -(-len(data) // size) if self.model.dynamic_batch else len(data))
            try:
                self._ranges = collect(
                    names,
                    data.batches(self.model, size),
                    functools.partial(runner.outputs, engine, names=names),
                    progress,
                )
            finally:
                runner.release(engine)
        return self._ranges

    def weights(self, node: str) -> tuple[_tensors.TensorStats, ...]:
        """Statistics of the constants that a node reads."""
        made = []
        for name, tensor in self.model.constants(node).items():
            if tensor.dtype == ir.DataType.STRING:
                continue
            found = _tensors.stats(
                [tensor.numpy()],
                name=name,
                kind="weight",
                dtype=dtype_text(tensor.dtype),
                shape=tuple(tensor.shape.numpy()),
                source="weights of the model",
            )
            if found is not None:
                made.append(found)
        return tuple(made)

    def activations(
        self, node: str, data: CalibrationData, progress: Progress
    ) -> tuple[_tensors.TensorStats, ...]:
        """Statistics of what a node of the main graph writes, in fp32."""
        found = self.model.node(node)
        if found.scope:
            raise RunError(
                f'Cannot observe node "{found.title}": it stands inside "{found.scope[0]}", and tensors of a body or a '
                "function cannot be read from outside. Select the node that owns it."
            )
        names = [o for o in found.outputs if o]
        ranges = self._ranges
        seen = ranges.values if ranges is not None else {}
        missing = [n for n in names if n not in seen]
        made = {n: self._observed(n, ranges, data) for n in names if ranges is not None and n in seen}
        made |= self._sampled(missing, data, progress) if missing else {}
        return tuple(made[n] for n in names if n in made)

    def _observed(self, name: str, ranges: Ranges, data: CalibrationData) -> _tensors.TensorStats:
        value, seen = self.model.values[name], ranges.values[name]
        return _tensors.magnitudes(
            name,
            dtype=value.dtype,
            shape=value.shape,
            source=f"calibration on {len(data)} samples of {data.source}",
            minimum=seen.min,
            maximum=seen.max,
            zeros=seen.zeros,
            small=seen.small,
            fine=(seen.edges, seen.counts),
            coarse=display(ranges, name, _tensors.BINS),
        )

    def _sampled(
        self, names: Sequence[str], data: CalibrationData, progress: Progress
    ) -> dict[str, _tensors.TensorStats]:
        runner = runner_of("onnxruntime")
        with self._busy:
            if self._engine is None:
                self._engine = reference(self.model, progress)
            check(progress, "observing a node")
            data = data.take(max(_OBSERVED, fixed_batch(self.model)))
            batches: list[Any] = []
            try:
                for batch in data.batches(self.model, min(_OBSERVED, batch_size(self.model, names))):
                    batches.append(runner.outputs(self._engine, batch, names))
                    check(progress, "observing a node")
            finally:
                # Each node has a session of its own, with all weights in it.
                runner.release(self._engine)
        made = {}
        for name in names:
            arrays = [b[name] for b in batches if isinstance(b[name], np.ndarray)]
            if not arrays or arrays[0].dtype.kind not in "fiubV":
                continue
            value = self.model.values[name]
            stats = _tensors.stats(
                arrays,
                name=name,
                kind="activation",
                dtype=value.dtype,
                shape=value.shape,
                source=f"{runner.source}, {_plural(len(data), 'sample')} of {data.source}",
            )
            if stats is not None:
                made[name] = stats
        return made


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
