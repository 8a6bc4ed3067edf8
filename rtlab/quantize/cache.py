"""TensorRT's calibration caches: the scales of an INT8 calibration as a text file.

The first line is ``TRT-<version>-<algorithm>``; each other line a tensor and the big-endian hexadecimal digits
of its float32 scale, which is ``amax / 127``. A ``0`` says that the tensor has no range.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rtlab.core import files
from rtlab.core.calibrators import TENSORRT_CALIBRATORS
from rtlab.core.inputs import read_input
from rtlab.core.scale import Scale
from rtlab.errors import CalibrationError, ReadError

_STEPS = 127
_HEADER = re.compile(r"TRT-(\d+)-(\w+)")
_BITS = re.compile(r"[0-9a-fA-F]{1,8}")


@dataclasses.dataclass(frozen=True)
class CacheDifference:
    """One tensor of two caches.

    ``one`` and ``two`` are its amax in the value's unit, 0 where it has no range and None where a cache does not
    have the tensor. ``ratio`` is ``two / one``, None where one of them is 0 or None.
    """

    tensor: str
    one: float | None
    two: float | None

    @property
    def ratio(self) -> float | None:
        """How many times as wide the second range is."""
        return self.two / self.one if self.one and self.two else None

    @property
    def distance(self) -> float:
        """Octaves between the two, 0 where they agree; infinite where only one cache has a range."""
        if self.ratio is not None:
            return abs(math.log2(self.ratio))
        return 0.0 if self.one == self.two else math.inf


@dataclasses.dataclass(frozen=True)
class CalibrationCache:
    """The scales that TensorRT takes for implicit INT8, tensor by tensor, in the order of the file.

    ``version`` is the number in the header, such as ``8600`` for 8.6.0 or ``100300`` for 10.3.0. ``values`` are
    float32 scales in the value's unit; 0 says that the tensor has no range.
    """

    version: str
    algorithm: str
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", _encode_version(self.version))
        if self.algorithm not in TENSORRT_CALIBRATORS:
            raise CalibrationError(
                f'Cannot make a calibration cache of algorithm "{self.algorithm}": TensorRT has no such calibrator. '
                f"Choose one of {', '.join(TENSORRT_CALIBRATORS)}."
            )
        for tensor, scale in self.values.items():
            is_line = "\n" not in tensor and "\r" not in tensor
            if reason := _describe_scale_error(scale) or ("" if is_line else "its name is not one line"):
                raise CalibrationError(
                    f'Cannot put tensor "{tensor}" into a calibration cache: {reason}. '
                    "Give a finite scale above zero, or zero for no range."
                )

    def __repr__(self) -> str:
        none = sum(not scale for scale in self.values.values())
        size = f"{len(self.values)} tensors, {none} without range"
        return f"<CalibrationCache TRT-{self.version}-{self.algorithm}: {size}>"

    @classmethod
    def of(
        cls, scales: Mapping[str, Scale], *, algorithm: str = "EntropyCalibration2", version: str
    ) -> CalibrationCache:
        """A cache of scales by tensor, of which an amax of 0 is no range.

        TensorRT reads a cache only in the same ``version``, ``10.3.0`` or ``100300``, and with a calibrator of the
        class ``algorithm``, one of ``TENSORRT_CALIBRATORS``.

        Raises:
            CalibrationError: a scale is not finite, or the version or algorithm is none.
        """
        return cls(version, algorithm, {tensor: _compute_scale(s.amax) for tensor, s in scales.items()})

    @classmethod
    def read(cls, path: str | Path) -> CalibrationCache:
        """Read a cache file.

        Raises:
            ReadError: it is missing or damaged; the message names the line and what belongs there.
        """
        try:
            content = read_input(path)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or error
            raise ReadError(
                f'Cannot read calibration cache "{path}": {reason}. Name a file that trtexec '
                "--calib or a calibrator wrote.",
                details=repr(error),
            ) from error
        return cls.parse(content, name=str(path))

    @classmethod
    def parse(cls, content: bytes, *, name: str = "calibration cache") -> CalibrationCache:
        """Read the bytes of a cache, as an ``IInt8Calibrator`` holds them; ``name`` is for messages.

        Raises:
            ReadError: as ``read``.
        """
        lines = _iter_lines(content, name)
        number, header = next(lines, (1, ""))
        match = _HEADER.fullmatch(header)
        if match is None or match[2] not in TENSORRT_CALIBRATORS:
            expected = f"TRT-<version>-<one of {', '.join(TENSORRT_CALIBRATORS)}>"
            raise _make_read_error(name, number, header, expected)
        values: dict[str, float] = {}
        for number, line in lines:
            # Names hold colons and spaces as well.
            tensor, mark, bits = line.rpartition(": ")
            if not mark or not _BITS.fullmatch(bits):
                raise _make_read_error(name, number, line, '"tensor: " and at most eight hexadecimal digits')
            scale = float(np.uint32(int(bits, 16)).view(np.float32))
            if _describe_scale_error(scale) or math.copysign(1.0, scale) < 0:
                expected = f"the bits of a finite scale of zero or more; these are {scale}"
                raise _make_read_error(name, number, line, expected)
            if tensor in values:
                raise _make_read_error(name, number, line, "each tensor once; this one stands above already")
            values[tensor] = scale
        return cls(match[1], match[2], values)

    def encode(self) -> bytes:
        """The bytes of the file."""
        rows = (f"{tensor}: {int(np.float32(s).view(np.uint32)):x}" for tensor, s in self.values.items())
        return "".join(f"{line}\n" for line in (f"TRT-{self.version}-{self.algorithm}", *rows)).encode()

    def write(self, path: str | Path) -> Path:
        """Write the file; one that was there is replaced when the new one is complete.

        Raises:
            RtlabError: it cannot be written there.
        """
        files.write(Path(path), self.encode(), what="the calibration cache")
        return Path(path)

    @property
    def amax(self) -> Mapping[str, float]:
        """The largest magnitude that INT8 represents of each tensor that has a range, in the value's unit."""
        return {tensor: scale * _STEPS for tensor, scale in self.values.items() if scale}

    def scales(self) -> Mapping[str, Scale]:
        """Scales for Q/DQ pairs, of the tensors that have a range."""
        return {tensor: Scale(amax) for tensor, amax in self.amax.items()}

    def compare(self, other: CalibrationCache) -> tuple[CacheDifference, ...]:
        """Every tensor of either cache, the furthest apart first."""
        ours = {t: s * _STEPS for t, s in self.values.items()}
        theirs = {t: s * _STEPS for t, s in other.values.items()}
        pairs = (CacheDifference(t, ours.get(t), theirs.get(t)) for t in dict.fromkeys((*ours, *theirs)))
        return tuple(sorted(pairs, key=lambda d: -d.distance))


def _iter_lines(content: bytes, name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; blank ones at the end are none."""
    for number, raw in enumerate(content.rstrip(b"\r\n").split(b"\n"), 1):
        line = raw.removesuffix(b"\r").decode(errors="replace")
        if line.encode() != raw.removesuffix(b"\r"):
            raise _make_read_error(name, number, line, "UTF-8 text")
        yield number, line


def _make_read_error(name: str, number: int, line: str, expected: str) -> ReadError:
    excerpt = line if len(line) <= 80 else line[:77] + "..."
    return ReadError(
        f'Cannot read calibration cache "{name}": line {number} is "{excerpt}", not {expected}. '
        "Calibrate again, or repair that line."
    )


def _compute_scale(amax: float) -> float:
    """``amax / 127`` as float32, never so small that it reads as no range; what is no number stays none."""
    with np.errstate(over="ignore"):  # to infinity, which is refused
        scale = float(np.float32(amax / _STEPS))
    return max(scale, float(np.finfo(np.float32).tiny)) if amax > 0 else scale


def _describe_scale_error(scale: float) -> str:
    """Why this is no scale of a cache."""
    return "" if math.isfinite(scale) and scale >= 0 else f"its scale is {scale}"


def _encode_version(version: str) -> str:
    """A version as the header writes it: major, minor and patch as one number, with three digits less before 10."""
    if re.fullmatch(r"\d+", version):
        return version
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise CalibrationError(
            f'Cannot use "{version}" as a TensorRT version: it is no number. Give for example "10.3.0" or "100300".'
        )
    major, minor, patch = (int(n or 0) for n in match.groups())
    return str(major * (1000 if major < 10 else 10000) + minor * 100 + patch)
