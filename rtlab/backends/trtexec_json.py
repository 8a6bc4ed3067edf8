"""Engines that were built on another machine, from the files that were written there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rtlab.backends import compiler_info
from rtlab.backends.readers import reading
from rtlab.core.protocols import Availability, Capabilities
from rtlab.core.trace import Recording


class Trtexec:
    """Files of ``trtexec``, TensorRT's inspector, trex, Polygraphy and ONNX Runtime; TensorRT 5 to 11.

    Keys of ``read`` are those of ``recognise.KINDS``: ``layers`` (``--exportLayerInfo``) or ``log`` (``--verbose``),
    and optionally ``profile`` (``--exportProfile``), ``times`` (``--exportTimes``) and so on.
    """

    name = "trtexec"

    def availability(self) -> Availability:
        """Reading needs nothing installed."""
        return Availability(ok=True, version="files of TensorRT 5 to 11")

    def capabilities(self) -> Capabilities:
        """It reads; nothing is built or run."""
        return Capabilities(targets=(), precisions=(), reads=True, maker=compiler_info.TENSORRT)

    def read(self, files: Mapping[str, Path], *, select: int | None = None) -> Recording:
        """Read an engine and, where there is a profile, the times of its layers.

        Times are joined to layers by name, with a note on those that do not join.

        Raises:
            ReadError: a file is missing, damaged or of another kind, or files belong to different engines.
        """
        return reading.read(files, select=select)
