"""NVFP4, MXFP8 and ModelOpt's operators through NVIDIA's own builder."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import trt_nets
from nets import graph
from rtlab import Study, backends
from rtlab.analyses.findings.rules import rank_findings
from rtlab.core.engine import Engine
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import BuildError
from rtlab.quantize import prepare, quantizable
from rtlab.relation.relate import relate

BACKEND = backends.get("tensorrt-rtx")
here = BACKEND.availability()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not here.ok, reason=here.reason)]

node = helper.make_node
#: What the product of each model reads, by target; "" where the builder refuses the model.
READS = {
    "fp8": {"sm89": "fp8", "sm120": "fp8"},
    "int4": {"sm86": "fp32", "sm120": "fp32"},
    "int4_pair": {"sm89": "fp32"},
    "nvfp4": {"sm89": "", "sm120": "fp4"},
    "nvfp4_trt": {"sm120": "fp4"},
    "nvfp4_weights": {"sm89": "", "sm120": "fp32"},
    "mxfp8": {"sm89": "fp32", "sm120": "fp32"},
}
CASES = [(n, t, r) for n, table in READS.items() for t, r in table.items()]


def built(model: Model, target: str) -> Engine:
    return BACKEND.build(BuildRequest(model, Variant.of("fp32", target=target)), Silent())


def reads(engine: Engine, product: str) -> set[str]:
    """The types of the first tensors of layers that multiply."""
    layers = [y for y in engine.layers if product in y.origins and y.kind in {"gemm", "runtime_fusion"}]
    assert layers
    return {y.inputs[0].dtype for y in layers}


@pytest.mark.parametrize(("name", "target", "expected"), CASES)
def test_what_the_builder_multiplies_in(name: str, target: str, expected: str):
    model = load(trt_nets.NETS[name]()[0])
    if not expected:
        with pytest.raises(BuildError, match="fp4_e2m1"):
            built(model, target)
        return
    engine = built(model, target)
    assert reads(engine, "product") == {expected}
    mapping = relate(model, model, engine)
    assert [] == [m.node for m in mapping.missing]
    wide = {f.rule for f in rank_findings(engine, mapping, model)} & {"block-format-in-float"}
    assert bool(wide) == (expected == "fp32" and not name.startswith("int4"))
    assert {t.dtype for y in engine.layers for t in (*y.inputs, *y.outputs)} <= {"fp32", "fp8", "fp4", "e8m0"}


@pytest.mark.parametrize("opset", [17, 20, 21])
def test_the_builder_takes_fp4_in_opsets_without_it(opset: int):
    """So a file of ModelOpt that ONNX's checker refuses is no reason to refuse it."""
    assert reads(built(load(trt_nets.make_nvfp4(opset=opset)[0]), "sm120"), "product") == {"fp4"}


def test_products_of_halves_behind_fp4_are_multiplied_in_four_bits():
    """The file says FP32 of what they write, as files of ModelOpt 0.47 do."""
    engine = built(load(trt_nets.make_nvfp4_halves()[0]), "sm120")
    assert reads(engine, "product") == {"fp4"}
    assert {"fp16"} == {t.dtype for t in engine.outputs}


def test_a_weight_that_modelopt_left_in_its_operator_is_refused_in_words():
    with pytest.raises(BuildError, match="TRT_FP4QDQ: a weight that ModelOpt stores in four bits at the end"):
        built(load(trt_nets.make_nvfp4_static()[0]), "sm120")


def net(op: str, first: object, **attributes: int) -> Model:
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((64, 48)) / 8).astype(np.float32)
    weights = {
        "w": w.T.copy() if attributes else w,
        "v": (rng.standard_normal((48, 32)) / 8).astype(np.float32),
    }
    nodes = [
        node(op, ["x", "w"], ["m"], "first", **attributes),
        node("Relu", ["m"], ["r"], "relu"),
        node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    lead = [first, 32] if op == "MatMul" else [first]
    ends = [(n, TensorProto.FLOAT, [*lead, size]) for n, size in (("x", 64), ("y", 32))]
    return graph(nodes, ends[:1], ends[1:], weights)


@pytest.mark.parametrize("base", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "model",
    [net("MatMul", 2), net("Gemm", 64), net("Gemm", 64, transB=1), net("MatMul", "batch")],
    ids=["matmul", "gemm", "turned", "dynamic"],
)
def test_products_of_fp4_are_multiplied_in_four_bits(model: Model, base: str):
    """The builder's own listing says so: both factors of a gemm are FP4, whatever is around it."""
    precision = {"*": base, "first": "fp4", "second": "fp4"}
    variant = Variant.of(precision, target="sm120")
    ready = prepare(model, variant, scales={v: Scale(4.0) for v in quantizable(model)})
    engine = BACKEND.build(BuildRequest(ready.model, variant), Silent())
    for product in ("first", "second"):
        assert {"fp4"} == reads(engine, product)
        (gemm,) = [y for y in engine.layers if product in y.origins and y.kind == "gemm"]
        assert "fp4" in {t.dtype for t in gemm.constants}
        assert base in {t.dtype for t in gemm.outputs}
    mapping = relate(model, ready.model, engine)
    findings = rank_findings(engine, mapping, model, prepared=ready)
    assert "block-format-in-float" not in {f.rule for f in findings}


def test_a_study_of_fp4_has_an_engine_and_an_error():
    model = net("MatMul", 2)
    samples = [
        {"x": np.random.default_rng(i).standard_normal((2, 32, 64)).astype(np.float32)} for i in range(4)
    ]
    study = Study(model, data=samples)
    study.add("base", target="cpu")
    study.add("fp4", target="sm120", backend="tensorrt-rtx")
    study.add("here", precision="fp4", target="cpu", backend="onnxruntime")
    study.run()
    assert "fp4·minmax@sm120/tensorrt-rtx" == study["fp4"].variant.id
    assert {"first": "fp4", "second": "fp4"} == {
        n: str(p) for n, p in study["fp4"].prepared.precisions.items()
    }
    assert any("run in float here" in note for note in study["here"].prepared.notes)
    assert not any("run in float" in note for note in study["fp4"].prepared.notes)
    for name in ("fp4", "here"):
        # Each of two factors of two products has about two bits of mantissa.
        (first,) = [v for v in study[name].accuracy.values if v.value == "m"]
        assert 14 < first.sqnr < 26, first
