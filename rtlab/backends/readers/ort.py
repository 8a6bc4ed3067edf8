"""Files of ONNX Runtime: the JSON of its profiler, and the model that it wrote after optimizing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rtlab.backends import compiler_info
from rtlab.backends.readers import contents, optimized
from rtlab.backends.readers.contents import fault, format_value, parse_number
from rtlab.backends.readers.measured import format_names, make_mismatch_error
from rtlab.backends.readers.optimized import KERNEL
from rtlab.core import check
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.trace import Processor, Profile, Recording
from rtlab.core.variant import Target
from rtlab.errors import ModelError

_CPU = "CPUExecutionProvider"
_NO_EDGES = (
    "The profile names operators only: no edges between them. For these, give the optimized model as well: ort_model "
    "(SessionOptions.optimized_model_filepath)."
)


def read(profile: Path | None, model: Path | None) -> Recording:
    """Read the layers of an optimized model, or those that the profiler names, and their times; or ``ReadError``."""
    events: list[dict[str, Any]] = []
    notes: tuple[str, ...] = ()
    if profile is not None:
        events, notes = _read_events(profile)
    providers = sorted({str(e["args"].get("provider") or _CPU) for e in events})
    on_cpu = providers in ([], [_CPU])
    layers, inputs, outputs = (_make_layers(events), (), ()) if model is None else _read_layers(model)
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
    return Recording(engine, _make_profile(profile, events, engine) if profile is not None else None)


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


def _read_layers(path: Path) -> tuple[tuple[Layer, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
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
    processor: Processor = "CPU" if providers == {_CPU} else "GPU"
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
        taken=None,
        note=note,
        processor=processor,
        runs=max(len(s) for s in samples.values()),
    )
