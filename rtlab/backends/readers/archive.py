"""Engine archives of NVIDIA's trex (``.tea``): a zip of what was written while an engine was built and profiled.

The writer is ``trex.archiving.EngineArchive``: ``build.txt`` is the log, ``engine.trt`` the plan, ``timing.cache`` the
timing cache, ``build_cfg.json`` the builder's settings and ``plan_cfg.json`` the engine's properties; layers and
profiles bear the names that trtexec was given.
"""

from __future__ import annotations

import dataclasses
import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from rtlab.backends.readers import contents, recognise
from rtlab.core.engine import DTYPES, Engine, Tensor
from rtlab.errors import ReadError

#: What may be unpacked in all: a zip of a few kilobytes can hold far more.
_MOST = 1 << 30
_CHUNK = 1 << 20
#: An archive is of one engine, and has fewer files of kinds that are read.
_SEVERAL = 64
_TYPES = {"FLOAT": "fp32", "BF16": "bf16"} | {k.upper(): v for k, v in DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class UnpackedArchive:
    """Files by kind, and what the archive's own members tell: the engine's properties and the builder's."""

    files: Mapping[str, Path]
    plan: Mapping[str, object]
    build: Mapping[str, object]
    notes: tuple[str, ...]


def unpack(path: Path, folder: Path) -> UnpackedArchive:
    """Write the members that rtlab reads into a folder.

    Raises:
        ReadError: the archive or a member is damaged, or two members are of one kind.
    """
    skipped_names: list[str] = []
    paths: list[Path] = []
    configs: dict[str, Mapping[str, object]] = {"plan_cfg.json": {}, "build_cfg.json": {}}
    name = ""
    budget = _MOST
    try:
        with zipfile.ZipFile(path) as archive:
            # A member that was written again stands twice; the last counts.
            for index, info in enumerate({i.filename: i for i in archive.infolist()}.values()):
                name = info.filename
                # Python asks for the last letter of a name that may have none.
                if not name or info.is_dir():
                    continue
                base = re.sub(r"[^\w.\- ]", "_", Path(name).name)[-100:]
                with archive.open(info) as member:
                    head = member.read(_CHUNK)
                    if recognise.is_engine(head) or recognise.is_timing_cache(head):
                        continue
                    # Most members of a strange archive are nothing of ours, and writing them all would take long.
                    is_complete = info.file_size <= len(head)
                    if is_complete and base not in configs and not _is_readable(io.BytesIO(head), base):
                        skipped_names.append(name)
                        budget = _reduce_budget(budget, len(head), path, name)
                        continue
                    target = folder / str(index) / base
                    target.parent.mkdir()
                    with target.open("wb") as file:
                        while head:
                            budget = _reduce_budget(budget, len(head), path, name)
                            file.write(head)
                            head = member.read(_CHUNK)
                if base in configs:
                    value = contents.load(target, "archive").value
                    configs[base] = value if isinstance(value, dict) else {}
                else:
                    with target.open("rb") as content:
                        is_readable = is_complete or _is_readable(content, base)
                    if is_readable:
                        paths.append(target)
                    else:
                        skipped_names.append(name)
                if len(paths) > _SEVERAL:
                    # Two of them are of one kind, which is refused by name.
                    recognise.sort_by_kind(paths)
    # A member may be of a method or encryption that Python lacks, which is a RuntimeError.
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        raise _make_damage_error(path, f'member "{name}" is damaged ({error})') from error
    notes = (f"Members of the archive that are not read: {', '.join(skipped_names[:3])}.",)
    return UnpackedArchive(
        recognise.sort_by_kind(paths),
        configs["plan_cfg.json"],
        configs["build_cfg.json"],
        notes if skipped_names else (),
    )


def _reduce_budget(budget: int, size: int, path: Path, name: str) -> int:
    """The bytes that may still be unpacked."""
    if size > budget:
        raise _make_damage_error(path, f'member "{name}" is larger than {_MOST >> 30} GiB unpacked')
    return budget - size


def _is_readable(file: BinaryIO, name: str) -> bool:
    try:
        return recognise.detect_stream_kind(file, name) is not None
    except ReadError:
        return False


def _make_damage_error(path: Path, problem: str) -> ReadError:
    return contents.fault("archive", path.name, problem, "a whole file")


def add_archive_info(engine: Engine, unpacked: UnpackedArchive) -> Engine:
    """The engine with what only the archive tells: duration, inputs and outputs, number of layers."""
    notes = [*engine.notes, *unpacked.notes]
    count = contents.parse_integer(unpacked.plan.get("num_layers"))
    if count is not None and count != len(engine.layers):
        notes.append(f"The engine has {count} layers; the archive lists {len(engine.layers)}.")
    sides: dict[str, list[Tensor]] = {"INPUT": [], "OUTPUT": []}
    listed = unpacked.plan.get("io_tensors")
    for name, entry in listed.items() if isinstance(listed, dict) else ():
        if isinstance(entry, dict):
            mode, dtype = (str(entry.get(k)).rpartition(".")[2] for k in ("mode", "dtype"))
            shape = tuple(int(d) for d in re.findall(r"-?\d{1,18}", str(entry.get("shape"))))
            sides.get(mode, []).append(Tensor(name, _TYPES.get(dtype, dtype.lower()), shape))
    return dataclasses.replace(
        engine,
        notes=tuple(notes),
        inputs=engine.inputs or tuple(sides["INPUT"]),
        outputs=engine.outputs or tuple(sides["OUTPUT"]),
        seconds=engine.seconds or contents.parse_number(unpacked.build.get("engine_build_duration")) or 0.0,
    )
