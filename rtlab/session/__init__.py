"""Plans, jobs and what came of them: the one thing that changes. ``Study`` is its handle in a notebook.

A variant's layers come from the best builder, its times and tensors from what can run here. They are joined by
ONNX node, never by layer, and every number keeps the name of the engine and device that it came from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rtlab import backends, questions
from rtlab.backends.bench import OrtBench
from rtlab.backends.choosing import builder_for, check_capable, default_target, opener_for
from rtlab.backends.live.apart import warm
from rtlab.backends.reference import stand_in
from rtlab.backends.roles import advice, role
from rtlab.core.arrays import Batch
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Facts
from rtlab.core.finding import Finding
from rtlab.core.heap import growing
from rtlab.core.model import Model, load
from rtlab.core.options import BuildOptions
from rtlab.core.peaks import Peaks
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Backend, Counter, Limits, Progress, View
from rtlab.core.ranges import Ranges
from rtlab.core.scale import Scale
from rtlab.core.stage import BUDGET_S, Budget, budget_of
from rtlab.core.task import Task
from rtlab.core.trace import Throughput
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Target, Variant
from rtlab.errors import (
    CalibrationError,
    Cancelled,
    RtlabError,
    Unavailable,
    VariantError,
    boundary,
    told,
)
from rtlab.experiments.forcing import Tactics, copy_path
from rtlab.experiments.forcing import force as forced
from rtlab.experiments.forcing import tactics as timed_tactics
from rtlab.experiments.peaks import measured_peaks
from rtlab.experiments.ranking import rank
from rtlab.experiments.sweep import BATCHES, sweep
from rtlab.experiments.tuning import tune
from rtlab.formulations.recurrent import Timed, recurrent, timed
from rtlab.formulations.trial import Tuned
from rtlab.quantize import export, findings, scales
from rtlab.quantize import sparsity as _sparsity
from rtlab.quantize.export import Exported
from rtlab.quantize.ranges import STRIDE
from rtlab.quantize.sparsity import SparseWeight
from rtlab.questions.batches.sweeps import Sweep
from rtlab.questions.calibration.seen import Calibration
from rtlab.questions.snapshot import Snapshot
from rtlab.questions.variants.variations import variations
from rtlab.session.job import Job, compiled, prepared
from rtlab.session.kept import Kept
from rtlab.session.measuring import broken, last, measured, planned
from rtlab.session.observer import Observer, observe_values
from rtlab.session.planning import Scales, resolve
from rtlab.session.recorded import gathered, narrowest, recorded
from rtlab.session.watching import watching

if TYPE_CHECKING:
    import onnx
    from typing_extensions import Self

    from rtlab.core.facts import Ranked
    from rtlab.questions.inspection.tensors import TensorStats

R = TypeVar("R")

#: The part of a budget that calibration may take, so that the engine is not kept waiting.
_CALIBRATING = 1 / 3
#: Seconds after which work in an executor looks whether somebody wants it to stop.
_TICK_S = 0.1


class Session(Generic[R]):
    """One model, several variants. ``R`` is how it hands out what is known of one: ``rtlab.Result`` in a notebook.

    Args:
        model: A loaded model, or what ``rtlab.load`` accepts.
        data: Samples for calibration and comparison, whatever ``CalibrationData.of`` takes; 64 random ones by
            default.
        task: Held-out samples with labels, for the task's accuracy.
        limits: Bounds of each build.
        stride: Of large activation maps every how many elements enter a histogram; 1 counts all of them, and takes
            longer. The least and the largest value are exact whatever it is.
    """

    def __init__(
        self,
        model: Model | str | Path | bytes | onnx.ModelProto,
        *,
        data: Any = None,
        task: Task | None = None,
        limits: Limits | None = None,
        stride: int = STRIDE,
    ) -> None:
        self.model = model if isinstance(model, Model) else load(model)
        self._data = None if data is None else CalibrationData.of(data, model=self.model)
        if self._data is not None:
            self._data.check(self.model)
        if task is not None:
            task.data.check(self.model)
        self.task = task
        self.limits = limits or Limits()
        self._kept = Kept()
        #: Views that hear of new results, in the thread that has them; one that is gone drops out.
        self.views: weakref.WeakSet[View] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._stride = stride
        self._observer = Observer(self.model, stride)
        self._pruned: dict[tuple[str, ...], Observer] = {}
        self._ranking: tuple[Ranked, ...] = ()
        #: What ``tune`` found last; None before.
        self.tuned: Tuned | None = None
        #: Processors to judge engines by, beside those of the table: measured here, or added by the user.
        self.processors: list[Peaks] = []

    @property
    def variants(self) -> Mapping[str, Variant]:
        """What was planned, by name, at this moment: what changes the study later does not change this mapping."""
        return self._kept.variants

    @property
    def facts(self) -> Mapping[str, Facts]:
        """What is known of those that were built or read, by name, at this moment."""
        return self._kept.facts

    @property
    def failures(self) -> Mapping[str, RtlabError]:
        """Why variants could not be built, by name, at this moment."""
        return self._kept.failures

    @property
    def sweeps(self) -> Mapping[str, Sweep]:
        """What was timed at several batch sizes, by variant, at this moment."""
        return self._kept.sweeps

    @property
    def forms(self) -> Mapping[str, tuple[Timed, ...]]:
        """The forms of recurrent nodes that were timed here, by node, at this moment."""
        return self._kept.forms

    def snapshot(self) -> Snapshot:
        """The study as it is now, for whoever reads several things of it while others add, run or remove variants."""
        kept = self._kept
        return Snapshot(
            self.model, kept.variants, kept.facts, kept.failures, kept.sweeps, kept.forms,
            tuned=self.tuned, processors=tuple(self.processors), calibration=self.calibration, given=self.given,
            task=self.task,
        )  # fmt: skip

    @property
    def data(self) -> CalibrationData:
        """Samples for calibration and comparison; where none were given, random ones, made when they are asked for.

        Raises:
            ModelError: none were given, and a dimension of an input has no size.
        """
        if self._data is None:
            self._data = CalibrationData.random(self.model)
        return self._data

    def use(self, data: Any) -> Self:
        """Take other samples for calibration and comparison from now on: ``study.use("samples.npz").run()``.

        Variants that are built stay on screen and say what they rest on; ``run`` builds those anew whose errors or
        scales rest on random input.

        Args:
            data: Whatever ``CalibrationData.of`` takes.

        Raises:
            CalibrationError: the data cannot be read, or does not fit the model.
        """
        given = CalibrationData.of(data, model=self.model)
        given.check(self.model)
        with self._lock:
            self._data = given
            self._observer, self._pruned = Observer(self.model, self._stride), {}
            self._ranking = ()
        self._changed()
        return self

    def outdated(self, name: str) -> bool:
        """Whether a built variant rests on random input although the study has other data by now."""
        result = self.facts.get(name)
        if result is None or result.recorded or not questions.accuracy.random_input(result):
            return False
        return not self.data.synthetic

    @property
    def given(self) -> CalibrationData | None:
        """The samples that somebody gave; None where random ones are drawn when they are needed."""
        return self._data if self._data is not None and not self._data.synthetic else None

    def _handle(self, facts: Facts) -> R:
        """What is handed out of a variant."""
        raise NotImplementedError

    def facts_of(self, name: str) -> Facts:
        """What is known of a variant.

        Raises:
            VariantError: it is not built; or what it failed with.
        """
        # A list has no hash to look for.
        called, kept = isinstance(name, str), self._kept
        if called and name in kept.facts:
            return kept.facts[name]
        if called and name in kept.failures:
            raise kept.failures[name]
        known = ", ".join(f'"{n}"' for n in kept.variants) or "none yet"
        hint = (
            "Run study.run()."
            if called and name in kept.variants
            else f"Add it with study.add; there is {known}."
        )
        raise VariantError(f'Cannot show variant "{name}": it is not built. {hint}')

    def add(
        self,
        name: str,
        *,
        precision: str | Precision | Mapping[str, str | Precision] | None = None,
        calibrator: str | Calibrator | None = None,
        target: str | Target | None = None,
        backend: str | Backend | None = None,
        weights: str = "channel",
        sparsity: bool | str | Sequence[str] = False,
        scales: Scales = None,
        options: BuildOptions | Mapping[str, Any] | None = None,
    ) -> Variant:
        """Plan a variant; nothing is built yet.

        Args:
            name: What the variant is called; one of this name is replaced.
            precision: A precision, or patterns with theirs: ``{"*": "int8", "/head/*": "fp16"}`` (an id or a name
                with ``*``, or ``op:Conv``; the last that fits counts). Defaults to ``name`` when that is a
                precision, otherwise to fp32.
            calibrator: How activations get their scales, such as ``percentile(99.9)``; auto for int8, minmax
                for fp8 by default.
            target: ``cpu`` or a compute capability; None takes the builder's default.
            backend: The builder by its name, or one of your own: any object that follows ``rtlab.core.protocols``.
                None takes the best one available.
            weights: One scale per output ``channel``, or per ``tensor``.
            sparsity: Prune weights to 2:4, all that can be (True) or those of the nodes that a pattern fits, and
                tell the compiler to look for sparse weights.
            scales: In place of a calibrator: a TensorRT calibration cache or its path, or amax by value.
            options: What a TensorRT builder is told beyond the model, by TensorRT's own names, as
                ``rtlab.BuildOptions.of`` takes them: ``{"builder_optimization_level": 5}``.

        Raises:
            VariantError: the combination cannot exist.
            Unavailable: the backend is not installed.
            ReadError: the cache is damaged.
        """
        _called(name)
        builder = builder_for(backend, target)
        planned = resolve(
            self.model,
            name,
            precision,
            calibrator=calibrator,
            target=target if target is not None else default_target(builder),
            backend=builder,
            weights=weights,
            sparsity=sparsity,
            scales=scales,
            options=BuildOptions.of(**options) if isinstance(options, Mapping) else options,
        )
        check_capable(builder, planned[0])
        return self._plan(name, *planned)

    def prepare(self, name: str, *, progress: Progress | None = None, **choice: Any) -> Prepared:
        """The ONNX model that expresses a variant's precision, without building it.

        Args:
            name: A variant that was added; or with ``choice`` one that ``run`` builds only when it is named, and
                which no backend here needs to be able to build. ``export`` writes it.
            progress: Where to report; the host's reporter by default.
            choice: What ``add`` takes.

        Raises:
            VariantError: the combination cannot exist.
            CalibrationError: the activations cannot be observed.
        """
        _called(name)
        if choice or name not in self.variants:
            planned = resolve(
                self.model, name, choice.pop("precision", None), scales=choice.pop("scales", None), **choice
            )
            if not self._kept.same(name, *planned):
                self._plan(name, *planned, build=False)
        if (built := self.facts.get(name)) is not None:
            return built.prepared
        with watching(progress) as watched:
            return prepared(self._job(name, watched, build=False), watched)

    def _plan(
        self, name: str, variant: Variant, given: Mapping[str, Scale] | None, *, build: bool = True
    ) -> Variant:
        self._change(lambda kept: kept.planned(name, variant, given, build=build))
        return variant

    def _change(self, made: Callable[[Kept], Kept]) -> None:
        """Put what is kept into the place of what was, in one step."""
        with self._lock:
            self._kept = made(self._kept)

    @growing()
    @boundary("read the files")
    def read(
        self,
        name: str,
        *files: str | Path,
        layers: str | Path | None = None,
        profile: str | Path | None = None,
        times: str | Path | None = None,
        log: str | Path | None = None,
        output: str | Path | None = None,
        metadata: str | Path | None = None,
        cache: str | Path | None = None,
        model: str | Path | None = None,
        inputs: Batch | str | Path | None = None,
        optimization_profile: int | None = None,
        backend: str | Backend | None = None,
        **more: str | Path,
    ) -> R:
        """Read an engine of this model that another machine built, as a variant beside the others.

        Args:
            name: What the variant is called here; one of this name is replaced.
            files: Files whose kind is found by what is in them: any below, and NVIDIA trex's archives, profiles and
                optimized models of ONNX Runtime, results that Polygraphy saved.
            layers: ``trtexec --exportLayerInfo``.
            profile: ``trtexec --exportProfile``: GPU times of the layers, joined by name.
            times: ``trtexec --exportTimes``: GPU times of whole inferences.
            log: A verbose build log: fusion pass by pass, tactics, memory.
            output: ``trtexec --exportOutput``.
            metadata: JSON with ``device_information``, as NVIDIA's trex writes it: the GPU's name.
            cache: A TensorRT calibration cache that the engine was built with.
            model: The ONNX file that the engine was built from, where that is not the study's own: one that
                ``export`` wrote, for example.
            inputs: What ``output`` was computed from, arrays by input or an ``.npz``, so that errors can be told.
            optimization_profile: Which of several optimization profiles to show; the first by default.
            backend: What reads them, by its name or an object that follows ``rtlab.core.protocols``; rtlab's own reader
                by default.
            more: Files by another kind that ``rtlab.backends.files.recognise`` tells, such as ``archive``.

        Raises:
            ReadError: a file is damaged, or files belong to different engines.
            ModelError: the model cannot be loaded.
            CalibrationError: the inputs do not fit the model.
        """
        given = gathered(
            files,
            {
                "layers": layers, "profile": profile, "times": times, "log": log, "output": output,
                "metadata": metadata, "cache": cache, "model": model, **more,
            },
        )  # fmt: skip
        data = None if inputs is None else CalibrationData.of(inputs, model=self.model)
        if data is not None:
            data.check(self.model)
        batch = None if data is None else next(data.batches(self.model, len(data)))
        found = recorded(self.model, name, given, inputs=batch, profile=optimization_profile, backend=backend)
        return self._adopt(found)

    def open(
        self,
        name: str,
        plan: str | Path,
        *,
        backend: str | Backend | None = None,
        progress: Progress | None = None,
    ) -> R:
        """Open a serialized engine of this model on the GPU that it was built for, time it and compare its values.

        Elsewhere nothing can open it: export its layers there, and ``read`` them. None takes the backend that opens
        engines here, which is that of TensorRT where there is one.

        Raises:
            Unavailable: backend, driver or GPU are missing, or version or GPU are not the engine's.
            ReadError: the file is no engine.
            RunError: it cannot be run.
        """
        _called(name)
        backend = opener_for(backend)
        found = backends.get(backend)
        if not (here := found.availability()).ok:
            raise Unavailable(
                f'Cannot open "{plan}": backend "{backend}" does not work here: {here.reason} Elsewhere, export the '
                "layers where the engine's GPU is, with trtexec --loadEngine=... --exportLayerInfo=layers.json, and "
                "read them with study.read."
            )
        targets = found.capabilities().targets
        variant = Variant(target=targets[0] if targets else Target("unknown"), backend=backend)
        with watching(progress) as watched:
            job = Job(
                name, variant, self.model, self.data, self.task, None, None, self.limits, backend, stand_in(),
                plan=str(plan),
            )  # fmt: skip
            result = last(job, compiled(job, watched), Budget(BUDGET_S), watched)
        precise = dataclasses.replace(variant, precision=narrowest(result.engine))
        return self._adopt(dataclasses.replace(result, variant=precise, recorded=True))

    def throughput(
        self, name: str, *, streams: int = 2, seconds: float = 2.0, progress: Progress | None = None
    ) -> Throughput:
        """Inferences per second of a variant's engine on its GPU, with several streams and contexts.

        Raises:
            VariantError: the variant is not built.
            Unavailable: its backend runs no engines here.
            RunError: the engine cannot be run.
        """
        result = self.facts_of(name)
        engine = result.engine
        backend = backends.get(engine.backend)
        capable = backend.capabilities()
        if not (capable.counts and backend.availability().ok and capable.runs_itself(engine)):
            raise Unavailable(
                f'Cannot measure the throughput of "{name}": backend "{engine.backend}" keeps no engine on a '
                f"GPU here. Build it where a GPU is, with {advice(lambda c: c.counts)}."
            )
        counter: Counter = role(engine.backend, "counts", "measure throughput")
        batch = next(self.data.batches(result.prepared.model, 1))
        with watching(progress) as watched:
            return counter.throughput(engine, batch, watched, streams=streams, seconds=seconds)

    @boundary("time the batch sizes")
    def sweep(
        self, name: str, batches: Sequence[int] = BATCHES, *, progress: Progress | None = None
    ) -> Sweep:
        """Time a variant at several batch sizes, on what ran it here. What was timed before a cancel is kept.

        Raises:
            VariantError: the variant is not built, did not run here, or has a fixed batch.
            RunError: not even the first batch can be run.
            Cancelled: the work was stopped.
        """
        result = self.facts_of(name)
        with watching(progress) as watched:
            for found in sweep(result, self.data, batches, watched):
                self._change(lambda kept, found=found: kept.swept(name, found))  # type: ignore[misc]
        self._changed()
        return found

    @boundary("tune the model")
    def tune(
        self,
        *,
        budget_s: float = 60.0,
        cache: str | Path | None = None,
        progress: Progress | None = None,
        **more: Any,
    ) -> Tuned:
        """Tune the model's convolutions and products on this CPU: see ``rtlab.experiments.tuning.tune``.

        Stopped before the end, it gives what was tuned until then.

        Args:
            budget_s: Seconds that it may take, approximately.
            cache: A file of times that were measured on this device before; written anew in the end.
            progress: Where to report; the host's reporter by default.
            more: ``candidates`` and ``threads``, as ``tune`` takes them.

        Raises:
            ModelError: no layer can be tuned.
            VariantError: a choice cannot be.
            ReadError: the cache is of another device.
            Cancelled: stopped before the first layer was tuned.
        """
        batch = next(self.data.batches(self.model, 1))
        with watching(progress) as watched:
            self.tuned = tune(self.model, batch, progress=watched, budget_s=budget_s, cache=cache, **more)
        self._changed()
        return self.tuned

    def tactics(self, name: str, *, progress: Progress | None = None) -> tuple[Tactics, ...]:
        """What the builder timed for each layer of a variant, and what its timing cache holds.

        See ``rtlab.experiments.forcing``.

        Raises:
            VariantError: the variant is not built, or no log tells of tactics.
            ReadError: the timing cache cannot be read.
        """
        with watching(progress) as watched:
            return timed_tactics(self.facts_of(name), self.facts.values(), watched)

    def force(
        self,
        name: str,
        tactics: Mapping[str, str | int],
        *,
        as_: str = "forced",
        cache: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Variant:
        """Plan a variant that is built with other tactics, for ``run`` and ``difference``.

        Args:
            name: A variant that was built with TensorRT and the options ``flags=["EDITABLE_TIMING_CACHE"]``
                and ``timing_cache``; that file is only read.
            tactics: By layer one that ``study.tactics`` lists: its id, or its kernel's name.
            as_: What the new variant is called.
            cache: Where the edited cache goes; beside the other by default.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant's timing cache cannot be edited, or a layer or tactic is unknown.
            ReadError: the timing cache cannot be read.
            RtlabError: the edited one cannot be written.
        """
        result = self.facts_of(name)
        with watching(progress) as watched:
            made = forced(
                result, tactics, copy_path(result, as_, cache, self.variants), self.facts.values(), watched
            )
        return self._plan(as_, made, self._kept.scales.get(name))

    def measure_peaks(self, *, progress: Progress | None = None) -> Peaks:
        """Measure what this CPU reaches, so that times of the CPU can be judged by it; takes about two seconds.

        Raises:
            BackendError: ONNX Runtime does not work here.
            Cancelled: the work was stopped.
        """
        with watching(progress) as watched:
            found = measured_peaks(watched)
        self.processors = [found, *(p for p in self.processors if p.name != found.name)]
        self._changed()
        return found

    def time_forms(self, node: str, *, progress: Progress | None = None) -> tuple[Timed, ...]:
        """Time the forms of a recurrent node on this CPU: step by step, with its gates merged, with its input hoisted.

        Stopped before the end, it gives what was timed until then.

        Args:
            node: The recurrent node.
            progress: Where to report; the host's reporter by default.

        Raises:
            ModelError: the node is no recurrence that can be written out, or there is none of this name.
            BackendError: ONNX Runtime does not work here.
            Cancelled: stopped before each form was timed once.
        """
        layer = recurrent(self.model, node)
        with watching(progress) as watched:
            bench = OrtBench(watched)
            found = timed(
                layer, lambda model, batch: bench.open(model, batch, bench.threads), progress=watched
            )
        self._change(lambda kept: kept.timed(node, found))
        self._changed()
        return found

    def vary(self, name: str, what: str) -> tuple[str, ...]:
        """Plan the variants that differ from one in a single choice; returns their names, for ``run``.

        Args:
            name: A variant.
            what: ``targets``, ``streams``, ``levels``, ``tf32`` or ``sparsity``; or an option of TensorRT's builder
                with its value, such as ``max_aux_streams=2``.

        Raises:
            VariantError: there is no such choice, or nothing of it would differ.
            Unavailable: the builder is not installed.
        """
        variant = self._known(name, "vary")
        builder = builder_for(variant.backend, variant.target)
        made = variations(name, variant, what, backends.get(builder).capabilities().targets)
        for title, choice in made.items():
            if title not in self.variants:
                self.add(title, **choice)
        return tuple(made)

    def _adopt(self, result: Facts) -> R:
        """Keep what was read, in the place of any variant of its name."""
        self._change(
            lambda kept: kept.without(result.name).planned(result.name, result.variant, None).built(result)
        )
        self._changed()
        return self._handle(result)

    def _changed(self) -> None:
        for view in tuple(self.views):
            view.changed()

    def remove(self, name: str) -> None:
        """Forget a variant and its results."""
        _called(name)
        self._change(lambda kept: kept.without(name))
        self._changed()

    @boundary("run the study")
    def run(
        self,
        names: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
        progress: Progress | None = None,
        compare: bool = True,
        budget_s: float = BUDGET_S,
        again: bool = False,
    ) -> Self:
        """Build, time, compare and score what is not built yet, or rests on random input although data came since.

        What was cancelled before goes on. Results come in stages (``Result.stages``): what is compiled is there, and
        views show it, while the rest is measured. A cancel or an error leaves the stages before it standing.

        Args:
            names: Variants to run; all that were added by default.
            executor: Any ``concurrent.futures.Executor``; one variant at a time here by default.
            progress: Where to report; the host's reporter by default.
            compare: Whether to run the variants for times, errors and score, or only to build them.
            budget_s: Seconds that each variant may take on this machine beyond compiling: calibration, times, errors
                and score rest on fewer samples and runs where they would take longer, and say so; ``measure`` goes on
                from there. 0 only builds; ``math.inf`` measures all there is.
            again: Build what is built once more. Until the new engine is there, and where none comes, the old one
                stands.

        Raises:
            VariantError: there is no variant of a name, or the budget is no number of seconds; or one that was read
                from files is to be built again.
            RtlabError: the first failure, after the others were tried. Finished variants stay.
            Cancelled: the work was stopped. Finished variants and stages stay.
        """
        seconds = budget_of(budget_s) if compare else 0.0
        several = isinstance(names, Iterable) and not isinstance(names, (str, bytes))
        wanted: list[Any] = [] if names is None else list(names) if several else [names]
        kept = self._kept
        wanted = wanted or [n for n in kept.variants if n not in kept.unbuilt]
        for name in wanted:
            self._known(name, "run")
            if again and name in kept.facts and kept.facts[name].recorded:
                raise VariantError(
                    f'Cannot build "{name}" again: it was read from files of another machine. Call study.read again.'
                )
        # By name the engine where only what was cancelled is to go on.
        todo: dict[str, Facts | None] = {
            n: None for n in wanted if again or n not in kept.facts or self.outdated(n)
        }
        if seconds:
            todo |= {n: kept.facts[n] for n in wanted if n not in todo and _cancelled(kept.facts[n])}
        if seconds and todo and executor is None and not self.views:
            # Its process starts while the first variant is compiled; where somebody waits for the picture, after that.
            warm()
        failed: list[RtlabError] = []
        with watching(progress) as watched:
            if executor is None:
                for name, engine in todo.items():
                    with self._noting(name, failed, engine):
                        budget = Budget(seconds)
                        job = self._job(name, watched, budget=None if engine else budget)
                        self._follow(job, engine or compiled(job, watched), watched, budget)
            else:
                failed += self._spread(todo, executor, watched, seconds)
        # Where an engine was there before, it still is.
        self._change(lambda kept: kept.settled(*todo))
        if failed:
            raise failed[0]
        return self

    @boundary("measure the variant")
    def measure(self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None) -> R:
        """Go on measuring a built variant where it stopped: more runs, more samples, and what failed, once more.

        Args:
            name: A variant that ``run`` built.
            budget_s: Seconds that it may take; ``math.inf`` for all there is.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built here, or the budget is no number of seconds.
            Cancelled: the work was stopped; what was measured is kept.
        """
        result, seconds = self.facts_of(name), budget_of(budget_s)
        if self.outdated(name):
            # What was found on random input is no beginning for what real samples tell.
            self.run([name], budget_s=seconds, progress=progress)
            return self._handle(self.facts_of(name))
        if result.recorded:
            raise VariantError(
                f'Cannot measure "{name}": it was read from files of another machine. Its times are in those files; '
                "add a variant of the same precision to measure one here."
            )
        with watching(progress) as watched:
            self._follow(self._job(name, watched), result, watched, Budget(seconds))
        return self._handle(self.facts_of(name))

    @boundary("calibrate the variant")
    def calibrate(self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None) -> R:
        """Observe the samples that a variant was not calibrated on yet, and build it again with the scales of all.

        Where nothing was observed since it was built, it stays. So it does when this is cancelled while it observes;
        what was seen is kept, and the next call goes on from there.

        Args:
            name: A variant with a calibrator that ``run`` built.
            budget_s: Seconds that measuring may take once it is built, as in ``run``; observing takes what it takes.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built here, or takes no scales from data.
            CalibrationError: a value is not finite.
            Cancelled: the work was stopped.
        """
        result, seconds = self.facts_of(name), budget_of(budget_s)
        if result.recorded or result.variant.calibrator is None:
            why = (
                "it was read from files of another machine"
                if result.recorded
                else "its scales were given"
                if name in self._kept.scales
                else "its precision needs no scales of activations"
            )
            raise VariantError(
                f'Cannot calibrate "{name}": {why}. Add a variant with precision="int8" and a calibrator.'
            )
        with watching(progress) as watched:
            seen = self._observer_of(result.variant).ranges(self.data, watched)
            if self.outdated(name) or result.ranges is None or result.ranges.samples != seen.samples:
                budget = Budget(seconds)
                job = self._job(name, watched, budget=budget)
                self._follow(job, compiled(job, watched), watched, budget)
        return self._handle(self.facts_of(name))

    def _follow(self, job: Job, result: Facts, progress: Progress, budget: Budget) -> None:
        """Keep a compiled variant, and each stage as it is done."""
        if not budget.seconds:
            self._keep(job, planned(job, result, "not asked"))
            return
        waiting = planned(job, result)
        self._keep(job, waiting)
        try:
            full = dataclasses.replace(job, data=self.data)
        except RtlabError as error:
            # There is nothing to measure on; the engine stands all the same.
            self._keep(job, broken(waiting, error))
            return
        for found in measured(full, result, progress, budget):
            self._keep(job, found)

    def _spread(
        self,
        todo: Mapping[str, Facts | None],
        executor: Executor,
        progress: Progress,
        seconds: float,
    ) -> list[RtlabError]:
        """Compile in an executor's workers, then measure in them; each variant is kept as it comes.

        Returns:
            What failed.
        """
        failed: list[RtlabError] = []
        pending: dict[Future[Facts], tuple[Job, Facts | None]] = {}

        def measure(job: Job, found: Facts) -> None:
            full = dataclasses.replace(job, data=self.data)
            pending[executor.submit(last, full, found, Budget(seconds))] = job, found

        for name, found in todo.items():
            with self._noting(name, failed, found):
                if found is not None:
                    measure(self._job(name, progress), found)
                    continue
                job = self._job(name, progress, budget=Budget(seconds))
                pending[executor.submit(compiled, job)] = job, None
        try:
            while pending:
                done, _ = futures.wait(pending, timeout=_TICK_S, return_when=futures.FIRST_COMPLETED)
                check(progress, "the study")
                for future in done:
                    job, engine = pending.pop(future)
                    made: Facts | None = None
                    with self._noting(job.name, failed, engine):
                        result = future.result()
                        if engine is None:
                            result = planned(job, result, "" if seconds else "not asked")
                        self._keep(job, result)
                        made = result if engine is None and seconds else None
                    if made is not None:
                        with self._noting(job.name, failed, made):
                            measure(job, made)
        finally:
            for future, (job, engine) in pending.items():
                future.cancel()
                if engine is not None:
                    with contextlib.suppress(VariantError):
                        self._keep(job, planned(job, engine, "cancelled"))
        return failed

    def _known(self, name: str, what: str) -> Variant:
        found = self.variants.get(name) if isinstance(name, str) else None
        if found is None:
            raise VariantError(
                f'Cannot {what} variant "{name}": there is none of this name. Add it with study.add.'
            )
        return found

    @contextlib.contextmanager
    def _noting(self, name: str, failed: list[RtlabError], built: Facts | None = None) -> Iterator[None]:
        """Note the failure of one variant, so that the others are tried.

        Args:
            name: The variant.
            failed: Gets the error of one that has no engine, or that was removed meanwhile.
            built: Its engine where that is being measured: it stands, and says what is missing.
        """
        before = self.variants.get(name)
        try:
            yield
        except (Cancelled, futures.CancelledError, TypeError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
            words = told(error, f'{"build" if built is None else "measure"} "{name}"')
            with self._lock:
                kept = self._kept
                stays = before is not None and before == kept.variants.get(name)
                if stays and built is not None:
                    self._kept = kept.built(broken(kept.facts.get(name, built), words))
                elif stays:
                    self._kept = kept.failed(name, words)
            if built is None or not stays:
                failed.append(words)
            self._changed()

    def _keep(self, job: Job, result: Facts) -> None:
        """Keep what was found of a variant, unless that is none of the study's any more.

        Raises:
            VariantError: it was removed, or planned anew, since its work began.
        """
        with self._lock:
            wanted = self._kept.wants(job)
            if wanted:
                self._kept = self._kept.built(result)
        if not wanted:
            raise _gone(job.name, planned=job.name in self.variants)
        self._changed()

    def _job(self, name: str, progress: Progress, *, build: bool = True, budget: Budget | None = None) -> Job:
        kept = self._kept
        if name not in kept.variants:
            raise _gone(name)
        variant = kept.variants[name]
        builder = variant.backend or (builder_for(None, variant.target) if build else "")
        implicit = variant.options is not None and variant.options.implicit
        built = kept.facts.get(name)
        if built is not None and budget is None:
            ranges = built.ranges
        else:
            ranges = self._ranges(variant, progress, budget) if variant.calibrator else None
        return Job(
            name=name,
            variant=variant,
            model=self.model,
            # Random samples of a large model take as long to make as it takes to compile.
            data=self.data if implicit else None,
            task=self.task,
            ranges=ranges,
            scales=kept.scales.get(name),
            limits=self.limits,
            builder=builder,
            runner=stand_in(),
            wanted=(self.data.count or 0) if ranges is not None else 0,
            random_ranges=ranges is not None and self._observer_of(variant).synthetic(self.data),
        )

    def _ranges(self, variant: Variant, progress: Progress, budget: Budget | None) -> Ranges:
        """What a variant is calibrated with: all samples, or those that a part of its budget suffices for."""
        observer = self._observer_of(variant)
        if budget is None:
            return observer.ranges(self.data, progress)
        # To only compile takes scales too.
        shared = budget if budget.seconds else Budget(BUDGET_S)
        with shared.share(progress, _CALIBRATING) as within:
            try:
                return observer.ranges(self.data, within)
            except Cancelled:
                seen = observer.seen
                if within.cancelled or seen is None:
                    raise
                return seen

    def _observer_of(self, variant: Variant) -> Observer:
        """The observer of the model that a variant quantizes: pruned weights compute other activations."""
        if not variant.sparsity:
            return self._observer
        pruned = self._pruned
        if (known := pruned.get(variant.sparsity)) is not None:
            return known
        chosen = _sparsity.matching(self.model, variant.sparsity)
        # Of two that ask at once the first one's is taken, and what it observes serves both.
        return pruned.setdefault(
            variant.sparsity, Observer(_sparsity.prune(self.model, chosen), self._stride)
        )

    def ranges(self, progress: Progress | None = None) -> Ranges:
        """Activation ranges of the model, gathered in one streaming pass over the study's data, once.

        A pass that was stopped goes on where it ended.

        Raises:
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite.
            Cancelled: the work was stopped; what was seen is kept.
        """
        return self._observer.ranges(self.data, progress or Silent())

    @boundary("observe the samples")
    def observe(
        self,
        more: Any = None,
        *,
        executor: Executor | None = None,
        parts: int = 4,
        progress: Progress | None = None,
    ) -> Calibration:
        """Gather activation ranges for every calibrator, or add those of more samples.

        Variants that are built keep the scales that they have; ``calibrate`` builds one with the new ones.

        Args:
            more: More data, whatever ``CalibrationData.of`` takes; the study's own by default.
            executor: Any ``concurrent.futures.Executor``, whose workers observe a part each.
            parts: Into how many parts the data is cut for an executor.
            progress: Where to report; the host's reporter by default.

        Raises:
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite, or the data does not fit the model.
            Cancelled: the work was stopped; what was seen is kept.
        """
        extra = None if more is None else CalibrationData.of(more, model=self.model)
        if extra is not None:
            extra.check(self.model)
        with watching(progress) as watched:
            if executor is not None and not (extra is None and self._observer.complete):
                self._observer.spread(self.data if extra is None else extra, executor, parts, watched)
            elif extra is not None:
                self._observer.more(extra, watched)
            else:
                self._observer.ranges(self.data, watched)
        self._ranking = ()
        return self._calibration()

    @property
    def calibration(self) -> Calibration | None:
        """What was observed so far; None before anything was."""
        with self._lock:
            observer, ranking = self._observer, self._ranking
        seen = observer.seen
        if seen is None:
            return None
        return Calibration(seen, self.data.count, observer.source(self.data), ranking, observer.complete)

    def _calibration(self) -> Calibration:
        found = self.calibration
        if found is None:
            raise CalibrationError("Nothing was observed yet. Call study.observe().")
        return found

    @boundary("rank the calibrators")
    def rank(
        self,
        calibrators: Sequence[str | Calibrator] = CALIBRATORS,
        *,
        precision: str | Precision = Precision.INT8,
        progress: Progress | None = None,
    ) -> Calibration:
        """Prepare the model with each calibrator and measure it on the task, or on the outputs without a task.

        Raises:
            VariantError: a calibrator is unknown, or the precision has no activations to scale.
            Unavailable: nothing here can run the model.
            Cancelled: the work was stopped.
        """
        several = isinstance(calibrators, Iterable) and not isinstance(calibrators, str)
        given: list[Any] = list(calibrators) if several else [calibrators]
        chosen = [Calibrator.of(c) for c in given]
        asked = Variant.of(precision).precision
        if not asked.needs_calibrator:
            raise VariantError(
                f'Cannot rank calibrators for "{asked}": it scales no activations. Choose "int8" or "fp8".'
            )
        with watching(progress) as watched:
            self._ranking = rank(
                self.model, self.ranges(watched), self.data, self.task, watched,
                precision=asked, calibrators=chosen,
            )  # fmt: skip
        return self._calibration()

    def sparse_weights(self) -> tuple[SparseWeight, ...]:
        """Weights that could be 2:4 sparse, how sparse they are, and which cannot be pruned and why."""
        return _sparsity.find(self.model)

    def findings(self, name: str | None = None) -> tuple[Finding, ...]:
        """What is worth changing about a variant's engine, the most costly first; or about the model.

        Without a name: where the quantization that the model already has is placed badly, which ``repaired`` can
        repair; empty for a model without any.

        Raises:
            VariantError: the variant is not built.
        """
        if name is None:
            return findings.check(self.model, calibrated=True)
        return questions.findings.of(self.facts_of(name))

    def repaired(
        self, chosen: Iterable[Finding | str] | None = None, *, progress: Progress | None = None
    ) -> Model:
        """The model with findings repaired, all that can be by default. Nothing of this study changes.

        Where a pair is missing whose scale no other pair tells, the study's data calibrates it, with ``auto``.

        Raises:
            VariantError: a given finding is not one of the model's, or rtlab cannot repair it.
        """
        learned: dict[str, float] = {}

        def scale_of(value: str) -> float:
            if value not in learned:
                names = dict.fromkeys((*findings.missing(self.model), value))
                known = [n for n in names if n in self.model.values]
                with watching(progress) as watched:
                    seen = observe_values(self.model, known, self.data, watched)
                learned.update({n: s.scale for n, s in scales(seen, Calibrator.AUTO).items()})
            if value not in learned:
                raise VariantError(
                    f'Cannot calibrate "{value}": the model computes no such value before it is repaired. '
                    "Repair the other findings first, and this one in the repaired model."
                )
            return learned[value]

        return findings.repair(self.model, chosen, scale_of=scale_of)

    @boundary("export the variant")
    def export(
        self, name: str, path: str | Path, *, cache: str | Path | None = None, version: str = export.VERSION
    ) -> Exported:
        """Write a variant's prepared model and its scales, and tell the commands that build it elsewhere.

        Args:
            name: A variant that is planned; it need not be built.
            path: The ONNX file; the scales go beside it, as ``.scales.json``.
            cache: Where a calibration cache of TensorRT 10 goes, for its implicit INT8.
            version: The version that the head of the cache names; TensorRT ignores a cache of another.

        Raises:
            VariantError: there is no such variant, or it has no INT8 activations for a cache.
            RtlabError: a file cannot be written, or is the one that the model was read from.
        """
        variant = self._known(name, "export")
        ready = self.prepare(name)
        return export.export(self.model, variant, ready, path, cache=cache, version=version)

    def weights(self, node: str) -> tuple[TensorStats, ...]:
        """Statistics of the constants that a node reads.

        Raises:
            ModelError: there is no such node, or its weights cannot be read any more.
        """
        return self._observer.weights(node)

    def activations(self, node: str, *, progress: Progress | None = None) -> tuple[TensorStats, ...]:
        """Statistics of what a node of the main graph writes, in fp32.

        What calibration observed is taken from there; the rest is measured on a few samples.

        Raises:
            ModelError: there is no such node.
            RunError: it stands in a body or a function, or nothing here can run the model.
            Cancelled: the work was stopped.
        """
        return self._observer.activations(node, self.data, progress or Silent())


def _cancelled(result: Facts) -> bool:
    return any(s.why == "cancelled" for s in result.stages.values())


def _gone(name: str, *, planned: bool = False) -> VariantError:
    found = "planned anew" if planned else "removed"
    return VariantError(
        f'Cannot keep what was found of variant "{name}": it was {found} while it was built or measured. '
        + ("Run study.run() for the new one." if planned else "Add it again with study.add.")
    )


def _called(name: object) -> None:
    if not isinstance(name, str):
        raise VariantError(f'Cannot call a variant "{name}": it is no name. Choose a name such as "int8".')
