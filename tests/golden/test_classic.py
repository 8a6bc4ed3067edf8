"""What the predicted passes do, beside counts that NVIDIA and papers published."""

from __future__ import annotations

import pytest

import published_counts
import published_nets
from rtlab import backends
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant


def predicted(model: Model) -> Engine:
    """The engine that the rules predict."""
    return backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())


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
    """43, 309 and 670 layers before; ``docs/published-counts.md`` explains what differs after."""
    assert counts == published_counts.counts(published_counts.made(network))


def test_the_page_of_published_counts_is_what_is_computed() -> None:
    page = published_counts.PAGE.read_text(encoding="utf-8")
    assert page == "\n".join(published_counts.lines(published_counts.told(page)))


def test_vgg19_lacks_two_relus_behind_fully_connected_layers() -> None:
    """27 = 16 convolutions with ReLU, 5 poolings, 3 fully connected layers, 2 ReLUs, a softmax: two are fused."""
    model = published_counts.made("vgg19")
    assert ["relu6", "relu7"] == published_counts.after_dense(model)
    homes = [y.origins for y in predicted(model).layers if {"relu6", "relu7"} & {*y.origins}]
    assert [("fc6", "relu6"), ("fc7", "relu7")] == homes
    assert 27 == 16 + 5 + 3 + 2 + 1 == published_counts.counts(model)[-1] + 2


def test_inception_v3_has_the_blocks_of_its_paper() -> None:
    """Widths of what reads a block's input through a 1x1, an eighth of table 1; the first reduction has no siblings."""
    found = published_counts.blocks(published_counts.made("inception_v3"))
    widths = [(64, 48, 64)] * 3 + [()] + [(192, w, w) for w in (128, 160, 160, 192)] + [(192, 192)]
    widths += [(320, 384, 448)] * 2
    assert [tuple(w // 8 for w in b) for b in widths] == [b.siblings for b in found]
    kinds = ["35x35"] * 3 + ["reduction"] + ["17x17"] * 4 + ["reduction"] + ["8x8"] * 2
    assert kinds == [b.kind for b in found]


def test_eight_layers_less_can_be_had_in_eight_ways() -> None:
    """3a + 4b + 2c + d = 8 with a, b and c from 0 to 2 and d from 0 to 3, counted by hand."""
    found = published_counts.blocks(published_counts.made("inception_v3"))
    ways = [tuple(n for n, _ in way.values()) for way in published_counts.ways(found, 121 - 113)]
    by_hand = {
        (3 * a, 4 * b, 2 * c, d)
        for a in range(3)
        for b in range(3)
        for c in range(3)
        for d in range(4)
        if 3 * a + 4 * b + 2 * c + d == 8
    }
    assert 8 == len(ways) == len(by_hand)
    assert by_hand == set(ways)


def test_rules_that_hold_in_every_block_give_what_the_passes_give_and_never_113() -> None:
    """All siblings, all concatenations: 19 + 11 - 9, as the passes. Equal widths: one of three, and of 6e two."""
    found = published_counts.uniform(published_counts.blocks(published_counts.made("inception_v3")))
    assert 121 - 100 == 21 == found["all siblings merged", "gone, with a copy where a merged layer wrote"]
    assert 19 == found["all siblings merged", "all concatenations stay"]
    assert 11 == found["no siblings merged", "gone without copies"]
    assert 3 + 5 + 1 == found["siblings of equal width merged", "all concatenations stay"]
    assert 10 == found["two siblings merged, the third left to the concatenation", "all concatenations stay"]
    assert 121 - 113 not in found.values()
    # All concatenations gone leaves 110 at most.
    assert all(n >= 11 for (_, rule), n in found.items() if rule == "gone without copies")


def test_inception_v3_with_nested_concatenations_has_four_layers_more() -> None:
    """A pair in each of two branches of two blocks: the list of 309 is the one with a Concat of six."""
    nested = published_nets.inception_v3(nested=True)
    assert 309 + 4 == published_counts.counts(nested)[0]
    assert 15 == published_counts.operators(nested)["Concat"]
