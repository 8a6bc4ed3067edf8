"""The panels of time: samples, batch sizes, difference, variants."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import engines
import rtlab
from profiles import retimed
from rtlab import questions
from rtlab import samples as models
from rtlab.backends import makers
from rtlab.errors import ModelError, RunError, VariantError
from rtlab.questions.panels import answer
from rtlab.questions.scene import Scene


@pytest.fixture(scope="module")
def study():
    """A sample in fp32 and int8, both run on the CPU."""
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
        made._adopt(timed(study[name], whole, [summed / count] * count))
    return made


@pytest.fixture(scope="module")
def exact(study):
    """Both variants as if timing a layer cost nothing: the layers sum to the latency."""
    made = rtlab.Study(study.model, data=study.data)
    for result in study.results.values():
        scale = result.timing.total / result.timing.summed
        made._adopt(timed(result, result.timing.total, [y.median * scale for y in result.timing.layers]))
    return made


def difference(study, settings: dict[str, str] | None = None):
    """The panel that compares int8 with fp32."""
    return answer(
        "difference", Scene(study.snapshot(), study["int8"].facts, study["fp32"].facts, settings or {})
    )


def facts(panel) -> dict[str, str]:
    return {f["key"]: f["value"] for f in panel["facts"]}


def test_the_samples_are_those_that_were_measured(study) -> None:
    """Median and counts on screen are those of the times in the result, not of a summary of them."""
    shown = answer("samples", Scene(study.snapshot(), study["fp32"].facts))
    times = study["fp32"].timing
    median, unit = facts(shown)["Median"].split()
    # Facts, figure and table are of one unit.
    assert {unit} == {c["unit"] for c in shown["columns"] if c["unit"]}
    assert unit == shown["figures"][0]["layout"]["yaxis"]["title"]["text"].partition(",")[0]
    total = times.total * {"µs": 1e3, "ms": 1}[unit]
    assert total == pytest.approx(float(median), rel=1e-3)
    assert f"{len(times.samples):,}" == facts(shown)["Runs"]
    parts = (
        facts(shown)[k].split()[0].replace("−", "-") for k in ("Sum of the layers", "Outside the layers")
    )
    assert total == pytest.approx(sum(map(float, parts)), rel=1e-2)
    drawn = sum(len(t["x"]) for t in shown["figures"][0]["data"] if t["mode"] == "markers")
    assert len(times.samples) == drawn
    (bins,) = (t for t in shown["figures"][0]["data"] if t["mode"] == "lines")
    assert len(times.samples) == sum(bins["x"][1:-1:2])


def test_the_waterfall_ends_where_the_second_variant_is(exact) -> None:
    """Bars that do not add up are a lie about where the time went."""
    shown = difference(exact)
    (trace,) = shown["figures"][0]["data"]
    # Places that end alike have names of their own: two inception blocks have a branch5x5/reduce/conv each.
    labels = shown["figures"][0]["layout"]["xaxis"]["ticktext"]
    assert len(set(labels)) == len(labels)
    assert ["absolute", *["relative"] * (len(trace["y"]) - 2), "total"] == trace["measure"]
    assert trace["y"][-1] == pytest.approx(sum(trace["y"][:-1]))
    assert trace["y"][0] / trace["y"][-1] == pytest.approx(
        exact["fp32"].timing.total / exact["int8"].timing.total
    )


def test_where_nothing_differs_no_bars_are_drawn(study) -> None:
    """Fourteen bars of +0 tell nothing."""
    same = rtlab.Study(study.model, data=study.data)
    for name in ("one", "two"):
        same._adopt(dataclasses.replace(study["fp32"].facts, name=name))
    shown = answer("difference", Scene(same.snapshot(), same["two"].facts, same["one"].facts))
    assert ([], "") == (shown["figures"], shown["problem"])
    assert any("takes as long in both" in note for note in shown["notes"])
    assert facts(shown)["Difference"].startswith("0 ")


@pytest.mark.slow
def test_a_bar_names_a_module_once_where_its_exporter_wrote_it_in_the_next_one_too() -> None:
    """PyTorch's names took half of the figure: features/features.10/block/block.2/fc1."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for k in range(3):
        at = f"/features/features.{k}/block/block.2/fc1/Conv"
        weights.append(numpy_helper.from_array(rng.standard_normal((2, 2, 1, 1)).astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("Conv", [f"x{k}", f"w{k}"], [f"x{k + 1}"], name=at))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 4, 4]) for n in ("x0", "x3")]
    graph = helper.make_graph(nodes, "blocks", ends[:1], ends[1:], weights)
    made = rtlab.Study(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    for name in ("fp32", "int8"):
        made.add(name, target="cpu", backend="onnxruntime")
    made.run()
    for name, whole in (("fp32", 1.0), ("int8", 2.0)):
        count = len(made[name].timing.layers)
        made._adopt(timed(made[name], whole, [whole / count] * count))
    labels = difference(made)["figures"][0]["layout"]["xaxis"]["ticktext"]
    assert {f"features.{k}/block.2/fc1" for k in range(3)} <= set(labels)


def test_a_difference_tells_times_in_one_unit(exact) -> None:
    """The axis, the facts, the table and what a bar tells when it is pointed at."""
    shown = difference(exact)
    (unit,) = {c["unit"] for c in shown["columns"] if c["unit"]}
    figure = shown["figures"][0]
    assert unit == figure["layout"]["yaxis"]["title"]["text"]
    assert f" {unit}" in facts(shown)["Latency"]
    assert all(f" {unit}" in text for text in figure["data"][0]["customdata"])
    drawn = dict(zip(figure["data"][0]["ids"], figure["data"][0]["y"], strict=True))
    for row in shown["rows"]:
        if row["key"] in drawn:
            assert row["cells"][5] == pytest.approx(drawn[row["key"]])


def test_engines_on_other_streams_are_told_to_be_compared_elsewhere(study) -> None:
    """A sum of layers is the same however many run at a time."""
    first = dataclasses.replace(study["fp32"].facts, name="one")
    layers = (dataclasses.replace(first.measured.layers[0], stream=1), *first.measured.layers[1:])
    other = dataclasses.replace(
        first, name="two", measured=dataclasses.replace(first.measured, layers=layers)
    )
    both = rtlab.Study(study.model, data=study.data)
    for made in (first, other):
        both._adopt(made)
    shown = answer("difference", Scene(both.snapshot(), other, first))
    assert any("run on 1 and 2 streams" in note for note in shown["notes"])


def test_rows_and_bars_of_a_difference_select_the_nodes_of_their_group(study) -> None:
    """From a bar one gets to the nodes, in both engines."""
    shown = difference(study)
    held = [set(link["nodes"]) for link in shown["links"].values()]
    assert len(set().union(*held)) == sum(map(len, held))
    mapped = {p.node for n in ("fp32", "int8") for p in study[n].measured_mapping.pairs}
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


def test_the_other_side_of_a_difference_can_be_chosen_and_the_order(study) -> None:
    """The baseline is only where one starts."""
    shown = answer(
        "difference", Scene(study.snapshot(), study["fp32"].facts, None, {"from": "int8", "order": "time"})
    )
    assert "From int8·auto to fp32" == shown["title"]
    alone = rtlab.Study(study.model, data=study.data)
    alone._adopt(study["fp32"])
    assert (
        "nothing to compare with"
        in answer("difference", Scene(alone.snapshot(), study["fp32"].facts))["problem"]
    )


def test_what_was_chosen_for_two_other_variants_does_not_stand_in_the_way(study, exact) -> None:
    """Settings stay when another variant is shown; of one without times none are measured."""
    untimed = rtlab.Study(study.model, data=study.data)
    for result in study.results.values():
        untimed._adopt(dataclasses.replace(result.facts, profile=None))
    for asked, of, wanted in (
        ({"times": "measured"}, untimed, {"times": "target", "order": "size"}),
        ({"times": "nonsense", "order": "nonsense"}, exact, {"times": "measured", "order": "size"}),
        ({"times": "H100"}, exact, {"times": "H100 SXM"}),
    ):
        shown = difference(of, asked)
        assert "" == shown["problem"]
        for setting in shown["settings"]:
            assert setting["value"] in [o["id"] for o in setting["options"]]
        assert wanted.items() <= {s["key"]: s["value"] for s in shown["settings"]}.items()


def test_a_processor_of_ones_own_can_be_compared_for(study) -> None:
    """What ``measure_peaks`` found, or the user added, is as good as the table."""
    own = rtlab.Peaks("my GPU", bandwidth=1e9, cores={"fp32": 1e9})
    asked = rtlab.Study(study.model, data=study.data)
    for facts_ in study.facts.values():
        asked._adopt(facts_)
    asked.processors.append(own)
    shown = difference(asked, {"times": "my GPU"})
    told = study.difference("fp32", "int8", gpu=own)
    assert f"{told.totals[0]:.4g} → {told.totals[1]:.4g} ms" == facts(shown)["Sum of the layers"]


def test_times_that_cannot_be_had_leave_the_choice_of_others(study, monkeypatch) -> None:
    """Sizes that are not known stand in the way of estimates, not of what was measured."""

    def refuse(*_args, **_given):
        raise ModelError("Cannot count. Name sizes.")

    monkeypatch.setattr(questions.difference, "of", refuse)
    shown = difference(study, {"times": "H100"})
    assert "Cannot count. Name sizes." == shown["problem"]
    assert ["from", "times", "order"] == [s["key"] for s in shown["settings"]]


@pytest.mark.slow
def test_batch_sizes_are_measured_on_demand_and_rates_follow_from_times(study) -> None:
    """Samples per second are the batch divided by its median, whatever is shown."""
    before = answer("batches", Scene(study.snapshot(), study["fp32"].facts))
    assert ("sweep", True) == (before["work"][0]["work"], not before["work"][0]["reason"])
    found = study.sweep("fp32", (4, 1, 2))
    assert [1, 2, 4] == [r.batch for r in found.rows]
    shown = answer("batches", Scene(study.snapshot(), study["fp32"].facts))
    (unit,) = {c["unit"] for c in shown["columns"] if c["title"] in {"Median", "Per sample"}}
    for batch, rate, median, lower, upper, each, runs in (r["cells"] for r in shown["rows"]):
        assert rate == pytest.approx(batch / median * {"ms": 1e3, "µs": 1e6}[unit])
        assert each == pytest.approx(median / batch)
        assert lower <= median <= upper
        assert runs >= 3
    assert found.knee.batch <= found.best.batch


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((), "no batch size is given"), ((0,), '"0"'), ((1.5,), '"1.5"'), ((float("nan"),), '"nan"'),
        ((True,), '"True"'), (("8",), '"8"'), ("8", '"8"'), (None, '"None"'), ((10**30,), "2,147,483,647"),
    ],
)  # fmt: skip
def test_batch_sizes_that_cannot_be_are_refused(study, sizes, message) -> None:
    """The person learns what to write."""
    with pytest.raises(VariantError, match=message):
        study.sweep("fp32", sizes)


@pytest.mark.slow
def test_a_fixed_batch_cannot_be_swept_and_says_how_to_export() -> None:
    """A model with one batch size is the most common export there is."""
    model = rtlab.load(models.load("digits_inception").model.static().bytes(), name="fixed")
    fixed = rtlab.Study(model)
    fixed.add("fp32", backend="onnxruntime", target="cpu")
    fixed.run()
    with pytest.raises(VariantError, match="dynamic_axes"):
        fixed.sweep("fp32")
    shown = answer("batches", Scene(fixed.snapshot(), fixed["fp32"].facts))
    assert "fixed batch dimension" in shown["problem"]
    assert shown["work"][0]["reason"]


def test_times_of_inferences_tell_the_levels_of_the_clock(tmp_path) -> None:
    """1,600 latencies on two levels: their median is the file's, and what stands apart is explained."""
    draw = np.random.default_rng(0)
    levels = np.repeat([0.10, 0.14], [1200, 400]) + draw.normal(0, 0.0005, 1600)
    (tmp_path / "times.json").write_text(json.dumps([{"computeMs": t, "latencyMs": t} for t in levels]))
    read = rtlab.read(layers=engines.files("written-fp16")["layers"], times=tmp_path / "times.json")
    shown = answer("samples", Scene(read.snapshot(), read["engine"].facts))
    assert read["engine"].timing.total == pytest.approx(np.median(levels))
    assert "1,600" == facts(shown)["Runs"]
    assert any("in a row" in note for note in shown["notes"])


def test_variants_of_one_choice_are_planned_beside_the_one_they_derive_from(study) -> None:
    """One click must not change anything else of the variant."""
    planned = study.vary("int8", "sparsity")
    assert ("int8 2:4",) == planned
    made, origin = study.variants["int8 2:4"], study.variants["int8"]
    assert ("*",) == made.sparsity
    assert (origin.precision, origin.calibrator, origin.target) == (
        made.precision,
        made.calibrator,
        made.target,
    )
    study.remove("int8 2:4")


def test_a_choice_that_changes_nothing_says_so(study) -> None:
    """TF32 is a way to compute FP32; an int8 variant has none."""
    with pytest.raises(VariantError, match="nothing would differ"):
        study.vary("int8", "tf32")
    for what in ("colour", "max_aux_streams=²", "max_aux_streams=٣", "=3", None):
        with pytest.raises(VariantError, match="max_aux_streams=2, for example"):
            study.vary("int8", what)
    with pytest.raises(VariantError, match='Cannot vary variant "gone"'):
        study.varied("gone")
    work = answer("variants", Scene(study.snapshot(), study["int8"].facts))["work"]
    offered = {w["values"]["what"]: bool(w["reason"]) for w in work}
    assert (True, False) == (offered["tf32"], offered["sparsity"])


def test_one_row_for_each_variant_that_is_built(study) -> None:
    """The table is the comparison; a variant that is only planned is none."""
    study.add("fp16", precision="fp16", backend="onnxruntime", target="cpu")
    shown = answer("variants", Scene(study.snapshot(), study["int8"].facts))
    assert ["fp32", "▸ int8·auto"] == [r["cells"][0] for r in shown["rows"]]
    study.remove("fp16")


@pytest.mark.slow
def test_layers_of_a_compiler_and_nodes_of_onnx_runtime_are_counted_apart() -> None:
    """85 nodes of ONNX Runtime stood in one column with 25 layers of TensorRT, and a bar above them."""
    made = rtlab.Study(models.load("digits_inception").model)
    made.add("rtx", precision="fp32", target="sm86", backend="tensorrt-rtx")
    made.add("ort", precision="fp32", target="cpu", backend="onnxruntime")
    made.run(compare=False)
    count = {n: len(made[n].engine.layers) - made[n].engine.sync for n in ("rtx", "ort")}
    shown = answer("variants", Scene(made.snapshot(), made["rtx"].facts))
    heads = [c["title"] for c in shown["columns"]]
    layers, nodes = heads.index("Layers"), heads.index("ONNX Runtime nodes")
    told = {r["key"]: (r["cells"][layers], r["cells"][nodes]) for r in shown["rows"]}
    assert {"rtx": (count["rtx"], None), "ort": (None, count["ort"])} == told
    assert all(len(heads) == len(r["cells"]) for r in shown["rows"])
    assert [count["rtx"], None] == shown["figures"][0]["data"][0]["x"]
    assert "layers, reported" == shown["figures"][0]["layout"]["xaxis"]["title"]["text"]
    assert any("counted apart" in note for note in shown["notes"])
    made.remove("rtx")
    made.add("again", precision="fp32", target="cpu", backend="onnxruntime")
    made.run(compare=False)
    alone = answer("variants", Scene(made.snapshot(), made["ort"].facts))
    assert "Layers" not in [c["title"] for c in alone["columns"]]
    assert "ONNX Runtime nodes, reported" == alone["figures"][0]["layout"]["xaxis"]["title"]["text"]
    assert not any("counted apart" in note for note in alone["notes"])


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
def test_a_waterfall_stands_only_where_the_layers_explain_the_difference(
    study, first, second, hidden
) -> None:
    """Else it blames layers for what their measurement costs; by arithmetic, not by a run."""
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


def test_what_hides_a_waterfall_is_told_with_its_numbers_and_a_way_out(study) -> None:
    made = compared(study, {"fp32": (0.4, 0.68), "int8": (0.6, 1.86)})
    shown = difference(made)
    assert all(number in shown["problem"] for number in ("+200 µs", "−980 µs", "1.7 and 3.1 times"))
    # What was measured of each layer stays, and says how.
    assert ["fp32, timed alone", "int8·auto, timed alone"] == [c["title"] for c in shown["columns"][3:5]]


def test_a_difference_answers_in_words_and_numbers(study) -> None:
    """What its groups differ by, and what lies outside, is what the variants differ by: 0.6 less 0.4 ms."""
    made = compared(study, {"fp32": (0.4, 0.3), "int8": (0.6, 0.45)})
    told = made.ask("difference", variant="int8", baseline="fp32")
    noun, frame = told.noun, told.frame()
    assert [0.3, 0.45] == pytest.approx([frame.before.sum(), frame.after.sum()])
    assert 0.2 == pytest.approx(frame.difference.sum() + noun.outside)
    assert frame.difference.abs().is_monotonic_decreasing
    assert {"measured"} == {*frame.attrs["origins"].values()}
    assert {n.id for n in study.model.top} >= {n for g in noun.groups for n in g.nodes}
    lines = repr(told).splitlines()
    assert [
        "Where the time went",
        "Latency: 400 → 600 µs (measured)",
        "Difference: +200 µs (+50%) (measured)",
    ] == lines[:3]
    assert "Outside the layers: +50 µs (measured)" in lines
    (head,) = (line for line in lines if line.startswith("nodes "))
    assert [" fp32, measured ", " int8·auto, measured "] == [
        n for n in (" fp32, measured ", " int8·auto, measured ") if n in head
    ]
    assert ("fp32", [0.4, 0.6]) == (told.plain()["before"], told.plain()["milliseconds"])
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
    back = made.ask("difference", variant="fp32").noun
    assert -noun.outside == pytest.approx(back.outside)
    ran = made.ask("difference", variant="int8", order="time").noun.groups
    assert ran != noun.groups
    assert {*ran} == {*noun.groups}


def test_a_difference_that_layers_do_not_explain_says_so_in_words(study) -> None:
    made = compared(study, {"fp32": (0.4, 0.68), "int8": (0.6, 1.86)})
    told = made.ask("difference", variant="int8")
    assert {None} == {g.difference for g in told.noun.groups}
    assert "The layers cannot tell where +200 µs come from" in repr(told)
    assert "fp32, timed alone, measured" in repr(told)
    alone = rtlab.Study(study.model)
    alone._adopt(study["fp32"].facts)
    with pytest.raises(VariantError, match=r"this is the only variant\. Build a second one"):
        alone.ask("difference", variant="fp32")


def test_the_samples_answer_in_words_and_numbers(study) -> None:
    told, times = study.ask("samples", variant="fp32"), study["fp32"].timing
    assert np.percentile(times.samples, [0, 25, 50, 75, 100]).tolist() == list(told.noun.milliseconds)
    assert [len(times.samples), times.warmup] == [told.noun.count, told.noun.warmup]
    factor, unit = (1e3, "µs") if times.total < 1 else (1, "ms")
    for percent in (90, 95, 99):
        # One that no sample lies beyond says nothing.
        known = len(times.samples) * (100 - percent) >= 100
        words = f"{np.percentile(times.samples, percent) * factor:.4g} {unit}" if known else None
        assert words == getattr(told.noun, f"p{percent}")
    frame = told.frame()
    assert [times.samples[i - 1] for i in frame.number] == frame.took.tolist()
    assert len(frame) == told.noun.apart
    assert {"measured"} == {f["origin"] for f in told.parts()["facts"]} - {""}
    assert f"After {times.warmup} untimed ones." in {f["note"] for f in told.parts()["facts"]}
    assert repr(told).splitlines()[-1 - len(told.noun.notes)] == ""


def test_the_variants_answer_in_words_and_say_who_timed_the_build(study) -> None:
    """What a log tells of its build is its compiler's word; what was built here was timed here."""
    made = rtlab.Study(study.model, data=study.data)
    for facts_ in study.facts.values():
        made._adopt(facts_)
    read = dataclasses.replace(study["fp32"].facts, name="read", recorded=True)
    made._adopt(dataclasses.replace(read, engine=dataclasses.replace(read.engine, seconds=24.5)))
    told = made.ask("variants", variant="int8")
    frame = told.frame().set_index("name")
    assert ["fp32", "int8", "read"] == list(frame.index)
    assert [len(r.engine.layers) - r.engine.sync for r in made.results.values()] == frame.steps.tolist()
    assert [r.timing.total for r in made.results.values()] == frame.latency.tolist()
    assert frame.layers.isna().all()
    assert "measured, reported" == told.frame().attrs["origins"]["build"]
    lines = repr(told).splitlines()
    (head,) = (line for line in lines if line.startswith("variant "))
    assert " ONNX Runtime nodes " in head
    assert "layers" not in head
    (row,) = (line for line in lines if line.startswith("read "))
    assert " 24.5 s (reported) " in row
    assert 2 == repr(told).count(" s (measured) ")
    assert "The time of the build is reported of read, and measured of the others." in lines


def test_nodes_of_onnx_runtime_are_not_called_layers(study) -> None:
    """They stand beside TensorRT's layers on one page, and there are three times as many."""
    shown = difference(study)
    count = [len(study[n].measured.layers) for n in ("fp32", "int8")]
    assert f"{count[0]} → {count[1]}" == facts(shown)["ONNX Runtime nodes"]
    assert ["ONNX Runtime nodes before", "ONNX Runtime nodes after"] == [
        c["title"] for c in shown["columns"][1:3]
    ]


def test_what_rules_predict_stands_as_that_beside_what_compilers_report() -> None:
    """Whichever of the two is shown: a table that is asked about a predicted engine is no prediction of the others."""
    made = rtlab.Study(models.load("digits_light").model)
    made.add("ort", precision="fp32", target="cpu", backend="onnxruntime")
    made.add("rules", precision="fp32", target="sm86", backend="classic")
    made.run(compare=False)
    read = dataclasses.replace(made["ort"].facts, name="read")
    engine = dataclasses.replace(made["rules"].engine, maker=makers.TENSORRT, totals={"activation": 4096})
    made._adopt(dataclasses.replace(read, engine=engine))
    for name in made.results:
        told = made.ask("variants", variant=name)
        rows = {
            line.split()[0].strip("▸"): line for line in repr(told).replace("▸ ", "▸").splitlines() if line
        }
        count = len(made["rules"].engine.layers)
        assert f" {count} (predicted) " in rows["rules"]
        assert f" {count}  " in rows["read"]
        assert "memory, reported" in rows["variant"]
        shown = answer("variants", Scene(made.snapshot(), made[name].facts))
        assert ("", "reported") == tuple(
            next(c["origin"] for c in shown["columns"] if c["title"] == title)
            for title in ("Layers", "Memory")
        )
        assert "The layers of rules are predicted by rules: no compiler made them." in shown["notes"]
        (layers, _) = shown["figures"][0]["data"]
        assert ["reported", "predicted", "reported"] == layers["customdata"]


rtx = pytest.mark.skipif(
    not rtlab.backends.get("tensorrt-rtx").availability().ok, reason="tensorrt-rtx is not installed"
)


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
    """A room must not learn from an emulation on the CPU that INT8 is twice slower."""
    shown = difference(gpu)
    (times,) = [s for s in shown["settings"] if s["key"] == "times"]
    assert ["target", "measured"] == [o["id"] for o in times["options"]][:2]
    assert "target" == times["value"]
    assert "measured on the CPU that stands in for the GPU" == times["options"][1]["label"]
    # Layers of TensorRT, not of what ran here.
    count = [len(gpu[n].engine.layers) - gpu[n].engine.sync for n in ("fp32", "int8")]
    assert f"{count[0]} → {count[1]}" == facts(shown)["Layers"]
    assert facts(shown)["Sum of the layers"].startswith(f"{1e3 * gpu['fp32'].estimate.estimated:.4g} → ")


@rtx
def test_the_first_number_of_a_gpu_variant_is_the_estimate_for_its_gpu(gpu) -> None:
    """On the chip, in the table, on the cards and in the chart; what the CPU took comes second."""
    from rtlab.report import saved
    from rtlab.view import charts, chrome
    from rtlab.view.graph import engine_view

    result = gpu["int8"]
    told = result.roofline("RTX 3090")
    view = engine_view(result.facts, gpu.model)
    times = [o for o in view["overlays"] if o["unit"] == "ms"]
    assert ["estimate", "time"] == [o["id"] for o in times]
    assert ["estimated", "RTX 3090 time"] == [times[0][k] for k in ("origin", "title")]
    assert told.estimated == pytest.approx(sum(r["value"] for r in times[0]["layers"].values()))

    chip = next(c for c in chrome.chips(gpu.snapshot(), baseline="fp32") if c["id"] == "int8")
    assert ("RTX 3090", told.estimated) == (chip["estimate_gpu"], chip["estimate"])
    assert chip in saved(gpu.snapshot())["chips"]
    html = gpu._repr_html_()
    assert 0 < html.index(" RTX 3090,") < html.index(" CPU</td>")
    first, second = [
        s["text"]
        for s in chrome.status(gpu.snapshot(), "int8")
        if s["text"].startswith(("estimated", "measured"))
    ]
    assert first.startswith("estimated: ")
    assert second.startswith("measured: ONNX Runtime")

    figure = charts.timing(view)
    assert figure["layout"]["title"]["text"].startswith("○ RTX 3090 time")
    # Without a run there is the estimate all the same.
    untimed = engine_view(dataclasses.replace(result.facts, profile=None, measured=None), gpu.model)
    assert figure["data"][0]["y"] == charts.timing(untimed)["data"][0]["y"]


@rtx
def test_an_estimate_that_is_withheld_leaves_what_was_measured(gpu, monkeypatch) -> None:
    """No sum, no bars; words in their place."""
    from rtlab.questions.roofline import roofs as roofline
    from rtlab.view import chrome
    from rtlab.view.graph import engine_view

    monkeypatch.setattr(roofline, "ENOUGH", 1.1)
    view = engine_view(gpu["int8"].facts, gpu.model)
    assert ["time"] == [o["id"] for o in view["overlays"] if o["unit"] == "ms"]
    chip = next(c for c in chrome.chips(gpu.snapshot(), baseline="fp32") if c["id"] == "int8")
    assert (None, "RTX 3090") == (chip["estimate"], chip["estimate_gpu"])
    assert chip["estimate_source"].startswith("No estimate of the whole is given")


def test_one_run_is_no_distribution_and_it_is_told_what_helps(study) -> None:
    """It was timed, so that "let study.run() time it" would help nobody."""
    once = dataclasses.replace(study["fp32"].facts.profile, total=np.array([1.0]))
    made = rtlab.Study(study.model, data=study.data)
    made._adopt(dataclasses.replace(study["fp32"].facts, profile=once))
    with pytest.raises(
        RunError, match=r"it ran once, and one run is no distribution.*study\.measure\('fp32'\)"
    ):
        made.ask("samples", variant="fp32")


@rtx
def test_an_estimate_says_that_it_sums_up_what_runs_side_by_side(gpu) -> None:
    """The tab Streams tells when the last layer ends, which is sooner."""
    facts = gpu["fp32"].facts
    first, *others = facts.engine.layers
    two = dataclasses.replace(
        facts,
        engine=dataclasses.replace(facts.engine, layers=(dataclasses.replace(first, stream=1), *others)),
    )
    assert ["sum of the layers" in questions.roofline.estimate_source(f) for f in (facts, two)] == [
        False,
        True,
    ]
