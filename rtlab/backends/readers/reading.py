"""Engines from files of another machine: which file is read how, and whether they belong together."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rtlab.backends import compiler_info
from rtlab.backends.readers import (
    build,
    contents,
    inspector,
    measured,
    optimized,
    printed,
    recognise,
    reports,
)
from rtlab.backends.readers.contents import fault, format_value, parse_number
from rtlab.backends.readers.log import verbose
from rtlab.backends.readers.measured import format_names, make_mismatch_error
from rtlab.backends.readers.optimized import KERNEL
from rtlab.core import check
from rtlab.core.arrays import NUMPY
from rtlab.core.buildlog import BuildLog
from rtlab.core.collector import pause_collector
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.message import UNNAMED_PROGRAM, MessageMatch
from rtlab.core.protocols import Availability, Capabilities
from rtlab.core.trace import Outputs, Processor, Profile, Recording
from rtlab.core.variant import Target
from rtlab.errors import ModelError, ReadError

_CPU = "CPUExecutionProvider"
_NO_EDGES = (
    "The profile names operators only: no edges between them. For these, give the optimized model as well: ort_model "
    "(SessionOptions.optimized_model_filepath)."
)


def _read_onnxruntime(profile: Path | None, model: Path | None) -> Recording:
    """Read the layers of an optimized model, or those that the profiler names, and their times; or ``ReadError``."""
    events: list[dict[str, Any]] = []
    notes: tuple[str, ...] = ()
    if profile is not None:
        events, notes = _read_events(profile)
    providers = sorted({str(e["args"].get("provider") or _CPU) for e in events})
    on_cpu = providers in ([], [_CPU])
    nodes = _list_placed_nodes(events)
    layers, inputs, outputs = (_make_layers(events), (), ()) if model is None else _read_optimized(model)
    engine = Engine(
        backend="onnxruntime",
        version="",
        target=Target("cpu" if on_cpu else "unknown"),
        layers=layers,
        inputs=inputs,
        outputs=outputs,
        notes=(*notes, _NO_EDGES) if model is None else notes,
        device="" if on_cpu else ", ".join(providers),
        maker=compiler_info.ONNX_RUNTIME,
    )
    return Recording(
        engine,
        _make_profile(profile, events, engine) if profile is not None else None,
        messages=tuple(reports.describe_placement(nodes)),
    )


def _list_placed_nodes(events: Sequence[dict[str, Any]]) -> list[reports.PlacedNode]:
    """The nodes of a profile with their providers, and microseconds in the median of their runs."""
    runs = optimized.collect_kernel_times(events)
    operators = {y.name: y.kind for y in _make_layers(events)}
    return [
        reports.PlacedNode(
            name, operators[name], node_runs.provider or _CPU, 1e3 * float(np.median(node_runs.milliseconds))
        )
        for name, node_runs in runs.items()
    ]


def _read_events(path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Kernel times of the profile, each with a name, microseconds and arguments; and notes."""
    document = contents.load_rows(path, "ort_profile", "a list of events")
    kernel_events: list[dict[str, Any]] = []
    for i, event in enumerate(document.value):
        if not isinstance(event, dict):
            raise fault("ort_profile", path.name, f"row {i} holds {format_value(event)}", "an event")
        if event.get("cat") == "Node":
            kernel_events += _parse_kernel_event(event, i, path.name)
    if not kernel_events:
        raise fault(
            "ort_profile", path.name, "row 0: no event is the time of a kernel", f'a name with "{KERNEL}"'
        )
    return kernel_events, document.notes


def _parse_kernel_event(event: dict[str, Any], row: int, file: str) -> list[dict[str, Any]]:
    """The event of one kernel in a list, which is empty for other events of a node."""
    name, time, args = event.get("name"), parse_number(event.get("dur")), event.get("args")
    if not isinstance(name, str):
        raise fault("ort_profile", file, f'row {row} has {format_value(name)} under the key "name"', "a text")
    if not name.endswith(KERNEL):
        return []
    if time is None or time < 0:
        problem = f'row {row}, "{name}", has no time: {format_value(event.get("dur"))} under the key "dur"'
        raise fault("ort_profile", file, problem, "microseconds")
    return [{"cat": "Node", "name": name, "dur": time, "args": args if isinstance(args, dict) else {}}]


def _make_layers(events: Sequence[dict[str, Any]]) -> tuple[Layer, ...]:
    first_runs: dict[str, dict[str, Any]] = {}
    for event in events:
        first_runs.setdefault(event["name"].removesuffix(KERNEL), event["args"])
    return tuple(
        Layer(
            id=f"{i}:{name}",
            name=name,
            kind=str(args.get("op_name") or ""),
            index=i,
            attributes={
                k: args[k] for k in ("provider", "input_type_shape", "output_type_shape") if k in args
            },
        )
        for i, (name, args) in enumerate(first_runs.items())
    )


def _read_optimized(path: Path) -> tuple[tuple[Layer, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Layers, inputs and outputs of an optimized model."""
    try:
        layers_and_edges = optimized.read(check.read(path)[0], path.stem, None)
    except Exception as error:
        reason = error if isinstance(error, ModelError) else f"the model is damaged, {error}"
        raise fault("ort_model", path.name, f"byte 0: no ONNX model ({reason})", "a whole model") from error
    if not layers_and_edges[0]:
        raise fault("ort_model", path.name, 'key "graph": it has no nodes', "an optimized model")
    return layers_and_edges


def _make_profile(path: Path, events: list[dict[str, Any]], engine: Engine) -> Profile:
    runs = optimized.collect_kernel_times(events)
    samples = optimized.collect_samples(runs, engine.layers)
    names = {y.name for y in engine.layers}
    unmatched_names = [n for n in runs if n not in names]
    match_count = len(runs) - len(unmatched_names)
    if not samples or match_count < len(unmatched_names):
        raise make_mismatch_error(
            f'profile "{path.name}"',
            unmatched_names,
            sorted(names - runs.keys()),
            f"{match_count or 'none'} of its {len(runs)} nodes is one of the {len(names)} layers",
        )
    providers = {str(e["args"].get("provider") or _CPU) for e in events}
    processor: Processor = "CPU" if providers == {_CPU} else "CPU and GPU" if _CPU in providers else "GPU"
    note = ""
    if unmatched_names:
        note = (
            f"{len(unmatched_names)} profiled nodes are in bodies or unknown: {format_names(unmatched_names)}"
        )
    return Profile(
        source="ONNX Runtime, device not recorded",
        device="",
        samples=samples,
        total=np.array([], dtype=np.float64),
        warmup=0,
        taken=_parse_timestamp(path.stem),
        note=note,
        processor=processor,
        runs=max(len(s) for s in samples.values()),
    )


def _parse_timestamp(name: str) -> datetime.datetime | None:
    """When a profile of ONNX Runtime began: its name ends with the local time, in new releases with milliseconds."""
    match = re.search(r"(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)(_\d{1,3})?$", name)
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.datetime.strptime(match[1], "%Y-%m-%d_%H-%M-%S").astimezone() if match else None
    return None


#: How to make files of a serialized engine, which only TensorRT itself can open, on a GPU like the one it is for.
EXPORT = (
    "Only TensorRT can open it, in the release and on the GPU that it was built for. Export it there: trtexec "
    "--loadEngine={file} --exportLayerInfo=layers.json --exportProfile=profile.json --separateProfileRun "
    "--profilingVerbosity=detailed; or in Python: engine.create_engine_inspector().get_engine_information("
    'trt.LayerInformationFormat.JSON). Then give layers="layers.json" and profile="profile.json".'
)
#: What belongs to an engine but is read elsewhere.
_ELSEWHERE = {
    "model": 'Give the engine\'s files beside it, such as layers="layers.json"; rtlab.load reads a model alone.',
    "cache": 'Give it as scales of a variant, such as study.add("int8", scales="calibration.cache").',
    "timing_cache": 'Give it to a build: rtlab.BuildOptions.of(timing_cache="timing.cache").',
}
#: What may be unpacked of an archive in all, and how many members are looked at: a zip of a few kilobytes can hold far
#: more.
_UNPACKED, _MEMBERS = 1 << 30, 1000
_CHUNK = 1 << 20
#: Up to this size a file may be a log and a layer file in one.
_PASTED = 1 << 24
_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*(?:["\]]|\{\s*["}]))')
_ONLY_TENSORS = 'The files contain tensors only. For layers, give layers="layers.json" as well.'
_NO_LAYERS = (
    "rtlab reads no layers of the engine in this log. For layers, give layers (trtexec --exportLayerInfo), or build "
    "with "
    "--verbose --profilingVerbosity=detailed."
)

_ONLY_ROWS = (
    "The layers are those that the profile names, in its order: their types, tensors and tactics are not reported. For "
    'these give layers="layers.json" (trtexec --exportLayerInfo --profilingVerbosity=detailed) beside.'
)
_NO_ENGINE = (
    'rtlab reads no layers of an engine here. For layers give layers="layers.json" (trtexec '
    '--exportLayerInfo), for their times profile="profile.json" (trtexec --exportProfile) beside.'
)


@pause_collector()
def read(files: Mapping[str, Path], *, select: int | None = None) -> Recording:
    """Read an engine from files by kind; ``recognise.KINDS`` lists the kinds.

    These are any of ``layers``, ``log``, ``profile`` and ``times``, with any of ``output``, ``metadata`` and
    ``results``; or an ``archive``; or ``ort_profile`` and ``ort_model``; or ``results`` alone. ``select`` is the
    optimization profile to show; by default the one that the profile of layers is of, else the first. Raises
    ``ReadError`` where a file is missing, damaged or of another kind, or files belong to different engines.
    """
    paths = {kind: Path(path) for kind, path in files.items()}
    _check_kinds(paths)
    _check_combination(paths)
    if "build" in paths:
        return build.read(paths["build"])
    if "archive" in paths:
        return _read_archive(paths, select)
    if {"output", "results"} <= set(paths):
        raise ReadError(
            "Cannot read two sets of tensors: output and results are both given. Leave one of them out."
        )
    if {"layers", "log", "profile", "times"} & set(paths):
        return _read_engine(paths, select)
    if "ort_profile" in paths or "ort_model" in paths:
        return _read_onnxruntime(paths.get("ort_profile"), paths.get("ort_model"))
    if "results" in paths:
        return _read_tensors(paths["results"])
    if "plan" in paths:
        raise _make_plan_error(paths["plan"])
    for kind, advice in _ELSEWHERE.items():
        if kind in paths and not set(paths) - set(_ELSEWHERE):
            raise ReadError(
                f'Cannot read an engine from "{paths[kind].name}": byte 0 begins {recognise.KINDS[kind]}; a layer '
                f"file or a log belongs there. {advice}"
            )
    raise ReadError(
        'Cannot read trtexec files: no layer file is given. Give layers="layers.json" or log="build.log" and, if you '
        "have them, profile, times, output and metadata."
    )


def parse_log(text: str) -> BuildLog:
    """What the verbose log of a build that was made here tells; ``ReadError`` where nothing in it tells of a build."""
    return verbose.parse(text, interpret=False).log


def _check_kinds(paths: Mapping[str, Path]) -> None:
    """Raise unless each file is what it is given as. What no kind fits is left to the reader of its kind."""
    for kind, path in paths.items():
        if kind not in recognise.KINDS:
            raise ReadError(
                f'Cannot read trtexec files: there is no kind "{kind}". Choose one of {", ".join(recognise.KINDS)}.'
            )
        if not path.is_file():
            # The reader tells what is there instead.
            contents.read_bytes(path, kind)
        try:
            actual_kind = recognise.detect_kind(path)
        except ReadError:
            if kind in {"archive", "build", "plan", "model", "cache", "timing_cache"}:
                raise
            continue
        is_table_in_log = (kind, actual_kind) == ("log", "profile") and recognise.is_table_in_log(path)
        if actual_kind == kind or {actual_kind, kind} == {"model", "ort_model"} or is_table_in_log:
            continue
        if actual_kind == "plan":
            raise _make_plan_error(path)
        raise ReadError(
            f'Cannot read {kind} file "{path.name}": by its first bytes (byte 0) this is '
            f"{recognise.KINDS[actual_kind]}; {recognise.KINDS[kind]} belongs there. Give it as "
            f'{actual_kind}="{path.name}".'
        )


def _check_combination(paths: Mapping[str, Path]) -> None:
    """Raise where two files tell of two compilers, or one would be passed over in silence."""
    groups = (
        ("build",),
        ("ort_profile", "ort_model"),
        ("archive", "layers", "log", "profile", "times", "output", "metadata", "results", "plan"),
    )
    firsts = [next((kind for kind in group if kind in paths), None) for group in groups]
    first, other = (*(kind for kind in firsts if kind), None, None)[:2]
    if first and other:
        raise ReadError(
            f'Cannot read "{paths[first].name}" beside "{paths[other].name}": the first is {recognise.KINDS[first]}, '
            f"the second {recognise.KINDS[other]}; one engine has files of one of them. Read each under a name of its "
            "own."
        )
    kinds = [kind for kind in ("output", "metadata") if kind in paths]
    if kinds and not {"archive", "layers", "log", "profile", "times"} & set(paths):
        names = ", ".join(f'"{paths[kind].name}"' for kind in kinds)
        raise ReadError(
            f'Cannot read an engine from {names}: none tells of its layers or their times. Give layers="layers.json" '
            '(trtexec --exportLayerInfo), profile="profile.json" or log="build.log" beside.'
        )


def _make_plan_error(path: Path) -> ReadError:
    return ReadError(
        f'Cannot read "{path.name}": byte 0 begins a serialized engine; a layer file or a log belongs there. '
        + EXPORT.format(file=path.name)
    )


def _read_engine(paths: Mapping[str, Path], select: int | None) -> Recording:
    device = measured.read_device(paths.get("metadata"))
    paths = _split_paste(paths)
    parsed_log = _parse_log(paths)
    rows = _read_rows(paths, parsed_log)
    log = None if parsed_log is None else parsed_log.log
    prefer = rows.find_profile() if rows else None
    inspected_engine = _read_layers(paths, select, prefer, parsed_log)
    if not inspected_engine.layers and rows is not None:
        # Layers as a profile names them, where nothing else lists any.
        row_engine = inspector.parse({"Layers": rows.names}, "profile", select=select, prefer=prefer)
        row_notes = (
            *(n for n in inspected_engine.notes if n != _NO_LAYERS),
            *row_engine.notes[:-1],
            _ONLY_ROWS,
        )
        inspected_engine = dataclasses.replace(
            row_engine, notes=row_notes, inputs=inspected_engine.inputs, outputs=inspected_engine.outputs
        )
    if log is not None:
        device = device.merge(measured.DeviceRecord(log.device, log.target, log.version, log.latency))
    if rows is not None:
        device = device.merge(rows.device)
    latencies, latency_notes = measured.read_latencies(paths.get("times"), device)
    messages = _choose_messages(paths, parsed_log, inspected_engine)
    profile: Profile | None = None
    time_notes: Sequence[str] = ()
    if rows is not None and inspected_engine.layers:
        path = paths.get("profile") or paths["log"]
        profile, time_notes = measured.join_times(rows, inspected_engine, path, device, latencies)
    elif inspected_engine.layers and any(m.id == "gpu-kernels" for m in messages):
        kernels = reports.read_kernels(inspected_engine.around or contents.read_text(paths["log"], "log"))
        profile, time_notes = measured.join_kernels(kernels, inspected_engine.layers, latencies)
    if profile is None and len(latencies):
        # The one median of metadata is of untold many.
        runs = None if "times" in paths else 0
        source = measured.describe_source(device)
        profile = Profile(source, "", {}, latencies, warmup=0, taken=None, processor="GPU", runs=runs)
    notes = [*inspected_engine.notes, *(log.notes if log else ()), *time_notes, *latency_notes]
    has_engine = bool(inspected_engine.layers or (parsed_log and parsed_log.has_build))
    notes = _adapt_notes(notes, messages, has_engine=has_engine)
    if "plan" in paths:
        notes.append(f'"{paths["plan"].name}" is a serialized engine; its exported files are shown.')
    engine = Engine(
        backend="trtexec",
        version=device.version,
        target=device.target,
        layers=inspected_engine.layers,
        inputs=inspected_engine.inputs,
        outputs=inspected_engine.outputs,
        totals=dict(log.totals) if log else {},
        seconds=(log.seconds if log else None) or 0.0,
        notes=tuple(notes),
        device=device.name,
        profiles=inspected_engine.shapes,
        maker=_get_maker(messages, has_engine=has_engine),
    )
    outputs: Outputs | None = None
    reference: Outputs | None = None
    tensor_notes: Sequence[str] = ()
    if "output" in paths:
        outputs, tensor_notes = measured.read_outputs(paths["output"], engine)
    elif "results" in paths:
        outputs, reference, tensor_notes = _read_results(paths["results"], engine)
    engine = dataclasses.replace(engine, notes=(*engine.notes, *tensor_notes))
    has_build = parsed_log is not None and parsed_log.has_build
    return Recording(engine, profile, log if has_build else None, outputs, reference, messages=messages)


def _split_paste(paths: Mapping[str, Path]) -> Mapping[str, Path]:
    """Files by kind; one that holds a verbose log and the JSON of layers, as a paste may, is of both kinds."""
    kind, other = ("log", "layers") if "log" in paths else ("layers", "log")
    if kind not in paths or other in paths or paths[kind].stat().st_size > _PASTED:
        return paths
    text = contents.read_text(paths[kind], kind)
    if recognise.is_verbose(text) and recognise.holds_listing(text):
        with contextlib.suppress(ReadError):
            contents.parse_partial(text, paths[kind].name, "layers")
            return {**paths, other: paths[kind]}
    return paths


def _parse_log(paths: Mapping[str, Path]) -> verbose.ParsedLog | None:
    """What a log tells; of a file that is of both kinds, what the lines around the JSON do, if anything."""
    if "log" not in paths:
        return None
    path = paths["log"]
    if path != paths.get("layers"):
        return verbose.parse(path)
    with contextlib.suppress(ReadError):
        text = contents.read_text(path, "layers")
        return verbose.parse(contents.parse_partial(text, path.name, "layers").around)
    return None


def _choose_messages(
    paths: Mapping[str, Path],
    parsed_log: verbose.ParsedLog | None,
    inspected_engine: inspector.InspectedEngine,
) -> tuple[MessageMatch, ...]:
    """The messages of a log, or around a table of times, and around a listing of layers.

    Measurements are those of the engine, where there is one.
    """
    messages = reports.find_reports(inspected_engine.around)
    if "log" in paths and paths["log"] == paths.get("layers"):
        pass  # Its lines are those around the layers.
    elif parsed_log is not None:
        messages += parsed_log.messages
    elif "profile" in paths and recognise.is_table_in_log(paths["profile"]):
        messages += reports.find_reports(contents.read_text(paths["profile"], "profile"))
    return tuple(m for m in messages if not inspected_engine.layers or m.id not in reports.MEASUREMENTS)


def _adapt_notes(notes: Sequence[str], messages: Sequence[MessageMatch], *, has_engine: bool) -> list[str]:
    """Notes with what lacks; where a build failed, nothing lacks that its files would have."""
    if any(m.failed for m in messages):
        return [n for n in notes if n != _NO_LAYERS]
    is_run = all(m.id in reports.MEASUREMENTS for m in messages)
    return [*notes, _NO_ENGINE] if not has_engine and is_run else list(notes)


def _get_maker(messages: Sequence[MessageMatch], *, has_engine: bool) -> Maker:
    """Whose text it is: TensorRT's, unless every message in it is another program's."""
    products = list(dict.fromkeys(m.product for m in messages))
    products = [p for p in products if p != UNNAMED_PROGRAM] or products
    is_tensorrt = has_engine or not all(products) or not products
    return compiler_info.TENSORRT if is_tensorrt else Maker(" and ".join(products))


def _read_rows(
    paths: Mapping[str, Path], parsed_log: verbose.ParsedLog | None
) -> measured.ProfileRows | None:
    """Times of layers: those of the profile, or a table in the log of a run."""
    if "profile" in paths:
        return measured.read_rows(paths["profile"])
    if parsed_log is None:
        return None
    has_table = parsed_log.has_times or (not parsed_log.has_build and recognise.is_table_in_log(paths["log"]))
    return measured.read_rows(paths["log"]) if has_table else None


def _read_layers(
    paths: Mapping[str, Path], select: int | None, prefer: int | None, parsed_log: verbose.ParsedLog | None
) -> inspector.InspectedEngine:
    """Layers of the layer file, or of the log."""
    log_engine = inspector.InspectedEngine((), (), (), (), None)
    if parsed_log is not None:
        log_engine = _read_log_layers(parsed_log, paths["log"].name, select, prefer)
    if "layers" not in paths:
        return log_engine
    path = paths["layers"]
    document = _read_listing(path)
    inspected_engine = inspector.parse(document.value, path.name, select=select, prefer=prefer)
    if parsed_log is not None and paths["log"] != path:
        _check_same_build(paths["log"], parsed_log, inspected_engine)
    notes = (*document.notes, *inspected_engine.notes)
    return dataclasses.replace(inspected_engine, notes=notes, around=document.around)


def _read_listing(path: Path) -> contents.Document:
    """The document of a layer file, whose text may be large and is not kept."""
    text = contents.read_text(path, "layers")
    is_text_form = _JSON.match(text) is None and '"LayerType"' not in text
    if is_text_form and (printed.INSPECTOR.search(text) or printed.ROW.search(text)):
        return dataclasses.replace(printed.parse_layers(text, path.name), around=text)
    return contents.parse_partial(text, path.name, "layers")


def _read_log_layers(
    parsed_log: verbose.ParsedLog, file: str, select: int | None, prefer: int | None
) -> inspector.InspectedEngine:
    """Layers that a log lists. The inspector's text form tells more than the builder's own listing."""
    contents.check_layer_count("log", file, len(parsed_log.layers))
    entries, damaged_lines = printed.parse_entries(parsed_log.printed_rows)
    notes: tuple[str, ...] = ()
    if damaged_lines:
        more = f" and {len(damaged_lines) - 1} more" if len(damaged_lines) > 1 else ""
        notes = (f"Line {damaged_lines[0]}{more} of the listing of layers could not be read.",)
    inputs, outputs, layers = parsed_log.inputs, parsed_log.outputs, parsed_log.layers
    if not entries or (damaged_lines and layers) or len(entries) < len(layers):
        missing = () if layers or not parsed_log.has_build else (_NO_LAYERS,)
        return inspector.InspectedEngine(layers, inputs, outputs, (*notes, *missing), None)
    bindings = [*(t.name for t in (*inputs, *outputs)), *parsed_log.bound_names]
    detailed = inspector.parse({"Layers": entries, "Bindings": bindings}, file, select=select, prefer=prefer)
    return dataclasses.replace(
        detailed,
        inputs=detailed.inputs or inputs,
        outputs=detailed.outputs or outputs,
        notes=(*detailed.notes, *notes),
    )


def _check_same_build(
    path: Path, parsed_log: verbose.ParsedLog, inspected_engine: inspector.InspectedEngine
) -> None:
    """Raise where a log and a layer file have no name in common."""
    layer_names = sorted({y.name for y in inspected_engine.layers})
    log_names = {inspector.split_profile(y.name)[0] for y in parsed_log.layers}
    is_shared = not log_names.isdisjoint(layer_names)
    if not log_names:
        decisions = [d for a in parsed_log.log.attempts for p in a.passes for d in p.decisions]
        log_names = {inspector.split_profile(n)[0] for d in decisions for n in (*d.names, d.result) if n}
        all_names = "\n".join(layer_names)
        is_shared = not log_names or any(n in all_names for n in log_names)
    if not is_shared:
        raise measured.make_mismatch_error(
            f'log "{path.name}"',
            sorted(log_names),
            layer_names,
            f"none of its {len(log_names)} layers is one of the {len(layer_names)}",
        )


def _read_results(path: Path, engine: Engine) -> tuple[Outputs, Outputs | None, tuple[str, ...]]:
    _, outputs, reference, notes = measured.read_results(path)
    output_names = {t.name for t in engine.outputs}
    tensor_names = output_names | {t.name for y in engine.layers for t in y.outputs}
    if output_names and not set(outputs) & tensor_names:
        raise measured.make_mismatch_error(
            f'results "{path.name}"',
            list(outputs),
            sorted(output_names),
            f'none of its {len(outputs)} tensors (key "lst") is one of the engine\'s',
        )
    return outputs, reference, notes


def _read_tensors(path: Path) -> Recording:
    """A recording of tensors alone."""
    runner, outputs, reference, notes = measured.read_results(path)
    types = {v: k for k, v in NUMPY.items()}
    tensors = tuple(
        Tensor(n, types.get(str(v.dtype), str(v.dtype)), tuple(v.shape)) for n, v in outputs.items()
    )
    is_onnxruntime = runner.startswith("onnxrt")
    engine = Engine(
        "onnxruntime" if is_onnxruntime else "trtexec",
        "",
        Target("unknown"),
        (),
        outputs=tensors,
        notes=(*notes, _ONLY_TENSORS),
        maker=compiler_info.ONNX_RUNTIME if is_onnxruntime else compiler_info.TENSORRT,
    )
    return Recording(engine, outputs=outputs, reference=reference)


def _read_archive(paths: Mapping[str, Path], select: int | None) -> Recording:
    path = paths["archive"]
    with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
        try:
            members, notes = _unpack(path, Path(folder))
            # What is given beside an archive stands for what is in it.
            files = {**members, **{k: p for k, p in paths.items() if k != "archive"}}
            recording = _read_engine(files, select) if {"layers", "log"} & set(files) else None
        except ReadError as error:
            if f'"{path.name}"' in str(error):
                raise
            raise ReadError(
                f'Cannot read archive file "{path.name}": a member of it is refused. {error}',
                details=str(error),
            ) from error
    if recording is None:
        raise ReadError(
            f'Cannot read an engine from "{path.name}": key "layers" has no member; a layer file or a log belongs '
            "there. " + EXPORT.format(file="engine.trt")
        )
    engine = dataclasses.replace(recording.engine, notes=(*recording.engine.notes, *notes))
    return dataclasses.replace(recording, engine=engine)


def _unpack(path: Path, folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Write the members of trex's archive that are read into a folder: files by kind, and notes; or ``ReadError``."""
    skipped_names: list[str] = []
    paths: list[Path] = []
    name = ""
    budget = _UNPACKED
    try:
        with zipfile.ZipFile(path) as archive:
            for index, info in enumerate(_list_members(archive)):
                name = info.filename
                # Python asks for the last letter of a name that may have none.
                if not name or info.is_dir() or Path(name).name in {"plan_cfg.json", "build_cfg.json"}:
                    continue
                target = folder / str(index) / re.sub(r"[^\w.\- ]", "_", Path(name).name)[-100:]
                target.parent.mkdir()
                with archive.open(info) as member, target.open("wb") as file:
                    chunk = member.read(_CHUNK)
                    if recognise.is_engine(chunk):
                        continue
                    while chunk:
                        budget = _reduce_budget(budget, file.write(chunk))
                        chunk = member.read(_CHUNK)
                try:
                    if recognise.detect_kind(target) != "timing_cache":
                        paths.append(target)
                except ReadError:
                    skipped_names.append(name)
    # A member may be of a method or encryption that Python lacks, which is a RuntimeError.
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        problem = f'member "{name}" is damaged ({error})'
        raise contents.fault("archive", path.name, problem, "a whole file") from error
    note = f"Members of the archive that are not read: {', '.join(skipped_names[:3])}."
    return recognise.sort_by_kind(paths), (note,) if skipped_names else ()


def _list_members(archive: zipfile.ZipFile) -> Iterable[zipfile.ZipInfo]:
    """The members; of one that was written again, and stands twice, the last."""
    members = {info.filename: info for info in archive.infolist()}
    if len(members) > _MEMBERS:
        raise ValueError(f"there are more than {_MEMBERS}")
    return members.values()


def _reduce_budget(budget: int, size: int) -> int:
    """The bytes that may still be unpacked."""
    if size > budget:
        raise ValueError(f"larger than {_UNPACKED >> 30} GiB unpacked")
    return budget - size


class Trtexec:
    """Files of ``trtexec``, TensorRT's inspector, trex, Polygraphy and ONNX Runtime; TensorRT 5 to 11.

    Keys of ``read`` are those of ``recognise.KINDS``: ``layers`` (``--exportLayerInfo``) or ``log`` (``--verbose``),
    and optionally ``profile`` (``--exportProfile``), ``times`` (``--exportTimes``) and so on.
    """

    name = "trtexec"

    def availability(self) -> Availability:
        """Reading needs nothing installed."""
        return Availability(ok=True, version="files of TensorRT 5 to 11")

    def capabilities(self) -> Capabilities:
        """It reads; nothing is built or run."""
        return Capabilities(targets=(), precisions=(), reads=True, maker=compiler_info.TENSORRT)

    def read(self, files: Mapping[str, Path], *, select: int | None = None) -> Recording:
        """Read an engine and, where there is a profile, the times of its layers.

        Times are joined to layers by name, with a note on those that do not join.

        Raises:
            ReadError: a file is missing, damaged or of another kind, or files belong to different engines.
        """
        return read(files, select=select)
