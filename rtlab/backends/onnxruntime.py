"""ONNX Runtime: real layers, real times, real tensors, on the CPU wherever Python runs, or on another processor."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import platform
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.backends import compiler_info, placement, providers, vendor
from rtlab.backends.providers import CPU, PREFIX, Provider
from rtlab.backends.readers import optimized
from rtlab.backends.readers.optimized import NodeRuns
from rtlab.backends.standard_operators import StandardForm, needs_standard_operators, serialize_standard
from rtlab.backends.workers import inference, session_child
from rtlab.backends.workers.inference import (
    KEEP_WEIGHTS_MAPPED,
    NEVER_SPIN,
    RECORD_PLACEMENT,
    STOP_SPINNING,
    SessionSpec,
)
from rtlab.backends.workers.process import Bounds
from rtlab.backends.workers.session_child import ChildSession
from rtlab.core.arrays import Batch
from rtlab.core.engine import Engine, Layer
from rtlab.core.external_data import (
    LARGE_WEIGHTS,
    ExternalWeight,
    read_small_constants,
    serialize_constant,
    strip_weights,
    weights_changed_error,
)
from rtlab.core.model import Model
from rtlab.core.onnx_file import iter_weight_chunks, set_place
from rtlab.core.phrases import pluralize
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Limits, Progress
from rtlab.core.trace import Outputs, Processor, Profile
from rtlab.core.trt_operators import TRT_OPS
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError, RunError, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

R = TypeVar("R")

#: Bytes from which a weight lies outside the model that a session reads.
_EXTERNAL = 1024
#: Bytes of weights from which they are written to a file of their own; from which two sessions are not timed in turns;
#: and from which a session leaves them in that file, which takes up to twice the time.
LARGE, _LARGER, _LARGEST = 16 << 20, 1 << 28, LARGE_WEIGHTS
#: The first release that was seen to read weights in the folder of their own model, and keeps them there.
_IN_PLACE = (1, 32)
#: How many times its weights in FP32 a session has in memory at most, in another order; and bytes of each number of a
#: narrower type, which it has in FP32 too (1.32, decoders of 0.3 GB; INT8 at 3.4 GB in FP32).
_FP32_IN_MEMORY, _BYTES_PER_NARROW = 1.1, 5


def list_value_names(runnable: bytes | Model) -> tuple[str, ...]:
    """Values that the nodes of a model write, those of bodies aside."""
    if isinstance(runnable, Model):
        return tuple(v for n in runnable.top for v in n.outputs if v)
    return tuple(v for n in onnx.load_from_string(runnable).graph.node for v in n.output if v)


@contextlib.contextmanager
def open_session_model(
    runnable: bytes | Model, names: Sequence[str] = (), progress: Progress | None = None
) -> Iterator[bytes | str]:
    """What a session is made of, while it is made: bytes, or the path of a large model.

    Args:
        runnable: A model, or one as bytes.
        names: Values that are outputs besides the model's own.
        progress: Asked between weights that are written whether to stop.

    Raises:
        Cancelled: ``progress`` asked to stop.
        RunError: the model has no value of a name.
        ModelError: its weights cannot be read any more.
    """
    if not isinstance(runnable, Model):
        yield _add_outputs_to_bytes(runnable, names)
    elif count_weight_bytes(runnable) < LARGE:
        yield _add_outputs_to_bytes(_get_model_files(runnable).bytes(runnable), names)
    elif find_weights_folder(runnable):
        yield _refer_to_weights(runnable, names)
    else:
        with write_external_model(runnable, names, progress) as path:
            yield path


@contextlib.contextmanager
def write_external_model(
    model: Model,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    channels_last: Collection[str] = (),
) -> Iterator[str]:
    """The path of a model with its weights in a file beside it, while a session is made of it.

    A session reads such weights without the copies that it makes of those inside a model. Those of the names that are
    in ``channels_last`` have their transpose as output, named by ``name_channels_last``. Errors are those of
    ``open_session_model``.
    """
    with _get_model_files(model).file(model, names, progress or Silent(), channels_last) as path:
        yield str(path)


class _ModelFiles:
    """What is written of one model; many threads may ask for it, and the first one writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: bytes | None = None
        self._folder: Path | None = None
        self._graph = onnx.ModelProto()
        self._count = 0

    def bytes(self, model: Model) -> bytes:
        with self._lock:
            if self._bytes is None:
                self._bytes = serialize_standard(model) if needs_standard_operators(model) else model.bytes()
            return self._bytes

    @contextlib.contextmanager
    def file(
        self, model: Model, names: Sequence[str], progress: Progress, channels_last: Collection[str]
    ) -> Iterator[Path]:
        with self._lock:
            if self._folder is None:
                # Not every system can remove a file that a session reads.
                folder = tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True)
                weakref.finalize(model, folder.cleanup)
                self._graph = _write_external_weights(model, Path(folder.name), progress)
                self._folder = Path(folder.name)
            graph = _add_outputs(self._graph, names, channels_last)
            self._count += 1
            path = self._folder / f"model-{self._count}.onnx"
        try:
            path.write_bytes(graph.SerializeToString())
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


_MODEL_FILES: weakref.WeakKeyDictionary[Model, _ModelFiles] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def _get_model_files(model: Model) -> _ModelFiles:
    with _LOCK:
        return _MODEL_FILES.setdefault(model, _ModelFiles())


def count_weight_bytes(runnable: bytes | Model) -> int:
    """Bytes of a model's weights; of a model as bytes, all of it."""
    return runnable.weight_bytes if isinstance(runnable, Model) else len(runnable)


def find_weights_folder(runnable: bytes | Model) -> str:
    """The folder in which a session reads the largest weights themselves, and no copy; empty where there is none.

    That is for child processes: a mapped file that is cut short ends the process.
    """
    if not isinstance(runnable, Model) or runnable.weight_bytes < _LARGEST:
        return ""
    if providers.parse_release() < _IN_PLACE or needs_standard_operators(runnable):
        return ""
    weights = [
        t for v in runnable.ir.graph.initializers.values() if isinstance(t := v.const_value, ExternalWeight)
    ]
    folders = {str(Path(t.base_dir).resolve()) for t in weights}
    rest = runnable.weight_bytes - sum(t.nbytes for t in weights)
    return folders.pop() if len(folders) == 1 and rest < LARGE else ""


def _refer_to_weights(model: Model, names: Sequence[str]) -> bytes:
    """The graph of a model, which refers to the files with its weights."""
    _require_unchanged(model)
    light, weights = model.outline()
    for tensor in light.graph.initializer:
        weight = weights.get(tensor.name)
        if isinstance(weight, ExternalWeight):
            set_place(tensor, str(weight.location), weight.offset or 0, weight.nbytes)
        elif weight is not None:
            tensor.CopyFrom(serialize_constant(weight, tensor.name))
    return bytes(_add_outputs(light, names).SerializeToString())


def _require_unchanged(runnable: bytes | Model) -> None:
    """Raise ``ModelError`` where a session reads weights where they lie and their file was written since."""
    if isinstance(runnable, Model) and find_weights_folder(runnable):
        file = runnable.find_changed_file()
        if file is not None:
            raise weights_changed_error("run the model", file)


def _choose_mapping(runnable: bytes | Model) -> tuple[tuple[str, str], ...]:
    """The setting that leaves the largest weights in their file."""
    return (KEEP_WEIGHTS_MAPPED,) if count_weight_bytes(runnable) >= _LARGEST else ()


def _require_memory(runnable: bytes | Model, bounds: Bounds) -> None:
    """Refuse a session for whose weights there is no memory; raises ``BackendError`` of the kind of the work."""
    if not isinstance(runnable, Model):
        return
    initializers = [t for v in runnable.ir.graph.initializers.values() if (t := v.const_value) is not None]
    narrow = [t for t in initializers if t.dtype.bitwidth < ir.DataType.FLOAT.bitwidth]
    rest = runnable.weight_bytes - sum(t.nbytes for t in narrow)
    most = _FP32_IN_MEMORY * rest + _BYTES_PER_NARROW * sum(t.size for t in narrow)
    bounds.require_memory(runnable.weight_bytes, most / max(1, runnable.weight_bytes))


def _write_external_weights(model: Model, folder: Path, progress: Progress) -> onnx.ModelProto:
    """The graph of a model whose weights are written to a folder."""
    form = StandardForm(model) if needs_standard_operators(model) else None
    if form is None:
        light, weights = model.outline()
    else:
        # The clone shares the tensors of the model, which stays as it is.
        copy = model.ir.clone()
        form.widen_constants(copy.graph)
        light, weights = strip_weights(read_small_constants(copy))
    with (folder / "weights").open("wb") as file:
        for chunk in iter_weight_chunks(light, weights, "weights"):
            check(progress, "writing the model")
            file.write(chunk)
    if form is not None:
        form.rewrite(light)
    return light


def _add_outputs_to_bytes(data: bytes, names: Sequence[str]) -> bytes:
    return bytes(_add_outputs(onnx.load_from_string(data), names).SerializeToString()) if names else data


def _add_outputs(
    proto: onnx.ModelProto, names: Sequence[str], channels_last: Collection[str] = ()
) -> onnx.ModelProto:
    """A graph with the named values as additional outputs, or their transposes."""
    extended_proto = onnx.ModelProto()
    extended_proto.CopyFrom(proto)
    value_names = {v.name for v in (*proto.graph.input, *proto.graph.initializer)}
    value_names.update(o for n in proto.graph.node for o in n.output)
    if unknown := [n for n in names if n not in value_names]:
        raise RunError(
            f'Cannot read value "{unknown[0]}": the model has no value of this name. See model.values.'
        )
    output_names = {o.name for o in proto.graph.output}
    for name in dict.fromkeys(n for n in names if n not in output_names or n in channels_last):
        output_name = name
        if name in channels_last:
            output_name = name_channels_last(name)
            extended_proto.graph.node.append(
                onnx.helper.make_node("Transpose", [name], [output_name], perm=_LAST)
            )
        extended_proto.graph.output.add(name=output_name)
    return extended_proto


#: The permutation from NCHW to NHWC, and back.
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
#: Operators whose output is in blocks of channels where all of their inputs are.
_KEEPING_ORDER = {
    "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "HardSigmoid", "LeakyRelu", "MaxPool", "Relu",
    "Sigmoid", "Sum", "Tanh"
}  # fmt: skip


def name_channels_last(value: str) -> str:
    """The name of a value's transpose."""
    return f"{value}:channels-last"


def _move_behind_producers(path: str, names: Collection[str]) -> None:
    """Write a model anew with the named transposes right behind what they read.

    ONNX Runtime runs nodes in about their order, and writes a graph with those for outputs last: by then the values
    would have left the processor's cache.
    """
    proto = onnx.load(path, load_external_data=False)
    written = {o for n in proto.graph.node for o in n.output}
    transposes = [n for n in proto.graph.node if n.op_type == "Transpose" and n.output[0] in names]
    moved = {n.input[0]: n for n in transposes if n.input[0] in written}
    moved_outputs = {n.output[0] for n in moved.values()}
    ordered = onnx.ModelProto()
    ordered.CopyFrom(proto)
    del ordered.graph.node[:]
    for node in proto.graph.node:
        if node.output[0] not in moved_outputs:
            ordered.graph.node.append(node)
            ordered.graph.node.extend(moved[o] for o in node.output if o in moved)
    Path(path).write_bytes(ordered.SerializeToString())


def find_channels_last(model: Model, names: Sequence[str]) -> frozenset[str]:
    """Those of the values that ONNX Runtime's convolutions keep in blocks of channels (NCHWc), on x86-64.

    Such a block is copied into NHWC at once, and into NCHW element by element, which takes almost twice as long with
    ONNX Runtime 1.32: reading the transpose is faster than reading the value.
    """
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return frozenset()
    rank = len(_LAST)
    maps: set[str] = set()
    for node in model.top:
        inputs = [v for v in node.inputs if v and v not in model.known]
        if (node.op == "Conv" and len(inputs) == 1) or (
            node.op in _KEEPING_ORDER and maps.issuperset(inputs)
        ):
            maps.update(o for o in node.outputs[:1] if o and len(model.values[o].shape or ()) == rank)
    return frozenset(maps.intersection(names))


_CPU = Target("cpu")
#: Types whose kernels the CPU lacks.
_CPU_UNSUPPORTED = {Precision.BF16}
#: Bytes that the profiler keeps of each run of a kernel (1.31, two threads), those that it may keep at a time, and the
#: fewest runs, one of them untimed.
_BYTES_PER_KERNEL_RUN, _MAX_PROFILER_BYTES, _MIN_PROFILED_RUNS = 3000, 32 << 20, 3
#: Sessions kept for streaming; a comparison reads two engines in turn.
_MAX_SESSIONS = 4
#: How the notes of an engine begin that say how to open it again.
_LEVEL_PREFIX, _OPTIONS_PREFIX = "optimization level ", "provider options "
_STANDARD_NOTE = (
    "numbers in FP4 and TensorRT's own operators are computed in FP32 by operators of ONNX: times here tell nothing of "
    "theirs"
)
#: Operators whose neighbours ONNX Runtime fuses into integer kernels that round otherwise.
_QUANTIZING = {"QuantizeLinear", "DequantizeLinear"} | TRT_OPS
#: ONNX Runtime's settings for the weights of a folded model that it writes, and the optimizer that is left out then: it
#: would give two constants one name when the file is read at a higher level (1.31, on a transformer).
_FOLDED_FILE = "folded.weights"
_FOLDED = (
    ("session.optimized_model_external_initializers_file_name", _FOLDED_FILE),
    ("session.optimized_model_external_initializers_min_size_in_bytes", str(_EXTERNAL)),
)
_ONCE = ("MatMulAddFusion",)


def get_cpu_name() -> str:
    """The name of this machine's processor, as the operating system has it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _count_cores() -> int:
    import psutil

    return int(psutil.cpu_count(logical=False) or os.cpu_count() or 1)


class OnnxRuntime:
    """Builds (its optimized graph is the engine), profiles, and yields every intermediate tensor."""

    def __init__(self, provider: Provider = CPU, *, threads: int | None = None) -> None:
        self.provider = provider
        self.name = "onnxruntime" if provider == CPU else PREFIX + provider.short
        self.threads = threads or _count_cores()
        self._sessions: collections.OrderedDict[tuple[int, tuple[str, ...]], tuple[Engine, ChildSession]] = (
            collections.OrderedDict()
        )

    def availability(self) -> Availability:
        """Look for the package; it is imported for another provider than the CPU's."""
        reason = providers.explain_missing(self.provider)
        return Availability(ok=not reason, version="" if reason else providers.version(), reason=reason)

    def capabilities(self) -> Capabilities:
        """The CPU runs INT8 for real; other types run in FP32 kernels, so their tensors come from an emulation.

        BF16 is missing: for most of its operators there is no kernel at all. Other processors may have some for it, and
        are not given FP4, which the CPU computes by operators that it has. ``options`` are those of the provider.
        """
        unsupported = {Precision.FP4} if any(d != "cpu" for d in self.provider.devices) else _CPU_UNSUPPORTED
        return Capabilities(
            targets=self.provider.targets,
            precisions=tuple(p for p in Precision if p not in unsupported),
            builds=True,
            runs=True,
            options=self.provider != CPU,
            times="layers" if self._times_layers else "inferences",
            emulates=self.provider == CPU,
            maker=compiler_info.ONNX_RUNTIME,
        )

    @property
    def _times_layers(self) -> bool:
        """Whether the profiler tells how long a layer ran, and not only when it was handed over."""
        return self.provider.waits or os.environ.get(self.provider.blocking) == "1"

    @property
    def source(self) -> str:
        """What to write beside a number: name, version, provider; of the CPU's own also the threads."""
        if self.provider != CPU:
            return f"ONNX Runtime {providers.version()} {self.provider.name}"
        return f"ONNX Runtime {providers.version()} CPU, {pluralize(self.threads, 'thread')}"

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Optimize the model at ``request.level``; the layers are the nodes of the optimized graph.

        Where a provider compiles whole subgraphs, each of them is one layer, and so is each node that is left to the
        CPU; their attribute ``provider`` tells who runs them. The level is ``basic`` then.

        Raises:
            BuildError: ONNX Runtime refuses the model, or the provider takes none of its nodes.
            VariantError: an option is not one of the provider's, or chooses another device than the target's.
            Unavailable: the provider is missing or cannot start.
            Cancelled: ``progress`` asked to stop.
        """
        target = request.variant.target if self.provider != CPU else _CPU
        progress.phase(f"Optimizing for {self._describe_target(target)}")
        model = request.model
        # Beyond BASIC, ONNX Runtime 1.31 fuses an FP8 product into an INT8 kernel, which then refuses its type.
        has_small_floats = any(p.stored.is_small_float for p in request.variant.precisions)
        level = "basic" if has_small_floats else request.level
        error_prefix = f'Backend "{self.name}" cannot build "{request.variant.name}"'
        bounds = Bounds(error_prefix, session_child.BUILDING, request.limits, progress)
        notes: tuple[str, ...] = ()
        _require_memory(model, bounds)
        if self.provider == CPU:
            runnable: bytes | Model = model
            if needs_standard_operators(model):
                notes = (_STANDARD_NOTE,)
            session_child.prestart_child()
            with open_session_model(model, progress=progress):
                # What is written of a large model is there from now on.
                start = time.perf_counter()
            layers = self._build_optimized_layers(request, model, level, bounds)
        else:
            if reason := self.availability().reason:
                raise Unavailable(f"{error_prefix}: {reason}")
            runnable, start = _name_nodes_by_id(model), time.perf_counter()
            layers, level, notes = self._build_partitioned_layers(request, runnable, level, bounds)
        check(progress, "the build")
        return Engine(
            backend=self.name,
            version=providers.version(),
            target=target,
            layers=layers,
            inputs=optimized.to_tensors(model.values, model.inputs),
            outputs=optimized.to_tensors(model.values, model.outputs),
            detail="region" if any(len(y.origins) > 1 for y in layers) else "layer",
            seconds=time.perf_counter() - start,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(f"{_LEVEL_PREFIX}{level}", *notes),
            runnable=runnable,
            device="" if self.provider == CPU else self._get_device_name(target),
            maker=compiler_info.ONNX_RUNTIME,
        )

    def _build_optimized_layers(
        self, request: BuildRequest, runnable: bytes | Model, level: str, bounds: Bounds
    ) -> tuple[Layer, ...]:
        """Layers of the graph that ONNX Runtime writes after optimizing it."""
        options, target = self._get_provider_options(request), request.variant.target
        with _make_folder() as folder, open_session_model(runnable) as data:
            saved = str(Path(folder) / "optimized.onnx")
            weights_folder = find_weights_folder(runnable)
            # A file holds no more than 2 GiB, and folded constants take more than the model's own; nothing is run.
            is_large = isinstance(data, str) or bool(weights_folder)
            entries = (KEEP_WEIGHTS_MAPPED, *_FOLDED) if is_large else ()
            if is_large and os.name == "posix":
                # Of what is written, only the graph is read.
                (Path(folder) / _FOLDED_FILE).symlink_to(os.devnull)
            spec = self._create_spec(
                data, bounds.error_prefix, level, options, target,
                saved=saved, entries=entries, folder=weights_folder,
            )  # fmt: skip
            session_child.call(inference.optimize, spec, bounds)
            _require_unchanged(runnable)
            proto = onnx.load(saved, load_external_data=False)
        return optimized.read(proto, request.model.name, request.model)[0]

    def _build_partitioned_layers(
        self, request: BuildRequest, data: bytes, level: str, bounds: Bounds
    ) -> tuple[tuple[Layer, ...], str, tuple[str, ...]]:
        """Layers with their provider, the level that they are made at, and notes."""
        options, title, variant = self._get_provider_options(request), self.provider.title, request.variant
        spec = self._create_spec(
            data, bounds.error_prefix, "basic", options, variant.target, entries=(RECORD_PLACEMENT,)
        )
        parts = session_child.call(inference.optimize, spec, bounds)
        provider_parts = [part for part in parts if part.provider == self.provider.name]
        if not provider_parts:
            raise BuildError(
                f"{bounds.error_prefix}: {self.provider.name} takes none of the model's {len(request.model.top)} "
                'nodes, so that all would run on the CPU. Choose another precision, or backend="onnxruntime".'
            )
        tf32 = variant.precision is Precision.TF32
        arithmetic = providers.describe_arithmetic(self.provider, variant.target, options, tf32=tf32)
        notes = (
            placement.describe_placement(self.provider.name, title, parts),
            *filter(None, [arithmetic]),
            *([_OPTIONS_PREFIX + json.dumps(options)] if options else []),
        )
        if all(len(part.nodes) == 1 for part in provider_parts):
            # Nothing is compiled together, unless a subgraph has one node only; then the graph cannot be written.
            with contextlib.suppress(BuildError):
                layers = self._build_optimized_layers(request, data, level, bounds)
                return placement.add_providers(layers, request.model, parts), level, notes
        # Nodes left to the CPU are fused at other levels, and then the profiler names them otherwise.
        return placement.build_regions(request.model, parts, self.provider.name, title), "basic", notes

    def _get_provider_options(self, request: BuildRequest) -> dict[str, str]:
        if self.provider == CPU:
            return {}
        variant = request.variant
        tf32 = variant.precision is Precision.TF32
        return providers.build_provider_options(self.provider, variant.target, variant.options, tf32=tf32)

    def _describe_target(self, target: Target) -> str:
        return "the CPU" if self.provider == CPU else f"{self.provider.title} ({str(target).upper()})"

    def _get_device_name(self, target: Target) -> str:
        return get_cpu_name() if target.name == "cpu" else providers.get_device_name(self.provider, target)

    def profile(
        self,
        engine: Engine,
        inputs: Batch,
        progress: Progress,
        *,
        runs: int = 30,
        warmup: int = 5,
        seconds: float | None = None,
        limit_s: float | None = None,
    ) -> Profile:
        """Time every layer of the engine's optimized graph.

        Whole inferences are timed in a session without instrumentation: ``runs``, and more of them within half a
        second. Layers are timed in a second one, ``runs`` times, in turns with the first. Each is bounded by ten
        seconds; the numbers done are in the result. For the rest see ``Runner.profile``.
        """
        started_at = time.monotonic()
        bounds = self._create_bounds("profile", progress, limit_s)
        progress.phase(f"Timing on {self._describe_target(engine.target)}", 2 * runs)
        _require_memory(_require_runnable(engine), bounds)
        with _make_folder() as folder, open_session_model(_require_runnable(engine)) as data:
            spec = self._create_engine_spec(engine, data, bounds)
            profiled_spec = dataclasses.replace(spec, profile=str(Path(folder) / "profile"))
            remaining = None if seconds is None else seconds - (time.monotonic() - started_at)
            max_profiled_runs = self._limit_profiled_runs(engine, runs)
            is_larger = count_weight_bytes(_require_runnable(engine)) >= _LARGER
            payload = (
                spec, profiled_spec, dict(inputs), runs, warmup, remaining, max_profiled_runs, not is_larger
            )  # fmt: skip
            times, kernel_runs = session_child.call(inference.time_sessions, payload, bounds)
            _require_unchanged(_require_runnable(engine))
        total, profiled_total = times.milliseconds
        samples, notes = self._collect_samples(engine, kernel_runs)
        if not profiled_total.size:
            notes = [
                "Layers have no times: the budget ends before a second session of these weights would be open"
            ]
        if _choose_mapping(_require_runnable(engine)):
            notes.append(
                "Weights stay in their file (session.disable_prepacking), which saves memory and takes longer"
            )
        return Profile(
            source=self.source,
            device=self._get_device_name(engine.target),
            samples=samples,
            total=total,
            warmup=times.warmup,
            taken=datetime.datetime.now(datetime.timezone.utc),
            note=". ".join(notes),
            processor=cast("Processor", engine.target.name.upper()),
            runs=len(profiled_total) or None,
        )

    def _limit_profiled_runs(self, engine: Engine, runs: int) -> int:
        """How many runs the profiler may keep at a time, an untimed one among them."""
        if self.provider != CPU:
            # Other processors may take minutes to make a session.
            return runs + 1
        # A session of large weights takes long to make too, and much memory anyway.
        byte_limit = max(_MAX_PROFILER_BYTES, count_weight_bytes(_require_runnable(engine)))
        most = byte_limit // (_BYTES_PER_KERNEL_RUN * max(1, len(engine.layers)))
        return min(runs + 1, max(_MIN_PROFILED_RUNS, most))

    def _collect_samples(
        self, engine: Engine, kernel_runs: Mapping[str, NodeRuns]
    ) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
        """Milliseconds of the layers, and what is to be said of them."""
        provider = self.provider
        if provider == CPU:
            return optimized.collect_samples(kernel_runs, engine.layers), []
        notes = []
        if engine.target.name != "cpu":
            notes.append("Inferences include copying inputs to the device and outputs from it")
        if not self._times_layers:
            remedy = (
                f"; for them, set {provider.blocking}=1 before Python starts" if provider.blocking else ""
            )
            notes.append(
                f"Layers have no times: on {provider.title}, the profiler reports when work was handed over{remedy}"
            )
            return {}, notes
        return placement.collect_samples(kernel_runs, engine.layers, provider.name, provider.title), notes

    def outputs(
        self,
        engine: Engine,
        inputs: Batch,
        names: Sequence[str] = (),
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outputs:
        """Run one batch at level BASIC, where quantized numerics do not depend on fusion; see ``Runner.outputs``."""
        key, bounds = (id(engine), tuple(names)), self._create_bounds("run", progress, limit_s)
        # Another thread may end what is kept at any time, so it is taken out while it is used.
        _, session = self._sessions.pop(key, (engine, None))
        if session is None or not session.alive:
            _require_memory(_require_runnable(engine), bounds)
            with open_session_model(_require_runnable(engine), names, progress) as data:
                session = ChildSession(self._create_engine_spec(engine, data, bounds, level="basic"), bounds)
        output_names = list(names) or list(session.outputs)
        arrays = session.run(output_names, inputs, bounds)
        _require_unchanged(_require_runnable(engine))
        self._sessions[key] = (engine, session)
        while len(self._sessions) > _MAX_SESSIONS:
            _, (_, oldest) = self._sessions.popitem(last=False)
            oldest.close()
        return dict(zip(output_names, arrays, strict=True))

    def unfused(
        self,
        engine: Engine,
        inputs: Batch,  # noqa: ARG002 - the protocol's signature
        progress: Progress,
        *,
        limit_s: float | None = None,  # noqa: ARG002 - the same
    ) -> tuple[str, ...]:
        """Values that can be read without changing what is computed.

        On the CPU these are all. Other providers compile another network where inner values of a subgraph are outputs
        too: there they are the values between the layers, which are written anyway.
        """
        check(progress, "reading values")
        names = list_value_names(_require_runnable(engine))
        if self.provider == CPU:
            return names
        between = {t.name for layer in engine.layers for t in layer.outputs}
        return tuple(name for name in names if name in between)

    @contextlib.contextmanager
    def reading(
        self,
        model: Model,
        names: Sequence[str],
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Callable[[Batch], Outputs]]:
        """A session that returns values of a model, batch by batch, in the least time and memory.

        Unlike ``outputs`` it needs no engine, and lets ONNX Runtime fuse and lay out as it likes, so that values may
        differ in the last bits of a float; with Q/DQ pairs, where fusion changes more than that, it does not.
        Inputs among ``names`` are left out, since the caller has them. ``limit_s`` counts for opening the session, and
        for each batch. Errors are those of ``outputs``, and ``BuildError`` where ONNX Runtime refuses the model.
        """
        value_names = [n for n in dict.fromkeys(names) if n not in model.inputs]
        if not value_names:
            # Asked for no value, ONNX Runtime would return every output.
            yield lambda _: {}
            return
        create_bounds = functools.partial(self._create_bounds, "run", progress, limit_s)
        level = "basic" if any(n.op in _QUANTIZING for n in model.nodes) else "all"
        # A plan of memory for all values at once is of no use when most are handed out.
        _require_memory(model, create_bounds())
        entries = _choose_mapping(model)
        error_prefix = f'Backend "{self.name}" cannot run'
        spec = self._create_spec("", error_prefix, level, planned=False, entries=entries)
        if folder := find_weights_folder(model):
            data = _refer_to_weights(model, value_names)
            child = ChildSession(dataclasses.replace(spec, data=data, folder=folder), create_bounds())

            def read_in_child(batch: Batch) -> Outputs:
                arrays = child.run(value_names, batch, create_bounds())
                _require_unchanged(model)
                return dict(zip(value_names, arrays, strict=True))

            try:
                yield read_in_child
            finally:
                child.close()
            return
        channels_last = find_channels_last(model, value_names) if level == "all" else frozenset()
        output_names = [name_channels_last(n) if n in channels_last else n for n in value_names]
        open_source = functools.partial(write_external_model, model, value_names, progress, channels_last)
        with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
            session: Any = None
            inference.free_memory()
            if not entries:
                # In one step, ONNX Runtime holds the weights as they are, folded, and in blocks, all at once. There are
                # no blocks of those that stay in their file, and writing them once more takes a while.
                folded = str(Path(folder) / "folded.onnx")
                fold = dataclasses.replace(spec, level="basic", saved=folded, entries=_FOLDED, without=_ONCE)
                inference.open_cancellable_session(open_source, fold, create_bounds())
                inference.free_memory()
                if channels_last:
                    _move_behind_producers(folded, output_names)
                with contextlib.suppress(BuildError):
                    session = inference.open_cancellable_session(
                        lambda: contextlib.nullcontext(folded), spec, create_bounds()
                    )
            if session is None:
                session = inference.open_cancellable_session(open_source, spec, create_bounds())
            inference.free_memory()
            sessions = [session]
            del session

            def read(batch: Batch) -> Outputs:
                run_options = vendor.onnxruntime().RunOptions()
                arrays = inference.call_cancellable(
                    lambda: inference.read(sessions[0], output_names, batch, run_options),
                    functools.partial(setattr, run_options, "terminate", True),  # noqa: FBT003 - it has no name
                    create_bounds(),
                )
                return {
                    name: arrays[output].transpose(_FIRST) if name in channels_last else arrays[output]
                    for name, output in zip(value_names, output_names, strict=True)
                }

            try:
                yield read
            finally:
                # The weights are read from the folder, which not every system can remove before.
                sessions.clear()
                inference.free_memory()

    @contextlib.contextmanager
    def reducing(
        self,
        reads: Sequence[tuple[Model, Sequence[str]]],
        reduce: Callable[[Sequence[Outputs], int], R],
        receive: Callable[[R], None],
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Callable[[Batch | None, int], None]]:
        """Sessions in one child, at level BASIC; what ``reduce`` takes lies in their memory, and is not copied.

        ``limit_s`` counts for opening each session, and for each batch. Errors are those of ``outputs``, ``BuildError``
        where ONNX Runtime refuses a model, and those of ``reduce``. After a crash, a call without a batch does nothing.
        """
        child, sessions = session_child.POOL.acquire(), list[tuple[int, tuple[str, ...]]]()
        results: collections.deque[R] = collections.deque()

        def deliver() -> None:
            while results:
                receive(results.popleft())

        delivering = session_child.DeliveringProgress(progress or Silent(), deliver)
        create_bounds = functools.partial(self._create_bounds, "run", delivering, limit_s)

        def run(batch: Batch | None, samples: int) -> None:
            if batch is not None:
                payload = (sessions[0][0], dict(batch), samples)
                session_child.call(inference.reduce, payload, create_bounds(), child)
            elif child.process.alive:
                # What was computed takes a moment to be reduced, and counts for work that is stopped, too.
                bounds = self._create_bounds("run", None, limit_s)
                session_child.call(inference.reduce, (sessions[0][0], None, 0), bounds, child)
            deliver()
            for model, _ in reads:
                _require_unchanged(model)

        with contextlib.ExitStack() as stack:
            for model, names in reads:
                bounds = create_bounds()
                _require_memory(model, bounds)
                with open_session_model(model, names, progress) as data:
                    # Nearly all values are handed out, and the function that takes them needs the processor too.
                    spec = self._create_spec(
                        data, bounds.error_prefix, "basic", planned=False,
                        entries=(NEVER_SPIN, *_choose_mapping(model)), folder=find_weights_folder(model),
                    )  # fmt: skip
                    session = ChildSession(spec, bounds, child)
                sessions.append((session.number, tuple(names)))
                stack.callback(session.close)
            session_child.call(inference.start_reduction, (sessions, reduce), create_bounds(), child)
            child.process.receivers[sessions[0][0]] = results.append
            stack.callback(child.process.receivers.pop, sessions[0][0])
            yield run

    def release(self, engine: Engine) -> None:
        """Forget the sessions of an engine, which hold its weights."""
        for key in [k for k, (owner, _) in tuple(self._sessions.items()) if owner is engine]:
            _, session = self._sessions.pop(key, (engine, None))
            if session is not None:
                session.close()

    def _create_bounds(self, verb: str, progress: Progress | None, limit_s: float | None) -> Bounds:
        limits = Limits() if limit_s is None else Limits(seconds=limit_s)
        error_prefix = f'Backend "{self.name}" cannot {verb}'
        return Bounds(error_prefix, session_child.RUNNING, limits, progress or Silent())

    def _create_spec(
        self,
        data: bytes | str,
        error_prefix: str,
        level: str,
        provider_options: Mapping[str, str] | None = None,
        target: Target = _CPU,
        **more: Any,
    ) -> SessionSpec:
        return SessionSpec(
            data,
            error_prefix,
            self.threads,
            level="basic" if level == "basic" else "all",
            provider=self.provider,
            provider_options=provider_options or {},
            target=target,
            **more,
        )

    def _create_engine_spec(
        self, engine: Engine, data: bytes | str, bounds: Bounds, *, level: str = ""
    ) -> SessionSpec:
        """A session with an engine's settings, at its own level or another one."""
        options: dict[str, str] = json.loads(_read_note(engine, _OPTIONS_PREFIX, "{}"))
        level = level or _read_note(engine, _LEVEL_PREFIX, "all")
        # Threads that wait for more work would take the processor from the session that runs in turn.
        runnable = _require_runnable(engine)
        entries, folder = (STOP_SPINNING, *_choose_mapping(runnable)), find_weights_folder(runnable)
        return self._create_spec(
            data, bounds.error_prefix, level, options, engine.target, entries=entries, folder=folder
        )


def _read_note(engine: Engine, prefix: str, default: str) -> str:
    """The rest of the note of an engine that begins with a prefix."""
    return next((n.removeprefix(prefix) for n in engine.notes if n.startswith(prefix)), default)


def _name_nodes_by_id(model: Model) -> bytes:
    """The model with ids as the names of its nodes, by which ONNX Runtime speaks of them."""
    proto = onnx.load_from_string(model.bytes())
    for node, model_node in zip(proto.graph.node, model.top, strict=True):
        node.name = model_node.id
    return bytes(proto.SerializeToString())


def _make_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True)


def _require_runnable(engine: Engine) -> bytes | Model:
    if engine.runnable is None:
        raise RunError(
            f'Backend "onnxruntime" cannot run an engine of backend "{engine.backend}": it holds no ONNX graph. '
            'Build the variant with backend="onnxruntime".'
        )
    return engine.runnable
