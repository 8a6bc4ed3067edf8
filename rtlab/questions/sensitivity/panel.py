"""Who is guilty of a variant's error, with the button that finds it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtlab.documents.answer import facts
from rtlab.documents.contract import Panel
from rtlab.documents.panel import button, choices
from rtlab.errors import RunError
from rtlab.questions.scene import Question, Scene
from rtlab.questions.sensitivity import ASKED, LOSSES, Asks, By, LossName, Sensitivity

_LEAD = (
    "What each node, or each place that rounds, does to the outputs, alone or left out alone. A large error of a value "
    "may come from far before it; these are the places that make it."
)
_SETTINGS: Mapping[str, tuple[str, str, Mapping[Any, str]]] = {
    "asks": (
        "Alone",
        "Whether each is rounded alone, or left out alone while all others are rounded.",
        {"only": "quantized", "released": "released"},
    ),
    "by": (
        "Of",
        "Nodes, or the single places that round what a node reads and writes.",
        {"node": "nodes", "quantizer": "places that round"},
    ),
    "loss": (
        "Loss",
        "What is counted as an effect: the change of the outputs, or of the loss on labels.",
        {"outputs": "of the outputs", "labels": "of the labels"},
    ),
}


def guilty(scene: Scene) -> Sensitivity:
    """The ranking of a variant.

    Raises:
        RunError: nobody looked yet.
    """
    name, asked = scene.result.name, _asked(scene)
    found = scene.study.sensitivities.get(name, {}).get(asked)
    if found is None:
        raise RunError(
            f'Cannot tell who is guilty of the error of "{name}": nobody looked yet. Look with '
            f'study.sensitivity("{name}", asks="{asked[0]}", by="{asked[1]}").'
        )
    return found


def _asked(scene: Scene) -> tuple[Asks, By, LossName]:
    given = scene.settings
    asks: Asks = "released" if given.get("asks") == "released" else "only"
    by: By = "quantizer" if given.get("by") == "quantizer" else "node"
    loss: LossName = "labels" if given.get("loss") == "labels" else "outputs"
    return asks, by, loss


def sensitivity(scene: Scene) -> Panel:
    """The ranking that is chosen, and what looks for it."""
    asked = _asked(scene)
    result = scene.result
    values = dict(zip(_SETTINGS, asked, strict=True))
    shown = {k: s for k, s in _SETTINGS.items() if k != "loss" or scene.study.task is not None}
    settings = [
        choices(key, label, said, dict(options), values[key]) for key, (label, said, options) in shown.items()
    ]
    reason = ""
    if result.recorded:
        reason = "Its engine was read from files of another machine"
    elif result.prepared.emulated is result.source:
        reason = "Nothing of it is rounded: it computes in fp32"
    found = scene.study.sensitivities.get(result.name, {}).get(asked)
    work = [
        button("sensitivity", "Look on more samples" if found else "Look for the guilty", reason, **values)
    ]
    if found is None:
        problem = f"{reason}." if reason else ""
        before = f"Nobody looked yet. Asked is {ASKED[asked[0]]}. Effects are differences of the {LOSSES[asked[2]]}."
        return SENSITIVITY.panel(
            scene, settings=settings, work=work, problem=problem, notes=[] if problem else [before]
        )
    rests = f"{found.question[:1].upper()}{found.question[1:]}; effects are differences of the {found.loss}."
    return SENSITIVITY.panel(
        scene,
        found,
        settings=settings,
        work=work,
        facts=[f for f in facts(found) if f["key"] not in _IN_WORDS],
        notes=[*found.notes, rests, f"{found.source}."],
    )


#: What stands in sentences below the table, or in the settings: a card of it would leave no room for numbers.
_IN_WORDS = frozenset({"Question", "Loss", "Source"})


SENSITIVITY = Question(
    "sensitivity",
    tab="accuracy",
    label="Who is guilty",
    title="Who is guilty",
    lead=_LEAD,
    told="Which nodes, or places that round, change the outputs most.",
    noun=guilty,
    drawn=sensitivity,
)
