"""Which tests cover a place: the map from lines to tests, which one run of all tests under coverage gives.

The map is kept by the digest of the tree. A test that coverage saw in a line goes first; then those that share a group
or a file with it, since what the first of them computed and kept the others judge too.
"""

from __future__ import annotations

import ast
import dataclasses
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

from covering import named
from places import PACKAGES, ROOT, Place

HOME = ROOT / ".plant"
#: What counts as noticing: unit, golden and property tests, and the examples in docstrings.
TESTS = ("--doctest-modules", "rtlab", "tests/golden", "tests/unit", "tests/property")
#: What every run of pytest gets; nothing is kept in the tree.
PYTEST = ("-p", "tests.plant.covering", "-p", "no:cacheprovider", "--benchmark-disable", "-q")
#: Seconds of tests, as long as they took under coverage, that one mutant may have.
BUDGET = 120.0
#: How many files of tests, and how many seconds, are tried before all others that cover a mutant.
NEAR, SOON = 3, 30.0


@dataclasses.dataclass(frozen=True)
class Test:
    """One test: what it took, and what must be made for the first of its group."""

    name: str
    seconds: float
    group: str = ""
    setup: float = 0.0

    @property
    def file(self) -> str:
        """The file it is in."""
        return self.name.partition("::")[0]


@dataclasses.dataclass(frozen=True)
class Covered:
    """The tests that pass, and by file and line which of them were there."""

    tests: Mapping[str, Test]
    lines: Mapping[str, Mapping[int, frozenset[str]]]
    minutes: float

    def choice(self, place: Place, shunned: Iterable[str] = ()) -> tuple[tuple[Test, ...], ...]:
        """The tests for a place, best first, in two portions: those of the nearest files, then all others."""
        first, then = self._covering(place)
        kin_files, kin_groups = {t.file for t in first}, {t.group for t in first if t.group}
        kin = [
            t for t in self.tests.values() if t.group in kin_groups or (not t.group and t.file in kin_files)
        ]
        mirror = f"tests/unit/{Path(place.path).parent.relative_to('rtlab')}/test_{Path(place.path).stem}.py"

        def worth(test: Test) -> tuple[object, ...]:
            return (test.file != mirror, test.seconds + test.setup, test.group, test.seconds, test.name)

        ordered = [*dict.fromkeys(t for some in (first, then, kin) for t in sorted(some, key=worth))]
        spent, groups, files = 0.0, set[str](), dict[str, None]()
        portions: tuple[list[Test], list[Test]] = ([], [])
        for test in ordered:
            cost = test.seconds + (0.0 if test.group in groups else test.setup)
            if test.name in shunned or spent + cost > BUDGET:
                continue
            spent += cost
            groups.add(test.group)
            files[test.file] = None
            portions[test.file not in [*files][:NEAR] or spent > max(SOON, cost)].append(test)
        return tuple(tuple(p) for p in portions if p)

    def _covering(self, place: Place) -> tuple[list[Test], list[Test]]:
        """Tests that ran the statement; and where it runs on import only, those of what uses it, then of its file."""
        lines = self.lines.get(place.path, {})
        spans, whole = spans_of((ROOT / place.path).read_text(encoding="utf-8"), place.start[0])
        chosen = [self._of(lines, span) for span in spans]
        return chosen[0] if chosen else [], (self._of(lines, range(10**6)) if whole else [])

    def _of(self, lines: Mapping[int, frozenset[str]], span: Iterable[int]) -> list[Test]:
        wanted = span if isinstance(span, range) else set(span)
        names = {n for line, tests in lines.items() if line in wanted for n in tests}
        return [self.tests[n] for n in names if n in self.tests]


def spans_of(source: str, line: int) -> tuple[list[set[int]], bool]:
    """The lines of the statement around a line; and whether it runs on import, where what uses its names counts."""
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    around = [f for f in functions if f.body[0].lineno <= line <= (f.end_lineno or 0)]
    statement = min(
        (s for s in ast.walk(tree) if isinstance(s, ast.stmt) and line in _own(s)),
        key=lambda s: len(_own(s)),
        default=None,
    )
    if statement is None:
        return [], True
    if around:
        return [_own(statement)], False
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [_body(statement)], True
    names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    users = [
        f
        for f in functions
        if any(
            (isinstance(n, ast.Name) and n.id in names) or (isinstance(n, ast.Attribute) and n.attr in names)
            for n in ast.walk(f)
        )
    ]
    return [{line for f in users for line in _body(f)}], True


def _own(statement: ast.stmt) -> set[int]:
    """The lines of a statement without those of the statements in it."""
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    inner = body[0] if body else None
    until = (
        (getattr(inner, "lineno", None) or inner.pattern.lineno) - 1
        if inner is not None
        else statement.end_lineno
    )
    return set(range(first, max(first, until or first) + 1))


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return set(range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1))


def tracked() -> list[Path]:
    """What belongs to the tree, and the bundles that were built into it."""
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    named_files = [Path(n) for n in told.split("\0") if n and (ROOT / n).is_file()]
    return [*named_files, *(p.relative_to(ROOT) for p in (ROOT / "rtlab/static").glob("*") if p.is_file())]


def digests() -> tuple[str, dict[str, str]]:
    """Of all that a test may read but other tests' files; and of each file of tests."""
    rest, tests = hashlib.sha256(), {}
    for path in sorted(set(tracked())):
        if path.parts[0] not in {"rtlab", "tests", "sample_models", "notebooks"} or path.parts[:2] == (
            "tests",
            "plant",
        ):
            continue
        found = hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            if path.parts[1] in {"golden", "unit", "property"}:
                tests[str(path)] = found
        else:
            rest.update(f"{path}\0{found}\0".encode())
    return rest.hexdigest()[:12], tests


def digest() -> tuple[str, str]:
    """Of the code, and of the tests."""
    rest, tests = digests()
    return rest, hashlib.sha256(json.dumps(tests, sort_keys=True).encode()).hexdigest()[:12]


def copy(name: str) -> Path:
    """A copy of the tree with the recordings beside it: nothing is ever planted in the tree itself."""
    home = HOME / "copies" / name
    shutil.rmtree(home, ignore_errors=True)
    tree = home / "tree"
    for path in tracked():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, tree / path)
    for beside, link in (
        (ROOT.parent / "shared", home / "shared"),
        (ROOT / "widgets/node_modules", tree / "widgets/node_modules"),
    ):
        if beside.exists():
            link.symlink_to(beside)
    (home / "tmp").mkdir()
    return tree


def environment(tree: Path, **more: str) -> dict[str, str]:
    """What makes the copy be the one that is imported, in child processes too."""
    home = tree.parent
    return {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TMPDIR": str(home / "tmp"),
        **more,
    }


def covered(workers: int) -> Covered:
    """The map of this tree: from its file, or by running every test once, or those of the files that changed since."""
    kept = HOME / "maps" / f"{'-'.join(digest())}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        rest, files = digests()
        older = max(kept.parent.glob(f"{rest}-*.json"), key=lambda p: p.stat().st_mtime, default=None)
        before = json.loads(older.read_text(encoding="utf-8")) if older else {"files": {}}
        changed = sorted(f for f, d in files.items() if before["files"].get(f) != d)
        found = _measured(copy("map"), workers, changed if older else TESTS)
        if older:
            found = _joined(before, found, {*changed, *before["files"].keys() - files.keys()})
        kept.write_text(json.dumps({**found, "files": files}), encoding="utf-8")
    return read(kept)


def _joined(before: dict[str, Any], now: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    """A map in which some files of tests are new."""
    tests = {n: t for n, t in before["tests"].items() if n.partition("::")[0] not in gone} | now["tests"]
    number = {n: i for i, n in enumerate(tests)}
    lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for some in (before, now):
        names = [*some["tests"]]
        for path, by_line in some["lines"].items():
            for line, which in by_line.items():
                lines[path][str(line)] += [
                    number[names[i]] for i in which if some is now or names[i].partition("::")[0] not in gone
                ]
    return {"tests": tests, "lines": lines, "minutes": before["minutes"] + now["minutes"]}


def read(kept: Path) -> Covered:
    """A map from its file."""
    told = json.loads(kept.read_text(encoding="utf-8"))
    names = [*told["tests"]]
    setups: dict[str, float] = defaultdict(float)
    for t in told["tests"].values():
        setups[t["group"]] = max(setups[t["group"]], t["seconds"])
    tests = {
        n: Test(n, t["seconds"], t["group"], setups[t["group"]] if t["group"] else 0.0)
        for n, t in told["tests"].items()
        if t["outcome"] == "passed"
    }
    lines = {
        path: {int(line): frozenset(names[i] for i in which) for line, which in by_line.items()}
        for path, by_line in told["lines"].items()
    }
    return Covered(tests, lines, told["minutes"])


def _measured(tree: Path, workers: int, tests: Sequence[str]) -> dict[str, Any]:
    started = time.monotonic()
    home = tree.parent
    include = [
        f"{n}/*" if (ROOT / n).is_dir() else n for named_paths in PACKAGES.values() for n in named_paths
    ]
    (home / "coveragerc").write_text(
        "[run]\nbranch = false\nrelative_files = true\n"
        f"data_file = {home / 'coverage'}\ninclude =\n" + "".join(f"    {i}\n" for i in include),
        encoding="utf-8",
    )
    which = "every test" if tests is TESTS else f"the tests of {len(tests)} files"
    sys.stdout.write(f"Running {which} once under coverage, to know which lines they cover.\n")
    sys.stdout.flush()
    status = subprocess.run(
        [
            sys.executable, "-m", "pytest", *PYTEST, "-n", str(workers), "--dist", "loadgroup",
            "--cov", f"--cov-config={home / 'coveragerc'}", "--cov-context=test", "--cov-report=", *tests,
        ],
        cwd=tree, env=environment(tree, RTLAB_PLANT_NOTES=str(home / "notes.json")), check=False,
    ).returncode  # fmt: skip
    if status not in {0, 1}:
        raise SystemExit(f"The tests did not run to their end without a bug (exit status {status}).")
    return packed(home / "notes.json", home / "coverage", (time.monotonic() - started) / 60)


def packed(notes: Path, data: Path, minutes: float) -> dict[str, Any]:
    """What is kept of a run under coverage: tests by name, and by file and line their numbers."""
    import coverage

    tests = json.loads(notes.read_text(encoding="utf-8"))
    number = {name: i for i, name in enumerate(tests)}
    found = coverage.CoverageData(str(data))
    found.read()
    lines: dict[str, dict[int, list[int]]] = {}
    for path in sorted(found.measured_files()):
        by_line = {
            line: sorted({number[n] for c in contexts if (n := named(c.rpartition("|")[0])[0]) in number})
            for line, contexts in found.contexts_by_lineno(path).items()
        }
        lines[path] = {line: which for line, which in sorted(by_line.items()) if which}
    return {"tests": tests, "lines": lines, "minutes": minutes}
