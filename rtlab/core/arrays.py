"""Arrays that a model reads, whatever package they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Named arrays for one inference, each of the model's input shape.
Batch = Mapping[str, "NDArray[Any]"]

#: Elements that are looked at in one piece, so that a file larger than memory can be checked.
_PIECE = 1 << 22

#: NumPy's name of each type that an input may have, by rtlab's.
NUMPY = {
    "fp32": "float32",
    "fp16": "float16",
    "fp64": "float64",
    "bool": "bool",
    **{f"{u}int{b}": f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)},
}


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
