"""``rtlab check``: exit codes, files and words for pipelines, around ``Study.accuracy.check``."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from rtlab.cli import budget, opening, printing
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.analyses.check import CheckResult
    from rtlab.api import Study

#: Exit codes beside 0 and argparse's 2: a limit could not be checked, which work that failed is too; and it is broken.
_UNCHECKED, _BROKEN = 1, 3
#: The keys of ``rtlab.analyses.check.record.NOT_WORSE``, which takes half a second to import.
NOT_WORSE = ("fusion", "precision", "findings")
#: Seconds that measuring may take: more than at a screen.
_BUDGET_S = 60.0

PARSER: dict[str, Any] = {
    "help": "fail a pipeline where a variant loses too much accuracy, time, fusions or precision",
    "description": "Build a variant, score it beside fp32, time it, and compare it with an earlier check. Times are "
    "measured here or in files, or estimated for a --target; only those of one kind are compared.",
    "epilog": "exit codes: 0 all limits hold; 3 a limit is broken; 1 a limit could not be checked, or the work failed; "
    "2 the command line is wrong",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The limits, the earlier check, and what is written."""
    add = parser.add_argument
    add(
        "--sure", action="store_true", help="the whole 95 %% interval of the drop has to be within --max-drop"
    )
    drop, regression = (
        "how far the score may be worse than fp32, in its unit",
        "how much slower than the earlier check, such as 5%%; not called so within what the times vary by",
    )
    add("--max-drop", type=_limit, metavar="POINTS", help=drop)
    add("--max-latency-regression", type=_percent, metavar="PERCENT", help=regression)
    add(
        "--fail-on",
        action="append",
        choices=NOT_WORSE,
        default=[],
        metavar="WHAT",
        help=f"what may not be worse than in the earlier check at all: {', '.join(NOT_WORSE)}; repeat it for several",
    )
    engine = "check an engine that another machine built of the model, by its files, and build nothing"
    add("--engine", nargs="+", metavar="FILE", help=engine)
    for flag, form, words in (
        ("--against", "B.json", "an earlier check, as --save wrote it"),
        ("--save", "B.json", "write what was found for a later check; not where a limit is broken"),
        ("--junit", "OUT.xml", "also write JUnit's XML"),
        ("--markdown", "OUT.md", "also write a summary in Markdown"),
    ):
        add(flag, metavar=form, help=words)
    parser.set_defaults(budget=_BUDGET_S)


def run(args: argparse.Namespace) -> int:
    """Check and write the files; returns the exit code."""
    from rtlab.analyses.check import report
    from rtlab.core.files import write

    study, name = None, args.precision
    try:
        study, name = _open_study(args)
        check_result = _run_check(args, study, name)
    except RtlabError as error:
        if args.junit is not None:
            model = study.model if study is not None else None
            unfinished = report.format_junit_error(args.model, name, opening.rewrite_for_cli(str(error)))
            write(args.junit, unfinished, what="the XML", model=model)
        raise
    for path, render, what in (
        (args.junit, report.format_junit, "the XML"),
        (args.markdown, lambda one: report.format_markdown(one).encode(), "the summary"),
    ):
        if path is not None:
            write(path, render(check_result), what=what, model=study.model)
    if args.json:
        printing.print_json(check_result)
    else:
        print(report.format_text(check_result))
        if args.save is not None:
            print(
                f"not written, since a limit is broken: {args.save}"
                if check_result.broken
                else f"wrote {args.save}"
            )
    return _BROKEN if check_result.broken else _UNCHECKED if check_result.unchecked else 0


def _open_study(args: argparse.Namespace) -> tuple[Study, str]:
    """The study, and what in it is checked."""
    if args.engine:
        study = opening.open_study(args)
        study.read("engine", *args.engine)
        return study, "engine"
    if args.no_run:
        # Layers are compared without a run; a score and a time are said to be missing.
        args.budget = 0.0
    return opening.plan_study(args, [args.precision]), args.precision


def _run_check(args: argparse.Namespace, study: Study, name: str) -> CheckResult:
    return study.accuracy.check(
        name,
        max_drop=args.max_drop,
        max_latency_regression=args.max_latency_regression,
        against=args.against,
        fail_on=args.fail_on,
        sure=args.sure,
        save=args.save,
        # The variant, fp32 and the sessions that are timed for themselves.
        budget_s=budget.share_budget(args, 3),
        progress=args.deadline,
    )


def _limit(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f'"{text}" is no limit: give a number from 0 upward, such as 0.5')
    return number


def _percent(text: str) -> float:
    return _limit(text.strip().removesuffix("%").strip())
