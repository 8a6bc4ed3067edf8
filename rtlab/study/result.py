"""``Result``: the facts of one variant, and the analyses of them."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.analyses import accuracy, build, engine, findings, fusion
from rtlab.analyses import roofline as roofline_analysis
from rtlab.analyses import timing as timing_analysis
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.analyses.recurrence.fused_cells import FusedRecurrence, find_fused_recurrences
from rtlab.analyses.reformats.reasons import Reformat, list_reformats
from rtlab.analyses.schedule.streams import Schedule, build_schedule
from rtlab.analyses.variants.summary import VariantSummary, summarize_variant
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.documents.results import ResultTable

if TYPE_CHECKING:
    from pandas import DataFrame

    from rtlab.analyses.accuracy import Accuracy
    from rtlab.analyses.engine import Slice, Transition
    from rtlab.analyses.memory.plan import MemoryPlan
    from rtlab.analyses.roofline.estimate import Roofline
    from rtlab.analyses.timing.times import SharedTime, Timing
    from rtlab.core.buildlog import BuildLog
    from rtlab.core.engine import Engine
    from rtlab.core.facts import Score
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
    from rtlab.core.peaks import Peaks
    from rtlab.core.prepared import Prepared
    from rtlab.core.ranges import Ranges
    from rtlab.core.stage import Stage, StageStatus
    from rtlab.core.trace import Outputs, Profile
    from rtlab.core.variant import Variant
    from rtlab.relation.mapping import Coverage
    from rtlab.relation.mapping import Mapping as NodeMapping


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The facts of one variant, and the analyses of them.

    An unknown value is None; ``stages`` says how far each stage came, and why one is missing.
    """

    facts: VariantResult

    def __repr__(self) -> str:
        return f"<Result{repr(self.facts).removeprefix('<Facts')}"

    def _repr_html_(self) -> str:
        facts = self.facts
        origins = [
            roofline_analysis.estimate_source(facts),
            *(x.origin for x in (self.timing, self.accuracy) if x),
        ]
        notes = [*filter(None, origins), *(status.text for status in facts.missing)]
        return (
            f"<b>{html.escape(f'{facts.source.name} · {facts.name}')}</b>"
            f"{ResultTable(VariantSummary, (summarize_variant(facts),)).html()}"
            f"<small>{'<br>'.join(map(html.escape, notes))}</small>"
        )

    @property
    def name(self) -> str:
        """Its name in the study."""
        return self.facts.name

    @property
    def variant(self) -> Variant:
        """Its precision, calibrator, target and backend."""
        return self.facts.variant

    @property
    def source(self) -> Model:
        """The study's model."""
        return self.facts.source

    @property
    def prepared(self) -> Prepared:
        """That model with the precision expressed in its graph."""
        return self.facts.prepared

    @property
    def engine(self) -> Engine:
        """The engine that the compiler built."""
        return self.facts.engine

    @property
    def measured(self) -> Engine | None:
        """The engine that was timed here, which may be another backend's; None where none was."""
        return self.facts.measured

    @property
    def profile(self) -> Profile | None:
        """The samples behind ``timing``."""
        return self.facts.profile

    @property
    def score(self) -> Score | None:
        """The task's metric on held-out samples."""
        return self.facts.score

    @property
    def ranges(self) -> Ranges | None:
        """Ranges of values that the calibrator observed."""
        return self.facts.ranges

    @property
    def random_scales(self) -> bool:
        """Whether the scales come from random input."""
        return self.facts.random_scales

    @property
    def recorded(self) -> bool:
        """Whether the engine was read from files of another machine."""
        return self.facts.recorded

    @property
    def outputs(self) -> Outputs | None:
        """The tensors that were among these files."""
        return self.facts.outputs

    @property
    def stages(self) -> Mapping[Stage, StageStatus]:
        """How far each stage came, and why one is missing."""
        return self.facts.stages

    @property
    def missing(self) -> tuple[StageStatus, ...]:
        """Stages that ``Study.measure`` can complete, with what prevents it."""
        return self.facts.missing

    @property
    def mapping(self) -> NodeMapping:
        """Which nodes of the source became which layers of the engine, with the evidence."""
        return fusion.map_nodes(self.facts)

    @property
    def coverage(self) -> Coverage:
        """How much of the engine the mapping explains."""
        return fusion.compute_coverage(self.facts)

    @property
    def unmapped(self) -> tuple[tuple[str, str], ...]:
        """Nodes without a layer, each with the reason, in graph order."""
        return fusion.list_unmapped_nodes(self.facts)

    @property
    def log(self) -> BuildLog | None:
        """Passes, decisions, tactics and memory that the builder reported; None where it left no log.

        Raises:
            ReadError: the log is not that of a build.
        """
        return build.get_build_log(self.facts)

    @property
    def timing(self) -> Timing | None:
        """Times of the layers of the engine that was measured, in milliseconds; None where none was."""
        return timing_analysis.compute_timing(self.facts)

    @property
    def own_times(self) -> Timing | None:
        """The times of the engine's own layers; None where another engine was measured, or none."""
        return timing_analysis.get_engine_timing(self.facts)

    @property
    def layer_times(self) -> Mapping[str, SharedTime]:
        """Measured times on the layers of the engine, by layer id, joined by ONNX node where another engine ran."""
        return timing_analysis.get_layer_times(self.facts)

    @property
    def accuracy(self) -> Accuracy | None:
        """Errors of every compared value against the source in fp32; None where none was compared."""
        return accuracy.compute_accuracy(self.facts)

    @property
    def estimate(self) -> Roofline | None:
        """The engine on the GPU that it was built for, estimated; None without such a GPU, or without sizes."""
        return roofline_analysis.estimate_timing(self.facts)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth changing about the engine, the most costly first."""
        return findings.list_findings(self.facts)

    def roofline(self, gpu: str | Peaks | None = None, *, batch: int | None = None) -> Roofline:
        """Every layer under the limits of a processor: what bounds it, and an estimate of its time.

        ``gpu`` is a name of the table, or ``rtlab.Peaks``; by default the engine's own GPU, or one of its target.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.

        >>> study["fp16"].roofline("RTX 3090").peaks.name
        'RTX 3090'
        """
        return roofline_analysis.compute_roofline(self.facts, gpu, batch=batch)

    def memory(self, *, batch: int | None = None, one_stream: bool = False) -> MemoryPlan:
        """A plan of the activations in one block of memory, in bytes: an estimate from their lifetimes.

        ``batch`` is by default the engine's own; with ``one_stream``, layers run one after the other.

        Raises:
            VariantError: the engine has no tensors, or a size is not known.

        >>> study["fp16"].memory().peak > 0
        True
        """
        return plan_engine_memory(
            self.facts.engine, self.facts.prepared.model, batch=batch, one_stream=one_stream
        )

    def schedule(self, gpu: str | Peaks | None = None) -> Schedule:
        """When each layer runs on which stream, and which waits for which.

        Durations are estimated for a ``gpu``; by default they are the engine's own measured times, else all are alike.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.

        >>> len(study["fp16"].schedule("RTX 3090").streams)
        1
        """
        return build_schedule(self.facts, gpu)

    def recurrences(self) -> tuple[FusedRecurrence, ...]:
        """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred.

        >>> study["fp16"].recurrences()
        ()
        """
        return find_fused_recurrences(self.facts)

    def kinds(self) -> tuple[Slice, ...]:
        """Layers and time by the compiler's kind of layer, the slowest first.

        >>> sum(len(kind.layers) for kind in study["fp16"].kinds())
        9
        """
        return engine.by_kind(self.facts.engine, timing_analysis.get_engine_timing(self.facts))

    def precisions(self) -> tuple[Slice, ...]:
        """Layers and time by the narrowest type that a layer reads or writes, the slowest first.

        >>> sum(len(precision.layers) for precision in study["fp16"].precisions())
        9
        """
        return engine.by_precision(self.facts.engine, timing_analysis.get_engine_timing(self.facts))

    def transitions(self) -> tuple[Transition, ...]:
        """How many layers read one precision and write another, with their time.

        >>> [(one.before, one.after) for one in study["fp16"].transitions()][1:]
        [('fp32', 'fp16'), ('fp16', 'fp32')]
        """
        return engine.find_transitions(self.facts.engine, timing_analysis.get_engine_timing(self.facts))

    def reformats(self) -> tuple[Reformat, ...]:
        """Layers that only change a type or a memory layout: why they exist, and how to remove them.

        >>> [one.tensor for one in study["fp16"].reformats()]
        ['x', 'head/Gemm/output/fp16']
        """
        return list_reformats(self.facts)

    def table(self) -> DataFrame:
        """One row per layer in order of execution: see ``rtlab.analyses.table.dataframe``.

        >>> list(study["fp16"].table().columns)[:2]
        ['title', 'name']
        """
        # pandas takes a while to import.
        from rtlab.analyses.table.dataframe import layers_frame

        return layers_frame(self.facts, self.source)


@memoized
def make_result(facts: VariantResult) -> Result:
    """The one ``Result`` of these facts."""
    return Result(facts)
