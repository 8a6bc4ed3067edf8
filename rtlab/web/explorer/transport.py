"""Widgets whose code and payloads travel as messages, so that no saved notebook keeps them.

Every synced trait lands in a notebook that is saved with its widgets: nbclient takes it from the wire, JupyterLab from
its models. Here only ``parcels`` is synced, which says what there is; ``widgets/src/core/loader.ts`` fetches it, and
stands in the saved notebook in the place of the code. What only some tabs need is fetched by its name, later.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import traitlets

from rtlab.documents import commands
from rtlab.documents.commands import Command, FetchParcel
from rtlab.documents.contract import Parcel, Reply
from rtlab.web.page.bundle import CORE, bundle, edition, parts

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
        threading.Thread(target=self._deliver_unasked, name="rtlab-delivery", daemon=True).start()
        return super()._repr_mimebundle_(**options)

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


def _digest(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.sha256(data).hexdigest()[:12] if data else ""


def _optional_parts(code: tuple[str, ...]) -> list[str]:
    """The parts that a widget may need beside its own: tabs are the Explorer's."""
    return [name for name in parts() if name.startswith("tab-")] if "explorer.js" in code else []


@functools.cache
def _compress_part(name: str) -> bytes:
    return gzip.compress(parts()[name].encode(), mtime=0)
