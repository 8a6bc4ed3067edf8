"""Numbers of a graph that are known before the first inference, wherever an exporter put them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from rtlab.quantize import qdq

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def made(op: str, *reads: ir.Value, **attributes: object) -> ir.Value:
    return ir.node(op, reads, attributes=attributes or None).outputs[0]


@pytest.mark.parametrize("copies", [0, 1, 2])
@pytest.mark.parametrize("held", ["initializer", "Constant"])
def test_stored_numbers_are_known_also_behind_copies(held: str, copies: int) -> None:
    value = made("Constant", value=ir.tensor(NUMBERS))
    if held == "initializer":
        value = ir.Value(name="w", const_value=ir.tensor(NUMBERS))
    for _ in range(copies):
        value = made("Identity", value)
    np.testing.assert_array_equal(NUMBERS, qdq.get_constant(value))


@pytest.mark.parametrize("op", ["Relu", "Abs"])
def test_what_is_computed_is_not_known(op: str) -> None:
    assert qdq.get_constant(made(op, made("Constant", value=ir.tensor(NUMBERS)))) is None
    assert qdq.get_constant(made(op, ir.Value(name="x"))) is None
    assert qdq.get_constant(ir.Value(name="x")) is None
