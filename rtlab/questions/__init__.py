"""What can be asked of a variant: pure functions of its facts, each answer kept with what it was computed from.

``Result`` in a notebook and every pane of a view ask these. A stage that comes later leaves the answers of the earlier
ones standing: they belong to the engine, the profile or the sums that they were computed from.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtlab.analysis import accuracy as _accuracy
from rtlab.analysis import breakdown
from rtlab.analysis import coverage as _coverage
from rtlab.analysis import diff as _diff
from rtlab.analysis import findings as _findings
from rtlab.analysis import plan as _plan
from rtlab.analysis import recurrence as _recurrence
from rtlab.analysis import reformats as _reformats
from rtlab.analysis import roofline as _roofline
from rtlab.analysis import schedule as _schedule
from rtlab.analysis import timing as _timing
from rtlab.analysis.accuracy import Accuracy
from rtlab.analysis.breakdown import Slice, Transition
from rtlab.analysis.coverage import Coverage
from rtlab.analysis.dataflow import Dataflow
from rtlab.analysis.diff import Difference, Side
from rtlab.analysis.mapping import Mapping as NodeMapping
from rtlab.analysis.mapping import relate
from rtlab.analysis.plan import MemoryPlan
from rtlab.analysis.recurrence import Fused
from rtlab.analysis.reformats import Reformat
from rtlab.analysis.roofline import Roofline
from rtlab.analysis.schedule import Schedule
from rtlab.analysis.timing import Shared, Timing
from rtlab.analysis.trust import usual
from rtlab.backends.files import reading
from rtlab.core.answers import kept
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.facts import Errors, Facts
from rtlab.core.finding import Finding
from rtlab.core.heap import growing
from rtlab.core.model import Model
from rtlab.core.peaks import Peaks
from rtlab.core.trace import Profile
from rtlab.core.variant import Precision, Variant
from rtlab.errors import RtlabError

#: What ONNX Runtime's CPU kernels compute in; of other precisions it runs FP32 kernels between conversions.
_NATIVE = {Precision.FP32, Precision.INT8}
_JOINED = "The decisions of the build log joined the node into this layer (inferred)."


# --- which node became which layer -----------------------------------------------------------------------------------


@kept
def related(engine: Engine, source: Model, built: Model) -> NodeMapping:
    """The nodes of a model by the layers of an engine that was built from another one, or from itself."""
    return relate(source, built, engine)


def mapping(facts: Facts) -> NodeMapping:
    """Which nodes of the source became which layers of the engine, and how we know."""
    ask = _inferred if facts.inferred else related
    return ask(facts.engine, facts.source, facts.prepared.model)


@kept
def _inferred(engine: Engine, source: Model, built: Model) -> NodeMapping:
    found = related(engine, source, built)
    pairs = (p._replace(evidence="inferred", note=_JOINED) for p in found.pairs)
    return NodeMapping(tuple(pairs), found.missing)


def measured_mapping(facts: Facts) -> NodeMapping | None:
    """The same of the engine that was measured; None where none was."""
    if facts.measured is None or facts.measured is facts.engine:
        return mapping(facts) if facts.measured else None
    return related(facts.measured, facts.source, facts.prepared.model)


@kept
def coverage(facts: Facts) -> Coverage:
    """How much of the engine the mapping explains."""
    return _coverage.coverage(mapping(facts), facts.source, facts.engine)


def unmapped(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Nodes without a layer with the reason, in graph order."""
    return tuple((m.node, m.reason) for m in mapping(facts).missing)


@kept
def log(facts: Facts) -> BuildLog | None:
    """What the builder told of the build: passes, decisions, tactics, memory; None where it left no log.

    Raises:
        ReadError: nothing in it tells of a build.
    """
    return reading.log(facts.engine.log) if facts.told is None and facts.engine.log else facts.told


# --- times -----------------------------------------------------------------------------------------------------------


def timing(facts: Facts) -> Timing | None:
    """Times of the layers of the engine that was measured; None where none was."""
    if facts.profile is None or facts.measured is None:
        return None
    return _times(facts.profile, facts.measured, None if facts.recorded else facts.variant)


@kept
def _times(profile: Profile, engine: Engine, ran: Variant | None) -> Timing:
    """``ran`` is the variant that was run here; on a CPU its arithmetic may be another than its types say."""
    foreign = sorted(str(p) for p in ran.precisions - _NATIVE) if ran and profile.processor == "CPU" else []
    kernels = f"The CPU has no {' or '.join(foreign)} arithmetic: these are times of FP32 kernels"
    note = ". ".join(filter(None, (kernels if foreign else "", profile.note)))
    return _timing.timing(profile, engine, note=note)


def own_times(facts: Facts) -> Timing | None:
    """The times of the engine's own layers; None where they are those of another engine, or there are none."""
    return timing(facts) if facts.measured is facts.engine else None


@kept
def layer_times(facts: Facts) -> Mapping[str, Shared]:
    """Times on the layers of the engine, by layer id; empty where nothing was measured.

    An engine that ran itself shows its own times. Otherwise they are joined by the nodes of the prepared model,
    which both engines were built from: a layer that only quantizes the input of a convolution gets the time of
    that quantization, not of the convolution.
    """
    times, ran = timing(facts), facts.measured
    if times is None or ran is None:
        return {}
    if ran is facts.engine:
        return _timing.own(times)
    built = facts.prepared.model
    return _timing.on_layers(times, related(ran, built, built), related(facts.engine, built, built))


def milliseconds(facts: Facts) -> Mapping[str, float]:
    """Measured times of the engine's own layers; empty where there are none."""
    times = own_times(facts)
    return {t.layer: t.median for t in times.layers} if times else {}


def side(facts: Facts, gpu: str | Peaks | None = None) -> Side:
    """The variant in a comparison: the engine that was timed, else the one that was built.

    With a GPU it is the engine that was built, with times that are estimated for it.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    if gpu is not None:
        found = roofline(facts, gpu)
        known = found.milliseconds(facts.engine) if found.known.enough else {}
        withheld = "" if found.known.enough else found.withheld
        return Side(facts.name, facts.engine, mapping(facts), known, None, "estimated", withheld)
    times = timing(facts)
    if facts.measured is None or times is None:
        return Side(facts.name, facts.engine, mapping(facts))
    known = {t.layer: t.median for t in times.layers}
    return Side(facts.name, facts.measured, measured_mapping(facts), known, times.total)


def difference(before: Facts, after: Facts, *, gpu: str | Peaks | None = None) -> Difference:
    """Where the time went from one variant to another, by groups of ONNX nodes: see ``rtlab.analysis.diff``.

    Args:
        before: The variant before.
        after: The variant after.
        gpu: In place of what was measured, times of both engines are estimated for this GPU; ``"target"`` takes for
            each one of the GPUs that it was built for.

    Raises:
        VariantError: the GPU is not known.
        ModelError: a dimension has no size.
    """
    sides = [side(f, usual(f.engine) if gpu == "target" else gpu) for f in (before, after)]
    return _diff.difference(sides[0], sides[1], before.source)


# --- roofs, memory, streams ------------------------------------------------------------------------------------------


def roofline(facts: Facts, gpu: str | Peaks | None = None, *, batch: int | None = None) -> Roofline:
    """Every layer under the roofs of a processor: what bounds it, how far from that it is, an estimate of its time.

    Args:
        facts: The variant.
        gpu: A name of the table, or ``rtlab.Peaks`` of one's own; by default the engine's own GPU, or one of its
            target where it was only built.
        batch: Samples in an inference, where they are not the engine's own.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    chosen = gpu or facts.engine.device or usual(facts.engine)
    return _roofline.roofline(
        facts.engine, mapping(facts), facts.source, chosen, milliseconds(facts), batch=batch
    )


@kept
def estimate(facts: Facts) -> Roofline | None:
    """The engine on the GPU that it was built for, estimated; None where there is no such GPU, or no sizes.

    It comes before what a CPU measured: the CPU runs other kernels, and emulates some precisions.
    """
    times = timing(facts)
    if facts.engine.target.sm is None or (times is not None and times.processor == "GPU"):
        return None
    try:
        return _roofline.roofline(facts.engine, mapping(facts), facts.source, usual(facts.engine))
    except RtlabError:
        return None


def memory(facts: Facts, *, batch: int | None = None, one_stream: bool = False) -> MemoryPlan:
    """Where the activations of the engine could lie in one piece of memory: an estimate from their lifetimes.

    Args:
        facts: The variant.
        batch: Samples in an inference, where they are not the engine's own.
        one_stream: As if all layers ran one after the other.

    Raises:
        VariantError: the engine has no tensors, or a size is not known.
    """
    return _plan.plan(facts.engine, facts.prepared.model, batch=batch, one_stream=one_stream)


def schedule(facts: Facts, gpu: str | Peaks | None = None) -> Schedule:
    """When each layer runs on which stream, and who waits for whom.

    Args:
        facts: The variant.
        gpu: Durations are estimated for it; by default the engine's own measured times, else every layer alike.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    engine = facts.engine
    if gpu is not None:
        estimated = _roofline.estimates(engine, mapping(facts), facts.source, gpu)
        return _schedule.schedule(engine, estimated, origin="estimated")
    if known := milliseconds(facts):
        return _schedule.schedule(engine, known, origin="measured")
    return _schedule.schedule(engine, _schedule.unit_durations(engine), origin="")


def recurrences(facts: Facts) -> tuple[Fused, ...]:
    """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
    return _recurrence.fused(facts.source, facts.prepared.model, facts.engine, mapping(facts))


# --- accuracy --------------------------------------------------------------------------------------------------------


def accuracy(facts: Facts) -> Accuracy | None:
    """Errors of every compared value against the source in fp32; None where none was compared."""
    return None if facts.errors is None else _errors(facts.errors, facts.source)


@kept
def _errors(errors: Errors, source: Model) -> Accuracy:
    return _accuracy.accuracy(errors, source)


def random_input(facts: Facts) -> str:
    """What of a variant rests on random input, in words; empty where nothing does."""
    parts = []
    if facts.errors is not None and facts.errors.synthetic:
        parts.append("errors")
    if facts.random_scales:
        parts.append("scales")
    return " and ".join(parts)


# --- layers ----------------------------------------------------------------------------------------------------------


@kept
def findings(facts: Facts) -> tuple[Finding, ...]:
    """What is worth changing about the engine, the most costly first."""
    return _findings.findings(
        facts.engine, mapping(facts), facts.source, own_times(facts), log(facts), flow=_flow(facts.engine)
    )


@kept
@growing()
def _flow(engine: Engine) -> Dataflow:
    return Dataflow(engine)


def kinds(facts: Facts) -> tuple[Slice, ...]:
    """Layers and time by the compiler's kind of layer, the slowest first."""
    return breakdown.by_kind(facts.engine, own_times(facts))


def precisions(facts: Facts) -> tuple[Slice, ...]:
    """Layers and time by the narrowest type that a layer touches, the slowest first."""
    return breakdown.by_precision(facts.engine, own_times(facts))


def transitions(facts: Facts) -> tuple[Transition, ...]:
    """How many layers read one precision and write another, with their time."""
    return breakdown.transitions(facts.engine, own_times(facts))


def reformats(facts: Facts) -> tuple[Reformat, ...]:
    """Layers that only change a type or a memory layout: why they are there, and how to be rid of them."""
    return _reformats.reformats(facts.engine, own_times(facts), _flow(facts.engine))
