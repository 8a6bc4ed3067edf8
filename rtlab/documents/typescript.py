"""Types of Python as those of TypeScript: dataclasses, ``TypedDict`` classes and what they refer to."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rtlab.documents.serialization import is_object, members

_PLAIN = {str: "string", float: "number", int: "number", bool: "boolean", type(None): "null", Any: "unknown"}


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
    return _PLAIN.get(kind) or str(kind.__name__)
