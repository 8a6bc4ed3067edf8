"""Damaged files, thousands of them: what each entry of rtlab makes of what nobody wrote on purpose.

Models of ours and of other exporters, files of engines, logs, recorded builds, calibration caches, samples, archives
and commands of the page are taken from this checkout and the onnx package, damaged (most so that their format stays
whole, ``faults.py``), and given to rtlab. Each is read, or refused in an ``RtlabError``. Whatever else happens is raw:
another exception, an error that nobody foresaw, an input that takes longer than its time, a process that dies.
Inputs that did are kept under ``.fuzz/``, each with what became of it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import importlib
import io
import json
import lzma
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import faults

ROOT = Path(__file__).parents[2]
CORPUS, SAMPLES = ROOT / "tests" / "corpus", ROOT / "sample_models"
KEPT = ROOT / ".fuzz"
#: Seconds that one input may take, and bytes that a process may have.
PATIENCE, MEMORY = 30.0, 6 << 30
#: What the words of an error say that was turned into words at the outermost boundary only.
UNFORESEEN = "Nobody foresaw"
#: Larger files only take longer.
LARGEST = 200_000
#: The part of the inputs that lose their format too, and of the fields of a command that name something there is.
BROKEN, USUAL = 0.15, 0.85
NODES = ("/stem/conv/Conv", "/stem/pool/MaxPool", "/head/fc/Gemm", "#3")
#: Modules of ONNX's examples that are taken; all of them take 20 s to make.
OPERATORS = (
    "attention", "conv", "convtranspose", "dequantizelinear", "einsum", "gathernd", "gemm", "groupnormalization", "gru",
    "if_", "layernormalization", "loop", "lstm", "matmul", "nonmaxsuppression", "pad", "quantizelinear", "reshape",
    "resize", "scan", "slice", "softmax", "split", "topk", "where",
)  # fmt: skip


def _files(folder: Path, pattern: str) -> list[bytes]:
    return [p.read_bytes() for p in sorted(folder.rglob(pattern)) if p.stat().st_size < LARGEST]


def _foreign() -> list[bytes]:
    """Models that PyTorch's exporter wrote, brought to a later opset, and the examples of operators in ONNX itself."""
    import onnx.backend.test
    from onnx.backend.test.case import node
    from onnx.version_converter import convert_version

    for name in OPERATORS:
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
    made = [case.model.SerializeToString() for case in node._NodeTestCases]
    found = []
    for data in _files(Path(onnx.backend.test.__file__).parent / "data", "model.onnx"):
        with contextlib.suppress(Exception):
            found.append(convert_version(onnx.load_model_from_string(data), 13).SerializeToString())
    return [*made, *found * 3]


def _recordings() -> list[bytes]:
    lines = [
        line
        for p in sorted((SAMPLES / "recordings").glob("*.xz"))
        for line in lzma.decompress(p.read_bytes()).splitlines()
    ]
    return [line.partition(b" ")[2] for line in lines if len(line) < LARGEST]


def _archives() -> list[bytes]:
    folders = sorted((CORPUS / "engines").iterdir())
    return [faults.packed({p.name: p.read_bytes() for p in sorted(f.iterdir())}) for f in folders]


def _caches() -> list[bytes]:
    values = "".join(f"/block{n}/conv/Conv_output_0: 3c{n:02x}0a14\n" for n in range(40))
    kinds = ("TRT-8600-EntropyCalibration2", "TRT-101601-MinMaxCalibration")
    return [f"{kind}\nimage: 3c010a14\n{values}".encode() for kind in kinds]


def _samples() -> list[bytes]:
    import numpy as np

    numbers = np.linspace(0, 1, 3 * 32 * 32, dtype=np.float32).reshape(3, 1, 32, 32)
    made = [io.BytesIO(), io.BytesIO()]
    np.savez(made[0], image=numbers)
    np.savez_compressed(made[1], image=numbers)
    return [m.getvalue() for m in made]


KINDS: dict[str, tuple[Callable[[], list[bytes]], faults.Fault]] = {
    "archive": (_archives, faults.of_archive),
    "cache": (_caches, faults.of_cache),
    "command": (lambda: [json.dumps(command(random.Random(n))).encode() for n in range(400)], faults.of_json),  # noqa: S311
    "engine": (
        lambda: [
            data
            for data in _files(CORPUS, "*.json") + _files(SAMPLES / "engines", "*.json")
            if b"computeMs" in data or b"ayers" in data or b"averageMs" in data
        ],
        faults.of_json,
    ),
    "foreign": (_foreign, faults.of_model),
    "log": (
        lambda: [
            x for f in (CORPUS, SAMPLES / "engines", ROOT / "tests" / "data") for x in _files(f, "*.log")
        ],
        faults.of_text,
    ),
    "model": (lambda: _files(SAMPLES, "*.onnx") + _files(CORPUS / "onnxruntime", "*.onnx"), faults.of_model),
    "recording": (_recordings, faults.of_recording),
    "samples": (_samples, faults.of_samples),
}


@functools.cache
def corpus(kind: str) -> list[bytes]:
    return KINDS[kind][0]()


def command(rng: random.Random) -> dict[str, object]:
    from rtlab.analyses.panels import ANALYSES
    from rtlab.documents import commands

    known: dict[str, tuple[str, ...]] = {
        "variant": ("fp32",), "model": ("digits_inception",), "precision": ("fp32", "fp16", "int8"), "nodes": NODES,
        "calibrator": ("auto", "minmax", ""), "target": ("cpu", "sm86"), "backend": ("onnxruntime", "classic"),
        "weights": ("channel", "tensor"), "node": NODES, "panel": tuple(q.name for q in ANALYSES), "pattern": ("*",),
        "path": ("digits_inception", "digits_gru"), "settings": ("targets", "8", "batch"), "name": ("figures",),
        "values": ("nodes", "what", "targets", "8", "budget_s", *NODES), "shapes": ("image", "N"),
    }  # fmt: skip

    def filled(kind: typing.Any, name: str) -> object:
        inner, origin = typing.get_args(kind), typing.get_origin(kind)
        if typing.is_typeddict(kind):
            return {field: filled(k, field) for field, k in typing.get_type_hints(kind).items()}
        if origin is list:
            return [filled(inner[0], name) for _ in range(rng.choice((0, 1, 1, 2)))]
        if origin is dict:
            return {
                str(filled(inner[0], name)): filled(inner[1], name) for _ in range(rng.choice((0, 1, 1, 3)))
            }
        if origin is typing.Literal:
            return rng.choice(inner)
        if kind is int:
            return rng.choice(faults.NUMBERS)
        return rng.choice(known.get(name, ("",)) if rng.random() < USUAL else faults.NAMES)

    kind = rng.choice(typing.get_args(commands.Command))
    hints = typing.get_type_hints(kind, vars(commands))
    return {
        "type": kind.__struct_config__.tag,
        **{field: filled(hints[field], field) for field in kind.__struct_fields__},
    }


def entries(folder: Path) -> dict[str, Callable[[bytes], object]]:
    import rtlab
    from rtlab.core.data import CalibrationData
    from rtlab.quantize.cache import CalibrationCache
    from rtlab.web.page.graph import source_graph

    sample = rtlab.samples.load("digits_inception").model
    shown: list[typing.Any] = []

    def explorer() -> typing.Any:
        if (
            not shown
            or "fp32" not in shown[-1].study.state.results
            or shown[-1].study.model.name != sample.name
        ):
            study = rtlab.Study(sample)
            study.add("fp32", target="cpu", backend="onnxruntime")
            shown[:] = [study.run(budget_s=0).explore(files=[folder])]
        return shown[-1]

    def written(data: bytes, name: str) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    def model(data: bytes) -> None:
        loaded = rtlab.load(data)
        source_graph(loaded)
        _ = loaded.places
        study = rtlab.Study(loaded)
        study.add("fp16", precision="fp16", backend="classic", target="sm86")
        # What has open sizes, or an operator without a form, is refused here and was read all the same.
        with _words():
            study.run(compare=False)
            _ = study["fp16"].findings, study["fp16"].table()
        with _words():
            study.findings()

    def read(data: bytes, name: str) -> None:
        for result in rtlab.read(written(data, name)).values():
            _ = result.findings, result.coverage, result.table()

    def samples(data: bytes) -> None:
        CalibrationData.of(written(data, "damaged.npz"), model=sample).check(sample)

    files = {
        "engine": "damaged.json", "log": "damaged.log", "archive": "damaged.tea", "recording": "damaged.json",
    }  # fmt: skip
    return {
        "model": model, "foreign": model, "samples": samples, "command": lambda d: _obey(explorer(), d),
        "cache": lambda d: CalibrationCache.read(written(d, "damaged.cache")),
        **{kind: functools.partial(read, name=name) for kind, name in files.items()},
    }  # fmt: skip


def _obey(page: typing.Any, data: bytes) -> None:
    """Let an Explorer do what its page asks for; what it says of a failure is an error here."""
    from rtlab.errors import RtlabError

    try:
        content = json.loads(data)
    except ValueError:
        content = {"type": "show", "variant": data.decode("utf-8", "replace")}
    page._receive(page, content, [])
    page.cancel()
    page.wait(PATIENCE)
    failure = page.failure
    page._receive(page, {"type": "dismiss"}, [])
    if failure:
        raise RtlabError(str(failure["message"]))


@contextlib.contextmanager
def _words() -> Iterator[None]:
    """Errors in words do not end what is tried; those that nobody foresaw do."""
    from rtlab.errors import RtlabError

    try:
        yield
    except RtlabError as error:
        if UNFORESEEN in str(error):
            raise


def kind_of(number: int, only: str) -> str:
    return only or sorted(KINDS)[number % len(KINDS)]


def damaged(seed: int, number: int, kind: str) -> bytes:
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - faults, not secrets
    whole = corpus(kind)
    if kind == "command" and rng.random() < 0.8:
        return json.dumps(command(rng)).encode()
    fault = faults.of_bytes if rng.random() < BROKEN else KINDS[kind][1]
    return fault(rng, rng.choice(whole), whole)


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
        for number in range(first, last):
            kind = kind_of(number, only)
            data = damaged(seed, number, kind)
            say.write(f"{number} begin\n")
            try:
                doing[kind](data)
                outcome = "read"
            except RtlabError as error:
                raw = f"unforeseen: {_last(error.__cause__ or error)}"
                outcome = raw if UNFORESEEN in str(error) else "words"
            except Exception as error:  # noqa: BLE001 - what the run is for
                outcome = f"other: {_last(error)}"
            say.write(f"{number} {outcome}\n")


def _last(error: BaseException | None) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "rtlab" in f.filename] if error else []
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return " ".join(f"{type(error).__name__} at {where}: {error}".split())[:200]


class Run:
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
    parser = argparse.ArgumentParser(description="Damaged files, thousands of them.")
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1200.0, help="the time that all may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="", choices=["", *sorted(KINDS)], help="one kind alone")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        seed, first, last, only = given.work
        work(int(seed), int(first), int(last), only)
        return 0
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    raw: dict[int, str] = {}
    until = time.monotonic() + given.seconds
    for number, outcome in attended(given.seed, 0, given.inputs, until, given.kind):
        kind = kind_of(number, given.kind)
        counts[kind, outcome if outcome in {"read", "words"} else "raw"] += 1
        if outcome not in {"read", "words"}:
            raw[number] = outcome
            _say(f"input {number} ({kind}): {outcome}")
            KEPT.mkdir(exist_ok=True)
            (KEPT / f"{kind}-{given.seed}-{number}").write_bytes(damaged(given.seed, number, kind))
    _say(f"\nseed {given.seed:<8}{'inputs':>10}{'read':>10}{'in words':>10}{'raw':>10}")
    for kind in dict.fromkeys(kind_of(n, given.kind) for n in range(len(KINDS))):
        each = [counts[kind, outcome] for outcome in ("read", "words", "raw")]
        _say(f"{kind:13}" + "".join(f"{n:>10,}" for n in (sum(each), *each)))
    every, read = sum(counts.values()), sum(n for (_, outcome), n in counts.items() if outcome == "read")
    _say(
        f"\n{every:,} inputs, {read / max(every, 1):.0%} of them read, {len(raw):,} raw; those are in {KEPT.name}/"
    )
    return int(bool(raw) or 2 * read < every)


if __name__ == "__main__":
    sys.exit(main())
