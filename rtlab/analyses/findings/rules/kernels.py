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
    shorten_name,
)
from rtlab.analyses.reformats.reasons import format_tensor, get_channel_multiple
from rtlab.core.engine import Layer
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
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
#: TensorRT's documentation of IConvolutionLayer: for INT8, channels per group must be a multiple of 4, in and out.
_GROUP = {"int8": 4}
#: A depthwise convolution does a fraction of its neighbours' arithmetic: one and a half times their time is slow.
_SLOW = 1.5


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
        tf32 = precision == "fp32"
        fix = _suggest_tensor_core_fix(reading, precision, layers, image=image)
        descriptions = {y.id: _kernel(reading, y) for y in layers}
        yield reading.finding(
            "off-tensor-cores",
            f"{precision}{'/image' if image else ''}",
            layers,
            f"{what} on CUDA cores, not on {'TF32 ' if tf32 else ''}tensor cores.",
            evidence=f"Names of kernels: {reading.quote(layers, descriptions)}",
            fix=fix,
        )


def _suggest_tensor_core_fix(reading: Reading, precision: str, layers: list[Layer], *, image: bool) -> str:
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
    unit = _UNITS.get(precision, 8)
    counts = [count_channels(t) for y in layers for t in (get_data_input(y), next(iter(y.outputs), None))]
    more = trtexec_flags.more_kernels(reading.engine)
    if any(c is not None and c % unit for c in counts):
        return f"Make all channels multiples of {unit}; where they are, {more}, to have more kernels tried."
    if precision in QUANTIZED and any(y.writes not in QUANTIZED for y in layers):
        return (
            f"Quantize what they write, by a Q/DQ pair behind them, for most kernels of {precision} write {precision}; "
            f"or {more}, to have more kernels tried."
        )
    return f"{more[0].upper()}{more[1:]}, to have more kernels tried; the channels are as tensor cores want them."


def _kernel(reading: Reading, layer: Layer) -> str:
    few = count_channels(get_data_input(layer))
    description = f"runs {shorten_name(layer.tactic)}" + (
        f" on {few} input channels" if few is not None and few < 16 else ""
    )
    best: dict[str, float] = {}
    for tuning in reading.tunings(layer):
        for tried in tuning.timed:
            kind = cores(tried.name)
            best[kind] = min(best.get(kind, math.inf), tried.milliseconds)
    if "cuda" in best and "tensor" in best:
        cuda, tensor = (format_microseconds(best[k] * 1e3) for k in ("cuda", "tensor"))
        description += f" (the builder timed {cuda}, and {tensor} for the best on tensor cores)"
    return description


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
        descriptions = {}
        for layer in layers:
            readers = reading.flow.after(layer, through=MOVES)
            who = f'"{shorten_name(readers[0].name)}"' + (
                f" and {len(readers) - 1} more" if readers[1:] else ""
            )
            descriptions[layer.id] = f"writes {format_tensor(layer.outputs[0])}, read by {who}"
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
        if (
            layer.id not in reading.times
            or first is None
            or last is None
            or not first.shape
            or not last.shape
        ):
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
                descriptions[layer.id] = (
                    f"{verb} {count} channels in units of {unit} ({format_tensor(tensor)})"
                )
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


def narrow_groups(reading: Reading) -> Iterator[Finding]:
    """Grouped convolutions, not depthwise, with groups too narrow for the vectors of their type."""
    groups: defaultdict[str, list[Layer]] = defaultdict(list)
    descriptions: dict[str, str] = {}
    for layer in reading.of("convolution", "deconvolution"):
        count, unit = get_integer(layer, "Groups") or 1, _GROUP.get(layer.reads)
        if count < 2 or unit is None or is_depthwise(layer):
            continue
        inside, outside = count_channels(get_data_input(layer)), _maps(layer)
        if inside is None or outside is None:
            continue
        if (inside // count) % unit or (outside // count) % unit:
            descriptions[layer.id] = (
                f"has {count} groups of {inside // count} input and {outside // count} output channels"
            )
            groups[layer.reads].append(layer)
    for dtype, layers in groups.items():
        yield reading.finding(
            "narrow-groups",
            dtype,
            layers,
            f"{pluralize(len(layers), 'grouped convolution')} in {dtype} with groups that are no multiple of "
            f"{_GROUP[dtype]} channels.",
            evidence=f"Attributes of the layers: {reading.quote(layers, descriptions)}",
            fix=f"Make the channels of a group a multiple of {_GROUP[dtype]}, or keep these layers in a wider type.",
        )


def _maps(layer: Layer) -> int | None:
    return get_integer(layer, "OutMaps") or count_channels(next(iter(layer.outputs), None))


def slow_depthwise(reading: Reading) -> Iterator[Finding]:
    """Quantized depthwise convolutions that take longer than the convolutions around them, which do more arithmetic."""
    descriptions: dict[str, str] = {}
    layers = []
    for layer in reading.of("convolution"):
        if layer.reads not in QUANTIZED or not is_depthwise(layer) or layer.id not in reading.times:
            continue
        around = [
            reading.times[n.id]
            for n in (*reading.flow.before(layer), *reading.flow.after(layer))
            if reading.work(n) == "convolution" and not is_depthwise(n) and n.id in reading.times
        ]
        if around and reading.times[layer.id] > _SLOW * max(around) > 0:
            descriptions[layer.id] = (
                f"takes {format_microseconds(reading.times[layer.id] * 1e3)}, the convolutions beside it at most "
                f"{format_microseconds(max(around) * 1e3)}"
            )
            layers.append(layer)
    if layers:
        yield reading.finding(
            "slow-depthwise",
            "",
            layers,
            f"{pluralize(len(layers), 'quantized depthwise convolution takes', 'quantized depthwise convolutions take')} "  # noqa: E501 - one call
            "longer than the neighbours that do more arithmetic.",
            evidence=f"Times of layers: {reading.quote(layers, descriptions)}",
            fix="Compare with an engine that has these layers in FP16: depthwise kernels gain little from INT8.",
        )


def dynamic_weights(reading: Reading) -> Iterator[Finding]:
    """Convolutions whose weights or bias are computed at run time."""
    descriptions: dict[str, str] = {}
    for layer in reading.products():
        what = [
            w
            for w, key in (("weights", "HasDynamicFilter"), ("bias", "HasDynamicBias"))
            if get_integer(layer, key)
        ]
        if what:
            descriptions[layer.id] = f"reads its {' and '.join(what)} as a tensor"
    layers = [y for y in reading.layers if y.id in descriptions]
    if layers:
        yield reading.finding(
            "dynamic-weights",
            "",
            layers,
            (
                f"{pluralize(len(layers), 'convolution computes', 'convolutions compute')} "
                "with weights that are not constant."
            ),
            evidence=f"HasDynamicFilter and HasDynamicBias: {reading.quote(layers, descriptions)}",
            fix=(
                "Fold the weights to constants before the build (polygraphy surgeon sanitize --fold-constants), so "
                "that they can be packed, quantized and pruned ahead of time; or keep them if they must change."
            ),
        )


def dense_though_sparse(reading: Reading) -> Iterator[Finding]:
    """Layers with 2:4 sparse weights for which a dense kernel was chosen."""
    eligible: set[str] = set()
    chosen: set[str] = set()
    for sparsity in reading.log.sparsity if reading.log else ():
        eligible |= set(sparsity.eligible)
        chosen |= set(sparsity.chosen)
    layers = [
        y
        for y in reading.layers
        if (y.name in eligible and y.name not in chosen and get_integer(y, "HasSparseWeights") != 1)
        or (get_integer(y, "AllowSparse") == 1 and get_integer(y, "HasSparseWeights") == 0)
    ]
    if layers:
        descriptions = {
            y.id: "is eligible by the build log"
            if y.name in eligible
            else "has AllowSparse 1 and HasSparseWeights 0"
            for y in layers
        }
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
                f"Build with {_sparse(reading)} if it was off; if it was on, the dense kernel was faster: sparse "
                "ones gain from many channels and large batches."
            ),
        )


def _sparse(reading: Reading) -> str:
    return "--sparsity=enable" if reading.engine.maker.flags else "SPARSE_WEIGHTS"
