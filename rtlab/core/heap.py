"""Python's collector of cycles, kept from searching a heap that only grows."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """While many small objects are made that all stay, as a large engine is read: no search for garbage.

    A search looks at every object of the process, a large model's too, and finds nothing. As a decorator for the length
    of a call; calls may be nested. One that was turned off before stays off.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
