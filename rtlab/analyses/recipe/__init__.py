"""How a variant was made, and with what: the lines that make it again, the model's digest, and all versions."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.recipe import lines
from rtlab.backends import cpu
from rtlab.core.file_fingerprint import FileFingerprint
from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model

_PIECE = 1 << 20
#: Packages whose release decides what comes out, as one installs them, and what they are called.
_PACKAGES = {
    "rtlab": "rtlab",
    "onnx": "ONNX",
    "onnxruntime": "ONNX Runtime",
    "numpy": "NumPy",
}


@dataclasses.dataclass(frozen=True)
class PartVersion:
    """One part of what made a variant."""

    part: Annotated[str, FieldMeta("Part")]
    version: Annotated[str, FieldMeta("Version")]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a variant was made: what of, and with which releases.

    ``python`` and ``commands`` make it again, the latter a line each and empty where the command line cannot.
    ``sha256`` is of the model's file, or of the serialized model where no file says the same; ``weights_sha256`` of the
    files beside it that hold weights, one after the other by their names. ``built`` and ``taken`` are dates of the
    engine and of its times.
    """

    model: Annotated[str, FieldMeta("Model")]
    size: Annotated[int | None, FieldMeta("Size", "B", note="{self.basis}", omit=True)]
    sha256: Annotated[str | None, FieldMeta("SHA-256", note="{self.basis}", omit=True)]
    weights_sha256: Annotated[
        str | None, FieldMeta("SHA-256 of the weights", note="The files beside it, by name.", omit=True)
    ]
    data: Annotated[str, FieldMeta("Data")]
    rests: Annotated[str | None, FieldMeta("Rests on", omit=True)]
    built: Annotated[str | None, FieldMeta("Built", omit=True)]
    taken: Annotated[str | None, FieldMeta("Timed", omit=True)]
    python: str
    commands: tuple[str, ...]
    basis: str
    versions: tuple[PartVersion, ...]
    notes: tuple[str, ...] = ()


def build_recipe(study: StudyState, facts: VariantResult) -> Recipe:
    """How a variant was made; dates are those of its facts, versions those of this process."""
    model_identity = identity(study.model)
    why = lines.explain_missing_command(study, facts.name)
    # Why numbers rest on less than all is known where they stand; here it says what a second run may differ in.
    notes = [f"The command line cannot make it: it {why}."] if why else []
    notes += [s.text for s in facts.stages.values() if s.is_incomplete and s.text]
    return Recipe(
        model=model_identity.file,
        size=model_identity.nbytes,
        sha256=model_identity.sha256,
        weights_sha256=model_identity.weights,
        data=data(study),
        rests="; ".join(f"{s.stage}: {s.basis}" for s in facts.stages.values() if s.basis) or None,
        built=date(facts.engine.built),
        taken=date(facts.profile.taken) if facts.profile is not None else None,
        python=lines.python(study, [facts.name]),
        commands=lines.command(study, [facts.name]),
        basis=model_identity.basis,
        versions=versions([facts]),
        notes=tuple(notes),
    )


@dataclasses.dataclass(frozen=True)
class ModelIdentity:
    """What tells a model from another one: the name of its file, its bytes and digests; ``basis`` says what of."""

    file: str
    nbytes: int | None
    sha256: str | None
    weights: str | None
    basis: str


def identity(model: Model) -> ModelIdentity:
    """The digests of a model: of its file where that is as it was loaded, else of the model in memory."""
    if not model.nodes:
        return ModelIdentity("not given", None, None, None, "")
    name = model.path.name if model.path else f"{model.name}, made in memory"
    if (file := model.origin) is not None and model.stamp is not None:
        weight_files = tuple((str(file.parent / name), stamp) for name, stamp in sorted(model.beside.items()))
        # Of weights that stayed at home nobody knows a digest.
        here = all(stamp is not None for _, stamp in weight_files)
        return ModelIdentity(
            name,
            model.stamp[0],
            _digest(((str(file), model.stamp),)),
            _digest(weight_files) if weight_files and here else None,
            "Of the file." if here else "Of the file; the files with its weights are not here.",
        )
    why = "The file has changed since it was loaded" if model.path else "It was no file"
    if model.weightless or (model.path and model.beside):
        return ModelIdentity(name, None, None, None, why)
    content = model.bytes()
    basis = f"{why}: of the model in memory, serialized."
    return ModelIdentity(name, len(content), hashlib.sha256(content).hexdigest(), None, basis)


@functools.lru_cache(64)
def _digest(files: tuple[tuple[str, FileFingerprint | None], ...]) -> str:
    """SHA-256 of files, one after the other; their stamps tell when that is another one."""
    work = hashlib.sha256()
    for name, _ in files:
        with Path(name).open("rb") as file:
            while piece := file.read(_PIECE):
                work.update(piece)
    return work.hexdigest()


def versions(variant_results: Sequence[VariantResult]) -> tuple[PartVersion, ...]:
    """The releases of all that had a part in variants, each once, and the machine without a name of its own."""
    parts = [
        PartVersion(title, release)
        for package, title in _PACKAGES.items()
        if (release := _get_installed_version(package)) is not None
    ]
    parts.insert(1, PartVersion("Python", platform.python_version()))
    for facts in variant_results:
        engine = facts.engine
        where = "read from files" if facts.recorded else "built here"
        parts.append(PartVersion(f"Engine, {where}", engine.title, facts.name))
        if facts.profile is not None:
            times_source = ", ".join(filter(None, (facts.profile.source, facts.profile.device)))
            parts.append(PartVersion("Times", times_source, facts.profile.note))
    if any(not facts.recorded for facts in variant_results):
        # The rest may name who built it.
        numbers = re.match(r"[\d.]*\d|", platform.release())
        system = f"{platform.system()} {numbers[0] if numbers else ''}".strip()
        parts += [
            PartVersion("System", f"{system}, {platform.machine()}"),
            PartVersion("Processor", f"{cpu.get_name()}, {pluralize(cpu.count_cores(), 'core')}"),
        ]
    unique_parts: dict[tuple[str, str], PartVersion] = {}
    for one in parts:
        unique_parts.setdefault((one.part, one.version), one)
    return tuple(unique_parts.values())


def date(timestamp: datetime.datetime | None) -> str | None:
    """A date of a fact, in UTC and to the minute; None where none is told."""
    if timestamp is None:
        return None
    if timestamp.tzinfo is None:
        return f"{timestamp:%Y-%m-%d %H:%M}"
    return f"{timestamp.astimezone(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"


def data(study: StudyState) -> str:
    """What a study ran on, in words."""
    calibration_data = study.data
    if calibration_data is None:
        return "random noise, seed 0" if study.model.nodes else "none"
    if calibration_data.count is None:
        return calibration_data.source
    return f"{pluralize(calibration_data.count, 'sample')} from {calibration_data.source}"


def _get_installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
