"""Releases of a compiler, plug-ins and providers: what is installed, refused and taken away, without a network."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import shutil
import sys
import threading
import types
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rtlab import backends
from rtlab.backends import compilers, placement, providers
from rtlab.backends.live import calibrator, child, installing, kept
from rtlab.backends.placement import Partition
from rtlab.backends.tensorrt_rtx import TensorRTRTX
from rtlab.core.variant import Target
from rtlab.errors import BuildError, RtlabError, Unavailable, VariantError


class Pip:
    """In the place of child processes: installs what exists, and says which release a binding is."""

    def __init__(self, *versions: str, words: str = "no", started: str = "") -> None:
        self.versions, self.words, self.started = versions, words, started
        self.calls: list[Any] = []

    def __call__(self, function: Any, *given: Any, **how: Any) -> Any:
        self.calls.append((function, given, how))
        if function is not installing.install:
            return self.started or Path(how["path"][0]).glob("*.dist-info").__next__().stem.split("-")[1], (
                "a",
            )
        (order,) = given
        part, _, version = order.requirements[0].partition("==")
        wanted = version.removesuffix(".*").split(".")
        found = [v for v in self.versions if v.split(".")[: len(wanted)] == wanted]
        if not found:
            return installing.PipSaid(1, self.words)
        if part.endswith("bindings"):
            info = Path(order.folder) / f"bindings-{found[-1]}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bindings\nVersion: {found[-1]}\n")
        else:
            (Path(order.folder) / "library.so").write_bytes(bytes(1000))
        return installing.PipSaid(0, "")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Any) -> Path:
    """An empty folder of compilers, and an environment that has none of its own."""
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "here"))
    real = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "tensorrt_rtx" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", hidden)
    monkeypatch.setattr(
        compilers, "_recorded", lambda: [compilers.Compiler("1.6.1.120", "tensorrt-rtx", recorded=True)]
    )
    return compilers.folder()


def install(monkeypatch: Any, pip: Pip, version: str, **how: Any) -> Any:
    monkeypatch.setattr(child, "call", pip)
    return compilers.add(version, **how)


def test_a_release_is_installed_in_two_parts_tried_and_then_moved_into_its_place(
    place: Path, monkeypatch: Any
) -> None:
    """The libraries are those of the very release that the binding turned out to be."""
    pip = Pip("1.5.0.9", "1.5.0.114", "1.7.1.116")
    made = install(monkeypatch, pip, "1.5")
    assert dataclasses.astuple(made) == ("1.5.0.114", "tensorrt-rtx:1.5.0.114", place / "1.5.0.114", False)
    assert [c[1][0].requirements for c in pip.calls[:2]] == [
        ("tensorrt-rtx-cu13-bindings==1.5.*",),
        ("tensorrt-rtx-cu13-libs==1.5.0.114",),
    ]
    assert [c[2]["limits"].seconds for c in pip.calls] == [1800.0, 1800.0, 60.0]
    assert [p.name for p in place.iterdir()] == ["1.5.0.114"]
    assert place.name == sys.implementation.cache_tag
    assert (made.own, made.words, made.where) == (False, "added", str(place / "1.5.0.114"))
    metadata = next(place.glob("*/*/METADATA")).stat().st_size
    assert made.nbytes == 1000 + metadata
    assert made.tried() == compilers.Started(routes=("a",))
    # Nothing is installed twice; another 1.5 makes the short name a wrong one.
    assert install(monkeypatch, Pip(), "1.5") == made
    assert made.title == "1.5"
    install(monkeypatch, pip, "1.5.0.9")
    assert [c.version for c in compilers.known()] == ["1.5.0.9", "1.5.0.114", "1.6.1.120"]
    assert (made.title, compilers.named("1.5")) == ("1.5.0.114", made)
    assert compilers.added("tensorrt-rtx:1.5.0.9") == "tensorrt-rtx:1.5.0.9"
    assert (compilers.added("tensorrt-rtx"), compilers.added(None), compilers.added("other")) == (
        None,
        None,
        None,
    )
    assert ([*compilers.releases("onnxruntime")], len(compilers.releases("tensorrt-rtx:1.5"))) == ([], 3)
    with mock.patch.object(kept, "close") as closed:
        assert compilers.remove("1.5.0.9").version == "1.5.0.9"
    closed.assert_called_once_with(str(place / "1.5.0.9"))
    assert sorted(p.name for p in place.iterdir()) == ["1.5.0.114"]
    with (
        mock.patch.object(shutil, "rmtree", side_effect=OSError(13, "denied")),
        pytest.raises(RtlabError, match="denied"),
    ):
        compilers.remove("1.5")


@pytest.mark.parametrize(
    ("words", "source", "said"),
    [
        ("OSError: No space left on device", False, "disk is full"),
        ("x (from versions: none)", False, "no release has a wheel"),
        ("x (from versions: 1.4, 1.6) Max retries", False, "there are 1.4, 1.6"),
        (
            "Max retries exceeded",
            False,
            r'pip download .*"tensorrt-rtx-cu13-bindings==1\.5\.\*" .*--from FOLDER',
        ),
        ("Max retries exceeded", True, "has no wheel of tensorrt-rtx-cu13-bindings"),
        ("odd", False, "pip failed"),
    ],
)
def test_what_pip_says_is_told_with_what_to_do(
    words: str, source: bool, said: str, place: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    pip = Pip(words=words)
    with pytest.raises(Unavailable, match=said) as error:
        install(monkeypatch, pip, "1.5", **({"source": tmp_path} if source else {}))
    assert error.value.details == words
    assert pip.calls[0][1][0].source == (str(tmp_path.resolve()) if source else "")
    assert [*place.iterdir()] == []


def test_a_release_that_is_not_what_it_says_leaves_nothing_behind(place: Path, monkeypatch: Any) -> None:
    with pytest.raises(Unavailable) as error:
        install(monkeypatch, Pip("1.5.0.114", started="9.9"), "1.5")
    assert "9.9" in error.value.details
    stale = place / ".adding-999999999-aa"
    mine = place / f".adding-{os.getpid()}-aa"
    for left in (stale, mine):
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
    for wrong in ("1", "1.2.3.4.5", "a", None):
        with pytest.raises(VariantError):
            compilers.named(wrong)  # type: ignore[arg-type]
    monkeypatch.setattr(child, "call", mock.Mock(side_effect=BuildError("Cannot start.")))
    assert compilers.Compiler("1.5", "tensorrt-rtx:1.5", place).tried().refusal == "Cannot start."
    assert (compilers._mb(999_999_999), compilers._mb(1_000_000_000)) == ("999 MB", "1.0 GB")


def test_a_recorded_release_is_refused_where_it_would_have_to_be_here(place: Path) -> None:
    (one,) = compilers.known()
    assert (one.own, one.words, one.where, one.nbytes, one.title) == (
        False,
        "recorded builds only",
        "",
        0,
        "1.6",
    )
    assert "not installed" in one.tried().refusal
    with pytest.raises(VariantError, match="recorded"):
        compilers.remove("1.6")
    with pytest.raises(Unavailable, match=r"1\.6\.1\.120"):
        compilers.named("1.7")
    own = compilers.Compiler("1.7.1.116", "tensorrt-rtx")
    assert (own.own, own.words, own.where, own.nbytes) == (True, "the environment's own", "", 0)
    with (
        mock.patch.object(compilers, "known", return_value=(own,)),
        pytest.raises(VariantError, match="environment's own"),
    ):
        compilers.remove("1.7")
    for path, ok in ((place, True), (place / "none", False)):
        place.mkdir(parents=True, exist_ok=True)
        backend = TensorRTRTX(compilers.Compiler("1.5", "tensorrt-rtx:1.5", path))
        found = backend.availability()
        assert (found.ok, found.version, bool(found.reason)) == (ok, "1.5" if ok else "", not ok)
        assert (backend.name, backend.binding, backend.path) == (
            "tensorrt-rtx:1.5",
            "tensorrt_rtx_bindings",
            (str(path),),
        )
    assert not TensorRTRTX(one).availability().ok


@pytest.mark.parametrize(("end", "code"), [(0, 0), (3, 3), (None, 0), ("words", 1)])
@pytest.mark.parametrize("source", ["", "/wheels"])
def test_pip_runs_in_its_own_process_with_what_was_asked_for(
    end: Any, code: int, source: str, monkeypatch: Any
) -> None:
    def run(module: str, **how: Any) -> None:
        sys.stdout.write("said")
        assert (module, how) == ("pip", {"run_name": "__main__", "alter_sys": True})
        raise SystemExit(end)

    monkeypatch.setattr(installing.runpy, "run_module", run)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("PIP_USER", "1")
    said = installing.install(installing.PipOrder(("a==1", "b"), "/there", source), mock.Mock())
    assert (said.code, said.words, os.environ["PIP_USER"]) == (code, "said", "0")
    where = ["--no-index", "--find-links", "/wheels"] if source else []
    assert sys.argv[:4] == ["pip", "install", "--target", "/there"]
    assert sys.argv[-2 - len(where) :] == [*where, "a==1", "b"]
    assert {"--no-deps", ":all:", "--no-input", "--no-compile"} <= {*sys.argv}


def test_megabytes_that_arrive_are_reported_once(tmp_path: Path, monkeypatch: Any) -> None:
    """Two, none, then one more; half a megabyte is none."""
    sizes = iter([2_400_000, 100_000, 2_400_000, 100_000, 3_400_000, 100_000])
    looks = iter([False, False, False, True])
    report, done = mock.Mock(), mock.Mock(spec=threading.Event())
    done.wait = mock.Mock(side_effect=lambda _: next(looks))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(7))
    (tmp_path / "c").write_bytes(bytes(5))
    assert installing.size(tmp_path) == 12
    monkeypatch.setattr(installing, "size", lambda _: next(sizes))
    installing._watch(str(tmp_path), report, done)
    assert [c.args for c in report.advance.call_args_list] == [(2,), (1,)]
    assert {c.args for c in done.wait.call_args_list} == {(0.2,)}


class Brought:
    """A backend that somebody registers."""

    name = "brought"

    def availability(self) -> Any:
        return mock.Mock(ok=True)

    capabilities = availability


def test_backends_of_packages_are_taken_and_broken_ones_told(monkeypatch: Any) -> None:
    """A class or an object; what cannot be loaded, is no backend, calls itself otherwise or comes twice is left out."""

    def point(name: str, found: Any) -> Any:
        return types.SimpleNamespace(name=name, load=found if inspect.isfunction(found) else lambda: found)

    def broken() -> None:
        raise ImportError("odd")

    points = [point("brought", Brought), point("broken", broken), point("none", object()), point("else", Brought()),
              point("onnxruntime", mock.Mock())]  # fmt: skip
    monkeypatch.setattr(
        backends.importlib.metadata, "entry_points", lambda group: points if group == "rtlab.backends" else []
    )
    points[-1].load().name = "onnxruntime"
    with pytest.warns(RuntimeWarning) as told:
        table = backends.registry.__wrapped__()
    words = ["broken", "none", "else", "onnxruntime"]
    assert [next(w for w in words if f'"{w}"' in str(one.message)) for one in told] == words
    assert isinstance(table["brought"], Brought)
    assert len(table) == 6
    assert not isinstance(table["onnxruntime"], mock.Mock)
    available = [b.availability().ok for b in [*table.values()][:-1]]
    assert available == sorted(available, reverse=True)


def test_a_backend_that_is_handed_over_is_kept_by_its_name(monkeypatch: Any) -> None:
    table = dict(backends.registry())
    monkeypatch.setattr(backends, "registry", lambda: table)
    monkeypatch.setattr(backends, "_HANDED", set())
    first, second = Brought(), Brought()
    assert backends.register(first) == "brought"
    assert backends.get("brought") is first
    backends.register(second)
    assert backends.get("brought") is second
    other = Brought()
    other.name = "onnxruntime"
    for wrong in (other, object()):
        with pytest.raises(VariantError):
            backends.register(wrong)  # type: ignore[arg-type]
    assert backends.register(backends.get("onnxruntime")) == "onnxruntime"
    for name in ("none", None, []):
        with pytest.raises(Unavailable, match="brought"):
            backends.get(name)  # type: ignore[arg-type]
    assert backends.get("onnxruntime:cpu") is backends.get("onnxruntime")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([("P", "ab"), ("CPU", "c")], "P runs 2 of 3 nodes, compiled to 1 subgraph; 1 is left to the CPU: C"),
        ([("P", "a"), ("P", "b")], "P runs 2 of 2 nodes"),
        ([("CPU", "aabcde")], "P runs 0 of 6 nodes; 6 are left to the CPU: A, B, C, D, ..."),
        ([("CPU", "abcd")], "P runs 0 of 4 nodes; 4 are left to the CPU: A, B, C, D"),
        ([], "P runs 0 of 0 nodes"),
    ],
)
def test_a_note_counts_the_nodes_of_a_provider_and_of_the_cpu(parts: Any, said: str) -> None:
    placed = [Partition(p, tuple((n, n.upper()) for n in nodes)) for p, nodes in parts]
    assert placement.note("P", "P", placed) == said


def device(kind: str, description: str = "", vendor: str = "", name: str = "MadeExecutionProvider") -> Any:
    inner = types.SimpleNamespace(
        metadata={"Description": description} if description else {},
        vendor=vendor,
        type=types.SimpleNamespace(name=kind),
    )
    return types.SimpleNamespace(ep_name=name, device=inner)


def test_a_plug_in_s_device_is_called_as_it_calls_itself(monkeypatch: Any) -> None:
    made = dataclasses.replace(providers.CPU, name="MadeExecutionProvider", title="Made")
    found = [
        device("CPU", "none of it"),
        device("NPU", "", "Maker"),
        device("GPU", "Card 7"),
        device("GPU", "Card 8"),
    ]
    monkeypatch.setattr(
        providers, "_devices", lambda name=None: [d for d in found if name in {None, d.ep_name}]
    )
    monkeypatch.setattr(providers.driver, "device", lambda: types.SimpleNamespace(name="A card"))
    assert [providers.device(made, Target(t)) for t in ("gpu", "npu")] == ["Card 7", "Maker"]
    found[2:] = []
    assert providers.device(made, Target("gpu")) == "Made GPU"
    cuda = dataclasses.replace(made, title="CUDA")
    assert providers.device(cuda, Target("gpu")) == "A card"


def test_plug_ins_are_registered_once_and_say_what_is_wrong(monkeypatch: Any) -> None:
    """One brings a device, one none, one cannot be loaded, and one is no plug-in at all."""
    modules = {
        "ort_good": mock.Mock(get_ep_names=lambda: ["Good", "Other"]),
        "ort_old": mock.Mock(spec=["get_ep_name", "get_library_path"], get_ep_name=lambda: "Old"),
        "ort_bad": mock.Mock(spec=["get_ep_name", "get_library_path"], get_ep_name=lambda: "Bad"),
        "ort_none": mock.Mock(spec=[]),
    }

    def register(module: str, _path: Any) -> None:
        if module == "ort_bad":
            raise OSError("no library.\nmore")

    ort = mock.Mock(
        register_execution_provider_library=register, get_ep_devices=lambda: [device("GPU", name="Good")]
    )
    monkeypatch.setattr(providers.vendor, "onnxruntime", lambda: ort)
    monkeypatch.setattr(providers.vendor, "plug_in", modules.__getitem__)
    monkeypatch.setattr(providers, "version", lambda: "1.99")
    told = {k: providers._registered(k) for k in modules}
    assert told["ort_good"]["Good"] == ""
    assert "no device" in told["ort_good"]["Other"]
    assert "no device" in told["ort_old"]["Old"]
    assert "(no library)" in told["ort_bad"]["Bad"]
    assert told["ort_none"] == {}
    assert providers._first_line(ValueError()) == "ValueError"
    assert [d.ep_name for d in providers._devices("Good")] == ["Good"]
    assert providers._devices("Bad") == []
    monkeypatch.setattr(providers, "version", lambda: "")
    assert providers._devices() == []
    monkeypatch.setattr(providers, "version", lambda: "1.27.3")
    assert providers.release() == (1, 27)


@pytest.mark.parametrize(
    ("version", "number"), [("10.13.3.9", 101303), ("8.6.1", 80601), ("10.0.0b6", 100000)]
)
def test_a_calibration_cache_goes_to_tensorrt_under_its_own_version(
    version: str, number: int, tmp_path: Path
) -> None:
    """Major, minor and patch in two digits each; a cache of another version would be ignored."""
    wanted = mock.Mock(cache=b"TRT-8000-EntropyCalibration2\nx: 3c000000\n", folder=str(tmp_path))
    path = calibrator._cache_file(wanted, version)
    assert Path(path or "").read_bytes() == b"TRT-%d-EntropyCalibration2\nx: 3c000000\n" % number
    assert calibrator._cache_file(mock.Mock(cache=b""), version) is None
