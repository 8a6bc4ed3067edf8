"""What a committed notebook must look like; nbmake runs them in the same stage."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem)
def notebook(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    """Each notebook in turn."""
    return nbformat.read(request.param, as_version=4)


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def test_there_is_a_notebook():
    """An empty folder would pass every other test here."""
    assert NOTEBOOKS


def test_outputs_are_stripped(notebook):
    """Outputs make unreadable changes and carry megabytes of widget state."""
    assert [] == [cell.source for cell in code(notebook) if cell.outputs or cell.execution_count]
    assert "widgets" not in notebook.metadata


def test_it_is_valid_and_opens_with_any_python_3_kernel(notebook):
    """A kernel named after its author's environment opens a question instead of the notebook."""
    nbformat.validate(notebook)

    assert "python3" == notebook.metadata.kernelspec.name


def test_it_begins_with_words_and_ends_with_an_assertion(notebook):
    """It teaches one question, and its answer is checked."""
    last = ast.parse(code(notebook)[-1].source).body

    assert "markdown" == notebook.cells[0].cell_type
    assert any(isinstance(statement, ast.Assert) for statement in last)
