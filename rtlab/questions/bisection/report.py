"""What a bisection found, as files that others can use: a text for a bug report, parts of the model, and logs."""

from __future__ import annotations

import io
import platform
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rtlab.core.files import write
from rtlab.core.model import Model
from rtlab.core.phrases import many
from rtlab.core.value import shape_text
from rtlab.documents.numbers import number
from rtlab.errors import RtlabError
from rtlab.questions.bisection import Bisection, Changed, Reproduction

#: How what stands under "before" and "after" of a group of nodes is read.
READ_AS = (
    "Semicolons part layers, and a plus joins what one layer runs; with Q it quantizes for a neighbour too, and with "
    "DQ it reads what was quantized."
)


def text(found: Bisection, model: Model) -> str:
    """What changed, for those who have neither the model nor rtlab: as Markdown."""
    return "\n".join(_lines(found, model, found.releases)) + "\n"


def contents(found: Bisection, model: Model) -> dict[str, bytes]:
    """The text for a bug report, and for each change the part that shows it with the log of both, by path.

    Args:
        found: What changed.
        model: The model that it was asked of, which is no part of them.
    """
    made = {"report.md": text(found, model).encode()}
    for at, change in enumerate(found.changes, 1):
        shown = change.shown
        if shown is None:
            continue
        names = ("part.onnx",) if _same(shown) else ("first.onnx", "second.onnx")
        made |= {f"{at}/{name}": part.bytes() for name, part in zip(names, shown.models, strict=False)}
        logs = zip(("first.log", "second.log"), shown.logs, strict=True)
        made |= {f"{at}/{name}": log.encode("utf-8", "replace") for name, log in logs}
    return made


def packed(found: Bisection, model: Model) -> bytes:
    """The same as one ZIP file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents(found, model).items():
            archive.writestr(name, content)
    return file.getvalue()


def written(found: Bisection, model: Model, folder: str | Path) -> tuple[Path, ...]:
    """Write them into a folder, which is made.

    Raises:
        RtlabError: the folder cannot be written.
    """
    place, made = Path(folder), contents(found, model)
    try:
        for parent in {(place / name).parent for name in made}:
            parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RtlabError(
            f'Cannot write the report to "{place}": {error.strerror or error}. Name a folder that is yours to write to.'
        ) from error
    return tuple(write(place / name, content, what="the report") for name, content in made.items())


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
    return ["", READ_AS] if change.kind else []


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
