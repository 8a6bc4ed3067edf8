"""What an engine and a profile tell, as checks."""

from __future__ import annotations

import numpy as np

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Capabilities
from rtlab.core.trace import Profile
from rtlab.core.variant import Target
from rtlab.testing.assertions import check_date, hold


def check_engine(engine: Engine, model: Model, target: Target, *, made_by: str, able: Capabilities) -> None:
    """Fail unless an engine is that of a model and a target, as the backend of this name makes them."""
    hold(isinstance(engine, Engine), f"build() gives {type(engine).__name__}, and an Engine belongs there")
    hold(engine.backend == made_by, f'the engine says that "{engine.backend}" made it')
    hold(engine.target == target, f'the engine is for "{engine.target}", and "{target}" was asked for')
    hold(engine.version, "the engine is of no version")
    hold(
        engine.maker == able.maker,
        f"its maker is {engine.maker}, and that claimed {able.maker}",
    )
    check_date(engine.built, "the build")
    ids = [layer.id for layer in engine.layers]
    hold(ids, "the engine has no layers")
    hold(len(ids) == len(set(ids)), "two layers have one id")
    places = [layer.index for layer in engine.layers]
    hold(places == sorted(places), "layers are not in the order of their index")
    read, made = [t.name for t in engine.inputs], [t.name for t in engine.outputs]
    hold(set(read) == set(model.inputs), f"its inputs are {read}, and those of the model {model.inputs}")
    hold(set(made) == set(model.outputs), f"its outputs are {made}, and those of the model {model.outputs}")
    reports = engine.maker.reports
    hold("memory" in reports or not engine.totals, f"it reports no memory, and tells {dict(engine.totals)}")
    hold(
        "streams" in reports or not any(y.stream for y in engine.layers),
        "it reports no streams, and tells some",
    )
    hold(
        "tactics" in reports or not any(y.tactic for y in engine.layers),
        "it reports no tactics, and tells some",
    )


def check_profile(found: Profile, engine: Engine, runs: int, *, layered: bool) -> None:
    """Fail unless a profile has as many runs as were asked for, of whole inferences and, ``layered``, of layers."""
    hold(isinstance(found, Profile), f"profile() gives {type(found).__name__}, and a Profile belongs there")
    hold(found.source, "the times do not say who measured them")
    hold(found.device, "the times do not say on which device")
    check_date(found.taken, "the profile")
    hold((found.runs or 0) >= runs, f"{runs} runs were asked for, and {found.runs} are told")
    hold(
        len(found.total) >= runs,
        f"{runs} runs were asked for, and {len(found.total)} are timed as a whole",
    )
    hold(
        len(found.total) >= (found.runs or 0),
        f"it tells of {found.runs} runs, and has times of {len(found.total)} inferences",
    )
    hold(np.isfinite(found.total).all(), "a time of an inference is no number")
    hold((np.asarray(found.total) > 0).all(), "an inference takes no time")
    strange = set(found.samples) - {y.id for y in engine.layers}
    hold(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
    if not layered:
        hold(not found.samples, 'it times "inferences" only, and tells times of layers')
        return
    hold(found.samples, 'it times "layers", and tells of none')
    for layer, times in found.samples.items():
        hold(
            len(times) == found.runs,
            f'"{layer}" has {len(times)} times, and there were {found.runs} runs',
        )
        hold(np.isfinite(times).all(), f'a time of "{layer}" is no number')
        hold((np.asarray(times) >= 0).all(), f'"{layer}" takes less than no time')
