"""The attention of a fused layer: heads, sizes and masks as the graph was written with them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
from rtlab.core.engine import Layer
from rtlab.relation.attention import find_attention

HEADS, LENGTH, SIZE = 6, 8, 32
CAUSAL = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)[None, None]
#: What is added to the scores, and what it is called.
MASKS = {
    "no": None,
    "causal": CAUSAL,
    # Scores behind the diagonal stay open.
    "constant": CAUSAL.transpose(0, 1, 3, 2),
    "computed": "input",
}


def attention(mask: object, heads: int = HEADS):
    """Queries by keys, scaled, with a mask if any, softmax, by values."""
    sizes = {"q": [1, heads, LENGTH, SIZE], "k": [1, heads, SIZE, LENGTH], "v": [1, heads, LENGTH, SIZE]}
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"], name="qk"),
        helper.make_node("Mul", ["s", "c"], ["t"], name="scale"),
    ]
    scores, weights = "t", {"c": np.float32(0.2)}
    if mask is not None:
        nodes.append(helper.make_node("Add", [scores, "m"], ["masked"], name="mask"))
        scores = "masked"
        if isinstance(mask, np.ndarray):
            weights["m"] = mask
        else:
            sizes["m"] = [1, 1, LENGTH, LENGTH]
    nodes += [
        helper.make_node("Softmax", [scores], ["p"], axis=-1, name="soft"),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="pv"),
    ]
    ins = [(name, TensorProto.FLOAT, size) for name, size in sizes.items()]
    return nets.graph(nodes, ins, [("y", TensorProto.FLOAT, sizes["v"])], weights)


@pytest.mark.parametrize("kind", MASKS)
def test_heads_their_size_and_the_mask_are_those_of_the_graph(kind: str) -> None:
    model = attention(MASKS[kind])
    layer = Layer("0:_gemm_mha_v2_myl0_7", "_gemm_mha_v2_myl0_7", "kgen", 0)
    assert f"6 heads of 32, {kind} mask" == str(find_attention(layer, model.nodes, model))


def test_a_layer_of_another_name_is_no_attention() -> None:
    model = attention(None)
    assert find_attention(Layer("0:__myl_MulSoft", "__myl_MulSoft", "kgen", 0), model.nodes, model) is None


def test_what_the_nodes_do_not_tell_is_left_out() -> None:
    model = attention(None)
    (product,) = (n for n in model.nodes if n.id == "pv")
    layer = Layer("0:_gemv_mha_v1_myl0_7", "_gemv_mha_v1_myl0_7", "kgen", 0)
    assert "" == str(find_attention(layer, [product], model))
