"""A variant or a study as one JSON object, for the command line and for programs that read it."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.tactics import find_contests
from rtlab.analyses.cards.card import name_layers
from rtlab.analyses.difference import Difference
from rtlab.analyses.engine import summarize_engine
from rtlab.analyses.findings import list_findings
from rtlab.analyses.fusion import map_measured_engine, map_nodes
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.analyses.recipe import build_recipe
from rtlab.analyses.roofline import compute_roofline
from rtlab.analyses.roofline.estimate import describe_estimate_error, pick_default_gpu
from rtlab.analyses.score import compare_scores
from rtlab.analyses.timing import compute_timing, get_engine_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.model import Model
from rtlab.documents.serialization import to_builtins
from rtlab.errors import RtlabError
from rtlab.web.page.table import describe_failure

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.scale import Scale

#: What is written of a tensor.
_TENSOR = ("name", "dtype", "shape", "format")
#: What is written of the error of a value.
_ERROR = ("value", "node", "max_abs", "rmse", "cosine", "overflowed", "underflowed")
#: Raised when a key changes its meaning or goes away.
SCHEMA = 1


def build_variant_document(
    result: VariantResult,
    model: Model,
    variant_titles: Mapping[str, str] | None = None,
    *,
    baseline: VariantResult | None = None,
) -> dict[str, Any]:
    """All data of a variant, as JSON's own types.

    ``variant_titles`` are the titles of variants, by their names in the study. ``baseline`` is what its score is
    compared with, under ``compared`` there: difference, interval and test.

    The keys are ``model``, ``engine``, ``precisions``, ``scales``, ``unmapped``, ``timing``, ``score``, ``accuracy``,
    ``stages``, ``summary``, ``memory``, ``estimate``, ``findings``, ``build`` and ``random_input``, which says whether
    errors and scales rest on noise (null where there are none).
    Times are in milliseconds unless their key says another unit, shares go from 0 to 1, errors are in decibel or in
    the value's unit; null where nothing was measured. ``title`` of a layer is what its card says, ``roles`` what it
    does for each of its nodes: the node's "work", or a service such as "Q". An infinite SQNR (equal values) is null
    with ``equal`` true. Without an ONNX model, ``model`` has no name and no nodes.
    """
    engine, titles = result.engine, name_layers(result, model)
    evidence: defaultdict[str, dict[str, str]] = defaultdict(dict)
    roles: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for pair in map_nodes(result).pairs:
        evidence[pair.layer][pair.node] = pair.evidence
        roles[pair.layer][pair.node] = pair.role
    return {
        "schema": SCHEMA,
        "variant": {
            "name": result.variant.name,
            "title": (variant_titles or {}).get(result.name, result.name),
            "precision": str(result.variant.precision),
            "calibrator": str(result.variant.calibrator) if result.variant.calibrator else None,
            "target": str(result.variant.target),
            "pins": [{"pattern": pattern, "precision": str(p)} for pattern, p in result.variant.pins],
            "weights": result.variant.weights,
            "sparsity": list(result.variant.sparsity),
            "scales": result.variant.scales or None,
            "calibrators": [{"pattern": p, "calibrator": str(c)} for p, c in result.variant.calibrators],
            "treatments": [str(t) for t in result.variant.treatments],
            **({"sizes": dict(result.variant.sizes)} if result.variant.sizes else {}),
        },
        "precisions": {n: str(p) for n, p in result.prepared.precisions.items()},
        "scales": {v: _scale(s) for v, s in result.prepared.scales.items()},
        "model": {
            "name": model.name if model.nodes else None,
            "opset": model.opset if model.nodes else None,
            "nodes": [
                _pick_fields(n, "id", "name", "op", "domain", "scope", "inputs", "outputs")
                for n in model.nodes
            ],
        },
        "engine": {
            **_pick_fields(engine, "backend", "origin", "version"),
            "target": str(engine.target),
            "device": engine.device or None,
            # A build that was not timed has no duration, rather than 0.
            "seconds": engine.seconds or None,
            # Of a build that was not made here.
            "recorded": engine.date if engine.recorded else None,
            "detail": engine.detail,
            "inputs": [_pick_fields(t, *_TENSOR) for t in engine.inputs],
            "outputs": [_pick_fields(t, *_TENSOR) for t in engine.outputs],
            "profiles": [
                {name: dict(zip(("min", "opt", "max"), shapes, strict=True)) for name, shapes in profile}
                for profile in engine.profiles
            ],
            "memory": {"origin": engine.origin, "bytes": dict(engine.totals)},
            "layers": [
                {
                    **_pick_fields(
                        layer, "id", "name", "kind", "precision", "reads", "writes", "stream", "tactic"
                    ),
                    "title": titles[layer.id],
                    "nodes": list(map_nodes(result).nodes(layer.id)),
                    "evidence": evidence[layer.id],
                    "roles": roles[layer.id],
                    "inputs": [_pick_fields(t, *_TENSOR) for t in layer.inputs],
                    "outputs": [_pick_fields(t, *_TENSOR) for t in layer.outputs],
                }
                for layer in engine.layers
            ],
        },
        "unmapped": to_builtins(map_nodes(result).missing),
        "timing": _timing(result),
        "score": _score(result, baseline),
        "accuracy": _accuracy(result),
        "stages": [
            {
                **_pick_fields(s, "stage", "state", "done"),
                "why": s.why or None,
                "text": s.text or None,
                "wanted": s.target_count or None,
                "unit": s.unit or None,
            }
            for s in result.stages.values()
        ],
        "summary": _summary(result, model),
        "memory": _memory(result),
        "estimate": _estimate(result),
        "findings": [
            dataclasses.asdict(f) | {"origin": None if f.microseconds is None else "measured"}
            for f in list_findings(result)
        ],
        "build": _build(result),
        "random_input": {
            "accuracy": None if result.errors is None else result.errors.synthetic,
            "scales": None if result.ranges is None else result.random_scales,
        },
        "notes": [*result.prepared.notes, *engine.notes],
    }


def build_difference_document(
    difference: Difference, model: Model, variant_titles: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A comparison of two engines: times in milliseconds, null where nothing was measured.

    A variant's ``name`` is its key in the study, ``title`` what it is called wherever people read of it.
    The ``difference_ms`` of the groups and ``outside_layers_ms`` add up to that of the whole.
    """
    return {
        "schema": SCHEMA,
        "model": model.name if model.nodes else None,
        "origin": None if difference.totals is None else difference.origin,
        "variants": [
            {
                "name": s.name,
                "title": (variant_titles or {}).get(s.name, s.name),
                "engine": s.engine.title,
                "layers": s.engine.layer_count,
                "latency_ms": s.latency,
                "sum_of_layers_ms": s.layer_sum,
                "withheld": s.no_estimate_reason or None,
            }
            for s in (difference.first, difference.second)
        ],
        "difference_ms": difference.delta,
        "outside_layers_ms": difference.rest,
        "unexplained": difference.unexplained,
        "doubts": list(difference.warnings),
        "overlap": {
            "paired": list(difference.overlap.paired_counts),
            "of": list(difference.overlap.total_counts),
        },
        "groups": [
            {
                "title": g.title,
                "nodes": list(g.nodes),
                "basis": g.basis,
                "layers": [list(g.first.layers), list(g.second.layers)],
                "ms": [g.first.time, g.second.time],
                "difference_ms": g.delta,
                "cause": g.cause,
            }
            for g in difference.groups
        ],
    }


def build_study_document(study: StudyState, built: Sequence[str], baseline: str) -> dict[str, Any]:
    """All that is known of the variants ``built`` of a study.

    ``variants`` has a document of each (``build_variant_document``), by name, and ``failures`` why others could not be
    built. ``recipe`` is what makes the variants again: lines of Python, commands, the model's digest, and versions.
    """
    titles, first = get_variant_titles(study), study.results.get(baseline)
    results = {name: study.results[name] for name in built}
    return {
        "schema": SCHEMA,
        "model": {"name": study.model.name},
        "baseline": baseline or None,
        "variants": {
            name: build_variant_document(
                result, study.model, titles, baseline=None if result is first else first
            )
            for name, result in results.items()
        },
        "failures": {name: describe_failure(error, variant=name) for name, error in study.failures.items()},
        "recipe": to_builtins(build_recipe(study, built)),
    }


def _scale(scale: Scale) -> dict[str, Any]:
    """``calibrator`` and ``why`` are what ``auto`` took for the value; null where the variant's own calibrator did."""
    choice = scale.choice
    return {
        "amax": scale.amax,
        "scale": scale.scale,
        "calibrator": str(choice.calibrator) if choice else None,
        "why": choice.why if choice else None,
        "doubt": scale.doubt or None,
    }


def _pick_fields(value: Any, *names: str, **others: str) -> dict[str, Any]:
    """Fields of a value under their names, or under others with the unit."""
    fields = {**{n: n for n in names}, **others}
    return {key: to_builtins(getattr(value, name)) for key, name in fields.items()}


def _timing(result: VariantResult) -> dict[str, Any] | None:
    times, mapping = compute_timing(result), map_measured_engine(result)
    if times is None or mapping is None:
        return None
    return {
        "origin": "measured",
        **_pick_fields(times, "source", "device", "processor", "taken", "runs", "note", "scale"),
        **_pick_fields(times, total_ms="total", percentiles_ms="percentiles", sum_of_layers_ms="summed"),
        "layers": [
            {
                **_pick_fields(
                    t, "layer", "share", median_ms="median", spread_ms="spread", quartiles_ms="quartiles"
                ),
                "nodes": list(mapping.nodes(t.layer)),
            }
            for t in times.layers
        ],
    }


def _summary(result: VariantResult, model: Model) -> dict[str, Any]:
    """What the page shows; layers of a kind are counted here, their ids stand above."""
    summary_fields, timing = to_builtins(summarize_engine(result, model)), get_engine_timing(result)
    for one in (*summary_fields["kinds"], *summary_fields["precisions"], *summary_fields["transitions"]):
        one["layers"], one["time"] = len(one["layers"]), one.pop("milliseconds")
    for one in summary_fields["reformats"]:
        one["time"] = one.pop("milliseconds")
        del one["source"], one["avoidable"]
    return {
        **summary_fields,
        "origin": timing.layer_origin if timing else None,
    }


def _memory(result: VariantResult) -> dict[str, Any] | None:
    """Where the activations could lie, in bytes; null where the engine reports no tensors."""
    try:
        plan = plan_engine_memory(result.engine, result.prepared.model)
    except RtlabError:
        return None
    return {
        "origin": "estimated",
        **_pick_fields(plan, "batch", "peak", "weights"),
        **_pick_fields(plan, least="bound", each_on_its_own="naive", reported_activations="reported"),
    }


def _estimate(result: VariantResult) -> dict[str, Any] | None:
    """Times on the GPU that is usual for the engine; null where its sizes are not known."""
    roofs = pick_default_gpu(result.engine)
    try:
        roofline = compute_roofline(result, roofs)
    except RtlabError:
        return None
    return {
        "origin": "estimated",
        "gpu": roofs.name,
        "batch": roofline.batch,
        "error": describe_estimate_error(roofs.name),
        "sum_of_layers_ms": roofline.estimated,
        "known": {
            "layers": roofline.coverage.layers,
            "all_layers": roofline.coverage.all_layers,
            "share_of_bytes": roofline.coverage.moved,
        },
        "withheld": roofline.withheld or None,
        "layers": [
            {
                **_pick_fields(p, "layer", "flops", "bound", read_bytes="read", written_bytes="written"),
                **_pick_fields(p, attainable_ms="attainable", estimated_ms="estimated"),
            }
            for p in roofline.layers
        ],
    }


def _build(result: VariantResult) -> dict[str, Any] | None:
    """The content of the verbose log; null where there is none."""
    log = get_build_log(result)
    if log is None:
        return None
    return {
        "origin": result.engine.origin,
        **_pick_fields(log, "version", "device", "complete"),
        "attempts": [
            {"counts": list(a.counts), "passes": [dataclasses.asdict(p) for p in a.passes]}
            for a in log.attempts
        ],
        "tactics": [
            {
                "layer": c.layer,
                "winner": c.winner.tactic.tactic,
                "name": c.winner.name,
                "ms": c.winner.tactic.milliseconds,
                "margin": c.margin,
                "timed": c.count,
            }
            for c in find_contests(log)
        ],
        "memory": dict(log.totals),
        "sparsity": [dataclasses.asdict(s) for s in log.sparsity],
        "notes": list(log.notes),
    }


def _score(result: VariantResult, baseline: VariantResult | None = None) -> dict[str, Any] | None:
    """The score of a variant, which it has without errors of values too, such as in fp32."""
    score = result.score
    if score is None:
        return None
    comparison = None
    if baseline is not None and (difference := compare_scores(result, baseline)) is not None:
        comparison = {"baseline": baseline.name} | _pick_fields(
            difference, "difference", "samples", "lost", "won", "p", "sure", "interval"
        )
    score_fields = _pick_fields(score, "name", "value", "unit", "samples", "higher", "source", "interval")
    return {"origin": "measured", **score_fields, "compared": comparison}


def _accuracy(result: VariantResult) -> dict[str, Any] | None:
    errors = compute_accuracy(result)
    if errors is None:
        return None
    return {
        "origin": "measured",
        "source": errors.source,
        "samples": errors.samples,
        "score": _score(result),
        "values": [
            {**_pick_fields(v, *_ERROR, sqnr_db="sqnr"), "equal": v.sqnr == math.inf} for v in errors.values
        ],
    }
