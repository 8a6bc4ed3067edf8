"""Every formulation computes what the operator computes: ONNX Runtime and NumPy are asked."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from net_text import written
from nets import graph_proto
from rtlab.core.model import wrap
from rtlab.experiments.running import difference
from rtlab.formulations import (
    DIRECT,
    FORMULATIONS,
    WeightedNode,
    build_layer_model,
    compose_model,
    create_weighted_node,
    find_tunable_nodes,
    list_formulations,
)
from rtlab.formulations.table import compute_transforms
from sessions import opened

ONE = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return opened(proto.SerializeToString(), "ENABLE_ALL").run(None, feed)


def model_of(node: onnx.NodeProto, shape: tuple[int, ...], constants: dict[str, np.ndarray], opset: int = 17):
    ends = [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, None)]
    return graph_proto([node], *ends, constants, opset)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@st.composite
def convolutions(draw) -> tuple[onnx.ModelProto, np.ndarray]:
    """Convolutions of all kinds, those that tiles compute among them often."""
    simple = draw(st.booleans())
    batch, group = draw(st.integers(1, 2)), 1 if simple else draw(st.sampled_from([1, 2, 3]))
    inputs, outputs = group * draw(st.integers(1, 3)), group * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 5))] * 2 if simple else [draw(st.integers(1, 4)) for _ in range(2)]
    kernel = [3, 3] if simple and draw(st.booleans()) else kernel
    size = [draw(st.integers(8, 19)) for _ in range(2)]
    seed = draw(st.integers(0, 1000))
    given = {"w": normal(seed, outputs, inputs // group, *kernel)}
    if draw(st.booleans()):
        given["b"] = normal(seed + 1, outputs)
    attributes: dict[str, object] = {"group": group}
    if not simple:
        attributes |= {"strides": [draw(st.integers(1, 3)) for _ in range(2)]}
        attributes |= {"dilations": [draw(st.integers(1, 2)) for _ in range(2)]}
    padding = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if padding == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, 2)) for _ in range(4)]
    elif "dilations" in attributes:
        attributes |= {"auto_pad": padding, "dilations": [1, 1]}
    else:
        attributes["auto_pad"] = padding
    node = helper.make_node("Conv", ["x", *given], ["y"], name="n", **attributes)
    return model_of(node, (batch, inputs, *size), given), normal(seed + 2, batch, inputs, *size)


@st.composite
def products(draw) -> tuple[onnx.ModelProto, np.ndarray]:
    """Gemm with and without bias and transposition, MatMul with any number of leading dimensions."""
    depth, outputs, seed = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(0, 1000))
    if draw(st.booleans()):
        shape = (*draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)), depth)
        node = helper.make_node("MatMul", ["x", "w"], ["y"], name="n")
        return model_of(node, shape, {"w": normal(seed, depth, outputs)}), normal(seed + 1, *shape)
    other = draw(st.booleans())
    given = {"w": normal(seed, outputs, depth) if other else normal(seed, depth, outputs)}
    if draw(st.booleans()):
        given["b"] = normal(seed + 2, *draw(st.sampled_from([(outputs,), (1, outputs)])))
    shape = (draw(st.integers(1, 5)), depth)
    node = helper.make_node("Gemm", ["x", *given], ["y"], name="n", transB=int(other))
    return model_of(node, shape, given), normal(seed + 1, *shape)


def layer_of(proto: onnx.ModelProto, shape: tuple[int, ...]) -> WeightedNode:
    model = wrap(proto, name="m")
    (node,) = find_tunable_nodes(model)
    found = create_weighted_node(model, node, shape)
    assert found is not None
    return found


@ONE
@given(st.one_of(convolutions(), products()))
def test_every_offered_formulation_computes_the_operator(drawn) -> None:
    proto, data = drawn
    (wanted,) = run(proto, {"x": data})
    found = layer_of(proto, data.shape)
    assert DIRECT == list_formulations(found)[0].name
    for formulation in list_formulations(found):
        (made,) = run(build_layer_model(found, formulation), {"x": data})
        assert wanted.shape == made.shape, formulation.name
        assert difference(made, wanted) <= formulation.tolerance, formulation.name
        (made,) = run(
            compose_model(wrap(proto, name="m"), {"x": data}, {"n": (found, formulation)}), {"x": data}
        )
        assert difference(made, wanted) <= formulation.tolerance, formulation.name


@pytest.mark.parametrize(("step", "products"), [(2, 16), (4, 36)])
def test_winograd_is_a_correlation_of_the_known_number_of_products(step: int, products: int) -> None:
    """In double precision, against NumPy's sums over a window; Lavin and Gray count the products."""
    before, kernel, after = compute_transforms(step)
    rng = np.random.default_rng(0)
    tile, taps = rng.normal(size=(step + 2, step + 2)), rng.normal(size=(3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(tile, (3, 3))
    wanted = np.einsum("ijkl,kl->ij", windows, taps)
    found = after @ ((kernel @ taps.ravel()) * (before @ tile.ravel()))
    assert wanted == pytest.approx(found.reshape(step, step), abs=1e-10)
    assert products == len(before)


def conv(shape=(1, 4, 12, 12), weight=(4, 4, 3, 3), **attributes) -> WeightedNode:
    given = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": 1, **attributes}
    return WeightedNode("n", "Conv", "x", "y", shape, normal(0, *weight), None, given)


def shaped(outputs: int, inputs: int, kernel: int = 3, size: int = 12, **attributes) -> WeightedNode:
    """A convolution whose weights take no memory."""
    weight = np.broadcast_to(np.float32(0), (outputs, inputs, kernel, kernel))
    return dataclasses.replace(conv((1, inputs, size, size), **attributes), weight=weight)


#: The weights of Winograd's 16 products in FP32 that fill 192 MiB.
FULL = (192 << 20) // (4 * 16 * 2048)


@pytest.mark.parametrize(
    ("layer", "name", "fits"),
    [
        (conv(), "Winograd 2×2", True),
        (conv(strides=[2, 2]), "Winograd 2×2", False),
        (conv(strides=[1, 2]), "Winograd 2×2", False),
        (conv(dilations=[2, 1]), "Winograd 4×4", False),
        (conv(weight=(4, 2, 3, 3), group=2), "Winograd 2×2", False),
        (conv(weight=(4, 4, 5, 5)), "Winograd 2×2", False),
        (conv(weight=(4, 4, 1, 3)), "Winograd 4×4", False),
        (conv(pads=[0, 0, 0, -1]), "Winograd 2×2", False),
        (conv(pads=[0, 0, 0, 0]), "Winograd 2×2", True),
        (shaped(2048, FULL), "Winograd 2×2", True),
        (shaped(2048, FULL + 1), "Winograd 2×2", False),
        (shaped(2048, FULL), "Winograd 4×4", False),
        (conv(), "GEMM", False),
        (conv(weight=(4, 4, 1, 3)), "GEMM", False),
        (conv(weight=(4, 4, 1, 1)), "GEMM", False),
        (conv(weight=(4, 4, 1, 1), pads=[0, 0, 0, 0]), "GEMM", True),
        (conv(weight=(4, 2, 1, 1), pads=[0] * 4, group=2), "GEMM", False),
        (conv(weight=(4, 4, 1, 1)), "im2col", False),
        (conv(weight=(4, 4, 1, 3)), "im2col", True),
        (conv(pads=[0, 0, -1, 0]), "im2col", False),
    ],
)
def test_a_formulation_is_offered_where_it_fits(layer: WeightedNode, name: str, fits: bool) -> None:
    assert fits == (name in {f.name for f in list_formulations(layer)})


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (helper.make_node("Conv", ["x", "w"], ["y"]), {"w": normal(0, 2, 3, 3)}),
        (helper.make_node("Gemm", ["x", "w"], ["y"], alpha=0.5), {"w": normal(0, 3, 3)}),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), {"w": normal(0, 4, 3)}),
        (helper.make_node("Gemm", ["x", "w", "b"], ["y"]), {"w": normal(0, 3, 3), "b": normal(0, 4, 1)}),
    ],
)
def test_unusual_forms_are_left_alone(node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> None:
    shape = (1, 3, 9) if node.op_type == "Conv" else (4, 3)
    model = wrap(model_of(node, shape, constants), name="m")
    assert [None] == [create_weighted_node(model, n, shape) for n in find_tunable_nodes(model)]


@pytest.mark.parametrize(
    ("inputs", "kind"), [(["w", "x"], np.float32), (["x", "x"], np.float32), (["x", "w"], np.float64)]
)
def test_nodes_without_constant_fp32_weights_are_not_tunable(inputs: list[str], kind: type) -> None:
    constants = {"w": normal(0, 3, 3).astype(kind)} if "w" in inputs else {}
    proto = model_of(helper.make_node("MatMul", inputs, ["y"]), (3, 3), constants)
    assert () == find_tunable_nodes(wrap(proto, name="m"))


def test_layers_of_one_key_have_the_same_shapes_and_attributes() -> None:
    first = conv()
    assert first.key == dataclasses.replace(first, weight=first.weight + 1, node="other", data="z").key
    others = [conv(strides=[2, 2]), conv((2, 4, 12, 12)), conv(weight=(5, 4, 3, 3)), conv(pads=[0, 1, 1, 1])]
    others.append(dataclasses.replace(first, bias=normal(0, 4)))
    assert 6 == len({first.key, *(o.key for o in others)})


def test_operations_of_a_convolution_are_counted_by_hand() -> None:
    """2 × outputs × what each sums."""
    assert 2 * (4 * 12 * 12) * (4 * 9) == conv().flops
    assert 2 * (4 * 6 * 6) * (2 * 9) == conv(weight=(4, 2, 3, 3), group=2, strides=[2, 2]).flops


def test_a_composed_model_keeps_what_is_not_chosen_and_drops_weights_that_nobody_reads() -> None:
    model = written(
        "x[N, 4, 8, 8]; one: a = Conv(x, w, pads=[1, 1, 1, 1]); relu: r = Relu(a); "
        "two: y = Conv(r, w, pads=[1, 1, 1, 1]); y[N, 4, 8, 8]",
        w=normal(0, 4, 4, 3, 3),
    )
    proto, data = model.proto(), normal(1, 3, 4, 8, 8)
    (wanted,) = run(proto, {"x": data})
    layers = [create_weighted_node(model, n, (3, 4, 8, 8)) for n in find_tunable_nodes(model)]
    tiles = next(f for f in FORMULATIONS["Conv"] if f.name == "Winograd 4×4")
    for names in itertools.chain.from_iterable(itertools.combinations(("one", "two"), n) for n in range(3)):
        chosen = {y.node: (y, tiles) for y in layers if y is not None and y.node in names}
        made = compose_model(model, {"x": data}, chosen)
        assert ("w" in {t.name for t in made.graph.initializer}) == (len(names) < 2)
        assert {"one", "two"} - set(names) == {n.name for n in made.graph.node} & {"one", "two"}
        assert difference(run(made, {"x": data})[0], wanted) <= tiles.tolerance


@pytest.mark.parametrize(
    ("inputs", "kinds", "tunable"),
    [
        (["x", "w"], {"w": np.float32}, True),
        (["x", "w", "b"], {"w": np.float32, "b": np.float32}, True),
        (["x", "w", "b"], {"w": np.float32, "b": np.float64}, False),
        (["x", "w", "x"], {"w": np.float32}, False),
        (["w", "b"], {"w": np.float32, "b": np.float32}, False),
    ],
)
def test_weights_and_bias_of_a_gemm_are_constants_in_fp32(inputs, kinds, tunable) -> None:
    constants = {name: np.ones((3, 3), kind) for name, kind in kinds.items()}
    proto = model_of(helper.make_node("Gemm", inputs, ["y"]), (3, 3), constants)
    assert tunable == bool(find_tunable_nodes(wrap(proto, name="m")))


def test_weights_that_a_body_reads_by_name_stay() -> None:
    """Those of a node that was put in other words, too."""
    branches = {
        branch: helper.make_graph(
            [helper.make_node("Identity", ["w"], [branch])], branch, [],
            [helper.make_tensor_value_info(branch, TensorProto.FLOAT, None)],
        )
        for branch in ("then_branch", "else_branch")
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="n"),
        helper.make_node("If", ["c"], ["k"], **branches),
        helper.make_node("Add", ["a", "k"], ["y"]),
    ]
    constants = {"w": normal(0, 3, 3), "c": np.array(True)}
    proto = graph_proto(
        nodes, [("x", TensorProto.FLOAT, (3, 3))], [("y", TensorProto.FLOAT, None)], constants, 17
    )
    model, data = wrap(proto, name="m"), normal(1, 3, 3)
    (node,) = find_tunable_nodes(model)
    layer = create_weighted_node(model, node, (3, 3))
    assert layer is not None
    made = compose_model(model, {"x": data}, {"n": (layer, FORMULATIONS["MatMul"][0])})
    assert "w" in {t.name for t in made.graph.initializer}
    assert run(proto, {"x": data})[0] == pytest.approx(run(made, {"x": data})[0], rel=1e-5)


@pytest.mark.parametrize(
    ("upper", "pads"), [("SAME_UPPER", [0, 1, 1, 2]), ("SAME_LOWER", [1, 2, 0, 1]), ("VALID", [0] * 4)]
)
def test_padding_that_follows_from_sizes_is_more_on_one_side(upper: str, pads: list[int]) -> None:
    """By hand: 4 outputs 2 apart of a kernel of 2 reach over 8 of 7 columns, 7 of a kernel of 4 over 10 of 7."""
    attributes = {"auto_pad": upper, "strides": [2, 1]}
    proto = model_of(
        helper.make_node("Conv", ["x", "w"], ["y"], name="n", **attributes),
        (1, 1, 7, 7),
        {"w": normal(0, 1, 1, 2, 4)},
    )
    layer = layer_of(proto, (1, 1, 7, 7))
    assert pads == layer.attributes["pads"]
    assert layer.spatial == ((4, 7) if any(pads) else (3, 4))
