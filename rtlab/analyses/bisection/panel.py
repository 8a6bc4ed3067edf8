"""What changed between two variants, with the button that finds it."""

from __future__ import annotations

from rtlab.analyses.bisection import Bisection
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.titles import get_variant_titles
from rtlab.documents.panel import button, make_select
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
    other = context.other
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
    name, other, variant_titles = context.result.name, context.other, get_variant_titles(context.study)
    bisection = context.study.bisections.get((other, name))
    seconds = context.settings.get("seconds", "")
    seconds = seconds if seconds in _BUDGETS else _USUAL
    others = {n: variant_titles[n] for n in context.study.results if n != name}
    settings = [
        make_select("from", "From", "The variant that this one is compared with.", others, other),
        make_select("seconds", "Budget", "How long both compilers may build parts.", _BUDGETS, seconds),
    ]
    label = "Look again" if bisection else "Find what changed"
    work = [button("bisect", label, **{"from": other, "seconds": seconds})]
    title = f"From {variant_titles[other]} to {variant_titles[name]}"
    if bisection is None:
        note = f"Not measured yet. Both build at most {BUILDS} parts, in at most {_BUDGETS[seconds]}."
        return PanelParts(title=title, settings=settings, work=work, notes=[note])
    notes = [_READ_AS] if any(c.kind for c in bisection.changes) else []
    return PanelParts(title=title, result=bisection, settings=settings, work=work, notes=notes)
