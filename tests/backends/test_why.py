"""Why two nodes are not one step, asked of TensorRT-RTX: what was found by hand with release 1.7 is the truth."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
import shelf
from nets import graph
from planted_misses import Edge, edges, planted
from rtlab import backends
from rtlab.analyses.why.missed_fusions import find_missed_fusions, same_layer
from rtlab.relation.relate import relate
from rtlab.study import fusion
from rtlab.testing import tiny_model

RTX = backends.get("tensorrt-rtx")
pytestmark = pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)


def study(model: rtlab.Model, precision: str = "fp32", data: object = None) -> rtlab.Study:
    made = rtlab.Study(model, data=data)
    made.add(precision, precision=precision, target="sm86", backend="tensorrt-rtx")
    return made.run(compare=False)


@pytest.fixture(scope="module")
def inception() -> rtlab.Study:
    return study(rtlab.samples.load("digits_inception").model)


@pytest.fixture(scope="module")
def folded(inception: rtlab.Study) -> str:
    """A variant with a folded normalization and a pooling in another form."""
    inception.add(
        "folded", precision="fp32", target="sm86", backend="tensorrt-rtx",
        rewrites=["fold /stem/norm/BatchNormalization", "pool /pool3/GlobalAveragePool"],
    )  # fmt: skip
    inception.run(["folded"])
    return "folded"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["output", "reader", "quantization"])
def test_what_was_planted_between_a_convolution_and_its_normalization_is_named(kind) -> None:
    """Found by hand: in three builds each (``fusion-by-experiment``). Which edges fuse, the compiler says first."""
    rng = np.random.default_rng(2)
    model = rtlab.samples.load("digits_inception").model
    edge = Edge("/stem/conv/Conv", "/stem/norm/BatchNormalization", "/stem/conv/Conv_output_0")
    assert edge in edges(model)
    miss = planted(model, edge, [kind], rng)
    verdict = study(miss.model).fusion.why(edge.first, edge.second, variant="fp32")
    assert ("blocked", (kind,)) == (verdict.verdict, verdict.causes)
    assert {*miss.nodes} <= {*verdict.nodes}
    assert verdict.builds <= 12
    assert not verdict.remedy
    assert "TensorRT-RTX" in verdict.compiler
    assert "sm86" in verdict.compiler


@pytest.mark.slow
def test_a_global_average_takes_the_sum_of_the_last_block_and_folding_gives_it_back() -> None:
    """The only Conv and BatchNormalization of ResNet-50's 53 that are two steps; deleting nodes never finds it."""
    model = shelf.load("resnet50").model
    made = study(model)
    pairs = [
        (node.id, reader.id)
        for node in model.top if node.op == "Conv"
        for reader in model.consumers[node.outputs[0]] if reader.op == "BatchNormalization"
    ]  # fmt: skip
    facts = made["fp32"].facts
    relation = relate(facts.prepared.model, facts.prepared.model, facts.engine)
    apart = [p for p in pairs if same_layer(relation, *p) is False]
    assert 53 == len(pairs)
    assert [("/layer4.2/conv3/conv/Conv", "/layer4.2/conv3/norm/BatchNormalization")] == apart
    verdict = made.fusion.why(*apart[0], variant="fp32")
    assert (("competitor",), ("/pool/GlobalAveragePool",)) == (verdict.causes, verdict.nodes)
    assert verdict.remedy
    assert ("fold /layer4.2/conv3/norm/BatchNormalization",) == verdict.rewrites


def test_an_output_takes_the_epilogue_before_it_for_its_layout() -> None:
    """The last block's product stays alone: what stands behind it writes the output in the layout that is asked for."""
    rng, node = np.random.default_rng(0), helper.make_node
    nodes, weights, at = [], {}, "x"
    for i in range(3):
        sizes = {"w": (8, 8, 3, 3), "g": (8,), "b": (8,), "m": (8,), "v": (8,)}
        drawn = {k: np.abs(rng.normal(0, 0.1, s)) + 0.01 for k, s in sizes.items()}
        weights |= {f"{k}{i}": a.astype(np.float32) for k, a in drawn.items()}
        normal = [f"c{i}", *[f"{k}{i}" for k in "gbmv"]]
        nodes += [
            node("Conv", [at, f"w{i}"], [f"c{i}"], name=f"conv{i}", pads=[1] * 4),
            node("BatchNormalization", normal, [f"n{i}"], name=f"bn{i}"),
            node("Relu", [f"n{i}"], [f"r{i}"], name=f"relu{i}"),
        ]
        at = f"r{i}"
    x, y = ([(n, TensorProto.FLOAT, [1, 8, 16, 16])] for n in ("x", "r2"))
    made = study(graph(nodes, x, y, weights))
    verdict = made.fusion.why("conv2", "bn2", variant="fp32")
    assert ("blocked", ("output",), ("relu2",)) == (verdict.verdict, verdict.causes, verdict.nodes)
    assert 'do not mark "r2" as an output' in verdict.text
    assert ("fold bn2",) == verdict.rewrites


@pytest.mark.slow
def test_an_activation_and_a_pooling_are_never_one_step(inception) -> None:
    verdict = inception.fusion.why("/stem/relu/Relu", "/pool1/MaxPool", variant="fp32")
    assert ("not found", (), "") == (verdict.verdict, verdict.causes, verdict.edit)


@pytest.mark.slow
def test_in_int8_a_convolution_keeps_to_itself_whatever_is_changed_around_it() -> None:
    """20 builds by hand said so of release 1.7: with and without bias, at every size and target."""
    sample = rtlab.samples.load("digits_inception")
    made = study(sample.model, "int8", sample.calibration)
    verdict = made.fusion.why("/stem/conv/Conv", "/stem/norm/BatchNormalization", variant="int8")
    assert ("blocked", ("quantization",)) == (verdict.verdict, verdict.causes)


def test_a_rewritten_variant_is_built_and_computes_the_same(inception, folded) -> None:
    """One click makes a remedy a variant: its nodes are mapped to layers, its outputs are those of the source."""
    result = inception[folded]
    assert result.accuracy.values[-1].sqnr > 100
    assert ("/flatten/Flatten",) == tuple(n for n, _ in result.unmapped)
    assert "with Conv" in inception.explain("/stem/norm/BatchNormalization", variant=folded)


@pytest.mark.slow
def test_advice_gathers_what_has_one_cause_and_tries_remedies_on_the_whole_model(inception, folded) -> None:
    found = inception.fusion.advise(folded)
    counted = sum(c.count for c in found.causes)
    assert found.missed == counted, "every missed fusion has a cause"
    assert {"blocked", "not found"} >= {c.verdict for c in found.causes}
    assert [c.stake for c in found.causes] == sorted((c.stake for c in found.causes), reverse=True)
    assert found.asked < found.missed, "what is like another one that never is one layer is not asked about"
    assert found.builds == sum(v.builds for v in found.verdicts) + len(
        {r for c in found.causes if c.remedy for r in c.remedy.rewrites}
    )


@pytest.mark.slow
def test_a_step_is_asked_why_it_is_one(inception) -> None:
    """Found by hand: a convolution whose value is an output is a step of its own, its bias and ReLU stay together."""
    told = inception.fusion.why("/stem/relu/Relu", variant="fp32")
    names = ("/stem/conv/Conv", "/stem/norm/BatchNormalization", "/stem/relu/Relu")
    assert names == told.nodes
    assert {(*names[:2], False), (*names[1:], True)} == {
        (p.first, p.second, p.fused) for p in told.experiments
    }
    assert "BatchNormalization and Relu hold" in told.text


@pytest.mark.slow
def test_a_record_that_was_damaged_is_no_answer() -> None:
    made = study(tiny_model())
    pair = next((m.first, m.second) for m in find_missed_fusions(made["fp32"].facts))
    asked = made.fusion.why(*pair, variant="fp32")
    assert "unknown" != asked.verdict
    (file,) = fusion.folder().iterdir()
    file.write_text(file.read_text("utf-8")[:-9], "utf-8")
    assert not made.fusion.why(*pair, variant="fp32").recalled
