"""From a request to a built plan: what both TensorRT backends do in this process, around the child that builds."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import functools
import importlib.metadata
import pickle
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from rtlab.backends.readers.log import listing
from rtlab.backends.workers import calibrator, compiler, process, refusals, worker_pool
from rtlab.backends.workers.job_spec import BuildSpec, CalibratorInput
from rtlab.backends.workers.running import EngineRunner
from rtlab.core import files
from rtlab.core.calibrators import METHODS, TENSORRT_CALIBRATORS
from rtlab.core.engine import Engine, Layer
from rtlab.core.inputs import read_input
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions, Shapes
from rtlab.core.phrases import quote_names
from rtlab.core.progress import check
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.variant import Calibrator, Precision
from rtlab.errors import BuildError, CalibrationError, RtlabError, VariantError

#: Bytes of which each weight starts at a multiple, as a page of memory does.
_ALIGNED = 4096
#: TensorRT's own calibrators, by the method that they follow, as the header of a cache names them.
ALGORITHMS = {m.name: a for a in TENSORRT_CALIBRATORS for m in METHODS.values() if m.tensorrt == a}


@dataclasses.dataclass(frozen=True)
class BuiltPlan:
    """A plan with all that was told while it was built. ``names`` is the way back to the model's own names."""

    output: compiler.BuildOutput
    log: str
    names: compiler.OriginalNames
    notes: tuple[str, ...]
    cache: str
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...]


@functools.cache
def find_package_version(module: str) -> str:
    """The version of the package that brings a module, which may bear several names; empty where it has none."""
    # Usually it bears the module's name; asking every package for its modules takes half a second.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(module)
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
    """Build in a child process, with the binding of a backend in a version, which is empty where unknown.

    ``times`` says that this compiler times kernels, and so can keep a timing cache; ``runs`` that the engine is to run
    here: then its plan is kept, and its inner values can be read.

    Raises:
        VariantError: an option does not exist or does not fit the model.
        CalibrationError: implicit INT8 has neither samples nor a cache that fit.
        BuildError: the parser or builder refuses, crashes or passes a limit; ``details`` has the end of the log.
        Cancelled: ``progress`` asked to stop; ``details`` has the end of the log.
    """
    variant, options = request.variant, request.variant.options or BuildOptions()
    binding, product = backend.binding, backend.product
    error_prefix = f'Backend "{backend.name}" cannot build "{variant.name}" for {variant.target}'
    profiles = tuple(
        _complete_profile(request.model, dict(profile), error_prefix) for profile in options.profiles
    )
    if options.implicit:
        _check_implicit(request, error_prefix, f"{product} {version}")
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        file, names = _write_model(request.model, Path(folder), static=not profiles, progress=progress)
        spec = BuildSpec(
            binding,
            str(file),
            variant.target.sm,
            error_prefix,
            product=product,
            times=times,
            keep_plan=runs or request.keep_plan,
            debug=runs,
            tf32=variant.precision is Precision.TF32,
            sparse=bool(variant.sparsity),
            options=options,
            profiles=profiles,
            timing=_read_timing_cache(options, notes),
            calibration=_prepare_calibration(
                request, profiles, names, folder, progress=progress, error_prefix=error_prefix
            )
            if options.implicit
            else None,
            log=str(log),
        )
        try:
            call = worker_pool.call if request.several else process.call
            output: compiler.BuildOutput = call(
                compiler.compile_plan,
                spec,
                limits=request.limits,
                progress=progress,
                error_prefix=error_prefix,
                path=backend.path,
            )
        except RtlabError as error:
            # The last lines, as many as one reads.
            tail = "\n".join(_read(log).splitlines()[-200:])
            tail = tail if spec.on_gpu else refusals.drop_driver_lines(tail)
            error.details = "\n".join(filter(None, (error.details, tail)))
            raise
        text = _read(log)
    if file == request.model.path and request.model.origin is None:
        raise BuildError(
            f'{error_prefix}: "{file}", or a file with its weights, was written while it was compiled, so that nobody '
            "knows what the engine holds. Load the model again."
        )
    ranges = tuple(tuple(sorted(p.items())) for p in profiles)
    if options.timing_cache is not None and output.timing:
        try:
            files.write(options.timing_cache, output.timing, what="the timing cache")
        except RtlabError as error:
            notes.append(f"timing cache not kept: {error}")
    return BuiltPlan(
        output, text, names, (*notes, *output.notes), _rename_tensors(output.cache, names.values), ranges
    )


def _write_model(
    model: Model, folder: Path, *, static: bool, progress: Progress
) -> tuple[Path, compiler.OriginalNames]:
    """The file that the builder reads: the model's own where that will do, for to write a large one takes seconds.

    Weights go to a file beside it, as they lie in memory; the builder maps it, and parses a small file.
    """
    model_file = model.file
    graph_names = {n for node in model.nodes for n in (node.id, *node.inputs, *node.outputs) if n}
    if model_file is not None and all(map(compiler.is_plain, graph_names)):
        return model_file, compiler.OriginalNames({}, {})
    proto, weights = model.outline(static=static)
    with (folder / "weights").open("wb") as file:
        for tensor in proto.graph.initializer:
            if tensor.name in weights:
                check(progress, "preparing the model")
                _write_external_data(tensor, weights[tensor.name], file)
    names = compiler.sanitize(proto)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path, names


def _write_external_data(tensor: onnx.TensorProto, array: Any, file: BinaryIO) -> None:
    """Write the numbers of a tensor at the end of a file, and where they are to its proto."""
    file.write(bytes(-file.tell() % _ALIGNED))
    start = file.tell()
    # NumPy's own way of writing does not say why the system refuses.
    file.write(array.tobytes())
    place = {"location": Path(file.name).name, "offset": str(start), "length": str(file.tell() - start)}
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)


def open_engine(plan: BuiltPlan, request: BuildRequest, progress: Progress, backend: EngineRunner) -> Engine:
    """The engine as its inspector tells it, with the model's own names and what only the build knows.

    Raises:
        ReadError, RunError, Unavailable: the plan cannot be loaded here.
        Cancelled: ``progress`` asked to stop.
    """
    error_prefix = f'Backend "{backend.name}" cannot load "{request.variant.name}"'
    plan_bytes = plan.output.plan or b""
    facts = backend.describe(plan_bytes, progress, error_prefix=error_prefix)
    engine = backend.engine(plan_bytes, facts, error_prefix=error_prefix)
    log_totals = {k: int(m[-1]) for k, rule in listing.TOTALS.items() if (m := rule.findall(plan.log))}
    return dataclasses.replace(
        engine,
        layers=restore_origins(engine.layers, plan),
        totals={**log_totals, **engine.totals},
        log=plan.log,
        seconds=plan.output.seconds,
        built=datetime.datetime.now(datetime.timezone.utc),
        notes=(*plan.notes, *engine.notes),
        plan=plan.output.plan,
        profiles=plan.profiles,
        calibration=plan.cache,
    )


def restore_origins(layers: Iterable[Layer], plan: BuiltPlan) -> tuple[Layer, ...]:
    """Layers with the ids of the model's nodes, where the builder was given other names."""
    names = plan.names.nodes
    return tuple(
        dataclasses.replace(layer, origins=tuple(dict.fromkeys(names.get(o, o) for o in layer.origins)))
        for layer in layers
    )


def _complete_profile(model: Model, ranges: dict[str, Shapes], error_prefix: str) -> Mapping[str, Shapes]:
    """A profile with every dynamic input; those that were not given have the one shape of ``input_shape``."""
    for name, shapes in ranges.items():
        if name not in model.inputs:
            close = difflib.get_close_matches(name, model.inputs, n=1)
            hint = f'Did you mean "{close[0]}"? ' if close else ""
            input_names = quote_names(model.inputs)
            raise VariantError(
                f'{error_prefix}: an optimization profile names input "{name}", and the model has none of this name. '
                f"{hint}Its inputs: {input_names}."
            )
        value = model.values[name]
        declared_shape = value.shape or ()
        # A profile of a shape tensor holds values, not sizes; the parser knows which inputs are shape tensors.
        is_shape_tensor = len(declared_shape) <= 1 and value.dtype in {"int32", "int64"}
        fits = len(shapes[0]) == len(declared_shape) and all(
            not isinstance(dim, int) or {s[axis] for s in shapes} == {dim}
            for axis, dim in enumerate(declared_shape)
        )
        if not fits and not is_shape_tensor:
            declared_text = "x".join(str(d if d is not None else "?") for d in declared_shape)
            raise VariantError(
                f'{error_prefix}: an optimization profile gives input "{name}" the shapes '
                f"{', '.join('x'.join(map(str, s)) for s in shapes)}, and the model declares {declared_text}. Give "
                f"shapes of {len(declared_shape)} dimensions, with its fixed sizes."
            )
    for name in model.inputs:
        declared_shape = model.values[name].shape or ()
        if name not in ranges and not all(isinstance(d, int) for d in declared_shape):
            fixed_shape = model.input_shape(name)
            ranges[name] = (fixed_shape, fixed_shape, fixed_shape)
    return ranges


def _check_implicit(request: BuildRequest, error_prefix: str, product: str) -> None:
    """Refuse what TensorRT's own calibrators cannot do."""
    variant, chosen_calibrator = request.variant, request.variant.calibrator
    if not calibrator.has_calibrators(product):
        raise calibrator.create_unsupported_error(error_prefix, product)
    if any(node.op in {"QuantizeLinear", "DequantizeLinear"} for node in request.model.nodes):
        raise VariantError(
            f"{error_prefix}: the model has Q/DQ pairs, and TensorRT then ignores its calibrator. "
            "Take the model without them, or leave out implicit=True."
        )
    if variant.precision is not Precision.INT8 or variant.pins:
        raise VariantError(
            f"{error_prefix}: implicit quantization knows INT8 for the whole network only. "
            'Choose precision="int8" without pins, or leave out implicit=True.'
        )
    if request.cache:
        return
    if chosen_calibrator == Calibrator.AUTO:
        raise VariantError(
            f'{error_prefix}: TensorRT has no calibrator that chooses among several as "auto" does. Leave the '
            'calibrator out for TensorRT\'s usual one, "entropy2", or give the scales that "auto" finds as a '
            "calibration cache."
        )
    if chosen_calibrator is None or chosen_calibrator.method not in ALGORITHMS:
        raise VariantError(
            f'{error_prefix}: TensorRT has no calibrator of its own like "{chosen_calibrator}". Choose calibrator='
            f"{', '.join(chr(34) + str(m) + chr(34) for m in ALGORITHMS)}, or leave out implicit=True."
        )


def _prepare_calibration(
    request: BuildRequest,
    profiles: tuple[Mapping[str, Shapes], ...],
    names: compiler.OriginalNames,
    folder: str,
    *,
    progress: Progress,
    error_prefix: str,
) -> CalibratorInput:
    """What TensorRT's calibrator reads: the text of a cache, or samples, which go to files in ``folder``."""
    if request.cache:
        header = request.cache.partition("\n")[0].strip()
        algorithm = header.rpartition("-")[2]
        if algorithm not in ALGORITHMS.values():
            raise CalibrationError(
                f'{error_prefix}: the calibration cache starts with "{header[:80]}". Give one that TensorRT wrote, '
                "whose first line is such as TRT-100300-EntropyCalibration2."
            )
        builder_names = {name: fresh for fresh, name in names.values.items()}
        return CalibratorInput(
            algorithm, folder, cache=_rename_tensors(request.cache, builder_names).encode()
        )
    chosen_calibrator = request.variant.calibrator
    if request.data is None or chosen_calibrator is None:
        raise CalibrationError(
            f"{error_prefix}: implicit INT8 needs samples or a calibration cache, and there is neither. "
            "Give the study data=..., or scales=... with the path of a cache."
        )
    model = request.model if profiles else request.model.static()
    opt_batch = next((shapes[1][0] for p in profiles for shapes in p.values() if shapes[1]), None)
    progress.phase("Writing calibration data", request.data.count)
    count, shapes = 0, dict[str, tuple[int, ...]]()
    for batch in request.data.batches(model, opt_batch):
        check(progress, "writing calibration data")
        batch_shapes = {name: tuple(array.shape) for name, array in batch.items()}
        shapes = shapes or batch_shapes
        if batch_shapes != shapes:  # the rest that does not fill a batch; a calibrator has one shape
            continue
        # TensorRT's calibrators read floating inputs as float32, in one piece.
        content = {
            n: np.ascontiguousarray(a, np.float32 if a.dtype.kind == "f" else None) for n, a in batch.items()
        }
        calibrator.batch_path(folder, count).write_bytes(pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
        progress.advance(request.data.samples_in(model, batch))
        count += 1
    quantile = chosen_calibrator.p / 100 if chosen_calibrator.method == "percentile" else 1.0
    return CalibratorInput(ALGORITHMS[chosen_calibrator.method], folder, quantile, count, shapes)


def _rename_tensors(cache: str, names: Mapping[str, str]) -> str:
    """The text of a calibration cache with tensors renamed. Names may hold colons; the digits come last."""
    lines = []
    for line in cache.split("\n"):
        name, colon, digits = line.rpartition(": ")
        lines.append(f"{names.get(name, name)}{colon}{digits}")
    return "\n".join(lines)


def _read_timing_cache(options: BuildOptions, notes: list[str]) -> bytes | None:
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
