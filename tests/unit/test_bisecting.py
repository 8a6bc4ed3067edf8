"""What changed between two compilers whose rules are known: exactly what one has and the other lacks is found."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import pytest
from onnx import TensorProto, helper

import rtlab
from rtlab.cli import main
from rtlab.core.engine import Engine
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Capabilities, Progress
from rtlab.core.variant import Precision
from rtlab.errors import Cancelled, ReadError, VariantError
from rtlab.questions import panels
from rtlab.questions.bisection import report
from rtlab.questions.scene import Scene
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
    assert {
        "first", "second", "changes", "text", "refused", "said", "builds", "seconds", "budget", "left", "asked",
        "recalled",
    } == {*told}  # fmt: skip
    assert {"nodes", "title", "places", "first", "second", "cause", "delta", "part", "operators"} == {
        *told["changes"][0]
    }


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


OPS = ("Sigmoid", "Exp", "Add", "Relu", "Tanh")


def test_what_was_found_is_kept_and_told_once_more_without_a_build() -> None:
    first = study(chain(*OPS), Older(), Newer()).bisect("old", "new")
    assert (False, 0) == (first.recalled, first.left)
    older, newer = Older(), Newer()
    made = study(chain(*OPS), older, newer)
    again = made.bisect("old", "new")
    assert again.recalled
    assert [1, 1] == [len(older.built), len(newer.built)], "the two engines alone are built"
    assert dataclasses.replace(again, changes=(), recalled=False) == dataclasses.replace(first, changes=())
    for one, two in zip(first.changes, again.changes, strict=True):
        assert dataclasses.replace(one, shown=None) == dataclasses.replace(two, shown=None)
        for part, kept in zip(one.shown.models, two.shown.models, strict=True):
            assert part.proto().graph.node == kept.proto().graph.node
        assert one.shown.logs == two.shown.logs
    anew = made.bisect("old", "new", again=True)
    assert not anew.recalled
    assert len(older.built) > 1
    # Of another model, or the other way round, nothing is known.
    assert not study(chain(*OPS, "Exp"), Older(), Newer()).bisect("old", "new").recalled
    assert not study(chain(*OPS), Newer(), Older()).bisect("old", "new").recalled


def test_what_the_budget_cut_short_is_not_kept() -> None:
    ops = ("Sigmoid", "Exp", "Add", "Relu", "Sigmoid", "Relu", "Tanh", "Add", "Tanh")
    few = study(chain(*ops), Older(), Newer()).bisect("old", "new", builds=1)
    assert (1, "at most 60 s and 1 build") == (few.left, few.budget)
    whole = study(chain(*ops), Older(), Newer()).bisect("old", "new")
    assert (False, 0) == (whole.recalled, whole.left)


def test_a_record_is_replayed_group_by_group(tmp_path) -> None:
    made = study(chain(*OPS), Older(), Newer())
    found = made.bisect("old", "new")
    path = made.record(found, tmp_path / "r.json", variant=("old", "new"))
    same = study(chain(*OPS), Older(), Newer()).replay(path, variant=("old", "new"))
    assert same.same
    assert [(c.title, c.part) for c in found.changes] == [(c.title, c.part_now) for c in same.changes]
    assert not same.bisection.recalled
    # A release that changed nothing: the group of the record is gone.
    other = study(chain(*OPS), Newer(), Newer()).replay(path, variant=("old", "new"))
    assert not other.same
    assert [""] == [c.cause_now for c in other.changes]
    with pytest.raises(VariantError, match="built from another graph"):
        study(chain(*OPS, "Exp"), Older(), Newer()).run(compare=False).replay(path, variant=("old", "new"))
    with pytest.raises(VariantError, match="the answer is about two variants, and 1 were named"):
        made.replay(path, variant="old")
    (tmp_path / "bad.json").write_text('{"bisection": 1}')
    with pytest.raises(ReadError, match="Cannot read a record of what changed"):
        made.replay(tmp_path / "bad.json", variant=("old", "new"))


def test_the_panel_tells_what_is_known_and_forgets_it_with_its_variant() -> None:
    made = study(chain(*OPS), Older(), Newer()).run(compare=False)

    def panel(name: str = "new", **settings: str) -> dict:
        kept = made.snapshot()
        return panels.answer("bisection", Scene(kept, kept.facts[name], kept.facts["old"], settings))

    before = panel(seconds="10")
    assert "Find what changed" == before["work"][0]["label"]
    assert {"from": "old", "seconds": "10", "again": ""} == before["work"][0]["values"]
    assert ([], "") == (before["rows"], before["quoted"])
    assert ["Both build at most 200 parts, in at most 10 s"] == [
        n.removeprefix("Nobody looked yet. ").partition(".")[0] for n in before["notes"]
    ]
    found = made.bisect("old", "new")
    after = panel()
    assert found.text == after["lead"]
    assert ["Look again", "Save the files"] == [w["label"] for w in after["work"]]
    assert "yes" == after["work"][0]["values"]["again"]
    ((row,), heads) = after["rows"], [c["title"] for c in after["columns"]]
    cells = dict(zip(heads, row["cells"], strict=True))
    assert ("Exp; Add + Relu", "Exp + Add + Relu") == (cells["Before"], cells["After"])
    assert (3, 1) == (cells["Nodes"], cells["Places"])
    assert list(found.changes[0].nodes) == after["links"][row["key"]]["nodes"]
    assert after["quoted"].startswith(f"# {found.first} and {found.second}: 1 change")
    assert found.text in after["quoted"]
    assert found.text == made.ask("bisection", variant="new", baseline="old").noun.text
    # Seen from the other variant nothing is known.
    assert [] == panel("old")["rows"]
    made.run(["old"], compare=False, again=True)
    assert [] == panel()["rows"], "of another engine nothing is known"


def test_the_files_are_a_text_and_a_part_with_its_logs() -> None:
    made = study(chain(*OPS), Older(), Newer())
    found = made.bisect("old", "new")
    with zipfile.ZipFile(io.BytesIO(report.packed(found, made.model))) as files:
        assert {"report.md", "1/part.onnx", "1/first.log", "1/second.log"} == {*files.namelist()}
        assert found.changes[0].part == len(rtlab.load(files.read("1/part.onnx"), name="part").top)


def test_the_part_shows_all_that_turned_at_a_place() -> None:
    """The sum joins what it reads and loses what reads it: of two nodes only one of the two would be seen."""

    class Odd(Newer):
        def _makers(self, model, node):
            return [] if model.by_id[node].op == "Relu" else super()._makers(model, node)

    (change,) = (
        study(chain("Tanh", "Exp", "Add", "Relu", "Tanh"), Older(), Odd()).bisect("old", "new").changes
    )
    assert "one step now: Exp1 and Add2; apart now: Add2 and Relu3" in change.cause
    assert {"Exp1", "Add2", "Relu3"} <= {n.id for n in change.shown.models[0].top}
