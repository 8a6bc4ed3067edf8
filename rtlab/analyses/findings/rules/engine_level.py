"""Rules on the engine as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from rtlab.analyses.findings.rules.reading import Reading, format_microseconds
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize

#: Microseconds; a kernel that short takes about as long as its launch.
_TINY = 5.0
#: Fewer short layers than this, or a smaller part of the time, and launches are not what an engine waits for.
_TINY_LAYERS, _TINY_SHARE = 10, 0.25
#: A latency that exceeds the sum of its layers by more than a tenth means that the GPU waits between them.
_GAP = 1.1
#: The sum of the layers exceeds the latency by 2 to 78 percent in thirteen engines that were looked at; beyond half,
#: absolute times mislead.
_OVER = 1.5


def names_only(reading: Reading) -> Iterator[Finding]:
    """A file from an engine without detailed verbosity, which no other rule can judge."""
    if any(y.kind or y.inputs or y.outputs for y in reading.layers):
        return
    yield reading.finding(
        "names-only",
        "",
        (),
        "The file tells the names of layers and nothing else, so the engine cannot be judged.",
        evidence=f"None of {pluralize(len(reading.layers), 'layer')} has a kind, a type or a tensor.",
        cost="Cost unknown: types, tactics and layouts are not reported.",
        fix="Build the engine again with trtexec --profilingVerbosity=detailed, and export it with --exportLayerInfo.",
    )


def tiny_layers(reading: Reading) -> Iterator[Finding]:
    """Many layers that take no longer than it takes to launch them."""
    layers = [y for y in reading.layers if 0 < reading.times.get(y.id, 0.0) * 1e3 < _TINY]
    running = sum(t > 0 for t in reading.times.values())
    if len(layers) < _TINY_LAYERS or (reading.share(layers) or 0.0) < _TINY_SHARE:
        return
    descriptions = {y.id: f"takes {format_microseconds(reading.times[y.id] * 1e3)}" for y in layers}
    yield reading.finding(
        "tiny-layers",
        "",
        layers,
        f"{len(layers)} of {running} layers take less than {_TINY:g} µs each, about as long as a kernel's launch.",
        evidence=f"Times of layers: {reading.quote(layers, descriptions)}",
        fix=(
            "Run with a larger batch, which gives each kernel more to do, or, where that is off, with CUDA graphs "
            "(--useCudaGraph), which launch all kernels at once."
        ),
    )


def idle(reading: Reading) -> Iterator[Finding]:
    """Whole inferences that take much longer than their layers, or much less."""
    times = reading.timing
    if times is None or times.ratio is None or times.total is None or not times.summed:
        return
    evidence = (
        f"The latency of a whole inference is {times.total:.3g} ms, the sum of its {len(times.layers)} timed layers "
        f"{times.summed:.3g} ms ({times.ratio:.2f} times as much), both measured."
    )
    if times.total > _GAP * times.summed:
        key, title = (
            "gaps",
            "The GPU waits between layers: an inference takes longer than all its layers together.",
        )
        cost = f"{format_microseconds((times.total - times.summed) * 1e3)} of each inference are in no layer."
        fix = "Run with CUDA graphs (--useCudaGraph) and without work of the host between inferences."
    elif times.ratio > _OVER:
        key = "overstated"
        title = "The layers' times overstate the inference: read them as shares, not as milliseconds."
        cost = "No cost: profiling each layer adds to its time, and keeps layers from overlapping."
        fix = "Take latencies from a run without profiling: trtexec --separateProfileRun."
    else:
        return
    yield reading.finding("idle", key, (), title, evidence=evidence, cost=cost, fix=fix)
