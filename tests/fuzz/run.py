"""Damaged files, thousands of them: what each entry of rtlab makes of what nobody wrote on purpose.

Models, files of engines, logs, calibration caches, samples, archives and commands of the page are taken from this
checkout and the recordings beside it, damaged at random, and given to rtlab. Each ends well or in an ``RtlabError``.
Whatever else happens is counted: another exception, an input that takes longer than its time, a process that dies.
Inputs that did are kept under ``.fuzz/``, each with what became of it.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = ROOT.parent / "shared" / "recorded"
KEPT = ROOT / ".fuzz"
#: Seconds that one input may take, and bytes that a process may have.
PATIENCE, MEMORY = 30.0, 6 << 30
#: What the words of an error say that was turned into words at the outermost boundary only.
UNFORESEEN = "Nobody foresaw"
#: Larger files only take longer.
LARGEST = 200_000
#: Numbers at which programs break.
EXTREME = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x7FFFFFFFFFFFFFFF,
    0xFFFFFFFFFFFFFFFF,
)
WORDS = (
    b"NaN", b"1e999", b"-1", b"null", b"{}", b"[]", b'"', b"\0", b"\xff\xfe", b"9" * 20, b"\xe2\x80\xae",
)  # fmt: skip


def corpus() -> dict[str, list[bytes]]:
    """Whole files by kind."""
    import numpy as np

    found: dict[str, list[bytes]] = collections.defaultdict(list)
    for path in sorted((ROOT / "sample_models").glob("*.onnx")):
        found["model"].append(path.read_bytes())
    for folder in sorted((RECORDED / "engines").glob("*")):
        files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.stat().st_size < LARGEST}
        found["engine"] += [data for name, data in files.items() if name.endswith(".json")]
        found["log"] += [data for name, data in files.items() if name.endswith(".log")]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        found["archive"].append(packed.getvalue())
    for folder in ("build-logs", "pasted"):
        found["log"] += [p.read_bytes()[:LARGEST] for p in sorted((RECORDED / folder).glob("*"))]
    found["cache"] += [p.read_bytes() for p in sorted((RECORDED / "calibration-caches").glob("*"))]
    found["cache"].append(
        b"TRT-8600-EntropyCalibration2\nimage: 3c010a14\n/stem/conv/Conv_output_0: 3d21b0c4\n"
    )
    for save in (np.savez, np.savez_compressed):
        packed = io.BytesIO()
        save(packed, image=np.zeros((3, 1, 32, 32), np.float32))
        found["samples"].append(packed.getvalue())
    from rtlab.documents import commands

    choice = {
        "model": "tiny", "precision": "int8", "calibrator": "auto", "target": "sm86", "backend": "",
        "pins": [{"pattern": "*", "precision": "fp32"}], "weights": "channel", "sparsity": [], "treatments": [],
    }  # fmt: skip
    asked = (
        commands.BuildChoice(choice), commands.BuildAgain("fp32"), commands.ShowVariant("x"),
        commands.InspectNode("x"), commands.ExtractNodes(["a", "b"]), commands.RepairPlacement(["a"]),
        commands.SaveFile("fp32", "onnx"), commands.AskPanel("1", "memory", "fp32", {"batch": "8"}),
        commands.StartWork("sweep", "fp32", {"what": "targets"}), commands.ReadDropped(["a.json"]),
        commands.MeasureMore("fp32"),
    )  # fmt: skip
    found["command"] += [json.dumps(command.crossing()).encode() for command in asked]
    return found


def damaged(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """A file with one to four faults: bits, pieces, numbers and words that are not what they were."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        size = min(len(made) - at, int(2 ** rng.uniform(0, 12)))
        fault = rng.choice(FAULTS)
        until, put = fault(rng, made, at, size, rng.choice(others))
        made[at:until] = put
    return bytes(made)


def _bits(rng: random.Random, made: bytearray, at: int, size: int, __: bytes) -> tuple[int, bytes]:
    piece = bytearray(made[at : at + size])
    for _ in range(rng.randint(1, 8) if piece else 0):
        piece[rng.randrange(len(piece))] ^= 1 << rng.randrange(8)
    return at + size, bytes(piece)


def _gone(_: random.Random, made: bytearray, at: int, size: int, __: bytes) -> tuple[int, bytes]:
    return at + size, b""


def _cut(_: random.Random, made: bytearray, __: int, ___: int, ____: bytes) -> tuple[int, bytes]:
    return len(made), b""


def _again(rng: random.Random, made: bytearray, at: int, size: int, _: bytes) -> tuple[int, bytes]:
    return at, bytes(made[at : at + size]) * rng.randint(1, 3)


def _noise(rng: random.Random, made: bytearray, at: int, size: int, _: bytes) -> tuple[int, bytes]:
    return at, rng.randbytes(rng.randint(1, 16))


def _number(rng: random.Random, made: bytearray, at: int, size: int, _: bytes) -> tuple[int, bytes]:
    width = rng.choice((1, 2, 4, 8))
    number = rng.choice(EXTREME) % (1 << 8 * width)
    return at + width, number.to_bytes(width, rng.choice(("little", "big")))


def _spliced(rng: random.Random, made: bytearray, at: int, size: int, other: bytes) -> tuple[int, bytes]:
    begin = rng.randrange(len(other) + 1)
    return at + size, other[begin : begin + size]


def _word(rng: random.Random, made: bytearray, at: int, size: int, _: bytes) -> tuple[int, bytes]:
    return at + rng.randrange(4), rng.choice(WORDS)


#: Where a fault ends, and what stands there then.
FAULTS = (_bits, _gone, _cut, _again, _noise, _number, _spliced, _word)


def entries(folder: Path) -> dict[str, Callable[[bytes], object]]:
    """What is done with a file of each kind."""
    import rtlab
    from rtlab.core.data import CalibrationData
    from rtlab.quantize.cache import CalibrationCache
    from rtlab.view.graph import source_graph

    sample = rtlab.samples.load("digits_inception").model
    study = rtlab.Study(sample)
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run(budget_s=0)
    explorer = study.explore()

    def written(data: bytes, name: str) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    def model(data: bytes) -> None:
        loaded = rtlab.load(data)
        source_graph(loaded)
        _ = loaded.places

    def engine(data: bytes) -> None:
        read = rtlab.read(written(data, "damaged.json"))
        for result in read.results.values():
            _ = result.findings, result.coverage, result.table()

    def samples(data: bytes) -> None:
        CalibrationData.of(written(data, "damaged.npz"), model=sample).check(sample)

    def command(data: bytes) -> None:
        try:
            content = json.loads(data)
        except ValueError:
            content = {"type": "show", "variant": data.decode("utf-8", "replace")}
        explorer._receive(explorer, content, [])
        explorer.cancel()
        explorer.wait(PATIENCE)
        message = str((explorer.failure or {}).get("message", ""))
        if UNFORESEEN in message:
            raise RuntimeError(message)

    return {
        "model": model, "engine": engine, "log": lambda d: rtlab.read(written(d, "damaged.log")),
        "archive": lambda d: rtlab.read(written(d, "damaged.tea")), "samples": samples,
        "cache": lambda d: CalibrationCache.read(written(d, "damaged.cache")), "command": command,
    }  # fmt: skip


def inputs(seed: int, only: str = "") -> Iterator[tuple[str, bytes]]:
    """Damaged files without end, the kinds in turn or one of them; the same for the same seed."""
    found = corpus()
    kinds = [only] if only else sorted(found)
    for number in range(1 << 62):
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - faults, not secrets
        kind = kinds[number % len(kinds)]
        yield kind, damaged(rng, rng.choice(found[kind]), found[kind])


def work(seed: int, first: int, last: int, only: str) -> None:
    """One process: tell of each input before and after."""
    import resource
    import warnings

    from rtlab.errors import RtlabError

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory() as folder:
        doing = entries(Path(folder))
        for number, (kind, data) in enumerate(inputs(seed, only)):
            if not first <= number < last:
                if number >= last:
                    break
                continue
            say.write(f"{number} begin\n")
            try:
                doing[kind](data)
                outcome = "ok"
            except RtlabError as error:
                outcome = "words" if UNFORESEEN not in str(error) else f"unforeseen: {_last(error.__cause__)}"
            except Exception as error:  # noqa: BLE001 - what the run is for
                outcome = f"other: {_last(error)}"
            say.write(f"{number} {outcome}\n")


def _last(error: BaseException | None) -> str:
    """An exception and the last place in rtlab that it came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "rtlab" in f.filename] if error else []
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return " ".join(f"{type(error).__name__} at {where}: {error}".split())[:200]


class Run:
    """A process at work, and what it told."""

    def __init__(self, seed: int, first: int, last: int, only: str) -> None:
        self.at, self.begun = first, time.monotonic()
        command = [sys.executable, __file__, "--work", str(seed), str(first), str(last), only]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.told: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.put(line)
        self.told.put("")


def attended(seed: int, first: int, last: int, until: float, only: str) -> Iterator[tuple[int, str]]:
    """Outcomes of inputs by number; a process that hangs or dies costs the input that it was at."""
    while first < last and time.monotonic() < until:
        run = Run(seed, first, last, only)
        at = None
        try:
            while True:
                try:
                    line = run.told.get(timeout=PATIENCE if at is not None else 10 * PATIENCE)
                except queue.Empty:
                    yield (first if at is None else at), f"hang: longer than {PATIENCE:.0f} s"
                    break
                if not line:
                    code = run.process.wait()
                    if at is None and code == 0:
                        return
                    yield (first if at is None else at), f"death: exit status {code}"
                    break
                number, outcome = line.rstrip("\n").split(" ", 1)
                at = int(number) if outcome == "begin" else None
                if outcome != "begin":
                    first = int(number) + 1
                    yield int(number), outcome
                if time.monotonic() > until:
                    return
            first = (first if at is None else at) + 1
        finally:
            run.process.kill()
            run.process.wait()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run it, and print a table of what happened."""
    parser = argparse.ArgumentParser(description="Damaged files, thousands of them.")
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1200.0, help="the time that all may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="", choices=["", *sorted(corpus())], help="one kind alone")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        seed, first, last, only = given.work
        work(int(seed), int(first), int(last), only)
        return 0
    kinds = [given.kind] if given.kind else sorted(corpus())
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    bad: dict[int, str] = {}
    for number, outcome in attended(
        given.seed, 0, given.inputs, time.monotonic() + given.seconds, given.kind
    ):
        counts[kinds[number % len(kinds)], outcome.split(":")[0]] += 1
        if outcome not in {"ok", "words"}:
            bad[number] = outcome
            _say(f"input {number} ({kinds[number % len(kinds)]}): {outcome}")
    if bad:
        KEPT.mkdir(exist_ok=True)
        for number, (kind, data) in enumerate(inputs(given.seed, given.kind)):
            if number in bad:
                (KEPT / f"{kind}-{given.seed}-{number}").write_bytes(data)
            if number >= max(bad):
                break
    columns = ("ok", "words", "unforeseen", "other", "hang", "death")
    _say(f"\n{'':10}" + "".join(f"{c:>12}" for c in columns))
    for kind in kinds:
        _say(f"{kind:10}" + "".join(f"{counts[kind, c]:>12,}" for c in columns))
    _say(
        f"\n{sum(counts.values()):,} inputs, {len(bad):,} of them neither well nor in words; kept in {KEPT.name}/"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
