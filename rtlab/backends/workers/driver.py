"""The GPU of this machine as its CUDA driver describes it; no package is imported for it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import sys
from typing import Any

_LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
# Numbers of CUdevice_attribute in cuda.h.
_MAJOR, _MINOR = 75, 76


@dataclasses.dataclass(frozen=True)
class Device:
    """The first GPU that this process may use: ``sm`` is 89 for 8.9, ``cuda`` the newest CUDA its driver knows."""

    name: str
    sm: int
    cuda: str


def device() -> Device | None:
    """The GPU, or None where there is none that can be used; ``explain_missing`` tells why."""
    gpu = _look()
    return gpu if isinstance(gpu, Device) else None


def explain_missing() -> str:
    """Why there is no GPU, with the next step, in words that follow a colon; empty where there is one."""
    reason = _look()
    return reason if isinstance(reason, str) else ""


@functools.cache
def _look() -> Device | str:
    driver = _driver()
    if driver is None:
        return "no NVIDIA driver is installed. Install the driver of the GPU"
    if code := driver.cuInit(0):
        return f"the NVIDIA driver finds no usable GPU ({_error(driver, code)}). Run nvidia-smi to see why"
    number, count, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return "the NVIDIA driver finds no GPU. Check CUDA_VISIBLE_DEVICES, and run nvidia-smi"
    name, parts = ctypes.create_string_buffer(256), (ctypes.c_int(), ctypes.c_int())
    codes = [
        driver.cuDeviceGet(ctypes.byref(number), 0),
        driver.cuDeviceGetName(name, len(name), number),
        driver.cuDriverGetVersion(ctypes.byref(version)),
        *(
            driver.cuDeviceGetAttribute(ctypes.byref(part), which, number)
            for part, which in zip(parts, (_MAJOR, _MINOR), strict=True)
        ),
    ]
    if code := next(filter(None, codes), 0):
        return (
            f"the NVIDIA driver does not describe its GPU ({_error(driver, code)}). Run nvidia-smi to see why"
        )
    major, minor = (part.value for part in parts)
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Device(name.value.decode("utf-8", "replace"), 10 * major + minor, cuda)


def _driver() -> Any:
    for library in _LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(library)
    return None


def _error(driver: Any, code: int) -> str:
    """The driver's name of an error, such as CUDA_ERROR_NO_DEVICE."""
    buffer = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(buffer))
    return buffer.value.decode() if buffer.value else f"error {code}"
