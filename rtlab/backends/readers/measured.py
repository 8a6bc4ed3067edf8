"""What ``trtexec`` measured: times of layers and of inferences, outputs, and trex's notes of the device."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rtlab.backends.readers import contents, inspector, printed
from rtlab.backends.readers.contents import fault, format_value, parse_integer, parse_number
from rtlab.backends.readers.log import machine
from rtlab.core.arrays import NUMPY
from rtlab.core.engine import Engine, Layer
from rtlab.core.phrases import pluralize, quote_names
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

    def merge(self, other: DeviceRecord) -> DeviceRecord:
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

    def find_profile(self) -> int | None:
        """The optimization profile that most rows name; None where none does."""
        profiles = [p for p in (inspector.split_profile(n)[1] for n in self.names) if p is not None]
        return max(sorted(set(profiles)), key=profiles.count) if profiles else None


@dataclasses.dataclass(frozen=True)
class Latencies:
    """Milliseconds of whole inferences on the GPU, shape ``(runs,)``, and what else the file tells of them."""

    compute: NDArray[np.float64]
    notes: tuple[str, ...] = ()


def read_device(path: Path | None) -> DeviceRecord:
    """Read trex's metadata, of a profiling run or of the device alone."""
    if path is None:
        return DeviceRecord()
    document = contents.load(path, "metadata").value
    entry = document[0] if isinstance(document, list) and document else document
    if not isinstance(entry, dict):
        problem = f"line 1: it holds no object but {format_value(document)}"
        raise fault("metadata", path.name, problem, '"device_information"')
    device_info = entry.get("device_information")
    device_info = device_info if isinstance(device_info, dict) else entry
    name = device_info.get("Selected Device") or device_info.get("Name")
    version = entry.get("TensorRT version") or device_info.get("TensorRT version")
    summary = entry.get("performance_summary")
    compute = summary.get("GPU Compute Time") if isinstance(summary, dict) else None
    # Least, greatest, mean, median, then percentiles.
    median = _parse_time(compute[3]) if isinstance(compute, list) and len(compute) > 3 else None
    return DeviceRecord(
        name=name if isinstance(name, str) else "",
        target=_parse_target(device_info.get("Compute Capability", device_info.get("ComputeCapability"))),
        version=version if isinstance(version, str) else "",
        latency=median,
    )


def _parse_target(capability: object) -> Target:
    """A target from 8.6 or [8, 6]; unknown from anything else."""
    digits = capability if isinstance(capability, list) else str(capability).split(".")
    try:
        return Target("sm" + "".join(str(int(d)) for d in digits))
    except (ValueError, TypeError, VariantError, OverflowError):
        return _UNKNOWN


def read_latencies(path: Path | None, device_record: DeviceRecord) -> Latencies:
    """Times of whole inferences: samples, or the one median that metadata hold, or nothing."""
    if path is None:
        return Latencies(
            np.asarray([] if device_record.latency is None else [device_record.latency], dtype=np.float64)
        )
    document = contents.parse_partial(contents.read_text(path, "times"), path.name, "times")
    rows = contents.load_rows(path, "times", 'a list of rows with "computeMs"', document).value
    compute: list[float] = []
    latency_samples: list[float] = []
    for i, row in enumerate(rows):
        time = _parse_time(row.get("computeMs")) if isinstance(row, dict) else None
        if time is None:
            content = format_value(row)
            if isinstance(row, dict):
                content = f'{format_value(row.get("computeMs"))} under "computeMs"'
            expected = 'a time in milliseconds under "computeMs"'
            raise fault("times", path.name, f"row {i} has {content}", expected)
        compute.append(time)
        if (latency := _parse_time(row.get("latencyMs"))) is not None:
            latency_samples.append(latency)
    notes = list(document.notes)
    compute_median = float(np.median(compute))
    latency_median = float(np.median(latency_samples)) if len(latency_samples) == len(rows) else math.nan
    # Copies that take no time tell nothing.
    if latency_median > 1.01 * compute_median:
        notes.append(
            f"With copies to and from the GPU an inference takes {latency_median:.3g} ms (median); "
            f"{compute_median:.3g} ms of it are computing, which is the latency shown."
        )
    return Latencies(np.asarray(compute, dtype=np.float64), tuple(notes))


def read_rows(path: Path) -> ProfileRows:
    """Read the times of layers, as JSON or as a printed table; ``ReadError`` where a row has no time."""
    text = contents.read_text(path, "profile")
    if printed.TIME.search(text):
        runs = printed.parse_times(text, path.name)
        return ProfileRows(tuple(map(tuple, runs)), len(runs))
    if printed.TABLE.search(text) or (printed.TABLE_ROW.search(text) and '"name"' not in text):
        return _read_table(text, path)
    document = contents.parse_partial(text, path.name, "profile")
    entries = document.value
    if not isinstance(entries, list):
        problem = f"line 1: it holds {format_value(entries)}, no rows with a name and a time"
        raise fault("profile", path.name, problem, "a list of rows")
    contents.check_layer_count("profile", path.name, len(entries))
    count: int | None = None
    named_rows: list[tuple[int, dict[str, object]]] = []
    for i, row in enumerate(entries):
        if isinstance(row, dict) and "name" not in row and "count" in row:
            count = max(0, parse_integer(row["count"]) or 0) if count is None else count
        elif isinstance(row, dict) and isinstance(row.get("name"), str):
            named_rows.append((i, row))
        else:
            problem = f"keys {contents.format_keys(row)}" if isinstance(row, dict) else format_value(row)
            raise fault("profile", path.name, f"row {i} holds {problem}", '"name" and "averageMs"')
    if not named_rows:
        raise fault(
            "profile", path.name, "row 0: it holds no rows with a name and a time", "a row for each layer"
        )
    key = next(k for k in (*_TIMES, "") if not k or all(k in row for _, row in named_rows)) or _TIMES[-1]
    table = []
    for i, row in named_rows:
        time = _parse_time(row.get(key))
        if time is None:
            problem = f'row "{row["name"]}" has no time (row {i}, key "{key}": {format_value(row.get(key))})'
            raise fault("profile", path.name, problem, "milliseconds")
        table.append((str(row["name"]), time))
    note = "" if key == "medianMs" else _MEANS
    return ProfileRows((tuple(table),), count or 0, note, document.notes)


def _read_table(text: str, path: Path) -> ProfileRows:
    """Rows of a table that trtexec printed, and what its log tells of the device."""
    table = printed.parse_table(text, path.name)
    notes = [f'The times in the table of "{path.name}" are rounded to 0.1 µs.']
    if not table.has_line_end:
        notes.append(printed.ENDLESS)
    if not table.is_complete:
        notes.append(f'The table of "{path.name}" ends before its total, so layers may be missing.')
    header = machine.read_header(text.splitlines())
    return ProfileRows(
        (table.rows,),
        table.count,
        "" if table.medians else _MEANS,
        tuple(notes),
        DeviceRecord(header.device, header.target, header.version, header.latency),
    )


def join_times(
    profile_rows: ProfileRows,
    inspected: inspector.InspectedEngine,
    path: Path,
    device_record: DeviceRecord,
    times: Latencies,
) -> tuple[Profile, list[str]]:
    """Times by layer, joined by name, and notes on what does not join.

    Raises:
        ReadError: the names are those of another engine.
    """
    by_name: dict[str, list[Layer]] = {}
    for layer in inspected.layers:
        by_name.setdefault(layer.name, []).append(layer)
    matched_rows = _match_rows(profile_rows, by_name, inspected.profile)
    match_count = len(profile_rows.names) - len(matched_rows.unmatched) - len(matched_rows.other_profiles)
    timed_names = {layer.name for layer in inspected.layers if layer.id in matched_rows.samples}
    untimed_names = [n for n in by_name if n not in timed_names]
    if (
        not matched_rows.samples
        or match_count < len(matched_rows.unmatched)
        or _are_different_engines(matched_rows.unmatched, profile_rows.names, untimed_names, by_name)
    ):
        raise make_mismatch_error(
            f'profile "{path.name}"',
            list(matched_rows.unmatched or matched_rows.other_profiles),
            untimed_names,
            f"{match_count or 'none'} of its {len(profile_rows.names)} rows {'name' if match_count > 1 else 'names'} "
            f"one of the {len(inspected.layers)} layers",
        )
    profile = Profile(
        source=describe_source(device_record),
        device="",
        samples={i: np.array(t) for i, t in matched_rows.samples.items()},
        total=times.compute,
        warmup=0,
        taken=None,
        note=profile_rows.note,
        processor="GPU",
        runs=profile_rows.count,
    )
    return profile, [
        *profile_rows.notes,
        *times.notes,
        *_describe_unmatched(matched_rows, by_name, inspected.layers),
    ]


def _are_different_engines(
    unmatched_rows: Mapping[str, float],
    names: Sequence[str],
    untimed_layers: Sequence[str],
    layers: Mapping[str, object],
) -> bool:
    """Whether names differ on both sides as those of two engines of one model do, of which a fifth does not join.

    Of each recorded engine all names join.
    """
    return len(unmatched_rows) > max(2, len(names) // 10) and len(untimed_layers) > max(2, len(layers) // 10)


@dataclasses.dataclass(frozen=True)
class _MatchedRows:
    """Milliseconds by layer id and run; by name, of rows that name no layer, and of another optimization profile."""

    samples: Mapping[str, list[float]]
    unmatched: Mapping[str, float]
    other_profiles: Mapping[str, float]


def _match_rows(
    profile_rows: ProfileRows, by_name: Mapping[str, list[Layer]], selected_profile: int | None
) -> _MatchedRows:
    samples: dict[str, list[float]] = {}
    unmatched_times: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for run in profile_rows.runs:
        run_times: dict[str, float] = {}
        for name, time in run:
            plain, profile = inspector.split_profile(name)
            is_same_profile = profile is None or selected_profile is None or profile == selected_profile
            layers = by_name.get(name) or (by_name.get(plain) if is_same_profile else None)
            table, key = (run_times, layers[0].id) if layers else (unmatched_times[not is_same_profile], name)
            table[key] = table.get(key, 0.0) + time
        for key, time in run_times.items():
            samples.setdefault(key, []).append(time)
    return _MatchedRows(samples, *unmatched_times)


def _describe_unmatched(
    matched_rows: _MatchedRows, by_name: Mapping[str, list[Layer]], layers: Sequence[Layer]
) -> list[str]:
    """Notes on rows and layers that have no counterpart, or several."""
    notes = []
    for unmatched_times, target in (
        (matched_rows.unmatched, "no layer"),
        (matched_rows.other_profiles, "layers of another optimization profile"),
    ):
        if unmatched_times:
            verb = "names {} and is left out" if len(unmatched_times) == 1 else "name {} and are left out"
            time = sum(unmatched_times.values())
            notes.append(
                f"{pluralize(len(unmatched_times), 'name', 'names')} of the profile ({time:.3g} ms) "
                f"{verb.format(target)}: {format_names(unmatched_times)}."
            )
    duplicate_names = [name for name, same in by_name.items() if len(same) > 1]
    untimed_names = [
        y.name for y in layers if y.id not in matched_rows.samples and y.name not in duplicate_names
    ]
    if untimed_names:
        notes.append(
            f"{pluralize(len(untimed_names), 'layer has', 'layers have')} no time in the profile: "
            f"{format_names(untimed_names)}."
        )
    if duplicate_names:
        notes.append(
            f"{pluralize(len(duplicate_names), 'name belongs', 'names belong')} to several layers; the first of each "
            f"shows the time of all: {format_names(duplicate_names)}."
        )
    return notes


def make_mismatch_error(
    what: str, unmatched_names: Sequence[str], layer_names: Sequence[str], problem: str
) -> ReadError:
    """The error of files that belong to two engines: names that only one of them has."""
    return ReadError(
        f"Cannot join {what} to the layers: {problem}. Only there: {format_names(unmatched_names) or 'none'}; only "
        f"among the layers: {format_names(layer_names) or 'none'}. Give the layers and the "
        f"{what.split(' ', maxsplit=1)[0]} of one engine."
    )


def describe_source(device_record: DeviceRecord) -> str:
    """What to write beside a time that trtexec measured."""
    return f"trtexec on {device_record.name}" if device_record.name else "trtexec, device not recorded"


def read_outputs(path: Path, engine: Engine) -> tuple[Outputs, list[str]]:
    """Read the tensors that ``--exportOutput`` wrote.

    Raises:
        ReadError: a tensor is damaged, or none is an output of the engine.
    """
    document = contents.load_rows(path, "output", "a list of tensors")
    types = {t.name: t.dtype for t in engine.outputs}
    tensors: dict[str, NDArray[np.generic]] = {}
    for i, entry in enumerate(document.value):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise fault("output", path.name, f"row {i} has no name", 'a text under "name"')
        plain_name = inspector.split_profile(name)[0]
        tensors[plain_name] = _read_tensor(
            entry, path.name, f'row {i}, tensor "{name}"', types.get(plain_name, "")
        )
    unmatched_names = [n for n in tensors if n not in types]
    if types and len(unmatched_names) == len(tensors):
        raise make_mismatch_error(
            f'output "{path.name}"',
            unmatched_names,
            list(types),
            f"none of its {len(tensors)} tensors is an output of the engine",
        )
    notes = list(document.notes)
    if types and unmatched_names:
        notes.append(
            f"{pluralize(len(unmatched_names), 'tensor', 'tensors')} are no outputs of the engine: "
            f"{format_names(unmatched_names)}."
        )
    return tensors, notes


def _read_tensor(entry: Mapping[str, object], file: str, where: str, dtype: str) -> NDArray[np.generic]:
    dimensions, values = entry.get("dimensions"), entry.get("values")
    if not isinstance(dimensions, str) or not re.fullmatch(r"(\d{1,12}(x\d{1,12}){0,31})?", dimensions):
        problem = f'{where} has {format_value(dimensions)} under "dimensions"'
        raise fault("output", file, problem, 'a shape such as "1x10"')
    if not isinstance(values, list):
        raise fault("output", file, f'{where} has {format_value(values)} under "values"', "a list of numbers")
    bad_index = next(
        (k for k, v in enumerate(values) if isinstance(v, bool) or not isinstance(v, (int, float))), None
    )
    if bad_index is not None:
        problem = f"{where} has {format_value(values[bad_index])} as value {bad_index}"
        raise fault("output", file, problem, "a number")
    shape = tuple(int(d) for d in dimensions.split("x")) if dimensions else ()
    if math.prod(shape) != len(values):
        raise fault("output", file, f"{where} has {len(values)} values", f"{dimensions or 1} of them")
    kind = NUMPY.get(dtype, "float32")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            as_float64 = np.asarray(values, dtype=np.float64).reshape(shape)
            # Values that the type cannot hold show that the type is another.
            exact = np.asarray(values).reshape(shape)
            fits = kind.startswith("float") or (
                exact.dtype.kind in "iu" and bool((exact.astype(kind) == exact).all())
            )
            return (exact if fits and not kind.startswith("float") else as_float64).astype(
                kind if fits else "float32"
            )
    except (OverflowError, ValueError) as error:
        raise fault("output", file, f"{where} has values beyond 64 bits", "numbers") from error


def _parse_time(value: object) -> float | None:
    milliseconds = parse_number(value)
    is_time = milliseconds is not None and (milliseconds == 0 or _LEAST <= milliseconds <= _MOST)
    return milliseconds if is_time else None


def format_names(names: Sequence[str] | Mapping[str, float]) -> str:
    """The first names, quoted."""
    first = list(names)[:_LISTED]
    return quote_names(first) + (" ..." if len(names) > _LISTED else "")
