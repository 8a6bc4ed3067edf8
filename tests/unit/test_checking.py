"""``study.check`` and ``rtlab check``: exit codes that tell worse from not checked, and files for pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Tree

import numpy as np
import onnxruntime
import pytest

import engines
from rtlab.cli import main
from rtlab.testing import tiny_model

HERE = ("--backend", "onnxruntime")


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["check", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_model().bytes())
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).standard_normal((40, 3, 8, 8)).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A check of the sample that holds its limit, saved."""
    path = tmp_path_factory.mktemp("kept") / "baseline.json"
    given = ("check", "digits_outlier", "--calibrator", "percentile", "--max-drop", "0.5", *HERE)
    assert 0 == main([*given, "--save", str(path)])
    return path


@pytest.mark.slow
def test_a_drop_over_the_limit_is_exit_code_3_and_saves_nothing(capsys, tmp_path) -> None:
    """Of 899 samples fp32 has 891 right and minmax 649: (891 - 649) / 899 is 26.9 points."""
    made = {k: tmp_path / f"out.{k}" for k in ("xml", "md", "json")}
    code, out, _ = run(
        capsys, "digits_outlier", "--calibrator", "minmax", "--max-drop", "0.5", *HERE,
        "--junit", str(made["xml"]), "--markdown", str(made["md"]), "--save", str(made["json"]),
    )  # fmt: skip
    assert (3, False) == (code, made["json"].exists())
    assert "26.9 points below fp32, 23.9 to 29.8" in out
    (case,) = (c for c in Tree.parse(made["xml"]).iter("testcase") if c.find("failure") is not None)
    assert "accuracy" == case.get("name")
    assert "| **broken** |" in made["md"].read_text("utf-8")


@pytest.mark.slow
def test_what_could_not_be_checked_is_exit_code_1_and_skipped(capsys, file, kept, tmp_path) -> None:
    xml = tmp_path / "out.xml"
    code, out, _ = run(
        capsys, str(file), *HERE, "--max-drop", "0.5", "--max-latency-regression", "5%", "--junit", str(xml)
    )
    assert (1, True) == (code, "could not be checked" in out.splitlines()[0])
    skipped = {c.get("name"): c.find("skipped") for c in Tree.parse(xml).iter("testcase")}
    assert ["accuracy", "latency"] == [n for n, s in skipped.items() if s is not None]
    # Work that fails is told to the pipeline's readers too.
    code, _, err = run(capsys, str(file), *HERE, "--against", str(kept), "--junit", str(xml))
    (error,) = Tree.parse(xml).iter("error")
    assert (1, True, True) == (code, "digits_outlier" in err, "different models" in error.attrib["message"])


def test_labels_of_a_file_count_or_the_answers_of_fp32(capsys, file, tmp_path) -> None:
    """Those of ONNX Runtime's own run of the file, so that fp32 is right in all and in none."""
    data, labels = file.with_name("d.npz"), tmp_path / "l.npy"
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    told = np.argmax(session.run(None, {"x": np.load(data)["x"]})[0], axis=1)
    for right, score in ((None, "fp32 100.00 %"), (told, "fp32 100.00 %"), ((told + 1) % 3, "fp32 0.00 %")):
        more = () if right is None else ("--labels", str(labels))
        np.save(labels, told if right is None else right)
        code, out, _ = run(capsys, str(file), *HERE, "--data", str(data), *more, "--max-drop", "100")
        assert score in out
        assert 0 == code or right is not None


def test_an_engine_from_files_is_checked_by_its_times_and_layers(capsys, tmp_path) -> None:
    files = [str(p) for p in engines.files("written-fp16").values()]
    model = engines.FOLDER / "written-fp16" / "model.structure-only.onnx"
    base, given = tmp_path / "b.json", (str(model), "--engine", *files)
    assert 0 == run(capsys, *given, "--save", str(base))[0]
    code, out, _ = run(
        capsys, *given, "--against", str(base), "--max-latency-regression", "5%", "--fail-on", "fusion", "--fail-on",
        "precision", "--json",
    )  # fmt: skip
    rows = {r["check"]: r for r in json.loads(out)["rows"]}
    assert (0, "measured", 0.0) == (code, rows["latency"]["origin"], rows["latency"]["value"])
    assert "trtexec" in rows["latency"]["detail"]
    # FP32 in its place is slower, and computes in a wider type.
    files = [str(p) for p in engines.files("written-fp32").values()]
    code, out, _ = run(
        capsys, given[0], "--engine", *files, "--against", str(base), "--fail-on", "precision", "--json"
    )
    assert (3, ["precision"]) == (code, json.loads(out)["broken"])
    # Nobody knows that two GPUs without a name are one.
    bare = [f for f in given[2:] if "metadata" not in f]
    base.unlink()
    for code, options in ((0, ["--save"]), (1, ["--max-latency-regression", "5", "--against"])):
        assert code == run(capsys, given[0], "--engine", *bare, *options, str(base))[0]
    code, out, _ = run(capsys, *given, "--max-drop", "1", "--json")
    (accuracy,) = (r for r in json.loads(out)["rows"] if r["check"] == "accuracy")
    assert (1, True) == (code, "files of another machine" in accuracy["reason"])
