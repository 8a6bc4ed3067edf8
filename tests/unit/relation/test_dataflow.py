"""What layers are in one vocabulary, and who reads what they write."""

from __future__ import annotations

import pytest

import engines
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.dataflow import MOVES, Dataflow, work


def layer(
    index: int, kind: str, reads: str, writes: str, *, name: str = "", dtype: str = "fp16", **attributes
) -> Layer:
    inputs, outputs = (tuple(Tensor(t, dtype) for t in side.split()) for side in (reads, writes))
    return Layer(f"{index}", name or f"{kind} {index}", kind, index, inputs, outputs, attributes=attributes)


def engine(*layers: Layer, inputs: str = "x", outputs: str = "y") -> Engine:
    return Engine(
        "trtexec", "", Target("unknown"), layers,
        tuple(Tensor(i, "fp16") for i in inputs.split()), tuple(Tensor(o, "fp16") for o in outputs.split()),
        maker=TENSORRT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "attributes", "expected"),
    [
        ("CaskConvolution", "a", {"ParameterType": "Convolution"}, "convolution"),
        ("CaskDeconvolutionV2", "a", {}, "deconvolution"), ("CudaDepthwiseConvolution", "a", {}, "convolution"),
        ("correlation", "a", {}, "convolution"), ("gemm", "a", {}, "matmul"), ("MatrixMultiply", "a", {}, "matmul"),
        ("TiledPooling", "a", {}, "pooling"), ("PointWiseV2", "PWN(a)", {"ParameterType": "PointWise"}, "pointwise"),
        ("Padding", "a", {"ParameterType": "Slice"}, "slice"),
        ("NoOp", "Reformatting CopyNode for Input Tensor 0 to a", {}, "none"),
        ("Reformat", "Reformatting CopyNode for Input Tensor 0 to a", {"Origin": "REFORMAT"}, "reformat"),
        ("Reformat", "QuantizeLinear_2", {"Origin": "QDQ"}, "quantization"),
        ("Myelin", "{ForeignNode[a...b]}", {}, "region"), ("kgen", "__myl_CastReshCast_myl4_4", {}, "reformat"),
        ("kgen", "__myl_MulSum_myl4_1", {}, "kernel"), ("kgen", "__myl_MulAddReshTran_myl0_4", {}, "kernel"),
        ("shape_call", "a", {}, "control"), ("", "a", {}, "other"),
    ],
)  # fmt: skip
def test_every_spelling_has_one_word(kind, name, attributes, expected) -> None:
    assert expected == work(Layer("0", name, kind, 0, attributes=attributes))


def test_a_scale_between_float_and_int8_is_a_quantization() -> None:
    """That is how TensorRT 8.2 runs a QuantizeLinear that nothing absorbed; a batch normalization is a scale too."""
    scale = Layer("0", "q", "Scale", 0, (Tensor("a", "fp32"),), (Tensor("b", "int8"),))
    assert "quantization" == work(scale)
    assert "scale" == work(Layer("0", "s", "Scale", 0, (Tensor("a", "fp32"),), (Tensor("b", "fp16"),)))
    assert "scale" == work(Layer("0", "s", "Scale", 0, (Tensor("a", "int8"),), (Tensor("b", "int8"),)))


@engines.detailed
def test_every_layer_that_is_detailed_is_understood(folder) -> None:
    found, _ = engines.read(folder)
    assert [] == [y.kind for y in found.layers if work(y) == "other"]


def test_a_reused_buffer_belongs_to_its_last_writer() -> None:
    found = engine(
        layer(0, "A", "x", "t"), layer(1, "B", "t", "u"), layer(2, "C", "u", "t"), layer(3, "D", "t", "y")
    )
    flow, (a, b, c, d) = Dataflow(found), found.layers
    assert (a, c) == (flow.writer(b, b.inputs[0]), flow.writer(d, d.inputs[0]))
    assert ((b,), (d,)) == (flow.readers(a), flow.readers(c))


def test_parts_of_one_tensor_have_one_reader() -> None:
    """An eliminated concatenation: its producers write side by side, and the last stands for all."""
    half, whole = Tensor("t", "fp16", (1, 4)), Tensor("t", "fp16", (1, 8))
    parts = [Layer(f"{i}", n, n, i, (), (half,)) for i, n in enumerate("AB")]
    found = engine(*parts, Layer("2", "C", "C", 2, (whole,), (Tensor("y", "fp16"),)), inputs="")
    flow, (a, b, c) = Dataflow(found), found.layers
    assert b == flow.writer(c, whole)
    assert ((c,), (c,)) == (flow.readers(a), flow.readers(b))


def test_steps_that_run_nothing_are_seen_through() -> None:
    found = engine(
        layer(0, "Convolution", "x", "t"), layer(1, "NoOp", "t", "u"), layer(2, "Reformat", "u", "v"),
        layer(3, "Pooling", "v", "y"),
    )  # fmt: skip
    flow, (conv, _, reformat, pool) = Dataflow(found), found.layers
    assert (reformat,) == flow.after(conv)
    assert (pool,) == flow.after(conv, through=MOVES)
    assert [conv] == list(flow.before(reformat))
    assert [conv] == list(flow.before(pool, through=MOVES))


def test_only_moves_stand_between_the_edge_of_the_engine_and_its_layers() -> None:
    found = engine(
        layer(0, "Reformat", "x", "t"), layer(1, "Convolution", "t", "u"), layer(2, "Softmax", "u", "v"),
        layer(3, "Shuffle", "v", "y"),
    )  # fmt: skip
    flow, (_, conv, softmax, _) = Dataflow(found), found.layers
    assert flow.is_from_input(conv, conv.inputs[0])
    assert not flow.is_from_input(softmax, softmax.inputs[0])
    assert flow.reaches_output(softmax)
    assert not flow.reaches_output(conv)


@pytest.mark.parametrize(("origin", "expected"), [("QDQ", True), ("REFORMAT", True), (None, False)])
def test_a_quantization_only_moves_what_comes_from_outside_or_leaves(origin, expected) -> None:
    kind, told = ("Reformat", {"Origin": origin}) if origin else ("PointWiseV2", {})
    found = engine(
        layer(0, kind, "x", "t", **told), layer(1, "Convolution", "t", "u"), layer(2, kind, "u", "y", **told)
    )
    flow, conv = Dataflow(found), found.layers[1]
    assert [expected] * 2 == [flow.is_from_input(conv, conv.inputs[0]), flow.reaches_output(conv)]


def test_a_loop_ends() -> None:
    found = engine(layer(0, "NoOp", "s", "t"), layer(1, "Reformat", "t", "s"), layer(2, "NoOp", "s", "y"))
    flow = Dataflow(found)
    for at in found.layers:
        flow.reaches_output(at)
        list(flow.before(at, through=MOVES))
        flow.after(at, through=MOVES)
        assert flow.is_from_input(at, at.inputs[0]) in {True, False}


def test_what_leaves_the_engine_is_told_through_steps_that_only_move() -> None:
    """Every way of what a layer writes must end at an output, with nothing computed on it."""
    moved = [layer(0, "CaskConvolution", "x", "a"), layer(1, "Reformat", "a", "y")]
    assert Dataflow(engine(*moved)).reaches_output(moved[0])
    # A second reader computes.
    both = [*moved, layer(2, "TiledPooling", "a", "z")]
    assert not Dataflow(engine(*both, outputs="y z")).reaches_output(both[0])
    # Nobody reads it, and it is no output.
    lost = [layer(0, "CaskConvolution", "x", "a"), layer(1, "Reformat", "a", "b")]
    assert [False, False] == [Dataflow(engine(*lost)).reaches_output(y) for y in lost]
    # Where the outputs are unknown, what nobody reads may be one.
    assert [True, True] == [Dataflow(engine(*lost, outputs="")).reaches_output(y) for y in lost]
