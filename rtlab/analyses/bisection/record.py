"""What changed between two engines as a dated record with the parts that show it."""

from __future__ import annotations

import dataclasses

import msgspec

from rtlab.analyses.bisection import Bisection, Reproduction
from rtlab.core.model import load
from rtlab.errors import ReadError

_SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class RecordedSide:
    """One of the two: what was chosen, what the builder was told beside the model, and what it was asked of.

    ``digest`` is the SHA-256 of the model that was built, with its weights and shapes.
    """

    variant: str
    options: str
    digest: str
    backend: str
    version: str
    target: str


@dataclasses.dataclass(frozen=True)
class RecordedPart:
    """The smallest part that shows a change: its name, as ONNX files of both sides or one for both, and their logs."""

    name: str
    models: tuple[bytes, ...]
    logs: tuple[str, str]

    @classmethod
    def of(cls, reproduction: Reproduction) -> RecordedPart:
        """A part as a record holds it."""
        one, two = reproduction.models
        models = (one,) if one.digest == two.digest else (one, two)
        return cls(one.name, tuple(m.bytes() for m in models), reproduction.logs)

    @property
    def reproduction(self) -> Reproduction:
        """The part itself."""
        models = [load(m, name=self.name) for m in self.models]
        return Reproduction((models[0], models[-1]), self.logs)


@dataclasses.dataclass(frozen=True)
class BisectionRecord:
    """What changed, with all that it holds for; ``model`` is the name of the source model.

    ``parts`` are those of ``bisection.changes`` in their order, which have none themselves.
    """

    model: str
    first: RecordedSide
    second: RecordedSide
    bisection: Bisection
    parts: tuple[RecordedPart | None, ...]
    schema: int = _SCHEMA

    @classmethod
    def of(
        cls, model: str, first: RecordedSide, second: RecordedSide, bisection: Bisection
    ) -> BisectionRecord:
        """What was found, as a record."""
        parts = tuple(None if c.shown is None else RecordedPart.of(c.shown) for c in bisection.changes)
        bare = tuple(dataclasses.replace(c, shown=None) for c in bisection.changes)
        return cls(model, first, second, dataclasses.replace(bisection, changes=bare, recalled=False), parts)

    @property
    def full_bisection(self) -> Bisection:
        """What was found, with its parts."""
        rows = zip(self.bisection.changes, self.parts, strict=True)
        changes = tuple(dataclasses.replace(c, shown=None if p is None else p.reproduction) for c, p in rows)
        return dataclasses.replace(self.bisection, changes=changes, recalled=True)

    def text(self) -> str:
        """The record as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"


def read(text: str) -> BisectionRecord:
    """A record from its JSON.

    Raises:
        ReadError: it is none, or one of another version of rtlab.
    """
    prefix = "Cannot read a record of what changed:"
    try:
        record = msgspec.json.decode(text, type=BisectionRecord)
    except (msgspec.DecodeError, ValueError) as error:
        raise ReadError(f"{prefix} {error}. Ask again.") from error
    if record.schema != _SCHEMA:
        raise ReadError(f"{prefix} its schema is {record.schema}, and this rtlab reads {_SCHEMA}. Ask again.")
    return record
