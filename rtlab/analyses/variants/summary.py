"""A row of numbers for each variant of a study, planned, failed and built ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.accuracy import compute_accuracy, describe_random_inputs
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.score import compute_score_delta, find_reference
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import format_size
from rtlab.documents.numbers import get_layer_noun
from rtlab.documents.results import ResultTable

if TYPE_CHECKING:
    import pandas as pd

    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.variant import Variant


@dataclasses.dataclass(frozen=True)
class VariantSummary:
    """What a variant is, and its numbers; None and empty where there is none, never 0.

    ``status`` is planned, failed, built or read. ``sizes`` are those that differ from the study's. ``layers`` counts
    those of ``counted``, without sync and jump entries. ``estimate_ms`` is one inference on ``estimate_gpu``,
    ``time_ms`` the median of those on ``processor``.
    ``output_sqnr`` is that of the output, or the part of one, that fares worst, over ``compared`` samples; infinite
    where all are equal to fp32. ``score_delta`` is the difference to the fp32 variant, ``scored`` counts the samples of
    the score. ``random_input`` names what rests on random samples.
    """

    variant: Annotated[str, FieldMeta(links="variants")]
    title: Annotated[str, FieldMeta("Variant")]
    status: str
    precision: Annotated[str, FieldMeta("Precision")]
    calibrator: Annotated[str, FieldMeta("Calibrator", omit=True)]
    target: Annotated[str, FieldMeta("Target")]
    backend: Annotated[str, FieldMeta("Backend", omit=True)]
    sizes: Annotated[str, FieldMeta("Sizes", omit=True)] = ""
    nodes: Annotated[int | None, FieldMeta("Nodes")] = None
    layers: Annotated[int | None, FieldMeta("Layers", origin="{self.layers_origin}")] = None
    layers_origin: Annotated[str, FieldMeta()] = ""
    counted: str = ""
    estimate_ms: Annotated[float | None, FieldMeta("GPU time", "ms", "estimated", omit=True)] = None
    estimate_gpu: Annotated[str, FieldMeta("GPU", omit=True)] = ""
    time_ms: Annotated[float | None, FieldMeta("Time", "ms", "measured", omit=True)] = None
    processor: Annotated[str, FieldMeta("Measured on", omit=True)] = ""
    output_sqnr: Annotated[
        float | None, FieldMeta("Worst output SQNR", "dB", "measured", infinite=True, omit=True)
    ] = None
    compared: int | None = None
    score: Annotated[float | None, FieldMeta("Score", "", "measured", infinite=True, omit=True)] = None
    score_delta: Annotated[float | None, FieldMeta("To fp32", "", "measured", infinite=True, omit=True)] = (
        None
    )
    metric: Annotated[str, FieldMeta("Metric", omit=True)] = ""
    unit: Annotated[str, FieldMeta("Unit", omit=True)] = ""
    scored: int | None = None
    random_input: Annotated[str, FieldMeta("Random input", omit=True)] = ""
    error: str = ""


def summarize_variant(
    result: VariantResult, *, title: str = "", reference: VariantResult | None = None
) -> VariantSummary:
    """The row of a variant that was built or read; ``reference`` is the one that its score is compared with."""
    engine, score = result.engine, result.score
    estimate, times, errors = estimate_timing(result), compute_timing(result), compute_accuracy(result)
    return dataclasses.replace(
        describe_variant(result.name, result.variant, title),
        status="read" if result.recorded else "built",
        target=engine.place if result.recorded else str(result.variant.target),
        backend=engine.backend,
        nodes=result.prepared.model.node_count or None,
        layers=engine.layer_count,
        layers_origin="predicted" if engine.maker.predicts else "reported",
        counted=get_layer_noun(engine),
        estimate_ms=estimate.estimated if estimate else None,
        estimate_gpu=estimate.peaks.name if estimate and estimate.estimated else "",
        time_ms=times.shown if times else None,
        processor=times.processor if times else "",
        output_sqnr=errors.output.sqnr if errors and errors.output else None,
        compared=errors.samples if errors else None,
        score=score.value if score else None,
        score_delta=compute_score_delta(result, reference),
        metric=score.name if score else "",
        unit=score.unit if score else "",
        scored=score.samples if score else None,
        random_input=describe_random_inputs(result),
    )


def describe_variant(name: str, variant: Variant, title: str = "") -> VariantSummary:
    """The row of a variant that is planned."""
    return VariantSummary(
        variant=name,
        title=title or name,
        status="planned",
        precision="mixed" if len(variant.precisions) > 1 else str(variant.precision),
        calibrator=str(variant.calibrator or ""),
        target=str(variant.target),
        backend=variant.backend or "",
        sizes=", ".join(map(format_size, variant.sizes)),
    )


def list_summaries(study: StudyState) -> tuple[VariantSummary, ...]:
    """A row for each variant, in the order in which they were added."""
    rows = []
    for name, title in get_variant_titles(study).items():
        if (result := study.results.get(name)) is not None:
            rows.append(summarize_variant(result, title=title, reference=find_reference(study, result)))
            continue
        row = describe_variant(name, study.variants[name], title)
        if (error := study.failures.get(name)) is not None:
            row = dataclasses.replace(row, status="failed", error=str(error))
        rows.append(row)
    return tuple(rows)


def variants_frame(study: StudyState) -> pd.DataFrame:
    """The rows of ``list_summaries`` for pandas, under the names of the variants."""
    frame: pd.DataFrame = ResultTable(VariantSummary, list_summaries(study)).frame().set_index("variant")
    return frame
