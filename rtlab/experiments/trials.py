"""What ``doctor`` tries: each returns what was seen, raises ``Skipped`` with a reason, or fails with an error."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from rtlab import samples
from rtlab.core.engine import Engine
from rtlab.core.model import Model, wrap
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import Backend, Builder, BuildRequest, Counter, Evaluator, Opener, Runner
from rtlab.core.variant import Target, Variant
from rtlab.errors import Cancelled, RunError
from rtlab.experiments.running import difference, open_engine
from rtlab.relation.coverage import coverage
from rtlab.relation.relate import relate

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Where to get what computes any value of a model; that there is none is told by an error.
Reference = Callable[[], Evaluator]
#: The step whose success means that an engine ran on the GPU.
RAN = "outputs against ONNX Runtime"
#: A trained network of 8×8 pictures: convolutions, branches, pools and a product, built in seconds.
_SAMPLE = "digits_inception"
#: Greatest error beside ONNX Runtime, relative to the largest value: FP32 sums in another order.
_TOLERANCE = 1e-3
#: Seconds over which inferences are counted.
_COUNTING = 0.5
#: Inner tensors that are asked for one by one where not all exist.
_SINGLY = 12


@runtime_checkable
class BuilderBackend(Backend, Builder, Protocol):
    """What builds."""


@runtime_checkable
class BuilderRunner(BuilderBackend, Runner, Protocol):
    """What builds and runs."""


class Skipped(Exception):  # noqa: N818 - not a fault
    """Why something was not tried."""


class Failed(Exception):  # noqa: N818 - the words are those of a check
    """What was wrong with what came out."""


def available(backend: Backend) -> str:
    """Whether a backend can be used here."""
    here = backend.availability()
    if not here.ok:
        raise Skipped(here.reason)
    return here.version


def small_model(reference: Reference) -> str:
    """One product and a ReLU on the CPU, against NumPy."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 8)).astype(np.float32), rng.normal(size=(8, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(w, "w")],
    )
    model = wrap(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name="small"
    )
    outputs = _compute_outputs(reference, model, {"x": x}, ("y",))
    return _compare({"y": np.maximum(x @ w, 0)}, outputs)


def build(backend: Builder, target: Target) -> str:
    """Build the sample for one target."""
    engine = backend.build(_make_request(target), Silent())
    if not engine.layers:
        raise Failed("the build told of no layers")
    return f"{len(engine.layers)} layers in {engine.seconds:.2f} s; {_summarize_mapping(_load_sample().model, engine)}"


def get_local_target(backend: Backend) -> Target | None:
    """The target of the GPU that is here, where the backend knows of one."""
    return backend.capabilities().local


def cancel(backend: BuilderBackend) -> str:
    """Ask a build to stop as soon as the compiler works."""
    progress = _CancelOnPhase()
    target = backend.capabilities().targets[0]
    try:
        backend.build(_make_request(target), progress)
    except Cancelled:
        return f"stopped {time.perf_counter() - progress.requested_at:.2f} s after it was asked"
    raise Skipped("the build was done before it could be stopped")


class _CancelOnPhase(Silent):
    """Asks to stop at the first step after the start."""

    def __init__(self) -> None:
        super().__init__()
        self.requested_at = 0.0

    def phase(self, name: str, total: int | None = None) -> None:  # noqa: ARG002 - the protocol's signature
        """Ask to stop."""
        self.requested_at = self.requested_at or time.perf_counter()
        self.cancel()


class GpuTrial:
    """One engine on the GPU, built and then run in every way. A step that needs what failed before is skipped."""

    def __init__(self, backend: BuilderRunner, reference: Reference) -> None:
        self._backend, self._reference = backend, reference
        self._engine: Engine | None = None

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Names and actions, in order."""
        yield "build and inspect on the GPU", self.inspect
        yield RAN, self.outputs
        yield "inner tensors against ONNX Runtime", self.inner
        yield "times of layers", self.profile
        yield "throughput", self.throughput
        yield "save and open again", self.reopen
        yield "timing cache", self.cache

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._backend.release(self._engine)

    def inspect(self) -> str:
        """Build for the local GPU and ask the engine for its layers."""
        engine = self._backend.build(_make_request(self._target(), keep_plan=True), Silent())
        if engine.plan is None:
            raise Failed("the build gave no plan")
        load_error = next((n for n in engine.notes if n.startswith("not loaded")), "")
        if load_error:
            raise Failed(load_error)
        self._engine = engine
        return f"{len(engine.layers)} layers; {_summarize_mapping(_load_sample().model, engine)}"

    def outputs(self) -> str:
        """The network's outputs."""
        outputs = self._backend.outputs(self._require_engine(), _load_batch())
        return _compare(self._compute_expected(tuple(outputs)), outputs)

    def inner(self) -> str:
        """Tensors between layers, by the names that the inspector gives them."""
        engine, model = self._require_engine(), _load_sample().model
        tensor_names = dict.fromkeys(t.name for layer in engine.layers for t in layer.outputs)
        names = [n for n in tensor_names if n in model.values and n not in model.outputs]
        if not names:
            raise Skipped("no layer writes a value of the model under its own name")
        try:
            outputs = dict(self._backend.outputs(engine, _load_batch(), names))
        except RunError as error:
            outputs = {}
            for name in names[:_SINGLY]:
                with contextlib.suppress(RunError):
                    outputs |= self._backend.outputs(engine, _load_batch(), (name,))
            if not outputs:
                raise error from None
        comparison = _compare(self._compute_expected(tuple(outputs)), outputs)
        return f"{len(outputs)} of {len(names)} that layers write; {comparison}"

    def profile(self) -> str:
        """Times of layers beside those of whole inferences."""
        engine = self._require_engine()
        profile = self._backend.profile(engine, _load_batch(), Silent(), runs=20, warmup=5)
        inference_ms = float(np.median(profile.total))
        if not profile.samples and self._backend.capabilities().times == "inferences":
            return f"an inference takes {inference_ms:.4g} ms\n{profile.note}"
        if not profile.samples:
            raise Failed(f"no time joins a layer. {profile.note}")
        layer_sum_ms = sum(float(np.median(v)) for v in profile.samples.values())
        return (
            f"{len(profile.samples)} of {len(engine.layers)} layers timed; their medians sum to {layer_sum_ms:.4g} "
            f"ms, an inference takes {inference_ms:.4g} ms (ratio {layer_sum_ms / inference_ms:.2f})\n{profile.note}"
        )

    def throughput(self) -> str:
        """One stream against two."""
        engine, counter = self._require_engine(), self._backend
        if not isinstance(counter, Counter):
            raise Skipped("it does not count inferences that run at the same time")
        one, two = (
            counter.throughput(engine, _load_batch(), Silent(), streams=n, seconds=_COUNTING) for n in (1, 2)
        )
        return f"{one.rate:.0f} inferences/s on one stream, {two.rate:.0f} on two"

    def reopen(self) -> str:
        """Save the engine, open it, and compare what it computes."""
        engine, opener = self._require_engine(), self._backend
        if not isinstance(opener, Opener):
            raise Skipped("it opens no serialized engines")
        with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
            file = Path(folder) / "engine.plan"
            opener.save(engine, file)
            again = opener.open_plan(file)
        before, after = (
            self._backend.outputs(engine, _load_batch()),
            self._backend.outputs(again, _load_batch()),
        )
        self._backend.release(again)
        comparison = _compare(before, after)
        return f"{len(engine.plan or b'') / 1e6:.2f} MB, {len(again.layers)} layers; {comparison}"

    def cache(self) -> str:
        """Build twice with one timing cache."""
        if self._backend.capabilities().maker.tunes != "build":
            raise Skipped("this compiler times its kernels when it runs")
        target = self._target()
        with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
            file = Path(folder) / "timing.cache"
            options = BuildOptions.of(timing_cache=file)
            first, second = (
                self._backend.build(_make_request(target, options=options), Silent()) for _ in range(2)
            )
            if not file.exists():
                raise Failed("the build wrote no timing cache")
            size = file.stat().st_size
        return f"first build {first.seconds:.2f} s, second {second.seconds:.2f} s, {size} bytes"

    def _target(self) -> Target:
        target = get_local_target(self._backend)
        if target is None:
            raise Skipped("no GPU is here")
        if target not in self._backend.capabilities().targets:
            raise Skipped(f"it does not build for the GPU that is here, {target}")
        return target

    def _compute_expected(self, names: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
        return _compute_outputs(self._reference, _load_sample().model, _load_batch(), names)

    def _require_engine(self) -> Engine:
        if self._engine is None:
            self._target()
            raise Skipped("no engine was built")
        return self._engine


@functools.cache
def _load_sample() -> samples.Sample:
    return samples.load(_SAMPLE, samples=4)


def _load_batch() -> Mapping[str, NDArray[Any]]:
    sample = _load_sample()
    return next(sample.calibration.batches(sample.model, 1))


def _make_request(
    target: Target, *, keep_plan: bool = False, options: BuildOptions | None = None
) -> BuildRequest:
    variant = Variant.of("fp32", target=target, options=options)
    return BuildRequest(_load_sample().model, variant, keep_plan=keep_plan)


def _compute_outputs(
    reference: Reference, model: Model, batch: Mapping[str, NDArray[Any]], names: tuple[str, ...]
) -> Mapping[str, NDArray[Any]]:
    runner = reference()
    with open_engine(runner, model) as engine:
        return runner.outputs(engine, batch, names)


def _compare(expected: Mapping[str, NDArray[Any]], actual: Mapping[str, NDArray[Any]]) -> str:
    """The greatest error of several tensors, relative to the largest value of each."""
    worst, where = 0.0, ""
    for name, plain in expected.items():
        got = np.asarray(actual[name])
        if got.shape != plain.shape:
            raise Failed(f'"{name}" has shape {got.shape}, and {plain.shape} was expected')
        if (error := difference(got, plain)) > worst:
            worst, where = error, name
    message = f"largest relative error {worst:.1e}" + (f' at "{where}"' if where else "")
    if not worst <= _TOLERANCE:
        raise Failed(f"{message}, and {_TOLERANCE:g} is allowed")
    return message


def _summarize_mapping(model: Model, engine: Engine) -> str:
    node_coverage = coverage(relate(model, model, engine), model, engine)
    return f"{node_coverage.nodes + node_coverage.explained} of {node_coverage.all_nodes} nodes explained"
