"""Random inputs of language models: ids, masks, positions and caches that fit together, and run in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from cached_decoder import HEADS, POSITIONS, VOCABULARY, WIDTH, decoder_proto
from nets import graph, session
from rtlab import CalibrationData, load
from rtlab.backends.reference import get_evaluator
from rtlab.errors import ModelError, Unsized
from rtlab.experiments.random_samples import draw_samples

INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
node = helper.make_node
STEP = {"sequence_length": 1, "past_sequence_length": 31}


def outputs(model, data) -> list[list[np.ndarray]]:
    opened = session(model.bytes())
    return [opened.run(None, dict(batch)) for batch in data.batches(model, 1)]


@pytest.mark.parametrize("sizes", [STEP, {"sequence_length": 24, "past_sequence_length": 8, "batch_size": 3}])
def test_a_decoder_gets_inputs_that_fit_together(sizes) -> None:
    model = load(decoder_proto(), shapes=sizes)
    data = CalibrationData.random(model, samples=8)
    data.check(model)
    arrays, past = data.arrays, sizes["past_sequence_length"]
    mask, ids = arrays["attention_mask"], arrays["input_ids"]
    assert VOCABULARY > ids.max() >= VOCABULARY // 2
    pads = (mask == 0).sum(1)
    assert pads[0] == 0 < pads.max() <= past // 4
    for row, pad in zip(mask, pads, strict=True):
        assert not row[:pad].any(), "padding is in front, among the tokens before"
        assert row[pad:].all()
    # A token's position is the number of tokens before it that count.
    counted = np.maximum(np.cumsum(mask, 1) - 1, 0)[:, past:]
    np.testing.assert_array_equal(counted, arrays["position_ids"])
    assert not arrays["past_key_values.0.key"].any()
    assert data.source == "random noise, seed 0, past keys and values are zeros"
    for results in outputs(model, data):
        assert all(np.isfinite(r).all() for r in results)


def test_keys_and_values_of_tokens_before_are_those_of_a_run_of_the_model() -> None:
    model = load(decoder_proto(), shapes=STEP)
    data = draw_samples(model, get_evaluator(), samples=8)
    data.check(model)
    assert data.source.endswith("past keys and values of a run before")
    key = data.arrays["past_key_values.0.key"]
    assert key.shape == (8, HEADS, 31, WIDTH)
    # Every key is a token's row and a position's row times the weights, whatever the token is.
    weights = {t.name: np.frombuffer(t.raw_data, np.float32).reshape(t.dims) for t in model.proto().graph.initializer
               if t.data_type == FLOAT and len(t.dims) == 2}  # fmt: skip
    possible = (weights["tokens"] + weights["positions"][5]) @ weights["wk"]
    fifth = key[0, :, 5].reshape(-1)
    assert np.abs(possible - fifth).max(1).min() < 1e-5
    for results in outputs(model, data):
        assert all(np.isfinite(r).all() for r in results)
    assert not draw_samples(load(decoder_proto(), shapes=STEP)).arrays["past_key_values.0.key"].any()


def test_a_cache_of_fixed_size_is_zeros_and_says_so() -> None:
    fixed = (FLOAT, [1, HEADS, 31, WIDTH])
    model = load(
        decoder_proto(
            input_ids=(INT64, [1, 1]), position_ids=(INT64, [1, 1]), attention_mask=(INT64, [1, 32]),
            past_key_values__0__key=fixed, past_key_values__0__value=fixed,
        )
    )  # fmt: skip
    assert draw_samples(model, get_evaluator()).source.endswith("are zeros")


def test_sizes_of_a_decoder_are_asked_for_by_symbol_and_proposed_as_one_step() -> None:
    model = load(decoder_proto())
    assert model.proposed["input_ids"] == (1, 1)
    assert model.proposed["attention_mask"] == (1, 128)
    assert model.proposed["past_key_values.0.value"] == (1, HEADS, 127, WIDTH)
    with pytest.raises(Unsized, match=r'shapes=\{"sequence_length": 1, "past_sequence_length": 127\}'):
        model.input_shape("input_ids")
    sized = model.sized({"sequence_length": 3, "past_sequence_length": 5})
    assert sized.input_shape("attention_mask") == (1, 8)
    assert sized.sizes().get("present.0.key") == (1, HEADS, 8, WIDTH)
    # The shape of an input names its symbols; the third follows from a sum.
    by_input = model.sized({"input_ids": (1, 3), "attention_mask": (1, 8)})
    assert by_input.input_shape("past_key_values.0.key") == (1, HEADS, 5, WIDTH)
    again = by_input.resized({"sequence_length": 1})
    assert again.input_shape("attention_mask") == (1, 6)
    assert again is by_input.resized({"sequence_length": 1})
    with pytest.raises(ModelError, match=r'"past_sequence_length \+ sequence_length" is 4.*Name sizes'):
        model.sized({"input_ids": (1, 3), "attention_mask": (1, 8), "past_sequence_length": 1})


def test_inputs_without_the_batch_are_whole_in_each_sample() -> None:
    """Positions of a cache, and the switch of two decoders in one file: each sample is one inference of three rows."""
    proto = decoder_proto(use_cache_branch=(BOOL, [1]), cache_position=(INT64, ["sequence_length"]))
    model = load(proto, shapes={"batch_size": 3, "sequence_length": 6, "past_sequence_length": 8})
    assert not model.dynamic_batch
    data = draw_samples(model, get_evaluator(), samples=5)
    data.check(model)
    assert data.source.endswith("of a run before")
    arrays = data.arrays
    assert arrays["input_ids"].shape == (5, 3, 6)
    np.testing.assert_array_equal(arrays["cache_position"], [np.arange(8, 14)] * 5)
    assert arrays["use_cache_branch"].all()
    mask = arrays["attention_mask"]
    counted = np.maximum(np.cumsum(mask, -1) - 1, 0)[..., 8:]
    np.testing.assert_array_equal(counted, arrays["position_ids"])
    assert len({*mask.sum(-1).ravel()}) > 1, "rows have padding of their own"
    for results in outputs(model, data):
        assert all(np.isfinite(r).all() for r in results)


def test_a_mask_with_a_row_for_each_token_hides_the_tokens_after_it() -> None:
    nodes = [
        node("Add", ["scores", "attention_mask"], ["sum"]), node("Softmax", ["sum"], ["y"], axis=-1),
        node("Identity", ["past_key_values.0.key"], ["k"]),
    ]  # fmt: skip
    kinds = {"scores": ["N", 2, "S", "T"], "attention_mask": ["N", 1, "S", "T"]}
    kinds["past_key_values.0.key"] = ["N", 2, "P", 4]
    ends = (
        [(n, FLOAT, s) for n, s in kinds.items()],
        [("y", FLOAT, kinds["scores"]), ("k", FLOAT, [None] * 4)],
    )
    model = graph(nodes, *ends, {}).sized({"S": 3, "T": 11, "P": 8})
    mask = CalibrationData.random(model, samples=4).arrays["attention_mask"]
    hidden = np.arange(11) > np.arange(3)[:, None] + 8
    np.testing.assert_array_equal(mask[0, 0], np.where(hidden, np.float32(-1e4), 0))
    assert (mask.max(-1) == 0).all(), "each token sees itself"


def test_prefill_may_have_no_tokens_before() -> None:
    model = load(decoder_proto(), shapes={"past_sequence_length": 0, "sequence_length": 12})
    data = draw_samples(model, get_evaluator(), samples=4)
    assert (data.source, data.arrays["past_key_values.0.key"].shape) == (
        "random noise, seed 0",
        (4, HEADS, 0, WIDTH),
    )
    mask = data.arrays["attention_mask"]
    assert mask[0].all()
    assert not mask[:, -1].all(), "padding is behind, since nothing is before"
    for results in outputs(model, data):
        assert all(np.isfinite(r).all() for r in results)
    with pytest.raises(ModelError, match="at least 0"):
        model.sized({"past_sequence_length": -1})
    with pytest.raises(ModelError, match="at least 1"):
        model.sized({"sequence_length": 0})


@pytest.mark.parametrize("total", ["total_sequence_length", "s7"])
def test_a_mask_with_a_symbol_of_its_own_is_as_long_as_both_parts(total) -> None:
    model = load(decoder_proto(total=total))
    proposed = model.proposed
    assert (proposed["attention_mask"], proposed["position_ids"]) == ((1, 128), (1, 1))
    proposed = model.sized({"past_sequence_length": 20, "sequence_length": 3}).proposed
    assert proposed["attention_mask"] == (1, 23)


def test_a_table_of_positions_bounds_the_length() -> None:
    """With 40 positions neither 128 nor 64 words can be read; with 300 the usual length can."""
    nodes = [
        node("Gather", ["words", "input_ids"], ["w"]), node("Shape", ["input_ids"], ["n"], start=1, end=2),
        node("Squeeze", ["n"], ["count"]), node("Range", ["zero", "count", "one"], ["at"]),
        node("Add", ["at", "two"], ["place"]), node("Gather", ["places", "place"], ["p"]),
        node("Add", ["w", "p"], ["y"]),
    ]  # fmt: skip
    for rows, length in ((42, 32), (25, 23), (POSITIONS, 128)):
        weights = {"words": np.ones((9, 4), "f4"), "places": np.ones((rows, 4), "f4")}
        numbers = {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2)}
        ends = [("input_ids", INT64, ["N", "T"])], [("y", FLOAT, ["N", "T", 4])]
        model = graph(nodes, *ends, {**weights, **numbers})
        assert model.proposed == {"input_ids": (1, length)}
        sized = model.sized({"T": length})
        data = CalibrationData.random(sized, samples=2)
        assert data.arrays["input_ids"].max() <= 8
        outputs(sized, data)


def test_a_length_that_a_reshape_writes_is_proposed() -> None:
    nodes = [node("Reshape", ["x", "to"], ["y"])]
    model = graph(
        nodes, [("x", FLOAT, ["N", "T", 6])], [("y", FLOAT, [None] * 4)], {"to": np.int64([1, 77, 2, 3])}
    )
    assert model.proposed == {"x": (1, 77, 6)}


def encoder(mask_nodes: list, kind: int, **weights) -> list:
    """Words and their types, of which a mask leaves some out."""
    nodes = [
        node("Unsqueeze", ["ids", "one"], ["ids3"]), node("Gather", ["table", "ids3"], ["rows4"]),
        node("ReduceMean", ["rows4"], ["rows"], axes=[1], keepdims=0),
        node("Gather", ["types", "kinds"], ["typed"]), node("Add", ["rows", "typed"], ["h"]),
        node("Transpose", ["h"], ["turned"], perm=[0, 2, 1]), node("MatMul", ["h", "turned"], ["scores"]),
        *mask_nodes, node("Softmax", ["masked"], ["p"], axis=-1), node("MatMul", ["p", "h"], ["y"]),
    ]  # fmt: skip
    inputs = [("ids", INT64, ["N", 16]), ("kinds", INT64, ["N", 16]), ("mask", kind, ["N", 16])]
    rng = np.random.default_rng(1)
    arrays = {
        "table": rng.standard_normal((30, 4)).astype("f4"), "types": rng.standard_normal((3, 4)).astype("f4"),
        "one": np.int64([1]), "low": np.float32(-np.inf), "unit": np.float32(1), "deep": np.float32(-1e9), **weights,
    }  # fmt: skip
    return [nodes, inputs, [("y", FLOAT, ["N", 16, 4])], arrays]


MASKS = {
    "kept where true": (
        BOOL, [node("Unsqueeze", ["mask", "one"], ["m"]), node("Where", ["m", "scores", "low"], ["masked"])], 1,
    ),
    "blocked where true": (
        BOOL, [node("Unsqueeze", ["mask", "one"], ["m"]), node("Where", ["m", "low", "scores"], ["masked"])], 0,
    ),
    "inverted": (
        BOOL, [node("Not", ["mask"], ["n"]), node("Unsqueeze", ["n", "one"], ["m"]),
               node("Where", ["m", "low", "scores"], ["masked"])], 1,
    ),
    "one minus": (
        INT64, [node("Cast", ["mask"], ["c"], to=FLOAT), node("Unsqueeze", ["c", "one"], ["m"]),
                node("Sub", ["unit", "m"], ["n"]), node("Mul", ["n", "deep"], ["b"]),
                node("Add", ["scores", "b"], ["masked"])], 1,
    ),
    "added": (FLOAT, [node("Unsqueeze", ["mask", "one"], ["m"]), node("Add", ["scores", "m"], ["masked"])], 0),
}  # fmt: skip


@pytest.mark.parametrize("case", MASKS)
def test_a_mask_has_padding_behind_the_words_in_the_form_that_the_graph_reads(case) -> None:
    kind, nodes, keeps = MASKS[case]
    model = graph(*encoder(nodes, kind))
    data = CalibrationData.random(model, samples=8)
    mask = data.arrays["mask"]
    counts = mask == keeps
    pads = (~counts).sum(1)
    assert pads[0] == 0 < pads.max() <= 4
    for row, pad in zip(counts, pads, strict=True):
        assert row[: 16 - pad].all()
    if case == "added":
        assert {-1e4, 0.0} == {float(n) for n in np.unique(mask)}
    assert (data.arrays["ids"].max(), data.arrays["kinds"].max()) == (29, 2)
    for (y,) in outputs(model, data):
        assert np.isfinite(y).all()


def test_what_no_graph_shows_the_name_says() -> None:
    nodes = [
        node("Identity", [n], [f"{n}_out"])
        for n in ("key_padding_mask", "attention_mask", "bool_masked_pos", "flags")
    ]
    ends = [(n.input[0], BOOL, ["N", 8]) for n in nodes], [(n.output[0], BOOL, ["N", 8]) for n in nodes]
    data = CalibrationData.random(graph(nodes, *ends, {}), samples=1)
    assert not data.arrays["key_padding_mask"].any(), "true where a word does not count"
    assert data.arrays["attention_mask"].all()
    assert 0 < data.arrays["bool_masked_pos"].sum() < 8
    assert 0 < data.arrays["flags"].sum() < 8


def test_rows_are_counted_through_sums_and_behind_a_choice() -> None:
    """Ids below zero count from the end: the sum of an id and the number of rows picks from none."""
    nodes = [
        node("Add", ["i", "two"], ["j"]), node("Gather", ["table", "j"], ["a"]),
        node("Less", ["k", "zero"], ["below"]), node("Add", ["k", "ten"], ["from_end"]),
        node("Where", ["below", "from_end", "k"], ["wrapped"]), node("Gather", ["table", "wrapped"], ["b"]),
        node("Cast", ["f"], ["f_int"], to=INT64), node("Gather", ["table", "f_int"], ["c"]),
        node("OneHot", ["h", "depth", "values"], ["d"]),
    ]  # fmt: skip
    kinds = {"i": INT64, "k": INT64, "f": FLOAT, "h": INT64}
    weights = {"table": np.ones((10, 3), "f4"), "two": np.int64(2), "zero": np.int64(0), "ten": np.int64(10),
               "depth": np.int64([4]), "values": np.float32([0, 1])}  # fmt: skip
    inputs = [(n, kind, ["N", 5]) for n, kind in kinds.items()]
    model = graph(nodes, inputs, [(n, FLOAT, ["N", 5, 4 if n == "d" else 3]) for n in "abcd"], weights)
    uses = model.input_uses
    assert [uses.count_rows(n) for n in kinds] == [8, 10, 10, 4]
    data = CalibrationData.random(model, samples=64)
    assert [data.arrays[n].max() for n in kinds] == [7, 9, 9, 3]
    outputs(model, data)
