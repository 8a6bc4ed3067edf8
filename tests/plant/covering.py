"""A pytest plugin of ``tests/run plant``: notes how long each test takes, and runs only chosen tests in a chosen order.

``RTLAB_PLANT_NOTES`` names the file that gets, by test, its seconds and how it ended. ``RTLAB_PLANT_CHOSEN`` names a
file with the tests to run, one a line after its seconds, in the order in which they run. Beside it ``.last`` after its
name holds what began last and ``.failed`` what failed, so that a process that is ended says with what.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

NOTES, CHOSEN = os.environ.get("RTLAB_PLANT_NOTES"), os.environ.get("RTLAB_PLANT_CHOSEN")
#: Seconds that a test has beside several times what it took: more than any machine is slower than it was.
PATIENCE, TIMES = 45.0, 6.0

_GROUPED = re.compile(r"(.*)@([^@\[\]/]+)", re.DOTALL)
_tests: dict[str, dict[str, object]] = {}


def named(told: str) -> tuple[str, str]:
    """The name of a test, and the group that ``--dist loadgroup`` writes behind it."""
    found = _GROUPED.fullmatch(told)
    return (found[1], found[2]) if found else (told, "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what is chosen, in its order, each test with a limit of its own."""
    if not CHOSEN:
        return
    lines = [line.split(" ", 1) for line in Path(CHOSEN).read_text(encoding="utf-8").splitlines()]
    places = {test: (at, float(seconds)) for at, (seconds, test) in enumerate(lines)}
    kept = sorted((i for i in items if i.nodeid in places), key=lambda i: places[i.nodeid])
    for item in kept:
        item.add_marker(pytest.mark.timeout(PATIENCE + TIMES * places[item.nodeid][1]), append=False)
    config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in places])
    items[:] = kept


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test begins."""
    if CHOSEN:
        Path(f"{CHOSEN}.last").write_text(nodeid, encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what a test took, with its fixtures."""
    name, group = named(report.nodeid)
    noted = _tests.setdefault(name, {"seconds": 0.0, "outcome": "passed", "group": group})
    noted["seconds"] = float(str(noted["seconds"])) + report.duration
    if report.outcome != "passed":
        noted["outcome"] = report.outcome
    if CHOSEN and report.outcome == "failed":
        Path(f"{CHOSEN}.failed").write_text(report.nodeid, encoding="utf-8")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the notes, in the process that hears of every test."""
    if NOTES and not hasattr(session.config, "workerinput"):
        Path(NOTES).write_text(json.dumps(_tests), encoding="utf-8")
