"""Several releases side by side: each is installed whole or not at all, and seen by child processes only."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import pytest

import rtlab
import wheels
from rtlab import backends
from rtlab.backends import compilers
from rtlab.backends.workers import compiler, worker_pool
from rtlab.backends.workers.process import BUILDING, Bounds
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import Unavailable, VariantError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """An empty cache of compilers."""
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "compilers"))
    return compilers.folder()


@pytest.fixture
def source(tmp_path) -> Path:
    """A folder with the wheels of two releases of 0.2; as text, 0.2.0.9 comes after 0.2.0.10."""
    for version in ("0.2.0.9", "0.2.0.10"):
        wheels.release(tmp_path / "wheels", version)
    return tmp_path / "wheels"


def added() -> list[str]:
    return [c.version for c in compilers.known() if not c.own]


def test_the_newest_of_a_release_is_installed_whole_and_found_by_its_beginning(source, place) -> None:
    made = rtlab.compilers.add("0.2", source=source)

    assert ("0.2.0.10", "tensorrt-rtx:0.2.0.10", False) == (made.version, made.backend, made.own)
    assert ["0.2.0.10"] == [p.name for p in place.iterdir()]
    assert {"tensorrt_rtx_bindings", "tensorrt_rtx_libs"} <= {p.name for p in place.glob("*/*")}
    assert ("", ("fuse=0", "fuse=1")) == (made.tried().refusal, made.tried().routes)
    assert sum(f.stat().st_size for f in place.rglob("*") if f.is_file()) == made.nbytes
    assert made == compilers.named("0.2") == compilers.named("0.2.0.10") == compilers.add("0.2")
    assert "0.2.0.9" == compilers.add("0.2.0.9", source=source).version
    assert ["0.2.0.9", "0.2.0.10"] == added()
    assert made == compilers.named("0.2")


def test_a_release_is_a_backend_by_any_spelling(source) -> None:
    compilers.add("0.2", source=source)

    assert backends.get("tensorrt-rtx:0.2") is backends.get("tensorrt-rtx:0.2.0.10")
    assert "tensorrt-rtx:0.2.0.10" == backends.get("tensorrt-rtx:0.2").name
    assert "0.2.0.10" == rtlab.available()["tensorrt-rtx:0.2.0.10"].version
    compilers.remove("0.2")
    assert [] == added()
    assert "tensorrt-rtx:0.2.0.10" not in rtlab.available()
    with pytest.raises(
        Unavailable, match=r'Cannot use compiler "0.2": it is not here .*rtlab compilers add 0\.2'
    ):
        backends.get("tensorrt-rtx:0.2")


def test_only_children_that_were_told_import_it(source) -> None:
    """Two releases are two processes, also among those that wait for the next build."""
    nine, ten = (compilers.add(v, source=source) for v in ("0.2.0.9", "0.2.0.10"))

    def version(at: compilers.Compiler) -> tuple[str, int]:
        found, _ = worker_pool.call(
            compiler.probe_binding,
            compilers.BINDING,
            Bounds("Cannot try", BUILDING, Limits(), Silent()),
            (str(at.path),),
        )
        return found, next(c.process.pid for c in worker_pool._POOL.children if str(at.path) in c.key[1])

    (first, one), (second, two), (third, three) = version(nine), version(ten), version(nine)

    assert ("0.2.0.9", "0.2.0.10", "0.2.0.9") == (first, second, third)
    assert one == three != two
    assert not any(str(compilers.folder()) in p for p in sys.path)
    assert not any(
        str(compilers.folder()) in str(getattr(m, "__file__", "")) for m in list(sys.modules.values())
    )
    worker_pool.close(str(nine.path))
    assert one != version(nine)[1]


@pytest.mark.parametrize(
    ("binding", "libs", "told"),
    [
        ("raise ImportError('libcuda')", True, "installed and does not work here"),
        ("__version__ = '9'\nclass ILogger: INTERNAL_ERROR = 0\nLogger = Builder = print", True, "does not work"),
        (wheels.WORKS, False, r"has no wheel of tensorrt-rtx-cu13-libs==0\.3\.0\.1 for Python .*pip download"),
    ],
)  # fmt: skip
def test_what_is_not_whole_or_does_not_work_leaves_nothing_behind(
    tmp_path, place, binding, libs, told
) -> None:
    wheels.release(tmp_path / "wheels", "0.3.0.1", binding=binding, libs=libs)

    with pytest.raises(Unavailable, match=told):
        compilers.add("0.3", source=tmp_path / "wheels")
    assert [] == [*place.iterdir()] == added()


def test_each_thing_that_is_missing_is_told_with_what_to_bring(source, tmp_path, monkeypatch) -> None:
    for given in ("newest", "1", "1.5.0.114.2", "../1.5", None):
        with pytest.raises(VariantError, match=r"for example 1\.5"):
            compilers.add(given)
    with pytest.raises(Unavailable, match=r"there is no folder .*run rtlab compilers add 0\.2 --from FOLDER"):
        compilers.add("0.2", source=tmp_path / "nowhere")
    # Nobody listens there.
    index = {"INDEX_URL": "http://127.0.0.1:9/simple", "CONFIG_FILE": "/dev/null", "FIND_LINKS": ""}
    for name, value in index.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    with pytest.raises(Unavailable, match="the package index cannot"):
        compilers.add("0.2")
    with monkeypatch.context() as now:
        now.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**8))
        with pytest.raises(Unavailable, match=r"takes about 400 MB in .* and 100 MB are free"):
            compilers.add("0.2", source=source)
    (tmp_path / "file").touch()
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match=r"cannot be written .*RTLAB_COMPILERS"):
        compilers.add("0.2", source=source)
