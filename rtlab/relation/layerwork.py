"""How much every layer of an engine computes and moves after fusion, in the layer's own types."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from rtlab.core.engine import DTYPES, Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.validation import LARGEST, validate_integer
from rtlab.core.value import Value
from rtlab.relation.dataflow import MOVES, MOVING, operations
from rtlab.relation.dataflow import Work as Kind
from rtlab.relation.dataflow import work as kind_of
from rtlab.relation.footprint import SIZE_LIMIT, nbytes, total
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import map_to_places
from rtlab.relation.roles import WORKING
from rtlab.relation.work import NodeWork, works

_PRODUCTS: frozenset[Kind] = frozenset({"convolution", "deconvolution", "matmul"})
_BLOCKS: frozenset[Kind] = frozenset({"region", "kernel", "other"})
_STILL: frozenset[Kind] = frozenset({"none", "control"})
#: Layers of ONNX Runtime that change the layout of a tensor and nothing else.
_REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
#: Words in the name of a memory layout that say to how many channels it is padded.
_CHANNEL_STEPS = {
    "Two wide": 2,
    "Four wide": 4,
    "Eight wide": 8,
    "Sixteen wide": 16,
    "Thirty-two wide": 32,
} | {f"channel % {n} == 0": n for n in (2, 4, 8, 16, 32)}
#: Kernels that multiply on the ordinary cores: CUDNN's of FP32, and of INT8 by four at a time.
_CORES = ("scudnn", "icudnn", "sgemm", "simt", "f32f32_f32f32_f32", "depthwise")
#: Types that there are units for.
_COMPUTED = frozenset({"fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int4", "fp4"})
#: The tile in the name of a kernel: ``tilesize96x128x64``, ``_128x64_``.
_TILE = re.compile(r"(?:tilesize|_)(\d{2,3})x(\d{2,3})(?=[x_])")
#: Operations of generated kernels that compute nothing.
_CARRY = MOVING | {"Gath", "Shuf"}
#: Steps per element of those that compute; what is not listed takes one, as in ``work``.
_STEPS: Mapping[str, int] = {"Silu": 4, "Sigm": 3, "Sigmoid": 3, "Gelu": 5, "Hswish": 4, "Soft": 5}
#: Those that sum over what they read, or multiply matrices: their outputs do not tell how much.
_SUMMING = frozenset(
    {"Sum", "Fc", "Gemm", "Corr", "Conv", "Maxr", "Minr", "Mean", "Prod", "Topk", "Sort", "Scan"}
)
#: Fewer channels do not fill a transaction of the memory.
_FEW = 8


@dataclasses.dataclass(frozen=True)
class Product:
    """The matrix product that a layer is: ``groups`` products of (rows, depth) with (depth, columns).

    ``tile`` is the part of the result that one block computes, rows by columns, where the kernel's name tells it.
    """

    rows: int
    columns: int
    depth: int
    groups: int = 1
    tile: tuple[int, int] | None = None

    @property
    def thin(self) -> bool:
        """Whether it is no product to a kernel, such as a depthwise convolution."""
        return self.columns < 4 or self.depth < 4


@dataclasses.dataclass(frozen=True)
class LayerWork:
    """What one layer computes and moves.

    ``flops`` and ``macs`` are None where they are not known, and ``note`` says why. ``read`` and ``written`` are bytes
    of the layer's tensors in their types and layouts, padding of channels included, and of the weights that it reads;
    None where a size is not known. ``matrix`` says that matrix units do the work, in ``precision``. ``still`` is a step
    that launches nothing, ``tabled`` one that reads a table of parameters before it starts, ``scattered`` one that
    changes the layout of a few channels, number by number.
    """

    layer: str
    macs: int | None
    flops: int | None
    read: int | None
    written: int | None
    precision: str = ""
    matrix: bool = False
    product: Product | None = None
    still: bool = False
    tabled: bool = False
    scattered: bool = False
    note: str = ""

    @property
    def moved(self) -> int | None:
        """Bytes read and written."""
        return None if self.read is None or self.written is None else self.read + self.written


def layer_works(
    engine: Engine, mapping: NodeMapping, model: Model, *, batch: int | None = None
) -> dict[str, LayerWork]:
    """The work of every layer, by id; ``batch`` samples per inference instead of the engine's own.

    What a layer computes is the sum over the nodes that it runs (``works``). A node in several layers counts in that
    which does its kind of work, never in one that only serves it, such as by a bias or a cast; among equals it is
    divided. Where the nodes do not tell, the layer's own parameters do.
    Raises ``ModelError`` where a dimension has no size, or the model's batch is fixed.
    """
    counter = _Layers(engine, mapping, model, batch)
    return {layer.id: counter.count(layer) for layer in engine.layers}


def batch_of(engine: Engine, model: Model) -> int:
    """Samples per inference as the engine was built: the first dimension of its first input, 1 where it is dynamic."""
    for tensor in engine.inputs:
        if tensor.shape and tensor.shape[0] > 0:
            return tensor.shape[0]
        if tensor.name in model.inputs and tensor.shape:
            return model.input_shape(tensor.name)[0]
    return 1


class _Layers:
    def __init__(self, engine: Engine, mapping: NodeMapping, model: Model, batch: int | None) -> None:
        if batch is not None:
            batch = validate_integer(batch, "Cannot count the work of", "batch")
        self.engine, self.model = engine, model
        self.built = batch_of(engine, model)
        self.batch = self.built if batch is None else batch
        input_shapes = {
            t.name: t.shape
            for t in engine.inputs
            if t.shape and min(t.shape) > 0 and _fits(t.shape, model.values.get(t.name))
        }
        if batch is not None:
            input_shapes = {k: (batch, *v[1:]) for k, v in input_shapes.items()}
        batch = None if input_shapes else batch
        self.nodes = works(model, batch=batch, shapes=input_shapes) if model.nodes else {}
        self.sizes = model.sizes(batch=batch, shapes=input_shapes)
        self.kinds = {layer.id: kind_of(layer) for layer in engine.layers}
        self.shares = self._share_nodes(map_to_places(mapping, model))
        self.tensor_names = {t.name for layer in engine.layers for t in layer.outputs}
        self.tensor_names |= {t.name for t in engine.inputs}
        self.values = _map_aliases(engine)

    def _share_nodes(self, mapping: NodeMapping) -> Mapping[str, list[tuple[NodeWork, int]]]:
        """What each layer runs: the work of a node, and among how many layers it is divided."""
        table: defaultdict[str, list[tuple[NodeWork, int]]] = defaultdict(list)
        working = {(p.node, p.layer) for p in mapping.pairs if p.role in WORKING}
        for node in dict.fromkeys(p.node for p in mapping.pairs):
            done = self.nodes.get(node)
            layers = list(dict.fromkeys(mapping.layers(node)))
            own = [i for i in layers if (node, i) in working]
            # A bias or a cast behind a product multiplies nothing, also where the product's own layer is not known.
            if done is None or (done.macs and not own):
                continue
            chosen = self._main(own or layers, done)
            for layer in chosen:
                table[layer].append((done, len(chosen)))
        return table

    def _main(self, layers: Sequence[str], done: NodeWork) -> Sequence[str]:
        """Of a node's layers those that do its work: none that only moves data, where another is there."""
        kinds = self.kinds
        tries: list[Sequence[str]] = [[i for i in layers if kinds[i] not in MOVES | _STILL]]
        if done.macs:
            tries = [[i for i in layers if kinds[i] in k] for k in (_PRODUCTS, _BLOCKS)] + tries
        return next((t for t in tries if t), layers)

    def count(self, layer: Layer) -> LayerWork:
        kind = self.kinds[layer.id]
        if kind in _STILL:
            return LayerWork(layer.id, 0, 0, 0, 0, still=True)
        tables = self._list_tables(layer)
        reads = [
            (t.name, _take_rows(self._bytes(t), self._shape(t), tables)) for t in _deduplicate(layer.inputs)
        ]
        writes = [(t.name, self._bytes(t)) for t in _deduplicate(layer.outputs)]
        weights = self._weights(layer, tables)
        macs, flops, note = self._count_operations(layer, kind, self.shares.get(layer.id, []))
        product = self._find_product(layer, kind)
        if product is None and macs and writes:
            product = self._product_from_macs(layer, macs)
        if flops is None and product is not None:
            macs = product.rows * product.columns * product.depth * product.groups
            flops, note = 2 * macs, ""
        unknown = next((name for name, size in (*reads, *writes) if size is None), None)
        read, written = total([size for _, size in reads]), total([size for _, size in writes])
        if unknown is not None:
            note = f'{note} The size of "{unknown}" is not known.'.strip()
        precision, matrix = _units(layer, kind, product, macs)
        return LayerWork(
            layer.id,
            macs,
            flops,
            read=None if read is None or weights is None else read + weights,
            written=written,
            precision=precision,
            matrix=matrix,
            product=product,
            tabled=kind == "scale" or layer.kind == "Scale",
            scattered=kind in MOVES | {"quantization"}
            and any(s and len(s) == 4 and s[1] < _FEW for s in (self._shape(t) for t in layer.outputs)),
            note=note,
        )

    def _count_operations(
        self, layer: Layer, kind: Kind, parts: list[tuple[NodeWork, int]]
    ) -> tuple[int | None, int | None, str]:
        """Multiply-accumulates and operations: from the nodes, or else from the layer's own words."""
        if parts and all(w.flops is not None for w, _ in parts):
            most = max(n for _, n in parts)
            return (
                sum((w.macs or 0) // n for w, n in parts),
                sum((w.flops or 0) // n for w, n in parts),
                f"Work of a node that {most} layers run, divided evenly among them." if most > 1 else "",
            )
        note = next((w.note for w, _ in parts if w.flops is None), "")
        out = math.prod(self._shape(layer.outputs[0]) or (0,)) if layer.outputs else 0
        window = layer.attributes.get("WindowSize")
        if kind in MOVES or kind in {"slice", "concat", "gather"}:
            return 0, 0, ""
        if kind == "pooling" and _are_counts(window) and out:
            return 0, out * math.prod(window), ""
        per = {"quantization": 2, "scale": 2, "softmax": 5, "pointwise": 1}.get(kind)
        per = _count_pointwise(layer) if per is None and not parts else per
        if per is not None and out:
            return 0, out * per, ""
        return None, None, note or "What it computes is not reported, and no node stands for it."

    def _find_product(self, layer: Layer, kind: Kind) -> Product | None:
        """What the parameters of a convolution or the shapes of a matrix product tell, with the tile of its kernel."""
        product = self._product_from_attributes(layer, kind)
        tile = _TILE.search(layer.tactic.lower())
        if product is None or tile is None:
            return product
        return dataclasses.replace(product, tile=(int(tile[1]), int(tile[2])))

    def _product_from_attributes(self, layer: Layer, kind: Kind) -> Product | None:
        attributes = layer.attributes
        prefix = "Conv" if "ConvKernel" in attributes else ""
        kernel, columns = attributes.get(f"{prefix}Kernel"), attributes.get(f"{prefix}OutMaps")
        groups = attributes.get(f"{prefix}Groups")
        counts = [columns, groups if isinstance(groups, int) else 1]
        if _are_counts(kernel) and _are_counts(counts) and layer.inputs and layer.outputs:
            return self._conv_product(layer, kernel, counts[0], counts[1], prefix)
        if kind == "matmul" and layer.inputs and layer.outputs:
            return self._matmul_product(layer)
        return None

    def _conv_product(
        self, layer: Layer, kernel: list[int], columns: int, groups: int, prefix: str
    ) -> Product | None:
        source, target = self._shape(layer.inputs[0]), self._shape(layer.outputs[0])
        if not source or not target or len(source) < 3 or len(target) < 3:
            return None
        space = target[2:]
        if prefix:
            # What is written has passed a pool; the convolution's own extent follows from its input.
            names = ("PrePadding", "PostPadding", "Stride", "Dilation")
            numbers = [t for k in names if _are_counts(t := layer.attributes.get(f"{prefix}{k}"), least=0)]
            if [len(t) for t in (*numbers, kernel)] != [len(source) - 2] * 5:
                return None
            before, after, stride, dilation = numbers
            space = tuple(
                max(0, (n + b + a - d * (k - 1) - 1) // max(1, s) + 1)
                for n, b, a, s, d, k in zip(source[2:], before, after, stride, dilation, kernel, strict=True)
            )
        if "econv" in layer.kind or "econv" in str(layer.attributes.get("ParameterType")):
            space = source[2:]
        rows = source[0] * math.prod(space)
        return Product(rows, columns // groups, source[1] // groups * math.prod(kernel), groups)

    def _matmul_product(self, layer: Layer) -> Product | None:
        """Of two matrices that are read, however they lie, or of one and weights that are not shown."""
        target = self._shape(layer.outputs[0])
        shapes = [s for t in layer.inputs[:2] if (s := self._shape(t))]
        if not target or len(target) < 2 or not shapes or not math.prod(target):
            return None
        rows, columns, stack = target[-2], target[-1], math.prod(target[:-2])
        first = math.prod(shapes[0])
        if len(shapes) == 2 and len(shapes[1]) > 1:
            both = len(shapes[1]) > 2 and math.prod(shapes[1][:-2]) == stack
            square = first * math.prod(shapes[1]) / (math.prod(target) * (stack if both else 1))
            depth = math.isqrt(round(square)) if both or stack == 1 else shapes[0][-1]
            if both:
                return Product(rows, columns, depth, stack)
        else:
            depth = first // (rows * stack)
        return Product(rows * stack, columns, depth) if depth > 0 else None

    def _product_from_macs(self, layer: Layer, macs: int) -> Product | None:
        """A product of as much work with the rows and columns of the output, where the nodes alone tell it."""
        shape = self._shape(layer.outputs[0])
        if not shape or not math.prod(shape):
            return None
        size = math.prod(shape)
        channels = shape[1] if len(shape) > 3 else shape[-1]
        return Product(size // channels, channels, max(1, macs // size))

    def _shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """The sizes of a tensor at the batch that is asked for; None where they are not known, or cannot be."""
        shape = self._resolve_shape(tensor)
        return None if shape is not None and math.prod(shape) >= SIZE_LIMIT else shape

    def _resolve_shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        shape = tensor.shape
        if shape is not None and min(shape, default=0) >= 0:
            scales = self._scales_with_batch(tensor) and shape[:1] == (self.built,)
            return (self.batch, *shape[1:]) if scales else shape
        other = self.values.get(tensor.name)
        if shape is None and isinstance(other, Tensor):
            return self._resolve_shape(other)
        if (model_shape := self.sizes.get(other if isinstance(other, str) else tensor.name)) is not None:
            return model_shape
        if shape is not None and shape[:1] == (-1,) and min(shape[1:], default=0) >= 0:
            return (self.batch, *shape[1:])
        return None

    def _scales_with_batch(self, tensor: Tensor) -> bool:
        return self.batch != self.built and tensor.name in self.tensor_names

    def _bytes(self, tensor: Tensor) -> int | None:
        shape = self._shape(tensor)
        dtype = tensor.dtype
        if not dtype and shape is not None:
            other = self.values.get(tensor.name)
            value = self.model.values.get(other if isinstance(other, str) else tensor.name)
            dtype = other.dtype if isinstance(other, Tensor) else value.dtype if value is not None else ""
        if shape is None:
            return None
        size = nbytes(dtype, _pad_channels(shape, tensor.format))
        if size is None or not self._scales_with_batch(tensor) or shape[:1] == (self.batch,):
            return size
        # Its batch is folded into another dimension.
        return size * self.batch // self.built

    def _list_tables(self, layer: Layer) -> Mapping[int, int]:
        """How many numbers are taken out of the constant tables that a layer looks up, by how many each has."""
        tables: Counter[int] = Counter()
        for work, _ in self.shares.get(layer.id, []):
            if work.lookup is not None:
                tables[work.lookup[0]] += work.lookup[1]
        return tables

    def _weights(self, layer: Layer, tables: Mapping[int, int]) -> int | None:
        """Bytes of weights and biases that are not among the inputs."""
        if layer.constants:
            byte_counts = [
                _take_rows(nbytes(t.dtype, t.shape), t.shape, tables) for t in _deduplicate(layer.constants)
            ]
            return None if None in byte_counts else sum(n or 0 for n in byte_counts)
        attributes = [layer.attributes.get(f"{p}{k}") for p in ("", "Conv") for k in ("Weights", "Bias")]
        attribute_bytes = [
            nbytes(DTYPES.get(str(t.get("Type")), ""), (t["Count"],)) or 0
            for t in attributes
            if isinstance(t, Mapping) and isinstance(t.get("Count"), int)
        ]
        if attribute_bytes:
            return sum(attribute_bytes)
        if any(t.name and t.name not in self.tensor_names for t in layer.inputs):
            return 0
        shares = self.shares.get(layer.id, [])
        count = sum(min(w.parameters, w.lookup[1]) if w.lookup else w.parameters // n for w, n in shares)
        # A lookup reads indices besides, which are no type of weights.
        dtype = next((t for t in (layer.reads, layer.writes) if t in _COMPUTED), layer.reads or "fp32")
        return nbytes(dtype, (count,)) or 0


def _take_rows(size: int | None, shape: Sequence[int] | None, tables: Mapping[int, int]) -> int | None:
    """Bytes that are read of a tensor of ``size`` bytes: where it is a table, those that are taken out of it."""
    count = math.prod(shape) if shape is not None else 0
    return size if not size or count not in tables else min(size, size * tables[count] // count)


def _count_pointwise(layer: Layer) -> int | None:
    """Operations per element by a generated kernel's name; None where it sums over something or names none."""
    words = operations(layer)
    if not words or _SUMMING & set(words):
        return None
    return sum(_STEPS.get(w, 1) for w in words if w not in _CARRY)


def _are_counts(attribute: Any, *, least: int = 1) -> TypeGuard[list[int]]:
    """Whether an attribute is a list of numbers that can be counts."""
    return isinstance(attribute, list) and all(
        isinstance(t, int) and least <= t <= LARGEST for t in attribute
    )


def _fits(shape: Sequence[int], value: Value | None) -> bool:
    """Whether a model's input can have this shape."""
    declared_shape = None if value is None else value.shape
    return (
        declared_shape is not None
        and len(declared_shape) == len(shape)
        and all(not isinstance(d, int) or d == s for d, s in zip(declared_shape, shape, strict=True))
    )


def _units(layer: Layer, kind: Kind, product: Product | None, macs: int | None) -> tuple[str, bool]:
    """In which precision a layer computes, and whether on the matrix units."""
    tactic = layer.tactic.lower()
    matrix = bool(macs) and not any(word in tactic for word in _CORES) and not (product and product.thin)
    if not matrix and kind not in _PRODUCTS:
        return "fp32", False
    # One that reads constants alone writes what it computes in.
    precision = next((p for p in (layer.reads, layer.writes) if p in _COMPUTED), "fp32")
    # TensorRT multiplies FP32 as TF32 where it can, unless told otherwise or the kernel's name says so.
    return ("tf32" if matrix and precision == "fp32" else precision), matrix


def _map_aliases(engine: Engine) -> dict[str, str | Tensor]:
    """Of tensors that a compiler named anew: the model's value, or the tensor of which it is another layout (NCHWc)."""
    aliases: dict[str, str | Tensor] = {}
    for layer in engine.layers:
        if layer.kind in _REORDERS and len(layer.inputs) == len(layer.outputs) == 1:
            both = (*layer.inputs, *layer.outputs)
            shaped_tensor = next((t for t in both if t.shape is not None), None)
            if shaped_tensor is not None:
                aliases.update((t.name, shaped_tensor) for t in both if t.shape is None)
    for layer in engine.layers:
        values = layer.attributes.get("values")
        aliases.update(values if isinstance(values, Mapping) else {})
    return aliases


def _deduplicate(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors, each once, and its parts of other shapes too; those without a name all."""
    tensors_by_key: dict[object, Tensor] = {}
    for position, tensor in enumerate(tensors):
        tensors_by_key.setdefault((tensor.name, tensor.shape) if tensor.name else position, tensor)
    return list(tensors_by_key.values())


def _pad_channels(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The sizes in memory, where the layout pads channels."""
    if len(shape) < 3:
        return shape
    step = next((n for word, n in _CHANNEL_STEPS.items() if word in layout), 1)
    return (shape[0], -(-shape[1] // step) * step, *shape[2:])
