"""What panels of a large engine cost, beside those of one with a tenth of its layers."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import engines
from recurrent import listing, recurrent_model
from rtlab import Study
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.prepared import Prepared
from rtlab.core.variant import Variant


def unrolled(layers: int, _folder: Path) -> PanelContext:
    """An LSTM whose steps are all unrolled, three layers each."""
    steps = layers // 3
    model = recurrent_model("LSTM", steps, batch=4, inputs=16, head=False)
    result = VariantResult(
        "fp32", Variant.of("fp32"), model, Prepared(model, model), listing(steps, inputs=16)
    )
    return PanelContext(SimpleNamespace(model=model, forms={}), result)


def spread(engine: Engine, streams: int = 4, run: int = 3) -> Engine:
    """The layers of an engine in turn on several streams, so many in a row, with an event at each change."""
    layers: list[Layer] = []
    for i, layer in enumerate(engine.layers):
        stream, before = (i // run) % streams, (max(i - 1, 0) // run) % streams
        if stream != before:
            layers += [
                Layer(f"{kind}{i}", f"{kind}{i}", kind, 0, stream=on, event=i)
                for kind, on in (("signal", before), ("wait", stream))
            ]
        layers.append(dataclasses.replace(layer, stream=stream))
    return dataclasses.replace(engine, layers=tuple(layers))


def streams(layers: int, folder: Path) -> PanelContext:
    """An engine from files on four streams."""
    folder.mkdir()
    engines.write(folder, layers)
    study = Study(engines.model(folder))
    study.read("engine", folder / "layers.json", folder / "profile.json")
    engine = spread(study["engine"].engine)
    return PanelContext(
        study.state, dataclasses.replace(study["engine"].facts, engine=engine, measured=engine)
    )


@pytest.mark.parametrize(
    ("panel", "context", "most"),
    [("recurrence", unrolled, 4), ("schedule", streams, 2)],
)
def test_a_panel_of_five_thousand_layers_takes_as_much_longer_as_it_has_layers(
    benchmark, care, tmp_path: Path, panel: str, context: Callable, most: float
) -> None:
    """What looked at all layers for each would be at ten times as long per layer."""
    layers = care.size(5_100, 2_040)
    seconds = {}
    for size in (layers // 10, layers):
        asked, took = context(size, tmp_path / str(size)), []
        for _ in range(5):
            start = time.process_time()
            render_panel(panel, asked)
            took.append(time.process_time() - start)
        seconds[size] = min(took) / len(asked.result.engine.layers)
    found = benchmark.pedantic(render_panel, (panel, asked), rounds=3)
    ratio = seconds[layers] / seconds[layers // 10]
    benchmark.extra_info |= {"megabytes": round(len(json.dumps(found)) / 1e6, 1), "per_layer": ratio}
    assert ratio < most
