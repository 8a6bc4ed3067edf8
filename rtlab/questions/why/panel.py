"""Why nodes are not one step: the missed fusions of a variant, and the experiments on one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.core.variant import Rewrite
from rtlab.documents.answer import NounTable
from rtlab.documents.contract import Panel, Setting, Work
from rtlab.documents.numbers import number
from rtlab.documents.panel import button, choices, fact, link
from rtlab.errors import VariantError
from rtlab.questions.scene import Question, Scene
from rtlab.questions.why import FusionTrial, Verdict
from rtlab.questions.why.advice import Advice
from rtlab.questions.why.joined import Joined, Parting
from rtlab.questions.why.missed import ListedPair, Missed, MissedFusions, missed

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.node import Node

_TITLE = "Why is it not fused?"
_STEP_TITLE = "Why is it one step?"
_LEAD = (
    "Each row is a pair of neighbours that are not one step. Choose one and ask: rtlab builds parts of the model with "
    "one thing changed, and the compiler itself shows what keeps the two apart."
)
_CAUSES = "One row for each cause, with all pairs that it keeps apart. A remedy was built on the whole model."
#: Pairs in the list to choose from; those with less at stake are found through the graph.
_LISTED = 200
_ALL = "all"
#: What stands before the id of a layer whose step is asked about.
_STEP = "layer "
_UNMOVED = (
    "What the values between its nodes would take to be written and read once, at the bandwidth of the GPU."
)


def why(scene: Scene) -> Panel:
    """The missed fusions, or the experiments on the pair or the step that is chosen."""
    facts = scene.result
    pairs = {_key(m): m for m in missed(facts)}
    chosen = scene.settings.get("pair") or _ALL
    layer, one = _layer(facts, chosen), pairs.get(chosen) or _pair(scene, chosen)
    if not pairs and layer is None and one is None:
        return WHY.panel(
            scene, problem="Every two neighbours whose layers are known are one step: nothing is missed."
        )
    verdicts = scene.study.verdicts.get(facts.name, {})
    labels = {_ALL: f"All {len(pairs)} missed fusions"} | {
        k: _label(scene, m) for k, m in [*pairs.items()][:_LISTED]
    }
    if layer is not None:
        labels[chosen] = f"{scene.called.get(layer, layer)}: why it is one step"
    elif one is not None:
        labels.setdefault(chosen, _label(scene, one))
    settings = [
        choices(
            "pair",
            "Pair",
            "The neighbours that are asked about.",
            labels,
            chosen if chosen in labels else _ALL,
        )
    ]
    if layer is not None:
        return _step(scene, layer, settings)
    found = verdicts.get((one.first, one.second)) if one else None
    work = _work(facts, one, found, scene.study.advice.get(facts.name))
    if one is None:
        noun = _of_all(scene)
        causes = noun.causes if isinstance(noun, Advice) else ()
        links = {f"row {i}": link(_places(scene, *c.apart)) for i, c in enumerate(causes)}
        lead = _CAUSES if isinstance(noun, Advice) else _LEAD
        return WHY.panel(scene, noun, lead=lead, settings=settings, work=work, links=links)
    places = _places(scene, one.first, one.second)
    if found is None:
        return WHY.panel(
            scene,
            lead=f"{_label(scene, one)}: not asked yet. An answer takes about a second.",
            settings=settings,
            work=work,
            links={"pair": link(places)},
        )
    table = NounTable(FusionTrial, found.experiments)
    by = f"by {found.compiler}, at {found.shapes}"
    tried = [
        fact("Builds", str(found.builds)),
        fact("Took", number(found.seconds, "s"), "measured"),
    ]
    return WHY.panel(
        scene,
        lead=found.text,
        settings=settings,
        work=work,
        facts=[
            fact("Verdict", found.verdict, scene.result.engine.origin, by),
            *([fact("Cause", found.cause)] if found.cause else []),
            *([fact("Smallest change", found.edit, None, _keeps(found))] if found.edit else []),
            *(tried if found.basis == "experiment" else []),
        ],
        columns=table.columns() if found.experiments else [],
        rows=table.rows(),
        links={"pair": link(places), **table.links()},
        notes=[
            f"Holds for {found.compiler}, {found.shapes}. {_keeps(found)}",
            *([found.elsewhere] if found.elsewhere else []),
        ],
    )


def _step(scene: Scene, layer: str, settings: list[Setting]) -> Panel:
    """Why the nodes of one step are one."""
    found = scene.study.joined.get(scene.result.name, {}).get(layer)
    reason = _unasked(scene.result)
    label = "Ask again" if found else "Ask the compiler"
    work = button("why", label, reason, layer=layer)
    own = link(scene.nodes(layer), [layer])
    if found is None:
        called = scene.called.get(layer, layer)
        lead = f"{called}: not asked yet why it is one step. An answer takes about a second."
        return WHY.panel(
            scene, title=_STEP_TITLE, lead=lead, settings=settings, work=[work], links={"pair": own}
        )
    table = NounTable(Parting, found.experiments)
    moved = (
        [] if found.saved is None else [fact("Not moved", number(found.saved, "ms"), "estimated", _UNMOVED)]
    )
    return WHY.panel(
        scene,
        title=_STEP_TITLE,
        lead=found.text,
        settings=settings,
        work=[work],
        facts=[
            *moved,
            fact("Builds", str(found.builds)),
            fact("Took", number(found.seconds, "s"), "measured"),
        ],
        columns=table.columns() if found.experiments else [],
        rows=table.rows(),
        links={"pair": own, **table.links()},
        notes=[f"Holds for {found.compiler}, {found.shapes}{'; ' + found.dated if found.asked else ''}."],
    )


def _key(pair: Missed) -> str:
    return f"{pair.first} | {pair.second}"


def _layer(facts: Facts, chosen: str) -> str | None:
    """The layer whose step is asked about."""
    name = chosen.removeprefix(_STEP)
    known = chosen.startswith(_STEP) and any(layer.id == name for layer in facts.engine.layers)
    return name if known else None


def _pair(scene: Scene, chosen: str) -> Missed | None:
    """A pair that is no missed fusion, such as one that was asked about in the graph."""
    first, _, second = chosen.partition(" | ")
    known = scene.model.by_id
    return Missed(first, second, None) if first in known and second in known else None


def _work(facts: Facts, one: Missed | None, found: Verdict | None, advice: Advice | None) -> list[Work]:
    reason = _unasked(facts)
    made = []
    if one is not None:
        pair = {"first": one.first, "second": one.second}
        label = (
            "Ask the rules"
            if facts.engine.maker.predicts
            else "Read its files"
            if reason
            else "Ask again"
            if found
            else "Ask the compiler"
        )
        made.append(button("why", label, **pair))
    else:
        label = "Ask about all again" if advice else "Ask about all"
        made.append(button("advise", label, reason))
    forms = (
        found.rewrites if found else advice.every.rewrites if advice and advice.every and one is None else ()
    )
    source = facts.source.by_id
    if forms and all(Rewrite.of(f).node in source for f in forms):
        made.append(button("remedy", "Build with the remedy", rewrites="\n".join(forms)))
    return made


def _unasked(facts: Facts) -> str:
    """Why a compiler cannot be asked; empty where it can."""
    if facts.recorded:
        return "Its engine was read from files of another machine"
    return (
        "Its engine is predicted; ask about a pair, and a rule answers" if facts.engine.maker.predicts else ""
    )


def _keeps(found: Verdict) -> str:
    if not found.edit:
        return ""
    return (
        "The change keeps the outputs but for rounding."
        if found.remedy
        else "The change only diagnoses: with it the model computes something else."
    )


def _places(scene: Scene, *nodes: str) -> tuple[str, ...]:
    """Where nodes of the model run."""
    return tuple(p for n in nodes if n in scene.model.by_id for p in scene.model.where(n))


def _named(node: Node) -> str:
    """What a node is called, with its operator where the name does not tell it."""
    return node.title if node.op.lower() in node.title.lower() else f"{node.op} {node.title}"


def _label(scene: Scene, one: Missed) -> str:
    ops = " | ".join(f"{n.op} {n.id}" for n in map(scene.model.by_id.__getitem__, (one.first, one.second)))
    return f"{ops} ({one.stake * 1e3:.3g} µs at stake, estimated)" if one.stake is not None else ops


def answer(scene: Scene) -> Verdict | Joined | Advice | MissedFusions:
    """What is known: of the pair or the step that is asked about, else of all pairs, else which fusions are missed."""
    name, pair = scene.result.name, scene.settings.get("pair", "")
    layer = _layer(scene.result, pair)
    if layer is not None:
        joined = scene.study.joined.get(name, {}).get(layer)
        if joined is None:
            raise VariantError(
                f'Cannot tell why "{layer}" is one step: nobody asked the compiler yet. Ask with '
                f"study.why({layer!r}, variant={name!r})."
            )
        return joined
    first, _, second = pair.partition(" | ")
    known = scene.study.verdicts.get(name, {}).get((first, second))
    if pair and pair != _ALL and known is None:
        raise VariantError(
            f'Cannot tell why "{pair}" is not one step: nobody asked the compiler yet. Ask with '
            f"study.why({first!r}, {second!r}, variant={name!r})."
        )
    return known or _of_all(scene)


def _of_all(scene: Scene) -> Advice | MissedFusions:
    """The advice on all pairs, else which there are, with what was found out about them."""
    name, by_id, pairs = scene.result.name, scene.model.by_id, missed(scene.result)
    if name in scene.study.advice:
        return scene.study.advice[name]
    known, rows = scene.study.verdicts.get(name, {}), []
    for m in pairs:
        found, one, other = known.get((m.first, m.second)), _named(by_id[m.first]), _named(by_id[m.second])
        told = (found.verdict, found.cause) if found else ("not asked", "")
        rows.append(
            ListedPair(m.first, m.second, one, other, m.stake, *told, _places(scene, m.first, m.second))
        )
    return MissedFusions(len(rows), tuple(rows))


WHY = Question("why", tab="fusion", label="Why", title=_TITLE, lead=_LEAD, noun=answer, drawn=why)
