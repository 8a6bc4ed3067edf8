"""Laws of the bytes that cross to the browser."""

from __future__ import annotations

import enum
import gzip
import math
import typing
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.core.schema import fields, is_noun
from rtlab.documents.serialization import decode, encode

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.from_regex(
    r"\A/layer[0-9]{1,12}(/[a-z][0-9]{0,3}){0,3}\Z"
)


class Everything(TypedDict):
    """Every kind of field that a contract type may have."""

    text: str
    number: float
    whole: int
    flag: bool
    choice: Literal["a", "b"]
    maybe: float | None
    texts: list[str]
    table: dict[str, list[int]]


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Payloads of a type, drawn from its hints."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        return st.fixed_dictionaries({k: values(h) for k, h in typing.get_type_hints(kind).items()})
    if is_noun(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{f.name: values(hints[f.name]) for f in fields(kind) if f.name in hints})
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=4).map(tuple)
    if isinstance(kind, typing.NewType):
        return _texts
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(values(arguments[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(_texts, values(arguments[1]), max_size=4)
    if arguments:
        return st.one_of([values(a) for a in arguments])
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: _texts,
        int: st.integers(-(2**53), 2**53) | st.integers(-200, 200),
        float: st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e3, 1e3, width=32),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return plain[kind]


@given(st.lists(values(Everything), max_size=12))
def test_what_is_decoded_is_what_was_encoded(payload):
    assert payload == decode(encode(payload))


@given(st.lists(values(Everything), max_size=6), st.data())
def test_cut_bytes_are_an_error_and_never_half_a_view(payload, data):
    whole = gzip.decompress(encode(payload))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(Exception):  # noqa: B017, PT011 - which one depends on where the cut is
        decode(gzip.compress(cut))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_none(bad):
    assert [1.0, None] == decode(encode([1.0, bad]))


def test_a_lone_surrogate_becomes_a_question_mark():
    assert ["a?"] == decode(encode(["a\udc80"]))
