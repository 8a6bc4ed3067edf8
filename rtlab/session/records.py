"""Answers that were found before, one file each in the user's cache: the same question is answered at once.

They are verdicts on two nodes, why nodes are one step, and what changed between two engines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import overload

from rtlab.core.facts import Facts
from rtlab.core.files import read_input, write
from rtlab.errors import ReadError, RtlabError
from rtlab.experiments.bisecting import BisectionSide
from rtlab.questions.bisection import Bisection
from rtlab.questions.bisection import record as changes
from rtlab.questions.bisection.record import BisectionRecord, RecordedSide
from rtlab.questions.why import Verdict
from rtlab.questions.why.joined import Joined
from rtlab.questions.why.record import StepRecord, VerdictRecord, read


def folder() -> Path:
    """Where records lie: in ``verdicts`` of the user's cache, or where ``RTLAB_RECORDS`` says."""
    import platformdirs

    told = os.environ.get("RTLAB_RECORDS")
    return Path(told) if told else platformdirs.user_cache_path("rtlab", appauthor=False) / "verdicts"


@overload
def recorded(facts: Facts, found: Verdict) -> VerdictRecord: ...


@overload
def recorded(facts: Facts, found: Joined) -> StepRecord: ...


def recorded(facts: Facts, found: Verdict | Joined) -> VerdictRecord | StepRecord:
    """An answer with all that it holds for.

    Raises:
        ModelError: the model is too large to be told by its bytes, or its weights cannot be read any more.
    """
    engine, variant = facts.engine, facts.variant
    options = "" if variant.options is None else str(variant.options)
    held = (
        facts.source.name,
        facts.prepared.model.digest,
        variant.name,
        options,
        engine.backend,
        engine.version,
        str(engine.target),
    )
    if isinstance(found, Joined):
        return StepRecord(*held, dataclasses.replace(found, recalled=False))
    return VerdictRecord(*held, dataclasses.replace(found, recalled=False))


def recall(facts: Facts, first: str, second: str) -> Verdict | None:
    """What was found before of two nodes of this very model, with this compiler, release, target and options."""
    with contextlib.suppress(OSError, RtlabError, ValueError):
        wanted = recorded(facts, Verdict(first, second, "unknown"))
        there = read(_path(wanted).read_text("utf-8"))
        if isinstance(there, VerdictRecord) and _key(there) == _key(wanted):
            return dataclasses.replace(there.verdict, recalled=True)
    return None


def recall_step(facts: Facts, layer: str, nodes: tuple[str, ...]) -> Joined | None:
    """What was found before of the step that does the work of these nodes, which is this layer now."""
    with contextlib.suppress(OSError, RtlabError, ValueError):
        wanted = recorded(facts, Joined(layer, nodes, None, ""))
        there = read(_path(wanted).read_text("utf-8"))
        if isinstance(there, StepRecord) and _key(there) == _key(wanted):
            return dataclasses.replace(there.step, layer=layer, recalled=True)
    return None


def keep(facts: Facts, found: Verdict | Joined) -> None:
    """Keep an answer for the next time, unless nothing was found out; where that cannot be written, nothing is kept.

    Nothing was found out of a step before all its values were made visible.
    """
    settled = found.whole if isinstance(found, Joined) else found.verdict != "unknown"
    if not settled or found.recalled or not found.builds:
        return
    with contextlib.suppress(OSError, RtlabError):
        record = recorded(facts, found)
        path = _path(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, record.text().encode(), what="a verdict")


def _key(record: VerdictRecord | StepRecord) -> tuple[str, ...]:
    # TF32 and 2:4 are flags of the builder: the same graph is built with them and without.
    told = (record.digest, record.variant, record.options, record.backend, record.version, record.target)
    return (*told, *record.about)


def _path(record: VerdictRecord | StepRecord) -> Path:
    name = hashlib.sha256("\0".join(_key(record)).encode()).hexdigest()
    return folder() / f"{name[:32]}.json"


#: Bytes from which on a record is not kept: its parts hold most of a large model.
_MOST = 64 << 20


def bisection(model: str, one: BisectionSide, two: BisectionSide, found: Bisection) -> BisectionRecord:
    """What changed, with all that it holds for; ``model`` is the name of the source model.

    Raises:
        ModelError: a model is too large to be told by its bytes, or its weights cannot be read any more.
    """
    first, second = (
        RecordedSide(
            s.variant.name,
            "" if s.variant.options is None else str(s.variant.options),
            s.model.digest,
            s.facts.engine.backend if s.facts is not None else s.variant.backend or "",
            s.release,
            str(s.facts.engine.target if s.facts is not None else s.variant.target),
        )
        for s in (one, two)
    )
    return BisectionRecord.of(model, first, second, found)


def recall_bisection(model: str, one: BisectionSide, two: BisectionSide) -> Bisection | None:
    """What was found before of these very models with these compilers; None where one cannot be asked any more."""
    if one.builder is None or two.builder is None:
        return None
    with contextlib.suppress(OSError, RtlabError, ValueError):
        # What the two are called stands in the answer.
        wanted = bisection(model, one, two, Bisection(one.title, two.title, (), ""))
        there = changes.read(_beside(wanted).read_text("utf-8"))
        if (there.first, there.second) == (wanted.first, wanted.second):
            return there.found
    return None


def keep_bisection(model: str, one: BisectionSide, two: BisectionSide, found: Bisection) -> None:
    """Keep what changed for the next time, where all was looked for; where that cannot be written, nothing is kept."""
    if found.left or found.recalled or not found.builds:
        return
    with contextlib.suppress(OSError, RtlabError):
        record = bisection(model, one, two, found)
        content = record.text().encode()
        if len(content) > _MOST:
            return
        path = _beside(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content, what="what changed")


def _beside(record: BisectionRecord) -> Path:
    told = (*dataclasses.astuple(record.first), *dataclasses.astuple(record.second))
    told = (*told, record.bisection.first, record.bisection.second)
    name = hashlib.sha256("\0".join(told).encode()).hexdigest()
    return folder() / f"changes-{name[:32]}.json"


def opened(path: str | Path) -> VerdictRecord | StepRecord | BisectionRecord:
    """A record that somebody names.

    Raises:
        ReadError: there is no such file, or it is no record.
    """
    try:
        text = read_input(path).decode("utf-8")
        return changes.read(text) if '"bisection"' in text else read(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(
            f'Cannot read the record "{path}": {error}. Give a file that rtlab why -o wrote.'
        ) from error
