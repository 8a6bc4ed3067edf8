"""Random samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.arrays import NUMPY
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: Bytes of random samples in all, and of one inference.
_MOST, _MOST_OF_ONE = 256 << 20, 4 << 30
#: Numbers that are drawn in one piece, in float64.
_PIECE = 1 << 18


def make_samples(model: Model, samples: int, seed: int) -> dict[str, NDArray[Any]]:
    """Random samples for inputs, in whole batches, of at most 256 MiB or one batch.

    Raises:
        CalibrationError: an inference reads more than 4 GiB.
    """
    shapes = {name: model.input_shape(name) for name in model.inputs}
    types = {name: np.dtype(NUMPY.get(model.values[name].dtype, "float32")) for name in shapes}
    batches = {shape[0] if shape else None for shape in shapes.values()}
    batch = next(iter(batches)) if len(batches) == 1 else None
    # Of one batch as the graph has it; where each sample is a batch, that of one sample.
    sizes = {name: math.prod(shape) * types[name].itemsize for name, shape in shapes.items()}
    total = sum(sizes.values())
    if total > _MOST_OF_ONE:
        largest = max(sizes, key=sizes.__getitem__)
        raise CalibrationError(
            f'Cannot draw random samples for model "{model.name}": an inference reads {total / 2**30:,.3g} GiB, the '
            f'most of it by the input "{largest}" ({shape_text(shapes[largest])}), and at most {_MOST_OF_ONE >> 30} '
            f'GiB are drawn. Name smaller sizes, rtlab.load(..., shapes={{"{largest}": (...)}}), or give data of your '
            "own."
        )
    count = min(-(-samples // (batch or 1)), max(1, _MOST // max(1, total))) * (batch or 1)
    rng = np.random.default_rng(seed)
    arrays = {n: np.empty((count, *s[1:]) if batch else (count, *s), types[n]) for n, s in shapes.items()}
    for array in arrays.values():
        rows = max(1, _PIECE // max(1, array[:1].size))
        for part in (array[first : first + rows] for first in range(0, count, rows)):
            floating = array.dtype.kind == "f"
            part[...] = rng.standard_normal(part.shape) if floating else rng.integers(0, 2, part.shape)
    return arrays
