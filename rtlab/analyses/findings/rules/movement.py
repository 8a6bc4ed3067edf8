"""Rules on the types that layers compute in, and on steps that convert or move numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from rtlab.analyses.findings.rules.reading import PRODUCTS, Reading, get_data_input
from rtlab.analyses.reformats.reasons import Reformat, Source, find_reformats, format_tensor
from rtlab.core.engine import Layer
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
from rtlab.core.value import shape_text
from rtlab.documents.numbers import shorten_name
from rtlab.relation import trtexec_flags
from rtlab.relation.dataflow import FLOATS, QUANTIZED, Work

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
            fix=_FIXES.get(work) or _suggest_narrower_type(reading, work, quantized=2 * quantized > narrow),
        )


def _suggest_narrower_type(reading: Reading, work: Work, *, quantized: bool) -> str:
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
