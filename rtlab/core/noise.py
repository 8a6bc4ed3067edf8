"""Random samples that are drawn when they are read."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.arrays import NUMPY
from rtlab.core.lazy import LazyArray
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: Bytes of random samples up to which all are drawn at once.
_AT_ONCE = 4 << 20
#: Bytes of random samples in all.
_MOST = 4 << 30
#: Numbers that are drawn in one piece; between two of them, other threads have their turn.
_PIECE = 1 << 18
#: Held while numbers are drawn: several inputs share one generator.
_LOCK = threading.RLock()


class Noise:
    """Normal noise for one input, or zeros and ones for a type that is not floating, drawn sample by sample.

    Its numbers are those of one call of NumPy's generator, which draws all of ``before`` first. ``drawn`` is how many
    samples there are so far.
    """

    def __init__(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], before: Noise | None
    ) -> None:
        self.shape, self.dtype, self.drawn = shape, dtype, 0
        self._rng, self._before = rng, before
        self._array: NDArray[Any] | None = None

    def read(self, rows: range) -> NDArray[Any]:
        """These samples, drawn now if need be."""
        return self.draw(rows.stop if rows else 0)[rows.start : rows.stop]

    def draw(self, count: int) -> NDArray[Any]:
        """The whole array, with at least so many of its samples drawn."""
        with _LOCK:
            if self._array is None:
                # Memory that is not written yet takes none.
                self._array = np.empty(self.shape, self.dtype)
            if count > self.drawn and self._before is not None:
                self._before.draw(self._before.shape[0])
            step = max(1, _PIECE // max(1, self._array[:1].size))
            while self.drawn < count:
                until = min(count, self.drawn + step)
                size = (until - self.drawn, *self.shape[1:])
                floating = self.dtype.kind == "f"
                self._array[self.drawn : until] = (
                    self._rng.standard_normal(size) if floating else self._rng.integers(0, 2, size)
                )
                self.drawn = until
            return self._array

    def __getstate__(self) -> dict[str, object]:
        with _LOCK:
            # Elsewhere they are drawn from here on, and what is drawn goes along.
            return {**self.__dict__, "_array": None if self._array is None else self._array[: self.drawn]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if (first := state["_array"]) is not None:
            self._array = np.empty(self.shape, self.dtype)
            self._array[: len(first)] = first


def make_noise(
    array_specs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], seed: int
) -> dict[str, LazyArray]:
    """Noise by name, each of a shape and a type; all of it from one generator, one array after the other."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, LazyArray] = {}
    noise: Noise | None = None
    for name, (shape, dtype) in array_specs.items():
        noise = Noise(rng, shape, dtype, noise)
        arrays[name] = LazyArray(noise)
    return arrays


def make_samples(model: Model, samples: int, seed: int) -> dict[str, Any]:
    """Random samples for inputs, in whole batches, lazy where large; ``CalibrationError`` for a batch over 4 GiB."""
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
    specs = {n: ((count, *s[1:]) if batch else (count, *s), types[n]) for n, s in shapes.items()}
    arrays = make_noise(specs, seed)
    if sum(math.prod(size) * dtype.itemsize for size, dtype in specs.values()) <= _AT_ONCE:
        return {name: np.asarray(noise) for name, noise in arrays.items()}
    return {**arrays}
