"""What a layer does, whatever compiler tells it, and which words of names mean the same in two engines."""

from __future__ import annotations

import pytest

from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.similarity import Signature, compute_signatures, find_shared_words


def layer(kind: str, reads, writes, name: str = "y", **attributes) -> Layer:
    shapes = [tuple(Tensor(f"t{s}", "fp16", s) for s in side) for side in (reads, writes)]
    return Layer(name, name, kind, 0, *shapes, attributes=attributes)


def told(*layers: Layer, batch: int = 1) -> list[Signature]:
    inputs = (Tensor("x", "fp16", (batch, 3, 8, 8)),)
    made = Engine("tensorrt", "10", Target("sm86"), layers, inputs, maker=TENSORRT)
    return [compute_signatures((made, made))[0][y.id] for y in layers]


CONVOLUTION = {"ParameterType": "Convolution", "Kernel": [3, 3], "Stride": [1, 1], "Groups": 1}


def test_a_batch_is_no_part_of_what_a_layer_does() -> None:
    """Nor where a step has merged it with what follows, as a product of sequences does."""
    (one,) = told(layer("CaskConvolution", [(1, 8, 4, 4)], [(1, 16, 4, 4)], **CONVOLUTION))
    (many,) = told(layer("CaskConvolution", [(32, 8, 4, 4)], [(32, 16, 4, 4)], **CONVOLUTION), batch=32)
    assert one == many == Signature("product", (3, 3), (1, 1), 1, (8, 4, 4), (16, 4, 4))
    (merged,) = told(layer("gemm", [(4 * 128, 64)], [(4 * 128, 64)]), batch=4)
    assert merged == told(layer("gemm", [(128, 64)], [(128, 64)]))[0]


def test_a_product_of_matrices_is_a_convolution_of_one_point() -> None:
    """TensorRT 8 runs a Gemm as a 1x1 convolution, Myelin as a gemm without any attribute."""
    point = CONVOLUTION | {"Kernel": [1, 1]}
    convolution = layer("CaskConvolution", [(1, 512, 1, 1)], [(1, 1000, 1, 1)], **point)
    assert told(convolution) == told(layer("gemm", [(1, 512)], [(1, 1000)]))
    pooling = layer("CaskPooling", [(1, 8, 7, 7)], [(1, 8, 1, 1)])
    assert told(pooling) == told(layer("Reduce", [(1, 8, 7, 7)], [(1, 8)]))


def test_a_layer_that_pools_too_tells_its_convolution_under_other_keys() -> None:
    both = {"ConvKernel": [7, 7], "ConvStride": [2, 2], "ConvGroups": 1, "PoolingStride": [2, 2]}
    (whole,) = told(layer("ConvActPool", [(1, 3, 8, 8)], [(1, 8, 2, 2)], ParameterType="ConvActPool", **both))
    assert whole == Signature("product", (7, 7), (2, 2), 1, (3, 8, 8), (8, 2, 2))
    part = Signature("product", (7, 7), (2, 2), 1, (3, 8, 8), (8, 4, 4))
    assert not part.is_like(whole)
    assert part.is_near(whole)


@pytest.mark.parametrize(
    ("other", "like", "near", "contradicts"),
    [
        (Signature("product", (3, 3), (1, 1), 1, (8, 4, 4), (16, 4, 4)), True, True, False),
        # What is not told contradicts nothing, and is too little to be near.
        (Signature("product", None, None, None, (8, 4, 4), (16, 4, 4)), True, False, False),
        (Signature("product"), True, False, False),
        (Signature("product", (3, 3), (1, 1), 1, (-1, 4, 4), (16, -1, 4)), True, False, False),
        # A padding of its own in front; a fused pooling behind.
        (Signature("product", (3, 3), (1, 1), 1, (8, 6, 6), (16, 4, 4)), False, True, False),
        (Signature("product", (1, 1), (1, 1), 1, (8, 4, 4), (16, 4, 4)), False, False, True),
        (Signature("product", (3, 3), (2, 2), 1, (8, 4, 4), (16, 4, 4)), False, False, True),
        (Signature("product", (3, 3), (1, 1), 8, (8, 4, 4), (16, 4, 4)), False, False, True),
        (Signature("product", (3, 3), (1, 1), 1, (9, 4, 4), (17, 4, 4)), False, False, True),
        # A concatenation that was eliminated shows its own channels.
        (Signature("product", (3, 3), (1, 1), 1, (8, 4, 4), (64, 4, 4)), False, False, False),
        (Signature("pooling", reads=(8, 4, 4), writes=(16, 4, 4)), False, False, False),
    ],
)
def test_what_may_be_the_same_work(other, like, near, contradicts) -> None:
    mine = Signature("product", (3, 3), (1, 1), 1, (8, 4, 4), (16, 4, 4))
    assert (like, near, contradicts) == (mine.is_like(other), mine.is_near(other), mine.contradicts(other))
    assert (like, near, contradicts) == (other.is_like(mine), other.is_near(mine), other.contradicts(mine))


def test_a_name_tells_the_kind_where_nothing_else_does() -> None:
    names = ["Conv_0 + Relu_1", "MaxPool_2", "Relu_3", "/fc/Gemm", "QuantizeLinear_4"]
    kinds = [s.kind for s in told(*(layer("", [], [], n) for n in names))]
    assert ["product", "pooling", "?relu", "product", "quantization"] == kinds
    relu, scale = told(layer("", [], [], "Relu_3"), layer("Scale", [], [], "Mul_1"))
    assert relu.is_like(scale)
    assert scale.is_like(relu)
    assert not relu.is_like(Signature("product"))
    assert not any(s.is_complete for s in told(*(layer("", [], [], n) for n in names)))


CONV = [Signature("product", (k, k), (1, 1), 1, (8, 4, 4), (8, 4, 4)) for k in (1, 3, 5, 7)]


def words(first: dict[str, list[str]], second: dict[str, list[str]], signs=({}, {})):
    sides = zip((first, second), signs, strict=True)
    known = tuple({i: s.get(i, Signature("product")) for i in told} for told, s in sides)
    return find_shared_words((first, second), known)  # type: ignore[arg-type]


def test_words_of_both_engines_are_kept_and_others_are_not() -> None:
    first = {"a": ["Conv_1", "Relu_2"], "b": ["w.weight"]}
    one, two = words(first, {"p": ["Conv_1", "Relu_9"], "q": ["w.weight"]})
    assert ({"a": ("Conv_1",), "b": ("w.weight",)}, {"p": ("Conv_1",), "q": ("w.weight",)}) == (one, two)


def test_a_number_is_doubted_where_the_kernels_of_one_differ() -> None:
    """One of four is more than chance; names without numbers stay."""
    first = {f"a{i}": [f"Conv_{i}", f"/stage{i}/Conv"] for i in range(4)}
    second = {f"b{i}": [f"Conv_{i}", f"/stage{i}/Conv"] for i in range(4)}
    signs = {f"a{i}": CONV[i] for i in range(4)}, {f"b{i}": CONV[i] for i in range(4)}
    assert [(f"Conv_{i}", f"/stage{i}/Conv") for i in range(4)] == [*words(first, second, signs)[0].values()]
    # The same numbers, one convolution further.
    moved = {f"b{(i + 1) % 4}": [f"Conv_{i}"] for i in range(4)}
    plain = {f"a{i}": [f"Conv_{i}"] for i in range(4)}
    assert [()] * 4 == [*words(plain, moved, signs)[0].values()]


def test_a_number_is_doubted_where_the_weights_of_one_differ() -> None:
    first = {"a": ["layer1.weight", "Conv_1"], "b": ["layer2.weight", "Conv_2"]}
    second = {"p": ["layer1.weight", "Conv_2"], "q": ["layer2.weight", "Conv_1"]}
    one, two = words(first, second)
    assert {"a": ("layer1.weight",), "b": ("layer2.weight",)} == one
    assert {"p": ("layer1.weight",), "q": ("layer2.weight",)} == two


def test_a_weight_that_two_layers_read_joins_none() -> None:
    first = {"a": ["wte.weight"], "b": ["wte.weight", "MatMul_7"]}
    second = {"p": ["wte.weight"], "q": ["MatMul_7"]}
    assert ({"a": (), "b": ("MatMul_7",)}, {"p": (), "q": ("MatMul_7",)}) == words(first, second)


@pytest.mark.parametrize(
    ("shape", "of_one_sample"),
    [
        ((4, 6), (6,)),
        ((8, 6), (2, 6)),
        ((6, 8), (6, 8)),
        ((-4, 6), (-4, 6)),
        ((0, 6), (0, 6)),
        ((4, 6, 1, 1), (6,)),
    ],
)
def test_a_batch_of_four_is_cut_off_where_it_divides_the_first_size(shape, of_one_sample) -> None:
    (made,) = told(layer("gemm", [shape], [shape]), batch=4)
    assert (of_one_sample, of_one_sample) == (made.reads, made.writes)
