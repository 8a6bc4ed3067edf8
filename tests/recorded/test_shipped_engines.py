"""The builds of ``sample_models/engines`` against the recordings whose figures they hold: every step, edge and time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rtlab
from rtlab.core.engine import Engine, Tensor

RECORDINGS = {
    "mobilenet_v2-rtx3060": "fuzzy-mobilenet_v2-rtx3060laptop-fp16",
    "resnet18-a100-fp16": "trex-resnet18-pytorch-a100-fp16",
    "resnet18-a100-int8": "trex-resnet18-pytorch-a100-int8-qat",
    "resnet18-a100-int8-residual": "trex-resnet18-pytorch-a100-int8-qat-residual",
}
#: What a step does, in TensorRT's words; ``Conv`` and ``Pooling`` stand before those of a fused step.
WORDS = [
    prefix + word
    for prefix in ("", "Conv", "Pooling")
    for word in (
        "ParameterType", "Kernel", "WindowSize", "PoolingType", "Stride", "PrePadding", "PostPadding", "OutMaps",
        "Groups", "Weights", "Bias", "Activation", "HasSparseWeights", "Origin",
    )
]  # fmt: skip


def describe(tensor: Tensor) -> tuple[object, ...]:
    layout = re.sub(r" (linear|format|FP16|FP32|Int8)\b", "", tensor.format)
    return tensor.dtype, tensor.shape, layout


def list_steps(engine: Engine) -> Iterator[tuple[object, ...]]:
    """Kind, parameters, what is read from which step, and what is written; of a gemm the first input alone."""
    writers: dict[str, int] = {}
    for layer in engine.layers:
        inputs = layer.inputs[:1] if layer.kind == "gemm" else layer.inputs
        told = {w: layer.attributes[w] for w in WORDS if w in layer.attributes}
        edges = [(writers.get(t.name), *(describe(t)[: 2 if layer.kind == "gemm" else 3])) for t in inputs]
        yield layer.kind, told, edges, [describe(t) for t in layer.outputs]
        writers |= {t.name: layer.index for t in layer.outputs}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_shipped_build_has_every_figure_of_its_recording(name: str) -> None:
    folder = Path(os.environ["RTLAB_RECORDED"]) / "engines" / RECORDINGS[name]
    kinds = {"layers": "engine.graph.json", "profile": "engine.profile.json", "times": "engine.timing.json"}
    theirs = rtlab.read(**{k: folder / file for k, file in kinds.items()}).facts_of("engine")
    ours = rtlab.read(*rtlab.samples.engine(name)).facts_of("engine")
    assert list(list_steps(theirs.engine)) == list(list_steps(ours.engine))
    times = [[f.profile.samples[y.id][0] for y in f.engine.layers] for f in (theirs, ours)]
    np.testing.assert_allclose(*times, atol=1e-6)
    # The first 200 inferences, rounded to ticks of the GPU or to 0.1 µs.
    np.testing.assert_allclose(theirs.profile.total[:200], ours.profile.total, rtol=3e-4)
    assert theirs.profile.runs == ours.profile.runs
