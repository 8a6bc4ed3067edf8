"""Answers as dated records: with the model, the compiler and the experiments."""

from __future__ import annotations

import dataclasses

import msgspec

from rtlab.analyses.why import FusedLayer, Verdict
from rtlab.errors import ReadError

_SCHEMA = 1


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
