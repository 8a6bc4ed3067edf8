"""What a worker of a sweep does: one variant is built and measured, and its result written into the store."""

from __future__ import annotations

import dataclasses
import platform
import threading
import time
import zlib
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from rtlab import backends
from rtlab.analyses.variants.summary import VariantSummary, describe_variant, summarize_variant
from rtlab.core.facts import VariantResult
from rtlab.core.files import write
from rtlab.core.progress import Silent
from rtlab.core.protocols import Progress
from rtlab.core.variant import Variant
from rtlab.errors import ModelError, RtlabError, Unavailable
from rtlab.study import store
from rtlab.study.observations import Observations
from rtlab.study.records import RecordWriter
from rtlab.study.runner import StudyRunner
from rtlab.study.saving import open_study
from rtlab.study.state_holder import StateHolder
from rtlab.study.study_copies import find_copy, write_copy
from rtlab.study.sweep_rows import SweepRow, encode_row
from rtlab.study.timing_slot import TimingSlot

#: Resources that a variant needs of its worker, such as ``{"gpu": 1}``.
Needs = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class SweepTask:
    """One variant for a worker, by reference: the folder of the store, the file of its study, and its choice.

    ``mark`` is a file of the folder by which a worker knows it. ``replaces`` says that the result which is there gives
    way to the new one. ``attempt`` is another number each time that the task is given out: a cluster would answer a
    call of the same arguments with the error of the last one.
    """

    folder: str
    study: str
    name: str
    variant: Variant
    key: str
    parts: Mapping[str, Any]
    budget_s: float
    model: str
    data: str
    mark: str = store.MARK
    replaces: bool = False
    attempt: int = 0

    @property
    def row(self) -> SweepRow:
        """The row of the variant before it ran."""
        summary = describe_variant(self.name, self.variant)
        fields = {f.name: getattr(summary, f.name) for f in dataclasses.fields(VariantSummary)}
        backend, _, release = self.parts["compiler"].rpartition(" ")
        return SweepRow(
            **fields,
            model=self.model,
            data=self.data,
            # A release that was added stands in the backend's name too.
            compiler=f"{backend.removesuffix(f':{release}')} {release}".strip(),
            study=self.study,
            key=self.key,
        )


def list_needs(variant: Variant) -> Needs:
    """The resources of a worker that a variant is built and run on."""
    on_gpu = variant.target.name != "cpu" and backends.get(variant.backend or "").capabilities().runs
    return {"gpu": 1.0} if on_gpu else {}


@dataclasses.dataclass(frozen=True)
class MissingStudy:
    """The answer of a worker on ``host`` that has no copy of a task's study, and does not see the store's folder."""

    host: str


#: The study that a thread of a worker opened last: variants of one model share what was observed on its samples.
_OPENED = threading.local()


def _open_runner(task: SweepTask, copy: bytes | None, *, sees_store: bool) -> StudyRunner | None:
    """The runner of a task's study, from the store or a copy; None where there is neither."""
    key = task.folder, task.study
    if getattr(_OPENED, "key", None) != key:
        source = Path(task.folder) / store.STUDIES / f"{task.study}.rtlab"
        # A file layer may show one file of another machine later than another.
        file = source if sees_store and source.is_file() else find_copy(task.study)
        if file is None and copy is None:
            return None
        file = file or write_copy(task.study, copy or b"")
        state, stride = open_study(file)
        if state.model.weightless:
            raise ModelError(
                f'Cannot run "{task.name}" on {platform.node()}: the weights of model "{task.model}" lie beside the '
                "store, since they are more than 1 GiB, and are not there. Put both into a folder that every worker "
                "sees under the same path."
            )
        holder = StateHolder(state)
        _OPENED.runner, _OPENED.key = StudyRunner(holder, Observations(holder, stride)), key
    runner: StudyRunner = _OPENED.runner
    return runner


def run_task(
    task: SweepTask, progress: Progress | None = None, copy: bytes | None = None
) -> Mapping[str, bytes] | MissingStudy | None:
    """Build and measure a variant, and write its result into the store; a worker runs this.

    Args:
        task: The variant.
        progress: Where to report.
        copy: The file of its study, where a worker was without.

    Returns:
        None once the result is in the store; the files of its entry, compressed by zlib, on a worker that does not see
        the store.

    Raises:
        RtlabError: the variant cannot be built, or its result cannot be written.
        Cancelled: the work was stopped.
    """
    folder, began = Path(task.folder), time.monotonic()
    # Another machine may have another folder of this name, or an old copy of the store.
    sees_store = (folder / task.mark).is_file()
    if sees_store and not task.replaces and (folder / store.ENTRIES / task.key / store.ROW).is_file():
        return None
    runner = _open_runner(task, copy, sees_store=sees_store)
    if runner is None:
        return MissingStudy(platform.node())
    progress = progress or Silent()
    holder, slot = runner.holder, TimingSlot(folder if sees_store else None)
    runner.timing_slot = slot
    holder.plan(task.name, task.variant, None)
    try:
        if task.variant.calibrator is not None and not task.budget_s:
            # What is only built rests on all samples too.
            runner.ranges(task.variant, progress, None)
        runner.run([task.name], progress=progress, budget_s=task.budget_s)
        result = holder.state.results[task.name]
    finally:
        holder.update(lambda state: state.without_variant(task.name))
    compiler = f"{result.engine.backend} {result.engine.version}"
    if compiler != task.parts["compiler"]:
        raise Unavailable(
            f'Cannot keep "{task.name}": worker {platform.node()} built it with {compiler} in place of '
            f"{task.parts['compiler']}. Install one release on all machines, or name one, compiler=."
        )
    row = _summarize(task, result, slot, time.monotonic() - began)
    files = {store.ROW: encode_row(row), **store.encode_entry(result, task.parts)}
    if not sees_store:
        return {name: zlib.compress(content) for name, content in files.items()}
    store.write_entry(folder / store.ENTRIES, task.key, files, replace=task.replaces)
    return None


def _summarize(task: SweepTask, result: VariantResult, slot: TimingSlot, seconds: float) -> SweepRow:
    summary, profile = summarize_variant(result, title=task.name), result.profile
    fields = {f.name: getattr(summary, f.name) for f in dataclasses.fields(VariantSummary)}
    # What could not be measured of an engine that was built.
    fields["error"] = "; ".join(s.text for s in result.missing if s.why == "failed")
    return dataclasses.replace(
        task.row,
        **fields,
        host=platform.node(),
        load=slot.load if profile is not None else None,
        timings=slot.timings if profile is not None else None,
        runs=None if profile is None else profile.runs or len(profile.total),
        taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        work_s=round(seconds, 3),
        higher=result.score is None or result.score.higher,
    )


def record_failure(folder: Path, task: SweepTask, error: RtlabError) -> None:
    """Write the failure of a variant; one that is here is replaced."""
    row = dataclasses.replace(
        task.row, status="failed", error=str(error), host=platform.node(),
        taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )  # fmt: skip
    writer = RecordWriter()
    document = msgspec.json.decode(encode_row(row))
    document |= {"choice": writer.pack(task.variant), "failure": writer.pack(error)}
    write(folder / store.FAILED / f"{task.key}.json", store.format_document(document), what="a failure")
