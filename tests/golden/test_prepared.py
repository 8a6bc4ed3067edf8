"""What ``rtlab.quantize`` makes of a model: the whole graph of a small one in every way, scales and sums of samples."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import scenes
from answers import graph, refusable, values
from snapshots import plain, rounded

CHOICES: dict[str, dict[str, Any]] = {
    "int8": {"precision": "int8", "calibrator": "minmax"},
    "int8-auto": {"precision": "int8"},
    "int8-entropy": {"precision": "int8", "calibrator": "entropy"},
    "int8-entropy2": {"precision": "int8", "calibrator": "entropy2"},
    "int8-percentile": {"precision": "int8", "calibrator": "percentile(99)"},
    "int8-mse": {"precision": "int8", "calibrator": "mse"},
    "int8-tensor": {"precision": "int8", "calibrator": "minmax", "weights": "tensor"},
    "int8-equalize": {"precision": "int8", "calibrator": "minmax", "treatments": "equalize"},
    "int8-smooth": {"precision": "int8", "calibrator": "minmax", "treatments": "smooth(0.7)"},
    "int8-reconstruct": {"precision": "int8", "calibrator": "minmax", "treatments": "reconstruct"},
    "int8-correct": {"precision": "int8", "calibrator": "minmax", "treatments": "correct"},
    "int8-all": {"precision": "int8", "treatments": ("equalize", "smooth", "reconstruct", "correct")},
    "int8-sparse": {"precision": "int8", "calibrator": "minmax", "sparsity": True},
    "mixed": {"precision": {"*": "int8", "op:Add": "fp16", "op:Relu": "fp32"}},
    "single": {"precision": "int8", "calibrators": {"*": "percentile(99.9)", "op:Add": "minmax"}},
    "fp8": {"precision": "fp8"},
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "tf32": {"precision": "tf32"},
    "int4": {"precision": "int4"},
    "fp4": {"precision": "fp4", "target": "sm120"},
}
#: The samples are prepared in these ways; one that is quantized already in others.
OF_SAMPLES = ("int8-auto", "int8-tensor", "int8-all", "int8-sparse", "mixed", "fp8", "fp16", "int4")


def prepared(study: Any, name: str) -> Any:
    choice = CHOICES[name]
    return study.calibration.prepare(name, **{"target": "sm89", **choice})


@pytest.mark.xdist_group("two_outputs")
@pytest.mark.parametrize("choice", CHOICES)
def test_graphs_of_the_small_model_are_those_of_the_file(choice: str, golden: Any) -> None:
    ready = prepared(scenes.sample("two_outputs"), choice)
    emulated = {} if ready.emulation is ready.model else {"emulation": graph(ready.emulation)}
    told = {"scales": ready.scales, "notes": ready.notes, "precisions": ready.precisions}
    golden(
        f"prepared/{choice}.json", {"model": graph(ready.model), **emulated, "told": told}, rel=1e-4, least=1e-6,
    )  # fmt: skip


@scenes.samples
def test_sums_of_prepared_samples_are_those_of_the_file(subject: str, golden: Any) -> None:
    study = scenes.sample(subject)
    found = {choice: refusable(lambda c=choice: summed(study, prepared(study, c))) for choice in OF_SAMPLES}
    golden(f"prepared/{subject}.json", found, rel=1e-3)


def summed(study: Any, ready: Any) -> dict[str, Any]:
    batch = next(study.data.take(2).batches(study.model, 2))
    outputs = values(ready.emulation, ready.emulation.outputs, [batch])
    return {
        "operators": dict(sorted(Counter(n.op for n in ready.model.nodes).items())),
        "weights": weighed(ready.model),
        "scales": {
            v: [rounded(s.amax), s.choice and str(s.choice.calibrator)] for v, s in ready.scales.items()
        },
        "precisions": Counter(map(str, ready.precisions.values())),
        "notes": ready.notes,
        **{k: plain(v) for k, v in outputs.items()},
    }


def weighed(model: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for tensor in model.known.values():
        numbers = np.asarray(tensor.numpy()).astype(np.float64).ravel()
        sums = found.setdefault(str(tensor.dtype), [0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += float(np.abs(numbers).sum())
        sums[2] += float((numbers * np.cos(np.arange(numbers.size))).sum())
    return {k: [rounded(float(n)) for n in v] for k, v in sorted(found.items())}


@pytest.mark.xdist_group("digits_outlier")
def test_what_is_written_for_other_builders_is_what_the_file_says(golden: Any, tmp_path: Any) -> None:
    study = scenes.sample("digits_outlier")
    prepared(study, "int8")
    done = study.export("int8", tmp_path / "model.onnx", cache=tmp_path / "scales.cache")
    files = {p.name: p.read_text() for p in (done.scales, done.cache)}
    again = study.calibration.prepare("again", precision="int8", scales=str(done.cache), target="sm89")
    commands = [c.replace(str(tmp_path), "FOLDER") for c in done.commands]
    sparse = study.calibration.sparse_weights()
    nodes = {
        n.id: {"weights": study.calibration.weights(n.id), "values": study.calibration.activations(n.id)}
        for n in study.model.top[:6]
    }
    golden(
        "prepared/files.json",
        {"files": files, "commands": commands, "again": again.scales, "sparse": sparse, "nodes": nodes,
         "rewrites": [str(r) for r in study.fusion.rewrites()]},
        rel=1e-4,
    )  # fmt: skip


@pytest.mark.xdist_group("digits_inception")
@pytest.mark.parametrize("name", ["digits_inception", "digits_qat"])
def test_rewritten_models_are_those_of_the_file(name: str, golden: Any) -> None:
    study = scenes.sample(name)
    forms: dict[str, Any] = {}
    for kind in ("fold", "pool", "drop", "merge", "mend", "release"):
        found = study.fusion.rewrites(kind)
        ready = study.calibration.prepare(kind, precision="fp32", target="sm89", rewrites=found)
        forms[kind] = {"forms": [str(r) for r in found], "sums": summed(study, ready)}
    golden(f"prepared/{name}-rewritten.json", forms, rel=1e-3)
