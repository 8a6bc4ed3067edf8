"""Finds the built code of the page: parts that a page gets one at a time, and that a report holds all in one script."""

from __future__ import annotations

import functools
import gzip
import hashlib
from pathlib import Path

from rtlab.errors import Unavailable

_STATIC = Path(__file__).parents[2] / "static"
#: What every widget stands on.
CORE = "core.js"
#: What tabs of the Explorer need beside it.
_TABS = "tab-*.js"


def bundle(name: str) -> str:
    """The text of a built script; ``Unavailable`` in a checkout that was never built, with the command."""
    path = _STATIC / name
    if not path.exists():
        raise Unavailable(
            f'Cannot show the widget: its script "static/{name}" is not built. '
            "Run npm --prefix widgets ci && npm --prefix widgets run build in the checkout."
        )
    return path.read_text(encoding="utf-8")


@functools.cache
def parts() -> dict[str, str]:
    """The texts of all parts, by file name. They are read together, because they fit only those of their own build."""
    tabs = sorted(path.name for path in _STATIC.glob(_TABS))
    return {name: bundle(name) for name in (CORE, "explorer.js", "graph.js", *tabs)}


@functools.cache
def edition() -> str:
    """The digest of all parts: a page keeps those of two installations apart by it."""
    return hashlib.sha256("".join(parts().values()).encode()).hexdigest()[:16]


@functools.cache
def figures() -> bytes:
    """The library that draws a report's figures; ``charts.plotly_script`` has the whole of it for a page."""
    return gzip.compress(bundle("figures.js").encode(), compresslevel=9, mtime=0)


def inline_script() -> str:
    """One classic script with every part of a report, which it opens."""
    scripts = {**parts(), "report.js": bundle("report.js")}
    del scripts["graph.js"]
    wrapped_scripts = (
        f'rtlabParts.add("{name}",(module,require)=>{{"use strict";\n{text}\n}});\n'
        for name, text in scripts.items()
    )
    return f'{bundle("inline.js")}{"".join(wrapped_scripts)}rtlabParts.run("report.js").open(rtlabParts);\n'
