"""Streams of samples: DataLoaders, generators, feed dictionaries."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.arrays import NUMPY, Batch, not_finite, to_numpy
from rtlab.core.phrases import quote_names
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError, RtlabError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model

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
            raise CalibrationError(
                f"{error_prefix}: it gives {have}, the inputs are {self._describe_inputs()}. Yield a mapping from "
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

    def _describe_inputs(self) -> str:
        return ", ".join(f'"{n}" {self.dtypes[n] or ""} {shape_text(s)}' for n, s in self.shapes.items())


class Feed:
    """The items of an iterable; the first of them are kept, so that several readers can have those.

    ``samples_read`` is how many were read so far, ``total`` the number of samples, None until the end was reached, and
    ``measure`` returns how many are in an item.
    """

    def __init__(self, source: Any, name: str) -> None:
        self.name = name
        self.samples_read = 0
        self.total: int | None = None
        self.measure: Callable[[_Item], int] = lambda _: 1
        self._source = source
        #: All samples of an iterator, which can be read once.
        self._keep = math.inf if isinstance(source, Iterator) else CACHED_SAMPLES
        self._cache: list[_Item] = []
        self._sizes: list[int] = []
        # At the first item that is not kept, until a reader goes on from there; "past" is True from then on.
        self._iterator: Iterator[Any] | None = None
        self._past = False
        self._failure: CalibrationError | None = None
        self._lock = threading.RLock()

    @property
    def expected_count(self) -> int | None:
        """Samples if every item is as large as the first, where the source has a length."""
        with contextlib.suppress(Exception):  # of a source without a length
            return len(self._source) * self._sizes[0]
        return None

    def read(self, size: Callable[[_Item], int], limit: int | None) -> Iterator[tuple[int, _Item]]:
        """Every item from the first on, with the number of its first sample.

        Args:
            size: Returns how many samples are in an item.
            limit: Samples that the reader needs; None for all.
        """
        with self._lock:
            self.measure = size
            enough = limit is not None and limit <= sum(self._sizes)
        position = first = 0
        # A source that can be iterated anew may give another order, which the kept samples are no part of.
        if enough or not self._past:
            while self._is_cached(position):
                yield first, self._cache[position]
                first += self._sizes[position]
                position += 1
        if self.total is not None and position == len(self._cache) and self.total == first:
            return
        for item in self._pull(self._continue(position), first):
            yield first, item
            first += size(item)
            self.samples_read = max(self.samples_read, first)
        self.total = first

    def _continue(self, position: int) -> Iterator[Any]:
        """An iterator over the items after the first ``position`` ones."""
        with self._lock:
            iterator = self._iterator or self._open()
            if self._past:
                next(itertools.islice(iterator, position, position), None)
            self._iterator, self._past = None, True
            return iterator

    def __reduce__(self) -> tuple[object, ...]:
        while self._is_cached(len(self._cache)):
            pass
        return _restore, (self.name, self._cache, self._sizes)

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


def _restore(name: str, cache: list[_Item], sizes: list[int]) -> Feed:
    feed = Feed(None, name)
    feed._cache, feed._sizes = cache, sizes  # noqa: SLF001 - of its own pickle
    feed.samples_read = feed.total = sum(sizes)
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
    """Join and cut neighbours of one shape to ``size``; ``drop_last`` leaves out an incomplete last batch."""
    if size is None:
        yield from items
        return
    pending: list[Batch] = []
    shape: list[tuple[int, ...]] = []
    count = done = 0
    try:
        for item in items:
            item_shape = [a.shape[1:] for a in item.values()]
            if count and item_shape != shape:
                if drop_last:
                    raise CalibrationError(  # noqa: TRY301 - passes the handler below
                        f"Cannot fill a batch of {size} from {source}: sample {done + count} has another shape than "
                        "the samples before it. Yield whole batches of one shape each."
                    )
                yield _concatenate(pending)
                done, count, pending = done + count, 0, []
            shape = item_shape
            pending.append(item)
            count += len(next(iter(item.values())))
            if count >= size:
                full = _concatenate(pending)
                for start in range(0, count - size + 1, size):
                    yield {name: array[start : start + size] for name, array in full.items()}
                done, count = done + count // size * size, count % size
                rest = {name: array[len(array) - count :] for name, array in full.items()}
                pending = [rest] if count else []
    except CalibrationError:
        # Samples before one that cannot be read count.
        if count and not drop_last:
            yield _concatenate(pending)
        raise
    if count and not drop_last:
        yield _concatenate(pending)


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
