"""What a bisection found, as files that others can use: a text for a bug report, parts of the model, and logs."""

from __future__ import annotations

import io
import platform
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rtlab.analyses.bisection import Bisection, ChangedGroup, Reproduction
from rtlab.core.files import write
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.value import shape_text
from rtlab.documents.numbers import format_number
from rtlab.errors import RtlabError

#: How what stands under "before" and "after" of a group of nodes is read.
READ_AS = (
    "Semicolons part layers, and a plus joins what one layer runs; with Q it quantizes for a neighbour too, and with "
    "DQ it reads what was quantized."
)


def format_report(bisection: Bisection, model: Model) -> str:
    """What changed, for those who have neither the model nor rtlab: as Markdown."""
    return "\n".join(_format_lines(bisection, model, bisection.releases)) + "\n"


def build_report_files(bisection: Bisection, model: Model) -> dict[str, bytes]:
    """The text for a bug report, and for each change the part that shows it with the log of both, by path.

    Args:
        bisection: What changed.
        model: The model that it was asked of, which is no part of them.
    """
    files = {"report.md": format_report(bisection, model).encode()}
    for at, change in enumerate(bisection.changes, 1):
        reproduction = change.shown
        if reproduction is None:
            continue
        names = ("part.onnx",) if _is_one_model(reproduction) else ("first.onnx", "second.onnx")
        files |= {
            f"{at}/{name}": part.bytes() for name, part in zip(names, reproduction.models, strict=False)
        }
        logs = zip(("first.log", "second.log"), reproduction.logs, strict=True)
        files |= {f"{at}/{name}": log.encode("utf-8", "replace") for name, log in logs}
    return files


def zip_report(bisection: Bisection, model: Model) -> bytes:
    """The same as one ZIP file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in build_report_files(bisection, model).items():
            archive.writestr(name, content)
    return file.getvalue()


def write_report(bisection: Bisection, model: Model, folder: str | Path) -> tuple[Path, ...]:
    """Write them into a folder, which is made.

    Raises:
        RtlabError: the folder cannot be written.
    """
    place, files = Path(folder), build_report_files(bisection, model)
    try:
        for parent in {(place / name).parent for name in files}:
            parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RtlabError(
            f'Cannot write the report to "{place}": {error.strerror or error}. Name a folder that is yours to write to.'
        ) from error
    return tuple(write(place / name, content, what="the report") for name, content in files.items())


def _is_one_model(reproduction: Reproduction) -> bool:
    return reproduction.models[0].digest == reproduction.models[1].digest


def _format_lines(bisection: Bisection, model: Model, releases: Sequence[str]) -> list[str]:
    what = "refused by one of them" if bisection.refused else pluralize(len(bisection.changes), "change")
    inputs = ", ".join(f"{n} {shape_text(model.sizes().get(n))}" for n in model.inputs)
    platform_text = f"{platform.system()} {platform.machine()} with Python {platform.python_version()}"
    lines = [
        f"# {bisection.first} and {bisection.second}: {what}",
        "",
        bisection.text,
        "",
        f"The model has {pluralize(len(model.top), 'node')} and the inputs {inputs}. Found on {platform_text}.",
    ]
    if bisection.said:
        lines += ["", "```", bisection.said, "```"]
    for at, change in enumerate(bisection.changes, 1):
        lines += ["", *_format_change(at, change, releases)]
    return lines


def _read_as(change: ChangedGroup) -> list[str]:
    """How the steps of nodes that share them otherwise are read."""
    return ["", READ_AS] if change.kind else []


def _format_change(at: int, change: ChangedGroup, releases: Sequence[str]) -> list[str]:
    """One change: what differs, the part that shows it, and how to see it."""
    node_count = len(change.example or change.nodes)
    more_nodes = f" and {pluralize(node_count - 1, 'more node')}" if node_count > 1 else ""
    more_places = f", and {pluralize(change.places - 1, 'more place')} like it" if change.places > 1 else ""
    time_text = f", {format_number(change.delta, 'ms', signed=True)} (estimated)" if change.delta else ""
    lines = [
        f"## {at}. {change.title}{more_nodes}{more_places}",
        "",
        f"{change.cause[:1].upper()}{change.cause[1:]}{time_text}.",
        "",
        f"- before: {change.first or 'nothing of its own'}",
        f"- after: {change.second or 'nothing of its own'}",
        *_read_as(change),
    ]
    if change.shown is None:
        return [*lines, "", "No part of the model was found that shows it."]
    part = change.shown.models[0]
    files = "`part.onnx`" if _is_one_model(change.shown) else "`first.onnx` and `second.onnx`"
    return [
        *lines,
        "",
        f"The smallest part that shows it has {pluralize(len(part.top), 'node')}: {', '.join(n.op for n in part.top)}.",
        f"The folder `{at}` holds it as {files}, and the verbose logs of both builds. To build it:",
        "",
        "```",
        *(
            f"pip install tensorrt-rtx-cu13-bindings=={v} tensorrt-rtx-cu13-libs=={v}"
            for v in dict.fromkeys(releases)
            if v
        ),
        f"rtlab compare fp32 fp32 --model {at}/part.onnx --compiler {' '.join(releases)}"
        if _is_one_model(change.shown)
        else f"rtlab inspect {at}/first.onnx; rtlab inspect {at}/second.onnx",
        "```",
    ]
