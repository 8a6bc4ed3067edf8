"""Opens models that others exported, and prints what became of them: ``tests/run wild [NAME ...] [options]``.

Each model is exported, compiled by the bare builder, and opened by rtlab in three precisions, one after the other, each
in a process of its own that is ended at its limit. Every result is kept in a folder, so that a run that was stopped
goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from catalogue import Case, cases

HERE = Path(__file__).parent
PRECISIONS = ("fp32", "fp16", "int8")
#: Share of nodes of which nobody knows what became of them, at most.
UNKNOWN = 0.005
#: Share of files that work, at least.
WORK = 0.95


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a child process said, with its seconds and the most bytes that it and its children held at once."""

    said: Mapping[str, Any]
    seconds: float
    peak: int


def child(command: list[str], limit: float) -> Ran:
    """Run a command that prints JSON in its last line; at its limit it is ended with all its children."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, _held(watched))
            if time.perf_counter() - started > limit:
                _end(watched)
                process.wait()
                return Ran({"refused": f"Not done after {limit:.0f} s.", "kind": "limit"}, limit, peak)
            time.sleep(0.1)
        seconds = time.perf_counter() - started
        out.seek(0)
        err.seek(0)
        lines = out.read().decode(errors="replace").strip().splitlines()
        words = err.read().decode(errors="replace").strip()
    if process.returncode == 0:
        try:
            return Ran(json.loads(lines[-1]) if lines else {}, seconds, peak)
        except ValueError:
            return Ran({}, seconds, peak)
    last = words.splitlines()[-1] if words else f"exit code {process.returncode}"
    return Ran({"refused": last, "kind": "crash", "details": words[-3000:]}, seconds, peak)


def _held(process: psutil.Process) -> int:
    return sum(map(_resident, _family(process)))


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _end(process: psutil.Process) -> None:
    for one in reversed(_family(process)):
        with contextlib.suppress(psutil.Error):
            one.kill()


def visit(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="wild-") as room:
        file = Path(options.models or room) / f"{plain_name(case.name)}.onnx"
        found: dict[str, Any] = {"case": case.name}
        if not file.exists():
            made = child([options.exporter, str(HERE / "export.py"), case.name, str(file)], options.limit)
            if "refused" in made.said:
                file.unlink(missing_ok=True)
                return {**found, "export": dict(made.said)}
        found["bytes"] = file.stat().st_size
        found["opset"], found["producer"] = written_by(file)
        # How much more there was to do than processors: seconds of a busy machine say little by themselves.
        found["load"] = psutil.getloadavg()[0] / (psutil.cpu_count() or 1)
        shapes = json.dumps({n: case.inputs[n] for n in case.free} if case.free else {})
        bare = child([sys.executable, str(HERE / "bare.py"), str(file), shapes], options.limit)
        found["bare"] = {**bare.said, "seconds": bare.seconds, "peak": bare.peak}
        for precision in PRECISIONS:
            look = [sys.executable, str(HERE / "look.py"), str(file), precision, shapes, str(options.samples)]
            ran = child(look, options.limit)
            found[precision] = {"wall": ran.seconds, **ran.said, "peak": ran.peak}
    return found


def written_by(file: Path) -> tuple[int, str]:
    import onnx

    model = onnx.load(file, load_external_data=False)
    opset = max((o.version for o in model.opset_import if o.domain in {"", "ai.onnx"}), default=0)
    return opset, f"{model.producer_name} {model.producer_version}".strip()


def plain_name(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name)


_HEAD = """# Models of other people

Architectures of torchvision, timm, transformers, PyTorch and the onnx package, with random weights, exported by both of
PyTorch's exporters and opened by rtlab with its defaults (TensorRT-RTX, sm86). `tests/run wild` writes this table:
`tests/run wild --list` names the cases, `tests/run wild swin BertModel` runs some of them, and a run that was stopped
goes on where it was. int8 is calibrated on {samples} random samples here; accuracy is not what is asked.

*Unknown* is the share of ONNX nodes of which neither the compiler nor the graph says what became of them, the largest
of the three precisions; *as exported* marks a precision that changes nothing in this file, which rtlab notes. Seconds
go from `rtlab.load` to the engine with all its layers linked to nodes, calibration included, in a process that has
imported rtlab; the bare builder's are those of a fresh process that parses and builds with TensorRT-RTX alone, its
logger at WARNING. GiB are the most that all processes held at once.
"""


def table(
    results: Mapping[str, Mapping[str, Any]], known: Mapping[str, Case], samples: int, note: str = ""
) -> str:
    rows = [(known[name], results[name]) for name in known if name in results]
    opened = [(c, r) for c, r in rows if "export" not in r]
    head = (
        "| model | exporter, opset | traits | nodes | layers: fp32 · fp16 · int8 | unknown | "
        "seconds; bare builder | GiB; bare builder |"
    )
    many = len({c.architecture for c, _ in opened})
    run = f"{len(rows)} of {len(known)} cases were run, {many} architectures."
    lines = [
        _HEAD.format(samples=samples), run, *_sums(opened), *[note] * bool(note), "", head, "|---" * 8 + "|",
    ]  # fmt: skip
    lines += [_row(case, result) for case, result in opened]
    if refusals := list(_refusals(opened)):
        lines += ["", "What was refused, word for word:", "", *refusals]
    if lost := [(c, r) for c, r in rows if "export" in r]:
        lines += ["", "Not exported, so nothing for rtlab to open:", ""]
        lines += [f"- {c.name}: {shorten(r['export']['refused'])}" for c, r in lost]
    return "\n".join(lines) + "\n"


def _sums(rows: list[tuple[Case, Mapping[str, Any]]]) -> Iterator[str]:
    works = [(c, r) for c, r in rows if working(r)]
    parts = [r[p] for _, r in rows for p in PRECISIONS if "nodes" in r[p]]
    nodes, unknown = sum(p["nodes"] for p in parts), sum(p["reasons"].get("unknown", 0) for p in parts)
    above = [c.name for c, r in works if _unknown(r) > UNKNOWN]
    yield (
        f"**{len(works)} of {len(rows)} files work in {', '.join(PRECISIONS)}.** Of {nodes:,} nodes {unknown} "
        f"({unknown / max(nodes, 1):.2%}) are unknown; "
        + (f"above {UNKNOWN:.1%} in {', '.join(above)}." if above else f"none has more than {UNKNOWN:.1%}.")
    )
    built = [r for _, r in works if not r["bare"]["refused"]]
    if not built:
        return
    ratios, memory = (
        np.array([r["fp32"][mine] / r["bare"][theirs] for r in built])
        for mine, theirs in (("seconds", "seconds"), ("peak", "peak"))
    )
    yield (
        f"fp32 takes {np.median(ratios):.2f} times the bare builder's seconds in the median ({ratios.min():.2f} to "
        f"{ratios.max():.2f}) and {np.median(memory):.2f} times its memory ({memory.min():.2f} to {memory.max():.2f})."
    )
    busy = [r["load"] for _, r in rows if "load" in r]
    wrote = sorted({r["producer"] for _, r in rows if r.get("producer")})
    yield (
        f"{psutil.cpu_count()} processors"
        + (f", {np.median(busy):.1f} processes for each in the median" if busy else "")
        + (f"; files written by {', '.join(wrote)}." if wrote else ".")
    )


def _unknown(result: Mapping[str, Any]) -> float:
    parts = [result[p] for p in PRECISIONS if "nodes" in result[p]]
    return max((p["reasons"].get("unknown", 0) / p["nodes"] for p in parts), default=0.0)


def working(result: Mapping[str, Any]) -> bool:
    """Whether a model was built in every precision and its layers were linked to its nodes."""
    return all("nodes" in result[p] for p in PRECISIONS)


def _row(case: Case, result: Mapping[str, Any]) -> str:
    parts = [result[p] for p in PRECISIONS]
    nodes = next((str(p["nodes"]) for p in parts if "nodes" in p), "–")
    layers = " · ".join(map(_layers, parts))
    unknown = f"{_unknown(result):.2%}" if _unknown(result) else "0"
    bare = result["bare"]
    seconds = " · ".join(f"{p['seconds']:.1f}" if "seconds" in p else "–" for p in parts)
    memory = " · ".join(f"{p['peak'] / 2**30:.1f}" if "nodes" in p else "–" for p in parts)
    there = "refused" if bare.get("refused") else f"{bare['seconds']:.1f}"
    held = "–" if bare.get("refused") else f"{bare['peak'] / 2**30:.1f}"
    return (
        f"| {case.name} | {case.exporter}, {result['opset']} | {case.traits} | {nodes} | {layers} | {unknown} | "
        f"{seconds}; {there} | {memory}; {held} |"
    )


def _layers(part: Mapping[str, Any]) -> str:
    if "layers" not in part:
        return "refused"
    as_it_is = any("the model is unchanged" in note for note in part.get("notes", ()))
    return f"{part['layers']}{' as exported' * as_it_is}"


def _refusals(rows: list[tuple[Case, Mapping[str, Any]]]) -> Iterator[str]:
    for case, result in rows:
        words: dict[str, list[str]] = {}
        for precision in PRECISIONS:
            if "refused" in result[precision]:
                said = f"{limit_of(result[precision])}: {shorten(result[precision]['refused'])}"
                words.setdefault(re.sub(rf'"{precision}(·\w+)?"', '"…"', said), []).append(precision)
        for said, precisions in words.items():
            yield f"- {case.name}, {' and '.join(precisions)}. {said}"


def limit_of(refusal: Mapping[str, Any]) -> str:
    """Whose limit a refusal is: the file's, the compiler's, or rtlab's."""
    said, kind = refusal["refused"], refusal.get("kind", "")
    if kind == "ModelError":
        return "The file's limit"
    compiler = kind == "BuildError" and 'Backend "tensorrt-rtx" cannot build' in said
    return "The compiler's limit" if compiler else "rtlab's limit"


def shorten(words: str) -> str:
    line = " ".join(words.split()).replace("|", "\\|")
    return line if len(line) <= 600 else f"{line[:600]}…"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/run wild", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases by name or a part of it; all by default")
    parser.add_argument("--cache", type=Path, default=Path(".wild"), help="where results are kept")
    parser.add_argument(
        "--models", type=Path, help="where exported files are kept; they are removed by default"
    )
    parser.add_argument("--samples", type=int, default=2, help="random samples to calibrate int8 on")
    parser.add_argument("--limit", type=float, default=300, help="seconds for each step of each model")
    parser.add_argument(
        "--exporter", default=sys.executable, help="a Python that has torch, torchvision, ..."
    )
    parser.add_argument("--again", action="store_true", help="forget the results of these cases")
    parser.add_argument("--table", type=Path, help="write the table to this file too")
    parser.add_argument("--note", default="", help="words for the table about how it was run")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--only-table", action="store_true", help="open nothing, print what is known")
    return parser.parse_args()


def _chosen(name: str, asked: Sequence[str], known: Mapping[str, Case]) -> bool:
    return any(name == part or (part not in known and part in name) for part in asked)


def main() -> int:
    options, known = arguments(), cases()
    wanted = [n for n in known if not options.names or _chosen(n, options.names, known)]
    if options.list:
        sys.stdout.write("\n".join(wanted) + "\n")
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.models:
        options.models.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    for i, name in enumerate(wanted):
        kept = options.cache / f"{plain_name(name)}.json"
        if options.only_table or (kept.exists() and not options.again):
            continue
        started = time.perf_counter()
        found = visit(known[name], options)
        fresh = kept.with_suffix(".new")
        fresh.write_text(json.dumps(found, indent=1), encoding="utf-8")
        shutil.move(fresh, kept)
        state = "not exported" if "export" in found else "works" if working(found) else "refused"
        sys.stderr.write(f"[{i + 1}/{len(wanted)}] {name}: {state}, {time.perf_counter() - started:.0f} s\n")
        sys.stderr.flush()
    kept = {n: options.cache / f"{plain_name(n)}.json" for n in known}
    results = {n: json.loads(p.read_text(encoding="utf-8")) for n, p in kept.items() if p.exists()}
    text = table(results, known, options.samples, options.note)
    sys.stdout.write(text)
    if options.table:
        options.table.write_text(text, encoding="utf-8")
    opened = [r for n, r in results.items() if n in wanted and "export" not in r]
    return 0 if opened and sum(map(working, opened)) >= WORK * len(opened) else 1


if __name__ == "__main__":
    sys.exit(main())
