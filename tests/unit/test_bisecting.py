"""What changed between two compilers whose rules are known: exactly what one has and the other lacks is found."""

from __future__ import annotations

import dataclasses
import json

import pytest
from onnx import TensorProto, helper

import rtlab
from rtlab.cli import main
from rtlab.core.engine import Engine
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Capabilities, Progress
from rtlab.core.variant import Precision
from rtlab.errors import Cancelled
from rtlab.testing import tiny_model
from ruled import Ruled


class Older(Ruled):
    """One release before: a sum starts a step of its own."""

    name = "older"

    def _makers(self, model, node):
        return [] if model.by_id[node].op == "Add" else super()._makers(model, node)

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        return dataclasses.replace(super().build(request, progress), backend=self.name)


class Newer(Ruled):
    """As ``Ruled``, under a name of its own."""

    name = "newer"

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        return dataclasses.replace(super().build(request, progress), backend=self.name)


def chain(*ops: str) -> rtlab.Model:
    """Nodes in a row on 1x4x8x8; a sum adds the input of the whole."""
    nodes = []
    for i, op in enumerate(ops):
        reads = [f"v{i}", *(["v0"] if op == "Add" else [])]
        nodes.append(helper.make_node(op, reads, [f"v{i + 1}"], name=f"{op}{i}"))
    edge = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 8, 8]) for n in ("v0", f"v{len(ops)}")]
    graph = helper.make_graph(nodes, "chain", edge[:1], edge[1:])
    return rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def study(model: rtlab.Model, one: Ruled, two: Ruled) -> rtlab.Study:
    made = rtlab.Study(model)
    made.add("old", backend=one)
    made.add("new", backend=two)
    return made


def test_what_one_compiler_joins_and_the_other_does_not_is_found_with_the_fewest_nodes(tmp_path) -> None:
    ops = ("Sigmoid", "Relu", "Sigmoid", "Relu", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Exp", "Tanh")
    found = study(chain(*ops), Older(), Newer()).bisect("old", "new", folder=tmp_path / "bug")

    (change,) = found.changes
    assert {"Exp4", "Add5", "Relu6"} == {*change.nodes}
    assert "one step now: Exp4 and Add5" in change.cause
    assert "2 steps became 1" in change.cause
    # The sum and what writes one of its operands: with less there is nothing to join.
    part = rtlab.load(tmp_path / "bug" / "1" / "part.onnx")
    assert ["Exp", "Add"] == [n.op for n in part.nodes if n.id in change.nodes]
    layers = [
        [
            {*y.origins} & {"Exp4", "Add5"}
            for y in c.build(BuildRequest(part, rtlab.Variant()), Silent()).layers
            if {*y.origins} & {"Exp4", "Add5"}
        ]
        for c in (Older(), Newer())
    ]
    assert [[{"Exp4"}, {"Add5"}], [{"Exp4", "Add5"}]] == layers
    report = (tmp_path / "bug" / "report.md").read_text()
    assert "1 change" in report
    assert "Exp, Add" in report
    assert {"part.onnx", "first.log", "second.log"} == {p.name for p in (tmp_path / "bug" / "1").iterdir()}


def test_engines_that_are_alike_are_said_to_be() -> None:
    found = study(tiny_model(batch=1), Ruled(), Newer()).bisect("old", "new")
    assert () == found.changes
    assert 0 == found.builds
    assert "take the same steps" in found.text


@pytest.mark.parametrize("refusing", ["first", "second"])
def test_what_is_refused_is_found(refusing: str) -> None:
    """Of eleven nodes the one whose operator is refused."""
    ops = ("Sigmoid", "Relu", "Sigmoid", "Relu", "Exp", "Relu", "Sigmoid", "Tanh", "Relu", "Exp", "Relu")
    pair = [Newer(refused={"Tanh"}), Ruled()]
    found = study(chain(*ops), *(pair if refusing == "first" else reversed(pair))).bisect("old", "new")
    assert (refusing, ("Tanh7",)) == (found.refused, found.changes[0].nodes)
    assert "it refuses Tanh" in found.said
    assert "1 node of 11 is enough" in found.text


def test_a_refusal_that_takes_two_nodes_is_found_as_two() -> None:
    class Both(Newer):
        def build(self, request, progress):
            refused = {"Tanh", "Exp"} <= {n.op for n in request.model.top}
            self.refused = frozenset({"Tanh"} if refused else ())
            return super().build(request, progress)

    ops = ("Sigmoid", "Relu", "Tanh", "Sigmoid", "Relu", "Relu", "Sigmoid", "Exp", "Relu", "Relu")
    found = study(chain(*ops), Both(), Ruled()).bisect("old", "new")
    assert {"Tanh2", "Exp7"} == {*found.changes[0].nodes}


def test_both_refuse() -> None:
    found = study(chain("Tanh", "Relu"), Newer(refused={"Tanh"}), Ruled(refused={"Tanh"})).bisect(
        "old", "new"
    )
    assert () == found.changes
    assert found.text.startswith("Both refuse the model")


def test_the_budget_and_a_stop_leave_what_was_found() -> None:
    ops = ("Sigmoid", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Tanh", "Add", "Tanh")
    few = study(chain(*ops), Older(), Newer()).bisect("old", "new", builds=1)
    assert [False, True] == [c.part is None for c in few.changes]


def test_a_stop_in_the_middle_gives_what_was_found() -> None:
    ops = ("Sigmoid", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Tanh", "Add", "Tanh")
    made = study(chain(*ops), Older(), Newer())

    class Stopping(Silent):
        def phase(self, name: str, total: int | None = None) -> None:
            if name == "Looking for the smallest parts":
                self.cancel()

    found = made.bisect("old", "new", progress=Stopping())
    assert [None, None] == [c.part for c in found.changes]
    stopped = Silent()
    stopped.cancel()
    with pytest.raises(Cancelled):
        study(chain(*ops), Older(), Newer()).bisect("old", "new", progress=stopped)


def test_places_that_changed_alike_are_one_group_with_one_part() -> None:
    ops = ("Sigmoid", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Exp", "Add", "Tanh")
    (change,) = study(chain(*ops), Older(), Newer()).bisect("old", "new").changes
    assert (2, "Exp6") == (change.places, change.title)
    assert ("Exp1", "Add2", "Relu3", "Exp6", "Add7") == change.nodes
    assert change.cause.startswith("one step now: Exp and Add; 4 steps became 2")
    assert ("Exp; Add", "Exp + Add") == (change.first, change.second)
    assert ["Exp", "Add"] == [n.op for n in change.shown.models[0].top if n.op in ops]


class Narrow(Newer):
    """In half precision under other names, by the same rules."""

    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities(), precisions=(Precision.FP32, Precision.FP16))

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        built = super().build(request, progress)
        layers = [
            dataclasses.replace(
                y,
                name=f"half {y.name}",
                inputs=tuple(dataclasses.replace(t, dtype="fp16") for t in y.inputs),
                outputs=tuple(dataclasses.replace(t, dtype="fp16") for t in y.outputs),
            )
            for y in built.layers
        ]
        return dataclasses.replace(built, layers=tuple(layers))


def narrowed(model: rtlab.Model, one: Ruled) -> rtlab.Study:
    made = rtlab.Study(model)
    made.add("old", backend=one)
    made.add("new", backend=Narrow(), precision="fp16")
    return made


def test_between_precisions_kernels_and_types_alone_are_no_group() -> None:
    found = narrowed(chain("Sigmoid", "Relu", "Exp", "Add", "Tanh"), Ruled()).bisect("old", "new")
    assert () == found.changes
    assert 0 == found.builds
    assert "no group of nodes changed" in found.text
    assert "5 nodes keep their grouping and differ in kernels or types alone: fp32 became fp16." in found.text


def test_between_precisions_a_group_is_a_place_where_nodes_share_a_step_with_others() -> None:
    found = narrowed(chain("Sigmoid", "Relu", "Exp", "Add", "Tanh"), Older()).bisect("old", "new")
    (change,) = found.changes
    assert ("Exp2", "Add3") == change.nodes
    assert "one step now: Exp2 and Add3" in change.cause
    assert "At one place, nodes share a layer with others than before." in found.text
    assert "3 nodes keep their grouping" in found.text
    # In the part the types differ as everywhere: with one node less nobody shares a step in one engine alone.
    part = change.shown.models[0]
    assert ["Exp2", "Add3"] == [n.id for n in part.top if n.op in {"Sigmoid", "Relu", "Exp", "Add", "Tanh"}]


def test_kernels_alone_are_a_group_where_the_precision_is_the_same() -> None:
    class Renamed(Newer):
        def build(self, request: BuildRequest, progress: Progress) -> Engine:
            built = super().build(request, progress)
            layers = (dataclasses.replace(y, name=y.name.replace("Exp", "Fast")) for y in built.layers)
            return dataclasses.replace(built, layers=tuple(layers))

    found = study(chain("Sigmoid", "Relu", "Exp", "Tanh"), Ruled(), Renamed()).bisect("old", "new")
    (change,) = found.changes
    assert (("Exp2",), 1, "other kernels") == (change.nodes, change.places, change.cause)
    assert "share a layer" not in found.text


def test_json_has_what_is_said_and_no_model() -> None:
    from rtlab.documents.crossing import plain

    found = study(chain("Exp", "Add", "Tanh"), Older(), Newer()).bisect("old", "new")
    told = json.loads(json.dumps(plain(found), allow_nan=False))
    assert {"first", "second", "changes", "text", "refused", "said", "builds", "seconds"} == {*told}
    assert {"nodes", "title", "places", "first", "second", "cause", "delta", "part"} == {*told["changes"][0]}


def test_engines_from_files_tell_their_groups_alone() -> None:
    import recorded

    made = rtlab.Study(rtlab.core.model.absent())
    one, two = (recorded.ENGINES[0].parent / n for n in ("written-fp16", "written-int8"))
    made.read("a", **recorded.files(one))
    made.read("b", **recorded.files(two))
    found = made.bisect("a", "b")
    assert 0 == found.builds
    assert "No part was built: an engine from files has no compiler" in found.text
    assert all(c.first or c.second for c in found.changes)


def test_the_command_takes_two_releases(capsys) -> None:
    assert 1 == main(["bisect", "digits_gate", "--compiler", "1.7"])
    assert "1 compiler was named. Give two, as --compiler 1.6 1.7." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bisect", "digits_gate", "--compiler", "1.5", "1.6", "1.7"])
    assert "takes one release or two" in capsys.readouterr().err
