"""Reformats: each step that only moves, its cause, and advice in the words of trtexec."""

from __future__ import annotations

import dataclasses
import json

import pytest

import engines
from rtlab.backends.makers import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.questions.reformats.reasons import layout, packed, reformats

LINEAR = "Row major linear FP32"
CHW32 = "Thirty-two wide channel vectorized row major Int8 format"


@pytest.mark.parametrize(
    ("phrase", "word", "unit"),
    [
        ("Row major linear FP32", "row major", 1),
        ("Row major Int8 format", "row major", 1),
        ("Two wide channel vectorized row major FP16 format", "chw2", 2),
        ("Four wide channel vectorized row major Int8 format", "chw4", 4),
        ("Thirty-two wide channel vectorized row major Int8 format", "chw32", 32),
        ("Channel major FP16 format where channel % 8 == 0", "hwc8", 8),
        ("Channel major FP32 format", "hwc", 1),
        ("(Linear) Row major linear format", "row major", 1),
        ("(NHWC) Channel major format", "hwc", 1),
        ("NC/32HW32", "chw32", 32),
        ("kCHW4", "chw4", 4),
        ("kHWC8", "hwc8", 8),
        ("DHWC8", "dhwc8", 8),
        ("CDHW32", "cdhw32", 32),
        ("LINEAR", "row major", 1),
        ("", "", 1),
        ("something new", "something new", 1),
    ],
)
def test_a_layout_has_one_word_in_every_release(phrase, word, unit) -> None:
    assert (word, unit) == (layout(phrase), packed(Tensor("t", "int8", (1, 3, 2, 2), phrase)))


@engines.each
def test_every_reformat_of_the_file_is_there_with_its_time(folder) -> None:
    """An independent reading of the raw JSON: layers of kind Reformat, none lost."""
    raw = json.loads(engines.files(folder)["layers"].read_text(), strict=False)["Layers"]
    expected = {y["Name"] for y in raw if isinstance(y, dict) and y["LayerType"] == "Reformat"}
    engine, times = engines.read(folder)
    found = reformats(engine, times)
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
    (found,) = reformats(engine(step(0, "Reformat", X, t), conv, inputs=(X,), outputs=(Y,)))
    assert "hwc4," not in found.fix.partition("IOFormats=")[2]
    assert "--inputIOFormats=fp16:chw" in found.fix
    half = tensor("x", "fp16", channels=3)
    (found,) = reformats(engine(step(0, "Reformat", half, t), conv, inputs=(half,), outputs=(Y,)))
    assert not found.avoidable
    assert "no I/O format" in found.fix


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("8.6.1", "build with --inputIOFormats=int8:chw32, and"),
        ("11.4.0", "with the type int8 in the model"),
        ("", "build with --inputIOFormats=int8:chw32, up to TensorRT 10,"),
    ],
)
def test_an_input_s_type_is_the_model_s_from_tensorrt_11_on(version, expected) -> None:
    t = tensor("t", "int8", CHW32)
    found = engine(step(0, "Reformat", X, t), step(1, "Convolution", t, Y), inputs=(X,), outputs=(Y,))
    (only,) = reformats(dataclasses.replace(found, version=version))
    assert expected in only.fix


def test_an_output_is_advised_to_leave_as_it_is_written() -> None:
    t = tensor("t", "fp16", "Channel major FP16 format where channel % 8 == 0")
    (found,) = reformats(
        engine(step(0, "Convolution", X, t), step(1, "Reformat", t, Y), inputs=(X,), outputs=(Y,))
    )
    assert ("output", "0", "") == (found.source, found.producer, found.consumer)
    assert "--outputIOFormats=fp16:hwc8" in found.fix


def test_an_output_that_a_layer_also_reads_is_an_output() -> None:
    t = tensor("t", "fp16")
    layers = (
        step(0, "Convolution", X, t),
        step(1, "Reformat", t, Y),
        step(2, "Softmax", Y, tensor("z", "fp32")),
    )
    (found,) = reformats(engine(*layers, inputs=(X,), outputs=(Y, tensor("z", "fp32"))))
    assert "output" == found.source


def test_inner_steps_are_told_apart_by_type_and_layout() -> None:
    """What changes both is owed to the type: with one type, there would be one family of kernels."""
    a, b = tensor("a", "fp16"), tensor("b", "fp16", "Two wide channel vectorized row major FP16 format")
    c, d = tensor("c", "fp16", b.format), tensor("d", "fp32")
    found = reformats(
        engine(
            step(0, "Convolution", X, a),
            step(1, "Reformat", a, b),
            step(2, "Convolution", b, c),
            step(3, "Reformat", c, d),
            step(4, "Softmax", d, Y),
            inputs=(X,),
            outputs=(Y,),
        )
    )
    assert ["layout", "type"] == [r.source for r in found]
    assert ("0", "2") == (found[0].producer, found[0].consumer)


def test_the_name_tells_which_layer_a_copy_serves() -> None:
    """A tensor with two readers, one of which wants it otherwise."""
    a, b = tensor("a", "fp16"), tensor("b", "fp16", "Channel major FP16 format where channel % 8 == 0")
    copy = Layer("1", "Reformatting CopyNode for Input Tensor 1 to late", "Reformat", 1, (a,), (b,))
    late = Layer("3", "late", "Convolution", 3, (a, b), (Y,))
    early = Layer("2", "early", "Pooling", 2, (b,), (tensor("z", "fp16"),))
    (found,) = reformats(engine(step(0, "Convolution", X, a), copy, early, late, inputs=(X,), outputs=(Y,)))
    assert "3" == found.consumer


def test_a_copy_says_whether_it_brings_numbers_into_another_order() -> None:
    """A reshape of what is not row major moves it; where shapes are alike, only the buffer is another."""
    flat = Tensor("flat", "fp16", (1, 4096), LINEAR)
    a, b = tensor("a", "fp16"), tensor("b", "fp16")
    causes = []
    for after in (flat, b):
        steps = (step(0, "Convolution", X, a), step(1, "Reformat", a, after), step(2, "MatMul", after, Y))
        (found,) = reformats(engine(*steps, inputs=(X,), outputs=(Y,)))
        causes.append(found.cause)
    assert causes[0].startswith("It brings 1×64×8×8 into the order of 1×4096 for ")
    assert causes[1].startswith("A copy without change of type or layout between ")


def test_what_runs_nothing_is_left_out() -> None:
    t = tensor("t", "fp32", "Channel major FP32 format")
    assert () == reformats(
        engine(step(0, "NoOp", X, t), step(1, "Convolution", t, Y), inputs=(X,), outputs=(Y,))
    )


def quantized(*, shortcut: str = "", also: str = "") -> Engine:
    """A convolution that writes FP16 and a quantization behind it, with what may be the reason."""
    x, a, q = tensor("x", "int8", CHW32), tensor("a", "fp16"), tensor("q", "int8", CHW32)
    reads = (x, tensor("s", shortcut)) if shortcut else (x,)
    layers = [
        step(0, "Convolution", reads, a),
        step(1, "Reformat", a, q, Origin="QDQ"),
        step(2, "Convolution", q, Y),
    ]
    if also:
        layers.append(step(3, also, a, tensor("z", "fp16")))
    return engine(*layers, inputs=(x,), outputs=(Y,))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (quantized(), "did not absorb"),
        (quantized(shortcut="fp16"), '"s", is fp16'),
        (quantized(also="Pooling"), 'also feeds "Pooling 3"'),
    ],
)
def test_a_lone_quantization_names_what_stands_in_its_way(found, reason) -> None:
    (only,) = reformats(found)
    assert "quantization" == only.source
    assert reason in only.cause


def test_every_copy_of_a_residual_network_has_its_cause() -> None:
    """By hand: the quantized image, a pooling without a pair, a layout, and a shortcut that a block needs in FP16."""
    causes = reformats(*engines.read(engines.RESIDUAL))
    names = [r.layer.partition(":")[2].partition(" to ")[0] for r in causes]
    assert [
        "image_quantize",
        "pooled_quantize",
        "Reformatting CopyNode for Input Tensor 0",
        "two_quantize",
    ] == names
    assert ["quantization", "quantization", "layout", "quantization"] == [r.source for r in causes]
    assert [True, True, False, True] == [r.avoidable for r in causes]
    assert [False, False, False, True] == ["shortcut" in r.fix for r in causes]


def test_a_copy_between_layouts_can_be_avoided_where_channels_do_not_fill_them() -> None:
    """Sixty channels in vectors of 32."""
    a, b = tensor("a", "int8", "Row major Int8 format", 60), tensor("b", "int8", CHW32, 60)
    layers = (step(0, "Convolution", X, a), step(1, "Reformat", a, b), step(2, "Convolution", b, Y))
    (found,) = reformats(engine(*layers, inputs=(X,), outputs=(Y,)))
    assert ("layout", True) == (found.source, found.avoidable)
    assert found.fix.startswith("Make the 60 channels a multiple of 32, by zero channels if need be")
