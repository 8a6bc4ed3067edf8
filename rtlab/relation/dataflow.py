"""What the layers of an engine are, by kind or by the name of a generated kernel, and who writes what they read."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from rtlab.core.engine import Engine, Layer, Tensor


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


_NAME = re.compile(r"^(?:\d+:)?__myl_([A-Za-z]+?)(?:_|$)")
#: The end of a name that is too long for its kernel; what it leaves out is not known.
_CUT = "Etc"
#: Types that need a scale.
SCALED_TYPES = frozenset({"int8", "uint8", "fp8", "int4", "fp4"})
#: Operations that only move or retype numbers.
MOVING = frozenset({
    "Cast", "Conc", "Copy", "Expa", "Move", "Pad", "Repl", "Res", "Resh", "Reve", "Slic", "Squ", "Tran", "Unsq",
})  # fmt: skip
#: Operations that multiply matrices, convolutions among them.
PRODUCTS = frozenset({"Corr", "Deco", "Fc", "Gemm"})
# A quantization multiplies by the inverse of a scale, clamps, rounds and narrows. The first of these may stand in the
# kernel before, and FP8 needs no rounding. A dequantization widens and multiplies.
_QUANTIZE = re.compile(r"(?:Mul|Div)?(?:Min|Max){0,2}Roun(?:Min|Max){0,2}Cast")
_NARROW = re.compile(r"(?:Mul|Div)(?:Min|Max){0,2}Cast")
_DEQUANTIZE = re.compile(r"Cast(?:Sub)?(?:Mul|Div)")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What the name of a generated kernel says of its work.

    ``operations`` are all that it tells, in order, and ``rest`` those that neither quantize nor dequantize nor move
    numbers. ``is_complete`` is False where the name is cut, so that more may follow.
    """

    operations: tuple[str, ...]
    rest: tuple[str, ...]
    quantizes: bool
    dequantizes: bool
    is_complete: bool


def operations(layer: Layer) -> tuple[str, ...]:
    """The operations in the name of a generated kernel, in order; none of other layers."""
    return tuple(o for o in (_parse_operations(layer.tactic) or _parse_operations(layer.name)) if o != _CUT)


def kernel(layer: Layer) -> Kernel | None:
    """What the name of a layer's kernel says; None where it tells no operations."""
    reads = bool(SCALED_TYPES & {t.dtype for t in layer.inputs})
    writes = bool(SCALED_TYPES & {t.dtype for t in layer.outputs})
    ops = _parse_operations(layer.tactic) or _parse_operations(layer.name)
    return _parse_kernel(ops, reads, writes) if ops else None


@functools.lru_cache(4096)
def _parse_operations(name: str) -> tuple[str, ...]:
    match = _NAME.match(name)
    return tuple(re.findall("[A-Z][a-z]*", match[1])) if match else ()


@functools.lru_cache(4096)
def _parse_kernel(ops: tuple[str, ...], reads: bool, writes: bool) -> Kernel:  # noqa: FBT001 - keys of the cache
    op_names = tuple(o for o in ops if o != _CUT)
    rest, rounds = _QUANTIZE.subn("", "".join(op_names))
    narrows = 0
    if writes and not rounds:
        rest, narrows = _NARROW.subn("", rest)
    widens = 0
    if reads or rounds or narrows:
        rest, widens = _DEQUANTIZE.subn("", rest)
    remaining = tuple(o for o in re.findall("[A-Z][a-z]*", rest) if o not in MOVING)
    return Kernel(op_names, remaining, bool(rounds or narrows), bool(widens), _CUT not in ops)


#: What a layer does, in one word for all spellings of the compilers.
Work = Literal[
    "convolution", "deconvolution", "matmul", "pooling", "pointwise", "softmax", "normalization", "scale", "reduce",
    "quantization", "reformat", "shuffle", "slice", "concat", "gather", "region", "kernel", "control", "none", "other",
]  # fmt: skip

#: Types that need a scale.
QUANTIZED = frozenset({"int8", "fp8", "int4", "fp4"})
FLOATS = frozenset({"fp32", "tf32", "fp16", "bf16"})
#: A copy that the builder put before or behind a layer, and that layer's name.
COPY = re.compile(
    r"^Reformatting CopyNode for (?P<side>Input|Output) Tensor \d+ to (?P<layer>.*)$", re.DOTALL
)

#: Steps through which a tensor keeps its numbers.
MOVES: frozenset[Work] = frozenset({"none", "reformat", "shuffle"})
#: Steps that compute addresses or order streams.
_CONTROL = frozenset({"add", "memset", "jmp", "cjmp", "signal", "wait", "shape_call"})
#: Words in ``LayerType`` and ``ParameterType``; the first that occurs decides.
_WORDS: tuple[tuple[str, Work], ...] = (
    ("deconv", "deconvolution"), ("depthwiseseparable", "convolution"), ("conv", "convolution"),
    ("correlation", "convolution"), ("gemm", "matmul"), ("matrixmultiply", "matmul"), ("matrix_multiply", "matmul"),
    ("matmul", "matmul"), ("fullyconnected", "matmul"), ("pool", "pooling"), ("softmax", "softmax"),
    ("dequantize", "quantization"), ("quantize", "quantization"), ("normalization", "normalization"),
    ("pointwise", "pointwise"), ("elementwise", "pointwise"), ("activation", "pointwise"), ("unary", "pointwise"),
    ("scale", "scale"), ("reduce", "reduce"), ("shuffle", "shuffle"), ("transpose", "shuffle"), ("slice", "slice"),
    ("padding", "slice"), ("concat", "concat"), ("gather", "gather"), ("reformat", "reformat"), ("reorder", "reformat"),
    ("cast", "reformat"), ("copy", "reformat"),
)  # fmt: skip
#: Operations of a generated kernel, as its name abbreviates them, that only move or retype numbers.
_MOVES = frozenset({"Cast", "Res", "Resh", "Tran", "Move", "Copy", "Repl", "Squ", "Unsq"})


def work(layer: Layer) -> Work:
    """What a layer does, by its kind, its parameters and, of a generated kernel, the operations in its name."""
    if layer.kind == "NoOp":
        return "none"
    # Its name holds that of the layer it serves, which may be a region.
    if COPY.match(layer.name):
        return "reformat"
    if "{ForeignNode[" in layer.name or layer.kind.lower() == "myelin":
        return "region"
    if layer.kind in _CONTROL:
        return "control"
    if layer.kind == "kgen":
        name = kernel(layer)
        return "reformat" if name and name.is_complete and _MOVES.issuperset(name.operations) else "kernel"
    if layer.attributes.get("Origin") == "QDQ":
        return "quantization"
    kind = _classify_label(f"{layer.kind} {layer.attributes.get('ParameterType') or ''}")
    if kind == "scale" and (layer.reads in QUANTIZED) != (layer.writes in QUANTIZED):
        return "quantization"
    return kind


@functools.lru_cache(1024)
def _classify_label(label: str) -> Work:
    words = label.lower()
    return next((w for word, w in _WORDS if word in words), "other")


class Dataflow:
    """The layers of an engine as a graph: between those that write a tensor and those that read it.

    Who reads whose writing where a name is used again is ``Writers``' to say; of several that write parts of a tensor,
    the last stands for all. ``works`` tells by id what each layer does.
    """

    def __init__(self, engine: Engine) -> None:
        self._layers = engine.layers
        self._inputs = {t.name for t in engine.inputs}
        self._outputs = {t.name for t in engine.outputs}
        self.works = {layer.id: work(layer) for layer in engine.layers}
        self._position = {layer.id: p for p, layer in enumerate(engine.layers)}
        self._writers = Writers(engine)
        self._readers: defaultdict[tuple[str, int], list[Layer]] = defaultdict(list)
        for position, layer in enumerate(engine.layers):
            for tensor in _deduplicate(layer.inputs):
                for source in self._writers.of(position, tensor):
                    self._readers[tensor.name, source].append(layer)

    def writer(self, layer: Layer, tensor: Tensor) -> Layer | None:
        """The layer that wrote what ``layer`` reads; None for an input of the engine or a constant."""
        for read in _deduplicate(layer.inputs):
            if read.name == tensor.name and (positions := self._writers.of(self._position[layer.id], read)):
                return self._layers[positions[-1]]
        return None

    def readers(self, layer: Layer, tensor: Tensor | None = None) -> tuple[Layer, ...]:
        """The layers that read this output, or any output, of ``layer``."""
        outputs = layer.outputs if tensor is None else (tensor,)
        position = self._position[layer.id]
        layers = (r for t in outputs for r in self._readers.get((t.name, position), ()))
        return tuple({r.id: r for r in layers}.values())

    def is_from_input(self, layer: Layer, tensor: Tensor) -> bool:
        """Whether a tensor that a layer reads comes from outside the engine, perhaps through steps that only move."""
        visited = set[str]()
        while (writer := self.writer(layer, tensor)) is not None:
            moves_on = self.works[writer.id] in MOVES | {"quantization"} and writer.inputs
            if writer.id in visited or not moves_on:
                return False
            visited.add(writer.id)
            layer, tensor = writer, writer.inputs[0]
        return tensor.name in self._inputs or not self._inputs

    def reaches_output(self, layer: Layer) -> bool:
        """Whether all that a layer writes leaves the engine, perhaps through steps that only move."""
        stack, visited = [layer], {layer.id}
        while stack:
            at = stack.pop()
            readers = self.readers(at)
            if not readers and self._outputs and not any(t.name in self._outputs for t in at.outputs):
                return False
            for reader in readers:
                if self.works[reader.id] not in MOVES | {"quantization"}:
                    return False
                if reader.id not in visited:
                    visited.add(reader.id)
                    stack.append(reader)
        return True

    def is_output(self, tensor: Tensor) -> bool:
        """Whether a tensor is an output of the engine."""
        return tensor.name in self._outputs

    def before(self, layer: Layer, *, through: frozenset[Work] = frozenset({"none"})) -> Iterator[Layer]:
        """The layers whose outputs a layer reads, seen through steps that do one of ``through``."""
        for tensor in layer.inputs:
            visited = set[str]()
            writer = self.writer(layer, tensor)
            while writer and self.works[writer.id] in through and writer.inputs and writer.id not in visited:
                visited.add(writer.id)
                writer = self.writer(writer, writer.inputs[0])
            if writer is not None:
                yield writer

    def after(
        self, layer: Layer, tensor: Tensor | None = None, *, through: frozenset[Work] = frozenset({"none"})
    ) -> tuple[Layer, ...]:
        """The layers that read an output of a layer, seen through steps that do one of ``through``."""
        readers: dict[str, Layer] = {}
        stack, visited = list(reversed(self.readers(layer, tensor))), set[str]()
        while stack:
            at = stack.pop()
            if at.id in visited:
                continue
            visited.add(at.id)
            if self.works[at.id] in through:
                stack.extend(reversed(self.readers(at)))
            else:
                readers[at.id] = at
        return tuple(readers.values())


def _deduplicate(tensors: tuple[Tensor, ...]) -> Iterable[Tensor]:
    """Each tensor once by name, as it was told last."""
    return tensors if len(tensors) < 2 else {t.name: t for t in tensors}.values()


def moves(layer: Layer) -> bool:
    """Whether a layer that the compiler puts no node into only changes a layout or a type, or copies."""
    return not layer.origins and work(layer) in {"reformat", "none"}
