"""``rtlab doctor``: what works on this machine, tried out one by one, as a text to paste into a report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import importlib.metadata
import platform
import re
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rtlab import samples
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model, wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import Backend, BuildRequest, Evaluator
from rtlab.core.variant import Target, Variant
from rtlab.errors import Cancelled, RtlabError
from rtlab.experiments.running import difference, open_engine
from rtlab.relation.mapping import coverage
from rtlab.relation.relate import relate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

Status = Literal["ok", "failed", "skipped"]
#: Where to get what computes any value of a model; raises an error where there is none.
Reference = Callable[[], Evaluator]

#: Packages whose versions matter when something fails.
_PACKAGES = (
    "numpy", "ml-dtypes", "pandas", "onnx", "onnx-ir", "onnx-graphsurgeon", "onnxruntime", "polygraphy",
    "tensorrt", "tensorrt-rtx", "anywidget", "ipywidgets", "jupyterlab", "plotly",
)  # fmt: skip
#: In place of a version.
ABSENT = "not installed"
#: A path keeps its last part. Folders may have spaces, so rather too much goes than too little. An address such as
#: https://... is no path.
_PATH = re.compile(r"(?<![\w:/])(?:[A-Za-z]:[\\/]|~?/|\\\\)(?:[^\n\"'<>|:,;()\\/]+[\\/])+")
#: Lines of a vendor's error that a failed check shows.
_LINES = 6
#: The step whose success means that an engine ran on the GPU.
_RAN = "outputs against ONNX Runtime"
#: A trained network of 8×8 pictures: convolutions, branches, pools and a product, built in seconds.
_SAMPLE = "digits_inception"
#: Greatest error beside ONNX Runtime, relative to the largest value: FP32 sums in another order.
_TOLERANCE = 1e-3


class Skipped(Exception):  # noqa: N818 - not a fault
    """Why something was not tried."""


class Failed(Exception):  # noqa: N818 - the words are those of a check
    """What is wrong with a result."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One thing that was tried: what was seen, or why it failed or was skipped, and its duration in seconds."""

    name: str
    status: Status
    seen: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of ``rtlab doctor``, without paths, host and user names.

    ``success`` is what the verdict says where no check failed; by default whether an engine ran on a GPU.
    """

    versions: Mapping[str, str]
    checks: tuple[Probe, ...]
    success: str = ""

    def __repr__(self) -> str:
        return f"<Report of rtlab doctor: {self._counts}>"

    @property
    def failed(self) -> tuple[Probe, ...]:
        """The checks that failed."""
        return tuple(c for c in self.checks if c.status == "failed")

    @property
    def verdict(self) -> str:
        """The result in words, and what to do next."""
        gpu = any(c.status == "ok" and c.name.endswith(_RAN) for c in self.checks)
        if self.failed:
            names = ", ".join(f'"{c.name}"' for c in self.failed)
            return (
                f"{self._counts}. Failed: {names}. Follow what these checks say; if it does not help, report this "
                "whole text."
            )
        if self.success:
            return f"{self._counts}. {self.success}"
        if gpu:
            return f"{self._counts}. rtlab works with the GPU of this machine. Reports of success are welcome, too."
        return (
            f"{self._counts}. rtlab works here, and no engine ran on a GPU: see why under the skipped checks. Engines "
            "from elsewhere are read on any machine; run rtlab doctor where the GPU is to try it there."
        )

    @property
    def text(self) -> str:
        """All of it as text to paste."""
        wide = max((len(k) for k in self.versions), default=0)
        long = max((len(c.name) for c in self.checks), default=0)
        lines = ["rtlab doctor", *(f"  {k:<{wide}}  {v}" for k, v in self.versions.items()), ""]
        for check in self.checks:
            first, *rest = check.seen.splitlines() or [""]
            lines.append(f"{check.status:<7}  {check.name:<{long}}  {check.seconds:6.2f} s  {first}")
            lines += [f"         {line}" for line in rest]
        return "\n".join([*lines, "", self.verdict])

    def as_dict(self) -> dict[str, Any]:
        """All of it as one JSON-ready object."""
        checks = [dataclasses.asdict(check) for check in self.checks]
        return {"versions": dict(self.versions), "checks": checks, "verdict": self.verdict}

    @property
    def _counts(self) -> str:
        statuses = [c.status for c in self.checks]
        return f"{statuses.count('ok')} ok, {statuses.count('failed')} failed, {statuses.count('skipped')} skipped"


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """Try out what rtlab does with each backend of a table; the tool gives what computes references, tried out too."""

    table: Mapping[str, Backend]
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Reference]) -> Iterator[Report]:
        """The report after each probe."""
        probes: list[Probe] = []
        works: list[Backend] = []
        with contextlib.closing(self._plan(context.tool, probes, works)) as plan:
            for name, action in context.iterate(plan, "the self-test"):
                context.phase(name)
                probes.append(attempt(name, action))
                yield Report(collect_versions(works), tuple(probes))
        yield Report(collect_versions(works), tuple(probes))

    def _plan(
        self, reference: Reference, probes: list[Probe], works: list[Backend]
    ) -> Generator[tuple[str, Callable[[], str]], None, None]:
        """Names and actions; what comes next depends on how the last of ``probes`` went."""
        yield "a small model on ONNX Runtime against NumPy", functools.partial(_try_small_model, reference)
        for name, backend in self.table.items():
            yield f"{name}: available", functools.partial(_try_backend, backend)
            if probes[-1].status != "ok":
                continue
            works.append(backend)
            can = backend.capabilities()
            if can.emulates or not can.builds:
                continue
            for target in can.targets:
                # The engine for the GPU that is here is built below, and run.
                if target != can.local:
                    yield f"{name}: build for {target}", functools.partial(_try_build, backend, target)
            if can.runs:
                with contextlib.closing(_GpuTrial(backend, reference)) as trial:
                    for what, action in trial.steps():
                        yield f"{name}: {what}", action


def attempt(name: str, action: Callable[[], str]) -> Probe:
    """The outcome of an action that returns what was seen, and raises Skipped, Failed or any other error."""
    started = time.perf_counter()
    status: Status = "ok"
    try:
        message = action()
    except Skipped as reason:
        status, message = "skipped", str(reason)
    except Cancelled:
        raise
    except Exception as error:  # noqa: BLE001 - one failing check must not take the others along
        status, message = "failed", _format_error(error)
    return Probe(name, status, clean(message), time.perf_counter() - started)


def _format_error(error: Exception) -> str:
    """The error, and the end of what the vendor said."""
    if not isinstance(error, RtlabError):
        return f"{type(error).__name__}: {error}"
    details = [line for line in error.details.splitlines() if line.strip()][-_LINES:]
    return "\n".join([f"{type(error).__name__}: {error}", *details])


def clean(text: str) -> str:
    """A text without folders, host and user names."""
    text = _PATH.sub(".../", text)
    for name in (platform.node(), platform.node().partition(".")[0], _get_user(), Path.home().name):
        if len(name) > 2:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "...", text)
    return text


def _get_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no account for the number that this process runs under
        return ""


def collect_versions(works: Iterable[Backend] = ()) -> dict[str, str]:
    """Versions of rtlab, Python, the system and the packages that matter, and the GPUs of backends that work."""
    versions = {
        "rtlab": get_version("rtlab"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        # Of the system's version only the release: the rest may name who built it.
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for backend in works:
        if device := backend.capabilities().device:
            versions["gpu"] = device
    versions |= {package: get_version(package) for package in _PACKAGES}
    return {k: clean(v) for k, v in versions.items()}


def get_version(package: str) -> str:
    """The version of a package, or ``ABSENT``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


# --- trials: each returns what was seen, raises Skipped with a reason, or fails with an error -------------------------


def _try_backend(backend: Backend) -> str:
    here = backend.availability()
    if not here.ok:
        raise Skipped(here.reason)
    return here.version


def _try_small_model(reference: Reference) -> str:
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


def _try_build(backend: Any, target: Target) -> str:
    """Build the sample for one target."""
    engine = backend.build(_make_request(target), Silent())
    if not engine.layers:
        raise Failed("the build told of no layers")
    return f"{engine.size} in {engine.seconds:.2f} s; {_summarize_mapping(_load_sample().model, engine)}"


class _GpuTrial:
    """One engine on the GPU, built and then run in every way. A step that needs what failed before is skipped."""

    def __init__(self, backend: Any, reference: Reference) -> None:
        self._backend, self._reference = backend, reference
        self._engine: Engine | None = None

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Names and actions, in order."""
        yield "build and inspect on the GPU", self.inspect
        yield _RAN, self.outputs
        yield "times of layers", self.profile
        yield "save and open again", self.reopen

    def close(self) -> None:
        """Release the engine."""
        if self._engine is not None:
            self._backend.release(self._engine)

    def inspect(self) -> str:
        """Build for the local GPU and inspect the engine."""
        engine = self._backend.build(_make_request(self._target(), keep_plan=True), Silent())
        if engine.plan is None:
            raise Failed("the build gave no plan")
        load_error = next((n for n in engine.notes if n.startswith("not loaded")), "")
        if load_error:
            raise Failed(load_error)
        self._engine = engine
        return f"{engine.size}; {_summarize_mapping(_load_sample().model, engine)}"

    def outputs(self) -> str:
        """The network's outputs."""
        outputs = self._backend.outputs(self._require_engine(), _load_batch())
        return _compare(self._compute_expected(tuple(outputs)), outputs)

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

    def reopen(self) -> str:
        """Save the engine, open it, and compare what it computes."""
        engine, opener = self._require_engine(), self._backend
        if not opener.capabilities().opens:
            raise Skipped("it opens no serialized engines")
        with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
            file = Path(folder) / "engine.plan"
            opener.save(engine, file)
            again = opener.open_plan(file)
        before, after = (self._backend.outputs(one, _load_batch()) for one in (engine, again))
        self._backend.release(again)
        comparison = _compare(before, after)
        return f"{len(engine.plan or b'') / 1e6:.2f} MB, {again.size}; {comparison}"

    def _target(self) -> Target:
        can = self._backend.capabilities()
        if can.local is None:
            raise Skipped("no GPU is here")
        if can.local not in can.targets:
            raise Skipped(f"it does not build for the GPU that is here, {can.local}")
        local: Target = can.local
        return local

    def _compute_expected(self, names: tuple[str, ...]) -> Arrays:
        return _compute_outputs(self._reference, _load_sample().model, _load_batch(), names)

    def _require_engine(self) -> Engine:
        if self._engine is None:
            self._target()
            raise Skipped("no engine was built")
        return self._engine


@functools.cache
def _load_sample() -> samples.Sample:
    return samples.load(_SAMPLE, samples=4)


def _load_batch() -> Arrays:
    sample = _load_sample()
    return next(sample.calibration.batches(sample.model, 1))


def _make_request(target: Target, *, keep_plan: bool = False) -> BuildRequest:
    return BuildRequest(_load_sample().model, Variant.of("fp32", target=target), keep_plan=keep_plan)


def _compute_outputs(reference: Reference, model: Model, batch: Arrays, names: tuple[str, ...]) -> Arrays:
    runner = reference()
    with open_engine(runner, model) as engine:
        return runner.outputs(engine, batch, names)


def _compare(expected: Arrays, actual: Arrays) -> str:
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
