"""One variant as one JSON object, for the command line and for programs that read it."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab import questions
from rtlab.core.engine import Tensor
from rtlab.core.model import Model
from rtlab.documents.crossing import plain
from rtlab.errors import RtlabError
from rtlab.questions.build.tactics import contests
from rtlab.questions.cards.card import names
from rtlab.questions.difference.diff import Difference
from rtlab.questions.engine.summary import summary
from rtlab.questions.roofline.estimate_error import known_error, usual

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.scale import Scale

#: Raised when a key changes its meaning or goes away.
SCHEMA = 1


def document(
    result: Facts, model: Model, called: Mapping[str, str] | None = None, *, baseline: Facts | None = None
) -> dict[str, Any]:
    """Everything that is known of a variant; ``called`` are the titles of variants, by their names in the study.

    ``baseline`` is what its score is compared with, under ``compared`` there: difference, interval and test.

    The keys are ``model``, ``engine``, ``precisions``, ``scales``, ``unmapped``, ``timing``, ``score``, ``accuracy``,
    ``stages``, ``summary``, ``memory``, ``estimate``, ``findings``, ``build`` and ``random_input``, which says whether
    errors and scales rest on noise (null where there are none).
    Times are in milliseconds unless their key says another unit, shares go from 0 to 1, errors are in decibel or in
    the value's unit; null where nothing was measured. ``title`` of a layer is what its card says, ``roles`` what it
    does for each of its nodes: the node's "work", or a service such as "Q". An infinite SQNR (equal values) is null
    with ``equal`` true. Without an ONNX model, ``model`` has no name and no nodes.
    """
    engine, titles = result.engine, names(result, model)
    evidence: defaultdict[str, dict[str, str]] = defaultdict(dict)
    roles: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for pair in questions.fusion.mapping(result).pairs:
        evidence[pair.layer][pair.node] = pair.evidence
        roles[pair.layer][pair.node] = pair.role
    return {
        "schema": SCHEMA,
        "variant": {
            "name": result.variant.name,
            "title": (called or {}).get(result.name, result.name),
            "precision": str(result.variant.precision),
            "calibrator": str(result.variant.calibrator) if result.variant.calibrator else None,
            "target": str(result.variant.target),
            "pins": [{"pattern": pattern, "precision": str(p)} for pattern, p in result.variant.pins],
            "weights": result.variant.weights,
            "sparsity": list(result.variant.sparsity),
            "scales": result.variant.scales or None,
            "calibrators": [{"pattern": p, "calibrator": str(c)} for p, c in result.variant.calibrators],
            "treatments": [str(t) for t in result.variant.treatments],
        },
        "precisions": {n: str(p) for n, p in result.prepared.precisions.items()},
        "scales": {v: _scale(s) for v, s in result.prepared.scales.items()},
        "model": {
            "name": model.name if model.nodes else None,
            "opset": model.opset if model.nodes else None,
            "nodes": [
                _picked(n, "id", "name", "op", "domain", "scope", "inputs", "outputs") for n in model.nodes
            ],
        },
        "engine": {
            "backend": engine.backend,
            "origin": engine.origin,
            "version": engine.version,
            "target": str(engine.target),
            "device": engine.device or None,
            # The duration of a build that nobody timed is not 0.
            "seconds": engine.seconds or None,
            # Of a build that was not made here.
            "recorded": engine.date if engine.recorded else None,
            "detail": engine.detail,
            "inputs": [_tensor(t) for t in engine.inputs],
            "outputs": [_tensor(t) for t in engine.outputs],
            "profiles": [
                {name: dict(zip(("min", "opt", "max"), shapes, strict=True)) for name, shapes in profile}
                for profile in engine.profiles
            ],
            "memory": {"origin": engine.origin, "bytes": dict(engine.totals)},
            "layers": [
                {
                    **_picked(
                        layer, "id", "name", "kind", "precision", "reads", "writes", "stream", "tactic"
                    ),
                    "title": titles[layer.id],
                    "nodes": list(questions.fusion.mapping(result).nodes(layer.id)),
                    "evidence": evidence[layer.id],
                    "roles": roles[layer.id],
                    "inputs": [_tensor(t) for t in layer.inputs],
                    "outputs": [_tensor(t) for t in layer.outputs],
                }
                for layer in engine.layers
            ],
        },
        "unmapped": plain(questions.fusion.mapping(result).missing),
        "timing": _timing(result),
        "score": _score(result, baseline),
        "accuracy": _accuracy(result),
        "stages": [
            {
                **_picked(s, "stage", "state", "done"),
                # What is empty or counts nothing says nothing.
                **{k: getattr(s, k) or None for k in ("why", "text", "wanted", "unit")},
            }
            for s in result.stages.values()
        ],
        "summary": _summary(result, model),
        "memory": _memory(result),
        "estimate": _estimate(result),
        "findings": [
            dataclasses.asdict(f) | {"origin": None if f.microseconds is None else "measured"}
            for f in questions.findings.of(result)
        ],
        "build": _build(result),
        "random_input": {
            "accuracy": None if result.errors is None else result.errors.synthetic,
            "scales": None if result.ranges is None else result.random_scales,
        },
        "notes": [*result.prepared.notes, *engine.notes],
    }


def compared(found: Difference, model: Model, called: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A comparison of two engines: times in milliseconds, null where nothing was measured.

    A variant's ``name`` is its key in the study, ``title`` what it is called wherever people read of it.
    The ``difference_ms`` of the groups and ``outside_layers_ms`` add up to that of the whole.
    """
    return {
        "schema": SCHEMA,
        "model": model.name if model.nodes else None,
        "origin": None if found.totals is None else found.origin,
        "variants": [
            {
                "name": s.name,
                "title": (called or {}).get(s.name, s.name),
                "engine": s.engine.title,
                "layers": len(s.engine.layers),
                "latency_ms": s.whole,
                "sum_of_layers_ms": s.summed,
                "withheld": s.withheld or None,
            }
            for s in (found.first, found.second)
        ],
        "difference_ms": found.delta,
        "outside_layers_ms": found.rest,
        "unexplained": found.unexplained,
        "doubts": list(found.doubts),
        "overlap": {"paired": list(found.overlap.paired), "of": list(found.overlap.of)},
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
            for g in found.groups
        ],
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


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return _picked(tensor, "name", "dtype", "shape", "format")


def _picked(noun: Any, *names: str, **others: str) -> dict[str, Any]:
    """Fields of a noun under their names, or under others that tell the unit."""
    wanted = {**{n: n for n in names}, **others}
    return {key: plain(getattr(noun, name)) for key, name in wanted.items()}


def _timing(result: Facts) -> dict[str, Any] | None:
    times, mapping = questions.timing.of(result), questions.fusion.measured(result)
    if times is None or mapping is None:
        return None
    return {
        "origin": "measured",
        **_picked(times, "source", "device", "processor", "taken", "runs", "note", "scale"),
        **_picked(times, total_ms="total", percentiles_ms="percentiles", sum_of_layers_ms="summed"),
        "layers": [
            {
                **_picked(
                    t, "layer", "share", median_ms="median", spread_ms="spread", quartiles_ms="quartiles"
                ),
                "nodes": list(mapping.nodes(t.layer)),
            }
            for t in times.layers
        ],
    }


def _summary(result: Facts, model: Model) -> dict[str, Any]:
    """What the page shows; layers of a kind are counted here, their ids stand above."""
    found = plain(summary(result, model))
    for one in (*found["kinds"], *found["precisions"], *found["transitions"]):
        one["layers"], one["time"] = len(one["layers"]), one.pop("milliseconds")
    for one in found["reformats"]:
        one["time"] = one.pop("milliseconds")
        del one["source"], one["avoidable"]
    return {**found, "origin": "measured" if found["source"] else None}


def _memory(result: Facts) -> dict[str, Any] | None:
    """Where the activations could lie, in bytes; null where the engine does not tell its tensors."""
    try:
        plan = questions.memory.of(result)
    except RtlabError:
        return None
    return {
        "origin": "estimated",
        **_picked(plan, "batch", "peak", "weights"),
        **_picked(plan, least="bound", each_on_its_own="naive", reported_activations="reported"),
    }


def _estimate(result: Facts) -> dict[str, Any] | None:
    """Times on the GPU that is usual for the engine; null where its sizes are not known."""
    roofs = usual(result.engine)
    try:
        found = questions.roofline.of(result, roofs)
    except RtlabError:
        return None
    return {
        "origin": "estimated",
        "gpu": roofs.name,
        "batch": found.batch,
        "error": known_error(roofs.name),
        "sum_of_layers_ms": found.estimated,
        "known": {
            "layers": found.known.layers,
            "all_layers": found.known.all_layers,
            "share_of_bytes": found.known.moved,
        },
        "withheld": found.withheld or None,
        "layers": [
            {
                **_picked(p, "layer", "flops", "bound", read_bytes="read", written_bytes="written"),
                **_picked(p, attainable_ms="attainable", estimated_ms="estimated"),
            }
            for p in found.layers
        ],
    }


def _build(result: Facts) -> dict[str, Any] | None:
    """What the verbose log tells; null where there is none."""
    log = questions.build.log(result)
    if log is None:
        return None
    return {
        "origin": result.engine.origin,
        **_picked(log, "version", "device", "complete"),
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
            for c in contests(log)
        ],
        "memory": dict(log.totals),
        "sparsity": [dataclasses.asdict(s) for s in log.sparsity],
        "notes": list(log.notes),
    }


def _score(result: Facts, baseline: Facts | None = None) -> dict[str, Any] | None:
    """Without the errors of values too, which FP32 has none of."""
    score = result.score
    if score is None:
        return None
    told = _picked(score, "name", "value", "unit", "samples", "higher", "source")
    found = questions.score.compared(result, baseline) if baseline is not None else None
    compared = None
    if found is not None and baseline is not None:
        compared = {"baseline": baseline.name} | _picked(
            found, "difference", "samples", "lost", "won", "p", "sure"
        )
        compared["interval"] = plain(found.interval)
    return {"origin": "measured"} | told | {"interval": plain(score.interval), "compared": compared}


def _accuracy(result: Facts) -> dict[str, Any] | None:
    errors = questions.accuracy.of(result)
    if errors is None:
        return None
    return {
        "origin": "measured",
        "source": errors.source,
        "samples": errors.samples,
        "score": _score(result),
        "values": [
            {
                **_picked(
                    v,
                    "value",
                    "node",
                    "max_abs",
                    "rmse",
                    "cosine",
                    "overflowed",
                    "underflowed",
                    sqnr_db="sqnr",
                ),
                "equal": v.sqnr == math.inf,
            }
            for v in errors.values
        ],
    }
