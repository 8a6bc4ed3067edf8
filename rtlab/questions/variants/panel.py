"""All variants of a study side by side: targets, precisions, options, and what each of them changed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab import questions
from rtlab.core.schema import UNSENT, Meaning, Origin
from rtlab.documents.contract import Figure, Panel
from rtlab.documents.figure import MAIN, OTHER, axis, figure
from rtlab.documents.numbers import counted, number, steps, storage_unit
from rtlab.documents.panel import button
from rtlab.quantize.own import quantized
from rtlab.questions.scene import Question, Scene
from rtlab.questions.titles import titles
from rtlab.questions.variants.variations import offered

if TYPE_CHECKING:
    from rtlab.core.facts import Facts

_LEAD = (
    "One choice at a time: build the same model for another GPU, with other options or sparse weights, and see what "
    "became of its layers."
)


@dataclasses.dataclass(frozen=True)
class BuiltVariant:
    """A variant that was built or read: what it is, and what became of it.

    ``layers``, ``regions`` and ``steps`` count what its engine tells, of which there is one: what steps of different
    compilers do is not the same. Bytes and times are None where they are not told.
    """

    name: Annotated[str, Meaning(links="variants")]
    title: Annotated[str, Meaning("Variant")]
    precision: Annotated[str, Meaning("Precision")]
    target: Annotated[str, Meaning("Target")]
    options: Annotated[str, Meaning("Options")]
    layers: Annotated[int | None, Meaning("Layers", origin="{self.counted}", omit=True)]
    regions: Annotated[int | None, Meaning("Regions", origin="{self.counted}", omit=True)]
    steps: Annotated[int | None, Meaning("{of.kind}", omit=True)]
    streams: Annotated[int, Meaning("Streams")]
    memory: Annotated[int | None, Meaning("Memory", "B", "{self.told}")]
    weights: Annotated[int | None, Meaning("Weights", "B", "{self.told}")]
    build: Annotated[float | None, Meaning("Build", "s", "{self.built}")]
    latency: Annotated[float | None, Meaning("Latency", "ms", "measured")]
    processor: Annotated[str, Meaning("Measured on")]
    score: Annotated[str, Meaning("Score")]
    drop: Annotated[str | None, Meaning("To the baseline", origin="measured", omit=True)]
    built: Annotated[Origin, UNSENT]
    told: Annotated[Origin, UNSENT]
    counted: Annotated[str, UNSENT]
    note: Annotated[str, UNSENT]


@dataclasses.dataclass(frozen=True)
class BuiltVariants:
    """All variants of a study; ``kind`` is what the steps of those are called that are neither layers nor regions."""

    count: Annotated[int, Meaning("Variants")]
    engine: Annotated[str, Meaning("Engine shown")]
    options: Annotated[str | None, Meaning("Options", omit=True)]
    kind: str
    variants: tuple[BuiltVariant, ...]
    notes: tuple[str, ...]


def told(scene: Scene) -> BuiltVariants:
    """All variants that are built, the one that is asked about marked."""
    results, here, called = list(scene.study.facts.values()), scene.result, _called(scene)
    return BuiltVariants(
        count=len(results),
        engine=here.engine.title,
        options=None if here.variant.options is None else str(here.variant.options),
        kind=", ".join(dict.fromkeys(steps(r.engine) for r in results if r.engine.maker.step)),
        variants=tuple(_row(r, called[r.name], _drop(scene, r)) for r in results),
        notes=(*_notes(results), *(f"{called[n]}: {e}" for n, e in scene.study.failures.items())),
    )


def variants(scene: Scene) -> Panel:
    """One row per variant that is built, and buttons that build those which differ in one choice."""
    here, several = scene.result, len(scene.study.facts) > 1
    return VARIANTS.panel(
        scene,
        told(scene),
        work=[
            button("rebuild", label, reason, what=what)
            for what, (label, reason) in offered(
                here.name, here.variant, here, quantized(here.source)
            ).items()
        ],
        figures=[_figure(scene)] if several else [],
    )


def _called(scene: Scene) -> dict[str, str]:
    """Titles by name, with a mark before that of the variant shown."""
    shown = scene.result.name
    return {n: f"▸ {title}" if n == shown else title for n, title in titles(scene.study).items()}


def _drop(scene: Scene, result: Facts) -> str | None:
    """The score beside that of the baseline, in words."""
    before = scene.baseline or questions.score.reference(scene.study, result)
    return questions.score.difference(
        result, before, titles(scene.study)[before.name] if before is not None else ""
    )


def _row(result: Facts, title: str, drop: str | None) -> BuiltVariant:
    engine, times, variant = result.engine, questions.timing.of(result), result.variant
    sparse = f"2:4 {','.join(variant.sparsity)}".replace(" *", "") if variant.sparsity else ""
    kind, count = counted(engine), len(engine.layers) - engine.sync
    return BuiltVariant(
        name=result.name,
        title=title,
        precision="mixed" if len(variant.precisions) > 1 else str(variant.precision),
        target=engine.place,
        options=" ".join(filter(None, (str(variant.options or ""), sparse))),
        layers=count if kind == "layer" else None,
        regions=count if kind == "region" else None,
        steps=count if engine.maker.step else None,
        streams=len({y.stream for y in engine.layers}),
        memory=engine.totals.get("activation") or None,
        weights=engine.totals.get("weights") or None,
        build=engine.seconds or None,
        latency=times.total if times else None,
        processor=times.processor if times else "",
        score=questions.score.short(result.score) if result.score else "",
        drop=drop,
        built="reported" if result.recorded or engine.recorded else "measured",
        told=engine.origin,
        counted="predicted" if engine.maker.predicts else "",
        note=engine.title,
    )


def _kinds(results: list[Facts]) -> list[str]:
    """What steps of these engines are called, the layers of compilers first: they are counted apart."""
    kinds = {counted(r.engine): bool(r.engine.maker.step) for r in results}
    return sorted(sorted(kinds), key=kinds.__getitem__)


def _by(nbytes: int | None, scale: float) -> float | None:
    return nbytes / scale if nbytes else None


def _figure(scene: Scene) -> Figure:
    """Layers on the left, and where it is told the memory of activations on the right, on one axis of variants.

    Layers are those of the compiled engines; ONNX Runtime's nodes are drawn where there is nothing else.
    """
    results, called = list(scene.study.facts.values()), _called(scene)
    kind = _kinds(results)[0]
    layers = [len(r.engine.layers) - r.engine.sync if counted(r.engine) == kind else None for r in results]
    kept = [r.engine.totals.get("activation") for r in results]
    unit, scale = storage_unit(max(b or 0 for b in kept))
    same = {
        "type": "bar",
        "orientation": "h",
        "y": [called[r.name] for r in results],
        "marker": {"color": [OTHER if r is scene.result else MAIN for r in results]},
        "textposition": "outside",
        "constraintext": "none",
        "cliponaxis": False,
    }
    bars = {
        **same,
        "x": layers,
        "text": layers,
        "customdata": [r.engine.origin for r in results],
        "hovertemplate": f"%{{y}}: %{{x}} {kind}s<extra>%{{customdata}}</extra>",
    }
    memory = {
        **same,
        "x": [_by(b, scale) for b in kept],
        "xaxis": "x2",
        "text": [number(_by(b, scale)) if b else "" for b in kept],
        "hovertemplate": f"%{{y}}: %{{text}} {unit} of activations<extra>reported</extra>",
    }
    told = any(kept)
    return figure(
        f"{kind[:1].upper()}{kind[1:]}s and memory of {len(results)} variants",
        [bars, memory] if told else [bars],
        # Room for the numbers beside the longest bars.
        xaxis=axis(
            f"{kind}s, {' or '.join(dict.fromkeys(r.engine.origin for r in results))}",
            domain=[0, 0.48 if told else 1],
            range=[0, 1.18 * max(n for n in layers if n is not None)],
        ),
        xaxis2=axis(
            f"activations, {unit}, reported",
            domain=[0.52, 1],
            range=[0, 1.3 * max(_by(b, scale) or 0 for b in kept) or 1],
        ),
        yaxis=axis(type="category", autorange="reversed", showgrid=False),
    )


def _notes(results: list[Facts]) -> list[str]:
    notes = []
    if len(kinds := _kinds(results)) > 1:
        notes.append(
            f"A {kinds[0]} of a compiled engine may run many nodes, a node of ONNX Runtime's graph is one or few of "
            "them: the two are counted apart, and the figure shows those of compiled engines."
        )
    told = [r.name for r in results if (r.recorded or r.engine.recorded) and r.engine.seconds]
    if told and len(told) < len(results):
        notes.append(f"The time of the build is reported of {', '.join(told)}, and measured of the others.")
    if (made := [r.name for r in results if r.engine.maker.predicts]) and len(made) < len(results):
        notes.append(f"The layers of {', '.join(made)} are predicted by rules: no compiler made them.")
    untold = (r.engine for r in results if r.variant.sparsity and r.engine.maker.tunes == "load")
    notes += dict.fromkeys(
        f"{engine.compiler}'s listing does not tell which kernels use 2:4 sparsity; that is decided on the GPU at load."
        for engine in untold
        if "sparsity" not in engine.maker.reports
    )
    notes += dict.fromkeys(
        f"Times on the CPU are those of {r.measured.compiler}'s kernels, which know neither target nor options of "
        "TensorRT."
        for r in results
        if r.measured and (t := questions.timing.of(r)) and t.processor == "CPU"
    )
    return notes


VARIANTS = Question(
    "variants",
    tab="compare",
    label="Variants",
    title="Variants side by side",
    lead=_LEAD,
    told="All variants in one table, and others to build from this one.",
    noun=told,
    drawn=variants,
    each=True,
)
