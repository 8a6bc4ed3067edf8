"""Sums, least squares and gradients beside NumPy's: what is added, what is taken off, and with which sign."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from nets import graph
from property.test_adjoint import LRN, differentiated
from rtlab.core.layer_inputs import LayerInput
from rtlab.core.moments import Moments
from rtlab.core.progress import Silent
from rtlab.core.ranges import Range
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision
from rtlab.quantize import apply_transforms, gptq, weight_correction
from rtlab.quantize.edit import Edit
from rtlab.quantize.input_statistics import InputCollector, InputStatsRequest, make_product_form
from rtlab.quantize.ranges import Collector
from rtlab.quantize.scale_migration import Constants, compute_write_peaks, find_links, move_scale
from rtlab.quantize.weight_correction import (
    compute_bias_shift,
    correct_biases,
    find_bias_input,
)
from rtlab.quantize.weights import ScaleLayout

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(5)
node = helper.make_node


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_scales_of_blocks_are_those_of_least_squares_block_after_block(blocks: int) -> None:
    """Gauss and Seidel: each block's scale is fitted by NumPy to what the others leave; the others stay or are new."""
    size, width = 8, 8 // blocks
    x, weight = RNG.normal(size=(50, size)) @ RNG.normal(size=(size, size)), RNG.normal(size=(3, size))
    scale = RNG.uniform(0.2, 0.4, (3, blocks))
    steps = np.rint(weight / np.repeat(scale, width, axis=1))
    found = gptq._solve_scales(weight, scale, steps, x.T @ x / 50)
    for row in range(3):
        now = scale[row].copy()
        for b in range(blocks):
            here = slice(b * width, (b + 1) * width)
            others = np.repeat(now, width) * steps[row]
            others[here] = 0
            column = (x[:, here] @ steps[row, here])[:, None]
            (best,), *_ = np.linalg.lstsq(column, x @ (weight[row] - others), rcond=None)
            now[b] = best if best > 0 else now[b]
        assert found[row] == pytest.approx(now, rel=1e-9)


def test_a_least_squares_scale_that_would_not_be_positive_stays() -> None:
    weight, scale, steps = np.array([[-1.0, -2.0]]), np.array([[0.5]]), np.array([[1.0, 2.0]])
    for chosen in (steps, 0 * steps):
        assert gptq._solve_scales(weight, scale, chosen, np.eye(2)) == pytest.approx(scale)


def linear(op: str, groups: int = 1, **names: object):
    """A product with a bias between "x" and "y"."""
    weights = {"b": f32(4)}
    if op == "Conv":
        weights["w"] = f32(4, 6 // groups, 2, 2)
        nodes, size = [node("Conv", ["x", "w", "b"], ["y"], "n", group=groups)], ["N", 6, 5, 5]
    elif op == "Gemm":
        weights["w"] = f32(4, 6) if names.get("transB") else f32(6, 4)
        nodes, size = [node("Gemm", ["x", "w", "b"], ["y"], "n", **names)], ["N", 6]
    else:
        weights["w"] = f32(6, 4)
        nodes = [node("MatMul", ["x", "w"], ["h"], "n"), node("Add", ["b", "h"], ["y"], "add")]
        size = ["N", 6]
    shape = ["N", 4, 4, 4] if op == "Conv" else ["N", 4]
    return graph(nodes, [("x", FLOAT, size)], [("y", FLOAT, shape)], weights), weights["w"]


def run(model, x: np.ndarray) -> np.ndarray:
    return ReferenceEvaluator(model.proto()).run(None, {"x": x})[0]


@pytest.mark.parametrize(
    ("op", "names"),
    [("Conv", {}), ("Conv", {"groups": 2}), ("Gemm", {"transB": 1}), ("Gemm", {"beta": 0.5}), ("MatMul", {})],
)  # fmt: skip
def test_a_bias_is_what_leaves_no_mean_error_to_a_rounded_weight(op: str, names: dict) -> None:
    """The regression of the outputs on a constant: with the shift taken off, the mean error of each channel is zero."""
    model, weight = linear(op, **names)
    one = make_product_form(model, model.by_id["n"])
    rounded = np.round(2 * weight) / 2
    x = f32(16, *([6, 5, 5] if op == "Conv" else [6])) + 0.5
    total, places = one.sum_positions(x)
    mean = total / places
    added = compute_bias_shift(one, LayerInput(mean, mean), weight, rounded)
    edit = Edit(model)
    edit.set_input("n", 1, edit.add_constant("rounded", rounded))
    off = edit.model
    axes = (0, 2, 3) if op == "Conv" else 0
    assert (run(off, x) - run(model, x)).mean(axis=axes) == pytest.approx(added, abs=1e-5)
    edit = Edit(off)
    correct_biases({"n": added}).edit(edit)
    assert (run(edit.model, x) - run(model, x)).mean(axis=axes) == pytest.approx(0, abs=1e-5)


def test_what_is_rounded_of_the_input_counts_with_the_rounded_weight() -> None:
    model, weight = linear("Gemm")
    mean, near = RNG.normal(size=(2, 1, 6))
    added = compute_bias_shift(
        make_product_form(model, model.by_id["n"]), LayerInput(mean, near), weight, 2 * weight
    )
    assert added == pytest.approx((near @ (2 * weight.astype(float)) - mean @ weight.astype(float))[0])


def test_an_offset_stands_in_a_bias_or_in_a_sum_that_alone_reads_a_product() -> None:
    assert find_bias_input(linear("Conv")[0], "n") == ("n", 2, 1.0)
    assert find_bias_input(linear("Gemm", beta=0.5)[0], "n") == ("n", 2, 0.5)
    assert find_bias_input(linear("Gemm", beta=0.0)[0], "n") is None
    assert find_bias_input(linear("MatMul")[0], "n") == ("add", 0, 1.0)
    ends = [("x", FLOAT, ["N", 6])], [("y", FLOAT, ["N", 4])]
    product_, add = node("MatMul", ["x", "w"], ["h"], "n"), node("Add", ["h", "b"], ["y"], "add")
    weights = {"w": f32(6, 4), "b": f32(4)}
    assert find_bias_input(graph([product_, add], *ends, weights), "n") == ("add", 1, 1.0)
    shown = (ends[0], [*ends[1], ("h", FLOAT, ["N", 4])])
    assert find_bias_input(graph([product_, add], *shown, weights), "n") is None
    twice = [product_, add, node("Neg", ["h"], ["z"], "neg")]
    assert find_bias_input(graph(twice, ends[0], [*ends[1], ("z", FLOAT, ["N", 4])], weights), "n") is None
    subtracted = [product_, node("Sub", ["h", "b"], ["y"], "sub")]
    assert find_bias_input(graph(subtracted, *ends, weights), "n") is None
    weights = {"w": f32(6, 4), "b": f32(3, 1)}
    nodes = [node("MatMul", ["x", "w"], ["h"], "n"), node("Add", ["h", "b"], ["y"], "add")]
    ends = [("x", FLOAT, [3, 6])], [("y", FLOAT, [3, 4])]
    assert find_bias_input(graph(nodes, *ends, weights), "n") is None


@pytest.mark.parametrize("turned", [False, True])
def test_second_moments_of_batches_are_those_of_all_rows(turned: bool) -> None:
    model, _ = linear("Gemm", transB=int(turned))
    want = InputStatsRequest(make_product_form(model, model.by_id["n"]), Scale(2.0), second=True)
    x = 3 * f32(10, 6)
    collector = InputCollector([want])
    collector.run(({"x": x[i : i + 4]} for i in (0, 4, 8)), lambda _: {}, Silent(), lambda b: len(b["x"]))
    seen = collector.build_layer_inputs({}).nodes["n"]
    step = 2 / 127
    rounded = np.clip(np.rint(x / step), -128, 127) * step
    assert seen.mean[0] == pytest.approx(x.mean(axis=0), abs=1e-6)
    assert seen.rounded_mean[0] == pytest.approx(rounded.mean(axis=0), abs=1e-5)
    assert seen.second_moment[0] == pytest.approx(rounded.T @ rounded / 10, rel=1e-5)
    assert (seen.rows, collector.samples) == (10, 10)


#: Operators behind a Relu: shape of the weight, attributes, what is written, and magnitudes by channel that is read.
SECOND = {
    "Conv": ("Conv", (2, 3, 1, 1), {}, [1, 2, 2, 2], lambda w: w.max(axis=(0, 2, 3))),
    "Grouped": ("Conv", (3, 1, 1, 1), {"group": 3}, [1, 3, 2, 2], lambda w: w.reshape(-1)),
    "Gemm": ("Gemm", (12, 5), {}, [1, 5], lambda w: w.reshape(3, 4, 5).max(axis=(1, 2))),
    "GemmB": ("Gemm", (5, 12), {"transB": 1}, [1, 5], lambda w: w.reshape(5, 3, 4).max(axis=(0, 2))),
}


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_equalizing_takes_magnitudes_of_weights_and_of_negative_biases(second: str, sign: float) -> None:
    """The weights of the second are large, so that biases decide about scales."""
    op, shape, names, y, magnitudes = SECOND[second]
    weights = {"v": sign * np.abs(f32(3, 2, 1, 1)), "b": np.float32([-4.0, -0.5, 0.0])}
    weights["w"] = 400 * sign * np.abs(f32(*shape))
    nodes = [node("Conv", ["x", "v", "b"], ["h"], "one"), node("Relu", ["h"], ["r"], "relu")]
    nodes += [node("Flatten", ["r"], ["f"], "flat")] if op == "Gemm" else []
    nodes.append(node(op, ["f" if op == "Gemm" else "r", "w"], ["y"], "two", **names))
    model = graph(nodes, [("x", FLOAT, [1, 2, 2, 2])], [("y", FLOAT, y)], weights)
    (link,) = find_links(model)
    before = np.abs(weights["v"]).reshape(3, -1).max(axis=1)
    after = magnitudes(np.abs(weights["w"]))
    start = np.abs(weights["b"])
    scale = np.maximum(np.sqrt(before / after), np.minimum(1, start / max(start.max(), before.max())))
    constants = Constants(model)
    assert apply_transforms.compute_scale_factors(constants, link) == pytest.approx(scale)
    peak, offset = compute_write_peaks(constants, link)
    assert peak == pytest.approx(before)
    assert offset == pytest.approx(weights["b"])
    move_scale(constants, link, scale)
    edit = Edit(model)
    constants.write(edit)
    made, x = edit.model, f32(1, 2, 2, 2)
    assert run(made, x) == pytest.approx(run(model, x), rel=1e-4, abs=1e-2)
    held = [made.known[made.by_id["one"].inputs[i]].numpy() for i in (1, 2)]
    assert np.abs(held[0]).reshape(3, -1).max(axis=1) == pytest.approx(before / scale, rel=1e-3)
    assert held[1] == pytest.approx(weights["b"] / scale, rel=1e-3)


def test_a_channel_that_nobody_writes_or_reads_keeps_its_scale() -> None:
    weights = {"v": f32(4, 2, 1, 1), "w": f32(2, 4, 1, 1)}
    weights["v"][1], weights["w"][:, 2] = 0, 0
    nodes = [node("Conv", ["x", "v"], ["h"], "one"), node("Conv", ["h", "w"], ["y"], "two")]
    model = graph(nodes, [("x", FLOAT, [1, 2, 2, 2])], [("y", FLOAT, [1, 2, 2, 2])], weights)
    (link,) = find_links(model)
    found = apply_transforms.compute_scale_factors(Constants(model), link)
    v, w = np.abs(weights["v"]).max(axis=(1, 2, 3)), np.abs(weights["w"]).max(axis=(0, 2, 3))
    ratio = v[[0, 3]] / w[[0, 3]]
    assert found == pytest.approx([ratio[0] ** 0.5, 1, 1, ratio[1] ** 0.5])


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("block", [0, 2])
def test_four_bits_have_a_scale_for_each_channel_or_block_and_one_for_zeros(block: int, turned: bool) -> None:
    """Of independent inputs whatever is on the grid is stored as it is; what is zero throughout stays zero."""
    rows = np.float32([[7, -3, 1, 7], [0, 0, 0, 0], [-14, 7, 14, 2]]) / 7
    model, _ = linear("MatMul" if turned else "Gemm", **({} if turned else {"transB": 1}))
    one = dataclasses.replace(
        make_product_form(model, model.by_id["n"]), shape=rows.T.shape if turned else rows.shape
    )
    layout = ScaleLayout(int(turned) if not block else 1 - int(turned), block)
    made = weight_correction._quantize_four_bit_weight(
        (one, np.eye(4)[None]), rows.T if turned else rows, layout, Precision.INT4, 0.01
    )
    found = made.dequantize().T if turned else made.dequantize()
    assert found == pytest.approx(rows, abs=0.15)
    assert (found[1] == 0).all()
    sizes = made.scale if not block else made.scale.T if turned else made.scale
    assert sizes.shape == ((3,) if not block else (3, 2))
    assert (made.scale > 0).all()


def test_what_a_link_writes_goes_through_normalizations_sums_and_products_in_their_order() -> None:
    """Negative gains turn an offset and leave a magnitude positive."""
    weights = {
        "v": f32(3, 2, 1, 1), "b": f32(3), "g": np.float32([-2, 1, 3]), "s": f32(3), "m": f32(3),
        "var": np.float32([1, 4, 0.25]), "f": np.float32([[[2]], [[-3]], [[0.5]]]), "o": f32(3, 1, 1),
        "w": f32(2, 3, 1, 1),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "v", "b"], ["h"], "one"),
        node("BatchNormalization", ["h", "g", "s", "m", "var"], ["i"], "bn", epsilon=0.0),
        node("Mul", ["i", "f"], ["j"], "mul"), node("Add", ["j", "o"], ["k"], "add"),
        node("Relu", ["k"], ["r"], "relu"), node("Conv", ["r", "w"], ["y"], "two"),
    ]  # fmt: skip
    model = graph(nodes, [("x", FLOAT, [1, 2, 2, 2])], [("y", FLOAT, [1, 2, 2, 2])], weights)
    (link,) = find_links(model)
    peak, start = compute_write_peaks(Constants(model), link)
    gain = weights["g"] / np.sqrt(weights["var"])
    factor = weights["f"].reshape(-1)
    expected = ((weights["b"] - weights["m"]) * gain + weights["s"]) * factor + weights["o"].reshape(-1)
    assert start == pytest.approx(expected, rel=1e-5)
    assert peak == pytest.approx(np.abs(weights["v"]).max(axis=(1, 2, 3)) * np.abs(gain * factor), rel=1e-5)


def observed(values: np.ndarray) -> Range:
    collector = Collector(["v"], stride=1)
    collector.run([{"v": values}], lambda _: {}, Silent(), len)
    return collector.ranges.values["v"]


def quantized(x: np.ndarray, amax: float, precision: Precision) -> np.ndarray:
    levels = precision.stored.magnitudes * amax / precision.stored.largest
    return np.sign(x) * levels[np.abs(np.abs(x)[:, None] - levels).argmin(axis=1)]


@pytest.mark.parametrize("precision", [Precision.INT8, Precision.FP8])
def test_noise_and_clipped_shares_are_those_of_every_element(precision: Precision) -> None:
    """Negative values outnumber and exceed the positive ones."""
    x = np.concatenate([-np.abs(2 * f32(3000)), np.abs(f32(1000)), np.zeros(500, np.float32)])
    seen = observed(x)
    amax = np.array([0.5, 1.5, 3.0]) * 1.0001
    moments = Moments.of(seen)
    found = (
        moments.compute_noise(amax, precision.stored),
        moments.compute_clipped_share(amax),
        moments.compute_sqnr(amax, precision.stored),
    )
    for at, noise, clipped, sqnr in zip(amax, *found, strict=True):
        error = ((x - quantized(x, at, precision)) ** 2).sum()
        assert noise == pytest.approx(error, rel=0.02)
        assert clipped == pytest.approx((np.abs(x) > at).mean(), abs=1e-3)
        assert sqnr == pytest.approx(10 * np.log10((x.astype(float) ** 2).sum() / error), abs=0.1)
    assert (seen.count, seen.zeros, seen.amax) == (4500, 500, np.abs(x).max())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_the_gradient_of_a_local_response_of_any_size_is_that_of_differences(size: int) -> None:
    """Of an even size a channel has one neighbour more behind than before; ONNX Runtime refuses even sizes."""
    names = {"alpha": 0.8, "beta": 0.6, "bias": 1.5, "size": size}
    x, u = RNG.normal(size=(2, 1, 5, 1, 2)).astype(np.float32)
    expected = np.empty(x.shape)
    for at in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[at] = 1e-6
        ends = [LRN._run(None, x + s * step, **names)[0] for s in (1, -1)]
        expected[at] = ((ends[0] - ends[1]) * u).sum() / 2e-6
    lrn = node("LRN", ["x"], ["y"], "n", **names)
    model = graph([lrn], [("x", FLOAT, x.shape)], [("y", FLOAT, u.shape)], {})
    made, slopes, _ = differentiated(model, ["x"])
    (found,) = ReferenceEvaluator(made.proto(), new_ops=[LRN]).run(slopes, {"x": x, "seed": u})
    assert found == pytest.approx(expected, abs=2e-4)
