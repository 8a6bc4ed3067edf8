"""What changed between two variants, with the button that finds it and the text and files for a bug report."""

from __future__ import annotations

from rtlab.documents.answer import NounTable
from rtlab.documents.contract import Panel
from rtlab.documents.numbers import number
from rtlab.documents.panel import button, choices, fact
from rtlab.errors import VariantError
from rtlab.questions.bisection import Bisection, Changed
from rtlab.questions.bisection.report import READ_AS, text
from rtlab.questions.scene import Question, Scene
from rtlab.questions.titles import titles

_LEAD = (
    "Which nodes share their layers otherwise than in the other variant, and the smallest part of the model that still "
    "shows it: both compilers build parts of it until they differ."
)
#: Seconds that it may take, by what the setting says, and how many parts may be built.
_BUDGETS = {"10": "10 s", "60": "60 s", "300": "5 min"}
_NOW = "It was found before, and nothing was built now. Look again to ask the compilers."
_USUAL, BUILDS = "60", 200


def told(scene: Scene) -> Bisection:
    """What changed from the other variant to the one shown.

    Raises:
        VariantError: it is the only one, or nobody looked yet.
    """
    other = _other(scene)
    found = scene.study.bisections.get((other, scene.result.name))
    if found is None:
        raise VariantError(
            f'Cannot tell what changed from "{other}" to "{scene.result.name}": nobody looked yet. Look with '
            f"study.bisect({other!r}, {scene.result.name!r})."
        )
    return found


def bisection(scene: Scene) -> Panel:
    """What changed, as far as it was looked for, and what looks for it.

    Raises:
        VariantError: there is no other variant.
    """
    name, other, called = scene.result.name, _other(scene), titles(scene.study)
    found = scene.study.bisections.get((other, name))
    seconds = scene.settings.get("seconds", "")
    seconds = seconds if seconds in _BUDGETS else _USUAL
    others = {n: called[n] for n in scene.study.facts if n != name}
    settings = [
        choices("from", "From", "The variant that this one is compared with.", others, other),
        choices(
            "seconds", "Budget", "How long both compilers may build parts of the model.", _BUDGETS, seconds
        ),
    ]
    values = {"from": other, "seconds": seconds, "again": "yes" if found else ""}
    work = [button("bisect", "Look again" if found else "Find what changed", **values)]
    title = f"From {called[other]} to {called[name]}"
    if found is None:
        most = f"at most {BUILDS} parts, in at most {_BUDGETS[seconds]}"
        before = f"Nobody looked yet. Both build {most}. It can be stopped: what was found by then is kept."
        return BISECTION.panel(scene, title=title, settings=settings, work=work, notes=[before])
    work.append(button("bugreport", "Save the files", **{"from": other}))
    table = NounTable(Changed, found.changes, untold="", of=found)
    known = [fact("Groups", str(len(found.changes)))]
    if sum(c.places for c in found.changes) > len(found.changes):
        known.append(fact("Places", str(sum(c.places for c in found.changes))))
    if found.left:
        known.append(fact("Not looked at", str(found.left), None, "Groups that the budget, or a stop, left."))
    if found.builds:
        known += [
            fact("Builds", str(found.builds), None, f"Of {found.budget}."),
            fact("Took", number(found.seconds, "s"), "measured", f"Of {found.budget}."),
            fact(
                "Asked on", f"{found.asked[:16].replace('T', ' ')} UTC", None, _NOW if found.recalled else ""
            ),
        ]
    return BISECTION.panel(
        scene,
        title=title,
        lead=found.text,
        settings=settings,
        work=work,
        facts=known,
        columns=table.columns() if found.changes else [],
        rows=table.rows(),
        links=table.links(),
        notes=[
            *([READ_AS] if any(c.kind for c in found.changes) else []),
            *([found.said] if found.said else []),
        ],
        quoted=text(found, scene.model),
    )


def _other(scene: Scene) -> str:
    """The variant from which something changed: the one chosen, else the one beside it, else any."""
    others = [n for n in scene.study.facts if n != scene.result.name]
    chosen = scene.settings.get("from") or (scene.baseline.name if scene.baseline else "")
    other = chosen if chosen in others else next(iter(others), "")
    if not other:
        raise VariantError(
            "There is nothing to compare with yet: this is the only variant. Build a second one, in another "
            "precision or with another release for example, or read an engine from files."
        )
    return other


BISECTION = Question(
    "bisection",
    tab="compare",
    label="What changed",
    title="What changed, and the smallest part that shows it",
    lead=_LEAD,
    told="Which nodes share their layers otherwise, and the smallest part that shows it.",
    noun=told,
    drawn=bisection,
    each=True,
)
