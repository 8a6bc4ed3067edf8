"""How many bytes a tensor of an engine takes in memory, at a batch of one's choice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rtlab.analyses.reformats.reasons import get_channel_multiple
from rtlab.core.engine import Engine, Tensor
from rtlab.core.model import Model
from rtlab.core.validation import validate_integer
from rtlab.core.value import shape_text
from rtlab.errors import VariantError
from rtlab.relation import footprint as memory


class Extents:
    """Sizes of the tensors of one engine.

    ``engine_batch`` is the batch that the engine is built for, None where its inputs do not have one in common;
    ``batch`` the one that is asked for. A dimension that the compiler left open has the size of the built model's value
    of that name (``Model.sizes``); else the first is the batch, and the others have the one size that the inputs give
    to open dimensions.
    Fixed shapes stay as they are: ``scaled`` says that another batch is asked for.

    Raises:
        VariantError: the batch is less than 1, or the engine has none to choose.
    """

    def __init__(
        self,
        engine: Engine,
        built: Model,
        *,
        batch: int | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        first = Counter(t.shape[0] for t in engine.inputs if t.shape)
        self.dynamic = -1 in first
        dim_sizes = dict(memory.sizes(built)) | dict(sizes or {})
        self._dim_sizes = dim_sizes
        self._values = built.values
        opened = {
            dim: dim_sizes[dim]
            for name in built.inputs
            for dim in (built.values[name].shape or ())[:1]
            if isinstance(dim, str) and dim in dim_sizes
        }
        if self.dynamic:
            self.engine_batch: int | None = next(iter(opened.values()), 1)
        else:
            self.engine_batch = next(iter(first)) if len(first) == 1 else None
        self.batch = (
            self.engine_batch if batch is None else validate_integer(batch, "Cannot plan memory for", "batch")
        )
        if self.engine_batch is None and batch is not None:
            raise VariantError(
                f'Cannot plan memory for batch "{batch}": the inputs of the engine have the first dimensions '
                f"{', '.join(str(n) for n in first) or 'none'}. Leave the batch out."
            )
        if self.dynamic and self.batch is not None:
            self._dim_sizes |= dict.fromkeys(opened, self.batch)
        resized_model = dataclasses.replace(built, shapes={**built.shapes, **(sizes or {})})
        self._sizes = (resized_model if sizes else built).sizes(batch=self.batch if self.dynamic else None)
        others = {size for dim, size in dim_sizes.items() if dim not in opened}
        self._other = next(iter(others)) if len(others) == 1 else None
        self.open = tuple(t for t in engine.inputs if t.shape is not None and self.shape(t) is None)

    @property
    def scaled(self) -> bool:
        """Whether fixed shapes are taken as if the engine were built for another batch."""
        return not self.dynamic and self.batch != self.engine_batch

    def shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """All dimensions; None where one is not known."""
        if tensor.shape is None:
            return None
        if min(tensor.shape, default=0) >= 0:
            return tensor.shape
        resolved_shape = self._sizes.get(tensor.name)
        fits = resolved_shape is not None and len(resolved_shape) == len(tensor.shape)
        if fits and all(
            size in {-1, of} for size, of in zip(tensor.shape, resolved_shape or (), strict=True)
        ):
            return resolved_shape
        value = self._values.get(tensor.name)
        named: Sequence[int | str | None] = () if value is None else value.shape or ()
        if len(named) != len(tensor.shape):
            named = (None,) * len(tensor.shape)
        dims = [
            size if size >= 0 else self._size(axis, name)
            for axis, (size, name) in enumerate(zip(tensor.shape, named, strict=True))
        ]
        complete = tuple(size for size in dims if size is not None)
        return complete if len(complete) == len(dims) else None

    def _size(self, axis: int, name: int | str | None) -> int | None:
        if isinstance(name, int):
            return name
        if name in self._dim_sizes:
            return self._dim_sizes[name]
        return self.batch if axis == 0 and self.dynamic else self._other

    def nbytes(self, tensor: Tensor) -> int | None:
        """Bytes with what the layout adds: channels padded to a multiple, strides wider than the shape."""
        shape = self.shape(tensor)
        if shape is None:
            return None
        pack = get_channel_multiple(tensor)
        if pack > 1 and len(shape) > 1:
            dense = memory.nbytes(tensor.dtype, (shape[0], -(-shape[1] // pack) * pack, *shape[2:]))
        else:
            dense = memory.nbytes(tensor.dtype, shape)
        strides = tensor.strides
        if dense is None or strides is None or len(strides) != len(shape) or 0 in shape:
            return dense
        reach = max((d * s for d, s in zip(shape, strides, strict=True) if d > 1), default=1)
        return max(dense, memory.nbytes(tensor.dtype, (reach,)) or 0)

    def has_batch(self, tensor: Tensor) -> bool:
        """Whether the first dimension is a multiple of the batch that the engine is built for."""
        return bool(self.engine_batch and tensor.shape and tensor.shape[0] % self.engine_batch == 0)

    def max_nbytes(self, mentions: Iterable[Tensor], *, scaled: bool = False) -> int | None:
        """Bytes of the largest of several mentions of one tensor; None where none has a known size.

        With ``scaled``, as many times as large as the batch that is asked for is larger than the engine's own.
        """
        largest_nbytes = max((n for t in mentions if (n := self.nbytes(t)) is not None), default=None)
        if largest_nbytes is None or not scaled or not self.engine_batch or not self.batch:
            return largest_nbytes
        return -(-largest_nbytes * self.batch // self.engine_batch)


def make_open_shape_error(extents: Extents) -> VariantError:
    """What to say where inputs of an engine have dimensions of unknown size."""
    tensor = extents.open[0]
    shape = tensor.shape or ()
    example = tuple(d if d >= 0 else 1 for d in shape)
    return VariantError(
        f'Cannot plan memory: input "{tensor.name}" has the shape {shape_text(shape)}, and a dimension other than the '
        f"first is open. Name the sizes, for example "
        f'rtlab.load(..., shapes={{"{tensor.name}": {example}}}).'
    )
