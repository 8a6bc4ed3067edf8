"""Sizes that are open, types and layouts that keep two nodes apart, asked of TensorRT-RTX on planted cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rtlab
from fusion_cases import FusionCase, cases
from planted_misses import Edge, planted
from rtlab import backends
from rtlab.analyses.why import Verdict
from rtlab.core.model import Model

RTX = backends.get("tensorrt-rtx")
pytestmark = pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)

CASES = {c.name: c for c in cases()}


def study(model: Model, profile: object = None, precision: object = "fp32") -> rtlab.Study:
    made = rtlab.Study(model)
    options = {"options": {"profiles": [dict([profile])]}} if profile else {}  # type: ignore[list-item]
    made.add("asked", precision=precision, target="sm86", backend="tensorrt-rtx", **options)  # type: ignore[arg-type]
    return made.run(compare=False)


def asked(case: FusionCase, first: str, second: str) -> Verdict:
    return study(case.model, case.profile).fusion.why(first, second, variant="asked")


def told(found: Verdict) -> tuple[str, tuple[str, ...], tuple[str, ...], bool]:
    return found.verdict, found.causes, found.nodes, found.remedy


@pytest.mark.slow
def test_an_open_size_keeps_a_padding_out_of_a_convolution_and_both_its_sizes_have_to_be_fixed() -> None:
    found = asked(CASES["pad-conv-dynamic"], "p", "y")
    assert ("blocked", ("size",), (), False) == told(found)
    assert 'fix the size "H" (8 to 64) to 16 and fix the size "V" (8 to 64) to 16' == found.edit
    assert "a dynamic size" == found.cause
    assert {('fix the size "H" (8 to 64) to 16', "the whole model", False)} <= {
        (t.change, t.where, t.fused) for t in found.experiments
    }


@pytest.mark.slow
def test_an_open_batch_keeps_an_average_out_of_an_activation() -> None:
    found = asked(CASES["leakyrelu-average-dynamic"], "l", "y")
    assert ("blocked", ("size",), (), False) == told(found)
    assert 'fix the size "N" (1 to 16) to 1' == found.edit


@pytest.mark.slow
def test_a_size_that_is_open_and_does_not_matter_is_not_named() -> None:
    """What is planted beside it is; and where nothing is, the two are one step as the engine tells."""
    case = CASES["conv-relu-dynamic"]
    assert "fused" == asked(case, "c", "y").verdict
    edge = Edge("c", "y", "c")
    for kind in ("output", "reader"):
        miss = planted(case.model, edge, [kind], np.random.default_rng(1))
        found = study(miss.model, case.profile).fusion.why("c", "y", variant="asked")
        assert ("blocked", (kind,)) == (found.verdict, found.causes)
        assert {*miss.nodes} <= {*found.nodes}


@pytest.mark.slow
def test_a_part_of_a_model_with_profiles_leaves_the_same_sizes_open() -> None:
    """A large model is cut: what the miss follows from is found in a neighbourhood, whose inputs have profiles too."""
    case = CASES["pad-conv-dynamic"]
    before = "; ".join(
        f"a{i} = Conv<pads=[1,1,1,1]>({'x' if i == 0 else f'r{i - 1}'}, W); r{i} = Relu(a{i})"
        for i in range(32)
    )
    text = f"{before}; {case.text.replace('Pad(x', 'Pad(r31')}"
    deep = dataclasses.replace(case, text=text, pair=(("p",), ("y",)))
    found = asked(deep, "p", "y")
    assert ("blocked", ("size",), (), False) == told(found)
    assert {"H", "V"} == set(found.edit.split('"')[1::2])
    assert any(t.where.startswith("the neighbourhood") and t.fused for t in found.experiments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cause", "node", "edit"),
    [
        ("conv-add-typed", "type", "h", 'compute "y" in FP32, as "c" does'),
        ("conv-add-typed-wider", "type", "h", 'compute "y" in FP16, as "c" does'),
        ("conv-add-typed-bf16", "type", "h", 'compute "y" in FP32, as "c" does'),
        # There and back, the casts alone are in the way.
        ("conv-add-cast-back", "cast", "h", 'remove Cast "h", "f"'),
    ],
)
def test_two_types_keep_a_residual_sum_out_of_a_convolution(name, cause, node, edit) -> None:
    found = asked(CASES[name], "c", "y")
    assert ("blocked", (cause,), False) == (found.verdict, found.causes, found.remedy)
    assert node in found.nodes
    assert edit == found.edit


def test_what_is_pinned_to_another_precision_is_named() -> None:
    """As a user meets it: an FP16 model in which one sum was left in FP32."""
    case = dataclasses.replace(
        CASES["conv-add-relu"], text="c = Conv<pads=[1,1,1,1]>(x, W); y = Add(c, x)", pair=(("c",), ("y",))
    )
    found = study(case.model, precision={"*": "fp16", "y": "fp32"}).fusion.why("c", "y", variant="asked")
    assert ("blocked", ("type",)) == (found.verdict, found.causes)
    assert 'compute "y" in FP16, as "c" does' == found.edit


@pytest.mark.slow
def test_attention_in_fp32_is_one_step_in_fp16() -> None:
    """The type alone: the same part in FP32 shows the miss, and an activation and a pooling stay two in both."""
    found = asked(CASES["attention"], "c", "p")
    assert ("blocked", ("type",), ("c", "p"), False) == told(found)
    assert "compute everything in FP16" == found.edit
    assert [False, True, True] == [t.fused for t in found.experiments[-3:]]
    never = asked(CASES["conv-relu-maxpool"], *_ends("conv-relu-maxpool"))
    assert "not found" == never.verdict
    assert ("compute everything in FP16", False) in {(t.change, t.fused) for t in never.experiments}


def _ends(name: str) -> tuple[str, str]:
    model = CASES[name].model
    pool = next(n for n in model.top if n.op == "MaxPool")
    return model.producers[pool.inputs[0]].id, pool.id


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv-transpose-relu", "conv-transpose-add"])
def test_a_transposition_between_is_a_layout_with_a_remedy_that_keeps_the_outputs(name) -> None:
    model = CASES[name].model
    made = study(model)
    found = made.fusion.why("c", "y", variant="asked")
    assert ("blocked", ("layout",), ("t",), True) == told(found)
    assert ("lift y",) == found.rewrites
    better = made.fusion.suggest_edit("asked", found.rewrites)
    made.run([better])
    assert "fused" == made.fusion.why("c", "y", variant=better).verdict
    assert made[better].accuracy.values[-1].sqnr > 100


def planted_case(text: str, inputs: str, **weights: tuple[int, ...]) -> FusionCase:
    return dataclasses.replace(
        CASES["conv-relu"], text=text, inputs=inputs, weights=tuple(weights.items()), pair=(("y",), ("y",))
    )


@pytest.mark.slow
def test_a_convolution_takes_the_last_node_of_silu_before_a_concatenation_does() -> None:
    """By the kernels' names (CorrSilu, Conc): with poolings in the place of the convolution both are one, MulConc.

    An input in its place would come in another layout, whose transposition is a step of its own (MulTran).
    """
    text = "c = Conv(x, P); s = Sigmoid(c); m = Mul(c, s); y = Concat<axis=1>(x, m); z = Conv(y, Q)"
    found = asked(planted_case(text, "float[1,32,16,16] x", Q=(32, 64, 1, 1)), "m", "y")
    assert ("blocked", ("competitor",), ("c", "s"), False) == told(found)


@pytest.mark.slow
def test_products_of_one_tensor_become_one_and_leave_their_sums_behind() -> None:
    """Query, key and value of an attention: one product of three. Alone, each is one step with its sum."""
    text = "; ".join(
        f"{n} = MatMul(t, {n.upper()}); {n}b = Add({n}, {n.upper()}B); {n}s = Softmax<axis=-1>({n}b)"
        for n in "qkv"
    )
    weights: dict[str, tuple[int, ...]] = dict.fromkeys("QKV", (128, 128)) | {f"{w}B": (128,) for w in "QKV"}
    found = asked(planted_case(text.replace("vs =", "y ="), "float[1,64,128] t", **weights), "q", "qb")
    assert ("blocked", ("competitor",)) == (found.verdict, found.causes)
    assert {"k", "v"} <= {*found.nodes}
    assert '"t", which "k", "v"' in found.edit


@pytest.mark.slow
def test_channels_that_are_no_multiple_of_anything_keep_nothing_apart() -> None:
    """Of the cases with 30, 31, 33 and 36 channels, and 127 numbers, none is apart on release 1.7."""
    odd = [
        c
        for c in CASES
        if c.endswith(("-30", "-33-fp16", "-36-fp16", "-odd", "-odd-fp16")) and "int8" not in c
    ]
    assert 6 == len(odd)
    for name in odd:
        case = CASES[name]
        (first, *_), (second, *_) = case.pair
        assert "fused" == asked(case, first, second).verdict


_TWICE = "a = Conv<pads=[1,1,1,1]>(r, W); b = Add(a, x); c = Conv<pads=[1,1,1,1]>(x, W); {}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "cause", "node"),
    [
        # FP16 would end it as well: the twin, which is one layer in FP32, says that no type is lacking.
        ("h = Cast<to=10>(c); f = Cast<to=1>(h); y = Add(f, r)", "cast", "h"),
        ("q = QuantizeLinear(c, SX, Z); d = DequantizeLinear(q, SX, Z); y = Add(d, r)", "quantization", "d"),
    ],
)
def test_what_stands_between_a_convolution_and_its_sum_is_named_where_a_twin_is_one_layer(
    text, cause, node
) -> None:
    found = asked(planted_case(_TWICE.format(text), "float[1,32,16,16] x, float[1,32,16,16] r"), "c", "y")
    assert ("blocked", (cause,)) == (found.verdict, found.causes)
    assert node in found.nodes


@pytest.mark.slow
def test_a_factor_that_is_an_input_keeps_out_what_a_constant_of_each_channel_does_not() -> None:
    """Of the whole size it is no better, so that its shape is not the cause."""
    text = "c = Conv<pads=[1,1,1,1]>(x, W); y = Mul(c, s); z = Relu(y)"
    found = asked(planted_case(text, "float[1,32,16,16] x, float[1,32,16,1] s"), "c", "y")
    assert ("blocked", ("weight",)) == (found.verdict, found.causes)
    assert 'give "y" a constant number for each channel in place of "s"' == found.edit
