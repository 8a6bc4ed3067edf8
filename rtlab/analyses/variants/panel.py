"""All variants of a study side by side: targets, precisions, options, and what each of them changed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.score import compute_score_difference, find_reference, format_score
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.analyses.variants.variations import list_variations
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.contract import Figure
from rtlab.documents.figure import MAIN, OTHER, axis, figure
from rtlab.documents.numbers import choose_byte_unit, format_number, get_layer_heading, get_layer_noun
from rtlab.documents.panel import button
from rtlab.quantize.existing_qdq import find_quantized_nodes

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult


@dataclasses.dataclass(frozen=True)
class BuiltVariant:
    """A variant that was built or read: what it is, and what became of it.

    ``layers``, ``regions`` and ``steps`` count what its engine tells, of which there is one: what steps of different
    compilers do is not the same. Bytes and times are None where they are not reported.
    """

    name: Annotated[str, FieldMeta(links="variants")]
    title: Annotated[str, FieldMeta("Variant")]
    precision: Annotated[str, FieldMeta("Precision")]
    target: Annotated[str, FieldMeta("Target")]
    options: Annotated[str, FieldMeta("Options")]
    layers: Annotated[int | None, FieldMeta("Layers", origin="{self.counted}", omit=True)]
    regions: Annotated[int | None, FieldMeta("Regions", origin="{self.counted}", omit=True)]
    steps: Annotated[int | None, FieldMeta("{of.kind}", omit=True)]
    streams: Annotated[int, FieldMeta("Streams")]
    memory: Annotated[int | None, FieldMeta("Memory", "B", "{self.totals_origin}")]
    weights: Annotated[int | None, FieldMeta("Weights", "B", "{self.totals_origin}")]
    build: Annotated[float | None, FieldMeta("Build", "s", "{self.built}")]
    latency: Annotated[float | None, FieldMeta("Latency", "ms", "measured")]
    processor: Annotated[str, FieldMeta("Measured on")]
    score: Annotated[str, FieldMeta("Score")]
    drop: Annotated[str | None, FieldMeta("To the baseline", origin="measured", omit=True)]
    built: Annotated[Origin, UNSENT]
    totals_origin: Annotated[Origin, UNSENT]
    counted: Annotated[str, UNSENT]
    note: Annotated[str, UNSENT]


@dataclasses.dataclass(frozen=True)
class BuiltVariants:
    """All variants of a study; ``kind`` is what the steps of those are called that are neither layers nor regions."""

    count: Annotated[int, FieldMeta("Variants")]
    engine: Annotated[str, FieldMeta("Engine shown")]
    options: Annotated[str | None, FieldMeta("Options", omit=True)]
    kind: str
    variants: tuple[BuiltVariant, ...]
    notes: tuple[str, ...]


def analyze_variants(context: PanelContext) -> BuiltVariants:
    """All variants that are built, the one that is asked about marked."""
    results, here, titles = [*context.study.results.values()], context.result, _mark_titles(context)
    return BuiltVariants(
        count=len(results),
        engine=here.engine.title,
        options=None if here.variant.options is None else str(here.variant.options),
        kind=", ".join(dict.fromkeys(get_layer_heading(r.engine) for r in results if r.engine.maker.step)),
        variants=tuple(_row(context, r, titles[r.name]) for r in results),
        notes=(*_notes(results), *(f"{titles[n]}: {e}" for n, e in context.study.failures.items())),
    )


def build_variants_panel(context: PanelContext) -> PanelParts:
    """One row per variant that is built, and buttons that build those which differ in one choice."""
    here = context.result
    choices = list_variations(here.name, here.variant, here, find_quantized_nodes(here.source))
    return PanelParts(
        result=analyze_variants(context),
        work=[button("rebuild", label, reason, what=what) for what, (label, reason) in choices.items()],
        figures=[_draw_comparison(context)] if len(context.study.results) > 1 else [],
    )


def _mark_titles(context: PanelContext) -> dict[str, str]:
    """Titles by name, with a mark before that of the variant shown."""
    titles = get_variant_titles(context.study)
    return {n: f"▸ {title}" if n == context.result.name else title for n, title in titles.items()}


def _row(context: PanelContext, result: VariantResult, title: str) -> BuiltVariant:
    before = context.baseline or find_reference(context.study, result)
    before_title = get_variant_titles(context.study)[before.name] if before is not None else ""
    engine, times, variant = result.engine, compute_timing(result), result.variant
    sparse = f"2:4 {','.join(variant.sparsity)}".replace(" *", "") if variant.sparsity else ""
    kind, count = get_layer_noun(engine), engine.layer_count
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
        score=format_score(result.score) if result.score else "",
        drop=compute_score_difference(result, before, before_title),
        built="reported" if result.recorded or engine.recorded else "measured",
        totals_origin=engine.origin,
        counted="predicted" if engine.maker.predicts else "",
        note=engine.title,
    )


def _kinds(results: list[VariantResult]) -> list[str]:
    """What steps of these engines are called, the layers of compilers first: they are counted apart."""
    kinds = {get_layer_noun(r.engine): bool(r.engine.maker.step) for r in results}
    return sorted(sorted(kinds), key=kinds.__getitem__)


def _draw_comparison(context: PanelContext) -> Figure:
    """Layers on the left, and where it is reported the memory of activations on the right, on one axis of variants.

    Layers are those of the compiled engines; ONNX Runtime's nodes are drawn where there is nothing else.
    """
    results, titles = [*context.study.results.values()], _mark_titles(context)
    kind = _kinds(results)[0]
    counts = [r.engine.layer_count for r in results]
    layers = [n if get_layer_noun(r.engine) == kind else None for n, r in zip(counts, results, strict=True)]
    activation_bytes = [r.engine.totals.get("activation") for r in results]
    unit, scale = choose_byte_unit(max(b or 0 for b in activation_bytes))
    activations = [b / scale if b else None for b in activation_bytes]
    same = {
        "type": "bar",
        "orientation": "h",
        "y": [titles[r.name] for r in results],
        "marker": {"color": [OTHER if r is context.result else MAIN for r in results]},
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
        "x": activations,
        "xaxis": "x2",
        "text": [format_number(a) if a else "" for a in activations],
        "hovertemplate": f"%{{y}}: %{{text}} {unit} of activations<extra>reported</extra>",
    }
    has_memory = any(activations)
    # Room for the numbers beside the longest bars.
    layer_range = [0, 1.18 * max(n or 0 for n in layers)]
    memory_range = [0, 1.3 * max(a or 0 for a in activations) or 1]
    origins = " or ".join(dict.fromkeys(r.engine.origin for r in results))
    return figure(
        f"{kind[:1].upper()}{kind[1:]}s and memory of {len(results)} variants",
        [bars, memory] if has_memory else [bars],
        xaxis=axis(f"{kind}s, {origins}", domain=[0, 0.48 if has_memory else 1], range=layer_range),
        xaxis2=axis(f"activations, {unit}, reported", domain=[0.52, 1], range=memory_range),
        yaxis=axis(type="category", autorange="reversed", showgrid=False),
    )


def _notes(results: list[VariantResult]) -> list[str]:
    notes = []
    if len(kinds := _kinds(results)) > 1:
        notes.append(
            f"A {kinds[0]} of a compiled engine may run many nodes, a node of ONNX Runtime's graph is one or few of "
            "them: the two are counted apart, and the figure shows those of compiled engines."
        )
    untold = (r.engine for r in results if r.variant.sparsity and r.engine.maker.tunes == "load")
    notes += dict.fromkeys(
        f"{engine.compiler}'s listing does not report which kernels use 2:4 sparsity: the GPU decides that at load."
        for engine in untold
        if "sparsity" not in engine.maker.reports
    )
    notes += dict.fromkeys(
        f"Times on the CPU are those of {r.measured.compiler}'s kernels, which know neither target nor options of "
        "TensorRT."
        for r in results
        if r.measured and (t := compute_timing(r)) and t.processor == "CPU"
    )
    return notes
