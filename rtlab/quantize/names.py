"""Names for what is put into a graph."""

from __future__ import annotations

#: Longest start of a name that a new one repeats.
_LONGEST = 140
#: So much longer it may be when nothing is cut off.
_MORE = 50


def make_unique_name(name: str, used: set[str]) -> str:
    """The name, cut off where it is long and counted where it is used already; it is used from now on."""
    start, tail = (name, "") if len(name) <= _LONGEST + _MORE else (name[:_LONGEST], "~")
    unique, count = start + tail, 1
    while unique in used:
        count += 1
        unique = f"{start}~{count}"
    used.add(unique)
    return unique
