"""What people paste: pieces of files and logs, what each tells, and how it looks after mail, issues and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from rtlab.backends.readers import reading, recognise
from rtlab.core.trace import Recording
from rtlab.errors import ReadError

#: Texts of real GPUs, where somebody has them; else no folder.
RECORDED = Path(os.environ.get("RTLAB_RECORDED", os.devnull))
CORPUS = Path(__file__).parent / "corpus"
_NAMES = (
    "*.log", "*.graph.json", "*.profile.json", "*.timing.json", "*-info.json", "*_info.json", "detr-profile.json",
)  # fmt: skip


def fragments(home: Path) -> list[Path]:
    found = [p for name in _NAMES for p in home.rglob(name)]
    return sorted(dict.fromkeys(found), key=lambda p: (p.parent.name != "pasted", p))


#: How a text looks that was quoted, indented, saved by Windows, or taken from a terminal.
LOOKS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "quoted": lambda text: "> " + text.replace("\n", "\n> "),
    "twice quoted": lambda text: "> > " + text.replace("\n", "\n> > "),
    "indented": lambda text: "    " + text.replace("\n", "\n    "),
    "windows": lambda text: text.replace("\n", "\r\n"),
    "coloured": lambda text: "\x1b[32m" + text.replace("\n", "\x1b[0m\n\x1b[32m") + "\x1b[0m",
    "fenced": lambda text: f"```text\n{text}\n```\n",
}  # fmt: skip
Fact = tuple[object, ...]


def facts(found: Recording) -> set[Fact]:
    engine, log, profile = found.engine, found.log, found.profile
    names = {y.id: y.name for y in engine.layers}
    told: set[Fact] = {("layer", y.name) for y in engine.layers}
    told |= {("kind", y.name, y.kind) for y in engine.layers if y.kind}
    told |= {("tactic of", y.name, y.tactic) for y in engine.layers if y.tactic}
    told |= {
        ("tensor", y.name, t.name, t.dtype, t.shape) for y in engine.layers for t in (*y.inputs, *y.outputs)
    }
    told |= {("version", engine.version)} if engine.version else set()
    told |= {("device", engine.device)} if engine.device else set()
    if profile is not None:
        told |= {("time", names[i], float(v)) for i, values in profile.samples.items() for v in values}
        told |= {("inference", float(v)) for v in profile.total}
    for attempt in log.attempts if log else ():
        for step in attempt.passes:
            told |= {("pass", step.name, step.after)} if step.after is not None else set()
            told |= {("decision", d.text) for d in step.decisions}
    for tuning in log.tunings if log else ():
        told |= {("timed", t.tactic, t.milliseconds) for t in tuning.timed}
        told |= {("tuned", tuning.layer)} if tuning.timed and tuning.layer else set()
    return told


def read(path: Path) -> Recording:
    return reading.read({recognise.detect_kind(path): path})


_AFTER = re.compile(r"After (.+?): (\d+) layers\s*$")
_ROW = re.compile(r"\s(\d+\.\d\d)\s+(\d+\.\d{4})\s+(\d+\.\d{4})\s+\d+\.\d\s+(\S.*)$")
_LINE = re.compile(r"^Name: (.*?), LayerType: (\w+), Inputs: \[.*\], Outputs: \[.*\]")


def told_by_eye(text: str, begins: bool, ends: bool) -> Iterator[Fact]:
    """What whole lines of a text tell, in another way than the readers': the facts that must not be lost."""
    lines = text.split("\n")
    inner = lines[0 if begins else 1 : None if ends else -1]
    has_head = False
    for line in inner:
        has_head |= "Time(ms)" in line or "Time (ms)" in line
        if found := _AFTER.search(line):
            yield "pass", found[1], int(found[2])
        elif (found := _LINE.match(line)) and "[profile" not in text:
            yield "layer", found[1]
        elif has_head and (found := _ROW.search(line)) and found[4] != "Total":
            yield "time", found[4].strip(), float(found[3])


#: A tactic and its time, in the one order or in the other, as lines of a log say them.
_TIMED = (
    r"Tactic:? (?P<tactic>\S+) [Tt]ime:? (?P<time>\S+)$",
    r"got cached result: .*, tactic (?P<tactic>\S+), (?P<time>\S+) ms",
    r"\(foreignNode\)\s+\d+, (?P<time>[\d.]+), .*, (?P<tactic>0x[0-9a-f]+),",
)
_TUNED = (
    r"Timing Runner: (.*) \([^()]*\)",
    r"-+ Timing (.*)\(\d+\)",
    r"^(.*) \([^()]*\) profiling comp",
    r"^(.*) \[[^\[\]]*\] got cached",
)


def truths(path: Path, text: str) -> set[Fact]:
    true: set[Fact] = set()
    for select in (None, 0, 1):
        with contextlib.suppress(ReadError):
            true |= facts(reading.read({recognise.detect_kind(path): path}, select=select))
    for line in text.split("\n") if path.suffix == ".log" else ():
        message = re.sub(r"^(?:\[[^\]]*\] ?)*(?:VERBOSE: )?", "", line)
        true.add(("decision", message))
        timed = (found for rule in _TIMED if (found := re.search(rule, line)))
        true |= {("timed", found["tactic"].rstrip(","), float(found["time"])) for found in timed}
        true |= {("tuned", found[1]) for rule in _TUNED if (found := re.search(rule, message))}
        if found := re.search(r"libnvinfer_builder_resource\w*\.so\.([\d.]+\d)", line):
            # It may be newer than what trtexec calls itself.
            true.add(("version", found[1]))
        if found := _AFTER.search(line):
            true |= {("pass", found[1], int(found[2])), ("pass", found[1], None)}
    return true


def spans(text: str) -> Iterator[tuple[int, int, dict[str, object]]]:
    decoder, at = json.JSONDecoder(strict=False), text.find("{", text.find("["))
    with contextlib.suppress(json.JSONDecodeError):
        while at >= 0:
            entry, end = decoder.raw_decode(text, at)
            yield at, end, entry
            at = text.find("{", end)


def cut(rng: random.Random, text: str) -> tuple[int, int]:
    a, b = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return rng.choice(((0, b), (a, len(text)), (a, b)))


def checked(
    folder: Path,
    path: Path,
    text: str,
    whole: set[Fact],
    rng: random.Random,
    entries: list[tuple[int, int, dict[str, object]]],
) -> str:
    """Read a piece of a text in one of its looks; says what came of it, and fails where that is not true."""
    a, b = cut(rng, text)
    look = rng.choice(list(LOOKS))
    piece = folder / f"piece-of-{path.name}"
    piece.write_text(LOOKS[look](text[a:b]), encoding="utf-8", newline="")
    where = f"{path.name}[{a}:{b}], {look}"
    begins, ends = a == 0 or text[a - 1] == "\n", b == len(text) or text[b] == "\n"
    # The last line within fences has no end of its own.
    must = set(told_by_eye(text[a:b], begins, ends and look != "fenced"))
    if path.suffix == ".json":
        inside = [entry for start, end, entry in entries if a <= start and end <= b]
        must = {("layer", str(e.get("Name", e.get("name")))) for e in inside if {"Name", "name"} & e.keys()}
        must |= {("inference", float(e["computeMs"])) for e in inside if "computeMs" in e}
    try:
        found = read(piece)
    except ReadError as error:
        words = str(error)
        assert re.match(r"Cannot [^:]+: .+\. [A-Z\"].+", words, re.DOTALL), f"{where}: {words}"
        assert not must, f"{where}: refused, and tells {sorted(map(str, must))[:3]}: {words}"
        return "refused"
    told = facts(found)
    wrong = {f for f in told if f not in whole}
    if any("averages of" in n for n in found.engine.notes):
        # The summary at the end is cut off: the middle of what was told meanwhile, by whole lines of the piece.
        means = [float(m) for m in re.findall(r"\n\[.*Average on .* GPU latency: (\S+) ms", "\n" + text[a:b])]
        # The last may lack its end.
        middles = {("inference", statistics.median(m)) for m in (means, means[:-1]) if m}
        assert {f for f in wrong if f[0] == "inference"} <= middles, where
        wrong = {f for f in wrong if f[0] != "inference"}
    if text[a:b].count("\n") < 2:
        # One line without the marks of a logger may lack its start: the name of the rule, and never those of layers.
        ends_of = [
            f for f in wrong if f[0] == "decision" and any(str(w[-1]).endswith(str(f[1])) for w in whole)
        ]
        wrong -= {*ends_of}
    if any("its last part may be cut off" in n for n in found.engine.notes):
        # One line without its end: a name may lack its end too, which is said.
        wrong = {
            f for f in wrong if not any(f[0] == w[0] and str(w[-1]).startswith(str(f[-1])) for w in whole)
        }
    assert not wrong, f"{where}: not in the whole: {sorted(map(str, wrong))[:4]}"
    lost = {f for f in must if f not in told and f in whole}
    assert not lost, f"{where}: lost {sorted(map(str, lost))[:4]} of {len(must)}"
    return "read"


def outcomes(path: Path, folder: Path, cuts: int, longest: int) -> Counter[str]:
    text = path.read_text(encoding="utf-8")
    whole = truths(path, text)
    text = text[:longest]
    entries = [*spans(text)] if path.suffix == ".json" else []
    rng = random.Random(path.name)  # noqa: S311 - the same cuts in every run
    return Counter(checked(folder, path, text, whole, rng, entries) for _ in range(cuts))
