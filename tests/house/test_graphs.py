"""A graph is changed in one way: by passes, in the form that a model holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rtlab

ROOT = Path(rtlab.__file__).parent
#: What onnx-ir changes a graph with.
CHANGES = {
    "insert_after", "insert_before", "register_initializer", "replace_all_uses_with", "replace_input_with",
    "resize_inputs",
}  # fmt: skip
#: The two hands of passes, the passes that guide one of them, and copies that nobody gets: what would be quantized, and
#: the parts that a search takes apart, and gradients.
HANDS = {
    "gradients/tape.py", "experiments/sensitivity/estimate.py", "experiments/why/changes.py",
    "experiments/why/forms.py", "quantize/edit.py", "quantize/findings.py", "quantize/inlining.py",
    "quantize/requantize.py", "quantize/rewrites.py", "quantize/isolated_error.py", "quantize/quantizer_toggles.py",
}  # fmt: skip
#: Where a graph comes out of a proto or becomes one: a file, a copy of what lies in files, what a vendor reads.
DOORS = {"core/model.py", "backends/standard_operators.py"}


def calls(path: Path) -> Iterator[str]:
    for found in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute):
            yield found.func.attr


def callers(names: set[str]) -> set[str]:
    return {p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py") if not names.isdisjoint(calls(p))}


def test_graphs_are_changed_by_passes_alone() -> None:
    assert HANDS == callers(CHANGES)


def test_a_graph_is_converted_at_the_doors_alone() -> None:
    assert DOORS == callers({"from_proto", "to_proto"})
