"""The summary of an engine: sums that agree, the ratio, coverage, and no times that belong to another engine."""

from __future__ import annotations

import dataclasses

import pytest

import engines
from rtlab import Study
from rtlab.analyses.engine import summarize_engine
from rtlab.core.engine import Engine, Layer
from rtlab.core.variant import Target
from rtlab.testing import tiny_model


@engines.each
def test_what_is_shown_adds_up_to_the_engine(folder) -> None:
    model = tiny_model()
    result = Study(model).read("elsewhere", **engines.files(folder))
    found = summarize_engine(result.facts, model)
    count = len(result.engine.layers)
    for slices in (found.kinds, found.precisions, found.transitions):
        assert count == len({i for s in slices for i in s.layers}) == sum(len(s.layers) for s in slices)
    if result.timing is None or not result.timing.layers:
        assert (None, None, {None}) == (found.summed, found.ratio, {s.milliseconds for s in found.kinds})
        return
    assert pytest.approx(found.summed) == sum(s.milliseconds or 0.0 for s in found.kinds)
    assert found.ratio == (found.total and pytest.approx(found.summed / found.total))


def test_signals_and_waits_are_no_layers_to_be_explained() -> None:
    layers = (Layer("a", "a", "conv", 0), Layer("s", "s", "signal", 1), Layer("w", "w", "wait", 2, stream=1))
    engine = Engine("x", "1", Target("sm86"), layers, (), ())
    study = Study(tiny_model())
    study.add("fp32", backend="onnxruntime")
    facts = study.run(compare=False)["fp32"].facts
    assert 1 == summarize_engine(dataclasses.replace(facts, engine=engine)).coverage.all_layers


def test_times_of_another_engine_are_left_out() -> None:
    result = Study(tiny_model()).read("elsewhere", **engines.files(engines.RESIDUAL))
    assert summarize_engine(result.facts).ratio is not None
    other = dataclasses.replace(result.facts, measured=dataclasses.replace(result.engine))
    found = summarize_engine(other)
    assert ("", "", None) == (found.processor, found.source, found.total)
    assert (None, None) == (found.summed, found.ratio)
    assert {None} == {s.milliseconds for s in (*found.kinds, *found.transitions, *found.reformats)}
