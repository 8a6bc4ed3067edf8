"""The compiler as an oracle: whether two nodes are one layer of a graph that it builds."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from rtlab.analyses.why import FusionTrial
from rtlab.analyses.why.missed_fusions import same_layer
from rtlab.core.budget import WorkContext
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import Builder, BuildRequest
from rtlab.core.value import shape_text
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, ModelError, VariantError
from rtlab.experiments.why.open_sizes import OpenSizes
from rtlab.relation.mapping import Mapping as Relation
from rtlab.relation.relate import relate

ACTIVITY = "asking the compiler about a fusion"


@dataclasses.dataclass(frozen=True)
class OracleAnswer:
    """What became of a graph.

    ``fused`` says whether the two nodes are one layer in it, None where that is unknown; ``relation`` is that of its
    nodes and layers, None where the compiler refused it.
    """

    fused: bool | None
    relation: Relation | None


class Oracle:
    """Builds graphs for a search, in the variant that it is about, and keeps its experiments in ``trials``.

    ``sizes`` are those that its profiles leave open, None where it has none.
    """

    def __init__(self, variant: Variant, context: WorkContext[Builder], sizes: OpenSizes | None) -> None:
        self.variant, self.context, self.sizes = variant, context, sizes
        self.trials: list[FusionTrial] = []
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The duration of the search up to now."""
        return time.monotonic() - self._began

    def build(self, model: Model, change: str, where: str, pair: tuple[str, str]) -> OracleAnswer:
        """Build a graph and see whether two of its nodes are one layer.

        Raises:
            Cancelled: the work was stopped.
        """
        began = time.monotonic()
        self.context.check(ACTIVITY)
        answer, layers, refusal = OracleAnswer(None, None), None, ""
        try:
            variant = self.variant if self.sizes is None else self.sizes.variant(model, self.variant)
            engine = self.context.tool.build(
                BuildRequest(model, variant, several=True), SearchProgress(self.context)
            )
        except (BuildError, ModelError, VariantError) as error:
            refusal = str(error)
        else:
            relation = relate(model, model, engine)
            answer, layers = OracleAnswer(same_layer(relation, *pair), relation), len(engine.layers)
        self.context.count(builds=1)
        self.context.advance()
        seconds = time.monotonic() - began
        self.trials.append(FusionTrial(change or "as it is", where, layers, answer.fused, seconds, refusal))
        return answer


class SearchProgress(Silent):
    """The progress of a build within a search: it reports nothing, and stops when the search is cancelled."""

    def __init__(self, context: WorkContext[Any]) -> None:
        super().__init__()
        self._context = context

    def stopped(self) -> bool:
        """Whether the search is cancelled."""
        return self._context.is_cancelled()


def format_input_shapes(model: Model) -> str:
    """The shapes of a model's inputs, in words."""
    return ", ".join(f"{n} {shape_text(model.sizes().get(n))}" for n in model.inputs)
