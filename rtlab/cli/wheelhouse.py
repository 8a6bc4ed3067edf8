"""``rtlab wheelhouse``: the wheels of rtlab and of all it needs, for rooms without a network."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rtlab.cli import printing
from rtlab.errors import Unavailable

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: Seconds that pip may take for about a hundred packages.
_SECONDS = 3600.0


def run(args: argparse.Namespace) -> int:
    """Fill the folder; prints the command that installs from it."""
    from rtlab.backends.compilers import run_pip
    from rtlab.backends.workers.process import INSTALLING, Bounds, call
    from rtlab.core.phrases import pluralize
    from rtlab.core.progress import Terminal
    from rtlab.core.protocols import Limits
    from rtlab.documents.numbers import format_bytes

    folder = Path(args.folder)
    error_prefix = f'Cannot fill "{folder}"'
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(
            f"{error_prefix}: this Python has no pip. Run {Path(sys.executable).name} -m ensurepip."
        )
    pinned = list_pinned("rtlab", error_prefix)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(Terminal()) as progress:
        progress.phase(f"Getting {pluralize(len(pinned), 'wheel')}")
        # What has no wheel is built here, so that the room needs no compiler.
        arguments = (
            "wheel",
            "--no-deps",
            "--no-input",
            "--progress-bar",
            "off",
            "--wheel-dir",
            str(folder),
            *pinned,
        )
        code, text = call(
            run_pip, arguments, Bounds(error_prefix, INSTALLING, Limits(seconds=_SECONDS), progress)
        )
    if code:
        last = next(
            (line for line in reversed(text.splitlines()) if line.startswith("ERROR: ")), "ERROR: it failed"
        )
        raise Unavailable(
            f"{error_prefix}: pip says: {last.removeprefix('ERROR: ').rstrip('.')}. Try again where the network is.",
            details=text,
        )
    wheels = sorted(folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels)
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    python, pip = (
        (f"python{release}", ".venv/bin/pip")
        if os.name == "posix"
        else (f"py -{release}", r".venv\Scripts\pip")
    )
    source = shlex.quote(args.folder)
    command = f"{python} -m venv .venv && {pip} install --no-index --find-links {source} rtlab"
    where = f"{platform.system()} {platform.machine()} with Python {release}"
    if args.json:
        printing.print_json(
            {"folder": str(folder), "wheels": [w.name for w in wheels], "bytes": size, "command": command}
        )
        return 0
    print(f"{pluralize(len(wheels), 'wheel')}, {format_bytes(size)}, in {folder}, for {where}")
    print(f"\ninstall from it, without a network, with\n  {command}")
    return 0


def list_pinned(package: str, error_prefix: str) -> list[str]:
    """A package and all that it needs here, as arguments for pip in the versions that are installed.

    Raises:
        Unavailable: one of them is not installed.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    distributions: dict[str, importlib.metadata.Distribution] = {}
    visited: set[tuple[str, str]] = set()
    todo = [Requirement(package)]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        try:
            distribution = distributions.setdefault(name, importlib.metadata.distribution(requirement.name))
        except importlib.metadata.PackageNotFoundError as error:
            raise Unavailable(
                f'{error_prefix}: package "{requirement.name}" is not installed here. Install rtlab with all it needs, '
                "and try again."
            ) from error
        # The empty extra stands for what is needed in any case.
        for extra in ("", *requirement.extras):
            if (name, extra) not in visited:
                visited.add((name, extra))
                todo += [
                    r for line in distribution.requires or () if _is_needed(r := Requirement(line), extra)
                ]
    return [_pin(name, distribution) for name, distribution in sorted(distributions.items())]


def _is_needed(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _pin(name: str, distribution: importlib.metadata.Distribution) -> str:
    """The folder or file that a package was installed from, where it was one (PEP 610), else its version."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}").get("url", "")
    return origin or f"{name}=={distribution.version}"
