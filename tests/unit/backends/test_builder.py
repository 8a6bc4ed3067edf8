from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from net_text import written
from nets import graph
from rtlab.backends.tensorrt import BuiltPlan, _write_model, explain_crash, restore_origins
from rtlab.backends.workers.compiler import BuildOutput
from rtlab.backends.workers.refusals import explain_kind
from rtlab.core.engine import Layer
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, Cancelled
from rtlab.quantize import prepare, quantizable


def network(*, name: str = "weight|1", batch: int | str = 2) -> Model:
    """Products with weights of 2,304 numbers, whose name no compiler prints, and of 2,256, and a bias of 48."""
    rng = np.random.default_rng(0)
    tensors = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in ((name, (48, 48)), ("bias", 48), ("other", (48, 47)))
    }
    nodes = [
        helper.make_node("Gemm", ["x", name, "bias"], ["h"], name="product"),
        helper.make_node("MatMul", ["h", "other"], ["y"], name="last"),
    ]
    return graph(nodes, [("x", 1, [batch, 48])], [("y", 1, [batch, 47])], tensors, opset=21)


def read(path: Path) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}


@pytest.mark.parametrize(
    "precision", ["fp32", "fp16", "bf16", "int8", "int4", {"*": "fp16", "product": "fp32"}], ids=str
)
def test_the_builder_reads_the_numbers_that_the_model_holds(tmp_path: Path, precision) -> None:
    source = network()
    model = prepare(source, Variant.of(precision), scales={v: Scale(3.0) for v in quantizable(source)}).model
    path, _ = _write_model(model, tmp_path, static=True, progress=Silent())
    for tensor, array in zip(model.proto().graph.initializer, read(path).values(), strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), array)
    onnx.checker.check_model(str(path), full_check=True)


def test_a_weight_lies_on_a_page_of_its_own_beside_a_small_model(tmp_path: Path) -> None:
    """A compiler maps it then; inside the model it copied every weight while it parsed."""
    path, _ = _write_model(network(), tmp_path, static=True, progress=Silent())
    stored = [t for t in onnx.load(str(path), load_external_data=False).graph.initializer if t.external_data]
    told = [{e.key: e.value for e in t.external_data} for t in stored]
    assert ["weights", "weights"] == [t["location"] for t in told]
    assert [48 * 48 * 4, 48 * 47 * 4] == [int(t["length"]) for t in told]
    # The first fills two pages and a part of a third.
    assert [0, 3 * 4096] == [int(t["offset"]) for t in told]
    assert 48 * 47 * 4 > path.stat().st_size


def test_sizes_are_fixed_where_no_profile_names_them(tmp_path: Path) -> None:
    path, _ = _write_model(network(batch="N"), tmp_path, static=True, progress=Silent())
    (given,) = onnx.load(str(path)).graph.input
    assert [1, 48] == [d.dim_value for d in given.type.tensor_type.shape.dim]


def test_a_cancel_ends_the_writing_between_two_weights(tmp_path: Path) -> None:
    stopped = Silent()
    stopped.cancel()
    with pytest.raises(Cancelled, match="Stopped preparing the model"):
        _write_model(network(), tmp_path, static=True, progress=stopped)


def test_layers_bear_the_ids_of_the_model_and_not_the_names_that_the_builder_was_given() -> None:
    names = {"node_0": "a|b", "node_1": "c, d"}
    plan = BuiltPlan(BuildOutput(None, 0.0, ""), "", names, (), ())
    layers = [
        Layer("0:x", "x", "fused", 0, origins=("node_1", "plain", "node_0", "c, d")),
        Layer("1:y", "y", "none", 1),
    ]
    assert [("c, d", "plain", "a|b"), ()] == [layer.origins for layer in restore_origins(layers, plan)]


@pytest.mark.parametrize(
    ("op", "why", "kind"),
    [
        ("NonMaxSuppression", "x has no runners that implement it", "TensorRT has it, TensorRT-RTX does not"),
        ("RoiAlign", "ROIAlign plugin was not found", "TensorRT has it, TensorRT-RTX does not"),
        ("EfficientNMS_TRT", "Plugin not found", "a plugin of TensorRT, and TensorRT-RTX has neither"),
        ("FastGelu", "Plugin not found", "TensorRT-RTX has neither an operator nor a plugin of this name"),
        ("Unique", "unsupported", "TensorRT has no such operator"),
        ("EPContext", "Plugin not found", "an engine that ONNX Runtime compiled for itself"),
        ("Resize", "only linear is supported", "only linear is supported"),
    ],
)
def test_a_refused_operator_is_named_by_its_kind(op: str, why: str, kind: str) -> None:
    assert explain_kind(op, why, "TensorRT-RTX").startswith(kind)
    # What only TensorRT-RTX lacks is another matter in TensorRT.
    assert "does not" not in explain_kind("NonMaxSuppression", why, "TensorRT")


@pytest.mark.parametrize(
    ("reads", "names"), [("x, x, v", ("it",)), ("x, x, n", ()), ("n, x, x", ()), ("v, v, v, m", ("it",))]
)
def test_a_crash_names_the_attention_that_reads_one_value(reads, names):
    model = written(
        f"x[1, 2, 4, 8]; m[4, 4]; i: v = Identity(x); n: n = Neg(x); it: y = Attention({reads}); y[1, 2, 4, 8]",
        opset=23,
    )
    crash = explain_crash(BuildError("Cannot build: it crashed with SIGSEGV.", details="d"), model)
    assert (crash.nodes if crash else ()) == names
    assert crash is None or (crash.details == "d" and 'makes it crash: "it".' in str(crash))
    assert explain_crash(BuildError("Cannot build: it passed its limit."), model) is None
