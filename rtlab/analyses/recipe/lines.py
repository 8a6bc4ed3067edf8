"""The lines of Python and of the command line that make variants again, read off the variants themselves."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab import samples
from rtlab.core.images import Images
from rtlab.core.lazy import LazyArray
from rtlab.core.options import BuildOptions
from rtlab.core.phrases import pluralize
from rtlab.core.stage import Stage
from rtlab.core.variant import Variant

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.data import CalibrationData
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model

#: Samples, and where they start, of the noise that a study draws when nobody gives data.
_USUAL = (64, 0)
#: What nobody can write down here; Python refuses it in words that say what belongs there.
_YOURS = "..."
#: A sample's own data.
_SAMPLE_DATA = "sample.calibration"


def python(study: StudyState, names: Sequence[str]) -> str:
    """Python that loads the model, plans these variants as they were planned, and runs them.

    What only the person has, such as samples from memory, stands there as ``...`` with a comment.
    """
    lines = ["import rtlab", ""]
    sample = samples.which(study.model)
    if sample:
        lines.append(f"sample = rtlab.samples.load({_format_arguments(sample, **_count(study.data))})")
    model = "sample.model" if sample else "model"
    if not sample and study.model.nodes:
        lines.append(f"model = rtlab.load({_format_load_arguments(study)})")
    data, comment = _data(study.data, model, sample)
    if data not in {"", _SAMPLE_DATA}:
        lines.append(f"data = {data}{comment}")
        data = "data"
    task = "sample.task" if sample and study.task is not None and not study.task.reference else ""
    if study.task is not None and not task:
        lines.append(
            f"# Scored by {_words(study.task.name)}: give Study task=rtlab.Task(data, labels) for it."
        )
    if study.model.nodes:
        arguments = [model, *([f"data={data}"] if data else []), *([f"task={task}"] if task else [])]
        lines.append(f"study = rtlab.Study({', '.join(arguments)})")
    planned = [n for n in names if not _is_recorded(study, n)]
    lines += [
        f"study.add({_format_arguments(name, **_choice(study, name))})"
        if name in planned
        else _read(study, name)
        for name in names
    ]
    if planned:
        run = "" if any(_was_run(study.results.get(n)) for n in planned) else "compare=False"
        lines.append(f"study.run({run})")
    return "\n".join(lines) + "\n"


def command(study: StudyState, names: Sequence[str]) -> tuple[str, ...]:
    """What a shell is told to make these variants, one line for those that differ in their precision alone.

    What has no arguments of the command line, such as options of a builder, is left out: ``explain_missing_command``
    says why.
    """
    common = _format_common_arguments(study)
    if common is None:
        return ()
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if not explain_missing_command(study, name):
            variant = study.variants[name]
            groups.setdefault(_arguments(variant, study.results.get(name)), []).append(str(variant.precision))
    command_lines = []
    for arguments, precisions in groups.items():
        precision_flags = [f"--precision={p}" for p in dict.fromkeys(precisions)]
        command_lines.append(
            shlex.join(["rtlab", "report", *common, *precision_flags, *arguments, "-o", "report.html"])
        )
    return tuple(command_lines)


def explain_missing_command(study: StudyState, name: str) -> str:
    """Why the command line cannot make a variant, in words that continue "it"; empty where it can."""
    variant = study.variants[name]
    if _is_recorded(study, name):
        return "was read from files of another machine: rtlab read takes these"
    if variant.options is not None:
        return "tells its builder options, which Python alone can"
    if variant.rewrites:
        return "writes nodes anew, which Python alone can"
    if variant.scales in {"given", "cache"}:
        return "was given its scales in Python"
    if _format_common_arguments(study) is None:
        return "rests on data that were given in Python"
    return ""


def _is_recorded(study: StudyState, name: str) -> bool:
    facts = study.results.get(name)
    return facts is not None and facts.recorded


def _was_run(facts: VariantResult | None) -> bool:
    """Whether a variant was to be timed and compared here, and not only built."""
    standing = None if facts is None else facts.stages.get(Stage.TIMED)
    return standing is None or standing.why != "not asked"


def _format_arguments(first: str, **named: str) -> str:
    return ", ".join([repr(first), *(f"{key}={text}" for key, text in named.items())])


def _count(calibration_data: CalibrationData | None) -> dict[str, str]:
    return (
        {"samples": str(len(calibration_data))}
        if calibration_data is not None and calibration_data.source in samples.SOURCES
        else {}
    )


def _where(model: Model) -> str:
    """The model's file as a person who works here names it, and its name alone where it is not below this folder.

    No folder above it is told: what is written here is sent to others.
    """
    if model.path is None:
        return f"{model.name}.onnx"
    here = Path.cwd()
    return model.path.relative_to(here).as_posix() if model.path.is_relative_to(here) else model.path.name


def _format_load_arguments(study: StudyState) -> str:
    model = study.model
    file = _where(model)
    named = {"shapes": repr(dict(model.shapes))} if model.shapes else {}
    if model.name != Path(file).stem:
        named["name"] = repr(model.name)
    return _format_arguments(file, **named)


def _data(calibration_data: CalibrationData | None, model: str, sample: str) -> tuple[str, str]:
    """What a study takes as its data, and a comment; the first is empty where it takes none."""
    if calibration_data is None:
        return "", ""
    if noise := _noise(calibration_data):
        if noise == _USUAL:
            return "", ""
        return f"rtlab.CalibrationData.random({model}, samples={noise[0]}, seed={noise[1]})", ""
    if sample and calibration_data.source in samples.SOURCES:
        return _SAMPLE_DATA, ""
    if file := _file(calibration_data):
        pictures = _pictures(calibration_data)
        how = "" if pictures is None else f", preprocessing=rtlab.{pictures!r}"
        return f"rtlab.CalibrationData.of({file!r}, model={model}{how})", ""
    count = "samples" if calibration_data.count is None else pluralize(calibration_data.count, "sample")
    return _YOURS, f"  # put yours here: it was {count} from {_words(calibration_data.source)}"


def _noise(calibration_data: CalibrationData) -> tuple[int, int] | None:
    """How many samples of noise there are, and their seed; None of other data."""
    seeded = re.fullmatch(r"random noise, seed (\d+)", calibration_data.source)
    return (len(calibration_data), int(seeded[1])) if seeded and calibration_data.synthetic else None


def _pictures(calibration_data: CalibrationData) -> Any:
    sources = (a.source for a in calibration_data.arrays.values() if isinstance(a, LazyArray))
    return next((s.preprocessing for s in sources if isinstance(s, Images)), None)


def _file(calibration_data: CalibrationData) -> str:
    """The name of the file or the folder that samples are from; empty where they are from memory."""
    folder = re.fullmatch(r'pictures in "(.*)"', calibration_data.source, re.DOTALL)
    if folder:
        return folder[1] if _pictures(calibration_data) is not None else ""
    return (
        calibration_data.source
        if re.fullmatch(r"[^/\\\n]+\.np[zy]", calibration_data.source, re.IGNORECASE)
        else ""
    )


def _choice(study: StudyState, name: str) -> dict[str, str]:
    """The arguments of ``Study.add`` for a variant, as Python writes them; what is as usual is left out."""
    variant = study.variants[name]
    table = {"*": str(variant.precision)} | {pattern: str(p) for pattern, p in variant.pins}
    every = variant.sparsity == ("*",)
    arguments: dict[str, object] = {
        "precision": table if variant.pins else str(variant.precision),
        "calibrator": variant.calibrator and str(variant.calibrator),
        "target": str(variant.target),
        "backend": variant.backend,
        "weights": variant.weights if variant.weights != Variant().weights else None,
        "sparsity": every or list(variant.sparsity),
        "scales": _scales(study, name),
        "options": variant.options and _options(variant.options),
        "rewrites": [str(r) for r in variant.rewrites],
        "calibrators": {pattern: str(c) for pattern, c in variant.calibrators},
        "treatments": [str(t) for t in variant.treatments],
    }
    return {key: _YOURS if value is ... else repr(value) for key, value in arguments.items() if value}


def _scales(study: StudyState, name: str) -> object:
    """What a variant takes in place of a calibrator: the name of a file, or amax by value; None where it takes none."""
    scales = study.variants[name].scales
    if scales == "given" and name in study.results:
        return {value: scale.amax for value, scale in study.results[name].prepared.scales.items()}
    return ... if scales in {"given", "cache"} else scales or None


def _options(options: BuildOptions) -> dict[str, Any]:
    """Options as ``BuildOptions.of`` takes them, without the folder of a file."""
    settings: dict[str, Any] = dict(options.config)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name == "config" or not value:
            continue
        if field.name == "profiles":
            value = [{n: tuple(shapes) for n, shapes in profile} for profile in value]
        elif field.name == "pools":
            value = dict(value)
        elif isinstance(value, Path):
            value = value.name
        settings[field.name] = list(value) if isinstance(value, tuple) else value
    return settings


def _read(study: StudyState, name: str) -> str:
    """The line for an engine of another machine, whose files' names nobody keeps."""
    facts = study.results[name]
    kinds = ["layers"] if facts.engine.layers and not facts.inferred else []
    kinds += ["profile"] if facts.profile is not None else []
    kinds += ["log"] if facts.build_log is not None else []
    kinds += ["output"] if facts.outputs is not None else []
    how = f"study.read({_format_arguments(name, **dict.fromkeys(kinds, _YOURS))})"
    alone = "" if study.model.nodes else "study = rtlab.read(...); "
    return f"# {name!r} was read from files of another machine: {alone}{how}"


def _format_common_arguments(study: StudyState) -> list[str] | None:
    """The model, its sizes and the data, as arguments; None where the command line has none for them."""
    calibration_data, sample = study.data, samples.which(study.model)
    if sample:
        return (
            [sample]
            if calibration_data is not None and _uses_all_samples(study.model, calibration_data)
            else None
        )
    if calibration_data is not None and not _file(calibration_data) and _noise(calibration_data) != _USUAL:
        return None
    if study.task is not None:
        return None
    file = _where(study.model)
    arguments = [file if not file.startswith("-") else f"./{file}"]
    arguments += [f"--shape={name}={_format_size(size)}" for name, size in study.model.shapes.items()]
    if calibration_data is not None and (data := _file(calibration_data)):
        arguments.append(f"--data={data}")
        if (how := _pictures(calibration_data)) is not None:
            arguments.append(f"--preprocessing={json.dumps(dataclasses.asdict(how))}")
    return arguments


def _uses_all_samples(model: Model, calibration_data: CalibrationData) -> bool:
    """Whether samples are all that a sample brings, as the command line takes them."""
    if calibration_data.source not in samples.SOURCES:
        return _noise(calibration_data) == (samples.UNTRAINED, 0)
    is_generated = model.path is None
    # Those that are made on demand would be made for this alone.
    return len(calibration_data) == (
        samples.UNTRAINED if is_generated else len(samples.load(model.name).calibration)
    )


def _format_size(size: int | tuple[int, ...]) -> str:
    return "x".join(map(str, [size] if isinstance(size, int) else size))


def _arguments(variant: Variant, facts: VariantResult | None) -> tuple[str, ...]:
    """The arguments of a variant beside its precision."""
    flags = [f"--pin={pattern}={p}" for pattern, p in variant.pins]
    if variant.calibrator is not None:
        flags.append(f"--calibrator={variant.calibrator}")
    flags.append(f"--target={variant.target}")
    if variant.backend is not None:
        flags.append(f"--backend={variant.backend}")
    if variant.weights != Variant().weights:
        flags.append(f"--weights={variant.weights}")
    flags += [f"--sparsity={pattern}" for pattern in variant.sparsity]
    if variant.scales:
        flags.append(f"--scales={variant.scales}")
    flags += [f"--calibrate={pattern}={c}" for pattern, c in variant.calibrators]
    flags += [f"--treat={t}" for t in variant.treatments]
    return (*flags, *([] if _was_run(facts) else ["--no-run"]))


def _words(text: str) -> str:
    """A name from a file within a comment: on one line, whatever it holds."""
    return repr(text)
