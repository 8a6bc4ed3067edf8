"""What stands around the graphs, in the Explorer and in a report: the variants and the status line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rtlab.analyses.accuracy import compute_accuracy, describe_random_inputs
from rtlab.analyses.diagnosis import find_undefined
from rtlab.analyses.fusion import compute_coverage
from rtlab.analyses.roofline import estimate_timing, explain_longer_estimate
from rtlab.analyses.roofline.estimate import describe_estimate_error
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.data import RANDOM
from rtlab.core.phrases import pluralize
from rtlab.core.schema import Origin
from rtlab.core.stage import Stage
from rtlab.core.value import shape_text
from rtlab.core.variant import Precision
from rtlab.documents.contract import DataState, Status
from rtlab.documents.numbers import format_number
from rtlab.errors import RtlabError
from rtlab.web.page.contract import Chip
from rtlab.web.page.table import build_chip

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.analyses.timing.times import Timing
    from rtlab.core.facts import VariantResult


def pick_baseline(study: StudyState) -> str:
    """The default baseline: the first variant that is built in fp32."""
    results = study.results
    built_names = [n for n, v in study.variants.items() if v.precision is Precision.FP32 and n in results]
    # One that was read from files has no accuracy to compare with.
    return next((n for n in built_names if not results[n].recorded), built_names[0] if built_names else "")


def build_chips(study: StudyState, *, baseline: str, building: str = "") -> list[Chip]:
    """The rows above the graphs: variants that are built, that failed, or that are being built."""
    return [
        build_chip(study, n, baseline=baseline, building=building)
        for n in study.variants
        if n == building or n in study.results or n in study.failures
    ]


def list_status(study: StudyState, name: str) -> Iterator[Status]:
    """The status line of a variant: which compiler, which runner, and what a reader must not miss."""
    result = study.results.get(name)
    if result is None:
        yield from (_item("reported", note) for note in study.model.notes)
        return
    engine = result.engine
    yield from _describe_saving(study, engine.origin)
    if random_note := describe_randomness(result):
        yield _item("measured", random_note, warning=True)
    yield _item(engine.origin, f"read: {engine.title}" if result.recorded else engine.provenance)
    yield from _describe_times(result, dated=study.saved is not None)
    before = study.results.get(pick_baseline(study))
    if before is not None and result.variant.precision is not Precision.FP32:
        title = get_variant_titles(study)[before.name]
        if longer := explain_longer_estimate(result, before, title):
            yield _item("estimated", longer)
    if result.recorded and study.model.nodes and engine.layers:
        coverage = compute_coverage(result)
        text = (
            f"{coverage.nodes} of {coverage.all_nodes} nodes are in a layer, {coverage.explained} more "
            f"{'is' if coverage.explained == 1 else 'are'} explained"
        )
        if coverage.pairs:
            text += f"; {coverage.declared} of {coverage.pairs} links are the compiler's own word"
        yield _item("estimated" if coverage.declared < coverage.pairs else "reported", text)
    if study.selected_samples and not result.recorded:
        on = pluralize(len(study.selected_samples), "chosen sample")
        yield _item(
            "measured", f"errors and score are of {on} only; the panel Task takes all again", warning=True
        )
    yield from _list_losses(study, result)
    for stage_status in result.stages.values():
        if stage_status.is_incomplete or (stage_status.stage is Stage.TIMED and stage_status.text):
            yield _item("measured", stage_status.text, warning=stage_status.why == "failed")
    yield from _list_notes(result)


def _list_notes(result: VariantResult) -> Iterator[Status]:
    """What the compiler and the preparation say, the first with a warning where nothing has the variant's precision."""
    yield from (_item(result.engine.origin, note) for note in result.engine.notes)
    is_unchanged = result.variant.precision.needs_calibrator and not result.prepared.precisions
    for place, note in enumerate(result.prepared.notes):
        yield _item("reported", note, warning=is_unchanged and not place)


def _describe_saving(study: StudyState, origin: Origin) -> Iterator[Status]:
    """When a study was saved that was opened from a file, and what it cannot do."""
    if study.saved is not None:
        text = f"saved on {study.saved:%Y-%m-%d}, and shown as it was found out"
        missing = "; the model's weights are not here: rtlab.open(path, model=...) builds and measures again"
        yield _item(origin, text + missing * study.model.weightless)


def _list_losses(study: StudyState, result: VariantResult) -> Iterator[Status]:
    """What errors a reader must not miss."""
    errors = compute_accuracy(result)
    if errors is None:
        return
    if (undefined := find_undefined(errors, study.model)) is not None:
        yield _item("measured", undefined.title, warning=True)
    if errors.headline:
        yield _item("measured", errors.headline, warning=not errors.synthetic)
    if overflows := [v for v in errors.values if v.overflowed]:
        first = study.model.by_id[overflows[0].node].title
        elements = sum(v.overflowed for v in overflows)
        yield _item(
            "measured",
            f"overflow: {elements} elements of {pluralize(len(overflows), 'value')} are not finite, "
            f'first after "{first}"',
            warning=True,
        )
    underflows = [v for v in errors.values if v.underflowed]
    if underflows and any(p.is_half for p in result.variant.precisions):
        most = max(underflows, key=lambda v: v.underflowed / v.elements)
        yield _item(
            "measured",
            f"underflow: {sum(v.underflowed for v in underflows)} elements of {pluralize(len(underflows), 'value')} "
            f'became zero, most after "{study.model.by_id[most.node].title}" '
            f"({format_number(100 * most.underflowed / most.elements, '%')})",
            warning=True,
        )


def _item(origin: Origin, text: str, *, warning: bool = False) -> Status:
    return Status(origin=origin, text=text, warning=warning)


def _describe_times(result: VariantResult, *, dated: bool) -> Iterator[Status]:
    """What an inference takes: estimated for the GPU that the engine is for, then as it was measured, and when."""
    if (estimate := estimate_timing(result)) is not None:
        gpu = estimate.peaks.name
        text = (
            f"estimated: {format_number(estimate.estimated, 'ms')} on {gpu}; {describe_estimate_error(gpu)}"
        )
        yield _item("estimated", estimate.withheld or text)
    if (times := compute_timing(result)) is not None:
        is_built_here = not (result.recorded or result.engine.recorded)
        build_note = f"; building took {result.engine.seconds:.2g} s" if is_built_here else ""
        day = f" on {times.taken:%Y-%m-%d}" if dated and times.taken else ""
        yield _item("measured", f"measured{day}: {_times(times)}{build_note}")


def describe_randomness(result: VariantResult) -> str:
    """What a reader must know of a variant that rests on random input; empty where nothing does."""
    subjects = describe_random_inputs(result)
    if not subjects:
        return ""
    return f"{RANDOM}: {subjects} rest on noise; no finding about the task, give data of the model's own"


def describe_data(study: StudyState) -> DataState:
    """What the study runs on; a model whose inputs have no size has no data yet, nor has one without nodes."""
    model = study.model
    inputs = [f"{n}: {model.values[n].dtype} {shape_text(model.values[n].shape)}" for n in model.inputs]
    source, is_random = "", False
    if study.user_data is not None:
        source = study.user_data.source
    elif model.nodes:
        # Whether random samples can be drawn; to draw them takes a large model longer than to show it.
        with contextlib.suppress(RtlabError):
            is_random = all(model.input_shape(name) is not None for name in model.inputs)
            source = "random noise" if is_random else ""
    return DataState(source=source, random=is_random, inputs=inputs)


def _times(times: Timing) -> str:
    """Who measured, and what: the layers, the whole inference, or both."""
    total_text = "was not timed" if times.total is None else f"takes {format_number(times.total, 'ms')}"
    if 95 in times.percentiles:
        total_text += f" (p95 {format_number(times.percentiles[95], 'ms')})"
    if not times.layers:
        return f"{times.source}; the whole {total_text}, layers were not timed"
    # Files may have times without the number of runs.
    runs = f" over {times.runs} run{'s' if times.runs != 1 else ''}" if times.runs else ""
    scaling_note = f"; layers are scaled by {times.scale:.2g}" if times.scaled else ""
    return (
        f"{times.source}; layers sum to {format_number(times.summed, 'ms')}{runs}, "
        f"the whole {total_text}{scaling_note}"
    )
