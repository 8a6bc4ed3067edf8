"""A pytest plugin of ``tests/run plant``: measures what tests take, or runs selected tests in a given order.

``RTLAB_PLANT_MEASURE`` names the folder that gets ``tests.json``: by test, its seconds, its outcome and its group.
``RTLAB_PLANT_SELECT`` names a file with the tests to run, one a line after its limit in seconds. Beside it
``last`` holds which test began last and ``failed`` which failed, so that a process that was killed leaves a name too.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

MEASURE, SELECT = os.environ.get("RTLAB_PLANT_MEASURE"), os.environ.get("RTLAB_PLANT_SELECT")
_GROUPED = re.compile(r"(.*)@([^@\[\]/]+)", re.DOTALL)
_tests: dict[str, dict[str, object]] = {}


def split_group(nodeid: str) -> tuple[str, str]:
    """The name of a test, and the group that ``--dist loadgroup`` writes behind it."""
    match = _GROUPED.fullmatch(nodeid)
    return (match[1], match[2]) if match else (nodeid, "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not SELECT:
        return
    lines = [line.split(" ", 1) for line in Path(SELECT).read_text(encoding="utf-8").splitlines()]
    order = {name: (at, float(limit)) for at, (limit, name) in enumerate(lines)}
    selected = sorted((i for i in items if i.nodeid in order), key=lambda i: order[i.nodeid])
    for item in selected:
        item.add_marker(pytest.mark.timeout(order[item.nodeid][1]), append=False)
    config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in order])
    items[:] = selected


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write down which test begins; ``child/sitecustomize.py`` reads it in the child processes of tests."""
    if SELECT:
        Path(SELECT).with_name("last").write_text(nodeid, encoding="utf-8")
    if MEASURE:
        current = Path(MEASURE, f"current-{os.getpid()}")
        current.write_text(split_group(nodeid)[0], encoding="utf-8")
        os.environ["RTLAB_PLANT_CURRENT"] = str(current)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name, group = split_group(report.nodeid)
    test = _tests.setdefault(name, {"seconds": 0.0, "outcome": "passed", "group": group})
    test["seconds"] = float(str(test["seconds"])) + report.duration
    if report.outcome != "passed":
        test["outcome"] = report.outcome
    if SELECT and report.outcome == "failed":
        Path(SELECT).with_name("failed").write_text(report.nodeid, encoding="utf-8")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if MEASURE and not hasattr(session.config, "workerinput"):
        Path(MEASURE, "tests.json").write_text(json.dumps(_tests), encoding="utf-8")
