"""Verdicts as records, read as written."""

from __future__ import annotations

import json

import pytest

from rtlab.analyses.why import FusedLayer, FusionTrial, SplitTrial, StepRecord, Verdict, VerdictRecord, read
from rtlab.errors import ReadError

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
    FusedLayer(
        "layer3", ("conv", "relu"), None, "One.", (SplitTrial("conv", "relu", 'mark "c" as an output', 4, False, 0.1),),
        builds=2, compiler="Some compiler 1", asked="2026-01-31T12:30:00+00:00",
    ),
)  # fmt: skip


def test_a_record_of_a_step_is_read_as_it_was_written_and_is_no_verdict() -> None:
    assert STEP == read(STEP.text())
    with pytest.raises(ReadError, match="Cannot read a record of a verdict: "):
        read(STEP.text().replace('"nodes"', '"knots"'))


def test_a_record_of_another_schema_is_refused() -> None:
    with pytest.raises(ReadError, match="99"):
        read(RECORD.text().replace('"schema": 2', '"schema": 99'))
