"""Data that a model runs on: for calibration, for comparison, and for the task's score."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.images import Images, Preprocessing
from rtlab.core.model import Model
from rtlab.core.noise import Noise, drawn
from rtlab.core.rows import Rows
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Named arrays for one inference, each of the model's input shape.
Batch = Mapping[str, "NDArray[Any]"]

#: Bytes of random samples up to which nobody notices that they are drawn.
_AT_ONCE = 4 << 20
#: Bytes of random samples in all.
_MOST = 4 << 30
#: How every view marks numbers that rest on ``synthetic`` data.
RANDOM = "random input"

#: Elements that are looked at in one piece, so that a file larger than memory can be checked.
_PIECE = 1 << 22

#: Arrays whose samples are made when they are read.
_LAZY = (Images, Noise, Rows)

#: NumPy's name of each type that an input may have, by rtlab's.
NUMPY = {
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
    dimension more holds a whole input tensor per sample. ``of`` takes everything else that holds samples.

    ``synthetic`` says that nobody's data is in it, such as noise: times and graphs are as they would be, but errors and
    scales on it say little about the task, and every view marks them "random input".
    """

    arrays: Mapping[str, Any]
    source: str = "arrays"
    synthetic: bool = False

    def __post_init__(self) -> None:
        arrays = {name: a if isinstance(a, _LAZY) else to_numpy(a) for name, a in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)

    def __len__(self) -> int:
        return min((a.shape[0] if a.ndim else 0 for a in self.arrays.values()), default=0)

    @property
    def count(self) -> int | None:
        """Number of samples; None for a stream whose end has not been reached yet."""
        return len(self)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k} {shape_text(v.shape)}" for k, v in self.arrays.items())
        return f"<CalibrationData {len(self)} samples from {self.source}: {shapes}>"

    @classmethod
    def random(cls, model: Model, *, samples: int = 64, seed: int = 0) -> CalibrationData:
        """Normal noise for floating inputs, zeros and ones for others.

        Good enough to draw and to time; accuracy on noise says little about the task, and views say "random input".
        Where the graph fixes a batch, the number of samples is rounded up to whole batches. Those of large inputs are
        drawn when they are first read, and ``arrays`` holds ``rtlab.core.noise.Noise`` then; they are fewer where all
        of them would take more than 4 GiB.

        Raises:
            CalibrationError: one batch of the inputs alone takes more than that.
        """
        shapes = {name: model.input_shape(name) for name in model.inputs}
        types = {name: np.dtype(NUMPY.get(model.values[name].dtype, "float32")) for name in shapes}
        batches = {shape[0] if shape else None for shape in shapes.values()}
        batch = next(iter(batches)) if len(batches) == 1 else None
        # Of one batch as the graph has it; where each sample is a batch, that of one sample.
        taken = {name: math.prod(shape) * types[name].itemsize for name, shape in shapes.items()}
        room = _MOST // max(1, sum(taken.values()))
        if room < 1:
            largest = max(taken, key=taken.__getitem__)
            raise CalibrationError(
                f'Cannot draw random samples for model "{model.name}": an inference reads '
                f'{sum(taken.values()) / 2**30:,.3g} GiB, the most of it by the input "{largest}" '
                f"({shape_text(shapes[largest])}), and at most {_MOST >> 30} GiB are drawn. Name smaller sizes, "
                f'rtlab.load(..., shapes={{"{largest}": (...)}}), or give data of your own.'
            )
        count = min(-(-samples // (batch or 1)), room) * (batch or 1)
        wanted: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for name, shape in shapes.items():
            wanted[name] = ((count, *shape[1:]) if batch else (count, *shape)), types[name]
        found: dict[str, Any] = {**drawn(wanted, seed)}
        if sum(math.prod(size) * dtype.itemsize for size, dtype in wanted.values()) <= _AT_ONCE:
            found = {name: np.asarray(noise) for name, noise in found.items()}
        return cls(found, source=f"random noise, seed {seed}", synthetic=True)

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

    @classmethod
    def of(
        cls,
        source: CalibrationData
        | Mapping[str, Any]
        | str
        | Path
        | Iterable[Any]
        | Callable[[], Iterable[Any]],
        *,
        model: Model | None = None,
        preprocessing: Preprocessing | None = None,
    ) -> CalibrationData:
        """Samples from wherever they are.

        Args:
            source: ``CalibrationData``; a mapping from input names to arrays; one array, for a model with one
                input; the path of an ``.npz``, of an ``.npy`` (for a model with one input; read piece by
                piece), or of a folder of pictures (the same); or anything that yields batches or single samples: a
                DataLoader, a Polygraphy data loader, a list, a generator, or a function that returns one. Each
                item is an array, a mapping from input names, or a tuple with the inputs first and labels
                after them; it is one batch, or one sample where it has a dimension less than the input.
            model: Whose inputs the samples are for; needed where the source does not name them.
            preprocessing: How a picture becomes an input; needed for a folder.

        Raises:
            CalibrationError: the source is of another kind, or cannot be read.
            Unavailable: pictures need Pillow, which is not installed.
        """
        if isinstance(source, CalibrationData):
            return source
        if isinstance(source, str | Path):
            return cls._at(Path(source), model, preprocessing)
        if isinstance(source, Mapping):
            return cls(source)
        if isinstance(source, Images) or hasattr(source, "__array__"):
            return cls({_only_input(model, "one array"): source}, source="one array")
        if isinstance(source, Iterable) or hasattr(source, "__getitem__") or callable(source):
            from rtlab.core.stream import Stream

            return Stream.over(source, model=model)
        raise CalibrationError(
            f"Cannot use {type(source).__name__} as data: it holds no samples. Give arrays by input name, an "
            "array, the path of an .npz, an .npy or a folder of pictures, or an iterable of batches."
        )

    @classmethod
    def _at(cls, path: Path, model: Model | None, preprocessing: Preprocessing | None) -> CalibrationData:
        if path.is_dir():
            if preprocessing is None:
                raise CalibrationError(
                    f'Cannot read pictures from "{path}": nothing says how a picture becomes an input. Give '
                    "preprocessing=Preprocessing(size=(224, 224), ...) with what the model was trained with."
                )
            name = _only_input(model, f'the pictures in "{path}"')
            pictures: Any = Images.of(path, preprocessing)
            return cls({name: pictures}, source=f'pictures in "{path.name}"')
        if path.exists() and not path.is_file():
            # To open a pipe waits for whoever writes into it.
            raise CalibrationError(
                f'Cannot read calibration data "{path}": it is a device or a pipe. Name a file, .npz or .npy, or a '
                "folder of pictures."
            )
        if path.suffix.lower() != ".npy":
            return cls.read(path)
        name = _only_input(model, f'"{path}"')
        try:
            return cls({name: _array(path)}, source=path.name)
        except Exception as error:
            raise CalibrationError(
                f'Cannot read calibration data "{path}": {error}. '
                "Save it with numpy.save(path, array), samples along the first axis.",
                details=repr(error),
            ) from error

    def sample_shapes(self, model: Model) -> dict[str, tuple[int, ...]]:
        """The shape of each input in an inference on one sample.

        Raises:
            CalibrationError: there is no sample of an input.
        """
        found: dict[str, tuple[int, ...]] = {}
        for name in model.inputs:
            if name not in self.arrays:
                raise CalibrationError(
                    f'Cannot use {self.source}: it has no array "{name}". Name one for each input.'
                )
            shape = self.arrays[name].shape
            whole = len(shape) != len(model.values[name].shape or ())
            found[name] = shape[1:] if whole else (1, *shape[1:])
        return found

    def part(self, index: int, count: int, *, model: Model | None = None) -> CalibrationData:
        """The share number ``index`` of ``count`` contiguous ones of nearly equal size, for work in parallel.

        Shares can be pickled, and together they are all samples. Where a graph fixes the batch, give the
        model, so that no share ends within one.

        Raises:
            CalibrationError: there is no such share, or the samples come from a stream, which has one end.
        """
        if not 0 <= index < count:
            raise CalibrationError(
                f"Cannot take part {index} of {count} of {self.source}: there is no such part. "
                f"Number the parts from 0 to {count - 1}."
            )
        if model is None or not model.inputs:
            steps = dict.fromkeys(self.arrays, 1)
            whole = len(self)
        else:
            steps = {name: max(1, self._step(model, name)) for name in model.inputs}
            whole = min(self._batches_of(model, name) for name in model.inputs)
        first, last = index * whole // count, (index + 1) * whole // count
        arrays = {name: _rows(self.arrays[name], first * step, last * step) for name, step in steps.items()}
        return dataclasses.replace(self, arrays=arrays)

    def take(self, count: int) -> CalibrationData:
        """The first ``count`` samples."""
        return dataclasses.replace(self, arrays={k: _rows(v, 0, count) for k, v in self.arrays.items()})

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
        dtype = NUMPY.get(value.dtype)
        if array.ndim == 0 or len(array) == 0:
            raise CalibrationError(f'{doing}: array "{name}" has no samples. Give at least one.')
        if dtype is not None and str(array.dtype) != dtype:
            lazy = isinstance(array, Images)
            how = f'Preprocessing(dtype="{dtype}")' if lazy else f'data["{name}"].astype("{dtype}")'
            raise CalibrationError(
                f'{doing}: array "{name}" is {array.dtype}, the input is {dtype}. '
                f"Convert it, for example {how}."
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
            remedy = (
                "Choose size, channels and layout of the preprocessing for it."
                if isinstance(array, Images)
                else f"Put samples along the first axis: {shape_text(('N', *want[1:]))}."
            )
            raise CalibrationError(
                f'{doing}: array "{name}" has shape {shape_text(array.shape)}, the input takes '
                f"{shape_text(want)}. {remedy}"
            )
        # Whole numbers between 0 and 255 stay finite, so pictures need not all be decoded beforehand; so does noise.
        bad = not_finite(np.asarray(array[:1]) if isinstance(array, Images | Noise) else array)
        if bad is not None:
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

    def batches(self, model: Model, size: int | None = None, *, skip: int = 0) -> Iterator[Batch]:
        """Batches in order; a model without inputs has one, the empty one.

        ``size`` is free where the batch dimension of every input is dynamic; otherwise the graph decides and
        a last incomplete batch is left out. ``skip`` leaves out the first samples, as ``samples_in`` counts
        them, without reading them: with it, work that was stopped goes on.

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
            for start in range(skip, len(self), step):
                yield {name: np.asarray(self.arrays[name][start : start + step]) for name in model.inputs}
            return
        each = next((step for step in steps.values() if step), 1)
        for k in range(skip // each, count):
            yield {
                name: np.asarray(
                    self.arrays[name][k * step : (k + 1) * step] if step else self.arrays[name][k]
                )
                for name, step in steps.items()
            }


def samples_of(path: Path, model: Model) -> CalibrationData:
    """Samples of a file as people save them, all in memory: one array for a model with one input needs no name.

    Raises:
        CalibrationError: the file cannot be read, or does not fit the model.
    """
    data = CalibrationData.of(path, model=model)
    arrays = {name: np.array(a) for name, a in data.arrays.items()}
    if len(arrays) == len(model.inputs) == 1:
        arrays = dict(zip(model.inputs, arrays.values(), strict=True))
    found = dataclasses.replace(data, arrays=arrays)
    found.check(model)
    return found


def to_numpy(array: Any) -> NDArray[Any]:
    """A NumPy array of anything that is one, such as a PyTorch tensor on any device, without its package."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    if not hasattr(array, "__array__") and callable(getattr(array, "numpy", None)):
        array = array.numpy()
    return np.asarray(array)


def not_finite(array: NDArray[Any]) -> int | None:
    """The first row of an array that holds NaN or infinity."""
    if array.dtype.kind != "f":
        return None
    rows = max(1, _PIECE // max(1, array[:1].size))
    for start in range(0, len(array), rows):
        piece = np.isfinite(array[start : start + rows])
        if not piece.all():
            return start + int(np.argmin(piece.reshape(len(piece), -1).all(axis=1)))
    return None


def _rows(array: Any, first: int, last: int) -> Any:
    """Some of the samples, not read yet where they are made when they are."""
    return array.part(first, last) if isinstance(array, Noise | Rows) else array[first:last]


def _array(path: Path) -> Any:
    """The array of an ``.npy``: piece by piece where its samples lie one after the other, else all of it."""
    try:
        return Rows(path)
    except ValueError:
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)


def _only_input(model: Model | None, what: str) -> str:
    """The name of the one input that unnamed samples are for."""
    if model is None:
        raise CalibrationError(
            f"Cannot use {what} as data: no model says which input it is for. Give model=."
        )
    if len(model.inputs) != 1:
        names = ", ".join(f'"{n}"' for n in model.inputs) or "none"
        raise CalibrationError(
            f'Cannot use {what} as data for model "{model.name}": its inputs are {names}. '
            "Give one array for each by name, {name: array}."
        )
    return model.inputs[0]


class Predictions:
    """Outputs of a task's samples, gathered batch by batch until its metric counts them.

    ``samples`` is how many there are, ``nbytes`` what they take in memory.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.nbytes = 0
        self._parts: dict[str, list[Any]] = {}
        self._aligned: dict[str, bool] = {}

    def add(self, outputs: Mapping[str, Any], samples: int) -> None:
        """Append the outputs of one batch of so many samples."""
        self.samples += samples
        for name, value in outputs.items():
            self._parts.setdefault(name, []).append(value)
            self.nbytes += getattr(value, "nbytes", 0)
            rows = value.shape[:1] if isinstance(value, np.ndarray) else ()
            self._aligned[name] = self._aligned.get(name, True) and rows == (samples,)

    def copy(self) -> Predictions:
        """The same outputs, to which others can be added."""
        made = Predictions()
        made.samples, made.nbytes = self.samples, self.nbytes
        made._parts = {name: list(parts) for name, parts in self._parts.items()}
        made._aligned = dict(self._aligned)
        return made

    def joined(self) -> dict[str, Any]:
        """By output, one array with a row per sample; a list with an entry per batch where rows are something else.

        Such are boxes found in a picture, numbers per batch, sequences, and rows whose shapes differ.
        """
        return {
            name: np.concatenate(parts)
            if self._aligned[name] and len({(p.shape[1:], p.dtype) for p in parts}) == 1
            else parts
            for name, parts in self._parts.items()
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What the model is for, so that accuracy can be counted: data, labels and a metric.

    ``metric`` takes the outputs of all samples and the labels, and returns one number. A model with one output gives
    that, of shape ``(N, ...)``; one with several gives a mapping of all by name, as ``Predictions.joined`` makes it.
    The default counts top-1 hits of the first output in percent. ``unit`` is shown beside the number.
    """

    data: CalibrationData
    labels: NDArray[Any]
    metric: Callable[[Any, NDArray[Any]], float] | None = None
    name: str = "top-1 accuracy"
    unit: str = "%"

    def wanted(self, model: Model) -> tuple[str, ...]:
        """The outputs that the metric is given."""
        return model.outputs if self.metric is not None else model.outputs[:1]

    def score(self, outputs: NDArray[Any] | Mapping[str, Any], samples: int | None = None) -> float:
        """The metric over the outputs of the first samples.

        Args:
            outputs: An array with a row per sample; or the outputs by name, as ``Predictions.joined`` makes them.
            samples: How many there are; the rows of the first output by default.

        Raises:
            CalibrationError: there are fewer labels than samples, the metric raised, or hits cannot be counted.
        """
        named: Mapping[str, Any] = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        count = len(next(iter(named.values()))) if samples is None else samples
        labels = self.labels[:count]
        if len(labels) < count:
            raise CalibrationError(
                f'Cannot score "{self.name}": there are {len(labels)} labels for {count} samples. '
                "Give one for each."
            )
        if self.metric is None:
            return self._hits(named, labels)
        try:
            return self._measured(self.metric, named, labels)
        except Exception as error:
            shapes = ", ".join(f'"{k}" {_shaped(v)}' for k, v in named.items())
            given = f"outputs of shape {_shaped(next(iter(named.values())))}" if len(named) == 1 else shapes
            raise CalibrationError(
                f'Cannot score "{self.name}": its metric raised {type(error).__name__}: {error}. Call it with '
                f"{given if len(named) == 1 else f'a mapping of {given}'} and the labels to see where.",
                details=repr(error),
            ) from error

    def _measured(
        self, metric: Callable[[Any, NDArray[Any]], float], named: Mapping[str, Any], labels: NDArray[Any]
    ) -> float:
        first = next(iter(named.values()))
        if len(named) == 1:
            return float(metric(first, labels))
        try:
            return float(metric(named, labels))
        except Exception:
            # Until 0.2.0 a metric was given the first output, whatever else there was.
            try:
                value = float(metric(first, labels))
            except Exception:  # noqa: BLE001 - the first reason is the one to tell
                value = None
            if value is None:
                raise
        names = ", ".join(f'"{n}"' for n in named)
        warnings.warn(
            f'The metric of "{self.name}" takes one array, and the model has the outputs {names}: it was given the '
            f'first. Let it take a mapping, outputs["{next(iter(named))}"].',
            FutureWarning,
            stacklevel=2,
        )
        return value

    def _hits(self, named: Mapping[str, Any], labels: NDArray[Any]) -> float:
        name, first = next(iter(named.items()))
        if not isinstance(first, np.ndarray) or first.ndim == 0 or len(first) != len(labels):
            raise CalibrationError(
                f'Cannot count hits for "{self.name}": the first output, "{name}", has no row per sample. Give '
                "Task(..., metric=...), which takes all outputs."
            )
        hits = first.reshape(len(first), -1).argmax(axis=1) == labels
        return float(100.0 * hits.mean())


def _shaped(value: Any) -> str:
    return shape_text(value.shape) if isinstance(value, np.ndarray) else f"list of {len(value)}"
