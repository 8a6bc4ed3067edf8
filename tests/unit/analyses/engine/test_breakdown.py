"""Where time goes: every layer in one slice, sums that agree with the whole, and pandas as the second opinion."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

import engines
from rtlab.analyses.engine import by_kind, by_precision, find_transitions
from rtlab.analyses.timing.times import LayerTime, Timing
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target


def table(engine: Engine, times: Timing | None) -> pd.DataFrame:
    known = {t.layer: t.median for t in times.layers} if times else {}
    return pd.DataFrame([
        {
            "id": y.id, "kind": y.kind, "precision": y.precision, "reads": y.reads, "writes": y.writes,
            "time": known.get(y.id),
        }
        for y in engine.layers
    ])  # fmt: skip


@engines.each
@pytest.mark.parametrize(("column", "function"), [("kind", by_kind), ("precision", by_precision)])
def test_slices_are_what_pandas_groups(folder, column, function) -> None:
    engine, times = engines.read(folder)
    if column == "kind":
        # A file that tells names alone has no kinds; what the names tell is looked at in test_named.py.
        named = (dataclasses.replace(y, kind=y.kind or "untold") for y in engine.layers)
        engine = dataclasses.replace(engine, layers=tuple(named))
    slices = function(engine, times)
    oracle = table(engine, times).groupby(column)["time"].agg(["size", lambda c: c.sum(min_count=1)])
    assert dict(oracle["size"]) == {s.name: len(s.layers) for s in slices}
    for found in slices:
        expected = oracle.iloc[:, 1][found.name]
        assert (None if pd.isna(expected) else pytest.approx(expected)) == found.milliseconds
    assert sorted(y.id for y in engine.layers) == sorted(i for s in slices for i in s.layers)
    if times is not None:
        assert pytest.approx(times.summed) == sum(s.milliseconds or 0.0 for s in slices)
        assert pytest.approx(1.0) == sum(s.share or 0.0 for s in slices)
        told = [s.milliseconds for s in slices if s.milliseconds is not None]
        assert sorted(told, reverse=True) == told


@engines.each
def test_transitions_are_what_pandas_groups(folder) -> None:
    engine, times = engines.read(folder)
    found = find_transitions(engine, times)
    oracle = table(engine, times).groupby(["reads", "writes"]).size()
    assert dict(oracle) == {(t.before, t.after): len(t.layers) for t in found}
    if times is not None:
        assert pytest.approx(times.summed) == sum(t.milliseconds or 0.0 for t in found)


def test_what_a_residual_network_widens_is_counted_by_hand() -> None:
    """The stem, two sums and the projection leave INT8; what the matrix is for."""
    found = find_transitions(*engines.read(engines.RESIDUAL))
    told = {(t.before, t.after): (len(t.layers), t.milliseconds) for t in found}
    expected = {
        ("int8", "int8"): (5, 60), ("int8", "fp16"): (3, 40), ("int8", "fp32"): (1, 40), ("fp32", "fp32"): (1, 18),
        ("fp16", "fp16"): (3, 17), ("fp32", "int8"): (2, 14), ("fp16", "fp32"): (1, 5), ("fp16", "int8"): (1, 4),
        ("", ""): (1, 2),
    }  # fmt: skip
    assert {k: (n, pytest.approx(us / 1e3)) for k, (n, us) in expected.items()} == told


def planted() -> Engine:
    def layer(i: int, kind: str, reads: str, writes: str) -> Layer:
        return Layer(f"{i}", f"{i}", kind, i, (Tensor("a", reads),), (Tensor("b", writes),))

    told = (("Conv", "bf16", "bf16"), ("Conv", "bf16", "fp32"), ("Pool", "fp32", "fp32"))
    layers = tuple(layer(i, *t) for i, t in enumerate(told))
    return Engine("trtexec", "", Target("unknown"), layers, maker=TENSORRT)


def test_bf16_is_shown_as_bf16() -> None:
    """A fault of trex, which showed it as FP32."""
    assert {"bf16": 2, "fp32": 1} == {s.name: len(s.layers) for s in by_precision(planted())}
    (found,) = (t for t in find_transitions(planted()) if t.before != t.after)
    assert ("bf16", "fp32", ("1",)) == (found.before, found.after, found.layers)


def test_without_times_the_largest_slice_comes_first_and_nothing_is_claimed() -> None:
    found = by_kind(planted())
    assert [("Conv", None, None), ("Pool", None, None)] == [(s.name, s.milliseconds, s.share) for s in found]


def test_a_slice_without_a_timed_layer_has_no_time() -> None:
    times = Timing("t", "", None, 1, None, 2.0, (LayerTime("0", 2.0, None, 1.0),))
    found = {s.name: (s.milliseconds, s.share) for s in by_kind(planted(), times)}
    assert {"Conv": (2.0, 1.0), "Pool": (None, None)} == found
