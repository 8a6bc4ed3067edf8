"""Rules on lost fusions: each on an engine that has the fault and on its neighbour that has not."""

from __future__ import annotations

import pytest

from judged import A, Y, conv, engine, of, step, tensor
from rtlab.core.engine import Engine
from rtlab.relation.mapping import Mapping, Pair
from rtlab.testing import tiny_model

EIGHT, Z = tensor("a", "int8"), tensor("z")


def paired(kind: str, told: dict[str, str], *, shortcut="", also=False, dtype="int8") -> Engine:
    x, a, q, y = tensor("x", "int8"), tensor("a"), tensor("q", dtype), tensor("y", dtype)
    first = conv((x, tensor("s", shortcut)) if shortcut else x, a)
    steps = [first, step(kind, a, q, name="QuantizeLinear_1", **told), conv(q, y, name="next")]
    return engine(*steps, *[step("Pooling", a, tensor("z"))] * also, outputs=(y,))


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
        (engine(step("Scale", tensor("x", "fp32"), EIGHT), conv(EIGHT, Y)), []),  # the input
    ],
)
def test_quantization_steps_that_stand_alone(found, expected) -> None:
    assert expected == [f.id for f in of(found, "lone-pair")]


def epilogue(kind="PointWiseV2", out="fp16", between="fp16", *more, outputs=()) -> Engine:
    a, y = tensor("a", between), tensor("y", out)
    first = conv(tensor("x"), a, name="QuantizeLinear_1 + conv")
    return engine(first, step(kind, a, y, name="relu"), *more, outputs=outputs)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (epilogue(), ["plain"]), (epilogue("Scale"), ["plain"]), (epilogue(outputs=(A, Y)), ["consumer"]),
        (epilogue("PointWiseV2", "fp16", "fp16", step("Pooling", A, Z)), ["consumer"]),
        (epilogue(between="int8"), ["pair"]), (epilogue(out="fp32"), ["type"]), (epilogue("TiledPooling"), []),
        (engine(step("Pooling", tensor("x"), A), step("PointWiseV2", A, Y)), []),
    ],
)  # fmt: skip
def test_pointwise_layers_behind_a_product(found, expected) -> None:
    assert [f"lone-epilogue:{e}" for e in expected] == [f.id for f in of(found, "lone-epilogue")]


def test_a_sum_of_two_products_is_held_up_by_the_one_that_is_free() -> None:
    a, b, y = tensor("a"), tensor("b"), tensor("y")
    both = [conv(tensor("x"), a, name="left"), conv(tensor("x"), b, name="right")]
    found = engine(*both, step("ElementWise", (a, b), y), step("Pooling", a, tensor("z")))
    assert ["lone-epilogue:plain"] == [f.id for f in of(found, "lone-epilogue")]


def test_a_quantization_behind_a_padding_belongs_in_front_of_it() -> None:
    """Recorded with a ResNet50 of TensorFlow, whose padding moves FP32 before it is quantized."""
    a, q = tensor("a", "fp32"), tensor("q", "int8")
    pad = step("Slice", tensor("x", "fp32"), a, name="pad")
    (found,) = of(engine(pad, step("Scale", a, q), conv(q, Y)), "lone-pair")
    assert "Quantize in front" in found.fix


def test_the_type_that_is_named_is_what_the_layer_before_writes() -> None:
    x, a, w, q = tensor("x", "int8"), tensor("a"), tensor("w", "fp32"), tensor("q", "int8")
    found = engine(
        conv(x, a, name="first"), step("Reformat", a, w, name="copy"), step("Scale", w, q, name="q"),
        conv(q, Y, name="next"), step("Pooling", a, tensor("z")), outputs=(Y,),
    )  # fmt: skip
    assert "so it writes fp16" in of(found, "lone-pair")[0].evidence


def test_a_generated_kernel_that_reshapes_is_no_epilogue() -> None:
    model = tiny_model()
    nodes = tuple(n.id for n in model.nodes if n.op == "Relu")

    def judged(name: str) -> list[str]:
        found = engine(conv(tensor("x"), A), step("kgen", A, Y, name=name, tactic=name))
        mapping = Mapping(tuple(Pair(n, f"1:{name}", "declared") for n in nodes), ())
        return [f.id for f in of(found, "lone-epilogue", mapping=mapping, model=model)]

    assert ["lone-epilogue:plain"] == judged("__myl_AddRelu_myl0_3")
    assert [] == judged("__myl_ReshAddRelu_myl0_3")
