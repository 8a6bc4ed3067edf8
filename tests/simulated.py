"""A stand-in for the work of a sweep's worker: it sleeps for a measured time, and writes a measured entry."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import time
from pathlib import Path
from typing import Any

from rtlab.study import store
from rtlab.study.sweep_rows import SweepRow, encode_row
from rtlab.study.sweep_task import SweepTask

#: Beside the folder of the store: a ``Recording``.
RECORDING = "measured.pickle"


@dataclasses.dataclass(frozen=True)
class Recording:
    """Rows and files of real variants, and what their durations are multiplied by."""

    entries: tuple[tuple[SweepRow, dict[str, bytes]], ...]
    scale: float

    def pick(self, task: SweepTask) -> tuple[SweepRow, dict[str, bytes], float]:
        """Row, files and seconds of the variant that a task stands for."""
        row, files = self.entries[int(task.key[:8], 16) % len(self.entries)]
        assert row.work_s is not None
        return row, files, row.work_s * self.scale


@functools.cache
def open_recording(path: Path) -> Recording:
    """The recording in a file."""
    recording: Recording = pickle.loads(path.read_bytes())
    return recording


#: Seconds that each entry took to be written, in this process.
write_seconds: list[float] = []


def run_task(task: SweepTask, *_: Any) -> None:
    """Sleep and write."""
    folder = Path(task.folder)
    row, files, seconds = open_recording(folder.parent / RECORDING).pick(task)
    time.sleep(seconds)
    began = time.perf_counter()
    names = {"model": task.model, "study": task.study, "key": task.key, "variant": task.name}
    content = {store.ROW: encode_row(dataclasses.replace(row, work_s=seconds, **names)), **files}
    store.write_entry(folder / store.ENTRIES, task.key, content)
    write_seconds.append(time.perf_counter() - began)


def list_write_seconds() -> list[float]:
    """What all writes of this process took, in order of length."""
    return sorted(write_seconds)
