"""``rtlab wheelhouse``: which packages in which versions, and that they install where there is no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import wheels
from rtlab.cli import main, wheelhouse
from rtlab.errors import Unavailable


def install(folder: Path, name: str, version: str, *requires: str, origin: str = "") -> None:
    """The metadata of an installed package."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {r}" for r in requires), ""]))
    if origin:
        (info / "direct_url.json").write_text(json.dumps({"url": origin, "dir_info": {"editable": True}}))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_all_that_is_needed_is_pinned_and_nothing_else(installed: Path) -> None:
    """Cycles end, extras count where a requirement names them, and markers are those of this machine."""
    install(
        installed, "rt-top", "1.0", "RT_Middle[fast]>=2", 'rt-never; sys_platform == "nowhere"',
        'rt-unasked; extra == "tests"', origin="file:///here/rt-top",
    )  # fmt: skip
    install(
        installed, "rt-middle", "2.5", "rt-leaf", 'rt-speed; extra == "fast"', 'rt-unasked; extra == "slow"'
    )
    install(installed, "rt-leaf", "3.0.1", "rt-middle")
    install(installed, "rt-speed", "0.1")
    install(installed, "rt-unasked", "9")
    assert [
        "rt-leaf==3.0.1",
        "rt-middle==2.5",
        "rt-speed==0.1",
        "file:///here/rt-top",
    ] == wheelhouse.list_pinned("rt-top", "Cannot fill")


def test_an_extra_that_comes_later_counts_too(installed: Path) -> None:
    install(installed, "rt-top", "1.0", "rt-leaf", "rt-other")
    install(installed, "rt-other", "1.0", "rt-leaf[more]")
    install(installed, "rt-leaf", "1.0", 'rt-more; extra == "more"')
    install(installed, "rt-more", "4.0")
    assert "rt-more==4.0" in wheelhouse.list_pinned("rt-top", "Cannot fill")


def test_a_package_that_lacks_is_named(installed: Path) -> None:
    install(installed, "rt-top", "1.0", "rt-nowhere>=3")
    with pytest.raises(Unavailable, match='Cannot fill "w": package "rt-nowhere" is not installed here'):
        wheelhouse.list_pinned("rt-top", 'Cannot fill "w"')


@pytest.mark.slow
def test_the_command_that_is_printed_installs_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels.wheel(tmp_path / "index", "rt_leaf", "1.5", "rt_leaf", "VALUE = 7\n")
    wheels.wheel(tmp_path / "index", "rtlab", "0.0.1", "rtlab", "from rt_leaf import VALUE\n", "rt-leaf>=1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setattr(wheelhouse, "list_pinned", lambda *_: ["rt-leaf==1.5", "rtlab==0.0.1"])
    folder = tmp_path / "a house"
    assert 0 == main(["wheelhouse", str(folder), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert ["rt_leaf-1.5-py3-none-any.whl", "rtlab-0.0.1-py3-none-any.whl"] == answer["wheels"]
    assert sum(path.stat().st_size for path in folder.iterdir()) == answer["bytes"]

    monkeypatch.delenv("PIP_FIND_LINKS")
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = answer["command"].replace(f"{python} -m", f'"{sys.executable}" -m')
    subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, env=_without_pythonpath()
    )
    found = [tmp_path / ".venv/bin/python", "-I", "-c", "import rtlab; print(rtlab.VALUE)"]
    assert b"7\n" == subprocess.run(found, check=True, capture_output=True).stdout


def _without_pythonpath() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}


@pytest.mark.slow
def test_what_pip_refuses_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(wheelhouse, "list_pinned", lambda *_: ["rt-nowhere==1.5"])
    assert 1 == main(["wheelhouse", str(tmp_path / "house")])
    error = capsys.readouterr().err
    assert (
        f'Cannot fill "{tmp_path / "house"}": pip says: No matching distribution found for rt-nowhere==1.5.'
        in error
    )
    assert "Try again where the network is." in error
