"""Payloads and scripts as messages: announced, sent when they change and when asked for, never in synced state."""

from __future__ import annotations

import gzip
import json
import threading

import pytest

from rtlab import CalibrationData, Study
from rtlab.documents.serialization import decode
from rtlab.testing import tiny_model
from rtlab.web.explorer import widget as transport
from rtlab.web.explorer.widget import DeliveredWidget

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def study():
    model = tiny_model()
    made = Study(model, data=CalibrationData.random(model, samples=4))
    made.add("fp32", target="cpu")
    made.add("fp16", target="cpu")
    return made.run()


def listen(widget, monkeypatch) -> list[tuple[dict, list]]:
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append((content, buffers)))
    return sent


def ask(widget, name: str) -> None:
    widget._handle_custom_msg({"type": "fetch", "name": name}, [])


@pytest.mark.parametrize("make", ["explore", "graph"])
def test_synced_state_holds_no_payload_and_no_script(study, make: str) -> None:
    widget = study.explore() if make == "explore" else study.graph("fp32")
    state = widget.get_state()
    assert set() == {"source", "engine", "other", "charts"} & set(state)
    assert [] == [n for n, v in state.items() if isinstance(v, bytes)]
    # What can be chosen, and what was measured where, grow with the machine and with no model.
    own = {name: value for name, value in state.items() if name not in {"controls", "chips", "status"}}
    assert len(json.dumps(own, default=str)) < 6_000


def test_what_is_announced_comes_when_it_is_asked_for(study, monkeypatch) -> None:
    widget = study.explore()
    sent = listen(widget, monkeypatch)
    asked = [name for name, tag in widget.parcels.items() if tag]
    expected = "core.js explorer.js source engine charts engine_answer findings_answer terms"
    assert set(expected.split()) == set(asked)
    for name in asked:
        ask(widget, name)
    found = {c["name"]: (c, b) for c, b in sent}
    assert {(n, widget.parcels[n]) for n in asked} == {(c["name"], c["digest"]) for c, _ in sent}
    assert widget.source == found["source"][1][0]
    assert b"module.exports" in gzip.decompress(found["explorer.js"][1][0])
    assert widget.charts == found["charts"][0]["content"]


def test_a_new_engine_is_sent_before_it_is_announced(study, monkeypatch) -> None:
    widget = study.explore()
    sent = listen(widget, monkeypatch)
    before = widget.parcels["engine"]
    told = []
    widget.observe(lambda _: told.append(len(sent)), "parcels")
    widget.show("fp16")
    engines = [(c, b) for c, b in sent if c.get("name") == "engine"]
    assert 1 == len(engines)
    assert "fp16" == decode(engines[0][1][0])["variant"]
    assert before != widget.parcels["engine"]
    assert 1 <= told[0]


def test_a_page_can_work_before_the_cell_has_ended(study, monkeypatch) -> None:
    """It listens from when the widget is made: it loads the script and lays out the model while the kernel goes on."""
    sent = []
    monkeypatch.setattr(DeliveredWidget, "send", lambda self, content, buffers=None: sent.append(content))
    monkeypatch.setattr(transport, "_sent", set())
    widget = study.explore()
    names = [content["name"] for content in sent]
    assert ["core.js", "explorer.js", "source"] == names[:3]
    announced = {(name, tag) for name, tag in widget.parcels.items() if tag}
    assert announced <= {(content["name"], content["digest"]) for content in sent}
    # A page that has the script keeps it.
    sent.clear()
    study.explore()
    assert set() == {"core.js", "explorer.js"} & {content["name"] for content in sent}


def test_what_is_empty_or_unknown_is_not_sent(study, monkeypatch) -> None:
    widget = study.explore()
    sent = listen(widget, monkeypatch)
    for name in ("other", "nonsense", "study", "_code", "loader.js", "tab-../loader.js"):
        ask(widget, name)
    assert [] == sent
    widget.compare("fp16")
    widget.compare(None)
    assert "" == widget.parcels["other"]


def test_the_last_of_two_threads_parcels_is_the_one_announced(study, monkeypatch) -> None:
    """A build's thread and a command set traits at once; a page that kept the older one would show it for good."""
    widget = study.graph("fp32")
    sent = listen(widget, monkeypatch)

    def put(part: int) -> None:
        for i in range(50):
            widget.engine = f"{part} {i}".encode()
            ask(widget, "engine")

    threads = [threading.Thread(target=put, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ("engine", widget.parcels["engine"]) == (sent[-1][0]["name"], sent[-1][0]["digest"])
    assert widget.engine == sent[-1][1][0]


def test_code_of_tabs_is_sent_when_it_is_asked_for_and_to_the_explorer_alone(study, monkeypatch) -> None:
    explorer, graph = study.explore(), study.graph("fp32")
    assert explorer.parcels["core.js"] == explorer.parcels["explorer.js"] == graph.parcels["graph.js"]
    assert [] == [name for name in explorer.parcels if name.startswith("tab-")]
    sent = listen(explorer, monkeypatch)
    ask(explorer, "tab-table.js")
    assert ("tab-table.js", explorer.parcels["core.js"]) == (sent[0][0]["name"], sent[0][0]["digest"])
    assert b"module.exports" in gzip.decompress(sent[0][1][0])
    sent = listen(graph, monkeypatch)
    ask(graph, "tab-table.js")
    assert [] == sent


@pytest.mark.parametrize("heard", [False, True])
def test_code_of_tabs_follows_a_display_without_being_asked_for(study, monkeypatch, heard: bool) -> None:
    """The kernel may run the next cell by the time that a page would ask; what it asked for is not sent again."""
    monkeypatch.setattr(transport, "_UNASKED", (0.0,))
    monkeypatch.setattr(transport, "_SOON", 0.0)
    widget = study.explore()
    sent = listen(widget, monkeypatch)
    if heard:
        ask(widget, "tab-table.js")
        sent.clear()
    widget._deliver_unasked()
    names = [content["name"] for content, _ in sent]
    tabs = [name for name in names if name.startswith("tab-")]
    assert tabs == names[-len(tabs) :]
    assert heard == ("tab-table.js" not in tabs)
    assert {"tab-analysis.js", "tab-build.js", "tab-calibration.js"} <= set(tabs)
    assert heard == ("core.js" not in names)


def test_a_graph_carries_two_variants_beside_the_model_and_what_joins_them(study) -> None:
    graph = study.graph("fp32", "fp16")
    nodes = [b["id"] for b in decode(graph.source)["boxes"] if b["kind"] == "node"]
    assert [n.id for n in study.model.top] == nodes
    layers = [b for b in decode(graph.engine)["graph"]["boxes"] if b["kind"] == "layer"]
    assert len(study["fp32"].engine.layers) == len(layers)
    assert ("fp32", "fp16") == (decode(graph.engine)["variant"], decode(graph.other)["variant"])
    graph.select("stem/Relu")
    assert study["fp32"].mapping.layers("stem/Relu") == graph.state.layers
    assert study["fp16"].mapping.layers("stem/Relu") == graph.state.others
    assert ("node", "layer", "other") == graph.state.panes
    assert b"" == study.graph("fp32").other


def test_a_question_about_what_is_gone_is_never_answered(study, monkeypatch) -> None:
    """Another model may have a node of the same name; the old one's weights would stand beside it."""
    begun, gate = threading.Event(), threading.Event()

    def weights(self, place: str) -> tuple[()]:
        begun.set()
        assert gate.wait(60)
        return ()

    monkeypatch.setattr("rtlab.study.calibration.StudyCalibration.weights", weights)
    monkeypatch.setattr("rtlab.study.calibration.StudyCalibration.activations", lambda *_, **__: ())
    explorer = study.explore()
    view, threads = explorer._view_sync, []
    for place in ("stem/Conv", "head/Gemm"):
        view.inspect(place)
        threads.append(view.inspection_thread)
        assert begun.wait(60)
    view.stop_inspection()
    view.inspect("stem/Relu")
    gate.set()
    for thread in (*threads, view.inspection_thread):
        thread.join(60)
    assert ("stem/Relu", ()) == (explorer.inspection["node"], tuple(explorer.inspection["tensors"]))
