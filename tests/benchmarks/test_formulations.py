"""What tuning finds on this processor, and what its panel costs. Ratios to a peer in the same run."""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
import types

import numpy as np
import pytest

import rtlab
from rtlab import Study
from rtlab.backends.bench import OrtBench
from rtlab.experiments.experiment import Allowance, Rig, carry_out
from rtlab.experiments.tuning import CpuTuning
from rtlab.formulations import WeightedNode, alone, offered
from rtlab.formulations.trial import Trial, Tuned, TunedLayer
from rtlab.questions.formulations.panel import formulations
from rtlab.questions.scene import Scene
from rtlab.testing import tiny_model

ROUNDS = 12


def test_winograd_needs_less_time_than_the_product_it_replaces(benchmark, care) -> None:
    """A 3×3 convolution of 64 channels on 56×56: 2.25 products for an output in place of 9, on one thread.

    The direct formulation of ONNX Runtime is told beside it; which of the two wins is the processor's affair.
    """
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(64, 64, 3, 3)).astype(np.float32)
    given = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "group": 1}
    layer = WeightedNode("n", "Conv", "x", "y", (1, 64, 56, 56), weight, None, given)
    data = {"x": rng.normal(size=layer.shape).astype(np.float32)}
    bench = OrtBench()
    opened = {
        f.name: bench.open(alone(layer, f).SerializeToString(), data, 1)
        for f in offered(layer)
        if f.name in {"direct", "im2col", "Winograd 4×4"}
    }
    least = dict.fromkeys(opened, np.inf)

    def turn() -> None:
        for name, ready in opened.items():
            least[name] = min(least[name], ready.time())

    turn()
    benchmark.pedantic(turn, rounds=ROUNDS, warmup_rounds=1)
    ratios = {name: took / least["im2col"] for name, took in least.items()}
    benchmark.extra_info |= {"by im2col": ratios}
    assert ratios["Winograd 4×4"] <= care.most(1)


@pytest.mark.parametrize("name", ["digits_inception", pytest.param("mobilenet_v2", marks=pytest.mark.whole)])
def test_a_tuned_model_beside_the_runtimes_own_choice(benchmark, care, name: str) -> None:
    """Told, not judged: which is faster depends on the processor. It computes the same, and keeps to its budget."""
    sample = rtlab.samples.load(name)
    batch = next(sample.calibration.batches(sample.model, 1))
    budget = care.size(12.0, 3.0)
    tuning = CpuTuning(sample.model, batch, threads=(1,))
    allowed = Allowance(seconds=budget)
    found: Tuned = benchmark.pedantic(lambda: carry_out(tuning, Rig(OrtBench(), allowance=allowed)), rounds=1)
    (whole,) = found.wholes
    won = [y.winner.formulation for y in found.layers if y.clear]
    benchmark.extra_info |= {
        "tuned by default": whole.tuned / whole.default,
        "changed": len(whole.changed),
        "won": {n: won.count(n) for n in sorted(set(won))},
    }
    assert whole.ok
    # A layer that has begun is finished.
    assert found.seconds <= care.most(3 * budget)


def test_the_panel_of_five_thousand_layers_takes_half_a_second(benchmark, care) -> None:
    """With seven candidates each; the bound stands beside the time of writing it as JSON in the same run."""
    study = Study(tiny_model())
    study.add("fp32")
    study.run()
    when = datetime.datetime.now(datetime.timezone.utc)
    direct = Trial("direct", 1, 1.0, (0.9, 1.1), 10, 0.0, 1e-5, ok=True, taken=when)
    trials = tuple(dataclasses.replace(direct, formulation=f"way {i}", median=1.0 + i) for i in range(6))
    layers = tuple(TunedLayer(f"layer {i}", "Conv", "key", 1, (direct, *trials), direct) for i in range(5000))
    tuned = Tuned(layers, (), "a CPU", "ORT", when, 1.0, complete=True)
    scene = Scene(types.SimpleNamespace(model=study.model, tuned=tuned), study["fp32"].facts)
    spent: list[float] = []

    def asked() -> None:
        started = time.process_time()
        formulations(scene)
        spent.append(time.process_time() - started)

    benchmark.pedantic(asked, rounds=5, warmup_rounds=1)
    panel = formulations(scene)
    started = time.perf_counter()
    written = json.dumps(panel)
    benchmark.extra_info |= {"json_s": time.perf_counter() - started, "bytes": len(written)}
    # Time of this process: it works in one thread, and others may be busy beside it.
    assert min(spent) <= care.most(0.5)
