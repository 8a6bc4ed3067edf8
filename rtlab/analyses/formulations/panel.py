"""Auto-tuning: what was tried for each layer, on this CPU or by the builder, and what the choice is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.tactics import find_contests
from rtlab.analyses.formulations import tactic_table as contested
from rtlab.analyses.formulations import tuning_figures as tuned
from rtlab.analyses.formulations.tactic_table import BuilderTuning
from rtlab.analyses.formulations.tuning_figures import OrtTuning
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.core.phrases import quote_names
from rtlab.core.validation import validate_integer
from rtlab.documents.contract import Setting, Work
from rtlab.documents.panel import button, make_select, make_slider
from rtlab.errors import ReadError, RunError, VariantError

if TYPE_CHECKING:
    from rtlab.analyses.build.tactics import Contest
    from rtlab.formulations.trial import TunedModel

#: Seconds that the button may spend.
_BUDGETS = (10, 30, 60, 120, 300)
_USUAL = 60
#: A day: nobody waits longer.
_LONGEST = 86_400
_HERE, _BUILDER = "here", "builder"
_ONE_WAY = "All layers in short, or one with every way to compute it."
_ONE_TACTIC = "All layers in short, or one with every tactic that was timed."


def analyze_tuning(context: PanelContext) -> BuilderTuning | OrtTuning:
    """What was tried for all layers, or for one: measured on this CPU, or reported by the builder.

    Raises:
        VariantError: a setting names a way of tuning that there is not.
        ReadError: neither model nor log is there.
        RunError: nothing was tuned here yet.
    """
    log, sources = get_build_log(context.result), _sources(context)
    if not sources:
        raise ReadError(_explain_missing_tuning(context))
    if log is not None and _source(context, sources) == _BUILDER:
        layer_contests = _contests(context)
        layer = _choose_layer(context, "contest", {c.layer: c.layer for c in layer_contests})
        return contested.summarize_contests(layer_contests, log, layer)
    if context.study.tuned is None:
        raise RunError(
            f'Cannot show how "{context.model.name}" is computed fastest: nothing was tuned yet. Run '
            "study.tuning.tune() first."
        )
    titles = _title_nodes(context, context.study.tuned)
    layer = _choose_layer(context, "layer", titles)
    return tuned.summarize_tuning(context.study.tuned, titles, context.mapping, layer)


def build_tuning_panel(context: PanelContext) -> PanelParts:
    """The same as figures and a table.

    Raises:
        VariantError: a setting names a way of tuning that there is not.
    """
    sources = _sources(context)
    if not sources:
        return PanelParts(work=[_work(context, None)], problem=_explain_missing_tuning(context))
    chosen = _source(context, sources)
    select = make_select("tuned", "Tuned", "Who timed the ways: rtlab here, or the builder.", sources, chosen)
    build_panel = _build_builder_panel if chosen == _BUILDER else _build_cpu_panel
    return build_panel(context, [select] if len(sources) > 1 else [])


def _build_cpu_panel(context: PanelContext, settings: list[Setting]) -> PanelParts:
    cpu_tuning, hint = context.study.tuned, "How long ways may be timed, all layers together."
    budget = make_slider("budget", "Seconds", hint, _BUDGETS, _budget(context))
    work = [_work(context, cpu_tuning)]
    if cpu_tuning is None:
        return PanelParts(settings=[*settings, budget], work=work, notes=[tuned.BEFORE])
    titles = _title_nodes(context, cpu_tuning)
    layer = _choose_layer(context, "layer", titles)
    select = make_select("layer", "Layer", _ONE_WAY, {"": "all layers", **titles}, layer)
    return PanelParts(
        result=analyze_tuning(context),
        lead=tuned.ONE_LEAD if layer else tuned.LEAD,
        settings=[*settings, select, budget],
        work=work,
        **tuned.draw_figures(cpu_tuning, titles, context.mapping, layer),
    )


def _build_builder_panel(context: PanelContext, settings: list[Setting]) -> PanelParts:
    layer_contests = _contests(context)
    names = {c.layer: c.layer for c in layer_contests}
    layer = _choose_layer(context, "contest", names)
    select = make_select("contest", "Layer", _ONE_TACTIC, {"": "all layers", **names}, layer)
    return PanelParts(
        result=analyze_tuning(context),
        lead=contested.ONE_LEAD if layer else contested.LEAD,
        settings=[*settings, select],
        **contested.draw_figures(layer_contests, layer, context.nodes),
    )


def _contests(context: PanelContext) -> tuple[Contest, ...]:
    log = get_build_log(context.result)
    ids = {y.name: y.id for y in reversed(context.result.engine.layers)}
    return tuple(c for c in find_contests(log, ids) if not c.operator) if log else ()


def _sources(context: PanelContext) -> dict[str, str]:
    here = context.study.tuned is not None or context.model.nodes
    sources = {_HERE: "on this CPU, measured"} if here else {}
    return sources | ({_BUILDER: "by the builder, reported"} if _contests(context) else {})


def _source(context: PanelContext, sources: Mapping[str, str]) -> str:
    """What was chosen, else what was measured here, else what is there to be seen."""
    usual = _BUILDER if _BUILDER in sources and context.study.tuned is None else _HERE
    choice = context.settings.get("tuned") or usual
    if choice not in sources:
        raise VariantError(
            f'Cannot show the tuning "{choice}" of variant "{context.result.name}": there is none. Choose one of '
            f"{quote_names(sources)}."
        )
    return choice


def _choose_layer(context: PanelContext, key: str, names: Mapping[str, str]) -> str:
    """The layer of the setting, empty for all: one of another variant may still be set."""
    choice = context.settings.get(key, "")
    return choice if choice in names else ""


def _title_nodes(context: PanelContext, cpu_tuning: TunedModel) -> dict[str, str]:
    places = context.model.places
    return {y.node: places[y.node].node.title if y.node in places else y.node for y in cpu_tuning.layers}


def _work(context: PanelContext, cpu_tuning: TunedModel | None) -> Work:
    budget = _budget(context)
    reason = "" if context.model.nodes else "No ONNX model was given with this engine: give it with model=..."
    again = "Tune again" if cpu_tuning else "Tune on this CPU"
    return button("tune", f"{again} (about {budget} s)", reason, budget_s=str(budget))


def _budget(context: PanelContext) -> int:
    return validate_integer(
        context.get_number("budget", _USUAL), "Cannot tune for", "number of seconds", most=_LONGEST
    )


def _explain_missing_tuning(context: PanelContext) -> str:
    return (
        f'Cannot show how variant "{context.result.name}" was tuned: its files hold no build log that times tactics, '
        "and no ONNX model is there to be tuned here. Give the log of trtexec --verbose as log=..., "
        "or the model as model=..."
    )
