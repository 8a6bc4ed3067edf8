"""Reads what ``trtexec`` wrote on another machine: layers, times of layers, latencies, device."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rtlab.backends import _inspector
from rtlab.core.engine import Engine, Layer
from rtlab.core.protocols import Availability, Capabilities
from rtlab.core.trace import Profile, Recording
from rtlab.core.variant import Target
from rtlab.errors import ReadError, VariantError

#: Names that a note lists before it says that there are more.
_LISTED = 3
_AGAIN = {
    "layers": "Export it again with trtexec --exportLayerInfo=layers.json --profilingVerbosity=detailed.",
    "profile": "Export it again with trtexec --exportProfile=profile.json --separateProfileRun.",
    "times": "Export it again with trtexec --exportTimes=times.json.",
    "metadata": "Leave it out, or give what trex's parse_trtexec_log wrote.",
}
#: The writer of the profile does not escape names.
_UNESCAPED = re.compile(r'("name"\s*:\s*")(.*)("\s*,\s*"timeMs")')


_UNKNOWN = Target("unknown")


@dataclasses.dataclass(frozen=True)
class _Device:
    name: str = ""
    target: Target = _UNKNOWN
    version: str = ""
    latency: float | None = None


class Trtexec:
    """Files of ``trtexec``, TensorRT 8.2 to 11.x.

    Keys of ``read``: ``layers`` (``--exportLayerInfo``), and optionally ``profile`` (``--exportProfile``), ``times``
    (``--exportTimes``) and ``metadata`` (the JSON of device and latency that NVIDIA's trex writes beside them).
    """

    name = "trtexec"

    def availability(self) -> Availability:
        """Reading needs nothing installed."""
        return Availability(ok=True, version="files of TensorRT 8.2 to 11")

    def capabilities(self) -> Capabilities:
        """It reads; nothing is built or run."""
        return Capabilities(targets=(), precisions=(), reads=True)

    def read(self, files: Mapping[str, Path]) -> Recording:
        """Read an engine and, where there is a profile, the times of its layers.

        Times are joined to layers by name. What does not join is told in ``Engine.notes``.

        Raises:
            ReadError: a file is missing, damaged or of another kind, or no row of the profile names a layer.
        """
        unknown = set(files) - set(_AGAIN)
        if unknown or "layers" not in files:
            found = f'there is no kind "{min(unknown)}"' if unknown else "no layer file is given"
            raise ReadError(
                f'Cannot read trtexec files: {found}. Give layers="layers.json" and, if you have them, profile, times '
                "and metadata."
            )
        inspected = _inspector.parse(_json(files["layers"], "layers"), files["layers"].name)
        device = _device(files.get("metadata"))
        notes = list(inspected.notes)
        latencies = _latencies(files.get("times"), device)
        profile, told = _profile(files.get("profile"), inspected, device, latencies)
        notes += told
        engine = Engine(
            backend=self.name,
            version=device.version,
            target=device.target,
            layers=inspected.layers,
            inputs=inspected.inputs,
            outputs=inspected.outputs,
            notes=tuple(notes),
            device=device.name,
        )
        return Recording(engine, profile)


def _json(path: Path, kind: str) -> Any:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ReadError(
            f'Cannot read {kind} file "{path}": {error.strerror or error}. Check the path.'
        ) from error
    except UnicodeDecodeError as error:
        raise ReadError(f'Cannot read {kind} file "{path.name}": it is not text. {_AGAIN[kind]}') from error
    try:
        # Control characters stand in strings as they are.
        return json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        if kind == "profile":
            try:
                return json.loads(_UNESCAPED.sub(_escape, text), strict=False)
            except (ValueError, RecursionError):
                pass
        raise ReadError(
            f'Cannot read {kind} file "{path.name}": it is not whole JSON ({error}). {_AGAIN[kind]}'
        ) from error


def _escape(row: re.Match[str]) -> str:
    return row[1] + row[2].replace("\\", "\\\\").replace('"', '\\"') + row[3]


def _device(path: Path | None) -> _Device:
    if path is None:
        return _Device()
    found = _json(path, "metadata")
    entry = found[0] if isinstance(found, list) and found else found
    if not isinstance(entry, dict):
        raise ReadError(f'Cannot read metadata file "{path.name}": it holds no object. {_AGAIN["metadata"]}')
    told = entry.get("device_information")
    told = told if isinstance(told, dict) else entry
    name = told.get("Selected Device") or told.get("Name")
    version = entry.get("TensorRT version") or told.get("TensorRT version")
    summary = entry.get("performance_summary")
    compute = summary.get("GPU Compute Time") if isinstance(summary, dict) else None
    # Least, greatest, mean, median, then percentiles.
    median = compute[3] if isinstance(compute, list) and len(compute) > 3 else None
    return _Device(
        name=name if isinstance(name, str) else "",
        target=_target(told.get("Compute Capability", told.get("ComputeCapability"))),
        version=version if isinstance(version, str) else "",
        latency=float(median) if median is not None and _time(median) else None,
    )


def _target(capability: object) -> Target:
    """A target from 8.6 or [8, 6]; unknown from anything else."""
    digits = capability if isinstance(capability, list) else str(capability).split(".")
    try:
        return Target("sm" + "".join(str(int(d)) for d in digits))
    except (ValueError, TypeError, VariantError, OverflowError):
        return _UNKNOWN


def _latencies(path: Path | None, device: _Device) -> list[float]:
    """Times of whole inferences on the GPU in milliseconds: samples, or one median, or nothing."""
    if path is None:
        return [] if device.latency is None else [device.latency]
    rows = _json(path, "times")
    times = [r.get("computeMs") for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    if not times or not all(_time(t) for t in times):
        raise ReadError(
            f'Cannot read times file "{path.name}": it is no list of rows with "computeMs". {_AGAIN["times"]}'
        )
    return [float(t) for t in times if t is not None]


def _profile(
    path: Path | None, inspected: _inspector.Inspected, device: _Device, latencies: Sequence[float]
) -> tuple[Profile | None, list[str]]:
    where = f"trtexec on {device.name}" if device.name else "trtexec, device not recorded"
    total = np.asarray(latencies, dtype=np.float64)
    if path is None:
        if not latencies:
            return None, []
        return Profile(where, "", {}, total, warmup=0, taken=None, processor="GPU"), []
    rows, count, key = _rows(path)
    by_name: dict[str, list[Layer]] = {}
    for layer in inspected.layers:
        by_name.setdefault(layer.name, []).append(layer)
    samples: dict[str, float] = {}
    strange: dict[str, float] = {}
    for name, time in rows:
        plain, profile = _inspector.bare(name)
        same = profile is None or inspected.profile is None or profile == inspected.profile
        layers = by_name.get(name) or (by_name.get(plain) if same else None)
        if layers:
            samples[layers[0].id] = samples.get(layers[0].id, 0.0) + time
        else:
            strange[name] = strange.get(name, 0.0) + time
    if not samples:
        raise ReadError(
            f'Cannot join profile "{path.name}" to the layers: none of its {len(rows)} rows names one of the '
            f"{len(inspected.layers)} layers. Give the layers and the profile of one engine."
        )
    notes = []
    if strange:
        notes.append(
            f"{_many(strange, 'name', 'names')} of the profile "
            f"({sum(strange.values()):.3g} ms) name no layer and are left out: {_listed(strange)}."
        )
    twins = [name for name, layers in by_name.items() if len(layers) > 1]
    silent = [y.name for y in inspected.layers if y.id not in samples and y.name not in twins]
    if silent:
        notes.append(
            f"{_many(silent, 'layer has', 'layers have')} no time in the profile: {_listed(silent)}."
        )
    if twins:
        notes.append(
            f"{_many(twins, 'name belongs', 'names belong')} to several layers; the first of each shows the time "
            f"of all: {_listed(twins)}."
        )
    return (
        Profile(
            source=where,
            device="",
            samples={i: np.array([t]) for i, t in samples.items()},
            total=total,
            warmup=0,
            taken=None,
            note="" if key == "medianMs" else "Times of layers are means, because the file holds no medians",
            processor="GPU",
            runs=count,
        ),
        notes,
    )


def _rows(path: Path) -> tuple[list[tuple[str, float]], int, str]:
    """Rows of name and milliseconds, the number of inferences, and the key that the milliseconds are from."""
    found = _json(path, "profile")
    entries = [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []
    rows = [e for e in entries if isinstance(e.get("name"), str)]
    key = "medianMs" if all("medianMs" in e for e in rows) else "averageMs"
    if not rows or not all(_time(e.get(key)) for e in rows):
        bad = next((e["name"] for e in rows if not _time(e.get(key))), "")
        what = f'row "{bad}" has no time' if rows else "it holds no rows with a name and a time"
        raise ReadError(f'Cannot read profile file "{path.name}": {what}. {_AGAIN["profile"]}')
    count = next((e["count"] for e in entries if isinstance(e.get("count"), int)), 0)
    return [(e["name"], float(e[key])) for e in rows], max(0, count), key


def _time(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf and not isinstance(value, bool)


def _many(items: Sequence[str] | Mapping[str, float], one: str, more: str) -> str:
    return f"{len(items)} {one if len(items) == 1 else more}"


def _listed(names: Sequence[str] | Mapping[str, float]) -> str:
    first = list(names)[:_LISTED]
    return ", ".join(f'"{n}"' for n in first) + (" ..." if len(names) > _LISTED else "")
