"""What keeps a model's fusions from happening, cause by cause, and what may be done about it."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.core.schema import Meaning
from rtlab.questions.why import Outcome, Verdict

#: Shares of a whole inference below this are no difference of estimates.
_NOTHING = 1e-3


@dataclasses.dataclass(frozen=True)
class Remedy:
    """Nodes in another form on the whole model: what the compiler makes of it, and whether it computes the same.

    ``layers`` and ``milliseconds`` are those of the whole engine before and after, the times estimated for its GPU
    and None where there is no estimate. ``largest`` is the largest difference of any output on one batch, in parts of
    the output's largest magnitude, None where nothing here runs the model.
    """

    rewrites: Annotated[tuple[str, ...], Meaning("Written anew")]
    layers: Annotated[tuple[int, int], Meaning("Layers", origin="reported")]
    milliseconds: Annotated[tuple[float, float] | None, Meaning("Time", "ms", "estimated")]
    largest: Annotated[float | None, Meaning("Difference of outputs", "", "measured")]

    @property
    def keeps(self) -> bool:
        """Whether the outputs are the same but for rounding in float32."""
        return self.largest is not None and self.largest < 1e-3

    @property
    def gain(self) -> Annotated[float | None, Meaning("Gain", "ms", "estimated")]:
        """Milliseconds that the whole engine is estimated to take less."""
        return None if self.milliseconds is None else self.milliseconds[0] - self.milliseconds[1]

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
    estimated: the most that their fusion could win. ``alike`` counts pairs of the same operators that were not asked
    about, since others like them never become one step.
    """

    verdict: Annotated[Outcome, Meaning("Verdict")]
    cause: Annotated[str, Meaning("Cause")]
    nodes: Annotated[tuple[str, ...], Meaning("Nodes", links="nodes")]
    pairs: Annotated[tuple[tuple[str, str], ...], Meaning()]
    count: Annotated[int, Meaning("Pairs")]
    stake: Annotated[float | None, Meaning("At stake", "ms", "estimated")]
    edit: Annotated[str, Meaning("Smallest change")]
    text: Annotated[str, Meaning("Answer")]
    remedy: Remedy | None = None


@dataclasses.dataclass(frozen=True)
class Advice:
    """Why the fusions of a variant that do not happen do not, the costliest cause first.

    Attributes:
        causes: One for each root cause.
        missed: Pairs of neighbours that are not one step.
        asked: How many of them were asked about; the rest is like those, or the budget was over.
        every: All remedies that keep the outputs and pay, together; None where there is none.
        verdicts: What was found for each pair, with its experiments.
        builds: How many parts and models were built.
        seconds: The time that all of it took.
        compiler: Compiler, release and target, of which alone it holds.
    """

    causes: tuple[Cause, ...]
    missed: Annotated[int, Meaning("Missed fusions")]
    asked: Annotated[int, Meaning("Asked about")]
    every: Remedy | None
    verdicts: Annotated[tuple[Verdict, ...], Meaning(unsent=True)]
    builds: Annotated[int, Meaning("Builds")]
    seconds: Annotated[float, Meaning("Took", "s", "measured")]
    compiler: Annotated[str, Meaning("Compiler")]
