"""Which words of the layers' names mean the same in two engines."""

from __future__ import annotations

from rtlab.relation.likeness import Signature
from rtlab.relation.shared_words import shared

CONV = [Signature("product", (k, k), (1, 1), 1, (8, 4, 4), (8, 4, 4)) for k in (1, 3, 5, 7)]


def words(first: dict[str, list[str]], second: dict[str, list[str]], signs=({}, {})):
    known = tuple(
        {i: s.get(i, Signature("product")) for i in told}
        for told, s in zip((first, second), signs, strict=True)
    )
    return shared((first, second), known)  # type: ignore[arg-type]


def test_words_of_both_engines_are_kept_and_others_are_not() -> None:
    one, two = words(
        {"a": ["Conv_1", "Relu_2"], "b": ["w.weight"]}, {"p": ["Conv_1", "Relu_9"], "q": ["w.weight"]}
    )
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
    """Equal kernels, and other weights: the exporter numbered anew."""
    first = {"a": ["layer1.weight", "Conv_1"], "b": ["layer2.weight", "Conv_2"]}
    second = {"p": ["layer1.weight", "Conv_2"], "q": ["layer2.weight", "Conv_1"]}
    one, two = words(first, second)
    assert {"a": ("layer1.weight",), "b": ("layer2.weight",)} == one
    assert {"p": ("layer1.weight",), "q": ("layer2.weight",)} == two


def test_a_weight_that_two_layers_read_joins_none() -> None:
    """Tied weights, as of a first embedding and a last product."""
    first = {"a": ["wte.weight"], "b": ["wte.weight", "MatMul_7"]}
    second = {"p": ["wte.weight"], "q": ["MatMul_7"]}
    assert ({"a": (), "b": ("MatMul_7",)}, {"p": (), "q": ("MatMul_7",)}) == words(first, second)


def test_layers_of_one_name_are_counted_where_both_engines_have_as_many() -> None:
    one, two = words({"a": ["Conv"], "b": ["Conv"]}, {"p": ["Conv"], "q": ["Conv"]})
    assert one["a"] == two["p"] != one["b"] == two["q"]
    one, two = words({"a": ["Conv"], "b": ["Conv"]}, {"p": ["Conv"]})
    assert one["a"] == one["b"] == two["p"] == ("Conv",)
