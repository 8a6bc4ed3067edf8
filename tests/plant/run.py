"""Plants bugs, one at a time, and says which of them no test notices: ``tests/run plant [options]``.

Each bug is one of Cosmic Ray's mutations at a place drawn by a seed. The tests that cover the place run until one
fails, nearest and fastest first, in copies of the tree. A run that was stopped goes on where it was; the session is a
database of Cosmic Ray's, so ``cr-report`` and ``cr-html`` read it too.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from covered import HOME, Covered, Test, copy, covered, digest, environment
from places import PACKAGES, ROOT, Mutant, drawn, places
from warm import BROKEN

HERE = Path(__file__).parent
#: Mutants that no test can tell from the code, each with the reason.
EQUIVALENT = HERE / "equivalent.txt"
TABLE = HERE / "README.md"
#: What is asked of a run: the share that is noticed at least, and of equivalent ones at most.
NOTICED, SAME = 0.90, 0.03
#: What pytest's exit statuses say: all passed, some failed, none was there.
PASSED, FAILED, NOTHING = 0, 1, 5


def say(text: str = "") -> None:
    """A line of what comes out, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Worker:
    """One copy of the tree, and a process in it that runs tests."""

    def __init__(self, name: str) -> None:
        self.tree = copy(name)
        self._clock = int(time.time()) - 10**6
        self._process: subprocess.Popen[str] | None = None

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The copy with one bug."""
        path = self.tree / mutant.place.path
        kept = path.read_text(encoding="utf-8")
        self._write(path, mutant.code)
        try:
            yield
        finally:
            self._write(path, kept)

    def ask(self, tests: Sequence[Test]) -> dict[str, Any]:
        """Run tests until one fails."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "warm.py")],
                cwd=self.tree, env=environment(self.tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # What it takes to make the first of a group is in no test's own time.
        asked = [(t.seconds + t.setup, t.name) for t in tests]
        groups = {t.group: t.setup for t in tests}
        limit = 120 + 6 * (sum(t.seconds for t in tests) + sum(groups.values()))
        self._process.stdin.write(json.dumps({"tests": asked, "limit": limit}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _write(self, path: Path, code: str) -> None:
        path.write_text(code, encoding="utf-8")
        # Compiled code is kept by whole seconds and size, which two mutants may share.
        self._clock += 1
        os.utime(path, (self._clock, self._clock))


def examined(worker: Worker, mutant: Mutant, choice: Sequence[Sequence[Test]]) -> dict[str, Any]:
    """What became of one mutant: ``killer`` names what noticed it, and is empty where nothing did."""
    started, ran, out = time.monotonic(), 0, ""
    with worker.planted(mutant):
        for tests in choice:
            answer = worker.ask(tests)
            ran, out = ran + len(tests), answer["out"]
            if answer["status"] in {PASSED, NOTHING}:
                continue
            if answer["status"] == BROKEN:
                raise SystemExit("The process that runs the tests is broken:\n" + answer["out"])
            killer = answer["failed"] or (answer["last"] if answer["status"] != FAILED else "") or "import"
            return _told(killer, started, ran, out)
    return _told("", started, ran, out)


def _told(killer: str, started: float, ran: int, out: str) -> dict[str, Any]:
    return {
        "killer": killer,
        "seconds": time.monotonic() - started,
        "tests": ran,
        "out": out if killer else "",
    }


def steady(worker: Worker, known: Covered, killers: Sequence[str]) -> set[str]:
    """Of the tests that noticed a bug, those that fail without one too: alone among the others, as they ran."""
    left, bad = [known.tests[k] for k in killers if k in known.tests], set()
    while left:
        answer = worker.ask(left)
        if answer["status"] == PASSED:
            break
        name = answer["failed"] or answer["last"]
        if not name:
            raise SystemExit("The tests that noticed bugs do not run without one:\n" + answer["out"])
        bad.add(name)
        left = [t for t in left if t.name != name]
    return bad


class Session:
    """What became of each mutant, in a database of Cosmic Ray's."""

    def __init__(self, path: Path, mutants: Sequence[Mutant]) -> None:
        from cosmic_ray.work_db import WorkDB
        from cosmic_ray.work_item import MutationSpec, WorkItem

        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._db = WorkDB(path, WorkDB.Mode.create)
        known = {w.job_id for w in self._db.work_items}
        self._db.add_work_items(
            WorkItem.single(
                m.id,
                MutationSpec(
                    module_path=m.place.path,
                    operator_name=m.operator,
                    occurrence=m.occurrence,
                    start_pos=m.place.start,
                    end_pos=m.place.end,
                ),
            )
            for m in mutants
            if m.id not in known
        )

    def results(self) -> dict[str, dict[str, Any]]:
        """By the id of a mutant, what became of it."""
        return {job: json.loads(r.output) for job, r in self._db.results}

    def keep(self, mutant: Mutant, found: Mapping[str, Any]) -> None:
        """Write down what became of one."""
        from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

        outcome = TestOutcome.KILLED if found["killer"] else TestOutcome.SURVIVED
        diff = f"-{mutant.was}\n+{mutant.becomes}"
        self._db.set_result(
            mutant.id, WorkResult(WorkerOutcome.NORMAL, json.dumps(dict(found)), outcome, diff)
        )

    def take(self, mutants: Sequence[Mutant]) -> None:
        """Take over what was noticed in the same code, whatever tests there were."""
        code = self.path.name.partition("-")[0]
        for other in self.path.parent.glob(f"{code}-*.sqlite"):
            if other != self.path:
                found = Session(other, ()).results()
                have = self.results()
                for m in mutants:
                    if m.id in found and found[m.id]["killer"] and m.id not in have:
                        self.keep(m, found[m.id])


def equivalents() -> list[dict[str, str]]:
    """The kept list: blocks of the name of a file, ``- line``, ``+ what it becomes``, and why that changes nothing."""
    found = []
    for block in EQUIVALENT.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            was, becomes = ([x[2:] for x in lines[1:] if x.startswith(mark)] for mark in ("- ", "+ "))
            why = " ".join(x for x in lines[1:] if not x.startswith(("- ", "+ ")))
            if not (was and why):
                raise SystemExit(
                    f"tests/plant/{EQUIVALENT.name}: a block lacks its line or its reason:\n{block}"
                )
            found.append(
                {"file": lines[0], "line": "\n".join(was), "becomes": "\n".join(becomes), "why": why}
            )
    return found


def equal(mutant: Mutant, listed: Sequence[Mapping[str, str]]) -> bool:
    """Whether a mutant is on the kept list."""
    return any(
        Path(mutant.place.path).name == e["file"]
        and mutant.was == e["line"]
        and mutant.becomes == e["becomes"]
        for e in listed
    )


def stale(listed: Sequence[Mapping[str, str]]) -> list[str]:
    """Entries whose line is in no file of that name any more."""
    sources: dict[str, set[str]] = collections.defaultdict(set)
    for named in PACKAGES.values():
        for name in named:
            path = ROOT / name
            for file in path.rglob("*.py") if path.is_dir() else [path]:
                sources[file.name] |= {
                    " ".join(x.split()) for x in file.read_text(encoding="utf-8").splitlines()
                }
    return [f"{e['file']}: {e['line']}" for e in listed if not {*e["line"].split("\n")} <= sources[e["file"]]]


def table(mutants: Sequence[Mutant], results: Mapping[str, Mapping[str, Any]], same: set[str]) -> list[str]:
    """The score of each package, in Markdown."""
    lines = ["| package | planted | noticed | equivalent | score |", "|---|---:|---:|---:|---:|"]
    for package in (*PACKAGES, "all"):
        of = [m for m in mutants if package in {m.place.package, "all"} and m.id in results]
        if of:
            noticed = sum(bool(results[m.id]["killer"]) for m in of)
            told = sum(m.id in same and not results[m.id]["killer"] for m in of)
            lines.append(
                f"| {package} | {len(of)} | {noticed} | {told} | {noticed / max(1, len(of) - told):.1%} |"
            )
    return lines


def written(told: Sequence[str]) -> None:
    """The score, kept between two marks of README.md."""
    text = TABLE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- score -->\n")
    _, _, tail = rest.partition("<!-- /score -->")
    TABLE.write_text(
        f"{head}<!-- score -->\n" + "\n".join(told) + f"\n<!-- /score -->{tail}", encoding="utf-8"
    )


class Rounds:
    """Workers, and what they do with many mutants."""

    def __init__(self, session: Session, known: Covered, workers: int) -> None:
        self.shunned: set[str] = set()
        self._session, self._known = session, known
        self._staff = [Worker(str(i)) for i in range(workers)]
        self._idle: queue.Queue[Worker] = queue.Queue()
        for worker in self._staff:
            self._idle.put(worker)

    def examine(self, mutants: Sequence[Mutant], *, near: bool) -> None:
        """One round: the nearest tests, or all others. What became of each is kept at once."""
        with concurrent.futures.ThreadPoolExecutor(len(self._staff)) as pool:
            futures = [pool.submit(self._one, m, near=near) for m in mutants]
            try:
                for at, future in enumerate(concurrent.futures.as_completed(futures), 1):
                    mutant, found = future.result()
                    before = {} if near else self._session.results().get(mutant.id, {})
                    found.update({k: found[k] + before.get(k, 0) for k in ("seconds", "tests")})
                    self._session.keep(mutant, found)
                    say(f"{at:4}/{len(mutants)} {_line(mutant, found)}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def unsteady(self, killers: Sequence[str]) -> set[str]:
        """Of the tests that noticed a bug, those that fail without one too; they are asked no more."""
        bad = steady(self._staff[0], self._known, killers)
        for name in sorted(bad):
            say(f"fails without a bug too, and counts no more: {name}")
        self.shunned |= bad
        return bad

    def close(self) -> None:
        """End the workers."""
        for worker in self._staff:
            worker.close()

    def _one(self, mutant: Mutant, *, near: bool) -> tuple[Mutant, dict[str, Any]]:
        worker, choice = self._idle.get(), self._known.choice(mutant.place, self.shunned)
        try:
            found = examined(worker, mutant, choice[:1] if near else choice[1:])
        finally:
            self._idle.put(worker)
        return mutant, {**found, "others": near and len(choice) > 1}


def execute(mutants: Sequence[Mutant], session: Session, known: Covered, workers: int) -> None:
    """Examine what has no result yet. What noticed a bug must run without one too: else its bugs are examined again."""
    rounds = Rounds(session, known, workers)
    left = [m for m in mutants if m.id not in session.results()]
    try:
        while True:
            # The nearest tests notice most; what is left after them is known early, and goes through all others then.
            rounds.examine(left, near=True)
            results = session.results()
            distant = [m for m in mutants if not results[m.id]["killer"] and results[m.id].get("others")]
            if distant:
                say(f"The nearest tests did not notice {len(distant)}: all others that cover them.")
            rounds.examine(distant, near=False)
            results = session.results()
            bad = rounds.unsteady(sorted({results[m.id]["killer"] for m in mutants}))
            left = [m for m in mutants if results[m.id]["killer"] in bad]
            if not left:
                return
    finally:
        rounds.close()


def _line(mutant: Mutant, found: Mapping[str, Any]) -> str:
    where = f"{mutant.place.path}:{mutant.place.start[0]}"
    if found["killer"]:
        return f"noticed  {where} by {found['killer']} ({found['seconds']:.0f} s)"
    changed = "".join(
        f"\n    {mark} {x}"
        for mark, text in (("-", mutant.was), ("+", mutant.becomes))
        for x in text.split("\n")
        if x
    )
    return f"SURVIVED {where} {found['tests']} tests ({found['seconds']:.0f} s){changed}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser("tests/run plant", description=__doc__.split("\n\n")[0])
    parser.add_argument("--sample", type=int, default=300, help="how many bugs (300)")
    parser.add_argument("--seed", type=int, default=1, help="another number draws others (1)")
    parser.add_argument("--only", choices=[*PACKAGES], help="plant in one package alone")
    parser.add_argument("--workers", type=int, default=2, help="how many run at a time (2)")
    parser.add_argument(
        "--again", action="store_true", help="what was noticed in another run stays so: examine the others"
    )
    parser.add_argument(
        "--list", action="store_true", help="name the bugs and the tests that cover them, plant none"
    )
    parser.add_argument("--write", action="store_true", help="keep the score in tests/plant/README.md")
    given = parser.parse_args(arguments)
    for entry in stale(equivalents()):
        say(f"tests/plant/{EQUIVALENT.name} speaks of a line that is not there: {entry}")
    known = covered(given.workers)
    found = [p for p in places(HOME / "places") if given.only in {None, p.package}]
    mutants = [*drawn(found, sample=given.sample, seed=given.seed)]
    if given.list:
        for m in mutants:
            tests = [t for portion in known.choice(m.place) for t in portion]
            say(_line(m, {"killer": "", "tests": len(tests), "seconds": sum(t.seconds for t in tests)}))
        return 0
    session = Session(HOME / "sessions" / f"{'-'.join(digest())}.sqlite", mutants)
    if given.again:
        session.take(mutants)
    execute(mutants, session, known, given.workers)
    return report(mutants, session.results(), known, given)


def report(
    mutants: Sequence[Mutant],
    results: Mapping[str, Mapping[str, Any]],
    known: Covered,
    given: argparse.Namespace,
) -> int:
    """Print what nobody noticed and the score; the exit status says whether it is enough."""
    listed = equivalents()
    same = {m.id for m in mutants if equal(m, listed)}
    say()
    for m in mutants:
        if not results[m.id]["killer"] and m.id not in same:
            say(_line(m, results[m.id]))
    minutes = sum(results[m.id]["seconds"] for m in mutants) / 60 / given.workers
    told = table(mutants, results, same)
    head = (
        f"Seed {given.seed}, {len(mutants)} bugs, {minutes:.0f} minutes on {given.workers} cores "
        f"after {known.minutes:.0f} for the map:"
    )
    say("\n".join(["", head, "", *told]))
    if given.write:
        written([head, "", *told])
    alive = sum(not results[m.id]["killer"] for m in mutants if m.id not in same)
    equal_ones = sum(not results[m.id]["killer"] for m in mutants if m.id in same)
    return int(alive > (1 - NOTICED) * (len(mutants) - equal_ones) or equal_ones > SAME * len(mutants))


if __name__ == "__main__":
    sys.exit(main())
