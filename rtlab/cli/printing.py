"""Variants and comparisons in words, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab.cli.opening import spoken

if TYPE_CHECKING:
    from rtlab.questions.difference.diff import Difference
    from rtlab.questions.roofline.roofs import Point
    from rtlab.questions.why import Verdict
    from rtlab.questions.why.advice import Advice
    from rtlab.questions.why.joined import Joined
    from rtlab.study import Result, Study


def variant(result: Result, study: Study) -> None:
    """A variant: what it is, what an inference takes, and a line for each layer."""
    from rtlab.core.data import RANDOM
    from rtlab.documents.answer import aligned
    from rtlab.documents.numbers import counted
    from rtlab.questions.cards.card import names
    from rtlab.questions.titles import titles
    from rtlab.view.chrome import random_words
    from rtlab.view.table import computing

    engine = result.engine
    # A file of names only tells no types, a log that was cut off no layers.
    told = not result.recorded or any(y.precision for y in engine.layers)
    # An engine from elsewhere is known by its types; its name is only what this command calls it.
    named = result.variant.name if result.recorded else titles(study.snapshot())[result.name]
    types = named if told else "types not told"
    print(f"{study.model.name} · {types}: {computing(result.prepared.model)} nodes → "
          f"{len(engine.layers) - engine.sync} {counted(engine)}s"
          + (f" and {engine.sync} steps that order the streams" if engine.sync else "")
          + "".join(f"; {fault}" for fault in _find_faults(result, study)))  # fmt: skip
    if result.recorded:
        known = result.coverage
        shown = f"; {known.nodes} of {known.all_nodes} nodes are in a layer, {known.explained} more explained"
        print(f"read: {engine.title}{shown if study.model.nodes and engine.layers else ''}")
    else:
        where = "reported" if engine.recorded else "measured here"
        print(f"{engine.provenance}; building it took {engine.seconds:.2g} s ({where})")
    _print_times(result)
    if result.score:
        from rtlab import questions

        score = questions.score.words(result.facts, questions.score.reference(study.snapshot(), result.facts))
        print(f"{result.score.name}: {score} (measured on held-out samples, {result.score.source})")
    for standing in result.missing:
        # Whoever asked for no more than the build knows it.
        if standing.why != "not asked":
            print(f"{spoken(standing.text)}{'; give more with --budget' if standing.why == 'budget' else ''}")
    noise = f"{words} with --data D.npz" if (words := random_words(result.facts)) else ""
    for note in filter(None, (noise, *result.prepared.notes, *engine.notes, *_overflow(result))):
        print(f"note: {note}")
    called = names(result.facts, study.model)
    rows = [_line(result, study, layer, called[layer.id]) for layer in engine.layers]
    time = f"{result.timing.processor} time" if result.timing else "time"
    gpu = [f"{result.estimate.peaks.name} (estimated)"] if result.estimate and _estimated(result) else []
    noisy = result.accuracy is not None and result.accuracy.synthetic
    errors = f"SQNR, {RANDOM}" if noisy else "SQNR"
    print(
        aligned(("step", "kind", "layer" if study.model.nodes else "name", "type", *gpu, time, errors), rows)
    )
    if result.mapping.missing:
        print("\nnodes without a layer")
        print(
            aligned(
                ("node", "reason"),
                [(study.model.by_id[m.node].title, m.reason) for m in result.mapping.missing],
            )
        )


def _find_faults(result: Result, study: Study) -> tuple[str, ...]:
    """What is wrong with the outputs, in words."""
    from rtlab import questions
    from rtlab.core.variant import Precision
    from rtlab.questions.check.numbers import find_faults

    facts = result.facts
    plain = facts if {*facts.variant.precisions} == {Precision.FP32} else None
    return tuple(find_faults(facts, questions.score.reference(study.snapshot(), facts) or plain))


def _print_times(result: Result) -> None:
    """What an inference takes: estimated for the GPU that the engine is for, then as it was measured."""
    from rtlab.documents.numbers import number
    from rtlab.questions.roofline import estimate_source

    if (batch := result.source.named_batch) > 1:
        print(f"an inference: {batch} samples, as named")
    if words := estimate_source(result.facts):
        sum_ = result.estimate.estimated if result.estimate else None
        print(f"estimate: {words}" if sum_ is None else f"whole inference: {number(sum_, 'ms')} ({words})")
    times = result.timing
    if times is None:
        return
    print(f"whole inference: {number(times.shown, 'ms')} ({times.origin})")
    if tails := [f"p{p} {number(t, 'ms')}" for p, t in times.percentiles.items() if p > 50]:
        print(f"  of {times.inferences} inferences: {', '.join(tails)}")
    if times.scaled:
        print(f"  {times.processor} times of the layers are {times.scaled}")


def _overflow(result: Result) -> tuple[str, ...]:
    """What left the range of its type, in words."""
    values = result.accuracy.values if result.accuracy else ()
    made = [v for v in values if v.overflowed]
    if not made:
        return ()
    first = made[0]
    more = f", and in {len(made) - 1} more values" if len(made) > 1 else ""
    text = f'{first.overflowed} of {first.elements} elements of "{first.value}" overflow{more}'
    return (f"{text} (measured on {result.accuracy.samples if result.accuracy else 0} samples)",)


def _line(result: Result, study: Study, layer: Any, called: str) -> tuple[str, ...]:
    from rtlab.documents.numbers import number
    from rtlab.relation.roles import SERVING

    pairs = sorted(result.mapping.of(layer.id), key=lambda p: study.model.by_id[p.node].index)
    nodes = [study.model.by_id[p.node] for p in pairs if p.role not in SERVING]
    time = result.layer_times.get(layer.id)
    scale = result.timing.scale if result.timing else 1.0
    errors = [e.sqnr for n in nodes if result.accuracy and (e := result.accuracy.of(n.id))]
    sqnr = "equal" if errors and errors[-1] == float("inf") else number(errors[-1], "dB") if errors else "—"
    shared = f" /{time.shared}" if time and time.shared > 1 else ""
    return (
        str(layer.index + 1),
        layer.kind,
        # Without the ONNX model, the compiler's own name tells more.
        called if study.model.nodes else layer.name,
        layer.precision or "—",
        *(
            [number(found.estimated if (found := points.get(layer.id)) else None, "ms")]
            if (points := _estimated(result))
            else []
        ),
        number(time.median * scale if time else None, "ms") + shared,
        sqnr,
    )


def _estimated(result: Result) -> Mapping[str, Point]:
    """What each layer takes on the engine's GPU; empty where no estimate is given."""
    return result.estimate.by_layer if result.estimate is not None and result.estimate.known.enough else {}


def judgement(result: Result) -> None:
    """Where the time of an engine goes, what the builder did, and what is worth changing."""
    from rtlab.documents.answer import NounTable
    from rtlab.questions.engine.breakdown import Slice

    for title, slices in (("kind", result.kinds()), ("precision", result.precisions())):
        print(f"\nlayers by {title}")
        print(NounTable(Slice, slices, untold="not told").text())
    if (log := result.log) and log.attempts:
        counts = " → ".join(map(str, log.attempts[log.chosen].counts))
        print(f"\nlayers after each pass ({result.engine.origin}): {counts}")
    count = len(result.findings)
    print(f"\n{count or 'no'} finding{'' if count == 1 else 's'}")
    for i, found in enumerate(result.findings, 1):
        cost = f" · {found.microseconds:.3g} µs (measured)" if found.microseconds is not None else ""
        print(f"{i}. {found.title}{cost}\n   {found.cost}\n   {found.fix}\n   evidence: {found.evidence}")


def fusion(found: Verdict | Joined) -> None:
    """Why nodes are one step or not, and the experiments that show it."""
    from rtlab.documents.answer import NounTable
    from rtlab.questions.why import FusionTrial, Verdict
    from rtlab.questions.why.joined import Parting

    kind = FusionTrial if isinstance(found, Verdict) else Parting
    print(f"{found.verdict}: {found.text}" if isinstance(found, Verdict) else found.text)
    if found.experiments:
        print(f"\n{NounTable(kind, found.experiments).text()}\n")
    taken = f"{found.builds} builds in {found.seconds:.2g} s (measured here); " if found.builds else ""
    print(f"{taken}holds for {found.compiler}, {found.shapes}")
    if isinstance(found, Verdict) and found.elsewhere:
        print(found.elsewhere)
    if found.recalled:
        print(f"{found.dated}; --again asks anew")


def advice(found: Advice) -> None:
    """Why fusions do not happen, cause by cause, and what remedies come to on the whole model."""
    from rtlab.documents.answer import NounTable
    from rtlab.questions.why.advice import Cause, Remedy

    covered = sum(c.count for c in found.causes)
    print(
        f"{found.missed} missed fusions, {covered} of them explained by {found.asked} questions: {found.builds} builds "
        f"in {found.seconds:.2g} s (measured here); holds for {found.compiler}"
    )
    if found.causes:
        print(f"\n{NounTable(Cause, found.causes).text()}")
    remedies = [c.remedy for c in found.causes if c.remedy is not None]
    if remedies:
        print(f"\nremedies on the whole model\n{NounTable(Remedy, remedies).text()}")
    if found.every is not None:
        print(f"\ntogether: {', '.join(found.every.rewrites)}")


def difference(found: Difference, study: Study, how: str = "") -> None:
    """What two engines take, and what their groups of nodes cost, those that differ most first."""
    from rtlab.questions.difference.answer import time_difference
    from rtlab.questions.difference.panel import DIFFERENCE
    from rtlab.questions.scene import Scene

    scene = Scene(study.snapshot(), study.facts_of(found.second.name))
    noun = time_difference(found, found.largest(len(found.groups)) or found.groups, scene)
    places = " and ".join(dict.fromkeys(s.engine.place for s in (found.first, found.second)))
    told = how or ("no times of both" if found.totals is None else f"{found.origin} on {places}")
    print(DIFFERENCE.answer(scene, noun, f"From {noun.before} to {noun.after}: {told}"))
