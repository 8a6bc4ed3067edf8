"""Why two nodes are, or are not, one step of an engine: what was tried, what showed the cause, and what helps."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta
from rtlab.errors import ReadError

#: ``fused``: one layer does both. ``blocked``: something in this graph keeps them apart. ``not found``: in no form that
#: was tried are they one layer. ``unknown``: the budget was used up, or the compiler refuses them.
Outcome = Literal["fused", "blocked", "not found", "unknown"]
#: What keeps two nodes apart.
Cause = Literal[
    "output", "reader", "quantization", "unquantized", "cast", "identity", "broadcast", "weight", "normalization",
    "competitor", "operator", "size", "shape", "type", "layout",
]  # fmt: skip

#: Each cause in a few words.
CAUSES: dict[Cause, str] = {
    "output": "a graph output",
    "reader": "another reader",
    "quantization": "a Q/DQ pair",
    "unquantized": "a missing Q/DQ pair",
    "cast": "a cast",
    "identity": "a node without effect",
    "broadcast": "a broadcast",
    "weight": "a weight that is not constant",
    "normalization": "a normalization that is not folded",
    "competitor": "a competing fusion",
    "operator": "the form of the operator",
    "size": "a dynamic size",
    "shape": "the size of a tensor",
    "type": "a type",
    "layout": "a layout",
}
_SAVED = "Values that are never written to memory."


def format_date(timestamp: str, *, recalled: bool) -> str:
    """When something was asked, in words, of the time in ISO 8601; ``recalled`` is what was known before."""
    return f"asked on {timestamp[:16].replace('T', ' ')} UTC{', 0 builds now' if recalled else ''}"


@dataclasses.dataclass(frozen=True)
class FusionTrial:
    """One experiment: what was changed, and what the compiler made of it.

    ``where`` says in what part of the model; ``layers`` counts those of that part, None where the compiler refused it;
    ``fused`` says whether one step did the work of both nodes, None where that is not known; ``seconds`` is the time
    of the build.
    """

    change: Annotated[str, FieldMeta("Change")]
    where: Annotated[str, FieldMeta("In")]
    layers: Annotated[int | None, FieldMeta("Layers", origin="reported")]
    fused: Annotated[bool | None, FieldMeta("Fused", origin="reported")]
    seconds: Annotated[float, FieldMeta("Build", "s", "measured")]
    refused: Annotated[str, FieldMeta("Refused")] = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Why two nodes are, or are not, one step of an engine, by experiment with the compiler that made it.

    Attributes:
        first: The node that comes first in the data's way.
        second: The one that reads what it makes.
        verdict: Whether they are one step, and if not, whether anything makes them one.
        causes: What keeps them apart: all of these have to go together.
        nodes: The nodes that the causes are.
        edit: The smallest change found that makes them one step, in words; empty where there is none.
        remedy: Whether that change keeps the model's outputs.
        rewrites: What a variant is given to have a remedy: ``study.add(..., rewrites=verdict.rewrites)``.
        text: The answer in a sentence or two.
        experiments: What was tried, in its order.
        builds: How many parts were built.
        seconds: The time that all of it took.
        compiler: Compiler, release and target, of which alone it holds.
        shapes: The shapes of the model's inputs that it holds for.
        basis: ``experiment``, or ``reported`` where its compiler cannot be asked: then the files of the engine tell
            what is one step, and what may keep two apart was not tried. ``predicted`` is what the rules of
            an engine tell that no compiler made.
        elsewhere: In how many recorded engines of TensorRT such a pair is one layer; empty where nobody built this.
    """

    first: Annotated[str, FieldMeta("First node", links="nodes")]
    second: Annotated[str, FieldMeta("Second node", links="nodes")]
    verdict: Annotated[Outcome, FieldMeta("Verdict")]
    causes: Annotated[tuple[Cause, ...], FieldMeta("Cause")] = ()
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")] = ()
    edit: Annotated[str, FieldMeta("Smallest change")] = ""
    remedy: Annotated[bool, FieldMeta("Keeps the outputs")] = False
    rewrites: tuple[str, ...] = ()
    text: Annotated[str, FieldMeta("Answer")] = ""
    experiments: tuple[FusionTrial, ...] = ()
    builds: Annotated[int, FieldMeta("Builds")] = 0
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")] = 0.0
    compiler: Annotated[str, FieldMeta("Compiler")] = ""
    shapes: Annotated[str, FieldMeta("Shapes")] = ""
    basis: Annotated[Literal["experiment", "reported", "predicted"], FieldMeta("Basis")] = "experiment"
    elsewhere: Annotated[str, FieldMeta("In TensorRT")] = ""
    asked: Annotated[str, FieldMeta("Asked on")] = ""
    recalled: Annotated[bool, FieldMeta("Asked before")] = False

    @property
    def date_text(self) -> str:
        """When it was asked, in words, and whether nothing was built now."""
        return format_date(self.asked, recalled=self.recalled)

    @property
    def cause(self) -> Annotated[str, FieldMeta()]:
        """What keeps them apart, in words."""
        return ", ".join(CAUSES[c] for c in self.causes)


@dataclasses.dataclass(frozen=True)
class SplitTrial:
    """One experiment on two neighbours of a step: what was changed, and whether they are one step still.

    ``layers`` counts those of the part that was built, None where the compiler refused it; ``fused`` is None where it
    is not known; ``seconds`` is the time of the build.
    """

    first: Annotated[str, FieldMeta("First node", links="nodes")]
    second: Annotated[str, FieldMeta("Second node", links="nodes")]
    change: Annotated[str, FieldMeta("Change")]
    layers: Annotated[int | None, FieldMeta("Layers", origin="reported")]
    fused: Annotated[bool | None, FieldMeta("Still one layer", origin="reported")]
    seconds: Annotated[float, FieldMeta("Build", "s", "measured")]
    refused: Annotated[str, FieldMeta("Refused")] = ""


@dataclasses.dataclass(frozen=True)
class FusedLayer:
    """A step that does the work of several nodes: what it saves, and by experiment what would part them.

    Attributes:
        layer: The step.
        nodes: Those whose work it does, in the data's way.
        saved: What the values between them would take to be written once and read once, in milliseconds, at the
            bandwidth of the engine's GPU; None where a shape or the bandwidth is not known.
        text: The answer in a sentence or two.
        experiments: What was tried, in its order.
        builds: How many parts were built.
        seconds: The time that all of it took.
        compiler: Compiler, release and target, of which alone it holds.
        shapes: The shapes of the model's inputs that it holds for.
        whole: Whether all that was to be tried was.
        asked: When, in ISO 8601.
        recalled: Whether that was before, and nothing was built now.
    """

    layer: Annotated[str, FieldMeta("Layer", links="layers")]
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    saved: Annotated[float | None, FieldMeta("Not moved", "ms", "estimated", note=_SAVED)]
    text: Annotated[str, FieldMeta("Answer")]
    experiments: tuple[SplitTrial, ...] = ()
    builds: Annotated[int, FieldMeta("Builds")] = 0
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")] = 0.0
    compiler: Annotated[str, FieldMeta("Compiler")] = ""
    shapes: Annotated[str, FieldMeta("Shapes")] = ""
    whole: bool = True
    asked: Annotated[str, FieldMeta("Asked on")] = ""
    recalled: Annotated[bool, FieldMeta("Asked before")] = False

    @property
    def date_text(self) -> str:
        """When it was asked, in words, and whether nothing was built now."""
        return format_date(self.asked, recalled=self.recalled)


@functools.cache
def _load_table() -> Any:
    return json.loads(Path(__file__).with_name("agreement.json").read_text(encoding="utf-8"))


def describe_agreement(first: str, second: str) -> str:
    """Of how many pairs of these operators TensorRT makes one layer, and in how many TensorRT-RTX does the same.

    By precision, with the engines and releases that it rests on and how many graphs are remade; what is not known is
    said.
    """
    table, kind = _load_table(), f"{first} | {second}"
    versions = (v for e in table["engines"] for v in re.findall(r"\d+\.\d+", e["compiler"]))
    numbers = sorted(tuple(map(int, v.split("."))) for v in versions)
    oldest, newest = (".".join(map(str, v)) for v in (numbers[0], numbers[-1]))
    remade = sum(e["remade"] for e in table["engines"])
    engines = f"{pluralize(len(table['engines']), 'recorded engine')} of TensorRT {oldest} to {newest}"
    counts = [p for p in table["pairs"] if p["kind"] == kind]
    if not counts:
        return f"{kind} does not occur in the {engines} whose graph is known or remade."
    parts = []
    for p in counts:
        total = sum(n for where, n in p.items() if where not in {"kind", "precision", "remade"})
        fused, alike = total - p["rtx"] - p["neither"], p["both"] + p["neither"]
        parts.append(
            f"{p['precision']} one layer in {fused} of {total}, TensorRT-RTX agreed in {alike} of {total}"
        )
    summary = "; ".join(parts)
    return f"{kind} in {engines} (reported; {remade} graphs remade from their layers' names): {summary}."


_SCHEMA = 2


@dataclasses.dataclass(frozen=True)
class AnswerRecord:
    """What an answer holds for.

    Attributes:
        model: The name of the source model.
        digest: SHA-256 of the model that was built, with its weights and shapes.
        variant: What was chosen.
        options: The builder's options; empty for none.
        backend: The backend that was asked.
        version: The release of its compiler.
        target: What was built for.
    """

    model: str
    digest: str
    variant: str
    options: str
    backend: str
    version: str
    target: str

    def text(self) -> str:
        """The record as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"


@dataclasses.dataclass(frozen=True)
class VerdictRecord(AnswerRecord):
    """A verdict with all that it holds for; its ``asked`` is when."""

    verdict: Verdict
    schema: int = _SCHEMA

    @property
    def about(self) -> tuple[str, ...]:
        """The nodes that were asked about."""
        return ("two", self.verdict.first, self.verdict.second)


@dataclasses.dataclass(frozen=True)
class StepRecord(AnswerRecord):
    """Why nodes are one step, with all that it holds for; its ``asked`` is when."""

    step: FusedLayer
    schema: int = _SCHEMA

    @property
    def about(self) -> tuple[str, ...]:
        """The nodes that are one step: layers are numbered anew by each build."""
        return ("step", *self.step.nodes)


def read(text: str) -> VerdictRecord | StepRecord:
    """A record from its JSON: one that holds a step is one of a step.

    Raises:
        ReadError: it is none, or one of another version of rtlab.
    """
    prefix = "Cannot read a record of a verdict:"
    try:
        content = msgspec.json.decode(text)
        of_step = isinstance(content, dict) and "step" in content
        record: VerdictRecord | StepRecord = (
            msgspec.json.decode(text, type=StepRecord)
            if of_step
            else msgspec.json.decode(text, type=VerdictRecord)
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise ReadError(f"{prefix} {error}. Ask again.") from error
    if record.schema != _SCHEMA:
        raise ReadError(f"{prefix} its schema is {record.schema}, and this rtlab reads {_SCHEMA}. Ask again.")
    return record
