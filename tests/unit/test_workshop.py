"""``rtlab doctor --workshop``: what a laptop lacks, each lack planted here."""

from __future__ import annotations

import json
import shutil
import socket
import webbrowser
from collections import namedtuple
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from rtlab.cli import main
from rtlab.core.budget import WorkContext
from rtlab.core.progress import Silent
from rtlab.experiments import workshop
from rtlab.experiments.doctor import Failed, Report, Skipped
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.workshop import WorkshopTest
from rtlab.testing import ReferenceBackend

GIB = 1 << 30


def test_all_is_looked_at_and_nothing_fails_but_what_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop, "check_packages", lambda: "all are here")
    report: Report = run_experiment(
        WorkshopTest({"reference": ReferenceBackend()}, tmp_path / "not" / "there"),
        WorkContext(None, Silent()),
    )
    assert [
        "packages", "processors", "memory", "disk for notebooks", "disk for temporary files",
        "connections within this machine", "a port for JupyterLab", "a browser", "the first build", "network",
    ] == [c.name for c in report.checks]  # fmt: skip
    build = next(c for c in report.checks if c.name == "the first build")
    # ONNX's evaluator has a layer for each node of the sample.
    assert ("ok", True) == (build.status, build.seen.startswith("43 layers with reference in "))
    assert "not needed" in report.checks[-1].seen
    assert "Run rtlab lab" in dataclass_free(report).verdict
    assert {"versions", "checks", "verdict"} == set(report.as_dict())


def dataclass_free(report: Report) -> Report:
    """The report without failures of this very machine, whose memory or disk may be short."""
    return Report(report.versions, tuple(c for c in report.checks if c.status != "failed"), report.success)


def test_packages_that_are_missing_or_old_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    required = [
        "numpy>=1.26",
        "no-such-package>=2",
        "onnx>=999",
        'never-this>=1; sys_platform == "nowhere"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: [*required, 'nor-this>=1; extra == "dask"'])
    with pytest.raises(Failed) as error:
        workshop.check_packages()
    assert str(error.value) == (
        f"these are needed: no-such-package>=2 (not installed), onnx>=999 ({metadata.version('onnx')}). Install rtlab "
        "again, with all it needs."
    )
    monkeypatch.setattr(metadata, "requires", lambda _: required[:1])
    assert "all 1 are here" == workshop.check_packages()


def test_memory_and_disk_have_a_least_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = namedtuple("memory", "total available")  # noqa: PYI024 - as psutil has it
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil has it
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(8 * GIB, 3 * GIB))
    assert "3.0 GiB of 8.0 GiB are free" == workshop.check_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(8 * GIB, GIB))
    with pytest.raises(
        Failed, match=r"^1.0 GiB of 8.0 GiB are free, and 2.0 GiB are needed. Close other programs"
    ):
        workshop.check_memory()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(GIB, 0, GIB))
    assert "1.0 GiB are free" == workshop.check_disk(tmp_path / "new" / "folder")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(GIB, GIB, GIB - 1))
    with pytest.raises(Failed, match=r"are needed\. Free some, or name another folder"):
        workshop.check_disk(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(workshop.tempfile, "TemporaryFile", refuse)
    with pytest.raises(
        Failed, match=r'"notebooks" cannot be written \(Permission denied\)\. Name another folder'
    ):
        workshop.check_disk(tmp_path / "notebooks")


def test_the_first_free_port_is_found_as_jupyter_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(workshop, "_PORT", taken)
        monkeypatch.setattr(workshop, "_RETRIES", 0)
        with pytest.raises(Failed, match=f"none from {taken} to {taken} is free. Stop servers that run"):
            workshop.find_port()
        monkeypatch.setattr(workshop, "_RETRIES", 50)
        assert workshop.find_port().endswith(f"is free, {taken} is not: another server has it")
    monkeypatch.setattr(workshop, "_RETRIES", 0)
    assert f"{taken} is free" == workshop.find_port()


def test_connections_that_a_firewall_refuses_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1 answers" == workshop.try_loopback()

    def refuse(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(TimeoutError):
        workshop.try_loopback()


def test_without_a_browser_or_a_compiler_the_way_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", refuse)
    with pytest.raises(Skipped, match="Run rtlab lab --no-browser"):
        workshop.find_browser()
    with pytest.raises(Skipped, match="The notebooks show builds that were recorded"):
        workshop.build_sample({})


@pytest.mark.slow
def test_the_command_ends_with_one_where_a_check_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop, "MEMORY_BYTES", 1 << 60)
    assert 1 == main(["doctor", "--workshop", "--json"])
    checks = {c["name"]: c["status"] for c in json.loads(capsys.readouterr().out)["checks"]}
    assert ("failed", "ok") == (checks["memory"], checks["the first build"])
