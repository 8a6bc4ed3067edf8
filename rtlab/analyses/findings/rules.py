"""What is worth changing in an engine, each with its evidence, its measured cost and a remedy.

The rules cover the linters of NVIDIA's trex, which TensorRT 11.1 removed. Times join layers by id, which readers match
by name, and types are the tensors' own, so that BF16 is not shown as FP32.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from rtlab.analyses.findings.reading import (
    PAIR_OPS,
    PRODUCTS,
    Reading,
    count_channels,
    format_microseconds,
    get_data_input,
    get_integer,
    is_depthwise,
)
from rtlab.analyses.reformats.reasons import (
    LoneReason,
    Reformat,
    Source,
    explain_lone_quantization,
    find_reformats,
    format_tensor,
    get_channel_multiple,
)
from rtlab.analyses.roofline.estimate import Roofline
from rtlab.analyses.timing.times import Timing
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.finding import Finding
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.prepared import Prepared
from rtlab.core.value import shape_text
from rtlab.documents.numbers import shorten_name
from rtlab.relation import dataflow, trtexec_flags
from rtlab.relation.dataflow import FLOATS, MOVES, QUANTIZED, Dataflow, Work
from rtlab.relation.footprint import nbytes
from rtlab.relation.mapping import Mapping

#: In names of kernels: matrix instructions (mma), the shape of their tiles, or cuDNN's names such as h884, i16832.
_TENSOR_CORES = re.compile(
    r"[hiqd]?mma(?![a-z])|wgmma|utcmma|tensorop|tensor\d|(?<![a-z])[a-z]{1,4}(?:884|1688|8816|16816|16832|16864)(?!\d)",
    re.IGNORECASE,
)
#: Fused multiply-add, SIMT, dot products of four bytes (int8x4), and cuDNN's scudnn, hcudnn and icudnn without a tile.
_CUDA_CORES = re.compile(
    r"[fh]fma|simt|scudnn|hcudnn|(?<![a-z\d])icudnn|int8x4|[shd]gemm(?![a-z])|i?dp4a|fused_conv_act",
    re.IGNORECASE,
)
#: An instruction of tensor cores multiplies tiles of 8 or 16 rows; a product with fewer is bound by memory instead.
_ROWS = 8
#: Channels that a tensor core kernel reads at once: NVIDIA's developer guide, "Optimizing for Tensor Cores" (TF32 4,
#: FP16 8, INT8 16 where memory is concerned); packed INT8 layouts have 32, which the layout itself tells.
_UNITS = {"fp32": 4, "tf32": 4, "fp16": 8, "bf16": 8, "int8": 16, "fp8": 16, "int4": 32, "fp4": 32}
_FLOAT_READERS = frozenset({"softmax", "normalization", "kernel"})
#: Products of few rows that take less than this share are the usual classifier behind a network, not its burden.
_FEW_ROWS_SHARE = 0.1
#: Padding that is worth a change: work on a tenth more channels than there are is about what timing scatters by.
_WASTE = 0.1
#: Channels of an image. No one can change them, and first layers have kernels of their own.
_IMAGE = 4


@functools.lru_cache(1024)
def cores(tactic: str) -> str:
    """``tensor`` or ``cuda`` where the name of a kernel tells on which cores it multiplies, else empty.

    That a name holds ``xmma`` says nothing: ``sm70_xmma_..._simt_...`` and ``..._ffma_...`` run on CUDA cores.
    """
    if _TENSOR_CORES.search(tactic.replace("xmma", "")):
        return "tensor"
    return "cuda" if _CUDA_CORES.search(tactic) else ""


def off_tensor_cores(reading: Reading) -> Iterator[Finding]:
    """Convolutions and matrix products whose kernel, by its name, runs on CUDA cores.

    Silent where the name does not tell, for depthwise convolutions and for products of few rows, which tensor cores
    would not speed up, and for FP32 on GPUs without TF32.
    """
    groups: defaultdict[tuple[str, bool], list[Layer]] = defaultdict(list)
    for layer in reading.products():
        if cores(layer.tactic) != "cuda" or is_depthwise(layer) or _rows(layer) < _ROWS:
            continue
        if layer.reads == "fp32" and not _has_tf32(reading):
            continue
        few = count_channels(get_data_input(layer))
        groups[layer.reads, few is not None and few <= _IMAGE].append(layer)
    for (precision, image), layers in groups.items():
        what = pluralize(len(layers), f"layer in {precision} multiplies", f"layers in {precision} multiply")
        tf32 = "TF32 " if precision == "fp32" else ""
        descriptions = {y.id: f"runs {shorten_name(y.tactic)}" for y in layers}
        yield reading.finding(
            "off-tensor-cores",
            f"{precision}{'/image' if image else ''}",
            layers,
            f"{what} on CUDA cores, not on {tf32}tensor cores.",
            evidence=f"Names of kernels: {reading.quote(layers, descriptions)}",
            fix=_suggest_tensor_core_fix(reading, precision, image=image),
        )


def _suggest_tensor_core_fix(reading: Reading, precision: str, *, image: bool) -> str:
    """How layers get onto tensor cores."""
    if image:
        return (
            "Run the first layer in FP16, which has kernels for images on tensor cores, or fold blocks of pixels into "
            "channels (space to depth) in the model."
        )
    if precision == "fp32":
        return (
            f"Let these layers compute in FP16 or BF16 ({trtexec_flags.allow_half(reading.engine)}), and check that "
            "TF32 is not turned off."
        )
    quantize = "quantize what they write, by a Q/DQ pair behind them; " if precision in QUANTIZED else ""
    more = trtexec_flags.more_kernels(reading.engine)
    unit = _UNITS.get(precision, 8)
    return f"Make all channels multiples of {unit}; {quantize}or {more}, to have more kernels tried."


def _has_tf32(reading: Reading) -> bool:
    """TF32 came with compute capability 8.0; GeForce multiplies it at the rate of FP32, so nothing is lost there."""
    if "geforce" in reading.engine.device.lower():
        return False
    digits = str(reading.engine.target).removeprefix("sm")
    return digits.isdigit() and int(digits) >= 80


def _rows(layer: Layer) -> float:
    """Rows of the matrix product: positions of the output, or infinitely many where the shape is not known."""
    shape = layer.outputs[0].shape if layer.outputs else None
    if not shape or any(d < 0 for d in shape):
        return math.inf
    if dataflow.work(layer) == "matmul" or len(shape) < 3:
        return math.prod(shape[:-1])
    return math.prod(shape) / max(1, shape[1])


def quantized_in_float_out(reading: Reading) -> Iterator[Finding]:
    """Convolutions and products that read INT8 or FP8 and write floating point, those before an output apart.

    Where a lone quantization follows, that has a rule of its own, with the same remedy.
    """
    groups: defaultdict[tuple[str, str], list[Layer]] = defaultdict(list)
    for layer in reading.products():
        first = get_data_input(layer)
        if first is None or first.dtype not in QUANTIZED or layer.writes not in {"fp32", "fp16", "bf16"}:
            continue
        readers = reading.flow.after(layer, through=MOVES)
        # What leaves the engine or feeds a softmax must be floating point; a generated kernel may quantize it itself.
        leaves = any(reading.flow.is_output(t) for t in layer.outputs)
        if leaves or all(reading.work(r) in _FLOAT_READERS for r in readers):
            continue
        if any(reading.work(r) == "quantization" for r in readers):
            continue
        groups[first.dtype, layer.writes].append(layer)
    for (before, after), layers in groups.items():
        do = ("reads", "writes") if len(layers) == 1 else ("read", "write")
        more, half = 4 if after == "fp32" else 2, trtexec_flags.allow_half(reading.engine)
        descriptions = {y.id: f"writes {format_tensor(y.outputs[0])}" for y in layers}
        yield reading.finding(
            "float-output",
            f"{before}-{after}",
            layers,
            f"{pluralize(len(layers), 'layer')} {do[0]} {before} and {do[1]} {after}: {more} times the bytes.",
            evidence=f"Types of the tensors: {reading.quote(layers, descriptions)}",
            fix=(
                f"Put a Q/DQ pair behind {'it' if len(layers) == 1 else 'them'} on every branch, the shortcut into an "
                "Add too, so that the quantization becomes a part of the layer."
                + (f" What must be floating point can be FP16: {half}." if after == "fp32" else "")
            ),
        )


#: What a format of blocks needs to be multiplied as it is.
_BLOCK_FIXES = {
    "FP4": "TensorRT-RTX 1.7 multiplies in four bits for sm120, where both factors are in NVFP4: quantize the "
    "activation by TRT_FP4DynamicQuantize, as rtlab's fp4 does.",
    "MXFP8": "TensorRT-RTX 1.7 multiplied MXFP8 in floating point for sm89 and sm120, and FP8 with one scale for a "
    "tensor or a channel in eight bits: quantize to fp8 where speed counts.",
}


def block_formats_in_float(reading: Reading) -> Iterator[Finding]:
    """Products of numbers in NVFP4 or MXFP8 that are dequantized and multiplied in floating point."""
    groups: defaultdict[str, list[Layer]] = defaultdict(list)
    for layer in reading.products():
        if layer.reads in FLOATS and (block_format := reading.get_block_format(layer)):
            groups[block_format].append(layer)
    for block_format, layers in groups.items():
        descriptions = {y.id: f"reads {format_tensor(y.inputs[0])}" for y in layers if y.inputs}
        yield reading.finding(
            "block-format-in-float",
            block_format.lower(),
            layers,
            f"{pluralize(len(layers), 'product')} of {block_format} numbers "
            f"{'runs' if len(layers) == 1 else 'run'} in floating point: the numbers are dequantized before.",
            evidence=f"Types of the tensors: {reading.quote(layers, descriptions)}",
            fix=_BLOCK_FIXES[block_format],
        )


def few_rows(reading: Reading) -> Iterator[Finding]:
    """Matrix products of so few rows that reading the weights is what takes the time. Silent without times."""
    layers, descriptions = [], {}
    for layer in reading.products():
        first, last = get_data_input(layer), next(iter(layer.outputs), None)
        if first is None or last is None or not first.shape or not last.shape:
            continue
        if layer.id not in reading.times:
            continue
        shapes = (first.shape, last.shape)
        # A product, or the convolution that TensorRT makes of one.
        flat = all(len(s) > 1 and min(s) > 0 and all(d == 1 for d in s[2:]) for s in shapes)
        weights = nbytes(first.dtype, tuple(s[1] for s in shapes)) if flat else None
        if weights is None or last.shape[0] >= _ROWS or (get_integer(layer, "Groups") or 1) > 1:
            continue
        layers.append(layer)
        descriptions[layer.id] = (
            f"multiplies {pluralize(last.shape[0], 'row')} with {weights / 1e6:,.3g} MB of weights in "
            f"{format_microseconds(reading.times[layer.id] * 1e3)}"
        )
    if layers and (reading.share(layers) or 0.0) >= _FEW_ROWS_SHARE:
        yield reading.finding(
            "few-rows",
            "",
            layers,
            f"{pluralize(len(layers), 'product has', 'products have')} fewer than {_ROWS} rows and "
            f"{'waits' if len(layers) == 1 else 'wait'} for memory: all weights are read for each small batch.",
            evidence=f"Shapes of the tensors: {reading.quote(layers, descriptions)}",
            fix="Run larger batches, which read the weights once for all rows, or give the weights a narrower type.",
        )


def unaligned(reading: Reading) -> Iterator[Finding]:
    """Channels that the kernel's layout or its tensor core tile must pad by more than a tenth."""
    groups: defaultdict[str, list[Layer]] = defaultdict(list)
    descriptions: dict[str, str] = {}
    for layer in reading.products():
        if (get_integer(layer, "Groups") or 1) > 1 or cores(layer.tactic) == "cuda":
            continue
        # Only TF32 kernels of FP32 layers have a tile.
        if layer.precision == "fp32" and cores(layer.tactic) != "tensor":
            continue
        for tensor, verb in ((get_data_input(layer), "reads"), (next(iter(layer.outputs), None), "writes")):
            count = count_channels(tensor)
            if tensor is None or count is None or layer.id in descriptions:
                continue
            if count <= _IMAGE and verb == "reads":
                continue
            unit = max(get_channel_multiple(tensor), _UNITS.get(tensor.dtype, 1))
            if -(-count // unit) * unit / count - 1 > _WASTE:
                layout = format_tensor(tensor)
                descriptions[layer.id] = f"{verb} {count} channels in units of {unit} ({layout})"
                groups[layer.precision].append(layer)
    for dtype, layers in groups.items():
        yield reading.finding(
            "unaligned",
            dtype,
            layers,
            f"{pluralize(len(layers), f'{dtype} layer has', f'{dtype} layers have')} channels that do not fill the "
            "kernel's units.",
            evidence=f"Channels and layouts: {reading.quote(layers, descriptions)}",
            fix=(
                "Choose channel counts that are multiples of these units when the network is next trained, or append "
                "zero channels to the weights: the results stay the same."
            ),
        )


def dense_though_sparse(reading: Reading) -> Iterator[Finding]:
    """Layers with 2:4 sparse weights for which a dense kernel was chosen."""
    eligible: set[str] = set()
    chosen: set[str] = set()
    for sparsity in reading.log.sparsity if reading.log else ():
        eligible.update(sparsity.eligible)
        chosen.update(sparsity.chosen)
    layers = [
        y
        for y in reading.layers
        if (y.name in eligible and y.name not in chosen and get_integer(y, "HasSparseWeights") != 1)
        or (get_integer(y, "AllowSparse") == 1 and get_integer(y, "HasSparseWeights") == 0)
    ]
    if layers:
        flag = "--sparsity=enable" if reading.engine.maker.flags else "SPARSE_WEIGHTS"
        by_log, by_file = "is eligible by the build log", "has AllowSparse 1 and HasSparseWeights 0"
        descriptions = {y.id: by_log if y.name in eligible else by_file for y in layers}
        yield reading.finding(
            "dense-though-sparse",
            "",
            layers,
            (
                f"{pluralize(len(layers), 'layer')} could use sparse weights "
                f"and {'runs' if len(layers) == 1 else 'run'} dense."
            ),
            evidence=f"What the builder reported: {reading.quote(layers, descriptions)}",
            fix=(
                f"Build with {flag} if it was off; if it was on, the dense kernel was faster: sparse "
                "ones gain from many channels and large batches."
            ),
        )


_NARROW = QUANTIZED | {"fp16", "bf16"}
#: Layers whose type is a choice.
_COMPUTES: frozenset[Work] = PRODUCTS | {
    "pooling", "pointwise", "softmax", "normalization", "scale", "reduce", "kernel",
}  # fmt: skip
#: A group of layers below this share of the time is not worth a person's.
_LEAST = 0.01
#: Layers between two conversions that undo each other.
_BETWEEN = 2

_FIXES: dict[Work, str] = {
    "softmax": (
        "Softmax may stay in FP32 for its range; FP16 is accurate enough for most models. Try it, and compare the "
        "outputs."
    ),
    "normalization": (
        "Normalization sums many squares, which can overflow in FP16: leave it in FP32 if the outputs differ, or try "
        "BF16."
    ),
    "pooling": (
        "Let the pooling run in the type of its neighbours: in an INT8 network by a Q/DQ pair at its input, so that "
        "the layer before writes INT8 too."
    ),
}


def wide_layers(reading: Reading) -> Iterator[Finding]:
    """Layers that read and write FP32 in an engine whose convolutions and products are mostly narrower."""
    products = [p for y in reading.products() if (p := get_data_input(y)) is not None]
    narrow = sum(p.dtype in _NARROW for p in products)
    quantized = sum(p.dtype in QUANTIZED for p in products)
    if not narrow or 2 * narrow < len(products):
        return
    groups: defaultdict[Work, list[Layer]] = defaultdict(list)
    for layer in reading.layers:
        if reading.work(layer) not in _COMPUTES or layer.reads != "fp32" or layer.writes != "fp32":
            continue
        # A generated kernel behind an INT8 product turns its sums into numbers: part of that product, not a wide layer.
        sums = any(
            p.dtype in QUANTIZED for b in reading.flow.before(layer) if (p := get_data_input(b)) is not None
        )
        if reading.work(layer) != "kernel" or not sums:
            groups[reading.work(layer)].append(layer)
    for work, layers in groups.items():
        if not reading.matters(layers, _LEAST):
            continue
        descriptions = {
            y.id: f"({y.kind}) reads {format_tensor(y.inputs[0])} and writes {format_tensor(y.outputs[0])}"
            for y in layers
        }
        name = "generated kernel" if work == "kernel" else f"{work} layer"
        yield reading.finding(
            "wide-layer",
            work,
            layers,
            f"{pluralize(len(layers), f'{name} computes', f'{name}s compute')} in fp32, though "
            f"{narrow} of {pluralize(len(products), 'convolution or product', 'convolutions and products')} are "
            "narrower.",
            evidence=f"Types of the tensors: {reading.quote(layers, descriptions)}",
            fix=_FIXES.get(work)
            or _suggest_narrower_type(reading, work, layers, quantized=2 * quantized > narrow),
        )


def _suggest_narrower_type(reading: Reading, work: Work, layers: list[Layer], *, quantized: bool) -> str:
    if quantized and work in PRODUCTS and all(map(reading.is_float_only, layers)):
        ops = " and ".join(sorted({op for y in layers for op in reading.ops(y) - PAIR_OPS}))
        return (
            f"{reading.engine.maker.title} computes {ops} in floating point, with Q/DQ pairs or without: leave such "
            f"pairs out, and let it be FP16 if accuracy allows: {trtexec_flags.allow_half(reading.engine)}."
        )
    if quantized and work in PRODUCTS:
        return "Put Q/DQ pairs at the inputs and at the weights, as for the others, unless accuracy needs FP32 here."
    if quantized:
        return (
            "Put a Q/DQ pair at the inputs, or let it be FP16 if accuracy needs floating point here: "
            f"{trtexec_flags.allow_half(reading.engine)}."
        )
    flag = trtexec_flags.retype(reading.engine)
    return f"Give them the type of their neighbours, {flag}, unless accuracy needs FP32 here."


def back_and_forth(reading: Reading) -> Iterator[Finding]:
    """Tensors that are converted, pass at most two layers, and are converted back."""
    descriptions = find_cancelling_conversions(reading)
    if conversions := [y for y in reading.layers if y.id in descriptions]:
        yield reading.finding(
            "back-and-forth",
            "",
            conversions,
            f"{pluralize(len(conversions), 'layer converts', 'layers convert')} a tensor to another type and back "
            f"again within {_BETWEEN} layers.",
            evidence=f"Types of the tensors: {reading.quote(conversions, descriptions)}",
            fix=(
                "Let what lies between compute in the type of its neighbours, or move the conversions around all of "
                "it."
            ),
        )


def find_cancelling_conversions(reading: Reading) -> dict[str, str]:
    """Conversions that a later one undoes, with the later ones: by layer id, what each does."""
    descriptions: dict[str, str] = {}
    for layer in reading.of("reformat", "quantization"):
        if types := _conversion(layer):
            for back in _find_nearby_conversions(reading, layer):
                if _conversion(back) == types[::-1]:
                    way = f"converts {types[0]} to {types[1]}"
                    descriptions[layer.id] = f'{way}, and "{shorten_name(back.name)}" back'
                    descriptions.setdefault(back.id, f"converts {types[1]} to {types[0]}")
    return descriptions


def _conversion(layer: Layer) -> tuple[str, str] | None:
    if not layer.inputs or not layer.outputs:
        return None
    types = layer.inputs[0].dtype, layer.outputs[0].dtype
    return types if types[0] != types[1] and set(types) <= FLOATS | QUANTIZED else None


def _find_nearby_conversions(reading: Reading, layer: Layer) -> Iterator[Layer]:
    """Converting steps behind a layer, with at most ``_BETWEEN`` other layers between them."""
    ring, visited = [layer], {layer.id}
    for _ in range(_BETWEEN + 1):
        further = []
        for at in ring:
            for reader in reading.flow.after(at):
                if reader.id in visited:
                    continue
                visited.add(reader.id)
                if _conversion(reader) and reading.work(reader) in {"reformat", "quantization"}:
                    yield reader
                else:
                    further.append(reader)
        ring = further


#: Numbers in a tensor whose copy takes no longer than a launch.
_SMALL = 4096

_TITLES: dict[Source, tuple[str, str]] = {
    "input": ("converts an input of the network", "convert inputs of the network"),
    "output": ("converts an output of the network", "convert outputs of the network"),
    "type": ("changes the type of a tensor between layers", "change the types of tensors between layers"),
    "layout": (
        "changes the layout of a tensor between layers",
        "change the layouts of tensors between layers",
    ),
    "copy": ("copies or re-orders a tensor", "copy or re-order tensors"),
}
_MOVE_FIXES: dict[Work, str] = {
    "shuffle": (
        "Export the model in the layout that its convolutions want (NCHW), cancel transposes against each other, or "
        "feed the input in the order in which it is read."
    ),
    "slice": (
        "Put padding into the pads attribute of the convolution or pooling behind it, and cut tensors at the edge of "
        "the model; a Slice or Pad between layers is a copy."
    ),
    "concat": (
        "Concatenate tensors that one layer each writes and no other reads: then they are written in place; inputs and "
        "outputs of the network are copied."
    ),
    "gather": "Gather along axis 0 and on as small a tensor as possible; nothing fuses with a Gather.",
}


def copies(reading: Reading) -> Iterator[Finding]:
    """Reformatting steps by their source.

    Steps that quantize are left to the rule of lone pairs, but for inputs; those that another undoes to a third.
    Silent of what nothing can be done about, and without times of tensors too small to matter.
    """
    groups: defaultdict[Source, list[tuple[Layer, Reformat]]] = defaultdict(list)
    by_id = {y.id: y for y in reading.layers}
    elsewhere = find_cancelling_conversions(reading)
    for reformat in find_reformats(reading.engine, reading.timing, reading.flow):
        layer = by_id[reformat.layer]
        if layer.id in elsewhere or not _is_worth_reporting(reformat, layer):
            continue
        if reformat.source != "quantization":
            groups[reformat.source].append((layer, reformat))
        elif reading.flow.is_from_input(layer, layer.inputs[0]):
            groups["input"].append((layer, reformat))
    for source, pairs in groups.items():
        layers = [y for y, _ in pairs]
        if not reading.matters(layers, _LEAST):
            continue
        descriptions = {y.id: f"turns {r.before} into {r.after}" for y, r in pairs}
        first = max(pairs, key=lambda p: p[1].milliseconds or 0.0)[1]
        one, more = _TITLES[source]
        yield reading.finding(
            "reformat",
            source,
            layers,
            f"{pluralize(len(layers), f'layer {one}', f'layers {more}')}.",
            evidence=f"Types and layouts: {reading.quote(layers, descriptions)} {first.cause}",
            fix=first.fix,
        )


def _is_worth_reporting(reformat: Reformat, layer: Layer) -> bool:
    """Whether a step is worth a word: something can be done about it, or it was measured to cost something."""
    if reformat.milliseconds is not None:
        return reformat.avoidable or reformat.source == "layout"
    shape = layer.outputs[0].shape
    is_static = shape is not None and all(d >= 0 for d in shape)
    return reformat.avoidable and not (is_static and math.prod(shape or ()) < _SMALL)


def moves(reading: Reading) -> Iterator[Finding]:
    """Transposes, slices, paddings, concatenations and gathers that take time of their own. Silent without times."""
    for work, fix in _MOVE_FIXES.items():
        layers = [y for y in reading.of(work) if reading.times.get(y.id, 0.0) > 0]
        if not layers or not reading.matters(layers, _LEAST):
            continue
        descriptions = {
            y.id: f"({y.kind}) turns {shape_text(y.inputs[0].shape)} into {shape_text(y.outputs[0].shape)}"
            for y in layers
            if y.inputs and y.outputs
        }
        yield reading.finding(
            "move",
            work,
            layers,
            f"{pluralize(len(layers), f'{work} layer moves', f'{work} layers move')} numbers and "
            f"{'computes' if len(layers) == 1 else 'compute'} nothing.",
            evidence=f"Shapes of the tensors: {reading.quote(layers, descriptions)}",
            fix=fix,
        )


_ALONE: dict[LoneReason, str] = {
    "branch": ", because the tensor is also needed in floating point",
    "shortcut": ", because the layer before adds a shortcut in floating point",
    "quantize": "",
    "dequantize": "",
}


def lone_pairs(reading: Reading) -> Iterator[Finding]:
    """Quantize and dequantize steps that no layer absorbed, those of the engine's inputs apart.

    Found by type and origin, not by name: a step is a Scale up to TensorRT 8.2, later a Reformat of origin QDQ.
    """
    groups: defaultdict[LoneReason, list[Layer]] = defaultdict(list)
    causes: dict[str, tuple[str, str]] = {}
    # Two that undo each other have a rule of their own.
    elsewhere = find_cancelling_conversions(reading)
    for layer in reading.of("quantization"):
        if not layer.inputs or not layer.outputs or layer.id in elsewhere:
            continue
        reason, cause, fix = explain_lone_quantization(layer, reading.flow)
        # What an operator in floating point writes can be quantized nowhere else.
        if reason != "input" and not any(map(reading.is_float_only, reading.flow.before(layer))):
            causes[layer.id] = cause, fix
            groups[reason].append(layer)
    for reason, layers in groups.items():
        descriptions = {
            y.id: f"turns {format_tensor(y.inputs[0])} into {format_tensor(y.outputs[0])}" for y in layers
        }
        cause, fix = causes[max(layers, key=lambda y: reading.times.get(y.id, 0.0)).id]
        word = "dequantize" if reason == "dequantize" else "quantize"
        yield reading.finding(
            "lone-pair",
            reason,
            layers,
            f"{pluralize(len(layers), f'{word} layer stands', f'{word} layers stand')} alone, absorbed by no layer"
            f"{_ALONE[reason]}.",
            evidence=f"Types of the tensors: {reading.quote(layers, descriptions)} {cause}",
            fix=fix,
        )


def lone_epilogues(reading: Reading) -> Iterator[Finding]:
    """Activations, sums and scales that run on their own behind a convolution or a matrix product, with the reason."""
    groups: defaultdict[str, list[Layer]] = defaultdict(list)
    descriptions: dict[str, str] = {}
    for layer in reading.of("pointwise", "scale"):
        for reason, evidence in _explain_missed_fusion(reading, layer):
            if layer.id not in descriptions:
                descriptions[layer.id] = evidence
                groups[reason].append(layer)
    titles = {
        "pair": "because a Q/DQ pair stands between",
        "consumer": "because the tensor between has another reader",
        "type": "because the two differ in type",
        "plain": "though nothing else reads the tensor between",
    }
    fixes = {
        "pair": (
            "Move the pair behind the activation or the sum: Q/DQ belongs at the inputs of convolutions, not between "
            "a convolution and what follows it."
        ),
        "consumer": (
            "Let the other reader take the tensor behind the activation, or do not mark the tensor as an output."
        ),
        "type": f"Give both one type, {trtexec_flags.retype(reading.engine)}.",
        "plain": (
            "Check what keeps them apart: a sum with broadcast, an operator that TensorRT has no fusion for, or one "
            "that an equivalent, such as Relu or Clip, can replace."
        ),
    }
    for reason, layers in groups.items():
        yield reading.finding(
            "lone-epilogue",
            reason,
            layers,
            f"{pluralize(len(layers), 'pointwise layer runs', 'pointwise layers run')} behind a convolution or "
            f"product and not in it, {titles[reason]}.",
            evidence=f"Readers and types of the tensors between: {reading.quote(layers, descriptions)}",
            fix=fixes[reason],
        )


def _explain_missed_fusion(reading: Reading, layer: Layer) -> Iterator[tuple[str, str]]:
    """Why a layer is not a part of the product before it; nothing if no product is before it."""
    before = list(reading.flow.before(layer))
    steps = [b for b in before if reading.work(b) == "quantization"]
    for step in steps:
        for product in reading.flow.before(step):
            if reading.work(product) in PRODUCTS:
                yield "pair", f'reads from "{product.name}" through "{step.name}"'
    reasons = []
    for product in before:
        if reading.work(product) not in PRODUCTS or not product.outputs:
            continue
        between: Tensor = product.outputs[0]
        readers = [r for r in reading.flow.after(product) if r.id != layer.id]
        if reading.flow.is_output(between) or readers:
            who = f'"{readers[0].name}"' if readers else "the caller, as an output of the engine,"
            reasons.append(("consumer", f'reads from "{product.name}", whose output {who} reads too'))
        elif between.dtype in QUANTIZED and reading.explicit:
            reasons.append(("pair", f'reads {format_tensor(between)}, quantized, from "{product.name}"'))
        elif layer.writes and between.dtype and layer.writes != between.dtype:
            reasons.append(("type", f'reads {between.dtype} from "{product.name}" and writes {layer.writes}'))
        else:
            reasons.append(("plain", f'reads {format_tensor(between)} from "{product.name}" alone'))
    # A sum of two products fuses with either, so one whose tensor has no other reader decides.
    reasons.sort(key=lambda r: r[0] == "consumer")
    yield from reasons[:1]


#: Microseconds; a kernel that short takes about as long as its launch.
_TINY = 5.0
#: Fewer short layers than this, or a smaller part of the time, and launches are not what an engine waits for.
_TINY_LAYERS, _TINY_SHARE = 10, 0.25
#: A latency that exceeds the sum of its layers by more than a tenth means that the GPU waits between them.
_GAP = 1.1
#: The sum of the layers exceeds the latency by 2 to 78 percent in thirteen engines that were looked at; beyond half,
#: absolute times mislead.
_OVER = 1.5


def names_only(reading: Reading) -> Iterator[Finding]:
    """A file from an engine without detailed verbosity, which no other rule can judge."""
    if any(y.kind or y.inputs or y.outputs for y in reading.layers):
        return
    yield reading.finding(
        "names-only",
        "",
        (),
        "The file tells the names of layers and nothing else, so the engine cannot be judged.",
        evidence=f"None of {pluralize(len(reading.layers), 'layer')} has a kind, a type or a tensor.",
        cost="Cost unknown: types, tactics and layouts are not reported.",
        fix="Build the engine again with trtexec --profilingVerbosity=detailed, and export it with --exportLayerInfo.",
    )


def tiny_layers(reading: Reading) -> Iterator[Finding]:
    """Many layers that take no longer than it takes to launch them."""
    layers = [y for y in reading.layers if 0 < reading.times.get(y.id, 0.0) * 1e3 < _TINY]
    running = sum(t > 0 for t in reading.times.values())
    if len(layers) < _TINY_LAYERS or (reading.share(layers) or 0.0) < _TINY_SHARE:
        return
    descriptions = {y.id: f"takes {format_microseconds(reading.times[y.id] * 1e3)}" for y in layers}
    yield reading.finding(
        "tiny-layers",
        "",
        layers,
        f"{len(layers)} of {running} layers take less than {_TINY:g} µs each, about as long as a kernel's launch.",
        evidence=f"Times of layers: {reading.quote(layers, descriptions)}",
        fix=(
            "Run with a larger batch, which gives each kernel more to do, or, where that is off, with CUDA graphs "
            "(--useCudaGraph), which launch all kernels at once."
        ),
    )


def idle(reading: Reading) -> Iterator[Finding]:
    """Whole inferences that take much longer than their layers, or much less."""
    times = reading.timing
    if times is None or times.ratio is None or times.total is None or not times.summed:
        return
    evidence = (
        f"The latency of a whole inference is {times.total:.3g} ms, the sum of its {len(times.layers)} timed layers "
        f"{times.summed:.3g} ms ({times.ratio:.2f} times as much), both measured."
    )
    if times.total > _GAP * times.summed:
        key, title = (
            "gaps",
            "The GPU waits between layers: an inference takes longer than all its layers together.",
        )
        cost = f"{format_microseconds((times.total - times.summed) * 1e3)} of each inference are in no layer."
        fix = "Run with CUDA graphs (--useCudaGraph) and without work of the host between inferences."
    elif times.ratio > _OVER:
        key = "overstated"
        title = "The layers' times overstate the inference: read them as shares, not as milliseconds."
        cost = "No cost: profiling each layer adds to its time, and keeps layers from overlapping."
        fix = "Take latencies from a run without profiling: trtexec --separateProfileRun."
    else:
        return
    yield reading.finding("idle", key, (), title, evidence=evidence, cost=cost, fix=fix)


#: The gravest first: this decides among findings whose cost is equal or unknown.
RULES: tuple[Callable[[Reading], Iterator[Finding]], ...] = (
    off_tensor_cores,
    lone_pairs,
    lone_epilogues,
    block_formats_in_float,
    wide_layers,
    quantized_in_float_out,
    few_rows,
    back_and_forth,
    copies,
    moves,
    dense_though_sparse,
    unaligned,
    tiny_layers,
    idle,
)

#: Those that need no more than names and times.
_BY_NAMES = (tiny_layers, idle)


def rank_findings(
    engine: Engine,
    mapping: Mapping | None = None,
    model: Model | None = None,
    timing: Timing | None = None,
    log: BuildLog | None = None,
    *,
    flow: Dataflow | None = None,
    estimate: Roofline | None = None,
    prepared: Prepared | None = None,
) -> tuple[Finding, ...]:
    """Findings by the measured time at stake, the longest first, then by gravity.

    Where the file holds names of layers only, the first finding says so, and rules that need more are skipped.

    Args:
        engine: Engines of other compilers than TensorRT's family have no findings.
        mapping: Relates its layers to nodes: findings name nodes, and unknown layers are classified by theirs.
        model: The source model of that mapping.
        timing: Times of this very engine; without them, rules about time are silent.
        log: The build log of this engine, for sparsity.
        flow: Of the engine; computed where it is None.
        estimate: What its layers take on its GPU, which is the cost where no times are.
        prepared: What was built of the model.
    """
    reading = Reading(engine, mapping, model, timing, log, flow=flow, estimate=estimate, prepared=prepared)
    if not engine.maker.tensorrt or not engine.layers:
        return ()
    bare = tuple(names_only(reading))
    rule_findings = [f for rule in (_BY_NAMES if bare else RULES) for f in rule(reading)]
    return bare + tuple(
        sorted(rule_findings, key=lambda f: -1.0 if f.microseconds is None else f.microseconds, reverse=True)
    )
