"""TensorRT 10's implicit INT8: its own calibrators, fed with rtlab's samples or a cache. Runs in the child process."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.errors import CalibrationError, VariantError

if TYPE_CHECKING:
    from rtlab.backends.live.order import BuildOrder, CalibratorInput

_HEADER = re.compile(rb"TRT-(\d+)-(\w+)")


def exists(product: str) -> bool:
    """Whether a release may have calibrators, by its name with its version; the binding has the last word."""
    name, _, version = product.partition(" ")
    return name == "TensorRT" and not re.match(r"(1[1-9]|[2-9]\d)\.", version)


def refusal(doing: str, product: str) -> VariantError:
    """What to say of a release without calibrators."""
    return VariantError(
        f"{doing}: {product} has no calibrators, which implicit INT8 needs. Leave out implicit=True: INT8 then stands "
        "in the graph as explicit Q/DQ pairs, which is rtlab's default."
    )


def attach(trt: Any, builder: Any, config: Any, order: BuildOrder, report: Any) -> Any:
    """Ask for INT8 and give the configuration a calibrator; returns it, None where none is wanted.

    Raises:
        VariantError: this TensorRT has no calibrators.
    """
    wanted = order.calibration
    if wanted is None:
        return None
    if not hasattr(trt, "IInt8Calibrator"):
        raise refusal(order.label, f"{order.product} {trt.__version__}")
    from polygraphy.backend.trt import Calibrator

    from rtlab.backends.live import loaded

    loaded.find_runtime()
    bases = {
        "EntropyCalibration2": trt.IInt8EntropyCalibrator2,
        "EntropyCalibration": trt.IInt8EntropyCalibrator,
        "MinMaxCalibration": trt.IInt8MinMaxCalibrator,
        "LegacyCalibration": trt.IInt8LegacyCalibrator,
    }
    calibrator = Calibrator(
        _Batches(wanted, report),
        cache=_cache_file(wanted, trt.__version__),
        BaseClass=bases[wanted.algorithm],
        quantile=wanted.quantile,
        # A regression that starts at the maximum changes nothing: the quantile alone counts.
        regression_cutoff=1.0,
    )
    config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = calibrator
    if wanted.shapes and order.profiles:
        profile = builder.create_optimization_profile()
        for name, shape in wanted.shapes.items():
            profile.set_shape(name, shape, shape, shape)
        config.set_calibration_profile(profile)
    return calibrator


def outcome(calibrator: Any, order: BuildOrder, *, done: bool) -> tuple[str, tuple[str, ...]]:
    """The text of the cache that was read or made, and what the reader must know of it.

    Raises:
        CalibrationError: TensorRT stopped before it had seen all samples, since one could not be copied to the GPU.
    """
    wanted = order.calibration
    if calibrator is None or wanted is None:
        return "", ()
    text = calibrator.cache_contents or b""
    # A refusal of the network before calibration has another reason.
    if calibrator.num_batches < wanted.count and (done or calibrator.num_batches):
        raise CalibrationError(
            f"{order.label}: TensorRT's calibrator took {calibrator.num_batches} of {wanted.count} batches. "
            "Look for the reason in the log; the GPU's memory may be too small for a batch."
        )
    used, _ = _header(wanted.cache)
    made, _ = _header(bytes(text))
    changed = f"scales of a calibration cache of TensorRT {used} were used as they are"
    return bytes(text).decode("utf-8", "replace"), (changed,) if used and used != made else ()


class _Batches:
    """The batches in a folder, in order, one in memory at a time."""

    def __init__(self, wanted: CalibratorInput, report: Any) -> None:
        self._wanted, self._report = wanted, report

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read one file after the other."""
        for number in range(self._wanted.count):
            if number == 0:
                self._report.phase("Calibrating", self._wanted.count)
            yield pickle.loads(batch_path(self._wanted.folder, number).read_bytes())  # noqa: S301 - our own file
            self._report.advance()


def batch_path(folder: str, number: int) -> Path:
    """Where a batch is kept."""
    return Path(folder) / f"batch-{number:07}.pickle"


def _header(cache: bytes) -> tuple[str, str]:
    found = _HEADER.match(cache)
    return (found[1].decode(), found[2].decode()) if found else ("", "")


def _cache_file(wanted: CalibratorInput, version: str) -> str | None:
    """The cache in a file, with the version of this TensorRT in its header: one of another version would be ignored."""
    if not wanted.cache:
        return None
    major, minor, patch = (int(n) for n in re.findall(r"\d+", version)[:3])
    number = major * 10000 + minor * 100 + patch
    file = Path(wanted.folder) / "calibration.cache"
    file.write_bytes(_HEADER.sub(lambda found: b"TRT-%d-%s" % (number, found[2]), wanted.cache, count=1))
    return str(file)
