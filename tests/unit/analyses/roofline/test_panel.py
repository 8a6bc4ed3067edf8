"""The roofline of a variant as a panel."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest

import engines
from rtlab import samples
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.api import Study
from rtlab.api import read as read_study
from rtlab.core.peaks import Peaks, resolve_peaks
from rtlab.core.variant import Target
from rtlab.documents.contract import Panel

CPU = Peaks("this CPU", 1e10, {"fp32": 5e10}, origin="measured", source="a test")


@pytest.fixture(scope="module")
def study() -> Study:
    sample = samples.load("digits_inception", samples=8)
    made = Study(sample.model, data=sample.calibration)
    made.add("fp32", backend="onnxruntime")
    made.run()
    return made


def asked(study: Study, name: str = "fp32", processors: tuple[Peaks, ...] = (), **settings: str) -> Panel:
    whole = study.state if not processors else SimpleNamespace(model=study.model, processors=processors)
    return render_panel("roofline", PanelContext(whole, study[name].facts, settings=settings))


def fact(shown: Panel, key: str) -> str:
    return next(f["value"] for f in shown["facts"] if f["key"] == key)


def chosen(shown: Panel, key: str) -> str:
    return next(s["value"] for s in shown["settings"] if s["key"] == key)


BATCH = 512


def on_v100(folder: Path) -> Study:
    """The residual network of the corpus at batch 512 on a V100: arithmetic, memory and launches bound."""
    files = engines.files(engines.RESIDUAL)
    layers = files["layers"].read_text().replace('"Dimensions": [8,', f'"Dimensions": [{BATCH},')
    count, *rows = json.loads(files["profile"].read_text())
    rows = [{**r, "medianMs": r["medianMs"] * 4} for r in rows]
    device = {"device_information": {"Selected Device": "Tesla V100-SXM2-16GB"}}
    (folder / "layers.json").write_text(layers)
    (folder / "profile.json").write_text(json.dumps([count, *rows]))
    (folder / "metadata.json").write_text(json.dumps(device))
    return read_study(*(folder / f"{kind}.json" for kind in ("layers", "profile", "metadata")))


def check(shown: Panel) -> None:
    """Every panel: Plotly takes its figures, every point and row is linked, and all of it is JSON."""
    assert not shown["problem"]
    json.dumps(shown, allow_nan=False)
    for drawn in shown["figures"]:
        go.Figure(drawn["data"], drawn["layout"])
        for trace in drawn["data"]:
            assert set(trace.get("ids", ())) <= set(shown["links"])
    assert {r["key"] for r in shown["rows"]} == set(shown["links"])


def test_every_layer_that_launches_has_a_row_and_counts_add_up(study: Study) -> None:
    shown = asked(study)
    check(shown)
    engine = study["fp32"].engine
    assert {r["key"] for r in shown["rows"]} == {layer.id for layer in engine.layers}
    assert "16.39 k" == fact(shown, "Parameters")
    assert "2.356 MMAC" == fact(shown, "Multiply-accumulates")
    nodes = [n for entry in shown["links"].values() for n in entry["nodes"]]
    assert set(nodes) <= set(study.model.places)


def test_times_of_the_cpu_are_judged_by_its_measured_roofs_only(study: Study) -> None:
    here, elsewhere = asked(study, processors=(CPU,), gpu="this CPU"), asked(study, gpu="L4")
    check(here)
    assert any(r["cells"][-2] for r in here["rows"])
    assert not any(r["cells"][-2] for r in elsewhere["rows"])


def test_measured_roofs_are_the_first_choice_for_an_engine_of_the_cpu(study: Study) -> None:
    assert "this CPU" == chosen(asked(study, processors=(CPU,)), "gpu")
    assert "RTX 3090" == chosen(asked(study), "gpu")
    engine = dataclasses.replace(study["fp32"].engine, target=Target("sm89"))
    elsewhere = dataclasses.replace(study["fp32"].facts, engine=engine)
    whole = SimpleNamespace(model=study.model, processors=(CPU,))
    assert (
        "8.9"
        == resolve_peaks(chosen(render_panel("roofline", PanelContext(whole, elsewhere)), "gpu")).capability
    )


def test_times_of_another_processor_or_of_files_are_no_times_of_this_cpu(study: Study) -> None:
    result = study["fp32"]
    with_cpu = SimpleNamespace(model=study.model, processors=(CPU,))

    def times(changed: object, gpu: str) -> list[object]:
        shown = render_panel("roofline", PanelContext(with_cpu, changed, settings={"gpu": gpu}))
        return [r["cells"][-2] for r in shown["rows"] if r["cells"][-2]]

    assert times(result.facts, "this CPU")
    assert not times(dataclasses.replace(result.facts, recorded=True), "this CPU")
    # A machine with both: what the CPU took is not what its GPU takes.
    profile = dataclasses.replace(result.profile, device="NVIDIA GeForce RTX 3090")
    assert not times(dataclasses.replace(result.facts, profile=profile), "RTX 3090")
    profile = dataclasses.replace(profile, processor="GPU")
    assert times(dataclasses.replace(result.facts, profile=profile), "RTX 3090")


def test_a_time_that_several_layers_share_is_of_none_and_joined_times_are_called_so(study, monkeypatch):
    result = study["fp32"]
    layers = result.engine.layers
    one = {i: dataclasses.replace(t, shared=2) for i, t in result.layer_times.items() if i == layers[0].id}
    changed = dataclasses.replace(result.facts, measured=dataclasses.replace(result.engine))
    given = {**result.layer_times, **one}
    monkeypatch.setattr("rtlab.analyses.roofline.panel.get_layer_times", lambda _: given)
    whole = SimpleNamespace(model=study.model, processors=(CPU,))
    shown = render_panel("roofline", PanelContext(whole, changed, settings={"gpu": "this CPU"}))
    measured = {r["key"]: r["cells"][-2] for r in shown["rows"]}
    assert measured[layers[0].id] is None
    assert all(measured[y.id] for y in layers[1:] if y.id in measured)


def test_names_are_text_in_the_hover(study: Study) -> None:
    """Plotly reads a hover as HTML, and names come from files."""
    result = study["fp32"]
    layers = tuple(dataclasses.replace(y, name=f"<b>& {y.index}") for y in result.engine.layers)
    engine = dataclasses.replace(result.engine, layers=layers)
    shown = render_panel(
        "roofline", PanelContext(study.state, dataclasses.replace(result.facts, engine=engine))
    )
    texts = [text for t in shown["figures"][0]["data"] if t.get("ids") for text in t["text"]]
    assert texts
    assert all("&lt;b&gt;&amp; " in text for text in texts)


def test_a_batch_between_the_stops_is_a_stop(study: Study) -> None:
    options = next(s["options"] for s in asked(study, batch="3")["settings"] if s["key"] == "batch")
    assert "3" in {o["id"] for o in options}


def test_a_larger_batch_computes_more_and_has_no_measured_times(study: Study) -> None:
    one, eight = asked(study, processors=(CPU,)), asked(study, processors=(CPU,), batch="8")
    assert "8" == chosen(eight, "batch")
    macs = [float(fact(shown, "Multiply-accumulates").split()[0]) for shown in (one, eight)]
    assert 8 == pytest.approx(macs[1] / macs[0], rel=1e-3)
    assert not any(r["cells"][-2] for r in eight["rows"])


def test_bad_settings_are_told(study: Study) -> None:
    for settings in ({"gpu": "Voodoo"}, {"batch": "many"}):
        assert asked(study, **settings)["problem"]
    assert "at least 1" in asked(study, batch="-3")["problem"]


def test_an_engine_from_files_is_judged_on_its_own_gpu(tmp_path: Path) -> None:
    shown = asked(on_v100(tmp_path), "engine")
    check(shown)
    assert ("V100", str(BATCH)) == (chosen(shown, "gpu"), chosen(shown, "batch"))
    # 198 of the 200 µs that the layers were written with launch a kernel that is told of.
    assert "792 µs" == fact(shown, "Measured time")
    assert all(r["cells"][-2] for r in shown["rows"])
    marks = [t for t in shown["figures"][0]["data"] if t.get("ids")]
    assert 3 == len({t["name"] for t in marks}) == len({t["marker"]["symbol"] for t in marks})
    # Nobody can count the parameters of a graph that is not there.
    assert "Parameters" not in {f["key"] for f in shown["facts"]}
    # All points but those of data in a cache lie below the highest roof.
    highest = max(max(t["y"]) for t in shown["figures"][0]["data"] if t["mode"] == "lines")
    assert all(y <= highest for t in marks for y in t["y"])


def test_figure_table_and_facts_tell_the_same(tmp_path: Path) -> None:
    """Of an engine with times: positions, sizes and words against the analysis."""
    read = on_v100(tmp_path)
    result = read["engine"]
    found = result.roofline()
    shown = asked(read, "engine")
    counted = {p.layer: p for p in found.layers if p.flops is not None}
    assert {p.layer for p in found.layers} - {*counted} == {"17:__myl_MaxrSubExpSumDivMul_myl3_2"}
    expected = {
        i: [p.flops / 1e6, p.moved / 2**20, p.intensity, 1e3 * p.attainable, 1e3 * p.estimated, 1e3 * p.measured]
        for i, p in counted.items()
    }  # fmt: skip
    assert "MiB" == shown["columns"][5]["unit"]
    for row in (r for r in shown["rows"] if r["key"] in counted):
        assert expected[row["key"]] == pytest.approx(row["cells"][4:10])
        assert row["cells"][9] / row["cells"][7] == pytest.approx(row["cells"][10])
    names = {y.id: y.name for y in result.engine.layers}
    marks = [t for t in shown["figures"][0]["data"] if t.get("ids")]
    sizes = {}
    for trace in marks:
        for i, x, y, text, size in zip(
            *(trace[k] for k in ("ids", "x", "y", "text")), trace["marker"]["size"], strict=True
        ):
            point = found.by_layer[i]
            assert (point.intensity, point.flops / point.measured * 1e3) == pytest.approx((x, y))
            assert names[i][:20] in text
            sizes[point.measured] = size
    assert sorted(sizes.values()) == [sizes[t] for t in sorted(sizes)]
    assert 10 <= len(set(sizes.values()))
    assert {i for i, p in counted.items() if p.flops} == {i for t in marks for i in t["ids"]}
    # NVIDIA's data sheet of the V100: TFLOP/s of FP16 on tensor cores and of FP32, and four INT8 products a lane.
    rates = {"fp16, matrix units": 125e12, "int8, cores": 4 * 15.7e12, "fp32, cores": 15.7e12}
    roofs = [t for t in shown["figures"][0]["data"] if t["mode"] == "lines"]
    assert set(rates) == {t["name"].partition("FLOP/s ")[2] for t in roofs}
    for trace in roofs:
        rate = rates[trace["name"].partition("FLOP/s ")[2]]
        assert [trace["x"][0] * 900e9, rate, rate] == pytest.approx(trace["y"])
        assert rate / 900e9 == pytest.approx(trace["x"][1])
    for bound, title in (("memory", "Bound by memory"), ("launch", "Bound by the launch")):
        assert f"{found.share(bound):.0%}" == fact(shown, title)
