"""What ``trtexec`` measured: times of layers and of inferences, outputs, and trex's notes of the device."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rtlab.backends.files import contents, inspector, printed
from rtlab.backends.files.contents import fault, number, shown, whole_number
from rtlab.backends.log import machine
from rtlab.core.arrays import NUMPY
from rtlab.core.engine import Engine, Layer
from rtlab.core.phrases import many, quoted
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Target
from rtlab.errors import ReadError, VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Milliseconds beyond which a number is no time: less than light needs across a chip, or more than 30 years.
_LEAST, _MOST = 1e-9, 1e12
#: Names that a message lists before it says that there are more.
_LISTED = 3
_UNKNOWN = Target("unknown")
_MEANS = "Times of layers are means, because the file holds no medians"
#: Keys of a profile's row, best first.
_TIMES = ("medianMs", "averageMs")


@dataclasses.dataclass(frozen=True)
class DeviceRecord:
    """The device of an engine, and the median of its latencies in milliseconds, as far as files tell them."""

    name: str = ""
    target: Target = _UNKNOWN
    version: str = ""
    latency: float | None = None

    def beside(self, other: DeviceRecord) -> DeviceRecord:
        """What this tells, and what ``other`` tells of the rest."""
        return DeviceRecord(
            self.name or other.name,
            other.target if self.target == _UNKNOWN else self.target,
            self.version or other.version,
            other.latency if self.latency is None else self.latency,
        )


@dataclasses.dataclass(frozen=True)
class ProfileRows:
    """Rows of a profile: names and milliseconds of each inference, or one table of medians or means over ``count``.

    ``device`` is what the log around a printed table tells.
    """

    runs: tuple[tuple[tuple[str, float], ...], ...]
    count: int | None
    note: str = ""
    notes: tuple[str, ...] = ()
    device: DeviceRecord = dataclasses.field(default_factory=DeviceRecord)

    @property
    def names(self) -> list[str]:
        """Every name once, in the order of the file."""
        return list(dict.fromkeys(name for run in self.runs for name, _ in run))

    def profile(self) -> int | None:
        """The optimization profile that most rows name; None where none does."""
        found = [p for p in (inspector.bare(n)[1] for n in self.names) if p is not None]
        return max(sorted(set(found)), key=found.count) if found else None


@dataclasses.dataclass(frozen=True)
class Latencies:
    """Milliseconds of whole inferences on the GPU, shape ``(runs,)``, and what else the file tells of them."""

    compute: NDArray[np.float64]
    notes: tuple[str, ...] = ()


def device(path: Path | None) -> DeviceRecord:
    """Read trex's metadata, of a profiling run or of the device alone."""
    if path is None:
        return DeviceRecord()
    document = contents.load(path, "metadata").value
    entry = document[0] if isinstance(document, list) and document else document
    if not isinstance(entry, dict):
        raise fault(
            "metadata", path.name, f"line 1: it holds no object but {shown(document)}", '"device_information"'
        )
    told = entry.get("device_information")
    told = told if isinstance(told, dict) else entry
    name = told.get("Selected Device") or told.get("Name")
    version = entry.get("TensorRT version") or told.get("TensorRT version")
    summary = entry.get("performance_summary")
    compute = summary.get("GPU Compute Time") if isinstance(summary, dict) else None
    # Least, greatest, mean, median, then percentiles.
    median = _time(compute[3]) if isinstance(compute, list) and len(compute) > 3 else None
    return DeviceRecord(
        name=name if isinstance(name, str) else "",
        target=_target(told.get("Compute Capability", told.get("ComputeCapability"))),
        version=version if isinstance(version, str) else "",
        latency=median,
    )


def _target(capability: object) -> Target:
    """A target from 8.6 or [8, 6]; unknown from anything else."""
    digits = capability if isinstance(capability, list) else str(capability).split(".")
    try:
        return Target("sm" + "".join(str(int(d)) for d in digits))
    except (ValueError, TypeError, VariantError, OverflowError):
        return _UNKNOWN


def latencies(path: Path | None, known: DeviceRecord) -> Latencies:
    """Times of whole inferences: samples, or the one median that metadata hold, or nothing."""
    if path is None:
        return Latencies(np.asarray([] if known.latency is None else [known.latency], dtype=np.float64))
    document = contents.piece(contents.text(path, "times"), path.name, "times")
    rows = document.value
    if not isinstance(rows, list) or not rows:
        found = f"line 1: it holds {shown(rows)}" if not isinstance(rows, list) else "row 0: there is none"
        raise fault("times", path.name, found, 'a list of rows with "computeMs"')
    compute: list[float] = []
    ends: list[float] = []
    for i, row in enumerate(rows):
        time = _time(row.get("computeMs")) if isinstance(row, dict) else None
        if time is None:
            held = f'{shown(row.get("computeMs"))} under "computeMs"' if isinstance(row, dict) else shown(row)
            raise fault("times", path.name, f"row {i} has {held}", 'a time in milliseconds under "computeMs"')
        compute.append(time)
        end = _time(row.get("latencyMs"))
        if end is not None:
            ends.append(end)
    notes = list(document.notes)
    inside, whole = float(np.median(compute)), float(np.median(ends)) if len(ends) == len(rows) else math.nan
    # Copies that take no time tell nothing.
    if whole > 1.01 * inside:
        notes.append(
            f"With copies to and from the GPU an inference takes {whole:.3g} ms (median); {inside:.3g} ms of it are "
            "computing, which is the latency shown."
        )
    return Latencies(np.asarray(compute, dtype=np.float64), tuple(notes))


def rows(path: Path) -> ProfileRows:
    """Read the times of layers, as JSON or as a printed table.

    Raises:
        ReadError: a row has no time.
    """
    text = contents.text(path, "profile")
    if printed.TIME.search(text):
        runs = printed.times(text, path.name)
        return ProfileRows(tuple(map(tuple, runs)), len(runs))
    if printed.TABLE.search(text) or (printed.TABLE_ROW.search(text) and '"name"' not in text):
        return _table(text, path)
    document = contents.piece(text, path.name, "profile")
    found = document.value
    if not isinstance(found, list):
        raise fault(
            "profile",
            path.name,
            f"line 1: it holds {shown(found)}, no rows with a name and a time",
            "a list of rows",
        )
    contents.see_few("profile", path.name, len(found))
    count: int | None = None
    named: list[tuple[int, dict[str, object]]] = []
    for i, row in enumerate(found):
        if isinstance(row, dict) and "name" not in row and "count" in row:
            count = max(0, whole_number(row["count"]) or 0) if count is None else count
        elif isinstance(row, dict) and isinstance(row.get("name"), str):
            named.append((i, row))
        else:
            held = f"keys {contents.keys(row)}" if isinstance(row, dict) else shown(row)
            raise fault("profile", path.name, f"row {i} holds {held}", '"name" and "averageMs"')
    if not named:
        raise fault(
            "profile", path.name, "row 0: it holds no rows with a name and a time", "a row for each layer"
        )
    key = next(k for k in (*_TIMES, "") if not k or all(k in row for _, row in named)) or _TIMES[-1]
    table = []
    for i, row in named:
        time = _time(row.get(key))
        if time is None:
            held = f'row "{row["name"]}" has no time (row {i}, key "{key}": {shown(row.get(key))})'
            raise fault("profile", path.name, held, "milliseconds")
        table.append((str(row["name"]), time))
    note = "" if key == "medianMs" else _MEANS
    return ProfileRows((tuple(table),), count or 0, note, document.notes)


def _table(text: str, path: Path) -> ProfileRows:
    """Rows of a table that trtexec printed, and what its log tells of the device."""
    found = printed.table(text, path.name)
    notes = [f'The times in the table of "{path.name}" are rounded to 0.1 µs.']
    if not found.ended:
        notes.append(printed.ENDLESS)
    if not found.whole:
        notes.append(f'The table of "{path.name}" ends before its total, so layers may be missing.')
    told = machine.header(text.splitlines())
    return ProfileRows(
        (found.rows,),
        found.count,
        "" if found.medians else _MEANS,
        tuple(notes),
        DeviceRecord(told.device, told.target, told.version, told.latency),
    )


def join(
    given: ProfileRows, inspected: inspector.Inspected, path: Path, known: DeviceRecord, times: Latencies
) -> tuple[Profile, list[str]]:
    """Times by layer, joined by name, and notes on what does not join.

    Raises:
        ReadError: the names are those of another engine.
    """
    by_name: dict[str, list[Layer]] = {}
    for layer in inspected.layers:
        by_name.setdefault(layer.name, []).append(layer)
    found = _matched(given, by_name, inspected.profile)
    joined = len(given.names) - len(found.strange) - len(found.others)
    timed = {layer.name for layer in inspected.layers if layer.id in found.samples}
    silent = [n for n in by_name if n not in timed]
    if (
        not found.samples
        or joined < len(found.strange)
        or _apart(found.strange, given.names, silent, by_name)
    ):
        raise mismatch(
            f'profile "{path.name}"',
            list(found.strange or found.others),
            silent,
            f"{joined or 'none'} of its {len(given.names)} rows {'name' if joined > 1 else 'names'} one of the "
            f"{len(inspected.layers)} layers",
        )
    profile = Profile(
        source=source(known),
        device="",
        samples={i: np.array(t) for i, t in found.samples.items()},
        total=times.compute,
        warmup=0,
        taken=None,
        note=given.note,
        processor="GPU",
        runs=given.count,
    )
    return profile, [*given.notes, *times.notes, *_told(found, by_name, inspected.layers)]


def _apart(
    strange: Mapping[str, float], names: Sequence[str], silent: Sequence[str], layers: Mapping[str, object]
) -> bool:
    """Whether names differ on both sides as those of two engines of one model do.

    Of each recorded engine all names join; between two engines of one model a fifth does not.
    """
    return len(strange) > max(2, len(names) // 10) and len(silent) > max(2, len(layers) // 10)


@dataclasses.dataclass(frozen=True)
class _Matched:
    """Milliseconds by layer id and run; by name, of rows that name no layer, and of another optimization profile."""

    samples: Mapping[str, list[float]]
    strange: Mapping[str, float]
    others: Mapping[str, float]


def _matched(given: ProfileRows, by_name: Mapping[str, list[Layer]], shown_: int | None) -> _Matched:
    samples: dict[str, list[float]] = {}
    left: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for run in given.runs:
        once: dict[str, float] = {}
        for name, time in run:
            plain, profile = inspector.bare(name)
            same = profile is None or shown_ is None or profile == shown_
            layers = by_name.get(name) or (by_name.get(plain) if same else None)
            table, key = (once, layers[0].id) if layers else (left[not same], name)
            table[key] = table.get(key, 0.0) + time
        for key, time in once.items():
            samples.setdefault(key, []).append(time)
    return _Matched(samples, *left)


def _told(found: _Matched, by_name: Mapping[str, list[Layer]], layers: Sequence[Layer]) -> list[str]:
    """Notes on rows and layers that have no counterpart, or several."""
    notes = []
    for left, what in ((found.strange, "no layer"), (found.others, "layers of another optimization profile")):
        if left:
            do = "names {} and is left out" if len(left) == 1 else "name {} and are left out"
            time = sum(left.values())
            notes.append(
                f"{many(len(left), 'name', 'names')} of the profile ({time:.3g} ms) {do.format(what)}: {listed(left)}."
            )
    twins = [name for name, same in by_name.items() if len(same) > 1]
    silent = [y.name for y in layers if y.id not in found.samples and y.name not in twins]
    if silent:
        notes.append(
            f"{many(len(silent), 'layer has', 'layers have')} no time in the profile: {listed(silent)}."
        )
    if twins:
        notes.append(
            f"{many(len(twins), 'name belongs', 'names belong')} to several layers; the first of each shows the time "
            f"of all: {listed(twins)}."
        )
    return notes


def mismatch(what: str, strange: Sequence[str], known: Sequence[str], found: str) -> ReadError:
    """The error of files that belong to two engines: names that only one of them has."""
    return ReadError(
        f"Cannot join {what} to the layers: {found}. Only there: {listed(strange) or 'none'}; only among the layers: "
        f"{listed(known) or 'none'}. Give the layers and the {what.split(' ', maxsplit=1)[0]} of one engine."
    )


def source(known: DeviceRecord) -> str:
    """What to write beside a time that trtexec measured."""
    return f"trtexec on {known.name}" if known.name else "trtexec, device not recorded"


def outputs(path: Path, engine: Engine) -> tuple[Outputs, list[str]]:
    """Read the tensors that ``--exportOutput`` wrote.

    Raises:
        ReadError: a tensor is damaged, or none is an output of the engine.
    """
    document = contents.load(path, "output")
    entries = document.value
    if not isinstance(entries, list) or not entries:
        found = (
            f"line 1: it holds {shown(entries)}" if not isinstance(entries, list) else "row 0: there is none"
        )
        raise fault("output", path.name, found, "a list of tensors")
    types = {t.name: t.dtype for t in engine.outputs}
    tensors: dict[str, NDArray[np.generic]] = {}
    for i, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise fault("output", path.name, f"row {i} has no name", 'a text under "name"')
        tensors[inspector.bare(name)[0]] = _tensor(entry, path.name, f'row {i}, tensor "{name}"', types)
    strange = [n for n in tensors if n not in types]
    if types and len(strange) == len(tensors):
        raise mismatch(
            f'output "{path.name}"',
            strange,
            list(types),
            f"none of its {len(tensors)} tensors is an output of the engine",
        )
    notes = list(document.notes)
    if types and strange:
        notes.append(
            f"{many(len(strange), 'tensor', 'tensors')} are no outputs of the engine: {listed(strange)}."
        )
    return tensors, notes


def _tensor(
    entry: Mapping[str, object], file: str, where: str, types: Mapping[str, str]
) -> NDArray[np.generic]:
    told, values = entry.get("dimensions"), entry.get("values")
    if not isinstance(told, str) or not re.fullmatch(r"(\d{1,12}(x\d{1,12}){0,31})?", told):
        raise fault("output", file, f'{where} has {shown(told)} under "dimensions"', 'a shape such as "1x10"')
    if not isinstance(values, list):
        raise fault("output", file, f'{where} has {shown(values)} under "values"', "a list of numbers")
    bad = next(
        (k for k, v in enumerate(values) if isinstance(v, bool) or not isinstance(v, (int, float))), None
    )
    if bad is not None:
        raise fault("output", file, f"{where} has {shown(values[bad])} as value {bad}", "a number")
    shape = tuple(int(d) for d in told.split("x")) if told else ()
    if math.prod(shape) != len(values):
        raise fault("output", file, f"{where} has {len(values)} values", f"{told or 1} of them")
    name = inspector.bare(str(entry["name"]))[0]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            wide = np.asarray(values, dtype=np.float64).reshape(shape)
            # Values that the type cannot hold show that the type is another.
            exact = np.asarray(values).reshape(shape)
            kind = NUMPY.get(types.get(name, ""), "float32")
            fits = kind.startswith("float") or (
                exact.dtype.kind in "iu" and bool((exact.astype(kind) == exact).all())
            )
            return (exact if fits and not kind.startswith("float") else wide).astype(
                kind if fits else "float32"
            )
    except (OverflowError, ValueError) as error:
        raise fault("output", file, f"{where} has values beyond 64 bits", "numbers") from error


def _time(value: object) -> float | None:
    found = number(value)
    return found if found is not None and (found == 0 or _LEAST <= found <= _MOST) else None


def listed(names: Sequence[str] | Mapping[str, float]) -> str:
    """The first names, quoted."""
    first = list(names)[:_LISTED]
    return quoted(first) + (" ..." if len(names) > _LISTED else "")
