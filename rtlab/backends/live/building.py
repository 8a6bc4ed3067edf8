"""From a request to a built plan: what both TensorRT backends do in this process, around the child that builds."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import importlib.metadata
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from rtlab.backends.live import calibrator, child, compiler, kept, refusals
from rtlab.backends.live.order import BuildOrder, CalibratorInput
from rtlab.backends.live.running import EngineRunner
from rtlab.backends.log import listing
from rtlab.core import files, scratch
from rtlab.core.engine import Engine, Layer
from rtlab.core.inputs import read_input
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions, Shapes
from rtlab.core.phrases import quoted
from rtlab.core.progress import check
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.variant import Calibrator, Method, Precision
from rtlab.errors import BuildError, CalibrationError, RtlabError, VariantError

#: Bytes of which each weight starts at a multiple, as a page of memory does.
_ALIGNED = 4096
#: TensorRT's own calibrators, by the method that they follow, as the header of a cache names them.
ALGORITHMS = {
    Method.ENTROPY2: "EntropyCalibration2",
    Method.ENTROPY: "EntropyCalibration",
    Method.MINMAX: "MinMaxCalibration",
    Method.PERCENTILE: "LegacyCalibration",
}


@dataclasses.dataclass(frozen=True)
class BuiltPlan:
    """A plan with all that was told while it was built. ``names`` is the way back to the model's own names."""

    built: compiler.Built
    log: str
    names: compiler.OriginalNames
    notes: tuple[str, ...]
    cache: str
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...]


@functools.cache
def installed(module: str) -> str:
    """The version of the package that brings a module, which may bear several names; empty where it has none."""
    try:
        # Usually it bears the module's name; asking every package for its modules takes half a second.
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        pass
    owners = importlib.metadata.packages_distributions().get(module, [])
    return importlib.metadata.version(owners[0]) if owners else ""


def build(
    request: BuildRequest,
    progress: Progress,
    backend: EngineRunner,
    *,
    version: str,
    times: bool,
    runs: bool,
) -> BuiltPlan:
    """Build in a child process.

    Args:
        request: The model and its variant; the options of the variant are applied.
        progress: Told of the builder's phases.
        backend: Whose binding compiles, and whose name opens error messages.
        version: The version of the binding, empty where unknown.
        times: Whether this compiler times kernels, and so can keep a timing cache.
        runs: Whether the engine is to run here; then its plan is kept, and its inner values can be read.

    Raises:
        VariantError: an option does not exist or does not fit the model.
        CalibrationError: implicit INT8 has neither samples nor a cache that fit.
        BuildError: the parser or builder refuses, crashes or passes a limit; ``details`` has the end of the log.
        Cancelled: ``progress`` asked to stop; ``details`` has the end of the log.
    """
    variant, options = request.variant, request.variant.options or BuildOptions()
    binding, product = backend.binding, backend.product
    doing = f'Backend "{backend.name}" cannot build "{variant.name}" for {variant.target}'
    profiles = tuple(_profile(request.model, dict(given), doing) for given in options.profiles)
    if options.implicit:
        _check_implicit(request, doing, f"{product} {version}")
    notes: list[str] = []
    with scratch.folder() as room:
        log = Path(room) / "log"
        file, names = _written(request.model, Path(room), static=not profiles, progress=progress)
        order = BuildOrder(
            binding,
            str(file),
            variant.target.sm,
            doing,
            product=product,
            times=times,
            keep_plan=runs or request.keep_plan,
            debug=runs,
            tf32=variant.precision is Precision.TF32,
            sparse=bool(variant.sparsity),
            options=options,
            profiles=profiles,
            timing=_timing(options, notes),
            calibration=_calibration(request, profiles, names, room, progress=progress, doing=doing)
            if options.implicit
            else None,
            log=str(log),
        )
        try:
            call = kept.call if request.several else child.call
            built: compiler.Built = call(
                compiler.compile_plan,
                order,
                limits=request.limits,
                progress=progress,
                doing=doing,
                path=backend.path,
            )
        except RtlabError as error:
            tail = _tail(log) if order.on_gpu else refusals.without_driver(_tail(log))
            error.details = "\n".join(filter(None, (error.details, tail)))
            raise
        text = _read(log)
    if file == request.model.path and request.model.origin is None:
        raise BuildError(
            f'{doing}: "{file}", or a file with its weights, was written while it was compiled, so that nobody knows '
            "what the engine holds. Load the model again."
        )
    ranges = tuple(tuple(sorted(p.items())) for p in profiles)
    if options.timing_cache is not None and built.timing:
        try:
            files.write(options.timing_cache, built.timing, what="the timing cache")
        except RtlabError as error:
            notes.append(f"timing cache not kept: {error}")
    return BuiltPlan(built, text, names, (*notes, *built.notes), _renamed(built.cache, names.values), ranges)


def _written(
    model: Model, room: Path, *, static: bool, progress: Progress
) -> tuple[Path, compiler.OriginalNames]:
    """The file that the builder reads: the model's own where that will do, for to write a large one takes seconds.

    Weights go to a file beside it, as they lie in memory; the builder maps it, and parses a small file.
    """
    own = model.file
    called = {n for node in model.nodes for n in (node.id, *node.inputs, *node.outputs) if n}
    if own is not None and all(map(compiler.plain, called)):
        return own, compiler.OriginalNames({}, {})
    proto, weights = model.outline(static=static)
    with (room / "weights").open("wb") as file:
        for tensor in proto.graph.initializer:
            if tensor.name in weights:
                check(progress, "preparing the model")
                _beside(tensor, weights[tensor.name], file)
    names = compiler.sanitize(proto)
    path = room / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path, names


def _beside(tensor: onnx.TensorProto, held: Any, file: BinaryIO) -> None:
    """Write the numbers of a tensor at the end of a file, and where they are to its proto."""
    file.write(bytes(-file.tell() % _ALIGNED))
    start = file.tell()
    # NumPy's own way of writing does not say why the system refuses.
    file.write(held.tobytes())
    place = {"location": Path(file.name).name, "offset": str(start), "length": str(file.tell() - start)}
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)


def opened(plan: BuiltPlan, request: BuildRequest, progress: Progress, backend: EngineRunner) -> Engine:
    """The engine as its inspector tells it, with the model's own names and what only the build knows.

    Raises:
        ReadError, RunError, Unavailable: the plan cannot be loaded here.
        Cancelled: ``progress`` asked to stop.
    """
    doing, serialized = (
        f'Backend "{backend.name}" cannot load "{request.variant.name}"',
        plan.built.plan or b"",
    )
    engine = backend.engine(serialized, backend.describe(serialized, progress, doing=doing), doing=doing)
    told = {k: int(m[-1]) for k, rule in listing.TOTALS.items() if (m := rule.findall(plan.log))}
    return dataclasses.replace(
        engine,
        layers=named(engine.layers, plan),
        totals={**told, **engine.totals},
        log=plan.log,
        seconds=plan.built.seconds,
        built=datetime.datetime.now(datetime.timezone.utc),
        notes=(*plan.notes, *engine.notes),
        plan=plan.built.plan,
        profiles=plan.profiles,
        calibration=plan.cache,
    )


def named(layers: Iterable[Layer], plan: BuiltPlan) -> tuple[Layer, ...]:
    """Layers with the ids of the model's nodes, where the builder was given other names."""
    names = plan.names.nodes
    return tuple(
        dataclasses.replace(layer, origins=tuple(dict.fromkeys(names.get(o, o) for o in layer.origins)))
        for layer in layers
    )


def _profile(model: Model, given: dict[str, Shapes], doing: str) -> Mapping[str, Shapes]:
    """A profile with every dynamic input; those that were not given have the one shape of ``input_shape``."""
    for name, shapes in given.items():
        if name not in model.inputs:
            close = difflib.get_close_matches(name, model.inputs, n=1)
            hint = f'Did you mean "{close[0]}"? ' if close else ""
            known = quoted(model.inputs)
            raise VariantError(
                f'{doing}: an optimization profile names input "{name}", and the model has none of this name. '
                f"{hint}Its inputs: {known}."
            )
        value = model.values[name]
        declared = value.shape or ()
        # A profile of a shape tensor holds values, not sizes; the parser knows which inputs are shape tensors.
        if len(declared) <= 1 and value.dtype in {"int32", "int64"}:
            continue
        fits = len(shapes[0]) == len(declared) and all(
            not isinstance(dim, int) or {s[axis] for s in shapes} == {dim}
            for axis, dim in enumerate(declared)
        )
        if not fits:
            wanted = "x".join(str(d if d is not None else "?") for d in declared)
            raise VariantError(
                f'{doing}: an optimization profile gives input "{name}" the shapes '
                f"{', '.join('x'.join(map(str, s)) for s in shapes)}, and the model declares {wanted}. Give shapes of "
                f"{len(declared)} dimensions, with its fixed sizes."
            )
    for name in model.inputs:
        declared = model.values[name].shape or ()
        if name not in given and not all(isinstance(d, int) for d in declared):
            fixed = model.input_shape(name)
            given[name] = (fixed, fixed, fixed)
    return given


def _check_implicit(request: BuildRequest, doing: str, product: str) -> None:
    """Refuse what TensorRT's own calibrators cannot do."""
    variant, how = request.variant, request.variant.calibrator
    if not calibrator.exists(product):
        raise calibrator.refusal(doing, product)
    if any(node.op in {"QuantizeLinear", "DequantizeLinear"} for node in request.model.nodes):
        raise VariantError(
            f"{doing}: the model has Q/DQ pairs, and TensorRT then ignores its calibrator. "
            "Take the model without them, or leave out implicit=True."
        )
    if variant.precision is not Precision.INT8 or variant.pins:
        raise VariantError(
            f"{doing}: implicit quantization knows INT8 for the whole network only. "
            'Choose precision="int8" without pins, or leave out implicit=True.'
        )
    if request.cache:
        return
    if how == Calibrator.AUTO:
        raise VariantError(
            f'{doing}: TensorRT has no calibrator that chooses among several as "auto" does. Leave the calibrator '
            'out for TensorRT\'s usual one, "entropy2", or give the scales that "auto" finds as a calibration cache.'
        )
    if how is None or how.method not in ALGORITHMS:
        raise VariantError(
            f'{doing}: TensorRT has no calibrator of its own like "{how}". Choose calibrator='
            f"{', '.join(chr(34) + str(m) + chr(34) for m in ALGORITHMS)}, or leave out implicit=True."
        )
    if how.settings and how.method is not Method.PERCENTILE:
        raise VariantError(
            f'{doing}: TensorRT\'s own calibrator takes no settings, and "{how}" has some. '
            f'Choose calibrator="{how.method}", or leave out implicit=True.'
        )


def _calibration(
    request: BuildRequest,
    profiles: tuple[Mapping[str, Shapes], ...],
    names: compiler.OriginalNames,
    room: str,
    *,
    progress: Progress,
    doing: str,
) -> CalibratorInput:
    """What TensorRT's calibrator reads: the text of a cache, or samples, which go to files in ``room``."""
    if request.cache:
        header = request.cache.partition("\n")[0].strip()
        algorithm = header.rpartition("-")[2]
        if algorithm not in ALGORITHMS.values():
            raise CalibrationError(
                f'{doing}: the calibration cache starts with "{header[:80]}". Give one that TensorRT wrote, whose '
                "first line is such as TRT-100300-EntropyCalibration2."
            )
        there = {name: fresh for fresh, name in names.values.items()}
        return CalibratorInput(algorithm, room, cache=_renamed(request.cache, there).encode())
    how = request.variant.calibrator
    if request.data is None or how is None:
        raise CalibrationError(
            f"{doing}: implicit INT8 needs samples or a calibration cache, and there is neither. "
            "Give the study data=..., or scales=... with the path of a cache."
        )
    model = request.model if profiles else request.model.static()
    usual = next((shapes[1][0] for p in profiles for shapes in p.values() if shapes[1]), None)
    progress.phase("Writing calibration data", request.data.count)
    count, shapes = 0, dict[str, tuple[int, ...]]()
    for batch in request.data.batches(model, usual):
        check(progress, "writing calibration data")
        found = {name: tuple(array.shape) for name, array in batch.items()}
        shapes = shapes or found
        if found != shapes:  # the rest that does not fill a batch; a calibrator has one shape
            continue
        content = {name: _fit(array) for name, array in batch.items()}
        calibrator.batch_path(room, count).write_bytes(pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
        progress.advance(request.data.samples_in(model, batch))
        count += 1
    quantile = how["p"] / 100 if how.method is Method.PERCENTILE else 1.0
    return CalibratorInput(ALGORITHMS[how.method], room, quantile, count, shapes)


def _fit(array: np.ndarray) -> np.ndarray:
    """TensorRT's calibrators read floating inputs as float32, in one piece."""
    return np.ascontiguousarray(array, dtype=np.float32 if array.dtype.kind == "f" else None)


def _renamed(cache: str, names: Mapping[str, str]) -> str:
    """The text of a calibration cache with tensors renamed. Names may hold colons; the digits come last."""
    lines = []
    for line in cache.split("\n"):
        name, colon, digits = line.rpartition(": ")
        lines.append(f"{names.get(name, name)}{colon}{digits}")
    return "\n".join(lines)


def _timing(options: BuildOptions, notes: list[str]) -> bytes | None:
    """The timing cache of earlier builds: empty where there is none yet, None where none is wanted."""
    if options.timing_cache is None:
        return None
    try:
        return read_input(options.timing_cache)
    except FileNotFoundError:
        return b""
    except OSError as error:
        notes.append(f'timing cache "{options.timing_cache}" not read: {error.strerror or error}')
        return b""


def _read(log: Path) -> str:
    try:
        return log.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _tail(log: Path) -> str:
    """The last lines of the log, as many as one reads."""
    return "\n".join(_read(log).splitlines()[-200:])
