"""Verdicts that were found before, one file each in the user's cache: the same question is answered at once."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path

from rtlab.core.facts import Facts
from rtlab.core.files import write
from rtlab.errors import ReadError, RtlabError
from rtlab.questions.why import Verdict
from rtlab.questions.why.record import VerdictRecord, read


def folder() -> Path:
    """Where records lie: in ``verdicts`` of the user's cache, or where ``RTLAB_RECORDS`` says."""
    import platformdirs

    told = os.environ.get("RTLAB_RECORDS")
    return Path(told) if told else platformdirs.user_cache_path("rtlab", appauthor=False) / "verdicts"


def recorded(facts: Facts, found: Verdict) -> VerdictRecord:
    """A verdict with all that it holds for.

    Raises:
        ModelError: the model is too large to be told by its bytes, or its weights cannot be read any more.
    """
    engine, variant = facts.engine, facts.variant
    options = "" if variant.options is None else str(variant.options)
    return VerdictRecord(
        facts.source.name,
        facts.prepared.model.digest,
        variant.name,
        options,
        engine.backend,
        engine.version,
        str(engine.target),
        dataclasses.replace(found, recalled=False),
    )


def recall(facts: Facts, first: str, second: str) -> Verdict | None:
    """What was found before of two nodes of this very model, with this compiler, release, target and options."""
    with contextlib.suppress(OSError, RtlabError, ValueError):
        wanted = recorded(facts, Verdict(first, second, "unknown"))
        there = read(_path(wanted).read_text("utf-8"))
        if _key(there) == _key(wanted):
            return dataclasses.replace(there.verdict, recalled=True)
    return None


def keep(facts: Facts, found: Verdict) -> None:
    """Keep a verdict for the next time, unless nothing was found out; where that cannot be written, nothing is kept."""
    if found.verdict == "unknown" or found.recalled or not found.builds:
        return
    with contextlib.suppress(OSError, RtlabError):
        record = recorded(facts, found)
        path = _path(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, record.text().encode(), what="a verdict")


def _key(record: VerdictRecord) -> tuple[str, ...]:
    told = record.verdict
    return (
        record.digest,
        record.options,
        record.backend,
        record.version,
        record.target,
        told.first,
        told.second,
    )


def _path(record: VerdictRecord) -> Path:
    name = hashlib.sha256("\0".join(_key(record)).encode()).hexdigest()
    return folder() / f"{name[:32]}.json"


def opened(path: str | Path) -> VerdictRecord:
    """A record that somebody names.

    Raises:
        ReadError: there is no such file, or it is no record.
    """
    try:
        return read(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(
            f'Cannot read the record "{path}": {error}. Give a file that rtlab why -o wrote.'
        ) from error
