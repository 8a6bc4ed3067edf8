"""``study.tuning``: what makes variants faster, and what this machine reaches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rtlab import backends
from rtlab.analyses.batches import Sweep
from rtlab.analyses.build.tactics import LayerTactics
from rtlab.analyses.study_state import StudyState
from rtlab.backends.bench import OrtBench
from rtlab.backends.capabilities import require_capability, suggest_backends
from rtlab.backends.reference import get_evaluator, get_runner, get_stand_in
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.peaks import Peaks
from rtlab.core.protocols import Counter, Progress
from rtlab.core.trace import Throughput
from rtlab.core.variant import Variant
from rtlab.errors import Unavailable, boundary, guard_methods
from rtlab.experiments.benchmark import BenchmarkRunner
from rtlab.experiments.peaks import CpuPeaks
from rtlab.experiments.sweep import BATCHES, BatchSweep
from rtlab.experiments.tuning import CpuTuning
from rtlab.formulations.trial import TunedModel
from rtlab.study import forced_tactics
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
        listing, tuner = forced_tactics.listing(result, self._holder.state.results.values())
        with report_progress(progress) as reporter:
            table = self._runner.search(
                listing,
                WorkContext(tuner, reporter),
                lambda state, table: state.with_entries(tactics={name: table}),
            )
        if not table:
            raise forced_tactics.no_tactics_error(result)
        return table

    def force(
        self,
        name: str,
        tactics: Mapping[str, str | int],
        *,
        as_: str = "forced",
        progress: Progress | None = None,
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
        copy = forced_tactics.copy_path(result, as_, self._holder.state.variants)
        forced_tactics.check(result, tactics)
        with report_progress(progress) as reporter:
            table = self.tactics(name, progress=reporter)
            forced_variant = forced_tactics.force(result, tactics, table, copy, reporter)
        self._holder.plan(as_, forced_variant, self._holder.state.scales.get(name))
        return forced_variant

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
        sweep = BatchSweep.of(self._holder.result(name), self._holder.data, batches, get_stand_in())
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
        batch = next(self._holder.data.batches(result.prepared.model, 1))
        with report_progress(progress) as reporter:
            return counter.throughput(engine, batch, reporter, streams=streams, seconds=seconds)


def _with_processor(state: StudyState, peaks: Peaks) -> StudyState:
    others = (p for p in state.processors if p.name != peaks.name)
    return dataclasses.replace(state, processors=(peaks, *others))
