"""What is known of the type of a value: its elements, and its shape as far as it is known."""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

import onnx
import onnx_ir as ir

#: A whole shape.
Shape: TypeAlias = tuple[int, ...]
#: With None for a dimension that is not known.
Dims: TypeAlias = "tuple[int | None, ...] | None"


class Kind(NamedTuple):
    """What is known of a value's type; ``other`` is that of a sequence, an optional or a map, as ONNX writes it."""

    dtype: int
    dims: Dims
    other: bytes = b""


#: A kind of this type and shape: one object, however many values of it a model has.
of_type = functools.lru_cache(4096)(Kind)
UNKNOWN = Kind(0, None)
FLAG = Kind(int(onnx.TensorProto.BOOL), ())
COUNT = Kind(int(onnx.TensorProto.INT64), ())


def to_static_shape(dims: Dims) -> Shape | None:
    """The shape, where every dimension is known."""
    if dims is None:
        return None
    sizes = tuple(d for d in dims if d is not None)
    return sizes if len(sizes) == len(dims) else None


def get_declared_kind(value: ir.Value) -> Kind:
    """As the model tells a value's type, with the shape as it was loaded."""
    if isinstance(value.type, ir.TensorType):
        dims = None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
        return of_type(int(value.type.dtype), dims)
    if value.type is None:
        return UNKNOWN
    return Kind(0, None, ir.serde.serialize_type(value.type).SerializeToString())


def is_complete(kind: Kind) -> bool:
    """Whether all that there is to know is known."""
    return bool(kind.other) or to_static_shape(kind.dims) is not None


def to_type_proto(kind: Kind) -> onnx.TypeProto:
    """As ONNX writes it."""
    type_proto: onnx.TypeProto = (
        onnx.TypeProto.FromString(kind.other)
        if kind.other
        else onnx.helper.make_tensor_type_proto(kind.dtype, kind.dims)
    )
    return type_proto


def from_type_proto(type_proto: onnx.TypeProto) -> Kind:
    """As ONNX wrote it."""
    if not type_proto.HasField("tensor_type"):
        return Kind(0, None, type_proto.SerializeToString())
    tensor_type = type_proto.tensor_type
    if not tensor_type.HasField("shape"):
        return Kind(tensor_type.elem_type, None)
    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor_type.shape.dim)
    return Kind(tensor_type.elem_type, tuple(d if d is None or d >= 0 else None for d in dims))


def merge_kinds(one: Kind, two: Kind) -> Kind:
    """What holds of a value that is one or the other."""
    if one == two or one.dims is None or one.other:
        return one
    if two.dims is None or len(one.dims) != len(two.dims):
        return one._replace(dims=None)
    return one._replace(dims=tuple(a if a == b else None for a, b in zip(one.dims, two.dims, strict=True)))


def remove_axis(kind: Kind, axis: int) -> Kind:
    """A slice of a tensor along an axis."""
    if not kind.dims or not -len(kind.dims) <= axis < len(kind.dims):
        return kind._replace(dims=None)
    axis %= len(kind.dims)
    return kind._replace(dims=(*kind.dims[:axis], *kind.dims[axis + 1 :]))


def add_axis(kind: Kind, axis: int, size: int | None) -> Kind:
    """Slices of this kind, ``size`` of them, put together along an axis."""
    if kind.dims is None:
        return kind
    axis = axis % (len(kind.dims) + 1)
    return kind._replace(dims=(*kind.dims[:axis], size, *kind.dims[axis:]))
