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
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rtlab import backends
from rtlab.analyses.study_state import StudyState
from rtlab.backends import selection
from rtlab.core.budget import parse_budget
from rtlab.core.data import SampleStream
from rtlab.core.facts import VariantResult
from rtlab.core.files import write
from rtlab.core.metrics import Metric, get_slice_shapes
from rtlab.core.onnx_file import MOST_BYTES
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Silent
from rtlab.core.protocols import Progress
from rtlab.core.variant import Variant
from rtlab.documents.results import ResultTable
from rtlab.errors import CalibrationError, ReadError, RtlabError, VariantError, boundary, wrap_error
from rtlab.study import store
from rtlab.study.background import BackgroundRun
from rtlab.study.grid import Grid, describe_choices
from rtlab.study.progress import has_kernel, report_progress
from rtlab.study.records import RecordReader
from rtlab.study.saving import open_study, save_study
from rtlab.study.session import Session
from rtlab.study.sweep_progress import SweepProgress, choose_kind
from rtlab.study.sweep_rows import (
    SweepRow,
    add_deltas,
    decode_row,
    make_frame,
    reword_damage,
    select_rows,
)
from rtlab.study.sweep_run import SweepRun
from rtlab.study.sweep_task import Needs, SweepTask

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

#: Age in seconds from which an entry that is not complete is what a killed worker left.
_LEFTOVER_S = 3600.0
#: What the file begins with by which the workers of a sweep know the folder.
_SWEEP = ".sweep-"


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
        mark = self.path / store.MARK
        if mark.is_file():
            store.parse_document(mark.read_bytes(), "rtlab_store", f'the store "{path}"')
        elif self.path.exists() and not self._is_free():
            raise ReadError(
                f'Cannot open the store "{path}": it is {"a folder" if self.path.is_dir() else "a file"} of something '
                "else. Name a store, an empty folder, or one that is not there yet."
            )

    def _is_free(self) -> bool:
        """Whether the folder is empty, or has what one leaves that is killed while it makes the store."""
        return self.path.is_dir() and {store.STUDIES, store.ENTRIES, store.FAILED}.issuperset(self._list())

    def __repr__(self) -> str:
        counts = [f"{len(self._list(store.ENTRIES))} results"]
        if failed := len(self._list(store.FAILED)):
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
        again. Workers read models and samples from this folder, and write to it; those of a Dask cluster that do not
        see it get copies, and their results come back.

        Args:
            grid: What ``rtlab.grid`` returns.
            executor: Any ``concurrent.futures.Executor``; or a function that returns one for what a variant needs,
                such as ``{"gpu": 1}`` or ``{}``, and another when a worker that died has broken the first. One variant
                at a time here by default.
            retries: How often a variant that fails is tried again.
            budget_s: Seconds of measuring for each variant, as in ``Study.run``; all that can be measured by default,
                so that numbers do not depend on how busy a machine is. 0 only builds.
            again: Whether variants that failed in an earlier sweep are tried again, and those that were built and
                could not be measured.
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
        if background and progress is None and not has_kernel():
            # A line that changes would be in the way of what is typed.
            progress = Silent()
        with contextlib.ExitStack() as stack:
            mark = stack.enter_context(self._mark_folder())
            reporter = stack.enter_context(report_progress(progress))
            tasks = [dataclasses.replace(task, mark=mark) for task in self._plan(grid, budget_s)]
            todo = self._choose_tasks(tasks, again=again)
            self._save_studies(grid, tasks, {task.study for task in todo})
            counts = self._count_tasks(tasks, todo, reporter)
            run = SweepRun(self.path, todo, retries, counts)
            work = run.run_here if executor is None else functools.partial(run.run_in, executor)
            if background:
                return Sweep(self, tuple(tasks), grid, BackgroundRun(work, counts, stack.pop_all()))
            work()
        return Sweep(self, tuple(tasks), grid)

    def _count_tasks(
        self, tasks: Sequence[SweepTask], todo: Sequence[SweepTask], reporter: Progress
    ) -> SweepProgress:
        """The counts of a sweep before it runs: what is there is done, or had failed."""
        failed = {name.removesuffix(".json") for name in self._list(store.FAILED)}.difference(
            self._list(store.ENTRIES), (task.key for task in todo)
        )
        failures = sum(task.key in failed for task in tasks)
        kinds = [choose_kind(task) for task in todo]
        return SweepProgress(reporter, kinds, finished=len(tasks) - len(todo) - failures, failed=failures)

    @contextlib.contextmanager
    def _mark_folder(self) -> Iterator[str]:
        """Make the folder a store; yields the name of a file in it by which workers know the folder meanwhile.

        Raises:
            RtlabError: nothing can be written.
        """
        mark = self.path / f"{_SWEEP}{secrets.token_hex(8)}"
        try:
            for name in (store.STUDIES, store.ENTRIES, store.FAILED):
                # A folder that another machine made need not show yet, so that exist_ok would not do.
                with contextlib.suppress(FileExistsError):
                    (self.path / name).mkdir(parents=True)
            mark.touch()
        except OSError as error:
            raise RtlabError(
                f'Cannot write to the store "{self.path}": {error.strerror}. Free some space, or name a folder that is '
                "yours to write to."
            ) from error
        try:
            document = {"rtlab_store": store.SCHEMA, "rtlab": store.get_release()}
            if not (self.path / store.MARK).is_file():
                write(self.path / store.MARK, store.format_document(document), what="the store")
            yield mark.name
        finally:
            mark.unlink(missing_ok=True)

    def _choose_tasks(self, tasks: Sequence[SweepTask], *, again: bool) -> list[SweepTask]:
        """Those that are to be run; with ``again`` also what failed, and what was built and not all measured."""
        done, failed = set(self._list(store.ENTRIES)), self._list(store.FAILED)
        if not again:
            done |= {name.removesuffix(".json") for name in failed}
        todo = []
        for task in tasks:
            row = self.row(task.key) if again and task.key in done else None
            if row is not None and row.status == "built" and row.error:
                todo.append(dataclasses.replace(task, replaces=True))
            elif task.key not in done:
                todo.append(task)
        return todo

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
            recorded = selection.list_recorded_releases(backend, planned.state.model)
            version = recorded[0] if recorded else backends.get(backend).availability().version
            compiler = f"{backend} {version}"
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
            path = self.path / store.STUDIES / f"{name}.rtlab"
            if name in names and not path.is_file():
                # What does not fit into one file is read from where it lies.
                weights = planned.state.model.weight_bytes < MOST_BYTES // 2
                save_study(planned.state, path, stride=planned.stride, weights=weights, samples=True)

    def rows(self, *keys: str) -> tuple[SweepRow, ...]:
        """The rows of all results and failures, by model and name; or of those that ``remove`` would remove."""
        built = self._list(store.ENTRIES)
        rows = [self.row(key) for key in built]
        failed = {name.removesuffix(".json") for name in self._list(store.FAILED)}
        rows += [self.row(key) for key in sorted(failed.difference(built))]
        return select_rows(sorted(filter(None, rows), key=lambda row: row.order), keys)

    def list_keys(self) -> Iterator[tuple[str, str]]:
        """The keys of all results and failures, each with what it is.

        >>> {kind for key, kind in store.list_keys()}
        {'built'}
        """
        yield from ((key, "built") for key in self._list(store.ENTRIES))
        yield from ((name.removesuffix(".json"), "failed") for name in self._list(store.FAILED))

    def row(self, key: str) -> SweepRow | None:
        """The row of a key; None where nothing is here."""
        home = self.path / store.ENTRIES / key
        files = home / store.ROW, self.path / store.FAILED / f"{key}.json"
        if (row := _read_row(files, key)) is None:
            with store.watch_entry(home, _LEFTOVER_S) as is_complete:
                # It may have come meanwhile.
                row = _read_row(files, key)
            if row is None and is_complete():
                row = decode_row(b"", key)
        return row

    def frame(self, *keys: str) -> pd.DataFrame:
        """One row for each result and failure, as a ``pandas.DataFrame``: see ``Sweep.frame``.

        Args:
            keys: Which, by key, by the beginning of one, or by the name of a model; all by default.

        >>> store.frame("tiny")["model"].unique().tolist()
        ['tiny']
        """
        return make_frame(select_rows(add_deltas(self.rows()), keys))

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
            if row.study == digest and (loaded := self.load_result(state, row)) is not None:
                state = loaded.add_to(state)
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
        return open_study(self.path / store.STUDIES / f"{digest}.rtlab")

    def load_result(self, state: StudyState, row: SweepRow) -> LoadedResult | None:
        """Read the result or the failure of a row; None of one that is elsewhere, or not there as a whole yet.

        One that is damaged has its words, and costs no other.
        """
        try:
            if row.status == "failed":
                content = (self.path / store.FAILED / f"{row.key}.json").read_bytes()
                document = store.parse_document(content, "rtlab_row", f'the failure of "{row.variant}"')
                variant, error = (RecordReader().unpack(document[k]) for k in ("choice", "failure"))
                return LoadedResult(row, variant, error)
            source, home = (
                store.EntrySource(state.model, None, state.limits),
                self.path / store.ENTRIES / row.key,
            )
            with store.watch_entry(home, _LEFTOVER_S) as is_complete:
                result = store.read_entry(home, source)
        except (ReadError, OSError) as error:
            if row.status == "built" and (store.has_only_row(home) or not is_complete()):
                return None
            title = f'read "{row.variant}"'
            words = error if isinstance(error, ReadError) else wrap_error(error, title, ReadError)
            return LoadedResult(row, None, reword_damage(words))
        return LoadedResult(row, result.variant, result)

    def remove(self, *keys: str) -> int:
        """Remove results and failures by key, by the beginning of one, or by the name of a model; returns how many.

        >>> store.remove("no such key")
        0
        """
        rows = self.rows(*keys) if keys else ()
        for row in rows:
            self._discard(row.key)
        return len(rows)

    def _discard(self, key: str) -> None:
        try:
            (self.path / store.FAILED / f"{key}.json").unlink(missing_ok=True)
            store.remove_entry(self.path / store.ENTRIES, key)
        except OSError as error:
            raise RtlabError(
                f'Cannot remove result "{key}": {error.strerror}. End what uses it, or make the folder yours to write '
                "to."
            ) from error

    def collect_garbage(self) -> Mapping[str, int]:
        """Remove what killed workers left, entries that are damaged, and studies without results; returns the counts.

        No study is removed while a sweep runs, or within an hour of one that was killed.
        Every file of every entry is read, and compared with its digest.

        >>> store.collect_garbage()
        {'leftovers': 0, 'damaged': 0, 'studies': 0}
        """
        counts = {"leftovers": 0, "damaged": 0, "studies": 0}
        for pattern in (
            *(f"{name}/.*" for name in (store.ENTRIES, store.STUDIES, store.FAILED)),
            f"{_SWEEP}*",
        ):
            for leftover in self.path.glob(pattern):
                # Who writes it may be done with it.
                with contextlib.suppress(FileNotFoundError):
                    # A file's date is of the clock on the wall.
                    now = datetime.now(timezone.utc).timestamp()
                    if now - leftover.stat().st_mtime > _LEFTOVER_S:
                        shutil.rmtree(
                            leftover, ignore_errors=True
                        ) if leftover.is_dir() else leftover.unlink()
                        counts["leftovers"] += 1
        for key in self._list(store.ENTRIES):
            home = self.path / store.ENTRIES / key
            if _is_damaged(home):
                self._discard(key)
                counts["damaged"] += 1
        used = {f"{row.study}.rtlab" for row in self.rows()}
        # What runs may have no results yet.
        is_busy = any(self.path.glob(f"{_SWEEP}*"))
        for name in () if is_busy else set(self._list(store.STUDIES)) - used:
            (self.path / store.STUDIES / name).unlink(missing_ok=True)
            counts["studies"] += 1
        return counts


def _is_damaged(home: Path) -> bool:
    """Whether a file of an entry is missing, or not as it was written; what another release wrote is no damage."""
    files: dict[str, bytes] = {}
    with store.watch_entry(home, _LEFTOVER_S) as is_complete:
        try:
            files = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
            if not store.has_only_row(home):
                store.read_head(files, f'the result "{home}"')
            is_damaged = decode_row(files.get(store.ROW, b""), home.name).status == "damaged"
        except (ReadError, OSError):
            is_damaged = True
    marks = {store.DOCUMENT: "rtlab_result", store.ROW: "rtlab_row"}
    is_other = any(store.is_of_other_schema(files.get(n), m) for n, m in marks.items())
    return is_damaged and is_complete() and not is_other


def _read_row(paths: Iterable[Path], key: str) -> SweepRow | None:
    """The row in the first of these files that is there."""
    for path in paths:
        try:
            return decode_row(path.read_bytes(), key)
        except FileNotFoundError:  # noqa: PERF203 - there are two
            continue
        except OSError as error:
            return decode_row(f'"{error.strerror}"'.encode(), key)
    return None


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """The variants of a grid in a store; ``skipped`` of ``grid`` are the combinations that cannot exist."""

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
        return make_frame(self.rows())

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
