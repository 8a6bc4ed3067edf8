"""``rtlab compilers``: the releases of a compiler that are here, one more, one less."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rtlab.core.phrases import many

if TYPE_CHECKING:
    from rtlab.backends.compilers import Compiler


def run(given: argparse.Namespace) -> int:
    """List, add or remove."""
    from rtlab.backends import compilers

    match given.action:
        case "add":
            told = _added(given)
        case "remove":
            found = compilers.remove(given.version)
            told = f"removed {found.version}"
        case _:
            return _list(given)
    print(json.dumps({"done": told}) if given.json else told)
    return 0


def _added(given: argparse.Namespace) -> str:
    from rtlab.backends import compilers
    from rtlab.core.progress import Terminal

    before = {c.version for c in compilers.known()}
    progress = Terminal()
    try:
        found = compilers.add(given.version, source=given.source, progress=progress)
    finally:
        progress.close()
    if found.version in before:
        return f"{found.version} is here already: {found.where}"
    return f"added {found.version}: {_size(found.nbytes)} in {found.where}"


def _list(given: argparse.Namespace) -> int:
    from rtlab.backends import compilers

    known = compilers.known()
    rows = [_row(c) for c in known]
    if given.json:
        print(json.dumps({"folder": str(compilers.folder()), "compilers": rows}))
        return 0
    for compiler, row in zip(known, rows, strict=True):
        works = row["refusal"] or f"works, {_routes(row['routes'])}"
        own = f" ({compiler.words})" if compiler.path is None else ""
        print(f"{row['version']:<12} {_size(row['bytes']):>7}  {works}{own}  {row['where']}")
    if not rows:
        print("none: add one with rtlab compilers add 1.7")
    return 0


def _routes(routes: object) -> str:
    if not isinstance(routes, list):
        return "knows no build routes"
    return f"offers {many(len(routes), 'build route')}" if routes else "offers no build routes"


def _row(compiler: Compiler) -> dict[str, object]:
    tried = compiler.tried()
    return {
        "version": compiler.version,
        "backend": compiler.backend,
        "own": compiler.own,
        "recorded": compiler.recorded,
        "where": compiler.where,
        "bytes": compiler.nbytes,
        "refusal": tried.refusal,
        "routes": None if tried.routes is None else list(tried.routes),
    }


def _size(nbytes: object) -> str:
    from rtlab.documents.numbers import storage

    return storage(int(str(nbytes)))
