"""Python's collector of cycles, kept from searching a heap that only grows."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
#: How many calls are inside, of all threads, and whether the collector was on before the first.
_inside, _was = 0, False


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """While many small objects are made that all stay, as a large engine is read: no search for garbage.

    A search looks at every object of the process, a large model's too, and finds nothing. As a decorator for the length
    of a call; calls may be nested, and overlap in threads. A collector that was turned off before stays off.
    """
    global _inside, _was  # noqa: PLW0603 - the collector is one for the process
    with _lock:
        if not _inside:
            _was = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _was:
                gc.enable()
