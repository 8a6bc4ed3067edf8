"""Tables of what is true. ``tests/run golden --accept`` writes them anew; what changed is then for a person to read."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that accepts what the code gives now."""
    parser.addoption("--accept", action="store_true", help="write the tables of tests/golden anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, list[str]], None]:
    """Compares lines with a table, such as ``cards/digits_vit.txt``, or accepts them.

    A first line that begins with ``#`` names the compilers; others than those of the table fuse otherwise, and the test
    ends as skipped, after all that it checks by itself.
    """

    def compared(name: str, lines: list[str]) -> None:
        path = HERE / name
        if request.config.getoption("--accept"):
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return
        assert path.exists(), f"no table {name}: tests/run golden --accept writes it"
        kept = path.read_text(encoding="utf-8").splitlines()
        if lines[0].startswith("#") and kept[0] != lines[0]:
            pytest.skip(f"the table is of {kept[0][2:]}, and here is {lines[0][2:]}")
        changes = "\n".join(difflib.unified_diff(kept, lines, "kept", "now", lineterm="", n=1))
        assert not changes, (
            f"{name} differs; after reading, tests/run golden --accept writes it anew\n{changes}"
        )

    return compared
