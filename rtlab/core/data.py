"""Data that a model runs on: for calibration, for comparison, and for the task's score."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.model import Model
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Named arrays for one inference, each of the model's input shape.
Batch = Mapping[str, "NDArray[Any]"]

_NUMPY = {
    "fp32": "float32",
    "fp16": "float16",
    "fp64": "float64",
    "bool": "bool",
    **{f"{u}int{b}": f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)},
}


@dataclasses.dataclass(frozen=True, eq=False)
class CalibrationData:
    """One array per model input, samples along the first axis.

    An array with as many dimensions as its input is cut along the input's batch dimension; one with a
    dimension more holds a whole input tensor per sample.
    """

    arrays: Mapping[str, NDArray[Any]]
    source: str = "arrays"

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(array) for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)

    def __len__(self) -> int:
        return min((a.shape[0] if a.ndim else 0 for a in self.arrays.values()), default=0)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k} {shape_text(v.shape)}" for k, v in self.arrays.items())
        return f"<CalibrationData {len(self)} samples from {self.source}: {shapes}>"

    @classmethod
    def random(cls, model: Model, *, samples: int = 64, seed: int = 0) -> CalibrationData:
        """Normal noise for floating inputs, zeros and ones for others.

        Good enough to draw and to time; accuracy on noise says little about the task, and views say "random".
        Where the graph fixes a batch, the number of samples is rounded up to whole batches.
        """
        rng = np.random.default_rng(seed)
        shapes = {name: model.input_shape(name) for name in model.inputs}
        batches = {shape[0] if shape else None for shape in shapes.values()}
        batch = next(iter(batches)) if len(batches) == 1 else None
        arrays: dict[str, NDArray[Any]] = {}
        for name, shape in shapes.items():
            dtype = np.dtype(_NUMPY.get(model.values[name].dtype, "float32"))
            size = (-(-samples // batch) * batch, *shape[1:]) if batch else (samples, *shape)
            draw = rng.standard_normal(size) if dtype.kind == "f" else rng.integers(0, 2, size)
            arrays[name] = draw.astype(dtype)
        return cls(arrays, source=f"random noise, seed {seed}")

    @classmethod
    def read(cls, path: str | Path) -> CalibrationData:
        """Read an ``.npz`` with one array per model input.

        Raises:
            CalibrationError: the file is missing, damaged, or contains pickled objects.
        """
        try:
            # numpy leaves a damaged file open that it opened itself.
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return cls({k: archive[k] for k in archive.files}, source=Path(path).name)
        except Exception as error:
            raise CalibrationError(
                f'Cannot read calibration data "{path}": {error}. '
                "Save it with numpy.savez(path, input_name=array), samples along the first axis.",
                details=repr(error),
            ) from error

    def take(self, count: int) -> CalibrationData:
        """The first ``count`` samples."""
        return dataclasses.replace(self, arrays={k: v[:count] for k, v in self.arrays.items()})

    def check(self, model: Model) -> None:
        """Raise ``CalibrationError`` unless every input has fitting, finite samples."""
        wanted = ", ".join(
            f'"{n}" {model.values[n].dtype} {shape_text(model.values[n].shape)}' for n in model.inputs
        )
        doing = f'Cannot use {self.source} as data for model "{model.name}"'
        missing = [n for n in model.inputs if n not in self.arrays]
        extra = [n for n in self.arrays if n not in model.inputs]
        if missing or extra:
            found = ", ".join(f'"{n}"' for n in self.arrays) or "nothing"
            raise CalibrationError(f"{doing}: it names {found}. Name one array for each of {wanted}.")
        for name in model.inputs:
            self._check_one(model, name, doing)
        counts = {name: self._batches_of(model, name) for name in model.inputs}
        if len(set(counts.values())) > 1:
            found = ", ".join(f'"{name}" {shape_text(self.arrays[name].shape)}' for name in model.inputs)
            raise CalibrationError(
                f"{doing}: its arrays {found} hold different numbers of samples. Give as many of each."
            )

    def _check_one(self, model: Model, name: str, doing: str) -> None:
        array, value = self.arrays[name], model.values[name]
        dtype = _NUMPY.get(value.dtype)
        if array.ndim == 0 or len(array) == 0:
            raise CalibrationError(f'{doing}: array "{name}" has no samples. Give at least one.')
        if dtype is not None and str(array.dtype) != dtype:
            raise CalibrationError(
                f'{doing}: array "{name}" is {array.dtype}, the input is {dtype}. '
                f'Convert it, for example data["{name}"].astype("{dtype}").'
            )
        want = model.input_shape(name)
        # The first dimension may be any size where the graph leaves it open and the batch is ours to choose.
        open_batch = bool(want) and not isinstance((value.shape or (0,))[0], int)
        if array.ndim == len(want) + 1:
            item = array.shape[2:] if open_batch else array.shape[1:]
            fits = item == (want[1:] if open_batch else want)
        else:
            fits = array.ndim == len(want) and array.shape[1:] == want[1:]
        if not fits:
            raise CalibrationError(
                f'{doing}: array "{name}" has shape {shape_text(array.shape)}, the input takes '
                f"{shape_text(want)}. Put samples along the first axis: {shape_text(('N', *want[1:]))}."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(axis=1)))
            raise CalibrationError(
                f'{doing}: array "{name}" has NaN or infinity in sample {bad}. Remove or repair that sample.'
            )

    def _step(self, model: Model, name: str) -> int:
        """How many rows of an array make one batch; 0 where each row is a whole input tensor."""
        shape = model.input_shape(name)
        return shape[0] if self.arrays[name].ndim == len(shape) else 0

    def _batches_of(self, model: Model, name: str) -> int:
        step = self._step(model, name)
        return len(self.arrays[name]) // step if step else len(self.arrays[name])

    def samples_in(self, model: Model, batch: Batch) -> int:
        """How many samples a batch of ``batches`` holds: its first dimension, or one whole tensor per input."""
        for name in model.inputs:
            if batch[name].ndim and self.arrays[name].ndim == batch[name].ndim:
                return len(batch[name])
        return 1

    def batches(self, model: Model, size: int | None = None) -> Iterator[Batch]:
        """Batches in order; a model without inputs has one, the empty one.

        ``size`` is free where the batch dimension of every input is dynamic; otherwise the graph decides and
        a last incomplete batch is left out.

        Raises:
            CalibrationError: there are fewer samples than one batch.
        """
        if not model.inputs:
            yield {}
            return
        steps = {name: self._step(model, name) for name in model.inputs}
        free = model.dynamic_batch and all(steps.values())
        count = len(self) if free else min(self._batches_of(model, name) for name in model.inputs)
        if count == 0:
            step = max(steps.values())
            raise CalibrationError(
                f'Cannot cut {self.source} into batches for model "{model.name}": {len(self)} samples are '
                f"fewer than one batch of {step}. Give at least {step} samples."
            )
        if free:
            step = size or max(steps.values())
            for start in range(0, len(self), step):
                yield {name: self.arrays[name][start : start + step] for name in model.inputs}
            return
        for k in range(count):
            yield {
                name: self.arrays[name][k * step : (k + 1) * step] if step else self.arrays[name][k]
                for name, step in steps.items()
            }


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What the model is for, so that accuracy can be counted: data, labels and a metric.

    ``metric`` takes the first output of all samples, shape ``(N, ...)``, and the labels, and returns one
    number; the default counts top-1 hits in percent. ``unit`` is shown beside the number.
    """

    data: CalibrationData
    labels: NDArray[Any]
    metric: Callable[[NDArray[Any], NDArray[Any]], float] | None = None
    name: str = "top-1 accuracy"
    unit: str = "%"

    def score(self, outputs: NDArray[Any]) -> float:
        """The metric over the outputs of the first ``len(outputs)`` samples."""
        labels = self.labels[: len(outputs)]
        if self.metric is not None:
            return float(self.metric(outputs, labels))
        hits = outputs.reshape(len(outputs), -1).argmax(axis=1) == labels
        return float(100.0 * hits.mean())
