"""What a binding says when it refuses, cut down to the cause. The sentences were read off TensorRT-RTX 1.7.1."""

from __future__ import annotations

import pytest

from rtlab.backends.live.refusals import cause

DRIVER = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at "
    "/_src/common/dispatch/checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient for CUDA runtime "
    "version))"
)
BIAS = (
    "Invalid Node - b\nITensor::getDimensions: Error Code 4: API Usage Error (b: input has type Int32 but must have "
    "type FP8, FP4, Int4, Int8, or UInt8. In checkType at /_src/optimizer/common/nodeBase.cpp:456)"
)
SAYS = [
    (BIAS, "b: input has type Int32 but must have type FP8, FP4, Int4, Int8, or UInt8"),
    (
        (
            "Assertion failed: shiftIsAllZeros(zeroPoint): Non-zero zero point is not supported. Please set "
            "kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA to enable asymmetric quantization if it is on DLA."
        ),
        (
            "Non-zero zero point is not supported. Please set kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA to enable "
            "asymmetric quantization if it is on DLA"
        ),
    ),
    (
        (
            'Assertion failed: convertDtype(onnxDtype.elem_type(), &trtDtype) && "Failed to convert ONNX date type to '
            'TensorRT data type."'
        ),
        "Failed to convert ONNX date type to TensorRT data type",
    ),
    (
        'creator && "Plugin not found, are the plugin name, version, and namespace correct?"',
        "Plugin not found, are the plugin name, version, and namespace correct?",
    ),
    ("false", ""),
    ("Something new\nin two lines", "Something new in two lines"),
    ("", ""),
]


@pytest.mark.parametrize(("said", "why"), SAYS)
@pytest.mark.parametrize("driver", ["", f"{DRIVER}\n", f"\n{DRIVER}"])
def test_the_cause_stands_alone_where_no_gpu_was_asked_for(said: str, why: str, driver: str) -> None:
    """A machine without a driver logs that it has none in the middle of every refusal."""
    both = driver + said if driver.endswith("\n") else said + driver
    assert why == cause(both, gpu=False)


def test_where_a_gpu_was_asked_for_the_driver_is_a_cause() -> None:
    """There it is why the engine cannot be built."""
    assert "CUDA driver version is insufficient" in cause(DRIVER, gpu=True)
    assert not cause(DRIVER, gpu=False)
