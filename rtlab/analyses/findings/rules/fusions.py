"""Rules on layers that stand alone though the compiler has a fusion for them.

The fusions are those of TensorRT's documentation: convolution with activation, with a sum of equal shapes, with a
scale; quantize and dequantize into the layers around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rtlab.analyses.findings.rules.movement import find_cancelling_conversions
from rtlab.analyses.findings.rules.reading import PRODUCTS, Reading
from rtlab.analyses.reformats.reasons import LoneReason, explain_lone_quantization, format_tensor
from rtlab.core.engine import Layer, Tensor
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
from rtlab.relation import trtexec_flags
from rtlab.relation.dataflow import QUANTIZED

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
        if reason != "input":
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
