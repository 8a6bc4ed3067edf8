"""Small functions of the core by hand: sizes, shares of a budget, paces, parameters, fields of bytes, places."""

from __future__ import annotations

import time
import types

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from nets import graph
from rtlab.core import (
    model,
    partial_shapes,
    progress,
    random_inputs,
    slices,
    stage,
    validation,
)
from rtlab.core.budget import Budget
from rtlab.core.node import find_constant_values
from rtlab.core.ptq_transform import PtqTransform
from rtlab.core.scale import Scale
from rtlab.errors import CalibrationError, Cancelled, ModelError, Unsized, VariantError

node = helper.make_node


@pytest.mark.parametrize(
    ("text", "kind", "pattern", "setting", "written"),
    [
        ("equalize", "equalize", "*", 0.0, "equalize"), ("correct a", "correct", "a", 0.0, "correct a"),
        ("smooth", "smooth", "*", 0.5, "smooth"), ("smooth(0.5)", "smooth", "*", 0.5, "smooth"),
        ("smooth(0) /a/*", "smooth", "/a/*", 0.0, "smooth(0) /a/*"), ("smooth(1)", "smooth", "*", 1.0, "smooth(1)"),
        (" reconstruct ( damping = 0.02 )  op:Conv ", "reconstruct", "op:Conv", 0.02, "reconstruct(0.02) op:Conv"),
        ("reconstruct", "reconstruct", "*", 0.01, "reconstruct"),
        ("reconstruct(1e-6)", "reconstruct", "*", 1e-6, "reconstruct(1e-06)"),
        ("reconstruct(1)", "reconstruct", "*", 1.0, "reconstruct(1)"),
    ],
)  # fmt: skip
def test_a_treatment_is_read_with_its_parameter_and_written_back(
    text, kind, pattern, setting, written
) -> None:
    treatment = PtqTransform.of(text)
    assert (treatment.kind, treatment.pattern, treatment.setting) == (kind, pattern, setting)
    assert str(treatment) == written
    assert PtqTransform.of(treatment) is treatment
    assert PtqTransform.of(written) == treatment


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("smooth(1.01)", '"1.01" is.*0 to 1'), ("smooth(-0.01)", '"-0.01" is.*0 to 1'), ("smooth(x)", '"x" is.*0 to 1'),
        ("reconstruct(0)", "1e-06 to 1"), ("reconstruct(1.5)", "1e-06 to 1"), ("equalize(0)", 'Write "equalize"'),
        ("polish", "one of"), ("", "one of"),
    ],
)  # fmt: skip
def test_a_treatment_out_of_bounds_is_refused_with_them(text, said) -> None:
    with pytest.raises(VariantError, match=said):
        PtqTransform.of(text)


@pytest.mark.parametrize(
    ("candidate", "options", "number"),
    [
        (1, {}, 1), (0, {}, None), (True, {}, None), (2.0, {}, None), ("3", {}, None), (np.int64(3), {}, 3),
        (2**31 - 1, {}, 2**31 - 1), (2**31, {}, None), (0, {"least": 0}, 0), (-1, {"least": 0}, None),
        (5, {"most": 5}, 5), (6, {"most": 5}, None),
    ],
)  # fmt: skip
def test_a_whole_number_lies_between_its_bounds_and_both_are_allowed(candidate, options, number) -> None:
    if number is None:
        example = max(options.get("least", 1), min(8, options.get("most", 8)))
        with pytest.raises(VariantError, match=rf"Choose {example}\."):
            validation.validate_integer(candidate, "Cannot do", "batch", **options)
    else:
        assert validation.validate_integer(candidate, "Cannot do", "batch", **options) == number


@pytest.mark.parametrize(
    ("state", "done", "target", "available", "unit", "basis", "incomplete", "more"),
    [
        ("done", 30, 30, 0, "runs", "30 runs", False, False), ("done", 1, 1, 0, "runs", "1 run", False, False),
        ("partial", 3, 30, 0, "runs", "3 of 30 runs", True, True),
        ("done", 1, 1, 2, "samples", "1 of 2 samples", False, True),
        ("done", 64, 64, 256, "samples", "64 of 256 samples", False, True),
        ("done", 64, 64, 64, "samples", "64 samples", False, False), ("missing", 0, 30, 0, "runs", "", True, True),
        ("done", 3, 0, 0, "runs", "", False, False), ("waiting", 0, 0, 9, "runs", "", False, False),
        ("none", 0, 0, 0, "", "", False, False),
        ("done", 0, 0, 0, "", "", False, False),
    ],
)  # fmt: skip
def test_a_stage_says_on_how_much_it_rests(
    state, done, target, available, unit, basis, incomplete, more
) -> None:
    fields = {"done": done, "target_count": target, "unit": unit, "available_count": available}
    status = stage.StageStatus(stage.Stage.TIMED, state, **{k: v for k, v in fields.items() if v})
    assert (status.basis, status.is_incomplete, status.more) == (basis, incomplete, more)
    assert repr(status) == f"<timed: {state}{' ' + basis if basis else ''}>"


def test_a_share_ends_with_the_deadline_of_a_command_or_when_somebody_stops(monkeypatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    budget, deadline = Budget(8.0), progress.Deadline(3.0)
    with budget.share(deadline, 0.5) as part:
        assert (budget.remaining, part.remaining) == (3, 1.5)
        deadline.cancel()
        assert (part.is_timed_out, part.stopped(), part.is_cancelled()) == (False, True, True)


def test_a_deadline_ends_stages_at_once_and_all_work_a_second_and_a_half_later(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline = progress.Deadline(2.0)
    for at, remaining, over, stopped in (
        (101.5, 0.5, False, False), (102, 0, True, False), (103.5, 0, True, False), (103.6, 0, True, True),
    ):  # fmt: skip
        now[0] = at
        assert (deadline.remaining, deadline.is_over, deadline.stopped()) == (remaining, over, stopped)
    now[0] = 100.0
    progress.check(deadline, "it")
    deadline.cancel()
    with pytest.raises(Cancelled):
        progress.check(deadline, "it")


@pytest.mark.parametrize(
    ("total", "steps", "seconds", "pace"),
    [
        (10, 4, 2.0, " · 2/s, 3 s left"), (10, 1, 1.0, " · 1/s, 9 s left"), (10, 4, 0.9, ""), (10, 0, 2.0, ""),
        (None, 4, 2.0, ""), (10, 12, 2.0, " · 6/s, 0 s left"),
    ],
)  # fmt: skip
def test_a_pace_is_steps_by_second_once_a_second_has_passed(monkeypatch, total, steps, seconds, pace) -> None:
    now, shown = [2.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    reporter = progress.Reporting(lambda *state: shown.append(state))
    now[0] += 5
    reporter.phase("Timing", total)
    assert shown == [("Timing", 0, total, 5.0)]
    now[0] += 0.09
    reporter.advance(0)
    assert len(shown) == 1
    now[0] += seconds - 0.09
    reporter.advance(steps)
    assert shown[1:] == [("Timing", steps, total, pytest.approx(5.0 + seconds))]
    assert reporter.pace == pace


def test_a_terminal_shows_steps_and_seconds_and_clears_the_line(monkeypatch) -> None:
    now, written = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = types.SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    line = progress.Terminal(stream)
    now[0] += 2
    line.phase("Timing", 4)
    now[0] += 2
    line.advance()
    line.phase("Building")
    line.close()
    assert [w.removeprefix("\r\x1b[K") for w in written] == [
        "Timing 0/4 · 2.0 s", "Timing 1/4 · 4.0 s · 0.5/s, 6 s left", "Building · 4.0 s", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dims", "named", "sizes"),
    [
        (("N", 3, None, None), {}, (1, 3, 224, 224)), ((None, None, None, 3), {}, (1, 224, 224, 3)),
        ((None, 1, None, 3), {}, (1, 1, 224, 3)), ((None, None, None, 5), {}, (1, 3, 224, 5)),
        ((2, None, 8), {}, (2, 1, 8)), ((1, None, 8), {}, (1, 128, 8)), ((None, None, None), {}, (1, 128, 128)),
        (("a", "a"), {}, (1, 1)), (("a", "b"), {"b": 5}, (1, 5)), (("?", "?"), {}, (1, 128)),
        ((None, "batch_size", 8), {}, (1, 1, 8)), ((None, "N"), {}, (1, 1)), ((None, "bn"), {}, (1, 128)), ((), {}, ()),
        ((None, None), {"x": (4, 9)}, (4, 9)), ((6,), {}, (6,)),
    ],
)  # fmt: skip
def test_sizes_to_try_follow_from_where_a_dimension_stands(dims, named, sizes) -> None:
    suggested = partial_shapes.suggest_shapes({"x": dims}, named)
    assert suggested == {"x": sizes}


def test_a_symbol_has_one_size_in_all_inputs() -> None:
    declared = {"x": (None, "T"), "y": ("N", "T", "K"), "z": None, "w": ("K", 2)}
    suggest = partial_shapes.suggest_shapes
    assert suggest(declared, {}) == {"x": (1, 128), "y": (1, 128, 128), "w": (128, 2)}
    named = {"x": (4, 9), "K": 6}
    assert suggest(declared, named) == {"x": (4, 9), "y": (1, 9, 6), "w": (6, 2)}
    partial = partial_shapes.resolve_partial_shapes
    # "K" stands behind a batch, so that it is a length where it comes first, too.
    assert partial(declared, {}, None, {}) == {
        "x": (1, None), "y": (1, None, None), "z": None, "w": (None, 2)
    }  # fmt: skip
    assert partial(declared, named, 5, {"z": (8,), "x": (2, 3)}) == {
        "x": (5, 3), "y": (5, 3, 6), "z": (8,), "w": (6, 2)
    }  # fmt: skip
    assert partial_shapes.with_batch(declared, {"y": (1, 2, 3), "T": 4}, 6) == {
        "y": (6, 2, 3),
        "T": 4,
        "K": 6,
    }
    assert partial_shapes.with_batch({"a": (None, 2), "b": (3, 2), "c": (), "d": (None, None)}, {}, 6) == {
        "a": (6, 2)
    }
    assert partial_shapes.parse_sizes({"s": [4], "x": [4], "y": [1, 2], "t": 5}, {"x", "y"}) == {
        "s": 4, "x": (4,), "y": (1, 2), "t": 5
    }  # fmt: skip


def test_an_open_dimension_behind_the_first_needs_a_size() -> None:
    dims = ("N", "C", None, 3)
    axes = partial_shapes.list_unsized_axes
    assert axes("x", dims, {}) == [1, 2]
    assert axes("x", dims, {"C": 4}) == [2]
    assert axes("x", dims, {"x": (1, 2, 3, 3)}) == []
    resolve = partial_shapes.resolve_shape
    assert resolve("x", dims, {"x": (2, 4, 5, 3)}, dict) == (2, 4, 5, 3)
    assert resolve("x", ("N", "C", 3), {"N": 6, "C": 4}, dict) == (6, 4, 3)
    assert resolve("x", (None, 3), {}, dict) == (1, 3)
    with pytest.raises(Unsized, match=r'dimensions 1 and 2 of .* are dynamic.*"x": \(1, 4, 5, 3\), "C": 4'):
        resolve("x", dims, {}, lambda: {"x": (1, 4, 5, 3), "C": 4})
    with pytest.raises(Unsized, match=r"dimension 2 of .* is dynamic"):
        resolve("x", dims, {"C": 4}, dict)


@pytest.mark.parametrize(
    ("named", "fits"),
    [
        ({"x": (1, 3, 8)}, True), ({"x": (1, 4, 8)}, False), ({"x": (1, 3)}, False), ({"y": (1, 3, 8)}, False),
        ({"N": 1}, True), ({"N": 0}, False), ({"M": 1}, False), ({"x": (0, 3, 8)}, False), ({"x": 3}, False),
    ],
)  # fmt: skip
def test_named_sizes_are_those_of_inputs_and_symbols(named, fits) -> None:
    try:
        partial_shapes.check("m", {"x": ("N", 3, None)}, named)
    except ModelError:
        assert not fits
    else:
        assert fits


def test_constants_are_found_through_identities_but_not_behind_inputs_or_foreign_nodes() -> None:
    nodes = [
        node("Constant", [], ["f"], value_float=1.5), node("Constant", [], ["fs"], value_floats=[1.0, 2.0]),
        node("Constant", [], ["i"], value_int=3), node("Constant", [], ["is"], value_ints=[4, 5]),
        node("Constant", [], ["t"], value=numpy_helper.from_array(np.arange(3.0))),
        node("Constant", [], ["alien"], value_int=3, domain="of.nowhere"),
        node("Identity", ["w"], ["same"]), node("Identity", ["same"], ["again"]), node("Identity", ["x"], ["open"]),
        node("Add", ["again", "x"], ["y"]),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    inner = helper.make_graph(
        nodes, "g", [value("x", 1, [2]), value("v", 1, [2])], [value("y", 1, [2])],
        [numpy_helper.from_array(np.float32([7, 8]), "w"), numpy_helper.from_array(np.float32([7, 8]), "v")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.nowhere", 1)]
    loaded = ir.from_proto(helper.make_model(inner, opset_imports=imports, ir_version=9))
    table = find_constant_values(loaded.graph, {"x", "v"})
    assert {n: t.numpy().tolist() for n, t in table.items()} == {
        "w": [7, 8], "f": 1.5, "fs": [1, 2], "i": 3, "is": [4, 5], "t": [0, 1, 2], "same": [7, 8], "again": [7, 8],
    }  # fmt: skip
    assert [table[n].numpy().dtype for n in ("f", "fs", "i", "is")] == ["f4", "f4", "i8", "i8"]


@pytest.mark.parametrize(
    ("array", "roles", "text"),
    [
        (np.float32([1, 2]), {0}, "FLOAT [2]"), (np.float32([1, 1]), {1}, "FLOAT [2]"),
        (np.float32([1, 1]), {2}, "FLOAT [2] 1"), (np.float32([1, 2]), set(), "FLOAT [2]"),
        (np.float32([[1, 1], [1, 2]]), set(), "FLOAT [2,2]"), (np.float32(1.234567), set(), "FLOAT [] 1.2346"),
        (np.float16([0.1, 0.1]), set(), "FLOAT16 [2] 0.099976"), (np.float32([]), set(), "FLOAT [0]"),
    ],
)  # fmt: skip
def test_of_a_constant_counts_whether_all_of_it_is_one_number(array, roles, text) -> None:
    assert model._describe_constant(ir.Tensor(np.asarray(array)), roles) == text


@pytest.mark.parametrize("array", [np.int64([1, 2]), np.array([True, False]), np.uint8([3])])
def test_every_integer_counts(array) -> None:
    change = array.copy()
    change[-1] ^= 1
    texts = [model._describe_constant(ir.Tensor(a), set()) for a in (array, array.copy(), change)]
    assert texts[0] == texts[1] != texts[2]


def test_a_part_of_an_output_is_named_by_its_indices() -> None:
    name = lambda axis, *indices: slices.Slice("y", axis, indices, 1.0).where  # noqa: E731 - a table
    assert [name(0), name(1, 4), name(1, 4, 5, 6), name(2, 3), name(2, 3, 4)] == [
        "y", "channel 4 of y", "channels 4 to 6 of y", "index 3 of axis 2 of y", "indices 3 to 4 of axis 2 of y",
    ]  # fmt: skip
    assert [name(1, 1, 3), name(1, 1, 3, 5), name(1, 1, 3, 5, 6)] == [
        "channels 1, 3 of y", "channels 1, 3, 5 of y", "channels 1, 3, 5 and 1 more of y",
    ]  # fmt: skip
    assert slices.Slice("y", 1, (2,), 0.0, zero=True).fault == "channel 2 of y is all 0"
    assert slices.Slice("y", 1, (2, 3), 0.0, zero=True).fault == "channels 2 to 3 of y are all 0"
    assert slices.Slice("y", 1, (2,), 0.0).fault == ""


@pytest.mark.parametrize(
    ("energy", "kinds"),
    [
        ([1, 512, 2], [[0, 1, 2]]), ([1, 513, 2], [[1], [0, 2]]), ([1, 256], [[0, 1]]), ([1, 256.1], [[1], [0]]),
        ([0, 1], [[1]]), ([0, 0], []), ([], []), ([1e-13, 1e1, 1e-14], [[1]]), ([1.1e-14, 1.0], [[1], [0]]),
    ],
)  # fmt: skip
def test_kinds_part_above_a_ratio_of_256_and_residue_is_no_kind(energy, kinds) -> None:
    assert [part.tolist() for part in slices.split_kinds(np.array(energy, np.float64))] == kinds


def test_a_scale_is_never_zero_and_in_float32() -> None:
    assert Scale(1.27).scale == float(np.float32(1.27) / np.float32(127))
    assert Scale(448.0, largest=448.0).scale == 1.0
    assert Scale(0.0).scale == float(np.finfo(np.float32).tiny)


@pytest.mark.parametrize("total", [1, 4])
def test_noise_is_what_the_generator_draws_input_after_input(total) -> None:
    ends = [("x", 1, ("N", 3)), ("i", 7, ("N", 2)), ("y", 11, ("N", 300_000))]
    model = graph([node("Relu", ["x"], ["z"])], ends, [("z", 1, ("N", 3))], {})
    arrays = random_inputs.make_samples(model, total, 7)
    rng = np.random.default_rng(7)
    np.testing.assert_array_equal(arrays["x"], rng.standard_normal((total, 3)).astype("f4"))
    np.testing.assert_array_equal(arrays["i"], rng.integers(0, 2, (total, 2)))
    np.testing.assert_array_equal(arrays["y"], rng.standard_normal((total, 300_000)))


@pytest.mark.parametrize(
    ("shape", "asked", "counts"),
    [((4, 3), 9, (12, 3)), ((4, 3), 8, (8, 3)), ((4, 3), 1, (4, 3)), ((3,), 2, (3,)), ((1, 5), 2, (2, 5))],
)  # fmt: skip
def test_random_samples_come_in_whole_batches(shape, asked, counts) -> None:
    model = graph([node("Relu", ["x"], ["y"])], [("x", 1, shape)], [("y", 1, shape)], {})
    assert random_inputs.make_samples(model, asked, 0)["x"].shape == counts


def test_samples_of_more_than_four_gibibytes_are_refused_with_their_size() -> None:
    """2^31 numbers of FP32 are 8 GiB."""
    shapes = {"x": (1, 1 << 31), "y": (1, 1)}
    values = dict.fromkeys(shapes, types.SimpleNamespace(dtype="fp32"))
    model = types.SimpleNamespace(name="m", inputs=tuple(shapes), input_shape=shapes.get, values=values)
    with pytest.raises(CalibrationError, match=r'8 GiB, .*"x".* at most 4 GiB'):
        random_inputs.make_samples(model, 1, 0)


def test_of_sizes_to_try_the_first_that_fits_is_taken_and_a_late_one_is_not_tried(monkeypatch) -> None:
    now, tried = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for seconds, misfits, best, asked in (
        (0, [5, 4, 4, 0, 3], (32, 320), 4), (0, [0, 1], (224, 224), 1), (1, [5, 4, 3, 2], (320, 320), 2),
        (0, [2] * 10, (224, 224), 10),
    ):  # fmt: skip

        def count(_model, _scopes, shapes, seconds=seconds, misfits=misfits):
            now[0] += seconds
            tried.append(shapes)
            return types.SimpleNamespace(misfits=misfits[len(tried) - 1])

        monkeypatch.setattr(partial_shapes, "Sizes", count)
        tried.clear()
        now[0] = 0.0
        assert partial_shapes.propose_shapes(None, (), {"x": (None, 3, None, None)}, {}).shapes == {
            "x": (1, 3, *best)
        }
        assert len(tried) == asked


@pytest.mark.parametrize(
    ("dims", "axis", "tried"),
    [
        ((None, None), 1, [128, 512, 16000, 1024, 64, 256, 32, 4096]),
        ((None, 3, None, 8), 2, [224, 320, 48, 32, 640, 256, 512, 64, 28]),
        ((None, 3, 8, None), 3, [224, 320, 640, 256, 512, 64, 32, 28]),
    ],
)
def test_usual_lengths_and_pictures_are_tried_in_order(monkeypatch, dims, axis, tried) -> None:
    sizes: dict[int, None] = {}

    def count(_model, _scopes, shapes):
        sizes[shapes["x"][axis]] = None
        return types.SimpleNamespace(misfits=1)

    monkeypatch.setattr(partial_shapes, "Sizes", count)
    partial_shapes.propose_shapes(None, (), {"x": dims}, {})
    assert [*sizes] == tried
