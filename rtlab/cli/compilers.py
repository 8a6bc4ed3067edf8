"""``rtlab compilers``: the releases of a compiler that are here, one more, one less."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence

from rtlab.core.phrases import pluralize


def run(args: argparse.Namespace) -> int:
    """List, add or remove."""
    from rtlab.backends import compilers
    from rtlab.core.progress import Terminal
    from rtlab.documents.numbers import format_bytes

    match args.action:
        case "add":
            before = {c.version for c in compilers.known()}
            with contextlib.closing(Terminal()) as progress:
                compiler = compilers.add(args.version, source=args.source, progress=progress)
            message = (
                f"{compiler.version} is here already: {compiler.where}"
                if compiler.version in before
                else f"added {compiler.version}: {format_bytes(compiler.nbytes)} in {compiler.where}"
            )
        case "remove":
            message = f"removed {compilers.remove(args.version).version}"
        case _:
            return _list_releases(args)
    print(json.dumps({"done": message}) if args.json else message)
    return 0


def _list_releases(args: argparse.Namespace) -> int:
    from rtlab.backends import compilers
    from rtlab.documents.numbers import format_bytes

    rows, lines = [], []
    for compiler in compilers.known():
        trial = compiler.tried()
        routes = None if trial.routes is None else list(trial.routes)
        rows.append(
            {
                "version": compiler.version,
                "backend": compiler.backend,
                "own": compiler.own,
                "recorded": compiler.recorded,
                "where": compiler.where,
                "bytes": compiler.nbytes,
                "refusal": trial.refusal,
                "routes": routes,
            }
        )
        works = trial.refusal or f"works, {_describe_routes(routes)}"
        origin_note = f" ({compiler.words})" if compiler.path is None else ""
        size = format_bytes(compiler.nbytes)
        lines.append(f"{compiler.version:<12} {size:>7}  {works}{origin_note}  {compiler.where}")
    if args.json:
        print(json.dumps({"folder": str(compilers.folder()), "compilers": rows}))
    else:
        print("\n".join(lines) or "none: add one with rtlab compilers add 1.7")
    return 0


def _describe_routes(routes: Sequence[str] | None) -> str:
    if routes is None:
        return "knows no build routes"
    return f"offers {pluralize(len(routes), 'build route')}" if routes else "offers no build routes"
