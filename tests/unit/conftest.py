"""What unit tests share."""

from __future__ import annotations

import gc

import pytest

from rtlab.backends.workers import process


def pytest_configure(config: pytest.Config) -> None:
    """The mark of a test that is about the child itself."""
    config.addinivalue_line("markers", "own_child: its children are its own from start to end")


def pytest_collection_finish() -> None:
    """Leave what was collected, thousands of tests and all that they import, out of each search for cycles."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins of a GPU are called in this process; see ``in_process``."""
    if "needs_api" in vars(request.module) and not request.node.get_closest_marker("own_child"):
        import in_process

        monkeypatch.setattr(process, "ChildProcess", in_process.Session)


@pytest.fixture(autouse=True)
def _no_added_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What releases somebody keeps on this machine changes nothing here."""
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path_factory.getbasetemp() / "no compilers"))
