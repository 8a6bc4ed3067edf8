"""The forms of a recurrence, timed beside each other."""

from __future__ import annotations

from types import SimpleNamespace

from recurrent import Session, recurrent_model
from rtlab.experiments.experiment import SearchContext, run_experiment
from rtlab.experiments.forms import RecurrentForms
from rtlab.formulations.recurrent import FORMS, read_recurrent
from stopping import Stopping


def timed(layer, ready, *, progress=None, **choices):
    """What is found on a bench that makes models ready as the test says."""
    bench = SimpleNamespace(threads=1, open=lambda model, batch, threads: ready(model, batch))
    return run_experiment(RecurrentForms(layer, **choices), SearchContext(bench, progress))


def test_forms_are_timed_in_turn_and_compared_with_the_node():
    layer = read_recurrent(recurrent_model("LSTM", 4, batch=2), "/rnn0")
    found = timed(layer, Session, seconds=0.0)
    assert list(FORMS) == [t.name for t in found]
    assert [t.nodes for t in found] == [t.median for t in found]
    assert {3} == {t.runs for t in found}
    assert max(t.error for t in found) < 1e-5
    assert found[-1].error == 0


def test_cancelling_keeps_the_rounds_that_were_timed():
    layer = read_recurrent(recurrent_model("LSTM", 4), "/rnn0")
    found = timed(layer, Session, progress=Stopping(len(FORMS) + 2))
    assert {2} == {t.runs for t in found}


def test_a_form_that_computes_something_else_shows_its_error():
    layer = read_recurrent(recurrent_model("LSTM", 4), "/rnn0")

    class Other(Session):
        def __init__(self, model: bytes, batch) -> None:
            if b"operator" not in model:
                batch = {**batch, "h": batch["h"] + 1}
            super().__init__(model, batch)

    errors = {t.name: t.error for t in timed(layer, Other, seconds=0.0)}
    assert min(errors[n] for n in ("naive", "merged", "hoisted")) > 0.01
