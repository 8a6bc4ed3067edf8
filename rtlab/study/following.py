"""A study that gets the results of a store as they come, from this process or another."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtlab.study.session import Session
    from rtlab.study.sweep import LoadedResult, ResultStore

#: Seconds between two looks into the folder.
_PERIOD_S = 1.0


class StoreFollower:
    """Adds the results of a store to a study, on a thread: those that are there, and from then on new ones.

    It ends with ``stop``, and when the study has no view any more.

    Args:
        store: The folder.
        digest: That of the study, as rows have it.
        study: The study, without the results.
    """

    def __init__(self, store: ResultStore, digest: str, study: Session) -> None:
        self._store, self._digest, self._study = store, digest, study
        #: Keys and statuses of rows that were read: what failed may be built later.
        self._read: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rtlab-store", daemon=True)
        self.update()

    def start(self) -> None:
        """Look into the folder from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Wait so many seconds for the end; returns whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _watch(self) -> None:
        while not self._stop.wait(_PERIOD_S) and self._study.views:
            self.update()

    def update(self) -> None:
        """Add what came since."""
        new: list[LoadedResult] = []
        for key, status in self._store.list_keys():
            if (key, status) in self._read:
                continue
            row = self._store.row(key)
            # A file that another machine has just written may not be there as a whole yet.
            if row is None or row.status == "damaged":
                continue
            if row.study == self._digest:
                loaded = self._store.load_result(self._study.state, row)
                if loaded is None:
                    continue
                new.append(loaded)
            self._read.add((key, status))
        if new:
            # Read first: the study waits for what changes it.
            new.sort(key=lambda result: result.row.order)
            self._study._holder.publish(  # noqa: SLF001 - of the same package
                lambda state: functools.reduce(lambda before, result: result.add_to(before), new, state)
            )
