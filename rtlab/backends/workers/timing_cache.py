"""TensorRT's editable timing cache: which tactic it remembers for an operator, and another one in its place.

A cache can be read and edited when it was written by a build with ``flags=["EDITABLE_TIMING_CACHE"]`` and
``timing_cache=...``. A build with both, and an edited file, takes the tactic that stands in it: so a tactic is forced.
Only the verbose log of the build that timed an operator tells its key and its tactics; the cache itself lists none.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from rtlab.backends import vendor
from rtlab.backends.workers.compiler import message_logger
from rtlab.core.buildlog import Entry
from rtlab.errors import ReadError, VariantError

#: What a build must be told, so that its timing cache can be read and edited.
FLAG = "EDITABLE_TIMING_CACHE"
#: What a cache answers for a key that it does not have.
NOTHING = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class CacheEdit:
    """A cache, the keys that are asked for, and the entries that are put in first."""

    binding: str
    content: bytes
    error_prefix: str
    keys: tuple[str, ...]
    entries: tuple[Entry, ...] = ()


def edit(spec: CacheEdit, report: Any) -> tuple[tuple[Entry, ...], bytes]:
    """Put entries into a cache, and return those of the keys with the cache's bytes; runs in the child process."""
    report.phase("Reading the timing cache")
    trt = vendor.binding(spec.binding)
    if not hasattr(trt, "TimingCacheValue"):
        raise VariantError(
            f"{spec.error_prefix}: this compiler has no editable timing cache. Install TensorRT 10.10 or later."
        )
    messages: list[str] = []
    logger = message_logger(trt, lambda _, message: messages.append(message))
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
        if cache.query(key).tacticHash == NOTHING:
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
        if value.tacticHash != NOTHING:
            entries.append(Entry(text, int(value.tacticHash), float(value.timingMSec)))
    return tuple(entries), bytes(cache.serialize())
