"""Auto-tuning: what was tried for each layer, on this CPU or by the builder, and what the choice is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.core.whole import whole
from rtlab.documents.contract import Panel, Setting, Work
from rtlab.documents.panel import button, choices, stops
from rtlab.errors import VariantError
from rtlab.questions.build.tactics import contests
from rtlab.questions.formulations import tactic_table as contested
from rtlab.questions.formulations import tuning_figures as tuned
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


def formulations(scene: Scene) -> Panel:
    """Candidates of each layer with their times: measured on this CPU, or reported by the builder.

    Raises:
        VariantError: a setting names a layer, or a way of tuning, that there is not.
    """
    found: Tuned | None = scene.study.tuned
    log = questions.build.log(scene.result)
    told = contests(log) if log is not None else ()
    sources = {}
    if found is not None or scene.model.nodes:
        sources[_HERE] = "on this CPU, measured"
    if told:
        sources[_BUILDER] = "by the builder, reported"
    if not sources:
        return FORMULATIONS.panel(scene, work=[_work(scene, None)], problem=_nothing(scene))
    # What was measured here first, else what is there to be seen.
    usual = _BUILDER if told and found is None else _HERE
    chosen = _option(scene, "tuned", sources, usual)
    settings = [choices("tuned", "Tuned", sources, chosen)] if len(sources) > 1 else []
    if chosen == _BUILDER:
        return _builder(scene, told, settings)
    return _here(scene, found, settings)


def _here(scene: Scene, found: Tuned | None, settings: list[Setting]) -> Panel:
    budget = stops("budget", "Seconds", _BUDGETS, _budget(scene))
    work = [_work(scene, found)]
    if found is None:
        return FORMULATIONS.panel(
            scene,
            settings=[*settings, budget],
            work=work,
            notes=list(tuned.BEFORE),
        )
    titles = {y.node: _title(scene, y.node) for y in found.layers}
    names = {"": "all layers", **titles}
    layer = _option(scene, "layer", names, "")
    return FORMULATIONS.panel(
        scene,
        lead=tuned.ONE_LEAD if layer else tuned.LEAD,
        settings=[*settings, choices("layer", "Layer", names, layer), budget],
        work=work,
        facts=tuned.facts(found),
        notes=tuned.notes(found),
        **tuned.parts(found, titles, scene.mapping, layer),
    )


def _builder(scene: Scene, told: tuple[Contest, ...], settings: list[Setting]) -> Panel:
    names = {"": "all layers", **{c.layer: c.layer for c in told}}
    layer = _option(scene, "contest", names, "")
    mapping = scene.mapping
    return FORMULATIONS.panel(
        scene,
        lead=contested.ONE_LEAD if layer else contested.LEAD,
        settings=[*settings, choices("contest", "Layer", names, layer)],
        facts=contested.facts(told, questions.build.log(scene.result)),
        notes=contested.notes(told),
        **contested.parts(told, scene.result.engine, mapping, layer),
    )


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
        f'Cannot show how variant "{scene.result.name}" was tuned: its files hold no verbose build log, and no ONNX '
        "model is there to be tuned here. Give the log of trtexec --verbose as log=..., or the model as model=..."
    )


FORMULATIONS = Question(
    "formulations",
    tab="tuning",
    label="Formulations",
    title=_TITLE,
    lead=_LEAD,
    drawn=formulations,
)
