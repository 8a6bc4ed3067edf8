"""Data that a model runs on: for calibration, for comparison, and for the task's score."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rtlab.core.arrays import NUMPY, Batch, not_finite, to_numpy
from rtlab.core.images import Pictures, Preprocessing, open_pictures
from rtlab.core.inputs import open_arrays
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.random_inputs import list_past, make_samples
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError, RtlabError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Batches that a reader may have taken without having used them when it is stopped.
AHEAD = 3
#: Samples that are kept from the start of a stream, so that a comparison can read them again.
CACHED_SAMPLES = 64
#: An array, or arrays by name or by position.
_Item = Any


class Inputs:
    """How the items of a stream become a model's inputs."""

    def __init__(self, model: Model) -> None:
        self.title = model.name
        self.shapes = {n: model.values[n].shape or () for n in model.inputs}
        self.dtypes = {n: NUMPY.get(model.values[n].dtype) for n in model.inputs}
        self.free = model.free_batch
        shapes = {
            n: model.input_shape(n) if model.dynamic_batch and not self.free else s
            for n, s in self.shapes.items()
        }
        first = {s[0] if s else None for s in shapes.values()}
        only = first.pop() if len(first) == 1 else None
        #: The batch that the graph fixes for all inputs alike, or that was named.
        self.fixed = only if isinstance(only, int) else 0
        #: Whether items can be joined and cut along the first axis; otherwise each is one whole inference.
        self.batched = self.free or bool(self.fixed)

    def samples(self, batch: Batch) -> int:
        """How many samples are in a named batch."""
        return len(next(iter(batch.values()))) if self.batched and batch else 1

    def size(self, item: _Item) -> int:
        """The same of an unchecked item; 1 where it does not fit, which raises when it is used."""
        with contextlib.suppress(CalibrationError):
            for name, array in self._by_name(item, "").items() if self.batched else ():
                return len(array) if array.ndim and array.ndim == len(self.shapes[name]) else 1
        return 1

    def name_arrays(self, item: _Item, first: int, source: str) -> dict[str, NDArray[Any]]:
        """Name, check and complete the arrays of one item, whose first sample has the number ``first``."""
        error_prefix = f'Cannot use sample {first} of {source} as data for model "{self.title}"'
        arrays = self._by_name(item, error_prefix)
        unbatched = [a.ndim == len(self.shapes[n]) - 1 for n, a in arrays.items()]
        if self.batched and all(unbatched):
            arrays = {n: a[None] for n, a in arrays.items()}
        sizes: dict[str, int] = {}
        for name, array in arrays.items():
            self._check(name, array, sizes, error_prefix)
        if self.batched and len({len(a) for a in arrays.values()}) > 1:
            shapes = ", ".join(f'"{n}" {shape_text(a.shape)}' for n, a in arrays.items())
            raise CalibrationError(
                f"{error_prefix}: {shapes} hold different numbers of samples. Give as many of each."
            )
        for name, array in arrays.items():
            bad = not_finite(array[None] if array.ndim == 0 else array)
            if bad is not None:
                at = first + bad if self.batched else first
                raise CalibrationError(
                    f'Cannot use sample {at} of {source} as data for model "{self.title}": "{name}" has NaN or '
                    "infinity. Remove or repair that sample."
                )
        return arrays

    def _by_name(self, item: _Item, error_prefix: str) -> dict[str, NDArray[Any]]:
        names = tuple(self.shapes)
        while isinstance(item, tuple) and item and isinstance(item[0], tuple | Mapping):
            item = item[0]  # the inputs stand together, before the labels
        if isinstance(item, Mapping):
            arrays = dict(item)
        else:
            arrays = dict(zip(names, item if isinstance(item, tuple) else (item,), strict=False))
        if any(not isinstance(arrays.get(n), np.ndarray) for n in names):
            have = quote_names(item) if isinstance(item, Mapping) else _count_arrays(arrays)
            inputs = (f'"{n}" {self.dtypes[n] or ""} {shape_text(s)}' for n, s in self.shapes.items())
            raise CalibrationError(
                f"{error_prefix}: it gives {have}, the inputs are {', '.join(inputs)}. Yield a mapping from "
                "these names to arrays, or a tuple of arrays in this order."
            )
        return {n: arrays[n] for n in names}

    def _check(self, name: str, array: NDArray[Any], sizes: dict[str, int], error_prefix: str) -> None:
        dtype, shape = self.dtypes[name], self.shapes[name]
        if dtype is not None and str(array.dtype) != dtype:
            raise CalibrationError(
                f'{error_prefix}: "{name}" is {array.dtype}, the input is {dtype}. Convert it before it is yielded, '
                f'for example with .astype("{dtype}").'
            )
        fits = array.ndim == len(shape)
        for axis, (want, have) in enumerate(zip(shape, array.shape, strict=False) if fits else ()):
            if axis == 0 and self.batched:
                continue
            # A symbol stands for one size in all inputs of an inference.
            fits &= have == (sizes.setdefault(want, have) if isinstance(want, str) else want or have)
        if not fits:
            raise CalibrationError(
                f'{error_prefix}: "{name}" has shape {shape_text(array.shape)}, the input takes {shape_text(shape)}. '
                "Yield batches of that shape, or single samples without the first dimension."
            )


class Feed:
    """The items of an iterable; the first of them are kept, so that several readers can have those."""

    def __init__(self, source: Any, name: str, *, synthetic: bool = False) -> None:
        self.name = name
        #: Whether the samples are random.
        self.synthetic = synthetic
        #: Samples read so far, and all samples, None until the end was reached.
        self.samples_read = 0
        self.total: int | None = None
        self._source = source
        self._once = isinstance(source, Iterator)
        #: Returns how many samples are in an item.
        self.measure: Callable[[_Item], int] = lambda _: 1
        self._keep = CACHED_SAMPLES
        self._cache: list[_Item] = []
        self._sizes: list[int] = []
        # At the first item that is not kept, until a reader goes on from there; "past" is True from then on.
        self._iterator: Iterator[Any] | None = None
        self._past = False
        # The last items of what can be read once, each with the number of its first sample.
        self._tail: collections.deque[tuple[int, _Item]] = collections.deque()
        self._failure: CalibrationError | None = None
        self._lock = threading.RLock()

    @property
    def expected_count(self) -> int | None:
        """Samples if every item is as large as the first, where the source tells how many items there are."""
        with contextlib.suppress(Exception):  # it may have no length, or refuse to tell
            return len(self._source) * self._sizes[0]
        return None

    def reserve(self, count: int) -> int:
        """Make sure that the first samples can be read again; returns of how many that is true, at most ``count``."""
        with self._lock:
            if not self._once:
                return count
            if self._past:
                return min(count, sum(self._sizes))
            self._keep = max(self._keep, count)
            return count

    def read(
        self, size: Callable[[_Item], int], limit: int | None, *, skip: int, window: int
    ) -> Iterator[tuple[int, _Item]]:
        """Every item from the first on, with the number of its first sample.

        Args:
            size: Returns how many samples are in an item.
            limit: Samples that the reader needs; None for all.
            skip: Samples that the reader does not need; those that cannot be read again may be left out.
            window: Samples before the last one read that a later reader with ``skip`` may ask for.
        """
        with self._lock:
            self.measure = size
            enough = limit is not None and limit <= sum(self._sizes)
        position = first = 0
        # A source that can be iterated anew may give another order, which the kept samples are no part of.
        if enough or self._once or not self._past:
            while self._is_cached(position):
                yield first, self._cache[position]
                first += self._sizes[position]
                position += 1
        if self.total is not None and position == len(self._cache) and self.total == first:
            return
        iterator = self._continue(position, skip)
        for first, item in tuple(self._tail):
            yield first, item
        if self._tail:
            first = self._tail[-1][0] + size(self._tail[-1][1])
        for item in self._pull(iterator, first):
            if self._once:
                self._tail.append((first, item))
            yield first, item
            first += size(item)
            self.samples_read = max(self.samples_read, first)
            while len(self._tail) > 1 and first - self._tail[1][0] >= window:
                self._tail.popleft()
        self.total = first

    def _continue(self, position: int, skip: int) -> Iterator[Any]:
        """An iterator over the items after the first ``position`` ones."""
        with self._lock:
            if self._past and self._once:
                if self._failure or self._iterator is None or not self._tail or self._tail[0][0] > skip:
                    raise self._failure or CalibrationError(
                        f"Cannot read {self.name} on after sample {sum(self._sizes)}: it can be read once, and only "
                        "its first samples were kept. Give a list, a DataLoader, or a function that returns a new "
                        "generator."
                    )
                return self._iterator
            iterator = self._iterator or self._open()
            if self._past:
                next(itertools.islice(iterator, position, position), None)
            # A generator stays here, for it may be read on.
            self._iterator = iterator if self._once else None
            self._past = True
            return iterator

    def __reduce__(self) -> tuple[object, ...]:
        # Another process gets the kept items alone.
        while self._is_cached(len(self._cache)):
            pass
        state = {name: getattr(self, name) for name in ("synthetic", "_cache", "_sizes", "total")}
        return _restore, (self.name, state)

    def _is_cached(self, position: int) -> bool:
        """Whether the item at this position is kept, after reading it if it is to be."""
        with self._lock:
            if position < len(self._cache):
                return True
            if self._past or self.total is not None or sum(self._sizes) >= self._keep:
                return False
            if self._failure is not None:
                raise self._failure
            if self._iterator is None:
                self._iterator = self._open()
            for item in self._pull(self._iterator, self.samples_read):
                self._cache.append(item)
                self._sizes.append(self.measure(item))
                self.samples_read = sum(self._sizes)
                return True
            self.total = self.samples_read
            return False

    def _open(self) -> Iterator[Any]:
        source = self._source
        try:
            if callable(source) and not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
                source = source()
            return iter(source)
        except Exception as error:
            raise self._read_error(error, 0) from error

    def _pull(self, iterator: Iterator[Any], first: int) -> Iterator[_Item]:
        while True:
            try:
                item = _copy_arrays(next(iterator))
            except StopIteration:
                return
            except RtlabError:
                raise
            except Exception as error:
                self._failure = self._read_error(error, first)
                raise self._failure from error
            yield item
            first += self.measure(item)

    def _read_error(self, error: Exception, sample: int) -> CalibrationError:
        return CalibrationError(
            f"Cannot read sample {sample} of {self.name}: it raised {type(error).__name__}: {error}. "
            "Repair or leave out that sample.",
            details=repr(error),
        )


def _restore(name: str, state: Mapping[str, Any]) -> Feed:
    feed = Feed(iter(()), name)
    vars(feed).update(state, _past=True, samples_read=sum(state["_sizes"]))
    return feed


def _copy_arrays(item: Any) -> _Item:
    """Copies of all arrays in an item, for a source may use its memory again."""
    if isinstance(item, Mapping):
        return {k: _copy_arrays(v) for k, v in item.items()}
    if isinstance(item, tuple | list):
        return tuple(_copy_arrays(v) for v in item)
    if isinstance(item, str | bytes) or item is None:
        return item
    return np.array(to_numpy(item))


def cut_batches(items: Iterator[Batch], size: int | None, source: str, *, drop_last: bool) -> Iterator[Batch]:
    """Join and cut neighbours of one shape to ``size``; ``drop_last`` leaves out what does not fill a batch."""
    if size is None:
        yield from items
        return
    pending: list[Batch] = []
    shape: list[tuple[int, ...]] = []
    count = done = 0
    try:
        for item in items:
            now = [a.shape[1:] for a in item.values()]
            if count and now != shape:
                if drop_last:
                    _raise_uneven_batch(size, source, done + count)
                yield _concatenate(pending)
                done, count, pending = done + count, 0, []
            shape = now
            pending.append(item)
            count += len(next(iter(item.values())))
            if count >= size:
                full = _concatenate(pending)
                for start in range(0, count - size + 1, size):
                    yield {name: array[start : start + size] for name, array in full.items()}
                remainder = count % size
                pending = (
                    [{name: array[count - remainder :] for name, array in full.items()}] if remainder else []
                )
                done, count = done + count - remainder, remainder
    except CalibrationError:
        # Samples before one that cannot be read are complete, and are used.
        if count and not drop_last:
            yield _concatenate(pending)
        raise
    if count and not drop_last:
        yield _concatenate(pending)


def _raise_uneven_batch(size: int, source: str, sample: int) -> NoReturn:
    raise CalibrationError(
        f"Cannot fill a batch of {size} from {source}: sample {sample} has another shape than the samples before it. "
        "Yield whole batches of one shape each."
    )


def _concatenate(items: list[Batch]) -> Batch:
    if len(items) == 1:
        return items[0]
    return {name: np.concatenate([i[name] for i in items]) for name in items[0]}


def with_metadata(source: Any, model: Model | None) -> Any:
    """A source, with the inputs of the model where it is a Polygraphy data loader, whose runners set them there."""
    if model is None or getattr(source, "input_metadata", model) is not None:
        return source
    from polygraphy.common import TensorMetadata

    metadata = TensorMetadata()
    for name in model.inputs:
        dtype = np.dtype(NUMPY.get(model.values[name].dtype, "float32"))
        metadata.add(name, dtype=dtype, shape=model.input_shape(name))
    source = copy.copy(source)
    source.input_metadata = metadata
    return source


def is_random_loader(source: Any) -> bool:
    """Whether it is a Polygraphy data loader, which draws random samples."""
    return any(
        c.__module__.startswith("polygraphy.") and c.__name__ == "DataLoader" for c in type(source).__mro__
    )


def describe_source(source: Any) -> str:
    """What to call a source in a message: its own name, or that of its kind."""
    name = getattr(source, "__name__", "")
    return f'{type(source).__name__} "{name}"' if name else type(source).__name__


def _count_arrays(arrays: Mapping[str, Any]) -> str:
    good = sum(isinstance(a, np.ndarray) for a in arrays.values())
    return "1 array" if good == 1 else f"{good} arrays"


#: What the source of random samples says of a cache.
ZEROS, OF_A_RUN = ", past keys and values are zeros", ", past keys and values of a run before"
#: The mark of numbers from ``synthetic`` data.
RANDOM = "random input"


@dataclasses.dataclass(frozen=True, eq=False)
class CalibrationData:
    """One array per model input, samples along the first axis.

    An array with as many dimensions as its input is cut along the input's batch dimension; one with a
    dimension more holds a whole input tensor per sample. ``of`` takes everything else that holds samples.

    ``synthetic`` is True for noise: times and graphs are valid, but errors and scales say little about the task, and
    every view marks them "random input".
    """

    arrays: Mapping[str, Any]
    source: str = "arrays"
    synthetic: bool = False

    def __post_init__(self) -> None:
        arrays = {name: a if isinstance(a, Pictures) else to_numpy(a) for name, a in self.arrays.items()}
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
        """Normal noise for floating inputs, zeros and ones for others; for a language model inputs that it takes.

        Token ids are below the rows of their table, masks leave out padding, positions count tokens, and past keys and
        values are zeros. Where the graph fixes a batch, the number of samples is rounded up to whole batches. They are
        fewer where all would take over 256 MiB.

        Raises:
            CalibrationError: one batch of the inputs alone takes more than 4 GiB.
        """
        arrays = make_samples(model, samples, seed)
        cache = ZEROS if any(arrays[name].size for name in list_past(model)) else ""
        return cls(arrays, source=f"random noise, seed {seed}{cache}", synthetic=True)

    @classmethod
    def draw_again(cls, model: Model, source: str, samples: int) -> CalibrationData | None:
        """The random samples whose ``source`` says by which seed they were drawn; None where they are no such."""
        seed = re.fullmatch(rf"random noise, seed (\d+)(?:{ZEROS})?", source)
        return None if seed is None else cls.random(model, samples=samples, seed=int(seed[1]))

    @classmethod
    def read(cls, path: str | Path, *, model: Model | None = None) -> CalibrationData:
        """Read an ``.npz`` with one array per input, or an ``.npy`` for a model with one.

        Raises:
            CalibrationError: the file is missing or damaged, or the model has several inputs.
        """
        source = Path(path).name
        try:
            # numpy leaves a damaged file open that it opened itself.
            with open_arrays(path) as arrays:
                if not isinstance(arrays, np.ndarray):
                    return cls({k: arrays[k] for k in arrays.files}, source=source)
        except Exception as error:
            raise CalibrationError(
                f'Cannot read calibration data "{path}": {error}. Save it with numpy.savez(path, input_name=array), '
                "or one array with numpy.save(path, array), samples along the first axis.",
                details=repr(error),
            ) from error
        return cls({_get_only_input(model, f'"{path}"'): arrays}, source=source)

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
        """Samples from any source.

        Args:
            source: ``CalibrationData``; a mapping from input names to arrays; one array, for a model with one
                input; the path of an ``.npz``, of an ``.npy`` or of a folder of pictures (both for a model with one
                input); or an iterable of batches or single samples, or a function that returns one: a DataLoader, a
                Polygraphy data loader, a list, a generator. Each item is an array, a mapping from input names, or a
                tuple with the inputs first and labels after them; it is one batch, or one sample where it has a
                dimension less than the input.
            model: Whose inputs the samples are for; needed where the source does not name them.
            preprocessing: How a picture becomes an input; needed for a folder.

        Raises:
            CalibrationError: the source is of another kind, or cannot be read.
            Unavailable: pictures need Pillow, which is not installed.
        """
        if isinstance(source, CalibrationData):
            return source
        if isinstance(source, str | Path):
            return cls._read_path(Path(source), model, preprocessing)
        if isinstance(source, Mapping):
            return cls(source)
        if hasattr(source, "__array__"):
            return cls({_get_only_input(model, "one array"): source}, source="one array")
        if isinstance(source, Iterable) or hasattr(source, "__getitem__") or callable(source):
            return SampleStream.over(source, model=model)
        raise CalibrationError(
            f"Cannot use {type(source).__name__} as data: it holds no samples. Give arrays by input name, an "
            "array, the path of an .npz, an .npy or a folder of pictures, or an iterable of batches."
        )

    @classmethod
    def _read_path(
        cls, path: Path, model: Model | None, preprocessing: Preprocessing | None
    ) -> CalibrationData:
        if path.is_dir():
            if preprocessing is None:
                raise CalibrationError(
                    f'Cannot read pictures from "{path}": nothing says how a picture becomes an input. Give '
                    "preprocessing=Preprocessing(size=(224, 224), ...) with what the model was trained with."
                )
            name = _get_only_input(model, f'the pictures in "{path}"')
            return cls({name: open_pictures(path, preprocessing)}, source=f'pictures in "{path.name}"')
        return cls.read(path, model=model)

    def part(self, index: int, count: int, *, model: Model | None = None) -> CalibrationData:
        """The share number ``index`` of ``count`` contiguous ones of nearly equal size, for work in parallel.

        With the model no share ends within a fixed batch.

        Raises:
            CalibrationError: there is no such share, or the samples come from a stream.
        """
        if not 0 <= index < count:
            raise CalibrationError(
                f"Cannot take part {index} of {count} of {self.source}: there is no such part. "
                f"Number the parts from 0 to {count - 1}."
            )
        if model is None or not model.inputs:
            steps = dict.fromkeys(self.arrays, 1)
            total = len(self)
        else:
            steps = {name: max(1, self._step(model, name)) for name in model.inputs}
            total = min(self._count_batches(model, name) for name in model.inputs)
        first, last = index * total // count, (index + 1) * total // count
        arrays = {
            name: _slice_rows(self.arrays[name], first * step, last * step) for name, step in steps.items()
        }
        return dataclasses.replace(self, arrays=arrays)

    def take(self, count: int) -> CalibrationData:
        """The first ``count`` samples, with all of their rows in each array."""
        sample_count = max(1, len(self))
        # The state of a recurrent network may have several rows for each.
        steps = {
            k: v.shape[0] // sample_count if v.ndim and v.shape[0] % sample_count == 0 else 1
            for k, v in self.arrays.items()
        }
        return dataclasses.replace(
            self, arrays={k: _slice_rows(v, 0, count * steps[k]) for k, v in self.arrays.items()}
        )

    def pick(self, rows: Sequence[int]) -> CalibrationData:
        """The samples at these rows of the arrays, in this order; a stream has none."""
        arrays = {
            k: np.stack([np.asarray(a[i]) for i in rows]) if isinstance(a, Pictures) else a[list(rows)]
            for k, a in self.arrays.items()
        }
        return dataclasses.replace(self, arrays=arrays)

    def check(self, model: Model) -> None:
        """Raise ``CalibrationError`` unless every input has fitting, finite samples."""
        expected_inputs = ", ".join(
            f'"{n}" {model.values[n].dtype} {shape_text(model.values[n].shape)}' for n in model.inputs
        )
        error_prefix = f'Cannot use {self.source} as data for model "{model.name}"'
        missing = [n for n in model.inputs if n not in self.arrays]
        extra = [n for n in self.arrays if n not in model.inputs]
        if missing or extra:
            array_list = quote_names(self.arrays) or "nothing"
            raise CalibrationError(
                f"{error_prefix}: it names {array_list}. Name one array for each of {expected_inputs}."
            )
        for name in model.inputs:
            self._check_one(model, name, error_prefix)
        counts = {name: self._count_batches(model, name) for name in model.inputs}
        if len(set(counts.values())) > 1:
            array_list = ", ".join(f'"{name}" {shape_text(self.arrays[name].shape)}' for name in model.inputs)
            raise CalibrationError(
                f"{error_prefix}: its arrays {array_list} hold different numbers of samples. Give as many of each."
            )

    def _check_one(self, model: Model, name: str, error_prefix: str) -> None:
        array, value = self.arrays[name], model.values[name]
        dtype = NUMPY.get(value.dtype)
        if array.ndim == 0 or len(array) == 0:
            raise CalibrationError(f'{error_prefix}: array "{name}" has no samples. Give at least one.')
        if dtype is not None and str(array.dtype) != dtype:
            raise CalibrationError(
                f'{error_prefix}: array "{name}" is {array.dtype}, the input is {dtype}. Convert it, for example '
                f'data["{name}"].astype("{dtype}"), or pictures by Preprocessing(dtype="{dtype}").'
            )
        want = model.input_shape(name)
        # A dynamic first dimension may have any size.
        open_batch = bool(want) and not isinstance((value.shape or (0,))[0], int)
        if array.ndim == len(want) + 1:
            item = array.shape[2:] if open_batch else array.shape[1:]
            fits = item == (want[1:] if open_batch else want)
        else:
            fits = array.ndim == len(want) and array.shape[1:] == want[1:]
        if not fits:
            raise CalibrationError(
                f'{error_prefix}: array "{name}" has shape {shape_text(array.shape)}, the input takes '
                f"{shape_text(want)}. Put samples along the first axis: {shape_text(('N', *want[1:]))}."
            )
        # Pictures need not all be decoded beforehand.
        bad = not_finite(array[:1] if isinstance(array, Pictures) else array)
        if bad is not None:
            raise CalibrationError(
                f'{error_prefix}: array "{name}" has NaN or infinity in sample {bad}. Remove or repair that sample.'
            )

    def _step(self, model: Model, name: str) -> int:
        """How many rows of an array make one batch; 0 where each row is a whole input tensor."""
        shape = model.input_shape(name)
        return shape[0] if self.arrays[name].ndim == len(shape) else 0

    def _count_batches(self, model: Model, name: str) -> int:
        return len(self.arrays[name]) // (self._step(model, name) or 1)

    def samples_in(self, model: Model, batch: Batch) -> int:  # noqa: ARG002 - a stream needs it
        """How many samples a batch of ``batches`` holds: its first dimension, or one whole tensor per input."""
        return min((len(b) for n, b in batch.items() if b.ndim and self.arrays[n].ndim == b.ndim), default=1)

    def batches(
        self, model: Model, size: int | None = None, *, skip: int = 0, drop_last: bool = True
    ) -> Iterator[Batch]:
        """Batches in order; a model without inputs has one, the empty one.

        ``size`` is free where the batch of every input is dynamic and was not named; otherwise that of the graph, or
        the named one, is taken, and a last incomplete batch is left out unless ``drop_last`` is False. ``skip`` leaves
        out the first samples, as ``samples_in`` counts them, without reading them.

        Raises:
            CalibrationError: there are fewer samples than one batch.
        """
        if not model.inputs:
            yield {}
            return
        steps = {name: self._step(model, name) for name in model.inputs}
        free = model.free_batch and all(steps.values())
        count = len(self) if free else min(self._count_batches(model, name) for name in model.inputs)
        has_rest = not drop_last and len({*steps.values()}) == 1
        if count == 0 and not has_rest:
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
        each = min(filter(None, steps.values()), default=1)
        for k in range(skip // each, count):
            yield {
                name: np.asarray(
                    self.arrays[name][k * step : (k + 1) * step] if step else self.arrays[name][k]
                )
                for name, step in steps.items()
            }
        if has_rest and max(skip, count * each) < len(self):
            yield {name: np.asarray(self.arrays[name][count * each :]) for name in model.inputs}


@dataclasses.dataclass(frozen=True, eq=False)
class DetachedData(CalibrationData):
    """The samples of a saved study, which are not in its file: ``total`` of them are known, and ``digest`` of all."""

    total: int = 0
    digest: str = ""

    def __len__(self) -> int:
        return self.total

    def take(self, count: int) -> CalibrationData:
        """The first ``count`` samples."""
        return dataclasses.replace(self, total=min(count, self.total))

    def pick(self, rows: Sequence[int]) -> CalibrationData:
        """So many samples."""
        return dataclasses.replace(self, total=len(rows))

    def check(self, model: Model) -> None:
        """Nothing: they were checked before they were saved."""

    def part(self, index: int, count: int, *, model: Model | None = None) -> NoReturn:  # noqa: ARG002
        """Raise ``CalibrationError``: there are no samples."""
        raise self._missing_error()

    def samples_in(self, model: Model, batch: Batch) -> NoReturn:  # noqa: ARG002
        """Raise ``CalibrationError``: there are no samples."""
        raise self._missing_error()

    def batches(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ``CalibrationError``: there are no samples."""
        raise self._missing_error()

    def _missing_error(self) -> CalibrationError:
        return CalibrationError(
            f"Cannot read {self.source}: the study was saved without its samples. Open it with them, "
            "rtlab.open(path, data=...); where it is still at hand, save it with weights=True, which takes them along."
        )


def hash_samples(data: CalibrationData, model: Model) -> str:
    """SHA-256 of the names, types, shapes and numbers of samples; of a stream, of those at its start that it keeps."""
    if isinstance(data, DetachedData):
        return data.digest
    work = hashlib.sha256()
    if isinstance(data, SampleStream):
        arrays: Iterable[Batch] = data.take(CACHED_SAMPLES).batches(model)
    else:
        arrays = ({name: np.asarray(array)} for name, array in sorted(data.arrays.items()))
    for batch in arrays:
        for name, array in batch.items():
            work.update(f"{name} {array.dtype} {array.shape}".encode())
            work.update(np.ascontiguousarray(array).tobytes())
    return work.hexdigest()


def read_samples(path: Path, model: Model) -> CalibrationData:
    """Samples of a file; ``CalibrationError`` where it cannot be read or does not fit the model."""
    samples = CalibrationData.of(path, model=model)
    if len(samples.arrays) == len(model.inputs) == 1:
        arrays = dict(zip(model.inputs, samples.arrays.values(), strict=True))
        samples = dataclasses.replace(samples, arrays=arrays)
    samples.check(model)
    return samples


def _slice_rows(array: Any, first: int, last: int) -> Any:
    """Some of the samples, not read yet if they are pictures."""
    return array.part(first, last) if isinstance(array, Pictures) else array[first:last]


def _get_only_input(model: Model | None, what: str) -> str:
    """The name of the one input that unnamed samples are for."""
    if model is None:
        raise CalibrationError(
            f"Cannot use {what} as data: no model says which input it is for. Give model=."
        )
    if len(model.inputs) != 1:
        names = quote_names(model.inputs) or "none"
        raise CalibrationError(
            f'Cannot use {what} as data for model "{model.name}": its inputs are {names}. '
            "Give one array for each by name, {name: array}."
        )
    return model.inputs[0]


class SampleStream(CalibrationData):
    """Samples read from an iterable, of which only the first are kept.

    Items are checked as they come, so an error names the sample. Their shapes may differ where the graph's
    do. At least the first ``KEPT`` samples are kept, to whole items: ``take`` reads those again, always the
    same ones. A source that can be iterated anew is; a generator can be read once beyond the kept samples.

    ``count`` is None until the end was reached. ``len`` is an estimate before that: the limit of ``take``, the number
    of items times the samples in the first, or how many samples were read so far. Pickling carries the kept samples.
    """

    def __init__(self, feed: Feed, limit: int | None = None) -> None:
        super().__init__({}, feed.name, feed.synthetic)
        self._feed = feed
        self._limit = limit

    @classmethod
    def over(cls, source: Any, *, model: Model | None = None) -> SampleStream:
        """A stream over an iterable, or over what a function returns each time it is called."""
        feed = Feed(with_metadata(source, model), describe_source(source), synthetic=is_random_loader(source))
        if model is not None:
            feed.measure = Inputs(model).size
        return cls(feed)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        count = self.count
        if count is not None:
            return count
        guesses = [n for n in (self._limit, self._feed.expected_count) if n is not None]
        return min(guesses, default=self._feed.samples_read)

    def __repr__(self) -> str:
        count = self.count
        return f"<CalibrationData stream of {'?' if count is None else count} samples from {self.source}>"

    @property
    def count(self) -> int | None:
        """Number of samples, None until the end was reached."""
        feed, limit = self._feed, self._limit
        if feed.total is not None:
            return feed.total if limit is None else min(limit, feed.total)
        return limit if limit is not None and feed.samples_read >= limit else None

    def take(self, count: int) -> SampleStream:
        """The first ``count`` samples; of a generator that was read already, those of them that were kept."""
        count = count if self._limit is None else min(count, self._limit)
        return SampleStream(self._feed, self._feed.reserve(count))

    def part(self, index: int, count: int, *, model: Model | None = None) -> CalibrationData:  # noqa: ARG002 - none can be
        """Raise ``CalibrationError``: a stream is read from front to back."""
        raise CalibrationError(
            f"Cannot take part {index} of {count} of {self.source}: it is read from front to back. Give "
            "arrays, an .npy file or a folder, or give each worker a stream of its own and merge the ranges."
        )

    def pick(self, rows: Sequence[int]) -> CalibrationData:
        """The samples at these rows of the arrays, in this order; a stream has none."""
        arrays = {
            k: np.stack([np.asarray(a[i]) for i in rows]) if isinstance(a, Pictures) else a[list(rows)]
            for k, a in self.arrays.items()
        }
        return dataclasses.replace(self, arrays=arrays)

    def check(self, model: Model) -> None:
        """Raise ``CalibrationError`` unless the first item fits the model."""
        if model.inputs and next(self._items(model), None) is None:
            raise CalibrationError(
                f'Cannot use {self.source} as data for model "{model.name}": it has no samples. '
                "Give at least one."
            )

    def samples_in(self, model: Model, batch: Batch) -> int:
        """How many samples a batch of ``batches`` holds."""
        return Inputs(model).samples(batch)

    def batches(
        self, model: Model, size: int | None = None, *, skip: int = 0, drop_last: bool = True
    ) -> Iterator[Batch]:
        """Batches in order; a model without inputs has one, the empty one.

        Where the batch dimension of every input is dynamic, neighbours of one shape are joined and cut to
        ``size``; by default items stay as they come. A batch that the graph fixes is filled from the samples in
        order, and a last incomplete one is left out unless ``drop_last`` is False. After a stop, a pass over a
        generator continues with ``skip``, the number of samples that were used: items that were read ahead of them are
        kept.

        Raises:
            CalibrationError: an item does not fit, the source raised, or it cannot be read again.
        """
        if not model.inputs:
            yield {}
            return
        inputs = Inputs(model)
        batch_size = inputs.fixed or (size if inputs.free else None)
        has_batches = False
        items = self._items(model, skip=skip, window=AHEAD * (batch_size or 1))
        for batch in cut_batches(items, batch_size, self.source, drop_last=drop_last and bool(inputs.fixed)):
            has_batches = True
            yield batch
        if not has_batches and not skip:
            step = inputs.fixed or 1
            raise CalibrationError(
                f'Cannot cut {self.source} into batches for model "{model.name}": {self._feed.samples_read} samples '
                f"are fewer than one batch of {step}. Give at least {step} samples."
            )

    def _items(self, model: Model, *, skip: int = 0, window: int = AHEAD) -> Iterator[Batch]:
        """Items with names, checked, from sample ``skip`` up to the limit."""
        inputs = Inputs(model)
        for first, item in self._feed.read(inputs.size, self._limit, skip=skip, window=window):
            if self._limit is not None and first >= self._limit:
                return
            if first < skip and first + inputs.size(item) <= skip:
                continue
            batch = inputs.name_arrays(item, first, self.source)
            if inputs.batched:
                last = None if self._limit is None else self._limit - first
                batch = {name: array[max(0, skip - first) : last] for name, array in batch.items()}
            yield batch
            if self._limit is not None and first + inputs.size(item) >= self._limit:
                return
