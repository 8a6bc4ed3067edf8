"""The command line: ``rtlab`` with ``lab``, ``inspect``, ``read``, ``compare``, ``prepare``, ``report`` and others."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rtlab.cli import budget, checking, compilers, opening, printing, reporting, terminal
from rtlab.cli.arguments import FILES, parser
from rtlab.cli.notebooks import lab
from rtlab.errors import ReadError, RtlabError, VariantError, boundary, see_room

if TYPE_CHECKING:
    from rtlab.study import Study

T = TypeVar("T")
#: Exit codes: the command line was wrong (argparse's own), or the work failed.
_USAGE, _FAILED = 2, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    known = parser(
        {
            "lab": lab,
            "inspect": _inspect,
            "read": _read,
            "compare": _compare,
            "why": _why,
            "bisect": _bisect,
            "advise": _advise,
            "sensitivity": _sensitivity,
            "repair": _repair,
            "prepare": _prepare,
            "report": reporting.run,
            "check": checking.run,
            "backends": _backends,
            "compilers": compilers.run,
            "doctor": _doctor,
        }
    )
    given = known.parse_args(arguments)
    given.program = arguments is None
    if given.command is None:
        known.print_help()
        return _USAGE
    for stream in (sys.stdout, sys.stderr):
        # Names from files hold what a terminal's encoding may not; a table with question marks is still a table.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with terminal.clean_output():
        return _work(given)


def _work(given: argparse.Namespace) -> int:
    try:
        with boundary(f'do "rtlab {given.command}"'), budget.limited(given):
            if hasattr(given, "model"):
                see_room(f'do "rtlab {given.command}"')
            return int(given.work(given))
    except RtlabError as error:
        if getattr(given, "json", False):
            told = {"kind": type(error).__name__, "message": opening.spoken(str(error))}
            # What could not be written may be this output.
            with contextlib.suppress(OSError):
                print(json.dumps({"error": told}), flush=True)
        print(f"rtlab: {opening.spoken(str(error))}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("rtlab: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output, such as head, has seen enough; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _backends(given: argparse.Namespace) -> int:
    from rtlab.study import available

    table = available()
    if given.json:
        print(json.dumps({name: dataclasses.asdict(a) for name, a in table.items()}))
        return 0
    width = max(len(n) for n in table)
    for name, a in table.items():
        print(f"{name:<{width}}  {'yes' if a.ok else 'no '}  {a.version or a.reason}")
    return 0


def _inspect(given: argparse.Namespace) -> int:
    study = opening.planned(given, [given.precision])
    if (given.labels or given.metric) and given.precision != "fp32":
        # What a score is compared with.
        study.add("fp32", target=given.target, backend=given.backend, compiler=given.compiler)
    opening.run(study, given)
    saved = None if given.save is None else study.save_build(given.precision, given.save)
    if not _told(given, study, given.precision):
        printing.variant(study[given.precision], study)
        if saved is not None:
            print(f"wrote {saved}; it has no weights, and opens anywhere with rtlab read {saved.name}")
    return 0


def _read(given: argparse.Namespace) -> int:
    from rtlab.study import read

    named = {kind: path for kind in FILES if (path := getattr(given, kind)) is not None}
    if "-" in given.files and sys.stdin is None:
        raise ReadError("Cannot read what is piped in: standard input is closed. Pipe a file in, or name it.")
    piped = sys.stdin.buffer.read() if "-" in given.files else None
    files = [f for f in given.files if f != "-"]
    study = read(
        *files, text=piped, model=given.model, optimization_profile=given.optimization_profile, **named
    )
    if given.output_html:
        study.to_html(given.output_html)
    if not _told(given, study, "engine"):
        printing.variant(study["engine"], study)
        printing.judgement(study["engine"])
    return 0


def _told(given: argparse.Namespace, study: Study, name: str) -> bool:
    """Print one question of a variant, or all of it as JSON; False where neither was wanted."""
    from rtlab.questions import score
    from rtlab.questions.titles import titles
    from rtlab.view.document import document

    if given.ask:
        found = study.ask(given.ask, variant=name)
        print(json.dumps(found.plain(), allow_nan=False) if given.json else found)
    elif given.json:
        facts, known = study[name].facts, study.snapshot()
        told = document(facts, study.model, titles(known), baseline=score.reference(known, facts))
        print(json.dumps(told, allow_nan=False))
    return bool(given.ask or given.json)


def _compare(given: argparse.Namespace) -> int:
    from rtlab.questions.titles import titles
    from rtlab.view.document import compared

    if given.second == "compilers" and not Path(given.second).exists():
        return _releases(given)
    study, names = opening.both(given)
    found = study.difference(*names)
    # What was compiled for a GPU is compared there first: the CPU in its place runs other kernels.
    target = study.difference(*names, gpu="target") if all(study[n].estimate for n in names) else None
    if given.json:
        called = titles(study.snapshot())
        told = compared(found, study.model, called)
        told["estimate"] = None if target is None else compared(target, study.model, called)
        print(json.dumps(told, allow_nan=False))
        return 0
    if target is not None:
        printing.difference(target, study, "estimated for the GPU of each")
        print()
    printing.difference(found, study)
    return 0


def _releases(given: argparse.Namespace) -> int:
    from rtlab.documents.crossing import plain

    study, name = opening.first(given)
    found = study.releases(name)
    print(json.dumps(plain(found), allow_nan=False, ensure_ascii=False) if given.json else found.told())
    return 0


def _tell(given: argparse.Namespace, found: T, words: Callable[[T], None]) -> int:
    """Print an answer as JSON, or in words."""
    from rtlab.documents.crossing import plain

    if given.json:
        print(json.dumps(plain(found), allow_nan=False, ensure_ascii=False))
    else:
        words(found)
    return 0


def _why(given: argparse.Namespace) -> int:
    study = opening.built(given, [given.precision])
    found = study.why(
        given.node,
        given.other,
        variant=given.precision,
        builds=given.builds,
        seconds=given.seconds,
        again=given.again,
    )
    if given.output is not None:
        study.record(found, given.output, variant=given.precision)
    return _tell(given, found, printing.fusion)


def _advise(given: argparse.Namespace) -> int:
    study = opening.built(given, [given.precision])
    found = study.advise(given.precision, seconds=given.seconds)
    return _tell(given, found, printing.advice)


def _sensitivity(given: argparse.Namespace) -> int:
    study = opening.planned(given, [given.precision])
    if given.data is not None:
        # A sample's own task has other samples.
        study.task = None
    found = study.sensitivity(
        given.precision,
        asks=given.asks,
        by=given.by,
        labels=None if given.labels is None else opening.labels(given.labels),
        verify=None if given.measure else given.verify,
        budget_s=given.seconds,
    )
    found = study.diagnose(given.precision).explained(found)
    return _tell(given, found, lambda one: print(one.told()))


def _repair(given: argparse.Namespace) -> int:
    from rtlab.core.task import Task
    from rtlab.documents.crossing import plain

    study = opening.built(given, [given.precision])
    if given.data is not None:
        # A sample's own task has other samples.
        # Without labels the answers of fp32 count.
        study.task = Task(study.data, metric=given.metric)
        if given.labels is not None:
            study.task = Task(study.data, opening.labels(given.labels), given.metric)
    found = study.repair(given.precision, given.max_drop, budget_s=given.seconds)
    name = found.repaired if found.changes else given.precision
    written = None if given.output is None else study.export(name, given.output)
    if given.json:
        told = {**plain(found), "model": None if written is None else str(written.model)}
        print(json.dumps(told, allow_nan=False, ensure_ascii=False))
        return 0
    print(found.text())
    if written is not None:
        print(f"wrote {written.model}")
    return 0


def _bisect(given: argparse.Namespace) -> int:
    from rtlab.documents.crossing import plain

    if len(given.compiler) != 2:
        raise VariantError(
            f"Cannot look for what changed: {len(given.compiler)} compiler was named. Give two, as --compiler 1.6 1.7."
        )
    study = opening.opened(given)
    for release in given.compiler:
        study.add(
            release,
            precision={"*": given.precision, **opening.pins(given.pin)},
            calibrator=given.calibrator,
            target=given.target,
            weights=given.weights,
            sparsity=given.sparsity,
            scales=given.scales,
            calibrators=opening.calibrators(given.calibrate),
            treatments=given.treat,
            compiler=release,
        )
    found = study.bisect(*given.compiler, folder=given.output, builds=given.builds, seconds=given.seconds)
    if given.json:
        print(json.dumps(plain(found), allow_nan=False, ensure_ascii=False))
        return 0
    print(found.told())
    if given.output:
        print(f"wrote {Path(given.output) / 'report.md'}")
    return 0


def _doctor(given: argparse.Namespace) -> int:
    from rtlab.core.progress import Terminal
    from rtlab.session.selftest import doctor

    progress = Terminal()
    try:
        found = doctor(progress, backend=given.backend)
    finally:
        progress.close()
    print(json.dumps(found.as_dict(), ensure_ascii=False) if given.json else found.text)
    return _FAILED if found.failed else 0


def _prepare(given: argparse.Namespace) -> int:
    from rtlab.quantize.export import VERSION
    from rtlab.questions.titles import titles

    study, name = opening.opened(given), given.precision
    prepared = study.prepare(
        name,
        precision={"*": given.precision, **opening.pins(given.pin)},
        calibrator=given.calibrator,
        target=given.target or "cpu",
        weights=given.weights,
        sparsity=given.sparsity,
        scales=given.scales,
        calibrators=opening.calibrators(given.calibrate),
        treatments=given.treat,
    )
    done = study.export(name, given.output, cache=given.cache, version=given.cache_version or VERSION)
    notes = prepared.notes
    if study.variants[name].calibrator is not None:
        seen = f"calibrated on {len(study.data)} samples of {study.data.source}"
        real = given.data is not None or study.task is not None
        notes = (seen if real else f"{seen}: give --data for the scales of real inputs", *notes)
    if given.json:
        files = {
            k: _text(v) for k, v in (("model", done.model), ("scales", done.scales), ("cache", done.cache))
        }
        print(json.dumps({"files": files, "commands": done.commands, "notes": notes}, ensure_ascii=False))
        return 0
    called = titles(study.snapshot())[name]
    print(f"{study.model.name} · {called}: {len(study.model.top)} nodes → {len(prepared.model.top)}")
    for path in filter(None, (done.model, done.scales, done.cache)):
        print(f"wrote {path}")
    for note in notes:
        print(f"note: {note}")
    print("\nbuild it elsewhere with one of")
    for line in done.commands:
        print(f"  {line}")
    return 0


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
