"""Where the files lie that rtlab brings along: beside the package in a checkout, inside it once installed."""

from __future__ import annotations

from pathlib import Path


def find_package_data(name: str) -> Path | None:
    """A folder that rtlab brings along, such as ``sample_models``; None where it is not installed."""
    package = Path(__file__).parents[1]
    return next((f for f in (package / "_share" / name, package.parent / name) if f.is_dir()), None)
