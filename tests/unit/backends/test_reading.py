"""Reading engines from files: which files go together, what each era of TensorRT wrote, and damaged files."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from polygraphy.comparator import IterationResult, RunResults

import engines
from rtlab.analyses.engine import by_kind
from rtlab.analyses.timing.times import summarize_profile
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.backends.readers import contents, measured, reading, recognise
from rtlab.core.engine import Layer
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import ReadError
from rtlab.testing import tiny_model

#: Of those of one network and nearly one list of names one; the others are of networks of their own.
PROFILED = [engines.FOLDER / "written-fp16", engines.RESIDUAL, engines.MOBILE]


def put(folder: Path, name: str, content: bytes | str | object) -> Path:
    path = folder / name
    if not isinstance(content, (bytes, str)):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def layer(name: str, reads: str = "x", writes: str = "y", **more: object) -> dict[str, object]:
    return {"Name": name, "Inputs": [tensor(reads)], "Outputs": [tensor(writes)], **more}


def tensor(name: str, **more: object) -> dict[str, object]:
    return {"Name": name, "Dimensions": [1, 8], "Format/Datatype": "Row major linear FP32", **more}


TWO = {"Layers": [layer("a", "x", "t"), layer("b", "t", "y")], "Bindings": ["x", "y"]}


def refusal(files: dict[str, Path], **more: int) -> str:
    with pytest.raises(ReadError) as refused:
        reading.read(files, **more)
    return str(refused.value)


@engines.of(PROFILED)
def test_a_profile_joins_its_own_engine_and_no_engine_of_another_network_or_type(folder) -> None:
    """All pairs of engines: only a profile whose names are a part of the engine's passes for its own."""
    own = json.loads((folder / "engine.profile.json").read_text(encoding="utf-8"), strict=False)
    mine = {r["name"] for r in own if "name" in r}
    for other in PROFILED:
        files = {"layers": other / "engine.graph.json", "profile": folder / "engine.profile.json"}
        raw = json.loads(files["layers"].read_text(encoding="utf-8"), strict=False)
        theirs = {y["Name"] for y in raw["Layers"]}
        if mine <= theirs or theirs <= mine:
            found = reading.read(files)
            assert len(mine & theirs) == len({i.partition(":")[2] for i in found.profile.samples})
        else:
            refusal(files)


def inspector_rows(document: dict[str, list[dict[str, object]]]) -> list[str]:
    """The inspector's JSON in the grammar of its text."""

    def printed(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))

    def row(entry: dict[str, object]) -> str:
        fields = []
        for key, value in entry.items():
            if key in {"Inputs", "Outputs"}:
                parts = [", ".join(f"{k}: {printed(v)}" for k, v in t.items()) for t in value]
                inner = ", ".join(f"{{ {part} }}" for part in parts)
                fields.append(f"{key}: [{' ' + inner if inner else ''}]")
            else:
                fields.append(f"{key}: {printed(value)}")
        return ", ".join(fields)

    return [row(entry) for entry in document["Layers"]]


def same(ours: Layer, theirs: Layer) -> bool:
    """Whether two layers tell the same. Text has no quotes: a list in quotes looks like a list there."""
    unquoted = {k: v for k, v in ours.attributes.items() if not str(v).startswith("[")}
    return (
        ours == dataclasses.replace(theirs, attributes=ours.attributes)
        and list(ours.attributes) == list(theirs.attributes)
        and unquoted == {k: theirs.attributes[k] for k in unquoted}
    )


BOUND = (
    "[11/01/2024-10:33:01] [I] Input binding for {} with dimensions 1x3x224x224 is created.\n"
    "[11/01/2024-10:33:01] [I] Output binding for {} with dimensions 1x1000 is created.\n"
)


@engines.of([engines.RESIDUAL, engines.MOBILE])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"], ids=["lines", "windows", "blank"])
def test_a_log_lists_layers_in_the_inspector_s_words(tmp_path, folder, end) -> None:
    """TensorRT up to 10 with detailed verbosity, and trtexec --dumpLayerInfo.

    Of these rows, only those of Myelin's layers have the words of TensorRT-RTX: they alone must not become the engine.
    """
    document = json.loads((folder / "engine.graph.json").read_text(encoding="utf-8"), strict=False)
    rows = inspector_rows(document)
    names = document["Bindings"]
    head = "[11/01/2024-10:32:57] [I] [TRT] Engine generation completed in 8.6 seconds.\n" + BOUND.format(
        *names
    )
    listing = "[11/01/2024-10:33:01] [I] Layers:\n" + "\n".join([*rows, "", "Bindings:", *names, ""])
    steps = "[V] [TRT] Engine Layer Information:\n" + "".join(
        f"Layer(X): {y['Name']}, Tactic: 0x0, x (Half[1,3]) -> y (Half[1,3])\n" for y in document["Layers"]
    )
    expected = reading.read({"layers": folder / "engine.graph.json"}).engine
    after = "[11/01/2024-10:33:09] [I] === Performance summary ===\n"
    for text in (head + listing + after, head + steps + listing + after, head + listing + listing + after):
        path = put(tmp_path, "build.log", text.replace("\n", end))
        found = reading.read({"log": path, "profile": folder / "engine.profile.json"})
        assert len(expected.layers) == len(found.engine.layers)
        assert all(map(same, expected.layers, found.engine.layers))
        assert [t.name for t in expected.inputs] == [t.name for t in found.engine.inputs]
        assert [t.name for t in expected.outputs] == [t.name for t in found.engine.outputs]
        assert () == found.log.notes
        assert set(found.profile.samples) == {y.id for y in expected.layers}
    # What trtexec repeats is cut off: the builder's listing before it is whole.
    cut = put(tmp_path, "cut.log", head + listing + listing[: len(listing) // 2])
    assert all(map(same, expected.layers, reading.read({"log": cut}).engine.layers))
    # Nothing is lost without a word.
    part = reading.read({"log": put(tmp_path, "part.log", head + listing[: len(listing) // 2])}).engine
    assert any("within the listing of layers" in n for n in part.notes)
    assert len(part.layers) < len(expected.layers)
    damaged = listing.replace("Dimensions: [", "Dimensions: ", 1)
    told = reading.read({"log": put(tmp_path, "damaged.log", head + damaged)}).engine
    assert "Line 5 of the listing of layers could not be read." in told.notes
    kept = put(tmp_path, "kept.log", head + steps + listing[: len(listing) // 2])
    assert [y.name for y in expected.layers] == [y.name for y in reading.read({"log": kept}).engine.layers]


def test_text_with_two_profiles_gives_either_without_mixing(tmp_path) -> None:
    """Myelin's layers bear no profile of their own but their graph's number; the lines are all layers twice."""
    document = json.loads(engines.files(engines.MOBILE)["layers"].read_text(encoding="utf-8"))
    again = []
    for entry in document["Layers"]:
        text = json.dumps(entry).replace("_myl7", "_myl9")
        other = json.loads(text)
        for value in (*other["Inputs"], *other["Outputs"], *([] if "_myl9_" in other["Name"] else [other])):
            value["Name"] += "" if value["Name"].startswith("__my") else " [profile 1]"
        again.append(other)
    rows = inspector_rows({"Layers": [*document["Layers"], *again]})
    rows += ["", "Bindings:", *document["Bindings"], *(f"{n} [profile 1]" for n in document["Bindings"]), ""]
    text = "\n".join(["Engine information (txt format):", "Layers:", *rows])
    files = {"layers": put(tmp_path, "info.log", text)}
    first, second = (reading.read(files, select=i).engine for i in (0, 1))
    assert [59, 59] == [len(first.layers), len(second.layers)]
    assert [(y.kind, y.origins) for y in first.layers] == [(y.kind, y.origins) for y in second.layers]
    graphs = [{y.name.split("_")[-2] for y in e.layers if "_myl" in y.name} for e in (first, second)]
    assert [{"myl7"}, {"myl9"}] == graphs
    assert first.layers == reading.read(files).engine.layers
    assert "2 optimization profiles" in first.notes[0]
    assert "has profiles 0, 1. Choose" in refusal(files, select=2)


def test_a_printed_table_of_times_gives_one_sample_for_each_inference(tmp_path) -> None:
    times = {"a + b": (3.5, 4.0, 3.0), "c": (1.0, 2.0, 0.0)}
    rows = [f"Timing: {times[n][i]:8.3f}us -> {n}" for i in range(3) for n in times]
    table = put(tmp_path, "profiler.log", "\n".join(["Input ->DataType.FLOAT, (1, 8), x", *rows, ""]))
    found = reading.read({"layers": put(tmp_path, "l.json", [*times]), "profile": table})
    assert {f"{i}:{n}": [v / 1e3 for v in t] for i, (n, t) in enumerate(times.items())} == {
        k: pytest.approx(list(v)) for k, v in found.profile.samples.items()
    }
    assert 3 == found.profile.runs


def test_a_log_alone_gives_the_layers_that_it_lists_or_says_that_it_lists_none() -> None:
    new = reading.read({"log": LISTING})
    assert len(new.engine.layers) == LISTING.read_text(encoding="utf-8").count("\nName:")
    log = PASTED / "python-build-trt7.log"
    old = reading.read({"log": log})
    assert (9, ()) == (old.log.attempts[-1].counts[0], old.engine.layers)
    assert "reads no layers of the engine" in old.engine.notes[0]
    assert reading.read({"log": log, "times": engines.files("written-fp16")["times"]}).profile.total.size


#: What a builder lists at the end of a verbose log: layers "a" and "b".
LISTED = (
    "Engine Layer Information:\nLayer(Conv): a, Tactic: 0x1, x[Float(1,8)] -> t[Float(1,8)]\n"
    "Layer(Conv): b, Tactic: 0x1, t[Float(1,8)] -> y[Float(1,8)]\n"
)


CORPUS = Path(__file__).parents[2] / "corpus"
PASTED = CORPUS / "pasted"
RUN, PRINTED = PASTED / "load-engine.log", PASTED / "profile-table.log"
LISTING = PASTED.parent / "builds" / "control_flow-fp16-sm86.log"


def columns(path: Path) -> list[tuple[list[float], str]]:
    """The rows of a table of trtexec 10, cut at its columns: four numbers and a name."""
    found = re.findall(r"\[I\] ((?: +[\d.]+){4})   (.+)", path.read_text(encoding="utf-8"))
    return [([float(v) for v in numbers.split()], name) for numbers, name in found]


def test_a_table_that_trtexec_prints_is_a_profile(tmp_path) -> None:
    *rows, (total, last) = columns(PRINTED)
    assert (4, "Total") == (len(rows), last)
    layers = put(tmp_path, "l.json", [name for _, name in rows])
    text = PRINTED.read_text(encoding="utf-8")
    # Of two tables in one log the last counts.
    twice = text.replace("500 iterations", "9 iterations").replace("0.0", "0.1") + text
    for content, cut in ((text, False), (twice, False), (text.partition("   Total")[0], True)):
        profile = put(tmp_path, "table.log", content)
        found = reading.read({"layers": layers, "profile": profile})
        assert [[numbers[2]] for numbers, _ in rows] == [list(v) for v in found.profile.samples.values()]
        summed = sum(v[0] for v in found.profile.samples.values())
        assert (500, total[2]) == (found.profile.runs, pytest.approx(summed))
        assert cut == any("before its total" in n for n in found.engine.notes)


@pytest.mark.parametrize(
    ("median", "expected", "end"), [("", [0.5, 0.25], "\n"), ("Median Time (ms)   ", [0.4, 0.2], "\r\n")]
)
def test_tables_of_older_releases_name_the_layer_first(tmp_path, median, expected, end) -> None:
    rows = [("conv 1 + relu 2", "50.00", "0.5000", "0.4000", "66.7"), ("(Unnamed Layer* 3) [Shuffle]", "25.00",
            "0.2500", "0.2000", "33.3"), ("Total", "75.00", "0.7500", "0.6000", "100.0")]  # fmt: skip
    at = "[01/02/2022-03:04:05] [I] "
    columns = f"Layer   Time (ms)   Avg. Time (ms)   {median}Time %"
    table = [f"{at}=== Profile (100 iterations ) ===", at + columns]
    for name, time, mean, middle, share in rows:
        table.append(at + "  " + "   ".join([name, time, mean, *([middle] if median else []), share]))
    layers = put(tmp_path, "l.json", [r[0] for r in rows[:-1]])
    profile = put(tmp_path, "p.log", end.join([*table, at]))
    found = reading.read({"layers": layers, "profile": profile})
    assert expected == [v[0] for v in found.profile.samples.values()]
    assert 100 == found.profile.runs
    assert bool(median) != ("means" in found.profile.note)


def test_the_log_of_a_run_beside_layers_tells_the_machine_and_the_latency(tmp_path) -> None:
    names = [name for _, name in columns(PRINTED)[:-1]]
    layers = put(tmp_path, "l.json", names)
    found = reading.read({"layers": layers, "log": RUN})
    engine = found.engine
    assert ("8.6.1", "Invented GPU", "sm86") == (engine.version, engine.device, str(engine.target))
    assert ([0.0805], None) == (list(found.profile.total), found.log)
    # A table within such a log is the profile.
    both = put(tmp_path, "both.log", RUN.read_bytes() + PRINTED.read_bytes())
    timed = reading.read({"layers": layers, "log": both})
    assert timed.profile.samples == reading.read({"layers": layers, "profile": PRINTED}).profile.samples
    # What was exported says more than what was printed.
    exported = put(tmp_path, "p.json", [{"name": n, "averageMs": 1.0} for n in names])
    sorted_ = recognise.sort_by_kind([both, exported, layers])
    assert {"log": both, "profile": exported, "layers": layers} == sorted_
    assert {1.0} == {v[0] for v in reading.read(sorted_).profile.samples.values()}


def test_names_alone_join_their_profile_and_tell_their_copies(tmp_path) -> None:
    """The sums are those of the raw rows: of 10 names, three copies of 1, 2 and 3 µs beside seven layers of 10."""
    copies = [f"Reformatting CopyNode for Input Tensor 0 to c{i}" for i in range(3)]
    names = [*copies, *(f"c{i}" for i in range(7))]
    rows = [{"name": n, "averageMs": (i + 1 if i < 3 else 10) / 1e3} for i, n in enumerate(names)]
    files = {"layers": put(tmp_path, "l.json", {"Layers": names}), "profile": put(tmp_path, "p.json", rows)}
    found = reading.read(files)
    times = summarize_profile(found.profile, found.engine)
    assert 0.076 == pytest.approx(times.summed)
    (copied,) = (s for s in by_kind(found.engine, times) if s.name == "reformat (by its name)")
    assert (0.006, 3) == (pytest.approx(copied.milliseconds), len(copied.layers))


def test_the_profile_of_layers_that_was_timed_is_shown(tmp_path) -> None:
    """With --useProfile=1 the second profile is timed; the times of the first are nowhere."""
    # Myelin's layer comes first in its profile, so that only its tensor tells which it is of.
    names = {"c": "x", "__myl_Re_myl1_2": "x", "__myl_Re_myl4_2": "x [profile 1]", "c [profile 1]": "x"}
    both = [layer(*n) for n in names.items()]
    rows = [{"name": "c [profile 1]", "averageMs": 2.0}, {"name": "__myl_Re_myl4_2", "averageMs": 3.0}]
    files = {"layers": put(tmp_path, "l", {"Layers": both}), "profile": put(tmp_path, "p", rows)}
    found = reading.read(files)
    assert ["__myl_Re_myl4_2", "c"] == [y.name for y in found.engine.layers]
    samples = {k: list(v) for k, v in found.profile.samples.items()}
    assert {"0:__myl_Re_myl4_2": [3.0], "1:c": [2.0]} == samples
    assert 'Only there: "__myl_Re_myl4_2"' in refusal(files, select=0)


def test_myelin_layers_without_tensors_follow_their_graph(tmp_path) -> None:
    both = [layer("c"), "__mye_1_myl9_0", layer("fc [profile 1]_myl9_1")]
    found = reading.read({"layers": put(tmp_path, "l", {"Layers": both})}, select=1)
    assert ["__mye_1_myl9_0", "fc_myl9_1"] == [y.name for y in found.engine.layers]


def test_bounds_of_inputs_are_kept_by_profile(tmp_path) -> None:
    info = [{"MinShape": [1, 4], "OptShape": [2, 4], "MaxShape": [8, 4]}, {"MinShape": [1, 4], "OptShape": [1, 4],
            "MaxShape": [1, 4]}]  # fmt: skip
    io = [{"Name": "x", "IOMode": "Input", "Dimensions": [-1, 4], "ProfileInfo": info}]
    found = reading.read({"layers": put(tmp_path, "l", {"Layers": ["n"], "I/O Tensors": io})}).engine
    expected = ((("x", ((1, 4), (2, 4), (8, 4))),), (("x", ((1, 4), (1, 4), (1, 4))),))
    assert expected == found.profiles


def test_constants_and_strides_of_eleven_are_kept(tmp_path) -> None:
    entry = layer("n", Constants=[tensor("w", Strides=[8, 1])], Unknown={"kept": 1})
    found = reading.read({"layers": put(tmp_path, "l", {"Layers": [entry]})}).engine.layers[0]
    assert [("w", (8, 1))] == [(t.name, t.strides) for t in found.constants]
    assert {"Unknown": {"kept": 1}} == found.attributes


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_the_encoding_and_line_ends_of_windows_do_not_matter(tmp_path, code) -> None:
    text = json.dumps(TWO, indent=1)
    plain = reading.read({"layers": put(tmp_path, "a", text)})
    assert plain == reading.read({"layers": put(tmp_path, "b", text.replace("\n", "\r\n").encode(code))})


def test_lines_of_a_log_around_the_json_are_passed_over_and_told(tmp_path) -> None:
    before = '[07/07/2026-06:09:15] [TRT] [W] "words"\n[{"k": 1, "k": 2}\n'
    after = "\n[07/07/2026-06:09:16] [I] done\n&&&& PASSED TensorRT.trtexec\n"
    content = before + json.dumps(TWO, indent=1) + after
    found = reading.read({"layers": put(tmp_path, "l.json", content)}).engine
    assert ["a", "b"] == [y.name for y in found.layers]
    assert [2, 2] == [int(n[0]) for n in found.notes]
    assert ["before", "after"] == [n.split()[2] for n in found.notes]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"Layers": [\n{"Name": "a"},\n{"Name": "b', "line 3, column 12: it is not whole JSON but cut off there"),
        ('{"Layers": [\n{"Name" "a"}]}', "line 2, column 9: it is not whole JSON"),
        # A column counts the blanks before it.
        ('{\n    "Layers" ["a"]\n}', "line 2, column 14: it is not whole JSON"),
        ('{"Layers": ["a"]}\n{"Layers": ["b"]}', "line 2, column 1: it is not whole JSON but has a second JSON"),
        ('{"Layers": ["a"]}, "more"]', "line 1, column 18"),
        ('{"Layers": ' + "[" * 100_000, "line 1, column 1: it is not whole JSON that can be read, it nests too deep"),
        ('{"Layers": [' + "9" * 5000 + "]}", "line 1, column 1:"),
        ('{"Layers": []}', "profiling verbosity NONE"),
        ('{"Layers": ["a", {"Name": "b", "Inputs": [{}]}]}', 'layer 1 has no names of tensors under the key "Inputs"'),
        ('{"Layers": ["a", 3]}', "layer 1 has no name"),
        (b'{"Layers": ["\xff"]}', "byte 13: it is not text"),
    ],
)  # fmt: skip
def test_damage_is_told_with_its_place(tmp_path, content, told) -> None:
    message = refusal({"layers": put(tmp_path, "l.json", content)})
    assert message.startswith('Cannot read layers file "l.json": ')
    assert told in message
    assert "trtexec" in message


def test_numbers_in_quotes_are_numbers_and_truth_values_are_not(tmp_path) -> None:
    """A spreadsheet quotes numbers. A true is 1 to Python, but not a size or a time; 10^20 fits no tensor."""
    sizes = {"p": ["3", 4.0], "q": [True, 4], "r": [10**20]}
    entries = [{"Name": "n", "Inputs": [tensor(n, Dimensions=d) for n, d in sizes.items()]}]
    rows = [{"name": "n", "averageMs": "0.5"}]
    files = {"layers": put(tmp_path, "l", {"Layers": entries}), "profile": put(tmp_path, "p", rows)}
    found = reading.read(files)
    assert [(3, 4), None, None] == [t.shape for t in found.engine.layers[0].inputs]
    assert [0.5] == list(found.profile.samples["0:n"])
    put(tmp_path, "p", [{"name": "n", "averageMs": True}])
    assert 'row "n" has no time (row 0, key "averageMs": true)' in refusal(files)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "1e999"])
def test_a_time_that_is_none_is_refused_with_its_row(tmp_path, value) -> None:
    files = {"layers": put(tmp_path, "l", TWO), "profile": tmp_path / "p", "times": tmp_path / "t"}
    put(
        tmp_path,
        "p",
        f'[{{"count": 2}}, {{"name": "a", "medianMs": 1}}, {{"name": "b", "medianMs": {value}}}]',
    )
    put(tmp_path, "t", [{"computeMs": 1}])
    assert 'row "b" has no time (row 2' in refusal(files)
    put(tmp_path, "p", [{"name": "a", "medianMs": 1}])
    put(tmp_path, "t", f'[{{"computeMs": 1}}, {{"computeMs": {value}}}]')
    assert "row 1 has" in refusal(files)


def test_rows_of_one_line_whose_names_are_not_escaped_are_all_read(tmp_path) -> None:
    rows = ", ".join(f'{{"name": "{n}", "timeMs": 1, "averageMs": 1}}' for n in ('a "q"', "b\\", "c"))
    files = {"layers": put(tmp_path, "l", ['a "q"', "b\\", "c"]), "profile": put(tmp_path, "p", f"[{rows}]")}
    assert 3 == len(reading.read(files).profile.samples)


def test_a_profile_of_which_most_rows_name_no_layer_is_refused(tmp_path) -> None:
    rows = [{"name": n, "averageMs": 1} for n in ("a", "p", "q")]
    files = {"layers": put(tmp_path, "l", TWO), "profile": put(tmp_path, "p", rows)}
    assert 'Only there: "p", "q"; only among the layers: "b"' in refusal(files)


def test_layers_of_one_name_share_the_time_that_the_first_of_them_shows(tmp_path) -> None:
    rows = [{"name": "a", "medianMs": 1}, {"name": "a", "medianMs": 2}]
    found = reading.read({"layers": put(tmp_path, "l", ["a", "a"]), "profile": put(tmp_path, "p", rows)})
    assert {"0:a": [3.0]} == {k: list(v) for k, v in found.profile.samples.items()}
    assert any("1 name belongs to several layers" in n for n in found.engine.notes)


def test_outputs_are_read_in_the_type_that_the_engine_tells(tmp_path) -> None:
    """C++ writes "nan", which is no JSON."""
    entries = [layer("n", "x", "y"), {"Name": "m", "Outputs": [tensor("k", **{"Format/Datatype": "Int64"})]}]
    files = {
        "layers": put(tmp_path, "l", {"Layers": entries, "Bindings": ["y", "k"]}),
        "output": tmp_path / "o",
    }
    put(tmp_path, "o", '[{"name": "y", "dimensions": "2x2", "values": [1, nan, -inf, 2.5]}, '
        '{"name": "k", "dimensions": "1", "values": [9007199254740993]}]')  # fmt: skip
    found = reading.read(files).outputs
    np.testing.assert_array_equal(
        np.array([[1, np.nan], [-np.inf, 2.5]], np.float32), found["y"], strict=True
    )
    np.testing.assert_array_equal(np.array([9007199254740993]), found["k"], strict=True)
    put(tmp_path, "o", [{"name": "y", "dimensions": "2x2", "values": [1]}])
    assert 'row 0, tensor "y" has 1 values; 2x2 of them belongs there' in refusal(files)
    put(tmp_path, "o", [{"name": "z", "dimensions": "1", "values": [1]}])
    assert 'Only there: "z"; only among the layers: "y", "k"' in refusal(files)


def test_a_file_under_the_wrong_name_is_told_its_right_one(tmp_path) -> None:
    profile = put(tmp_path, "p.json", [{"name": "a", "averageMs": 1}])
    message = refusal({"layers": profile})
    assert "this is a profile" in message
    assert 'Give it as profile="p.json".' in message


@pytest.mark.parametrize("kind", ["layers", "plan", "log"])
def test_a_serialized_engine_is_refused_and_disturbs_no_exported_files(tmp_path, kind) -> None:
    files = {kind: put(tmp_path, "model.engine", b"ftrt" + b"\0" * 60)}
    assert "--loadEngine=model.engine" in refusal(files)
    if kind == "plan":
        assert reading.read({"layers": put(tmp_path, "l", TWO), **files}).engine.layers


def archived(path: Path, members: dict[str, object]) -> dict[str, Path]:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, (bytes, str)) else json.dumps(content))
    return {"archive": path}


def test_of_a_strange_archive_what_is_read_is_taken_and_one_of_thousands_refused(tmp_path) -> None:
    rows = [{"name": "a", "averageMs": 1.0}]
    members = {f"{i}.txt": f"nothing of ours {i}" for i in range(1000)}
    path = archived(tmp_path / "e.tea", dict([*members.items()][:999]) | {"m.profile.json": rows})["archive"]
    folder = tmp_path / "unpacked"
    folder.mkdir()
    unpacked, notes = reading._unpack(path, folder)
    assert ["profile"] == list(unpacked)
    assert ("Members of the archive that are not read: 0.txt, 1.txt, 2.txt.",) == notes
    path = archived(tmp_path / "m.tea", members | {"m.profile.json": rows})["archive"]
    with pytest.raises(ReadError, match="there are more than 1000"):
        reading._unpack(path, folder)


BUILT = {
    "engine.trt": b"ftrt\0\0\0\0",
    "timing.cache": b"ptrtd\0\0\0",
    "build_cfg.json": {"engine_build_duration": 12.5, "flags": "0"},
    "plan_cfg.json": {"num_layers": "2"},
}


def test_an_archive_of_trex_is_read_member_by_member(tmp_path) -> None:
    rows = [{"name": "a", "averageMs": 1}, {"name": "b", "averageMs": 2}]
    found = reading.read(
        archived(tmp_path / "e.tea", {**BUILT, "m.graph.json": ["a", "b"], "sub/../m.profile.json": rows})
    )
    assert ["a", "b"] == [y.name for y in found.engine.layers]
    assert 2 == len(found.profile.samples)
    # The plan is not even unpacked.
    assert not any("serialized" in n or "lists" in n for n in found.engine.notes)


def test_damaged_archives_are_refused_with_the_member(tmp_path) -> None:
    """A byte flipped in each place of a small archive: an engine, or an error that names the archive."""
    whole = archived(tmp_path / "e.tea", {"m.graph.json": TWO})["archive"].read_bytes()
    names = {y.name for y in reading.read({"archive": tmp_path / "e.tea"}).engine.layers}
    for at in range(len(whole)):
        damaged = put(tmp_path, "d.tea", whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert names == {y.name for y in reading.read({"archive": damaged}).engine.layers}
        except ReadError as error:
            assert '"d.tea"' in str(error)  # noqa: PT017 - either is right


def test_a_member_that_swells_is_not_unpacked(tmp_path, monkeypatch) -> None:
    """A few kilobytes may hold gigabytes; the bound is lowered here so that the test stays small."""
    monkeypatch.setattr("rtlab.backends.readers.reading._UNPACKED", 1 << 20)
    files = archived(tmp_path / "e.tea", {"m.graph.json": "[" + " " * (1 << 21) + "]"})
    assert 'member "m.graph.json" is damaged (larger than' in refusal(files)


def test_results_of_polygraphy_give_outputs_and_their_reference(tmp_path) -> None:
    results = RunResults()
    for name, value in (("onnxrt-runner", 1.0), ("trt-runner-N0", 2.0)):
        results.append((name, [IterationResult({"y": np.full((1, 8), value, np.float32)}, runner_name=name)]))
    results.save(str(tmp_path / "r.json"))
    for files in ({}, {"layers": put(tmp_path, "l", TWO)}):
        found = reading.read({**files, "results": tmp_path / "r.json"})
        assert (2.0, 1.0) == (found.outputs["y"].max(), found.reference["y"].max())
        assert [("y", "fp32", (1, 8))] == [(t.name, t.dtype, t.shape) for t in found.engine.outputs]
        assert any('"onnxrt-runner"' in n for n in found.engine.notes)
    other = put(tmp_path, "l", {"Layers": [layer("n", "p", "q")], "Bindings": ["p", "q"]})
    assert 'Only there: "y"' in refusal({"layers": other, "results": tmp_path / "r.json"})


@pytest.fixture(scope="module")
def profiled(tmp_path_factory) -> tuple[Path, Path]:
    """A profile and an optimized model that ONNX Runtime wrote itself."""
    folder = tmp_path_factory.mktemp("ort")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    session = onnxruntime.InferenceSession(tiny_model().bytes(), options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {"x": np.zeros((1, 3, 8, 8), np.float32)})
    return Path(session.end_profiling()), folder / "optimized.onnx"


@pytest.mark.slow
def test_files_of_onnx_runtime_give_the_layers_that_its_backend_gives(profiled) -> None:
    """The backend builds the same model here: it is the oracle."""
    profile, model = profiled
    built = OnnxRuntime().build(BuildRequest(tiny_model(), Variant.of("fp32")), Silent())
    both = reading.read({"ort_profile": profile, "ort_model": model})
    alone = reading.read({"ort_profile": profile})
    # ONNX Runtime orders branches anew in each session.
    pairs = [sorted((y.name, y.kind) for y in e.layers) for e in (built, both.engine)]
    assert pairs[0] == pairs[1]
    assert built.layers[0].inputs == both.engine.layers[0].inputs
    assert {y.name for y in both.engine.layers} == {y.name for y in alone.engine.layers}
    for found in (both, alone):
        assert {3} == {len(s) for s in found.profile.samples.values()}
        assert ("CPU", 0) == (found.profile.processor, found.profile.total.size)
        assert "cpu" == str(found.engine.target)
        passed = datetime.datetime.now(datetime.timezone.utc) - found.profile.taken
        assert 3600 > abs(passed.total_seconds())


def test_a_profile_of_onnx_runtime_of_another_model_is_refused(profiled, tmp_path) -> None:
    known = reading.read({"ort_model": profiled[1]}).engine.layers[0].name
    events = [{"cat": "Node", "name": f"{n}_kernel_time", "dur": 1, "ph": "X"} for n in (known, "p", "q")]
    files = {"ort_profile": put(tmp_path, "p.json", events), "ort_model": profiled[1]}
    assert 'Only there: "p", "q"; only among the layers: ' in refusal(files)


def test_a_profile_of_onnx_runtime_that_was_not_ended_is_refused(profiled, tmp_path) -> None:
    cut = put(tmp_path, "p.json", profiled[0].read_bytes()[:-40])
    assert "session.end_profiling()" in refusal({"ort_profile": cut})


@pytest.mark.parametrize("key", ["medianMs", "timeMs"])
def test_rows_that_share_no_time_are_asked_for_the_mean_that_every_release_writes(tmp_path, key) -> None:
    rows = [{"name": "a", key: 1.0}, {"name": "b", "averageMs" if key == "medianMs" else key: 2.0}]
    files = {"layers": put(tmp_path, "l.json", ["a", "b"]), "profile": put(tmp_path, "p.json", rows)}
    assert 'row "a" has no time (row 0, key "averageMs"' in refusal(files)


def test_a_damaged_zip_beside_the_layers_does_not_cost_the_archive(tmp_path) -> None:
    inner = b"PK\3\4 and no directory"
    with pytest.raises(ReadError, match="begins a zip file, but its directory is damaged"):
        recognise.detect_kind(put(tmp_path, "more.zip", inner))
    found = reading.read(archived(tmp_path / "e.tea", {"m.graph.json": TWO, "more.zip": inner})).engine
    assert ["a", "b"] == [y.name for y in found.layers]
    assert "Members of the archive that are not read: more.zip." in found.notes


def test_a_member_with_a_long_name_is_written_under_its_last_hundred_letters(tmp_path) -> None:
    name = "x" * 190 + ".layers.json"
    unpacked, _ = reading._unpack(archived(tmp_path / "e.tea", {f"folder/{name}": TWO})["archive"], tmp_path)
    assert name[-100:] == unpacked["layers"].name


#: What README.md of the corpus says of its names; all others are logs.
NAMES = {
    "engine.graph.json": "layers",
    "engine.profile.json": "profile",
    "engine.timing.json": "times",
    "engine.profile.metadata.json": "metadata",
    "model.structure-only.onnx": "model",
    "profile.json": "ort_profile",
    "optimized.onnx": "ort_model",
    "profile-table.log": "profile",
    **dict.fromkeys(
        ("digits_inception-fp16-sm80.log", "digits_inception-int8-sm89.log", "digits_vit-fp8-sm120.log",
         "inspector-piece.log"), "layers",
    ),
}  # fmt: skip


def test_every_file_of_the_corpus_is_recognised_under_a_name_that_tells_nothing(tmp_path) -> None:
    files = [p for p in CORPUS.rglob("*") if p.is_file() and p.suffix not in {".md", ".py", ".pyc"}]
    for number, path in enumerate(files):
        (tmp_path / str(number)).symlink_to(path)
    expected = {p: NAMES.get(p.name, "log") for p in files}
    assert expected == {p: recognise.detect_kind(tmp_path / str(i)) for i, p in enumerate(files)}


def test_a_model_that_onnx_runtime_wrote_is_told_from_one_that_it_read(tmp_path) -> None:
    """ONNX Runtime itself is the oracle."""
    plain = put(tmp_path, "plain", tiny_model().bytes())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized")
    onnxruntime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
    assert ["model", "ort_model"] == [
        recognise.detect_kind(plain),
        recognise.detect_kind(tmp_path / "optimized"),
    ]


def test_a_model_is_recognised_without_reading_its_weights(tmp_path) -> None:
    """A graph of 256 MiB, all hole."""
    size = 1 << 28
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        # ir_version, the length of a graph, and behind it an opset.
        file.write(b"\x08\x08\x3a" + bytes([0x80] * 4 + [size >> 28]))
        file.seek(size, os.SEEK_CUR)
        file.write(b"\x42\x02\x10\x11")
    tracemalloc.start()
    assert "model" == recognise.detect_kind(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "a folder"), ("pipe", "a pipe"), ("none", "No such file"), ("p.zip", "identifies no kind")],
)
def test_folders_pipes_missing_files_and_other_zips_are_refused(tmp_path, name, words) -> None:
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("photo.jpg", b"x")
    with pytest.raises(ReadError, match=words):
        recognise.detect_kind(tmp_path / name)


def test_a_log_of_another_engine_is_refused(tmp_path) -> None:
    log = put(tmp_path, "build.log", LISTED)
    message = refusal({"log": log, "layers": engines.files("written-fp16")["layers"]})
    assert "none of its 2 layers" in message
    assert '"conv1 + relu1"' in message


@pytest.mark.parametrize(
    ("kind", "content", "told"),
    [
        ("cache", "TRT-8600-EntropyCalibration2\nx: 3c010204\n", "scales"),
        ("timing_cache", b"ptrtd\0\0\0", "timing_cache="),
        ("output", [{"name": "a", "dimensions": "1", "values": [1]}], 'Give layers="layers.json"'),
        ("elsewhere", b"x", 'no kind "elsewhere"'),
    ],
)
def test_files_that_hold_no_engine_are_refused_with_their_use(tmp_path, kind, content, told) -> None:
    assert told in refusal({kind: put(tmp_path, "f", content)})


NAN = "[[nan, -inf, -nan, 1]]"


@pytest.mark.parametrize(
    ("kind", "repaired"),
    [("output", "[[NaN, -Infinity, NaN, 1]]"), ("layers", NAN), ("times", NAN), ("profile", NAN)],
)
def test_numbers_that_json_lacks_are_repaired_in_outputs_alone(kind: str, repaired: str) -> None:
    assert repaired == contents._repair(NAN, kind)


ROW = "  1.50  0.1000  0.0500  20.0  "


@pytest.mark.parametrize(
    ("unmatched", "names", "untimed", "layers", "different"),
    [
        (3, 29, 3, 29, True), (2, 9, 3, 29, False), (3, 29, 2, 9, False), (3, 30, 3, 29, False),
        (3, 29, 3, 30, False), (11, 109, 11, 109, True), (11, 110, 11, 109, False), (11, 109, 11, 110, False),
    ],
)  # fmt: skip
def test_names_of_two_engines_differ_by_more_than_two_and_a_tenth_on_both_sides(
    unmatched: int, names: int, untimed: int, layers: int, different: bool
) -> None:
    assert different is measured._are_different_engines(unmatched, names, untimed, layers)
