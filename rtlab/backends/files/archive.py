"""Engine archives of NVIDIA's trex (``.tea``): a zip of what was written while an engine was built and profiled.

The writer is ``trex.archiving.EngineArchive``: ``build.txt`` is the log, ``engine.trt`` the plan, ``timing.cache`` the
timing cache, ``build_cfg.json`` the builder's settings and ``plan_cfg.json`` the engine's properties; layers and
profiles bear the names that trtexec was given.
"""

from __future__ import annotations

import dataclasses
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from rtlab.backends.files import contents, recognise
from rtlab.core.engine import DTYPES, Engine, Tensor
from rtlab.errors import ReadError

#: What may be unpacked in all: a zip of a few kilobytes can hold far more.
_MOST = 1 << 30
_CHUNK = 1 << 20
_TYPES = {"FLOAT": "fp32", "BF16": "bf16"} | {k.upper(): v for k, v in DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class Unpacked:
    """Files by kind, and what the archive's own members tell: the engine's properties and the builder's."""

    files: Mapping[str, Path]
    plan: Mapping[str, object]
    build: Mapping[str, object]
    notes: tuple[str, ...]


def unpack(path: Path, folder: Path) -> Unpacked:
    """Write the members that rtlab reads into a folder.

    Raises:
        ReadError: the archive or a member is damaged, or two members are of one kind.
    """
    left: list[str] = []
    paths: list[Path] = []
    told: dict[str, Mapping[str, object]] = {}
    name = ""
    room = _MOST
    try:
        with zipfile.ZipFile(path) as archive:
            # A member that was written again stands twice; the last counts.
            for index, info in enumerate({i.filename: i for i in archive.infolist()}.values()):
                name = info.filename
                if info.is_dir():
                    continue
                with archive.open(info) as member:
                    head = member.read(_CHUNK)
                    if recognise.engine(head) or recognise.timing_cache(head):
                        continue
                    target = folder / str(index) / re.sub(r"[^\w.\- ]", "_", Path(name).name)[-100:]
                    target.parent.mkdir()
                    with target.open("wb") as file:
                        while head:
                            room -= len(head)
                            if room < 0:
                                raise _damaged(
                                    path, f'member "{name}" is larger than {_MOST >> 30} GiB unpacked'
                                )
                            file.write(head)
                            head = member.read(_CHUNK)
                if target.name in {"build_cfg.json", "plan_cfg.json"}:
                    value = contents.load(target, "archive").value
                    told[target.name] = value if isinstance(value, dict) else {}
                    continue
                try:
                    recognise.kind(target)
                except ReadError:
                    left.append(name)
                else:
                    paths.append(target)
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
    ) as error:
        raise _damaged(path, f'member "{name}" is damaged ({error})') from error
    notes = [f"Members of the archive that are not read: {', '.join(left[:3])}."] if left else []
    return Unpacked(
        recognise.sort(paths), told.get("plan_cfg.json", {}), told.get("build_cfg.json", {}), tuple(notes)
    )


def _damaged(path: Path, found: str) -> ReadError:
    return contents.fault("archive", path.name, found, "a whole file")


def tell(engine: Engine, unpacked: Unpacked) -> Engine:
    """The engine with what only the archive tells: duration, inputs and outputs, number of layers."""
    notes = [*engine.notes, *unpacked.notes]
    count = contents.whole_number(unpacked.plan.get("num_layers"))
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
        seconds=engine.seconds or contents.number(unpacked.build.get("engine_build_duration")) or 0.0,
    )
