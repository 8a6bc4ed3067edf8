"""Flags by release: a remedy names what the user's TensorRT has."""

from __future__ import annotations

import pytest

from rtlab.backends.makers import TENSORRT, TENSORRT_RTX
from rtlab.core.engine import Engine
from rtlab.core.maker import Maker
from rtlab.core.variant import Target
from rtlab.relation import flags


def engine(version: str, maker: Maker = TENSORRT) -> Engine:
    return Engine("any", version, Target("sm80"), (), maker=maker)


@pytest.mark.parametrize(
    ("found", "release", "by_model"),
    [
        (engine("8.2.1"), (8, 2), False), (engine("10.16.1.11"), (10, 16), False), (engine("11.4.0"), (11, 4), True),
        (engine(""), None, None), (engine("1.7.1", TENSORRT_RTX), None, True),
    ],
)  # fmt: skip
def test_types_are_the_model_s_from_tensorrt_11_on_and_in_rtx(found, release, by_model) -> None:
    assert (release, by_model) == (flags.release(found), flags.by_model(found))
    assert ("--layerPrecisions" in flags.retype(found)) == (by_model is not True)
    assert ("--fp16" in flags.allow_half(found)) == (by_model is not True)
    # Where the release is not told, the remedy says until when it holds.
    assert ("up to TensorRT 10" in flags.retype(found)) == (by_model is None)
