"""ONNX files in pieces: weights are read as they are written, so that no process holds all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx_ir import TensorProtocol, TensorProtoTensor

from rtlab.core.external_data import serialize_constant

#: Bytes of the largest file that protobuf reads.
MOST_BYTES = (1 << 31) - 1
#: Bytes of which each weight in a file of its own starts at a multiple, as a page of memory does.
_ALIGNED = 4096
#: What protobuf writes before a field of bytes: three bits for this kind below the field's number.
_LENGTH_DELIMITED = 2

#: The pieces of one field of a file.
_Piece = bytes | TensorProtocol


def count_bytes(light: onnx.ModelProto, weights: Mapping[str, TensorProtocol]) -> int:
    """Bytes of the file that ``iter_chunks`` yields; no weight is read for that."""
    return sum(map(_get_size, _list_pieces(light, weights)))


def iter_chunks(light: onnx.ModelProto, weights: Mapping[str, TensorProtocol]) -> Iterator[bytes]:
    """The bytes of an ONNX file, as ``SerializeToString`` of the whole proto has them, but without its limit.

    Args:
        light: The model, some of whose initializers have a type and a shape alone.
        weights: The tensors of these, by name.

    Raises:
        ModelError: a weight cannot be read.
    """
    for piece in _list_pieces(light, weights):
        yield piece if isinstance(piece, bytes) else piece.tobytes()


def _list_pieces(light: onnx.ModelProto, weights: Mapping[str, TensorProtocol]) -> list[_Piece]:
    graph: list[_Piece] = []
    before, after = _split(light.graph, "initializer")
    graph.append(before)
    for tensor in light.graph.initializer:
        graph += _delimit("initializer", onnx.GraphProto, _list_tensor_pieces(tensor, weights))
    graph.append(after)
    before, after = _split(light, "graph")
    return [before, *_delimit("graph", onnx.ModelProto, graph), after]


def _list_tensor_pieces(stub: onnx.TensorProto, weights: Mapping[str, TensorProtocol]) -> list[_Piece]:
    tensor = weights.get(stub.name)
    if tensor is None or isinstance(tensor, TensorProtoTensor):
        return [(stub if tensor is None else serialize_constant(tensor, stub.name)).SerializeToString()]
    before, after = _split(stub, "raw_data")
    return [before, *_delimit("raw_data", onnx.TensorProto, [tensor]), after]


def _get_size(piece: _Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


def _split(message: Any, name: str) -> tuple[bytes, bytes]:
    """The fields of a message before one and after it, serialized: protobuf writes them in order of their numbers."""
    number = message.DESCRIPTOR.fields_by_name[name].number
    halves = type(message)(), type(message)()
    for field, value in message.ListFields():
        half = halves[field.number > number]
        if field.number == number:
            continue
        if field.is_repeated:
            getattr(half, field.name).MergeFrom(value)
        elif field.type == field.TYPE_MESSAGE:
            getattr(half, field.name).CopyFrom(value)
        else:
            setattr(half, field.name, value)
    before, after = (half.SerializeToString() for half in halves)
    return before, after


def _delimit(name: str, message: Any, pieces: list[_Piece]) -> list[_Piece]:
    """Pieces as a field of a message: its number and kind, the length in bytes, and they themselves."""
    number = message.DESCRIPTOR.fields_by_name[name].number
    length = sum(map(_get_size, pieces))
    return [_encode_varint(number << 3 | _LENGTH_DELIMITED) + _encode_varint(length), *pieces]


def _encode_varint(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first; all but the last have the eighth bit set."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))


def iter_weight_chunks(
    light: onnx.ModelProto, weights: Mapping[str, TensorProtocol], location: str
) -> Iterator[bytes]:
    """The bytes of a file ``location`` with the weights; with each of them, ``light`` gets the place that it has there.

    Raises:
        ModelError: a weight cannot be read.
    """
    size = 0
    for tensor in light.graph.initializer:
        if tensor.name not in weights:
            continue
        content = weights[tensor.name].tobytes()
        start = size + -size % _ALIGNED
        yield bytes(start - size)
        set_place(tensor, location, start, len(content))
        yield content
        size = start + len(content)


def set_place(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor without numbers refer to bytes of a file beside the model."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
