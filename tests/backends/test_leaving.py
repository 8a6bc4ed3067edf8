"""Nothing leaves the machine: what the system sees of a whole study, of the Explorer, and of the command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import rtlab

pytestmark = pytest.mark.slow

STUDY = """
import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
for precision in ("fp32", "int8"):
    study.add(precision)
study.run(budget_s=2)
assert all(result.timing and result.engine.layers for result in study.values())
study.report("report.html")
"""
EXPLORER = """
import urllib.request
import rtlab
explorer = rtlab.explore(rtlab.samples.load("digits_inception").model)
explorer.choice = {**explorer.choice, "precision": "fp16"}
explorer.run().wait(300)
assert explorer.study
# The page that Netron is asked for on this machine.
assert b"Netron" in urllib.request.urlopen(explorer.open_in_netron()).read()
"""
COMMANDS = """
import rtlab.cli
assert 0 == rtlab.cli.main(["inspect", "digits_inception", "--precision", "int8", "--budget", "8", "--json"])
assert 0 == rtlab.cli.main(["report", "digits_inception", "-o", "report.html", "--no-run"])
"""
#: Of the server that a test starts.
TOKEN = secrets.token_hex(8)
#: Where names are looked up.
NAMES = re.compile(r'"(/etc/resolv\.conf|/etc/hosts|/run/systemd/resolve/[^"]*)"|\\0hosts\\0"|htons\(53\)')
#: Whoever is spoken to over a network; a process's own pairs and this machine are not one.
OTHERS = re.compile(r"(?:connect|sendto|sendmsg|sendmmsg)\(.*(?:sin_addr|inet_pton).*")
HERE = re.compile(r'inet_addr\("127\.|inet_pton\(AF_INET6, "::1"')


def tracing(log: Path) -> list[str]:
    """What begins a command of which the system's network, files and programs are to be seen."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    seen = ["-f", "-s", "256", "-e", "trace=network,openat,open,execve", "-o", str(log)]
    # With the kernel's filter, which strace 5.3 brought, a process stops at these calls alone and not at every one.
    for told in ([strace, "--seccomp-bpf", *seen], [strace, *seen]):
        if not subprocess.run([*told, "true"], check=False, capture_output=True).returncode:
            return told
    pytest.skip("strace may not trace here")


def traced(script: str, folder: Path, **environment: str) -> str:
    """What a script and its children ask of the system's network and of files."""
    log = folder / "trace.txt"
    told = tracing(log)
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


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[psutil.Process, str, Path]]:
    """``rtlab lab`` of a user without settings, traced: its process, its address and the trace."""
    pytest.importorskip("jupyterlab")
    home, log, port = tmp_path / "home", tmp_path / "trace.txt", free_port()
    home.mkdir()
    told = tracing(log)
    mine = {k: v for k, v in os.environ.items() if not k.upper().startswith(("JUPYTER", "NPM_CONFIG", "CI"))}
    # Not even npm has settings, which may forbid what is to be seen.
    nothing = {f"NPM_CONFIG_{kind}CONFIG": str(home / f"npmrc-{kind}") for kind in ("USER", "GLOBAL")}
    paths = os.pathsep.join(filter(None, [str(Path(rtlab.__file__).parents[1]), mine.get("PYTHONPATH", "")]))
    with (tmp_path / "lab.log").open("wb") as spoken:
        strace = subprocess.Popen(
            [*told, sys.executable, "-m", "rtlab", "lab", "--no-browser", "--port", str(port), "notebooks"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=spoken, stderr=subprocess.STDOUT,
            env={**mine, **nothing, "HOME": str(home), "PYTHONPATH": paths, "JUPYTER_TOKEN": TOKEN},
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 120
        while not answers(f"{url}/api/status"):
            assert strace.poll() is None, (tmp_path / "lab.log").read_text()
            assert time.monotonic() < until, (tmp_path / "lab.log").read_text()
            time.sleep(0.2)
        yield psutil.Process(strace.pid).children()[0], url, log
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(strace.pid).children(recursive=True):
                child.kill()
        strace.kill()
        strace.wait()


def test_jupyterlab_as_rtlab_starts_it_asks_nobody(lab: tuple[psutil.Process, str, Path]) -> None:
    server, url, log = lab
    page = asked(f"{url}/lab/tree/01_first_look.ipynb").decode()
    told = json.loads(
        page.partition('<script id="jupyter-config-data"')[2].split(">", 1)[1].split("</script>")[0]
    )
    assert {"can_install": False, "name": "read-only"}.items() <= told["extensionManager"].items()
    assert "@jupyterlab/apputils-extension:announcements" in told["disabledExtensions"]
    for path in ("/lab/api/extensions", "/lsp/status", "/api/contents"):
        asked(f"{url}{path}")
    assert json.loads(asked(f"{url}/api/kernels", b"{}"))["id"]
    server.send_signal(signal.SIGTERM)
    psutil.wait_procs([server], timeout=60)

    lines = log.read_text(errors="replace").splitlines()
    assert [line for line in lines if '"ipykernel_launcher"' in line]
    assert [line for line in lines if "sin_addr" in line]
    # Node.js reads at its start whom it would ask.
    node = {line.split()[0] for line in lines if re.search(r'execve\("[^"]*/node"', line)}
    named = [line for line in lines if NAMES.search(line)]
    assert [] == [n for n in named if n.split()[0] not in node or '"/etc/resolv.conf"' not in n]
    assert [] == [line for line in lines if OTHERS.search(line) and not HERE.search(line)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def asked(url: str, data: bytes | None = None) -> bytes:
    """What our own server answers."""
    with urllib.request.urlopen(f"{url}?token={TOKEN}", data, timeout=60) as answer:  # noqa: S310
        return bytes(answer.read())


def answers(url: str) -> bool:
    try:
        return bool(asked(url))
    except OSError:
        return False


def test_the_trace_sees_who_looks_up_a_name(tmp_path: Path) -> None:
    """The check above checks something: the same trace of a script that does leave the machine."""
    asking = "import socket\ntry: socket.getaddrinfo('example.invalid', 80)\nexcept OSError: pass"
    assert NAMES.search(traced(asking, tmp_path))
    telling = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    trace = traced(telling, tmp_path)
    assert [line for line in trace.splitlines() if OTHERS.search(line) and not HERE.search(line)]
