"""The command line: ``rtlab`` with ``lab``, ``inspect``, ``read``, ``compare``, ``prepare``, ``report`` and others."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rtlab.cli import budget, checking, compilers, opening, printing, terminal
from rtlab.cli.notebooks import lab
from rtlab.cli.parser import create_parser
from rtlab.errors import ReadError, RtlabError, boundary, check_memory_limit

if TYPE_CHECKING:
    from rtlab.api import Study

T = TypeVar("T")
#: Exit codes: the command line was wrong (argparse's own), or the work failed.
_USAGE, _FAILED = 2, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    argument_parser = create_parser(
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
            "report": _report,
            "check": checking.run,
            "backends": _backends,
            "compilers": compilers.run,
            "doctor": _doctor,
        }
    )
    args = argument_parser.parse_args(arguments)
    args.program = arguments is None
    if args.command is None:
        argument_parser.print_help()
        return _USAGE
    for stream in (sys.stdout, sys.stderr):
        # Names from files hold what a terminal's encoding may not; a table with question marks is still a table.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with terminal.clean_output():
        return _run_command(args)


def _run_command(args: argparse.Namespace) -> int:
    try:
        with boundary(f'do "rtlab {args.command}"'), budget.enforce_budget(args):
            if hasattr(args, "model"):
                check_memory_limit(f'do "rtlab {args.command}"')
            return int(args.work(args))
    except RtlabError as error:
        if getattr(args, "json", False):
            error_info = {"kind": type(error).__name__, "message": opening.rewrite_for_cli(str(error))}
            # What could not be written may be this output.
            with contextlib.suppress(OSError):
                print(json.dumps({"error": error_info}), flush=True)
        print(f"rtlab: {opening.rewrite_for_cli(str(error))}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("rtlab: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output, such as head, has ended; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _backends(args: argparse.Namespace) -> int:
    from rtlab.api import available

    table = available()
    if args.json:
        printing.print_json(table)
        return 0
    width = max(len(n) for n in table)
    for name, a in table.items():
        print(f"{name:<{width}}  {'yes' if a.ok else 'no '}  {a.version or a.reason}")
    return 0


def _inspect(args: argparse.Namespace) -> int:
    study = opening.plan_study(args, [args.precision])
    if (args.labels or args.metric) and args.precision != "fp32":
        # What a score is compared with.
        study.add("fp32", target=args.target, backend=args.backend, compiler=args.compiler)
    opening.run(study, args)
    saved_path = None if args.save is None else study.save_build(args.precision, args.save)
    if not _print_answer(args, study, args.precision):
        printing.print_variant(study[args.precision], study)
        if saved_path is not None:
            print(
                f"wrote {saved_path}; it has no weights, and opens anywhere with rtlab read {saved_path.name}"
            )
    return 0


def _read(args: argparse.Namespace) -> int:
    from rtlab.api import read
    from rtlab.web.report.html import write_html

    if "-" in args.files and sys.stdin is None:
        raise ReadError("Cannot read what is piped in: standard input is closed. Pipe a file in, or name it.")
    piped_bytes = sys.stdin.buffer.read() if "-" in args.files else None
    files = [f for f in args.files if f != "-"]
    study = read(*files, text=piped_bytes, model=args.model, optimization_profile=args.optimization_profile)
    if args.output_html:
        write_html(study.state, args.output_html)
    if not _print_answer(args, study, "engine"):
        printing.print_variant(study["engine"], study)
        printing.print_assessment(study["engine"])
    return 0


def _print_answer(args: argparse.Namespace, study: Study, name: str) -> bool:
    """Print one question of a variant, or all of it as JSON; False where neither was wanted."""
    from rtlab.analyses import score
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.web.page.document import build_variant_document

    if args.ask:
        answer = study.ask(args.ask, variant=name)
        if args.json:
            printing.print_json(answer.plain())
        else:
            print(answer)
    elif args.json:
        facts, snapshot = study[name].facts, study.state
        variant_document = build_variant_document(
            facts, study.model, get_variant_titles(snapshot), baseline=score.find_reference(snapshot, facts)
        )
        printing.print_json(variant_document)
    return bool(args.ask or args.json)


def _compare(args: argparse.Namespace) -> int:
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.web.page.document import build_difference_document

    if args.second == "compilers" and not Path(args.second).exists():
        releases = opening.plan_first_engine(args).fusion.releases(args.first)
        return _print_json_or_text(args, releases, lambda one: print(one.to_text()))
    study, names = opening.open_both_engines(args)
    engine_difference = study.difference(*names)
    # What was compiled for a GPU is compared there first: the CPU in its place runs other kernels.
    target = study.difference(*names, gpu="target") if all(study[n].estimate for n in names) else None
    if args.json:
        titles_by_name = get_variant_titles(study.state)
        comparison = build_difference_document(engine_difference, study.model, titles_by_name)
        comparison["estimate"] = (
            None if target is None else build_difference_document(target, study.model, titles_by_name)
        )
        printing.print_json(comparison)
        return 0
    if target is not None:
        printing.print_difference(target, study, "estimated for the GPU of each")
        print()
    printing.print_difference(engine_difference, study)
    return 0


def _print_json_or_text(args: argparse.Namespace, answer: T, words: Callable[[T], None]) -> int:
    """Print an answer as JSON, or in words."""
    if args.json:
        printing.print_json(answer)
    else:
        words(answer)
    return 0


def _why(args: argparse.Namespace) -> int:
    study = opening.build_study(args, [args.precision])
    limits = {"builds": args.builds, "seconds": args.seconds}
    answer = study.fusion.why(args.node, args.other, variant=args.precision, again=args.again, **limits)
    if args.output is not None:
        study.fusion.record(answer, args.output, variant=args.precision)
    return _print_json_or_text(args, answer, printing.print_fusion)


def _advise(args: argparse.Namespace) -> int:
    study = opening.build_study(args, [args.precision])
    advice = study.fusion.advise(args.precision, seconds=args.seconds)
    return _print_json_or_text(args, advice, printing.print_advice)


def _sensitivity(args: argparse.Namespace) -> int:
    study = opening.plan_study(args, [args.precision])
    sensitivity = study.accuracy.sensitivity(
        args.precision,
        asks=args.asks,
        labels=None if args.labels is None else opening.labels(args.labels),
        verify=args.verify,
        budget_s=args.seconds,
    )
    sensitivity = study.accuracy.diagnose(args.precision).add_causes(sensitivity)
    return _print_json_or_text(args, sensitivity, lambda one: print(one.to_text()))


def _repair(args: argparse.Namespace) -> int:
    from rtlab.documents.serialization import to_builtins

    study = opening.build_study(args, [args.precision])
    repair = study.accuracy.repair(args.precision, args.max_drop, budget_s=args.seconds)
    name = repair.repaired if repair.changes else args.precision
    exported_files = None if args.output is None else study.export(name, args.output)
    if args.json:
        path = None if exported_files is None else str(exported_files.model)
        printing.print_json({**to_builtins(repair), "model": path})
        return 0
    print(repair.text())
    if exported_files is not None:
        print(f"wrote {exported_files.model}")
    return 0


def _bisect(args: argparse.Namespace) -> int:
    study = opening.open_study(args)
    for release in args.compiler:
        study.add(release, **opening.choice(args, args.precision), compiler=release)
    bisection = study.fusion.bisect(*args.compiler, builds=args.builds, seconds=args.seconds)
    return _print_json_or_text(args, bisection, lambda one: print(one.to_text()))


def _doctor(args: argparse.Namespace) -> int:
    from rtlab import backends
    from rtlab.backends.reference import get_evaluator
    from rtlab.core.budget import WorkContext
    from rtlab.core.progress import Terminal
    from rtlab.experiments.doctor import SelfTest
    from rtlab.experiments.experiment import run_experiment

    table = backends.registry() if args.backend is None else {args.backend: backends.get(args.backend)}
    with contextlib.closing(Terminal()) as progress:
        report = run_experiment(SelfTest(table), WorkContext(get_evaluator, progress))
    if args.json:
        printing.print_json(report.as_dict())
    else:
        print(report.text)
    return _FAILED if report.failed else 0


def _prepare(args: argparse.Namespace) -> int:
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.quantize.export import VERSION

    study, name = opening.open_study(args), args.precision
    choice = opening.choice(args, name)
    prepared_variant = study.calibration.prepare(name, **{**choice, "target": args.target or "cpu"})
    exported_files = study.export(name, args.output, cache=args.cache, version=args.cache_version or VERSION)
    notes = prepared_variant.notes
    if study.state.variants[name].calibrator is not None:
        is_real = args.data is not None or study.task is not None
        hint = "" if is_real else ": give --data for the scales of real inputs"
        notes = (f"calibrated on {len(study.data)} samples of {study.data.source}{hint}", *notes)
    if args.json:
        files = {kind: getattr(exported_files, kind) for kind in ("model", "scales", "cache")}
        printing.print_json({"files": files, "commands": exported_files.commands, "notes": notes})
        return 0
    title = get_variant_titles(study.state)[name]
    print(f"{study.model.name} · {title}: {len(study.model.top)} nodes → {len(prepared_variant.model.top)}")
    for path in filter(None, (exported_files.model, exported_files.scales, exported_files.cache)):
        print(f"wrote {path}")
    for note in notes:
        print(f"note: {note}")
    print("\nbuild it elsewhere with one of")
    for line in exported_files.commands:
        print(f"  {line}")
    return 0


def _report(args: argparse.Namespace) -> int:
    """Build the variants and write them; prints the paths, a line each."""
    from rtlab.web.report.html import write_html, write_json, write_markdown

    study = opening.build_study(args, args.precision or ["fp32"])
    print(write_html(study.state, args.output))
    if args.markdown is not None:
        print(write_markdown(study.state, args.markdown))
    if args.whole is not None:
        print(write_json(study.state, args.whole))
    return 0
