"""What TensorRT-RTX makes of small graphs with one fusion each, beside what TensorRT's documentation says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusion_cases import FusionCase, cases
from rtlab import backends
from rtlab.analyses.why.missed_fusions import steps_of
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.relation.relate import relate
from snapshots import read

RTX = backends.get("tensorrt-rtx")
FILE = "answers/fusions.json"
((HEAD, FOUND),) = read((Path(__file__).parent / FILE).read_text("utf-8")).items()
#: What was found by hand with release 1.7, or is shown by the layer counts of whole networks.
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


def fate(case: FusionCase) -> dict[str, Any]:
    options = None if case.profile is None else BuildOptions.of(profiles=[dict([case.profile])])
    target = case.target or "sm86"
    variant = Variant.of(case.precision, target=target, backend=RTX.name, options=options)
    engine = RTX.build(BuildRequest(case.model, variant, several=True), Silent())
    relation = relate(case.model, case.model, engine)
    first, second = ({i for n in side for i in steps_of(relation, n)} for side in case.pair)
    if not first or not second:
        found = "gone"
    elif case.pair[0] != case.pair[1]:
        found = "fused" if first & second else "apart"
    else:
        found = "apart" if all({*relation.run(i)} == {*case.pair[0]} for i in first) else "fused"
    layers = engine.layer_count
    return {"documented": case.documented, "found": found, "layers": layers, "target": target}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)
def test_pairs_are_fused_as_in_the_file(golden: Any) -> None:
    golden(FILE, {f"sm86 · TensorRT-RTX {RTX.availability().version}": {c.name: fate(c) for c in cases()}})


def test_the_file_says_what_was_found_by_hand() -> None:
    assert BY_HAND == {name: FOUND[name]["found"] for name in BY_HAND}
