"""Engines that TensorRT built on another machine: from files to facts beside the others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from pathlib import Path
from typing import Literal

import numpy as np

from rtlab import backends
from rtlab.analyses.accuracy import Comparison
from rtlab.analyses.build.replay import rebuild_layers, replay_decisions
from rtlab.analyses.fusion import map_nodes
from rtlab.backends.capabilities import suggest_backends
from rtlab.backends.reference import get_evaluator, get_stand_in
from rtlab.backends.selection import opener_for, reader_for
from rtlab.core.arrays import Batch
from rtlab.core.budget import BUDGET_S, Budget
from rtlab.core.engine import Engine
from rtlab.core.facts import Errors, VariantResult
from rtlab.core.model import Model, load
from rtlab.core.phrases import quote_names
from rtlab.core.prepared import Prepared
from rtlab.core.protocols import Backend, Progress
from rtlab.core.trace import Recording
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import ReadError, RunError, Unavailable, VariantError
from rtlab.experiments.running import open_engine
from rtlab.quantize.cache import CalibrationCache
from rtlab.study.job import Job, compile_variant
from rtlab.study.stages import measure_all_stages
from rtlab.study.state_holder import StateHolder, check_variant_name

#: Share of layers with a node up to which the model may be another one.
_FEW = 0.1
_STRUCTURE = (
    "The file with the model's weights is not here: the graph is shown, and what needs a weight, as a build does, "
    "says so."
)
#: Kinds of files that do not describe an engine.
_ASIDE = frozenset({"model", "cache"})


def collect_files(
    files: Sequence[str | Path], files_by_kind: MappingType[str, str | Path | None]
) -> dict[str, Path]:
    """Files by kind: those whose kind is named, and the rest by their content.

    Raises:
        ReadError: a file is of no known kind, or there are two of one kind.
    """
    from rtlab.backends.readers import recognise

    named_files = {k: _path(p, k) for k, p in files_by_kind.items() if p is not None}
    recognized_files = recognise.sort_by_kind([_path(f, "file") for f in files])
    for kind, path in recognized_files.items():
        if kind in named_files:
            raise ReadError(
                f'Cannot read "{path.name}" beside "{named_files[kind].name}": both are of the kind "{kind}", and an '
                "engine has one. Read each engine under a name of its own."
            )
    return recognized_files | named_files


@contextlib.contextmanager
def save_pasted_text(text: str | bytes | None) -> Iterator[tuple[Path, ...]]:
    """A pasted text as a file, while it is read; nothing where there is none."""
    if text is None:
        yield ()
        return
    if not isinstance(text, (str, bytes)):
        raise ReadError(
            f"Cannot read text {str(text)[:60]!r}: it is no text but of type {type(text).__name__}. Give what you "
            "copied as a string, or the path of a file without text=."
        )
    with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "pasted.txt"
        path.write_bytes(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        yield (path,)


def _path(path: object, what: str) -> Path:
    if isinstance(path, (str, Path)):
        return Path(path)
    raise ReadError(
        f"Cannot read {what} {path!r}: it is no path. Give the path of a file, each file on its own; a number of an "
        "optimization profile goes to optimization_profile."
    )


def read_recording(
    model: Model,
    name: str,
    files: MappingType[str, Path],
    *,
    inputs: Batch | None = None,
    profile: int | None = None,
    backend: str | Backend | None = None,
) -> VariantResult:
    """Read an engine's files as a variant of a model, with times and errors as far as the files have them.

    ``model`` is the source, without nodes where it is unknown; of ``files``, by kind, ``model`` is the ONNX file that
    the engine was built from, where that is another one. The other arguments are those of ``Study.read``.

    Raises:
        ReadError: a file is damaged, or files belong to different engines.
        ModelError: the model cannot be loaded.
        Unavailable: the backend reads no files.
    """
    engine_files = {k: p for k, p in files.items() if k not in _ASIDE}
    if not engine_files:
        listed_names = quote_names(p.name for p in files.values())
        raise ReadError(
            f'Cannot read "{name}": {f"{listed_names} describes no engine" if listed_names else "no file is given"}. '
            'Give layers="layers.json" from trtexec --exportLayerInfo, or log= with a verbose build log.'
        )
    recording = reader_for(backend).read(engine_files, select=profile)
    built_model = load(files["model"], weights=False) if "model" in files else recording.graph or model
    engine, cache = _complete_engine(recording, built_model), files.get("cache")
    errors, errors_note = _errors(model, recording, inputs)
    doubts = (errors_note, _other_graph(model, recording), _STRUCTURE if model.weightless else "")
    engine = dataclasses.replace(engine, notes=(*engine.notes, *filter(None, doubts)))
    variant = Variant(
        narrowest(engine), target=engine.target, backend=engine.backend, scales=cache.name if cache else ""
    )
    facts = VariantResult(
        name,
        variant,
        model,
        Prepared(built_model, built_model, scales=CalibrationCache.read(cache).scales() if cache else {}),
        engine,
        measured=engine if recording.profile else None,
        profile=recording.profile,
        errors=errors,
        recorded=True,
        inferred=bool(engine.layers) and not recording.engine.layers,
        build_log=recording.log,
        outputs=recording.outputs,
        messages=recording.messages,
    )
    if not (doubt := _other_model(facts)):
        return facts
    engine = dataclasses.replace(engine, notes=(*engine.notes, doubt))
    return dataclasses.replace(facts, engine=engine, measured=engine if recording.profile else None)


def source(files: MappingType[str, Path]) -> Model | None:
    """The model that a recorded build among some files is of, without its weights; None where there is none.

    Raises:
        ReadError: the file is damaged.
    """
    from rtlab.backends.readers import build

    return build.read(files["build"]).source if "build" in files else None


def _other_graph(model: Model, recording: Recording) -> str:
    """A doubt, where a recorded build is of another graph than the model beside it."""
    if (
        not recording.structure
        or model.weightless
        or not model.nodes
        or recording.structure == model.structure
    ):
        return ""
    return (
        f'The graph of model "{model.name}" is not the one that was recorded: operators, shapes or names differ. '
        "Leave the model out to see the recorded one."
    )


def _other_model(facts: VariantResult) -> str:
    """A doubt, where hardly a layer belongs to a node of the model."""
    model, engine = facts.source, facts.engine
    if not model.nodes or not engine.layers:
        return ""
    matched_layers = len({p.layer for p in map_nodes(facts).pairs})
    if matched_layers > _FEW * len(engine.layers):
        return ""
    many = (
        f"Only {matched_layers} of {len(engine.layers)} layers name" if matched_layers else "No layer names"
    )
    return f'{many} a node of model "{model.name}": is it the same model?'


def _complete_engine(recording: Recording, built_model: Model) -> Engine:
    """The engine; of a log without layers, with those that its decisions leave of the model's nodes."""
    engine, log = recording.engine, recording.log
    if engine.layers or log is None or not built_model.nodes:
        return engine
    layers = rebuild_layers(replay_decisions(log, built_model), built_model)
    if not layers:
        return engine
    note = (
        f"The log lists no layers: these {len(layers)} are the model's nodes as its decisions joined them, which is an "
        "inference. Types and tactics are not reported."
    )
    return dataclasses.replace(engine, layers=layers, notes=(note,))


def _errors(model: Model, recording: Recording, inputs: Batch | None) -> tuple[Errors | None, str]:
    """Errors of the tensors in the files, against those of a second runner in them or of ONNX Runtime here.

    Returns:
        The errors, or None with a note that says why, which is empty where there are no tensors.
    """
    outputs = recording.outputs
    if outputs is None:
        return None, ""
    prefix = "The outputs in the files are not compared"
    if not model.nodes:
        return None, f"{prefix}: give the ONNX model as well."
    if recording.reference is not None:
        before, source = recording.reference, "the file's own reference runner"
    elif inputs is None:
        return None, f"{prefix}: give inputs= with what they were computed from."
    elif values := [n for n in outputs if n in model.values]:
        runner, source = get_evaluator(), "ONNX Runtime here"
        with open_engine(runner, model) as engine:
            before = runner.outputs(engine, inputs, values)
    else:
        return None, f'{prefix}: none is a value of model "{model.name}".'
    names = [
        n
        for n, array in outputs.items()
        if n in before
        and n in model.values
        and np.size(array) == np.size(before[n])
        and np.asarray(array).dtype.kind in "fiu"
    ]
    if not names:
        return None, f"{prefix}: {source} has none of the same names and sizes."
    comparison = Comparison(model, names)
    comparison.add(before, outputs, 1)
    return comparison.to_errors(f"tensors from files, against {source}"), ""


def narrowest(engine: Engine) -> Precision:
    """The narrowest precision among an engine's layers; fp32 where their types are unknown."""
    precisions = {layer.precision for layer in engine.layers}
    order = (Precision.FP4, Precision.INT4, Precision.FP8, Precision.INT8, Precision.FP16, Precision.BF16)
    return next((p for p in order if p.value in precisions), Precision.FP32)


def open_plan(
    holder: StateHolder, name: str, plan: str | Path, backend: str | Backend | None, progress: Progress
) -> VariantResult:
    """Open a serialized engine on the GPU that it was built for, time it and compare its values.

    None takes the backend that opens engines here, which is that of TensorRT where there is one.

    Raises:
        Unavailable: backend, driver or GPU are missing, or version or GPU are not the engine's.
        ReadError: the file is no engine.
        RunError: it cannot be run.
    """
    check_variant_name(name)
    state, opener_name = holder.state, opener_for(backend)
    opener = backends.get(opener_name)
    if not (here := opener.availability()).ok:
        raise Unavailable(
            f'Cannot open "{plan}": backend "{opener_name}" does not work here: {here.reason} Elsewhere, export the '
            "layers where the engine's GPU is, with trtexec --loadEngine=... --exportLayerInfo=layers.json, and "
            "read them with study.read."
        )
    targets = opener.capabilities().targets
    variant = Variant(target=targets[0] if targets else Target("unknown"), backend=opener_name)
    job = Job(
        name, variant, state.model, holder.data, state.task, None, None, state.limits, opener_name, get_stand_in(),
        plan=str(plan),
    )  # fmt: skip
    result = measure_all_stages(job, compile_variant(job, progress), Budget(BUDGET_S), progress)
    precise = dataclasses.replace(variant, precision=narrowest(result.engine))
    return dataclasses.replace(result, variant=precise, recorded=True)


def adopt(holder: StateHolder, result: VariantResult) -> None:
    """Keep what was read, in the place of any variant of its name."""
    holder.publish(
        lambda state: (
            state.without_variant(result.name)
            .with_variant(result.name, result.variant, None)
            .with_result(result)
        )
    )


def serialize_build(result: VariantResult, model: Model, kind: Literal["build", "engine", "layers"]) -> bytes:
    """The build of a variant without weights, its serialized engine, or its layers in the form of TensorRT 11.

    Raises:
        RunError: its backend kept no serialized engine.
        VariantError: its files list no layers.
    """
    from rtlab.backends.readers import build
    from rtlab.backends.readers.inspector import layers_json

    engine = result.engine
    if kind == "engine":
        if engine.plan is None:
            raise RunError(
                f'Cannot save the engine of "{result.name}": backend "{engine.backend}" kept no serialized engine. '
                f"Build it where a GPU is, with {suggest_backends(lambda c: c.opens)}."
            )
        return engine.plan
    if kind == "layers":
        if not engine.layers:
            raise VariantError(
                f'Cannot export the layers of "{result.name}": its files list none. Read it with a layer file, from '
                "trtexec --exportLayerInfo."
            )
        return json.dumps(layers_json(engine), indent=1, ensure_ascii=False).encode("utf-8", "replace")
    return build.encode(
        engine,
        words=result.variant.id,
        source=model if model.nodes else None,
        graph=result.prepared.model,
        # Where the engine cannot run here, the times are another one's.
        profile=result.profile if result.measured is engine else None,
    )
