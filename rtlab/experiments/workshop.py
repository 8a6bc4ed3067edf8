"""``rtlab doctor --workshop``: whether a laptop has what the notebooks need, without a network."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from rtlab import samples
from rtlab.core.budget import WorkContext
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.progress import Silent
from rtlab.core.protocols import Backend, BuildRequest
from rtlab.core.variant import Variant
from rtlab.experiments.doctor import (
    ABSENT,
    Failed,
    Probe,
    Report,
    Skipped,
    attempt,
    collect_versions,
    get_version,
)

#: Bytes of memory that JupyterLab, a kernel with the largest notebook and a browser take, and of disk for notebooks
#: and what they write.
MEMORY_BYTES, DISK_BYTES = 2 << 30, 1 << 30
#: JupyterLab tries its port and this many after it (``ServerApp.port_retries``).
_PORT, _RETRIES = 8888, 50
_SUCCESS = "This machine has what the notebooks need. Run rtlab lab, and open the first one once before the workshop."


@dataclasses.dataclass(frozen=True)
class WorkshopTest:
    """Look for what the notebooks need; ``table`` has the backends, ``folder`` is where notebooks will be copied."""

    table: Mapping[str, Backend]
    folder: Path
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[None]) -> Iterator[Report]:
        """The report after each probe."""
        probes: list[Probe] = []
        actions: dict[str, Callable[[], str]] = {
            "packages": check_packages,
            "processors": count_processors,
            "memory": check_memory,
            "disk for notebooks": lambda: check_disk(self.folder),
            "disk for temporary files": lambda: check_disk(Path(tempfile.gettempdir())),
            "connections within this machine": try_loopback,
            "a port for JupyterLab": find_port,
            "a browser": find_browser,
            "the first build": lambda: build_sample(self.table),
            "network": skip_network,
        }
        for name, action in context.iterate(actions.items(), "the look at this machine"):
            context.phase(name)
            probes.append(attempt(name, action))
            yield Report(collect_versions(), tuple(probes), _SUCCESS)


def check_packages() -> str:
    """Compare the installed packages with the versions that rtlab requires."""
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in importlib.metadata.requires("rtlab") or ()]
    needed = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    missing = []
    for requirement in needed:
        version = get_version(requirement.name)
        if version == ABSENT or not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier} ({version})")
    if missing:
        raise Failed(f"these are needed: {', '.join(missing)}. Install rtlab again, with all it needs.")
    return f"all {len(needed)} are here"


def count_processors() -> str:
    """Count the processors that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return "1: what the notebooks compute takes about twice as long as on two"
    return str(count)


def check_memory() -> str:
    """Compare free memory with what the largest notebook takes."""
    import psutil

    memory = psutil.virtual_memory()
    words = f"{_gib(memory.available)} of {_gib(memory.total)} are free"
    if memory.available < MEMORY_BYTES:
        raise Failed(f"{words}, and {_gib(MEMORY_BYTES)} are needed. Close other programs, and try again.")
    return words


def check_disk(folder: Path) -> str:
    """Compare free disk with what the notebooks write, and write a file there."""
    here = next(place for place in (folder, *folder.parents) if place.is_dir())
    try:
        with tempfile.TemporaryFile(dir=here):
            free = shutil.disk_usage(here).free
    except OSError as error:
        raise Failed(
            f'"{folder.name}" cannot be written ({error.strerror}). Name another folder: rtlab lab FOLDER; TMPDIR '
            "names that of temporary files."
        ) from error
    words = f"{_gib(free)} are free"
    if free < DISK_BYTES:
        raise Failed(f"{words}, and {_gib(DISK_BYTES)} are needed. Free some, or name another folder.")
    return words


def try_loopback() -> str:
    """Send a word over a socket of this machine, as the page, the server and the kernel do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5.0)
        with socket.create_connection(server.getsockname(), timeout=5.0) as client:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(5.0)
                client.sendall(b"rtlab")
                if connection.recv(5) != b"rtlab":
                    raise Failed(
                        "what was sent did not arrive. Let programs connect to 127.0.0.1 in the firewall."
                    )
    return "127.0.0.1 answers"


def find_port() -> str:
    """Find the port that JupyterLab will take: the first that is free from its default on."""
    for port in range(_PORT, _PORT + _RETRIES + 1):
        with contextlib.suppress(OSError), socket.socket() as server:
            if os.name == "posix":
                # As JupyterLab does: a port whose last connection has just ended is free.
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            return f"{port} is free" + (f", {_PORT} is not: another server has it" if port != _PORT else "")
    raise Failed(
        f"none from {_PORT} to {_PORT + _RETRIES} is free. Stop servers that run, or name one: rtlab lab --port PORT."
    )


def find_browser() -> str:
    """Find the browser that JupyterLab would open; nothing is opened."""
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error as error:
        raise Skipped(
            "none is registered here. Run rtlab lab --no-browser, and open the address that it prints in any browser."
        ) from error
    return str(getattr(browser, "name", "") or type(browser).__name__)


def build_sample(table: Mapping[str, Backend]) -> str:
    """Build the model of the first notebook with the compiler that is here."""
    model: Model = samples.load("digits_inception", samples=1).model
    for name, backend in table.items():
        can = backend.capabilities()
        if backend.availability().ok and can.builds and not can.emulates:
            request = BuildRequest(model, Variant.of("fp32", target=can.targets[0]))
            engine = backend.build(request, Silent())  # type: ignore[attr-defined] # it builds
            return f"{pluralize(len(engine.layers), 'layer')} with {name} in {engine.seconds:.1f} s"
    raise Skipped(
        f"no compiler is here for {platform.system()} {platform.machine()}. The notebooks show builds that were "
        "recorded, and say so."
    )


def skip_network() -> str:
    """Say that no network is needed."""
    raise Skipped("not needed, and not tried: nothing is fetched after the installation")


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"
