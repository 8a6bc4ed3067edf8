"""TensorRT's editable timing cache: which tactic it remembers for what it timed, and another one in its place.

A cache can be read and edited when it was written by a build with ``flags=["EDITABLE_TIMING_CACHE"]`` and
``timing_cache=...``. A build with both, and the edited file, takes the tactic that stands in it: so a tactic is forced.
Entries bear opaque keys; a layer's own is the one with its tactic and time, which the verbose log tells.
"""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from rtlab.backends.live import child
from rtlab.backends.live.running import Running
from rtlab.core import files
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import ReadError, VariantError

#: What a build must be told, so that its timing cache can be read and edited.
FLAG = "EDITABLE_TIMING_CACHE"
#: Times in a cache are 32-bit floats, and a log writes six digits.
_SAME_TIME = 1e-3


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the cache remembers at one ``position``: a tactic by its hash, and its time as the builder *reported* it."""

    position: int
    tactic: int
    milliseconds: float

    @property
    def id(self) -> str:
        """The tactic as the verbose log writes it."""
        return f"{self.tactic:#018x}"


@dataclasses.dataclass(frozen=True)
class Edit:
    """A cache, and the entries that are to be put in it; none only reads it."""

    binding: str
    content: bytes
    doing: str
    entries: tuple[Entry, ...] = ()


@dataclasses.dataclass(frozen=True)
class Edited:
    """The entries of a cache, and its bytes after they were put in."""

    entries: tuple[Entry, ...]
    content: bytes


def read(path: str | Path, backend: Running, progress: Progress | None = None) -> tuple[Entry, ...]:
    """The entries of a timing cache, in the binding's own order.

    Raises:
        ReadError: the file cannot be read, is of another version or GPU, or was not written by an editable build.
        VariantError: the installed TensorRT cannot edit timing caches.
        BackendError: the child process crashed or passed a limit.
    """
    return _edited(Path(path), backend, progress, ()).entries


def force(
    path: str | Path,
    tactics: dict[int, tuple[str, float]],
    backend: Running,
    progress: Progress | None = None,
) -> tuple[Entry, ...]:
    """Put other tactics in a timing cache and write it; the next editable build takes them.

    Args:
        path: The file.
        tactics: By the position of an entry the tactic's id, as the log writes it, and its time in milliseconds.
        backend: TensorRT, as it is installed here.
        progress: Asked whether to stop.

    Returns:
        The entries as they are then.

    Raises:
        ReadError, VariantError, BackendError: as ``read``; besides, there is no such entry or no such id.
        RtlabError: the file cannot be written.
    """
    path = Path(path)
    wanted = tuple(Entry(at, _hash(path, id_), time) for at, (id_, time) in sorted(tactics.items()))
    found = _edited(path, backend, progress, wanted)
    files.write(path, found.content, what="the timing cache")
    return found.entries


def matching(entries: tuple[Entry, ...], tactic: str, milliseconds: float) -> tuple[Entry, ...]:
    """The entries that may be those of a layer: with the tactic and the time that the log tells of it."""
    return tuple(
        e
        for e in entries
        if _int(tactic) == e.tactic
        and abs(e.milliseconds - milliseconds) <= _SAME_TIME * max(milliseconds, 1e-9)
    )


def _int(tactic: str) -> int | None:
    try:
        return int(tactic, 0)
    except ValueError:
        return None


def _hash(path: Path, tactic: str) -> int:
    found = _int(tactic)
    if found is None or not 0 <= found < 1 << 64:
        raise VariantError(
            f'Cannot force tactic "{tactic}" in timing cache "{path}": it is no id of 64 bits. Give one as the verbose '
            "log writes it, such as 0xdd39499496c9cc38."
        )
    return found


def _edited(path: Path, backend: Running, progress: Progress | None, entries: tuple[Entry, ...]) -> Edited:
    doing = f'Cannot {"edit" if entries else "read"} timing cache "{path}"'
    if backend.product != "TensorRT":
        raise VariantError(
            f"{doing}: {backend.product} times kernels when it runs, and remembers none while it builds. Choose "
            'backend="tensorrt".'
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ReadError(
            f"{doing}: {error.strerror or error}. Name a file that a build has written."
        ) from error
    made: Edited = child.call(
        "rtlab.backends.live.timing_cache:edit",
        Edit(backend.binding, content, doing, entries),
        limits=Limits(),
        progress=progress or Silent(),
        doing=doing,
    )
    return made


def edit(order: Edit, report: Any) -> Edited:
    """Read a cache, and put entries in it; runs in the child process."""
    report.phase("Reading the timing cache")
    trt = importlib.import_module(order.binding)
    if not hasattr(trt, "TimingCacheValue"):
        raise VariantError(
            f"{order.doing}: this compiler has no editable timing cache. Install TensorRT 10.10 or later."
        )
    said: list[str] = []
    logger = _logger(trt, said)
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
    cache = config.create_timing_cache(order.content)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise ReadError(
            f"{order.doing}: it is damaged, or of another version or GPU. Build once more with "
            f'flags=["{FLAG}"], timing_cache=... here.',
            details="\n".join(said),
        )
    keys = cache.queryKeys()
    if not keys:
        raise ReadError(
            f'{order.doing}: it has no entries that can be edited. Build with flags=["{FLAG}"] and this file, after '
            "it was deleted."
        )
    for entry in order.entries:
        if not 0 <= entry.position < len(keys):
            raise VariantError(
                f"{order.doing}: there is no entry {entry.position}. Choose a position from 0 to {len(keys) - 1}."
            )
        if not cache.update(keys[entry.position], trt.TimingCacheValue(entry.tactic, entry.milliseconds)):
            raise VariantError(
                f"{order.doing}: TensorRT refuses tactic {entry.id}. Choose another of the log."
            )
    values = [cache.query(key) for key in keys]
    return Edited(
        tuple(Entry(i, int(v.tacticHash), float(v.timingMSec)) for i, v in enumerate(values)),
        bytes(cache.serialize()),
    )


def _logger(trt: Any, said: list[str]) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc,name-defined,unused-ignore] # base of the untyped binding
        """Keeps every message."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:  # noqa: ARG002 - the binding's signature
            said.append(msg)

    return Logger()
