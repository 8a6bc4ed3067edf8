"""``study.tuning``: what makes variants faster, and what this machine reaches."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rtlab import backends
from rtlab.analyses.batches import Sweep
from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.tactics import LayerTactics, find_contests
from rtlab.analyses.study_state import StudyState
from rtlab.backends.bench import OrtBench
from rtlab.backends.capabilities import list_capable, require_capability, suggest_backends
from rtlab.backends.reference import get_evaluator, get_runner, get_stand_in
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.facts import VariantResult
from rtlab.core.options import BuildOptions
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Counter, Progress, Tuner
from rtlab.core.trace import Throughput
from rtlab.core.variant import Variant
from rtlab.errors import Unavailable, VariantError, boundary, guard_methods
from rtlab.experiments.benchmark import BenchmarkRunner
from rtlab.experiments.peaks import CpuPeaks
from rtlab.experiments.sweep import BATCHES, BatchSweep
from rtlab.experiments.tuning import CpuTuning
from rtlab.formulations.trial import TunedModel
from rtlab.study.progress import report_progress
from rtlab.study.runner import StudyRunner


@guard_methods
class StudyTuning:
    """What makes variants faster, and what this machine reaches."""

    def __init__(self, runner: StudyRunner) -> None:
        self._runner, self._observations, self._holder = runner, runner.observations, runner.holder

    def tactics(self, name: str, *, progress: Progress | None = None) -> tuple[LayerTactics, ...]:
        """What the builder timed for each layer of a variant, and the entries of its timing cache.

        Raises:
            VariantError: the variant is not built, or no log lists tactics.
            ReadError: the timing cache cannot be read.
            Cancelled: the work was stopped; what was listed is kept, in ``study.state.tactics``.

        >>> study.tuning.tactics("fp32")
        Traceback (most recent call last):
        rtlab.errors.VariantError: Cannot list the tactics of variant "fp32": backend "onnxruntime" times no tactics ...
        """
        result = self._holder.result(name)
        prefix = f'Cannot list the tactics of variant "{name}"'
        _check_backend(prefix, result)
        logs: list[str] = []
        tuner, cache = None, None
        if not result.recorded:
            tuner, logs = _tuner(result.engine.backend), [result.engine.log]
            if not _uneditable_reason(result):
                cache = _cache(result)
                # A build does not time what is in its timing cache; variants that differ in that alone may have.
                others = (o for o in self._holder.state.results.values() if o is not result)
                logs += [o.engine.log for o in others if _differs_only_in_cache(result, o)]
        with report_progress(progress) as reporter:
            table = self._runner.search(
                TacticListing(result, tuple(logs), cache),
                WorkContext(tuner, reporter),
                lambda state, table: state.with_entries(tactics={name: table}),
            )
        if not table:
            raise VariantError(
                f"{prefix}: no log reports a tactic that was timed, since there is none, it is not "
                f"verbose, or the timing cache knew all. {_advice()}, or read the log of trtexec --verbose."
            )
        return table

    def force(
        self, name: str, tactics: Mapping[str, str], *, as_: str = "forced", progress: Progress | None = None
    ) -> Variant:
        """Plan a variant that is built with other tactics, for ``run`` and ``difference``.

        Args:
            name: A variant that was built with TensorRT and the options ``flags=["EDITABLE_TIMING_CACHE"]``
                and ``timing_cache``; that file is only read.
            tactics: By layer one that ``tactics`` lists: its id, or its kernel's name.
            as_: The name of the new variant.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant's timing cache cannot be edited, or a layer or tactic is unknown.
            ReadError: the timing cache cannot be read.
            RtlabError: the edited one cannot be written.

        >>> study.tuning.force("fp32", {"a layer": "a kernel"})  # doctest: +SKIP
        """
        result = self._holder.result(name)
        prefix = f'Cannot force tactics of variant "{name}"'
        copy = _make_copy_path(result, as_, self._holder.state.variants)
        _check_backend(prefix, result)
        if reason := _uneditable_reason(result):
            raise VariantError(f"{prefix}: {reason} {_advice()}.")
        if not tactics:
            raise VariantError(
                f"{prefix}: none is named. Choose among those of study.tuning.tactics({name!r}), as "
                f'{{"layer": "0x665ded9abbf88"}}.'
            )
        with report_progress(progress) as reporter:
            table = self.tactics(name, progress=reporter)
            entries: dict[str, Entry] = {}
            for layer, tactic in tactics.items():
                for key, candidate in _find_tactic(prefix, table, layer, tactic).items():
                    entries[key] = Entry(key, int(candidate.tactic, 0), candidate.milliseconds)
            cached_tactics = {t.key: int(t.remembered.tactic, 0) for t in table if t.remembered is not None}
            if all(cached_tactics[key] == entry.tactic for key, entry in entries.items()):
                raise VariantError(
                    f"{prefix}: its timing cache holds these already, so nothing would differ. Choose others of "
                    f"study.tuning.tactics({name!r})."
                )
            options, cache = result.variant.options, _cache(result)
            assert options is not None and cache is not None  # noqa: PT018, S101 - such a variant cannot be forced
            _tuner(result.engine.backend).forced(cache, copy, tuple(entries.values()), reporter)
        variant = dataclasses.replace(result.variant, options=dataclasses.replace(options, timing_cache=copy))
        self._holder.plan(as_, variant, self._holder.state.scales.get(name))
        return variant

    @boundary("tune the model")
    def tune(self, *, budget_s: float = 60.0, progress: Progress | None = None, **more: Any) -> TunedModel:
        """Tune the model's convolutions and products on this CPU in about ``budget_s`` seconds.

        ``candidates`` and ``threads`` are as ``rtlab.experiments.tuning.CpuTuning`` takes them. Stopped before the end,
        it returns what was tuned until then.

        Raises:
            ModelError: no layer can be tuned.
            VariantError: a choice cannot be.
            Cancelled: stopped before the first layer was tuned.

        >>> tuned = study.tuning.tune(budget_s=0.5)
        >>> tuned is study.state.tuned
        True
        """
        batch = next(self._holder.data.batches(self._holder.state.model, 1))
        with report_progress(progress) as reporter:
            bench: BenchmarkRunner = OrtBench(reporter)
            return self._runner.search(
                CpuTuning(self._holder.state.model, batch, **more),
                WorkContext(bench, reporter, Budget(seconds=budget_s)),
                lambda state, tuned: dataclasses.replace(state, tuned=tuned),
            )

    @boundary("time the batch sizes")
    def batch_sizes(
        self, name: str, batches: Sequence[int] = BATCHES, *, progress: Progress | None = None
    ) -> Sweep:
        """Time a variant at several batch sizes, on what ran it here.

        Raises:
            VariantError: the variant is not built, did not run here, or has a fixed batch.
            RunError: not even the first batch can be run.
            Cancelled: the work was stopped; what was timed is kept.

        >>> [row.batch for row in study.tuning.batch_sizes("fp32", (1, 2)).rows]
        [1, 2]
        """
        result = self._holder.result(name)
        sweep = BatchSweep.of(result, self._holder.data_of(result.variant), batches, get_stand_in())
        with report_progress(progress) as reporter:
            return self._runner.search(
                sweep,
                WorkContext(get_runner(sweep.engine.backend), reporter),
                lambda state, measured_sweep: state.with_entries(sweeps={name: measured_sweep}),
            )

    def peaks(self, *, progress: Progress | None = None) -> Peaks:
        """Measure what this CPU reaches, so that times of the CPU can be judged by it; takes about two seconds.

        Raises:
            BackendError: ONNX Runtime does not work here.
            Cancelled: the work was stopped.

        >>> study.tuning.peaks().bandwidth > 0  # doctest: +SKIP
        True
        """
        with report_progress(progress) as reporter:
            return self._runner.search(CpuPeaks(), WorkContext(get_evaluator(), reporter), _with_processor)

    def add_processor(self, peaks: Peaks) -> None:
        """Judge engines by a processor beside those of the table, in place of any of its name.

        >>> import rtlab
        >>> study.tuning.add_processor(rtlab.Peaks("my GPU", bandwidth=936e9, cores={"fp32": 35.6e12}))
        >>> study.state.processors[0].name
        'my GPU'
        """
        self._holder.publish(lambda state: _with_processor(state, peaks))

    def throughput(
        self, name: str, *, streams: int = 2, seconds: float = 2.0, progress: Progress | None = None
    ) -> Throughput:
        """Inferences per second of a variant's engine on its GPU, with several streams and contexts.

        Raises:
            VariantError: the variant is not built.
            Unavailable: its backend runs no engines here.
            RunError: the engine cannot be run.

        >>> study.tuning.throughput("fp32")  # doctest: +SKIP
        """
        result = self._holder.result(name)
        engine = result.engine
        backend = backends.get(engine.backend)
        capabilities = backend.capabilities()
        if not (capabilities.counts and backend.availability().ok and capabilities.runs_itself(engine)):
            raise Unavailable(
                f'Cannot measure the throughput of "{name}": backend "{engine.backend}" keeps no engine on a '
                f"GPU here. Build it where a GPU is, with {suggest_backends(lambda c: c.counts)}."
            )
        counter: Counter = require_capability(engine.backend, "counts", "measure throughput")
        batch = next(self._holder.data_of(result.variant).batches(result.prepared.model, 1))
        with report_progress(progress) as reporter:
            return counter.throughput(engine, batch, reporter, streams=streams, seconds=seconds)


def _with_processor(state: StudyState, peaks: Peaks) -> StudyState:
    others = (p for p in state.processors if p.name != peaks.name)
    return dataclasses.replace(state, processors=(peaks, *others))


#: Layers or tactics that a message names.
_NAMED = 6
_ACTIVITY = "listing the tactics"


@dataclasses.dataclass(frozen=True)
class TacticListing:
    """List the tactics of each layer: first the operators of the graph compiler, then the layers of other runners.

    ``logs`` are of builds made here, the variant's own first: a build that finds an operator in its timing cache does
    not time it again, so that logs of others count that differ in the cache only; empty where it was read from files.
    ``cache`` is None where none can be edited here.
    """

    facts: VariantResult
    logs: tuple[str, ...]
    cache: Path | None
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Tuner | None]) -> Iterator[tuple[LayerTactics, ...]]:
        """The tactics of the logs, then with the entries of the cache, which a child process reads.

        Raises:
            ReadError: the timing cache cannot be read, or is of another version or GPU.
            BackendError: the child process that reads it crashed.
        """
        tuner = context.tool
        log_operators = (
            [] if tuner is None else [tuner.operators(log) for log in context.iterate(self.logs, _ACTIVITY)]
        )
        variant_operators = log_operators[0] if log_operators else ()
        operators_by_key: dict[str, Operator] = {}
        for operator in (o for operators in log_operators for o in operators if o.key):
            operators_by_key.setdefault(operator.key, operator)
        yield self._list_layers(variant_operators, {})
        for cache in context.iterate((self.cache,), _ACTIVITY):
            if tuner is None or cache is None or not operators_by_key:
                return
            cache_entries = tuner.remembered(cache, tuple(operators_by_key), context)
            context.count(builds=1)
            listed_keys = {o.key for o in variant_operators}
            more = (
                o for key, o in operators_by_key.items() if key in cache_entries and key not in listed_keys
            )
            yield self._list_layers((*variant_operators, *more), cache_entries)

    def _list_layers(
        self, operators: Iterable[Operator], cache_entries: Mapping[str, Entry]
    ) -> tuple[LayerTactics, ...]:
        layers = [_make_layer_tactics(o, cache_entries.get(o.key)) for o in operators]
        log = get_build_log(self.facts)
        layers += [
            LayerTactics(contest.layer, (), tuple(c.tactic for c in contest.candidates))
            for contest in (find_contests(log) if log is not None else ())
            if not contest.operator
        ]
        return tuple(layers)


def _make_layer_tactics(operator: Operator, entry: Entry | None) -> LayerTactics:
    holds = None
    if entry is not None:
        names = {int(t.tactic, 0): t.name for t in operator.timed}
        holds = TacticTime(entry.id, names.get(entry.tactic, ""), entry.milliseconds)
    return LayerTactics(operator.name, operator.nodes, operator.timed, holds, operator.key if holds else "")


def _make_copy_path(result: VariantResult, name: str, variants: Mapping[str, Variant]) -> Path:
    """The file of the edited cache of a variant ``name``, beside the one that is read.

    Raises:
        VariantError: the variant is the one that is forced, or another variant builds with that file.
    """
    if name == result.name:
        raise VariantError(
            f'Cannot call the forced variant "{name}": this is the one that it is made of. Choose as_="forced".'
        )
    source_cache = _cache(result) or Path("timing.cache")
    plain = re.sub(r"[^\w.-]+", "_", name)
    path = source_cache.with_name(f"{source_cache.stem}.{plain}{source_cache.suffix}")
    for other, variant in variants.items():
        if other != name and variant.options is not None and variant.options.timing_cache == path:
            raise VariantError(
                f'Cannot write the edited timing cache to "{path}": variant "{other}" builds with it. Choose another '
                "name, as as_=..."
            )
    return path


def _check_backend(prefix: str, result: VariantResult) -> None:
    engine = result.engine
    if engine.maker.tunes == "load":
        raise VariantError(
            f"{prefix}: {engine.compiler} tunes on the GPU when it loads an engine, and its builds time nothing. "
            f"Choose {suggest_backends(lambda c: c.forces)}."
        )
    if not result.recorded and not backends.get(engine.backend).capabilities().forces:
        raise VariantError(
            f'{prefix}: backend "{engine.backend}" times no tactics while it builds. Choose '
            f"{suggest_backends(lambda c: c.forces)}, or study.tuning.tune() for formulations on this CPU."
        )


def _uneditable_reason(result: VariantResult) -> str:
    """Why a variant has no timing cache that can be edited here; empty where it has one."""
    options = result.variant.options
    if result.recorded:
        return "it was read from files of another machine, and a timing cache serves only where it was made."
    flag = _tuner(result.engine.backend).flag
    if options is None or flag not in options.flags or options.timing_cache is None:
        return "its build kept no timing cache that can be edited."
    return ""


def _cache(result: VariantResult) -> Path | None:
    return result.variant.options.timing_cache if result.variant.options else None


def _tuner(name: str) -> Tuner:
    tuner: Tuner = require_capability(name, "forces", "edit a timing cache")
    return tuner


def _advice() -> str:
    """How a variant is built whose tactics can be forced."""
    return " or ".join(
        f'Add it with backend="{name}", options={{"flags": ["{_tuner(name).flag}"], "timing_cache": "new.cache"}} '
        "and run it"
        for name in list_capable(lambda c: c.forces)
    )


def _differs_only_in_cache(result: VariantResult, other: VariantResult) -> bool:
    """Whether another variant was built here too, and differs in its editable timing cache at most."""
    bare = [
        dataclasses.replace(v, options=dataclasses.replace(v.options or BuildOptions(), timing_cache=None))
        for v in (result.variant, other.variant)
    ]
    return bare[0] == bare[1] and not _uneditable_reason(other)


def _find_tactic(
    prefix: str, table: Iterable[LayerTactics], layer: str, tactic: str
) -> dict[str, TacticTime]:
    """The tactic in each form of a layer that has it, by key."""
    layer_entries = [t for t in table if t.layer == layer] or [t for t in table if layer in t.nodes]
    forms = [t for t in layer_entries if t.key]
    if not forms:
        why = (
            "has no entry in the timing cache, which holds operators of TensorRT's graph compiler only"
            if layer_entries
            else "was not timed"
        )
        choices = (
            quote_names(dict.fromkeys(t.layer for t in table if t.key)) or "none: no operator is in the cache"
        )
        raise VariantError(f'{prefix}: layer "{layer}" {why}. Choose one of {choices}.')
    matches = {form.key: one for form in forms for one in form.timed if tactic in {one.tactic, one.name}}
    if not matches:
        candidates = {t.tactic: t for form in forms for t in form.timed}
        ranking = sorted(candidates.values(), key=lambda t: t.milliseconds)
        choices = ", ".join(f'"{t.tactic}" ({t.name}, {t.milliseconds:g} ms)' for t in ranking[:_NAMED])
        raise VariantError(
            f'{prefix}: tactic "{tactic}" was not timed for layer "{layer}". Choose one of {choices}.'
        )
    return matches
