"""What the Explorer and its page share: traits, each with what the page draws of it."""

from __future__ import annotations

import threading
from typing import Any

import traitlets

from rtlab.documents.contract import BuildState
from rtlab.web.explorer.transport import DeliveredWidget
from rtlab.web.page.state import parse_steps

IDLE = BuildState(running=False, phase="", fraction=None, elapsed=0.0)


class ExplorerWidget(DeliveredWidget):
    """The traits of the Explorer; what changes them holds ``lock``, so that the page changes in one piece."""

    source = traitlets.Bytes(b"").tag(delivered=True)
    engine = traitlets.Bytes(b"").tag(delivered=True)
    other = traitlets.Bytes(b"").tag(delivered=True)
    #: What follows the picture where that is large, each a ``Later``; empty where the picture has it all.
    engine_later = traitlets.Bytes(b"").tag(delivered=True)
    other_later = traitlets.Bytes(b"").tag(delivered=True)
    inspection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    controls = traitlets.Dict().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)
    chips = traitlets.List().tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    status = traitlets.List().tag(sync=True)
    #: What the study runs on, a ``DataState``.
    data = traitlets.Dict().tag(sync=True)
    notice = traitlets.Unicode("").tag(sync=True)
    #: In pixels; 0 is what the window has room for.
    height = traitlets.Int(0).tag(sync=True)
    #: The presentation, a list of ``Step``, as the page recorded it: plain dicts, to keep in a cell and to set again.
    steps = traitlets.List().tag(sync=True)
    charts = traitlets.Dict().tag(delivered=True)
    #: Technical terms with their meanings, as ``glossary.glossary_terms`` lists them.
    terms = traitlets.List().tag(delivered=True)
    #: Answers that the page draws with code of its own, by the names of their questions; empty where there is none.
    engine_answer = traitlets.Bytes(b"").tag(delivered=True)
    build_answer = traitlets.Bytes(b"").tag(delivered=True)
    calibration_answer = traitlets.Bytes(b"").tag(delivered=True)
    findings_answer = traitlets.Bytes(b"").tag(delivered=True)
    build = traitlets.Dict(dict(IDLE)).tag(sync=True)
    failure = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    #: Rises when the answers of panels may have changed, so that the page requests them again.
    stamp = traitlets.Int(0).tag(sync=True)

    def __init__(self, script: str, **arguments: Any) -> None:
        #: Cells, commands and builds are threads of their own.
        self.lock = threading.RLock()
        super().__init__(script, **arguments)

    @traitlets.validate("steps")  # type: ignore[untyped-decorator]
    def _validate_steps(self, proposal: Any) -> list[Any]:
        return list(parse_steps(proposal["value"]))
