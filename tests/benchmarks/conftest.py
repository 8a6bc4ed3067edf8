"""Benchmarks in the browser use the browser tests' own server and page.

``tests/run bench`` measures, and wants a machine that does nothing else. ``tests/run smoke`` gives ``--smoke``: each
way through the code once and small, with bounds of time ``Care.WIDE`` times as wide, which still find what stopped to
work or became slow by an order. Bounds of memory, of bytes and of growth are the same in both.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import pytest

# What is timed here begins on a page that was never used.
from browser.conftest import chromium, lab, profile
from browser.conftest import fresh_lab_page as lab_page

__all__ = ["chromium", "lab", "lab_page", "profile"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Care:
    """How carefully is measured: whole, or in a smoke run."""

    WIDE: ClassVar[float] = 4.0

    smoke: bool

    def size(self, whole: T, small: T) -> T:
        """How large, how often or what a benchmark measures."""
        return small if self.smoke else whole

    def most(self, bound: float) -> float:
        """What a time, or its ratio to a peer's, may be."""
        return bound * self.WIDE if self.smoke else bound

    def least(self, bound: float) -> float:
        """How many times as fast as a peer it has to be."""
        return bound / self.WIDE if self.smoke else bound


class Once:
    """Stands in for pytest-benchmark's fixture in a smoke run: no warm-up, and one round, or what a moment holds."""

    #: Seconds after which no other round begins.
    MOMENT: ClassVar[float] = 0.1

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}
        self.stats: Any = None

    def __call__(self, target: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call and time it."""
        return self.pedantic(target, arguments, named, rounds=5)

    def pedantic(
        self,
        target: Callable[..., T],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        rounds: int = 1,
        **_: int,
    ) -> T:
        """The same, with what comes before each round."""
        took: list[float] = []
        while not took or (len(took) < rounds and sum(took) < self.MOMENT):
            if setup is not None:
                setup()
            began = time.perf_counter()
            found = target(*args, **(kwargs or {}))
            took.append(time.perf_counter() - began)
        self.stats = SimpleNamespace(stats=SimpleNamespace(median=statistics.median(took), min=min(took)))
        return found


#: What of a processor's flags decides how fast products of matrices, histograms and JSON are, as Linux spells it.
_INSTRUCTIONS = re.compile(r"^(?:sse4_2|avx\w*|fma|f16c|amx\w*|asimd\w*|sve\w*|i8mm|bf16)$")


def describe_processor() -> str:
    """The processor with its cores and its instruction sets; of other systems than Linux what Python tells."""
    cores = f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores"
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.processor() or platform.machine()}, {cores}, instruction sets not reported"
    facts = dict(re.findall(r"^(.+?)\s*: (.*)$", info.split("\n\n", 1)[0], re.MULTILINE))
    family = f" (family {facts['cpu family']}, model {facts['model']})" if "cpu family" in facts else ""
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    sets = " ".join(sorted(f for f in flags if _INSTRUCTIONS.match(f))) or "instruction sets not reported"
    return f"{facts.get('model name', platform.machine())}{family}, {cores}, {sets}"


#: What each benchmark writes into ``extra_info``, by its name.
_MEASURED = pytest.StashKey[dict[str, dict[str, Any]]]()


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _describe_load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "not reported"


#: Processes that wait for a core in the mean of a minute, before anything is measured.
_LOAD_AT_START = _describe_load()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every output of benchmarks names the machine, and tells what was measured beside its floor or peer."""
    for name, info in terminalreporter.config.stash[_MEASURED].items():
        terminalreporter.write_line(f"{name}: {', '.join(f'{k} {_format(v)}' for k, v in info.items())}")
    terminalreporter.write_line(f"Processor: {describe_processor()}")
    terminalreporter.write_line(f"Load: {_LOAD_AT_START} at the start, {_describe_load()} at the end")


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """The same in what --benchmark-json writes."""
    machine_info |= {"processor_and_instructions": describe_processor(), "load_at_start": _LOAD_AT_START}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of a smoke run."""
    parser.addoption("--smoke", action="store_true", help="each benchmark once and small, with wide bounds")


def pytest_configure(config: pytest.Config) -> None:
    """The mark of what only a whole run measures."""
    config.stash[_MEASURED] = {}
    config.addinivalue_line("markers", "whole: another input of what a smoke run has gone through already")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the whole run what is marked so."""
    if config.getoption("--smoke", default=False):
        left = [item for item in items if item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def care(request: pytest.FixtureRequest) -> Care:
    """How carefully this run measures."""
    return Care(smoke=request.config.getoption("--smoke", default=False))


@pytest.fixture
def benchmark(request: pytest.FixtureRequest, care: Care) -> Iterator[Any]:
    """pytest-benchmark's own, or one round."""
    made = Once() if care.smoke else request.getfixturevalue("benchmark")
    yield made
    request.config.stash[_MEASURED][request.node.name] = made.extra_info
