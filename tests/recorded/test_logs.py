"""Logs, caches and pasted texts of real GPUs: what only they can show, against figures counted by other means."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

import pasted
from rtlab import Study
from rtlab.analyses.build.replay import COPY, rebuild_layers, replay_decisions
from rtlab.analyses.build.tactics import find_contests, sum_fastest_times, sum_runner_up_losses
from rtlab.backends.readers import recognise
from rtlab.backends.readers.log.tactics import parse_operators
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.model import make_empty_model
from rtlab.quantize.cache import CalibrationCache
from rtlab.samples import load

RECORDED = Path(os.environ["RTLAB_RECORDED"])
LOGS, PASTED = RECORDED / "build-logs", RECORDED / "pasted"
GOOGLENET = LOGS / "googlenet-caffe-trt5.1-fp32.log"
MNIST = (
    [(24, 17, 13, 15), (24, 5, 6), (24, 7, 5, 6)], 1, "10.16.1", "NVIDIA H100 PCIe", 24.4854, 4713, 6, 1024,
    {"host": 8496, "device": 0, "scratch": 133120, "activation": 2007040, "weights": 6551296},
    (11, 1787), 0.03986911, 0.00370211,
)  # fmt: skip
#: By log: layers of its networks pass by pass, and which was taken; version, GPU, seconds, lines, layers listed, bytes
#: of workspace and memory; tables inside regions and their rows; milliseconds of the fastest, and what the second adds.
FIGURES = {
    GOOGLENET.name: (
        [(141, 84, 66)], 0, "", "", 10.07432418, 160, 0, None, {"activation": 1102643200}, (0, 0), 0.048384, 0.000256,
    ),
    "mnist-trt10.16-h100-level5.log": MNIST,
    "mnist-trt10.16-h100-foreign-node.log": MNIST,
    "sparsity-trt10.16-h100.log": (
        [(24, 7, 5)], 0, "10.16.2", "", 13.7898, 1221, 5, None,
        {"host": 18896, "device": 0, "scratch": 4608, "activation": 125440, "weights": 13100672},
        (1, 100), 0.03336568, 0.00073119,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_a_log_tells_the_figures_of_its_lines(name: str) -> None:
    parsed, expected = parse(LOGS / name), FIGURES[name]
    log, found = parsed.log, find_contests(parsed.log)
    inside = [t.count for t in log.tunings if t.operator]
    assert expected == (
        [a.counts for a in log.attempts], log.chosen, log.version, log.device, pytest.approx(log.seconds), log.lines,
        len(parsed.layers), log.workspace, log.totals, (len(inside), sum(inside)),
        pytest.approx(sum_fastest_times(found)), pytest.approx(sum_runner_up_losses(found)),
    )  # fmt: skip
    assert log.complete


@pytest.mark.parametrize("name", FIGURES)
def test_every_timing_and_decision_is_counted_and_winners_are_those_that_the_log_names(name: str) -> None:
    text, log = (LOGS / name).read_text(), parse(LOGS / name).log
    own = [t for t in log.tunings if not t.operator]
    rows = re.findall(r"^(.*)Tactic:? \S+ [Tt]ime:? [\d.e-]+$", text, re.MULTILINE)
    assert sum("Fastest" not in r for r in rows) == sum(t.count for t in own)
    assert text.count("got cached result") == sum(not t.count and bool(t.timed) for t in own)
    fastest = re.findall(r"Fastest Tactic: (0x\w+) Time: ([\d.]+)", text)
    assert [(r[0], float(r[1])) for r in fastest] == [
        (t.chosen, t.timed[0].milliseconds) for t in own if t.count and fastest
    ]
    chose = re.findall(r"Chose Runner Type: (\w+) Tactic: (0x\w+)|Chose (\d+) \((\d+)\)", text)
    assert [(a or c, b or d) for a, b, c, d in chose] == [
        (t.runner, t.chosen) for t in own if t.won and t.count
    ]
    made = Counter(
        d.action for a in log.attempts for p in a.passes for d in p.decisions if d.rule != "Myelin"
    )
    words = {"fuse": "Fusing ", "merge": "Merging ", "retarget": "Retargeting ", "copy": "Generating copy "}
    assert {action: text.count(said) for action, said in words.items()} == {
        action: made[action] for action in words
    }


@pytest.mark.slow
def test_googlenet_of_the_log_is_the_sample_of_that_name() -> None:
    """57 pairs, 9 merges of three pairs, 9 concatenations with three tensors moved and one copied: 66 layers."""
    model = load("googlenet").model
    found = replay_decisions(parse(GOOGLENET).log, model)
    assert (111, 111) == found.coverage
    assert [2] * 30 + [6] * 9 == sorted(len(group) for group in found.get_groups(111))
    layers = rebuild_layers(found, model)
    assert (66, 9) == (len(layers), sum(y.kind == COPY for y in layers))
    assert sorted(n.id for n in model.top) == sorted(o for y in layers for o in y.origins)


def test_a_calibration_cache_is_written_as_it_was_read(tmp_path: Path) -> None:
    (path,) = (RECORDED / "calibration-caches").iterdir()
    cache = CalibrationCache.read(path)
    assert path.read_bytes() == cache.write(tmp_path / "again").read_bytes()
    assert ("8600", "EntropyCalibration2", 197) == (cache.version, cache.algorithm, len(cache.values))
    again = CalibrationCache.of(cache.scales(), version=cache.version).values
    assert {t: s for t, s in cache.values.items() if s} == again


def test_pasted_lines_tell_what_is_in_them() -> None:
    """A Python build of TensorRT 7, one line of a listing of TensorRT 8, and a run of TensorRT 10, counted by hand."""
    log = parse(PASTED / "i1090-trt7.log").log
    made = Counter(d.action for p in log.attempts[0].passes for d in p.decisions)
    assert ({"fuse": 5}, (29,)) == (made, log.attempts[0].counts)
    assert [("0", 0.015424), ("1002", 0.059008)] == [(t.tactic, t.milliseconds) for t in log.tunings[0].timed]
    (layer,) = parse(PASTED / "i993-layer-lines-trt8.log").layers
    assert [("int8", (1, 8, 320, 181)), ("fp32", (1, 16, 320, 181))] == [
        (t.dtype, t.shape) for t in (*layer.inputs, *layer.outputs)
    ]
    log = parse(PASTED / "trtexec-load-engine-verbose-trt10.16.log").log
    assert ("10.16.1", "NVIDIA H100 PCIe", 0.0388184) == (log.version, log.device, log.latency)


def test_every_recorded_file_is_recognised_under_a_name_that_tells_nothing(tmp_path: Path) -> None:
    """Names are the oracle: what the middle of a file's own name says."""
    kinds = {
        "graph": "layers", "info": "layers", "inspector": "layers", "layer-info": "layers", "profile": "profile",
        "table": "profile", "timing.json": "times", "metadata": "metadata", "onnx": "model", "cache": "cache",
    }  # fmt: skip
    for number, path in enumerate(p for p in RECORDED.rglob("*") if p.is_file() and p.suffix != ".md"):
        name = path.name.lower().replace("timingcache", "").replace("profiler", "profile")
        expected = [kind for word, kind in kinds.items() if word in name and "load-engine" not in name]
        (tmp_path / str(number)).symlink_to(path)
        assert (expected[-1] if expected else "log") == recognise.detect_kind(tmp_path / str(number)), (
            path.name
        )


@pytest.mark.slow
@pytest.mark.parametrize("path", pasted.fragments(RECORDED), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_piece_tells_what_is_true_and_whole_in_it_or_is_refused_in_words(
    path: Path, tmp_path: Path
) -> None:
    assert set(pasted.outcomes(path, tmp_path, cuts=12, longest=200_000)) <= {"read", "refused"}


def test_a_log_without_the_flag_lists_tactics_without_keys() -> None:
    log = LOGS / "mnist-trt10.16-h100-level5.log"
    text = log.read_text()
    found = parse_operators(text)
    tables = re.split(r"Autotuning op ", text)[1:]
    assert [table.partition(":")[0] for table in tables] == [o.name for o in found]
    rows = [re.findall(r"\(foreignNode\) +\d+, ([\d.]+), .*, (0x\w+),", table) for table in tables]
    assert [len(r) for r in rows] == [len(o.timed) for o in found]
    assert [min(float(t) for t, _ in r) for r in rows] == [o.timed[0].milliseconds for o in found]
    assert {""} == {o.key for o in found}
    assert ("node_conv2d", "node_relu") in {o.nodes for o in found}
    study = Study(make_empty_model())
    study.read("theirs", log=log)
    pool = next(t for t in study.tuning.tactics("theirs") if t.layer == "node_max_pool2d")
    assert all(a.milliseconds <= b.milliseconds for a, b in zip(pool.timed, pool.timed[1:], strict=False))
