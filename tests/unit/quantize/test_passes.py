"""What each pass promises, checked on every sample that it changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rtlab
from net_text import written
from promises import broken
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision
from rtlab.errors import VariantError
from rtlab.quantize import (
    apply_transforms,
    findings,
    fp16_passes,
    fp16_plan,
    input_statistics,
    passes,
    placement,
    smoothquant,
    sparsity,
    weight_correction,
    weights,
)
from rtlab.quantize.edit import Edit
from rtlab.quantize.fp16_plan import HalfConstants
from rtlab.quantize.passes import Pass, raise_opset
from rtlab.quantize.rewrite import insert_pairs

node = helper.make_node
SAMPLES = (
    "control_flow", "digits_gru", "digits_inception", "digits_mobilenet", "digits_qat", "digits_vit", "dynamic_shapes",
    "hostile_names", "sentences",
)  # fmt: skip


Made = tuple[Model, Pass] | None


def raised(model: Model, opset: int) -> Model:
    return passes.run(model, [raise_opset(opset, "for a test")])


def pairs(precision: Precision, model: Model) -> Made:
    plan = placement.plan(model, None, precision)
    scales = {v: Scale(8.0) for v in plan.activations}
    return (raised(model, 19), insert_pairs(plan, scales, precision)) if plan.activations else None


def stored(model: Model) -> Made:
    ready = raised(model, Precision.INT4.stored.opset)
    plan = weights.plan(ready, {n.id for n in ready.top}, Precision.INT4)
    return (ready, weights.store_weights(plan, Precision.INT4)) if plan.weights else None


def numbers(precision: Precision, model: Model) -> Made:
    ready = raised(model, precision.stored.opset)
    plan = weights.plan(ready, {n.id for n in ready.top}, precision)
    scales = {v: Scale(8.0) for v in plan.activations}
    return (ready, weights.dequantize_weights(plan, precision, {}, scales=scales)) if plan.weights else None


def halves(precision: Precision, kind: Any, model: Model) -> Made:
    seen = HalfConstants(model.known)
    plan = fp16_plan.plan(model, dict.fromkeys((n.id for n in model.top), precision), constants=seen)
    return (model, kind(plan, seen)) if plan.nodes else None


def truncate(model: Model) -> Made:
    nodes = fp16_passes.find_tf32_products(model)
    return (model, fp16_passes.truncate(nodes)) if nodes else None


def prune(model: Model) -> Made:
    found = {(w.value, w.axis): (w.node,) for w in sparsity.find(model) if w.eligible}
    return (model, sparsity.prune_weights(found)) if found else None


def equalization(model: Model) -> Made:
    found = apply_transforms.plan_equalization(model, [n.id for n in model.top])
    return (model, apply_transforms.equalize(found)) if found else None


def smoothing(model: Model) -> Made:
    found = smoothquant.plan(model)
    widths = {r.value: link.channels for link in found for r in link.readers}
    peaks = {v: np.linspace(0.1, 10, n) for v, n in widths.items()}
    return (model, smoothquant.smooth(found, peaks)) if found else None


def correction(model: Model) -> Made:
    places = [
        n.id
        for n in model.top
        if n.op in {"Conv", "Gemm", "MatMul"} and weight_correction.find_bias_input(model, n.id)
    ]
    sizes = {n: input_statistics.make_product_form(model, model.by_id[n]) for n in places}
    shifts = {
        n: np.full(p.groups * p.outputs, 1e-3)
        for n, p in sizes.items()
        if isinstance(p, input_statistics.ProductForm)
    }
    return (model, weight_correction.correct_biases(shifts)) if shifts else None


#: How each pass is made for a model, None where there is nothing to do, and the least that is left of an output beside
#: the error: decibels, which is what samples showed less a margin. An operator of another opset is another kernel, and
#: adds in another order.
PASSES: dict[str, tuple[Callable[[Model], Made], float]] = {
    "opset": (lambda model: (model, raise_opset(21, "for a test")), 100.0),
    "int8 pairs": (partial(pairs, Precision.INT8), 0.0),
    "fp8 pairs": (partial(pairs, Precision.FP8), 0.0),
    "int4 weights": (stored, 0.0),
    "int4 numbers": (partial(numbers, Precision.INT4), 0.0),
    "fp4 numbers": (partial(numbers, Precision.FP4), 0.0),
    "fp16 types": (partial(halves, Precision.FP16, fp16_passes.narrow), 40.0),
    "fp16 rounding": (partial(halves, Precision.FP16, fp16_passes.round_values), 40.0),
    "bf16 rounding": (partial(halves, Precision.BF16, fp16_passes.round_values), 15.0),
    "tf32 rounding": (truncate, 40.0),
    "2:4 sparsity": (prune, 0.0),
    "equalization": (equalization, 90.0),
    "smoothing": (smoothing, 90.0),
    "bias correction": (correction, 0.0),
}


@cache
def sample(name: str) -> tuple[Model, dict[str, np.ndarray]]:
    found = rtlab.samples.load(name)
    return found.model, next(found.calibration.batches(found.model, 1))


@pytest.mark.slow(but="inception|outlier|control_flow|misplaced")
@pytest.mark.parametrize("model", SAMPLES)
@pytest.mark.parametrize("which", PASSES)
def test_a_pass_keeps_what_it_promises(which: str, model: str, run) -> None:
    source, data = sample(model)
    make, least = PASSES[which]
    made = make(source)
    if made is None:
        # Nothing to do is no error, and some sample has something.
        return
    before, one = made
    content = before.bytes()
    assert before.opset >= one.min_opset
    after = passes.run(before, [one], keep_origins=before is not source)
    assert [] == broken(one.promises, before, after)
    assert content == before.bytes()
    proto = after.proto()
    onnx.checker.check_model(proto, full_check=True)
    # What the pass says of types and shapes is what ONNX infers from the file.
    told = rtlab.load(proto)
    known = {k: (v.dtype, v.shape) for k, v in told.values.items() if v.dtype and v.shape is not None}
    assert known == {k: (after.values[k].dtype, after.values[k].shape) for k in known}
    assert (passes.NUMBERS in one.promises) == (least >= 100)
    was, now = (run(m, data, list(source.outputs)) for m in (before, after))
    for output in source.outputs:
        if was[output].dtype != np.float32:
            assert was[output].dtype == now[output].dtype
            continue
        error = np.square(was[output].astype(np.float64) - now[output]).mean()
        signal = np.square(was[output].astype(np.float64)).mean()
        assert error <= signal * 10 ** (-least / 10)


@pytest.mark.parametrize("which", PASSES)
def test_every_pass_has_a_sample_that_it_changes(which: str) -> None:
    make, _ = PASSES[which]
    tried = [n for n in SAMPLES if make(sample(n)[0]) is not None]
    assert tried


def misplaced() -> Model:
    """Pairs where they part a kernel, and weights that are stored in other ways than a compiler's."""
    return rtlab.load(Path(rtlab.__file__).parents[1] / "sample_models" / "digits_qat_misplaced.onnx")


def integral() -> Model:
    """A product on integers, as ONNX Runtime writes it."""
    return written(
        "x[2, 6]; q: xq = QuantizeLinear(x, s, z); n: yq = QLinearMatMul(xq, s, z, w, s, z, s, z); "
        "dq: y = DequantizeLinear(yq, s, z); y[2, 4]",
        s=np.float32(0.1),
        z=np.int8(0),
        w=np.arange(-12, 12, dtype=np.int8).reshape(6, 4),
    )


@pytest.mark.parametrize("make_model", [misplaced, integral])
def test_each_step_of_a_repair_keeps_what_it_promises(make_model: Callable[[], Model], run) -> None:
    """Where it promises the numbers too, ONNX Runtime gives the same but for the order of its sums."""
    source = make_model()
    content, edit, names = source.bytes(), Edit(source, source=True), []
    shape = source.input_shape(source.inputs[0])
    data = {source.inputs[0]: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    for one in findings.iter_repair_passes(edit):
        before, view = rtlab.load(edit.model.bytes()), edit.model
        passes.apply(one, edit)
        names.append(one.name)
        assert [] == broken(one.promises, view, edit.model), one.name
        after = rtlab.load(edit.model.bytes())
        if passes.NUMBERS in one.promises:
            was, now = (run(m, data, list(source.outputs)) for m in (before, after))
            for output in source.outputs:
                np.testing.assert_allclose(was[output], now[output], rtol=1e-4, atol=1e-4)
    assert content == source.bytes()
    own = {"misplaced": 'repair of "weight-missing"', "integral": "operators on integers as pairs"}
    assert {own[make_model.__name__], "types and shapes"} <= {*names}


def small(make: Any) -> Model:
    return make("x[2]; relu: r = Relu(x); neg: y = Neg(r); y[2]")


def test_a_pass_that_lacks_what_it_needs_says_so(make) -> None:
    net = make("x[2, 4]; n: y = MatMul(x, w); y[2, 4]", {"w": np.ones((4, 4), np.float32)}, opset=13)
    plan = placement.plan(net, None, Precision.FP8)
    with pytest.raises(VariantError, match="needs opset 19, and the model has 13"):
        passes.run(net, [insert_pairs(plan, {"x": Scale(1.0)}, Precision.FP8)])


def test_what_breaks_a_promise_is_found(make) -> None:
    net = small(make)

    assert [] == broken(passes.INSERTION_PROMISES, net, passes.run(net, []))
    gone = make("x[2]; neg: y = Neg(x); y[2]")
    told = ["nodes are gone, or stand in another order", 'value "r" is gone']
    assert told == broken(passes.INSERTION_PROMISES[1:3], net, gone)
    swapped = make("x[2]; relu: r = Abs(x); neg: y = Neg(r); y[2]")
    assert ['node "relu" is another operator'] == broken(passes.INSERTION_PROMISES, net, swapped)
    more = make("x[2]; relu: r = Relu(x); neg: y = Neg(r); abs: z = Abs(y); z[2]")
    (ends, lost) = broken((passes.INTERFACE, passes.ORIGINS), net, more)
    assert "outputs were [('y', 'fp32', (2,))] and are [('z', 'fp32', (2,))]" == ends
    assert 'node "abs" serves no node of the source' == lost


def test_nodes_out_of_order_break_a_promise(make) -> None:
    net = small(make)
    edit = Edit(net)
    edit.insert("Abs", "abs", [edit.values["y"]], origin="neg", before="relu")
    assert ['node "abs" stands before what writes "y"'] == broken((passes.ORDER,), net, edit.model)


def test_a_value_without_a_type_breaks_a_promise(make) -> None:
    net = small(make)
    edit = Edit(net)
    edit.insert("Abs", "abs", [edit.values["r"]], origin="neg", before="neg")
    edit.values["abs/output"].type = None
    assert ['the type of value "abs/output" is not known'] == broken((passes.TYPES,), net, edit.model)
