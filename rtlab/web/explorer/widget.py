"""Widgets whose code and payloads travel as messages, so that no saved notebook keeps them; and their work on a thread.

Every synced trait lands in a notebook that is saved with its widgets: nbclient takes it from the wire, JupyterLab from
its models. Here only ``parcels`` is synced, which says what there is; ``widgets/src/core/loader.ts`` fetches it, and
stands in the saved notebook in the place of the code. What only some tabs need is fetched by its name, later.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.progress import Reporting
from rtlab.documents import commands
from rtlab.documents.commands import Command, FetchParcel
from rtlab.documents.contract import BuildState, Parcel, Reply
from rtlab.documents.serialization import encode
from rtlab.errors import Cancelled, RtlabError, VariantError
from rtlab.relation.mapping import map_to_places
from rtlab.web.page.charts import CORE, bundle, edition, parts
from rtlab.web.page.graph import engine_view, source_graph
from rtlab.web.page.state import ViewState, parse_steps
from rtlab.web.page.still import draw_still
from rtlab.web.page.table import describe_failure

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult

#: Seconds from one delivery to the next while the kernel is too busy to receive requests.
_UNASKED = (0.3, 0.7, 2.0, 7.0)
#: Seconds that the picture needs at most, where the kernel receives requests.
_SOON = 1.0


#: Parts of the code that were sent unasked.
_sent: set[str] = set()


class DeliveredWidget(anywidget.AnyWidget):  # type: ignore[misc] # the base is untyped
    """The base of rtlab's widgets.

    A trait with the tag ``delivered`` is sent when it is set, because a page listens as soon as the widget is made and
    works while the kernel does; and when a view fetches it, such as that of a page which was loaded again.
    ``parcels`` has the digest of each, which is empty where nothing is to be fetched. A kernel that runs the next cell
    hears nobody; so after a display everything is sent a few times unasked, until a view is heard.

    Args:
        script: The part of the code that draws the widget; it stands on the core.
        handle: Obeys a command of the page, with the files that came with it; None where there are no other commands
            than those of the transport.
        report_error: Says why a command could not be obeyed; its second argument continues "Cannot".
        traits: Values of traits.
    """

    parcels = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        script: str,
        *,
        handle: Callable[[Command, Sequence[Any]], object] | None = None,
        report_error: Callable[[Exception, str], None] | None = None,
        **traits: Any,
    ) -> None:
        self._handle, self._report_error = handle, report_error
        self._esm = bundle("loader.js")
        # What is sent must be the latest on its way: a build's thread and a command may send the same.
        self._send_lock = threading.RLock()
        #: Whether a page may show the widget.
        self.is_displayed = False
        self._request_event = threading.Event()
        #: Parts that a page has asked for by their name.
        self._requested_parts: set[str] = set()
        self._code = (CORE, script)
        super().__init__(**traits)
        names = self.trait_names(delivered=True)
        self.parcels = {
            **dict.fromkeys(self._code, edition()),
            **{n: _digest(getattr(self, n)) for n in names},
        }
        self.observe(lambda change: self._deliver(change["name"]), names)
        self.on_msg(self._receive)

    @traitlets.observe("comm")  # type: ignore[untyped-decorator]
    def _on_comm(self, change: Any) -> None:
        """Have what a page says heard where the page sends it.

        ipykernel 7.4 sends it where the message came from that the kernel answered last with this comm instead. That
        may be the main shell, so that Cancel waits for the cell; or the subshell of a comm that is closed by now, as
        JupyterLab opens one to find widgets, and then it is lost.
        """
        comm = change["new"]
        if hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = lambda _data, sent_to: sent_to  # noqa: SLF001 - ipykernel has no setting

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.is_displayed = True
        data, metadata = super()._repr_mimebundle_(**options)
        if is_executed_unwatched():
            # The page that would draw the widget never comes.
            data, metadata = {"text/plain": repr(self)}, {}
        else:
            threading.Thread(target=self._deliver_unasked, name="rtlab-delivery", daemon=True).start()
        with contextlib.suppress(RtlabError):
            data["text/html"] = self.draw_still()
        return data, metadata

    def draw_still(self) -> str:
        """What a saved notebook shows where no kernel runs, as HTML."""
        raise NotImplementedError

    def _deliver_unasked(self) -> None:
        """Send everything a few times until a page is heard, then the optional parts that it has not fetched.

        The picture does not wait for those, a tab may be opened at any time, and the kernel may run the next cell then.
        """
        for pause in _UNASKED:
            is_heard = self._request_event.wait(pause)
            if is_heard:
                time.sleep(_SOON)
            with self._send_lock:
                tags = {} if is_heard else {name: tag for name, tag in self.parcels.items() if tag}
                optional = [name for name in _optional_parts(self._code) if name not in self._requested_parts]
                for name, tag in {**tags, **dict.fromkeys(optional, edition())}.items():
                    self._hand_over(name, tag)
            if is_heard:
                return

    def _deliver(self, name: str) -> None:
        with self._send_lock:
            tag = _digest(getattr(self, name))
            if tag != self.parcels.get(name):
                self._send_code()
                if tag:
                    self._hand_over(name, tag)
                self.parcels = {**self.parcels, name: tag}

    def _send_code(self) -> None:
        """Once: a page that has it keeps it, and one that was loaded again fetches it."""
        for name in self._code:
            tag = self.parcels.get(name, "")
            if tag and name not in _sent:
                _sent.add(name)
                self._hand_over(name, tag)

    def _receive(self, _widget: Any, content: object, buffers: Sequence[Any]) -> None:
        """A message of the page; a command that this kernel does not have is ignored."""
        action = "do what the page asks for"
        try:
            command = commands.read(content)
            if command is None:
                return
            action = command.action
            if isinstance(command, FetchParcel):
                self._send_parcel(command.name)
            elif self._handle is not None:
                self._handle(command, buffers)
        except Exception as error:  # Jupyter would write it to a hidden log
            if self._report_error is None:
                raise
            self._report_error(error, action)

    def _send_parcel(self, name: str) -> None:
        self._request_event.set()
        with self._send_lock:
            tag = self.parcels.get(name)
            if name in _optional_parts(self._code):
                self._requested_parts.add(name)
                tag = edition()
            if tag:
                self._hand_over(name, tag)

    def tell(self, reply: Reply, *buffers: bytes) -> None:
        """Send a reply to the page."""
        self.send(reply.to_dict(), buffers=[*buffers])

    def _hand_over(self, name: str, tag: str) -> None:
        value = _compress_part(name) if name.endswith(".js") else getattr(self, name)
        is_binary = isinstance(value, bytes)
        self.tell(Parcel(name, tag, *([] if is_binary else [value])), *([value] if is_binary else []))


def is_executed_unwatched() -> bool:
    """Whether a program executes the whole notebook and no page shows it meanwhile, as ``jupyter nbconvert`` does.

    Such a program answers no ``input``. Voila, which does not either, shows the widgets that it has executed.
    """
    kernel = (
        getattr(sys.modules["IPython"].get_ipython(), "kernel", None) if "IPython" in sys.modules else None
    )
    # Unlike the address of a request, Voila's own is there in a kernel that was started before anybody came.
    if kernel is None or "VOILA_BASE_URL" in os.environ:
        return False
    request = kernel.get_parent("shell") or {}
    return not request.get("content", {}).get("allow_stdin", True)


def _digest(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.sha256(data).hexdigest()[:12] if data else ""


def _optional_parts(code: tuple[str, ...]) -> list[str]:
    """The parts that a widget may need beside its own: tabs are the Explorer's."""
    return [name for name in parts() if name.startswith("tab-")] if "explorer.js" in code else []


@functools.cache
def _compress_part(name: str) -> bytes:
    return gzip.compress(parts()[name].encode(), mtime=0)


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


class LinkedGraphs(DeliveredWidget):
    """A model beside the engine of one variant, or of two. ``state`` has what is selected; ``select`` changes it."""

    source = traitlets.Bytes(b"").tag(delivered=True)
    engine = traitlets.Bytes(b"").tag(delivered=True)
    other = traitlets.Bytes(b"").tag(delivered=True)
    view = traitlets.Dict().tag(sync=True)
    height = traitlets.Int(480).tag(sync=True)
    #: What its variants are called, by name.
    titles = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        study: StudyState,
        result: VariantResult,
        other: VariantResult | None = None,
        *,
        height: int = 480,
    ) -> None:
        self._study, self._model = study, study.model
        self._result, self._other = result, other
        view = ViewState(variant=result.name)
        if self._other is not None:
            view = view.compare(self._other.name, None)
        super().__init__(
            "graph.js",
            source=encode(source_graph(self._model)),
            engine=encode(engine_view(self._result, self._model)),
            other=encode(engine_view(self._other, self._model)) if self._other else b"",
            view=dict(view.payload()),
            height=height,
            titles=dict(get_variant_titles(study)),
        )

    def __repr__(self) -> str:
        return f"<LinkedGraphs {self._model.name}: {', '.join(r.name for r in (self._result, self._other) if r)}>"

    def draw_still(self) -> str:
        """The model and the engine as a picture."""
        return draw_still(self._study, self._result.name)

    @property
    def state(self) -> ViewState:
        """What is selected now."""
        return ViewState.from_payload(self.view)

    def arrange(self, **changes: object) -> LinkedGraphs:
        """Group, colour and place, as the menus of the panes do: see ``ViewState.arrange``."""
        self.view = dict(self.state.arrange(**changes).payload())
        return self

    def select(self, *nodes: str) -> None:
        """Select nodes by id on both sides.

        Raises:
            ModelError: there is no such node.
        """
        mappings = [
            map_to_places(map_nodes(r), self._model) if r else None for r in (self._result, self._other)
        ]
        self.view = dict(self.state.select(self._model.chosen(nodes), *mappings).payload())


class TaskRunner:
    """Does one piece of work at a time on a thread, and shows on the widget how far it is and how it failed."""

    def __init__(self, widget: ExplorerWidget) -> None:
        self.widget = widget
        #: Called when work begins, with the variant that it builds if it builds one; and when it is over.
        self.on_start: Callable[[str], None] = lambda _: None
        self.on_end: Callable[[], None] = lambda: None
        self.thread: threading.Thread | None = None
        self._progress: Reporting | None = None
        #: The variant that is being built.
        self.building, self.busy = "", False

    def wait(self, timeout: float | None = None) -> None:
        """Block until there is no work."""
        end = None if timeout is None else time.monotonic() + timeout
        while (thread := self.thread) is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
            if thread is self.thread or thread.is_alive():
                break

    def cancel(self) -> None:
        """Stop the work."""
        if self._progress is not None:
            self._progress.cancel()

    def start(self, work: Callable[[Reporting], object], action: str, name: str = "") -> None:
        """Do work on a thread, unless there is some: ``action`` continues "Cannot", ``name`` is the variant built."""
        with self.widget.lock:
            if self.busy:
                return
            self.widget.failure = None
            self.building, self.busy = name, True

        def tell(phase: str, done: int, total: int | None, elapsed: float) -> None:
            fraction = min(1.0, done / total) if total else None
            text = phase + progress.pace
            self.widget.build = dict(BuildState(running=True, phase=text, fraction=fraction, elapsed=elapsed))

        self._progress = progress = Reporting(tell)
        progress.phase("Starting")
        self.on_start(name)

        def main() -> None:
            try:
                work(progress)
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, the user must read it in the cell
                self.widget.failure = dict(describe_failure(error, action, self.building))
            finally:
                self.building = ""
                self.on_end()
                self.widget.stamp += 1
                # Last, since the next work may start at once.
                self.busy = False
                self.widget.build = dict(IDLE)

        self.thread = threading.Thread(target=main, name="rtlab-build", daemon=True)
        self.thread.start()

    def report_error(self, error: Exception, action: str) -> None:
        """Show why something could not be done; ``action`` continues "Cannot"."""
        # One like that on screen would be no change, and the page would go on waiting.
        self.widget.failure = None
        self.widget.failure = {**describe_failure(error, action), "kind": type(error).__name__}

    def check_idle(self, prefix: str) -> None:
        """Raise ``VariantError`` while there is work."""
        if self.busy:
            raise VariantError(f"{prefix}: another build is running. Wait for it, or cancel it first.")
