"""Metadata of a field of a result, declared once beside its type.

JSON, types of the page, tables, frames, text and panels follow from ``Annotated[float | None, FieldMeta("Time", "ms",
"measured")]`` in ``rtlab.documents``.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, Literal

#: The origin of a number; ``predicted`` by published rules, without a compiler.
Origin = Literal["measured", "reported", "estimated", "predicted"]


@dataclasses.dataclass(frozen=True)
class FieldMeta:
    """Metadata of a field.

    ``title`` is its heading; a field without one is serialized, and not shown. ``unit`` is that of the value: ``ms``,
    ``B`` (bytes) and ``%`` (a share from 0 to 1) are shown in a fitting unit. ``origin`` is one of ``Origin``, empty
    for text and counts. ``links`` is the kind of ids in it: nodes, layers, layers of the compared variant
    (``others``), or variants. ``note`` is shown on hover. A fact that is None is an em dash; with ``omit`` it is left
    out, and so is a column of nothing else.

    The four texts may contain fields of the object: ``"at batch {self.batch}"``, ``"{self.origin}"``; those of a
    column also fields of the object with its table: ``"{of.first} before"``.

    ``unsent`` fields are not serialized. ``infinite`` numbers may be NaN or infinite, which are None in JSON.
    """

    title: str = ""
    unit: str = ""
    origin: str = ""
    links: Literal["", "nodes", "layers", "others", "variants"] = ""
    note: str = ""
    omit: bool = False
    unsent: bool = False
    infinite: bool = False


#: Of a field that only Python needs.
UNSENT = FieldMeta(unsent=True)
_NOTHING = FieldMeta()


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a noun: its name, its type, and what it means."""

    name: str
    type: Any
    meaning: FieldMeta = _NOTHING

    def origin(self, noun: object, of: object = None) -> Origin | None:
        """Where the number is from in this noun, which stands in a table of another one; None where nobody tells."""
        if getattr(noun, self.name) is None:
            return None
        return typing.cast("Origin | None", format_text(self.meaning.origin, noun, of) or None)


def format_text(text: str, noun: object = None, of: object = None) -> str:
    """A text of a ``FieldMeta`` with the fields that it names: of the noun, and of the one that its table stands in."""
    return text.format(self=noun, of=of)


def is_text(kind: type) -> bool:
    """Whether people write values of a type as text, such as a precision: it says itself how."""
    return any("__str__" in vars(base) for base in kind.__mro__[:-1])


def is_noun(kind: Any) -> bool:
    """Whether a type is a dataclass or a named tuple that is more than its own text, such as a calibrator is."""
    if not isinstance(kind, type) or is_text(kind):
        return False
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def fields(kind: Any) -> tuple[Field, ...]:
    """The fields of a noun in their order, then its properties that declare a meaning; none that stay in Python.

    Raises:
        TypeError: it is no noun.
        NameError: a type of it is imported for the type checker alone.
    """
    if not is_noun(kind):
        raise TypeError(
            f"Cannot read the fields of {kind!r}: it is no noun. Give a dataclass or a named tuple."
        )
    return _read_fields(kind)


@functools.cache
def _read_fields(kind: type) -> tuple[Field, ...]:
    hints = typing.get_type_hints(kind, _get_namespace(kind), include_extras=True)
    names = getattr(kind, "_fields", None) or tuple(f.name for f in dataclasses.fields(kind))
    field_list = [_parse_field(name, hints[name]) for name in names]
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            getter = _getter(member)
            if getter is not None and str(getter.__annotations__.get("return")).startswith("Annotated["):
                field_list.append(
                    _parse_field(name, typing.get_type_hints(getter, include_extras=True)["return"])
                )
    return tuple(f for f in field_list if not f.meaning.unsent)


def _get_namespace(kind: type) -> dict[str, Any] | None:
    """What the names in a class stand for, where it is public: then it says that it is of ``rtlab`` itself."""
    namespace = getattr(vars(kind).get("__init__"), "__globals__", None)
    return namespace if kind.__module__ == "rtlab" else None


def _getter(member: object) -> Any:
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, functools.cached_property) else None


def _parse_field(name: str, hint: Any) -> Field:
    if typing.get_origin(hint) is not typing.Annotated:
        return Field(name, hint)
    kind, *more = typing.get_args(hint)
    return Field(name, kind, next((m for m in more if isinstance(m, FieldMeta)), _NOTHING))
