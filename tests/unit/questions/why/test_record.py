"""Verdicts as records: read as written, laid beside the same question asked again."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rtlab.errors import ReadError
from rtlab.questions.why import FusionTrial, Verdict
from rtlab.questions.why.joined import Joined, Parting
from rtlab.questions.why.record import StepRecord, VerdictRecord, read, replayed, step_replayed

TRIALS = (
    FusionTrial("as it is", "the two alone", 3, False, 0.1),
    FusionTrial('do not mark "y" as an output', "the whole model", 5, True, 0.2),
    FusionTrial("remove Cast", "the whole model", None, None, 0.3, "Refused."),
)
VERDICT = Verdict(
    "conv", "relu", "blocked", ("output",), ("conv",), "do not mark it", experiments=TRIALS, builds=3, seconds=0.6,
    compiler="Some compiler 1", shapes="x 1×3", rewrites=("fold bn",), asked="2026-01-31T12:30:00+00:00",
)  # fmt: skip
RECORD = VerdictRecord("net", "ab12", "fp32", "", "ruled", "1", "cpu", VERDICT)


def test_a_record_is_read_as_it_was_written() -> None:
    told = json.loads(RECORD.text())
    assert ("ruled", "1", "cpu", "ab12") == tuple(told[k] for k in ("backend", "version", "target", "digest"))
    assert ("2026-01-31T12:30:00+00:00", 3) == (told["verdict"]["asked"], len(told["verdict"]["experiments"]))
    assert RECORD == read(RECORD.text())


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", RECORD.text()[:-40], RECORD.text().replace('"blocked"', '"maybe"')]
)
def test_what_is_no_record_is_refused(text) -> None:
    with pytest.raises(ReadError, match="Cannot read a record of a verdict: "):
        read(text)


STEP = StepRecord(
    "net", "ab12", "fp32", "", "ruled", "1", "cpu",
    Joined(
        "layer3", ("conv", "relu"), None, "One.", (Parting("conv", "relu", 'mark "c" as an output', 4, False, 0.1),),
        builds=2, compiler="Some compiler 1", asked="2026-01-31T12:30:00+00:00",
    ),
)  # fmt: skip


def test_a_record_of_a_step_is_read_as_it_was_written_and_is_no_verdict() -> None:
    assert STEP == read(STEP.text())
    with pytest.raises(ReadError, match="Cannot read a record of a verdict: "):
        read(STEP.text().replace('"nodes"', '"knots"'))


def test_a_step_of_other_nodes_is_not_the_same_though_all_its_experiments_are() -> None:
    same = step_replayed(STEP, "Some compiler 1", STEP.step)
    assert (True, [True]) == (same.same, [e.same for e in same.experiments])
    wider = dataclasses.replace(STEP.step, nodes=("conv", "relu", "add"))
    other = step_replayed(STEP, "Some compiler 2", wider)
    assert (False, [True]) == (other.same, [e.same for e in other.experiments])
    gone = step_replayed(STEP, "Some compiler 2", None)
    assert (False, (), [False]) == (gone.same, gone.nodes_now, [e.reached for e in gone.experiments])


def test_a_record_of_another_schema_is_refused() -> None:
    with pytest.raises(ReadError, match="its schema is 99, and this rtlab reads 1"):
        read(RECORD.text().replace('"schema": 1', '"schema": 99'))


def test_a_replay_lays_experiments_beside_each_other_by_what_was_changed_and_where() -> None:
    same = replayed(RECORD, VERDICT)
    assert same.same
    assert [True] * 3 == [e.same for e in same.experiments]
    # The second gives another answer now, and the search does not come to the third.
    now = dataclasses.replace(
        VERDICT,
        verdict="never",
        compiler="Some compiler 2",
        experiments=(TRIALS[0], dataclasses.replace(TRIALS[1], fused=False, layers=6)),
    )
    other = replayed(RECORD, now)
    assert not other.same
    assert ("blocked", "never", "Some compiler 1", "Some compiler 2") == (
        other.before,
        other.after,
        other.compiler,
        other.compiler_now,
    )
    assert [True, False, False] == [e.same for e in other.experiments]
    assert [True, True, False] == [e.reached for e in other.experiments]
    assert (5, 6) == (other.experiments[1].layers, other.experiments[1].layers_now)


def test_another_verdict_of_the_same_experiments_is_not_the_same() -> None:
    assert not replayed(RECORD, dataclasses.replace(VERDICT, verdict="never")).same
