"""Every two recorded engines of one model, layer beside layer.

What is right is told by names that the comparison does not use: modules of PyTorch, names of TensorFlow's layers, and
the order in which ResNet18 is exported. Then all names are taken away, and the same has to be found from kernels,
shapes and neighbours alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

import recorded
from rtlab.analyses.difference import Difference, Side, compute_difference
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import make_empty_model

pytestmark = recorded.present

#: The convolutions of ResNet18 in the order in which PyTorch runs them (torchvision/models/resnet.py).
_RESNET18 = ["conv1", *(
    f"layer{stage}.{block}.{conv}" for stage in (1, 2, 3, 4) for block in (0, 1)
    for conv in ("conv1", "conv2", "downsample.0") if conv != "downsample.0" or (block == 0 and stage > 1)
)]  # fmt: skip
#: What other layers are called, where a network has one of them.
_SINGLE = {
    "max": r"MaxPool|max_pool2d",
    "mean": r"GlobalAveragePool|avg_?pool",
    "softmax": r"Softmax",
    "classes": r"\bfc\b|Gemm|predictions/(MatMul|Last)|classifier|\[MATRIX_MULTIPLY\]",
}
_FAMILIES = {
    family: [f.name for f in recorded.REAL if family in f.name]
    for family in ("resnet18", "resnet50", "mobilenet")
}
_PAIRS = [(f, *pair) for f, names in _FAMILIES.items() for pair in itertools.combinations(names, 2)]


def modules(family: str, engine: Engine) -> dict[str, frozenset[str]]:
    found = {}
    for layer in engine.layers:
        name = layer.name
        parts: set[str] = set()
        if not name.startswith("Reformatting") and not re.match(r"reshape_after|copied_squeeze|dummy", name):
            parts |= {key for key, pattern in _SINGLE.items() if re.search(pattern, name)}
            parts |= {"resnet18": _resnet18, "resnet50": _resnet50, "mobilenet": _mobilenet}[family](name)
        found[layer.id] = frozenset(parts)
    if family == "resnet18" and any(re.match(r"Conv_0\b", y.name) for y in engine.layers):
        # Only operators are named: they are numbered in the order of the forward pass.
        numbered = {int(n): y.id for y in engine.layers for n in re.findall(r"^Conv_(\d+)", y.name)}
        for module, number in zip(_RESNET18, sorted(numbered), strict=True):
            found[numbered[number]] |= {module}
    return found


def _resnet18(name: str) -> set[str]:
    module = r"(?:layer\d[./]\d[./])?(?:conv\d|downsample[./]0)"
    return {m.replace("/", ".") for m in re.findall(rf"(?:^|\+ |\[/)({module})[./]", name)}


def _resnet50(name: str) -> set[str]:
    told = set(re.findall(r"(conv\d_block\d_\d)_conv", name))
    return told | ({"conv1"} if re.search(r"Conv__435|conv1_conv/LastValue|conv1_pad", name) else set()) | (
        {"pad"} if "pool1_pad" in name else set()
    )  # fmt: skip


def _mobilenet(name: str) -> set[str]:
    by_weights = re.findall(r"(features[.\d]+(?:conv[.\d]+)?)\.weight", name)
    paths = [p.split("/")[2:] for p in re.findall(r"/features/\S+/Conv\b", name)]
    # A module's name begins with that of the module around it, or stands within it.
    joined = [".".join(p for p, q in itertools.pairwise(path) if not q.startswith(f"{p}.")) for path in paths]
    return {*by_weights, *joined}


def side(name: str) -> Side:
    engine, times = recorded.read(name)
    known = {t.layer: t.median for t in times.layers} if times else {}
    return Side(name, engine, None, known, times.total if times else None)


def nameless(told: Side) -> tuple[Side, Mapping[str, str]]:
    called: dict[str, str] = {}

    def renamed(tensor: Tensor) -> Tensor:
        return dataclasses.replace(tensor, name=called.setdefault(tensor.name, f"t{len(called)}"))

    def all_of(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(map(renamed, tensors))

    engine = told.engine

    def bare(y: Engine | Layer, **more: object) -> Any:
        return dataclasses.replace(y, inputs=all_of(y.inputs), outputs=all_of(y.outputs), **more)

    layers = tuple(
        bare(y, id=f"{i}", name=f"(Unnamed Layer* {i}) [Layer]", origins=())
        for i, y in enumerate(engine.layers)
    )
    built = bare(engine, layers=layers)
    was = {f"{i}": y.id for i, y in enumerate(engine.layers)}
    times = {i: told.times[w] for i, w in was.items() if w in told.times}
    return dataclasses.replace(told, engine=built, times=times), was


def check(
    found: Difference, parts: tuple[Mapping[str, frozenset[str]], Mapping[str, frozenset[str]]]
) -> None:
    """No group has other parts of the network on one side than on the other, and every part is in a group of both."""
    seen: list[str] = []
    for group in found.groups:
        if group.basis == "moves":
            continue
        halves = zip(parts, (group.first, group.second), strict=True)
        one, two = (frozenset().union(*(told[i] for i in half.layers)) for told, half in halves)
        assert one == two, (group.basis, group.first.layers, group.second.layers)
        assert group.basis != "alone", (group.first.layers, group.second.layers)
        seen += one
    assert len(set(seen)) == len(seen)
    assert {p for told in parts for ps in told.values() for p in ps} == set(seen)


def exact(found: Difference) -> None:
    for which, half in ((found.first, "first"), (found.second, "second")):
        ids = [i for g in found.groups for i in getattr(g, half).layers]
        assert sorted(ids) == sorted(y.id for y in which.engine.layers)
        if which.times:
            total = math.fsum(getattr(g, half).time or 0.0 for g in found.groups)
            assert abs(total - math.fsum(which.times.values())) < 1e-6
    if found.has_layer_times:
        deltas = math.fsum(g.delta or 0.0 for g in found.groups)
        before, after = (math.fsum(side.times.values()) for side in (found.first, found.second))
        assert abs(deltas - (after - before)) < 1e-6


def test_there_are_as_many_parts_as_the_networks_have() -> None:
    """What the names are held against would be right of anything if it were empty: 20, 53 and 52 convolutions."""
    for family, count, single in (("resnet18", 20, 3), ("resnet50", 53, 5), ("mobilenet", 52, 2)):
        for name in _FAMILIES[family]:
            parts = modules(family, recorded.read(name)[0])
            told = frozenset().union(*parts.values())
            assert count == len(told - {*_SINGLE, "pad"}), name
            assert single == len(told & {*_SINGLE, "pad"}), name


@pytest.mark.parametrize(("family", "first", "second"), _PAIRS)
def test_no_layer_stands_beside_another_part_of_the_network(family: str, first: str, second: str) -> None:
    """A 1x1 downsample beside a 3x3 convolution makes milliseconds that nobody can find."""
    sides = side(first), side(second)
    found = compute_difference(*sides, make_empty_model())
    check(found, tuple(modules(family, s.engine) for s in sides))  # type: ignore[arg-type]
    exact(found)
    back = compute_difference(*sides[::-1], make_empty_model())
    assert {(g.first, g.second, g.basis) for g in found.groups} == {
        (g.second, g.first, g.basis) for g in back.groups
    }


@pytest.mark.parametrize(("family", "first", "second"), _PAIRS)
def test_kernels_shapes_and_neighbours_find_the_same_without_a_name(
    family: str, first: str, second: str
) -> None:
    told = [side(first), side(second)]
    bare = [nameless(s) for s in told]
    found = compute_difference(bare[0][0], bare[1][0], make_empty_model())
    truths = [modules(family, s.engine) for s in told]
    parts = [{i: t[w] for i, w in was.items()} for (_, was), t in zip(bare, truths, strict=True)]
    check(found, tuple(parts))  # type: ignore[arg-type]
    exact(found)
    assert not {"nodes", "names"} & {g.basis for g in found.groups}


def test_a_pooling_that_was_fused_stands_beside_its_convolution() -> None:
    """Conv_0 and MaxPool_2 are one ConvActPool of 72.7 us in the other engine, and no rows of their own."""
    sides = side("trex-resnet18-pytorch-a100-fp16"), side("trex-resnet18-pytorch-a100-int8-qat-residual")
    (group,) = (g for g in compute_difference(*sides, make_empty_model()).groups if g.title == "Conv_0")
    halves = zip(sides, (group.first, group.second), strict=True)
    one, two = ([s.engine.layer(i).name for i in h.layers] for s, h in halves)
    assert ["Conv_0 + Relu_1", "MaxPool_2"] == one
    assert ["conv1.weight + QuantizeLinear_7 + Conv_9 + MaxPool_12"] == two
    assert "fused" == group.basis
    assert 0.0727 == pytest.approx(group.second.time, abs=5e-5)
