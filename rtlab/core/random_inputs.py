"""Random inputs that a model takes: noise, and for a language model token ids, masks, positions and a cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.arrays import NUMPY
from rtlab.core.input_names import is_mask, is_of_encoder, is_past, is_positions, marks_padding
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.input_uses import MaskUse
    from rtlab.core.model import Model

#: Bytes of random samples in all, and of one inference.
_MOST, _MOST_OF_ONE = 256 << 20, 4 << 30
#: Random numbers that are drawn in one piece, in float64.
_PIECE = 1 << 18
#: Samples after which padding repeats, so that so many caches suffice for all.
PERIOD = 4
#: The part of a sequence up to which it is padding.
_PADDED = 1 / 4
#: What is added to the score of a token that does not count: finite in FP16, and nothing after a softmax.
_BLOCKED = -1e4


def list_past(model: Model) -> tuple[str, ...]:
    """The inputs that hold keys and values of the tokens before."""
    return tuple(n for n in model.inputs if is_past(n) and len(model.values[n].shape or ()) > 2)


def find_past_axis(model: Model, name: str) -> int:
    """The dimension of keys or values along which tokens lie: the one whose symbol says so, else the last but one."""
    shape = model.values[name].shape or ()
    return next((axis for axis, d in enumerate(shape) if isinstance(d, str) and "past" in d), len(shape) - 2)


def make_samples(model: Model, samples: int, seed: int, *, leading: bool | None = None) -> dict[str, Any]:
    """Random samples for inputs, in whole batches, of at most 256 MiB or one batch.

    Floating inputs are normal noise, others zeros and ones, but for what a language model reads: ids are below the rows
    of the table from which the graph picks by them, masks leave out up to a quarter of a sequence in all but every
    fourth sample, positions count the tokens that the mask leaves, keys and values are zeros. ``leading`` puts padding
    in front, as it is by default where there are tokens before.

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
    period = -(-PERIOD // (batch or 1)) * (batch or 1)
    sequences = _Sequences(model, shapes, (count, period), seed, batched=batch is not None, leading=leading)
    for name, array in arrays.items():
        if sequences.fill(name, array):
            continue
        rows = max(1, _PIECE // max(1, array[:1].size))
        for part in (array[first : first + rows] for first in range(0, count, rows)):
            floating = array.dtype.kind == "f" and not sequences.rows.get(name)
            limit = sequences.rows.get(name, 2)
            part[...] = rng.standard_normal(part.shape) if floating else rng.integers(0, limit, part.shape)
    return arrays


class _Sequences:
    """Masks, positions and caches of all samples, which agree on the tokens before and on padding.

    ``batched`` says that samples lie along the first dimension of every input, else each has a dimension before it.
    """

    def __init__(
        self,
        model: Model,
        shapes: dict[str, tuple[int, ...]],
        samples: tuple[int, int],
        seed: int,
        *,
        batched: bool,
        leading: bool | None,
    ) -> None:
        uses = model.input_uses
        self._batched = batched
        self._past_inputs = list_past(model)
        decoded = [n for n in self._past_inputs if not is_of_encoder(n)]
        #: Tokens before those of this inference.
        self._past = shapes[decoded[0]][find_past_axis(model, decoded[0])] if decoded else 0
        self._leading = self._past > 0 if leading is None else leading
        #: The rows of the table from which an input picks.
        self.rows = {n: rows for n in shapes if (rows := uses.count_rows(n)) is not None}
        self._masks = {n: use for n in shapes if (use := self._find_mask_use(model, n)) is not None}
        count, period = samples
        rows = 1 if batched else max((s[0] for s in shapes.values() if s), default=1)
        fractions = np.random.default_rng((seed, 1)).random((period, rows))
        fractions[0] = 0
        self._fractions = fractions[np.arange(count) % period]

    def _find_mask_use(self, model: Model, name: str) -> MaskUse | None:
        """How an input masks tokens, as the graph shows or else its name says; None where it does not."""
        floating = model.values[name].dtype.startswith(("fp", "bf"))
        if name in self.rows or is_positions(name) or (floating and not is_mask(name)):
            return None
        if (use := model.input_uses.find_mask_use(name)) is not None or floating:
            return use or ("keeps" if "attention_mask" in name else None)
        return "blocks" if marks_padding(name) else "keeps" if is_mask(name) else None

    def fill(self, name: str, array: NDArray[Any]) -> bool:
        """Fill an array with what an input takes in all samples; whether it is none for which numbers are drawn."""
        if name in self._past_inputs:
            array[...] = 0
        elif name == "use_cache_branch":
            array[...] = self._past > 0
        elif name in self._masks:
            self._fill_mask(name, array)
        elif is_positions(name) and array.dtype.kind in "iu":
            self._fill_positions(name, array)
        else:
            return False
        return True

    def _fill_mask(self, name: str, array: NDArray[Any]) -> None:
        length = array.shape[-1] if array.ndim > 1 else 1
        # A mask of the new tokens alone has no room for padding before them.
        has_room = not self._past or length > self._past
        leading = self._leading and has_room and not is_of_encoder(name)
        pads = self._compute_pads(array, self._past if leading and self._past else length, 1)
        tokens = np.arange(length)
        keeps = tokens >= pads if leading else tokens < length - pads
        queries = array.shape[-2] if array.ndim > (2 if self._batched else 3) else 1
        if queries > 1 and self._past_inputs and not is_of_encoder(name):
            keeps = keeps & (tokens <= np.arange(queries)[:, None] + length - queries)
        use = self._masks[name]
        array[...] = np.where(keeps, 0, _BLOCKED) if use == "added" else keeps == (use == "keeps")

    def _fill_positions(self, name: str, array: NDArray[Any]) -> None:
        has_tokens = array.ndim > 1
        length = array.shape[-1] if has_tokens else 1
        tokens = np.arange(length) if has_tokens else 0
        if "cache" in name:
            positions = self._past + tokens
        elif self._leading:
            positions = np.maximum(
                self._past + tokens - self._compute_pads(array, self._past or length, -2), 0
            )
        else:
            positions = np.minimum(tokens, length - 1 - self._compute_pads(array, length, -2))
        array[...] = np.minimum(positions, self.rows.get(name, length + self._past) - 1)

    def _compute_pads(self, array: NDArray[Any], span: int, axis: int) -> NDArray[np.int64]:
        """The tokens of each sequence that are padding, at most a part of ``span``; ``axis`` has the batch."""
        pads = np.floor(self._fractions * (int(span * _PADDED) + 1)).astype(np.int64)
        shape = [1] * array.ndim
        shape[0] = len(array)
        if self._batched or array.ndim < 3:
            return pads[:, 0].reshape(shape)
        shape[axis] = array.shape[axis]
        return pads[:, : shape[axis]].reshape(shape)
