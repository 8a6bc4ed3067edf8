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
import io
import os
import platform
import re
import runpy
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rtlab.core.phrases import quote_names
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, RtlabError, Unavailable, VariantError

__all__ = ["Compiler", "add", "folder", "known", "named", "remove"]

#: The backend whose releases these are, and its module in the environment and in a folder.
BACKEND, _ENVIRONMENT_MODULE, BINDING = "tensorrt-rtx", "tensorrt_rtx", "tensorrt_rtx_bindings"
#: The parts that are needed, the smallest first; ``tensorrt-rtx`` and ``-cu13`` are but other names of the binding.
_PARTS = ("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs")
_VERSION = re.compile(r"\d+(\.\d+){1,3}")
#: Bytes that an installation takes at its height: what is downloaded, and what it is unpacked to.
_NEEDED = 400_000_000
_SECONDS = 1800.0
_TEMP_PREFIX = ".adding-"
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
        recorded: Whether only recorded builds of it are here.
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
        numbers = _parse_numbers(self.version)[:2]
        is_only_one = sum(_parse_numbers(c.version)[:2] == numbers for c in known()) == 1
        return ".".join(self.version.split(".")[:2]) if is_only_one else self.version

    @property
    def where(self) -> str:
        """The folder that it lies in."""
        if self.path is not None:
            return str(self.path)
        spec = None if self.recorded else importlib.util.find_spec(_ENVIRONMENT_MODULE)
        return str(Path(spec.origin).parents[1]) if spec is not None and spec.origin else ""

    @property
    def nbytes(self) -> int:
        """Bytes of disk that it takes."""
        if self.recorded:
            return 0
        modules = (_ENVIRONMENT_MODULE, BINDING, f"{_ENVIRONMENT_MODULE}_libs")
        folders = [Path(self.where) / m for m in modules] if self.path is None else [self.path]
        files = (f for folder in folders for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
        return sum(file.stat().st_size for file in files)

    def tried(self, progress: Progress | None = None) -> CompilerProbe:
        """What a child finds that imports it and asks for a builder."""
        from rtlab.backends.workers import compiler
        from rtlab.backends.workers.process import BUILDING, Bounds, call

        error_prefix = f'Cannot use compiler "{self.version}"'
        if self.recorded:
            return CompilerProbe(
                f"{error_prefix}: it is not installed. Builds of the samples that were recorded with it are shown."
            )
        module, path = (_ENVIRONMENT_MODULE, ()) if self.path is None else (BINDING, (str(self.path),))
        bounds = Bounds(error_prefix, BUILDING, Limits(seconds=60.0), progress or Silent())
        try:
            version, routes = call(compiler.probe_binding, module, bounds, path)
        except BackendError as error:
            return CompilerProbe(str(error))
        if version != self.version:
            return CompilerProbe(f"{error_prefix}: the binding says that it is {version}. Add it again.")
        return CompilerProbe(routes=routes)


@dataclasses.dataclass(frozen=True)
class CompilerProbe:
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

    default = platformdirs.user_cache_path("rtlab", appauthor=False) / "compilers"
    return Path(os.environ.get("RTLAB_COMPILERS") or default) / (sys.implementation.cache_tag or "python")


def known() -> tuple[Compiler, ...]:
    """The compilers that are here, the oldest release first; the environment's own among them.

    Where that is not installed, those are too whose recorded builds rtlab brings along.
    """
    in_environment = importlib.util.find_spec(_ENVIRONMENT_MODULE) is not None
    releases_here = [] if in_environment else _list_recorded()
    with contextlib.suppress(OSError):
        releases_here += [
            Compiler(p.name, f"{BACKEND}:{p.name}", p)
            for p in folder().iterdir()
            if _VERSION.fullmatch(p.name) and p.is_dir()
        ]
    releases_here += [_get_environment_release()] if in_environment else []
    # The environment's own goes before an added one of its version, and that before a recorded one.
    versions = {c.version: c for c in releases_here}
    return tuple(sorted(versions.values(), key=lambda c: _parse_numbers(c.version)))


def named(version: str) -> Compiler:
    """The newest release here whose version begins so: ``1.5`` is 1.5.0.114.

    Raises:
        VariantError: it is no version.
        Unavailable: no such release is here.
    """
    numbers = _parse_numbers(_check_version(version, "use"))
    matches = [c for c in known() if _parse_numbers(c.version)[: len(numbers)] == numbers]
    if matches:
        return matches[-1]
    available = quote_names(c.version for c in known()) or "none"
    raise Unavailable(
        f'Cannot use compiler "{version}": it is not here ({available}). Run rtlab compilers add {version}, or choose '
        "another."
    )


def add(version: str, *, source: str | Path | None = None, progress: Progress | None = None) -> Compiler:
    """Install a release into a folder of its own, with pip in a child process.

    It is there when all of it is, and was tried; a stop or a failure leaves nothing behind.

    Args:
        version: Such as ``1.5``, which takes the newest 1.5 that there is, or ``1.5.0.114``; one that is here already
            is not installed again.
        source: A folder with the wheels of ``tensorrt-rtx-cu13-bindings`` and ``tensorrt-rtx-cu13-libs``.
        progress: Gets each step, and is asked whether to stop.

    Raises:
        VariantError: it is no version.
        Unavailable: pip is missing, the network, the wheels, or room on the disk; or what was installed does not work.
        Cancelled: ``progress`` asked to stop.
    """
    version = _check_version(version, "add")
    with contextlib.suppress(Unavailable):
        if not (existing := named(version)).recorded:
            return existing
    error_prefix = f'Cannot add compiler "{version}"'
    base_folder = folder()
    try:
        base_folder.mkdir(parents=True, exist_ok=True)
        return _add(version, base_folder, source, error_prefix, progress or Silent())
    except OSError as error:
        raise Unavailable(
            f'{error_prefix}: the folder "{base_folder}" cannot be written ({error.strerror or error}). Name another '
            "one in RTLAB_COMPILERS."
        ) from error


def _add(
    version: str, base_folder: Path, source: str | Path | None, error_prefix: str, progress: Progress
) -> Compiler:
    _remove_leftovers(base_folder)
    free = shutil.disk_usage(base_folder).free
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(
            f"{error_prefix}: this Python has no pip. Run {Path(sys.executable).name} -m ensurepip, or uv pip install "
            "pip, and try again."
        )
    if free < _NEEDED:
        raise Unavailable(
            f'{error_prefix}: it takes about {_format_size(_NEEDED)} in "{base_folder}", and {_format_size(free)} are '
            "free. Free some, or name a folder with more in RTLAB_COMPILERS."
        )
    if source is not None and not Path(source).is_dir():
        raise Unavailable(
            f'{error_prefix}: there is no folder "{source}". {_explain_offline_install(version)}'
        )
    temp_folder = base_folder / f"{_TEMP_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        temp_folder.mkdir()
        progress.phase(f"Installing TensorRT-RTX {version}, about {_format_size(_NEEDED)}")
        _install_part(temp_folder, f"{_PARTS[0]}=={version}.*", source, error_prefix, progress)
        (binding,) = importlib.metadata.distributions(path=[str(temp_folder)])
        exact = binding.version
        _install_part(temp_folder, f"{_PARTS[1]}=={exact}", source, error_prefix, progress)
        progress.phase(f"Trying TensorRT-RTX {exact}")
        compiler = Compiler(exact, f"{BACKEND}:{exact}", temp_folder)
        if why := compiler.tried(progress).refusal:
            raise Unavailable(
                f"{error_prefix}: it was installed and does not work here. Choose another version, or another machine.",
                details=why,
            )
        final_path = base_folder / exact
        if not final_path.exists():  # another process may have been quicker
            temp_folder.rename(final_path)
        return dataclasses.replace(compiler, path=final_path)
    finally:
        shutil.rmtree(temp_folder, ignore_errors=True)


def remove(version: str) -> Compiler:
    """Take away an added compiler; what was built with it stays.

    Raises:
        VariantError: it is the environment's own, or no version.
        Unavailable: no such release is here.
        RtlabError: its folder cannot be removed.
    """
    compiler = named(version)
    if compiler.recorded:
        raise VariantError(
            f'Cannot remove compiler "{version}": it is not installed, and its recorded builds are a part of rtlab. '
            "Choose an added one: rtlab compilers list."
        )
    if compiler.path is None:
        raise VariantError(
            f'Cannot remove compiler "{version}": {compiler.version} is the environment\'s own, which pip installed. '
            "Choose an added one: rtlab compilers list."
        )
    from rtlab.backends.workers import worker_pool

    worker_pool.close(str(compiler.path))
    # Out of sight at once; a part of it is never taken for the whole.
    removed_path = compiler.path.with_name(f"{_TEMP_PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        compiler.path.rename(removed_path)
        shutil.rmtree(removed_path)
    except OSError as error:
        raise RtlabError(
            f'Cannot remove compiler "{version}": the system refused it ({error.strerror or error}). End what uses '
            f'it, or remove "{removed_path if removed_path.exists() else compiler.path}" by hand.'
        ) from error
    return compiler


def _install_part(
    temp_folder: Path, requirement: str, source: str | Path | None, error_prefix: str, progress: Progress
) -> None:
    """Install one part into a folder; raises ``Unavailable`` where pip says why not."""
    from rtlab.backends.workers.process import INSTALLING, Bounds, call

    source_options = [] if source is None else ["--no-index", "--find-links", str(Path(source).resolve())]
    arguments = (
        "install", "--target", str(temp_folder), "--no-deps", "--only-binary", ":all:", "--no-compile", "--no-input",
        "--disable-pip-version-check", "--no-warn-conflicts", "--progress-bar", "off", "--retries", "1",
        *source_options, requirement,
    )  # fmt: skip
    code, text = call(
        run_pip, arguments, Bounds(error_prefix, INSTALLING, Limits(seconds=_SECONDS), progress)
    )
    if code:
        reason = _explain_pip_failure(text, requirement, source)
        raise Unavailable(f"{error_prefix}: {reason}", details=text)


def run_pip(arguments: tuple[str, ...], report: object) -> tuple[int, str]:  # noqa: ARG001 - every call gets one
    """Run pip in this process, a child: its exit code, 0 where all is installed, and what it wrote."""
    # pip refuses --target together with an installation for the user, which a configuration may ask for.
    os.environ["PIP_USER"] = "0"
    sys.argv = ["pip", *arguments]
    text, code = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else int(code is not None), text.getvalue()


def _explain_pip_failure(words: str, requirement: str, source: str | Path | None) -> str:
    """What pip found, and what to do next."""
    version = requirement.partition("==")[2].removesuffix(".*")
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if "No space left" in words or "Disk quota" in words:
        return "the disk is full. Free some room, or name another folder in RTLAB_COMPILERS."
    if source is not None:
        return f'"{source}" has no wheel of {requirement} for {here}. {_explain_offline_install(version)}'
    listed = _LISTED.search(words)
    if listed is not None and listed[1] != "none":
        return f"there is no such release; there are {listed[1]}. Choose one of them."
    if _OFFLINE.search(words):
        return f"the package index cannot be reached. {_explain_offline_install(version)}"
    if listed is not None:
        return (
            f"no release has a wheel for {here}; wheels exist for x86-64 Linux and Windows. Add it on such a machine, "
            "or read the files that it writes there with rtlab read."
        )
    return "pip failed. Its output is in the details; try again, or give the wheels with --from FOLDER."


def _explain_offline_install(version: str) -> str:
    """What to do where there is no network."""
    exact = version if version.count(".") == 3 else f"{version}.*"
    names = " ".join(f'"{part}=={exact}"' for part in _PARTS)
    return (
        f"On a machine with a network run pip download --no-deps -d FOLDER {names}, bring the folder, "
        f"and run rtlab compilers add {version} --from FOLDER."
    )


@functools.cache
def find_package_version(module: str) -> str:
    """The version of the package that brings a module, which may bear several names; empty where it has none."""
    # Usually it bears the module's name; asking every package for its modules takes half a second.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(module)
    owners = importlib.metadata.packages_distributions().get(module, [])
    return importlib.metadata.version(owners[0]) if owners else ""


@functools.cache
def _get_environment_release() -> Compiler:
    return Compiler(find_package_version(_ENVIRONMENT_MODULE), BACKEND)


def _list_recorded() -> list[Compiler]:
    """The newest release whose builds were recorded is what the backend itself shows."""
    from rtlab.backends import recorded

    releases = recorded.releases()
    return [Compiler(r, f"{BACKEND}:{r}" if i else BACKEND, recorded=True) for i, r in enumerate(releases)]


def _check_version(version: str, verb: str) -> str:
    if isinstance(version, str) and _VERSION.fullmatch(version):
        return version
    raise VariantError(
        f'Cannot {verb} compiler "{version}": it is no version. Write for example 1.5, or 1.5.0.114 in full.'
    )


def _parse_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


def _format_size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes // 1_000_000} MB"


def _remove_leftovers(place: Path) -> None:
    """Remove what killed installations left."""
    import psutil

    for leftover in place.glob(f"{_TEMP_PREFIX}*"):
        owner = leftover.name.removeprefix(_TEMP_PREFIX).partition("-")[0]
        if not psutil.pid_exists(int(owner)):
            shutil.rmtree(leftover, ignore_errors=True)


def list_releases(backend: str) -> Sequence[Compiler]:
    """All releases of the compiler that a backend is one of; empty where it has none."""
    return known() if backend.partition(":")[0] == BACKEND else ()


def get_added_backend(backend: str | None) -> str | None:
    """The name of a backend that is a release beside the usual one; None of any other."""
    return next((c.backend for c in known() if c.backend == backend != BACKEND), None) if backend else None
