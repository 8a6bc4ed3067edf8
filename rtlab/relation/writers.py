"""Which layers write what a layer reads, where an engine uses the names of its tensors again."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable

from rtlab.core.engine import Engine, Tensor


class Writers:
    """The writers of every tensor of an engine, in order of execution.

    A compiler writes a buffer again under one name, and lets several layers write parts of one tensor. A reader gets
    the last writer before it, and those before that one as far as the sizes say that the last did not write the whole;
    where these are not known or do not add up, all that wrote since the last reading. Where all writers come later, the
    last of them: what a loop carries to its next turn.
    """

    def __init__(self, engine: Engine) -> None:
        self._layers = engine.layers
        self._inputs = {t.name for t in engine.inputs}
        self._writes = _index_positions(layer.outputs for layer in engine.layers)

    @functools.cached_property
    def _reads(self) -> dict[str, list[int]]:
        return _index_positions(layer.inputs for layer in self._layers)

    def of(self, position: int, tensor: Tensor) -> tuple[int, ...]:
        """Positions of the layers that write what is read at ``position``, in order; outputs are read at the end."""
        writes = self._writes.get(tensor.name, []) if tensor.name else []
        end = bisect.bisect_left(writes, position)
        if end == 1:
            return (writes[0],)
        if not end:
            loop_writers = [w for w in writes[-2:] if w != position]
            return () if tensor.name in self._inputs else tuple(loop_writers[-1:])
        first = self._find_complete_write(tensor, end)
        return tuple(writes[self._find_version(tensor.name, end) if first is None else first : end])

    def before(self, position: int) -> tuple[int, ...]:
        """Positions of the layers before one that write what it reads, in their order; no turn of a loop to come."""
        writer_groups = (self.of(position, tensor) for tensor in self._layers[position].inputs)
        return tuple(sorted({w for writers in writer_groups for w in writers if w < position}))

    def _find_complete_write(self, tensor: Tensor, end: int) -> int | None:
        """The first of the fewest writes up to ``end`` that together write as much as is read."""
        read_size = _count_elements(tensor)
        if read_size is None:
            return None
        writes, written = self._writes[tensor.name], 0
        for first in range(end - 1, -1, -1):
            size = _count_elements({t.name: t for t in self._layers[writes[first]].outputs}[tensor.name])
            if size is None:
                return None
            written += size
            if written >= read_size:
                return first
        return None

    def _find_version(self, name: str, end: int) -> int:
        """The first of the writes up to ``end`` that no reading parts from the last of them."""
        writes, reads = self._writes[name], self._reads.get(name, [])
        before = bisect.bisect_right(reads, writes[end - 1]) - 1
        # A layer that reads what it writes, reads first: that reading belongs to the version before.
        return 0 if before < 0 else bisect.bisect_left(writes, reads[before])


def _index_positions(sides: Iterable[tuple[Tensor, ...]]) -> dict[str, list[int]]:
    """The positions at which each tensor stands, once each."""
    table: dict[str, list[int]] = {}
    for position, tensors in enumerate(sides):
        for tensor in tensors:
            positions = table.get(tensor.name)
            if positions is None:
                table[tensor.name] = [position]
            elif positions[-1] != position:
                positions.append(position)
    return table


def _count_elements(tensor: Tensor) -> int | None:
    if tensor.shape is None or min(tensor.shape, default=0) < 0:
        return None
    return math.prod(tensor.shape)
