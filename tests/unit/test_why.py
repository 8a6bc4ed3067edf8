"""Why two nodes are not one step, asked of a compiler whose rules are known."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.analyses.why import FusedLayer, Verdict, read
from rtlab.analyses.why.missed_fusions import same_layer
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model, wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, VariantError
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.why import cutting, forms
from rtlab.experiments.why.search import FusionBlockerSearch
from rtlab.experiments.why.together import FusionSplitSearch
from rtlab.relation.mapping import Mapping, Pair
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model
from ruled import Ruled
from stopping import Stopping


class Taking(Ruled):
    """A convolution takes the ReLU behind it, whoever reads that; a sum joins a ReLU that none has taken."""

    def _makers(self, model, node):
        found = model.by_id[node]
        if found.op == "Relu":
            return [m.id for v in found.inputs if (m := model.producers.get(v)) and m.op == "Conv"]
        return [m for m in super()._makers(model, node) if not self._makers(model, m)]


class Triple(Ruled):
    """ReLU, exponential and negation behind each other are one layer, and no two of them."""

    def _makers(self, model, node):
        found = model.by_id[node]
        middle = found if found.op == "Exp" else model.producers.get(found.inputs[0])
        if found.op not in {"Exp", "Neg"} or middle is None or middle.op != "Exp":
            return [] if found.op in {"Exp", "Neg"} else super()._makers(model, node)
        inner = (middle.inputs[0], middle.outputs[0])
        alone = all(v not in model.outputs and len(model.consumers.get(v, ())) == 1 for v in inner)
        ops = (
            [model.producers[inner[0]].op, model.consumers[inner[1]][0].op]
            if alone and inner[0] in model.producers
            else []
        )
        return [model.producers[found.inputs[0]].id] if ops == ["Relu", "Neg"] else []


def model(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> Model:
    """A graph on an image of four channels, with weights for what reads them."""
    numbers = {k: np.full(4, v, np.float32) for k, v in {"g": 2, "b": 3, "m": 1, "v": 4}.items()}
    weights = {"w": np.full((4, 4, 3, 3), 0.1, np.float32), **numbers}
    used = {i for n in nodes for i in n.input}
    ends = [(o, 1, [1, 4, "h", "w"]) for o in outputs]
    read = {k: w for k, w in weights.items() if k in used}
    return graph([*nodes], [("x", 1, [1, 4, 8, 8])], ends, read)


def conv(given: str, out: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [given, "w"], [out], name=f"conv_{out}", pads=[1, 1, 1, 1])


def normal(given: str, out: str) -> onnx.NodeProto:
    return helper.make_node("BatchNormalization", [given, "g", "b", "m", "v"], [out], name=f"bn_{out}")


def node(op: str, given: str | list[str], out: str, **attributes: object) -> onnx.NodeProto:
    inputs = [given] if isinstance(given, str) else given
    return helper.make_node(op, inputs, [out], name=f"{op}_{out}", **attributes)


def asked(
    found: Model, first: str, second: str, compiler: Ruled | None = None, **more: object
) -> tuple[Verdict, Ruled]:
    compiler = compiler or Ruled()
    search = FusionBlockerSearch(found, engine_of(found), Variant(), first, second)
    return run_experiment(search, WorkContext(compiler, None, Budget(**more))), compiler  # type: ignore[arg-type]


def engine_of(found: Model, compiler: Ruled | None = None) -> Engine:
    return (compiler or Ruled()).build(BuildRequest(found, Variant()), Silent())


def test_two_that_are_one_step_need_no_experiment() -> None:
    verdict, compiler = asked(model(conv("x", "c"), node("Relu", "c", "y")), "conv_c", "Relu_y")
    assert ("fused", 0, []) == (verdict.verdict, verdict.builds, compiler.built)


def test_an_output_between_is_found_and_named() -> None:
    found = model(conv("x", "c"), node("Relu", "c", "y"), node("Sigmoid", "y", "z"), outputs=("z", "c"))
    verdict, _ = asked(found, "conv_c", "Relu_y")
    assert ("blocked", ("output",), ("conv_c",)) == (verdict.verdict, verdict.causes, verdict.nodes)
    assert not verdict.remedy


@pytest.mark.parametrize(
    ("outputs", "beside", "cause", "nodes"),
    [
        (("y", "r"), (), "output", ("Relu_r",)),
        (("y", "z"), (node("Sigmoid", "r", "z"),), "reader", ("Sigmoid_z",)),
    ],
)
def test_what_splits_a_layer_of_three_is_found_though_no_two_of_it_are_a_layer(
    outputs, beside, cause, nodes
) -> None:
    chain = (conv("x", "c"), node("Relu", "c", "r"), node("Exp", "r", "e"), node("Neg", "e", "y"), *beside)
    whole = model(*chain[:4])
    assert same_layer(relate(whole, whole, engine_of(whole, Triple())), "Relu_r", "Exp_e")
    found = model(*chain, outputs=outputs)
    search = FusionBlockerSearch(found, engine_of(found, Triple()), Variant(), "Relu_r", "Exp_e")
    verdict = run_experiment(search, WorkContext(Triple(), None))
    assert ("blocked", (cause,), nodes) == (verdict.verdict, verdict.causes, verdict.nodes)
    # What nothing makes one layer is told as tried, with how often, and never as impossible.
    other = model(*chain[:3], node("Tanh", "e", "y"))
    verdict = run_experiment(
        FusionBlockerSearch(other, engine_of(other, Triple()), Variant(), "Relu_r", "Exp_e"),
        WorkContext(Triple(), None),
    )
    assert "not found" == verdict.verdict
    assert f"in none of {verdict.builds} experiments" in verdict.text
    assert "never" not in verdict.text


def crowded() -> Model:
    """Two readers beside the ReLU, and the convolution's value is an output."""
    beside = (node("Sigmoid", "c", "z"), node("Tanh", "c", "t"))
    return model(conv("x", "c"), node("Relu", "c", "y"), *beside, outputs=("y", "z", "t", "c"))


def test_causes_that_hold_only_together_are_told_together_and_nothing_else_with_them() -> None:
    verdict, _ = asked(crowded(), "conv_c", "Relu_y")
    assert {"output", "reader"} == {*verdict.causes}
    assert {"conv_c", "Sigmoid_z", "Tanh_t"} == {*verdict.nodes}
    assert ("the two alone", True) == (verdict.experiments[0].where, verdict.experiments[0].fused)
    assert [("the whole model", False)] * 3 == [(t.where, t.fused) for t in verdict.experiments[1:4]]


def test_a_rival_is_replaced_and_not_deleted_and_another_form_is_the_remedy() -> None:
    """The average behind the sum takes it; folded, there is no normalization that it could be taken from."""
    behind = (node("Add", ["n", "x"], "s"), node("GlobalAveragePool", "s", "y"))
    found = model(conv("x", "c"), normal("c", "n"), *behind)
    assert same_layer(relate(found, found, engine_of(found)), "conv_c", "bn_n") is False
    verdict, _ = asked(found, "conv_c", "bn_n")
    assert ("blocked", ("competitor",), True) == (verdict.verdict, verdict.causes, verdict.remedy)
    assert ("fold bn_n",) == verdict.rewrites


def test_an_experiment_that_the_compiler_refuses_is_an_answer_of_its_own() -> None:
    found = model(conv("x", "c"), node("Relu", "c", "y"), node("Sigmoid", "c", "z"), outputs=("y", "z"))
    verdict, _ = asked(found, "conv_c", "Relu_y", Ruled(refused={"MaxPool"}))
    refused = [t for t in verdict.experiments if t.layers is None]
    assert refused
    assert all(t.fused is None and "it refuses MaxPool" in t.refused for t in refused)
    assert ("reader",) == verdict.causes


def test_never_is_not_said_where_the_budget_ended_first_or_the_compiler_refuses_the_two_alone() -> None:
    found = model(conv("x", "c"), node("Sigmoid", "c", "s"), node("Add", ["s", "x"], "y"))
    verdict, _ = asked(found, "conv_c", "Sigmoid_s", builds=1)
    assert ("unknown", 1) == (verdict.verdict, verdict.builds)
    for compiler, told in ((Ruled(refused={"Conv"}), "unknown"), (Ruled(), "not found")):
        assert told == asked(found, "conv_c", "Sigmoid_s", compiler)[0].verdict


def test_a_cancel_keeps_what_was_found() -> None:
    found = crowded()
    progress, kept = Silent(), []

    def keep(verdict: Verdict) -> None:
        kept.append(verdict)
        if verdict.builds == 2:
            progress.cancel()

    search = FusionBlockerSearch(found, engine_of(found), Variant(), "conv_c", "Relu_y")
    assert 2 == run_experiment(search, WorkContext(Ruled(), progress), keep).builds
    with pytest.raises(Cancelled):
        run_experiment(search, WorkContext(Ruled(), Stopping()))


def test_a_shared_label_is_no_fusion() -> None:
    """The kernel that quantizes the convolution's input bears its name; the convolution is done by another one."""
    pairs = (
        Pair("relu", "one", "declared"),
        Pair("conv", "one", "declared", role="Q"),
        Pair("conv", "two", "declared"),
    )
    assert same_layer(Mapping(pairs, ()), "relu", "conv") is False
    assert same_layer(Mapping((*pairs, Pair("conv", "one", "declared")), ()), "relu", "conv") is True
    assert same_layer(Mapping(pairs[:2], ()), "relu", "conv") is None


def test_a_verdict_holds_for_the_engine_that_was_asked_about(tmp_path) -> None:
    study = asked_step(Ruled())
    facts = study["fp32"].facts
    verdict = study.fusion.why("stem/Relu", "left/Conv", variant="fp32")
    written = study.fusion.record(verdict, tmp_path / "why.json", variant="fp32")
    assert dataclasses.replace(verdict, recalled=False) == read(written.read_text("utf-8")).verdict
    kept = study.state
    assert {("stem/Relu", "left/Conv"): verdict} == dict(kept.verdicts["fp32"])
    later = kept.with_result(dataclasses.replace(facts, profile=None))
    assert kept.verdicts == later.verdicts, "a later stage of the same engine leaves it standing"
    assert {} == dict(kept.with_result(dataclasses.replace(facts, engine=engine_of(facts.source))).verdicts)


class Choosy(Ruled):
    """A ReLU joins the convolution before it where nothing stands between, or where its value is no output."""

    def _makers(self, model, node):
        found = model.by_id[node]
        if found.op not in {"Relu", "Identity"}:
            return super()._makers(model, node)
        maker = model.producers.get(found.inputs[0])
        if maker is None:
            return []
        if maker.op == "Identity":
            shown = model.producers[maker.inputs[0]].outputs[0] in model.outputs
            return [] if shown else [maker.id]
        return [maker.id] if found.op == "Relu" or found.inputs[0] not in model.outputs else []


def test_of_several_changes_that_do_alone_the_one_that_keeps_the_outputs_is_named() -> None:
    """The output is asked about first, and to hide it does as well; without the node that does nothing all stays."""
    found = model(conv("x", "c"), node("Identity", "c", "i"), node("Relu", "i", "y"), outputs=("y", "c"))
    search = FusionBlockerSearch(found, engine_of(found, Choosy()), Variant(), "conv_c", "Relu_y")
    verdict = run_experiment(search, WorkContext(Choosy(), None))
    alone = {t.change for t in verdict.experiments if t.fused and t.where == "the whole model"}
    assert {'do not mark "c" as an output', 'remove Identity "Identity_i"'} == alone
    assert (("identity",), True, ("drop Identity_i",)) == (verdict.causes, verdict.remedy, verdict.rewrites)


class Spoilt(Ruled):
    """Joins nothing in a large graph without any Identity: either of two remedies pays, and both together do not."""

    def _makers(self, model, node):
        ops = [n.op for n in model.top]
        return super()._makers(model, node) if len(ops) < 5 or "Identity" in ops else []


class Halved(Ruled):
    """Of a large graph, a ReLU behind another one is joined to it where one Identity is there: one remedy is best."""

    def _makers(self, model, node):
        ops = [n.op for n in model.top]
        made = super()._makers(model, node)
        if len(ops) < 5 or ops.count("Identity") == 1:
            return made
        return [m for m in made if (model.by_id[m].op, model.by_id[node].op) != ("Relu", "Relu")]


def twice() -> Model:
    """Two convolutions with an Identity before the ReLU of each; three more joined to the second one."""
    first = (conv("x", "c"), node("Identity", "c", "i"), node("Relu", "i", "r"))
    second = (conv("r", "d"), node("Identity", "d", "j"), node("Relu", "j", "s"))
    return model(*first, *second, node("Relu", "s", "t"), node("Relu", "t", "y"))


@pytest.mark.parametrize(
    ("compiler", "forms", "layers", "alone"),
    [
        # Four layers: a convolution, and what does nothing with the ReLU behind it; each twice.
        (Ruled, ("drop Identity_i", "drop Identity_j"), (4, 2), (4, 3)),
        # One alone leaves three; of both, which are as good, the first that was tried. Together there are six.
        (Spoilt, ("drop Identity_i",), (4, 3), (4, 3)),
        # Six, for two more ReLU are alone; three with one; four with both, which pays, and less.
        (Halved, ("drop Identity_i",), (6, 3), (6, 3)),
    ],
)
def test_remedies_are_taken_together_only_where_that_is_better_than_one_of_them(
    compiler, forms, layers, alone
) -> None:
    told = asked_step(compiler(), twice()).fusion.advise("fp32")
    assert told.every is not None
    assert (forms, layers) == (told.every.rewrites, told.every.layers)
    assert {alone} == {c.remedy.layers for c in told.causes if c.remedy}
    assert told.every.keeps


def joined(found: Model, layer: int, compiler: Ruled | None = None, **more: object) -> FusedLayer:
    engine = engine_of(found)
    rig = WorkContext(compiler or Ruled(), None, Budget(**more))  # type: ignore[arg-type]
    return run_experiment(FusionSplitSearch(found, engine, Variant(), engine.layers[layer].id), rig)


def test_a_step_is_one_as_long_as_nobody_else_sees_its_values() -> None:
    found = model(conv("x", "c"), normal("c", "n"), node("Relu", "n", "y"))
    told = joined(found, 0)
    assert ("conv_c", "bn_n", "Relu_y") == told.nodes
    assert [
        ("conv_c", "bn_n", 'mark "c" as an output', False),
        ("conv_c", "bn_n", 'let another node read "c"', False),
        ("bn_n", "Relu_y", 'mark "n" as an output', False),
        ("bn_n", "Relu_y", 'let another node read "n"', False),
    ] == [(p.first, p.second, p.change, p.fused) for p in told.experiments]
    # Two steps once a value is an output, three once a pooling, which is one of its own, reads it.
    assert [2, 3, 2, 3] == [p.layers for p in told.experiments]


def asked_step(compiler: Ruled, found: Model | None = None) -> rtlab.Study:
    study = rtlab.Study(found or tiny_model(batch=1))
    study.add("fp32", backend=compiler)
    return study.run(compare=False)


def test_a_step_that_was_asked_about_is_told_at_once_with_its_date_and_asked_again_when_wanted() -> None:
    compiler = Ruled()
    first = asked_step(compiler).fusion.why("stem/Relu", variant="fp32")
    assert (False, True) == (first.recalled, first.builds > 0)
    assert first.asked[:2] == "20"
    other = asked_step(compiler)
    assert {*first.nodes} == {p.node for p in other["fp32"].mapping.pairs if p.layer == first.layer}
    built = len(compiler.built)
    second = other.fusion.why("stem/Conv", variant="fp32")
    assert dataclasses.replace(first, recalled=True) == second, "by another node of the same step"
    assert built == len(compiler.built)
    assert second is other.state.fusion_explanations["fp32"][second.layer]
    assert first.layer == other.fusion.why(first.layer, variant="fp32").layer, "by the layer itself"
    anew = other.fusion.why("stem/Relu", variant="fp32", again=True)
    assert not anew.recalled
    assert len(compiler.built) > built
    assert not asked_step(compiler).fusion.why("stem/Relu", variant="fp32", again=True).recalled


def test_a_step_of_one_node_and_a_budget_of_one_build() -> None:
    found = model(conv("x", "c"), node("Relu", "c", "y"), node("Sigmoid", "y", "z"), outputs=("z",))
    with pytest.raises(rtlab.errors.VariantError, match="does the work of"):
        joined(found, 1)
    told = joined(found, 0, builds=1)
    assert 1 == told.builds == len(told.experiments)


LOG = Path(__file__).parents[1] / "corpus" / "builds" / "digits_inception-fp16-sm80.log"


def test_of_an_engine_from_files_the_verdict_is_what_they_report() -> None:
    """The listing in the log says which nodes are one step; who reads the pooling beside stands in the graph."""
    study = rtlab.Study(rtlab.samples.load("digits_inception").model)
    study.read("there", LOG)
    told = study.fusion.why("/stem/conv/Conv", "/stem/norm/BatchNormalization", variant="there")
    assert ("fused", "reported", 0) == (told.verdict, told.basis, told.builds)
    apart = study.fusion.why("/pool1/MaxPool", "/inception1/branch1x1/conv/Conv", variant="there")
    assert ("unknown", "reported", (), "") == (apart.verdict, apart.basis, apart.experiments, apart.edit)
    readers = {f"/inception1/branch{k}/reduce/conv/Conv" for k in ("3x3", "5x5")}
    assert readers <= {*apart.nodes}
    assert apart is study.ask("why", variant="there", pair=f"{apart.first} | {apart.second}").result
    for place in ("/stem/conv/Conv", "/flatten/Flatten"):
        with pytest.raises(VariantError):
            study.fusion.why(place, variant="there")


def test_advice_asks_about_one_of_each_that_stand_alike() -> None:
    nodes, at = [], "x"
    for i in range(4):
        pool = node("MaxPool", f"c{i}", f"p{i}", kernel_shape=[1, 1])
        nodes += [conv(at, f"c{i}"), node("Relu", f"c{i}", f"r{i}"), pool]
        at = f"r{i}"
    found = asked_step(Ruled(), model(*nodes, outputs=("p0", "p1", "p2", "p3", "r3"))).fusion.advise("fp32")
    # Convolution and ReLU at both ends and once between, convolution and pooling at the beginning and once behind it,
    # ReLU and convolution.
    assert (4 + 4 + 3, 3 + 2 + 1) == (found.missed, found.asked)
    causes = {("blocked", "another reader", 4), ("not found", "not found", 4), ("not found", "not found", 3)}
    assert causes == {(c.verdict, c.cause, c.count) for c in found.causes}
    assert len(found.verdicts) == found.asked


def test_a_reader_and_a_rival_hold_together_though_both_readers_behind_cannot_go() -> None:
    """Neither alone does; with all that reads the sum detached there would be no sum any more."""
    nodes = [conv("x", "c"), node("Relu", "c", "r"), node("Add", ["r", "x"], "s")]
    nodes += [conv("r", "k"), conv("s", "d"), conv("s", "e")]
    found = model(*nodes, outputs=("k", "d", "e"))
    search = FusionBlockerSearch(found, engine_of(found, Taking()), Variant(), "Relu_r", "Add_s")
    verdict = run_experiment(search, WorkContext(Taking(), None))
    assert ("blocked", ("reader", "competitor")) == (verdict.verdict, verdict.causes)
    assert ("conv_k", "conv_c") == verdict.nodes


def test_what_is_not_needed_is_not_named_with_what_is() -> None:
    casts = (node("Cast", "c", "h", to=10), node("Cast", "h", "f", to=1))
    nodes = (conv("x", "c"), *casts, node("Relu", "f", "y"), node("Sigmoid", "c", "z"))
    found = model(*nodes, outputs=("y", "z", "c"))
    verdict, _ = asked(found, "conv_c", "Relu_y")
    assert {"output", "reader"} == {*verdict.causes}
    assert {"conv_c", "Sigmoid_z"} == {*verdict.nodes}


def test_a_step_of_another_release_is_another_question_and_what_is_not_finished_is_not_kept() -> None:
    class Next(Ruled):
        def build(self, request, progress):
            return dataclasses.replace(super().build(request, progress), version="2.0")

    study = asked_step(Ruled())
    begun = study.fusion.why("stem/Relu", variant="fp32", builds=3)
    assert (False, 3, True) == (begun.whole, begun.builds, 0 < len(begun.experiments) < 4)
    assert not study.fusion.why("stem/Relu", variant="fp32").recalled
    assert study.fusion.why("stem/Relu", variant="fp32").recalled
    assert not asked_step(Next()).fusion.why("stem/Relu", variant="fp32").recalled


def test_what_holds_together_whatever_is_tried_is_told() -> None:

    class Stubborn(Ruled):
        def build(self, request, progress):
            request.model.ir.graph.outputs[:] = [v for v in request.model.ir.graph.outputs if v.name != "c"]
            return super().build(
                dataclasses.replace(request, model=wrap(request.model.proto(), name="less")), progress
            )

    told = joined(model(conv("x", "c"), node("Relu", "c", "y")), 0, Stubborn())
    assert [True, False] == [p.fused for p in told.experiments]


def test_a_part_in_which_the_step_is_another_one_is_not_asked() -> None:
    """A compiler that joins nothing in a small graph: only the whole model shows the step, with its sixteen nodes."""

    class Shy(Ruled):
        def _makers(self, model, node):
            return super()._makers(model, node) if len(model.top) >= 16 else []

    values = ["x", *(f"{k}{i}" for i in range(8) for k in "cr")]
    nodes = [conv(a, b) if b.startswith("c") else node("Relu", a, b) for a, b in itertools.pairwise(values)]
    told = joined(model(*nodes, outputs=("r7",)), 4, Shy())
    assert ("conv_c4", "Relu_r4") == told.nodes
    # Eight steps and the one that is parted; eight, that one, and the pooling that reads beside.
    assert [(9, False), (10, False)] == [(p.layers, p.fused) for p in told.experiments]
    assert 4 == told.builds, "two parts that do not show it, and two changes of the whole"


def test_a_refusal_is_an_answer_of_its_own() -> None:
    told = joined(model(conv("x", "c"), node("Relu", "c", "y")), 0, Ruled(refused={"MaxPool"}))
    assert [(False, 2), (None, None)] == [(p.fused, p.layers) for p in told.experiments]
    assert "it refuses MaxPool" in told.experiments[1].refused


def test_one_pair_that_cannot_be_asked_about_leaves_the_others_their_answers() -> None:
    """Whatever is raised: a crash on one pair's parts is a note. Without a size there is no batch, and advice still."""

    class Crashing(Ruled):
        def build(self, request, progress):
            if len(request.model.top) < 6 and any(n.op == "Sigmoid" for n in request.model.top):
                raise ValueError("nothing foresees this")
            return super().build(request, progress)

    nodes = [conv("x", "c"), node("Relu", "c", "r"), node("Softmax", "c", "z"), node("Sigmoid", "r", "s")]
    nodes += [node("Tanh", "s", "y"), node("Exp", "z", "e")]
    found = model(*nodes, outputs=("y", "e"))
    found.ir.graph.inputs[0].shape = ir.Shape([1, 4, "h", "w"])
    advice = asked_step(Crashing(), wrap(found.proto(), name="open")).fusion.advise("fp32")
    assert {("conv_c", "Relu_r"), ("conv_c", "Softmax_z")} < {(v.first, v.second) for v in advice.verdicts}
    assert ("Relu_r", "Sigmoid_s") not in {(v.first, v.second) for v in advice.verdicts}
    assert "nothing foresees this" in advice.limitation
    assert advice.missed == advice.worth, "of open sizes, nothing says that any is not worth it"


def test_a_part_that_is_one_layer_as_it_is_names_no_cause() -> None:
    """The compiler joins the two with a third one, in a small graph alone: nothing around them is to blame."""

    class Small(Ruled):
        def _makers(self, model, node):
            ops = [n.op for n in model.top]
            return super()._makers(model, node) if "Tanh" in ops and len(ops) < 5 else []

    nodes = [conv("x", "c"), node("Relu", "c", "r"), node("Tanh", "r", "t")]
    nodes += [node("Exp", f"{'t' if i == 0 else f'e{i - 1}'}", f"e{i}") for i in range(6)]
    found = model(*nodes, outputs=("e5",))
    search = FusionBlockerSearch(found, engine_of(found, Small()), Variant(), "conv_c", "Relu_r")
    verdict = run_experiment(search, WorkContext(Small(), None))
    assert ("unknown", (), "") == (verdict.verdict, verdict.causes, verdict.edit)
    assert "A part of 3 nodes by itself has one layer for both, and here they are two" in verdict.text


def attention() -> Model:
    """Products of two computed values, each reshaped to sizes that are computed."""
    w = {n: np.full((8, 8), 0.1, np.float32) for n in "wu"} | {"four": np.array([4], np.int64)}
    nodes = [node("MatMul", ["x", "w"], "q"), node("MatMul", ["x", "u"], "k"), node("Transpose", "k", "kt")]
    nodes += [node("MatMul", ["q", "kt"], "s"), node("Softmax", "s", "p"), node("MatMul", ["p", "k"], "v")]
    nodes += [node("Shape", "q", "size"), node("Concat", ["size", "four"], "more", axis=0)]
    nodes += [node("Unsqueeze", ["v", "zero"], "vv"), node("Expand", ["vv", "more"], "y")]
    w |= {"zero": np.array([0], np.int64)}
    return graph(nodes, [("x", 1, [8, 8])], [("y", 1, ["a", "b", "c"])], w)


def test_the_core_of_an_attention_lies_between_two_products_of_computed_values() -> None:
    core = ["Transpose_kt", "MatMul_s", "Softmax_p", "MatMul_v"]
    for pair in (("MatMul_s", "Softmax_p"), ("Softmax_p", "MatMul_v"), ("Transpose_kt", "MatMul_s")):
        assert core == [*forms.find_between_products(attention(), pair)]
    assert {} == forms.find_between_products(attention(), ("Concat_more", "Expand_y"))


def test_a_part_computes_its_sizes_itself_and_has_no_output_for_them() -> None:
    """As an input of the part, a list of sizes would be one that no compiler knows."""
    part = cutting.cut_nodes(attention(), ["Unsqueeze_vv", "Expand_y"])
    assert {"v", "q"} == {*part.inputs}
    assert {"Shape_size", "Concat_more"} < {n.id for n in part.top}
    assert all(part.values[o].dtype == "fp32" for o in part.outputs)


def test_a_size_is_replaced_by_one_that_no_other_has() -> None:
    """Heads of 512 on 64 tokens: 64 would make one size of two."""
    nodes = [node("MatMul", ["a", "b"], "s"), node("Softmax", "s", "p"), node("MatMul", ["p", "c"], "y")]
    shapes = {"a": [2, 64, 512], "b": [2, 512, 64], "c": [2, 64, 512]}
    found = graph(nodes, [(n, 1, s) for n, s in shapes.items()], [("y", 1, [2, 64, 512])], {})
    words = [c.words for c in forms.iter_size_changes(found, forms.find_inner_products(found))]
    assert ["use 32 in place of the size 512", "use 32 in place of the size 64"] == sorted(words)
