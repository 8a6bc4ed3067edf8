"""``rtlab report``: variants of a model as files to hand on."""

from __future__ import annotations

import argparse

from rtlab.cli import opening


def arguments(parser: argparse.ArgumentParser) -> None:
    """The files that are written, and what goes into them."""
    parser.add_argument("-o", "--output", default="report.html", help="the file (default: %(default)s)")
    parser.add_argument("--markdown", metavar="R.md", help="also as Markdown, for an issue or a pull request")
    parser.add_argument("--json", dest="whole", metavar="R.json", help="also all of it, for programs")
    parser.add_argument(
        "--steps", metavar="S.json", help="a presentation for the report to play: explorer.steps as JSON"
    )


def run(args: argparse.Namespace) -> int:
    """Build the variants and write them; prints the paths, a line each."""
    from rtlab.web.report import html as report

    # What is wrong with the steps is said before the work.
    steps = opening.steps(args.steps) if args.steps else []
    study = opening.build_study(args, args.precision or ["fp32"])
    print(report.write(study.state, args.output, steps=steps))
    if args.markdown is not None:
        print(report.write_markdown(study.state, args.markdown))
    if args.whole is not None:
        print(report.write_json(study.state, args.whole))
    return 0
