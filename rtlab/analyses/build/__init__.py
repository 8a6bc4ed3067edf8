"""How an engine was built, from its log: passes and steps on the model's graph, contests of tactics, memory."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Annotated

from rtlab.analyses.build.replay import ReplayedStep, replay_decisions
from rtlab.analyses.build.tactics import Contest, find_contests
from rtlab.analyses.cards.picture import Detail
from rtlab.analyses.panel_context import PanelContext
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.core.schema import FieldMeta, Origin
from rtlab.documents.numbers import format_bytes
from rtlab.errors import ReadError
from rtlab.relation.mapping import Mapping


def get_build_log(facts: VariantResult) -> BuildLog | None:
    """What the builder told of the build: passes, decisions, tactics, memory; None where it left no log.

    Raises:
        ReadError: nothing in it tells of a build.
    """
    return _parse_log(facts.engine) if facts.build_log is None and facts.engine.log else facts.build_log


@memoized
def _parse_log(engine: Engine) -> BuildLog:
    """The log of an engine, parsed once however many results it is part of."""
    from rtlab.backends.readers import reading

    return reading.parse_log(engine.log or "")


_TOTALS = {
    "activation": "Activations",
    "weights": "Weights",
    "scratch": "Largest scratch",
    "host": "Persistent, host",
    "device": "Persistent, device",
}


@dataclasses.dataclass(frozen=True)
class BuildPass:
    """A pass of the builder: layers before and after it, None where untold, and its steps from ``first`` on."""

    name: Annotated[str, FieldMeta("Pass")]
    before: Annotated[int | None, FieldMeta("Layers before", origin="reported")]
    after: Annotated[int | None, FieldMeta("Layers after", origin="reported")]
    first: int
    steps: Annotated[int, FieldMeta("Decisions", origin="reported")]


@dataclasses.dataclass(frozen=True)
class BuildStory:
    """The verbose log of one build, replayed: ``attempts`` are networks that went through all passes.

    ``title`` names compiler and device. ``memory`` and ``notes`` are lines ready to show.
    """

    title: Annotated[str, FieldMeta("Compiler")]
    counts: tuple[int, ...]
    passes: Annotated[tuple[BuildPass, ...], FieldMeta("Passes")]
    steps: tuple[ReplayedStep, ...]
    attempts: Annotated[int, FieldMeta("Networks tried", origin="reported")]
    contests: Annotated[tuple[Contest, ...], FieldMeta("Contests of tactics")]
    memory: tuple[Detail, ...]
    notes: tuple[str, ...]
    origin: Origin = "reported"


def build_story(
    log: BuildLog, model: Model, engine: Engine | None = None, mapping: Mapping | None = None
) -> BuildStory:
    """What a verbose log tells of one build.

    Args:
        log: The build.
        model: The model that was built.
        engine: The engine that came of it; steps and contests name its layers.
        mapping: The relation of the two.
    """
    build_replay = replay_decisions(log, model, engine, mapping)
    origin = engine.origin if engine else "reported"
    place = log.device or ("device not recorded" if log.target.sm is None else str(log.target))
    title = f"TensorRT {log.version or '(version not reported)'} · {place}"
    starts = itertools.accumulate((len(p.decisions) for p in build_replay.passes), initial=0)
    return BuildStory(
        title=engine.title if engine and engine.log else title,
        counts=log.attempts[log.chosen].counts if log.attempts else (),
        passes=tuple(
            BuildPass(p.name, p.before, p.after, first, len(p.decisions))
            for p, first in zip(build_replay.passes, starts, strict=False)
        ),
        steps=build_replay.steps,
        attempts=len(log.attempts),
        contests=find_contests(log, {y.name: y.id for y in reversed(engine.layers)} if engine else {}),
        memory=tuple(
            {"key": title, "value": format_bytes(log.totals[key])}
            for key, title in _TOTALS.items()
            if log.totals.get(key)
        ),
        notes=tuple(_list_notes(log, *build_replay.coverage, nodes=len(model.nodes))),
        origin=origin,
    )


def _list_notes(log: BuildLog, matched_steps: int, steps: int, *, nodes: int) -> list[str]:
    notes = list(log.notes)
    if len(log.attempts) > 1:
        attempt = log.attempts[log.chosen]
        name = f" ({attempt.name})" if attempt.name else ""
        notes.append(
            f"The builder tried {len(log.attempts)} networks and took number {log.chosen + 1}{name}; this is its story."
        )
    if steps and nodes:
        notes.append(
            f"{matched_steps} of {steps} steps concern nodes of the model; the others concern constants and layers "
            "that the parser added, or bear other names."
        )
    notes += [
        f"{len(sparsity.eligible)} layers could use sparse tactics, {len(sparsity.chosen)} do: "
        f"{', '.join(sparsity.chosen or sparsity.eligible)}."
        for sparsity in log.sparsity
        if sparsity.eligible
    ]
    notes += [f"Streams: {text}" for text in log.streams]
    if log.seconds is not None:
        notes.append(f"The build took {log.seconds:.4g} s.")
    return notes


def analyze_build(context: PanelContext) -> BuildStory:
    """How an engine was built.

    Raises:
        ReadError: no log tells.
    """
    result = context.result
    if (log := get_build_log(result)) is None:
        raise ReadError(
            f'Cannot show how "{result.name}" was built: there is no verbose log of it. Read the engine together with '
            "the log of trtexec --verbose (log=)."
        )
    return build_story(log, context.model, result.engine, context.mapping)
