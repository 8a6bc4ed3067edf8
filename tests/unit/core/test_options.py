"""Options of a TensorRT builder: how they are written, what is refused, and that they tell variants apart."""

from __future__ import annotations

import enum
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.core.options import BuildOptions
from rtlab.core.variant import Variant
from rtlab.errors import RtlabError, VariantError

Level = enum.IntEnum("Level", ["NONE", "FULL"], start=0)
#: One of each kind, all different from the default.
EACH: dict[str, Any] = {
    "builder_optimization_level": 5,
    "flags": ["STRICT_NANS"],
    "cleared": ["TF32"],
    "pools": {"WORKSPACE": 1 << 30},
    "profiles": [{"x": ((1, 3), (2, 3), (4, 3))}],
    "timing_cache": "a/cache",
    "implicit": True,
}


def test_the_constructor_takes_what_of_takes() -> None:
    """As the README writes it."""
    profiles = [{"x": [[1, 3], [2, 3], [4, 3]]}]
    named = {"flags": ["EDITABLE_TIMING_CACHE"], "timing_cache": "my.cache", "profiles": profiles}
    made = BuildOptions(pools={"WORKSPACE": 1 << 30}, **named)
    assert made == BuildOptions.of(pools={"WORKSPACE": 1 << 30}, **named)
    assert hash(made) == hash(BuildOptions.of(pools={"WORKSPACE": 1 << 30}, **named))
    assert made.timing_cache == Path("my.cache")


def test_options_are_written_by_tensorrts_names():
    """Members of an enum may be given as they are, and numbers as NumPy has them."""
    made = BuildOptions.of(
        max_aux_streams=np.int64(0),
        tiling_optimization_level=Level.FULL,
        tactic_sources=["CUDNN"],
        flags=[Level.FULL, "B"],
        pools={Level.NONE: 1},
        profiles=[{"x": np.array([[1, 3], [2, 3], [4, 3]])}],
        timing_cache="cache",
    )
    assert (
        ("max_aux_streams", 0),
        ("tactic_sources", ("CUDNN",)),
        ("tiling_optimization_level", "FULL"),
    ) == made.config
    assert ("B", "FULL") == made.flags
    assert (("NONE", 1),) == made.pools
    assert ((("x", ((1, 3), (2, 3), (4, 3))),),) == made.profiles
    assert Path("cache") == made.timing_cache


def test_equal_options_are_equal_whatever_their_order():
    """So that a variant is built once; the order of profiles is TensorRT's index and does count."""
    one = BuildOptions.of(a=1, b=2, flags=["X", "Y"], pools={"P": 1, "Q": 2})
    two = BuildOptions.of(b=2, a=1, flags=["Y", "X", "Y"], pools={"Q": 2, "P": 1})
    assert one == two
    assert hash(one) == hash(two)
    assert one == pickle.loads(pickle.dumps(one))
    profiles = [{"x": ([1], [1], [1])}, {"x": ([2], [2], [2])}]
    assert BuildOptions.of(profiles=profiles) != BuildOptions.of(profiles=profiles[::-1])


def test_every_option_changes_the_id_of_a_variant_and_its_name_tells_how_many():
    """Two engines of one study must not share a name."""
    ids = {Variant.of("int8", options=BuildOptions.of(**{k: v})).id for k, v in EACH.items()}
    assert len(EACH) == len(ids)
    assert Variant.of("int8").id not in ids
    for name, value in (
        ("builder_optimization_level", 4),
        ("pools", {"WORKSPACE": 2}),
        ("timing_cache", "b"),
    ):
        assert Variant.of("int8", options=BuildOptions.of(**{name: value})).id not in ids
    every = Variant.of("int8", options=BuildOptions.of(**EACH))
    assert "int8·entropy2 · implicit · 6 options" == every.name
    assert "fp32 · 1 option" == Variant.of("fp32", options=BuildOptions.of(a=1)).name


def test_options_that_say_nothing_are_none():
    """Equal work has equal names."""
    assert Variant.of("fp32") == Variant.of("fp32", options=BuildOptions())
    assert 0 == BuildOptions.of().count
    assert len(EACH) == BuildOptions.of(**EACH).count


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"flags": "TF32"}, r'no list. Write flags=\["TF32"\]'),
        ({"flags": ["A"], "cleared": ["A"]}, 'flag "A" at once'),
        ({"pools": {"WORKSPACE": "1GB"}}, "'1GB': it is no number of bytes"),
        ({"pools": {"WORKSPACE": -1}}, "no number of bytes"),
        ({"pools": {"WORKSPACE": True}}, "no number of bytes"),
        ({"profiles": {"x": ([1], [1], [1])}}, "they are no list"),
        ({"profiles": [[1]]}, "profile 0: it is a list"),
        ({"profiles": [{}, {"x": ([1], [1])}]}, 'profile 1: input "x"'),
        ({"profiles": [{"x": ([1, 2], [1, 2], [1])}]}, "ranks 2, 2, 1"),
        ({"profiles": [{"x": ([1, 2], [1, 2], [2, 1])}]}, "dimension 1 of input .x. goes 2 to 2 to 1"),
        ({"profiles": [{"x": ([-1], [1], [1])}]}, "goes -1 to 1 to 1"),
        ({"profiles": [{"x": ([1.5], [1], [1])}]}, "Give three shapes"),
        ({"profiles": [{"x": 3}]}, "Give three shapes"),
        ({"profiles": [{"x": ("a", "b", "c")}]}, "Give three shapes"),
        ({"max_aux_streams": object()}, "it is a object"),
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, Any], said: str):
    """Before any compiler starts."""
    with pytest.raises(VariantError, match=said):
        BuildOptions.of(**options)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(EACH, _ANY)))
def test_whatever_is_given_becomes_options_or_an_error_of_rtlab(options: dict[str, Any]):
    """And options can be hashed, pickled and spelled."""
    try:
        made = BuildOptions.of(**options)
    except RtlabError:
        return
    assert isinstance(str(made), str)
    assert isinstance(hash(made), int)
