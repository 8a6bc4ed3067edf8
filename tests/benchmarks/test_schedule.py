"""What the streams of a large engine cost to schedule and to show, beside a small one."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import engines
from rtlab import Study
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import Facts
from rtlab.questions.scene import Scene
from rtlab.questions.schedule.panel import schedule


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


def shown(folder: Path, layers: int) -> tuple[Study, Facts]:
    folder.mkdir()
    engines.write(folder, layers)
    study = Study(engines.model(folder))
    study.read("engine", folder / "layers.json", folder / "profile.json")
    found = study["engine"].facts
    engine = spread(found.engine)
    return study, dataclasses.replace(found, engine=engine, measured=engine)


def test_the_panel_of_5000_layers_takes_as_much_longer_as_it_has_layers(
    benchmark, care, tmp_path: Path
) -> None:
    """At most twice as long per step as that of 500."""
    layers = care.size(5_000, 2_000)
    study, large = shown(tmp_path / "large", layers)
    seconds = {}
    for name, (home, found) in {
        "small": shown(tmp_path / "small", layers // 10),
        "large": (study, large),
    }.items():
        scene = Scene(home.snapshot(), found)
        runs = []
        for _ in range(5):
            start = time.perf_counter()
            schedule(scene)
            runs.append(time.perf_counter() - start)
        seconds[name] = min(runs) / len(found.engine.layers)
    panel = benchmark.pedantic(lambda: schedule(Scene(study.snapshot(), large)), rounds=3)
    benchmark.extra_info["megabytes"] = round(len(json.dumps(panel)) / 1e6, 1)
    benchmark.extra_info["per_step_beside_the_small_one"] = ratio = seconds["large"] / seconds["small"]
    assert ratio < 2
