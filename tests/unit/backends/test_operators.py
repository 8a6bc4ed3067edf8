"""Tables of tactics inside foreign nodes, by hand and in a recorded log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rtlab.backends.log.verbose import parse
from rtlab.questions.build.tactics import contests, second_best, total

# Recordings live beside the checkout, not in it.
RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
ABSENT = pytest.mark.skipif(not RECORDED.is_dir(), reason="no ../shared/recorded beside the checkout")


FOREIGN = """\
[V] [TRT] Original: 3 layers
[V] [TRT] After Myelin optimization: 1 layers
[V] [TRT] *************** Autotuning format combination: Half(64,1) -> Half(10,1) ***************
[V] [TRT] --------------- Timing Runner: {ForeignNode[a...c]} (Myelin[0x80000023])
[V] [TRT]  (foreignNode) Set user's cuda kernel library
[V] [TRT]  (foreignNode) Autotuning op first: [ONNX Layer: a][ONNX Layer: b]
[V] [TRT]  (foreignNode) Sorted table of all evaluated tactics:
[V] [TRT]  (foreignNode) tactic_id, cost(in ms), cost/fastest_cost, kernel_name, tactic_hash
[V] [TRT]  (foreignNode)    4, 0.0040, 1.00000, 0.92, sm80_gemm_64x64, 0x4841c72cefae1,
[V] [TRT]  (foreignNode)    1, 0.0050, 1.25000, 0.88, sm80_gemm_32x32, 0x59801e241beee,
[V] [TRT]  (foreignNode) Autotuning op second: [ONNX Layer: c]
[V] [TRT]  (foreignNode)    0, 0.0020, 1.00000, 0.92, sm80_gemm_16x16, 0x1,
[V] [TRT] Tactic: 0x0000000000000000 Time: 0.0061
[V] [TRT] Fastest Tactic: 0x0000000000000000 Time: 0.0061
[V] [TRT] >>>>>>>>>>>>>>> Chose Runner Type: Myelin Tactic: 0x0000000000000000
"""


def test_tables_inside_a_region_are_tactics_of_its_operators() -> None:
    """By hand: two operators in one region, of three rows; the region's own time stays what it was."""
    log = parse(FOREIGN).log
    inside = {t.operator: t for t in log.tunings if t.operator}
    assert {"first": ("a", "b"), "second": ("c",)} == {k: t.nodes for k, t in inside.items()}
    assert {"first": 2, "second": 1} == {k: t.count for k, t in inside.items()}
    assert {("{ForeignNode[a...c]}", "Myelin", "Half(64,1) -> Half(10,1)")} == {
        (t.layer, t.runner, t.formats) for t in inside.values()
    }
    (own,) = (t for t in log.tunings if not t.operator)
    assert (True, [0.0061], [False, False]) == (
        own.won,
        [t.milliseconds for t in own.timed],
        [t.won for t in inside.values()],
    )
    names = {"{ForeignNode[a...c]}": "region", "second_myl0_3": "layer"}
    found = contests(log, names)
    assert [
        ("{ForeignNode[a...c]}", "region", 0.0061),
        ("first in {ForeignNode[a...c]}", "region", 0.004),
        ("second in {ForeignNode[a...c]}", "layer", 0.002),
    ] == [(c.layer, c.id, c.winner.tactic.milliseconds) for c in found]
    # What is inside is no time beside that of the whole.
    assert (0.0061, 0.0) == (total(found), second_best(found))


@ABSENT
def test_every_row_of_a_recorded_log_s_tables_is_counted() -> None:
    """Counted by another expression over the file: eleven tables."""
    path = RECORDED / "build-logs" / "mnist-trt10.16-h100-foreign-node.log"
    text = path.read_text(encoding="utf-8")
    rows = re.findall(r"^.*\(foreignNode\)\s+\d+, [\d.]+, [\d.]+, .*0x[0-9a-f]+,.*$", text, re.MULTILINE)
    inside = [t for t in parse(path).log.tunings if t.operator]
    assert (
        (text.count("Autotuning op "), len(rows)) == (len(inside), sum(t.count for t in inside)) == (11, 1787)
    )
    least: dict[str, float] = {}
    for table in text.split("Autotuning op ")[1:]:
        costs = [float(c) for c in re.findall(r"\(foreignNode\)\s+\d+, ([\d.]+), ", table)]
        least[table.partition(":")[0]] = min(*costs, least.get(table.partition(":")[0], 1.0))
    found: dict[str, float] = {}
    for tuning in inside:
        found[tuning.operator] = min(found.get(tuning.operator, 1.0), tuning.timed[0].milliseconds)
    assert least == found
