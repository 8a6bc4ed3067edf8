"""TensorRT's editable timing cache: which tactic it remembers for an operator, and another one in its place.

A cache can be read and edited when it was written by a build with ``flags=["EDITABLE_TIMING_CACHE"]`` and
``timing_cache=...``. A build with both, and an edited file, takes the tactic that stands in it: so a tactic is forced.
Only the verbose log of the build that timed an operator tells its key and its tactics; the cache itself lists none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rtlab.backends import vendor
from rtlab.backends.live import child, trt_callbacks
from rtlab.backends.live.running import EngineRunner
from rtlab.core import files
from rtlab.core.buildlog import Entry
from rtlab.core.inputs import read_input
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import ReadError, VariantError

#: What a build must be told, so that its timing cache can be read and edited.
FLAG = "EDITABLE_TIMING_CACHE"
#: What a cache answers for a key that it does not have.
_NONE = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class CacheEdit:
    """A cache, the keys that are asked for, and the entries that are put in first."""

    binding: str
    content: bytes
    error_prefix: str
    keys: tuple[str, ...]
    entries: tuple[Entry, ...] = ()


def read(
    path: str | Path, keys: Sequence[str], backend: EngineRunner, progress: Progress | None = None
) -> Mapping[str, Entry]:
    """What a timing cache remembers, by those of ``keys`` that it has.

    Raises:
        ReadError: the file cannot be read, is of another version or GPU, or was not written by an editable build.
        VariantError: the installed TensorRT cannot edit timing caches.
        BackendError: the child process crashed or passed a limit.
    """
    return {e.key: e for e in _run_edit(Path(path), backend, progress, tuple(keys), ())[0]}


def force(
    path: str | Path,
    copy: str | Path,
    entries: Sequence[Entry],
    backend: EngineRunner,
    progress: Progress | None = None,
) -> Mapping[str, Entry]:
    """Write a copy of a timing cache with other tactics in it, by the keys that the log tells; see ``Tuner.forced``.

    Returns:
        What the copy remembers of these keys.

    Raises:
        ReadError, VariantError, BackendError: as ``read``; besides, a key is not in the cache, a hash has more than 64
            bits, or the copy is the cache itself.
        RtlabError: the copy cannot be written.
    """
    path, copy = Path(path), Path(copy)
    if copy.resolve() == path.resolve() or (copy.exists() and path.exists() and copy.samefile(path)):
        raise VariantError(
            f'Cannot write the edited timing cache to "{copy}": it is the cache that is read. Choose another name.'
        )
    for entry in entries:
        if not 0 < entry.tactic < _NONE:
            raise VariantError(
                f'Cannot force tactic "{entry.tactic:#x}" in timing cache "{path}": it is no hash of 64 bits. Choose '
                "one that the log lists, such as 0x665ded9abbf88."
            )
    edited_entries, content = _run_edit(
        path, backend, progress, tuple(e.key for e in entries), tuple(entries)
    )
    files.write(copy, content, what="the timing cache")
    return {e.key: e for e in edited_entries}


def _run_edit(
    path: Path,
    backend: EngineRunner,
    progress: Progress | None,
    keys: tuple[str, ...],
    entries: tuple[Entry, ...],
) -> tuple[tuple[Entry, ...], bytes]:
    error_prefix = f'Cannot {"edit" if entries else "read"} timing cache "{path}"'
    if backend.product != "TensorRT":
        raise VariantError(
            f"{error_prefix}: {backend.product} times kernels when it runs, and remembers none while it builds. Choose "
            'backend="tensorrt".'
        )
    try:
        content = read_input(path)
    except OSError as error:
        raise ReadError(
            f"{error_prefix}: {error.strerror or error}. Name a file that a build has written."
        ) from error
    return child.call(
        edit,
        CacheEdit(backend.binding, content, error_prefix, keys, entries),
        limits=Limits(),
        progress=progress or Silent(),
        error_prefix=error_prefix,
    )


def edit(spec: CacheEdit, report: Any) -> tuple[tuple[Entry, ...], bytes]:
    """Put entries into a cache, and return those of the keys with the cache's bytes; runs in the child process."""
    report.phase("Reading the timing cache")
    trt = vendor.binding(spec.binding)
    if not hasattr(trt, "TimingCacheValue"):
        raise VariantError(
            f"{spec.error_prefix}: this compiler has no editable timing cache. Install TensorRT 10.10 or later."
        )
    messages: list[str] = []
    logger = trt_callbacks.message_logger(trt, lambda _, message: messages.append(message))
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
    cache = config.create_timing_cache(spec.content)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise ReadError(
            f"{spec.error_prefix}: it is damaged, or of another version or GPU. Build once more with "
            f'flags=["{FLAG}"], timing_cache=... here.',
            details="\n".join(messages),
        )
    if not cache.queryKeys():
        raise ReadError(
            f'{spec.error_prefix}: it has no entries that can be edited. Build with flags=["{FLAG}"] and this file, '
            "after it was deleted."
        )
    for entry in spec.entries:
        key = trt.TimingCacheKey.parse(entry.key)
        if cache.query(key).tacticHash == _NONE:
            raise VariantError(
                f"{spec.error_prefix}: it has no entry of key {entry.key}, so it is not of the build whose log tells "
                "it. Build once more with this file, after it was deleted."
            )
        if not cache.update(key, trt.TimingCacheValue(entry.tactic, entry.milliseconds)):
            raise VariantError(
                f"{spec.error_prefix}: TensorRT refuses tactic {entry.id}. Choose another of the log."
            )
    entries = []
    for text in spec.keys:
        value = cache.query(trt.TimingCacheKey.parse(text))
        if value.tacticHash != _NONE:
            entries.append(Entry(text, int(value.tacticHash), float(value.timingMSec)))
    return tuple(entries), bytes(cache.serialize())
