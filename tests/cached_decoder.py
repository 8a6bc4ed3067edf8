"""A small decoder with a cache, named as exporters name its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from nets import graph_proto

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT
#: Rows of the tables of tokens and of positions; heads and their width.
VOCABULARY, POSITIONS, HEADS, WIDTH = 50, 300, 2, 4

Shape = list[int | str]
CACHE: Shape = ["batch_size", HEADS, "past_sequence_length", WIDTH]


def decoder_proto(*, total: str = "past_sequence_length + sequence_length", **inputs: Any) -> onnx.ModelProto:
    """One block of attention; a token that the mask leaves out is blocked by minus infinity.

    ``total`` is the symbol of the mask's length, ``inputs`` other types and shapes of inputs by their name, with ``__``
    for a dot.
    """
    words: Shape = ["batch_size", "sequence_length"]
    ends: dict[str, tuple[int, Shape]] = {
        "input_ids": (INT64, words),
        "attention_mask": (INT64, ["batch_size", total]),
        "position_ids": (INT64, words),
        "past_key_values.0.key": (FLOAT, CACHE),
        "past_key_values.0.value": (FLOAT, CACHE),
        **{name.replace("__", "."): end for name, end in inputs.items()},
    }
    rng, hidden = np.random.default_rng(0), HEADS * WIDTH
    weights = {
        "tokens": rng.standard_normal((VOCABULARY, hidden)), "positions": rng.standard_normal((POSITIONS, hidden)),
        **{f"w{name}": rng.standard_normal((hidden, hidden)) / 3 for name in "qkvo"},
        "scale": np.array(WIDTH**-0.5), "blocked": np.array(-np.inf),
    }  # fmt: skip
    constants = {
        "split": np.int64([0, 0, HEADS, WIDTH]), "join": np.int64([0, 0, hidden]), "middle": np.int64([1, 2]),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Cast", ["input_ids"], ["ids"], "ids", to=INT64),
        node("Gather", ["tokens", "ids"], ["embedded"], "embed"),
        node("Gather", ["positions", "position_ids"], ["placed"], "place"),
        node("Add", ["embedded", "placed"], ["h"], "add"),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["h", f"w{name}"], [f"{name}_flat"], f"{name}_proj"),
            node("Reshape", [f"{name}_flat", "split"], [f"{name}_split"], f"{name}_heads"),
            node("Transpose", [f"{name}_split"], [f"{name}_new"], f"{name}_turn", perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", ["past_key_values.0.key", "k_new"], ["present.0.key"], "join_k", axis=2),
        node("Concat", ["past_key_values.0.value", "v_new"], ["present.0.value"], "join_v", axis=2),
        node("Transpose", ["present.0.key"], ["k_t"], "turn_k", perm=[0, 1, 3, 2]),
        node("MatMul", ["q_new", "k_t"], ["products"], "scores"),
        node("Mul", ["products", "scale"], ["scores"], "scale_scores"),
        node("Cast", ["attention_mask"], ["counts"], "mask_bool", to=TensorProto.BOOL),
        node("Unsqueeze", ["counts", "middle"], ["counts4"], "mask_wide"),
        node("Where", ["counts4", "scores", "blocked"], ["masked"], "mask"),
        node("Softmax", ["masked"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "present.0.value"], ["mixed"], "mix"),
        node("Transpose", ["mixed"], ["mixed_t"], "turn_back", perm=[0, 2, 1, 3]),
        node("Reshape", ["mixed_t", "join"], ["joined"], "join"),
        node("MatMul", ["joined", "wo"], ["out"], "out_proj"),
        node("Add", ["out", "h"], ["logits"], "residual"),
    ]
    present: Shape = ["batch_size", HEADS, "total", WIDTH]
    outputs = [
        ("logits", FLOAT, [*words, hidden]),
        ("present.0.key", FLOAT, present),
        ("present.0.value", FLOAT, present),
    ]
    arrays: Mapping[str, Any] = {**{n: np.float32(a) for n, a in weights.items()}, **constants}
    return graph_proto(nodes, [(n, kind, shape) for n, (kind, shape) in ends.items()], outputs, dict(arrays))
