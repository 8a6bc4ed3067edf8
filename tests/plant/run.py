"""Plants bugs, one at a time, and counts how many of them the tests notice: ``tests/run plant [options]``.

Each bug is one of Cosmic Ray's mutations at a place drawn by a seed. The tests that run its line run until one fails,
nearest and fastest first, in copies of the tree. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import fcntl
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coverage_map import (
    BUDGET,
    FAILED,
    HOME,
    NO_TESTS,
    PARTS,
    PASSED,
    SUITES,
    CoverageMap,
    Test,
    copy_tree,
    coverage_map,
    environment,
    tree_digest,
)
from fork_server import BROKEN
from mutants import ROOT, Mutant, digest, draw, list_files, list_places

HERE = Path(__file__).parent
README, SCORES = HERE / "README.md", HERE / "scores"
#: The share that each suite is asked to notice.
REQUIRED: Mapping[str, float] = {"short": 0.80, "all": 0.90}
#: What is asked of a bug that no test noticed: the short tier's stage "style" without the formatter, whose complaint
#: would be of the spaces that a replacement leaves.
CHECKS: Mapping[str, tuple[str, ...]] = {"ruff": ("check", "--quiet", "--no-cache", "rtlab"), "mypy": ()}
#: A test fails after this many times what it took for the map, and so many seconds more.
SLOWER, PATIENCE = 6.0, 60.0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Worker:
    def __init__(self, name: str) -> None:
        self.tree = copy_tree(name)
        self._clock = int(time.time()) - 10**6
        self._process: subprocess.Popen[str] | None = None

    def try_mutant(
        self, mutant: Mutant, portions: Sequence[Sequence[Test]], *, checks: bool
    ) -> dict[str, Any]:
        """Plant a bug; ``killer`` is the first test, or else the check, that notices it, and empty if none does."""
        path, started = self.tree / mutant.place.path, time.monotonic()
        original = path.read_text(encoding="utf-8")
        self._write(path, mutant.code)
        try:
            killer = next((k for tests in portions if (k := self.first_failure(tests))), "")
            if not killer and checks:
                killer = next((c for c in CHECKS if not self.passes_check(c)), "")
        finally:
            self._write(path, original)
        return {
            "id": mutant.id,
            "killer": killer,
            "tests": sum(map(len, portions)),
            "seconds": round(time.monotonic() - started, 1),
        }

    def first_failure(self, tests: Sequence[Test]) -> str:
        """The test that fails first, or what else ended the run; empty where all pass."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "fork_server.py")],
                cwd=self.tree, env=environment(self.tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Whichever of its kin runs first may make what they share.
        longest: dict[str, float] = {}
        for test in tests:
            longest[test.kin] = max(longest.get(test.kin, 0.0), test.seconds)
        limits = [(PATIENCE + SLOWER * longest[t.kin], t.name) for t in tests]
        limit = 2 * PATIENCE + SLOWER * sum(t.seconds for t in tests) + SLOWER * sum(longest.values())
        self._process.stdin.write(json.dumps({"tests": limits, "limit": limit}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["status"] in {PASSED, NO_TESTS}:
            return ""
        if answer["status"] == BROKEN:
            raise SystemExit("The process that runs the tests is broken:\n" + answer["out"])
        return answer["failed"] or (answer["last"] if answer["status"] != FAILED else "") or "import"

    def passes_check(self, check: str) -> bool:
        command = [sys.executable, "-m", check, *CHECKS[check]]
        if check == "mypy":
            command.append(f"--cache-dir={self.tree.parent / 'mypy'}")
        done = subprocess.run(
            command, cwd=self.tree, env=environment(self.tree), check=False, capture_output=True, text=True
        )
        if done.returncode not in {0, 1}:
            raise SystemExit(f"{check} could not be asked:\n{done.stdout}{done.stderr}")
        return done.returncode == 0

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _write(self, path: Path, code: str) -> None:
        path.write_text(code, encoding="utf-8")
        # Compiled code is cached by whole seconds and size, which two mutants may share.
        self._clock += 1
        os.utime(path, (self._clock, self._clock))


class Results:
    """What became of each mutant, one line of JSON each; the last of a mutant counts."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.by_id: dict[str, dict[str, Any]] = {r["id"]: r for r in map(json.loads, lines)}

    def add(self, result: dict[str, Any]) -> None:
        self.by_id[result["id"]] = result
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def try_mutants(
    mutants: Sequence[Mutant], results: Results, covering: CoverageMap, tier: str, workers: int
) -> None:
    """Try what has no result. A test that fails without a bug too does not count: its mutants are tried again."""
    staff = [Worker(str(i)) for i in range(workers)]
    idle: queue.Queue[Worker] = queue.Queue()
    for worker in staff:
        idle.put(worker)
    unstable: set[str] = set()

    def try_one(mutant: Mutant) -> tuple[Mutant, dict[str, Any]]:
        portions = covering.select(mutant.place, BUDGET[tier], unstable)
        worker = idle.get()
        try:
            return mutant, worker.try_mutant(mutant, portions, checks=tier == "short")
        finally:
            idle.put(worker)

    left = [m for m in mutants if m.id not in results.by_id]
    try:
        while True:
            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                futures = [pool.submit(try_one, m) for m in left]
                try:
                    for at, future in enumerate(concurrent.futures.as_completed(futures), 1):
                        mutant, result = future.result()
                        results.add(result)
                        say(f"{at:4}/{len(left)} {describe(mutant, result)}")
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
            killers = {results.by_id[m.id]["killer"] for m in mutants} - unstable
            tests = [covering.tests[k] for k in sorted(killers) if k in covering.tests]
            new = set()
            while tests and (failed := staff[0].first_failure(tests)):
                say(f"fails without a bug too, and does not count: {failed}")
                new.add(failed)
                tests = [t for t in tests if t.name != failed]
            if not new:
                return
            unstable |= new
            left = [m for m in mutants if results.by_id[m.id]["killer"] in unstable]
    finally:
        for worker in staff:
            worker.close()


def describe(mutant: Mutant, result: Mapping[str, Any]) -> str:
    where, seconds = f"{mutant.place.path}:{mutant.place.line}", f"({result['seconds']:.0f} s)"
    if result["killer"]:
        return f"noticed  {where} by {result['killer']} {seconds}"
    return f"UNSEEN   {where} {result['tests']} tests {seconds}\n    - {mutant.before}\n    + {mutant.after}"


def write_scores(
    mutants: Sequence[Mutant],
    results: Mapping[str, Mapping[str, Any]],
    map_minutes: float,
    options: argparse.Namespace,
    commit: str,
) -> float:
    """Write the score of a seed as JSON and as Markdown, and its row of the README; return it."""
    by_package: dict[str, list[bool]] = {}
    for m in mutants:
        by_package.setdefault(m.place.package, []).append(bool(results[m.id]["killer"]))
    noticed = sum(map(sum, by_package.values()))
    score = noticed / max(1, len(mutants))
    seconds = sum(results[m.id]["seconds"] for m in mutants)
    summary = {
        "seed": options.seed, "suite": options.suite, "commit": commit, "planted": len(mutants), "noticed": noticed,
        "score": round(score, 3),
        "minutes": round(seconds / 60 / options.workers), "map_minutes": round(map_minutes),
        "packages": {p: {"planted": len(s), "noticed": sum(s)} for p, s in sorted(by_package.items())},
        "mutants": [
            {"place": f"{m.place.path}:{m.place.line}", "before": m.before, "after": m.after}
            | {k: results[m.id][k] for k in ("killer", "tests")}
            for m in mutants
        ],
    }  # fmt: skip
    table = [
        f"# Seed {options.seed}, suite {options.suite}, commit {commit}", "",
        f"{summary['minutes']} minutes on {options.workers} cores after {summary['map_minutes']} for the map.", "",
        "| package | planted | noticed | score |", "|---|---:|---:|---:|",
        *(f"| {p} | {len(s)} | {sum(s)} | {sum(s) / len(s):.0%} |" for p, s in sorted(by_package.items())),
        f"| all | {len(mutants)} | {noticed} | {score:.1%} |", "",
        "Not noticed:", "",
        *(
            f"- `{m.place.path}:{m.place.line}` ({results[m.id]['tests']} tests): `{m.before}` → `{m.after}`"
            for m in mutants
            if not results[m.id]["killer"]
        ),
    ]  # fmt: skip
    trial = bool(options.tests or options.only)
    folder = HOME / "trials" if trial else SCORES
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{options.suite}-{options.seed}-{len(mutants)}"
    (folder / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    row = f"| {options.seed} | {options.suite} | {len(mutants)} | {commit} | {score:.1%} |"
    rows = README.read_text(encoding="utf-8")
    if not trial and row not in rows:
        README.write_text(
            f"{rows.rstrip()}\n{row} {datetime.datetime.now(tz=datetime.timezone.utc):%Y-%m-%d} |\n"
        )
    say("\n" + "\n".join(table))
    return score


def read_commit() -> str:
    def git(*command: str) -> str:
        return subprocess.run(
            ["git", *command], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    changed = git(
        "status", "--porcelain", "--", "rtlab", "tests", ":!tests/plant", "sample_models", "notebooks"
    )
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tests/run plant", description=__doc__.split("\n\n")[0])
    parser.add_argument("--suite", choices=[*SUITES], default="short", help="which tests are asked (short)")
    parser.add_argument("--sample", type=int, default=100, help="how many bugs (100)")
    parser.add_argument("--seed", type=int, required=True, help="another number draws others")
    parser.add_argument("--workers", type=int, default=2, help="how many run at a time (2)")
    parser.add_argument("--only", choices=[*list_files()], help="trial: plant in one package, ask all")
    parser.add_argument("--tests", nargs="+", help="trial: ask these files or folders only")
    options = parser.parse_args(arguments)
    HOME.mkdir(exist_ok=True)
    with (HOME / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("Another run plants bugs in this checkout.") from None
        return plant(options)


def plant(options: argparse.Namespace) -> int:
    """Draw, try and score. ``all`` tries with slow tests what the short tier did not notice."""
    commit, parts = read_commit(), [tuple(options.tests)] if options.tests else PARTS
    places = [p for p in list_places(HOME / "places") if options.only in {None, p.package}]
    mutants = draw(places, sample=options.sample, seed=options.seed)
    say(f"{len(places)} places, {len(mutants)} bugs drawn by seed {options.seed}.")
    by_id: dict[str, Mapping[str, Any]] = {}
    minutes = 0.0
    for tier in SUITES[options.suite]:
        left = [m for m in mutants if not by_id.get(m.id, {}).get("killer")]
        covering = coverage_map(tier, parts, options.workers)
        minutes += covering.minutes
        results = Results(HOME / "results" / f"{digest(tree_digest(), tier, parts)[:16]}.jsonl")
        try_mutants(left, results, covering, tier, options.workers)
        for m in left:
            result, before = results.by_id[m.id], by_id.get(m.id, {"tests": 0, "seconds": 0.0})
            by_id[m.id] = result | {k: result[k] + before[k] for k in ("tests", "seconds")}
    score = write_scores(mutants, by_id, minutes, options, commit)
    return int(score < REQUIRED[options.suite])


if __name__ == "__main__":
    sys.exit(main())
