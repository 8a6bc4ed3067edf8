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


def joined(*sizes: float) -> rtlab.Model:
    """For each size a Concat of numbers up to it and up to 1, each on its own scale, before a quantized product."""
    node, weights = helper.make_node, {"z": np.int8(0)}

    def pair(value: str, scale: float) -> list:
        weights[f"{value}.s"] = np.float32(scale)
        return [
            node("QuantizeLinear", [value, f"{value}.s", "z"], [f"{value}.q"], name=f"{value}.quantize"),
            node("DequantizeLinear", [f"{value}.q", f"{value}.s", "z"], [f"{value}.dq"], name=f"{value}.dequantize"),
        ]  # fmt: skip

    nodes = pair("x", STEP)
    for i, size in enumerate(sizes):
        weights[f"size{i}"], weights[f"w{i}"] = np.float32(size), np.ones((4, 16, 1, 1), np.float32)
        nodes += [
            node("Mul", ["x", f"size{i}"], [f"a{i}"], name=f"boxes{i}"),
            node("Sigmoid", ["x"], [f"b{i}"], name=f"scores{i}"),
            *pair(f"a{i}", size * STEP), *pair(f"b{i}", STEP),
            node("Concat", [f"a{i}.dq", f"b{i}.dq"], [f"c{i}"], name=f"cat{i}", axis=1),
            *pair(f"w{i}", STEP), node("Conv", [f"c{i}", f"w{i}.dq"], [f"y{i}"], name=f"conv{i}"),
        ]  # fmt: skip
    outputs = [(f"y{i}", 1, ("N", 4, 6, 6)) for i in range(len(sizes))]
    return graph(nodes, [("x", 1, ("N", 8, 6, 6))], outputs, weights)


def data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).random((16, 8, 6, 6)).astype(np.float32)}


def scales(model: rtlab.Model, cat: str = "cat0") -> list[float]:
    """Those of what enters a Concat, by its inputs."""
    node = model.by_id[cat]
    pairs = [model.producers[v] for v in node.inputs]
    return [round(float(model.constants(n.id)[n.inputs[1]].numpy()), 6) for n in pairs]


def test_a_shared_scale_that_leaves_nothing_of_one_half_is_undone():
    """On a step of 640 / 127 every number below 2.5 is 0."""
    study = rtlab.Study(joined(640), data=data())
    (found,) = (f for f in study.findings() if f.rule == "concat")
    made = study.calibration.fix_qdq()
    assert [round(640 * STEP, 6), round(STEP, 6)] == scales(made)
    assert any("channels 8 to 15 of c0" in n and "on 16 samples" in n for n in made.notes)
    # Whoever names it gets the same answer.
    assert scales(made) == scales(study.calibration.fix_qdq([found.id]))


def test_what_may_be_lost_is_for_the_user_to_say():
    """Scales of 1.5 and 1 shared cost 1.7 dB of 59.6."""
    study = rtlab.Study(joined(1.5), data=data())
    assert 2 == len({*scales(study.calibration.fix_qdq())})
    made = study.calibration.fix_qdq(max_loss=2)
    assert 1 == len({*scales(made)})
    assert ((), {}) == (made.notes, made.declined)
    assert any("random" in n for n in rtlab.Study(joined(640)).calibration.fix_qdq().notes)


def test_a_harmful_repair_does_not_keep_back_those_behind_it() -> None:
    """Scales of 1.02 and 1 cost little to share, of 640 and 1 everything."""
    made = rtlab.Study(joined(640, 1.02), data=data()).calibration.fix_qdq()
    assert (2, 1) == tuple(len({*scales(made, cat)}) for cat in ("cat0", "cat1"))
    assert ["concat:cat0"] == [*made.declined]


def test_what_costs_nothing_on_a_trained_network_is_repaired():
    sample = rtlab.samples.load("digits_qat_misplaced")
    study = rtlab.Study(sample.model, data=sample.calibration)
    assert len(study.findings()) > 10
    assert () == findings.check(study.calibration.fix_qdq())


def test_a_missing_pair_is_a_loss_too():
    """FP32 at one factor of a product, 41.6 dB, or 38.1 dB with the pair that would make it INT8."""
    study = rtlab.Study(qdq.one_factor_in_fp32())
    pairs = [sum(n.op == "QuantizeLinear" for n in m.top) for m in (study.model, study.calibration.fix_qdq())]
    assert pairs[0] == pairs[1]
    assert [] == [f.rule for f in findings.check(study.calibration.fix_qdq(max_loss=6))]


def test_a_model_of_open_sizes_is_repaired_and_its_notes_say_that_nothing_was_run() -> None:
    proto = onnx.load_from_string(qdq.concat_of_two_scales(behind=True).bytes())
    for value in (*proto.graph.input, *proto.graph.output):
        for at, size in enumerate(value.type.tensor_type.shape.dim):
            if at > 1:
                size.dim_param = f"{value.name}{at}"
    del proto.graph.value_info[:]
    made = rtlab.Study(proto).calibration.fix_qdq()
    assert "concat" not in {f.rule for f in findings.check(made)}
    assert any("were not run" in n for n in made.notes)
