"""Why an attention is not one layer, asked of TensorRT-RTX 1.7 on planted causes; each is one layer without its own.

That it is, and is not, the compiler says first. Three nodes are one layer there, which no two of them are alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

import rtlab
from rtlab import backends
from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import Verdict
from rtlab.analyses.why.missed_fusions import same_layer

RTX = backends.get("tensorrt-rtx")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason),
]


@dataclasses.dataclass(frozen=True)
class Attention:
    """An attention with its linear layers, on ``length`` tokens (0 for an open number).

    ``type`` is that of its floats, ``pairs`` that of Q/DQ pairs at what both products read, and with ``output_pair``
    behind the second; with ``linear`` the linear layers have INT8 ones. ``shown`` is a value that is an output,
    ``read`` one that a transposition reads too. With ``measured`` the last shape is computed from the value's own.
    """

    heads: int = 4
    size: int = 32
    length: int = 64
    type: str = "fp32"
    precision: str = "fp32"
    target: str = "sm86"
    pairs: str = ""
    output_pair: bool = False
    linear: bool = False
    shown: str = ""
    read: str = ""
    measured: bool = False

    def proto(self) -> onnx.ModelProto:
        writer = _Writer(np.float16 if self.type == "fp16" else np.float32)
        write, width = writer.write, self.heads * self.size
        for name, perm in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items():
            split = np.array([1, self.length or -1, self.heads, self.size])
            made = write("Reshape", self._linear(writer, "x", f"{name}_linear"), split, out=f"{name}_split")
            write("Transpose", made, out=name, perm=perm)
        q, k, v = (writer.pair(n, self.pairs, 0.05) if self.pairs else n for n in "qkv")
        write("MatMul", q, k, out="scores")
        write("Mul", "scores", np.asarray(0.2, writer.kind), out="scaled")
        write("Softmax", "scaled", out="p", axis=-1)
        write("MatMul", writer.pair("p", self.pairs, 0.01) if self.pairs else "p", v, out="mixed")
        mixed = writer.pair("mixed", self.pairs, 0.05) if self.output_pair else "mixed"
        write("Transpose", mixed, out="back", perm=[0, 2, 1, 3])
        joined: Any = np.array([1, self.length or -1, width])
        if self.measured:
            sizes = write(
                "Slice", write("Shape", "back", out="sizes"), np.array([0]), np.array([2]), out="two"
            )
            joined = write("Concat", sizes, np.array([width]), out="joined_sizes", axis=0)
        self._linear(writer, write("Reshape", "back", joined, out="joined"), "y")
        if self.read:
            write("Transpose", self.read, out="aside", perm=[3, 2, 1, 0])
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(writer.kind))
        ends = [n for n in ("y", self.shown, "aside" if self.read else "") if n]
        graph = helper.make_graph(
            writer.nodes,
            "attention",
            [helper.make_tensor_value_info("x", kind, [1, self.length or "n", width])],
            [helper.make_empty_tensor_value_info(n) for n in ends],
            writer.weights,
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        return shape_inference.infer_shapes(proto, data_prop=True)

    def _linear(self, writer: _Writer, source: str, out: str) -> str:
        width = self.heads * self.size
        weight = writer.rng.normal(0, width**-0.5, (width, width)).astype(writer.kind)
        if not self.linear:
            return writer.write("MatMul", source, weight, out=out)
        stored = (weight * 100).clip(-127, 127).astype(np.int8)
        scale = np.asarray(0.01, writer.kind)
        weight_out = writer.write("DequantizeLinear", stored, scale, np.int8(0), out=f"{out}_weight")
        return writer.write("MatMul", writer.pair(source, "int8", 0.05, f"{out}_in"), weight_out, out=out)

    def study(self) -> rtlab.Study:
        made = rtlab.Study(rtlab.load(self.proto(), name="attention"))
        width = self.heads * self.size
        profile = {} if self.length else {"x": tuple((1, n, width) for n in (16, 64, 128))}
        options: Any = {"options": {"profiles": [profile]}} if profile else {}
        made.add("asked", precision=self.precision, target=self.target, backend="tensorrt-rtx", **options)
        return made.run(compare=False)


class _Writer:
    """Nodes that are called as what they write, and constants."""

    def __init__(self, kind: type) -> None:
        self.kind, self.rng = kind, np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def write(self, op: str, *inputs: Any, out: str, **attributes: Any) -> str:
        names = []
        for value in inputs:
            names.append(value if isinstance(value, str) else f"{out}/{len(names)}")
            if isinstance(value, onnx.TensorProto):
                self.weights.append(value)
                self.weights[-1].name = names[-1]
            elif not isinstance(value, str):
                self.weights.append(numpy_helper.from_array(np.asarray(value), names[-1]))
        self.nodes.append(helper.make_node(op, names, [out], name=out, **attributes))
        return out

    def pair(self, source: str, kind: str, scale: float, name: str = "") -> str:
        name, at = name or source, np.asarray(scale, self.kind)

        def zero() -> Any:
            return (
                np.int8(0) if kind == "int8" else helper.make_tensor("", TensorProto.FLOAT8E4M3FN, [], [0.0])
            )

        stored = self.write("QuantizeLinear", source, at, zero(), out=f"{name}/Q")
        return self.write("DequantizeLinear", stored, at, zero(), out=f"{name}/DQ")


def is_one_layer(study: rtlab.Study) -> bool | None:
    facts = study["asked"].facts
    model = facts.prepared.model
    return same_layer(relate_engine(facts.engine, model, model), "p", "mixed")


def asked(base: Attention, **planted: Any) -> Verdict:
    assert is_one_layer(base.study()) is True
    study = dataclasses.replace(base, **planted).study()
    assert is_one_layer(study) is False
    found = study.fusion.why("p", "mixed", variant="asked", again=True)
    assert "blocked" == found.verdict
    assert found.seconds < 60
    return found


HALF = Attention(precision="fp16")
INT8 = Attention(pairs="int8", output_pair=True)
FP8 = Attention(type="fp16", pairs="fp8", target="sm89")


@pytest.mark.parametrize("value", ["scores", "scaled", "p"])
def test_an_output_in_the_middle_parts_an_attention(value) -> None:
    found = asked(HALF, shown=value)
    assert (("output",), f'do not mark "{value}" as an output') == (found.causes, found.edit)


@pytest.mark.parametrize("value", ["scores", "p"])
def test_another_reader_parts_an_attention(value) -> None:
    found = asked(HALF, read=value)
    assert (("reader",), ("aside",)) == (found.causes, found.nodes)


@pytest.mark.parametrize("measured", [False, True])
def test_in_fp32_it_is_none_and_a_shape_that_is_computed_keeps_nobody_from_trying(measured) -> None:
    found = asked(dataclasses.replace(HALF, measured=measured), precision="fp32")
    assert (("type",), "compute everything in FP16") == (found.causes, found.edit)
    assert "a variant in FP16 has it" in found.text


def test_fp32_around_linear_layers_in_int8() -> None:
    found = asked(Attention(type="fp16", linear=True), type="fp32")
    assert ("type",) == found.causes


def test_a_head_of_8_even_where_as_many_heads_are_reshaped_with_it() -> None:
    """The constant of a reshape has both as 8: in the model that cannot be built with another size, and it is said."""
    found = asked(Attention(heads=8, size=32, precision="fp16"), size=8)
    assert ("shape",) == found.causes
    assert "use 16 in place of the size 8" in found.edit
    assert "in the model itself that could not be built" in found.text


def test_a_head_of_512_on_64_tokens() -> None:
    found = asked(Attention(heads=2, size=64, precision="fp16"), size=512)
    assert (("shape",), "use 32 in place of the size 512") == (found.causes, found.edit)


def test_int8_without_a_pair_behind_the_second_product() -> None:
    found = asked(INT8, output_pair=False)
    assert (("unquantized",), 'quantize "mixed"') == (found.causes, found.edit)


def test_fp32_around_pairs_in_fp8_lacks_a_pair_at_the_output() -> None:
    """In FP16 it needs none; in FP32 the output's pair alone makes one layer of it."""
    found = asked(FP8, type="fp32")
    assert {*found.causes} <= {"unquantized", "type"}


def test_a_length_that_is_open_parts_an_attention_in_fp8() -> None:
    found = asked(FP8, length=0)
    assert ("size",) == found.causes
    assert 'fix the size "n" (16 to 128) to 64' == found.edit
