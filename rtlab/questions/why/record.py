"""Verdicts as dated records: with the model, the compiler and the experiments, to be read and replayed elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import msgspec

from rtlab.core.schema import Meaning
from rtlab.errors import ReadError
from rtlab.questions.why import Outcome, Verdict

_SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class VerdictRecord:
    """A verdict with all that it holds for.

    Attributes:
        model: The name of the source model.
        digest: SHA-256 of the model that was built, with its weights and shapes.
        variant: What was chosen.
        options: What the builder was told beside the model; empty for nothing.
        backend: The backend that was asked.
        version: The release of its compiler.
        target: What was built for.
        verdict: The answer with its experiments; ``asked`` is when.
    """

    model: str
    digest: str
    variant: str
    options: str
    backend: str
    version: str
    target: str
    verdict: Verdict

    schema: int = _SCHEMA

    def text(self) -> str:
        """The record as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"


def read(text: str) -> VerdictRecord:
    """A record from its JSON.

    Raises:
        ReadError: it is none, or one of another version of rtlab.
    """
    doing = "Cannot read a record of a verdict:"
    try:
        found = msgspec.json.decode(text, type=VerdictRecord)
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


def replayed(record: VerdictRecord, now: Verdict) -> VerdictReplay:
    """Lay the experiments of a record beside those of the same question, asked again."""
    then = record.verdict
    found = {(t.where, t.change): t for t in now.experiments}
    rows = []
    for trial in then.experiments:
        again = found.get((trial.where, trial.change))
        layers, fused = (again.layers, again.fused) if again is not None else (None, None)
        rows.append(
            TrialReplay(
                trial.change, trial.where, trial.layers, trial.fused, layers, fused, again is not None
            )
        )
    return VerdictReplay(then.verdict, now.verdict, then.compiler, now.compiler, then.asked, now, tuple(rows))
