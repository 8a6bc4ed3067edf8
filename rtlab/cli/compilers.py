"""``rtlab compilers``: the releases of a compiler that are here, one more, one less."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rtlab.core.phrases import pluralize

if TYPE_CHECKING:
    from rtlab.backends.compilers import Compiler


def run(args: argparse.Namespace) -> int:
    """List, add or remove."""
    from rtlab.backends import compilers

    match args.action:
        case "add":
            message = _add_release(args)
        case "remove":
            compiler = compilers.remove(args.version)
            message = f"removed {compiler.version}"
        case _:
            return _list(args)
    print(json.dumps({"done": message}) if args.json else message)
    return 0


def _add_release(args: argparse.Namespace) -> str:
    from rtlab.backends import compilers
    from rtlab.core.progress import Terminal

    before = {c.version for c in compilers.known()}
    progress = Terminal()
    try:
        compiler = compilers.add(args.version, source=args.source, progress=progress)
    finally:
        progress.close()
    if compiler.version in before:
        return f"{compiler.version} is here already: {compiler.where}"
    return f"added {compiler.version}: {_size(compiler.nbytes)} in {compiler.where}"


def _list(args: argparse.Namespace) -> int:
    from rtlab.backends import compilers

    installed_compilers = compilers.known()
    rows = [_row(c) for c in installed_compilers]
    if args.json:
        print(json.dumps({"folder": str(compilers.folder()), "compilers": rows}))
        return 0
    for compiler, row in zip(installed_compilers, rows, strict=True):
        works = row["refusal"] or f"works, {_routes(row['routes'])}"
        origin_note = f" ({compiler.words})" if compiler.path is None else ""
        print(f"{row['version']:<12} {_size(row['bytes']):>7}  {works}{origin_note}  {row['where']}")
    if not rows:
        print("none: add one with rtlab compilers add 1.7")
    return 0


def _routes(routes: object) -> str:
    if not isinstance(routes, list):
        return "knows no build routes"
    return f"offers {pluralize(len(routes), 'build route')}" if routes else "offers no build routes"


def _row(compiler: Compiler) -> dict[str, object]:
    trial = compiler.tried()
    return {
        "version": compiler.version,
        "backend": compiler.backend,
        "own": compiler.own,
        "recorded": compiler.recorded,
        "where": compiler.where,
        "bytes": compiler.nbytes,
        "refusal": trial.refusal,
        "routes": None if trial.routes is None else list(trial.routes),
    }


def _size(nbytes: object) -> str:
    from rtlab.documents.numbers import format_bytes

    return format_bytes(int(str(nbytes)))
