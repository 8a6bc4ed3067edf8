"""Counts by formula beside a counter that walks over every multiplication."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nets import graph_proto
from rtlab.core.model import wrap
from rtlab.relation.work import works


def counted(op: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: object) -> int | None:
    node = helper.make_node(op, ["x", "w"], ["y"], name="n", **attributes)
    weights = {"w": np.zeros(w, np.float32)}
    made = graph_proto([node], [("x", TensorProto.FLOAT, x)], [("y", TensorProto.FLOAT, None)], weights)
    return works(wrap(made, name="m"))["n"].macs


@given(
    dims=st.integers(1, 3), groups=st.sampled_from([1, 2]), batch=st.integers(1, 2), kernel=st.integers(1, 3),
    stride=st.integers(1, 2), pad=st.integers(0, 1), dilation=st.integers(1, 2), size=st.integers(5, 6),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_convolution_has_as_many_multiplications_as_its_windows_have_elements(
    dims: int, groups: int, batch: int, kernel: int, stride: int, pad: int, dilation: int, size: int
) -> None:
    inner, outer = 2, 3
    starts = range(0, size + 2 * pad - dilation * (kernel - 1), stride)
    brute = 0
    for _ in itertools.product(range(batch), range(outer * groups), *[starts] * dims):
        brute += sum(1 for _ in itertools.product(range(inner), *[range(kernel)] * dims))
    found = counted(
        "Conv", (batch, inner * groups, *[size] * dims), (outer * groups, inner, *[kernel] * dims), group=groups,
        strides=[stride] * dims, pads=[pad] * 2 * dims, dilations=[dilation] * dims,
    )  # fmt: skip
    assert brute == found


@given(stack=st.lists(st.integers(1, 3), max_size=2), rows=st.integers(1, 4), depth=st.integers(1, 4),
       columns=st.integers(1, 4), shared=st.booleans())  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_product_has_as_many_as_numpy_would_sum(
    stack: list[int], rows: int, depth: int, columns: int, shared: bool
) -> None:
    first, second = (*stack, rows, depth), (depth, columns) if shared else (*stack, depth, columns)
    # The product of ones is the depth, once for each result.
    brute = int(np.matmul(np.ones(first), np.ones(second)).sum())
    assert brute == counted("MatMul", first, second)


@given(st.lists(st.sampled_from("ijk"), min_size=1, max_size=3, unique=True),
       st.lists(st.sampled_from("ijkl"), min_size=1, max_size=3, unique=True), st.data())  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_an_einsum_has_as_many_as_combinations_of_its_indices(first, second, data) -> None:
    spans = {"i": 2, "j": 3, "k": 4, "l": 5}
    every = sorted({*first, *second})
    kept = data.draw(st.lists(st.sampled_from(every), unique=True))
    equation = f"{''.join(first)},{''.join(second)}->{''.join(kept)}"
    shapes = [tuple(spans[c] for c in term) for term in (first, second)]
    total = np.einsum(equation, np.ones(shapes[0]), np.ones(shapes[1])).sum()
    summed = math.prod(spans[c] for c in every) if set(kept) != set(every) else 0
    assert summed == counted("Einsum", *shapes, equation=equation)
    assert summed in {0, int(total)}
