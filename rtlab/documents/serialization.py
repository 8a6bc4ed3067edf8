"""What of a value crosses to the page and to JSON: the fields of its dataclass, as plain values.

A dataclass is the declaration (``rtlab.core.schema``); a ``TypedDict`` declares what has none.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from rtlab.core import schema
from rtlab.documents.commands import Message

_PLAIN = (str, int, float, bool, type(None))
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence)
_MAPS = (dict, collections.abc.Mapping)


@dataclasses.dataclass(frozen=True)
class FieldEncoding:
    """How a field crosses: as which plain type, and what makes it of the value, None where it is that already."""

    type: Any
    convert: Callable[[Any], Any] | None = None


def get_converter(kind: Any) -> Callable[[Any], Any] | None:
    """What makes values of a type plain; None where they are."""
    return _encode_type(kind).convert


def is_object(kind: Any) -> bool:
    """Whether values of a type cross as an object with fields."""
    return typing.is_typeddict(kind) or schema.is_noun(kind) or _is_message(kind)


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Message)


@functools.cache
def members(kind: Any) -> Mapping[str, FieldEncoding]:
    """The fields of a dataclass, a ``TypedDict`` or a message that cross, by name.

    Raises:
        TypeError: a field is of a type that nothing plain stands for.
    """
    if typing.is_typeddict(kind):
        return {name: _encode_type(hint) for name, hint in typing.get_type_hints(kind).items()}
    if _is_message(kind):
        hints = typing.get_type_hints(kind)
        tag = FieldEncoding(Literal.__getitem__(kind.__struct_config__.tag))
        return {"type": tag, **{name: _encode_type(hints[name]) for name in kind.__struct_fields__}}
    return {f.name: _encode_type(f.type, infinite=f.meaning.infinite) for f in schema.fields(kind)}


def to_builtins(value: Any) -> Any:
    """A dataclass as builtins: what crosses of it; NaN and infinity are None, words of a type are text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_builtins(v) for k, v in value.items()}
    kind: Any = type(value)
    if schema.is_noun(kind):
        return {f.name: to_builtins(getattr(value, f.name)) for f in schema.fields(kind)}
    if isinstance(value, _LISTS):
        return [to_builtins(v) for v in value]
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _encode_type(hint: Any, *, infinite: bool = False) -> FieldEncoding:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if infinite:
        return FieldEncoding(float | None, _finite)
    if origin in {types.UnionType, typing.Union}:
        inner = [_encode_type(a) for a in arguments if a is not type(None)]
        kind = functools.reduce(lambda a, b: a | b, [c.type for c in inner])
        converts = next((c.convert for c in inner if c.convert), None)
        return FieldEncoding(
            kind | None if type(None) in arguments else kind,
            converts and functools.partial(_convert_optional, converts),
        )
    if origin in _LISTS:
        inner_type = _encode_type(arguments[0])
        each = inner_type.convert
        return FieldEncoding(list[inner_type.type], each and functools.partial(_each, each))  # type: ignore[name-defined]
    if origin in _MAPS:
        key, inner_type = _encode_type(arguments[0]), _encode_type(arguments[1])
        if key.convert or inner_type.convert:
            return FieldEncoding(dict[str, inner_type.type], to_builtins)  # type: ignore[name-defined]
        return FieldEncoding(dict[str, inner_type.type])  # type: ignore[name-defined]
    if is_object(hint):
        return FieldEncoding(hint, _get_object_converter(hint))
    if hint in _PLAIN or hint is Any or origin is typing.Literal or isinstance(hint, typing.NewType):
        return FieldEncoding(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return FieldEncoding(Literal[tuple(m.value for m in hint)], str)
    if isinstance(hint, type) and schema.is_text(hint):
        # Such as a precision or a calibrator, which is known by its text.
        return FieldEncoding(str, str)
    raise TypeError(
        f"Cannot send {hint!r}: nothing plain stands for it. Declare a dataclass, or keep the field."
    )


@functools.cache
def _get_object_converter(kind: Any) -> Callable[[Any], Any] | None:
    encodings = members(kind)
    if not typing.is_typeddict(kind):
        return lambda value: {
            name: e.convert(getattr(value, name)) if e.convert else getattr(value, name)
            for name, e in encodings.items()
        }
    converts = {name: e.convert for name, e in encodings.items() if e.convert}
    if not converts:
        return None
    return lambda value: {**value, **{name: convert(value[name]) for name, convert in converts.items()}}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _convert_optional(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _each(convert: Callable[[Any], Any], values: typing.Iterable[Any]) -> list[Any]:
    return [convert(v) for v in values]
