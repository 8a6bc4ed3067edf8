"""Engines from files of another machine: which file is read how, and whether they belong together."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rtlab.backends import makers
from rtlab.backends.files import archive, build, contents, inspector, measured, printed, recognise
from rtlab.core import scratch
from rtlab.core.arrays import NUMPY
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine, Tensor
from rtlab.core.trace import Outputs, Profile, Recording
from rtlab.errors import ReadError

if TYPE_CHECKING:
    from rtlab.backends.log.verbose import Parsed

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
_MYELIN = re.compile(r"ForeignNode\[|__my|_myl\d")
_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*(?:["\]]|\{\s*["}]))')
_ONLY_TENSORS = 'The files tell tensors only. For layers, give layers="layers.json" as well.'
_NO_LAYERS = (
    "The log lists no layers of the engine: passes and tactics are all that it tells. For layers, give layers (trtexec "
    "--exportLayerInfo), or build with --verbose --profilingVerbosity=detailed."
)

_ONLY_ROWS = (
    "The layers are those that the profile names, in its order: their types, tensors and tactics are not told. For "
    'these give layers="layers.json" (trtexec --exportLayerInfo --profilingVerbosity=detailed) beside.'
)
_NO_ENGINE = (
    'This tells of a run of an engine and not of its layers. For layers give layers="layers.json" (trtexec '
    '--exportLayerInfo), for their times profile="profile.json" (trtexec --exportProfile) beside.'
)


def read(files: Mapping[str, Path], *, select: int | None = None) -> Recording:
    """Read an engine from files by kind; ``recognise.KINDS`` lists the kinds.

    Args:
        files: Any of ``layers``, ``log``, ``profile`` and ``times``, with any of ``output``, ``metadata`` and
            ``results``; or an ``archive``; or ``ort_profile`` and ``ort_model``; or ``results`` alone.
        select: The optimization profile to show, where the engine has several; by default the one that the profile
            of layers is of, else the first.

    Raises:
        ReadError: a file is missing, damaged or of another kind than it is given as, or files belong to different
            engines.
    """
    given = {kind: Path(path) for kind, path in files.items()}
    _check(given)
    _fit(given)
    if "build" in given:
        return build.read(given["build"])
    if "archive" in given:
        return _unpacked(given, select)
    if {"layers", "log", "profile", "times"} & set(given):
        return _engine(given, select)
    if "ort_profile" in given or "ort_model" in given:
        from rtlab.backends.files import ort

        return ort.read(given.get("ort_profile"), given.get("ort_model"))
    if "results" in given:
        return _tensors(given["results"])
    if "plan" in given:
        raise _plan(given["plan"])
    for kind, advice in _ELSEWHERE.items():
        if kind in given and not set(given) - set(_ELSEWHERE):
            raise ReadError(
                f'Cannot read an engine from "{given[kind].name}": byte 0 begins {recognise.KINDS[kind]}; a layer '
                f"file or a log belongs there. {advice}"
            )
    raise ReadError(
        'Cannot read trtexec files: no layer file is given. Give layers="layers.json" or log="build.log" and, if you '
        "have them, profile, times, output and metadata."
    )


def log(text: str) -> BuildLog:
    """What the verbose log of a build that was made here tells.

    Raises:
        ReadError: nothing in it tells of a build.
    """
    from rtlab.backends.log import verbose

    return verbose.parse(text).log


def _check(given: Mapping[str, Path]) -> None:
    """Raise unless each file is what it is given as. What no kind fits is left to the reader of its kind."""
    for kind in given:
        if kind not in recognise.KINDS:
            raise ReadError(
                f'Cannot read trtexec files: there is no kind "{kind}". Choose one of {", ".join(recognise.KINDS)}.'
            )
    for kind, path in given.items():
        if not path.is_file():
            # The reader tells what is there instead.
            contents.bytes_of(path, kind)
        try:
            found = recognise.kind(path)
        except ReadError:
            if kind in {"archive", "build", "plan", "model", "cache", "timing_cache"}:
                raise
            continue
        if found == kind or {found, kind} == {"model", "ort_model"}:
            continue
        if (kind, found) == ("log", "profile") and recognise.logged(path):
            continue
        if found == "plan":
            raise _plan(path)
        raise ReadError(
            f'Cannot read {kind} file "{path.name}": by its first bytes (byte 0) this is {recognise.KINDS[found]}; '
            f'{recognise.KINDS[kind]} belongs there. Give it as {found}="{path.name}".'
        )


def _fit(given: Mapping[str, Path]) -> None:
    """Raise where two files tell of two compilers, or one would be passed over in silence."""
    ours = [k for k in ("archive", "layers", "log", "profile", "times", "output", "metadata") if k in given]
    theirs = [k for k in ("ort_profile", "ort_model") if k in given]
    whole = [k for k in given if k not in _ELSEWHERE] if "build" in given else []
    if len(whole) > 1:
        other = next(k for k in whole if k != "build")
        raise ReadError(
            f'Cannot read "{given["build"].name}" beside "{given[other].name}": a recorded build is all of an engine. '
            "Read each under a name of its own."
        )
    if theirs and (ours or "results" in given):
        other = (ours or ["results"])[0]
        raise ReadError(
            f'Cannot read "{given[theirs[0]].name}" beside "{given[other].name}": the first is '
            f"{recognise.KINDS[theirs[0]]}, the second {recognise.KINDS[other]}; one engine has files of one of them. "
            "Read each under a name of its own."
        )
    if ours and not {"archive", "layers", "log", "profile", "times"} & set(given):
        names = ", ".join(f'"{given[k].name}"' for k in ours)
        raise ReadError(
            f'Cannot read an engine from {names}: none tells of its layers or their times. Give layers="layers.json" '
            '(trtexec --exportLayerInfo), profile="profile.json" or log="build.log" beside.'
        )


def _plan(path: Path) -> ReadError:
    return ReadError(
        f'Cannot read "{path.name}": byte 0 begins a serialized engine; a layer file or a log belongs there. '
        + EXPORT.format(file=path.name)
    )


def _engine(given: Mapping[str, Path], select: int | None) -> Recording:
    if "output" in given and "results" in given:
        raise ReadError(
            "Cannot read two sets of tensors: output and results are both given. Leave one of them out."
        )
    device = measured.device(given.get("metadata"))
    parsed = _log(given)
    rows = _rows(given, parsed)
    inspected, log = _layers(given, select, rows, parsed)
    if not inspected.layers and rows is not None:
        inspected = _named(inspected, rows, select)
    if log is not None:
        device = device.beside(measured.DeviceRecord(log.device, log.target, log.version, log.latency))
    if rows is not None:
        device = device.beside(rows.device)
    times = measured.latencies(given.get("times"), device)
    profile, told = _timed(given, rows, inspected, device, times)
    notes = [*inspected.notes, *(log.notes if log else ()), *told]
    if not inspected.layers and not (parsed and parsed.built):
        notes.append(_NO_ENGINE)
    if "plan" in given:
        notes.append(f'"{given["plan"].name}" is a serialized engine; its exported files are shown.')
    engine = Engine(
        backend="trtexec",
        version=device.version,
        target=device.target,
        layers=inspected.layers,
        inputs=inspected.inputs,
        outputs=inspected.outputs,
        totals=dict(log.totals) if log else {},
        seconds=(log.seconds if log else None) or 0.0,
        notes=tuple(notes),
        device=device.name,
        profiles=inspected.shapes,
        maker=makers.TENSORRT,
    )
    outputs: Outputs | None = None
    reference: Outputs | None = None
    more: tuple[str, ...] = ()
    if "output" in given:
        outputs, found = measured.outputs(given["output"], engine)
        more = tuple(found)
    elif "results" in given:
        outputs, reference, more = _results(given["results"], engine)
    engine = dataclasses.replace(engine, notes=(*engine.notes, *more)) if more else engine
    return Recording(engine, profile, log if parsed and parsed.built else None, outputs, reference)


def _timed(
    given: Mapping[str, Path],
    rows: measured.ProfileRows | None,
    inspected: inspector.Inspected,
    device: measured.DeviceRecord,
    times: measured.Latencies,
) -> tuple[Profile | None, Sequence[str]]:
    """Times of layers and of inferences, as far as the files have them, and notes."""
    if rows is not None and inspected.layers:
        return measured.join(rows, inspected, given.get("profile") or given["log"], device, times)
    if not len(times.compute):
        return None, ()
    # The one median of metadata is of untold many.
    runs = None if "times" in given else 0
    source = measured.source(device)
    found = Profile(source, "", {}, times.compute, warmup=0, taken=None, processor="GPU", runs=runs)
    return found, times.notes


def _named(
    inspected: inspector.Inspected, rows: measured.ProfileRows, select: int | None
) -> inspector.Inspected:
    """Layers as a profile names them, where nothing else lists any; what came before stays told."""
    listed = inspector.parse(
        {"Layers": rows.names}, "profile", select=select, prefer=rows.profile(), twice=()
    )
    notes = (*(n for n in inspected.notes if n != _NO_LAYERS), *listed.notes[:-1], _ONLY_ROWS)
    return dataclasses.replace(listed, notes=notes, inputs=inspected.inputs, outputs=inspected.outputs)


def _log(given: Mapping[str, Path]) -> Parsed | None:
    """The log, if one is given. It may be that of a run alone."""
    if "log" not in given:
        return None
    from rtlab.backends.log import verbose

    return verbose.parse(given["log"], built=False)


def _rows(given: Mapping[str, Path], parsed: Parsed | None) -> measured.ProfileRows | None:
    """Times of layers: those of the profile, or a table in the log of a run."""
    if "profile" in given:
        return measured.rows(given["profile"])
    if parsed is None or not (parsed.timed or (not parsed.built and recognise.logged(given["log"]))):
        return None
    return measured.rows(given["log"])


def _layers(
    given: Mapping[str, Path], select: int | None, rows: measured.ProfileRows | None, parsed: Parsed | None
) -> tuple[inspector.Inspected, BuildLog | None]:
    """Layers of the layer file, or of the log; and the log."""
    log: BuildLog | None = None
    listed: inspector.Inspected | None = None
    if parsed is not None:
        log = parsed.log
        listed = _told(parsed, given["log"].name, select, rows)
    if "layers" not in given:
        if log is None or listed is None:
            return inspector.Inspected((), (), (), (), None), None
        if parsed is not None and not parsed.built:
            return listed, log
        return dataclasses.replace(listed, notes=(*listed.notes, *_part(log, len(listed.layers)))), log
    path = given["layers"]
    text = contents.text(path, "layers")
    document = printed.layers(text, path.name) if _listed(text) else contents.piece(text, path.name, "layers")
    inspected = inspector.parse(
        document.value,
        path.name,
        select=select,
        prefer=rows.profile() if rows else None,
        twice=document.twice,
    )
    notes = (*document.notes, *inspected.notes)
    if listed is not None and log is not None:
        notes += _one_build(given["log"], log, listed, inspected)
    return dataclasses.replace(inspected, notes=notes), log


def _told(
    parsed: Parsed, file: str, select: int | None, rows: measured.ProfileRows | None
) -> inspector.Inspected:
    """Layers that a log lists. The inspector's text form tells more than the builder's own listing."""
    contents.see_few("log", file, len(parsed.layers))
    own = inspector.Inspected(parsed.layers, parsed.inputs, parsed.outputs, (), None)
    if not parsed.printed:
        return own
    entries, damaged = printed.entries(parsed.printed)
    notes: tuple[str, ...] = ()
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        notes = (f"Line {damaged[0]}{more} of the listing of layers could not be read.",)
    if not entries or (damaged and own.layers) or len(entries) < len(own.layers):
        return dataclasses.replace(own, notes=notes)
    edges = [t.name for t in (*parsed.inputs, *parsed.outputs)]
    found = inspector.parse(
        {"Layers": entries, "Bindings": [*edges, *parsed.bound]},
        file,
        select=select,
        prefer=rows.profile() if rows else None,
    )
    return dataclasses.replace(
        found,
        inputs=found.inputs or parsed.inputs,
        outputs=found.outputs or parsed.outputs,
        notes=(*found.notes, *notes),
    )


def _one_build(
    path: Path, log: BuildLog, listed: inspector.Inspected, inspected: inspector.Inspected
) -> tuple[str, ...]:
    """A note where a log and a layer file seem to be of two builds; raises where they have no name in common."""
    ours = {inspector.bare(y.name)[0] for y in inspected.layers}
    theirs = {inspector.bare(y.name)[0] for y in listed.layers}
    if not theirs:
        made = [d for a in log.attempts for p in a.passes for d in p.decisions]
        theirs = {inspector.bare(n)[0] for d in made for n in (*d.names, d.result) if n}
        whole = "\n".join(sorted(ours))
        if not theirs or any(n in whole for n in theirs):
            return ()
    elif theirs & ours:
        # The log names a region, the inspector the layers that Myelin made of it.
        silent = [n for n in sorted(ours - theirs) if not _MYELIN.search(n)]
        if not silent or _part(log, len(listed.layers)):
            return ()
        return (f'"{path.name}" may be of another build: it does not list {measured.listed(silent)}.',)
    raise measured.mismatch(
        f'log "{path.name}"',
        sorted(theirs),
        sorted(ours),
        f"none of its {len(theirs)} layers is one of the {len(ours)}",
    )


def _listed(text: str) -> bool:
    """Whether this is the inspector's text form."""
    if _JSON.match(text) or '"LayerType"' in text:
        return False
    return printed.INSPECTOR.search(text) is not None or printed.ROW.search(text) is not None


def _part(log: BuildLog, layers: int) -> tuple[str, ...]:
    """Notes on what a log alone cannot show."""
    whole = next((a.counts[-1] for a in reversed(log.attempts) if a.counts), None)
    if not layers:
        return (_NO_LAYERS,)
    if whole is not None and layers < whole:
        return (f"The log names {layers} layers of the engine, fewer than the {whole} after its last pass.",)
    return ()


def _results(path: Path, engine: Engine) -> tuple[Outputs, Outputs | None, tuple[str, ...]]:
    from rtlab.backends.files import results

    _, outputs, reference, notes = results.read(path)
    known = {t.name for t in engine.outputs}
    made = known | {t.name for y in engine.layers for t in y.outputs}
    if known and not set(outputs) & made:
        raise measured.mismatch(
            f'results "{path.name}"',
            list(outputs),
            sorted(known),
            f'none of its {len(outputs)} tensors (key "lst") is one of the engine\'s',
        )
    return outputs, reference, notes


def _tensors(path: Path) -> Recording:
    """A recording of tensors alone."""
    from rtlab.backends.files import results
    from rtlab.core.variant import Target

    runner, outputs, reference, notes = results.read(path)
    types = {v: k for k, v in NUMPY.items()}
    told = tuple(Tensor(n, types.get(str(v.dtype), str(v.dtype)), tuple(v.shape)) for n, v in outputs.items())
    theirs = runner.startswith("onnxrt")
    engine = Engine(
        "onnxruntime" if theirs else "trtexec",
        "",
        Target("unknown"),
        (),
        outputs=told,
        notes=(*notes, _ONLY_TENSORS),
        maker=makers.ONNX_RUNTIME if theirs else makers.TENSORRT,
    )
    return Recording(engine, outputs=outputs, reference=reference)


def _unpacked(given: Mapping[str, Path], select: int | None) -> Recording:
    path = given["archive"]
    with scratch.folder() as folder:
        try:
            unpacked = archive.unpack(path, Path(folder))
            # What is given beside an archive stands for what is in it.
            files = {**unpacked.files, **{k: p for k, p in given.items() if k != "archive"}}
            found = _engine(files, select) if {"layers", "log"} & set(files) else None
        except ReadError as error:
            if f'"{path.name}"' in str(error):
                raise
            raise ReadError(
                f'Cannot read archive file "{path.name}": a member of it is refused. {error}',
                details=str(error),
            ) from error
    if found is None:
        raise ReadError(
            f'Cannot read an engine from "{path.name}": key "layers" has no member; a layer file or a log belongs '
            "there. " + EXPORT.format(file="engine.trt")
        )
    return dataclasses.replace(found, engine=archive.tell(found.engine, unpacked))
