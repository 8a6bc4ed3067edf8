"""The Explorer's kernel side: commands in, documents out."""

from __future__ import annotations

import dataclasses
import gzip
import json
import threading

import onnx
import pytest
from onnx import helper

import engines
from nets import graph_proto
from rtlab import CalibrationData, Study, backends, explore, load, read
from rtlab.core.variant import CALIBRATORS
from rtlab.documents import commands
from rtlab.documents.serialization import decode, encode
from rtlab.errors import BuildError, Cancelled, ReadError, RtlabError, RunError, VariantError
from rtlab.study.recorded import adopt
from rtlab.testing import tiny_model
from rtlab.web.explorer.explorer import Explorer
from rtlab.web.explorer.view_sync import ViewSync
from rtlab.web.page.graph import add_details, engine_view, source_graph
from visitor import loaded

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def shown() -> Explorer:
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=8))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run()
    return study.explore()


class Gated(Study):
    """A study that starts its work when the gate opens, so that what happens before is no matter of luck."""

    gate: threading.Event | None = None

    def run(self, *args, **kwargs):
        if self.gate is not None:
            assert self.gate.wait(60)
        return super().run(*args, **kwargs)


def gated() -> tuple[Explorer, threading.Event]:
    model = tiny_model()
    study = Gated(model, data=CalibrationData.random(model, samples=8))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run()
    study.gate = threading.Event()
    return study.explore(), study.gate


def ask(widget: Explorer, command: commands.Command, buffers: list | None = None) -> None:
    widget._receive(widget, command.to_dict(), buffers or [])


def run(widget: Explorer, **choice: object) -> Explorer:
    widget.choice = {**widget.choice, **choice}
    return widget.run().wait(300)


def finish(widget: Explorer, command: commands.Command, buffers: list | None = None) -> None:
    ask(widget, command, buffers)
    widget.wait(300)


def sent(widget: Explorer, monkeypatch) -> list[tuple[dict, list[bytes] | None]]:
    """What the kernel sends beside the traits."""
    messages = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: messages.append((content, buffers)))
    return messages


def test_a_late_view_from_the_browser_does_not_bring_back_the_last_variant(shown) -> None:
    """The browser sends the whole view with a selection; what is shown is the kernel's to say."""
    late = {**shown.view, "selection": ["stem/Conv"]}
    run(shown, precision="int8", calibrator="minmax", target="cpu")
    now = shown.state.variant
    shown.view = late
    assert (now, ("stem/Conv",)) == (shown.state.variant, shown.state.selection)


def test_build_makes_the_chosen_variant_and_shows_it(shown) -> None:
    # Jupyter may deliver the press of the button before the choices that were made ahead of it.
    finish(shown, commands.BuildChoice({**shown.choice, "precision": "int8", "calibrator": "minmax"}))
    assert shown.failure is None
    assert "int8·minmax" == shown.study[shown.state.variant].variant.name
    assert not shown.build["running"]
    view = decode(shown.engine)
    # The picture came first, its numbers followed.
    assert not {"time", "error"} & {o["id"] for o in view["overlays"]}
    later = decode(shown.engine_later)
    assert view["variant"] == later["of"]
    assert {"time", "error"} <= {o["id"] for o in later["overlays"]}
    assert "minmax" == view["calibrator"]
    assert "int8" == view["precisions"]["stem/Conv"]
    seen = decode(shown.calibration_answer)
    assert "stem/Conv" in {r for v in seen["values"] for r in v["readers"]}
    assert [str(c) for c in CALIBRATORS] == [t["calibrator"] for t in seen["values"][0]["thresholds"]]
    # What was built before comes back at once, which means without a thread.
    first = shown._tasks.thread
    shown.choice = {**shown.choice, "precision": "fp32", "calibrator": ""}
    shown.run()
    assert ("fp32", first) == (shown.state.variant, shown._tasks.thread)


def test_cancel_stops_a_build_and_keeps_the_last_good_result() -> None:
    shown, gate = gated()
    before = shown.engine
    ask(shown, commands.BuildChoice({**shown.choice, "precision": "int8", "calibrator": "minmax"}))
    assert shown.build["running"]
    ask(shown, commands.CancelWork())
    gate.set()
    shown.wait(300)
    assert before == shown.engine
    assert ["fp32"] == [c["id"] for c in shown.chips]
    assert {"fp32"} == set(shown.study.state.variants)
    assert not shown.build["running"]
    assert shown.failure is None


def dropped(shown, files: dict[str, object]) -> None:
    """Files from a browser; what is no text is written as JSON."""
    content = [(v if isinstance(v, str) else json.dumps(v)).encode() for v in files.values()]
    finish(shown, commands.ReadDropped(list(files)), content)


def engine_files(model, name: str = "") -> dict[str, object]:
    """Layers and profile of an engine whose layers are the model's nodes, prefixed."""
    told = {"LayerType": "CaskConvolution", "Inputs": [], "Outputs": []}
    layers = [{"Name": f"{name}{n.id}", **told} for n in model.top]
    rows = [{"name": y["Name"], "averageMs": 2.0, "medianMs": 1.0} for y in layers]
    return {"a100.layers.json": {"Layers": layers}, "a100.profile.json": [{"count": 3}, *rows]}


def test_files_of_two_engines_dropped_together_are_a_card_and_lose_nothing(shown) -> None:
    before = (shown.engine, dict(shown.study))
    one, two = engine_files(shown.study.model), engine_files(shown.study.model, "other/")
    dropped(shown, {"layers.json": one["a100.layers.json"], "profile.json": two["a100.profile.json"]})
    assert "ReadError" == shown.failure["kind"]
    assert "other/" in shown.failure["message"]
    assert before == (shown.engine, dict(shown.study))


def test_a_model_dropped_with_the_files_of_its_engine_opens_both(shown) -> None:
    """The engineer's whole folder at once; a name with a path in it writes nowhere else."""
    other = tiny_model(seed=7)
    files = engine_files(other)
    names = ["../../evil.onnx", *files]
    content = [other.bytes(), *(json.dumps(v).encode() for v in files.values())]
    finish(shown, commands.ReadDropped(names), content)
    assert shown.failure is None
    assert "evil" == shown.study.model.name
    assert ["a100"] == list(shown.study.state.variants)
    assert decode(shown.source)["boxes"]
    assert ["node", "layer"] == list(shown.state.panes)


def test_the_log_of_a_build_is_told_with_its_variant(shown) -> None:
    lines = "Original: 3 layers", "ConvReluFusion: Fusing a with b", "After vertical fusions: 2 layers"
    log = "".join(f"[07/07/2026-02:11:00] [V] [TRT] {line}\n" for line in lines)
    files = engine_files(shown.study.model)
    dropped(shown, {**files, "build.log": log})
    assert shown.failure is None
    assert [3, 2] == decode(shown.build_answer)["counts"]
    shown.show("fp32")
    assert b"" == shown.build_answer


def test_a_notice_stands_in_where_no_compiler_is_installed(shown, monkeypatch) -> None:
    only = {"onnxruntime": backends.get("onnxruntime")}
    monkeypatch.setattr(backends, "registry", lambda: only)
    shown._view_sync.refresh()
    assert "ONNX Runtime" in shown.notice
    assert ["cpu"] == [o["id"] for o in shown.controls["targets"]]


def test_failures_of_earlier_builds_can_be_read_again(shown) -> None:
    error = RtlabError("planted", details="vendor words")
    shown.study.add("bad", precision="fp16", target="cpu")
    shown.study._holder.update(lambda state: state.with_entries(failures={"bad": error}))
    shown._view_sync.refresh()
    ask(shown, commands.ShowVariant("bad"))
    assert ("planted", "vendor words") == (shown.failure["message"], shown.failure["details"])


def test_plotly_comes_when_the_page_asks_and_never_in_saved_state(shown, monkeypatch) -> None:
    messages = sent(shown, monkeypatch)
    ask(shown, commands.FetchPlotly())
    content, buffers = messages[0]
    assert {"type": "plotly"} == content
    assert b"export default" == gzip.decompress(buffers[0])[:14]
    assert len(buffers[0]) < 2_000_000
    assert max(len(str(v)) for v in shown.get_state().values()) < 500_000


def test_building_one_again_while_another_builds_loses_neither() -> None:
    shown, gate = gated()
    shown.study.add("other", precision="int8", calibrator="minmax", target="cpu")
    ask(shown, commands.BuildAgain("other"))
    ask(shown, commands.BuildAgain("fp32"))
    assert "another build is running" in shown.failure["message"]
    gate.set()
    shown.wait(300)
    assert {"fp32", "other"} == set(shown.study)


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (commands.RemoveVariant("fp32"), "api.Study.remove"),
        (commands.CompareVariant("fp32"), "web.explorer.view_sync.ViewSync._view"),
        (commands.OpenNetron(), "web.explorer.explorer.serve_netron"),
        (commands.ExtractNodes(["stem/Conv"]), "core.model.Model.extract"),
        (commands.BuildAgain("fp32"), "api.Study.run"),
        (commands.MeasureMore("fp32"), "api.Study.measure"),
        (commands.OpenNamed("digits_inception"), "samples.load"),
        (commands.ReadDropped(["a.json"]), "web.explorer.open_commands.OpenCommands.read"),
        (commands.StartWork("treat", "fp32", {"cause": ""}), "study.calibration.StudyCalibration.transform"),
        (commands.FetchPlotly(), "web.page.charts.plotly_script"),
    ],
    ids=lambda given: getattr(given, "action", None),
)
def test_a_card_of_what_nobody_foresaw_names_what_was_tried(shown, monkeypatch, asked, where) -> None:
    """Jupyter would write it to a log, and the click would seem to do nothing."""

    def wrong(*_given, **_more) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(f"rtlab.{where}", wrong)
    finish(shown, asked, [b"{}"])
    assert "ZeroDivisionError" == shown.failure["kind"]
    attempted, _, reason = shown.failure["message"].partition(": ")
    assert attempted.startswith("Cannot ")
    assert "Cannot do this" not in attempted
    assert "ZeroDivisionError: planted" in reason
    ask(shown, commands.DismissFailure())
    assert shown.failure is None


@pytest.mark.parametrize("how", ["cancelled", "refused"])
def test_the_engine_that_is_there_stands_until_a_new_one_is(shown, monkeypatch, how: str) -> None:
    before = shown.study["fp32"]
    refused = BuildError('Backend "onnxruntime" cannot build "fp32": refused.')

    def compiled(job, progress):
        raise Cancelled("Stopped.") if how == "cancelled" else refused

    monkeypatch.setattr("rtlab.study.runner.compile_variant", compiled)
    finish(shown, commands.BuildAgain("fp32"))
    assert before is shown.study["fp32"]
    assert {} == shown.study.state.failures
    assert "fp32" == shown.state.variant
    assert ["ready"] == [chip["status"] for chip in shown.chips]
    assert ("refused" in (shown.failure or {"message": ""})["message"]) == (how == "refused")
    monkeypatch.undo()
    finish(shown, commands.BuildAgain("fp32"))
    assert before is not shown.study["fp32"]
    assert shown.study["fp32"].timing is not None


@pytest.fixture
def two(shown) -> Explorer:
    """With fp32, and an int8 that is shown."""
    return run(shown, precision="int8", calibrator="minmax", target="cpu")


def test_a_second_engine_stands_in_a_third_pane_until_it_is_closed_or_removed(two) -> None:
    two.select("stem/Relu")
    before = dict(two.view)
    ask(two, commands.CompareVariant("fp32"))
    assert "fp32" == decode(two.other)["variant"] == two.state.compared
    assert two.study["fp32"].mapping.layers("stem/Relu") == two.state.others
    two.select("head/Gemm")
    assert two.study["fp32"].mapping.layers("head/Gemm") == two.state.others
    late = {**two.view, "selection": ["stem/Conv"]}
    two.view = before
    assert ("fp32", ("node", "layer", "other")) == (two.state.compared, two.state.panes)
    # It is how two engines are compared with a third.
    int8 = two.state.variant
    two.show("fp32")
    assert ("fp32", "fp32", two.state.layers) == (two.state.variant, two.state.compared, two.state.others)
    two.show(int8)
    ask(two, commands.CompareVariant(""))
    two.view = late
    closed = (b"", "", ("node", "layer"))
    assert closed == (two.other, two.state.compared, two.state.panes)
    assert ("stem/Conv",) == two.state.selection
    two.compare("fp32")
    ask(two, commands.RemoveVariant("fp32"))
    assert closed == (two.other, two.state.compared, two.state.panes)


def test_building_the_compared_variant_again_refreshes_its_pane(two) -> None:
    two.compare("fp32")
    before = two.study["fp32"]
    finish(two, commands.BuildAgain("fp32"))
    assert before is not two.study["fp32"]
    timing = two.study["fp32"].timing
    times = {t.layer: t.median * timing.scale for t in timing.layers}
    shown = next(o for o in decode(two.other_later)["overlays"] if o["id"] == "time")["layers"]
    assert times == pytest.approx({layer: r["value"] for layer, r in shown.items()}, rel=1e-4)
    assert "fp32" == two.state.compared


def test_inspecting_a_node_tells_its_weights_and_measures_its_outputs(shown) -> None:
    ask(shown, commands.InspectNode("stem/Conv"))
    shown._view_sync.inspection_thread.join(60)
    found = shown.inspection
    assert ("stem/Conv", "") == (found["node"], found["note"])
    weight, activation = found["tensors"]
    told = [(t["kind"], t["name"], t["count"]) for t in (weight, activation)]
    assert [("weight", "stem_w", 8 * 3 * 3 * 3), ("activation", "stem", 4 * 8 * 8 * 8)] == told
    assert "4 samples" in activation["source"]
    assert 64 == len(weight["counts"]) == len(activation["counts"])


def test_what_cannot_be_inspected_is_told_in_words(shown) -> None:
    ask(shown, commands.InspectNode("input x"))
    assert "Only nodes" in shown.inspection["note"]
    shown.study._holder.update(lambda state: dataclasses.replace(state, data=CalibrationData({})))
    ask(shown, commands.InspectNode("head/Gemm"))
    shown._view_sync.inspection_thread.join(60)
    assert ["fc_w", "fc_b"] == [t["name"] for t in shown.inspection["tensors"]]
    assert shown.inspection["note"]


def test_the_selected_part_comes_as_a_file(shown, monkeypatch) -> None:
    messages = sent(shown, monkeypatch)
    ask(shown, commands.ExtractNodes(["stem/Conv", "stem/Relu", "input x"]))
    ((content, buffers),) = messages
    assert {"type": "file", "name": "tiny_part.onnx"} == content
    part = load(buffers[0])
    assert ["stem/Conv", "stem/Relu"] == [n.id for n in part.nodes]


def test_a_failure_like_the_one_on_screen_is_told_again(shown) -> None:
    """Without a change the page would not know that its question failed, and wait for the answer."""
    ask(shown, commands.ExtractNodes([]))
    told = []
    shown.observe(lambda change: told.append(change["new"]), "failure")
    ask(shown, commands.ExtractNodes([]))
    assert [None, shown.failure] == told


def test_opening_another_model_forgets_what_was_asked_about_the_last_one(shown) -> None:
    ask(shown, commands.InspectNode("head/Gemm"))
    finish(shown, commands.ReadDropped(["dropped.onnx"]), [tiny_model(seed=5).bytes()])
    shown._view_sync.inspection_thread.join(60)
    assert shown.inspection is None
    assert "dropped" == shown.study.model.name == shown.choice["model"]
    assert decode(shown.engine)["pairs"]


def test_netron_shows_the_model_at_one_address(shown, monkeypatch) -> None:
    messages = sent(shown, monkeypatch)
    ask(shown, commands.OpenNetron())
    ask(shown, commands.OpenNetron())
    assert ["link", "link"] == [c["type"] for c, _ in messages]
    (address,) = {c["address"] for c, _ in messages}
    assert shown.study.model.bytes() == loaded(address)


def test_a_pin_is_built_and_taken_back(shown) -> None:
    pins = [{"pattern": "stem/Conv", "precision": "fp32"}]
    run(shown, precision="int8", pins=pins, calibrator="minmax", target="cpu")
    mixed = decode(shown.engine)["precisions"]
    assert "stem/Conv" not in mixed
    assert "int8" in mixed.values()
    finish(shown, commands.BuildChoice({**shown.choice, "pins": []}))
    assert "int8" == decode(shown.engine)["precisions"]["stem/Conv"]


def test_a_calibrator_that_was_mistyped_says_so_and_is_put_right(shown) -> None:
    shown.choice = {**shown.choice, "precision": "int8"}
    shown.choice = {**shown.choice, "calibrator": "percentile(200)"}
    assert "50 to 100" in shown.failure["message"]
    assert "auto" == shown.choice["calibrator"]
    shown.choice = {**shown.choice, "calibrator": "percentile( p=99.5 )"}
    assert "percentile(99.5)" == shown.choice["calibrator"]
    assert "percentile(99.5)" in [o["id"] for o in shown.controls["calibrators"]]


def test_observing_and_ranking_fill_the_calibration_tab(shown) -> None:
    assert b"" == shown.calibration_answer
    finish(shown, commands.ObserveRanges())
    seen = decode(shown.calibration_answer)
    assert (len(shown.study.data), len(shown.study.data)) == (seen["samples"], seen["wanted"])
    assert [] == seen["ranking"]
    finish(shown, commands.RankCalibrators())
    ranked = decode(shown.calibration_answer)["ranking"]
    assert {str(c) for c in CALIBRATORS} == {r["calibrator"] for r in ranked}
    noise = [r["sqnr"] for r in ranked]
    assert sorted(noise, reverse=True) == noise
    assert {"fp32"} == set(shown.study.state.variants)


def test_the_prepared_model_of_a_variant_is_saved_for_another_machine(two, monkeypatch) -> None:
    messages = sent(two, monkeypatch)
    ask(two, commands.SaveFile(two.state.variant))
    ((content, buffers),) = [m for m in messages if m[0]["type"] == "file"]
    assert content["name"].endswith(".onnx")
    assert "int8-minmax-cpu" in content["name"].replace("·", "-").replace("@", "-")
    assert "QuantizeLinear" in {n.op for n in load(buffers[0]).nodes}


@pytest.mark.slow
def test_of_a_large_engine_the_model_is_there_first(tmp_path) -> None:
    """The page draws thousands of nodes while the kernel prepares thousands of layers, so both take half as long."""
    engines.write(tmp_path, 1_200)
    model = engines.model(tmp_path)
    study = read(layers=tmp_path / "layers.json", profile=tmp_path / "profile.json", model=model)
    order = []

    class Watched(Explorer):
        def _deliver(self, name: str) -> None:
            if getattr(self, name):
                order.append((name, self.view.get("variant")))
            super()._deliver(name)

    explorer = Watched(study)
    # The page knows by then which engine is on its way.
    assert "engine" == explorer.view["variant"]
    explorer.wait()
    names = [name for name, _ in order]
    parts = ["source", "engine", "engine_later", "charts"]
    assert parts == sorted(parts, key=names.index)
    assert ("engine", "engine") in order
    assert not explorer.build["running"]
    picture, later = decode(explorer.engine), decode(explorer.engine_later)
    add_details(picture, later)
    assert picture == decode(encode(engine_view(study["engine"].facts, model)))
    # 21 copies of 59 layers, of which three bear one name in all: the first copy, the last, and one bar for the others.
    assert 3 * 56 + 3 == len(explorer.charts["timing"]["data"][0]["ids"])
    assert source_graph(model) == decode(explorer.source)


def test_a_large_engine_whose_view_fails_says_so(tmp_path, monkeypatch) -> None:
    engines.write(tmp_path, 1_200)
    study = read(layers=tmp_path / "layers.json", model=engines.model(tmp_path))

    def broken(self, result):
        raise RunError("Cannot draw it.")

    monkeypatch.setattr(ViewSync, "_view", broken)
    explorer = Explorer(study).wait()
    assert "Cannot draw it." == explorer.failure["message"]
    assert "" == explorer.view["variant"]
    # The model's boxes can be looked at all the same.
    assert decode(explorer.source)["boxes"]


def test_what_a_later_cell_runs_is_shown(shown) -> None:
    study, stamp = shown.study, shown.stamp
    empty = Study(study.model, data=study.data).explore()
    empty.study.add("fp32", target="cpu", backend="onnxruntime")
    empty.study.run()
    assert ("fp32", "fp32") == (empty.state.variant, decode(empty.engine)["variant"])
    study.add("fp16", target="cpu", backend="onnxruntime")
    study.run()
    assert ["fp32", "fp16"] == [c["id"] for c in shown.chips]
    assert "fp32" == shown.state.variant, "what one looks at stays"
    assert stamp < shown.stamp


def test_two_explorers_of_one_study_know_of_each_other(shown) -> None:
    other = shown.study.explore()
    run(shown, precision="int8", calibrator="minmax", target="cpu")
    built = shown.state.variant
    assert [c["id"] for c in shown.chips] == [c["id"] for c in other.chips]
    assert not any(c["status"] == "building" for c in other.chips)
    other.show(built)
    ask(shown, commands.RemoveVariant(built))
    assert ("fp32", "fp32") == (other.state.variant, decode(other.engine)["variant"])
    shown.study.remove("fp32")
    assert ("", b"", []) == (other.state.variant, other.engine, other.chips)
    assert other.failure is None


def test_a_variant_that_was_run_anew_is_drawn_anew(shown) -> None:
    study = shown.study
    study.remove("fp32")
    study.add("fp32", precision="fp16", target="cpu", backend="onnxruntime")
    study.run()
    assert "fp16" == decode(shown.engine)["precisions"]["stem/Conv"]


def test_what_a_cell_calibrated_is_told(shown) -> None:
    study = shown.study
    study.add("int8", calibrator="minmax", target="cpu", backend="onnxruntime")
    assert not shown.calibration_answer
    study.run(["int8"], compare=False)
    told = {v["value"] for v in decode(shown.calibration_answer)["values"]}
    assert {*study["int8"].prepared.scales} & told
    assert {*study.state.calibration.ranges.values} == told


def test_a_view_that_fails_stops_no_study(shown, monkeypatch) -> None:
    study = shown.study

    def broken(building: str = "") -> None:
        raise RunError("Cannot draw it.")

    monkeypatch.setattr(shown._view_sync, "refresh", broken)
    study.add("fp16", target="cpu", backend="onnxruntime")
    assert "fp16" in study.run()
    assert "Cannot draw it." == shown.failure["message"]


def test_a_question_about_what_is_gone_or_unknown_is_ignored(shown, monkeypatch) -> None:
    """A newer page, or one of a moment ago, must not end in an error card."""
    messages = sent(shown, monkeypatch)
    for panel, variant in (("memory", "gone"), ("crystal ball", "fp32")):
        ask(shown, commands.AskPanel("page.1", panel, variant, {}))
    for message in ({"type": "crystal ball", "variant": "fp32"}, {"value": 1}, [], None, "show"):
        shown._receive(shown, message, [])
    assert ([], None) == (messages, shown.failure)
    # What is known, and is not what was meant, is a card.
    shown._receive(shown, {"type": "save", "variant": 7, "what": "onnx"}, [])
    assert "Expected `str`, got `int`" in shown.failure["details"]


def test_work_of_a_panel_runs_on_a_thread_and_the_page_asks_again(shown) -> None:
    before = shown.stamp
    finish(shown, commands.StartWork("sweep", "fp32", {}))
    assert shown.failure is None
    assert before < shown.stamp
    assert "fp32" in shown.study.state.sweeps
    assert shown.panel("batches")["figures"]


def rebuild(shown, monkeypatch, error: Exception) -> None:
    """Press the button of a variation of three, of which the second ends so."""
    planned = ("fp32 a", "fp32 b", "fp32 c")

    def vary(study, name: str, _what: str) -> tuple[str, ...]:
        for title in planned:
            study._holder.plan(title, study.state.variants[name], None)
        return planned

    def run(study, names, **_given) -> None:
        if names != ["fp32 b"]:
            adopt(study._holder, dataclasses.replace(study["fp32"].facts, name=names[0]))
            return
        if isinstance(error, BuildError):
            study._holder.update(lambda state: state.with_entries(failures={"fp32 b": error}))
        raise error

    monkeypatch.setattr(type(shown.study), "vary", vary)
    monkeypatch.setattr(type(shown.study), "run", run)
    finish(shown, commands.StartWork("rebuild", "fp32", {"what": "targets"}))


def test_a_variation_that_is_stopped_leaves_nothing_planned(shown, monkeypatch) -> None:
    """What the button planned would be built by the next study.run(), which nobody asked for."""
    rebuild(shown, monkeypatch, Cancelled("stopped"))
    assert (["fp32", "fp32 a"], None) == (list(shown.study.state.variants), shown.failure)


def test_a_variation_goes_on_after_a_failure_and_tells_it(shown, monkeypatch) -> None:
    rebuild(shown, monkeypatch, BuildError("It cannot be."))
    assert {"fp32", "fp32 a", "fp32 c"} == set(shown.study)
    assert ("fp32 c", "It cannot be.") == (shown.state.variant, shown.failure["message"])


def test_nothing_of_the_engine_before_stands_beside_a_large_one(monkeypatch) -> None:
    monkeypatch.setattr("rtlab.web.explorer.view_sync.is_large", lambda _: True)
    study = Study(tiny_model())
    for precision in ("fp32", "fp16"):
        study.add(precision, precision=precision, target="cpu", backend="onnxruntime")
    study.run(compare=False)
    explorer = study.explore()
    kinds = {name: {s.name for s in study[name].kinds()} for name in study}
    assert kinds["fp32"] == {s["name"] for s in decode(explorer.engine_answer)["kinds"]}
    seen = []
    explorer.observe(lambda _: seen.append((explorer.engine_answer, explorer.findings_answer)), "engine")
    explorer.show("fp16")
    assert [(b"", b"")] == seen
    assert kinds["fp16"] == {s["name"] for s in decode(explorer.engine_answer)["kinds"]}
    assert decode(explorer.findings_answer)["note"]


def test_without_a_variant_the_page_has_what_the_model_alone_tells() -> None:
    explorer = Study(tiny_model()).explore()
    assert (b"", b"") == (explorer.engine_answer, explorer.build_answer)
    assert "no Q/DQ pairs" in decode(explorer.findings_answer)["note"]


def test_inputs_with_open_sizes_are_offered_and_named(shown, tmp_path) -> None:
    nodes = [helper.make_node("Add", ["tokens", "mask"], ["y"]), helper.make_node("Neg", ["fixed"], ["z"])]
    kinds = {"tokens": ["N", "length", 8], "mask": ["N", "length", 1], "fixed": [2]}
    inputs, outputs = [(n, 1, s) for n, s in kinds.items()], [("y", 1, kinds["tokens"]), ("z", 1, [2])]
    onnx.save(graph_proto(nodes, inputs, outputs, {}), tmp_path / "m.onnx")
    shown.load(tmp_path / "m.onnx").wait(60)
    asked = shown.controls["sizes"]
    inputs = ["tokens N×length×8", "mask N×length×1"]
    length = {"id": "length", "size": 128, "least": 1, "inputs": inputs, "lacking": True}
    assert [{"id": "N", "size": 1, "least": 1, "inputs": inputs, "lacking": False}, length] == asked
    shown.run()
    assert ("Unsized", []) == (shown.failure["kind"], shown.chips), "nothing was tried yet"

    finish(shown, commands.NameSizes({"N": 2, "length": 0}))
    assert '"length" the size 0' in shown.failure["message"]
    assert not shown.study.state.results

    finish(shown, commands.NameSizes({"N": 2, "length": 5}))
    assert shown.failure is None
    assert {(2, 5, 8), (2, 5, 1)} <= {t.shape for t in shown.study.state.results["fp32@sm86"].engine.inputs}
    told = [(i["lacking"], i["size"]) for i in shown.controls["sizes"]]
    assert [(False, 2), (False, 5)] == told, "they can be changed later"


def test_a_file_of_an_engine_opens_where_a_model_does(tmp_path, shown) -> None:
    study = shown.study
    study.save_build("fp32", tmp_path / "build.json")
    opened = explore(tmp_path / "build.json").wait(60)
    assert (None, "engine") == (opened.failure, opened.state.variant)
    assert [n.id for n in study.model.nodes] == [n.id for n in opened.study.model.nodes]

    shown.load(str(tmp_path / "build.json")).wait(60)
    assert shown.failure is None
    assert shown.study.state.results[shown.state.variant].recorded

    with pytest.raises(ReadError, match="with samples"):
        explore(tmp_path / "build.json", data=CalibrationData.random(study.model, samples=8))


def test_a_variant_is_found_by_what_its_chip_reads(shown) -> None:
    study = Study(shown.study.model)
    study.add("fp32@cpu", precision="fp32", target="cpu", backend="onnxruntime")
    study.run()
    (chip,) = study.explore().chips
    assert ("fp32@cpu", "fp32") == (chip["id"], chip["label"])
    assert "fp32@cpu" == study["fp32"].name
    with pytest.raises(VariantError):
        study["fp16"]


def test_what_is_chosen_while_a_build_runs_stays_chosen() -> None:
    widget, gate = gated()
    widget.choice = {**widget.choice, "precision": "fp16"}
    widget.run()
    # The click comes before the engine does.
    widget.choice = {**widget.choice, "precision": "int8"}
    gate.set()
    widget.wait(60)
    assert ("fp16@cpu", "int8") == (widget.state.variant, widget.choice["precision"])
    # A variant that is shown by a click is what is chosen then, as before.
    widget.show("fp32")
    assert "fp32" == widget.choice["precision"]
