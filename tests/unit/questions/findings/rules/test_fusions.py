"""Rules on lost fusions: each on an engine that has the fault and on its neighbour that has not."""

from __future__ import annotations

import dataclasses

import pytest

from judged import A, Y, conv, engine, of, step, tensor, timed
from rtlab.backends.makers import TENSORRT, TENSORRT_RTX
from rtlab.core.buildlog import BuildLog, TacticTime, Tuning
from rtlab.core.engine import Engine, Layer
from rtlab.core.variant import Target
from rtlab.questions.findings.rank import findings
from rtlab.relation.mapping import Mapping, Pair
from rtlab.testing import tiny_model


def paired(
    kind: str, told: dict[str, str], *, shortcut: str = "", also: bool = False, dtype: str = "int8"
) -> Engine:
    x, a, q, y = tensor("x", "int8"), tensor("a"), tensor("q", dtype), tensor("y", dtype)
    steps = [
        conv((x, tensor("s", shortcut)) if shortcut else x, a),
        step(kind, a, q, name="QuantizeLinear_1", **told),
        conv(q, y, name="next"),
    ]
    if also:
        steps.append(step("Pooling", a, tensor("z")))
    return engine(*steps, outputs=(y,))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (paired("Scale", {}), ["lone-pair:quantize"]),  # TensorRT 8.2
        (paired("Reformat", {"Origin": "QDQ"}), ["lone-pair:quantize"]),  # from 8.4 on; trex did not see it
        (paired("Reformat", {"Origin": "QDQ"}, also=True), ["lone-pair:branch"]),
        (paired("Reformat", {"Origin": "QDQ"}, shortcut="fp16"), ["lone-pair:shortcut"]),
        (paired("Reformat", {"Origin": "REFORMAT"}), []),
        (paired("Scale", {}, dtype="fp16"), []),  # a batch normalization
        (engine(step("Scale", tensor("x", "fp32"), A, name="q")), []),
        (
            engine(step("Scale", tensor("x", "fp32"), tensor("a", "int8")), conv(tensor("a", "int8"), Y)),
            [],
        ),  # the input
    ],
)
def test_quantization_steps_that_stand_alone(found, expected) -> None:
    assert expected == [f.id for f in of(found, "lone-pair")]


def epilogue(
    kind: str = "PointWiseV2", out: str = "fp16", between: str = "fp16", *more, outputs=()
) -> Engine:
    a, y = tensor("a", between), tensor("y", out)
    return engine(
        conv(tensor("x"), a, name="QuantizeLinear_1 + conv"),
        step(kind, a, y, name="relu"),
        *more,
        outputs=outputs,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (epilogue(), ["lone-epilogue:plain"]),
        (epilogue("Scale"), ["lone-epilogue:plain"]),
        (
            epilogue("PointWiseV2", "fp16", "fp16", step("Pooling", A, tensor("z"))),
            ["lone-epilogue:consumer"],
        ),
        (epilogue(outputs=(A, Y)), ["lone-epilogue:consumer"]),
        (epilogue(between="int8"), ["lone-epilogue:pair"]),
        (epilogue(out="fp32"), ["lone-epilogue:type"]),
        (epilogue("TiledPooling"), []),
        (engine(step("Pooling", tensor("x"), A), step("PointWiseV2", A, Y)), []),
    ],
)
def test_pointwise_layers_behind_a_product(found, expected) -> None:
    assert expected == [f.id for f in of(found, "lone-epilogue")]


def test_a_sum_of_two_products_is_held_up_by_the_one_that_is_free() -> None:
    """It would fuse with either: that one of them has another reader is no reason."""
    a, b, y = tensor("a"), tensor("b"), tensor("y")
    both = [
        conv(tensor("x"), a, name="left"),
        conv(tensor("x"), b, name="right"),
        step("ElementWise", (a, b), y),
    ]
    assert ["lone-epilogue:plain"] == [
        f.id for f in of(engine(*both, step("Pooling", a, tensor("z"))), "lone-epilogue")
    ]


def regional(name: str = "{ForeignNode[a...b]}", kind: str = "Myelin") -> Engine:
    return engine(step(kind, tensor("x"), A, name=name), conv(A, Y))


def test_regions_that_the_inspector_does_not_open() -> None:
    assert 1 == len(of(regional(), "opaque-region"))
    assert [] == of(regional(), "opaque-region", timed(regional(), 1, 100))
    assert [] == of(regional("a", "CaskConvolution"), "opaque-region")
    # The copy in front of a region is none.
    copy = regional("Reformatting CopyNode for Input Tensor 0 to {ForeignNode[a...b]}", "Reformat")
    assert [] == of(copy, "opaque-region")


def test_a_quantization_behind_a_padding_belongs_in_front_of_it() -> None:
    """Recorded with a ResNet50 of TensorFlow, whose padding moves FP32 before it is quantized."""
    a, q = tensor("a", "fp32"), tensor("q", "int8")
    (found,) = of(
        engine(step("Slice", tensor("x", "fp32"), a, name="pad"), step("Scale", a, q), conv(q, Y)),
        "lone-pair",
    )
    assert "only moves numbers" in found.evidence
    assert "Quantize in front" in found.fix


def test_the_type_that_is_named_is_what_the_layer_before_writes() -> None:
    """A copy between it and the quantization may change the type once more."""
    x, a, w, q = tensor("x", "int8"), tensor("a"), tensor("w", "fp32"), tensor("q", "int8")
    found = engine(
        conv(x, a, name="first"), step("Reformat", a, w, name="copy"), step("Scale", w, q, name="q"),
        conv(q, Y, name="next"), step("Pooling", a, tensor("z")), outputs=(Y,),
    )  # fmt: skip
    assert "so it writes fp16" in of(found, "lone-pair")[0].evidence


def test_a_generated_kernel_that_reshapes_is_no_epilogue() -> None:
    """Its node is an activation; its name says that the tensor had to be brought into another order."""
    model = tiny_model()
    nodes = tuple(n.id for n in model.nodes if n.op == "Relu")

    def judged(name: str) -> list[str]:
        found = engine(conv(tensor("x"), A), step("kgen", A, Y, name=name, tactic=name))
        mapping = Mapping(tuple(Pair(n, f"1:{name}", "declared") for n in nodes), ())
        return [f.id for f in of(found, "lone-epilogue", mapping=mapping, model=model)]

    assert ["lone-epilogue:plain"] == judged("__myl_AddRelu_myl0_3")
    assert [] == judged("__myl_ReshAddRelu_myl0_3")


def requantizing(*, inside: int = 0, version: str = "1.7.1.116") -> Engine:
    """Three INT8 convolutions in a row; the first ``inside`` of them requantize themselves."""
    steps = []
    at = tensor("x", "int8")
    for i in range(3):
        out = tensor(f"q{i}", "int8")
        if i < inside:
            steps.append(step("correlation", at, out, name=f"conv{i}"))
        else:
            sums = tensor(f"s{i}", "fp32")
            steps.append(step("correlation", at, sums, name=f"conv{i}"))
            steps.append(step("kgen", sums, out, name=f"__myl_MulAddReluMulMinMaxRounCast_myl0_{i}"))
        at = out
    found = engine(*steps, target="sm86")
    return dataclasses.replace(found, maker=TENSORRT_RTX, version=version)


def test_convolutions_of_which_none_requantizes_its_sums() -> None:
    found = of(requantizing(), "requantized-outside")
    assert 1 == len(found)
    assert found[0].title == (
        "No INT8 convolution requantizes its sums: behind 3 of 3, 3 generated steps turn fp32 into INT8."
    )
    assert ("1:__myl_MulAddReluMulMinMaxRounCast_myl0_0" in found[0].layers, 3) == (
        True,
        len(found[0].layers),
    )
    assert "Of 6 layers: " in found[0].evidence
    assert "in none of 3 small graphs" in found[0].evidence
    assert "FP16" in found[0].fix


def test_one_convolution_that_requantizes_shows_that_the_compiler_can() -> None:
    for inside in (1, 3):
        assert [] == of(requantizing(inside=inside), "requantized-outside")


def test_a_release_that_was_not_asked_is_not_said_to_be_the_limit() -> None:
    told = of(requantizing(version="99.0"), "requantized-outside")[0].evidence
    assert told.endswith("Whether TensorRT-RTX 99.0 ever does is not known.")
    assert "the compiler's limit" not in told


def test_sums_that_nobody_quantizes_are_no_finding() -> None:
    """The last convolution of a network, whose sums are its output."""
    x, y = tensor("x", "int8"), tensor("y", "fp32")
    assert [] == of(engine(step("correlation", x, y, name="conv")), "requantized-outside")
    relu = step("kgen", y, tensor("z", "fp32"), name="__myl_MulAddRelu_myl0_1")
    assert [] == of(engine(step("correlation", x, y, name="conv"), relu), "requantized-outside")


def test_a_region_whose_operators_the_log_times_names_them_and_their_fastest_kernels() -> None:
    """Two tables of one operator, in two formats: the faster counts, and nobody says that nothing is listed."""
    region = Engine(
        "trtexec",
        "10.16.1",
        Target("sm90"),
        (Layer("0", "{ForeignNode[a...c]}", "Myelin", 0),),
        maker=TENSORRT,
    )
    rows = [("slow_kernel", 0.5), ("fast_kernel", 0.25)]
    log = BuildLog(
        tunings=tuple(
            Tuning(
                region.layers[0].name, "Myelin", "", (TacticTime("0x1", n, t),), "0x1", 1, 1, operator="dense"
            )
            for n, t in rows
        )
    )
    (bare,) = (f for f in findings(region) if f.rule == "opaque-region")
    (told,) = (f for f in findings(region, log=log) if f.rule == "opaque-region")
    assert "what runs inside is not listed" in bare.title
    assert "the log tells the tactics of 1 operator inside" in told.title
    assert "dense was fastest with fast_kernel" in told.evidence
    assert "slow_kernel" not in told.evidence
