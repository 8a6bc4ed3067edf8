"""The backend of a machine with a GPU, whose binding, CUDA runtime and driver are stand-ins."""

from __future__ import annotations

import pytest

import tensorrt_api
from rtlab.backends.tensorrt import TensorRT
from rtlab.backends.workers import driver
from rtlab.core.protocols import Availability

DEVICE = driver.Device("Fake GPU", 86, "12.9")
VERSIONS = tensorrt_api.VERSIONS
#: The stand-ins have the names of the bindings, which are read off the one that is installed.
needs_api = pytest.mark.skipif(
    not tensorrt_api.AVAILABLE, reason="tensorrt_rtx, whose API the stand-ins have, is not installed"
)


class Here(TensorRT):
    cuda = "fake_trt"

    def __init__(self, release: str) -> None:
        super().__init__()
        self.binding, self._version = f"fake_trt_builder.{release}", VERSIONS[release]

    @property
    def device(self) -> driver.Device:
        return DEVICE

    def availability(self) -> Availability:
        return Availability(ok=True, version=self._version)
