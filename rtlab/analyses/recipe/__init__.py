"""How variants were made: the lines of Python that make them again, and with what they were made."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rtlab import samples
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.study_state import StudyState
from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.core.data import OF_A_RUN, ZEROS, CalibrationData
from rtlab.core.options import BuildOptions
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Variant
from rtlab.documents.contract import Script
from rtlab.errors import RtlabError

_PACKAGES = {"rtlab": "rtlab", "onnx": "ONNX", "onnxruntime": "ONNX Runtime", "numpy": "NumPy"}


@dataclasses.dataclass(frozen=True)
class PartVersion:
    """One part of what made a variant."""

    part: Annotated[str, FieldMeta("Part")]
    version: Annotated[str, FieldMeta("Version")]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How variants were made: lines that make them again, and with what they were made.

    ``sha256`` is ``Model.digest``, None where weights cannot be read.
    """

    model: Annotated[str, FieldMeta("Model")]
    sha256: Annotated[str | None, FieldMeta("SHA-256", note="rtlab.load(...).digest", omit=True)]
    python: str
    versions: tuple[PartVersion, ...]


def build_recipe(study: StudyState, names: Sequence[str]) -> Recipe:
    """How variants were made; versions of packages are those of this process."""
    model = study.model
    try:
        digest = model.digest if model.nodes else None
    except RtlabError:
        digest = None
    parts = []
    for package, title in _PACKAGES.items():
        # A machine that only reads has no ONNX Runtime.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(PartVersion(title, importlib.metadata.version(package)))
    parts.append(PartVersion("Python", platform.python_version()))
    parts.append(PartVersion("System", f"{platform.system()}, {platform.machine()}"))
    for name in names:
        facts = study.results.get(name)
        parts += [PartVersion(f"Engine, {name}", facts.engine.title)] if facts else []
        if facts and facts.profile is not None:
            parts.append(PartVersion(f"Times, {name}", f"{facts.profile.source}, {facts.profile.device}"))
    file = model.path.name if model.path else f"{model.name}, made in memory"
    return Recipe(file if model.nodes else "not given", digest, _format_python(study, names), tuple(parts))


def analyze_recipe(context: PanelContext) -> Recipe:
    """How the variant was made."""
    return build_recipe(context.study, [context.result.name])


def build_recipe_panel(context: PanelContext) -> PanelParts:
    """The lines, the digest of the model, and the releases of all that had a part."""
    recipe = analyze_recipe(context)
    return PanelParts(result=recipe, scripts=[Script(label="Python", text=recipe.python)])


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
        # A study draws random samples with a cache by itself.
        has_data = study.data is not None and not (
            study.data.synthetic and study.data.source.endswith(OF_A_RUN)
        )
        if study.data is not None and has_data:
            lines.append(f"data = {_format_data(study.data, sample)}")
        lines.append("study = rtlab.Study(model" + ", data=data" * has_data)
        lines[-1] += ", task=sample.task)" if has_task else ")"
        if task is not None and not has_task:
            lines[-1] += f"  # scored by {task.name!r}: give task=rtlab.Task(data, labels) for it"
    recorded = [n for n in names if n in study.results and study.results[n].recorded]
    for name in names:
        if name in recorded:
            lines.append(
                f"# {name!r} was read from files of another machine: study.read({name!r}, layers=...)"
            )
            continue
        arguments = [f"{k}={'...' if v is ... else repr(v)}" for k, v in _get_arguments(study, name).items()]
        lines.append(f"study.add({', '.join([repr(name), *arguments])})")
    return "\n".join([*lines, *(["study.run()"] if len(recorded) < len(names) else []), ""])


def _get_arguments(study: StudyState, name: str) -> dict[str, Any]:
    """The arguments of ``Study.add``, of plain types; those as usual left out, and ``...`` for unknown scales."""
    variant, facts = study.variants[name], study.results.get(name)
    arguments = {k: _simplify(v) for k, v in get_add_arguments(variant).items()}
    if not variant.pins:
        arguments["precision"] = str(variant.precision)
    arguments["scales"] = variant.scales
    if variant.scales == "given" and facts is not None:
        arguments["scales"] = {v: s.amax for v, s in facts.prepared.scales.items()}
    elif variant.scales in {"given", "cache"}:
        arguments["scales"] = ...
    return {k: v for k, v in arguments.items() if v and (k, v) != ("weights", Variant().weights)}


def _simplify(argument: object) -> Any:
    """An argument of plain types; a path without its folders."""
    if isinstance(argument, BuildOptions):
        options = dict(argument.config) | {k: v for k, v in vars(argument).items() if v and k != "config"}
        plain: dict[str, Callable[[Any], Any]] = {"profiles": lambda v: [*map(dict, v)], "pools": dict}
        plain["timing_cache"] = lambda path: path.name
        return {k: plain[k](v) if k in plain else v for k, v in options.items()}
    if isinstance(argument, Mapping):
        return {k: v if isinstance(v, int | tuple) else str(v) for k, v in argument.items()}
    return [str(v) for v in argument] if isinstance(argument, list) else argument and str(argument)


def _get_file(study: StudyState) -> str:
    """The model's file below this folder, else its name alone: what is written here is sent to others."""
    path, here = study.model.path or Path(f"{study.model.name}.onnx"), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _format_data(data: CalibrationData, sample: str) -> str:
    if (noise := re.fullmatch(rf"random noise, seed (\d+)(?:{ZEROS})?", data.source)) and data.synthetic:
        return f"rtlab.CalibrationData.random(model, samples={len(data)}, seed={noise[1]})"
    if sample and data.source in samples.SOURCES:
        return "sample.calibration"
    if re.fullmatch(r"[^/\\\n]+\.np[zy]", data.source, re.IGNORECASE):
        return f"rtlab.CalibrationData.of({data.source!r}, model=model)"
    # The user has to fill this in: without it the lines fail in words that say what belongs there.
    return f"...  # put yours here: it was {data.source!r}"
