"""How many bytes a tensor of an engine takes in memory, at a batch of one's choice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rtlab.core.engine import Engine, Tensor
from rtlab.core.model import Model
from rtlab.core.value import shape_text
from rtlab.core.whole import whole
from rtlab.errors import VariantError
from rtlab.questions.reformats.reasons import packed
from rtlab.relation import footprint as memory


class Extents:
    """Sizes of the tensors of one engine.

    ``own`` is the batch that the engine is built for, None where its inputs do not have one in common; ``batch`` the
    one that is asked for. A dimension that the compiler left open has the size of the built model's value of that
    name (``Model.sizes``); else the first is the batch, and the others have the one size that the inputs give to open
    dimensions.
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
        known = dict(memory.sizes(built)) | dict(sizes or {})
        self._known = known
        self._values = built.values
        opened = {
            dim: known[dim]
            for name in built.inputs
            for dim in (built.values[name].shape or ())[:1]
            if isinstance(dim, str) and dim in known
        }
        if self.dynamic:
            self.own: int | None = next(iter(opened.values()), 1)
        else:
            self.own = next(iter(first)) if len(first) == 1 else None
        self.batch = self.own if batch is None else whole(batch, "Cannot plan memory for", "batch")
        if self.own is None and batch is not None:
            raise VariantError(
                f'Cannot plan memory for batch "{batch}": the inputs of the engine have the first dimensions '
                f"{', '.join(str(n) for n in first) or 'none'}. Leave the batch out."
            )
        if self.dynamic and self.batch is not None:
            self._known |= dict.fromkeys(opened, self.batch)
        given = dataclasses.replace(built, shapes={**built.shapes, **(sizes or {})})
        self._sizes = (given if sizes else built).sizes(batch=self.batch if self.dynamic else None)
        others = {size for dim, size in known.items() if dim not in opened}
        self._other = next(iter(others)) if len(others) == 1 else None
        self.open = tuple(t for t in engine.inputs if t.shape is not None and self.shape(t) is None)

    @property
    def scaled(self) -> bool:
        """Whether fixed shapes are taken as if the engine were built for another batch."""
        return not self.dynamic and self.batch != self.own

    def shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """All dimensions; None where one is not known."""
        if tensor.shape is None:
            return None
        if min(tensor.shape, default=0) >= 0:
            return tensor.shape
        told = self._sizes.get(tensor.name)
        fits = told is not None and len(told) == len(tensor.shape)
        if fits and all(size in {-1, of} for size, of in zip(tensor.shape, told or (), strict=True)):
            return told
        value = self._values.get(tensor.name)
        named: Sequence[int | str | None] = () if value is None else value.shape or ()
        if len(named) != len(tensor.shape):
            named = (None,) * len(tensor.shape)
        found = [
            size if size >= 0 else self._size(axis, name)
            for axis, (size, name) in enumerate(zip(tensor.shape, named, strict=True))
        ]
        complete = tuple(size for size in found if size is not None)
        return complete if len(complete) == len(found) else None

    def _size(self, axis: int, name: int | str | None) -> int | None:
        if isinstance(name, int):
            return name
        if name in self._known:
            return self._known[name]
        return self.batch if axis == 0 and self.dynamic else self._other

    def nbytes(self, tensor: Tensor) -> int | None:
        """Bytes with what the layout adds: channels padded to a multiple, strides wider than the shape."""
        shape = self.shape(tensor)
        if shape is None:
            return None
        pack = packed(tensor)
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
        return bool(self.own and tensor.shape and tensor.shape[0] % self.own == 0)

    def most(self, mentions: Iterable[Tensor], *, scaled: bool = False) -> int | None:
        """Bytes of the largest of several mentions of one tensor; None where none has a known size.

        With ``scaled``, as many times as large as the batch that is asked for is larger than the engine's own.
        """
        found = max((n for t in mentions if (n := self.nbytes(t)) is not None), default=None)
        if found is None or not scaled or not self.own or not self.batch:
            return found
        return -(-found * self.batch // self.own)


def unresolved(extents: Extents) -> VariantError:
    """What to say where inputs of an engine have dimensions of unknown size."""
    tensor = extents.open[0]
    shape = tensor.shape or ()
    example = tuple(d if d >= 0 else 1 for d in shape)
    return VariantError(
        f'Cannot plan memory: input "{tensor.name}" has the shape {shape_text(shape)}, and a dimension other than the '
        f"first is open. Name the sizes, for example "
        f'rtlab.load(..., shapes={{"{tensor.name}": {example}}}).'
    )
