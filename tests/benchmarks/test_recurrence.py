"""What the panel of recurrences costs on a large listing, beside a small one."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

from recurrent import listing, recurrent_model
from rtlab.core.facts import Facts
from rtlab.core.prepared import Prepared
from rtlab.core.variant import Variant
from rtlab.questions.recurrence.panel import recurrence
from rtlab.questions.scene import Scene


def scene(steps: int) -> Scene:
    """Of an LSTM whose steps are all unrolled, three layers each."""
    model = recurrent_model("LSTM", steps, batch=4, inputs=16, head=False)
    engine = listing(steps, inputs=16)
    result = Facts("fp32", Variant.of("fp32"), model, Prepared(model, model), engine)
    return Scene(SimpleNamespace(model=model, forms={}), result)


def test_the_panel_of_5100_layers_takes_as_much_longer_as_it_has_layers(benchmark, care) -> None:
    """At most four times as long per layer as that of 510; what looked at all layers for each would be at ten."""
    seconds = {}
    small, large = care.size((170, 1700), (60, 600))
    for steps in (small, large):
        asked, took = scene(steps), []
        for _ in range(5):
            start = time.process_time()
            recurrence(asked)
            took.append(time.process_time() - start)
        seconds[steps] = min(took) / steps
    panel = benchmark.pedantic(lambda: recurrence(asked), rounds=3)
    benchmark.extra_info["megabytes"] = round(len(json.dumps(panel)) / 1e6, 1)
    benchmark.extra_info["per_layer_beside_the_small_one"] = ratio = seconds[large] / seconds[small]
    assert ratio < 4
