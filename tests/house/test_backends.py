"""Nothing above the backends knows one by its name: what depends on a backend asks its capabilities and its engines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for p in (ROOT / "rtlab").rglob("*.py") if "backends" not in p.relative_to(ROOT).parts)
#: Names of the built-in backends, and of providers by what stands before theirs.
NAMES = {"tensorrt", "tensorrt-rtx", "onnxruntime", "trtexec", "classic"}
#: Where such a word is something else, by file and by the line it stands in.
OTHER_WORDS = {
    ("rtlab/core/compiler_info.py", 'TENSORRT = "tensorrt"'): "the family of compilers, which engines tell",
    (
        "rtlab/core/optional.py",
        '"tensorrt": Optional("tensorrt", "tensorrt", "10.3", \'"rtlab[tensorrt]"\'),',
    ): "a package",
    ("rtlab/experiments/doctor.py", "_PACKAGES"): "packages whose versions are listed",
    ("rtlab/analyses/recipe/__init__.py", "_PACKAGES"): "the same, of what had a part in a report",
}  # fmt: skip


def named(source: str) -> Iterator[int]:
    """Lines with a text that is a backend's name, or begins as a provider's, outside of longer texts."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value.lower()
            if word in NAMES or (word.partition(":")[0] in NAMES and ":" in word and " " not in word):
                yield node.lineno


def found() -> set[tuple[str, str]]:
    rows = set()
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        packages = {
            line
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and "_PACKAGES" in map(ast.unparse, node.targets)
            for line in range(node.lineno, (node.end_lineno or 0) + 1)
        }
        rows |= {
            (path.relative_to(ROOT).as_posix(), "_PACKAGES" if i in packages else lines[i - 1].strip())
            for i in named(text)
        }
    return rows


def test_no_backend_is_known_by_name() -> None:
    """Not compared, not in a table, not a default: a stranger's would be treated as if it were another."""
    assert set(OTHER_WORDS) == found()


@pytest.mark.parametrize(
    "source",
    [
        'engine.backend == "tensorrt-rtx"', 'engine.backend in {"tensorrt", "x"}',
        'backend.startswith("onnxruntime:")', 'engine.backend.partition(":")[0] == "onnxruntime"',
        'titles = {"trtexec": "TensorRT"}', 'def open(backend="tensorrt"): ...',
        'match backend:\n case "tensorrt": ...',
    ],
)  # fmt: skip
def test_every_way_to_compare_a_name_is_seen(source: str) -> None:
    assert list(named(source))


def test_registered_backends_are_those_that_are_looked_for() -> None:
    from rtlab import backends

    assert NAMES == {n for n, b in backends.registry().items() if type(b).__module__.startswith("rtlab.")}


def called(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((m.split(".")[0], node.lineno) for m in modules if m.split(".")[0] in VENDORS)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
            "importlib.import_module",
            "__import__",
        }:
            yield "import_module", node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith(
            ("subprocess.", "os.fork", "os.posix_spawn")
        ):
            yield "child", node.lineno


VENDORS = {"tensorrt", "tensorrt_rtx", "onnxruntime"}
#: What opens a door besides, by file.
DOORS = {
    "rtlab/backends/vendor.py": {"import_module", "onnxruntime"},
    "rtlab/backends/workers/process.py": {"child"},
}


def test_compilers_are_called_through_one_door_and_children_started_by_one_module() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "rtlab" / "backends").rglob("*.py")):
        for what, _ in called(path.read_text(encoding="utf-8")):
            found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(what)
    assert DOORS == found
