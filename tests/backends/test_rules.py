"""The table of fusion rules that rtlab brings along is what TensorRT-RTX does, and what was found by hand."""

from __future__ import annotations

import dataclasses

import pytest

from rtlab import backends
from rtlab.questions import rules
from rtlab.session.cataloguing import ask_rules

RTX = backends.get("tensorrt-rtx")
SHIPPED = rules.shipped("tensorrt-rtx", "sm86")
#: What was found by hand with release 1.7, or is told by the layer counts of whole networks.
BY_HAND = {
    "conv-batchnorm-relu": "fused",
    "conv-add-relu": "fused",
    "conv-silu": "fused",
    # A planted output or reader keeps a fusion from happening; casts are absorbed.
    "conv-output-relu": "apart",
    "conv-reader-relu": "apart",
    "conv-cast-relu": "fused",
    # Nothing makes one step of an activation and a pooling.
    "conv-relu-maxpool": "apart",
    # GoogLeNet keeps its 57 convolutions, and eight of nine concatenations go.
    "siblings-1x1-relu": "apart",
    "concat-relu": "gone",
    # Twenty builds: an INT8 convolution never shares a step with its requantization.
    "int8-conv-requantize": "apart",
    "int8-conv-relu-requantize": "apart",
    "int8-conv-tensor-requantize": "apart",
    "attention-fp16": "fused",
}

needs_rtx = pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)


def test_what_was_found_by_hand_stands_in_the_table() -> None:
    found = {r.case: r.found for r in SHIPPED.rules}
    assert BY_HAND == {name: found[name] for name in BY_HAND}


@pytest.mark.slow
@needs_rtx
def test_the_compiler_answers_the_whole_catalogue_as_the_table_says() -> None:
    if RTX.availability().version != SHIPPED.version:
        pytest.skip(f"The table is of {SHIPPED.version}.")
    found = ask_rules("tensorrt-rtx", "sm86")
    assert dataclasses.replace(SHIPPED, date=found.date) == found
