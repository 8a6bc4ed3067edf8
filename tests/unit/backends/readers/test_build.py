"""A build as one file: written, read again, opened alone, and refused where it is damaged."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import lzma

import numpy as np
import pytest
from onnx import helper

import rtlab
from nets import graph_proto
from rtlab.backends import compiler_info
from rtlab.backends.readers import build, recognise
from rtlab.core.engine import Allocation, Engine, Layer, Tensor
from rtlab.core.model import load
from rtlab.core.trace import Profile
from rtlab.core.variant import Target, Variant
from rtlab.errors import ReadError
from rtlab.quantize import prepare

#: Where a build has its files.
PLACE = "/var/folders/rtlab-x/y/"
WHEN = datetime.datetime(2026, 11, 25, 13, 0, 1, tzinfo=datetime.timezone.utc)


def network() -> rtlab.Model:
    """A convolution and a ReLU, whose weights are 1000, 1001, ... and whose exporter left its traces."""
    weight = np.arange(1000, 1072, dtype=np.float32).reshape(2, 4, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", doc_string="File /home/someone/net.py, line 3"),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    proto = graph_proto(nodes, [("x", 1, [1, 4, 8, 8])], [("y", 1, [1, 2, 6, 6])], {"w": weight})
    proto.graph.doc_string = "/home/someone/net.onnx"
    proto.doc_string = "exported by someone"
    proto.metadata_props.add(key="path", value="/home/someone")
    proto.graph.node[0].metadata_props.add(key="pkg.torch.stack", value="/home/someone/net.py")
    return load(proto, name="net")


def engine() -> Engine:
    """One fused layer, with all that an engine may tell."""
    layer = Layer(
        "0:conv+relu", "conv+relu", "kgen", 0,
        inputs=(Tensor("x", "fp32", (1, 4, 8, 8), "Linear", (256, 64, 8, 1)),),
        outputs=(Tensor("y", "int8", (1, 2, -1, 6)),),
        constants=(Tensor("w", "fp32"),),
        tactic="0xabc", stream=2, event=4, origins=("conv", "relu"),
        attributes={"Groups": 1, "names": ["a", "b"], "deep": {"π": 0.5, "none": None}},
    )  # fmt: skip
    return Engine(
        "tensorrt-rtx", "1.7.1.116", Target("sm86"), (layer,), (Tensor("x"),), (Tensor("y"),),
        allocations=(Allocation("c", 288, 0, 1, None, "reported"),),
        totals={"activation": 1 << 40, "weights": 288},
        log=f"Input filename: {PLACE}model.onnx\nOriginal: 2 layers\nAfter fusions: 1 layers\nü",
        seconds=0.25, built=WHEN, notes=("a note",), plan=b"plan of megabytes", runnable=b"x",
        profiles=((("x", ((1, 4), (2, 4), (8, 4))),),), maker=compiler_info.TENSORRT_RTX,
    )  # fmt: skip


def profile() -> Profile:
    """Three runs of the layer, and of the whole with less."""
    return Profile(
        "trtexec on a card", "a card", {"0:conv+relu": np.array([0.25, 1 / 3, 1e-9])}, np.array([0.2, 0.3, 0.1]),
        warmup=2, taken=WHEN, note="with locked clocks", processor="GPU", runs=3,
    )  # fmt: skip


def saved(tmp_path, content: bytes | None = None, name: str = "build.json"):
    path = tmp_path / name
    path.write_bytes(build.encode(engine(), words="fp32", source=network()) if content is None else content)
    return path


def test_what_is_read_is_what_was_written(tmp_path):
    """All of it but the plan, which only its GPU can run, and the path of the machine that built it."""
    found = build.read(saved(tmp_path)).engine
    expected = dataclasses.replace(
        engine(), plan=None, runnable=None, recorded=True, notes=("built as fp32", "a note"),
        log=engine().log.replace(PLACE, ""),
    )  # fmt: skip
    assert expected == found


def test_times_are_read_as_they_were_written(tmp_path):
    path = saved(tmp_path, build.encode(engine(), profile=profile()))
    recording, expected = build.read(path).profile, profile()
    assert recording is not None
    for times in ("samples", "total"):
        np.testing.assert_equal(getattr(recording, times), getattr(expected, times))
    empty = {"samples": {}, "total": np.zeros(0)}
    assert repr(dataclasses.replace(expected, **empty)) == repr(dataclasses.replace(recording, **empty))
    assert build.read(saved(tmp_path)).profile is None


def test_a_study_hands_on_times_device_and_target(tmp_path, monkeypatch):
    """From the file alone; and only times of this very engine, not those of another one that stood in for it."""
    there = dataclasses.replace(engine(), device="a card", target=Target("unknown"), built=None)
    study = rtlab.read(saved(tmp_path, build.encode(there, source=network(), profile=profile())))
    again = rtlab.read(study.save_build("engine", tmp_path / "again.json"))["engine"]
    facts = study["engine"].facts
    assert (0.2, 3) == (again.timing.shown, again.timing.runs)
    assert ("a card", "unknown", None) == (again.engine.device, str(again.engine.target), again.engine.built)
    other = dataclasses.replace(facts, measured=dataclasses.replace(facts.engine))
    monkeypatch.setattr(type(study._holder), "result", lambda *_: other)
    assert build.read(study.save_build("engine", tmp_path / "other.json")).profile is None


def test_no_weight_and_no_path_leaves_the_house(tmp_path):
    path = saved(tmp_path, name="whatever.txt")
    graph = lzma.decompress(base64.b64decode(json.loads(path.read_text("utf-8"))["source"]["onnx"]))
    assert "build" == recognise.detect_kind(path)
    assert [False, False, True] == [x in graph for x in (np.float32(1001).tobytes(), b"someone", b"conv")]
    assert "tmp" not in path.read_text("utf-8")


@pytest.mark.parametrize("beside", [False, True])
def test_it_opens_alone_or_with_the_model_beside_it_and_is_linked(tmp_path, beside):
    (tmp_path / "net.onnx").write_bytes(network().bytes())
    study = rtlab.read(saved(tmp_path), *[tmp_path / "net.onnx"] * beside)
    result = study["engine"]
    assert ["Conv", "Relu"] == [n.op for n in study.model.top]
    assert [("0:conv+relu",)] * 2 == [result.mapping.layers(n) for n in ("conv", "relu")]
    assert (True, not beside) == (result.recorded, study.model.weightless)
    assert beside != any("weights is not here" in note for note in result.engine.notes)
    assert not any("not the one" in note for note in result.engine.notes)


def test_a_prepared_graph_goes_along_and_leads_back_to_the_source(tmp_path):
    source = network()
    ready = prepare(source, Variant.of("fp16"), None, None)
    path = saved(tmp_path, build.encode(engine(), source=source, graph=ready.model))
    result = rtlab.Study(source).read("theirs", path)
    assert len(ready.model.top) == len(result.prepared.model.top) > len(source.top)
    assert {"conv", "relu"} <= {p.node for p in result.mapping.pairs}


def test_a_file_that_is_cut_anywhere_is_refused_in_words(tmp_path):
    whole = saved(tmp_path).read_bytes()
    for end in range(1, len(whole) - 1, 97):
        with pytest.raises(ReadError, match=r"cut\.json"):
            rtlab.read(saved(tmp_path, whole[:end], "cut.json"))


def changed(**fields) -> bytes:
    return json.dumps({**json.loads(build.encode(engine(), source=network())), **fields}).encode()


def times(**fields) -> dict:
    return {"source": "s", "device": "", "processor": "GPU", "samples": {}} | fields


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed(rtlab_build=99), "its schema is 99"), (changed(target="sm1"), 'target "sm1" is none'),
        (changed(layers=[{"id": 3}]), "layers"),
        (changed(layers=json.loads(build.encode(engine()))["layers"] * 2), "two of its layers have one id"),
        (changed(maker={"tunes": "never"}), "tunes"), (changed(built="yesterday"), "built"),
        (changed(times=times(samples={"1:relu": [1]})), '"1:relu"'),
        (changed(times=times(total=[-1])), "negative"), (changed(times=times(processor="TPU")), "processor"),
        (changed(source={"name": "n", "shapes": {}, "onnx": "!"}), "its graph is damaged"),
        (changed(source={"name": "n", "shapes": {}, "onnx": ""}), "its graph is"),
        (b'{"rtlab_build": 1, "layers": ' + b"[" * 100_000, "build file"),
        (b'{"rtlab_build": 1}', "missing required field"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_what_is_damaged_is_refused_with_what_is_wrong(tmp_path, content, words):
    with pytest.raises(ReadError) as caught:
        rtlab.read(saved(tmp_path, content))
    assert 'build file "build.json": ' in str(caught.value)
    assert words in str(caught.value)


def test_a_graph_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_UNPACKED", 4 << 20)
    bomb = base64.b64encode(lzma.compress(bytes(64 << 20), preset=0)).decode()
    with pytest.raises(ReadError, match=r"cut or too large|graph is damaged"):
        rtlab.read(saved(tmp_path, changed(source={"name": "n", "shapes": {}, "onnx": bomb})))


def test_a_build_of_many_megabytes_is_read(tmp_path):
    path = saved(tmp_path)
    layers = len(build.read(path).engine.layers)
    path.write_bytes(path.read_bytes() + b" " * (6 << 20))
    assert layers == len(build.read(path).engine.layers)


def test_a_file_larger_than_any_build_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_LARGEST", 1000)
    with pytest.raises(ReadError, match="it has more than"):
        build.read(saved(tmp_path))


def test_it_is_all_of_an_engine(tmp_path):
    profile = tmp_path / "profile.json"
    profile.write_text('[{"count": 1}, {"name": "conv", "timeMs": 1, "averageMs": 1}]')
    with pytest.raises(ReadError, match="one engine has files of one of them"):
        rtlab.read(saved(tmp_path), profile)
