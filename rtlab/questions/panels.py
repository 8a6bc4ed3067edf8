"""The analyses that the page asks for, one module each: time, memory, streams, tuning, recurrence.

Each module has one function of its own name, from a ``Scene`` to a ``Panel``. It is asked when its tab is open, and
again when one of its settings changes, so that nobody waits for what nobody looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rtlab.core.heap import growing
from rtlab.documents.contract import Panel, PanelName
from rtlab.errors import RtlabError, VariantError
from rtlab.questions.batches.panel import batches
from rtlab.questions.difference.panel import difference
from rtlab.questions.formulations.panel import formulations
from rtlab.questions.memory.panel import memory
from rtlab.questions.recurrence.panel import recurrence
from rtlab.questions.roofline.panel import roofline
from rtlab.questions.samples.panel import samples
from rtlab.questions.scene import Scene, panel
from rtlab.questions.schedule.panel import schedule
from rtlab.questions.variants.panel import variants

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: In the order of the tabs.
PANELS: Mapping[str, Callable[[Scene], Panel]] = {
    "roofline": roofline,
    "samples": samples,
    "batches": batches,
    "difference": difference,
    "variants": variants,
    "memory": memory,
    "schedule": schedule,
    "formulations": formulations,
    "recurrence": recurrence,
}
#: Operators that carry a state from step to step.
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def offered(model: Model) -> list[PanelName]:
    """The panels that have something to say of a variant."""
    recurrent = any(n.op in _RECURRENT for n in model.nodes)
    return [PanelName(name) for name in PANELS if recurrent or name != "recurrence"]


def answer(name: str, scene: Scene) -> Panel:
    """One panel; what is in the way is told in it, so that its settings stay at hand.

    Raises:
        VariantError: there is no such panel.
    """
    if name not in PANELS:
        raise VariantError(
            f'Cannot show panel "{name}": there is none of this name. Choose {", ".join(PANELS)}.'
        )
    try:
        with growing():
            return PANELS[name](scene)
    except RtlabError as error:
        return panel(scene, name, "", "", problem=str(error))
