"""Recurrences before and after the compiler, on engines that TensorRT-RTX builds here."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recurrent import listing, recurrent_model, tensor
from rtlab import backends, quantize, samples
from rtlab.analyses.recurrence.fused_cells import Piece, analyze_recurrences, recurrences
from rtlab.core.engine import Layer
from rtlab.core.model import wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import ModelError
from rtlab.relation.mapping import Mapping, Pair
from rtlab.relation.relate import relate

RTX = backends.get("tensorrt-rtx")
needs_rtx = pytest.mark.skipif(not RTX.availability().ok, reason="needs the builder of tensorrt-rtx")


def build(model, precision: str = "fp32", backend: str = "tensorrt-rtx"):
    variant = Variant.of(precision, target="sm86" if backend == "tensorrt-rtx" else "cpu")
    ready = quantize.prepare(model, variant)
    return model, ready.model, backends.get(backend).build(BuildRequest(ready.model, variant), Silent())


@functools.cache
def built(op="LSTM", steps=8, precision="fp32", **more):
    return build(recurrent_model(op, steps, **more), precision)


def found(source, ready, engine):
    return analyze_recurrences(source, ready, engine, relate(source, ready, engine))


def roles(one) -> Counter:
    return Counter(q.role for p in one.pieces for q in p.parts)


def test_definition_of_an_lstm_counts_products_operations_and_work():
    """Four gates: eight products a step; 12 operations for the gates and 5 for the state."""
    (before,) = recurrences(recurrent_model("LSTM", 8, inputs=8, hidden=48, batch=2))
    assert ("i", "o", "f", "c") == before.gates
    assert (8, 2, 8, 48) == (before.steps, before.batch, before.inputs, before.hidden)
    assert 8 * 8 == before.products
    assert 8 * 17 == before.elementwise
    assert 8 * 25 == before.operations
    # Products of a 2x8 by an 8x192 and of a 2x48 by a 48x192 matrix, eight times.
    assert 8 * 2 * (2 * 8 * 192 + 2 * 48 * 192) == before.flops


@pytest.mark.parametrize(
    ("op", "linear", "products", "elementwise"), [("GRU", 0, 6, 14), ("GRU", 1, 6, 15), ("RNN", 0, 2, 3)]
)
def test_definitions_of_the_others(op, linear, products, elementwise):
    (before,) = recurrences(recurrent_model(op, 1, linear=linear))
    assert (products, elementwise) == (before.products, before.elementwise)
    (both,) = recurrences(recurrent_model(op, 3, linear=linear, direction="bidirectional"))
    assert (6 * products, 6 * elementwise) == (both.products, both.elementwise)


def test_dynamic_steps_without_a_size_are_refused_with_how_to_name_it():
    proto = recurrent_model("LSTM", 8).proto()
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "tokens"
    with pytest.raises(ModelError, match="Name sizes"):
        recurrences(wrap(proto, name="dynamic"))


def steps_of(pieces: tuple[Piece, ...], role: str) -> dict[int, list[str]]:
    """The layers that compute this role, by step; a step has several where its work was not merged."""
    table: dict[int, list[str]] = {}
    for piece in pieces:
        for part in piece.parts:
            if part.role == role:
                for step in part.steps:
                    table.setdefault(step, []).append(piece.layer)
    return table


def check(one, engine, steps: int) -> None:
    """What must hold however the compiler runs it."""
    ids = [p.layer for p in one.pieces]
    assert len(ids) == len(set(ids)), "a layer is given to the recurrence twice"
    assert steps == one.found, one.evidence
    assert "unknown" not in roles(one)
    every = set(range(steps))
    for role in ("input product", "recurrent product", "pointwise"):
        assert every == set(steps_of(one.pieces, role)), role
    # What stands between its layers in order of execution is its own, unless a label says otherwise.
    index = {layer.id: layer.index for layer in engine.layers}
    core = [index[p.layer] for p in one.pieces]
    between = [y for y in engine.layers if min(core) <= y.index <= max(core)]
    assert not [y.id for y in between if y.id not in ids and not y.origins]


@pytest.mark.slow
@needs_rtx
@settings(max_examples=14, deadline=None)
@given(
    op=st.sampled_from(["LSTM", "GRU", "RNN"]),
    steps=st.integers(1, 21),
    inputs=st.sampled_from([8, 16]),
    hidden=st.sampled_from([16, 24]),
    batch=st.integers(1, 5),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    linear=st.integers(0, 1),
    head=st.booleans(),
    half=st.booleans(),
)
@example(  # The state of the first step is moved into the output of the model.
    op="RNN", steps=2, inputs=8, hidden=16, batch=1, direction="forward", linear=0, head=False, half=False
)  # fmt: skip
def test_every_layer_of_a_recurrence_has_one_place_and_every_step_is_found(half, steps, op, **more):
    source, ready, engine = built(op, steps, "fp16" if half else "fp32", **more)
    (one,) = found(source, ready, engine)
    check(one, engine, steps)
    assert one.products < one.before.products or op == "RNN"


@needs_rtx
@pytest.mark.parametrize(
    ("steps", "form", "turns", "body", "hoisted", "products"),
    [(2, "unrolled", 1, 0, False, 4), (8, "unrolled", 1, 0, False, 16), (9, "unrolled", 1, 0, True, 10),
     (19, "loop", 2, 8, True, 20), (64, "loop", 8, 8, True, 65), (256, "loop", 32, 8, True, 257)],
)  # fmt: skip
def test_tensorrt_rtx_unrolls_eight_steps_and_hoists_from_nine(steps, form, turns, body, hoisted, products):
    """Seen in the listings of version 1.7; another version may do otherwise, and then the texts must change."""
    if not RTX.availability().version.startswith("1.7"):
        pytest.skip("what is stated is of version 1.7")
    source, ready, engine = built("LSTM", steps, batch=4)
    (one,) = found(source, ready, engine)
    check(one, engine, steps)
    assert (form, hoisted, True) == (one.form, one.hoisted, one.merged)
    assert (turns, body) == ((one.turns, one.body) if form == "loop" else (1, 0))
    assert products == one.products
    # Two products in two layers and one pointwise layer a step, and what all steps share.
    gemms = sum(y.kind == "gemm" for y in engine.layers) - 1
    assert gemms == roles(one)["recurrent product"] + roles(one)["input product"]


@needs_rtx
def test_steps_agree_with_the_numbers_in_the_compilers_names():
    """Names such as ``__mye2137_unroll3`` are an oracle that the division into steps does not use."""
    source, ready, engine = built("LSTM", 8, batch=4)
    (one,) = found(source, ready, engine)
    named = {p.layer: int(m[1]) for p in one.pieces if (m := re.search(r"_unroll(\d+)", p.layer))}
    assert len(named) == 14
    for piece in one.pieces:
        if piece.layer in named:
            assert [(named[piece.layer],)] == [q.steps for q in piece.parts]


@pytest.mark.slow
@needs_rtx
def test_merged_gates_are_told_by_the_width_of_the_weights():
    (lstm,), (gru,), (rnn,) = (found(*built(op, 4, batch=4)) for op in ("LSTM", "GRU", "RNN"))
    assert {4} == {q.gates for p in lstm.pieces for q in p.parts if q.role.endswith("product")}
    # Without linear_before_reset the third gate of the state waits for the second.
    assert {2, 1} == {q.gates for p in gru.pieces for q in p.parts if q.role == "recurrent product"}
    assert rnn.merged is False


@needs_rtx
@pytest.mark.parametrize(
    ("op", "batch", "inputs"), [("LSTM", 4, 8), ("LSTM", 1, 16), ("GRU", 4, 16), ("GRU", 1, 8)]
)
def test_layers_of_two_recurrences_in_a_row_are_told_apart(op, batch, inputs):
    source, ready, engine = built(op, 4, batch=batch, inputs=inputs, layers=2, head=False, linear=1)
    first, second = found(source, ready, engine)
    for one in (first, second):
        assert one.found == 4
        assert set(range(4)) == set(steps_of(one.pieces, "recurrent product"))
    assert not {p.layer for p in first.pieces} & {p.layer for p in second.pieces}
    order = {layer.id: layer.index for layer in engine.layers}
    assert max(order[p.layer] for p in first.pieces) < min(order[p.layer] for p in second.pieces)


@needs_rtx
def test_turns_are_counted_by_what_raises_the_counter():
    source, ready, engine = build(samples.load("digits_gru", samples=1).model)
    (one,) = found(source, ready, engine)
    assert ("loop", True) == (one.form, one.turns > 1)
    jump = next(i for i, y in enumerate(engine.layers) if y.kind == "cjmp")
    start = max(i for i in range(jump) if engine.layers[i].kind == "memset")
    counter = engine.layers[jump].inputs[0]
    add = next(i for i in range(start, jump) if counter.name in {t.name for t in engine.layers[i].outputs})
    assert "add" == engine.layers[add].kind
    # By eyes: "__d^8i32" is added to the counter until it is "__d^32i32".
    names = (engine.layers[i].inputs[1].name for i in (add, jump))
    rise, limit = (int(name.partition("^")[2].partition("i")[0]) for name in names)
    assert limit // rise == one.turns
    first = next(i for i in range(start + 1, add) if engine.layers[i].kind == "kgen")
    copied = dataclasses.replace(engine.layers[first], outputs=(*engine.layers[first].outputs, counter))
    layers = (*engine.layers[:first], copied, *engine.layers[first + 1 :])
    (again,) = found(source, ready, dataclasses.replace(engine, layers=layers))
    assert (one.form, one.turns) == (again.form, again.turns)


@needs_rtx
def test_a_missing_step_is_said():
    source, ready, engine = built("LSTM", 8, batch=4)
    (one,) = found(source, ready, engine)
    lost = steps_of(one.pieces, "pointwise")[3][0]
    # Without the layer that makes the fourth state, its readers read nothing.
    broken = dataclasses.replace(engine, layers=tuple(y for y in engine.layers if y.id != lost))
    (one,) = found(source, ready, broken)
    assert one.found < 8
    assert any("not certain" in text for text in one.evidence)


@needs_rtx
def test_what_is_not_understood_is_unknown():
    source, ready, engine = built("LSTM", 4, batch=4)
    layers = tuple(
        dataclasses.replace(y, constants=()) if y.kind == "gemm" and y.inputs and "unroll1" in y.name else y
        for y in engine.layers
    )
    (one,) = found(source, ready, dataclasses.replace(engine, layers=layers))
    assert roles(one)["unknown"] > 0


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("inputs", [8, 16])
def test_layers_of_stacked_recurrences_are_divided_exactly(count, inputs):
    model = recurrent_model("LSTM", 5, batch=4, inputs=inputs, layers=count, head=False)
    engine = listing(5, count, inputs=inputs)
    for n, one in enumerate(analyze_recurrences(model, model, engine, Mapping((), ()))):
        assert [p.layer for p in one.pieces] == [y.id for y in engine.layers[15 * n : 15 * n + 15]]
        parts = [(q.role, *q.steps) for p in one.pieces for q in p.parts]
        roles_ = ("input product", "recurrent product", "pointwise")
        assert [(role, t) for t in range(5) for role in roles_] == parts
        assert [False] * 14 + [True] == [p.declared for p in one.pieces]
        assert (one.form, one.hoisted, one.merged, one.products) == ("unrolled", False, True, 10)


def test_layers_that_only_the_mapping_knows_are_unknown():
    model = recurrent_model("LSTM", 5)
    ends = (tensor("x", 5, 1, 8),), (tensor("out", 1, 1, 10),)
    region = Layer("0:region", "{ForeignNode[/rnn0]}", "Myelin", 0, *ends)
    engine = dataclasses.replace(listing(5), layers=(region,))
    pairs = Mapping((Pair("/rnn0", "0:region", "inferred"),), ())
    (one,) = analyze_recurrences(model, model, engine, pairs)
    assert [("0:region", "unknown")] == [(p.layer, q.role) for p in one.pieces for q in p.parts]
    assert (one.form, one.products) == ("unknown", None)
    # An engine without any layer of it, such as one that was read with the wrong model, says nothing of it.
    (one,) = analyze_recurrences(model, model, dataclasses.replace(engine, layers=()), Mapping((), ()))
    assert ((), "unknown", None, None) == (one.pieces, one.form, one.hoisted, one.products)


@needs_rtx
def test_two_steps_of_two_directions_are_no_hoisted_product():
    (one,) = found(*built("LSTM", 2, batch=4, direction="bidirectional", head=False))
    assert one.hoisted is False
    parts = [q for p in one.pieces for q in p.parts]
    assert [(0,), (1,)] == sorted(q.steps for q in parts if q.role == "input product")
