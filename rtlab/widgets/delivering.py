"""Widgets whose script and payloads travel as messages, so that no saved notebook keeps them.

Every synced trait lands in a notebook that is saved with its widgets: nbclient takes it from the wire, JupyterLab from
its models. Here only ``parcels`` is synced, which says what there is; ``widgets/src/loader.ts`` asks for it, and stands
in the saved notebook in the place of the script.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import threading
from typing import Any

import anywidget
import traitlets

from rtlab.view.bundle import bundle


class Delivering(anywidget.AnyWidget):  # type: ignore[misc] # the base is untyped
    """The base of rtlab's widgets.

    A trait with the tag ``delivered`` is sent when it is set, for the views that are open, and when one asks for it:
    the second view of a widget, or that of a page which was loaded again. ``parcels`` has the digest of each, which is
    empty where nothing is to be fetched.

    Args:
        script: The bundle that draws the widget.
        traits: Values of traits.
    """

    parcels = traitlets.Dict().tag(sync=True)

    def __init__(self, script: str, **traits: Any) -> None:
        self._esm = bundle("loader.js")
        # What is sent must be the latest on its way: a build's thread and a gesture may send the same.
        self._sending = threading.RLock()
        self._script = _packed(script)
        super().__init__(**traits)
        names = self.trait_names(delivered=True)
        self.parcels = {"script": _digest(self._script), **{n: _digest(getattr(self, n)) for n in names}}
        self.observe(lambda change: self._deliver(change["name"]), names)
        self.on_msg(self._fetched)

    def _deliver(self, name: str) -> None:
        with self._sending:
            tag = _digest(getattr(self, name))
            if tag != self.parcels.get(name):
                self._send(name, tag)
                self.parcels = {**self.parcels, name: tag}

    def _fetched(self, _widget: Any, content: dict[str, Any], _buffers: list[Any]) -> None:
        name = str(content.get("value", ""))
        if content.get("type") == "fetch":
            with self._sending:
                if self.parcels.get(name):
                    self._send(name, self.parcels[name])

    def _send(self, name: str, tag: str) -> None:
        value = self._script if name == "script" else getattr(self, name)
        head = {"type": "parcel", "value": f"{name} {tag}"}
        if isinstance(value, bytes):
            self.send(head, buffers=[value])
        else:
            self.send({**head, "content": value})


def _digest(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.sha256(data).hexdigest()[:16] if data else ""


@functools.cache
def _packed(script: str) -> bytes:
    return gzip.compress(bundle(script).encode(), mtime=0)
