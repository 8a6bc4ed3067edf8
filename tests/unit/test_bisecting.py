"""What changed between two compilers whose rules are known: exactly what one has and the other lacks is found."""

from __future__ import annotations

import dataclasses

import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.analyses import bisection
from rtlab.core.engine import Engine, Tensor
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Capabilities, Progress
from rtlab.core.variant import Precision
from rtlab.experiments.why import cutting
from ruled import Ruled


class Newer(Ruled):
    """As ``Ruled``, under a name of its own."""

    name = "newer"

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        return dataclasses.replace(super().build(request, progress), backend=self.name)


class Older(Newer):
    """One release before: a sum starts a step of its own."""

    name = "older"

    def _makers(self, model, node):
        return [] if model.by_id[node].op == "Add" else super()._makers(model, node)


def chain(*ops: str) -> rtlab.Model:
    """Nodes in a row on 1x4x8x8; a sum adds the input of the whole."""
    nodes = []
    for i, op in enumerate(ops):
        reads = [f"v{i}", *(["v0"] if op == "Add" else [])]
        nodes.append(helper.make_node(op, reads, [f"v{i + 1}"], name=f"{op}{i}"))
    edge = [(n, 1, [1, 4, 8, 8]) for n in ("v0", f"v{len(ops)}")]
    return graph(nodes, edge[:1], edge[1:], {})


def study(model: rtlab.Model, one: Ruled, two: Ruled, **choice: str) -> rtlab.Study:
    made = rtlab.Study(model)
    made.add("old", backend=one)
    made.add("new", backend=two, **choice)
    return made


def test_what_one_compiler_joins_and_the_other_does_not_is_found_with_the_fewest_nodes() -> None:
    ops = ("Sigmoid", "Relu", "Sigmoid", "Relu", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Exp", "Tanh")
    model = chain(*ops)
    found = study(model, Older(), Newer()).fusion.bisect("old", "new")

    (change,) = found.changes
    assert {"Exp4", "Add5", "Relu6"} == {*change.nodes}
    assert "one layer now: Exp4 and Add5" in change.cause
    # The sum and what writes one of its operands: with less there is nothing to join.
    assert (("Exp4", "Add5"), "Exp, Add") == (change.smallest, change.operators)
    part = cutting.cut_nodes(model, change.smallest)
    built = [c.build(BuildRequest(part, rtlab.Variant()), Silent()) for c in (Older(), Newer())]
    layers = [[s for y in b.layers if (s := {*y.origins} & {"Exp4", "Add5"})] for b in built]
    assert [[{"Exp4"}, {"Add5"}], [{"Exp4", "Add5"}]] == layers
    assert 0 < found.builds < 2 * len(ops)


@pytest.mark.parametrize("refusing", ["first", "second"])
def test_what_is_refused_is_found(refusing: str) -> None:
    ops = ("Sigmoid", "Relu", "Sigmoid", "Relu", "Exp", "Relu", "Sigmoid", "Tanh", "Relu", "Exp", "Relu")
    pair = [Newer(refused={"Tanh"}), Ruled()]
    found = study(chain(*ops), *(pair if refusing == "first" else reversed(pair))).fusion.bisect("old", "new")
    assert (refusing, ("Tanh7",)) == (found.refused, found.changes[0].nodes)
    assert "it refuses Tanh" in found.said


def test_places_that_changed_alike_are_one_group_with_one_part() -> None:
    ops = ("Sigmoid", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Exp", "Add", "Tanh")
    (change,) = study(chain(*ops), Older(), Newer()).fusion.bisect("old", "new").changes
    assert (2, "Exp6") == (change.places, change.title)
    assert ("Exp1", "Add2", "Relu3", "Exp6", "Add7") == change.nodes
    assert ("Exp; Add", "Exp + Add") == (change.first, change.second)
    assert "Exp, Add" == change.operators


@pytest.mark.parametrize(
    ("run", "groups"),
    [
        (["Relu0", "Exp3"], [["Relu0", "Exp3"]]),
        (["Relu0", "Neg1", "Exp3"], [["Relu0"], ["Exp3"]]),
        (["Relu0", "Abs2", "Exp3"], [["Relu0"], ["Exp3"]]),
    ],
)
def test_nodes_are_neighbours_across_those_that_neither_engine_runs(
    run: list[str], groups: list[list[str]]
) -> None:
    """A reshape between them, of which no layer is left, parts none; one that either engine runs does."""
    model = chain("Relu", "Neg", "Abs", "Exp")
    side = {node: {"0": None} for node in run}
    for layers in ([side, {}], [{}, side]):
        assert groups == bisection._join_neighbours(model, ["Relu0", "Exp3"], layers)  # type: ignore[arg-type]


class Narrow(Newer):
    """In half precision under other names, by the same rules."""

    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities(), precisions=(Precision.FP32, Precision.FP16))

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        def half(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(dataclasses.replace(t, dtype="fp16") for t in tensors)

        built = super().build(request, progress)
        layers = [
            dataclasses.replace(y, name=f"half {y.name}", inputs=half(y.inputs), outputs=half(y.outputs))
            for y in built.layers
        ]
        return dataclasses.replace(built, layers=tuple(layers))


def test_between_precisions_a_group_is_a_place_where_nodes_share_a_step_with_others() -> None:
    net = chain("Sigmoid", "Relu", "Exp", "Add", "Tanh")
    found = study(net, Older(), Narrow(), precision="fp16").fusion.bisect("old", "new")
    (change,) = found.changes
    assert ("Exp2", "Add3") == change.nodes
    assert "3 nodes keep their grouping" in found.text
    # In the part the types differ as everywhere: with one node less nobody shares a step in one engine alone.
    assert ("Exp2", "Add3") == change.smallest
