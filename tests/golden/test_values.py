"""What expressions are: ``values/*.txt`` list them, and the files beside them say their values or what refuses them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import scenes
from golden.test_page import anonymous
from snapshots import plain

FOLDER = Path(__file__).parent / "values"


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.txt")))
def test_expressions_have_the_values_of_the_file(
    name: str, golden: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Statements are carried out, and lines with a ``#`` in front are headings; every other line is an expression."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"folder": tmp_path, "scenes": scenes}
    found = {}
    for statement in ast.parse((FOLDER / f"{name}.txt").read_text(encoding="utf-8")).body:
        text = ast.unparse(statement)
        if isinstance(statement, ast.Expr):
            found[text] = masked(valued(text, names), tmp_path)
        else:
            exec(text, names)  # noqa: S102 - of this folder
    golden(f"values/{name}.json", found, rel=1e-5)


def valued(text: str, names: dict[str, Any]) -> Any:
    try:
        return plain(eval(text, names))  # noqa: S307 - of this folder
    except Exception as error:  # noqa: BLE001 - of any kind
        return f"{type(error).__name__}: {error}"


def masked(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {k: masked(v, folder) for k, v in value.items()}
    if isinstance(value, list):
        return [masked(v, folder) for v in value]
    return anonymous(value, folder) if isinstance(value, str) else value
