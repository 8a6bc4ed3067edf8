"""Counts and names as sentences have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def pluralize(count: int, one: str, more: str = "") -> str:
    """A number with its noun: 1 node, 3 nodes; ``more`` is the noun of several where that is not one with an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def list_first(names: Sequence[str]) -> str:
    """The first three names, parted by commas, and dots where there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def quote_names(names: Iterable[object]) -> str:
    """Names in double quotes, parted by commas; empty where there are none."""
    return ", ".join(f'"{name}"' for name in names)
