"""TensorRT 10's implicit INT8: its own calibrators, fed with rtlab's samples or a cache. Runs in the child process."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.errors import CalibrationError, VariantError

if TYPE_CHECKING:
    from rtlab.backends.workers.job_spec import BuildSpec, CalibratorInput

_HEADER = re.compile(rb"TRT-(\d+)-(\w+)")


def has_calibrators(product: str) -> bool:
    """Whether a release may have calibrators, by its name with its version; the binding has the last word."""
    return re.match(r"TensorRT (?!(1[1-9]|[2-9]\d)\.)", product) is not None


def create_unsupported_error(error_prefix: str, product: str) -> VariantError:
    """What to say of a release without calibrators."""
    return VariantError(
        f"{error_prefix}: {product} has no calibrators, which implicit INT8 needs. Leave out implicit=True: INT8 then "
        "stands in the graph as explicit Q/DQ pairs, which is rtlab's default."
    )


def attach(trt: Any, builder: Any, config: Any, spec: BuildSpec, report: Any) -> Any:
    """Ask for INT8 and give the configuration a calibrator; returns it, None where none is wanted.

    Raises:
        VariantError: this TensorRT has no calibrators.
    """
    calibrator_input = spec.calibration
    if calibrator_input is None:
        return None
    if not hasattr(trt, "IInt8Calibrator"):
        raise create_unsupported_error(spec.error_prefix, f"{spec.product} {trt.__version__}")
    from polygraphy.backend.trt import Calibrator

    from rtlab.backends.workers import loaded

    loaded.find_runtime()
    bases = {
        "EntropyCalibration2": trt.IInt8EntropyCalibrator2,
        "EntropyCalibration": trt.IInt8EntropyCalibrator,
        "MinMaxCalibration": trt.IInt8MinMaxCalibrator,
        "LegacyCalibration": trt.IInt8LegacyCalibrator,
    }
    calibrator = Calibrator(
        _Batches(calibrator_input, report),
        cache=_write_cache_file(calibrator_input, trt.__version__),
        BaseClass=bases[calibrator_input.algorithm],
        quantile=calibrator_input.quantile,
        # A regression that starts at the maximum changes nothing: the quantile alone counts.
        regression_cutoff=1.0,
    )
    config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = calibrator
    if calibrator_input.shapes and spec.profiles:
        profile = builder.create_optimization_profile()
        for name, shape in calibrator_input.shapes.items():
            profile.set_shape(name, shape, shape, shape)
        config.set_calibration_profile(profile)
    return calibrator


def read_cache(calibrator: Any, spec: BuildSpec, *, done: bool) -> tuple[str, tuple[str, ...]]:
    """The text of the cache that was read or made, and what the reader must know of it.

    Raises:
        CalibrationError: TensorRT stopped before it had seen all samples, since one could not be copied to the GPU.
    """
    calibrator_input = spec.calibration
    if calibrator is None or calibrator_input is None:
        return "", ()
    text = bytes(calibrator.cache_contents or b"")
    # A refusal of the network before calibration has another reason.
    if calibrator.num_batches < calibrator_input.count and (done or calibrator.num_batches):
        raise CalibrationError(
            f"{spec.error_prefix}: TensorRT's calibrator took {calibrator.num_batches} of {calibrator_input.count} "
            "batches. Look for the reason in the log; the GPU's memory may be too small for a batch."
        )
    old, new = _HEADER.match(calibrator_input.cache), _HEADER.match(text)
    notes: tuple[str, ...] = ()
    if old and not (new and new[1] == old[1]):
        notes = (f"scales of a calibration cache of TensorRT {old[1].decode()} were used as they are",)
    return text.decode("utf-8", "replace"), notes


class _Batches:
    """The batches in a folder, in order, one in memory at a time."""

    def __init__(self, calibrator_input: CalibratorInput, report: Any) -> None:
        self._calibrator_input, self._report = calibrator_input, report

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read one file after the other."""
        for number in range(self._calibrator_input.count):
            if number == 0:
                self._report.phase("Calibrating", self._calibrator_input.count)
            yield pickle.loads(batch_path(self._calibrator_input.folder, number).read_bytes())  # noqa: S301 - our own file
            self._report.advance()


def batch_path(folder: str, number: int) -> Path:
    """Where a batch is kept."""
    return Path(folder) / f"batch-{number:07}.pickle"


def _write_cache_file(calibrator_input: CalibratorInput, version: str) -> str | None:
    """The cache in a file, with the version of this TensorRT in its header: one of another version would be ignored."""
    if not calibrator_input.cache:
        return None
    major, minor, patch = (int(n) for n in re.findall(r"\d+", version)[:3])
    number = major * 10000 + minor * 100 + patch
    file = Path(calibrator_input.folder) / "calibration.cache"
    file.write_bytes(
        _HEADER.sub(lambda match: b"TRT-%d-%s" % (number, match[2]), calibrator_input.cache, count=1)
    )
    return str(file)
