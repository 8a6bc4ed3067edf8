"""Pytest plugin: what each test costs. ``-p cost --cost FILE`` writes a JSON line for each test.

A line holds the seconds of processor time of the test's own process and of its children, for the test with the
fixtures that it alone uses; shared fixtures (module, session) are lines of their own, with the tests that use them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

_state: dict[str, Any] = {"path": None, "children": 0, "shared": 0.0, "users": {}}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cost", metavar="FILE", help="append what each test costs to FILE, one JSON object a line"
    )


def pytest_configure(config: pytest.Config) -> None:
    _state["path"] = config.getoption("--cost")
    if _state["path"]:
        sys.addaudithook(_count_children)


def _count_children(event: str, _args: Any) -> None:
    if event in {"subprocess.Popen", "os.fork", "os.posix_spawn"}:
        _state["children"] += 1


def _seconds() -> tuple[float, float]:
    """Processor seconds of this process, and of its children, those that have ended included."""
    ended = os.times()
    others = ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.Error:
            continue
        others += spent.user + spent.system
    return time.process_time(), others


def _write(**line: Any) -> None:
    with Path(_state["path"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    if not _state["path"] or fixturedef.scope == "function":
        return (yield)
    own, others = _seconds()
    inside = _state["shared"]
    try:
        return (yield)
    finally:
        after = _seconds()
        spent = after[0] - own + after[1] - others
        mine = spent - (_state["shared"] - inside)
        _state["shared"] = inside + spent
        if mine > 0.05:
            _write(
                fixture=fixturedef.argname, file=fixturedef.baseid, scope=fixturedef.scope, seconds=round(mine, 3),
            )  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not _state["path"]:
        return (yield)
    own, others = _seconds()
    children, shared, began = _state["children"], _state["shared"], time.perf_counter()
    try:
        return (yield)
    finally:
        after = _seconds()
        _write(
            test=item.nodeid,
            seconds=round(after[0] - own + after[1] - others - (_state["shared"] - shared), 3),
            children=_state["children"] - children,
            child_seconds=round(after[1] - others, 3),
            wall=round(time.perf_counter() - began, 3),
        )
