"""Reading what trtexec wrote: the engines of the corpus, each era of the schema, and damaged files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import engines
from rtlab.analyses.timing.times import summarize_profile
from rtlab.backends.readers.reading import Trtexec
from rtlab.core.engine import Engine
from rtlab.core.trace import Profile
from rtlab.errors import ReadError
from rtlab.relation.relate import relate


def read(files: dict[str, Path]) -> tuple[Engine, Profile | None]:
    found = Trtexec().read(files)
    return found.engine, found.profile


def written(folder: Path, **documents: object) -> dict[str, Path]:
    """Documents as files; bytes and text are written as they are."""
    paths = {}
    for kind, document in documents.items():
        paths[kind] = folder / f"{kind}.json"
        if isinstance(document, bytes):
            paths[kind].write_bytes(document)
        else:
            text = document if isinstance(document, str) else json.dumps(document)
            paths[kind].write_text(text, encoding="utf-8")
    return paths


def tensor(name: str, type_: str = "Row major linear FP32", **more: object) -> dict[str, object]:
    return {"Name": name, "Dimensions": [1, 8], "Format/Datatype": type_, **more}


def layer(name: str, reads: str, writes: str, **more: object) -> dict[str, object]:
    return {"Name": name, "LayerType": "X", "Inputs": [tensor(reads)], "Outputs": [tensor(writes)], **more}


TWO = {"Layers": [layer("a + b", "x", "t"), layer("c", "t", "y")], "Bindings": ["x", "y"]}
ROWS = [
    {"count": 7},
    {"name": "a + b", "averageMs": 1.5, "medianMs": 1.0},
    {"name": "c", "averageMs": 3, "medianMs": 2},
]


@engines.each
def test_every_layer_and_time_of_a_file_is_read(folder) -> None:
    """Against the raw JSON: names in order, types, the sum of the times, and the median of the latencies."""
    paths = engines.files(folder)
    raw = {k: json.loads(p.read_text(encoding="utf-8"), strict=False) for k, p in paths.items()}
    engine, profile = read(paths)
    # Without detailed verbosity an entry is the name itself.
    names_only = folder.name in engines.NAMES_ONLY
    names = [e if names_only else e["Name"] for e in raw["layers"]["Layers"]]
    assert names == [y.name for y in engine.layers]
    assert names_only or set(raw["layers"]["Bindings"]) == {t.name for t in (*engine.inputs, *engine.outputs)}
    assert all(t.dtype for y in engine.layers for t in (*y.inputs, *y.outputs))
    times = summarize_profile(profile, engine)
    assert pytest.approx(sum(r["medianMs"] for r in raw["profile"][1:])) == times.summed
    assert ("GPU", {None}) == (times.processor, {t.spread for t in times.layers})
    assert names_only == bool(engine.notes)
    if not names_only:
        assert engine.device in times.source
        _, summary = read({k: p for k, p in paths.items() if k != "times"})
        assert float(summary.total[0]) == pytest.approx(float(np.median(profile.total)), rel=0.02)


@pytest.mark.parametrize(
    ("folder", "nodes"), [(engines.MOBILE, 101), (engines.RESIDUAL, 44)], ids=["mobile", "residual"]
)
@pytest.mark.parametrize(
    "lost", [(), ("origins",), ("origins", "inputs", "outputs", "kind")], ids=["labels", "8.2", "names only"]
)
def test_labels_are_nodes_and_engines_without_them_map_to_the_same(folder, nodes: int, lost) -> None:
    """Labels are ONNX names: the oracle for what older files leave to tensors and names."""
    model = engines.structure(folder)
    engine, _ = engines.read(folder)
    mapping = relate(model, model, engine)
    declared = {p.node for p in mapping.pairs if p.evidence == "declared"}
    assert {o for y in engine.layers for o in y.origins} == declared
    assert nodes == len({p.node for p in mapping.pairs})
    assert {"folded", "view"} == {m.reason for m in mapping.missing}
    blank = {"origins": (), "inputs": (), "outputs": (), "kind": ""}
    old = tuple(dataclasses.replace(y, **{k: blank[k] for k in lost}) for y in engine.layers)
    found = relate(model, model, dataclasses.replace(engine, layers=old))
    assert {(p.node, p.layer) for p in mapping.pairs} == {(p.node, p.layer) for p in found.pairs}


def test_type_and_format_are_told_apart_in_every_era(tmp_path) -> None:
    """8.x hides the type in a sentence, Myelin writes it bare, 11 gives it a key."""
    reads = [
        tensor("a", "Thirty-two wide channel vectorized row major Int8 format", Location="Device"),
        tensor("b", "Half"),
        tensor("c", "N/A due to dynamic shapes"),
        {
            "Name": "d",
            "Dimensions": [-1, 4],
            "Datatype": "BFloat16",
            "Format": "Row major linear",
            "Strides": [4, 1],
        },
        {"Name": "e", "Dimensions": [2], "DataType": "FP8", "Format": "Row major linear"},
    ]
    engine, profile = read(written(tmp_path, layers={"Layers": [{"Name": "n", "Inputs": reads}]}))
    assert profile is None
    found = engine.layers[0].inputs
    assert ["int8", "fp16", "", "bf16", "fp8"] == [t.dtype for t in found]
    assert [True, False, True, True, True] == [bool(t.format) for t in found]
    assert ((-1, 4), (4, 1)) == (found[3].shape, found[3].strides)


def test_labels_are_split_at_control_characters_that_stand_in_the_file_as_they_are(tmp_path) -> None:
    """The writer does not escape them, so strict JSON readers fail on real files."""
    text = '{"Layers": [{"Name": "k", "Metadata": "[ONNX Layer: a]\x1e[ONNX Layer: b]\x1f[ONNX Layer: c]"}]}'
    engine, _ = read(written(tmp_path, layers=text))
    assert ("a", "b", "c") == engine.layers[0].origins


def test_inputs_and_outputs_of_eleven_are_read(tmp_path) -> None:
    io = [{"Name": "x", "IOMode": "Input", "DataType": "Float", "Dimensions": [1]},
          {"Name": "y", "IOMode": "Output", "DataType": "Half", "Dimensions": [2]}]  # fmt: skip
    engine, _ = read(written(tmp_path, layers={"Layers": [{"Name": "n"}], "I/O Tensors": io}))
    assert ("x", "fp32", "y", "fp16") == (
        engine.inputs[0].name, engine.inputs[0].dtype, engine.outputs[0].name, engine.outputs[0].dtype,
    )  # fmt: skip


def test_a_row_that_names_no_layer_is_reported_and_its_layer_has_no_time(tmp_path) -> None:
    rows = [*ROWS[:2], {"name": "renamed", "averageMs": 3, "medianMs": 2}]
    engine, profile = read(written(tmp_path, layers=TWO, profile=rows))
    assert {"0:a + b"} == set(profile.samples)
    assert any('"renamed"' in n and "2 ms" in n for n in engine.notes)
    assert any('"c"' in n and "no time" in n for n in engine.notes)


def test_the_order_of_rows_does_not_matter_and_equal_names_add_up(tmp_path) -> None:
    rows = [ROWS[2], ROWS[0], ROWS[1], ROWS[2]]
    _, profile = read(written(tmp_path, layers=TWO, profile=rows))
    assert {"0:a + b": 1.0, "1:c": 4.0} == {i: float(s[0]) for i, s in profile.samples.items()}
    assert 7 == profile.runs


def test_the_latency_of_metadata_is_the_median_and_the_target_that_of_its_device(tmp_path) -> None:
    device = {"Selected Device": "Invented GPU", "Compute Capability": 8.9}
    told = {"performance_summary": {"GPU Compute Time": [1, 9, 4, 3, 8]}, "device_information": device}
    engine, profile = read(written(tmp_path, layers=TWO, metadata=told))
    assert ([3.0], "Invented GPU", "sm89") == ([*profile.total], engine.device, str(engine.target))


@pytest.mark.parametrize(
    ("kind", "content", "told"),
    [
        ("layers", '{"Layers": [{"Name": "a", "Inp', "not whole JSON"),
        ("layers", b"\xff\xfe\x00\xd8", "byte 2: it is not text"),
        ("layers", "7", "it holds 7"),
        ("layers", "[" * 100_000, "not whole JSON"),
        ("layers", {"Bindings": []}, 'keys "Bindings"'),
        ("layers", {"Layers": [{"LayerType": "X"}]}, "layer 0"),
        ("profile", '[{"name": "c", "averageMs": NaN}]', 'row "c" has no time'),
        ("profile", {"count": 1}, "a list of rows"),
        ("times", [{"latencyMs": 1}], '"computeMs"'),
        ("metadata", [], "no object"),
    ],
)
def test_damaged_files_are_refused_with_the_next_step(tmp_path, kind, content, told) -> None:
    given = written(tmp_path, **{"layers": TWO, "profile": ROWS, kind: content})
    with pytest.raises(ReadError) as refused:
        Trtexec().read(given)
    message = str(refused.value)
    assert message.startswith(f"Cannot read {kind}") or kind == "layers", message
    assert told in message
    assert any(word in message for word in ("Export it again", "Leave it out"))
