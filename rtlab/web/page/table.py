"""Tables: variants as chips and as HTML, and numbers as text."""

from __future__ import annotations

import html
import math
import re
from typing import TYPE_CHECKING

from rtlab.analyses.accuracy import compute_accuracy, describe_random_inputs
from rtlab.analyses.roofline import estimate_source, estimate_timing
from rtlab.analyses.score import compare_scores, describe_score, find_reference
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.data import RANDOM
from rtlab.core.phrases import pluralize
from rtlab.documents.contract import Failure
from rtlab.documents.figure import SIGNS
from rtlab.documents.numbers import format_number, get_layer_noun
from rtlab.errors import BuildError, RtlabError, wrap_error
from rtlab.web.page.contract import Chip

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult


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
    """A variant in the second row of the Explorer."""
    result = study.results.get(name)
    error = study.failures.get(name)
    variant = study.variants[name]
    score, before = (
        result.score if result else None,
        study.results.get(baseline) if name != baseline else None,
    )
    delta = score.value - before.score.value if score and before and before.score else None
    score_difference = compare_scores(result, before) if result and before else None
    titles_by_name = get_variant_titles(study)
    estimate, times = (estimate_timing(result), compute_timing(result)) if result else (None, None)
    return Chip(
        id=name,
        choice=variant.name,
        label=titles_by_name[name],
        # Two engines from elsewhere may have one precision; their names distinguish them.
        about=_precision(result) if result and result.recorded else "",
        target=result.engine.place if result and result.recorded else str(variant.target),
        status="building" if name == building else "failed" if error else "ready",
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
        score_delta=delta,
        score_unit=score.unit if score else "",
        score_worse=(score_difference.difference < 0) == score.higher
        if score and score_difference and score_difference.sure
        else False,
        score_told=describe_score(result, before, titles_by_name.get(baseline, "")) if result else "",
        score_source=f"{score.name}, measured, {score.source}" if score else "",
        random=describe_random_inputs(result) if result else "",
        error=describe_failure(error, variant=name) if error else None,
        stages=list(result.stages.values()) if result and not result.recorded else [],
    )


def _precision(result: VariantResult) -> str:
    """Precision and processor of an engine from elsewhere, as far as its files have them."""
    has_types = any(layer.precision for layer in result.engine.layers)
    times = compute_timing(result)
    where = times.processor if times else "CPU" if result.engine.target.name == "cpu" else "GPU"
    return f"{result.variant.precision if has_types else 'types not reported'} · {where}"


def list_chip_cells(chip: Chip) -> tuple[str, str, str, str, str]:
    """What a table says of a built variant: name, target, nodes and layers, times with their signs, and its score."""
    times = []
    if chip["estimate"] is not None:
        times.append(f"{SIGNS['estimated']} {format_number(chip['estimate'], 'ms')} {chip['estimate_gpu']}")
    if chip["time"] is not None:
        processor = _PROCESSOR.search(chip["time_source"])
        measured = f"{SIGNS['measured']} {format_number(chip['time'], 'ms')}"
        times.append(f"{measured} {processor[0]}" if processor else measured)
    layers = pluralize(chip["layers"], chip["counted"])
    return (
        chip["label"],
        chip["target"],
        # An engine may be shown without its ONNX model.
        f"{chip['nodes'] or '—'} → {SIGNS['predicted' if chip['predicted'] else 'reported']} {layers}",
        ", ".join(times) or "—",
        f"{SIGNS['measured']} {chip['score_told']}" if chip["score_told"] else "—",
    )


def study_html(study: StudyState) -> str:
    """The summary that a notebook shows for a study."""
    rows = []
    for name, title in get_variant_titles(study).items():
        result = study.results.get(name)
        if result is None:
            state = str(study.failures.get(name, "not built yet"))
            cells: tuple[str, ...] = (title, str(study.variants[name].target), state, "", "", "")
        else:
            reference = find_reference(study, result)
            chip = build_chip(study, name, baseline=reference.name if reference else "")
            cells = (*list_chip_cells(chip), _describe_output_error(result))
        rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    columns = ("variant", "target", "nodes → layers", "time", "task", "output SQNR")
    head = "".join(f"<th>{column}</th>" for column in columns)
    results = study.results.values()
    origins = dict.fromkeys(filter(None, map(estimate_source, results)))
    origins |= dict.fromkeys(t.origin for r in results if (t := compute_timing(r)))
    return (
        f"<b>{html.escape(study.model.name)}</b><table><tr>{head}</tr>"
        f"{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
        f"<small>{'<br>'.join(html.escape(o) for o in origins)}</small>"
    )


def _describe_output_error(result: VariantResult) -> str:
    """The SQNR of the output, or of the part of one, that lost most."""
    errors = compute_accuracy(result)
    if errors is None or errors.output is None:
        return "—"
    sqnr = errors.output.sqnr
    text = format_number(sqnr, "dB") if math.isfinite(sqnr) else "equal" if sqnr > 0 else "not finite"
    return f"{text}, {RANDOM}" if errors.synthetic else text
