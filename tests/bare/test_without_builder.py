"""An installation without TensorRT-RTX: the samples have their recorded builds, and one's own model says what to do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import rtlab
from rtlab import backends, samples
from rtlab.backends import recorded
from rtlab.core.variant import Precision
from rtlab.errors import BuildError, Unavailable

ROOT = Path(__file__).parents[2]
#: Small samples, of each kind of network one.
FEW = ("digits_inception", "digits_lstm", "digits_qat")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A model of one's own: a sample whose first node has another name."""
    proto = samples.load("digits_mobilenet").model.proto()
    proto.graph.node[0].name = "mine"
    path = tmp_path / "mine.onnx"
    onnx.save(proto, path)
    return path


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    line = [sys.executable, "-m", "rtlab", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def studied(name: str) -> rtlab.Study:
    sample = samples.load(name, samples=16)
    return rtlab.Study(sample.model, data=sample.calibration)


def test_there_is_no_builder():
    assert importlib.util.find_spec("tensorrt_rtx") is None
    assert not rtlab.available()["tensorrt-rtx"].ok
    assert {"recorded builds only"} == {c.words for c in rtlab.compilers.known()}
    assert recorded.releases() == tuple(c.version for c in reversed(rtlab.compilers.known()))


def test_every_precision_of_the_samples_is_built_or_refused_as_it_was(request):
    found = 0
    for name in samples.names() if request.config.getoption("whole") else FEW:
        study = studied(name)
        for precision in Precision:
            for target in ("sm80", "sm86", "sm89", "sm120"):
                title = f"{precision} {target}"
                if rtlab.Target(target).refusal(precision):
                    continue
                study.add(title, precision=precision, target=target)
                try:
                    study.run([title], compare=False, budget_s=0)
                except BuildError:
                    continue
                engine = study[title].engine
                found += 1
                assert engine.recorded
                assert engine.title.endswith(f", recorded {engine.built:%Y-%m-%d} · {target}")
                assert engine.layers
    assert found > 50


def test_the_default_target_is_a_gpu_where_builds_were_recorded_and_the_cpu_elsewhere(own):
    study = studied("digits_inception")

    assert ("tensorrt-rtx", "sm86") == _chosen(study.add("fp32"))
    assert ("onnxruntime", "cpu") == _chosen(rtlab.Study(own).add("fp32"))


def _chosen(variant: rtlab.Variant) -> tuple[str | None, str]:
    return variant.backend, str(variant.target)


def test_a_sample_that_was_saved_as_a_file_has_its_builds_too(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(samples.load("digits_lstm").model.bytes())
    study = rtlab.Study(path)
    study.add("fp16", target="sm89")

    assert study.run(compare=False, budget_s=0)["fp16"].engine.recorded


@pytest.mark.parametrize(
    "asked", [{"target": "sm86"}, {"backend": "tensorrt-rtx"}, {"compiler": "1.7"}], ids=str
)
def test_an_own_model_says_what_is_missing_and_both_ways_out(own, asked):
    with pytest.raises(Unavailable) as caught:
        rtlab.Study(own).add("fp32", **asked)
    told = str(caught.value)
    assert 'backend="onnxruntime"' in told or 'target="cpu"' in told
    assert "rtlab inspect MODEL --save build.json" in told


def test_a_build_that_nobody_recorded_is_told_as_such_and_the_others_stay():
    study = studied("digits_lstm")
    study.add("fp32")
    study.add("odd", precision="fp32", options={"builder_optimization_level": 1})
    with pytest.raises(Unavailable, match="none of those recorded"):
        study.run(compare=False, budget_s=0)

    assert ["fp32"] == list(study)


def test_experiments_answer_from_what_was_recorded_and_say_where_that_ends():
    study = studied("digits_inception")
    study.add("int8", target="sm86")
    study.run(compare=False, budget_s=0)
    verdict = study.fusion.why("/stem/conv/Conv", "/stem/norm/BatchNormalization", variant="int8")
    assert ("blocked", ("quantization",)) == (verdict.verdict, verdict.causes)
    assert "recorded" in verdict.compiler

    other = studied("digits_vit")
    other.add("fp8", target="sm120")
    other.run(compare=False, budget_s=0)
    advice = other.fusion.advise("fp8", seconds=10)
    assert advice.missed
    assert "none of those recorded" in " ".join(advice.notes)


def test_a_recording_of_a_colleague_opens(tmp_path):
    study = studied("digits_inception")
    study.add("int8", target="sm89")
    study.run(compare=False, budget_s=0)
    path = study.save_build("int8", tmp_path / "build.json")
    alone = command("read", path)
    beside = rtlab.Study(study.model).read("theirs", path)

    assert 0 == alone.returncode, alone.stderr
    assert "recorded" in alone.stdout
    assert study["int8"].mapping.pairs == beside.mapping.pairs


def test_the_explorer_shows_onnx_runtime_and_says_how_to_get_more(own):
    explorer = rtlab.explore(own)
    explorer.wait()

    assert explorer.failure is None
    assert "No TensorRT builder here" in explorer.notice
    assert ["cpu"] == [t["id"] for t in explorer.controls["targets"]]


def test_the_explorer_offers_every_card_for_a_sample():
    explorer = rtlab.explore()
    explorer.wait()

    assert explorer.failure is None
    assert {"sm80", "sm86", "sm89", "sm120"} <= {t["id"] for t in explorer.controls["targets"]}
    assert "recorded with TensorRT-RTX 1.7" in explorer.notice
    assert any("recorded with TensorRT-RTX" in s["text"] for s in explorer.status)


def test_a_recording_that_is_dropped_opens_on_its_own_model(tmp_path):
    study = studied("digits_lstm")
    study.add("fp16")
    study.run(compare=False, budget_s=0)
    path = study.save_build("fp16", tmp_path / "build.json")
    explorer = rtlab.explore()
    explorer.wait()
    explorer.read(path).wait()

    assert explorer.failure is None
    assert "digits_lstm" == explorer.study.model.name
    assert (
        backends.get("tensorrt-rtx").name == next(iter(explorer.study.state.results.values())).engine.backend
    )
