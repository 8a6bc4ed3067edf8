"""Guards behind softmaxes, as PyTorch's exporters write them against rows without a key."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from decoders import Decoder
from guarded import LOWEST, guarded
from observed import collect
from rtlab.core.attention import find_attentions
from rtlab.core.compiler_info import AttentionKernel, Maker
from rtlab.core.variant import Precision, Variant
from rtlab.quantize import guards
from rtlab.quantize.compose import prepare
from rtlab.quantize.placement import quantizable
from sessions import computed

SIZES = Decoder(layers=1)
TYPES = frozenset({"fp16", "fp32"})
MAKER = Maker(
    "Some", attention_kernels=(AttentionKernel(Precision.INT8, frozenset({32}), (16, 64), TYPES, output_pair=True),)
)  # fmt: skip


@pytest.mark.parametrize(
    ("between", "is_idle"),
    [
        ("t: t = Mul(s, h)", True),
        ("r: r = Mul(s, h); t: t = Add(r, low)", True),
        ("r: r = Mul(s, h); m: m = Where(c, zero, low); e: e = Reshape(m, size); t: t = Add(e, r)", True),
        # A row of nothing but these has no softmax.
        ("t: t = Add(s, infinite)", False),
        ("m: m = Where(c, zero, infinite); t: t = Add(s, m)", False),
        ("t: t = Add(s, k)", False),
        # Both of these may overflow.
        ("r: r = Add(s, low); t: t = Add(r, low)", False),
        ("r: r = Add(s, low); t: t = Mul(r, h)", False),
        # A mask of another operator may be anything.
        ("t: t = Where(c, s, infinite)", False),
    ],
)  # fmt: skip
def test_a_guard_is_idle_where_no_mask_is_infinite(make, between: str, is_idle: bool):
    net = (
        f"x[4, 4]; k[4, 4]; v[4, 4]; a: s = MatMul(x, k); {between}; b: p = Softmax(t); n: i = IsNaN(p); "
        "g: q = Where(i, zero, p); z: y = MatMul(q, v); y[4, 4]"
    )
    weights = {
        "h": np.float32(2), "zero": np.float32(0), "c": np.eye(4, dtype=bool),
        "low": np.full((4, 4), LOWEST, np.float32), "infinite": np.full((4, 4), -np.inf, np.float32),
        "size": np.array([4, 4]),
    }  # fmt: skip
    made = make(net, weights)
    (attention,) = find_attentions(made)
    assert attention.sizes.is_guarded
    assert guards.is_idle(made, attention) is is_idle


def test_what_replaces_other_numbers_is_no_idle_guard(make):
    net = (
        "x[4, 4]; k[4, 4]; v[4, 4]; a: s = MatMul(x, k); b: p = Softmax(s); g: q = Where(c, zero, p); "
        "z: y = MatMul(q, v); y[4, 4]"
    )
    made = make(net, {"zero": np.float32(0), "c": np.eye(4, dtype=bool)})
    assert [False] == [guards.is_idle(made, a) for a in find_attentions(made)]


@pytest.mark.parametrize("lowest", [LOWEST, -np.inf])
def test_attention_is_quantized_without_a_guard_that_is_idle_and_left_with_another(lowest: float):
    model, feeds = guarded(SIZES.make(), lowest), {"ids": SIZES.ids(2)}
    names = quantizable(model)
    ranges = collect(names, [feeds], lambda batch: computed(model, batch, names))
    ready = prepare(model, Variant.of("int8", calibrator="minmax"), ranges, maker=MAKER)
    context = ready.model.by_id["layer0/context/MatMul"]
    reads = [ready.model.producers[v].op for v in context.inputs]
    if np.isinf(lowest):
        assert reads == ["Where", "Transpose"]
        return
    assert reads == ["DequantizeLinear", "DequantizeLinear"]
    assert (
        "1 guard behind a softmax left out: no mask is infinite, so that it gives numbers only" in ready.notes
    )
    assert {"guard/IsNaN", "guard/Where"} <= set(ready.model.by_id)
    scales = ready.scales | {"layer0/Softmax": ready.scales["unguarded"]}
    plain = prepare(SIZES.make(), Variant.of("int8"), scales=scales, maker=MAKER)
    outputs = [computed(m.emulation, feeds, ["logits"])["logits"] for m in (ready, plain)]
    assert np.array_equal(*outputs)
    # Nobody asked a kernel, or there is none for these sizes: the graph stays.
    for maker in (Maker(), dataclasses.replace(MAKER, attention_kernels=())):
        left = prepare(model, Variant.of("int8", calibrator="minmax"), ranges, maker=maker)
        assert left.model.producers[left.model.by_id["layer0/context/MatMul"].inputs[0]].op == "Where"
