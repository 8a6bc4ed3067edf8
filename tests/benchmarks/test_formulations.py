"""What the panel of tuning costs."""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
import types

from rtlab import Study
from rtlab.formulations.trial import Trial, Tuned, TunedLayer
from rtlab.questions.formulations.panel import formulations
from rtlab.questions.scene import Scene
from rtlab.testing import tiny_model


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
