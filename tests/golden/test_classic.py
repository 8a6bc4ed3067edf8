"""What the predicted passes do, beside counts that NVIDIA and papers published."""

from __future__ import annotations

import pytest

import published_nets
from rtlab import backends
from rtlab.backends.readers.log import verbose
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant


def predicted(model: Model) -> Engine:
    return backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())


def layers(model: Model) -> tuple[int, ...]:
    """The layers before the passes, and after each pass that changed their number."""
    return verbose.parse(predicted(model).log).log.attempts[0].counts


def test_the_famous_block_is_seen_without_a_recording() -> None:
    """The picture of an Inception block: three 1x1 convolutions are one layer, and the concatenation is gone."""
    names = {y.name: y for y in predicted(published_nets.googlenet()).layers}
    parts = ("1x1", "3x3_reduce", "5x5_reduce")
    merged = " || ".join(f"inception_3a/{p} + inception_3a/relu_{p}" for p in parts)
    assert {f"inception_3a/{a}{b}" for a in ("", "relu_") for b in parts} == {*names[merged].origins}
    assert "inception_3a/output" not in names
    writers = [y.name for y in names.values() if any(t.name == "inception_3a/output" for t in y.outputs)]
    assert 4 == len(writers)
    assert f"{merged} copy" in writers


@pytest.mark.parametrize(
    ("network", "counts"),
    [
        # A ReLU behind a fully connected layer is fused from TensorRT 5 on; NVIDIA's table says 27 for TensorRT 3.
        ("vgg19", (43, 25)),
        # Scales and ReLUs, then siblings; 9 merged layers need a copy for the 11 concatenations that go.
        ("inception_v3", (309, 215, 121, 102, 100)),
        # 155 convolutions with all that follows them, two poolings, the classifier and its softmax.
        ("resnet152", (670, 360, 159)),
    ],
)
def test_the_networks_of_nvidias_table_have_its_layers(network: str, counts: tuple[int, ...]) -> None:
    assert counts == layers(getattr(published_nets, network)())


def test_vgg19_lacks_two_relus_behind_fully_connected_layers() -> None:
    """27 = 16 convolutions with ReLU, 5 poolings, 3 fully connected layers, 2 ReLUs, a softmax: two are fused."""
    model = published_nets.vgg19()
    homes = [y.origins for y in predicted(model).layers if {"relu6", "relu7"} & {*y.origins}]
    assert [("fc6", "relu6"), ("fc7", "relu7")] == homes
    assert 27 == 16 + 5 + 3 + 2 + 1 == layers(model)[-1] + 2


def test_inception_v3_with_nested_concatenations_has_four_layers_more() -> None:
    """A pair in each of two branches of two blocks: the list of 309 is the one with a Concat of six."""
    nested = published_nets.inception_v3(nested=True)
    assert 309 + 4 == layers(nested)[0]
    assert 15 == sum(n.op == "Concat" for n in nested.top)
