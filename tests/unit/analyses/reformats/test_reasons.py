"""Reformats: each step that only moves, its cause, and advice in the words of trtexec."""

from __future__ import annotations

import json

import pytest

import engines
from rtlab.analyses.reformats.reasons import find_reformats, get_channel_multiple, shorten_layout
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target

LINEAR = "Row major linear FP32"
CHW32 = "Thirty-two wide channel vectorized row major Int8 format"


@pytest.mark.parametrize(
    ("phrase", "word", "unit"),
    [
        ("Row major linear FP32", "row major", 1), ("Row major Int8 format", "row major", 1),
        ("Two wide channel vectorized row major FP16 format", "chw2", 2), ("NC/32HW32", "chw32", 32),
        ("Four wide channel vectorized row major Int8 format", "chw4", 4), ("kCHW4", "chw4", 4),
        ("Thirty-two wide channel vectorized row major Int8 format", "chw32", 32), ("kHWC8", "hwc8", 8),
        ("Channel major FP16 format where channel % 8 == 0", "hwc8", 8), ("Channel major FP32 format", "hwc", 1),
        ("(Linear) Row major linear format", "row major", 1), ("(NHWC) Channel major format", "hwc", 1),
        ("DHWC8", "dhwc8", 8), ("CDHW32", "cdhw32", 32), ("LINEAR", "row major", 1), ("", "", 1),
        ("something new", "something new", 1),
    ],
)  # fmt: skip
def test_a_layout_has_one_word_in_every_release(phrase, word, unit) -> None:
    assert (word, unit) == (
        shorten_layout(phrase),
        get_channel_multiple(Tensor("t", "int8", (1, 3, 2, 2), phrase)),
    )


@engines.each
def test_every_reformat_of_the_file_is_there_with_its_time(folder) -> None:
    """An independent reading of the raw JSON: layers of kind Reformat, none lost."""
    raw = json.loads(engines.files(folder)["layers"].read_text(), strict=False)["Layers"]
    expected = {y["Name"] for y in raw if isinstance(y, dict) and y["LayerType"] == "Reformat"}
    engine, times = engines.read(folder)
    found = find_reformats(engine, times)
    names = {y.id: y.name for y in engine.layers}
    assert expected <= {names[r.layer] for r in found}
    known = {t.layer: t.median for t in times.layers} if times else {}
    assert [known.get(r.layer) for r in found] == [r.milliseconds for r in found]
    for r in found:
        assert r.cause.endswith(".")
        assert r.fix.endswith(".")
        assert r.producer != r.layer != r.consumer
        assert {r.producer, r.consumer} <= {*names, ""}


def engine(*layers: Layer, inputs: tuple[Tensor, ...] = (), outputs: tuple[Tensor, ...] = ()) -> Engine:
    return Engine("trtexec", "8.6", Target("sm80"), layers, inputs, outputs, maker=TENSORRT)


def tensor(name: str, dtype: str, format_: str = LINEAR, channels: int = 64) -> Tensor:
    return Tensor(name, dtype, (1, channels, 8, 8), format_)


def step(index: int, kind: str, read: Tensor | tuple[Tensor, ...], write: Tensor, **attributes) -> Layer:
    reads = read if isinstance(read, tuple) else (read,)
    return Layer(f"{index}", f"{kind} {index}", kind, index, reads, (write,), attributes=attributes)


X, Y = tensor("x", "fp32"), tensor("y", "fp32")


def test_a_layout_that_no_io_format_has_is_not_advised() -> None:
    """TensorFormat has HWC8 but no HWC4."""
    t = tensor("t", "fp16", "Channel major FP16 format where channel % 4 == 0", 3)
    conv = step(1, "Convolution", t, Y)
    (found,) = find_reformats(engine(step(0, "Reformat", X, t), conv, inputs=(X,), outputs=(Y,)))
    assert "hwc4," not in found.fix.partition("IOFormats=")[2]
    half = tensor("x", "fp16", channels=3)
    (found,) = find_reformats(engine(step(0, "Reformat", half, t), conv, inputs=(half,), outputs=(Y,)))
    assert not found.avoidable


@pytest.mark.parametrize("also", [False, True])
def test_an_output_is_advised_to_leave_as_it_is_written(also: bool) -> None:
    t, z = tensor("t", "fp16", "Channel major FP16 format where channel % 8 == 0"), tensor("z", "fp32")
    steps = [step(0, "Convolution", X, t), step(1, "Reformat", t, Y)] + [step(2, "Softmax", Y, z)] * also
    (found,) = find_reformats(engine(*steps, inputs=(X,), outputs=(Y, z) if also else (Y,)))
    assert ("output", "0") == (found.source, found.producer)
    assert also == bool(found.consumer)
    assert "--outputIOFormats=fp16:hwc8" in found.fix


def test_inner_steps_are_told_apart_by_type_and_layout() -> None:
    a, b = tensor("a", "fp16"), tensor("b", "fp16", "Two wide channel vectorized row major FP16 format")
    c, d = tensor("c", "fp16", b.format), tensor("d", "fp32")
    kinds = ("Convolution", "Reformat", "Convolution", "Reformat", "Softmax")
    ends = zip(kinds, (X, a, b, c, d), (a, b, c, d, Y), strict=True)
    found = find_reformats(engine(*(step(i, *e) for i, e in enumerate(ends)), inputs=(X,), outputs=(Y,)))
    assert ["layout", "type"] == [r.source for r in found]
    assert ("0", "2") == (found[0].producer, found[0].consumer)


def test_the_name_tells_which_layer_a_copy_serves() -> None:
    a, b = tensor("a", "fp16"), tensor("b", "fp16", "Channel major FP16 format where channel % 8 == 0")
    copy = Layer("1", "Reformatting CopyNode for Input Tensor 1 to late", "Reformat", 1, (a,), (b,))
    late = Layer("3", "late", "Convolution", 3, (a, b), (Y,))
    early = Layer("2", "early", "Pooling", 2, (b,), (tensor("z", "fp16"),))
    (found,) = find_reformats(
        engine(step(0, "Convolution", X, a), copy, early, late, inputs=(X,), outputs=(Y,))
    )
    assert "3" == found.consumer


def quantized(*, shortcut: str = "", also: str = "") -> Engine:
    """A convolution that writes FP16 and a quantization behind it, with what may be the reason."""
    x, a, q = tensor("x", "int8", CHW32), tensor("a", "fp16"), tensor("q", "int8", CHW32)
    reads = (x, tensor("s", shortcut)) if shortcut else (x,)
    layers = [step(0, "Convolution", reads, a), step(1, "Reformat", a, q, Origin="QDQ")]
    layers += [step(2, "Convolution", q, Y)] + [step(3, also, a, tensor("z", "fp16"))] * bool(also)
    return engine(*layers, inputs=(x,), outputs=(Y,))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (quantized(), "absorb"),
        (quantized(shortcut="fp16"), '"s"'),
        (quantized(also="Pooling"), '"Pooling 3"'),
    ],
)
def test_a_lone_quantization_names_what_stands_in_its_way(found, reason) -> None:
    (only,) = find_reformats(found)
    assert "quantization" == only.source
    assert reason in only.cause


def test_every_copy_of_a_residual_network_has_its_cause() -> None:
    """By hand: the quantized image, a pooling without a pair, a layout, and a shortcut that a block needs in FP16."""
    causes = find_reformats(*engines.read(engines.RESIDUAL))
    names = [r.layer.partition(":")[2].partition(" to ")[0] for r in causes]
    copy = "Reformatting CopyNode for Input Tensor 0"
    assert ["image_quantize", "pooled_quantize", copy, "two_quantize"] == names
    assert ["quantization", "quantization", "layout", "quantization"] == [r.source for r in causes]
    assert [True, True, False, True] == [r.avoidable for r in causes]
    assert [False, False, False, True] == ["shortcut" in r.fix for r in causes]


def test_a_copy_between_layouts_can_be_avoided_where_channels_do_not_fill_them() -> None:
    """Sixty channels in vectors of 32."""
    a, b = tensor("a", "int8", "Row major Int8 format", 60), tensor("b", "int8", CHW32, 60)
    layers = (step(0, "Convolution", X, a), step(1, "Reformat", a, b), step(2, "Convolution", b, Y))
    (found,) = find_reformats(engine(*layers, inputs=(X,), outputs=(Y,)))
    assert ("layout", True) == (found.source, found.avoidable)
    assert "60 channels a multiple of 32" in found.fix
