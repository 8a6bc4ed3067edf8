"""A timing cache: what was measured once on a device is not measured there again."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from rtlab.core import files
from rtlab.core.inputs import read_input
from rtlab.errors import ReadError
from rtlab.formulations.trial import Trial

_SCHEMA = 1


@dataclasses.dataclass(eq=False)
class TimingCache:
    """Times by layer's key, formulation and threads, all of one device and one version of ONNX Runtime."""

    path: Path
    device: str
    source: str
    entries: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def recall(self, key: str, trial: Trial) -> Trial:
        """A trial with the times that are known, as it is where none are."""
        entry = self.entries.get(key, {}).get(_entry_name(trial))
        if entry is None:
            return trial
        return dataclasses.replace(
            trial,
            median=entry["median"],
            quartiles=tuple(entry["quartiles"]),
            runs=entry["runs"],
            taken=datetime.datetime.fromisoformat(entry["taken"]),
            ok=True,
            cached=True,
        )

    def store(self, key: str, trial: Trial) -> None:
        """Remember the times of a trial."""
        if trial.ok and trial.taken is not None and trial.quartiles is not None:
            self.entries.setdefault(key, {})[_entry_name(trial)] = {
                "median": trial.median,
                "quartiles": list(trial.quartiles),
                "runs": trial.runs,
                "taken": trial.taken.isoformat(),
            }

    def save(self) -> None:
        """Write the file, with what other processes have put there since it was read.

        Raises:
            ReadError: it is no timing cache of this device any more.
            RtlabError: it cannot be written there.
        """
        others = read_timing_cache(self.path, self.device, self.source).entries
        content = {
            "schema": _SCHEMA,
            "device": self.device,
            "source": self.source,
            "entries": {
                k: {**others.get(k, {}), **self.entries.get(k, {})}
                for k in dict.fromkeys((*others, *self.entries))
            },
        }
        files.write(self.path, json.dumps(content, indent=1).encode(), what="the timing cache")


def _entry_name(trial: Trial) -> str:
    return f"{trial.formulation}, {trial.threads} threads"


def read_timing_cache(path: str | Path, device: str, source: str) -> TimingCache:
    """The cache at ``path``, empty where there is no file yet.

    Raises:
        ReadError: the file is no timing cache, or was written on another device or by another ONNX Runtime.
    """
    path = Path(path)
    error_prefix = f'Cannot use timing cache "{path}"'
    try:
        content = json.loads(read_input(path))
    except FileNotFoundError:
        return TimingCache(path, device, source)
    except (OSError, ValueError, RecursionError) as error:
        raise ReadError(
            f"{error_prefix}: it is no file of JSON. Name another file, or delete this one.",
            details=repr(error),
        ) from error
    header = {k: content.get(k) for k in ("schema", "device", "source")} if isinstance(content, dict) else {}
    if header.get("schema") != _SCHEMA:
        raise ReadError(
            f'{error_prefix}: its schema is "{header.get("schema")}", and {_SCHEMA} is read here. '
            "Name another file, or delete this one."
        )
    for what, expected in (("device", device), ("source", source)):
        if header[what] != expected:
            raise ReadError(
                f'{error_prefix}: its times are of "{header[what]}", and here is "{expected}". '
                "Times of another machine say nothing about this one: name another file."
            )
    entries = content.get("entries")
    if not _is_valid(entries):
        raise ReadError(f"{error_prefix}: an entry in it is damaged. Name another file, or delete this one.")
    return TimingCache(path, device, source, entries)


def _is_valid(entries: Any) -> bool:
    """Whether each entry has all that ``recall`` reads."""
    try:
        for times in entries.values():
            for entry in times.values():
                datetime.datetime.fromisoformat(entry["taken"])
                low, high = entry["quartiles"]
                if not (0 < low <= entry["median"] <= high and int(entry["runs"]) > 0):
                    return False
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return False
    return True
