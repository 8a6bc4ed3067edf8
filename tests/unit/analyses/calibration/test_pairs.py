"""What became of each pair: verdicts from a mapping, without a compiler."""

from __future__ import annotations

import pytest

from qdq import FAULTS, Net, two_convolutions
from rtlab.analyses.calibration.pairs import PairUse, trace_pairs
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.variant import Target
from rtlab.relation.mapping import Mapping, Missing, Pair
from rtlab.relation.relate import relate
from rtlab.relation.roles import SERVING


def uses(model: Model, *steps: tuple[str, ...]) -> dict[str, PairUse]:
    """The verdicts, by the first node of a pair, of an engine whose layers declare these nodes."""
    layers = tuple(Layer(f"L{i}", f"step{i}", "kgen", i, origins=nodes) for i, nodes in enumerate(steps))
    engine = Engine("test", "1", Target("sm86"), layers)
    return {p.q or p.dq: p for p in trace_pairs(model, relate(model, model, engine), engine)}


def test_each_verdict_has_its_case() -> None:
    model = FAULTS["pair before Relu"][0]()
    first = ("p0_q",), ("c0", "p0_dq", "c0_wdq"), ("wrong_q", "wrong_dq", "r0", "p1_q")
    found = uses(model, *first, ("c1_wdq",), ("c1", "p1_dq"))
    assert {
        "p0_q": ("own layer", ("L0", "L1")),
        "c0_wdq": ("absorbed", ("L1",)),
        "wrong_q": ("round trip", ("L2",)),
        "p1_q": ("absorbed", ("L2", "L4")),
        "c1_wdq": ("own layer", ("L3",)),
    } == {k: (p.verdict, p.layers) for k, p in found.items()}
    assert (True, False) == (found["c0_wdq"].weight, found["p1_q"].weight)
    assert ("x", "r0_out", "c0_w") == tuple(found[k].value for k in ("p0_q", "p1_q", "c0_wdq"))


def test_a_weight_that_was_quantized_at_build_time_is_folded() -> None:
    """PyTorch leaves FP32 weights ahead of their pairs; a compiler stores the integers and names no step."""
    n = Net()
    w = n.pair(n.weight("c0", (16, 16, 3, 3), quantized=False), "w", scale=1e-3)
    model = n.model(n.op("Conv", [n.pair("x", "p0"), w], "c0", pads=[1] * 4))
    found = uses(model, ("p0_q",), ("c0", "p0_dq"))
    assert ("folded", True, ()) == (found["w_q"].verdict, found["w_q"].weight, found["w_q"].layers)


def test_an_equal_pair_of_which_the_compiler_is_silent_went_where_its_twin_went() -> None:
    model = FAULTS["pair per reader"][0]()
    found = uses(model, ("p1_q",), ("a", "p1_dq", "a_wdq"), ("b", "p1_dq", "b_wdq"))
    assert (found["p1_q"].verdict, found["p1_q"].layers) == (found["p0_q"].verdict, found["p0_q"].layers)
    assert "equal pair" in found["p0_q"].note


def test_what_the_compiler_declares_outranks_what_is_inferred() -> None:
    model = two_convolutions()
    engine = Engine("t", "1", Target("sm86"), tuple(Layer(f"L{i}", f"s{i}", "kgen", i) for i in range(3)))
    real = [Pair(n, y, "declared") for n, y in (("p1_q", "L0"), ("r0", "L0"), ("p1_dq", "L1"), ("c1", "L1"))]
    guessed = [Pair(n, "L2", "inferred") for n in ("p1_q", "p1_dq")]
    missing = tuple(Missing(n, "unknown", "Nobody knows.") for n in ("p0_q", "p0_dq"))
    mapping = Mapping((*real, *guessed), missing)
    found = {p.q or p.dq: p for p in trace_pairs(model, mapping, engine)}
    assert ("absorbed", ("L0", "L1")) == (found["p1_q"].verdict, found["p1_q"].layers)
    assert ("unknown", "Nobody knows.") == (found["p0_q"].verdict, found["p0_q"].note)
    assert "unknown" == found["c0_wdq"].verdict


@pytest.mark.parametrize("fault", FAULTS)
def test_every_dequantization_gets_exactly_one_verdict(fault: str) -> None:
    model = FAULTS[fault][0]()
    engine = Engine("test", "1", Target("sm86"), ())
    found = trace_pairs(model, relate(model, model, engine), engine)
    assert [n.id for n in model.top if n.op == "DequantizeLinear"] == [p.dq for p in found]
    assert {p.verdict for p in found} <= {"folded", "unknown"}
    assert all(p.note for p in found)


def test_a_label_of_a_pair_that_only_serves_counts_where_no_declared_step_runs_the_pair() -> None:
    model = two_convolutions()
    engine = Engine("t", "1", Target("sm86"), tuple(Layer(f"L{i}", f"s{i}", "kgen", i) for i in range(3)))
    serving = Pair("p0_q", "L0", "declared", role=min(SERVING))
    for other, layer in ((Pair("p0_q", "L2", "inferred"), "L0"), (Pair("p0_q", "L1", "declared"), "L1")):
        found = {p.q or p.dq: p for p in trace_pairs(model, Mapping((serving, other), ()), engine)}
        assert (layer,) == found["p0_q"].layers
