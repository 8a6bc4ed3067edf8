"""ARCHITECTURE.md: its picture is that of the imports, and every file that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import grimp
import importlinter.api
import networkx
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def rows() -> list[list[str]]:
    contracts = importlinter.api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
    (layers,) = (c["layers"] for c in contracts if "layers" in c)
    return [row.split(" | ") for row in layers]


def picture() -> str:
    """The packages of rtlab in their rows, with an arrow for each import that no longer way implies."""
    graph = grimp.build_graph("rtlab", exclude_type_checking_imports=False, cache_dir=None)
    known = [name for row in rows() for name in row]

    def package(module: str) -> str:
        return module.split(".")[1] if "." in module else ""

    used = networkx.DiGraph(
        (package(m), package(other))
        for m in graph.modules
        for other in graph.find_modules_directly_imported_by(m)
    )
    used = used.subgraph(known).copy()
    used.remove_edges_from(networkx.selfloop_edges(used))
    least = networkx.transitive_reduction(used)
    lines = ["flowchart TD"]
    for number, row in enumerate(rows()):
        lines.append(f"  subgraph row{number}[ ]")
        lines += [f"    {name}" for name in row]
        lines.append("  end")
    lines += [
        f"  {a} --> {b}" for a, b in sorted(least.edges, key=lambda e: (known.index(e[0]), known.index(e[1])))
    ]
    return "\n".join(lines)


def test_the_picture_is_that_of_the_imports() -> None:
    """Whoever changes the rows, or lets one use another, draws it anew: the expected text is in the failure."""
    (drawn,) = re.findall(r"```mermaid\n(.*?)\n```", PAGE, re.DOTALL)
    assert picture() == drawn


def test_every_row_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [name for row in rows() for name in row] == told


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:rtlab|tests|widgets)/[\w./]+)`", PAGE))))
def test_what_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()
