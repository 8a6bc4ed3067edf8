"""Releases of a compiler, plug-ins and providers: what is installed, refused and taken away, without a network."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rtlab import backends
from rtlab.backends import compilers
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.backends.workers import process, worker_pool
from rtlab.errors import RtlabError, Unavailable, VariantError


class Pip:
    """In the place of child processes: installs what exists, and says which release a binding is."""

    def __init__(self, *versions: str, words: str = "no", started: str = "") -> None:
        self.versions, self.words, self.started = versions, words, started
        self.calls: list[Any] = []

    def __call__(self, function: Any, payload: Any, bounds: Any, path: Any = ()) -> Any:
        self.calls.append((payload, bounds))
        if function is not compilers.run_pip:
            (info,) = Path(path[0]).glob("*.dist-info")
            return self.started or info.stem.split("-")[1], ("a",)
        requirement, folder = payload[-1], payload[2]
        part, _, version = requirement.partition("==")
        begin = version.removesuffix(".*").split(".")
        matches = [v for v in self.versions if v.split(".")[: len(begin)] == begin]
        if not matches:
            return 1, self.words
        if part.endswith("bindings"):
            info = Path(folder) / f"bindings-{matches[-1]}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bindings\nVersion: {matches[-1]}\n")
        else:
            (Path(folder) / "library.so").write_bytes(bytes(1000))
        return 0, ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Any) -> Path:
    """An empty folder of compilers, and an environment that has none of its own."""
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "here"))
    real = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "tensorrt_rtx" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", hidden)
    recorded = compilers.Compiler("1.6.1.120", "tensorrt-rtx", recorded=True)
    monkeypatch.setattr(compilers, "_list_recorded", lambda: [recorded])
    return compilers.folder()


def install(monkeypatch: Any, pip: Pip, version: str, **how: Any) -> Any:
    monkeypatch.setattr(process, "call", pip)
    return compilers.add(version, **how)


def test_a_release_is_installed_in_two_parts_and_then_moved(place: Path, monkeypatch: Any) -> None:
    """The libraries are those of the very release that the binding turned out to be."""
    pip = Pip("1.5.0.9", "1.5.0.114", "1.7.1.116")
    made = install(monkeypatch, pip, "1.5")
    assert dataclasses.astuple(made) == ("1.5.0.114", "tensorrt-rtx:1.5.0.114", place / "1.5.0.114", False)
    parts = [c[0][-1] for c in pip.calls[:2]]
    assert {"--no-deps", ":all:", "--no-input", "--no-compile"} <= {*pip.calls[0][0]}
    assert parts == ["tensorrt-rtx-cu13-bindings==1.5.*", "tensorrt-rtx-cu13-libs==1.5.0.114"]
    assert [c[1].limits.seconds for c in pip.calls] == [1800.0, 1800.0, 60.0]
    assert [p.name for p in place.iterdir()] == ["1.5.0.114"]
    assert place.name == sys.implementation.cache_tag
    assert (made.own, made.words, made.where) == (False, "added", str(place / "1.5.0.114"))
    assert made.nbytes == 1000 + next(place.glob("*/*/METADATA")).stat().st_size
    assert made.tried() == compilers.CompilerProbe(routes=("a",))
    # Nothing is installed twice; another 1.5 makes the short name a wrong one.
    assert install(monkeypatch, Pip(), "1.5") == made
    assert made.title == "1.5"
    install(monkeypatch, pip, "1.5.0.9")
    assert [c.version for c in compilers.known()] == ["1.5.0.9", "1.5.0.114", "1.6.1.120"]
    assert (made.title, compilers.named("1.5")) == ("1.5.0.114", made)
    names = ("tensorrt-rtx:1.5.0.9", "tensorrt-rtx", None, "other")
    assert [*map(compilers.get_added_backend, names)] == ["tensorrt-rtx:1.5.0.9", None, None, None]
    assert ([*compilers.list_releases("onnxruntime")], len(compilers.list_releases("tensorrt-rtx:1.5"))) == (
        [],
        3,
    )
    with mock.patch.object(worker_pool, "close") as closed:
        assert compilers.remove("1.5.0.9").version == "1.5.0.9"
    closed.assert_called_once_with(str(place / "1.5.0.9"))
    assert sorted(p.name for p in place.iterdir()) == ["1.5.0.114"]
    monkeypatch.setattr(shutil, "rmtree", mock.Mock(side_effect=OSError(13, "denied")))
    with pytest.raises(RtlabError, match="denied"):
        compilers.remove("1.5")


@pytest.mark.parametrize(
    ("words", "source", "said"),
    [
        ("OSError: No space left on device", False, "disk is full"),
        ("x (from versions: none)", False, "no release has a wheel"),
        ("x (from versions: 1.4, 1.6) Max retries", False, "there are 1.4, 1.6"),
        ("Max retries exceeded", False, r'pip download .*"tensorrt-rtx-cu13-bindings==1\.5\.\*" .*--from'),
        ("Max retries exceeded", True, "has no wheel of tensorrt-rtx-cu13-bindings"),
        ("odd", False, "pip failed"),
    ],
)
def test_what_pip_says_is_told_with_what_to_do(words, source, said, place, tmp_path, monkeypatch) -> None:
    pip = Pip(words=words)
    with pytest.raises(Unavailable, match=said) as error:
        install(monkeypatch, pip, "1.5", **({"source": tmp_path} if source else {}))
    assert error.value.details == words
    links = ("--no-index", "--find-links", str(tmp_path.resolve()))
    assert (pip.calls[0][0][-4:-1] == links) == source
    assert [*place.iterdir()] == []


def test_a_release_that_is_not_what_it_says_leaves_nothing_behind(place: Path, monkeypatch: Any) -> None:
    with pytest.raises(Unavailable) as error:
        install(monkeypatch, Pip("1.5.0.114", started="9.9"), "1.5")
    assert "9.9" in error.value.details
    mine = place / f".adding-{os.getpid()}-aa"
    for left in (place / ".adding-999999999-aa", mine):
        left.mkdir(parents=True)
    with pytest.raises(Unavailable):
        install(monkeypatch, Pip(), "1.4.0.1")
    assert [*place.iterdir()] == [mine]
    for free, refused in ((399_999_999, True), (400_000_000, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: types.SimpleNamespace(free=free))
        with pytest.raises(Unavailable, match="400 MB in" if refused else "pip failed"):
            install(monkeypatch, Pip(), "1.4")
    with pytest.raises(Unavailable, match="no folder"):
        install(monkeypatch, Pip(), "1.4", source=place / "none")


def test_a_recorded_release_is_refused_where_it_would_have_to_be_here(place: Path) -> None:
    (one,) = compilers.known()
    assert (one.own, one.words, one.title) == (False, "recorded builds only", "1.6")
    assert (one.where, one.nbytes) == ("", 0)
    assert "not installed" in one.tried().refusal
    with pytest.raises(VariantError, match="recorded"):
        compilers.remove("1.6")
    with pytest.raises(Unavailable, match=r"1\.6\.1\.120"):
        compilers.named("1.7")
    for path, ok in ((place, True), (place / "none", False)):
        place.mkdir(parents=True, exist_ok=True)
        backend = TensorRTRTX(compilers.Compiler("1.5", "tensorrt-rtx:1.5", path))
        state = backend.availability()
        assert (state.ok, state.version, bool(state.reason)) == (ok, "1.5" if ok else "", not ok)
        names = ["tensorrt-rtx:1.5", compilers.BINDING, str(path)]
        assert [backend.name, backend.binding, *backend.path] == names
    assert not TensorRTRTX(one).availability().ok


@pytest.mark.parametrize(("end", "code"), [(0, 0), (3, 3), (None, 0), ("words", 1)])
def test_pip_runs_with_what_was_ordered(end: Any, code: int, monkeypatch: Any) -> None:
    def run(module: str, **how: Any) -> None:
        sys.stdout.write("said")
        assert (module, how) == ("pip", {"run_name": "__main__", "alter_sys": True})
        raise SystemExit(end)

    monkeypatch.setattr(compilers.runpy, "run_module", run)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("PIP_USER", "1")
    said = compilers.run_pip(("install", "a==1"), mock.Mock())
    assert (*said, os.environ["PIP_USER"]) == (code, "said", "0")
    assert sys.argv == ["pip", "install", "a==1"]


def test_backends_of_packages_are_taken_and_broken_ones_told(monkeypatch: Any) -> None:
    """A class or an object; what cannot be loaded, is no backend, calls itself otherwise or comes twice is left out."""
    points = []
    for name in ("broken", "none", "other", "onnxruntime", "brought"):
        backend = mock.Mock(spec=[] if name == "none" else ["name", "availability", "capabilities"])
        backend.name = "else" if name == "other" else name
        points.append(mock.Mock(**{"load.return_value": backend}))
        points[-1].name = name
    points[0].load.side_effect = ImportError
    groups = {"rtlab.backends": points}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: groups.get(group, []))
    with pytest.warns(RuntimeWarning) as warned:
        table = backends.registry.__wrapped__()
    for name, one in zip(("broken", "none", "other", "onnxruntime"), warned, strict=True):
        assert f'"{name}"' in str(one.message)
    assert ([*table][-1], len(table)) == ("brought", 6)
    assert not isinstance(table["onnxruntime"], mock.Mock)
    available = [b.availability().ok for b in [*table.values()][:-1]]
    assert available == sorted(available, reverse=True)
