"""What ONNX Runtime's child processes are asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rtlab.backends.workers import session_child
from rtlab.backends.workers.inference import SessionSpec


def orders(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[SessionSpec], SessionSpec] = lambda order: order
) -> list[SessionSpec]:
    """Orders of sessions as they come from now on; each is carried out as ``change`` makes it."""
    found: list[SessionSpec] = []
    real = session_child.call

    def noted(given: object) -> object:
        if not isinstance(given, SessionSpec):
            return given
        found.append(given)
        return change(given)

    def call(function, payload, *where):
        several = isinstance(payload, tuple)
        changed = tuple(map(noted, payload)) if several else noted(payload)
        return real(function, changed, *where)

    monkeypatch.setattr(session_child, "call", call)
    return found
