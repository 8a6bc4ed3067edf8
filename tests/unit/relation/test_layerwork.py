"""What a layer computes by its own parameters, where no node tells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from nets import graph
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.value import Value
from rtlab.core.variant import Target
from rtlab.relation.layerwork import _fits, layer_works
from rtlab.relation.mapping import Mapping, Pair
from rtlab.relation.roles import Role


def count_windows(size: int, before: int, after: int, stride: int, dilation: int, kernel: int) -> int:
    """How often a kernel fits into a padded axis, tried place by place."""
    padded = size + before + after
    return sum(start + dilation * (kernel - 1) < padded for start in range(0, padded, stride))


@pytest.mark.parametrize(
    ("before", "after", "stride", "dilation", "kernel"),
    [(1, 1, 1, 1, 3), (0, 0, 1, 1, 3), (2, 1, 2, 1, 3), (0, 3, 1, 2, 3), (1, 0, 3, 1, 4), (0, 0, 1, 1, 1)],
)
def test_a_convolution_whose_output_a_pool_has_passed_counts_the_windows_of_its_input(
    tmp_path: Path, before: int, after: int, stride: int, dilation: int, kernel: int
) -> None:
    def tensor(name: str, *shape: int) -> dict[str, object]:
        return {"Name": name, "Dimensions": shape, "Format/Datatype": "Row major linear FP32"}

    layer = {
        "Name": "conv + pool", "LayerType": "ConvActPool", "Inputs": [tensor("x", 2, 6, 11, 11)],
        "Outputs": [tensor("y", 2, 8, 4, 4)], "ConvKernel": [kernel] * 2, "ConvOutMaps": 8, "ConvGroups": 2,
        "ConvPrePadding": [before] * 2, "ConvPostPadding": [after] * 2, "ConvStride": [stride] * 2,
        "ConvDilation": [dilation] * 2,
    }  # fmt: skip
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Layers": [layer], "Bindings": ["x", "y"]}))
    study = rtlab.read(layers=path)
    result = study[next(iter(study))]
    (work,) = layer_works(result.engine, result.mapping, study.model).values()
    windows = count_windows(11, before, after, stride, dilation, kernel)
    assert 2 * 8 * windows**2 * (6 // 2) * kernel**2 == work.macs


@pytest.mark.parametrize(
    ("declared", "shape", "fits"),
    [
        ((1, 3), (1, 3), True), ((1, 3), (1, 4), False), ((1, 3), (1, 2), False), (("N", 3), (7, 3), True),
        ((None, 3), (7, 4), False), ((1, 3), (1, 3, 1), False), (None, (1, 3), False), ((), (), True),
    ],
)  # fmt: skip
def test_a_size_of_an_input_fits_where_it_is_the_declared_one_or_none_is(declared, shape, fits) -> None:
    assert fits == _fits(shape, Value("x", "fp32", declared, "input"))


def test_a_shape_fits_no_input_that_the_model_lacks() -> None:
    assert not _fits((1,), None)


@pytest.mark.parametrize("role", ["bias", "cast", "scale", "layout", "Q"])
@pytest.mark.parametrize("has_product", [True, False])
def test_a_layer_that_serves_a_product_takes_none_of_its_work(role: Role, has_product: bool) -> None:
    """Of 4 by 16 and 16 by 8 there are 512 multiplications, also where both layers are generated kernels."""
    ends = [("x", TensorProto.FLOAT, [4, 16])], [("y", TensorProto.FLOAT, [4, 8])]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    model = graph([node], *ends, {"w": np.ones((16, 8), np.float32)})
    layers = tuple(Layer(i, i, "kgen", n) for n, i in enumerate(("product", "helper")))
    engine = Engine("test", "1", Target("sm89"), layers)
    pairs = [Pair("product", "product", "declared")] * has_product
    mapping = Mapping((*pairs, Pair("product", "helper", "declared", "", role)), ())
    works = layer_works(engine, mapping, model)
    assert works["product"].macs == (512 if has_product else None)
    assert not works["helper"].macs


def test_of_an_embedding_the_rows_that_are_taken_out_are_read() -> None:
    """Of a table of 1,000 rows of 8 numbers in FP32, 5 rows are 160 bytes; 40 are the ids, and 160 are written."""
    table = np.zeros((1000, 8), np.float32)
    ends = ("ids", TensorProto.INT64, [5]), ("y", TensorProto.FLOAT, [5, 8])
    model = graph(
        [helper.make_node("Gather", ["t", "ids"], ["y"], name="g")], [ends[0]], [ends[1]], {"t": table}
    )
    mapping = Mapping((Pair("g", "0:g", "declared"),), ())
    for constants in ((), (Tensor("t", "fp32", (1000, 8)),)):
        layer = Layer(
            "0:g", "g", "Gather", 0, inputs=(Tensor("ids", "int64", (5,)),), outputs=(Tensor("y", "fp32", (5, 8)),),
            constants=constants, origins=("g",),
        )  # fmt: skip
        engine = Engine("test", "1", Target("sm86"), (layer,), inputs=layer.inputs, outputs=layer.outputs)
        (work,) = layer_works(engine, mapping, model).values()
        assert (40 + 160, 160) == (work.read, work.written)
