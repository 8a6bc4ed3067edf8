"""Nothing leaves the machine: what the system sees of a whole study, of the Explorer, and of the command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rtlab

STUDY = """
import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
for precision in ("fp32", "int8"):
    study.add(precision)
study.run(budget_s=2)
assert all(result.timing and result.engine.layers for result in study.results.values())
study.to_html("report.html")
"""
EXPLORER = """
import urllib.request
import rtlab
explorer = rtlab.explore(rtlab.samples.load("digits_inception").model)
explorer.run(precision="fp16").wait(300)
assert explorer.study.results
# The page that Netron is asked for on this machine.
assert b"Netron" in urllib.request.urlopen(explorer.open_in_netron()).read()
"""
COMMANDS = """
import rtlab.cli
assert 0 == rtlab.cli.main(["inspect", "digits_inception", "--precision", "int8", "--budget", "2", "--json"])
assert 0 == rtlab.cli.main(["report", "digits_inception", "-o", "report.html", "--no-run"])
"""
#: Where names are looked up.
NAMES = re.compile(r'"(/etc/resolv\.conf|/etc/hosts|/run/systemd/resolve/[^"]*|/var/run/nscd/[^"]*)"')
#: Whoever is spoken to over a network; a process's own pairs and this machine are not one.
OTHERS = re.compile(r"(?:connect|sendto|sendmsg|sendmmsg)\(.*(?:sin_addr|inet_pton).*")
HERE = re.compile(r'inet_addr\("127\.|inet_pton\(AF_INET6, "::1"')


def traced(script: str, folder: Path, **environment: str) -> str:
    """What a script and its children ask of the system's network and of files."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log = folder / "trace.txt"
    told = [strace, "-f", "-s", "256", "-e", "trace=network,openat,open", "-o", str(log)]
    if subprocess.run([*told, "true"], check=False, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    clean = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    paths = os.pathsep.join(filter(None, [str(Path(rtlab.__file__).parents[1]), clean.get("PYTHONPATH", "")]))
    ran = subprocess.run(
        [*told, sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=folder,
        env={**clean, "PYTHONPATH": paths, "TMPDIR": str(folder), **environment}, timeout=600,
    )  # fmt: skip
    assert 0 == ran.returncode, ran.stderr
    return log.read_text(errors="replace")


@pytest.mark.parametrize("script", [STUDY, EXPLORER, COMMANDS], ids=["study", "explorer", "command line"])
def test_no_name_is_looked_up_and_nobody_is_connected_to(script: str, tmp_path: Path) -> None:
    trace = traced(script, tmp_path)
    assert "openat(" in trace
    assert [] == [line for line in trace.splitlines() if NAMES.search(line)]
    assert [] == [line for line in trace.splitlines() if OTHERS.search(line) and not HERE.search(line)]
    assert [] == list(tmp_path.rglob("*.ses"))


def test_the_trace_sees_who_looks_up_a_name(tmp_path: Path) -> None:
    """The check above checks something: the same trace of a script that does leave the machine."""
    asking = "import socket\ntry: socket.getaddrinfo('example.invalid', 80)\nexcept OSError: pass"
    assert NAMES.search(traced(asking, tmp_path))
    telling = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    trace = traced(telling, tmp_path)
    assert [line for line in trace.splitlines() if OTHERS.search(line) and not HERE.search(line)]


def test_who_wants_to_report_keeps_that_choice() -> None:
    """What a user has set stays, whatever it is."""
    script = "import os, rtlab; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for given, kept in (({"ORT_DISABLE_TELEMETRY": "0"}, "0"), ({}, "1")):
        clean = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
        ran = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=clean | given
        )
        assert kept == ran.stdout.strip()
