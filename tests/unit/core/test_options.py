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
}


def test_options_are_written_by_tensorrts_names():
    made = BuildOptions.of(
        max_aux_streams=np.int64(0), tiling_optimization_level=Level.FULL, tactic_sources=["CUDNN"],
        flags=[Level.FULL, "B"], pools={Level.NONE: 1}, profiles=[{"x": np.array([[1, 3], [2, 3], [4, 3]])}],
        timing_cache="cache",
    )  # fmt: skip
    values = {"max_aux_streams": 0, "tactic_sources": ("CUDNN",), "tiling_optimization_level": "FULL"}
    assert (*values.items(),) == made.config
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
    ids = {Variant.of("int8", options=BuildOptions.of(**{k: v})).id for k, v in EACH.items()}
    assert len(EACH) == len(ids)
    assert Variant.of("int8").id not in ids
    for other in ({"builder_optimization_level": 4}, {"pools": {"WORKSPACE": 2}}, {"timing_cache": "b"}):
        assert Variant.of("int8", options=BuildOptions.of(**other)).id not in ids
    assert Variant.of("fp32") == Variant.of("fp32", options=BuildOptions())
    every = Variant.of("int8", options=BuildOptions.of(**EACH))
    assert "int8·auto · 6 options" == every.name
    assert "fp32 · 1 option" == Variant.of("fp32", options=BuildOptions.of(a=1)).name


@pytest.mark.parametrize(
    "options",
    [
        {"flags": ["A"], "cleared": ["A"]}, {"pools": {"WORKSPACE": True}}, {"max_aux_streams": object()},
        {"profiles": [[1]]}, {"profiles": [{"x": ("a", "b", "c")}]}, {"profiles": [{"x": ([1.5], [1], [1])}]},
    ],
)  # fmt: skip
def test_what_is_no_option_is_refused(options: dict[str, Any]):
    with pytest.raises(VariantError):
        BuildOptions.of(**options)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(EACH, _ANY)))
def test_whatever_is_given_becomes_options_or_an_error_of_rtlab(options: dict[str, Any]):
    try:
        made = BuildOptions.of(**options)
    except RtlabError:
        return
    assert isinstance(str(made), str)
    assert isinstance(hash(made), int)
