"""A plan of an engine's memory: every tensor with its lifetime and an address, the peak, and what bounds it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.analyses.memory.arena import place_tensors
from rtlab.analyses.memory.extents import Extents, make_open_shape_error
from rtlab.analyses.memory.lifetimes import Life, Place, compute_lifetimes
from rtlab.core.engine import DTYPES, Allocation, Engine, Tensor
from rtlab.core.model import Model
from rtlab.core.schema import Origin
from rtlab.core.value import describe
from rtlab.errors import VariantError
from rtlab.relation import footprint as memory
from rtlab.relation.dataflow import Work, work

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Work that has weights.
_HEAVY: frozenset[Work] = frozenset({"convolution", "deconvolution", "matmul"})
#: Work that may write over what it reads, number by number.
_IN_PLACE: frozenset[Work] = frozenset({"kernel", "pointwise", "quantization"})
_BLOCKED = "_nchwc"
#: TensorRT-RTX reserves this much for each slot of a library kernel whose needs are known on the GPU only.
RESERVATION = 8_192_000


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where the activations of an engine could lie; all bytes are *estimated* except those that say otherwise.

    ``lives`` and ``allocations`` are the tensors in the engine's own memory, in the same order; ``bound_by_caller``
    the inputs and outputs with their bytes, and ``unsized`` the tensors whose shape or type is not told. ``peak`` is
    the size of the whole, ``bound`` the least that any plan needs in which every tensor has bytes of its own, both
    with sizes rounded up to ``align``, ``in_place`` the least where pointwise layers write over what nobody reads
    after them, and ``naive`` the sum of all tensors. ``alive`` holds bytes by step in the order of issue, int64, shape
    ``(steps,)``, rounded up alike. ``reported``, ``scratch`` and, where ``weights_origin`` says so, ``weights`` are
    the compiler's own totals; None where it told none.
    """

    lives: tuple[Life, ...]
    allocations: tuple[Allocation, ...]
    bound_by_caller: tuple[tuple[Life, int], ...]
    unsized: tuple[Life, ...]
    peak: int
    bound: int
    in_place: int
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
        at = self.step
        return tuple(i for i, life in enumerate(self.lives) if life.first <= at <= life.last)

    @property
    def overhead(self) -> float:
        """By how much of the bound the peak is above it: 0 for a plan that cannot be smaller."""
        return self.peak / self.bound - 1 if self.bound else 0.0

    @property
    def reservations(self) -> int:
        """How many of TensorRT-RTX's reservations its reported total can hold beside what the tensors need at least."""
        return max(0, ((self.reported or 0) - self.in_place) // RESERVATION)

    def caller(self, where: Place) -> int:
        """Bytes of the inputs, or of the outputs, which the caller binds."""
        return sum(size for life, size in self.bound_by_caller if life.place == where)


#: Bytes that addresses with a sign reach.
_ADDRESSES = 2**63 - 1


def plan_engine_memory(
    engine: Engine,
    built: Model,
    *,
    batch: int | None = None,
    align: int = 256,
    one_stream: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> MemoryPlan:
    """Place the activations of an engine in one piece of memory.

    Args:
        engine: Any, with the tensors of its layers.
        built: The model that it was built from; an empty one where none is known.
        batch: The engine's own if None. Other batches are resolved where the engine's shapes are dynamic; where they
            are fixed, tensors that are computed from the inputs are scaled if their first dimension is a multiple of
            the engine's batch, as if it were built for that batch.
        align: Of addresses, in bytes: a power of two. TensorRT asks its allocator for 256.
        one_stream: As if all layers ran one after the other in the order of issue: the difference is what it costs
            that several streams run at a time.
        sizes: Of symbols in the shapes of the built model, beside those that were named when it was loaded.

    Raises:
        VariantError: the engine has no tensors, a size is not known or below 1, or ``align`` is no power of two.
    """
    if align < 1 or align & (align - 1):
        raise VariantError(
            f'Cannot align tensors to "{align}" bytes: it is no power of two. Choose 256 or 512.'
        )
    lives = compute_lifetimes(engine, one_stream=one_stream)
    if not lives:
        raise VariantError(
            f"Cannot plan memory: the {len(engine.layers)} layers of this engine have no tensors. Build it with "
            "profilingVerbosity=detailed and export the layers again (trtexec --exportLayerInfo)."
        )
    extents = Extents(engine, built, batch=batch, sizes=sizes)
    if extents.open:
        raise make_open_shape_error(extents)
    grow = _find_growing_tensors(lives, extents) if extents.scaled else frozenset()
    sized = [
        (
            life,
            extents.max_nbytes(
                [*life.mentions, *_find_similar_tensors(life, engine, built)], scaled=life.id in grow
            ),
        )
        for life in lives
    ]
    inner = [(life, size) for life, size in sized if life.place == "arena" and size is not None]
    if all(size is None for _, size in sized):
        raise VariantError(
            f"Cannot plan memory: no file contains the size of any of the {len(sized)} tensors of this engine. Export "
            "the layers with the shapes of their tensors, or load the ONNX model with rtlab.load(..., shapes={...})."
        )
    arena_lives = tuple(life for life, _ in inner)
    arena_sizes = [size for _, size in inner]
    if (most := sum(arena_sizes) + align * len(arena_sizes)) > _ADDRESSES:
        raise VariantError(
            f"Cannot plan memory: at batch {extents.batch} the tensors take {most / 2**60:,.0f} EiB, and addresses "
            "have 64 bits. Choose a smaller batch, or other sizes."
        )
    arena = place_tensors(arena_lives, arena_sizes, align=align)
    weights, origin = _weights(engine, built)
    aligned_sizes = [-(-size // align) * align for size in arena_sizes]
    alive = _compute_alive_bytes(arena_lives, aligned_sizes, len(engine.layers))
    return MemoryPlan(
        lives=arena_lives,
        allocations=tuple(
            Allocation(life.id, size, life.first, life.last, offset, "estimated")
            for life, size, offset in zip(arena_lives, arena_sizes, arena.offsets, strict=True)
        ),
        bound_by_caller=tuple(
            (life, size) for life, size in sized if life.place in {"input", "output"} and size is not None
        ),
        unsized=tuple(life for life, size in sized if size is None),
        peak=arena.size,
        bound=arena.bound,
        in_place=min(arena.bound, _in_place(engine, arena_lives, aligned_sizes, alive)),
        naive=sum(aligned_sizes),
        alive=alive,
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


def _find_similar_tensors(life: Life, engine: Engine, built: Model) -> Iterator[Tensor]:
    """Tensors as large as one whose shape is not told.

    ONNX Runtime tells none of tensors in its blocked layout (NCHWc). A reordering step keeps their size, and a step
    that works in this layout bears the name of its node, or of the value that it computes.
    """
    if any(t.shape is not None for t in life.mentions):
        return
    for layer in (engine.layers[w] for w in life.writers):
        if layer.kind == "ReorderInput":
            yield from layer.inputs
        node = built.by_id.get(layer.name)
        names = node.outputs[:1] if node else (layer.name.removesuffix(_BLOCKED),)
        for value in (built.values[name] for name in names if name in built.values):
            if value.shape is not None:
                dims = tuple(d if isinstance(d, int) else -1 for d in value.shape)
                yield Tensor(value.name, value.dtype, dims)
    for layer in (engine.layers[r] for r in life.readers):
        if layer.kind == "ReorderOutput":
            yield from layer.outputs


def _find_growing_tensors(lives: tuple[Life, ...], extents: Extents) -> frozenset[str]:
    """The tensors that are computed from an input of the engine's batch, with a first dimension that it divides."""
    growing_ids: set[str] = set()
    fed: set[int] = set()
    before = -1
    while len(growing_ids) > before:
        before = len(growing_ids)
        for life in lives:
            grows = life.place == "input" or not fed.isdisjoint(life.writers)
            if grows and any(extents.has_batch(t) for t in life.mentions):
                growing_ids.add(life.id)
                fed.update(life.readers)
    return frozenset(growing_ids)


def _compute_alive_bytes(lives: Iterable[Life], sizes: Iterable[int], steps: int) -> NDArray[np.int64]:
    change = np.zeros(steps + 1, np.int64)
    for life, size in zip(lives, sizes, strict=True):
        change[life.first] += size
        change[life.last + 1] -= size
    return np.cumsum(change)[:steps]


def _in_place(engine: Engine, lives: Iterable[Life], sizes: Iterable[int], alive: NDArray[np.int64]) -> int:
    """The most alive where a pointwise layer's output takes the place of inputs that end with it."""
    allocated_bytes, freed_bytes = np.zeros_like(alive), np.zeros_like(alive)
    for life, size in zip(lives, sizes, strict=True):
        if life.first < life.last:
            allocated_bytes[life.first] += size
            freed_bytes[life.last] += size
    able = np.array([work(layer) in _IN_PLACE for layer in engine.layers], bool)
    return int(np.max(alive - able * np.minimum(allocated_bytes, freed_bytes), initial=0))


def _weights(engine: Engine, built: Model) -> tuple[int | None, Origin]:
    """What the compiler reported, else what all its layers tell, else the model's initializers in their types."""
    if reported_nbytes := engine.totals.get("weights"):
        return reported_nbytes, "reported"
    heavy = [layer for layer in engine.layers if work(layer) in _HEAVY]
    parts: list[int | None] = []
    if all("Weights" in layer.attributes for layer in heavy):
        weight_attributes = (layer.attributes.get(key) for layer in heavy for key in ("Weights", "Bias"))
        parts = [_count_bytes(part) for part in weight_attributes if isinstance(part, Mapping)]
    if not parts:
        values = [describe(v, "constant") for v in built.ir.graph.initializers.values()]
        parts = [memory.nbytes(v.dtype, v.shape) for v in values]
    part_sizes = [n for n in parts if n is not None]
    return (sum(part_sizes) if part_sizes else None), "estimated"


def _count_bytes(part: Mapping[str, object]) -> int | None:
    count = part.get("Count")
    return memory.nbytes(DTYPES.get(str(part.get("Type")), ""), (count,)) if isinstance(count, int) else None
