"""Pages of the documentation that are written from what is counted."""

from __future__ import annotations

from collections.abc import Iterable


def flow(text: str) -> list[str]:
    """Paragraphs and lists whose lines are wrapped in the source, one line each, and an empty one at the end."""
    found: list[str] = []
    for line in text.strip().splitlines():
        if line.strip() and not line.lstrip().startswith("- ") and found and found[-1]:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
    return [*found, ""]


def rows(heads: Iterable[str], cells: Iterable[Iterable[object]]) -> list[str]:
    """A table, and an empty line at the end."""
    heads = [*heads]
    lines = [f"| {' | '.join(map(str, row))} |" for row in (heads, *cells)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:], ""]
