"""Memory that is looked for before a build or a run of large weights begins."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from rtlab.backends.workers.process import BUILDING, Bounds
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import BuildError

GIB = 1 << 30


def bounds(limits: Limits | None = None) -> Bounds:
    return Bounds('Backend "b" cannot build "fp16"', BUILDING, limits or Limits(), Silent())


@pytest.fixture(autouse=True)
def _ten_gibibytes_are_free(monkeypatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10 * GIB))


def test_what_is_there_is_announced_with_its_numbers() -> None:
    """3.2 times 3 GiB are 9.6."""
    words = bounds().require_memory(3 * GIB, 3.2)
    assert words == (
        "the build takes about 9.6 GiB of memory, 3.2 times its weights of 3.00 GiB; 10.0 GiB are free or granted"
    )


def test_what_is_not_there_is_refused_before_it_begins() -> None:
    with pytest.raises(
        BuildError, match=r"12\.8 GiB of memory, 3\.2 times its weights of 4\.00 GiB, and 10\.0 GiB"
    ):
        bounds().require_memory(4 * GIB, 3.2)
    with pytest.raises(BuildError, match=r"9\.6 GiB .* and 9\.0 GiB are free or granted by rtlab\.Limits"):
        bounds(Limits(memory=9 * GIB)).require_memory(3 * GIB, 3.2)


def test_of_small_weights_nothing_is_said() -> None:
    """Below 512 MiB, also where there is less memory."""
    assert not bounds().require_memory(GIB // 2 - 1, 100.0)
    assert bounds().require_memory(GIB // 2, 1.0)
