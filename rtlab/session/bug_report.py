"""What a bisection found, as files that others can use: a text for a bug report, parts of the model, and logs."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from rtlab.core.files import write
from rtlab.core.model import Model
from rtlab.core.phrases import many
from rtlab.core.value import shape_text
from rtlab.documents.numbers import number
from rtlab.errors import RtlabError
from rtlab.questions.bisection import Bisection, Changed, Reproduction


def written(found: Bisection, model: Model, folder: str | Path, releases: Sequence[str]) -> tuple[Path, ...]:
    """Write a text for a bug report, and beside it for each change the part that shows it with the log of both.

    Args:
        found: What changed.
        model: The model that it was asked of, which is not written.
        folder: Where the files go; it is made.
        releases: The releases of the two compilers.

    Returns:
        The files.

    Raises:
        RtlabError: the folder cannot be written.
    """
    place = Path(folder)
    made: list[Path] = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for at, change in enumerate(found.changes, 1):
            if change.shown is not None:
                made += _files(change.shown, place / f"{at}")
    except OSError as error:
        raise RtlabError(
            f'Cannot write the report to "{place}": {error.strerror or error}. Name a folder that is yours to write to.'
        ) from error
    text = "\n".join(_lines(found, model, releases)) + "\n"
    return (write(place / "report.md", text.encode(), what="the report"), *made)


def _files(shown: Reproduction, place: Path) -> list[Path]:
    place.mkdir(exist_ok=True)
    models = {"first.onnx": shown.models[0], "second.onnx": shown.models[1]}
    if _same(shown):
        models = {"part.onnx": shown.models[0]}
    made = [write(place / name, m.bytes(), what="the part") for name, m in models.items()]
    logs = zip(("first.log", "second.log"), shown.logs, strict=True)
    return made + [write(place / n, log.encode("utf-8", "replace"), what="the log") for n, log in logs]


def _same(shown: Reproduction) -> bool:
    return shown.models[0].digest == shown.models[1].digest


def _lines(found: Bisection, model: Model, releases: Sequence[str]) -> list[str]:
    what = "refused by one of them" if found.refused else many(len(found.changes), "change")
    inputs = ", ".join(f"{n} {shape_text(model.sizes().get(n))}" for n in model.inputs)
    here = f"{platform.system()} {platform.machine()} with Python {platform.python_version()}"
    lines = [
        f"# {found.first} and {found.second}: {what}",
        "",
        found.text,
        "",
        f"The model has {many(len(model.top), 'node')} and the inputs {inputs}. Found on {here}.",
    ]
    if found.said:
        lines += ["", "```", found.said, "```"]
    for at, change in enumerate(found.changes, 1):
        lines += ["", *_change(at, change, releases)]
    return lines


def _read_as(change: Changed) -> list[str]:
    """How the steps of nodes that share them otherwise are read."""
    if not change.kind:
        return []
    told = 'What stands between two ";" is one layer, and "+" joins the nodes that it runs'
    also = " with " in f"{change.first} {change.second}"
    besides = '; "with Q" says that it quantizes for a neighbour too, and "with DQ" that it reads what was quantized'
    return ["", f"{told}{besides * also}."]


def _change(at: int, change: Changed, releases: Sequence[str]) -> list[str]:
    """One change: what differs, the part that shows it, and how to see it."""
    mine = len(change.example or change.nodes)
    several = f" and {many(mine - 1, 'more node')}" if mine > 1 else ""
    alike = f", and {many(change.places - 1, 'more place')} like it" if change.places > 1 else ""
    taken = f", {number(change.delta, 'ms', signed=True)} (estimated)" if change.delta else ""
    lines = [
        f"## {at}. {change.title}{several}{alike}",
        "",
        f"{change.cause[:1].upper()}{change.cause[1:]}{taken}.",
        "",
        f"- before: {change.first or 'nothing of its own'}",
        f"- after: {change.second or 'nothing of its own'}",
        *_read_as(change),
    ]
    if change.shown is None:
        return [*lines, "", "No part of the model was found that shows it."]
    part = change.shown.models[0]
    files = "`part.onnx`" if _same(change.shown) else "`first.onnx` and `second.onnx`"
    return [
        *lines,
        "",
        f"The smallest part that shows it has {many(len(part.top), 'node')}: {', '.join(n.op for n in part.top)}.",
        f"The folder `{at}` holds it as {files}, and the verbose logs of both builds. To build it:",
        "",
        "```",
        *(
            f"pip install tensorrt-rtx-cu13-bindings=={v} tensorrt-rtx-cu13-libs=={v}"
            for v in dict.fromkeys(releases)
            if v
        ),
        f"rtlab compare fp32 fp32 --model {at}/part.onnx --compiler {' '.join(releases)}"
        if _same(change.shown)
        else f"rtlab inspect {at}/first.onnx; rtlab inspect {at}/second.onnx",
        "```",
    ]
