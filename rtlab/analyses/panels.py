"""The questions that the page asks, in the order of the tabs: a new one is a line here.

A panel is asked for when its tab is open, and again when one of its settings changes, so that nobody waits for what
nobody looks at. What the page draws with code of its own is sent when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rtlab.analyses.accuracy.panel import ACCURACY
from rtlab.analyses.batches.panel import BATCHES
from rtlab.analyses.bisection.panel import BISECTION
from rtlab.analyses.build.panel import BUILD
from rtlab.analyses.calibration.panel import CALIBRATION
from rtlab.analyses.channels.panel import CHANNELS
from rtlab.analyses.diagnosis.panel import DIAGNOSIS
from rtlab.analyses.difference.panel import DIFFERENCE
from rtlab.analyses.engine.panel import ENGINE
from rtlab.analyses.findings.panel import FINDINGS
from rtlab.analyses.formulations.panel import FORMULATIONS
from rtlab.analyses.kernels import KERNELS
from rtlab.analyses.memory.panel import MEMORY
from rtlab.analyses.panel_context import PanelContext, PanelSpec
from rtlab.analyses.recipe.panel import RECIPE
from rtlab.analyses.recurrence.panel import RECURRENCE
from rtlab.analyses.repair.panel import REPAIR
from rtlab.analyses.roofline.panel import ROOFLINE
from rtlab.analyses.samples.panel import SAMPLES
from rtlab.analyses.schedule.panel import SCHEDULE
from rtlab.analyses.score.panel import SCORE
from rtlab.analyses.sensitivity.panel import SENSITIVITY
from rtlab.analyses.table.panel import TABLE
from rtlab.analyses.variants.panel import VARIANTS
from rtlab.analyses.why.panel import WHY
from rtlab.documents.contract import Panel, PanelName
from rtlab.documents.payload import encode
from rtlab.documents.tabs import TABS
from rtlab.errors import RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.documents.answer import Answer

QUESTIONS: tuple[PanelSpec, ...] = (
    ROOFLINE,
    KERNELS,
    SAMPLES,
    BATCHES,
    DIFFERENCE,
    BISECTION,
    VARIANTS,
    WHY,
    MEMORY,
    SCHEDULE,
    FORMULATIONS,
    RECURRENCE,
    ACCURACY,
    CHANNELS,
    SCORE,
    SENSITIVITY,
    DIAGNOSIS,
    REPAIR,
    ENGINE,
    BUILD,
    CALIBRATION,
    FINDINGS,
    TABLE,
    RECIPE,
)
PANELS: Mapping[str, PanelSpec] = {q.name: q for q in QUESTIONS}
#: Tabs that show panels.
_ANALYSES = {tab.name for tab in TABS if tab.part == "analysis"}


def list_panels(model: Model) -> list[PanelName]:
    """The panels that have something to say of a variant, where the page has no code of its own for it."""
    return [PanelName(n) for n, q in PANELS.items() if q.tab in _ANALYSES and q.concerns(model)]


def render_panel(name: str, context: PanelContext) -> Panel:
    """One panel; what is in the way is told in it, so that its settings stay at hand.

    Raises:
        VariantError: there is no such panel.
    """
    question = _get_panel_spec(name, "show panel")
    try:
        return question.show(context)
    except RtlabError as error:
        return question.panel(context, problem=str(error))


def ask(name: str, context: PanelContext) -> Answer:
    """The answer to one question.

    Raises:
        VariantError: there is no such question.
        RtlabError: what it needs of the variant is not known.
    """
    return _get_panel_spec(name, "answer").ask(context)


def encode_payloads(context: PanelContext, *, shared: bool = False) -> dict[str, bytes]:
    """What the page draws with code of its own, by the question's name, as ``encode`` makes it.

    Empty where something is missing, which the page says itself. ``shared`` are the answers that are the same for every
    variant, and else those of one.
    """
    return {
        q.name: _encode_payload(q.noun, q.payload_type, context)
        for q in QUESTIONS
        if q.payload_type and q.shared == shared
    }


def _encode_payload(noun: Callable[[PanelContext], Any], kind: type, context: PanelContext) -> bytes:
    try:
        return encode(noun(context), kind)
    except RtlabError:
        return b""


def _get_panel_spec(name: str, action: str) -> PanelSpec:
    if name not in PANELS:
        raise VariantError(
            f'Cannot {action} "{name}": there is none of this name. Choose {", ".join(PANELS)}.'
        )
    return PANELS[name]
