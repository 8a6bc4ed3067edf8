"""What a layer does for the nodes whose labels it bears."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.variant import Target
from rtlab.relation.dataflow import kernel, operations
from rtlab.relation.relate import relate


def layer(
    name: str, kind: str, reads: str, writes: str, *, index: int = 0, origins: tuple[str, ...] = ()
) -> Layer:
    """A layer that reads one tensor and writes one, of these types."""
    ends = (Tensor("x", reads),), (Tensor("y", writes),)
    return Layer(f"{index}", name, kind, index, *ends, origins=origins)


@pytest.mark.parametrize(
    ("name", "reads", "writes", "expected"),
    [
        ("__myl_MulMinMaxRounCastConc_myl0_0", "fp32", "int8", ((), True, False)),
        ("__myl_MaxRounCast_myl0_3", "fp32", "int8", ((), True, False)),
        ("__myl_MulCastConc_myl0_0", "fp32", "fp8", ((), True, False)),
        ("__myl_CastMul_myl0_0", "int8", "fp32", ((), False, True)),
        ("__myl_MulCast_myl0_0", "fp32", "fp16", (("Mul",), False, False)),
        ("__myl_CastMulMulAddAddReluMulMinMaxRounCast_myl0_2", "int8", "int8",
         (("Mul", "Add", "Add", "Relu"), True, True)),
        ("__myl_MulAddMaxMinMulMinMaxRounCast_myl0_2", "fp32", "int8", (("Mul", "Add", "Max", "Min"), True, False)),
        ("__myl_CastConc_myl0_0", "fp32", "fp16", ((), False, False)),
    ],
)  # fmt: skip
def test_a_kernels_name_tells_what_it_computes_besides_quantizing(name, reads, writes, expected) -> None:
    """A clamp before the scale belongs to the network, the one before the rounding to the quantization."""
    found = kernel(layer(name, "kgen", reads, writes))
    assert found is not None
    assert expected == (found.rest, found.quantizes, found.dequantizes)


def test_a_name_that_is_cut_is_not_taken_as_the_whole() -> None:
    """A long kernel ends in Etc; what follows is not known."""
    cut = layer("__myl_MulAddReluMulEtc_myl0_1", "kgen", "fp32", "fp32")
    assert ("Mul", "Add", "Relu", "Mul") == operations(cut)
    found = kernel(cut)
    assert found is not None
    assert not found.is_complete
    assert kernel(layer("/stem/Conv_myl0_1", "correlation", "int8", "fp32")) is None


def convolution(*, bias: bool = True) -> Model:
    """Conv, HardSwish and Conv."""
    weights = {"w": np.full((4, 4, 1, 1), 0.5, np.float32)} | ({"b": np.zeros(4, np.float32)} if bias else {})
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["c"], name="first"),
        helper.make_node("HardSwish", ["c"], ["h"], name="swish"),
        helper.make_node("Conv", ["h", "w"], ["y"], name="second"),
    ]
    return nets.graph(nodes, *([(n, TensorProto.FLOAT, [1, 4, 8, 8])] for n in "xy"), weights)


@pytest.mark.parametrize(("bias", "role"), [(True, "bias"), (False, "scale")])
def test_the_layer_that_convolves_alone_does_the_convolution(bias: bool, role: str) -> None:
    """INT8: a kernel quantizes the input, a library convolves, a kernel adds the bias and quantizes for the next."""
    model = convolution(bias=bias)
    layers = (
        layer("__myl_MulMinMaxRounCastConc_myl0_0", "kgen", "fp32", "int8", index=0, origins=("first",)),
        layer("first_myl0_1", "correlation", "int8", "fp32", index=1, origins=("first",)),
        layer("__myl_MulAddMulAddMaxMinMulMulMinMaxRounCast_myl0_2", "kgen", "fp32", "int8", index=2,
              origins=("first", "swish", "second")),
        layer("second_myl0_3", "correlation", "int8", "fp32", index=3, origins=("second",)),
    )  # fmt: skip
    mapping = relate(model, model, Engine("t", "1", Target("sm89"), layers))
    first = [(p.layer, p.role) for p in mapping.pairs if p.node == "first"]
    assert [("0", "Q"), ("1", "work"), ("2", role)] == first
    assert [("2", "Q"), ("3", "work")] == [(p.layer, p.role) for p in mapping.pairs if p.node == "second"]
    assert [(), ("first",), ("swish",), ("second",)] == [mapping.run(y.id) for y in layers]
    assert ("first", "swish", "second") == mapping.nodes("2")


@pytest.mark.parametrize(
    ("reads", "writes", "role"),
    [
        ("fp32", "int8", "Q"), ("fp16", "fp8", "Q"), ("fp32", "fp16", "cast"), ("fp16", "fp32", "cast"),
        ("int8", "int8", "layout"), ("fp8", "fp8", "layout"), ("fp16", "fp16", "layout"), ("", "", "layout"),
    ],
)  # fmt: skip
def test_a_reformat_in_front_of_a_product_serves_it_by_its_types(reads: str, writes: str, role: str) -> None:
    """Only what makes a narrow type of a wide one quantizes; another order of the same numbers is a layout."""
    model = convolution()
    name = "Reformatting CopyNode for Input Tensor 0 to first"
    layers = (
        layer(name, "Reformat", reads, writes, origins=("first",)),
        layer("first", "CaskConvolution", writes, "fp32", index=1, origins=("first",)),
    )
    mapping = relate(model, model, Engine("t", "1", Target("sm89"), layers))
    assert [("0", role), ("1", "work")] == [(p.layer, p.role) for p in mapping.pairs if p.node == "first"]


def test_a_product_that_only_a_quantizing_kernel_declares_is_done_nowhere() -> None:
    """The library kernel may bear no label; no other becomes a convolution by that."""
    model = convolution()
    quantizing = layer("__myl_MulMinMaxRounCastConc_myl0_0", "kgen", "fp32", "int8", origins=("first",))
    mapping = relate(model, model, Engine("t", "1", Target("sm89"), (quantizing,)))
    assert ["Q"] == [p.role for p in mapping.pairs if p.node == "first"]
    assert "first" not in mapping.run("0")


@pytest.mark.parametrize(("op", "role"), [("Slice", "layout"), ("Cast", "cast"), ("Exp", "work")])
def test_what_is_put_in_the_place_of_a_product_works_where_it_computes(op: str, role: str) -> None:
    """Convolutions that are merged are cut apart by slices, which multiply nothing; a body of a function computes."""
    source, ends = convolution(), [("x", TensorProto.FLOAT, [1, 4, 8, 8])]
    put = helper.make_node("Slice", ["x", "zero", "four"], ["y"], name="put")
    if op != "Slice":
        put = helper.make_node(op, ["x"], ["y"], name="put", **({"to": 1} if op == "Cast" else {}))
    put.metadata_props.add(key="rtlab.origin", value="first")
    built = nets.graph([put], ends, [("y", 1, [1, 4, 8, 8])], {"zero": np.int64([0]), "four": np.int64([4])})
    shown = layer("__myl_Slic_myl0_0", "kgen", "fp32", "fp32", origins=("put",))
    mapping = relate(source, built, Engine("t", "1", Target("sm89"), (shown,)))
    assert [role] == [p.role for p in mapping.pairs if p.node == "first"]
