"""How fast and how hot the GPU runs, as NVML tells it (nvmlDeviceGetClockInfo, nvmlDeviceGetTemperature).

NVML comes with the driver; a Jetson has none.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import sys
from typing import Any

_NVML = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
#: NVML_CLOCK_SM, NVML_CLOCK_MEM and NVML_TEMPERATURE_GPU.
_CLOCK, _MEMORY_CLOCK, _TEMPERATURE = 1, 2, 0


@dataclasses.dataclass(frozen=True)
class Sensors:
    """Clocks in MHz and temperature in degrees Celsius at one moment; None where not told."""

    clock: int | None = None
    memory_clock: int | None = None
    celsius: int | None = None

    def __str__(self) -> str:
        """Such as ``1410 MHz, memory 1215 MHz, 41 °C``."""
        parts = (
            f"{self.clock} MHz" if self.clock is not None else "",
            f"memory {self.memory_clock} MHz" if self.memory_clock is not None else "",
            f"{self.celsius} °C" if self.celsius is not None else "",
        )
        return ", ".join(p for p in parts if p) or "not reported"


def read_sensors(libraries: str, bus: str) -> Sensors:
    """Clocks and temperature now; each is None where NVML is missing or does not tell it.

    Args:
        libraries: Name of a module with ``CDLL``: ``ctypes``, or a stand-in of the driver.
        bus: PCI address of the GPU, because NVML counts GPUs that this process may not use.
    """
    try:
        nvml = importlib.import_module(libraries).CDLL(_NVML)
    except OSError:
        return Sensors()
    if not bus or nvml.nvmlInit_v2() != 0:
        return Sensors()
    try:
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode("ascii"), ctypes.byref(handle)) != 0:
            return Sensors()
        return Sensors(
            clock=_query_sensor(nvml.nvmlDeviceGetClockInfo, handle, _CLOCK),
            memory_clock=_query_sensor(nvml.nvmlDeviceGetClockInfo, handle, _MEMORY_CLOCK),
            celsius=_query_sensor(nvml.nvmlDeviceGetTemperature, handle, _TEMPERATURE),
        )
    finally:
        nvml.nvmlShutdown()


def _query_sensor(query: Any, handle: ctypes.c_void_p, kind: int) -> int | None:
    value = ctypes.c_uint()
    return value.value if query(handle, kind, ctypes.byref(value)) == 0 else None
