"""Answers as dated records: with the model, the compiler and the experiments, to be read and replayed elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec

from rtlab.core.schema import Meaning
from rtlab.errors import ReadError
from rtlab.questions.why import Outcome, Verdict
from rtlab.questions.why.joined import Joined, Parting

_SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class AnswerRecord:
    """What an answer holds for.

    Attributes:
        model: The name of the source model.
        digest: SHA-256 of the model that was built, with its weights and shapes.
        variant: What was chosen.
        options: What the builder was told beside the model; empty for nothing.
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

    step: Joined
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
    doing = "Cannot read a record of a verdict:"
    try:
        held = msgspec.json.decode(text)
        of_step = isinstance(held, dict) and "step" in held
        found: VerdictRecord | StepRecord = (
            msgspec.json.decode(text, type=StepRecord)
            if of_step
            else msgspec.json.decode(text, type=VerdictRecord)
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise ReadError(
            f"{doing} {error}. Give a file that study.record(...) or rtlab why -o wrote."
        ) from error
    if found.schema != _SCHEMA:
        raise ReadError(f"{doing} its schema is {found.schema}, and this rtlab reads {_SCHEMA}. Ask again.")
    return found


@dataclasses.dataclass(frozen=True)
class TrialReplay:
    """An experiment of a record, and what it gave when it was made again; None where the search did not come to it."""

    change: Annotated[str, Meaning("Change")]
    where: Annotated[str, Meaning("In")]
    layers: Annotated[int | None, Meaning("Layers then", origin="reported")]
    fused: Annotated[bool | None, Meaning("Fused then", origin="reported")]
    layers_now: Annotated[int | None, Meaning("Layers now", origin="reported")]
    fused_now: Annotated[bool | None, Meaning("Fused now", origin="reported")]
    reached: Annotated[bool, Meaning("Made again")]

    @property
    def same(self) -> Annotated[bool, Meaning("Same")]:
        """Whether it gave the same."""
        return self.reached and (self.layers, self.fused) == (self.layers_now, self.fused_now)


@dataclasses.dataclass(frozen=True)
class VerdictReplay:
    """A record and the same question asked again, experiment by experiment."""

    before: Annotated[Outcome, Meaning("Verdict then")]
    after: Annotated[Outcome, Meaning("Verdict now")]
    compiler: Annotated[str, Meaning("Compiler then")]
    compiler_now: Annotated[str, Meaning("Compiler now")]
    asked: Annotated[str, Meaning("Asked on")]
    verdict: Annotated[Verdict, Meaning(unsent=True)]
    experiments: tuple[TrialReplay, ...]

    @property
    def same(self) -> Annotated[bool, Meaning("Same")]:
        """Whether the verdict, its causes and each experiment are what they were."""
        return self.before == self.after and all(e.same for e in self.experiments)


@dataclasses.dataclass(frozen=True)
class StepReplay:
    """A record of a step and the same question asked again; where its nodes are no step of several now, no trials."""

    nodes: Annotated[tuple[str, ...], Meaning("One step then", links="nodes")]
    nodes_now: Annotated[tuple[str, ...], Meaning("One step now", links="nodes")]
    compiler: Annotated[str, Meaning("Compiler then")]
    compiler_now: Annotated[str, Meaning("Compiler now")]
    asked: Annotated[str, Meaning("Asked on")]
    experiments: tuple[TrialReplay, ...]

    @property
    def same(self) -> Annotated[bool, Meaning("Same")]:
        """Whether the step, and each experiment, is what it was."""
        return self.nodes == self.nodes_now and all(e.same for e in self.experiments)


def replayed(record: VerdictRecord, now: Verdict) -> VerdictReplay:
    """Lay the experiments of a record beside those of the same question, asked again."""
    then = record.verdict
    rows = _beside(
        [(t.change, t.where, t.layers, t.fused) for t in then.experiments],
        [(t.change, t.where, t.layers, t.fused) for t in now.experiments],
    )
    return VerdictReplay(then.verdict, now.verdict, then.compiler, now.compiler, then.asked, now, rows)


def step_replayed(record: StepRecord, compiler: str, now: Joined | None) -> StepReplay:
    """The same of a step, and of the compiler that was asked again; None where its nodes are steps of their own."""
    then = record.step
    rows = _beside(*([_parting(p) for p in told.experiments] if told else [] for told in (then, now)))
    return StepReplay(then.nodes, now.nodes if now else (), then.compiler, compiler, then.asked, rows)


#: A change, where it was made, the layers after it, and whether two nodes were one step then.
_Told: TypeAlias = "tuple[str, str, int | None, bool | None]"


def _parting(made: Parting) -> _Told:
    return made.change, f"{made.first} | {made.second}", made.layers, made.fused


def _beside(then: Sequence[_Told], now: Sequence[_Told]) -> tuple[TrialReplay, ...]:
    """Experiments beside those of the same change in the same place."""
    found = {told[:2]: told[2:] for told in now}
    return tuple(TrialReplay(*told, *found.get(told[:2], (None, None)), told[:2] in found) for told in then)
