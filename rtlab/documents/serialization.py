"""Values and types of the contract with the page as plain ones.

Fields are declared by a dataclass (``rtlab.core.schema``) or a ``TypedDict``.
"""

from __future__ import annotations

import collections.abc
import datetime
import enum
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from rtlab.core import schema
from rtlab.documents.commands import Message

_PLAIN = (str, int, float, bool, type(None))
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence)
_MAPS = (dict, collections.abc.Mapping)


def is_object(kind: Any) -> bool:
    """Whether values of a type are objects with fields."""
    is_message = isinstance(kind, type) and issubclass(kind, Message)
    return typing.is_typeddict(kind) or schema.is_noun(kind) or is_message


@functools.cache
def members(kind: Any) -> Mapping[str, Any]:
    """The plain types of the serialized fields of a dataclass, a ``TypedDict`` or a message, by name.

    Raises:
        TypeError: a field is of a type without a plain equivalent.
    """
    if typing.is_typeddict(kind):
        return {name: get_plain_type(hint) for name, hint in typing.get_type_hints(kind).items()}
    if issubclass(kind, Message):
        hints = typing.get_type_hints(kind)
        tag = Literal.__getitem__(kind.__struct_config__.tag)
        return {"type": tag, **{name: get_plain_type(hints[name]) for name in kind.__struct_fields__}}
    return {
        f.name: float | None if f.meaning.infinite else get_plain_type(f.type) for f in schema.fields(kind)
    }


def to_builtins(value: Any) -> Any:
    """A value as builtins: the serialized fields of dataclasses, None for NaN and infinity, text for other objects."""
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


def get_plain_type(hint: Any) -> Any:
    """The type of ``to_builtins`` of values of a type; raises ``TypeError`` where there is none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        return functools.reduce(lambda a, b: a | b, map(get_plain_type, arguments))
    if origin in _LISTS:
        return list.__class_getitem__(get_plain_type(arguments[0]))
    if origin in _MAPS:
        return dict.__class_getitem__((str, get_plain_type(arguments[1])))
    is_plain = hint in _PLAIN or hint is Any or origin is typing.Literal or isinstance(hint, typing.NewType)
    if is_plain or is_object(hint):
        return hint
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return Literal[tuple(m.value for m in hint)]
    if isinstance(hint, type) and schema.is_text(hint):
        # Such as a precision or a calibrator.
        return str
    raise TypeError(
        f"Cannot send {hint!r}: nothing plain stands for it. Declare a dataclass, or keep the field."
    )
