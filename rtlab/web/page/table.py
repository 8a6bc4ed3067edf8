"""Tables of variants: in the Explorer, as text and as HTML."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rtlab.analyses.accuracy import compute_accuracy, describe_random_inputs
from rtlab.analyses.roofline import estimate_source, estimate_timing
from rtlab.analyses.score import compare_scores, compute_score_delta, describe_score, find_reference
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.data import RANDOM
from rtlab.core.phrases import pluralize
from rtlab.documents.contract import Failure
from rtlab.documents.figure import SIGNS
from rtlab.documents.numbers import format_number, get_layer_noun
from rtlab.errors import BuildError, RtlabError, wrap_error
from rtlab.web.page.contract import VARIANT_COLUMNS, Chip

if TYPE_CHECKING:
    from rtlab.analyses.accuracy import Accuracy
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.schema import Origin


#: What a time was taken on, in the text of its source.
_PROCESSOR = re.compile(r"\b[CG]PU\b")


def describe_failure(error: BaseException, action: str = "build the variant", variant: str = "") -> Failure:
    """An error as the card shows it.

    ``action`` is what was attempted, continuing "Cannot", ``variant`` the name of the one that was built.
    """
    words = wrap_error(error, action) if isinstance(error, Exception) else RtlabError(str(error))
    refusal = words if isinstance(words, BuildError) else BuildError("")
    return Failure(
        kind=type(error).__name__,
        message=str(words),
        details=words.details[-20_000:],
        until=[*refusal.until],
        rewrites=[*refusal.rewrites],
        variant=variant,
    )


def build_chip(study: StudyState, name: str, *, baseline: str, building: str = "") -> Chip:
    """A variant in the table above the graphs of the Explorer."""
    result = study.results.get(name)
    error = study.failures.get(name)
    variant = study.variants[name]
    score, before = (
        result.score if result else None,
        study.results.get(baseline) if name != baseline else None,
    )
    score_difference = compare_scores(result, before) if result and before else None
    titles_by_name = get_variant_titles(study)
    estimate, times = (estimate_timing(result), compute_timing(result)) if result else (None, None)
    errors = compute_accuracy(result) if result else None
    sqnr = errors.output.sqnr if errors and errors.output else None
    return Chip(
        id=name,
        choice=variant.name,
        calibrator=variant.scales or str(variant.calibrator or ""),
        label=titles_by_name[name],
        # Two engines from elsewhere may have one precision; their names distinguish them.
        about=_precision(result) if result and result.recorded else "",
        target=result.engine.place if result and result.recorded else str(variant.target),
        status="building" if name == building else "failed" if error else "ready" if result else "planned",
        baseline=name == baseline,
        recorded=result is not None and result.recorded,
        predicted=result is not None and result.engine.maker.predicts,
        nodes=result.prepared.model.node_count if result else 0,
        layers=result.engine.layer_count if result else 0,
        counted=get_layer_noun(result.engine) if result else "layer",
        estimate=estimate.estimated if estimate else None,
        estimate_gpu=estimate.peaks.name if estimate else "",
        estimate_source=estimate_source(result) if result else "",
        time=times.shown if times else None,
        time_source=times.origin if times else "",
        score=score.value if score else None,
        score_delta=compute_score_delta(result, before) if result else None,
        score_unit=score.unit if score else "",
        score_worse=(score_difference.difference < 0) == score.higher
        if score and score_difference and score_difference.sure
        else False,
        score_told=describe_score(result, before, titles_by_name.get(baseline, "")) if result else "",
        score_source=f"{score.name}, measured, {score.source}" if score else "",
        sqnr=sqnr if sqnr is not None and math.isfinite(sqnr) else None,
        sqnr_told=_describe_output(errors) if errors else "",
        random=describe_random_inputs(result) if result else "",
        error=describe_failure(error, variant=name) if error else None,
        stages=list(result.stages.values()) if result and not result.recorded else [],
    )


def _describe_output(errors: Accuracy) -> str:
    """What a number of decibel does not say of the outputs: which part lost it, or that there is no number."""
    if errors.headline or errors.output is None or math.isfinite(errors.output.sqnr):
        return errors.headline
    return "equal to fp32" if errors.output.sqnr > 0 else "not finite"


def _precision(result: VariantResult) -> str:
    """Precision and processor of an engine from elsewhere, as far as its files have them."""
    has_types = any(layer.precision for layer in result.engine.layers)
    times = compute_timing(result)
    where = times.processor if times else "CPU" if result.engine.target.name == "cpu" else "GPU"
    return f"{result.variant.precision if has_types else 'types not reported'} · {where}"


def list_variant_rows(chips: Sequence[Chip]) -> list[list[str]]:
    """The headings, and what a table says of each variant; columns without any value are left out."""
    rows = [_cells(chip) for chip in chips]
    headings = {key: heading for key, (heading, _) in VARIANT_COLUMNS.items()} | {"note": "Note"}
    keys = [key for key in headings if any(row.get(key) for row in rows)]
    return [[headings[key] for key in keys], *([row.get(key) or "—" for key in keys] for row in rows)]


def _cells(chip: Chip) -> dict[str, str]:
    """Texts by the key of their column; the score has its difference to the baseline in words."""
    name = {
        "variant": f"{chip['label']} (baseline)" if chip["baseline"] else chip["label"],
        "calibrator": chip["calibrator"],
        "target": chip["target"],
    }
    if chip["status"] != "ready":
        return name | {"note": chip["error"]["message"] if chip["error"] else "not built yet"}
    layers = pluralize(chip["layers"], chip["counted"])
    processor = _PROCESSOR.search(chip["time_source"])
    sqnr = chip["sqnr_told"] or ("" if chip["sqnr"] is None else format_number(chip["sqnr"], "dB"))
    return name | {
        # An engine may be shown without its ONNX model.
        "layers": f"{chip['nodes'] or '—'} → {SIGNS['predicted' if chip['predicted'] else 'reported']} {layers}",
        "estimate": _time("estimated", chip["estimate"], chip["estimate_gpu"]),
        "time": _time("measured", chip["time"], processor[0] if processor else ""),
        "score": f"{SIGNS['measured']} {chip['score_told']}" if chip["score_told"] else "",
        "sqnr": f"{SIGNS['measured']} {sqnr}" if sqnr else "",
        "note": f"⚠ {RANDOM}: {chip['random']}" if chip["random"] else "",
    }


def _time(origin: Origin, time: float | None, processor: str) -> str:
    return "" if time is None else f"{SIGNS[origin]} {format_number(time, 'ms')} {processor}".rstrip()


def study_html(study: StudyState) -> str:
    """The summary that a notebook shows for a study."""
    references = {n: find_reference(study, r) for n, r in study.results.items()}
    chips = [
        build_chip(study, name, baseline=reference.name if (reference := references.get(name)) else "")
        for name in study.variants
    ]
    head, *rows = [[html.escape(cell) for cell in row] for row in list_variant_rows(chips)]
    table = [f"<th>{'</th><th>'.join(head)}</th>", *(f"<td>{'</td><td>'.join(row)}</td>" for row in rows)]
    results = study.results.values()
    origins = dict.fromkeys(filter(None, map(estimate_source, results)))
    origins |= dict.fromkeys(t.origin for r in results if (t := compute_timing(r)))
    return (
        f"<b>{html.escape(study.model.name)}</b><table>{''.join(f'<tr>{row}</tr>' for row in table)}</table>"
        f"<small>{'<br>'.join(html.escape(o) for o in origins)}</small>"
    )
