"""The bounds of a language model, by arithmetic on the sizes that it is written with."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
from rtlab import Study
from rtlab.analyses.generation import analyze_generation, generates_text
from rtlab.analyses.panel_context import PanelContext
from rtlab.core.peaks import resolve_peaks

ROWS, WIDTH, LENGTH, HEADS, SHARED = 50, 32, 6, 4, 2
SIZE = WIDTH // HEADS


def decoder():
    """One layer: an embedding, attention whose keys and values two queries share, and scores for each row."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=size).astype(np.float32) for name, size in {
        "table": (ROWS, WIDTH), "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH // SHARED), "wv": (WIDTH, WIDTH // SHARED),
        "wo": (WIDTH, WIDTH), "head": (WIDTH, ROWS),
    }.items()}  # fmt: skip
    kv = HEADS // SHARED
    weights |= {
        "by_head": np.array([1, LENGTH, HEADS, SIZE]), "by_kv": np.array([1, LENGTH, kv, SIZE]), "axis": np.array([2]),
        "more": np.array([1, kv, SHARED, LENGTH, SIZE]), "merged": np.array([1, HEADS, LENGTH, SIZE]),
        "flat": np.array([1, LENGTH, WIDTH]),
        "mask": np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)[None, None],
    }  # fmt: skip
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], name="embedding")]

    def put(op: str, *inputs: str, **attributes: object) -> str:
        out = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [out], name=f"n{len(nodes)}", **attributes))
        return out

    def heads(name: str, by: str) -> str:
        return put("Transpose", put("Reshape", put("MatMul", "x", name), by), perm=[0, 2, 1, 3])

    def repeated(value: str) -> str:
        return put("Reshape", put("Expand", put("Unsqueeze", value, "axis"), "more"), "merged")

    queries, keys, values = (
        heads("wq", "by_head"),
        repeated(heads("wk", "by_kv")),
        repeated(heads("wv", "by_kv")),
    )
    scores = put("Add", put("MatMul", queries, put("Transpose", keys, perm=[0, 1, 3, 2])), "mask")
    mixed = put("MatMul", put("Softmax", scores, axis=-1), values)
    flat = put("Reshape", put("Transpose", mixed, perm=[0, 2, 1, 3]), "flat")
    nodes.append(helper.make_node("MatMul", [put("MatMul", flat, "wo"), "head"], ["y"], name="scores"))
    ends = ("ids", TensorProto.INT64, [1, LENGTH]), ("y", TensorProto.FLOAT, [1, LENGTH, ROWS])
    return nets.graph(nodes, [ends[0]], [ends[1]], weights)


@pytest.mark.slow
def test_bounds_are_those_of_the_sizes() -> None:
    study = Study(decoder())
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run(compare=False)
    found = analyze_generation(PanelContext(study.state, study["fp32"].facts))
    numbers = WIDTH * (WIDTH + WIDTH + WIDTH + ROWS)
    assert (1, LENGTH, 4 * numbers) == (found.attentions, found.length, found.weights)
    # Keys and values of two heads of eight numbers in four bytes.
    assert (2 * 2 * 8 * 4, LENGTH * 128) == (found.cache_token, found.cache)
    moved, attended = 4 * numbers + LENGTH * 128, LENGTH * 4 * HEADS * SIZE
    assert (2 * numbers + attended) / moved == pytest.approx(found.decode_intensity)
    assert LENGTH * (2 * numbers + attended) / moved == pytest.approx(found.prefill_intensity)
    gpu = resolve_peaks(found.gpu)
    assert ("memory", "memory") == (found.decode_bound, found.prefill_bound)
    assert gpu.bandwidth / moved == pytest.approx(found.decode_rate)
    assert LENGTH * gpu.bandwidth / moved == pytest.approx(found.prefill_rate)


def test_a_model_without_a_table_of_tokens_generates_nothing() -> None:
    assert generates_text(decoder())
    assert not generates_text(nets.chain("Relu"))
