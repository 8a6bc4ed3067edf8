"""Study: composes the stages and keeps their results.

A variant's layers come from the best builder, its times and tensors from what can run here. They are joined by
ONNX node, never by layer, and every number keeps the name of the engine and device that it came from.
"""

from __future__ import annotations

__all__ = ["Job", "Result", "Score", "Study", "available", "explore"]

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rtlab import backends
from rtlab.analysis import timing as _timing
from rtlab.analysis.mapping import relate
from rtlab.core.data import CalibrationData, Task
from rtlab.core.engine import Engine
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent, Terminal
from rtlab.core.protocols import Limits, Progress, Reader
from rtlab.core.variant import Calibrator, Precision, Target, Variant
from rtlab.errors import Cancelled, RtlabError, Unavailable, VariantError
from rtlab.quantize import Prepared
from rtlab.quantize.ranges import Ranges
from rtlab.study.job import Job, Result, Score, work
from rtlab.study.observer import Observer

if TYPE_CHECKING:
    import onnx

    from rtlab.analysis.tensors import TensorStats
    from rtlab.widgets.explorer import Explorer
    from rtlab.widgets.graph import Graph

#: Where an engine is built for when the user does not say.
_DEFAULT_SM = "sm86"


class Study:
    """One model, several variants.

    Args:
        model: A loaded model, or what ``rtlab.load`` accepts.
        data: Samples for calibration and comparison; 64 random ones by default.
        task: Held-out samples with labels, for the task's accuracy.
        limits: Bounds of each build.
    """

    def __init__(
        self,
        model: Model | str | Path | bytes | onnx.ModelProto,
        *,
        data: CalibrationData | None = None,
        task: Task | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else load(model)
        self.data = data if data is not None else CalibrationData.random(self.model)
        self.data.check(self.model)
        if task is not None:
            task.data.check(self.model)
        self.task = task
        self.limits = limits or Limits()
        self.variants: dict[str, Variant] = {}
        self.results: dict[str, Result] = {}
        self.failures: dict[str, RtlabError] = {}
        self._lock = threading.Lock()
        self._observer = Observer(self.model)

    def __repr__(self) -> str:
        return f"<Study {self.model.name}: {len(self.results)} of {len(self.variants)} variants built>"

    def _repr_html_(self) -> str:
        from rtlab.view.table import study_html

        return study_html(self)

    def __getitem__(self, name: str) -> Result:
        if name in self.results:
            return self.results[name]
        if name in self.failures:
            raise self.failures[name]
        known = ", ".join(f'"{n}"' for n in self.variants) or "none yet"
        hint = "Run study.run()." if name in self.variants else f"Add it with study.add; there is {known}."
        raise VariantError(f'Cannot show variant "{name}": it is not built. {hint}')

    def __iter__(self) -> Iterator[str]:
        return iter(self.variants)

    def __len__(self) -> int:
        return len(self.variants)

    def add(
        self,
        name: str,
        *,
        precision: str | Precision | None = None,
        calibrator: str | Calibrator | None = None,
        target: str | Target | None = None,
        backend: str | None = None,
    ) -> Variant:
        """Plan a variant; nothing is built yet.

        ``precision`` defaults to ``name`` when that is a precision, otherwise to fp32. ``backend`` None takes the
        best builder available, ``target`` None its default.

        Raises:
            VariantError: the combination cannot exist.
            Unavailable: the backend is not installed.
        """
        if precision is None:
            precision = name if name in {p.value for p in Precision} else Precision.FP32
        builder = _builder(backend, target)
        if target is None:
            target = "cpu" if builder == "onnxruntime" else _DEFAULT_SM
        variant = Variant.of(precision, calibrator=calibrator, target=target, backend=builder)
        capable = backends.get(builder).capabilities()
        if variant.target not in capable.targets:
            known = ", ".join(f'"{t}"' for t in capable.targets)
            raise VariantError(
                f'Backend "{builder}" cannot build for target "{variant.target}": it does not compile for it. '
                f"Choose one of {known}, or another backend."
            )
        allowed = capable.precisions
        if variant.precision not in allowed:
            names = ", ".join(f'"{p}"' for p in allowed)
            raise VariantError(
                f'Backend "{builder}" cannot build "{variant.precision}": it does not offer this precision yet. '
                f"Choose one of {names}."
            )
        with self._lock:
            if self.variants.get(name) != variant:
                self.results.pop(name, None)
                self.failures.pop(name, None)
            self.variants[name] = variant
        return variant

    def read(
        self,
        name: str,
        *,
        layers: str | Path,
        profile: str | Path | None = None,
        times: str | Path | None = None,
        metadata: str | Path | None = None,
    ) -> Result:
        """Read an engine of this model that TensorRT built on another machine, as a variant beside the others.

        Args:
            name: What the variant is called here; one of this name is replaced.
            layers: ``trtexec --exportLayerInfo``.
            profile: ``trtexec --exportProfile``: GPU times of the layers, joined by name.
            times: ``trtexec --exportTimes``: GPU times of whole inferences.
            metadata: JSON with ``device_information``, as NVIDIA's trex writes it: the GPU's name.

        Raises:
            ReadError: a file is damaged, or the profile belongs to another engine.
        """
        given = {"layers": layers, "profile": profile, "times": times, "metadata": metadata}
        files = {k: Path(p) for k, p in given.items() if p is not None}
        reader = cast("Reader", backends.get("trtexec"))
        engine, times_ = reader.read(files)
        mapping = relate(self.model, self.model, engine)
        if not mapping.pairs:
            engine = dataclasses.replace(
                engine,
                notes=(
                    *engine.notes,
                    f'No layer names a node of model "{self.model.name}": is it the same model?',
                ),
            )
        variant = Variant(_narrowest(engine), target=engine.target, backend=engine.backend)
        result = Result(
            name,
            variant,
            Prepared(self.model, self.model),
            engine,
            mapping,
            measured=engine if times_ else None,
            measured_mapping=mapping if times_ else None,
            timing=_timing.timing(times_, engine) if times_ else None,
            recorded=True,
        )
        with self._lock:
            self.failures.pop(name, None)
            self.variants[name] = variant
            self.results[name] = result
        return result

    def remove(self, name: str) -> None:
        """Forget a variant and its results."""
        with self._lock:
            for table in (self.variants, self.results, self.failures):
                table.pop(name, None)

    def run(
        self,
        names: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
        progress: Progress | None = None,
        compare: bool = True,
    ) -> Study:
        """Build, profile and compare what is not built yet.

        Args:
            names: Variants to run; all by default.
            executor: Any ``concurrent.futures.Executor``; one variant at a time here by default.
            progress: Where to report; the host's reporter by default.
            compare: Whether to run the variants for times, errors and score, or only to build them.

        Raises:
            RtlabError: the first failure, after the others were tried. Finished variants stay.
            Cancelled: the work was stopped. Finished variants stay.
        """
        own = _reporter() if progress is None else None
        watched: Progress = own or progress or Silent()
        todo = [n for n in (names or self.variants) if n not in self.results]
        try:
            if executor is None:
                for name in todo:
                    job = self._job(name, watched, compare=compare)
                    self._keep(name, functools.partial(work, job, watched))
            else:
                jobs = {n: self._job(n, watched, compare=compare) for n in todo}
                futures = {n: executor.submit(work, job) for n, job in jobs.items()}
                for name, future in futures.items():
                    self._keep(name, future.result)
        except KeyboardInterrupt:
            raise Cancelled(
                "Stopped the study: interrupted. Finished variants are kept; run study.run() to go on."
            ) from None
        finally:
            if own is not None:
                own.close()
        failed = [self.failures[n] for n in todo if n in self.failures]
        if failed:
            raise failed[0]
        return self

    def _keep(self, name: str, work: Callable[[], Result]) -> None:
        try:
            result = work()
        except Cancelled:
            raise
        except RtlabError as error:
            with self._lock:
                self.failures[name] = error
            return
        with self._lock:
            self.failures.pop(name, None)
            self.results[name] = result

    def _job(self, name: str, progress: Progress, *, compare: bool) -> Job:
        variant = self.variants[name]
        runner = "onnxruntime" if backends.get("onnxruntime").availability().ok else None
        return Job(
            name=name,
            variant=variant,
            model=self.model,
            data=self.data,
            task=self.task,
            ranges=self.ranges(progress) if variant.calibrator else None,
            limits=self.limits,
            builder=variant.backend or _builder(None, variant.target),
            runner=runner,
            compare=compare and runner is not None,
        )

    def ranges(self, progress: Progress | None = None) -> Ranges:
        """Activation ranges of the model on the study's data, gathered once in one streaming pass.

        Raises:
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite.
        """
        return self._observer.ranges(self.data, progress or Silent())

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

    def explore(self, *, baseline: str | None = None, height: int = 760) -> Explorer:
        """The Explorer on this study's variants."""
        from rtlab.widgets.explorer import Explorer

        return Explorer(self, baseline=baseline, height=height)

    def to_html(self, path: str | Path) -> Path:
        """Write the Explorer on all built variants as one HTML file, which needs no kernel and no network.

        Raises:
            VariantError: no variant is built.
            RtlabError: the file cannot be written there.
        """
        from rtlab import report

        return report.write(self, path)

    def graph(self, name: str, other: str | None = None, *, height: int = 480) -> Graph:
        """The linked graphs of the model and of one built variant, or of two, without the rest of the Explorer."""
        from rtlab.widgets.graph import Graph

        return Graph(self, name, other, height=height)

    def explain(self, node: str, *, variant: str) -> str:
        """In words: which layers a node became and how we know, or why it has none."""
        result = self[variant]
        found = self.model.node(node)
        layers = result.mapping.layers(found.id)
        if not layers:
            missing = result.mapping.why(found.id)
            return f'"{found.title}" has no layer ({missing.reason}): {missing.text}' if missing else ""
        lines = []
        for pair in result.mapping.pairs:
            if pair.node == found.id:
                others = [self.model.by_id[n].op for n in result.mapping.nodes(pair.layer) if n != found.id]
                shared = f" with {', '.join(others)}" if others else ""
                lines.append(
                    f'"{found.title}" runs in layer "{pair.layer}"{shared} ({pair.evidence}). {pair.note}'
                )
        return "\n".join(lines)


def explore(
    model: Model | str | Path | bytes | onnx.ModelProto | None = None,
    *,
    data: CalibrationData | None = None,
    task: Task | None = None,
    height: int = 760,
) -> Explorer:
    """Open the Explorer on a model; without one, on the first sample with its data and task.

    The fp32 variant is built at once, so that there is something to see.
    """
    if model is None:
        from rtlab import samples

        sample = samples.load("digits_inception")
        model, data, task = sample.model, sample.calibration, sample.task
    study = Study(model, data=data, task=task)
    study.add("fp32")
    return study.explore(height=height).run()


def _reporter() -> Silent:
    """The host's reporter: a bar in a notebook, a line on a terminal, nothing in a pipe."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        from rtlab.widgets.progress import Bar

        return Bar()
    return Terminal()


def _builder(backend: str | None, target: str | Target | None) -> str:
    if backend is not None:
        found = backends.get(backend)
        here = found.availability()
        if not here.ok:
            raise Unavailable(f'Backend "{backend}" cannot build: {here.reason}')
        if not found.capabilities().builds:
            raise Unavailable(
                f'Backend "{backend}" cannot build: it only runs or reads. Choose another backend, or use study.read.'
            )
        return backend
    if str(target) == "cpu":
        return "onnxruntime"
    for name, candidate in backends.registry().items():
        capable = candidate.capabilities()
        if capable.builds and candidate.availability().ok and any(t.sm for t in capable.targets):
            return name
    if target is not None:
        raise Unavailable(
            f'Cannot build for target "{target}": no TensorRT builder is installed here. '
            'Choose target="cpu", or see rtlab.available().'
        )
    return "onnxruntime"


def _narrowest(engine: Engine) -> Precision:
    """The narrowest precision among an engine's layers; fp32 where their types are not told."""
    seen = {layer.precision for layer in engine.layers}
    order = (
        Precision.FP4, Precision.INT4, Precision.FP8, Precision.INT8, Precision.FP16, Precision.BF16,
    )  # fmt: skip
    return next((p for p in order if p.value in seen), Precision.FP32)


def available() -> Mapping[str, Any]:
    """Backends by name with version, or with the reason why one is missing."""
    return backends.available()
