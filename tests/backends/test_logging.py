"""Log records of rtlab, whichever process makes them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest

from rtlab import Study
from rtlab.backends.workers import process
from rtlab.backends.workers.process import RUNNING, Bounds, ChildProcess
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import RtlabError
from rtlab.testing import tiny_model

CHILD = logging.getLogger("rtlab.tests.child")


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    with contextlib.closing(ChildProcess(1 << 26)) as session:
        yield session


def log_there(child: ChildProcess, level: int, message: str) -> None:
    """Log in the child: its report is the argument that the message formats."""
    log = {logging.INFO: CHILD.info, logging.WARNING: CHILD.warning}[level]
    child.call(log, message, Bounds("Cannot log", RUNNING, Limits(), Silent()))


def test_rtlab_prints_nothing_where_nobody_listens() -> None:
    """Python prints warnings of a logger without any handler, but for this one."""
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("rtlab").handlers)


def test_a_record_of_a_child_reaches_the_loggers_of_its_parent(child, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="rtlab"):
        log_there(child, logging.INFO, "made there: %s")
    records = [r for r in caplog.records if r.name == "rtlab.tests.child"]
    assert [("INFO", child.pid)] == [(r.levelname, r.process) for r in records]
    assert records[0].getMessage().startswith("made there: <rtlab.backends.workers.process._Report")


@pytest.mark.slow
def test_a_child_follows_the_level_of_its_parent_from_call_to_call(child, caplog, monkeypatch) -> None:
    sent = []
    monkeypatch.setattr(
        process, "_handle_record", lambda record, handle=process._handle_record: sent.append(handle(record))
    )
    for level in (logging.WARNING, logging.INFO, logging.ERROR):
        with caplog.at_level(level, logger="rtlab"):
            log_there(child, logging.INFO, f"info at {level}: %s")
            log_there(child, logging.WARNING, f"warning at {level}: %s")
    said = [r.getMessage().partition(":")[0] for r in caplog.records if r.name == "rtlab.tests.child"]
    assert ["warning at 30", "info at 20", "warning at 20"] == said
    # The thousands of lines that nobody listens to are not even sent.
    assert 3 == len(sent)


@pytest.mark.slow
def test_a_compiler_says_its_messages_and_a_study_its_stages(caplog) -> None:
    study = Study(tiny_model())
    study.add("fp16", target="sm86", backend="tensorrt-rtx")
    with caplog.at_level(logging.INFO, logger="rtlab"):
        study.run(budget_s=3)
    compiler = [r.getMessage() for r in caplog.records if r.name == "rtlab.backends.workers.compiler"]
    assert any(line.startswith("Engine generation completed in ") for line in compiler)
    stages = [r.getMessage() for r in caplog.records if r.name == "rtlab.study.runner"]
    assert 4 == len(stages)
    assert {'"fp16": compiled', '"fp16": no score: the study has no task with labels'} <= {*stages}


def test_a_failure_is_a_warning(caplog, monkeypatch) -> None:
    study = Study(tiny_model())
    study.add("fp32", target="cpu")

    def fail(*_: object) -> None:
        raise RtlabError("Cannot go on: this is a test. Stop it.")

    monkeypatch.setattr("rtlab.study.runner.compile_variant", fail)
    with caplog.at_level(logging.WARNING, logger="rtlab"), pytest.raises(RtlabError, match="this is a test"):
        study.run()
    assert [("WARNING", "Cannot go on: this is a test. Stop it.")] == [
        (r.levelname, r.getMessage()) for r in caplog.records
    ]
