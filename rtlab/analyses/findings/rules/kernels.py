"""Rules on the kernels of convolutions and matrix products."""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator

from rtlab.analyses.findings.rules.reading import (
    Reading,
    count_channels,
    format_microseconds,
    get_data_input,
    get_integer,
    is_depthwise,
)
from rtlab.analyses.reformats.reasons import format_tensor, get_channel_multiple
from rtlab.core.engine import Layer
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
from rtlab.documents.numbers import shorten_name
from rtlab.relation import trtexec_flags
from rtlab.relation.dataflow import MOVES, QUANTIZED, work
from rtlab.relation.footprint import nbytes

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
    if work(layer) == "matmul" or len(shape) < 3:
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
