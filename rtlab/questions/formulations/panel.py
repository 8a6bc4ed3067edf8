"""Auto-tuning: what was tried for each layer, on this CPU or by the builder, and what the choice is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.core.whole import whole
from rtlab.documents.contract import Panel, Setting, Work
from rtlab.documents.panel import button, choices, stops
from rtlab.errors import ReadError, RunError, VariantError
from rtlab.questions.build.tactics import contests
from rtlab.questions.formulations import tactic_table as contested
from rtlab.questions.formulations import tuning_figures as tuned
from rtlab.questions.formulations.tactic_table import BuilderTuning
from rtlab.questions.formulations.tuning_figures import OwnTuning
from rtlab.questions.scene import Question, Scene

if TYPE_CHECKING:
    from rtlab.formulations.trial import Tuned
    from rtlab.questions.build.tactics import Contest

#: Seconds that the button may spend.
_BUDGETS = (10, 30, 60, 120, 300)
_USUAL = 60
#: A day: nobody waits longer.
_LONGEST = 86_400
_HERE, _BUILDER = "here", "builder"
_TITLE = "Auto-tuning"
_LEAD = (
    "A convolution can be computed in many ways that give the same but for rounding: directly, as one large product of "
    "matrices (im2col), by Winograd's algorithm, by spectra. Which is fastest depends on its shape and on the "
    "processor, so a compiler tries them and keeps the fastest. Do the same here: every way is built as an ONNX graph, "
    "checked, timed."
)


def told(scene: Scene) -> BuilderTuning | OwnTuning:
    """What was tried for all layers, or for one: measured on this CPU, or reported by the builder.

    Raises:
        VariantError: a setting names a way of tuning that there is not.
        ReadError: neither model nor log is there.
        RunError: nothing was tuned here yet.
    """
    log, sources = questions.build.log(scene.result), _sources(scene)
    if not sources:
        raise ReadError(_nothing(scene))
    if log is not None and _source(scene, sources) == _BUILDER:
        found = _contests(scene)
        return contested.contested(found, log, _layer(scene, found)[0])
    if scene.study.tuned is None:
        raise RunError(
            f'Cannot tell how "{scene.model.name}" is computed fastest: nothing was tuned yet. Run study.tune() first.'
        )
    layer, titles = _node(scene, scene.study.tuned)
    return tuned.tuning(scene.study.tuned, titles, scene.mapping, layer)


def formulations(scene: Scene) -> Panel:
    """The same as figures and a table.

    Raises:
        VariantError: a setting names a way of tuning that there is not.
    """
    sources = _sources(scene)
    if not sources:
        return FORMULATIONS.panel(scene, work=[_work(scene, None)], problem=_nothing(scene))
    chosen = _source(scene, sources)
    settings = (
        [choices("tuned", "Tuned", "Who timed the ways: rtlab here, or the builder.", sources, chosen)]
        if len(sources) > 1
        else []
    )
    return (_builder if chosen == _BUILDER else _here)(scene, settings)


def _here(scene: Scene, settings: list[Setting]) -> Panel:
    budget, found = (
        stops(
            "budget", "Seconds", "How long ways may be timed, all layers together.", _BUDGETS, _budget(scene)
        ),
        scene.study.tuned,
    )
    work = [_work(scene, found)]
    if found is None:
        return FORMULATIONS.panel(scene, settings=[*settings, budget], work=work, notes=list(tuned.BEFORE))
    layer, titles = _node(scene, found)
    return FORMULATIONS.panel(
        scene,
        told(scene),
        lead=tuned.ONE_LEAD if layer else tuned.LEAD,
        settings=[
            *settings,
            choices(
                "layer",
                "Layer",
                "All layers in short, or one with every way to compute it.",
                {"": "all layers", **titles},
                layer,
            ),
            budget,
        ],
        work=work,
        **tuned.drawn(found, titles, scene.mapping, layer),
    )


def _builder(scene: Scene, settings: list[Setting]) -> Panel:
    found = _contests(scene)
    layer, names = _layer(scene, found)
    return FORMULATIONS.panel(
        scene,
        told(scene),
        lead=contested.ONE_LEAD if layer else contested.LEAD,
        settings=[
            *settings,
            choices(
                "contest",
                "Layer",
                "All layers in short, or one with every tactic that was timed.",
                {"": "all layers", **names},
                layer,
            ),
        ],
        **contested.drawn(found, layer, scene.nodes),
    )


def _contests(scene: Scene) -> tuple[Contest, ...]:
    log = questions.build.log(scene.result)
    found = contests(log, {y.name: y.id for y in reversed(scene.result.engine.layers)}) if log else ()
    return tuple(c for c in found if not c.operator)


def _sources(scene: Scene) -> dict[str, str]:
    here = scene.study.tuned is not None or scene.model.nodes
    found = {_HERE: "on this CPU, measured"} if here else {}
    return found | ({_BUILDER: "by the builder, reported"} if _contests(scene) else {})


def _source(scene: Scene, sources: Mapping[str, str]) -> str:
    """What was chosen, else what was measured here, else what is there to be seen."""
    usual = _BUILDER if _BUILDER in sources and scene.study.tuned is None else _HERE
    return _option(scene, "tuned", sources, usual)


def _layer(scene: Scene, found: Sequence[Contest]) -> tuple[str, dict[str, str]]:
    """The layer that was chosen among those of a log, empty of all, and what they are called."""
    names = {c.layer: c.layer for c in found}
    return _option(scene, "contest", {"": "", **names}, ""), names


def _node(scene: Scene, found: Tuned) -> tuple[str, dict[str, str]]:
    """The same of those that were tuned here."""
    titles = {y.node: _title(scene, y.node) for y in found.layers}
    return _option(scene, "layer", {"": "", **titles}, ""), titles


def _option(scene: Scene, key: str, options: Mapping[str, str], usual: str) -> str:
    asked = scene.settings.get(key) or usual
    if asked not in options:
        # A layer of another variant, or of a model tuned before, may still be set.
        if key in {"layer", "contest"}:
            return usual
        listed = ", ".join(f'"{o}"' for o in options)
        raise VariantError(
            f'Cannot show the tuning "{asked}" of variant "{scene.result.name}": there is none. Choose one of {listed}.'
        )
    return asked


def _title(scene: Scene, node: str) -> str:
    place = scene.model.places.get(node)
    return place.node.title if place else node


def _work(scene: Scene, found: Tuned | None) -> Work:
    budget = _budget(scene)
    reason = "" if scene.model.nodes else "No ONNX model was given with this engine: give it with model=..."
    again = "Tune again" if found else "Tune on this CPU"
    return button("tune", f"{again} (about {budget} s)", reason, budget_s=str(budget))


def _budget(scene: Scene) -> int:
    return whole(scene.number("budget", _USUAL), "Cannot tune for", "number of seconds", most=_LONGEST)


def _nothing(scene: Scene) -> str:
    return (
        f'Cannot show how variant "{scene.result.name}" was tuned: its files hold no build log that times tactics, '
        "and no ONNX model is there to be tuned here. Give the log of trtexec --verbose as log=..., "
        "or the model as model=..."
    )


FORMULATIONS = Question(
    "formulations",
    tab="tuning",
    label="Formulations",
    title=_TITLE,
    lead=_LEAD,
    told="Every way to compute a layer, and how long each takes.",
    noun=told,
    drawn=formulations,
)
