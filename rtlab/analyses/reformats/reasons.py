"""Steps that only change the type or the memory layout of a tensor: why each is there, and how to be rid of it.

The words of the layouts are trtexec's (``--inputIOFormats``), which are those of ``TensorFormat``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Annotated, Literal

from rtlab.analyses.timing import get_engine_timing
from rtlab.analyses.timing.times import Timing
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.core.value import shape_text
from rtlab.relation import trtexec_flags
from rtlab.relation.dataflow import COPY, FLOATS, MOVES, QUANTIZED, Dataflow, work

#: What a reformat is owed to.
Source = Literal["input", "output", "type", "layout", "quantization", "copy"]

#: Why a quantization was not absorbed.
LoneReason = Literal["input", "branch", "shortcut", "quantize", "dequantize"]

#: Layouts that trtexec takes for inputs and outputs of an engine, beside ``chw``.
_IO = frozenset({"chw2", "chw4", "chw16", "chw32", "hwc", "hwc8", "hwc16", "dhwc", "dhwc8", "cdhw32"})
_IO_TYPES = frozenset({"fp32", "fp16", "bf16", "int8", "uint8", "int32", "int64", "bool"})
_WIDE = re.compile(r"(two|four|eight|sixteen|thirty-two)[- ]wide channel", re.IGNORECASE)
_WIDTHS = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_MODULO = re.compile(r"channel\s*%\s*(\d+)", re.IGNORECASE)
_SHORT = re.compile(r"(?<![a-z])(?:k|n)?(cd?hw\d+|d?hwc\d*)(?![a-z\d])", re.IGNORECASE)
_SLASHED = re.compile(r"nc/(\d+)d?hw", re.IGNORECASE)
_PACK = re.compile(r"\d+$")

ROW_MAJOR = "row major"
#: Steps that move numbers to other places.
_MOVERS = frozenset({"slice", "shuffle", "concat", "gather"})


@dataclasses.dataclass(frozen=True)
class Reformat:
    """One step that changes the type or the layout of ``tensor`` and computes nothing.

    ``before`` and ``after`` are type and layout, such as ``fp32 · row major``. ``producer`` and ``consumer`` are ids of
    the layers on both sides, empty at the edge of the engine. ``cause`` and ``fix`` are a sentence or two each.
    ``milliseconds`` is its time in an inference, of ``origin``; None where it has none. ``avoidable`` is False where
    nothing in the model asks for it; ``fix`` says so then.
    """

    layer: Annotated[str, FieldMeta("Layer", links="layers")]
    tensor: Annotated[str, FieldMeta("Tensor")]
    before: Annotated[str, FieldMeta("Before")]
    after: Annotated[str, FieldMeta("After")]
    producer: str
    consumer: str
    source: Source
    cause: Annotated[str, FieldMeta("Cause")]
    fix: Annotated[str, FieldMeta("Remedy")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "{self.origin}")]
    avoidable: bool = True
    origin: Annotated[Origin, UNSENT] = "measured"


@dataclasses.dataclass(frozen=True)
class _Site:
    """A step and what stands around it."""

    engine: Engine
    flow: Dataflow
    layer: Layer
    producer: Layer | None
    consumer: Layer | None
    before: Tensor
    after: Tensor


#: Cause, remedy, and whether there is one.
_Words = tuple[str, str, bool]


@functools.lru_cache(1024)
def shorten_layout(format_: str) -> str:
    """The memory layout in one word, from any of the compilers' phrases; empty where there is none.

    ``row major`` is linear (NCHW), ``chw32`` has 32 channels side by side, ``hwc8`` is channel-last with the channels
    padded to a multiple of 8.
    """
    if match := _WIDE.search(format_):
        return f"chw{_WIDTHS[match[1].lower()]}"
    if match := _SLASHED.search(format_):
        return f"chw{match[1]}"
    if "channel major" in format_.lower():
        modulo = _MODULO.search(format_)
        return f"hwc{modulo[1]}" if modulo else "hwc"
    if match := _SHORT.search(format_):
        return match[1].lower()
    if "transposed" in format_.lower():
        return "transposed"
    if re.search(r"row major|linear|(?<![a-z])nchw(?![a-z\d])|^chw$", format_, re.IGNORECASE):
        return ROW_MAJOR
    return format_


def get_channel_multiple(tensor: Tensor) -> int:
    """To a multiple of how many channels the layout pads them; 1 where it does not."""
    match = _PACK.search(shorten_layout(tensor.format))
    return int(match[0]) if match else 1


def format_tensor(tensor: Tensor) -> str:
    """Type and layout of a tensor, ready to show."""
    return " · ".join(p for p in (tensor.dtype, shorten_layout(tensor.format)) if p)


def list_reformats(facts: VariantResult) -> tuple[Reformat, ...]:
    """Layers that only change a type or a memory layout: why they are there, and how to be rid of them."""
    return find_reformats(facts.engine, get_engine_timing(facts), build_flow(facts.engine))


@memoized
def build_flow(engine: Engine) -> Dataflow:
    """What the layers of an engine read and write of each other."""
    return Dataflow(engine)


def find_reformats(
    engine: Engine, timing: Timing | None = None, flow: Dataflow | None = None
) -> tuple[Reformat, ...]:
    """Every step that only changes a type or a layout, in execution order.

    These are the builder's reformatting copies, quantize and dequantize steps that no layer absorbed, and generated
    kernels whose operations only move numbers. A step of kind NoOp runs nothing and is left out. ``flow`` is that of
    the engine, where it is at hand.
    """
    flow = flow or Dataflow(engine)
    times = {t.layer: t.median * timing.scale for t in timing.layers} if timing else {}
    by_name = {layer.name: layer for layer in reversed(engine.layers)}
    origin: Origin = "measured" if timing is None else timing.layer_origin
    return tuple(
        dataclasses.replace(_reformat(engine, layer, flow, by_name, times.get(layer.id)), origin=origin)
        for layer in engine.layers
        if flow.works[layer.id] in {"reformat", "quantization"} and layer.inputs and layer.outputs
    )


def _reformat(
    engine: Engine, layer: Layer, flow: Dataflow, by_name: dict[str, Layer], time: float | None
) -> Reformat:
    before, after = layer.inputs[0], layer.outputs[0]
    producer = next(flow.before(layer), None)
    consumer = next(iter(flow.after(layer)), None)
    # The name tells whom it serves: its tensor may have other readers too.
    if (served := COPY.match(layer.name)) and (named := by_name.get(served["layer"])) is not None:
        if served["side"] == "Input":
            consumer = named
        else:
            producer = named
    source = _source(layer, flow)
    cause, fix, avoidable = _WORDS[source](_Site(engine, flow, layer, producer, consumer, before, after))
    return Reformat(
        layer=layer.id,
        tensor=before.name,
        before=format_tensor(before),
        after=format_tensor(after),
        producer=producer.id if producer else "",
        consumer=consumer.id if consumer else "",
        source=source,
        cause=cause,
        fix=fix,
        milliseconds=time,
        avoidable=avoidable,
    )


def _source(layer: Layer, flow: Dataflow) -> Source:
    before, after = layer.inputs[0], layer.outputs[0]
    if flow.works[layer.id] == "quantization":
        return "quantization"
    if next(flow.before(layer), None) is None and flow.is_from_input(layer, before):
        return "input"
    if flow.is_output(after) or (not flow.after(layer) and flow.reaches_output(layer)):
        return "output"
    if before.dtype != after.dtype:
        return "type"
    return "layout" if shorten_layout(before.format) != shorten_layout(after.format) else "copy"


def _name(layer: Layer | None, otherwise: str) -> str:
    return f'"{layer.name}"' if layer else otherwise


def _io(site: _Site, tensor: Tensor, side: str) -> tuple[str, bool]:
    """How to have a tensor in this type and layout at the edge of the engine, if it can be had."""
    word = shorten_layout(tensor.format)
    word = "chw" if word in {ROW_MAJOR, ""} else word
    can = word == "chw" or word in _IO
    other = "write it so beforehand" if side == "input" else "read it so afterwards"
    until = ""
    if site.before.dtype != site.after.dtype:
        by_model = trtexec_flags.is_typed_by_model(site.engine)
        if by_model or tensor.dtype not in _IO_TYPES:
            return f"Declare the {side} of the network as {tensor.dtype} in the model, and {other}.", True
        until = ", up to TensorRT 10" if by_model is None else ""
        if not can:
            hint = trtexec_flags.io_format(site.engine, side, tensor.dtype, "chw")
            return (
                f"Let the engine have the type, as no I/O format has the layout {word}: {hint}{until}.",
                True,
            )
    elif not can:
        return f"Accept it: no I/O format of TensorRT has the layout {word}.", False
    hint = trtexec_flags.io_format(site.engine, side, tensor.dtype, word)
    return f"Let the engine have it so: {hint}{until}, and {other}.", True


def _differ(before: Tensor, after: Tensor) -> str:
    return f"{format_tensor(before) or 'what it is'} against {format_tensor(after) or 'another layout'}"


def _at_input(site: _Site) -> _Words:
    cause = (
        f'The input "{site.before.name}" arrives in another form than {_name(site.consumer, "the first layer")} reads: '
        f"{_differ(site.before, site.after)}."
    )
    return cause, *_io(site, site.after, "input")


def _at_output(site: _Site) -> _Words:
    cause = (
        f'The output "{site.after.name}" is promised in another form than {_name(site.producer, "the last layer")} '
        f"writes: {_differ(site.before, site.after)}. Unless told otherwise, outputs are linear."
    )
    return cause, *_io(site, site.before, "output")


def _of_type(site: _Site) -> _Words:
    before, after = site.before.dtype, site.after.dtype
    cause = (
        f"{_name(site.producer, 'The layer before')} writes {before or 'one type'} and "
        f"{_name(site.consumer, 'the layer behind')} reads {after or 'another'}: neighbours differ in precision."
    )
    if QUANTIZED & {before, after}:
        fix = "Quantize both sides, by a Q/DQ pair at the inputs of the one in floating point, or neither."
    else:
        wide = "fp32" if "fp32" in {before, after} else before
        fix = f"Bring the one in {wide} to the precision of the other, {trtexec_flags.retype(site.engine)}."
    return cause, fix, True


def _of_layout(site: _Site) -> _Words:
    before, after, producer, consumer = site.before, site.after, site.producer, site.consumer
    cause = (
        f"The kernel of {_name(producer, 'the layer before')} writes {shorten_layout(before.format)} and that of "
        f"{_name(consumer, 'the layer behind')} reads {shorten_layout(after.format)}; the builder found both, with "
        "this copy, faster than kernels that agree."
    )
    for step in (producer, consumer):
        if step is not None and work(step) == "quantization":
            return cause, f"It serves the layer {_name(step, '')}: remove that one, and this goes too.", True
    unit = max(get_channel_multiple(before), get_channel_multiple(after))
    channels = before.shape[1] if before.shape and len(before.shape) > 1 else 0
    if channels > 0 and channels % unit:
        fix = (
            f"Make the {channels} channels a multiple of {unit}, by zero channels if need be: then more kernels can "
            "use the packed layout on both sides."
        )
        return cause, fix, True
    if producer and consumer and producer.precision != consumer.precision:
        types = f"{producer.precision or 'that before'} or {consumer.precision or 'that behind'}"
        return cause, f"Give both one precision, {types}, so that one family of kernels serves both.", True
    kernels = trtexec_flags.more_kernels(site.engine)
    fix = f"Nothing in the model asks for it. For kernels that agree, {kernels}, or try a narrower type."
    return cause, fix, False


def _of_pair(site: _Site) -> _Words:
    _, cause, fix = explain_lone_quantization(site.layer, site.flow)
    return cause, fix, True


def explain_lone_quantization(layer: Layer, flow: Dataflow) -> tuple[LoneReason, str, str]:
    """Why a quantize or dequantize step is a step of its own: the reason in one word, in a sentence, and a remedy."""
    before, after = layer.inputs[0], layer.outputs[0]
    source = before.dtype or "floating point"
    producer = next(flow.before(layer, through=MOVES), None)
    if after.dtype not in QUANTIZED:
        consumer = _name(next(iter(flow.after(layer, through=MOVES)), None), "the layer behind")
        cause = f"A dequantization that {consumer} did not absorb: it computes in {after.dtype or 'floating point'}."
        fix = "Quantize all inputs of that operator, so that it runs on the quantized tensor, or take the pair away."
        return "dequantize", cause, fix
    if producer is None and flow.is_from_input(layer, before):
        cause = f'The input "{before.name}" arrives in {source}, and the model quantizes it first.'
        fix = f"Cut the QuantizeLinear off the model, and feed {after.dtype} with the same scale."
        return "input", cause, fix
    neighbor = producer or layer
    wrote = producer.writes if producer and producer.writes in FLOATS else before.dtype
    readers = (r for r in flow.after(neighbor, through=MOVES) if r.id != layer.id)
    other = next((r for r in readers if work(r) != "quantization"), None)
    if other:
        cause = (
            f"{_name(neighbor, '')} also feeds {_name(other, '')}, which reads floating point: so it writes "
            f"{wrote}, and the quantization stands alone."
        )
        fix = f"Put a Q/DQ pair on that branch too, such as a shortcut into an Add; then {after.dtype} is written."
        return "branch", cause, fix
    data = [t for t in neighbor.inputs if t.dtype in QUANTIZED | FLOATS]
    wide = next((t for t in data[1:] if t.dtype in FLOATS), None)
    if wide is not None and data[0].dtype in QUANTIZED:
        cause = (
            f'{_name(neighbor, "")} computes in {data[0].dtype}, but what it adds, "{wide.name}", is {wide.dtype}: '
            f"so it writes {wrote}, and the quantization stands alone."
        )
        fix = f"Put a Q/DQ pair on that shortcut into the Add; then the layer writes {after.dtype} itself."
        return "shortcut", cause, fix
    if work(neighbor) in _MOVERS:
        cause = f"A quantization behind {_name(neighbor, '')}, which only moves numbers, and in {wrote}."
        fix = (
            f"Quantize in front of that layer: moving and quantizing commute, and {after.dtype} is less to move. A "
            "padding with zeros commutes too, where the zero point is zero."
        )
        return "quantize", cause, fix
    cause = f"A quantization that {_name(neighbor, '')} did not absorb: it computes in {source}."
    fix = (
        "Put a Q/DQ pair at the inputs of that operator as well, or move the quantization in front of it where the "
        "two commute, as with max pooling."
    )
    return "quantize", cause, fix


def _of_copy(site: _Site) -> _Words:
    before, after = site.before, site.after
    if before.shape != after.shape:
        cause = (
            f"It brings {shape_text(before.shape)} into the order of {shape_text(after.shape)} for "
            f"{_name(site.consumer, 'the output')}: a reshape of a tensor that is not row major must move it."
        )
        fix = "Flatten where little is left to move, or put the order into the weights of the layer behind."
    else:
        cause = (
            f"A copy without change of type or layout between {_name(site.producer, 'the input')} and "
            f"{_name(site.consumer, 'the output')}: into the buffer of a concatenation, or because a buffer is shared."
        )
        fix = "Let one layer write and one read the tensor; concatenating inputs or outputs always copies."
    return cause, fix, True


_WORDS = {
    "input": _at_input,
    "output": _at_output,
    "type": _of_type,
    "layout": _of_layout,
    "quantization": _of_pair,
    "copy": _of_copy,
}
