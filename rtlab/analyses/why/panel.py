"""Why nodes are not one step: the missed fusions of a variant, and the experiments on one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.why import FusedLayer, FusionTrial, SplitTrial, Verdict
from rtlab.analyses.why.advice import Advice, is_worthwhile
from rtlab.analyses.why.missed_fusions import ListedPair, MissedFusions, MissedPair, find_missed_fusions
from rtlab.core.phrases import pluralize
from rtlab.core.variant import Rewrite
from rtlab.documents.contract import Fact, Setting, Work
from rtlab.documents.numbers import format_number
from rtlab.documents.panel import button, fact, link, make_select
from rtlab.documents.results import ResultTable
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult
    from rtlab.core.node import Node

_CAUSES = "One row for each cause, with all pairs that it keeps apart. A remedy was built on the whole model."
#: Pairs in the list to choose from; those with less at stake are found through the graph.
_LISTED = 200
_ALL = "all"
#: What stands before the id of a layer whose step is asked about.
_STEP = "layer "
_UNMOVED = "What the values between its nodes would take to be written and read once, at the GPU's bandwidth."


def build_why_panel(context: PanelContext) -> PanelParts:
    """The missed fusions, or the experiments on the pair or the step that is chosen."""
    facts = context.result
    pairs = {f"{m.first} | {m.second}": m for m in find_missed_fusions(facts)}
    chosen = context.settings.get("pair") or _ALL
    layer, one = _layer(facts, chosen), pairs.get(chosen) or _pair(context, chosen)
    if not pairs and layer is None and one is None:
        return PanelParts(
            problem="Every two neighbours whose layers are known are one layer: nothing is missed."
        )
    estimate = estimate_timing(facts)
    total = estimate.estimated if estimate is not None else None
    worth = {k: m for k, m in pairs.items() if is_worthwhile(m, total)}
    # Those that could win nothing are at the end of the list, and are not counted.
    labels = {
        _ALL: pluralize(len(worth), "missed fusion worth asking about", "missed fusions worth asking about")
    }
    labels |= {k: _label(context, m) for k, m in [*(worth | pairs).items()][:_LISTED]}
    if layer is not None:
        labels[chosen] = f"{context.layer_names[layer]}: why it is one layer"
    elif one is not None:
        labels[chosen] = _label(context, one)
    value = chosen if chosen in labels else _ALL
    settings = [make_select("pair", "Pair", "The neighbours that are asked about.", labels, value)]
    if layer is not None:
        return _show_layer(context, layer, settings)
    return _show_all(context, settings) if one is None else _show_pair(context, one, settings)


def _show_all(context: PanelContext, settings: list[Setting]) -> PanelParts:
    """All missed fusions, or the causes behind them."""
    facts, result = context.result, _of_all(context)
    advice = result if isinstance(result, Advice) else None
    label = "Ask about all again" if advice else "Ask about all"
    work = [button("advise", label, _explain_unavailable(facts))]
    if advice and advice.every:
        work += _offer_remedy(facts, advice.every.rewrites)
    causes = advice.causes if advice else ()
    links = {f"row {i}": link(_places(context, *c.apart)) for i, c in enumerate(causes)}
    lead = _CAUSES if advice else ""
    return PanelParts(result=result, lead=lead, settings=settings, work=work, links=links)


def _show_pair(context: PanelContext, one: MissedPair, settings: list[Setting]) -> PanelParts:
    """Why two nodes are not one step."""
    facts = context.result
    verdict = context.study.verdicts.get(facts.name, {}).get((one.first, one.second))
    label = "Ask again" if verdict else "Ask the compiler"
    if facts.engine.maker.predicts or facts.recorded:
        label = "Ask the rules" if facts.engine.maker.predicts else "Read its files"
    parts = PanelParts(
        settings=settings,
        work=[button("why", label, first=one.first, second=one.second)],
        links={"pair": link(_places(context, one.first, one.second))},
    )
    if verdict is None:
        lead = f"{_label(context, one)}: not asked yet. An answer takes about a second."
        return PanelParts(lead=lead, **parts)
    keeps = ""
    if verdict.edit:
        keeps = (
            "The change keeps the outputs but for rounding."
            if verdict.remedy
            else "The change only diagnoses: with it the model computes something else."
        )
    by = f"by {verdict.compiler}, at {verdict.shapes}"
    parts["work"] += _offer_remedy(facts, verdict.rewrites)
    return PanelParts(
        lead=verdict.text,
        facts=[
            fact("Verdict", verdict.verdict, facts.engine.origin, by),
            *([fact("Cause", verdict.cause)] if verdict.cause else []),
            *([fact("Smallest change", verdict.edit, None, keeps)] if verdict.edit else []),
            *(_list_costs(verdict) if verdict.basis == "experiment" else []),
        ],
        table=ResultTable(FusionTrial, verdict.experiments),
        notes=[
            f"Holds for {verdict.compiler}, {verdict.shapes}. {keeps}",
            *filter(None, [verdict.elsewhere]),
        ],
        **parts,
    )


def _show_layer(context: PanelContext, layer: str, settings: list[Setting]) -> PanelParts:
    """Why the nodes of one step are one."""
    fused_layer = context.study.fusion_explanations.get(context.result.name, {}).get(layer)
    label = "Ask again" if fused_layer else "Ask the compiler"
    parts = PanelParts(
        title="Why is it one layer?",
        settings=settings,
        work=[button("why", label, _explain_unavailable(context.result), layer=layer)],
        links={"pair": link(context.nodes(layer), [layer])},
    )
    if fused_layer is None:
        name = context.layer_names[layer]
        lead = f"{name}: not asked yet why it is one layer. An answer takes about a second."
        return PanelParts(lead=lead, **parts)
    saved = fused_layer.saved
    moved = [] if saved is None else [fact("Not moved", format_number(saved, "ms"), "estimated", _UNMOVED)]
    date = f"; {fused_layer.date_text}" if fused_layer.asked else ""
    return PanelParts(
        lead=fused_layer.text,
        facts=[*moved, *_list_costs(fused_layer)],
        table=ResultTable(SplitTrial, fused_layer.experiments),
        notes=[f"Holds for {fused_layer.compiler}, {fused_layer.shapes}{date}."],
        **parts,
    )


def _list_costs(answer: Verdict | FusedLayer) -> list[Fact]:
    took = fact("Took", format_number(answer.seconds, "s"), "measured")
    return [fact("Builds", str(answer.builds)), took]


def _layer(facts: VariantResult, chosen: str) -> str | None:
    """The layer whose step is asked about."""
    name = chosen.removeprefix(_STEP)
    exists = chosen.startswith(_STEP) and any(layer.id == name for layer in facts.engine.layers)
    return name if exists else None


def _pair(context: PanelContext, chosen: str) -> MissedPair | None:
    """A pair that is no missed fusion, such as one that was asked about in the graph."""
    first, _, second = chosen.partition(" | ")
    nodes_by_id = context.model.by_id
    return MissedPair(first, second, None) if first in nodes_by_id and second in nodes_by_id else None


def _offer_remedy(facts: VariantResult, rewrites: tuple[str, ...]) -> list[Work]:
    """The button that builds the model with these nodes written anew, where it has them."""
    if not rewrites or any(Rewrite.of(r).node not in facts.source.by_id for r in rewrites):
        return []
    return [button("remedy", "Build with the remedy", rewrites="\n".join(rewrites))]


def _explain_unavailable(facts: VariantResult) -> str:
    """Why a compiler cannot be asked; empty where it can."""
    if facts.recorded:
        return "Its engine was read from files of another machine"
    predicted = "Its engine is predicted; ask about a pair, and a rule answers"
    return predicted if facts.engine.maker.predicts else ""


def _places(context: PanelContext, *nodes: str) -> tuple[str, ...]:
    """Where nodes of the model run."""
    return tuple(p for n in nodes if n in context.model.by_id for p in context.model.where(n))


def _format_node(node: Node) -> str:
    """What a node is called, with its operator where the name does not tell it."""
    return node.title if node.op.lower() in node.title.lower() else f"{node.op} {node.title}"


def _label(context: PanelContext, one: MissedPair) -> str:
    ops = " | ".join(f"{n.op} {n.id}" for n in map(context.model.by_id.__getitem__, (one.first, one.second)))
    return f"{ops} ({one.stake * 1e3:.3g} µs at stake, estimated)" if one.stake is not None else ops


def explain_fusion(context: PanelContext) -> Verdict | FusedLayer | Advice | MissedFusions:
    """What is known: of the pair or the step that is asked about, else of all pairs, else which fusions are missed."""
    name, pair = context.result.name, context.settings.get("pair", "")
    layer = _layer(context.result, pair)
    if layer is not None:
        fused_layer = context.study.fusion_explanations.get(name, {}).get(layer)
        if fused_layer is None:
            raise VariantError(
                f'Cannot say why "{layer}" is one layer: the compiler was not asked yet. Ask with '
                f"study.fusion.why({layer!r}, variant={name!r})."
            )
        return fused_layer
    first, _, second = pair.partition(" | ")
    verdict = context.study.verdicts.get(name, {}).get((first, second))
    if pair and pair != _ALL and verdict is None:
        raise VariantError(
            f'Cannot say why "{pair}" is not one layer: the compiler was not asked yet. Ask with '
            f"study.fusion.why({first!r}, {second!r}, variant={name!r})."
        )
    return verdict or _of_all(context)


def _of_all(context: PanelContext) -> Advice | MissedFusions:
    """The advice on all pairs, else which there are, with what was found out about them."""
    name, by_id, pairs = context.result.name, context.model.by_id, find_missed_fusions(context.result)
    if name in context.study.advice:
        return context.study.advice[name]
    verdicts, rows = context.study.verdicts.get(name, {}), []
    for m in pairs:
        verdict = verdicts.get((m.first, m.second))
        one, other = (_format_node(by_id[n]) for n in (m.first, m.second))
        outcome = (verdict.verdict, verdict.cause) if verdict else ("not asked", "")
        places = _places(context, m.first, m.second)
        rows.append(ListedPair(m.first, m.second, one, other, m.stake, *outcome, places))
    return MissedFusions(len(rows), tuple(rows))
