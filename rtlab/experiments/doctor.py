"""``rtlab doctor``: what works on this machine, tried out one by one, as a text to paste into a report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import importlib.metadata
import platform
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from rtlab.core.budget import WorkContext
from rtlab.core.protocols import Backend
from rtlab.errors import Cancelled, RtlabError
from rtlab.experiments import trials
from rtlab.experiments.trials import Reference

Status = Literal["ok", "failed", "skipped"]

#: Packages whose versions matter when something fails.
_PACKAGES = (
    "numpy", "ml-dtypes", "pandas", "onnx", "onnx-ir", "onnx-graphsurgeon", "onnxruntime", "polygraphy",
    "tensorrt", "tensorrt-rtx", "anywidget", "ipywidgets", "jupyterlab", "plotly",
)  # fmt: skip
#: A path keeps its last part. Folders may have spaces, so rather too much goes than too little. An address such as
#: https://... is no path.
_PATH = re.compile(r"(?<![\w:/])(?:[A-Za-z]:[\\/]|~?/|\\\\)(?:[^\n\"'<>|:,;()\\/]+[\\/])+")
#: Lines of a vendor's words that a failed check shows.
_LINES = 6


@dataclasses.dataclass(frozen=True)
class Probe:
    """One thing that was tried: what was seen, or why it failed or was left out, and how long it took in seconds."""

    name: str
    status: Status
    seen: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Report:
    """What ``doctor`` found. Paths, host and user names are left out of it."""

    versions: Mapping[str, str]
    checks: tuple[Probe, ...]

    def __repr__(self) -> str:
        return f"<Report of rtlab doctor: {self._counts}>"

    @property
    def failed(self) -> tuple[Probe, ...]:
        """The checks that failed."""
        return tuple(c for c in self.checks if c.status == "failed")

    @property
    def verdict(self) -> str:
        """What it comes to, and what to do next."""
        gpu = any(c.status == "ok" and c.name.endswith(trials.RAN) for c in self.checks)
        if self.failed:
            names = ", ".join(f'"{c.name}"' for c in self.failed)
            return (
                f"{self._counts}. Failed: {names}. Follow what these checks say; if it does not help, report this "
                "whole text."
            )
        if gpu:
            return f"{self._counts}. rtlab works with the GPU of this machine. Reports of success are welcome, too."
        return (
            f"{self._counts}. rtlab works here, and no engine ran on a GPU: see why under the skipped checks. Engines "
            "from elsewhere are read on any machine; run rtlab doctor where the GPU is to try it there."
        )

    @property
    def text(self) -> str:
        """All of it as text to paste."""
        wide = max((len(k) for k in self.versions), default=0)
        long = max((len(c.name) for c in self.checks), default=0)
        lines = ["rtlab doctor", *(f"  {k:<{wide}}  {v}" for k, v in self.versions.items()), ""]
        for check in self.checks:
            first, *rest = check.seen.splitlines() or [""]
            lines.append(f"{check.status:<7}  {check.name:<{long}}  {check.seconds:6.2f} s  {first}")
            lines += [f"         {line}" for line in rest]
        return "\n".join([*lines, "", self.verdict])

    def as_dict(self) -> dict[str, Any]:
        """All of it as one JSON-ready object."""
        return {
            "versions": dict(self.versions),
            "checks": [dataclasses.asdict(c) for c in self.checks],
            "verdict": self.verdict,
        }

    @property
    def _counts(self) -> str:
        statuses = [c.status for c in self.checks]
        return f"{statuses.count('ok')} ok, {statuses.count('failed')} failed, {statuses.count('skipped')} skipped"


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """Try out what rtlab does with each backend of a table; one that fails says why, and the others go on.

    The tool is where to get what computes references, which is tried out too.
    """

    table: Mapping[str, Backend]
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Reference]) -> Iterator[Report]:
        """What is known after each probe."""
        probes: list[Probe] = []
        works: list[Backend] = []
        with contextlib.closing(self._plan(context.tool, probes, works)) as plan:
            for name, action in context.iterate(plan, "the self-test"):
                context.phase(name)
                probes.append(_attempt(name, action))
                yield Report(_collect_versions(works), tuple(probes))
        yield Report(_collect_versions(works), tuple(probes))

    def _plan(
        self, reference: Reference, probes: list[Probe], works: list[Backend]
    ) -> Generator[tuple[str, Callable[[], str]], None, None]:
        """Names and actions; what comes next depends on how the last of ``probes`` went."""
        yield "a small model on ONNX Runtime against NumPy", functools.partial(trials.small_model, reference)
        for name, backend in self.table.items():
            yield f"{name}: available", functools.partial(trials.available, backend)
            if probes[-1].status != "ok":
                continue
            works.append(backend)
            if backend.capabilities().emulates or not isinstance(backend, trials.BuilderBackend):
                continue
            here = trials.get_local_target(backend)
            for target in backend.capabilities().targets:
                # The engine for the GPU that is here is built below, and run.
                if target != here:
                    yield f"{name}: build for {target}", functools.partial(trials.build, backend, target)
            yield f"{name}: a build stops when asked", functools.partial(trials.cancel, backend)
            if isinstance(backend, trials.BuilderRunner):
                with contextlib.closing(trials.GpuTrial(backend, reference)) as trial:
                    for what, action in trial.steps():
                        yield f"{name}: {what}", action


def _attempt(name: str, action: Callable[[], str]) -> Probe:
    started = time.perf_counter()
    status: Status = "ok"
    try:
        message = action()
    except trials.Skipped as reason:
        status, message = "skipped", str(reason)
    except Cancelled:
        raise
    except Exception as error:  # noqa: BLE001 - one failing check must not take the others along
        status, message = "failed", _format_error(error)
    return Probe(name, status, clean(message), time.perf_counter() - started)


def _format_error(error: Exception) -> str:
    """The error, and the end of what the vendor said."""
    if not isinstance(error, RtlabError):
        return f"{type(error).__name__}: {error}"
    details = [line for line in error.details.splitlines() if line.strip()][-_LINES:]
    return "\n".join([f"{type(error).__name__}: {error}", *details])


def clean(text: str) -> str:
    """A text without folders, host and user names."""
    text = _PATH.sub(".../", text)
    for name in (platform.node(), platform.node().partition(".")[0], _get_user(), Path.home().name):
        if len(name) > 2:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "...", text)
    return text


def _get_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no account for the number that this process runs under
        return ""


def _collect_versions(works: Iterable[Backend]) -> dict[str, str]:
    versions = {
        "rtlab": _get_version("rtlab"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        # Of the system's version only the release: the rest may name who built it.
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for backend in works:
        if device := backend.capabilities().device:
            versions["gpu"] = device
    versions |= {package: _get_version(package) for package in _PACKAGES}
    return {k: clean(v) for k, v in versions.items()}


def _get_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
