"""Figures of sweeps: the Pareto front against brute force, and what each says about its numbers."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab.errors import VariantError
from rtlab.study.sweep_rows import SweepRow, add_deltas
from rtlab.testing import tiny_model
from rtlab.web.page import sweep_figures
from rtlab.web.page.sweep_figures import draw_parallel, draw_pareto, find_pareto_front


def make_row(name: str, **numbers: Any) -> SweepRow:
    fields: dict[str, Any] = {"model": "net", "study": "s", "processor": "CPU", "host": "a", **numbers}
    return SweepRow(
        name, name, "built", fields.pop("precision", "int8"), "mse", "cpu", "onnxruntime", **fields
    )


def list_traces(figure: Any, mode: str) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.mode == mode}


@pytest.mark.parametrize("seed", range(40))
def test_a_front_is_what_brute_force_makes_it(seed: int) -> None:
    """With few different numbers there are equal points and equal times; both infinities are numbers."""
    draw = random.Random(seed)  # noqa: S311 - numbers of a test
    some = [*range(draw.choice((3, 9, 1000))), math.inf]
    points = [(float(draw.choice(some[:-1])), float(draw.choice(some))) for _ in range(draw.randrange(25))]

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] >= other[1]

    expected = {i for i, point in enumerate(points) if not any(beats(other, point) for other in points)}
    front = find_pareto_front(points)
    assert expected == {*front}
    assert len(expected) == len(front)
    assert [points[i] for i in front] == sorted(points[i] for i in front)


def test_each_model_has_a_front_and_times_have_their_unit() -> None:
    rows = [
        make_row("a", time_ms=1.0, output_sqnr=20.0),
        make_row("b", time_ms=2.0, output_sqnr=40.0),
        make_row("c", time_ms=3.0, output_sqnr=30.0),
        make_row("d", time_ms=0.5, output_sqnr=10.0, model="other"),
        make_row("e", output_sqnr=90.0),
        make_row("f", time_ms=0.1),
        make_row("g", time_ms=0.1, output_sqnr=math.nan),
    ]
    figure = draw_pareto(rows)
    lines, dots = list_traces(figure, "lines"), list_traces(figure, "markers")
    assert ((1.0, 2.0), (20.0, 40.0)) == (lines["net, front"].x, lines["net, front"].y)
    assert "hv" == lines["net, front"].line.shape
    assert (0.5,) == lines["other, front"].x
    assert (1.0, 2.0, 3.0) == dots["net"].x
    assert dots["net"].marker.color != dots["other"].marker.color
    assert dots["net"].marker.symbol != dots["other"].marker.symbol
    assert "● Time, ms, measured on CPU" == figure.layout.xaxis.title.text
    assert "● Worst output SQNR, dB, measured; more is better" == figure.layout.yaxis.title.text
    assert figure.layout.title.text.endswith("4 of 7 variants")
    small = draw_pareto([dataclasses.replace(rows[0], time_ms=0.25)])
    assert (250.0,) == small.data[1].x
    assert "● Time, µs, measured on CPU" == small.layout.xaxis.title.text
    assert (
        "net · a<br>250 µs measured on CPU, host a, load —<br>Worst output SQNR 20 dB, measured"
        == (small.data[1].customdata[0])
    )


def test_what_equals_fp32_is_above_all_numbers() -> None:
    rows = [make_row("a", time_ms=1.0, output_sqnr=20.0), make_row("b", time_ms=2.0, output_sqnr=math.inf)]
    rows += [make_row("c", time_ms=1.5, output_sqnr=60.0)]
    figure = draw_pareto(rows)
    (line,) = list_traces(figure, "lines").values()
    assert (1.0, 1.5, 2.0) == line.x
    assert line.y[2] > 60
    assert ("∞", line.y[2]) == (figure.layout.yaxis.ticktext[-1], figure.layout.yaxis.tickvals[-1])
    assert max(figure.layout.yaxis.tickvals[:-1]) <= 60
    assert "infinite: equal to fp32" in figure.data[1].customdata[1]


def test_estimates_and_measured_times_never_share_an_axis() -> None:
    rows = [
        make_row("a", time_ms=1.0, output_sqnr=20.0, estimate_ms=0.5, estimate_gpu="A10"),
        make_row("b", output_sqnr=30.0, estimate_ms=0.2, estimate_gpu="A10", layers_origin="predicted"),
    ]
    assert (1.0,) == draw_pareto(rows).data[1].x
    estimated = draw_pareto(rows, x="estimate_ms")
    assert (500.0, 200.0) == estimated.data[1].x
    assert (
        "○ GPU time, µs, estimated for A10, engines predicted by rules" == estimated.layout.xaxis.title.text
    )
    assert "200 µs estimated for A10" in estimated.data[1].customdata[1]
    # Where nothing was timed, estimates are what there is.
    assert (200.0,) == draw_pareto(rows[1:]).data[1].x


def test_times_of_other_processors_have_a_front_of_their_own() -> None:
    rows = [
        make_row("a", time_ms=1.0, output_sqnr=20.0),
        make_row("b", time_ms=0.1, output_sqnr=20.0, processor="GPU", host="b", random_input="scales"),
    ]
    figure = draw_pareto(rows)
    assert {"net · CPU, front", "net · GPU, front"} == {*list_traces(figure, "lines")}
    assert "● Time, ms, measured on CPU, GPU of 2 hosts" == figure.layout.xaxis.title.text
    assert figure.layout.title.text.endswith("2 of 2 variants · ⚠ random input: 1")
    assert "⚠ random input: scales" in list_traces(figure, "markers")["net · GPU"].customdata[0]


def test_of_a_metric_that_counts_mistakes_less_is_better() -> None:
    """fp32 itself is at a difference of 0; a perplexity that is lower by 1 beats it."""
    names: dict[str, Any] = {"metric": "perplexity", "higher": False, "time_ms": 1.0}
    rows = add_deltas(
        [
            make_row("a", precision="fp32", score=20.0, **names),
            make_row("b", score=19.0, **names),
            make_row("c", score=22.0, **{**names, "time_ms": 0.5}),
        ]
    )
    figure = draw_pareto(rows, y="score_delta")
    lines, dots = list_traces(figure, "lines"), list_traces(figure, "markers")
    (name,) = dots
    assert "net · perplexity" == name
    assert (0.0, -1.0, 2.0) == dots[name].y
    assert ((500.0, 1000.0), (2.0, -1.0)) == (
        tuple(x * 1000 for x in lines[f"{name}, front"].x), lines[f"{name}, front"].y,
    )  # fmt: skip
    assert figure.layout.yaxis.title.text.endswith("perplexity, measured; less is better")


def test_parallel_coordinates_have_an_axis_for_each_choice_that_varies() -> None:
    rows = [
        make_row(
            "a", precision="fp16", layers=10, layers_origin="reported", time_ms=10.0, output_sqnr=math.inf
        ),
        make_row("b", layers=30, layers_origin="reported", time_ms=1.0, output_sqnr=20.0),
        make_row("c", layers=20, layers_origin="predicted", output_sqnr=40.0),
        dataclasses.replace(make_row("d"), status="failed"),
    ]
    choices = [{"weights": w, "sparsity": ""} for w in ("channel", "tensor", "channel", "channel")]
    figure = draw_parallel(rows, choices)
    axes = {axis.label: axis for axis in figure.data[0].dimensions}
    layers, times, errors = (
        "◌◐ Layers<br>predicted, reported",
        "● Time<br>ms<br>measured",
        "● Worst output<br>SQNR<br>dB<br>measured",
    )
    assert ["precision", "weights", layers, times, errors] == [*axes]
    assert ((0, 1, 1), ("fp16", "int8")) == (axes["precision"].values, axes["precision"].ticktext)
    assert ((0, 1, 0), ("channel", "tensor")) == (axes["weights"].values, axes["weights"].ticktext)
    # Times are logarithmic; what was not timed is below all of them.
    assert (1.0, 0.0) == axes[times].values[:2]
    ticks = dict(zip(axes[times].ticktext, axes[times].tickvals, strict=True))
    assert (0.0, 1.0) == (ticks["1"], ticks["10"])
    assert ticks["—"] == axes[times].values[2] < 0
    ticks = dict(zip(axes[errors].ticktext, axes[errors].tickvals, strict=True))
    assert ticks["∞"] == axes[errors].values[0] > 40
    assert axes[errors].values == figure.data[0].line.color
    assert axes[times].values == draw_parallel(rows, choices, "time_ms").data[0].line.color
    assert "3 of 4 variants" in figure.layout.title.text


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(0, 10, [0, 2, 4, 6, 8, 10]), (16.4, 64.3, [20, 30, 40, 50, 60]), (3, 3, [3])]
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert ticks == sweep_figures._choose_ticks(low, high)


def test_a_sweep_and_a_store_draw_their_variants(tmp_path: Path) -> None:
    store = rtlab.Store(tmp_path / "runs")
    grid = rtlab.grid(tiny_model(), precision=["fp32", "fp16"], backend="classic", target=["sm75", "sm86"])
    made = store.run(grid, budget_s=0)
    for drawn in (made, store):
        axes = [axis.label for axis in drawn.figure("parallel").data[0].dimensions]
        assert ["precision", "target", "◌ Layers<br>predicted", "○ GPU time<br>µs<br>estimated"] == axes
        with pytest.raises(VariantError, match="no variant has both"):
            drawn.figure("pareto")
        for name, settings, words in (
            (
                "pie",
                {},
                'Cannot draw "pie": there is no such figure of a sweep. Choose one of "pareto", "parallel"',
            ),
            ("pareto", {"z": "score"}, 'Cannot draw "pareto" by "z": it has the settings "x", "y"'),
            ("pareto", {"x": "layers"}, 'Cannot draw x="layers": it is none of "time_ms", "estimate_ms"'),
            ("pareto", {"y": "layers"}, 'Cannot draw y="layers"'),
            ("parallel", {"color": "score"}, 'Cannot colour the variants by "score"'),
        ):
            with pytest.raises(VariantError, match=words):
                drawn.figure(name, **settings)
    with pytest.raises(VariantError, match="none is built"):
        rtlab.Store(tmp_path / "empty").figure("parallel")
