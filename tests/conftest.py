"""What every test may use. Generators are in strategies.py, files that hurt in hostile.py."""

from __future__ import annotations

import re
import shutil

import hypothesis
import pytest

import rtlab.testing
from rtlab.core.model import Model

# The same examples on every run, so that a failure is of the change and not of the draw. To look further:
# pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="leave out the tests marked slow")
    parser.addoption("--accept", action="store_true", help="write the files of tests/golden anew")
    parser.addoption("--rest", action="store_true", help="run only what --short leaves out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select a tier. ``slow(but="digits_vit")`` is a regular expression of the instances that are not slow."""
    if not (config.getoption("--short") or config.getoption("--rest")):
        return
    slow = [i for i in items if (mark := i.get_closest_marker("slow")) and not _is_representative(i, mark)]
    fast = [i for i in items if i not in {*slow}]
    items[:], left_out = (fast, slow) if config.getoption("--short") else (slow, fast)
    config.hook.pytest_deselected(items=left_out)


def _is_representative(item: pytest.Item, mark: pytest.Mark) -> bool:
    return "but" in mark.kwargs and bool(re.search(mark.kwargs["but"], item.callspec.id))


@pytest.fixture(autouse=True)
def _own_records(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test finds out for that test alone.

    The folder is the same for each test: a child process that waits for work is used again only while the environment
    is the one that it was started in.
    """
    folder = tmp_path_factory.getbasetemp() / "records"
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setenv("RTLAB_RECORDS", str(folder))


@pytest.fixture(scope="session")
def tiny_model() -> Model:
    """Ten nodes with every trait that fusion cares about, N×3×8×8 in."""
    return rtlab.testing.tiny_model()
