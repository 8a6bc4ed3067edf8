"""Variants and comparisons in words, for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.cli.opening import rewrite_for_cli

if TYPE_CHECKING:
    from rtlab.analyses.difference import Difference
    from rtlab.analyses.roofline.estimate import Point
    from rtlab.analyses.why import FusedLayer, Verdict
    from rtlab.analyses.why.advice import Advice
    from rtlab.api import Result, Study


def print_json(value: Any) -> None:
    """Print a value as one line of JSON.

    In ASCII, because ``terminal.clean`` escapes control characters in a way that JSON does not know.
    """
    from rtlab.documents.serialization import to_builtins

    print(json.dumps(to_builtins(value), allow_nan=False))


def print_variant(result: Result, study: Study) -> None:
    """A variant: what it is, what an inference takes, and a line for each layer."""
    from rtlab.analyses.cards.card import name_layers
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.core.data import RANDOM
    from rtlab.documents.numbers import get_layer_noun
    from rtlab.documents.results import align_columns
    from rtlab.web.page.chrome import describe_randomness

    engine = result.engine
    # A file of names only has no types, a log that was cut off no layers.
    has_types = not result.recorded or any(y.precision for y in engine.layers)
    # An engine from elsewhere is known by its types; its name is only what this command calls it.
    variant_title = result.variant.name if result.recorded else get_variant_titles(study.state)[result.name]
    types = variant_title if has_types else "types not reported"
    if engine.layers or study.model.nodes:
        print(f"{study.model.name} · {types}: {result.prepared.model.node_count} nodes → "
              f"{engine.layer_count} {get_layer_noun(engine)}s"
              + (f" and {engine.control_count} sync or jump entries" if engine.control_count else "")
              + "".join(f"; {fault}" for fault in _find_faults(result, study)))  # fmt: skip
    if result.recorded:
        coverage = result.coverage
        coverage_text = (
            f"; {coverage.nodes} of {coverage.all_nodes} nodes are in a layer, "
            f"{coverage.explained} more explained"
        )
        print(f"read: {engine.title}{coverage_text if study.model.nodes and engine.layers else ''}")
    else:
        where = "reported" if engine.recorded else "measured here"
        print(f"{engine.provenance}; building it took {engine.seconds:.2g} s ({where})")
    _print_times(result)
    if result.score:
        from rtlab.analyses.score import describe_score, find_reference

        score = describe_score(result.facts, find_reference(study.state, result.facts))
        print(f"{result.score.name}: {score} (measured on held-out samples, {result.score.source})")
    for status in result.missing:
        # Where only a build was requested, this is no news.
        if status.why != "not asked":
            hint = "; give more with --budget" if status.why == "budget" else ""
            print(f"{rewrite_for_cli(status.text)}{hint}")
    noise = f"{inputs} with --data D.npz" if (inputs := describe_randomness(result.facts)) else ""
    for note in filter(None, (noise, *result.prepared.notes, *engine.notes, *_overflow(result))):
        print(f"note: {note}")
    layer_names = name_layers(result.facts, study.model)
    rows = [_line(result, study, layer, layer_names[layer.id]) for layer in engine.layers]
    time = f"{result.timing.processor} time" if result.timing else "time"
    estimates = _estimates_by_layer(result)
    gpu = [f"{result.estimate.peaks.name} (estimated)"] if result.estimate and estimates else []
    noisy = result.accuracy is not None and result.accuracy.synthetic
    errors = f"SQNR, {RANDOM}" if noisy else "SQNR"
    if rows:
        head = ("step", "kind", "layer" if study.model.nodes else "name", "type", *gpu, time, errors)
        print(align_columns(head, rows))
    if result.mapping.missing:
        print("\nnodes without a layer")
        print(
            align_columns(
                ("node", "reason"),
                [(study.model.by_id[m.node].title, m.reason) for m in result.mapping.missing],
            )
        )


def print_unbuilt(study: Study, notes: Sequence[str]) -> None:
    """What is there of a study none of whose variants was built in time: graph, calibration, notes on the prepared."""
    from collections import Counter

    from rtlab.core.phrases import pluralize
    from rtlab.core.value import shape_text
    from rtlab.documents.numbers import format_bytes

    model, calibration = study.model, study.state.calibration
    print(
        f"{model.name} · {', '.join(study.state.variants)}: not built; what was there when the time was over:"
    )
    operators = ", ".join(f"{count} {op}" for op, count in Counter(n.op for n in model.nodes).most_common(5))
    weights = f"{format_bytes(model.weight_bytes)} of weights"
    print(f"graph: {pluralize(len(model.nodes), 'node')} ({operators}), opset {model.opset}, {weights}")
    for kind, names in (("input", model.inputs), ("output", model.outputs)):
        for value in (model.values[n] for n in names):
            print(f'{kind}: "{value.name}", {value.dtype} {shape_text(value.shape)}')
    if calibration is not None:
        every = "" if calibration.complete or calibration.wanted is None else f" of {calibration.wanted}"
        print(f"calibrated on {calibration.samples}{every} samples of {calibration.source}")
    for note in notes:
        print(f"note: {note}")


def _find_faults(result: Result, study: Study) -> tuple[str, ...]:
    """What is wrong with the outputs, in words."""
    from rtlab.analyses.check import find_faults
    from rtlab.analyses.score import find_reference
    from rtlab.core.variant import Precision

    facts = result.facts
    plain = facts if {*facts.variant.precisions} == {Precision.FP32} else None
    return tuple(find_faults(facts, find_reference(study.state, facts) or plain))


def _print_times(result: Result) -> None:
    """What an inference takes: estimated for the GPU that the engine is for, then as it was measured."""
    from rtlab.analyses.roofline import estimate_source
    from rtlab.documents.numbers import format_number

    if (batch := result.source.named_batch) > 1:
        print(f"an inference: {batch} samples, as named")
    if words := estimate_source(result.facts):
        sum_ = result.estimate.estimated if result.estimate else None
        print(
            f"estimate: {words}"
            if sum_ is None
            else f"whole inference: {format_number(sum_, 'ms')} ({words})"
        )
    times = result.timing
    if times is None:
        return
    print(f"whole inference: {format_number(times.shown, 'ms')} ({times.origin})")
    if tails := [f"p{p} {format_number(t, 'ms')}" for p, t in times.percentiles.items() if p > 50]:
        print(f"  of {times.inferences} inferences: {', '.join(tails)}")
    if times.scaled:
        print(f"  {times.processor} times of the layers are {times.scaled}")


def _overflow(result: Result) -> tuple[str, ...]:
    """What left the range of its type, in words."""
    if result.accuracy is None or not (overflows := [v for v in result.accuracy.values if v.overflowed]):
        return ()
    first = overflows[0]
    more = f", and in {len(overflows) - 1} more values" if len(overflows) > 1 else ""
    text = f'{first.overflowed} of {first.elements} elements of "{first.value}" overflow{more}'
    return (f"{text} (measured on {result.accuracy.samples} samples)",)


def _line(result: Result, study: Study, layer: Any, layer_name: str) -> tuple[str, ...]:
    from rtlab.documents.numbers import format_number
    from rtlab.relation.roles import SERVING

    pairs = sorted(result.mapping.of(layer.id), key=lambda p: study.model.by_id[p.node].index)
    nodes = [study.model.by_id[p.node] for p in pairs if p.role not in SERVING]
    time = result.layer_times.get(layer.id)
    errors = [e.sqnr for n in nodes if result.accuracy and (e := result.accuracy.of(n.id))]
    # An error that was not compared is shown as a dash.
    sqnr = "equal" if errors[-1:] == [float("inf")] else format_number(errors[-1] if errors else None, "dB")
    shared_note = f" /{time.shared}" if time and time.shared > 1 else ""
    estimates = _estimates_by_layer(result)
    point = estimates.get(layer.id)
    return (
        str(layer.index + 1),
        layer.kind,
        # Without the ONNX model, the compiler's own name says more.
        layer_name if study.model.nodes else layer.name,
        layer.precision or "—",
        *([format_number(point.estimated if point else None, "ms")] if estimates else []),
        format_number(time.median if time else None, "ms") + shared_note,
        sqnr,
    )


def _estimates_by_layer(result: Result) -> Mapping[str, Point]:
    """What each layer takes on the engine's GPU; empty where no estimate is given."""
    return result.estimate.by_layer if result.estimate is not None and result.estimate.coverage.enough else {}


def print_assessment(result: Result) -> None:
    """Where the time of an engine goes, and what is worth changing."""
    from rtlab.analyses.engine import Slice
    from rtlab.documents.results import ResultTable

    for title, slices in (("kind", result.kinds()), ("precision", result.precisions())):
        # What was pasted may have messages alone.
        if slices:
            print(f"\nlayers by {title}")
            print(ResultTable(Slice, slices, placeholder="not reported").text())
    count = len(result.findings)
    print(f"\n{count or 'no'} finding{'' if count == 1 else 's'}")
    for i, finding in enumerate(result.findings, 1):
        cost = f" · {finding.microseconds:.3g} µs (measured)" if finding.microseconds is not None else ""
        print(
            f"{i}. {finding.title}{cost}\n   {finding.cost}\n   {finding.fix}\n   evidence: {finding.evidence}"
        )


def print_fusion(answer: Verdict | FusedLayer) -> None:
    """Why nodes are one step or not, and the experiments that show it."""
    from rtlab.analyses.why import FusionTrial, SplitTrial, Verdict
    from rtlab.documents.results import ResultTable

    kind = FusionTrial if isinstance(answer, Verdict) else SplitTrial
    print(f"{answer.verdict}: {answer.text}" if isinstance(answer, Verdict) else answer.text)
    if answer.experiments:
        print(f"\n{ResultTable(kind, answer.experiments).text()}\n")
    taken = f"{answer.builds} builds in {answer.seconds:.2g} s (measured here); " if answer.builds else ""
    print(f"{taken}holds for {answer.compiler}, {answer.shapes}")
    if isinstance(answer, Verdict) and answer.elsewhere:
        print(answer.elsewhere)
    if answer.recalled:
        print(f"{answer.date_text}; --again asks anew")


def print_advice(fusion_advice: Advice) -> None:
    """Why fusions do not happen, cause by cause, and what remedies come to on the whole model."""
    from rtlab.analyses.why.advice import Cause, Remedy
    from rtlab.documents.results import ResultTable

    explained_count = sum(c.count for c in fusion_advice.causes)
    print(
        f"{fusion_advice.missed} missed fusions, {fusion_advice.worth} of them worth asking about; "
        f"{explained_count} explained by {fusion_advice.asked} questions: {fusion_advice.builds} builds in "
        f"{fusion_advice.seconds:.2g} s (measured here); holds for {fusion_advice.compiler}"
    )
    if fusion_advice.causes:
        print(f"\n{ResultTable(Cause, fusion_advice.causes).text()}")
    remedies = [c.remedy for c in fusion_advice.causes if c.remedy is not None]
    if remedies:
        print(f"\nremedies on the whole model\n{ResultTable(Remedy, remedies).text()}")
    if fusion_advice.every is not None:
        print(f"\ntogether: {', '.join(fusion_advice.every.rewrites)}")


def print_difference(engine_difference: Difference, study: Study, how: str = "") -> None:
    """What two engines take, and what their groups of nodes cost, those that differ most first."""
    from rtlab.analyses.difference.panel import summarize_difference
    from rtlab.analyses.panel_context import PanelContext
    from rtlab.analyses.panels import view_result

    context = PanelContext(study.state, study[engine_difference.second.name].facts)
    difference = summarize_difference(engine_difference, context)
    places = " and ".join(
        dict.fromkeys(s.engine.place for s in (engine_difference.first, engine_difference.second))
    )
    basis = how or (
        "no times of both" if engine_difference.totals is None else f"{engine_difference.origin} on {places}"
    )
    title = f"From {difference.before} to {difference.after}: {basis}"
    print(view_result("difference", context, difference, title))
