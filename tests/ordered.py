"""What ONNX Runtime's child processes are asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rtlab.backends.live.apart import Errand
from rtlab.backends.live.inference import SessionOrder


def orders(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[SessionOrder], SessionOrder] = lambda order: order
) -> list[SessionOrder]:
    """Orders of sessions as they come from now on; each is carried out as ``change`` makes it."""
    found: list[SessionOrder] = []
    real = Errand.call

    def noted(given: object) -> object:
        if not isinstance(given, SessionOrder):
            return given
        found.append(given)
        return change(given)

    def call(self, child, function, payload):
        several = isinstance(payload, tuple)
        changed = tuple(map(noted, payload)) if several else noted(payload)
        return real(self, child, function, changed)

    monkeypatch.setattr(Errand, "call", call)
    return found
