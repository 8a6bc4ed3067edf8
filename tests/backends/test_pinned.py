"""A node that is pinned to fp32 and compiled in less is named, and no other."""

from __future__ import annotations

import pytest

from rtlab import CalibrationData, Study
from rtlab.testing import tiny_model

pytestmark = pytest.mark.slow
NARROW = {"fp16", "bf16", "int8", "fp8"}


def types_of(result, node: str) -> set[str]:
    """What the kernels of a node read and write, as the compiler lists it."""
    layers = [y for y in result.engine.layers if y.id in result.mapping.layers(node)]
    assert layers
    return {t.dtype for y in layers for t in (*y.inputs, *y.outputs, *y.constants)}


def test_a_pinned_node_is_named_where_its_kernel_touches_nothing_of_its_precision() -> None:
    """What the casts around a kernel became is read off its tensors: some keep fp32, and some are folded away."""
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=4))
    pins = ("stem/Relu", "left/Conv", "join/Add", "head/GlobalAveragePool")
    for pin in pins:
        study.add(pin, precision={"*": "fp16", pin: "fp32"}, target="sm89", backend="tensorrt-rtx")
    study.add("half", precision="fp16", target="sm89", backend="tensorrt-rtx")
    study.run(compare=False)
    assert all(types_of(study[pin], pin) & NARROW for pin in pins)
    folded = [pin for pin in pins if "fp32" not in types_of(study[pin], pin)]
    # Both kinds are there, else the test would say nothing.
    assert 0 < len(folded) < len(pins)
    told = {pin: [n for n in study[pin].engine.notes if n.startswith("pinned")] for pin in (*pins, "half")}
    note = "pinned to fp32 but compiled in less, since all that a kernel reads and writes is narrower: "
    assert {pin: [note + pin] if pin in folded else [] for pin in (*pins, "half")} == told
