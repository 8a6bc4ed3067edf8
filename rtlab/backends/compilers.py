"""Several releases of TensorRT-RTX side by side: ``rtlab.compilers``.

The environment has one of its own. Others lie in folders of the user's cache (``RTLAB_COMPILERS`` names another place),
each installed whole or not at all, and are put on the path of the child processes that build with them; this process
imports none of them. A release is a backend of its own, ``tensorrt-rtx:1.5.0.114``, which ``compiler="1.5"`` finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rtlab.core.phrases import quoted
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, RtlabError, Unavailable, VariantError

__all__ = ["Compiler", "add", "folder", "known", "named", "remove"]

#: The backend whose releases these are, and its module in the environment and in a folder.
BACKEND, _OWN, BINDING = "tensorrt-rtx", "tensorrt_rtx", "tensorrt_rtx_bindings"
#: The parts that are needed, the smallest first; ``tensorrt-rtx`` and ``-cu13`` are but other names of the binding.
_PARTS = ("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs")
_VERSION = re.compile(r"\d+(\.\d+){1,3}")
#: Bytes that an installation takes at its height: what is downloaded, and what it is unpacked to.
_NEEDED = 400_000_000
_SECONDS = 1800.0
_ROOM = ".adding-"
_OFFLINE = re.compile(
    r"name resolution|getaddrinfo|unreachable|NewConnectionError|Connection refused|ConnectTimeout|timed out|ProxyError"
    r"|No route to host|Max retries",
)
_LISTED = re.compile(r"\(from versions: ([^)]*)\)")


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A release of a compiler.

    Attributes:
        version: Its version in full.
        backend: What ``Study.add(backend=...)`` takes.
        path: The folder that goes on a child's path; None for the environment's own, and for a recorded one.
        recorded: Whether it is not here, and only builds are that somebody recorded with it.
    """

    version: str
    backend: str
    path: Path | None = None
    recorded: bool = False

    @property
    def own(self) -> bool:
        """Whether it is the environment's own."""
        return self.path is None and not self.recorded

    @property
    def words(self) -> str:
        """What it is here: the environment's own, added, or recorded builds only."""
        return "recorded builds only" if self.recorded else "the environment's own" if self.own else "added"

    @property
    def title(self) -> str:
        """The release in short: 1.5, or its version in full where another one here begins so."""
        short = ".".join(self.version.split(".")[:2])
        return (
            short if sum(_numbers(c.version)[:2] == _numbers(short) for c in known()) == 1 else self.version
        )

    @property
    def where(self) -> str:
        """The folder that it lies in."""
        if self.path is not None:
            return str(self.path)
        if self.recorded:
            return ""
        spec = importlib.util.find_spec(_OWN)
        return str(Path(spec.origin).parents[1]) if spec is not None and spec.origin else ""

    @property
    def nbytes(self) -> int:
        """Bytes of disk that it takes."""
        from rtlab.backends.live.installing import size

        if self.path is not None:
            return size(self.path)
        if self.recorded:
            return 0
        return sum(size(Path(self.where) / part) for part in (_OWN, BINDING, f"{_OWN}_libs"))

    def tried(self, progress: Progress | None = None) -> Started:
        """What a child finds that imports it and asks for a builder."""
        from rtlab.backends.live import child, compiler

        doing = f'Cannot use compiler "{self.version}"'
        if self.recorded:
            return Started(
                f"{doing}: it is not installed. Builds of the samples that were recorded with it are shown."
            )
        path = () if self.path is None else (str(self.path),)
        try:
            found, routes = child.call(
                compiler.started,
                _OWN if self.own else BINDING,
                limits=Limits(seconds=60.0),
                progress=progress or Silent(),
                doing=doing,
                path=path,
            )
        except BackendError as error:
            return Started(str(error))
        if found != self.version:
            return Started(f"{doing}: the binding says that it is {found}. Add it again.")
        return Started(routes=routes)


@dataclasses.dataclass(frozen=True)
class Started:
    """How a release did when it was tried.

    Attributes:
        refusal: Why it does not work here; empty where it does.
        routes: The build routes that it offers, as ``options={"build_route": ...}`` takes them; None where its builder
            knows of none.
    """

    refusal: str = ""
    routes: tuple[str, ...] | None = None


def folder() -> Path:
    """Where added compilers lie: one folder for each version of Python, because a binding fits only one."""
    import platformdirs

    told = os.environ.get("RTLAB_COMPILERS")
    place = Path(told) if told else platformdirs.user_cache_path("rtlab", appauthor=False) / "compilers"
    return place / (sys.implementation.cache_tag or "python")


def known() -> tuple[Compiler, ...]:
    """The compilers that are here, the oldest release first; the environment's own among them.

    Where that is not installed, those are too whose recorded builds rtlab brings along.
    """
    own = importlib.util.find_spec(_OWN) is not None
    here = [_own()] if own else []
    with contextlib.suppress(OSError):
        here += [_added(p) for p in folder().iterdir() if _VERSION.fullmatch(p.name) and p.is_dir()]
    here += [] if own else _recorded()
    versions = dict[str, Compiler]()
    for one in here:
        versions.setdefault(one.version, one)
    return tuple(sorted(versions.values(), key=lambda c: _numbers(c.version)))


def named(version: str) -> Compiler:
    """The newest release here whose version begins so: ``1.5`` is 1.5.0.114.

    Raises:
        VariantError: it is no version.
        Unavailable: no such release is here.
    """
    wanted = _numbers(_version(version, "use"))
    found = [c for c in known() if _numbers(c.version)[: len(wanted)] == wanted]
    if found:
        return found[-1]
    here = quoted(c.version for c in known()) or "none"
    raise Unavailable(
        f'Cannot use compiler "{version}": it is not here ({here}). Run rtlab compilers add {version}, or choose '
        "another."
    )


def add(version: str, *, source: str | Path | None = None, progress: Progress | None = None) -> Compiler:
    """Install a release into a folder of its own, with pip in a child process.

    It is there when all of it is, and was tried; a stop or a failure leaves nothing behind.

    Args:
        version: Such as ``1.5``, which takes the newest 1.5 that there is, or ``1.5.0.114``.
        source: A folder with the wheels of ``tensorrt-rtx-cu13-bindings`` and ``tensorrt-rtx-cu13-libs``, for where
            there is no network.
        progress: Told of megabytes as they come, and asked whether to stop.

    Returns:
        The compiler; one that is here already is not installed again.

    Raises:
        VariantError: it is no version.
        Unavailable: pip is missing, the network, the wheels, or room on the disk; or what was installed does not work.
        Cancelled: ``progress`` asked to stop.
    """
    version = _version(version, "add")
    with contextlib.suppress(Unavailable):
        if not (here := named(version)).recorded:
            return here
    doing = f'Cannot add compiler "{version}"'
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _sweep(place)
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise Unavailable(
            f'{doing}: the folder "{place}" cannot be written ({error.strerror or error}). Name another one in '
            "RTLAB_COMPILERS."
        ) from error
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(
            f"{doing}: this Python has no pip. Run {Path(sys.executable).name} -m ensurepip, or uv pip install pip, "
            "and try again."
        )
    if free < _NEEDED:
        raise Unavailable(
            f'{doing}: it takes about {_mb(_NEEDED)} in "{place}", and {_mb(free)} are free. Free some, or name a '
            "folder with more in RTLAB_COMPILERS."
        )
    if source is not None and not Path(source).is_dir():
        raise Unavailable(f'{doing}: there is no folder "{source}". {_bring(version)}')
    progress = progress or Silent()
    room = place / f"{_ROOM}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        room.mkdir()
        progress.phase(
            f"Installing TensorRT-RTX {version}, MB of about {_NEEDED // 1_000_000}, {_mb(free)} free"
        )
        _pip(room, f"{_PARTS[0]}=={version}.*", source, doing, progress)
        exact = _installed(room, doing)
        _pip(room, f"{_PARTS[1]}=={exact}", source, doing, progress)
        progress.phase(f"Trying TensorRT-RTX {exact}")
        made = Compiler(exact, f"{BACKEND}:{exact}", room)
        if why := made.tried(progress).refusal:
            raise Unavailable(
                f"{doing}: it was installed and does not work here. Choose another version, or another machine.",
                details=why,
            )
        whole = place / exact
        if not whole.exists():  # another process may have been quicker
            room.rename(whole)
        return _added(whole)
    except OSError as error:
        raise Unavailable(
            f'{doing}: the folder "{place}" cannot be written ({error.strerror or error}). Name another one in '
            "RTLAB_COMPILERS."
        ) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def remove(version: str) -> Compiler:
    """Take away an added compiler; what was built with it stays.

    Raises:
        VariantError: it is the environment's own, or no version.
        Unavailable: no such release is here.
        RtlabError: its folder cannot be removed.
    """
    found = named(version)
    if found.recorded:
        raise VariantError(
            f'Cannot remove compiler "{version}": it is not installed, and its recorded builds are a part of rtlab. '
            "Choose an added one: rtlab compilers list."
        )
    if found.path is None:
        raise VariantError(
            f'Cannot remove compiler "{version}": {found.version} is the environment\'s own, which pip installed. '
            "Choose an added one: rtlab compilers list."
        )
    from rtlab.backends.live import kept

    kept.close(str(found.path))
    # Out of sight at once; a part of it is never taken for the whole.
    gone = found.path.with_name(f"{_ROOM}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        found.path.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise RtlabError(
            f'Cannot remove compiler "{version}": the system refused it ({error.strerror or error}). End what uses '
            f'it, or remove "{gone if gone.exists() else found.path}" by hand.'
        ) from error
    return found


def _pip(room: Path, requirement: str, source: str | Path | None, doing: str, progress: Progress) -> None:
    """Install one part into the room.

    Raises:
        Unavailable: pip says why not.
    """
    from rtlab.backends.live import child, installing

    told = "" if source is None else str(Path(source).resolve())
    order = installing.PipOrder((requirement,), str(room), told)
    said: installing.PipSaid = child.call(
        installing.install,
        order,
        limits=Limits(seconds=_SECONDS),
        progress=progress,
        doing=doing,
        work=child.INSTALLING,
    )
    if said.code:
        raise Unavailable(f"{doing}: {_why(said.words, requirement, source)}", details=said.words)


def _why(words: str, requirement: str, source: str | Path | None) -> str:
    """What pip found, and what to do next."""
    version = requirement.partition("==")[2].removesuffix(".*")
    if "No space left" in words or "Disk quota" in words:
        return "the disk is full. Free some room, or name another folder in RTLAB_COMPILERS."
    listed = _LISTED.search(words)
    others = [] if listed is None or listed[1] == "none" else [v.strip() for v in listed[1].split(",")]
    if source is not None:
        return f'"{source}" has no wheel of {requirement} for {_here()}. {_bring(version)}'
    if _OFFLINE.search(words) and not others:
        return f"the package index cannot be reached. {_bring(version)}"
    if others:
        return f"there is no such release; there are {', '.join(others)}. Choose one of them."
    if listed is not None:
        return (
            f"no release has a wheel for {_here()}; wheels exist for x86-64 Linux and Windows. Add it on such a "
            "machine, or read the files that it writes there with rtlab read."
        )
    return "pip failed. Its words are in the details; try again, or give the wheels with --from FOLDER."


def _bring(version: str) -> str:
    """What to do where there is no network."""
    exact = version if version.count(".") == 3 else f"{version}.*"
    names = " ".join(f'"{part}=={exact}"' for part in _PARTS)
    return (
        f"On a machine with a network run pip download --no-deps -d FOLDER {names}, bring the folder, "
        f"and run rtlab compilers add {version} --from FOLDER."
    )


def _here() -> str:
    return f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"


def _installed(room: Path, doing: str) -> str:
    """The version of the binding that was installed."""
    found = [d.version for d in importlib.metadata.distributions(path=[str(room)])]
    if len(found) != 1 or not _VERSION.fullmatch(found[0]):
        raise Unavailable(
            f"{doing}: what was installed names no version ({', '.join(found)}). Choose another release."
        )
    return found[0]


@functools.cache
def _own() -> Compiler:
    from rtlab.backends.live.building import installed

    return Compiler(installed(_OWN), BACKEND)


def _recorded() -> list[Compiler]:
    """The newest release whose builds were recorded is what the backend itself shows."""
    from rtlab.backends import recorded

    releases = recorded.releases()
    return [Compiler(r, f"{BACKEND}:{r}" if i else BACKEND, recorded=True) for i, r in enumerate(releases)]


def _added(path: Path) -> Compiler:
    return Compiler(path.name, f"{BACKEND}:{path.name}", path)


def _version(given: str, doing: str) -> str:
    if isinstance(given, str) and _VERSION.fullmatch(given):
        return given
    raise VariantError(
        f'Cannot {doing} compiler "{given}": it is no version. Write for example 1.5, or 1.5.0.114 in full.'
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes // 1_000_000} MB"


def _sweep(place: Path) -> None:
    """Remove what installations left that somebody killed."""
    import psutil

    for left in place.glob(f"{_ROOM}*"):
        owner = left.name.removeprefix(_ROOM).partition("-")[0]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            shutil.rmtree(left, ignore_errors=True)


def releases(backend: str) -> Sequence[Compiler]:
    """All releases of the compiler that a backend is one of; empty where it has none."""
    return known() if backend.partition(":")[0] == BACKEND else ()


def added(backend: str | None) -> str | None:
    """The name of a backend that is a release beside the usual one; None of any other."""
    return next((c.backend for c in known() if c.backend == backend != BACKEND), None) if backend else None
