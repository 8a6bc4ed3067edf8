"""The compiler as an oracle: whether two nodes are one step of a graph that it builds."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
import weakref
from collections.abc import Hashable
from typing import Any, TypeAlias

from rtlab.analyses.why import FusionTrial
from rtlab.analyses.why.missed_fusions import same_layer
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Builder, BuildRequest, Progress
from rtlab.core.value import shape_text
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, VariantError
from rtlab.experiments.why.open_sizes import OpenSizes
from rtlab.relation.mapping import Mapping as Relation
from rtlab.relation.relate import relate

ACTIVITY = "asking the compiler about a fusion"


@dataclasses.dataclass(frozen=True)
class OracleAnswer:
    """What became of a graph: the experiment, and the relation of its nodes and layers; None where it was refused."""

    trial: FusionTrial
    relation: Relation | None = None

    @property
    def fused(self) -> bool | None:
        """Whether the two that were asked about are one step in it; None where that cannot be told."""
        return self.trial.fused


class Oracle:
    """Builds graphs for a search, in the variant that it asks about, and counts them.

    ``sizes`` are those that its profiles leave open, None where it has none.
    """

    def __init__(
        self, variant: Variant, context: WorkContext[Builder], sizes: OpenSizes | None = None
    ) -> None:
        self.variant, self.context, self.sizes = variant, context, sizes
        self.builds = 0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """What the search took so far."""
        return time.monotonic() - self._began

    def build(self, model: Model, change: str, where: str, pair: tuple[str, str]) -> OracleAnswer:
        """Build a graph and see whether two of its nodes are one step.

        Raises:
            Cancelled: somebody asked to stop.
        """
        began = time.monotonic()
        self.context.check(ACTIVITY)
        self.builds += 1
        try:
            variant = self.variant if self.sizes is None else self.sizes.variant(model, self.variant)
            engine = build_cached(
                self.context.tool, BuildRequest(model, variant, several=True), SearchProgress(self.context)
            )
        except (BuildError, VariantError) as error:
            self.context.count(builds=1)
            taken = time.monotonic() - began
            return OracleAnswer(FusionTrial(change, where, None, None, taken, str(error)))
        relation = relate(model, model, engine)
        is_fused = same_layer(relation, *pair)
        self.context.count(builds=1)
        self.context.advance()
        trial = FusionTrial(change, where, len(engine.layers), is_fused, time.monotonic() - began)
        return OracleAnswer(trial, relation)


_Graphs: TypeAlias = "collections.OrderedDict[tuple[str, Variant], Engine]"
#: What was built before, by compiler: searches of one model ask for the same parts, and so does whoever asks twice.
_engine_cache: weakref.WeakKeyDictionary[Builder, _Graphs] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
#: Graphs that are remembered of each compiler; those whose nodes are many are built too rarely.
_MAX_CACHED, _LARGEST = 256, 200


def build_cached(builder: Builder, request: BuildRequest, progress: Progress) -> Engine:
    """What a compiler makes of a graph, which it is asked once: a release is a compiler of its own."""
    if len(request.model.nodes) > _LARGEST or not isinstance(builder, Hashable):
        return builder.build(request, progress)
    key = (request.model.digest, request.variant)
    with _lock:
        engines = _engine_cache.setdefault(builder, collections.OrderedDict())
        if key in engines:
            engines.move_to_end(key)
            return engines[key]
    # Nobody asks for the log of a part.
    engine = dataclasses.replace(builder.build(request, progress), log="", plan=None)
    with _lock:
        engines[key] = engine
        while len(engines) > _MAX_CACHED:
            engines.popitem(last=False)
    return engine


def forget(builder: Builder) -> None:
    """Let a compiler be asked anew what it was asked before."""
    if isinstance(builder, Hashable):
        with _lock:
            _engine_cache.pop(builder, None)


class SearchProgress:
    """What is built for a search reports nothing of its own, and stops when the search is asked to."""

    def __init__(self, context: WorkContext[Any]) -> None:
        self._context = context

    def phase(self, name: str, total: int | None = None) -> None:
        """Say nothing."""

    def advance(self, steps: int = 1) -> None:
        """Say nothing."""

    def stopped(self) -> bool:
        """Whether somebody asked to stop."""
        return self._context.is_cancelled()


def format_input_shapes(model: Model) -> str:
    """The shapes of a model's inputs, in words."""
    return ", ".join(f"{n} {shape_text(model.sizes().get(n))}" for n in model.inputs)
