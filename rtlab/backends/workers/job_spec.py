"""What child processes are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rtlab.backends.workers.driver import Device
from rtlab.core.options import BuildOptions, Shapes


@dataclasses.dataclass(frozen=True)
class CalibratorInput:
    """What a calibrator reads.

    ``algorithm`` is TensorRT's word in the header of a cache, such as ``EntropyCalibration2``; ``quantile``, in
    [0, 1], counts for ``LegacyCalibration`` only. ``folder`` is there to write to; it holds ``count`` batches, one
    pickled mapping of arrays each. ``shapes`` are those of one batch, where the graph leaves some open. ``cache`` is a
    cache's text, which is used instead of samples.
    """

    algorithm: str
    folder: str
    quantile: float = 1.0
    count: int = 0
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    cache: bytes = b""


@dataclasses.dataclass(frozen=True)
class BuildSpec:
    """One build, as the child process gets it: ``model`` is the path of an ONNX file, which is only read.

    ``binding`` is ``tensorrt_rtx`` or ``tensorrt``, ``product`` its name for people; ``sm`` the compute capability that
    TensorRT-RTX compiles for. ``times`` says that this compiler times kernels, and so can keep a timing cache.
    ``tf32`` lets products of FP32 be computed in TF32, ``sparse`` lets kernels skip the zeros of 2:4 weights, ``debug``
    lets the values that fusion leaves be read while the engine runs.
    ``profiles`` are those of ``options`` with every dynamic input, ``timing`` the bytes of a timing cache (None where
    none is wanted), ``calibration`` what TensorRT 10's own calibrator reads. ``log`` is the file that the verbose log
    goes to, line by line, so that it outlives a crash.
    """

    binding: str
    model: str
    sm: int | None
    error_prefix: str
    product: str = "TensorRT"
    times: bool = False
    keep_plan: bool = False
    tf32: bool = False
    sparse: bool = False
    debug: bool = False
    options: BuildOptions = dataclasses.field(default_factory=BuildOptions)
    profiles: tuple[Mapping[str, Shapes], ...] = ()
    timing: bytes | None = None
    calibration: CalibratorInput | None = None
    log: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU takes part: one that times kernels, or one that the engine is to run on."""
        return self.times or self.debug


@dataclasses.dataclass(frozen=True)
class OpenSpec:
    """A plan to open. ``error_prefix`` opens error messages; ``device`` is the GPU that the parent found.

    ``binding`` is ``tensorrt`` or ``tensorrt_rtx``, ``product`` its name for people. ``cuda`` and ``libraries`` are
    the modules that reach the CUDA runtime and the driver's libraries.
    """

    binding: str
    product: str
    plan: bytes
    error_prefix: str
    device: Device | None = None
    cuda: str = "polygraphy.cuda"
    libraries: str = "ctypes"
