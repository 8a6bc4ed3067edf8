"""What changed between two variants, with the button that finds it."""

from __future__ import annotations

from rtlab.analyses.bisection import Bisection, ChangedGroup
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.titles import get_variant_titles
from rtlab.documents.numbers import format_number
from rtlab.documents.panel import button, fact, make_select
from rtlab.documents.results import ResultTable
from rtlab.errors import VariantError

#: Seconds that it may take, by what the setting says, and how many parts may be built.
_BUDGETS = {"10": "10 s", "60": "60 s", "300": "5 min"}
_READ_AS = (
    "Semicolons part layers, and a plus joins what one layer runs; with Q it quantizes for a neighbour too, and with "
    "DQ it reads what was quantized."
)
_USUAL, BUILDS = "60", 200


def get_bisection(context: PanelContext) -> Bisection:
    """What changed from the other variant to the one shown.

    Raises:
        VariantError: it is the only one, or nobody looked yet.
    """
    other = _choose_other_variant(context)
    bisection = context.study.bisections.get((other, context.result.name))
    if bisection is None:
        raise VariantError(
            f'Cannot show what changed from "{other}" to "{context.result.name}": it is not measured yet. Run '
            f"study.fusion.bisect({other!r}, {context.result.name!r})."
        )
    return bisection


def build_bisection_panel(context: PanelContext) -> PanelParts:
    """What changed, as far as it was looked for, and what looks for it.

    Raises:
        VariantError: there is no other variant.
    """
    name, other, variant_titles = (
        context.result.name,
        _choose_other_variant(context),
        get_variant_titles(context.study),
    )
    bisection = context.study.bisections.get((other, name))
    seconds = context.settings.get("seconds", "")
    seconds = seconds if seconds in _BUDGETS else _USUAL
    others = {n: variant_titles[n] for n in context.study.results if n != name}
    settings = [
        make_select("from", "From", "The variant that this one is compared with.", others, other),
        make_select(
            "seconds", "Budget", "How long both compilers may build parts of the model.", _BUDGETS, seconds
        ),
    ]
    label = "Look again" if bisection else "Find what changed"
    work = [button("bisect", label, **{"from": other, "seconds": seconds})]
    title = f"From {variant_titles[other]} to {variant_titles[name]}"
    if bisection is None:
        budget_text = f"at most {BUILDS} parts, in at most {_BUDGETS[seconds]}"
        note = (
            f"Not measured yet. Both build {budget_text}. It can be stopped: what was found by then is kept."
        )
        return PanelParts(title=title, settings=settings, work=work, notes=[note])
    table = ResultTable(ChangedGroup, bisection.changes, placeholder="", of=bisection)
    panel_facts = [fact("Groups", str(len(bisection.changes)))]
    if sum(c.places for c in bisection.changes) > len(bisection.changes):
        panel_facts.append(fact("Places", str(sum(c.places for c in bisection.changes))))
    if bisection.left:
        panel_facts.append(
            fact("Not examined", str(bisection.left), None, "Groups that the budget, or a stop, left.")
        )
    if bisection.builds:
        panel_facts += [
            fact("Builds", str(bisection.builds)),
            fact("Took", format_number(bisection.seconds, "s"), "measured"),
        ]
    return PanelParts(
        title=title,
        lead=bisection.text,
        settings=settings,
        work=work,
        facts=panel_facts,
        columns=table.columns() if bisection.changes else [],
        rows=table.rows(),
        links=table.links(),
        notes=[
            *([_READ_AS] if any(c.kind for c in bisection.changes) else []),
            *([bisection.said] if bisection.said else []),
        ],
    )


def _choose_other_variant(context: PanelContext) -> str:
    """The variant from which something changed: the one chosen, else the one beside it, else any."""
    others = [n for n in context.study.results if n != context.result.name]
    preferred_name = context.settings.get("from") or (context.baseline.name if context.baseline else "")
    other = preferred_name if preferred_name in others else next(iter(others), "")
    if not other:
        raise VariantError(
            "There is nothing to compare with yet: this is the only variant. Build a second one, in another "
            "precision or with another release for example, or read an engine from files."
        )
    return other
