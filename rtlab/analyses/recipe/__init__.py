"""How variants were made: the lines of Python and the commands that make them again, and with what they were made."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rtlab import samples
from rtlab.analyses.study_state import StudyState
from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.core.options import BuildOptions
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Variant
from rtlab.errors import RtlabError

#: Packages whose release decides what comes out.
_PACKAGES = {"rtlab": "rtlab", "onnx": "ONNX", "onnxruntime": "ONNX Runtime", "numpy": "NumPy"}
#: What only the person has; Python refuses it in words that say what belongs there.
_YOURS = "..."


@dataclasses.dataclass(frozen=True)
class PartVersion:
    """One part of what made a variant."""

    part: Annotated[str, FieldMeta("Part")]
    version: Annotated[str, FieldMeta("Version")]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How variants were made: lines that make them again, and with what they were made.

    ``commands`` has a line for each variant that the command line can make. ``sha256`` is ``Model.digest``, None where
    weights cannot be read.
    """

    model: Annotated[str, FieldMeta("Model")]
    sha256: Annotated[str | None, FieldMeta("SHA-256", note="rtlab.load(...).digest", omit=True)]
    python: str
    commands: tuple[str, ...]
    versions: tuple[PartVersion, ...]


def build_recipe(study: StudyState, names: Sequence[str]) -> Recipe:
    """How variants were made; versions of packages are those of this process."""
    model = study.model
    try:
        digest = model.digest if model.nodes else None
    except RtlabError:
        digest = None
    versions = {title: importlib.metadata.version(package) for package, title in _PACKAGES.items()}
    versions |= {"Python": platform.python_version(), "System": f"{platform.system()}, {platform.machine()}"}
    parts = [PartVersion(*version) for version in versions.items()]
    for name in names:
        facts = study.results.get(name)
        parts += [PartVersion(f"Engine, {name}", facts.engine.title)] if facts else []
        if facts and facts.profile is not None:
            parts.append(PartVersion(f"Times, {name}", f"{facts.profile.source}, {facts.profile.device}"))
    title = (
        (model.path.name if model.path else f"{model.name}, made in memory") if model.nodes else "not given"
    )
    commands = tuple(filter(None, (_format_command(study, n) for n in names)))
    return Recipe(title, digest, _format_python(study, names), commands, tuple(parts))


def _format_python(study: StudyState, names: Sequence[str]) -> str:
    """Python that loads the model and its data, plans the variants as they were planned, and runs them."""
    lines, sample, task = ["import rtlab", ""], samples.which(study.model), study.task
    if sample:
        count = f", samples={len(study.data)}" if study.data and study.data.source in samples.SOURCES else ""
        lines.append(f"sample = rtlab.samples.load({sample!r}{count})\nmodel = sample.model")
    elif study.model.nodes:
        shapes = f", shapes={dict(study.model.shapes)!r}" if study.model.shapes else ""
        lines.append(f"model = rtlab.load({_get_file(study)!r}{shapes}, name={study.model.name!r})")
    if study.model.nodes:
        has_task = bool(sample and task is not None and not task.reference)
        if study.data is not None:
            lines.append(f"data = {_format_data(study, sample)}")
        lines.append("study = rtlab.Study(model" + ", data=data" * (study.data is not None))
        lines[-1] += ", task=sample.task)" if has_task else ")"
        if task is not None and not has_task:
            lines[-1] += f"  # scored by {task.name!r}: give task=rtlab.Task(data, labels) for it"
    recorded = [n for n in names if n in study.results and study.results[n].recorded]
    lines += [
        f"# {n!r} was read from files of another machine: study.read({n!r}, layers=...)" for n in recorded
    ]
    for name in (n for n in names if n not in recorded):
        arguments = [f"{k}={_YOURS if v is ... else repr(v)}" for k, v in _get_arguments(study, name).items()]
        lines.append(f"study.add({', '.join([repr(name), *arguments])})")
    return "\n".join([*lines, *(["study.run()"] if len(recorded) < len(names) else []), ""])


def _get_arguments(study: StudyState, name: str) -> dict[str, Any]:
    """The arguments of ``Study.add``, of plain types; those as usual left out, and ``...`` for unknown scales."""
    variant = study.variants[name]
    arguments = {k: _simplify(v) for k, v in get_add_arguments(variant).items()}
    if not variant.pins:
        arguments["precision"] = str(variant.precision)
    if variant.scales in {"given", "cache"}:
        facts = study.results.get(name)
        is_known = facts is not None and variant.scales == "given"
        arguments["scales"] = (
            {v: s.amax for v, s in facts.prepared.scales.items()} if facts and is_known else ...
        )
    elif variant.scales:
        arguments["scales"] = variant.scales
    return {k: v for k, v in arguments.items() if v and (k, v) != ("weights", Variant().weights)}


def _simplify(argument: object) -> Any:
    """An argument of plain types; a path without its folders."""
    if isinstance(argument, BuildOptions):
        fields = {
            f.name: getattr(argument, f.name) for f in dataclasses.fields(argument) if f.name != "config"
        }
        options = {**dict(argument.config), **{k: v for k, v in fields.items() if v}}
        if "profiles" in options:
            options["profiles"] = [dict(profile) for profile in options["profiles"]]
        return {
            k: dict(v) if k == "pools" else v.name if isinstance(v, Path) else v for k, v in options.items()
        }
    if isinstance(argument, Mapping):
        return {k: str(v) for k, v in argument.items()}
    return [str(v) for v in argument] if isinstance(argument, list) else argument and str(argument)


def _get_file(study: StudyState) -> str:
    """The model's file below this folder, else its name alone: what is written here is sent to others."""
    path, here = study.model.path, Path.cwd()
    if path is None:
        return f"{study.model.name}.onnx"
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _format_data(study: StudyState, sample: str) -> str:
    data = study.data
    if data is None:
        return "None"
    if (noise := re.fullmatch(r"random noise, seed (\d+)", data.source)) and data.synthetic:
        return f"rtlab.CalibrationData.random(model, samples={len(data)}, seed={noise[1]})"
    if sample and data.source in samples.SOURCES:
        return "sample.calibration"
    if re.fullmatch(r"[^/\\\n]+\.np[zy]", data.source, re.IGNORECASE):
        return f"rtlab.CalibrationData.of({data.source!r}, model=model)"
    return f"{_YOURS}  # put yours here: it was {data.source!r}"


def _format_command(study: StudyState, name: str) -> str:
    """What a shell is told to make a variant; empty where only Python can."""
    variant, sample = study.variants[name], samples.which(study.model)
    arguments, data = _get_arguments(study, name), _format_data(study, sample)
    usual = {"None", "rtlab.CalibrationData.random(model, samples=64, seed=0)"}
    is_file = data.endswith(", model=model)")
    is_usual = study.task is None and (is_file or data in usual)
    if sample:
        # The command line takes all samples of a sample.
        is_usual = data == "sample.calibration" and study.model.path is not None
        is_usual = is_usual and len(study.data or ()) == len(samples.load(sample).calibration)
    is_recorded = name in study.results and study.results[name].recorded
    if (
        not is_usual
        or is_recorded
        or variant.options
        or variant.rewrites
        or variant.scales in {"given", "cache"}
    ):
        return ""
    file = _get_file(study)
    words = ["rtlab", "report", sample or (f"./{file}" if file.startswith("-") else file)]
    for key, size in study.model.shapes.items() if not sample else ():
        words.append(f"--shape={key}={size if isinstance(size, int) else 'x'.join(map(str, size))}")
    words += [f"--data={study.data.source}"] if is_file and study.data else []
    del arguments["precision"]
    words.append(f"--precision={variant.precision}")
    words += [f"--pin={pattern}={precision}" for pattern, precision in variant.pins]
    words += [f"--sparsity={pattern}" for pattern in arguments.pop("sparsity", ())]
    words += [f"--calibrate={pattern}={c}" for pattern, c in arguments.pop("calibrators", {}).items()]
    words += [f"--treat={t}" for t in arguments.pop("treatments", ())]
    words += [f"--{key}={value}" for key, value in arguments.items()]
    return shlex.join([*words, "-o", "report.html"])
