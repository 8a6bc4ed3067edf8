"""What the panel of recurrences costs on a large listing."""

from __future__ import annotations

import time
from types import SimpleNamespace

from recurrent import listing, recurrent_model
from rtlab.analysis.mapping import Mapping
from rtlab.view.panel import Scene
from rtlab.view.panels.recurrence import recurrence


def test_panel_of_five_thousand_layers_takes_under_half_a_second():
    """The page waits for it. Time of this process, so that others do not count."""
    model = recurrent_model("LSTM", 1700, batch=4, inputs=16, head=False)
    engine = listing(1700, inputs=16)
    assert len(engine.layers) == 5100
    result = SimpleNamespace(
        name="fp32", engine=engine, prepared=SimpleNamespace(model=model), mapping=Mapping((), ())
    )
    scene = Scene(SimpleNamespace(model=model), result)
    took = []
    for _ in range(3):
        start = time.process_time()
        panel = recurrence(scene)
        took.append(time.process_time() - start)
    print(f"\npanel of 5,100 layers: {min(took):.3f} s")
    assert len(panel["rows"]) == 5100
    assert min(took) < 0.5
