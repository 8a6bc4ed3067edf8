"""TensorRT's types as NumPy's. BF16, FP8 and smaller come from ml_dtypes; 4-bit values travel two to a byte."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Members of DataType: rtlab's name and NumPy's type.
_TYPES: dict[str, tuple[str, Any]] = {
    "FLOAT": ("fp32", np.float32),
    "HALF": ("fp16", np.float16),
    "BF16": ("bf16", ml_dtypes.bfloat16),
    "INT8": ("int8", np.int8),
    "INT32": ("int32", np.int32),
    "INT64": ("int64", np.int64),
    "BOOL": ("bool", np.bool_),
    "UINT8": ("uint8", np.uint8),
    "FP8": ("fp8", ml_dtypes.float8_e4m3fn),
    "INT4": ("int4", ml_dtypes.int4),
    "FP4": ("fp4", ml_dtypes.float4_e2m1fn),
    "E8M0": ("e8m0", ml_dtypes.float8_e8m0fnu),
}
_HALF_BYTE = frozenset({"INT4", "FP4"})


def get_type_name(member: str) -> str:
    """The name that rtlab gives a member of DataType."""
    return _TYPES[member][0] if member in _TYPES else member.lower()


def get_dtype(member: str) -> np.dtype[Any]:
    """NumPy's type of a member of DataType."""
    numpy_dtype: np.dtype[Any] = np.dtype(_TYPES[member][1])
    return numpy_dtype


def count_bytes(member: str, shape: tuple[int, ...]) -> int:
    """Bytes of a dense tensor."""
    count = math.prod(shape)
    return (count + 1) // 2 if member in _HALF_BYTE else count * get_dtype(member).itemsize


def allocate_array(member: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Memory on the host that takes what is copied from the device; ``unpack`` makes it a tensor."""
    return np.empty(count_bytes(member, shape), dtype=np.uint8)


def unpack(raw: NDArray[Any], member: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Bytes as the tensor that they are; of two 4-bit values in a byte, the first is the lower half."""
    if member not in _HALF_BYTE:
        return raw.view(get_dtype(member)).reshape(shape)
    halves = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    if member == "INT4":
        return ((halves ^ 8).astype(np.int8) - 8).astype(ml_dtypes.int4).reshape(shape)
    values: NDArray[Any] = halves.view(ml_dtypes.float4_e2m1fn).reshape(shape)
    return values


def pack(value: NDArray[Any], member: str) -> NDArray[Any]:
    """A tensor as the bytes that the device gets."""
    flat = np.ascontiguousarray(value).reshape(-1)
    if member not in _HALF_BYTE:
        return flat.view(np.uint8)
    halves = (flat.astype(np.int8).view(np.uint8) if member == "INT4" else flat.view(np.uint8)) & 15
    halves = np.append(halves, np.zeros(len(halves) % 2, np.uint8))
    packed_bytes: NDArray[Any] = halves[::2] | (halves[1::2] << 4)
    return packed_bytes
