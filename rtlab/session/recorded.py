"""Engines that TensorRT built on another machine: from files to facts beside the others."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from pathlib import Path

import numpy as np

from rtlab import questions
from rtlab.backends.choosing import reader_for
from rtlab.backends.files import build, recognise
from rtlab.backends.reference import evaluator, reference
from rtlab.core import scratch
from rtlab.core.arrays import Batch
from rtlab.core.engine import Engine
from rtlab.core.facts import Errors, Facts
from rtlab.core.model import Model, load
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent
from rtlab.core.protocols import Backend
from rtlab.core.trace import Outputs, Recording
from rtlab.core.variant import Precision, Variant
from rtlab.errors import ReadError
from rtlab.quantize.cache import CalibrationCache
from rtlab.questions.accuracy.errors import Comparison
from rtlab.questions.build.layers_from_log import rebuilt
from rtlab.questions.build.replay import replay
from rtlab.questions.timing import times as _timing
from rtlab.questions.timing.times import Timing

#: Share of the layers below which one must ask whether the model is the right one.
_FEW = 0.1
#: Sum of layers by latency below which times are in doubt; over the recorded engines it is 1.02 to 1.78.
_LEAST_RATIO = 0.9
_STRUCTURE = (
    "The file with the model's weights is not here: the graph is shown, and what needs a weight, as a build does, "
    "says so."
)
#: Kinds of files that do not describe an engine.
ASIDE = frozenset({"model", "cache"})


def gathered(files: Sequence[str | Path], named: MappingType[str, str | Path | None]) -> dict[str, Path]:
    """Files by kind: those that the user named, and the rest by what is in them.

    Raises:
        ReadError: a file is of no known kind, or there are two of one kind.
    """
    given = {k: _path(p, k) for k, p in named.items() if p is not None}
    found = recognise.sort([_path(f, "file") for f in files])
    for kind, path in found.items():
        if kind in given:
            raise ReadError(
                f'Cannot read "{path.name}" beside "{given[kind].name}": both are of the kind "{kind}", and an engine '
                "has one. Read each engine under a name of its own."
            )
    return found | given


@contextlib.contextmanager
def pasted(text: str | bytes | None) -> Iterator[tuple[Path, ...]]:
    """A text that was pasted as a file, while it is read; nothing where there is none."""
    if text is None:
        yield ()
        return
    if not isinstance(text, (str, bytes)):
        raise ReadError(
            f"Cannot read text {str(text)[:60]!r}: it is no text but of type {type(text).__name__}. Give what you "
            "copied as a string, or the path of a file without text=."
        )
    with scratch.folder() as folder:
        path = Path(folder) / "pasted.txt"
        path.write_bytes(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        yield (path,)


def _path(given: object, what: str) -> Path:
    if isinstance(given, (str, Path)):
        return Path(given)
    raise ReadError(
        f"Cannot read {what} {given!r}: it is no path. Give the path of a file, each file on its own; a number of an "
        "optimization profile goes to optimization_profile."
    )


def recorded(
    model: Model,
    name: str,
    files: MappingType[str, Path],
    *,
    inputs: Batch | None = None,
    profile: int | None = None,
    backend: str | Backend | None = None,
) -> Facts:
    """Read an engine's files as a variant of a model.

    Args:
        model: The source; without nodes where none is known.
        name: What the variant is called.
        files: Paths by kind. ``model`` is the ONNX file that the engine was built from, where that is not the source
            itself, ``cache`` a calibration cache.
        inputs: What the outputs in the files were computed from, so that ONNX Runtime can compute the same.
        profile: The optimization profile to show; the first by default.
        backend: What reads them; rtlab's own reader by default.

    Raises:
        ReadError: a file is damaged, or files belong to different engines.
        ModelError: the model cannot be loaded.
        Unavailable: the backend reads no files.
    """
    told = {k: p for k, p in files.items() if k not in ASIDE}
    if not told:
        had = ", ".join(f'"{p.name}"' for p in files.values())
        raise ReadError(
            f'Cannot read "{name}": {f"{had} describes no engine" if had else "no file is given"}. '
            'Give layers="layers.json" from trtexec --exportLayerInfo, or log= with a verbose build log.'
        )
    found = reader_for(backend).read(told, select=profile)
    built = load(files["model"], weights=False) if "model" in files else found.graph or model
    return result(model, built, name, found, inputs=inputs, cache=files.get("cache"))


def result(
    model: Model,
    built: Model,
    name: str,
    found: Recording,
    *,
    inputs: Batch | None = None,
    cache: Path | None = None,
) -> Facts:
    """A recording as facts: related to the model, with times and errors as far as the files have them."""
    engine = _completed(found, built)
    scales = CalibrationCache.read(cache).scales() if cache else {}
    errors, said = _errors(model, found, inputs)
    times = _timing.timing(found.profile, engine) if found.profile else None
    doubts = tuple(
        filter(None, (said, _other_times(times), _other_graph(model, found), _STRUCTURE * model.weightless))
    )
    if doubts:
        engine = dataclasses.replace(engine, notes=(*engine.notes, *doubts))
    facts = Facts(
        name,
        Variant(
            narrowest(engine),
            target=engine.target,
            backend=engine.backend,
            scales=cache.name if cache else "",
        ),
        model,
        Prepared(built, built, scales=scales),
        engine,
        measured=engine if found.profile else None,
        profile=found.profile,
        errors=errors,
        recorded=True,
        inferred=bool(engine.layers) and not found.engine.layers,
        told=found.log,
        outputs=found.outputs,
    )
    if not (doubt := _other_model(facts)):
        return facts
    doubted = dataclasses.replace(engine, notes=(*engine.notes, doubt))
    return dataclasses.replace(facts, engine=doubted, measured=doubted if found.profile else None)


def source(files: MappingType[str, Path]) -> Model | None:
    """The model that a recorded build among some files is of, without its weights; None where there is none.

    Raises:
        ReadError: the file is damaged.
    """
    return build.read(files["build"]).source if "build" in files else None


def _other_graph(model: Model, found: Recording) -> str:
    """A doubt, where a recorded build is of another graph than the model that was given beside it."""
    if not found.structure or model.weightless or not model.nodes or found.structure == model.structure:
        return ""
    return (
        f'The graph of model "{model.name}" is not the one that was recorded: operators, shapes or names differ. '
        "Leave the model out to see the recorded one."
    )


def _other_model(facts: Facts) -> str:
    """A doubt, where hardly a layer belongs to a node of the model."""
    model, engine = facts.source, facts.engine
    held = len({p.layer for p in questions.fusion.mapping(facts).pairs})
    if not model.nodes or not engine.layers or held > _FEW * len(engine.layers):
        return ""
    many = f"Only {held} of {len(engine.layers)} layers name" if held else "No layer names"
    return f'{many} a node of model "{model.name}": is it the same model?'


def _other_times(timing: Timing | None) -> str:
    """A doubt, where the whole takes longer than its layers, which are timed one after the other, can explain."""
    if timing is None or timing.ratio is None or timing.ratio >= _LEAST_RATIO:
        return ""
    return (
        f"The layers sum to {100 * timing.ratio:.0f} % of the latency, and a profile usually gives more than 100 %: "
        "are the times of the same engine and batch?"
    )


def _completed(found: Recording, built: Model) -> Engine:
    """The engine; of a log without layers, with those that its decisions leave of the model's nodes."""
    engine, log = found.engine, found.log
    if engine.layers or log is None or not built.nodes:
        return engine
    layers = rebuilt(replay(log, built), built)
    if not layers:
        return engine
    counted = log.attempts[log.chosen].counts[-1:] if log.attempts else ()
    told = f"; the log counts {counted[0]}" if counted else ""
    note = (
        f"The log lists no layers: these {len(layers)} are the model's nodes as its decisions joined them, which is an "
        f"inference{told}. Types and tactics are not told."
    )
    return dataclasses.replace(engine, layers=layers, notes=(note,))


def _errors(model: Model, found: Recording, inputs: Batch | None) -> tuple[Errors | None, str]:
    """Errors of the tensors in the files, against those of a second runner in them or of ONNX Runtime here."""
    if found.outputs is None:
        return None, ""
    if not model.nodes:
        return None, "The outputs in the files are not compared: give the ONNX model as well."
    if found.reference is not None:
        return _compared(model, found.reference, found.outputs, "the file's own reference runner")
    if inputs is None:
        return (
            None,
            "The outputs in the files are not compared: give inputs= with what they were computed from.",
        )
    names = [n for n in found.outputs if n in model.values]
    if not names or not model.nodes:
        return None, f'The outputs in the files are not compared: none is a value of model "{model.name}".'
    runner = evaluator()
    engine = reference(model, Silent())
    try:
        before = runner.outputs(engine, inputs, names)
    finally:
        runner.release(engine)
    return _compared(model, before, found.outputs, "ONNX Runtime here")


def _compared(model: Model, before: Outputs, after: Outputs, by: str) -> tuple[Errors | None, str]:
    names = [
        n
        for n in after
        if n in before
        and n in model.values
        and np.size(after[n]) == np.size(before[n])
        and _numeric(after[n])
    ]
    if not names:
        return None, f"The outputs in the files are not compared: {by} has none of the same names and sizes."
    comparison = Comparison(model, names)
    comparison.add(before, after, 1)
    return comparison.errors(f"tensors from files, against {by}"), ""


def _numeric(array: object) -> bool:
    return np.asarray(array).dtype.kind in "fiu"


def narrowest(engine: Engine) -> Precision:
    """The narrowest precision among an engine's layers; fp32 where their types are not told."""
    seen = {layer.precision for layer in engine.layers}
    order = (
        Precision.FP4, Precision.INT4, Precision.FP8, Precision.INT8, Precision.FP16, Precision.BF16,
    )  # fmt: skip
    return next((p for p in order if p.value in seen), Precision.FP32)
