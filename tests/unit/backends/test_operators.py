"""Tables of tactics inside foreign nodes: operators of a region, beside the region as a whole."""

from __future__ import annotations

from build_logs import CONV, REGIONS, REST
from rtlab.backends.log.operators import operators
from rtlab.backends.log.verbose import parse
from rtlab.questions.build.tactics import contests, second_best, total


def test_tables_inside_a_region_are_tactics_of_its_operators() -> None:
    """By hand: six tables of eleven rows; the region's own time stays what it was."""
    inside = [t for t in parse(REGIONS).log.tunings if t.operator]
    fp32, fp16 = "Float(64,64,8,1) -> Float(512,64,8,1)", "Half(64,1:8,8,1) -> Half(64,1:8,8,1)"
    assert [
        ("{ForeignNode[fc]}", "fc", ("fc",), [0.012, 0.014], "0xc1", "Float(128,1) -> Float(16,1)"),
        ("{ForeignNode[fc_1_2]}", "fc_1_2", ("fc_1",), [0.005], "0xc3", "Float(16,1) -> Float(10,1)"),
        (CONV, "conv", ("conv", "act"), [0.005, 0.006], "0xd1", fp32),
        (CONV, "conv", ("conv", "act"), [0.003, 0.004], "0xd3", fp16),
        (REST, "fc", ("fc", "act_1"), [0.01, 0.0125, 0.015], "0xe1", inside[4].formats),
        (REST, "fc_1_2", ("fc_1",), [0.004], "0xe4", inside[4].formats),
    ] == [
        (t.layer, t.operator, t.nodes, [r.milliseconds for r in t.timed], t.chosen, t.formats) for t in inside
    ]
    assert "Half(16,1:8,4,1) -> Float(10,1), Int64(1,1)" == inside[4].formats
    assert {("Myelin", False)} == {(t.runner, t.won) for t in inside}
    assert "invented_gemm_f16_nn_tile32x32" == inside[4].timed[1].name


def test_a_row_without_a_time_is_none() -> None:
    """Zero is one; the table without a row tells no operator."""
    rows = [
        f"    {i}, {t}, 1.0, 0.9, gemm, 0x{i}," for i, t in enumerate(("0.5", "0.0", "inf", "-1", "nan", "x"))
    ]
    (found,) = operators(
        "\n".join(["Autotuning op fc: [ONNX Layer: fc]", *rows, "Autotuning op none:", rows[2]])
    )
    assert ("fc", "", ("fc",), [("0x1", 0.0), ("0x0", 0.5)]) == (
        found.name, found.key, found.nodes, [(t.tactic, t.milliseconds) for t in found.timed],
    )  # fmt: skip


def test_an_operator_has_a_contest_beside_that_of_its_region() -> None:
    """It is found among the layers by its own name, which Myelin gives a number, else by that of the region."""
    found = contests(parse(REGIONS).log, {CONV: "region", "conv_myl0_3": "conv", REST: "rest"})
    assert [
        (CONV, "region", 2, 0.004),
        (f"conv in {CONV}", "conv", 4, 0.003),
        ("pool", "", 3, 0.002),
        (REST, "rest", 1, 0.02),
        (f"fc in {REST}", "rest", 3, 0.01),
        (f"fc_1_2 in {REST}", "rest", 1, 0.004),
    ] == [(c.layer, c.id, c.count, c.winner.tactic.milliseconds) for c in found]
    # What is inside is no time beside that of the whole; the runners-up are 2 and 0.5 µs slower.
    assert (26, 2.5) == (round(1e3 * total(found), 9), round(1e3 * second_best(found), 9))
