"""A plan of an engine's memory: every tensor with its lifetime and an address, the peak, and what bounds it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from rtlab.analyses.reformats.reasons import get_channel_multiple
from rtlab.core.collector import pause_collector
from rtlab.core.engine import DTYPES, Allocation, Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.schema import Origin
from rtlab.core.validation import validate_integer
from rtlab.core.value import describe, shape_text
from rtlab.errors import VariantError
from rtlab.relation import footprint
from rtlab.relation.dataflow import Writers, work

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Whose memory a tensor lives in: the engine's own, or what the caller binds; a constant is part of the weights.
Place = Literal["arena", "input", "output", "constant"]
_JUMPS = frozenset({"jmp", "cjmp"})
#: By stream, how many of its steps are done.
Clock = tuple[int, ...]
#: A name and the first step that writes it, -1 for what no step writes.
_Key = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Life:
    """One tensor, from its first step to its last; all are positions in ``Engine.layers``.

    ``mentions`` are the tensor as its writers and readers name it, the same or parts of it, each once. ``id`` is its
    name, numbered from the second tensor of that name on. ``first`` and ``last`` are in the order of issue: the first
    step that names it, and the last that needs it. It is needed when what ``start`` says is done on every stream, and
    free when all that ``end`` says is done.
    """

    id: str
    name: str
    place: Place
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    mentions: tuple[Tensor, ...]
    first: int
    last: int
    start: Clock
    end: Clock

    def frees(self, other: Life) -> bool:
        """Whether every step that names this tensor is done before any that names ``other`` begins."""
        return all(e <= s for e, s in zip(self.end, other.start, strict=True))


def compute_clocks(engine: Engine, writers: Writers) -> list[Clock]:
    """What is done on every stream before each step begins, in the order of ``sorted`` stream numbers.

    The order is that of each stream, a signal before the wait for its event, and a writer before its reader: a
    compiler orders the latter two by events even where its files do not list them.
    """
    lanes = _number_lanes(engine)
    at = [[0] * len(lanes) for _ in lanes]
    signalled: dict[int | None, Clock] = {}
    before: list[Clock] = []
    after: list[Clock] = []
    for position, layer in enumerate(engine.layers):
        lane = lanes[layer.stream]
        predecessor_clocks = [after[w] for w in writers.before(position)]
        if layer.kind == "wait" and layer.event in signalled:
            predecessor_clocks.append(signalled[layer.event])
        now = [max(parts) for parts in zip(at[lane], *predecessor_clocks, strict=True)]
        before.append(tuple(now))
        now[lane] += 1
        at[lane] = now
        after.append(tuple(now))
        if layer.kind == "signal" and layer.event is not None:
            signalled[layer.event] = after[-1]
    return before


def _number_lanes(engine: Engine) -> dict[int, int]:
    return {stream: i for i, stream in enumerate(sorted({layer.stream for layer in engine.layers}))}


def compute_lifetimes(engine: Engine, *, one_stream: bool = False) -> tuple[Life, ...]:
    """Every tensor of an engine, by its first step.

    Names that a compiler uses again are tensors of their own; what several layers write in parts, such as the inputs
    of a concatenation that it eliminated, is one tensor, and so is what a layer without work (NoOp) only renames. A
    tensor that is read in a loop, and written before it, lives to the loop's end.

    Args:
        engine: With tensors; layers without any give an empty answer.
        one_stream: As if all steps ran one after the other, in the order of issue.
    """
    versions = _Versions(engine)
    lanes = _number_lanes(engine)
    if one_stream or len(lanes) < 2:
        before: Sequence[Clock] = [(i,) for i in range(len(engine.layers))]
        lane_by_step = [0] * len(engine.layers)
    else:
        before = compute_clocks(engine, versions.origin)
        lane_by_step = [lanes[layer.stream] for layer in engine.layers]
    counts: Counter[str] = Counter()
    lives: list[Life] = []
    for version in sorted(versions.list_versions(), key=lambda v: (min(v.steps), v.name)):
        steps = version.steps.union(_find_loop_ends(version, versions.loops))
        counts[version.name] += 1
        number = counts[version.name]
        start = tuple(min(parts) for parts in zip(*(before[s] for s in steps), strict=True))
        end = list(start)
        for step in steps:
            lane = lane_by_step[step]
            end[lane] = max(end[lane], before[step][lane] + 1)
        lives.append(
            Life(
                id=version.name if number == 1 else f"{version.name} ({number})",
                name=version.name,
                place=version.place,
                writers=tuple(sorted(version.writers)),
                readers=tuple(sorted(version.readers)),
                mentions=tuple(version.mentions),
                first=min(steps),
                last=max(steps),
                start=start,
                end=tuple(end),
            )
        )
    return tuple(lives)


def _find_loop_ends(version: _Version, loops: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The ends of the loops that need a tensor again in their next turn."""
    for begin, end in loops:
        inside = any(begin <= s <= end for s in version.readers)
        if inside and not any(begin <= w for w in version.writers):
            yield end


@dataclasses.dataclass
class _Version:
    """One tensor under construction; ``mentions`` keeps the order in which they occur."""

    name: str
    place: Place = "arena"
    writers: set[int] = dataclasses.field(default_factory=set)
    readers: set[int] = dataclasses.field(default_factory=set)
    mentions: dict[Tensor, None] = dataclasses.field(default_factory=dict)

    @property
    def steps(self) -> set[int]:
        return self.writers | self.readers


class _Versions:
    """Writings of an engine, joined to tensors.

    ``loops`` holds the first and the last step of each, as far as tensors that are carried to the next turn show them.
    """

    def __init__(self, engine: Engine) -> None:
        self.origin = Writers(engine)
        self.loops: list[tuple[int, int]] = []
        self._versions: dict[_Key, _Version] = {}
        self._parent_keys: dict[_Key, _Key] = {}
        self._write(engine.layers)
        for tensor in engine.inputs:
            version = self._at((tensor.name, -1))
            version.place, version.mentions[tensor] = "input", None
        input_names = {t.name for t in engine.inputs}
        for position, layer in enumerate(engine.layers):
            for tensor in layer.inputs:
                if tensor.name:
                    self._read(position, tensor, "input" if tensor.name in input_names else "constant")
            if layer.kind == "NoOp" and layer.inputs:
                self._rename(position, layer)
        if any(layer.kind in _JUMPS for layer in engine.layers):
            self._join_turns()
        for tensor in engine.outputs:
            key = self._merge_writers(len(engine.layers), tensor)
            if key is not None:
                version = self._at(key)
                version.place, version.mentions[tensor] = "output", None

    def _write(self, layers: Sequence[Layer]) -> None:
        for position, layer in enumerate(layers):
            for tensor in layer.outputs:
                if tensor.name:
                    version = self._at((tensor.name, position))
                    version.writers.add(position)
                    version.mentions[tensor] = None

    def list_versions(self) -> Iterator[_Version]:
        """All tensors that a step names."""
        return (v for v in self._versions.values() if v.steps)

    def _at(self, key: _Key) -> _Version:
        return self._versions.setdefault(self._root(key), _Version(key[0]))

    def _root(self, key: _Key) -> _Key:
        while key in self._parent_keys:
            key = self._parent_keys[key]
        return key

    def _join(self, first: _Key, second: _Key) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            version, other = self._at(first), self._versions.pop(second)
            version.writers |= other.writers
            version.readers |= other.readers
            version.mentions |= other.mentions
            if version.place == "arena":
                version.place = other.place
            self._parent_keys[second] = first

    def _merge_writers(self, position: int, tensor: Tensor) -> _Key | None:
        """The writings that a step reads, made one."""
        writers = self.origin.of(position, tensor)
        for other in writers[1:]:
            self._join((tensor.name, writers[0]), (tensor.name, other))
        return (tensor.name, writers[0]) if writers else None

    def _read(self, position: int, tensor: Tensor, otherwise: Place) -> None:
        key = self._merge_writers(position, tensor)
        if key is None:
            key = (tensor.name, -1)
            self._at(key).place = otherwise
        elif key[1] > position:
            self.loops.append((position, key[1]))
        version = self._at(key)
        version.readers.add(position)
        version.mentions[tensor] = None

    def _rename(self, position: int, layer: Layer) -> None:
        source = self._merge_writers(position, layer.inputs[0]) or (layer.inputs[0].name, -1)
        for tensor in layer.outputs:
            if tensor.name:
                self._join(source, (tensor.name, position))

    def _join_turns(self) -> None:
        """Where steps are repeated, one name is one tensor; what is read before it is written spans a loop."""
        of: defaultdict[str, list[_Key]] = defaultdict(list)
        for key in self._versions:
            of[key[0]].append(key)
        for keys in of.values():
            for other in keys[1:]:
                self._join(keys[0], other)
            version = self._at(keys[0])
            begin, end = min(version.readers, default=0), max(version.writers, default=0)
            if version.readers and begin < end:
                self.loops.append((begin, end))


#: Of how many tensors at most several orders are tried: one takes seconds for tens of thousands.
_SEARCHED = 1_000
#: Random orders, of so many tensors at most.
_DRAWN = 100


@dataclasses.dataclass(frozen=True)
class Arena:
    """``offsets`` in bytes, one for each tensor; ``size`` is where the highest ends.

    No placement is smaller than ``bound``, the largest sum of what is alive at one step in the order of issue.
    """

    offsets: tuple[int, ...]
    size: int
    bound: int


def place_tensors(lives: Sequence[Life], sizes: Sequence[int], *, align: int = 256) -> Arena:
    """Give every tensor an offset, a multiple of ``align``; the same for the same input.

    Args:
        lives: Tensors, of one call of ``compute_lifetimes``.
        sizes: Bytes of each, 0 and more.
        align: In bytes.
    """
    blocks = [-(-size // align) for size in sizes]
    span = [life.last - life.first + 1 for life in lives]
    orders: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-blocks[i], lives[i].first),
        lambda i: (lives[i].first, -blocks[i]),
        lambda i: (-span[i], -blocks[i], lives[i].first),
        lambda i: (-blocks[i] * span[i], lives[i].first),
    )
    bound = int(compute_alive_bytes(lives, blocks).max(initial=0))
    best, size = np.zeros(0, np.int64), 0
    draw = np.random.default_rng(0)
    ranks: Iterator[Sequence[int] | NDArray[np.int64]] = itertools.chain(
        (sorted(range(len(lives)), key=order) for order in orders),
        # Then the largest first again, each larger or smaller by up to a half than it is.
        (np.argsort(-draw.uniform(0.5, 1.5, len(lives)) * blocks, kind="stable") for _ in range(_DRAWN)),
    )
    most = len(orders) + _DRAWN if len(lives) <= _DRAWN else len(orders) if len(lives) <= _SEARCHED else 1
    for number, rank in enumerate(itertools.islice(ranks, most)):
        offsets = _fit_offsets(rank, lives, np.array(blocks, np.int64))
        top = int((offsets + blocks).max(initial=0))
        if not number or top < size:
            best, size = offsets, top
        if size <= bound:
            break
    return Arena(tuple(int(offset) * align for offset in best), size * align, bound * align)


def _fit_offsets(
    order: Sequence[int] | NDArray[np.int64], lives: Sequence[Life], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Offsets in blocks, each tensor in the smallest gap between those that are placed and may be alive with it."""
    # By stream and in the order of placing, so that those that are placed lie side by side.
    start = np.array([lives[i].start for i in order]).T.copy()
    end = np.array([lives[i].end for i in order]).T.copy()
    sizes = sizes[order]
    offsets, tops = np.zeros_like(sizes), np.zeros_like(sizes)
    floor, ceiling = np.zeros(1, np.int64), np.full(1, np.iinfo(np.int64).max)
    for n in range(len(sizes)):
        ends_later = (end[:, :n] > start[:, n, None]).any(axis=0)
        starts_earlier = (start[:, :n] < end[:, n, None]).any(axis=0)
        near = (ends_later & starts_earlier).nonzero()[0]
        if near.size:
            near = near[offsets[near].argsort(kind="stable")]
            # Where the gap before each of them begins, and the one behind the last.
            begins = np.concatenate((floor, np.maximum.accumulate(tops[near])))
            gaps = np.concatenate((offsets[near], ceiling)) - begins
            offsets[n] = begins[np.where(gaps >= sizes[n], gaps, ceiling).argmin()]
        tops[n] = offsets[n] + sizes[n]
    placed = np.empty_like(offsets)
    placed[order] = offsets
    return placed


def compute_alive_bytes(
    lives: Sequence[Life], sizes: Sequence[int], steps: int | None = None
) -> NDArray[np.int64]:
    """The sum of what is alive at each step, in the order of issue; ``steps`` is 1 + the last one by default."""
    last = [life.last for life in lives]
    change = np.zeros(max(last, default=-1) + 2 if steps is None else steps + 1, np.int64)
    np.add.at(change, [life.first for life in lives], sizes)
    np.subtract.at(change, [at + 1 for at in last], sizes)
    return np.cumsum(change)[:-1]


_BLOCKED = "_nchwc"


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where the activations of an engine could lie; all bytes are *estimated* except those that say otherwise.

    ``lives`` and ``allocations`` are the tensors in the engine's own memory, in the same order; ``bound_by_caller``
    the inputs and outputs with their bytes, and ``unsized`` the tensors whose shape or type is not reported. ``peak``
    is the size of the whole, ``bound`` the least that any plan needs in which every tensor has bytes of its own, both
    with sizes rounded up to ``align``, and ``naive`` the sum of all tensors. ``alive`` holds bytes by step in the
    order of issue, int64, shape ``(steps,)``, rounded up alike. ``reported``, ``scratch`` and, where
    ``weights_origin`` says so, ``weights`` are the compiler's own totals; None where it reports none.
    """

    lives: tuple[Life, ...]
    allocations: tuple[Allocation, ...]
    bound_by_caller: tuple[tuple[Life, int], ...]
    unsized: tuple[Life, ...]
    peak: int
    bound: int
    naive: int
    alive: NDArray[np.int64]
    weights: int | None
    weights_origin: Origin
    scratch: int | None
    reported: int | None
    batch: int | None
    engine_batch: int | None
    scaled: bool
    streams: int
    align: int

    def __repr__(self) -> str:
        return f"<MemoryPlan {len(self.lives)} tensors, {self.peak} bytes>"

    @property
    def step(self) -> int:
        """The position of the first layer at which most bytes are alive, in the order of issue."""
        return int(np.argmax(self.alive)) if len(self.alive) else 0

    @functools.cached_property
    def at_peak(self) -> tuple[int, ...]:
        """Positions of the tensors that are alive at ``step``."""
        return tuple(i for i, life in enumerate(self.lives) if life.first <= self.step <= life.last)

    @property
    def overhead(self) -> float:
        """By how much of the bound the peak is above it: 0 for a plan that cannot be smaller."""
        return self.peak / self.bound - 1 if self.bound else 0.0

    def caller(self, where: Place) -> int:
        """Bytes of the inputs, or of the outputs, which the caller binds."""
        return sum(size for life, size in self.bound_by_caller if life.place == where)


#: Bytes that addresses with a sign reach.
_ADDRESSES = 2**63 - 1


@pause_collector()
def plan_engine_memory(
    engine: Engine, built: Model, *, batch: int | None = None, align: int = 256, one_stream: bool = False
) -> MemoryPlan:
    """Place the activations of an engine in one piece of memory.

    Args:
        engine: Any, with the tensors of its layers.
        built: The model that it was built from; an empty one where none is known.
        batch: The engine's own if None. Other batches are resolved where the engine's shapes are dynamic; where they
            are fixed, tensors that are computed from the inputs are scaled if their first dimension is a multiple of
            the engine's batch, as if it were built for that batch.
        align: Of addresses, in bytes. TensorRT asks its allocator for 256.
        one_stream: As if all layers ran one after the other in the order of issue: the difference is what it costs
            that several streams run at a time.

    Raises:
        VariantError: the engine has no tensors, or a size is not known or below 1.
    """
    lives = compute_lifetimes(engine, one_stream=one_stream)
    if not lives:
        raise VariantError(
            f"Cannot plan memory: the {len(engine.layers)} layers of this engine have no tensors. Build it with "
            "profilingVerbosity=detailed and export the layers again (trtexec --exportLayerInfo)."
        )
    extents = _Extents(engine, built, batch)
    for tensor in engine.inputs:
        if tensor.shape is not None and extents.shape(tensor) is None:
            example = tuple(d if d >= 0 else 1 for d in tensor.shape)
            raise VariantError(
                f'Cannot plan memory: input "{tensor.name}" has the shape {shape_text(tensor.shape)}, and a dimension '
                "other than the first is open. Name the sizes, for example "
                f'rtlab.load(..., shapes={{"{tensor.name}": {example}}}).'
            )
    growing = _find_growing_tensors(lives, extents) if extents.scaled else frozenset()
    mentions = ([*y.mentions, *_find_similar_tensors(y, engine, built)] for y in lives)
    sizes = [extents.max_nbytes(m, scaled=y.id in growing) for m, y in zip(mentions, lives, strict=True)]
    if all(size is None for size in sizes):
        raise VariantError(
            f"Cannot plan memory: no file contains the size of any of the {len(sizes)} tensors of this engine. Export "
            "the layers with the shapes of their tensors, or load the ONNX model with rtlab.load(..., shapes={...})."
        )
    sized = [(life, size) for life, size in zip(lives, sizes, strict=True) if size is not None]
    arena_lives = tuple(life for life, _ in sized if life.place == "arena")
    arena_sizes = [size for life, size in sized if life.place == "arena"]
    if (most := sum(arena_sizes) + align * len(arena_sizes)) > _ADDRESSES:
        raise VariantError(
            f"Cannot plan memory: at batch {extents.batch} the tensors take {most / 2**60:,.0f} EiB, and addresses "
            "have 64 bits. Choose a smaller batch, or other sizes."
        )
    arena = place_tensors(arena_lives, arena_sizes, align=align)
    weights, origin = _weights(engine, built)
    aligned_sizes = [-(-size // align) * align for size in arena_sizes]
    return MemoryPlan(
        lives=arena_lives,
        allocations=tuple(
            Allocation(life.id, size, life.first, life.last, offset, "estimated")
            for life, size, offset in zip(arena_lives, arena_sizes, arena.offsets, strict=True)
        ),
        bound_by_caller=tuple(s for s in sized if s[0].place in {"input", "output"}),
        unsized=tuple(life for life, size in zip(lives, sizes, strict=True) if size is None),
        peak=arena.size,
        bound=arena.bound,
        naive=sum(aligned_sizes),
        alive=compute_alive_bytes(arena_lives, aligned_sizes, len(engine.layers)),
        weights=weights,
        weights_origin=origin,
        scratch=engine.totals.get("scratch"),
        reported=engine.totals.get("activation"),
        batch=extents.batch,
        engine_batch=extents.engine_batch,
        scaled=extents.scaled,
        streams=1 if one_stream else len({layer.stream for layer in engine.layers}),
        align=align,
    )


class _Extents:
    """Sizes of the tensors of one engine.

    ``engine_batch`` is the batch that the engine is built for, None where its inputs do not have one in common;
    ``batch`` the one that is chosen. A dimension that the compiler left open has the size of the built model's value
    of that name (``Model.sizes``); else the first is the batch, and the others have the one size that the inputs give
    to open dimensions. Fixed shapes stay as they are: ``scaled`` says that another batch is chosen.

    Raises:
        VariantError: the batch is less than 1, or the engine has none to choose.
    """

    def __init__(self, engine: Engine, built: Model, batch: int | None) -> None:
        first = list(dict.fromkeys(t.shape[0] for t in engine.inputs if t.shape))
        self.dynamic = -1 in first
        dim_sizes = footprint.sizes(built)
        leading_dims = [(built.values[name].shape or (None,))[0] for name in built.inputs]
        batch_dims = [d for d in leading_dims if isinstance(d, str) and d in dim_sizes]
        self.engine_batch = first[0] if len(first) == 1 else None
        if self.dynamic:
            self.engine_batch = dim_sizes[batch_dims[0]] if batch_dims else 1
        self.batch = self.engine_batch
        if batch is not None:
            self.batch = validate_integer(batch, "Cannot plan memory for", "batch")
            if self.engine_batch is None:
                raise VariantError(
                    f'Cannot plan memory for batch "{batch}": the inputs of the engine have the first dimensions '
                    f"{', '.join(map(str, first)) or 'none'}. Leave the batch out."
                )
        self.scaled = not self.dynamic and self.batch != self.engine_batch
        self._sizes = built.sizes(batch=self.batch if self.dynamic else None)
        others = {size for dim, size in dim_sizes.items() if dim not in batch_dims}
        self._other = next(iter(others)) if len(others) == 1 else None

    def shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """All dimensions; None where one is not known."""
        shape = tensor.shape
        if shape is None or min(shape, default=0) >= 0:
            return shape
        resolved = self._sizes.get(tensor.name)
        fits = resolved is not None and len(resolved) == len(shape)
        if fits and all(d in {-1, size} for d, size in zip(shape, resolved or (), strict=True)):
            return resolved
        first = self.batch if self.dynamic else self._other
        sizes = [d if d >= 0 else self._other if axis else first for axis, d in enumerate(shape)]
        known = tuple(size for size in sizes if size is not None)
        return known if len(known) == len(sizes) else None

    def nbytes(self, tensor: Tensor) -> int | None:
        """Bytes with what the layout adds: channels padded to a multiple, strides wider than the shape."""
        shape = self.shape(tensor)
        if shape is None:
            return None
        channels = get_channel_multiple(tensor)
        padded = (shape[0], -(-shape[1] // channels) * channels, *shape[2:]) if len(shape) > 1 else shape
        dense = footprint.nbytes(tensor.dtype, padded)
        strides = tensor.strides
        if dense is None or strides is None or len(strides) != len(shape) or 0 in shape:
            return dense
        reach = max((d * s for d, s in zip(shape, strides, strict=True) if d > 1), default=1)
        return max(dense, footprint.nbytes(tensor.dtype, (reach,)) or 0)

    def max_nbytes(self, mentions: Iterable[Tensor], *, scaled: bool) -> int | None:
        """Bytes of the largest of several mentions of one tensor; None where none has a known size.

        With ``scaled``, as many times as large as the batch that is chosen is larger than the engine's own.
        """
        largest = max((n for t in mentions if (n := self.nbytes(t)) is not None), default=None)
        if largest is None or not scaled or not self.engine_batch or not self.batch:
            return largest
        return -(-largest * self.batch // self.engine_batch)


def _find_similar_tensors(life: Life, engine: Engine, built: Model) -> Iterator[Tensor]:
    """Tensors as large as one whose shape is not reported.

    ONNX Runtime reports none of tensors in its blocked layout (NCHWc). A reordering step keeps their size, and a step
    that works in this layout bears the name of its node, or of the value that it computes.
    """
    if any(t.shape is not None for t in life.mentions):
        return
    for layer in (engine.layers[w] for w in life.writers):
        if layer.kind == "ReorderInput":
            yield from layer.inputs
        node = built.by_id.get(layer.name)
        value = built.values.get(node.outputs[0] if node else layer.name.removesuffix(_BLOCKED))
        if value is not None and value.shape is not None:
            dims = tuple(d if isinstance(d, int) else -1 for d in value.shape)
            yield Tensor(value.name, value.dtype, dims)
    for layer in (engine.layers[r] for r in life.readers):
        if layer.kind == "ReorderOutput":
            yield from layer.outputs


def _find_growing_tensors(lives: tuple[Life, ...], extents: _Extents) -> frozenset[str]:
    """The tensors that are computed from an input of the engine's batch, with a first dimension that it divides."""
    batch = extents.engine_batch
    growing_ids: set[str] = set()
    fed: set[int] = set()
    before = -1
    while len(growing_ids) > before:
        before = len(growing_ids)
        for life in lives:
            has_batch = any(batch and t.shape and t.shape[0] % batch == 0 for t in life.mentions)
            if has_batch and (life.place == "input" or not fed.isdisjoint(life.writers)):
                growing_ids.add(life.id)
                fed.update(life.readers)
    return frozenset(growing_ids)


def _weights(engine: Engine, built: Model) -> tuple[int | None, Origin]:
    """What the compiler reports, else what all its layers have, else the model's initializers in their types."""
    if reported_nbytes := engine.totals.get("weights"):
        return reported_nbytes, "reported"
    heavy = [y for y in engine.layers if work(y) in {"convolution", "deconvolution", "matmul"}]
    parts: list[int | None] = []
    if all("Weights" in layer.attributes for layer in heavy):
        weight_attributes = (layer.attributes.get(key) for layer in heavy for key in ("Weights", "Bias"))
        parts = [count_weight_bytes(part) for part in weight_attributes if isinstance(part, Mapping)]
    if not parts:
        values = [describe(v, "constant") for v in built.ir.graph.initializers.values()]
        parts = [footprint.nbytes(v.dtype, v.shape) for v in values]
    part_sizes = [n for n in parts if n is not None]
    return (sum(part_sizes) if part_sizes else None), "estimated"


def count_weight_bytes(part: Mapping[str, object]) -> int | None:
    """Bytes of a layer's weights or bias as TensorRT's inspector describes them; None where that is not enough."""
    count, dtype = part.get("Count"), DTYPES.get(str(part.get("Type")), "")
    return footprint.nbytes(dtype, (count,)) if isinstance(count, int) else None
