"""Rules on steps that move numbers and compute nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from rtlab.analyses.findings.rules.precision import find_cancelling_conversions
from rtlab.analyses.findings.rules.reading import Reading
from rtlab.analyses.reformats.reasons import Reformat, Source, find_reformats
from rtlab.core.engine import Layer
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
from rtlab.core.value import shape_text
from rtlab.relation.dataflow import Work

_WITH_THEM = (
    "Remove the lone quantize and dequantize layers that they serve: then the layers around them may agree on "
    "one layout."
)
#: Numbers in a tensor whose copy takes no longer than a launch.
_SMALL = 4096
#: Moves below this share of the time are not worth a change.
_LEAST = 0.01

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
_FIXES: dict[Work, str] = {
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
    """Reformatting steps by their source, those that serve a quantization apart from the others.

    Steps that quantize are left to the rule of lone pairs, but for inputs; those that another undoes to a third.
    Silent of what nothing can be done about, and without times of tensors too small to matter.
    """
    groups: defaultdict[tuple[Source, bool], list[tuple[Layer, Reformat]]] = defaultdict(list)
    by_id = {y.id: y for y in reading.layers}
    elsewhere = find_cancelling_conversions(reading)
    for reformat in find_reformats(reading.engine, reading.timing, reading.flow):
        layer = by_id[reformat.layer]
        if layer.id in elsewhere or not _is_worth_reporting(reformat, layer):
            continue
        if reformat.source == "quantization":
            if reading.flow.is_from_input(layer, layer.inputs[0]):
                groups["input", False].append((layer, reformat))
            continue
        neighbors = (by_id[i] for i in (reformat.producer, reformat.consumer) if i in by_id)
        serves = reformat.source == "layout" and any(reading.work(b) == "quantization" for b in neighbors)
        groups[reformat.source, serves].append((layer, reformat))
    for (source, serves), pairs in groups.items():
        layers = [y for y, _ in pairs]
        if not reading.matters(layers, _LEAST):
            continue
        descriptions = {y.id: f"turns {r.before} into {r.after}" for y, r in pairs}
        first = max(pairs, key=lambda p: p[1].milliseconds or 0.0)[1]
        one, more = _TITLES[source]
        serving = ", only for a quantize or dequantize layer that stands alone" if serves else ""
        yield reading.finding(
            "reformat",
            f"{source}{'/quantization' if serves else ''}",
            layers,
            f"{pluralize(len(layers), f'layer {one}', f'layers {more}')}{serving}.",
            evidence=f"Types and layouts: {reading.quote(layers, descriptions)} {first.cause}",
            fix=first.fix if not serves or len(layers) == 1 else _WITH_THEM,
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
    for work, fix in _FIXES.items():
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
