"""Answers that were found before, one file each in the user's cache: the same question is answered at once.

They are verdicts on two nodes, and why nodes are one step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import overload

from rtlab.analyses.why import FusedLayer, Verdict
from rtlab.analyses.why.record import StepRecord, VerdictRecord, read
from rtlab.core.facts import VariantResult
from rtlab.core.files import write
from rtlab.errors import RtlabError


def folder() -> Path:
    """Where records lie: in ``verdicts`` of the user's cache, or where ``RTLAB_RECORDS`` says."""
    import platformdirs

    configured_path = os.environ.get("RTLAB_RECORDS")
    return (
        Path(configured_path)
        if configured_path
        else platformdirs.user_cache_path("rtlab", appauthor=False) / "verdicts"
    )


@overload
def create_record(facts: VariantResult, answer: Verdict) -> VerdictRecord: ...


@overload
def create_record(facts: VariantResult, answer: FusedLayer) -> StepRecord: ...


def create_record(facts: VariantResult, answer: Verdict | FusedLayer) -> VerdictRecord | StepRecord:
    """An answer with all that it holds for.

    Raises:
        ModelError: the model is too large to be told by its bytes, or its weights cannot be read any more.
    """
    engine, variant = facts.engine, facts.variant
    options = "" if variant.options is None else str(variant.options)
    identity = (
        facts.source.name,
        facts.prepared.model.digest,
        variant.name,
        options,
        engine.backend,
        engine.version,
        str(engine.target),
    )
    if isinstance(answer, FusedLayer):
        return StepRecord(*identity, dataclasses.replace(answer, recalled=False))
    return VerdictRecord(*identity, dataclasses.replace(answer, recalled=False))


def load_verdict(facts: VariantResult, first: str, second: str) -> Verdict | None:
    """What was found before of two nodes of this very model, with this compiler, release, target and options."""
    with contextlib.suppress(OSError, RtlabError, ValueError):
        query = create_record(facts, Verdict(first, second, "unknown"))
        cached_record = read(_path(query).read_text("utf-8"))
        if isinstance(cached_record, VerdictRecord) and _key(cached_record) == _key(query):
            return dataclasses.replace(cached_record.verdict, recalled=True)
    return None


def load_fusion_explanation(facts: VariantResult, layer: str, nodes: tuple[str, ...]) -> FusedLayer | None:
    """What was found before of the step that does the work of these nodes, which is this layer now."""
    with contextlib.suppress(OSError, RtlabError, ValueError):
        query = create_record(facts, FusedLayer(layer, nodes, None, ""))
        cached_record = read(_path(query).read_text("utf-8"))
        if isinstance(cached_record, StepRecord) and _key(cached_record) == _key(query):
            return dataclasses.replace(cached_record.step, layer=layer, recalled=True)
    return None


def save_answer(facts: VariantResult, answer: Verdict | FusedLayer) -> None:
    """Keep an answer for the next time, unless nothing was found out; where that cannot be written, nothing is kept.

    Nothing was found out of a step before all its values were made visible.
    """
    is_conclusive = answer.whole if isinstance(answer, FusedLayer) else answer.verdict != "unknown"
    if not is_conclusive or answer.recalled or not answer.builds:
        return
    with contextlib.suppress(OSError, RtlabError):
        record = create_record(facts, answer)
        path = _path(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, record.text().encode(), what="a verdict")


def _key(record: VerdictRecord | StepRecord) -> tuple[str, ...]:
    # TF32 and 2:4 are flags of the builder: the same graph is built with them and without.
    identity = (record.digest, record.variant, record.options, record.backend, record.version, record.target)
    return (*identity, *record.about)


def _path(record: VerdictRecord | StepRecord) -> Path:
    name = hashlib.sha256("\0".join(_key(record)).encode()).hexdigest()
    return folder() / f"{name[:32]}.json"
