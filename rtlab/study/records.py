"""Verdicts on two nodes, and explanations of layers, one file each in the user's cache."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path

from rtlab.analyses.why import FusedLayer, StepRecord, Verdict, VerdictRecord, read
from rtlab.core.facts import VariantResult
from rtlab.core.files import write
from rtlab.errors import RtlabError


def folder() -> Path:
    """The folder of ``RTLAB_RECORDS``, else ``verdicts`` of the user's cache."""
    import platformdirs

    default = platformdirs.user_cache_path("rtlab", appauthor=False) / "verdicts"
    return Path(os.environ.get("RTLAB_RECORDS") or default)


def create_record(facts: VariantResult, answer: Verdict | FusedLayer) -> VerdictRecord | StepRecord:
    """An answer with all that it depends on.

    Raises:
        ModelError: the model is too large to be identified by its bytes, or its weights cannot be read any more.
    """
    engine, variant = facts.engine, facts.variant
    identity = (
        facts.source.name,
        facts.prepared.model.digest,
        variant.name,
        "" if variant.options is None else str(variant.options),
        engine.backend,
        engine.version,
        str(engine.target),
    )
    if isinstance(answer, FusedLayer):
        return StepRecord(*identity, dataclasses.replace(answer, recalled=False))
    return VerdictRecord(*identity, dataclasses.replace(answer, recalled=False))


def load_verdict(facts: VariantResult, first: str, second: str) -> Verdict | None:
    """An earlier verdict on two nodes of this model, with this compiler, release, target and options."""
    record = _load(facts, Verdict(first, second, "unknown"))
    return dataclasses.replace(record.verdict, recalled=True) if isinstance(record, VerdictRecord) else None


def load_fusion_explanation(facts: VariantResult, layer: str, nodes: tuple[str, ...]) -> FusedLayer | None:
    """An earlier explanation of the layer that does the work of these nodes, which is this layer now."""
    record = _load(facts, FusedLayer(layer, nodes, None, ""))
    if isinstance(record, StepRecord):
        return dataclasses.replace(record.step, layer=layer, recalled=True)
    return None


def _load(facts: VariantResult, query: Verdict | FusedLayer) -> VerdictRecord | StepRecord | None:
    with contextlib.suppress(OSError, RtlabError, ValueError):
        query_record = create_record(facts, query)
        cached_record = read(_path(query_record).read_text("utf-8"))
        if _key(cached_record) == _key(query_record):
            return cached_record
    return None


def save_answer(facts: VariantResult, answer: Verdict | FusedLayer) -> None:
    """Write an answer into the cache, where it is conclusive and the folder can be written to."""
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
