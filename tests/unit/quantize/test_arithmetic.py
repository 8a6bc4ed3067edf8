"""Quantized transformers on the CPU beside arithmetic in NumPy: a decoder as Llama's, and an encoder as BERT's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import numpy_net
import shelf
from decoders import Decoder
from observed import collect
from rtlab.core.compiler_info import Maker
from rtlab.core.model import Model
from rtlab.core.prepared import Prepared
from rtlab.core.ranges import Ranges
from rtlab.core.variant import Variant
from rtlab.quantize.compose import prepare
from rtlab.quantize.placement import quantizable
from sessions import computed

Feeds = Mapping[str, NDArray[Any]]
#: A compiler that has attention in 16 bits only: its INT8 and FP8 have FP16 around.
HALF = Maker("Some", half_attention=True)
BASES = pytest.mark.parametrize("maker", [None, HALF], ids=["fp32 base", "fp16 base"])


def decibels(expected: NDArray[Any], found: NDArray[Any]) -> float:
    exact = expected.astype(np.float64)
    error = np.square(exact - found.astype(np.float64)).sum()
    return float(np.inf if error == 0 else 10 * np.log10(np.square(exact).sum() / error))


def observe(model: Model, feeds: Feeds) -> Ranges:
    """The ranges of values as NumPy computes them."""
    values = numpy_net.evaluate(model.proto(), feeds) | dict(feeds)
    return collect(quantizable(model), [values])


def prepared(model: Model, feeds: Feeds, precision: str, maker: Maker | None = None) -> Prepared:
    variant = Variant.of(precision, calibrator="minmax", target="sm89")
    more = {} if maker is None else {"maker": maker}
    return prepare(model, variant, observe(model, feeds), **more)


def codes(model: Model) -> list[str]:
    return [n.outputs[0] for n in model.nodes if n.op == "QuantizeLinear"]


def check_nodes(ready: Prepared, feeds: Feeds, least: int) -> None:
    """Every operator of the graph for compilers, on what the CPU's graph has for its inputs.

    Of two ways to add up the same FP32 the sums differ by under -125 dB; rounded to FP16, a few of them by a last bit.
    """
    limit = 90 if any(v.dtype == "fp16" for v in ready.model.values.values()) else 125
    there = {v for n in ready.emulation.nodes for v in n.outputs}
    names = [v for n in ready.model.nodes for v in n.outputs if v in there]
    found = computed(ready.emulation, feeds, names)
    expected = numpy_net.evaluate(ready.model.proto(), feeds, found)
    for name in names:
        ours = numpy_net.as_type(found[name], expected[name].dtype)
        if expected[name].dtype.kind == "f" and expected[name].itemsize > 1:
            assert decibels(expected[name], ours) > limit, name
        else:
            assert np.array_equal(expected[name], ours), name
    assert sum(expected[v].dtype.itemsize == 1 for v in codes(ready.model)) >= least


@BASES
@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_every_operator_of_a_decoder_block_computes_what_arithmetic_on_its_codes_does(precision, maker):
    sizes = Decoder(layers=1)
    feeds = {"ids": sizes.ids(2)}
    check_nodes(prepared(sizes.make(), feeds, precision, maker), feeds, least=5)


@pytest.mark.parametrize(("precision", "largest"), [("int8", 127), ("fp8", 448)])
def test_scales_and_codes_of_weights_are_those_of_arithmetic(precision: str, largest: int):
    """A column's largest number, and a value's over all samples, have the largest code."""
    sizes = Decoder(layers=1)
    model, feeds = sizes.make(), {"ids": sizes.ids(2)}
    ready = prepared(model, feeds, precision)
    values = numpy_net.evaluate(model.proto(), feeds)
    known = {name: np.asarray(tensor.numpy()) for name, tensor in ready.model.known.items()}
    weights = {name: np.asarray(tensor.numpy()) for name, tensor in model.known.items()}
    products = [n for n in ready.model.nodes if n.op == "MatMul" and n.id in ready.precisions]
    assert len(products) == 8
    for node in products:
        of_input, of_weight = (ready.model.producers[v] for v in node.inputs)
        source = ready.model.producers[of_input.inputs[0]].inputs[0]
        np.testing.assert_allclose(known[of_input.inputs[1]], np.abs(values[source]).max() / largest, 1e-6)
        weight = weights[model.by_id[node.id].inputs[1]]
        scale = np.abs(weight).max(0) / largest
        np.testing.assert_allclose(known[of_weight.inputs[1]], scale, 1e-6)
        stored = known[of_weight.inputs[0]]
        exact = weight / known[of_weight.inputs[1]]
        assert np.array_equal(stored, (np.rint(exact) if precision == "int8" else exact).astype(stored.dtype))


@pytest.mark.slow(but="decoder_with_cache|sentences")
@BASES
@pytest.mark.parametrize("precision", ["int8", "fp8"])
@pytest.mark.parametrize("name", ["decoder_with_cache", "sentences", "characters"])
def test_every_operator_of_a_sample_computes_what_arithmetic_on_its_codes_does(name, precision, maker):
    sample = shelf.load(name)
    feeds = {n: array[:2] for n, array in sample.calibration.arrays.items()}
    check_nodes(prepared(sample.model, feeds, precision, maker), feeds, least=9)


@pytest.mark.parametrize("precision", ["int8", "fp8"])
@pytest.mark.parametrize("name", ["decoder_with_cache", "sentences"])
def test_outputs_and_all_codes_of_a_sample_are_those_of_arithmetic(name: str, precision: str):
    """From the inputs to the outputs, where a code that is rounded otherwise would change all that follows."""
    sample = shelf.load(name)
    feeds = {n: array[:2] for n, array in sample.calibration.arrays.items()}
    ready = prepared(sample.model, feeds, precision)
    written = codes(ready.model)
    expected = numpy_net.evaluate(ready.model.proto(), feeds)
    found = computed(ready.emulation, feeds, [*sample.model.outputs, *written])
    for value in sample.model.outputs:
        assert decibels(expected[value], found[value]) > 120
    wrong = sum((numpy_net.as_type(found[v], expected[v].dtype) != expected[v]).sum() for v in written)
    assert wrong <= 1e-4 * sum(expected[v].size for v in written)
