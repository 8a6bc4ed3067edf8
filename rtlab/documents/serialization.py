"""Values and types of the contract with the page as plain ones.

Fields are declared by a dataclass (``rtlab.core.schema``) or a ``TypedDict``.
"""

from __future__ import annotations

import collections.abc
import datetime
import enum
import functools
import gzip
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

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


_TYPESCRIPT = {
    str: "string",
    float: "number",
    int: "number",
    bool: "boolean",
    type(None): "null",
    Any: "unknown",
}


def render_typescript(
    roots: Sequence[Any], aliases: Mapping[str, Any], unions: Mapping[str, Any], *, head: str
) -> str:
    """A module of TypeScript with these types and all that they are made of.

    Args:
        roots: Objects, in the order in which they are written; what one is made of comes before it.
        aliases: Names of ``Literal`` types, and of ``NewType`` strings with the strings that there are.
        unions: Names of types that are one of several objects.
        head: The comment that the module begins with.

    Raises:
        TypeError: two types bear one name.
    """
    written: dict[str, Any] = {}
    for root in (*roots, *unions.values()):
        _collect_types(root, written)
    out = [f"// {head}", ""]
    for name, alias in aliases.items():
        words = typing.get_args(alias) if typing.get_origin(alias) is Literal else alias
        out.append(f"export type {name} = {' | '.join(map(json.dumps, words))};")
    names = {v: k for k, v in aliases.items() if typing.get_origin(v) is Literal}
    for kind in written.values():
        doc = " ".join((kind.__doc__ or "").split())
        out += ["", f"/** {doc} */", f"export interface {kind.__name__} {{"]
        out += [f"  {name}: {_text(member, names)};" for name, member in members(kind).items()]
        out.append("}")
    for name, union in unions.items():
        out += ["", f"export type {name} = {' | '.join(kind.__name__ for kind in typing.get_args(union))};"]
    return "\n".join(out) + "\n"


def _collect_types(kind: Any, written: dict[str, Any]) -> None:
    """Puts down the objects that a type is made of, the inner ones first."""
    if not is_object(kind):
        for inner in typing.get_args(kind):
            _collect_types(inner, written)
        return
    if written.get(kind.__name__, kind) is not kind:
        raise TypeError(f'Cannot write two types of the name "{kind.__name__}": rename one of them.')
    if kind.__name__ not in written:
        for member in members(kind).values():
            _collect_types(member, written)
        written[kind.__name__] = kind


def _text(kind: Any, names: Mapping[Any, str]) -> str:
    if kind in names:
        return names[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return " | ".join(map(json.dumps, arguments))
    if origin is list:
        inner = _text(arguments[0], names)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin is dict:
        return f"Record<string, {_text(arguments[1], names)}>"
    if origin in {types.UnionType, typing.Union}:
        return " | ".join(_text(a, names) for a in arguments)
    return _TYPESCRIPT.get(kind) or str(kind.__name__)


#: Fields of graphs, which have builtins alone: to convert those of 20,000 nodes would take a second.
_BUILTIN_FIELDS = frozenset({"graph", "boxes", "edges"})


def encode(payload: Any) -> bytes:
    """A value of the contract as gzipped JSON: NaN is null, a lone surrogate a question mark."""
    fields = payload if isinstance(payload, dict) else {}
    ready = {name: fields[name] for name in _BUILTIN_FIELDS & fields.keys()}
    plain = {**to_builtins({**fields, **dict.fromkeys(ready)}), **ready} if ready else to_builtins(payload)
    try:
        text = msgspec.json.encode(plain, enc_hook=to_builtins)
    except (UnicodeEncodeError, OverflowError):
        # A lone surrogate, or an integer of more than 64 bits.
        text = json.dumps(to_builtins(plain), ensure_ascii=False).encode("utf-8", "replace")
    return gzip.compress(text, compresslevel=6, mtime=0)


def decode(data: bytes) -> Any:
    """The inverse of ``encode``, as builtins."""
    return msgspec.json.decode(gzip.decompress(data))
