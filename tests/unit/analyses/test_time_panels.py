"""The panels of time: samples, batch sizes, difference, variants."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rtlab
from profiles import retimed
from rtlab import samples as models
from rtlab.analyses.fusion import map_measured_engine
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.analyses.roofline import estimate
from rtlab.backends import compiler_info
from rtlab.errors import ModelError, RunError, VariantError
from rtlab.study.recorded import adopt
from rtlab.web.page import charts, chrome
from rtlab.web.page.graph import engine_view
from rtlab.web.report.html import collect_payloads


@pytest.fixture(scope="module")
def study():
    digits = models.load("digits_inception", samples=32)
    study = rtlab.Study(digits.model, data=digits.calibration)
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.add("int8", precision="int8", backend="onnxruntime", target="cpu")
    return study.run()


def timed(result, whole: float, each: list[float]):
    """The variant with these times in milliseconds: of the whole, and of its layers one by one."""
    layers = dict(zip((y.layer for y in result.timing.layers), each, strict=True))
    return dataclasses.replace(result.facts, profile=retimed(result.facts, whole, layers, processor="CPU"))


def compared(study, times: dict[str, tuple[float, float]]) -> rtlab.Study:
    """Both variants with a latency and a sum of layers that are given, all layers of one alike."""
    made = rtlab.Study(study.model, data=study.data)
    for name, (whole, summed) in times.items():
        count = len(study[name].timing.layers)
        adopt(made._holder, timed(study[name], whole, [summed / count] * count))
    return made


@pytest.fixture(scope="module")
def exact(study):
    """Both variants as if timing a layer cost nothing: the layers sum to the latency."""
    made = rtlab.Study(study.model, data=study.data)
    for result in study.values():
        scale = result.timing.total / result.timing.summed
        adopt(
            made._holder, timed(result, result.timing.total, [y.median * scale for y in result.timing.layers])
        )
    return made


def difference(study, settings: dict[str, str] | None = None):
    facts = study["int8"].facts, study["fp32"].facts
    return render_panel("difference", PanelContext(study.state, *facts, settings or {}))


def facts(panel) -> dict[str, str]:
    return {f["key"]: f["value"] for f in panel["facts"]}


def test_the_waterfall_ends_where_the_second_variant_is(exact) -> None:
    shown = difference(exact)
    (trace,) = shown["figures"][0]["data"]
    levels = [sum(trace["y"][:i]) for i in range(1, len(trace["y"]) - 1)]
    assert [0, *levels, 0] == pytest.approx(trace["base"])
    assert trace["y"][-1] == pytest.approx(sum(trace["y"][:-1]))
    ratio = exact["fp32"].timing.total / exact["int8"].timing.total
    assert trace["y"][0] / trace["y"][-1] == pytest.approx(ratio)


def test_where_nothing_differs_no_bars_are_drawn(study) -> None:
    same = rtlab.Study(study.model, data=study.data)
    for name in ("one", "two"):
        adopt(same._holder, dataclasses.replace(study["fp32"].facts, name=name))
    shown = render_panel("difference", PanelContext(same.state, same["two"].facts, same["one"].facts))
    assert ([], "") == (shown["figures"], shown["problem"])
    assert any("takes as long in both" in note for note in shown["notes"])
    assert facts(shown)["Difference"].startswith("0 ")


def test_rows_and_bars_of_a_difference_select_the_nodes_of_their_group(study) -> None:
    shown = difference(study)
    held = [set(link["nodes"]) for link in shown["links"].values()]
    assert len(set().union(*held)) == sum(map(len, held))
    mapped = {p.node for n in ("fp32", "int8") for p in map_measured_engine(study[n].facts).pairs}
    assert mapped == set().union(*held)
    assert {r["key"] for r in shown["rows"]} == set(shown["links"])


@pytest.mark.slow
def test_a_layer_that_quantizes_for_the_next_node_does_not_join_the_two() -> None:
    """In INT8 every layer ends with the Q of the next; all of ResNet would be one group, and nothing compared."""
    built = rtlab.Study(models.load("digits_inception").model)
    built.add("fp16", target="sm86", precision="fp16", backend="tensorrt-rtx")
    built.add("int8", target="sm86", precision="int8", backend="tensorrt-rtx")
    built.run(compare=False)
    found = built.difference("fp16", "int8", gpu="RTX 3090")
    convolutions = [n.id for n in built.model.nodes if n.op == "Conv"]
    held = [sum(n in convolutions for n in g.nodes) for g in found.groups]
    assert len(convolutions) == sum(held)
    assert max(held) <= 3
    assert "estimated" == found.origin


def test_the_other_side_of_a_difference_can_be_chosen(study) -> None:
    shown = render_panel("difference", PanelContext(study.state, study["fp32"].facts, None, {"from": "int8"}))
    assert "From int8·auto to fp32" == shown["title"]


def test_what_was_chosen_for_two_other_variants_does_not_stand_in_the_way(study, exact) -> None:
    untimed = rtlab.Study(study.model, data=study.data)
    for result in study.values():
        adopt(untimed._holder, dataclasses.replace(result.facts, profile=None))
    for asked, of, wanted in (
        ({"times": "measured"}, untimed, {"times": "target"}),
        ({"times": "nonsense"}, exact, {"times": "measured"}),
        ({"times": "H100"}, exact, {"times": "H100 SXM"}),
    ):
        shown = difference(of, asked)
        assert "" == shown["problem"]
        for setting in shown["settings"]:
            assert setting["value"] in [o["id"] for o in setting["options"]]
        assert wanted.items() <= {s["key"]: s["value"] for s in shown["settings"]}.items()


def test_a_processor_of_ones_own_can_be_compared_for(study) -> None:
    own = rtlab.Peaks("my GPU", bandwidth=1e9, cores={"fp32": 1e9})
    asked = rtlab.Study(study.model, data=study.data)
    for facts_ in study.state.results.values():
        adopt(asked._holder, facts_)
    asked.tuning.add_processor(own)
    shown = difference(asked, {"times": "my GPU"})
    told = study.difference("fp32", "int8", gpu=own)
    assert f"{told.totals[0]:.4g} → {told.totals[1]:.4g} ms" == facts(shown)["Sum of the layers"]


def test_times_that_cannot_be_had_leave_the_choice_of_others(study, monkeypatch) -> None:
    def refuse(*_args, **_given):
        raise ModelError("Cannot count. Name sizes.")

    monkeypatch.setattr("rtlab.analyses.difference.panel.compare_variants", refuse)
    shown = difference(study, {"times": "H100"})
    assert "Cannot count. Name sizes." == shown["problem"]
    assert ["from", "times"] == [s["key"] for s in shown["settings"]]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((), "no batch size is given"), ((0,), '"0"'), ((1.5,), '"1.5"'), ((float("nan"),), '"nan"'),
        ((True,), '"True"'), (("8",), '"8"'), ("8", '"8"'), (None, '"None"'), ((10**30,), "2,147,483,647"),
    ],
)  # fmt: skip
def test_batch_sizes_that_cannot_be_are_refused(study, sizes, message) -> None:
    with pytest.raises(VariantError, match=message):
        study.tuning.batch_sizes("fp32", sizes)


@pytest.mark.slow
def test_a_fixed_batch_cannot_be_swept_and_says_how_to_export() -> None:
    model = rtlab.load(models.load("digits_inception").model.static().bytes(), name="fixed")
    fixed = rtlab.Study(model)
    fixed.add("fp32", backend="onnxruntime", target="cpu")
    fixed.run()
    with pytest.raises(VariantError, match="dynamic_axes"):
        fixed.tuning.batch_sizes("fp32")
    shown = render_panel("batches", PanelContext(fixed.state, fixed["fp32"].facts))
    assert shown["problem"]
    assert shown["work"][0]["reason"]


def test_variants_of_one_choice_are_planned_beside_the_one_they_derive_from(study) -> None:
    planned = study.vary("int8", "sparsity")
    assert ("int8 2:4",) == planned
    made, origin = study.state.variants["int8 2:4"], study.state.variants["int8"]
    assert dataclasses.replace(origin, sparsity=("*",)) == made
    study.remove("int8 2:4")


def test_a_choice_that_changes_nothing_says_so(study) -> None:
    with pytest.raises(VariantError, match="nothing would differ"):
        study.vary("int8", "tf32")
    for what in ("colour", "max_aux_streams=²", "max_aux_streams=٣", "=3", None):
        with pytest.raises(VariantError, match="max_aux_streams=2, for example"):
            study.vary("int8", what)
    with pytest.raises(VariantError, match='Cannot vary variant "gone"'):
        study.vary("gone", "tf32")
    work = render_panel("variants", PanelContext(study.state, study["int8"].facts))["work"]
    offered = {w["values"]["what"]: bool(w["reason"]) for w in work}
    assert (True, False) == (offered["tf32"], offered["sparsity"])


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        # Layers that sum to 1.7 and 3.1 times the whole: 0.6 × 3.1 − 0.4 × 1.7 = 1.18 by layers, 0.2 by the clock; so
        # −0.98 lie outside, five times the difference.
        ((0.4, 0.68), (0.6, 1.86), True),
        # Nothing is measured twice: 0.2 by layers and by the clock.
        ((0.4, 0.4), (0.6, 0.6), False),
        # As much lies outside as differs: the layers tell half of it.
        ((0.4, 0.4), (0.6, 0.5), False),
        # The layers say faster, the clock says slower.
        ((0.4, 0.8), (0.5, 0.6), True),
    ],
)
def test_a_waterfall_stands_only_where_the_layers_explain_the_difference(study, first, second, hidden):
    made = compared(study, {"fp32": first, "int8": second})
    found = made.difference("fp32", "int8")
    delta = second[0] - first[0]
    rest = delta - (second[1] - first[1])
    assert [delta, rest] == pytest.approx([found.delta, found.rest])
    assert hidden == (abs(rest) > abs(delta) + 1e-12) == found.unexplained

    shown = difference(made)
    assert hidden == (not shown["figures"]) == bool(shown["problem"])
    differences = {row["cells"][5] for row in shown["rows"]}
    assert hidden == (differences == {None})


def test_a_difference_answers_in_words_and_numbers(study) -> None:
    """What its groups differ by, and what lies outside, is what the variants differ by: 0.6 less 0.4 ms."""
    made = compared(study, {"fp32": (0.4, 0.3), "int8": (0.6, 0.45)})
    told = made.ask("difference", variant="int8", baseline="fp32")
    noun, frame = told.result, told.frame()
    assert [0.3, 0.45] == pytest.approx([frame.before.sum(), frame.after.sum()])
    assert 0.2 == pytest.approx(frame.difference.sum() + noun.outside)
    assert frame.difference.abs().is_monotonic_decreasing
    assert {"measured"} == {*frame.attrs["origins"].values()}
    assert {n.id for n in study.model.top} >= {n for g in noun.groups for n in g.nodes}
    # A row selects layers of the variant shown, and of the other one beside.
    shown = difference(made)
    groups = {(*g.first.layers, "→", *g.second.layers): g for g in made.difference("fp32", "int8").groups}
    assert len(groups) == len(shown["rows"])
    for row in shown["rows"]:
        stands = shown["links"][row["key"]]
        known = groups[(*stands["others"], "→", *stands["layers"])]
        assert [len(known.first.layers), len(known.second.layers)] == row["cells"][1:3]
        assert [known.cause, known.basis] == row["cells"][-2:]
    # The other way round it has the other sign; without a choice the first of the others is taken.
    back = made.ask("difference", variant="fp32").result
    assert -noun.outside == pytest.approx(back.outside)


def test_a_difference_that_layers_do_not_explain_says_so_in_words(study) -> None:
    made = compared(study, {"fp32": (0.4, 0.68), "int8": (0.6, 1.86)})
    told = made.ask("difference", variant="int8")
    assert {None} == {g.difference for g in told.result.groups}
    alone = rtlab.Study(study.model)
    adopt(alone._holder, study["fp32"].facts)
    with pytest.raises(VariantError, match="the only variant"):
        alone.ask("difference", variant="fp32")


def test_the_samples_answer_in_words_and_numbers(study) -> None:
    told, times = study.ask("samples", variant="fp32"), study["fp32"].timing
    assert np.percentile(times.samples, [0, 25, 50, 75, 100]).tolist() == list(told.result.milliseconds)
    assert [len(times.samples), times.warmup] == [told.result.count, told.result.warmup]
    factor, unit = (1e3, "µs") if times.total < 1 else (1, "ms")
    for percent in (90, 95, 99):
        # One that no sample lies beyond says nothing.
        known = len(times.samples) * (100 - percent) >= 100
        words = f"{np.percentile(times.samples, percent) * factor:.4g} {unit}" if known else None
        assert words == getattr(told.result, f"p{percent}")
    frame = told.frame()
    assert [times.samples[i - 1] for i in frame.number] == frame.took.tolist()
    assert len(frame) == told.result.apart
    assert {"measured"} == {f["origin"] for f in told.facts} - {""}


def test_the_variants_answer_in_words_and_say_who_timed_the_build(study) -> None:
    made = rtlab.Study(study.model, data=study.data)
    for facts_ in study.state.results.values():
        adopt(made._holder, facts_)
    read = dataclasses.replace(study["fp32"].facts, name="read", recorded=True)
    adopt(made._holder, dataclasses.replace(read, engine=dataclasses.replace(read.engine, seconds=24.5)))
    told = made.ask("variants", variant="int8")
    frame = told.frame().set_index("name")
    assert ["fp32", "int8", "read"] == list(frame.index)
    assert [r.engine.layer_count for r in made.values()] == frame.steps.tolist()
    assert [r.timing.total for r in made.values()] == frame.latency.tolist()
    assert frame.layers.isna().all()
    assert "measured, reported" == told.frame().attrs["origins"]["build"]


def test_what_rules_predict_stands_as_that_beside_what_compilers_report() -> None:
    made = rtlab.Study(models.load("digits_light").model)
    made.add("ort", precision="fp32", target="cpu", backend="onnxruntime")
    made.add("rules", precision="fp32", target="sm86", backend="classic")
    made.run(compare=False)
    read = dataclasses.replace(made["ort"].facts, name="read")
    engine = dataclasses.replace(
        made["rules"].engine, maker=compiler_info.TENSORRT, totals={"activation": 4096}
    )
    adopt(made._holder, dataclasses.replace(read, engine=engine))
    for name in made:
        told = repr(made.ask("variants", variant=name))
        assert 1 == told.count(f" {len(engine.layers)} (predicted) ")
        shown = render_panel("variants", PanelContext(made.state, made[name].facts))
        origins = {c["title"]: c["origin"] for c in shown["columns"]}
        assert ("", "reported") == (origins["Layers"], origins["Memory"])
        (layers, _) = shown["figures"][0]["data"]
        assert ["reported", "predicted", "reported"] == layers["customdata"]


rtx = pytest.mark.skipif(not rtlab.backends.get("tensorrt-rtx").availability().ok, reason="not installed")


@pytest.fixture(scope="module")
def gpu():
    """The sample compiled for a GPU, and run on this CPU in its place."""
    digits = models.load("digits_inception", samples=32)
    made = rtlab.Study(digits.model, data=digits.calibration)
    for name in ("fp32", "int8"):
        made.add(name, target="sm86", backend="tensorrt-rtx")
    return made.run()


@rtx
def test_variants_for_a_gpu_are_compared_by_their_estimates_first(gpu) -> None:
    shown = difference(gpu)
    (times,) = [s for s in shown["settings"] if s["key"] == "times"]
    assert ["target", "measured"] == [o["id"] for o in times["options"]][:2]
    assert "target" == times["value"]
    # Layers of TensorRT, not of what ran here.
    count = [gpu[n].engine.layer_count for n in ("fp32", "int8")]
    assert f"{count[0]} → {count[1]}" == facts(shown)["Layers"]
    assert facts(shown)["Sum of the layers"].startswith(f"{1e3 * gpu['fp32'].estimate.estimated:.4g} → ")


@rtx
def test_the_first_number_of_a_gpu_variant_is_the_estimate_for_its_gpu(gpu) -> None:

    result = gpu["int8"]
    told = result.roofline("RTX 3090")
    view = engine_view(result.facts, gpu.model)
    times = [o for o in view["overlays"] if o["unit"] == "ms"]
    assert ["estimate", "time"] == [o["id"] for o in times]
    assert ["estimated", "RTX 3090 time"] == [times[0][k] for k in ("origin", "title")]
    assert told.estimated == pytest.approx(sum(r["value"] for r in times[0]["layers"].values()))

    chip = next(c for c in chrome.build_chips(gpu.state, baseline="fp32") if c["id"] == "int8")
    assert ("RTX 3090", told.estimated) == (chip["estimate_gpu"], chip["estimate"])
    assert chip in collect_payloads(gpu.state)["chips"]

    figure = charts.timing(view)
    # Without a run there is the estimate all the same.
    untimed = engine_view(dataclasses.replace(result.facts, profile=None, measured=None), gpu.model)
    assert figure["data"][0]["y"] == charts.timing(untimed)["data"][0]["y"]


@rtx
def test_an_estimate_that_is_withheld_leaves_what_was_measured(gpu, monkeypatch) -> None:

    monkeypatch.setattr(estimate, "ENOUGH", 1.1)
    view = engine_view(gpu["int8"].facts, gpu.model)
    assert ["time"] == [o["id"] for o in view["overlays"] if o["unit"] == "ms"]
    chip = next(c for c in chrome.build_chips(gpu.state, baseline="fp32") if c["id"] == "int8")
    assert (None, "RTX 3090") == (chip["estimate"], chip["estimate_gpu"])
    assert chip["estimate_source"].startswith("No estimate of the whole is given")


def test_one_run_is_no_distribution_and_it_is_told_what_helps(study) -> None:
    once = dataclasses.replace(study["fp32"].facts.profile, total=np.array([1.0]))
    made = rtlab.Study(study.model, data=study.data)
    adopt(made._holder, dataclasses.replace(study["fp32"].facts, profile=once))
    with pytest.raises(RunError, match=r"fewer than two were timed\. Time it more often"):
        made.ask("samples", variant="fp32")
