"""Repairs of a model's own pairs are run on samples, and undone where they make something worse."""

import numpy as np
import onnx
import pytest
from onnx import helper

import qdq
import rtlab
from nets import graph
from rtlab.quantize import findings

pytestmark = pytest.mark.slow
STEP = 1 / 127


def joined(large: float) -> rtlab.Model:
    """A Concat of numbers up to ``large`` and up to 1, each on a scale of its own, before a quantized product."""
    node, weights = helper.make_node, {"z": np.int8(0), "w": np.ones((4, 16, 1, 1), np.float32)}

    def pair(value: str, scale: float) -> list:
        weights[f"{value}.s"] = np.float32(scale)
        return [
            node("QuantizeLinear", [value, f"{value}.s", "z"], [f"{value}.q"], name=f"{value}.quantize"),
            node("DequantizeLinear", [f"{value}.q", f"{value}.s", "z"], [f"{value}.dq"], name=f"{value}.dequantize"),
        ]  # fmt: skip

    weights["size"] = np.float32(large)
    nodes = [
        *pair("x", STEP), node("Mul", ["x", "size"], ["a"], name="boxes"), node("Sigmoid", ["x"], ["b"], name="scores"),
        *pair("a", large * STEP), *pair("b", STEP), node("Concat", ["a.dq", "b.dq"], ["c"], name="cat", axis=1),
        *pair("w", STEP), node("Conv", ["c", "w.dq"], ["y"], name="conv"),
    ]  # fmt: skip
    return graph(nodes, [("x", 1, ("N", 8, 6, 6))], [("y", 1, ("N", 4, 6, 6))], weights)


def data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).random((16, 8, 6, 6)).astype(np.float32)}


def scales(model: rtlab.Model) -> list[float]:
    """Those of what enters the Concat, by its inputs."""
    node = model.by_id["cat"]
    pairs = [model.producers[v] for v in node.inputs]
    return [round(float(model.constants(n.id)[n.inputs[1]].numpy()), 6) for n in pairs]


def test_a_shared_scale_that_leaves_nothing_of_one_half_is_undone():
    """On a step of 640 / 127 every number below 2.5 is 0."""
    study = rtlab.Study(joined(640), data=data())
    (found,) = (f for f in study.findings() if f.rule == "concat")
    assert found.fix.startswith("Share the largest scale")
    made = study.repaired()
    assert [round(640 * STEP, 6), round(STEP, 6)] == scales(made)
    assert any("channels 8 to 15 of c" in n and "on 16 samples" in n for n in made.notes)
    for model in (study.model, made):
        (found,) = (f for f in findings.check(model) if f.rule == "concat")
        assert "channels 8 to 15 of c worse" in found.fix
    # Whoever names it gets the same answer.
    assert scales(made) == scales(study.repaired([found.id]))


def test_what_may_be_lost_is_for_the_user_to_say():
    """Scales of 1.5 and 1 shared cost 1.7 dB of 59.6."""
    study = rtlab.Study(joined(1.5), data=data())
    assert 2 == len({*scales(study.repaired())})
    made = study.repaired(max_loss=2)
    assert 1 == len({*scales(made)})
    assert ((), {}) == (made.notes, made.declined)
    assert any("random" in n for n in rtlab.Study(joined(640)).repaired().notes)


def test_what_costs_nothing_on_a_trained_network_is_repaired():
    sample = rtlab.samples.load("digits_qat_misplaced")
    study = rtlab.Study(sample.model, data=sample.calibration)
    assert len(study.findings()) > 10
    assert () == findings.check(study.repaired())


def test_a_missing_pair_is_a_loss_too():
    """FP32 at one factor of a product, 41.6 dB, or 38.1 dB with the pair that would make it INT8."""
    study = rtlab.Study(qdq.one_factor_in_fp32())
    pairs = [sum(n.op == "QuantizeLinear" for n in m.top) for m in (study.model, study.repaired())]
    assert pairs[0] == pairs[1]
    assert [] == [f.rule for f in findings.check(study.repaired(max_loss=6))]


def test_a_model_of_open_sizes_is_repaired_and_its_notes_say_that_nothing_was_run() -> None:
    proto = onnx.load_from_string(qdq.concat_of_two_scales(behind=True).bytes())
    for value in (*proto.graph.input, *proto.graph.output):
        for at, size in enumerate(value.type.tensor_type.shape.dim):
            if at > 1:
                size.dim_param = f"{value.name}{at}"
    del proto.graph.value_info[:]
    made = rtlab.Study(proto).repaired()
    assert "concat" not in {f.rule for f in findings.check(made)}
    assert any("were not run" in n for n in made.notes)
