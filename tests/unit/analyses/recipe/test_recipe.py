"""How a variant was made: the lines are run, and make the same variant."""

from __future__ import annotations

import getpass
import platform
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import engines
import rtlab
from rtlab import CalibrationData, Study, samples
from rtlab.analyses.recipe import build_recipe
from rtlab.testing import tiny_model

HOSTILE = 'it\'s "x"\n`$(rm)` \\ é'
#: What can be chosen for a variant, by what it is called.
CHOICES = {
    "fp32": {},
    "int8": {"calibrator": "percentile(99.9)", "weights": "tensor"},
    "mixed": {"precision": {"*": "int8", "op:Conv": "fp16"}, "calibrators": {"stem/*": "percentile(99.5)"}},
    "sparse": {"precision": "fp16", "sparsity": True},
    "part": {"precision": "int8", "sparsity": ["*Conv*"], "treatments": ["equalize", "smooth(0.7)"]},
    "gpu": {"precision": "fp16", "target": "sm89", "backend": "tensorrt-rtx"},
    "told": {
        "backend": "tensorrt-rtx",
        "options": {"builder_optimization_level": 2, "pools": {"WORKSPACE": 1 << 20}, "flags": ["REFIT"],
                    "profiles": [{"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}]},
    },
    HOSTILE: {"precision": "fp16", "target": "cpu"},
}  # fmt: skip


def file_of(folder: Path) -> Path:
    path = folder / "a model's.onnx"
    path.write_bytes(tiny_model().bytes())
    return path


def planned(model, **given) -> Study:
    made = Study(model, **given)
    for name, choice in CHOICES.items():
        made.add(name, **choice)
    return made


def run(text: str, monkeypatch) -> Study:
    """The study that lines make, but for the building."""
    monkeypatch.setattr(Study, "run", lambda self, *_, **__: self)
    names: dict = {}
    exec(compile(text, "lines", "exec"), names)  # noqa: S102 - it is what is tested
    return names["study"]


def test_the_lines_of_python_make_the_same_variants(tmp_path, monkeypatch) -> None:
    study = planned(rtlab.load(file_of(tmp_path), shapes={"N": 2}))
    monkeypatch.chdir(tmp_path)
    made = run(build_recipe(study.state, list(CHOICES)).python, monkeypatch)
    assert dict(study.state.variants) == dict(made.state.variants)
    assert study.model.digest == made.model.digest
    # One at a time, as a panel shows them.
    for name, variant in study.state.variants.items():
        assert {name: variant} == dict(
            run(build_recipe(study.state, [name]).python, monkeypatch).state.variants
        )


def test_a_model_below_this_folder_keeps_its_place_and_no_other_folder_is_told(tmp_path, monkeypatch) -> None:
    file = file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    moved = file.rename(tmp_path / "models" / "a net.onnx")
    for given in ("models/a net.onnx", moved):
        snapshot = planned(rtlab.load(given, shapes={"N": 2})).state
        assert "rtlab.load('models/a net.onnx', shapes=" in build_recipe(snapshot, ["int8"]).python
    monkeypatch.chdir(tmp_path / "models")
    assert "rtlab.load('a net.onnx'" in build_recipe(snapshot, ["int8"]).python
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "rtlab.load('a net.onnx'" in build_recipe(snapshot, ["int8"]).python


def test_the_lines_take_the_same_data(tmp_path, monkeypatch) -> None:
    file = file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(1).standard_normal((5, 3, 8, 8)).astype(np.float32)
    np.savez("my data.npz", x=rows)
    np.save("rows.npy", rows)
    model = rtlab.load(file)
    for given in (
        "my data.npz", "rows.npy", CalibrationData.random(model, samples=7, seed=3), CalibrationData.random(model), None
    ):  # fmt: skip
        study = Study(model, data=given)
        study.add("int8", target="cpu")
        made = run(build_recipe(study.state, ["int8"]).python, monkeypatch)
        assert len(study.data) == len(made.data)
        assert np.array_equal(study.data.arrays["x"][:], made.data.arrays["x"][:])
    # What was in memory has to be put there; without it the lines stop rather than take noise.
    study = Study(model, data={"x": rows})
    study.add("int8", target="cpu")
    text = build_recipe(study.state, ["int8"]).python
    with pytest.raises(rtlab.errors.RtlabError, match="ellipsis"):
        run(text, monkeypatch)


def test_a_sample_is_taken_by_its_name(monkeypatch) -> None:
    sample = samples.load("digits_inception", samples=9)
    study = Study(sample.model, data=sample.calibration, task=sample.task)
    study.add("int8", target="cpu")
    text = build_recipe(study.state, ["int8"]).python
    assert "rtlab.samples.load('digits_inception', samples=9)" in text
    made = run(text, monkeypatch)
    assert (study.model.digest, 9, study.task.name) == (made.model.digest, len(made.data), made.task.name)
    assert "" == samples.which(tiny_model())


def test_scales_that_were_given_are_written_down(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study(rtlab.load(file_of(tmp_path)))
    study.add("int8", scales={"x": 1 / 3}, target="cpu")
    study.run(compare=False)
    made = run(build_recipe(study.state, ["int8"]).python, monkeypatch)
    assert dict(study.state.variants) == dict(made.state.variants)
    scales = {v: s.amax for v, s in made.calibration.prepare("int8").scales.items()}
    assert {v: s.amax for v, s in study["int8"].prepared.scales.items()} == scales


def test_it_tells_the_digest_that_the_model_has_when_it_is_loaded_again(tmp_path) -> None:
    study = Study(file_of(tmp_path))
    study.add("fp32", target="cpu")
    found = build_recipe(study.state, ["fp32"])
    assert rtlab.load(tmp_path / "a model's.onnx").digest == found.sha256
    bare = build_recipe(Study(rtlab.load(tmp_path / "a model's.onnx", shapes={"N": 2})).state, [])
    assert bare.sha256 not in {None, found.sha256}


def test_versions_name_all_that_had_a_part_and_nobody(tmp_path) -> None:
    study = Study(file_of(tmp_path))
    study.add("fp32", target="cpu")
    study.run()
    answer = study.ask("recipe", variant="fp32")
    found = {v.part: v.version for v in answer.result.versions}
    assert platform.python_version() == found["Python"]
    assert onnx.__version__ == found["ONNX"]
    assert study["fp32"].engine.title == found["Engine, fp32"]
    told = repr(answer) + answer.result.python
    for name in (str(tmp_path), str(Path.home()), platform.node(), f"/{getpass.getuser()}"):
        assert name not in told
    assert not re.search(r"(?<![\w.])/\w+/", told)


def test_an_engine_of_another_machine_says_where_it_is_from() -> None:
    study = rtlab.read(**engines.files("written-fp16"))
    found = study.ask("recipe", variant="engine").result
    compile(found.python, "lines", "exec")
    told = {v.part: v.version for v in found.versions}
    assert study["engine"].engine.title == told["Engine, engine"]
