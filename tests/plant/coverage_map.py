"""Which tests run which lines: one run of a suite under coverage, in parts that are cached by what they depend on."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mutants import ROOT, Place, digest
from pytest_plugin import split_group

HOME = ROOT / ".plant"
#: What pytest runs for the map: in parts, so that a run that is stopped loses one of them.
PARTS: tuple[tuple[str, ...], ...] = (
    ("tests/golden",),
    ("--doctest-modules", "rtlab", "tests/unit"),
    ("tests/property", "tests/house"),
    ("tests/backends",),
)
#: The tiers of a suite, of which each is an option of pytest.
SUITES: Mapping[str, tuple[str, ...]] = {"short": ("short",), "all": ("short", "rest")}
#: Seconds of tests of a tier, as long as they took for the map, that one mutant may have.
BUDGET: Mapping[str, float] = {"short": 120.0, "rest": 180.0}
#: Tests that look at all functions, classes and figures of rtlab, and run none of their lines.
INSPECTING = tuple(
    f"tests/golden/test_commands.py::{name}"
    for name in (
        "test_defaults_and_kinds_of_classes_and_functions_are_those_of_the_file",
        "test_arguments_are_those_of_the_file",
    )
)
#: What pytest's exit statuses say: all passed, some failed, none was there.
PASSED, FAILED, NO_TESTS = 0, 1, 5
#: How many files of tests, and how many seconds, are tried before the others that cover a mutant are collected.
NEAR_FILES, NEAR_SECONDS = 3, 30.0


@dataclasses.dataclass(frozen=True)
class Test:
    """One test, and what it shares its fixtures with: a group of xdist or a file."""

    name: str
    seconds: float
    kin: str

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


@dataclasses.dataclass(frozen=True)
class CoverageMap:
    tests: Mapping[str, Test]
    lines: Mapping[str, Mapping[int, frozenset[str]]]
    minutes: float

    def select(self, place: Place, budget: float, excluded: Iterable[str] = ()) -> list[list[Test]]:
        """The tests for a place, in two portions: those of the nearest files, then the others; empty if none covers it.

        After those that run the line come those that share a fixture with one: what the first computes, they check.
        """
        covering = self._covering(place)
        kin = {t.kin for t in covering[0]}
        related = [t for t in self.tests.values() if t.kin in kin]
        mirror = f"tests/unit/{Path(place.path).parent.relative_to('rtlab')}/test_{Path(place.path).stem}.py"
        ordered = dict.fromkeys(
            test
            for tests in (*covering, related)
            for test in sorted(tests, key=lambda t: (t.file != mirror, t.seconds, t.name))
            if test.name not in excluded
        )
        spent, files, near, far = 0.0, dict[str, None](), list[Test](), list[Test]()
        for test in ordered:
            if spent and spent + test.seconds > budget:
                continue
            spent += test.seconds
            files[test.file] = None
            is_near = test.file in [*files][:NEAR_FILES] and (spent <= NEAR_SECONDS or not near)
            (near if is_near else far).append(test)
        return [portion for portion in (near, far) if portion]

    def _covering(self, place: Place) -> list[list[Test]]:
        """The tests that run a line; for a line that runs on import those of functions that use it, nearest first."""
        source = (ROOT / place.path).read_text(encoding="utf-8")
        lines, on_import = executed_lines(source, place.line)
        covering = [self._running(place.path, lines)]
        if on_import:
            covering.append(self._running(place.path))
            if not any(covering):
                covering.append([t for path in importers(place.path) for t in self._running(path)])
            covering.insert(0, [self.tests[name] for name in INSPECTING if name in self.tests])
        return covering

    def _running(self, path: str, lines: set[int] | None = None) -> list[Test]:
        names = {
            name
            for line, tests in self.lines.get(path, {}).items()
            if lines is None or line in lines
            for name in tests
        }
        return [self.tests[name] for name in names if name in self.tests]


def executed_lines(source: str, line: int) -> tuple[set[int], bool]:
    """The lines that run when the statement around a line does, and whether that is on import.

    On import every line runs once for all tests. What tells them apart are the functions that use the names that the
    statement binds, or the body of the function whose head it is.
    """
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    around = [f for f in functions if f.body[0].lineno <= line <= (f.end_lineno or 0)]
    statement = min(
        (s for s in ast.walk(tree) if isinstance(s, ast.stmt) and line in _own_lines(s)),
        key=lambda s: len(_own_lines(s)),
        default=None,
    )
    if around:
        # The head of an "except" or a "case" is no statement.
        return (_own_lines(statement) if statement else _body_lines(around[-1])), False
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _body_lines(statement), True
    names = {
        n.id for n in ast.walk(statement or tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    users = [
        f
        for f in functions
        if any(getattr(n, "id", None) in names or getattr(n, "attr", None) in names for n in ast.walk(f))
    ]
    return {number for f in users for number in _body_lines(f)}, True


def _own_lines(statement: ast.stmt) -> set[int]:
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    inner = getattr(statement, "body", None) or [c.pattern for c in getattr(statement, "cases", [])]
    last = inner[0].lineno - 1 if inner else statement.end_lineno
    return set(range(first, max(first, last or first) + 1))


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return set(range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1))


@functools.cache
def importers(path: str) -> list[str]:
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    parent, _, name = module.rpartition(".")
    found = []
    for file in sorted((ROOT / "rtlab").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (isinstance(node, ast.Import) and module in {a.name for a in node.names}) or (
                isinstance(node, ast.ImportFrom)
                and (
                    node.module == module or (node.module == parent and name in {a.name for a in node.names})
                )
            ):
                found.append(str(file.relative_to(ROOT)))
                break
    return found


def tree_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    files = {Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()}
    return sorted(files | {p.relative_to(ROOT) for p in (ROOT / "rtlab/static").glob("*") if p.is_file()})


def tree_digest(parts: Sequence[str] = ("tests",)) -> str:
    """Of all that tests read but other tests: the code, what tests share, and the test files in some folders."""
    return digest(
        *(
            f"{path}\0{hashlib.sha256((ROOT / path).read_bytes()).hexdigest()}"
            for path in tree_files()
            if path.parts[0] in {"rtlab", "tests", "sample_models", "notebooks"}
            and not path.is_relative_to("tests/plant")
            and (
                not path.name.startswith("test_")
                or any(path.is_relative_to(p.partition("::")[0]) for p in parts)
            )
        )
    )[:16]


def copy_tree(name: str) -> Path:
    """A copy of the tree: nothing is ever planted in the tree itself."""
    home = HOME / "copies" / name
    shutil.rmtree(home, ignore_errors=True)
    tree = home / "tree"
    for path in tree_files():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, tree / path)
    if (ROOT / "widgets/node_modules").exists():
        (tree / "widgets/node_modules").symlink_to(ROOT / "widgets/node_modules")
    (home / "tmp").mkdir(exist_ok=True)
    return tree


def environment(tree: Path, *path: Path, **more: str) -> dict[str, str]:
    """What makes the copy the one that is imported, in child processes too; no recordings, wherever they lie."""
    inherited = {k: v for k, v in os.environ.items() if k != "RTLAB_RECORDED"}
    search = os.pathsep.join(map(str, (tree, *path)))
    return inherited | {"PYTHONPATH": search, "TMPDIR": str(tree.parent / "tmp")} | more


def coverage_map(tier: str, parts: Sequence[Sequence[str]], workers: int) -> CoverageMap:
    """The map of a tier: from its files, or by running its tests once."""
    tests: dict[str, Test] = {}
    lines: dict[str, dict[int, frozenset[str]]] = defaultdict(dict)
    minutes = 0.0
    for part in parts:
        file = HOME / "maps" / f"{digest(tree_digest(part), tier, part)[:16]}.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            data = _measure([*part, f"--{tier}"], workers)
            file.write_text(json.dumps(data), encoding="utf-8")
        data = json.loads(file.read_text(encoding="utf-8"))
        minutes += data["minutes"]
        names = [*data["tests"]]
        for name, test in data["tests"].items():
            if test["outcome"] == "passed":
                tests[name] = Test(name, test["seconds"], test["group"] or name.partition("::")[0])
        for path, by_line in data["lines"].items():
            for line, which in by_line.items():
                others = lines[path].get(int(line), frozenset())
                lines[path][int(line)] = others | {names[i] for i in which}
    return CoverageMap(tests, lines, minutes)


def _measure(arguments: Sequence[str], workers: int) -> dict[str, Any]:
    started, tree = time.monotonic(), copy_tree("map")
    home = tree.parent
    (home / "coveragerc").write_text(
        f"[run]\nbranch = false\nrelative_files = true\ndata_file = {home / 'coverage'}\ninclude = rtlab/*\n",
        encoding="utf-8",
    )
    sys.stdout.write(f"Running {' '.join(arguments)} under coverage, to learn which tests run which lines.\n")
    sys.stdout.flush()
    status = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "tests.plant.pytest_plugin", "-p", "no:cacheprovider",
            "-p", "no:anyio", "-p", "no:nbmake", "--benchmark-disable", "-q",
            "-n", str(workers), "--dist", "loadgroup", "--cov",
            f"--cov-config={home / 'coveragerc'}", "--cov-context=test", "--cov-report=", *arguments,
        ],
        cwd=tree, check=False,
        # The faster core of Python 3.14 knows no contexts.
        env=environment(tree, tree / "tests/plant/child", RTLAB_PLANT_MEASURE=str(home), COVERAGE_CORE="ctrace"),
    ).returncode  # fmt: skip
    if status == NO_TESTS:
        return {"tests": {}, "lines": {}, "minutes": 0.0}
    if status not in {PASSED, FAILED}:
        raise SystemExit(f"The tests did not run to their end without a bug (exit status {status}).")
    return read_measurements(home) | {"minutes": (time.monotonic() - started) / 60}


def read_measurements(home: Path) -> dict[str, Any]:
    """What is kept of a run under coverage: tests by name, and by file and line their numbers."""
    import coverage

    tests = json.loads((home / "tests.json").read_text(encoding="utf-8"))
    number = {name: i for i, name in enumerate(tests)}
    lines: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    data = coverage.CoverageData(str(home / "coverage"))
    data.read()
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            names = {split_group(context.rpartition("|")[0])[0] for context in contexts}
            lines[path][line] |= {number[name] for name in names if name in number}
    for file in home.glob("child-*"):
        for row in file.read_text(encoding="utf-8").split("\n"):
            path, _, rest = row.partition("\t")
            line, _, name = rest.partition("\t")
            if name in number:
                lines[path][int(line)].add(number[name])
    return {
        "tests": tests,
        "lines": {
            p: {n: sorted(which) for n, which in by_line.items() if which} for p, by_line in lines.items()
        },
    }
