"""Charts, steps, edges and files of a graph, of views and engines written by hand."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

import scenes
from rtlab.analyses.timing import compute_timing
from rtlab.backends.readers import inspector
from rtlab.core.data import RANDOM
from rtlab.core.engine import Layer, Tensor
from rtlab.web.page import charts, graph
from rtlab.web.page.charts import Bar
from rtlab.web.page.graph import engine_view


def view_of(*readings: tuple[float, float | None, int] | None, unit: str = "ms", **more: Any) -> Any:
    """A view of layers with value, spread and sharing of each; None has no number."""
    boxes: list[dict[str, Any]] = [{"id": "in", "kind": "input"}]
    boxes += [
        {"id": f"L{i}", "kind": "layer", "chips": [], "op": "Op", "title": f"name {i}", "slim": False}
        for i in range(len(readings))
    ]
    told = {
        f"L{i}": {"value": r[0], "spread": r[1], "shared": r[2], "note": f"note {i}"}
        for i, r in enumerate(readings)
        if r is not None
    }
    overlay = {"id": "time", "title": "CPU time", "unit": unit, "origin": "measured", "layers": told}
    graph = {"boxes": boxes, "repeats": [], "folded": False}
    return {"graph": graph, "overlays": [{**overlay, **more}]}


def test_the_same_layer_of_repeated_blocks_is_one_bar_of_their_sum() -> None:
    """Two blocks of two layers behind a layer of their own: 1 ms, 2 + 4 ms, 3 + 3 ms."""
    view = view_of(*((t, 0.1, 1) for t in (1.0, 2.0, 3.0, 4.0, 3.0)))
    view["graph"]["repeats"] = [{"title": "2 × net", "count": 2, "rows": [[2, 4], [3, 5]]}]
    assert [1.0, 2.0, 3.0, 4.0, 3.0] == charts.timing(view)["data"][0]["y"]
    view["graph"]["folded"] = True
    figure = charts.timing(view)
    (trace,) = figure["data"]
    assert ([1.0, 6.0, 6.0], ["L0", "L1", "L2"], [0, 1, 2]) == (trace["y"], trace["ids"], trace["x"])
    assert "sum of 2 layers, each 2 ms to 4 ms, in 2 × net" in trace["customdata"][1][0]
    assert "one bar, their sum" in figure["layout"]["title"]["text"]
    assert [6.0, 6.0, 1.0] == charts.timing(view, longest=True)["data"][0]["y"]


def test_a_number_that_blocks_have_together_stays_one_bar() -> None:
    """5 ms of the first layers of both blocks together are no 5 ms of each."""
    view = view_of((5.0, None, 2), (3.0, None, 1), (5.0, None, 2), (1.0, None, 1))
    for layer in ("L0", "L2"):
        view["overlays"][0]["layers"][layer]["note"] = "timed as a, together with 1 other layer"
    view["graph"] |= {"repeats": [{"title": "2 × net", "count": 2, "rows": [[1, 3], [2, 4]]}], "folded": True}
    assert [5.0, 4.0] == charts.timing(view)["data"][0]["y"]


def test_bars_count_steps_of_layers_alone_and_a_layer_without_a_number_keeps_its_step() -> None:
    view = view_of((0.25, None, 1), None, (0.5, 0.01, 2))
    assert [("L0", 0.25, None, 0, 1), ("L2", 0.5, 0.01, 2, 2)] == [
        (b.layer, b.value, b.spread, b.step, b.shared) for b in charts.bars(view, "time")
    ]
    assert () == charts.bars(view, "error")
    executed, longest = (charts.timing(view, longest=one) for one in (False, True))
    assert [0, 2] == executed["data"][0]["x"]
    assert [0, 1] == longest["data"][0]["x"]
    assert [-0.7, 2.7] == executed["layout"]["xaxis"]["range"]
    assert [-0.7, 1.7] == longest["layout"]["xaxis"]["range"]
    assert [1.0, 0.45] == executed["data"][0]["marker"]["opacity"]
    assert "pale" in executed["layout"]["title"]["text"]
    assert "pale" not in charts.timing(view_of((0.25, None, 1)))["layout"]["title"]["text"]


def test_a_time_that_layers_have_together_is_one_bar_of_the_first() -> None:
    """Of 8 ms, 5 that two layers have together and 3 of one, not 13."""
    view = view_of((5.0, None, 2), (3.0, None, 1), (5.0, None, 2))
    for layer in ("L0", "L2"):
        view["overlays"][0]["layers"][layer]["note"] = "timed as a, b, together with 1 other layer"
    assert [("L0", 5.0), ("L1", 3.0)] == [(b.layer, b.value) for b in charts.bars(view, "time")]
    assert 8.0 == sum(charts.timing(view)["data"][0]["y"])


@pytest.mark.slow(but="written-residual-int8")
@pytest.mark.parametrize("subject", [*scenes.SUBJECTS])
def test_the_bars_of_a_view_sum_to_the_inference_at_most_and_one_time_is_one_number(subject: str) -> None:
    """Of samples and engines with times of their layers, as executed and for nodes; the chart, the graph and the table.

    The profiler of a GPU adds to each layer, which no factor takes away: there the bound is the sum of its layers.
    """
    study = scenes.study(subject)
    for name in study:
        result = study[name]
        view = engine_view(result.facts, study.model)
        timing = result.timing
        for overlay in (o for o in view["overlays"] if o["unit"] == "ms"):
            estimated = result.estimate.estimated if overlay["id"] == "estimate" else None
            whole = timing.summed * timing.scale if estimated is None else estimated
            if estimated is None and timing.processor == "CPU":
                assert whole <= 1.1 * timing.shown
            bars = charts.bars(view, overlay["id"])
            assert sum(b.value for b in bars) <= whole * (1 + 1e-9)
            # As the front end counts: one number of several boxes once.
            nodes = {
                (v["shared"], v["value"], v["note"] or i) if v["shared"] > 1 else i: v["value"]
                for i, v in overlay["nodes"].items()
            }
            assert sum(nodes.values()) <= whole * (1 + 1e-9)
            if overlay["id"] == "time":
                rows = result.table().time_ms.dropna().to_dict()
                assert rows == pytest.approx({i: v["value"] for i, v in overlay["layers"].items()})
                assert rows == pytest.approx({i: t.median for i, t in result.layer_times.items()})


@pytest.mark.slow
@pytest.mark.parametrize("subject", [*scenes.SAMPLES])
def test_bars_of_an_engine_in_whose_place_another_ran_sum_to_that_inference(subject: str) -> None:
    """The layers of TensorRT-RTX with times of ONNX Runtime's: one layer of either may be several of the other."""
    study, cpu = scenes.study(subject), scenes.on_cpu(subject)
    for name in ("fp32", "int8"):
        ran = cpu[name].facts
        facts = dataclasses.replace(study[name].facts, measured=ran.engine, profile=ran.profile)
        timing = compute_timing(facts)
        view = engine_view(facts, study.model)
        bars = charts.bars(view, "time")
        assert 0 < sum(b.value for b in bars) <= timing.total * (1 + 1e-9)
        drawn = charts.timing({**view, "overlays": [o for o in view["overlays"] if o["id"] == "time"]})
        assert len(drawn["data"][0]["y"]) == len(bars)
        layers = next(o["layers"] for o in view["overlays"] if o["id"] == "time")
        assert len(layers) > len(bars) or all(v["shared"] == 1 for v in layers.values())


@pytest.mark.parametrize(
    ("times", "unit", "y", "shown"),
    [
        ((0.999, 0.25), "µs", [999.0, 250.0], ["999", ""]),
        ((1.0, 0.25), "ms", [1.0, 0.25], ["1", ""]),
        ((0.25, 12.346), "ms", [0.25, 12.346], ["", "12.3"]),
        ((0.0, 0.0), "µs", [0.0, 0.0], ["0", ""]),
    ],
)
def test_times_below_a_millisecond_are_microseconds_and_the_slowest_bears_its_number(
    times, unit, y, shown
) -> None:
    figure = charts.timing(view_of(*((t, None, 1) for t in times)))
    (trace,) = figure["data"]
    assert y == pytest.approx(trace["y"])
    assert shown == trace["text"]
    assert f" {unit}<extra>" in trace["hovertemplate"]
    assert figure["layout"]["title"]["text"].endswith(f", {unit}")
    factor = 1000 if unit == "µs" else 1
    assert [0, pytest.approx((1.15 * max(times) or 1.0) * factor)] == figure["layout"]["yaxis"]["range"]
    assert "±" not in trace["hovertemplate"], "one number has no spread"
    assert [f"layer {i + 1}<br>" in told for i, (told, _) in enumerate(trace["customdata"])] == [True, True]


def test_one_spread_of_several_is_told_and_what_has_none_has_no_whisker() -> None:
    (trace,) = charts.timing(view_of((0.5, 0.0125, 1), (0.25, None, 1)))["data"]
    assert "±" in trace["hovertemplate"]
    assert [12.5, 0.0] == pytest.approx(trace["error_y"]["array"])
    assert [12.5, 0.0] == pytest.approx(trace["error_y"]["arrayminus"])
    assert ["12", "0"] == [spread for _, spread in trace["customdata"]]
    (trace,) = charts.timing(view_of((0.5, None, 1), (0.25, 0.0, 1)))["data"]
    assert "error_y" not in trace, "whiskers of no length are elements to draw all the same"


@pytest.mark.parametrize(("overlay", "why"), [({"unit": "%"}, "unit"), ({"layers": {}}, "layers"), ({}, "")])
def test_times_are_those_of_the_first_numbers_in_milliseconds_that_layers_have(overlay, why) -> None:
    view = view_of((0.5, None, 1))
    view["overlays"].insert(0, {**view["overlays"][0], "id": "other", "title": "Other", **overlay})
    title = charts.timing(view)["layout"]["title"]["text"]
    assert ("CPU time" if why else "Other") in title
    assert [] == charts.timing({**view, "overlays": view["overlays"][:1] if why else []})["data"]


@pytest.mark.parametrize(
    ("label", "most", "text"),
    [
        ("Conv · Relu", 13, "L5 Conv·Relu"), ("a" * 10, 13, "L5 " + "a" * 10), ("a" * 11, 13, "L5 " + "a" * 9 + "…"),
        ("abcd", 7, "L5 abcd"), ("abcde", 7, "L5 abc…"),
    ],
)  # fmt: skip
def test_a_label_is_cut_to_its_room(label: str, most: int, text: str) -> None:
    assert text == charts.shorten_label(Bar("L", label, 1.0, None, "", 4), most)


def test_names_keep_the_longest_bars_where_there_is_no_room_for_all() -> None:
    """41 bars have names at every second place at most: the longest first, and none beside it."""
    values = [float(i == 7) + float(i == 8) / 2 for i in range(41)]
    names = charts._place_names([(i, v, str(i)) for i, v in enumerate(values)])
    assert 7 in names
    assert not {6, 8} & set(names)
    assert {0, 2, 4, 9, 11, 39} <= set(names)
    assert list(names) == sorted(names)
    assert 40 == len(charts._place_names([(i, 1.0, "") for i in range(40)]))
    # 81 places share the width of 40 names: each third one has room, however few bars there are.
    assert [0, 3, 80] == [*charts._place_names([(i, 9.0 - i, "") for i in (0, 1, 2, 3, 5)] + [(80, 1.0, "")])]


def errors(values: list[float], own: list[float] = [], title: str = "SQNR") -> Any:  # noqa: B006 - is only read
    view = view_of(*((v, None, 1) for v in values), unit="dB", id="error", title=title)
    made = view_of(*((v, None, 1) for v in own), unit="dB", id="own_error", title="Own")
    return {**view, "overlays": view["overlays"] * bool(values) + made["overlays"] * bool(own)}


def test_the_chart_of_errors_names_the_worst_step_of_both_kinds() -> None:
    figure = charts.draw_errors(errors([30.0, 12.34, 20.0], [40.0, 35.0, 31.26]))
    arrived, made = figure["data"]
    assert ([1, 2, 3], [30.0, 12.34, 20.0], ["L0", "L1", "L2"]) == (
        arrived["x"],
        arrived["y"],
        arrived["ids"],
    )
    assert ([1, 2, 3], [40.0, 35.0, 31.26]) == (made["x"], made["y"])
    title = figure["layout"]["title"]["text"]
    assert "12.3 dB in layer 2" in title
    assert "31.3 dB in layer 3" in title
    headline = charts.draw_errors(errors([30.0]), SimpleNamespace(output=1, outcome="the outcome"))["layout"][
        "title"
    ]["text"]
    # What became of the outputs stands before any inner value.
    assert headline.index("the outcome") < headline.index("worst inside 30 dB")


def test_of_noise_no_step_is_the_worst() -> None:
    figure = charts.draw_errors(
        errors([30.0, 20.0], [30.0, 10.0], f"SQNR, {RANDOM}"),
        SimpleNamespace(output=1, outcome="the outcome"),
    )
    title = figure["layout"]["title"]["text"]
    assert RANDOM in title
    assert not any(word in title for word in ("worst", "most", "outcome"))
    assert [True, True] == [RANDOM in t["hovertemplate"] for t in figure["data"]]
    plain = charts.draw_errors(errors([30.0], [10.0]))
    assert [False, False] == [RANDOM in t["hovertemplate"] for t in plain["data"]]


@pytest.mark.parametrize(("count", "tick"), [(1, 1), (12, 1), (13, 5), (80, 5), (81, None)])
def test_steps_have_their_numbers_as_long_as_there_is_room(count: int, tick: int | None) -> None:
    assert tick == charts.draw_errors(errors([10.0] * count))["layout"]["xaxis"].get("dtick")


def test_without_errors_the_chart_says_whether_any_were_compared() -> None:
    texts = [
        charts.draw_errors(errors([]), known)["layout"]["annotations"][0]["text"]
        for known in (None, SimpleNamespace(headline=""))
    ]
    assert ["not compared" in t for t in texts] == [True, False]
    assert "equals" in texts[1]


def engine_of(*steps: tuple[str, str], inputs: str = "x", outputs: str = "y") -> Any:
    """An engine of layers that read and write tensors of one letter each."""
    made = tuple(
        Layer(id=f"{i}:l", index=i, name=f"l{i}", kind="k", inputs=_tensors(reads), outputs=_tensors(writes))
        for i, (reads, writes) in enumerate(steps)
    )
    return SimpleNamespace(layers=made, inputs=_tensors(inputs), outputs=_tensors(outputs))


def _tensors(names: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(n, "fp32", (1, 2)) for n in names)


@pytest.mark.parametrize(
    ("steps", "inputs", "outputs", "joined"),
    [
        # Two inputs come before the layers, outputs behind them.
        ((("xz", "a"), ("a", "y")), "xz", "y", {(0, 2, "x"), (1, 2, "z"), (2, 3, "a"), (3, 4, "y")}),
        # An input may be an output, too.
        ((("x", "y"),), "x", "yx", {(0, 1, "x"), (1, 2, "y"), (0, 3, "x")}),
        # A tensor that is read twice by one layer is one edge; of two inputs of one name the first gives it.
        ((("xx", "y"),), "xx", "y", {(0, 2, "x"), (2, 3, "y")}),
        # An output whose name nobody writes is of the last step.
        ((("x", "a"), ("a", "b"), ("b", "c")), "x", "zy",
         {(0, 1, "x"), (1, 2, "a"), (2, 3, "b"), (3, 4, "z"), (3, 5, "y")}),
        # Nothing is known of tensors.
        ((("", ""),), "x", "y", set()),
    ],
)  # fmt: skip
def test_edges_lead_from_inputs_through_layers_to_outputs(steps, inputs, outputs, joined) -> None:
    result: Any = SimpleNamespace(engine=engine_of(*steps, inputs=inputs, outputs=outputs))
    found = graph.engine_edges(result, SimpleNamespace(values={}), ())
    assert sorted(joined) == sorted((e["source"], e["target"], e["value"]) for e in found)
    assert {"1×2 fp32"} >= {e["label"] for e in found}


def test_a_tensor_that_no_layer_writes_is_named_once_by_each_reader() -> None:
    engine = engine_of(("xqq", "a"), ("ap", "y"), ("ya", "b"))
    assert {"0:l": ["q"], "1:l": ["p"]} == graph.find_unwritten_tensors(engine)


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (Tensor("t"), {"Name": "t"}),
        (Tensor("t", "fp16", (1, 2), "Row", (2, 1)),
         {"Name": "t", "Dimensions": [1, 2], "Strides": [2, 1], "Datatype": "Half", "Format": "Row"}),
        (Tensor("t", "fp32", ()), {"Name": "t", "Dimensions": [], "Datatype": "Float"}),
        (Tensor("t", "odd", (3,), strides=()), {"Name": "t", "Dimensions": [3], "Strides": [], "Datatype": "odd"}),
    ],
)  # fmt: skip
def test_a_tensor_is_listed_with_what_is_known_of_it(tensor: Tensor, told: dict[str, Any]) -> None:
    assert told == inspector._describe_tensor(tensor)
