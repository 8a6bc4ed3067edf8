"""What ``trtexec`` measured: times of layers and of inferences, outputs, and trex's notes of the device."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.readers import contents, inspector, printed
from rtlab.backends.readers.contents import fault, format_value, parse_integer, parse_number
from rtlab.backends.readers.log import listing
from rtlab.backends.readers.reports import Kernel
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
#: What the name of a kernel has behind that of its tactic.
_KERNEL_END = re.compile(r"(?:_execute)?_kernel(?:_[a-z]+)?$")


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
    """Rows of a profile: milliseconds by name of each inference, or a table over ``count``; ``device`` of its log."""

    runs: tuple[tuple[tuple[str, float], ...], ...]
    count: int
    has_medians: bool
    notes: tuple[str, ...] = ()
    device: DeviceRecord = DeviceRecord()

    @functools.cached_property
    def names(self) -> list[str]:
        """Every name once, in the order of the file."""
        return list(dict.fromkeys(name for run in self.runs for name, _ in run))

    def find_profile(self) -> int | None:
        """The optimization profile that most rows name; None where none does."""
        profiles = Counter(p for n in self.names if (p := inspector.split_profile(n)[1]) is not None)
        return max(sorted(profiles), key=profiles.__getitem__, default=None)


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
    return DeviceRecord(
        name=name if isinstance(name, str) else "",
        target=_parse_target(device_info.get("Compute Capability", device_info.get("ComputeCapability"))),
        version=version if isinstance(version, str) else "",
        # Least, greatest, mean, median, then percentiles.
        latency=_parse_time(compute[3]) if isinstance(compute, list) and len(compute) > 3 else None,
    )


def _parse_target(capability: object) -> Target:
    """A target from 8.6 or [8, 6]; unknown from anything else."""
    digits = capability if isinstance(capability, list) else str(capability).split(".")
    try:
        return Target("sm" + "".join(str(int(d)) for d in digits))
    except (ValueError, TypeError, VariantError, OverflowError):
        return _UNKNOWN


def read_latencies(
    path: Path | None, device_record: DeviceRecord
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Milliseconds of whole inferences on the GPU: samples, the one median that metadata hold, or none; and notes."""
    if path is None:
        latency = device_record.latency
        return np.asarray([] if latency is None else [latency], dtype=np.float64), ()
    document = contents.parse_partial(contents.read_text(path, "times"), path.name, "times")
    rows = contents.load_rows(path, "times", 'a list of rows with "computeMs"', document).value
    compute: list[float] = []
    for i, row in enumerate(rows):
        time = _parse_time(row.get("computeMs")) if isinstance(row, dict) else None
        if time is None:
            content = (
                f'{format_value(row.get("computeMs"))} under "computeMs"'
                if isinstance(row, dict)
                else format_value(row)
            )
            expected = 'a time in milliseconds under "computeMs"'
            raise fault("times", path.name, f"row {i} has {content}", expected)
        compute.append(time)
    return np.asarray(compute, dtype=np.float64), document.notes


def read_rows(path: Path) -> ProfileRows:
    """Read the times of layers, as JSON or as a printed table; ``ReadError`` where a row has no time."""
    text = contents.read_text(path, "profile")
    if printed.TIME.search(text):
        runs = printed.parse_times(text, path.name)
        return ProfileRows(tuple(map(tuple, runs)), len(runs), has_medians=True)
    if printed.TABLE.search(text):
        return _read_table(text, path)
    document = contents.parse_partial(text, path.name, "profile")
    entries = contents.load_rows(path, "profile", "a list of rows with a name and a time", document).value
    contents.check_layer_count("profile", path.name, len(entries))
    count = 0
    named_rows: list[tuple[int, dict[str, object]]] = []
    for i, row in enumerate(entries):
        if isinstance(row, dict) and "name" not in row and "count" in row:
            count = count or max(0, parse_integer(row["count"]) or 0)
        elif isinstance(row, dict) and isinstance(row.get("name"), str):
            named_rows.append((i, row))
        else:
            problem = f"keys {contents.format_keys(row)}" if isinstance(row, dict) else format_value(row)
            raise fault("profile", path.name, f"row {i} holds {problem}", '"name" and "averageMs"')
    if not named_rows:
        raise fault(
            "profile", path.name, "row 0: there is none with a name and a time", "a row for each layer"
        )
    has_medians = all("medianMs" in row for _, row in named_rows)
    key = "medianMs" if has_medians else "averageMs"
    table = []
    for i, row in named_rows:
        time = _parse_time(row.get(key))
        if time is None:
            problem = f'row "{row["name"]}" has no time (row {i}, key "{key}": {format_value(row.get(key))})'
            raise fault("profile", path.name, problem, "milliseconds")
        table.append((str(row["name"]), time))
    return ProfileRows((tuple(table),), count, has_medians, document.notes)


def _read_table(text: str, path: Path) -> ProfileRows:
    """Rows of a table that trtexec printed, and what its log tells of the device."""
    table = printed.parse_table(text, path.name)
    notes = [f'The times in the table of "{path.name}" are rounded to 0.1 µs.']
    if not table.is_complete:
        notes.append(f'The table of "{path.name}" ends before its total, so layers may be missing.')
    header = listing.read_header(text.splitlines())
    device = DeviceRecord(header.device, header.target, header.version, header.latency)
    return ProfileRows((table.rows,), table.count, table.medians, tuple(notes), device)


def join_times(
    rows: ProfileRows,
    inspected: inspector.InspectedEngine,
    path: Path,
    device_record: DeviceRecord,
    latencies: NDArray[np.float64],
) -> tuple[Profile, list[str]]:
    """Times by layer, joined by name, and notes on the rest; ``ReadError`` where the names are another engine's."""
    by_name: dict[str, list[Layer]] = {}
    for layer in inspected.layers:
        by_name.setdefault(layer.name, []).append(layer)
    samples, unmatched = _match_rows(rows, by_name, inspected.profile)
    match_count = len(rows.names) - len(unmatched[0]) - len(unmatched[1])
    untimed_names = [n for n, same in by_name.items() if same[0].id not in samples]
    differ = _are_different_engines(len(unmatched[0]), len(rows.names), len(untimed_names), len(by_name))
    if not samples or match_count < len(unmatched[0]) or differ:
        raise make_mismatch_error(
            f'profile "{path.name}"',
            list(unmatched[0] or unmatched[1]),
            untimed_names,
            f"{match_count or 'none'} of its {len(rows.names)} rows {'name' if match_count > 1 else 'names'} "
            f"one of the {len(inspected.layers)} layers",
        )
    notes = list(rows.notes)
    for times, target in zip(unmatched, ("no layer", "layers of another optimization profile"), strict=True):
        if times:
            notes.append(
                f"{pluralize(len(times), 'name', 'names')} of the profile ({sum(times.values()):.3g} ms), left out, "
                f"{'belongs' if len(times) == 1 else 'belong'} to {target}: {format_names(times)}."
            )
    if untimed_names:
        notes.append(
            f"{pluralize(len(untimed_names), 'layer has', 'layers have')} no time in the profile: "
            f"{format_names(untimed_names)}."
        )
    if duplicate_names := [name for name, same in by_name.items() if len(same) > 1]:
        notes.append(
            f"{pluralize(len(duplicate_names), 'name belongs', 'names belong')} to several layers; the first of each "
            f"shows the time of all: {format_names(duplicate_names)}."
        )
    profile = Profile(
        source=describe_source(device_record),
        device="",
        samples={i: np.array(t) for i, t in samples.items()},
        total=latencies,
        warmup=0,
        taken=None,
        note="" if rows.has_medians else "Times of layers are means, because the file holds no medians",
        processor="GPU",
        runs=rows.count,
    )
    return profile, notes


def join_kernels(
    kernels: Sequence[Kernel], layers: Sequence[Layer], latencies: NDArray[np.float64]
) -> tuple[Profile | None, list[str]]:
    """Times by layer of kernels in a capture, joined by tactic; None where none joins; and notes on the rest.

    A kernel is launched once for each of its layers in an inference, which tells how many inferences there are. The
    first of several layers of a kernel has the time of all, as in ``join_times``.
    """
    by_tactic: dict[str, list[Layer]] = {}
    for layer in layers:
        by_tactic.setdefault(layer.tactic, []).append(layer)
    joined = [
        (k, same)
        for k in kernels
        if (same := by_tactic.get(k.name) or by_tactic.get(_KERNEL_END.sub("", k.name)))
    ]
    counts = Counter(
        k.launches // len(same) for k, same in joined if k.launches and not k.launches % len(same)
    )
    if not counts:
        note = (
            f"No time of a layer: none of the {pluralize(len(kernels), 'kernel')} in the table of Nsight Systems is, "
            f"by name and launches, the tactic of layers ({format_names([k.name for k in kernels])}). Give the layers "
            "of the engine that ran, exported with --profilingVerbosity=detailed."
        )
        return None, [note]
    runs = max(counts, key=lambda n: (counts[n], -n))
    samples: defaultdict[str, float] = defaultdict(float)
    for kernel, same in joined:
        samples[same[0].id] += kernel.milliseconds / runs
    joined_names = {k.name for k, _ in joined}
    notes = []
    if rest := {k.name: k.milliseconds for k in kernels if k.name not in joined_names}:
        notes.append(
            f"{pluralize(len(rest), 'kernel')} ({sum(rest.values()):.3g} ms of the capture), left out, "
            f"{'is the tactic' if len(rest) == 1 else 'are tactics'} of no layer: {format_names(rest)}."
        )
    if shared_names := [k.name for k, same in joined if len(same) > 1]:
        notes.append(
            f"{pluralize(len(shared_names), 'kernel runs', 'kernels run')} several layers; the first of each shows the "
            f"time of all: {format_names(shared_names)}."
        )
    timed_ids = {y.id for _, same in joined for y in same}
    if untimed_names := [y.name for y in layers if y.id not in timed_ids]:
        notes.append(
            f"{pluralize(len(untimed_names), 'layer has', 'layers have')} no kernel in the table: "
            f"{format_names(untimed_names)}."
        )
    note = f"Times of layers are those of kernels in the capture, divided by {pluralize(runs, 'inference')}, the "
    profile = Profile(
        source="Nsight Systems, device not recorded",
        device="",
        samples={i: np.array([t]) for i, t in samples.items()},
        total=latencies,
        warmup=0,
        taken=None,
        note=f"{note}launches per layer of {counts[runs]} of {pluralize(len(joined), 'joined kernel')}",
        processor="GPU",
        runs=runs,
    )
    return profile, notes


def _are_different_engines(unmatched: int, names: int, untimed: int, layers: int) -> bool:
    """Whether names differ on both sides as those of two engines of one model; of recorded engines all names join."""
    return unmatched > max(2, names // 10) and untimed > max(2, layers // 10)


def _match_rows(
    rows: ProfileRows, by_name: Mapping[str, list[Layer]], selected_profile: int | None
) -> tuple[Mapping[str, list[float]], tuple[Mapping[str, float], Mapping[str, float]]]:
    """Milliseconds by layer id and run; by name, of rows that name no layer, and of another optimization profile."""
    samples: defaultdict[str, list[float]] = defaultdict(list)
    unmatched: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for run in rows.runs:
        run_times = Counter[str]()
        for name, time in run:
            plain, profile = inspector.split_profile(name)
            is_other = profile is not None and selected_profile not in {None, profile}
            layers = by_name.get(name) or (None if is_other else by_name.get(plain))
            if layers:
                run_times[layers[0].id] += time  # type: ignore[assignment]
            else:
                unmatched[is_other][name] += time  # type: ignore[assignment]
        for key, time in run_times.items():
            samples[key].append(time)
    return samples, unmatched


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


def read_outputs(path: Path, engine: Engine) -> tuple[Outputs, tuple[str, ...]]:
    """Read what ``--exportOutput`` wrote; ``ReadError`` where it is damaged or holds no output of the engine."""
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
    notes = document.notes
    if types and unmatched_names:
        notes += (f"These tensors are no outputs of the engine: {format_names(unmatched_names)}.",)
    return tensors, notes


def _read_tensor(entry: Mapping[str, object], file: str, where: str, dtype: str) -> NDArray[np.generic]:
    dimensions, values = entry.get("dimensions"), entry.get("values")
    if not isinstance(dimensions, str) or not re.fullmatch(r"(\d{1,12}(x\d{1,12}){0,31})?", dimensions):
        problem = f'{where} has {format_value(dimensions)} under "dimensions"'
        raise fault("output", file, problem, 'a shape such as "1x10"')
    shape = tuple(int(d) for d in dimensions.split("x")) if dimensions else ()
    if not isinstance(values, list) or set(map(type, values)) - {int, float}:
        raise fault("output", file, f'{where} has no list of numbers under "values"', "a list of numbers")
    if math.prod(shape) != len(values):
        raise fault("output", file, f"{where} has {len(values)} values", f"{dimensions or 1} of them")
    kind = NUMPY.get(dtype, "float32")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            if kind.startswith("float"):
                return np.asarray(values, dtype=np.float64).reshape(shape).astype(kind)
            # Values that the type cannot hold show that the type is another.
            exact = np.asarray(values).reshape(shape)
            fits = exact.dtype.kind in "iu" and bool((exact.astype(kind) == exact).all())
            return exact.astype(kind if fits else "float32")
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


def read_results(path: Path) -> tuple[str, Outputs, Outputs | None, tuple[str, ...]]:
    """What Polygraphy saved: a runner, TensorRT's or the first, its tensors, another's, notes; or ``ReadError``."""
    from polygraphy.comparator import RunResults
    from polygraphy.logger import G_LOGGER

    document = contents.load(path, "results")
    try:
        # What it would log of an error is in the error.
        with G_LOGGER.verbosity(G_LOGGER.CRITICAL + 1):
            results = RunResults.from_json(json.dumps(document.value))
            runners = [(str(name), list(iterations)) for name, iterations in results.items()]
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise fault(
            "results", path.name, f'key "lst": Polygraphy refuses what is in it ({reason})', "its RunResults"
        ) from error
    if not runners:
        raise fault("results", path.name, 'key "lst": there is no runner', "a runner and its outputs")
    # A TensorRT runner is what the engine gave; the others say what it should have given.
    runners.sort(key=lambda r: not r[0].startswith("trt"))
    tensors = [_read_iteration(name, iterations, path.name) for name, iterations in runners[:2]]
    notes = list(document.notes)
    if len(runners) > 1:
        notes.append(
            f'Outputs are those of runner "{runners[0][0]}", the reference those of "{runners[1][0]}".'
        )
    return runners[0][0], tensors[0], tensors[1] if len(tensors) > 1 else None, tuple(notes)


def _read_iteration(name: str, iterations: list[Any], file: str) -> Outputs:
    where = f'key "lst", runner "{name}"'
    if not iterations:
        raise fault("results", file, f"{where}: it has no iteration", "its outputs")
    try:
        tensors = {str(key): np.asarray(value) for key, value in list(iterations[0].items())}
    except Exception as error:
        raise fault("results", file, f"{where}: no tensors ({error})", "its outputs") from error
    if not tensors or any(v.dtype.kind not in "fiub" for v in tensors.values()):
        raise fault("results", file, f"{where}: it has no tensors of numbers", "its outputs")
    return tensors
