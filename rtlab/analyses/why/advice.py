"""What keeps a model's fusions from happening, cause by cause, and what may be done about it."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.analyses.why import Outcome, Verdict
from rtlab.analyses.why.missed_fusions import MissedPair
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.numbers import format_number

#: Shares of a whole inference below this are no difference of estimates.
_NOTHING = 1e-3
_REST = "The others stand like one of these, or came too late."
_WORTH = "What moving their values takes is at least a thousandth of the inference, or is not known."


@dataclasses.dataclass(frozen=True)
class Remedy:
    """Nodes in another form on the whole model: what the compiler makes of it, and whether it computes the same.

    ``layers`` and ``milliseconds`` are those of the whole engine before and after, the times estimated for its GPU
    and None where there is no estimate. ``largest`` is the largest difference of any output on one batch, in parts of
    the output's largest magnitude, None where nothing here runs the model.
    """

    rewrites: Annotated[tuple[str, ...], FieldMeta("Written anew")]
    layers: Annotated[tuple[int, int], FieldMeta("Layers", origin="reported")]
    milliseconds: Annotated[tuple[float, float] | None, FieldMeta("Time", "ms", "estimated")]
    largest: Annotated[float | None, FieldMeta("Difference of outputs", "", "measured")]

    @property
    def keeps(self) -> bool:
        """Whether the outputs are the same but for rounding in float32."""
        return self.largest is not None and self.largest < 1e-3

    @property
    def gain(self) -> Annotated[float | None, FieldMeta("Gain", "ms", "estimated")]:
        """Milliseconds that the whole engine is estimated to take less."""
        return None if self.milliseconds is None else self.milliseconds[0] - self.milliseconds[1]

    @property
    def words(self) -> str:
        """What it does to the whole model."""
        gain = "" if self.gain is None else f", {format_number(self.gain, 'ms')} less (estimated)"
        much = "" if self.largest is None else f"{self.largest:.1g} of their largest (measured)"
        same = much and f", outputs {'the same but for' if self.keeps else 'differ by'} {much}"
        least = "" if self.pays else ": does not pay"
        return f"{self.layers[0]} → {self.layers[1]} layers (reported){gain}{same}{least}"

    @property
    def pays(self) -> bool:
        """Whether the engine is better with it: by the time that is estimated, or by layers where that says nothing."""
        if self.milliseconds is None or self.gain is None or abs(self.gain) < _NOTHING * self.milliseconds[0]:
            return self.layers[1] < self.layers[0]
        return self.gain > 0


@dataclasses.dataclass(frozen=True)
class Cause:
    """One root cause with the pairs that it keeps apart.

    ``stake`` is what the values between them take to be written and read again on the engine's GPU, in milliseconds,
    estimated: the most that their fusion could win.
    """

    verdict: Annotated[Outcome, FieldMeta("Verdict")]
    cause: Annotated[str, FieldMeta("Cause")]
    nodes: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    count: Annotated[int, FieldMeta("Pairs")]
    stake: Annotated[float | None, FieldMeta("At stake", "ms", "estimated")]
    edit: Annotated[str, FieldMeta("Smallest change")]
    text: str
    remedy: Remedy | None = None

    @property
    def at(self) -> Annotated[str, FieldMeta("Nodes")]:
        """The first two of the nodes that it is."""
        return ", ".join(self.nodes[:2])

    @property
    def remedied(self) -> Annotated[str, FieldMeta("Remedy on the whole model")]:
        """What its remedy does, in words; empty where there is none."""
        return self.remedy.words if self.remedy else ""

    @property
    def apart(self) -> Annotated[tuple[str, ...], FieldMeta(links="nodes")]:
        """The nodes of all its pairs."""
        return tuple(dict.fromkeys(n for pair in self.pairs for n in pair))

    @property
    def note(self) -> str:
        """The answer in full."""
        return self.text


def is_worthwhile(missed: MissedPair, milliseconds: float | None) -> bool:
    """Whether a missed fusion could win at least a thousandth of an inference, or nothing is known of it."""
    return missed.stake is None or missed.stake >= _NOTHING * (milliseconds or 0.0)


@dataclasses.dataclass(frozen=True)
class Advice:
    """Why the fusions of a variant that do not happen do not, the costliest cause first.

    Attributes:
        causes: One for each root cause.
        missed: Pairs of neighbours that are not one layer.
        worth: Those of them that could win at least ``_NOTHING`` of the inference.
        asked: How many of them were asked about; the rest is like those, or the budget was over.
        every: All remedies that keep the outputs and pay, together; None where there is none.
        verdicts: What was found for each pair, with its experiments.
        builds: How many parts and models were built.
        seconds: The time that all of it took.
        compiler: Compiler, release and target, of which alone it holds.
        limitation: Why some could not be asked about or tried, such as that nobody recorded it; empty where all could.
    """

    causes: tuple[Cause, ...]
    missed: Annotated[int, FieldMeta("Missed fusions")]
    worth: Annotated[int, FieldMeta("Worth asking about", note=_WORTH)]
    asked: Annotated[int, FieldMeta("Asked about", note=_REST)]
    every: Remedy | None
    verdicts: Annotated[tuple[Verdict, ...], FieldMeta(unsent=True)]
    builds: Annotated[int, FieldMeta("Builds")]
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")]
    compiler: str
    limitation: Annotated[str, UNSENT] = ""

    @property
    def remedied(
        self,
    ) -> Annotated[str | None, FieldMeta("With all remedies", note="{self.forms}", omit=True)]:
        """What they do together."""
        return self.every.words if self.every else None

    @property
    def forms(self) -> str:
        """The nodes that are written anew then."""
        return ", ".join(self.every.rewrites) if self.every else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Of what it holds."""
        return (f"Holds for {self.compiler}.", *filter(None, [self.limitation]))
