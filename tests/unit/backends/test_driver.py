"""The GPU as its driver describes it, with a stand-in for the driver's library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from rtlab.backends.live import driver
from rtlab.backends.live.driver import Device


class Cuda:
    """Functions of libcuda with their real arguments; ``codes`` are results other than success."""

    def __init__(self, count: int = 1, **codes: int) -> None:
        self.count, self.codes = count, codes

    def cuInit(self, flags: int) -> int:  # noqa: N802 - CUDA's name, as are those that follow
        return self.codes.get("cuInit", 0)

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.count
        return self.codes.get("cuDeviceGetCount", 0)

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:  # noqa: N802
        out._obj.value = 7
        return 0 if ordinal == 0 else 101

    def cuDeviceGetName(self, out: Any, size: int, device: Any) -> int:  # noqa: N802
        out.value = b"NVIDIA L4"[: size - 1]
        return 0 if device.value == 7 else 101

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = 12080
        return 0

    def cuDeviceGetAttribute(self, out: Any, which: int, device: Any) -> int:  # noqa: N802
        out._obj.value = {75: 8, 76: 9}[which]
        return self.codes.get("cuDeviceGetAttribute", 0) or (0 if device.value == 7 else 101)

    def cuGetErrorName(self, code: int, out: Any) -> int:  # noqa: N802
        known = {100: b"CUDA_ERROR_NO_DEVICE"}
        out._obj.value = known.get(code)
        return 0 if code in known else 1


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (Cuda(), ""), (None, "no NVIDIA driver is installed"), (Cuda(cuInit=100), "CUDA_ERROR_NO_DEVICE"),
        (Cuda(cuInit=999), "error 999"), (Cuda(count=0), "Check CUDA_VISIBLE_DEVICES"),
        (Cuda(cuDeviceGetAttribute=100), "does not describe its GPU"),
    ],
)  # fmt: skip
def test_a_gpu_tells_name_capability_and_cuda_or_the_reason_why_there_is_none(monkeypatch, library, said):
    monkeypatch.setattr(driver, "_driver", lambda: library)
    monkeypatch.setattr(driver, "_look", driver._look.__wrapped__)
    assert (None if said else Device("NVIDIA L4", 89, "12.8")) == driver.device()
    assert said in driver.missing()
    assert bool(said) == bool(driver.missing())


def test_a_library_that_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch):

    def absent(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert driver._driver() is None
