"""The analyses that the page asks for, one module each: time, memory, streams, tuning, recurrence.

Each module has one function of its own name, from a ``Scene`` to a ``Panel``. It is imported and asked when its tab is
open, and asked again when one of its settings changes, so that nobody waits for what nobody looks at.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from rtlab.core.heap import growing
from rtlab.errors import RtlabError, VariantError
from rtlab.view.contract import Panel, PanelName
from rtlab.view.panel import Scene, panel

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: In the order of the tabs.
PANELS: tuple[PanelName, ...] = (
    "roofline", "samples", "batches", "difference", "variants", "memory", "schedule", "formulations", "recurrence",
)  # fmt: skip
#: Operators that carry a state from step to step.
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def offered(model: Model) -> list[PanelName]:
    """The panels that have something to say of a variant."""
    recurrent = any(n.op in _RECURRENT for n in model.nodes)
    return [name for name in PANELS if recurrent or name != "recurrence"]


def answer(name: PanelName | str, scene: Scene) -> Panel:
    """One panel; what is in the way is told in it, so that its settings stay at hand.

    Raises:
        VariantError: there is no such panel.
    """
    if name not in PANELS:
        raise VariantError(
            f'Cannot show panel "{name}": there is none of this name. Choose {", ".join(PANELS)}.'
        )
    module = importlib.import_module(f"{__name__}.{name}")
    make: Callable[[Scene], Panel] = getattr(module, name)
    try:
        with growing():
            return make(scene)
    except RtlabError as error:
        return panel(scene, name, "", "", problem=str(error))
