"""The questions that the page asks, in the order of the tabs: a new one is a line here.

A panel is asked for when its tab is open, and again when one of its settings changes, so that nobody waits for what
nobody looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.documents.contract import Panel, PanelName
from rtlab.errors import RtlabError, VariantError
from rtlab.questions.batches.panel import BATCHES
from rtlab.questions.difference.panel import DIFFERENCE
from rtlab.questions.formulations.panel import FORMULATIONS
from rtlab.questions.kernels import KERNELS
from rtlab.questions.memory.panel import MEMORY
from rtlab.questions.recurrence.panel import RECURRENCE
from rtlab.questions.roofline.panel import ROOFLINE
from rtlab.questions.samples.panel import SAMPLES
from rtlab.questions.scene import Question, Scene
from rtlab.questions.schedule.panel import SCHEDULE
from rtlab.questions.variants.panel import VARIANTS

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.documents.answer import Answer

QUESTIONS: tuple[Question, ...] = (
    ROOFLINE,
    KERNELS,
    SAMPLES,
    BATCHES,
    DIFFERENCE,
    VARIANTS,
    MEMORY,
    SCHEDULE,
    FORMULATIONS,
    RECURRENCE,
)
PANELS: Mapping[str, Question] = {q.name: q for q in QUESTIONS}


def offered(model: Model) -> list[PanelName]:
    """The panels that have something to say of a variant."""
    return [PanelName(name) for name, question in PANELS.items() if question.concerns(model)]


def answer(name: str, scene: Scene) -> Panel:
    """One panel; what is in the way is told in it, so that its settings stay at hand.

    Raises:
        VariantError: there is no such panel.
    """
    question = _known(name, "show panel")
    try:
        return question.show(scene)
    except RtlabError as error:
        return question.panel(scene, problem=str(error))


def ask(name: str, scene: Scene) -> Answer:
    """The answer to one question that has a noun of its own.

    Raises:
        VariantError: there is no such question, or it only draws.
        RtlabError: what it needs of the variant is not known.
    """
    return _known(name, "answer").ask(scene)


def _known(name: str, doing: str) -> Question:
    if name not in PANELS:
        raise VariantError(
            f'Cannot {doing} "{name}": there is none of this name. Choose {", ".join(PANELS)}.'
        )
    return PANELS[name]
