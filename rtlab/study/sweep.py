"""Results of many variants of many models in a folder, and the sweeps that fill it.

A store has ``studies``, a file for each model with its samples and task; ``entries``, the results by key, each with the
row of numbers that tables show; and ``failed``, the errors of variants that could not be built, by key too. A worker
gets the names of these files, and writes its result itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from datetime import datetime, timezone
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from rtlab import backends
from rtlab.analyses.study_state import StudyState
from rtlab.analyses.variants.summary import VariantSummary, describe_variant, summarize_variant
from rtlab.core.budget import parse_budget
from rtlab.core.data import SampleStream
from rtlab.core.facts import VariantResult
from rtlab.core.files import write
from rtlab.core.metrics import Metric, get_slice_shapes
from rtlab.core.onnx_file import MOST_BYTES
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Variant
from rtlab.documents.results import ResultTable
from rtlab.errors import (
    CalibrationError,
    Cancelled,
    ReadError,
    RtlabError,
    Unavailable,
    VariantError,
    boundary,
    wrap_error,
)
from rtlab.study import store
from rtlab.study.background import BackgroundRun
from rtlab.study.grid import Grid, describe_choices
from rtlab.study.observations import Observations
from rtlab.study.progress import has_kernel, report_progress
from rtlab.study.records import RecordReader, RecordWriter
from rtlab.study.runner import StudyRunner
from rtlab.study.saving import open_study, save_study
from rtlab.study.session import Session
from rtlab.study.state_holder import StateHolder
from rtlab.study.sweep_progress import SweepProgress, choose_kind, count_running

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

#: Folders and files of a store; ``_ROW`` is in each entry.
_STUDIES, _ENTRIES, _FAILED, _MARK, _ROW = "studies", "entries", "failed", "store.json", "row.json"
#: Seconds between looks at whether a sweep is cancelled.
_TICK_S = 0.1
#: Seconds that a variant waits for other timings of its machine, and between two tries.
_SLOT_S, _TRY_S = 600.0, 0.05
#: Age in seconds from which an entry that is not complete is what a killed worker left.
_LEFTOVER_S = 3600.0
#: Resources that a variant needs of its worker, such as ``{"gpu": 1}``.
Needs = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class SweepRow(VariantSummary):
    """A variant of a sweep; ``status`` may also be damaged, of an entry that cannot be read.

    ``key`` is that of its entry. ``host`` is the machine that it ran on, ``load`` the number of processes that ran or
    waited there for each core when it was timed, over the last minute, and ``runs`` counts the timed inferences.
    ``taken`` is when it was finished, ``work_s`` what all of its work took. ``higher`` says that more of the score is
    better. ``error`` of a variant that is built says
    what could not be measured.
    """

    model: Annotated[str, FieldMeta("Model")] = ""
    data: str = ""
    compiler: str = ""
    host: Annotated[str, FieldMeta("Host", omit=True)] = ""
    load: Annotated[float | None, FieldMeta("Load", omit=True)] = None
    runs: Annotated[int | None, FieldMeta("Runs", omit=True)] = None
    taken: str = ""
    work_s: Annotated[float | None, FieldMeta("Work", "s", "measured", omit=True)] = None
    higher: bool = True
    study: str = ""
    key: str = ""

    @property
    def order(self) -> tuple[str, bool, str]:
        """By model and name; what others are compared with comes first."""
        return self.model, self.precision != "fp32", self.variant


_FIELDS = frozenset(f.name for f in dataclasses.fields(SweepRow))


@dataclasses.dataclass(frozen=True)
class SweepTask:
    """One variant for a worker, by reference: the folder of the store, the file of its study, and its choice."""

    folder: str
    study: str
    name: str
    variant: Variant
    key: str
    parts: Mapping[str, Any]
    budget_s: float
    model: str
    data: str

    @property
    def row(self) -> SweepRow:
        """The row of the variant before it ran."""
        summary = describe_variant(self.name, self.variant)
        fields = {f.name: getattr(summary, f.name) for f in dataclasses.fields(VariantSummary)}
        return SweepRow(
            **fields,
            model=self.model,
            data=self.data,
            compiler=self.parts["compiler"],
            study=self.study,
            key=self.key,
        )


def _encode_row(row: SweepRow) -> bytes:
    writer = RecordWriter()
    fields = {name: writer.pack(getattr(row, name)) for name in sorted(_FIELDS)}
    return store.format_document({"rtlab_row": store.SCHEMA, **fields})


def _decode_row(content: bytes, key: str) -> SweepRow:
    """A row; one that says so where it is damaged, or of another schema."""
    title = f'the row of result "{key}"'
    try:
        document = store.parse_document(content, "rtlab_row", title)
        # Numbers that JSON lacks, such as infinity, are objects.
        fields: dict[str, Any] = {
            k: float(v["value"]) if isinstance(v, dict) else v for k, v in document.items() if k in _FIELDS
        }
        return SweepRow(**fields)
    except (TypeError, KeyError, ValueError) as error:
        problem = store.make_damage_error(title, str(error))
    except ReadError as error:
        problem = error
    return SweepRow(key[:8], key[:8], "damaged", "", "", "", "", error=str(_reword(problem)), key=key)


def _reword(error: RtlabError) -> ReadError:
    """The error of a damaged entry with what to do about it in a store."""
    remedy = "Remove it with store.collect_garbage(), or rtlab store gc, and run the sweep again."
    return ReadError(str(error).replace(store.COPY_REMEDY, remedy))


class TimingSlot:
    """A context in which no other timing of this user's sweeps runs on this machine.

    It is a lock of the system, which a process that is killed leaves. Who waits longer than ``_SLOT_S`` goes on
    without. ``load`` is that of the machine when the last timing was done.
    """

    def __init__(self) -> None:
        self.load: float | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Wait for the slot, and give it back."""
        with self._lock():
            try:
                yield
            finally:
                cores = os.cpu_count() or 1
                with contextlib.suppress(OSError, AttributeError):
                    self.load = round(os.getloadavg()[0] / cores, 2)

    @staticmethod
    @contextlib.contextmanager
    def _lock() -> Iterator[None]:
        try:
            import fcntl
        except ImportError:
            # Windows has none.
            yield
            return
        path = Path(tempfile.gettempdir()) / f"rtlab-timing-{os.getuid()}.lock"
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _SLOT_S
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # noqa: PERF203 - each try may be in vain
                    time.sleep(_TRY_S)
                else:
                    break
            yield
        finally:
            os.close(handle)


#: The study that a thread of a worker opened last: variants of one model share what was observed on its samples.
_OPENED = threading.local()


def _open_runner(path: Path) -> StudyRunner:
    if getattr(_OPENED, "path", None) != path:
        state, stride = open_study(path)
        holder = StateHolder(state)
        _OPENED.runner, _OPENED.path = StudyRunner(holder, Observations(holder, stride)), path
    runner: StudyRunner = _OPENED.runner
    return runner


def run_task(task: SweepTask, progress: Progress | None = None) -> None:
    """Build and measure a variant, and write its result into the store; a worker runs this.

    Raises:
        ReadError: the store's folder is not there.
        RtlabError: the variant cannot be built, or its result cannot be written.
        Cancelled: the work was stopped.
    """
    folder, began = Path(task.folder), time.monotonic()
    if (folder / _ENTRIES / task.key / _ROW).is_file():
        return
    if not (folder / _MARK).is_file():
        raise ReadError(
            f'Cannot run "{task.name}" on {platform.node()}: there is no store "{folder}" there. Put the store into a '
            "folder that every worker sees under the same path."
        )
    progress = progress or Silent()
    runner = _open_runner(folder / _STUDIES / f"{task.study}.rtlab")
    holder, slot = runner.holder, TimingSlot()
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
    files = store.encode_entry(result, task.parts)
    row = _summarize(task, result, slot, time.monotonic() - began)
    store.write_entry(folder / _ENTRIES, task.key, {_ROW: _encode_row(row), **files})


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
        runs=None if profile is None else profile.runs or len(profile.total),
        taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        work_s=round(seconds, 3),
        higher=result.score is None or result.score.higher,
    )


@dataclasses.dataclass(frozen=True)
class LoadedResult:
    """What an entry holds: the result of a variant or its error; without a variant where it cannot be read."""

    row: SweepRow
    variant: Variant | None
    outcome: VariantResult | RtlabError

    def add_to(self, state: StudyState) -> StudyState:
        """A study with it, in place of what failed before; beside others of its name it has another one."""
        name = self.row.variant
        is_retry = name in state.failures and state.variants.get(name) == self.variant
        if name in state.variants and not is_retry:
            # Of another release or another budget.
            longer = f"{name} {self.row.compiler}"
            name = longer if longer not in state.variants else self.row.key[:8]
        if self.variant is not None:
            state = state.with_variant(name, self.variant, None)
        if isinstance(self.outcome, VariantResult):
            return state.with_result(dataclasses.replace(self.outcome, name=name))
        return state.with_entries(failures={name: self.outcome})


class ResultStore:
    """A folder with results by key: all of ``rtlab.Store`` but what shows studies."""

    #: What ``study`` returns.
    _session: ClassVar[type[Session]] = Session

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        mark = self.path / _MARK
        if mark.is_file():
            store.parse_document(mark.read_bytes(), "rtlab_store", f'the store "{path}"')
        elif self.path.exists() and not self._is_free():
            raise ReadError(
                f'Cannot open the store "{path}": it is {"a folder" if self.path.is_dir() else "a file"} of something '
                "else. Name a store, an empty folder, or one that is not there yet."
            )

    def _is_free(self) -> bool:
        """Whether the folder is empty, or has what one leaves that is killed while it makes the store."""
        return self.path.is_dir() and {_STUDIES, _ENTRIES, _FAILED}.issuperset(self._list())

    def __repr__(self) -> str:
        counts = [f"{len(self._list(_ENTRIES))} results"]
        if failed := len(self._list(_FAILED)):
            counts.append(f"{failed} failed")
        return f"<Store {self.path.name}: {', '.join(counts)}>"

    def _list(self, name: str = "") -> list[str]:
        """The names in one of its folders, without what is being written."""
        try:
            return sorted(n for n in os.listdir(self.path / name) if not n.startswith("."))  # noqa: PTH208 - 10,000
        except FileNotFoundError:
            return []

    @boundary("run the sweep")
    def run(
        self,
        grid: Grid,
        *,
        executor: Executor | Callable[[Needs], Executor] | None = None,
        retries: int = 0,
        budget_s: float = math.inf,
        again: bool = False,
        background: bool = False,
        progress: Progress | None = None,
    ) -> Sweep:
        """Run the variants of a grid that are not here yet, and write each result as it comes.

        A variant that fails is a row with its words. A sweep that was killed or cancelled goes on where it was: call it
        again. Workers read models and samples from this folder, and write to it.

        Args:
            grid: What ``rtlab.grid`` returns.
            executor: Any ``concurrent.futures.Executor``; or a function that returns one for what a variant needs,
                such as ``{"gpu": 1}`` or ``{}``, and another when a worker that died has broken the first. One variant
                at a time here by default.
            retries: How often a variant that fails is tried again.
            budget_s: Seconds of measuring for each variant, as in ``Study.run``; all that can be measured by default,
                so that numbers do not depend on how busy a machine is. 0 only builds.
            again: Whether variants that failed in an earlier sweep are tried again.
            background: Whether to return at once, and run on a thread: ``Sweep.wait`` waits for it.
            progress: Where to report; the host's reporter by default.

        Raises:
            RtlabError: the folder cannot be written to, or the executor cannot go on.
            CalibrationError: samples or metric of a study cannot go along.
            Cancelled: the work was stopped; what was finished is here.

        >>> grid = rtlab.grid(study, precision=["fp32", "fp16"], target="sm86", backend="classic")
        >>> store.run(grid).frame()["status"].tolist()
        ['built', 'built']
        """
        budget_s = parse_budget(budget_s)
        self._prepare_folder()
        tasks = self._plan(grid, budget_s)
        failed = set() if again else {name.removesuffix(".json") for name in self._list(_FAILED)}
        done = set(self._list(_ENTRIES)) | failed
        todo = [task for task in tasks if task.key not in done]
        self._save_studies(grid, tasks, {task.study for task in todo})
        known_failures = sum(task.key in failed for task in tasks) if len(todo) < len(tasks) else 0
        finished = len(tasks) - len(todo) - known_failures
        if background and progress is None and not has_kernel():
            # A line that changes would be in the way of what is typed.
            progress = Silent()
        with contextlib.ExitStack() as stack:
            reporter = stack.enter_context(report_progress(progress))
            reporter.phase(f"Running {pluralize(len(tasks), 'variant')}", len(tasks))
            reporter.advance(len(tasks) - len(todo))
            kinds = [choose_kind(task.study, task.variant) for task in todo]
            counts = SweepProgress(reporter, kinds, finished=finished, failed=known_failures)
            run = _SweepRun(self.path, todo, retries, counts)
            work = run.run_here if executor is None else functools.partial(run.run_in, executor)
            if background:
                thread = BackgroundRun(work, counts, stack.pop_all())
                return Sweep(self, tuple(tasks), grid, thread)
            work()
        return Sweep(self, tuple(tasks), grid)

    def _prepare_folder(self) -> None:
        """Make the folder a store; raises ``RtlabError`` where nothing can be written."""
        try:
            for name in (_STUDIES, _ENTRIES, _FAILED):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            probe = self.path / f".{os.getpid()}-{threading.get_ident()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise RtlabError(
                f'Cannot write to the store "{self.path}": {error.strerror}. Free some space, or name a folder that is '
                "yours to write to."
            ) from error
        mark: dict[str, Any] = {"rtlab_store": store.SCHEMA, "rtlab": store.get_release()}
        if not (self.path / _MARK).is_file():
            write(self.path / _MARK, store.format_document(mark), what="the store")

    def _plan(self, grid: Grid, budget_s: float) -> list[SweepTask]:
        """The tasks of a grid."""

        @functools.cache
        def hash_state(state: StudyState, stride: int) -> dict[str, str]:
            self._check_portable(state)
            return {
                "model": store.hash_model(state.model),
                "data": store.describe_data(state.data, state.model),
                "task": store.hash_task(state.task, state.model),
                "limits": f"{state.limits}, stride {stride}",
            }

        tasks = {}
        for planned in grid:
            digests = hash_state(planned.state, planned.stride)
            backend = planned.variant.backend or ""
            compiler = f"{backend} {backends.get(backend).availability().version}"
            key, parts = store.plan_key(planned.variant, compiler, budget=str(budget_s), **digests)
            study = hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()[:16]
            data = planned.state.data
            tasks[key] = SweepTask(
                str(self.path), study, planned.name, planned.variant, key, parts, budget_s,
                planned.state.model.name, "random input" if data is None else data.source,
            )  # fmt: skip
        return list(tasks.values())

    @staticmethod
    def _check_portable(state: StudyState) -> None:
        """Raise ``CalibrationError`` where samples or metric cannot be written down."""
        sources = [state.data, state.task.data if state.task else None]
        metric = state.task.metric if state.task else None
        is_own = callable(metric) or (isinstance(metric, Metric) and get_slice_shapes(metric) is None)
        if any(isinstance(source, SampleStream) for source in sources) or is_own:
            what = (
                f'metric "{state.task.name}" is a function'
                if state.task and is_own
                else "samples are a stream"
            )
            raise CalibrationError(
                f'Cannot run a sweep of model "{state.model.name}": its {what}, which no file holds for the workers. '
                'Name a metric that rtlab has, such as metric="top-1", and give samples as arrays.'
            )

    def _save_studies(self, grid: Grid, tasks: Sequence[SweepTask], names: set[str]) -> None:
        """Write the files that tasks refer to, where they are not here."""
        study_by_variant = {(task.model, task.variant.id): task.study for task in tasks}
        for planned in grid:
            name = study_by_variant[planned.state.model.name, planned.variant.id]
            path = self.path / _STUDIES / f"{name}.rtlab"
            if name in names and not path.is_file():
                # What does not fit into one file is read from where it lies.
                weights = planned.state.model.weight_bytes < MOST_BYTES // 2
                save_study(planned.state, path, stride=planned.stride, weights=weights, samples=True)

    def rows(self) -> tuple[SweepRow, ...]:
        """The rows of all results and failures, by model and name."""
        keys = self._list(_ENTRIES)
        rows = [self.row(key) for key in keys]
        failed = {name.removesuffix(".json") for name in self._list(_FAILED)}
        rows += [self.row(key) for key in sorted(failed.difference(keys))]
        return tuple(sorted(filter(None, rows), key=lambda row: row.order))

    def list_keys(self) -> Iterator[tuple[str, str]]:
        """The keys of all results and failures, each with what it is.

        >>> {kind for key, kind in store.list_keys()}
        {'built'}
        """
        yield from ((key, "built") for key in self._list(_ENTRIES))
        yield from ((name.removesuffix(".json"), "failed") for name in self._list(_FAILED))

    def row(self, key: str) -> SweepRow | None:
        """The row of a key; None where nothing is here."""
        for path in (self.path / _ENTRIES / key / _ROW, self.path / _FAILED / f"{key}.json"):
            try:
                return _decode_row(path.read_bytes(), key)
            except FileNotFoundError:  # noqa: PERF203 - there are two
                continue
            except OSError as error:
                return _decode_row(f'"{error.strerror}"'.encode(), key)
        is_damaged = (self.path / _ENTRIES / key).is_dir()
        return _decode_row(b"", key) if is_damaged else None

    def frame(self) -> pd.DataFrame:
        """One row for each result and failure, as a ``pandas.DataFrame``: see ``Sweep.frame``.

        >>> store.frame()["model"].unique().tolist()
        ['tiny']
        """
        return _make_frame(self.rows())

    def study(self, model: str) -> Any:
        """The study of a model with all results that are here; nothing is built or run.

        Args:
            model: Its name; or, where several studies are of one name, the digest in the column ``study``.

        Raises:
            ReadError: there is none, or its file is damaged.

        >>> store.study("tiny")
        <Study tiny: 2 of 2 variants built>
        """
        digest = self.find_study(model)
        state, stride = self.open_state(digest)
        for row in self.rows():
            if row.study == digest:
                state = self.load_result(state, row).add_to(state)
        return self._session.of_state(state, stride)

    def explore_study(self, digest: str, **options: Any) -> Any:
        """The Explorer on the results of a study by its digest, those that come later too; ``rtlab.Store`` has it."""
        raise NotImplementedError

    def draw_figure(
        self,
        name: str,
        rows: Sequence[SweepRow],
        choices: Sequence[Mapping[str, str]],
        settings: Mapping[str, str],
    ) -> Any:
        """A figure of rows: see ``Sweep.figure``; ``rtlab.Store`` has it."""
        raise NotImplementedError

    def find_study(self, model: str) -> str:
        """The digest of the study of a model, by its name or that digest; raises ``ReadError`` as ``study`` does.

        >>> len(store.find_study("tiny"))
        16
        """
        rows = self.rows()
        digests = sorted({row.study for row in rows if model in {row.model, row.study} and row.study})
        if len(digests) != 1:
            names = sorted({row.model for row in rows if row.model})
            found = (
                f"several are of this name, with other weights, samples or limits. Name one of {quote_names(digests)}"
                if digests
                else f"there are {quote_names(names) or 'none'}. Choose one of them"
            )
            raise ReadError(f'Cannot open the study of "{model}": {found}.')
        return digests[0]

    def open_state(self, digest: str) -> tuple[StudyState, int]:
        """A study without results, and its stride; raises ``ReadError`` where its file is damaged."""
        return open_study(self.path / _STUDIES / f"{digest}.rtlab")

    def load_result(self, state: StudyState, row: SweepRow) -> LoadedResult:
        """Read the result or the failure of a row; one that is damaged has its words, and costs no other."""
        try:
            if row.status == "failed":
                content = (self.path / _FAILED / f"{row.key}.json").read_bytes()
                document = store.parse_document(content, "rtlab_row", f'the failure of "{row.variant}"')
                variant, error = (RecordReader().unpack(document[k]) for k in ("choice", "failure"))
                return LoadedResult(row, variant, error)
            source = store.EntrySource(state.model, None, state.limits)
            result = store.read_entry(self.path / _ENTRIES / row.key, source)
        except (ReadError, OSError) as error:
            title = f'read "{row.variant}"'
            words = error if isinstance(error, ReadError) else wrap_error(error, title, ReadError)
            return LoadedResult(row, None, _reword(words))
        return LoadedResult(row, result.variant, result)

    def remove(self, *keys: str) -> int:
        """Remove results and failures by key, by the beginning of one, or by the name of a model; returns how many.

        >>> store.remove("no such key")
        0
        """
        removed = 0
        for row in self.rows():
            if any(row.key.startswith(key) or row.model == key for key in keys if key):
                self._discard(row.key)
                removed += 1
        return removed

    def _discard(self, key: str) -> None:
        home = self.path / _ENTRIES / key
        try:
            (self.path / _FAILED / f"{key}.json").unlink(missing_ok=True)
            if home.is_dir():
                # A row that is gone first makes what is left of it damaged, and never half a result.
                trash = home.with_name(f".{key}.removed")
                home.rename(trash)
                shutil.rmtree(trash)
        except OSError as error:
            raise RtlabError(
                f'Cannot remove result "{key}": {error.strerror}. End what uses it, or make the folder yours to write '
                "to."
            ) from error

    def collect_garbage(self) -> Mapping[str, int]:
        """Remove what killed workers left, entries that are damaged, and studies without results; returns the counts.

        Every file of every entry is read, and compared with its digest.

        >>> store.collect_garbage()
        {'leftovers': 0, 'damaged': 0, 'studies': 0}
        """
        counts = {"leftovers": 0, "damaged": 0, "studies": 0}
        for folder in (self.path / _ENTRIES, self.path / _STUDIES, self.path / _FAILED):
            for leftover in folder.glob(".*") if folder.is_dir() else ():
                # A file's date is of the clock on the wall.
                now = datetime.now(timezone.utc).timestamp()
                if now - leftover.stat().st_mtime > _LEFTOVER_S:
                    shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink()
                    counts["leftovers"] += 1
        for key in self._list(_ENTRIES):
            home, files = self.path / _ENTRIES / key, dict[str, bytes]()
            try:
                files = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
                store.read_head(files, f'the result "{home}"')
                is_damaged = _decode_row(files.get(_ROW, b""), key).status == "damaged"
            except (ReadError, OSError):
                is_damaged = True
            # What another release wrote is no damage.
            marks = {store.DOCUMENT: "rtlab_result", _ROW: "rtlab_row"}
            if is_damaged and not any(store.is_of_other_schema(files.get(n), m) for n, m in marks.items()):
                self._discard(key)
                counts["damaged"] += 1
        used = {f"{row.study}.rtlab" for row in self.rows()}
        for name in set(self._list(_STUDIES)) - used:
            (self.path / _STUDIES / name).unlink(missing_ok=True)
            counts["studies"] += 1
        return counts


def _record_failure(folder: Path, task: SweepTask, error: RtlabError) -> None:
    """Write the failure of a variant; one that is here is replaced."""
    row = dataclasses.replace(
        task.row, status="failed", error=str(error), host=platform.node(),
        taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )  # fmt: skip
    writer = RecordWriter()
    document = msgspec.json.decode(_encode_row(row))
    document |= {"choice": writer.pack(task.variant), "failure": writer.pack(error)}
    write(folder / _FAILED / f"{task.key}.json", store.format_document(document), what="a failure")


class _SweepRun:
    """The work of one call of ``ResultStore.run``."""

    def __init__(
        self, folder: Path, tasks: Sequence[SweepTask], retries: int, progress: SweepProgress
    ) -> None:
        self._folder, self._tasks, self._progress = folder, tasks, progress
        self._retries = retries
        self._finished = 0

    def run_here(self) -> None:
        """One after the other, in this process."""
        for task in self._tasks:
            self._progress.report(1, 1)
            for attempt in range(self._retries + 1):
                check(self._progress, "the sweep")
                try:
                    run_task(task, self._progress)
                except (Cancelled, AssertionError):
                    raise
                except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
                    if attempt == self._retries:
                        self._finish(task, error)
                else:
                    self._finish(task)
                    break

    def run_in(self, executor: Executor | Callable[[Needs], Executor]) -> None:
        """In an executor's workers; a broken one is replaced where there is a function that returns another."""
        queue, fruitless = [*self._tasks], 0
        while queue:
            before = self._finished
            queue = self._run_queue(queue, executor)
            fruitless = fruitless + 1 if before == self._finished else 0
            if len(queue) == 1 and fruitless > self._retries:
                # Nothing else ran when the worker died.
                self._finish(queue[0], _make_death_error(1, self._finished))
                queue = []
            if queue and (isinstance(executor, Executor) or fruitless > self._retries):
                raise _make_death_error(len(queue), self._finished)

    def _run_queue(
        self, queue: Sequence[SweepTask], executor: Executor | Callable[[Needs], Executor]
    ) -> list[SweepTask]:
        """Run tasks; returns those that are left when the executor is broken."""
        left: list[SweepTask] = []
        pending: dict[Future[None], tuple[SweepTask, int]] = {}
        executors: dict[int, Executor] = {}
        done: SimpleQueue[Future[None]] = SimpleQueue()
        choose = (lambda _: executor) if isinstance(executor, Executor) else _choose_by_needs(executor)
        try:
            tries = [(task, 0) for task in queue]
            while tries or pending:
                for task, attempt in tries:
                    try:
                        chosen = choose(task)
                        executors[id(chosen)] = chosen
                        future = chosen.submit(run_task, task)
                    except futures.BrokenExecutor:  # noqa: PERF203 - it may break at each
                        left.append(task)
                    else:
                        pending[future] = task, attempt
                        future.add_done_callback(done.put)
                tries = []
                check(self._progress, "the sweep")
                if self._progress.is_due:
                    self._progress.report(*count_running(executors.values(), pending))
                with contextlib.suppress(Empty):
                    future = done.get(timeout=_TICK_S)
                    task, attempt = pending.pop(future)
                    error = None if future.cancelled() else future.exception()
                    if future.cancelled() or isinstance(
                        error, (futures.BrokenExecutor, futures.CancelledError)
                    ):
                        left.append(task)
                    elif error is not None and attempt < self._retries:
                        tries.append((task, attempt + 1))
                    else:
                        self._finish(task, error)
        finally:
            for future in pending:
                future.cancel()
        return left

    def _finish(self, task: SweepTask, error: BaseException | None = None) -> None:
        if error is None:
            # One of an earlier sweep is over.
            (self._folder / _FAILED / f"{task.key}.json").unlink(missing_ok=True)
        elif isinstance(error, ReadError) or not isinstance(error, Exception):
            # The store itself cannot be read, which befalls all variants.
            raise error
        else:
            _record_failure(self._folder, task, wrap_error(error, f'build "{task.name}"'))
        self._finished += 1
        kind = choose_kind(task.study, task.variant)
        self._progress.finish(kind, self._read_duration(task), failed=error is not None)

    def _read_duration(self, task: SweepTask) -> float | None:
        """The seconds of work in a result; None where there is none."""
        try:
            return _decode_row((self._folder / _ENTRIES / task.key / _ROW).read_bytes(), task.key).work_s
        except OSError:
            return None


def _choose_by_needs(make: Callable[[Needs], Executor]) -> Callable[[SweepTask], Executor]:
    """The executors that a user's function returns, one for each kind of needs."""
    executors: dict[str, Executor] = {}

    def choose(task: SweepTask) -> Executor:
        needs = _list_needs(task.variant)
        if str(needs) not in executors:
            executors[str(needs)] = make(needs)
        return executors[str(needs)]

    return choose


def _make_death_error(left: int, finished: int) -> RtlabError:
    return RtlabError(
        f"Cannot go on with the sweep: a worker of the executor ended, and the executor with it. {finished} variants "
        f"are finished, {left} are not. Look at the memory of the machine, and run it again with another executor, or "
        "with a function that returns one."
    )


def _list_needs(variant: Variant) -> Needs:
    """The resources of a worker that a variant is built and run on."""
    on_gpu = variant.target.name != "cpu" and backends.get(variant.backend or "").capabilities().runs
    return {"gpu": 1.0} if on_gpu else {}


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """The variants of a grid in a store: all of ``rtlab.Sweep`` but what shows them.

    ``skipped`` of ``grid`` are the combinations that cannot exist.
    """

    store: ResultStore
    tasks: tuple[SweepTask, ...] = dataclasses.field(repr=False)
    grid: Grid
    thread: BackgroundRun | None = dataclasses.field(default=None, repr=False)

    def __repr__(self) -> str:
        statuses = [row.status for row in self.rows()]
        counts = [
            f"{statuses.count(s)} {s}" for s in ("built", "failed", "planned", "damaged") if s in statuses
        ]
        work = ""
        if self.thread is not None and self.thread.is_running:
            work = f" ({self.thread.progress.counts})"
        elif self.thread is not None and self.thread.error is not None:
            work = f" ({self.thread.error})"
        return f"<Sweep {', '.join(counts) or 'of no variants'}{work}>"

    def wait(self, timeout: float | None = None) -> Self:
        """Block until a sweep in the background is over, or so many seconds; raises the error that it ended with.

        >>> store.run(sweep.grid, background=True).wait()
        <Sweep 2 built>
        """
        if self.thread is not None:
            self.thread.wait(timeout)
        return self

    def cancel(self) -> None:
        """Stop a sweep in the background; what is finished stays. ``wait`` then raises ``Cancelled``.

        >>> sweep.cancel()
        """
        if self.thread is not None:
            self.thread.progress.cancel()

    def _repr_html_(self) -> str:
        rows = self.rows()
        return ResultTable(SweepRow, add_deltas(rows)).html(", see frame()")

    def rows(self) -> tuple[SweepRow, ...]:
        """The rows of its variants, in the order of the grid; planned ones included."""
        # One that an earlier sweep built may have had another name.
        return tuple(
            task.row
            if (row := self.store.row(task.key)) is None
            else dataclasses.replace(row, variant=task.name, title=task.name, model=task.model)
            for task in self.tasks
        )

    def frame(self) -> pd.DataFrame:
        """One tidy row for each variant as a ``pandas.DataFrame``, planned and failed ones included.

        The columns are those of ``Study.frame``, with model, data, compiler, machine, its load, the number of timed
        runs, the date and the seconds of work; ``error`` has the words of a failure. Units and origins are in
        ``attrs``.

        >>> sweep.frame()["variant"].tolist()
        ['fp32', 'fp16']
        """
        return _make_frame(self.rows())

    @boundary("show the Explorer")
    def explore(self, model: str | None = None, **options: Any) -> Any:
        """The Explorer on the results of one model, the first by default; those that come later are added to it.

        ``options`` are those of ``Study.explore``. Results come while the sweep runs in the background, or elsewhere.

        >>> sweep.explore()
        <Explorer tiny: 2 variants>
        """
        digests = [task.study for task in self.tasks if model in {None, task.model, task.study}]
        if not digests:
            of_model = f' of "{model}"' if model else ""
            raise VariantError(
                f"Cannot show the Explorer: the sweep has no variants{of_model}. Give a grid with some."
            )
        return self.store.explore_study(digests[0], **options)

    @boundary("draw the figure")
    def figure(self, name: str, **settings: str) -> Any:
        """A figure of the variants as a ``plotly.graph_objects.Figure``, predicted or estimated numbers marked as such.

        Args:
            name: ``pareto``: error against time, each model with the line of the variants that no other one beats; or
                ``parallel``: a line for each variant over the choices of the grid and the numbers.
            settings: Columns of ``frame()``. Of ``pareto``: ``x``, ``time_ms`` (measured) or ``estimate_ms``, by
                default the first that there is; and ``y``, ``output_sqnr`` (default), ``score`` or ``score_delta``. Of
                ``parallel``: ``color``, the number that colours the lines, the last one by default.

        Raises:
            VariantError: there is no such figure or column, or no variant has its numbers.

        >>> sweep.figure("parallel").data[0].dimensions[0].label
        'precision'
        """
        choices = [describe_choices(task.variant) for task in self.tasks]
        return self.store.draw_figure(name, add_deltas(self.rows()), choices, settings)


def _make_frame(rows: Sequence[SweepRow]) -> pd.DataFrame:
    return ResultTable(SweepRow, add_deltas(rows)).frame()


def add_deltas(rows: Sequence[SweepRow]) -> tuple[SweepRow, ...]:
    """Rows with the difference of each score to that of fp32 of the same study."""
    references: dict[tuple[str, str], SweepRow] = {}
    for row in rows:
        if row.precision == "fp32" and row.score is not None:
            references.setdefault((row.study, row.metric), row)

    def add(row: SweepRow) -> SweepRow:
        reference = references.get((row.study, row.metric))
        if row.score is None or reference is None or reference is row or reference.score is None:
            return row
        return dataclasses.replace(row, score_delta=row.score - reference.score)

    return tuple(map(add, rows))
