"""The command line presents what a notebook presents."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import engines
import rtlab
from rtlab.cli import copy_notebooks, main
from rtlab.testing import tiny_model


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The tiny model, with samples of it beside it."""
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_model().bytes())
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).standard_normal((12, 3, 8, 8)).astype(np.float32))
    return path


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_inspect_saves_a_build_that_read_opens(capsys, file, tmp_path) -> None:
    build = str(tmp_path / "build.json")
    code, out, _ = run(capsys, "inspect", str(file), "--target", "cpu", "--no-run", "--save", build)
    listed = sum(line[:1].isdigit() for line in out.splitlines())
    assert 0 == code
    for given in ([build], [build, "--model", str(file)]):
        code, out, _ = run(capsys, "read", *given)
        assert (0, listed) == (code, sum(line[:1].isdigit() for line in out.splitlines()))
    Path(build).write_bytes(Path(build).read_bytes()[:-300])
    code, _, err = run(capsys, "read", build)
    assert (1, True) == (code, "Cannot read build file" in err)


def test_a_model_is_cut_at_values(capsys, file) -> None:
    value = tiny_model().by_id["stem/Relu"].outputs[0]
    command = ("inspect", str(file), "--target", "cpu", "--no-run")
    code, out, _ = run(capsys, *command, "--until", value, "--json")
    assert (0, "stem/Relu") == (code, json.loads(out)["model"]["nodes"][-1]["id"])
    code, _, err = run(capsys, *command, "--until", "nothing")
    assert (1, True) == (code, 'Cannot cut model "tiny" at "nothing"' in err)


def test_inspect_prints_one_object_with_everything_that_is_known(capsys, file, tmp_path) -> None:
    code, out, _ = run(
        capsys, "inspect", str(file), "--precision", "int8", "--calibrator", "minmax", "--data",
        str(tmp_path / "d.npz"), "--target", "cpu", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert (0, 10, 12) == (code, len(found["model"]["nodes"]), found["accuracy"]["samples"])
    placed = {n for layer in found["engine"]["layers"] for n in layer["nodes"]}
    assert {n["id"] for n in found["model"]["nodes"]} == placed | {u["node"] for u in found["unmapped"]}
    assert "measured" == found["timing"]["origin"] == found["accuracy"]["origin"]
    assert "estimated" == found["memory"]["origin"] == found["estimate"]["origin"]
    assert found["memory"]["least"] <= found["memory"]["peak"] <= found["memory"]["each_on_its_own"]
    assert len(found["engine"]["layers"]) >= len(found["estimate"]["layers"]) > 0


def test_a_size_is_given_by_symbol_or_by_input(capsys, tmp_path) -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3, "H", "W"]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "g", ends[:1], ends[1:])
    path = tmp_path / "dynamic.onnx"
    onnx.save_model(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)
    for shapes in (["--shape", "H=20", "--shape", "W=30"], ["--shape", "x=1x3x20x30"]):
        code, out, _ = run(capsys, "inspect", str(path), *shapes, "--target", "cpu", "--no-run", "--json")
        assert 0 == code
        (layer,) = json.loads(out)["estimate"]["layers"]
        assert (3 * 20 * 30, 4 * 3 * 20 * 30) == (layer["flops"], layer["written_bytes"])
    for command, expected in (("inspect", 0), ("check", 1)):
        code, out, err = run(capsys, command, str(path), "--target", "cpu")
        assert (expected, True) == (code, "--shape H=224 --shape W=224" in out + err)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("inspect FILE --target sm86 --precision fp8", '"fp8"'),
        ("inspect FILE --backend nonsense", "tensorrt-rtx"),
        ("prepare FILE -o OUT --pin Conv", "PATTERN=PRECISION"),
        ("prepare FILE -o OUT --pin op:Nothing=fp16", "op:Nothing"),
        ("prepare FILE -o OUT --calibrator percentile(2)", "50 to 100"),
        ("prepare FILE -o OUT --scales nowhere.cache", "nowhere.cache"),
        ('prepare FILE -o OUT --data . --preprocessing {"size":3', "--preprocessing"),
        ('prepare FILE -o OUT --preprocessing {"size":[8,8]}', "--data"),
        ("prepare FILE -o .", "no file"),
        ("read", "no file"),
        ("read LAYERS LAYERS", "layers.json"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_1(capsys, file, engine, tmp_path, command, words) -> None:
    out = tmp_path / "out.onnx"
    paths = {"FILE": str(file), "LAYERS": engine[0], "OUT": str(out)}
    code, said, err = run(capsys, *(paths.get(a, a) for a in command.split()))
    assert (1, "", False) == (code, said, out.exists())
    assert words in err
    assert "Traceback" not in err


def test_an_error_is_an_object_too_when_json_was_asked_for(capsys) -> None:
    code, out, _ = run(capsys, "inspect", "/nowhere.onnx", "--json")
    assert (1, "ModelError") == (code, json.loads(out)["error"]["kind"])


def test_lab_copies_the_notebooks_once_and_keeps_the_users_changes(tmp_path) -> None:
    first = copy_notebooks(tmp_path)
    assert tmp_path / "01_first_look.ipynb" == first
    first.write_text("mine")
    copy_notebooks(tmp_path)
    assert "mine" == first.read_text()


def test_lab_says_in_words_that_it_cannot_write_or_lacks_jupyterlab(capsys, tmp_path, monkeypatch) -> None:
    (tmp_path / "taken").write_text("a file")
    code, _, said = run(capsys, "lab", str(tmp_path / "taken" / "notebooks"))
    assert (1, True) == (code, "Cannot copy the notebooks" in said)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, said = run(capsys, "lab", str(tmp_path))
    assert (1, True) == (code, "pip install jupyterlab" in said)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the command is replaced by the server's")
def test_lab_starts_the_jupyterlab_of_its_own_environment(tmp_path, monkeypatch) -> None:
    other = tmp_path / "bin" / "jupyter-lab"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another environment\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent), prepend=os.pathsep)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    monkeypatch.setenv("NPM_CONFIG_UPDATE_NOTIFIER", "")
    monkeypatch.delenv("NPM_CONFIG_UPDATE_NOTIFIER")
    started: list[list[str]] = []

    def replaced(_program: str, command: list[str]) -> None:
        started.append(command)
        # What is in our place does not come back.
        raise SystemExit

    monkeypatch.setattr(os, "execv", replaced)
    with pytest.raises(SystemExit):
        main(["lab", str(tmp_path / "models"), "--no-browser"])
    with pytest.raises(SystemExit):
        # The folder of the notebooks itself needs no second copy.
        main(["lab", str(tmp_path / "models" / "rtlab-notebooks"), "--no-browser"])
    command, again = started
    assert f"--ServerApp.root_dir={tmp_path / 'models'}" in command
    assert "--LabApp.default_url=/lab/tree/rtlab-notebooks/01_first_look.ipynb" in command
    assert "--LabApp.default_url=/lab/tree/01_first_look.ipynb" in again
    program = command[: command.index("--ip=127.0.0.1")]
    assert sys.executable == program[0]
    said = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert metadata.version("jupyterlab") == said.stdout.strip()
    assert "false" == os.environ["NPM_CONFIG_UPDATE_NOTIFIER"]


def test_what_nobody_foresaw_is_words_and_json_on_the_command_line(capsys, file, monkeypatch) -> None:

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rtlab.api.Study.add", full)
    code, out, said = run(capsys, "inspect", str(file), "--json")
    assert (1, True) == (code, "the disk is full" in said)
    assert "the disk is full" in json.loads(out)["error"]["message"]


def test_a_report_is_one_file(capsys, file, tmp_path) -> None:
    path = tmp_path / "it.html"
    command = ("report", str(file), "-o", str(path), "--target", "cpu", "--no-run")
    command += ("--precision", "fp32", "--precision", "int8", "--calibrator", "minmax")
    assert (0, f"{path}\n") == run(capsys, *command)[:2]
    (packed,) = re.findall('id="saved">([^<]*)<', path.read_text(encoding="utf-8"))
    saved = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert ["fp32", "int8"] == [v["id"] for v in saved["variants"]]


def test_variants_of_one_report_have_sizes_of_their_own(capsys, tmp_path) -> None:
    """Three words behind five, and one behind nine, are joined."""
    ends = [("x", ["N", "length", 5]), ("past", ["N", "before", 5]), ("y", ["N", "before + length", 5])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in ends]
    graph = helper.make_graph(
        [helper.make_node("Concat", ["past", "x"], ["y"], "join", axis=1)], "g", values[:2], values[2:]
    )
    path, data = tmp_path / "step.onnx", tmp_path / "out.json"
    onnx.save_model(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)
    sizes = ("--sizes", "length=3", "--sizes", "length=1,before=9")
    command = ("report", str(path), "-o", str(tmp_path / "it.html"), "--json", str(data), "--target", "cpu")
    shapes = ("--shape", "length=4", "--shape", "before=5")
    assert 0 == run(capsys, *command, "--no-run", *shapes, *sizes)[0]
    variants = json.loads(data.read_text())["variants"]
    written = {name: v["estimate"]["layers"][-1]["written_bytes"] for name, v in variants.items()}
    assert {"fp32 length=3": 4 * 8 * 5, "fp32 length=1,before=9": 4 * 10 * 5} == written
    code, _, said = run(capsys, *command, "--no-run", *shapes, "--sizes", "length")
    assert (1, True) == (code, "--sizes" in said and "NAME=N" in said)


def test_prepare_writes_a_model_its_scales_a_cache_and_says_how_to_build_it(capsys, file, tmp_path) -> None:
    before, out = file.read_bytes(), tmp_path / "OUT.onnx"
    given = ("--calibrator", "percentile(99.9)", "--data", str(tmp_path / "d.npz"), "-o", str(out))
    cache = ("--cache", str(tmp_path / "OUT.cache"), "--cache-version", "8601")
    code, printed, _ = run(capsys, "prepare", str(file), *given, *cache)
    assert (0, True) == (code, "trtexec --onnx=OUT.onnx" in printed)
    assert {"QuantizeLinear", "DequantizeLinear"} <= {n.op for n in rtlab.load(out).nodes}
    assert (tmp_path / "OUT.cache").read_text(encoding="utf-8").startswith("TRT-8601-")
    assert (tmp_path / "OUT.scales.json").exists()
    assert before == file.read_bytes()


def test_prepare_mixes_prunes_and_takes_a_cache(capsys, file, tmp_path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    cache = tmp_path / "a.cache"
    assert 0 == run(capsys, "prepare", str(file), "-o", str(first), "--cache", str(cache))[0]
    code, out, _ = run(
        capsys, "prepare", str(file), "--scales", str(cache), "--pin", "op:Gemm=fp16", "--weights", "tensor",
        "-o", str(second), "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert 0 == code
    assert str(second) == found["files"]["model"]
    types = {i.dtype for i in rtlab.load(second).values.values()}
    assert {"int8", "fp16"} <= types


@pytest.fixture
def engine(tmp_path: Path, file: Path) -> list[str]:
    """Files of an engine of the tiny model, and the model."""
    nodes = rtlab.load(file).top
    half = [{"Name": "t", "Dimensions": [1, 8], "Format/Datatype": "Row major linear FP16 format"}]
    layers = [{"Name": n.id, "LayerType": "kgen", "Inputs": half, "Outputs": half} for n in nodes]
    rows = [{"name": n.id, "averageMs": 2.0, "medianMs": 1.0} for n in nodes]
    for name, content in {"layers": {"Layers": layers}, "profile": [{"count": 9}, *rows]}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return [str(tmp_path / "layers.json"), str(tmp_path / "profile.json")]


def test_read_takes_what_is_piped_in(capsys, monkeypatch) -> None:
    """A table of times in the quote marks of a mail, by hand: 20, 49, 10 and 21 microseconds."""
    table = (Path(__file__).parents[1] / "corpus" / "pasted" / "profile-table.log").read_bytes()
    piped = io.TextIOWrapper(io.BytesIO(b"".join(b"> " + line + b"\n" for line in table.split(b"\n"))))
    monkeypatch.setattr("sys.stdin", piped)
    assert 0 == main(["read", "-", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (100.0, 4) == (1e3 * told["timing"]["sum_of_layers_ms"], len(told["engine"]["layers"]))


def test_read_claims_no_types_where_the_file_tells_none(capsys, tmp_path) -> None:
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"Layers": ["Conv_0 + Relu_1", "Gemm_2"], "Bindings": ["x", "y"]}))
    code, out, _ = run(capsys, "read", str(names))
    assert 0 == code
    assert "types not reported: 0 nodes → 2 layers" in out.split("\n")[0]
    assert "--profilingVerbosity=detailed" in out


@pytest.mark.slow
def test_compare_tells_where_the_time_went_and_the_parts_add_up(capsys, file) -> None:
    given = ("--model", str(file), "--target", "cpu", "--json")
    code, out, _ = run(capsys, "compare", "fp32", "int8", *given)
    found = json.loads(out)
    assert 0 == code
    assert "measured" == found["origin"]
    before, after = (v["latency_ms"] for v in found["variants"])
    parts = sum(g["difference_ms"] for g in found["groups"]) + found["outside_layers_ms"]
    assert after == pytest.approx(before + parts)
    assert {n for g in found["groups"] for n in g["nodes"]} <= {n.id for n in tiny_model().nodes}


def folders(*names: str) -> list[str]:
    return [str(engines.FOLDER / f"written-{name}") for name in names]


def test_compare_reads_folders_of_two_engines(capsys) -> None:
    """A new version's engine beside the old one is the daily question, and needs no model: 80 µs became 57.6."""
    code, out, _ = run(capsys, "compare", *folders("fp32", "fp16"))
    lines = out.splitlines()
    assert (0, ["80", "57.6"]) == (code, re.findall(r"[\d.]+", lines[1]))
    # A pair that was inferred does not look like one that was told.
    assert ["names"] == [line.split()[-1] for line in lines if line.startswith("conv1 ")]
    found = json.loads(run(capsys, "compare", *folders("fp32", "fp16"), "--json")[1])
    assert {"paired": [4, 4], "of": [4, 4]} == found["overlap"]
    (group,) = (g for g in found["groups"] if g["title"] == "conv1")
    assert ([["0:conv1 + relu1"], ["1:conv1 + relu1"]], "names") == ([*group["layers"]], group["basis"])
    assert [0.032, 0.020, -0.012] == pytest.approx([*group["ms"], group["difference_ms"]])


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_compare_says_what_it_needs(capsys, name: str) -> None:
    code, _, err = run(capsys, "compare", name, "int8")
    assert (1, True) == (code, f'Cannot compare "{name}":' in err)


def test_compare_refuses_engines_of_two_models_with_what_they_share(capsys) -> None:
    for more in ((), ("--json",)):
        code, out, err = run(capsys, "compare", *folders("residual-int8", "mobile-fp16"), *more)
        assert 1 == code
        assert "only 0 of 9 and 0 of 53" in (out if more else err)


def test_compare_doubts_times_of_two_processors(capsys, tmp_path) -> None:
    other = shutil.copytree(engines.FOLDER / "written-int8", tmp_path / "other")
    device = other / "engine.profile.metadata.json"
    device.write_text(device.read_text().replace("Invented GPU", "Another GPU"))
    for more in ((), ("--json",)):
        assert 1 == run(capsys, "compare", *folders("fp16"), str(other), *more)[1].count("two processors")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_choices_and_files(capsys, tmp_path) -> None:
    code, script, _ = run(capsys, "completion", "bash")
    assert 0 == code
    (tmp_path / "rtlab.bash").write_text(script)
    (tmp_path / "model.onnx").touch()
    lines = {
        "rtlab ins": "inspect", "rtlab doctor --w": "--workshop", "rtlab inspect --prec": "--precision",
        "rtlab inspect mod": "model.onnx", "rtlab compilers rem": "remove", "rtlab sensitivity --asks on": "only",
        "rtlab inspect model.onnx --data mo": "model.onnx", "rtlab --ver": "--version",
    }  # fmt: skip
    program = "compopt() { :; }; source rtlab.bash; " + "".join(
        f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _shtab_rtlab; echo ${{COMPREPLY[@]}}; "
        for line in lines
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert [*lines.values()] == done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_script_for_each_shell_names_every_command(capsys, shell: str) -> None:
    code, script, _ = run(capsys, "completion", shell)
    assert 0 == code
    assert all(command in script for command in ("inspect", "wheelhouse", "bisect", "completion"))


def test_limits_of_a_check_are_completed_as_they_are_checked() -> None:
    from rtlab.analyses.check.record import NOT_WORSE
    from rtlab.cli import checking

    assert (*NOT_WORSE,) == checking.NOT_WORSE
