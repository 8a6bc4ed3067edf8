"""Recorded builds in a folder of their own: found by what is asked for, and refused where they are damaged."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

import rtlab
from nets import chain
from rtlab import backends
from rtlab.backends import compiler_info, compilers, recorded
from rtlab.backends.readers import build
from rtlab.backends.selection import builder_for, usual_builder
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.core.engine import Engine, Layer
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import BuildError, ReadError, Unavailable, VariantError

NEW, OLD = "1.7.1.116", "1.6.1.120"


def request(precision: str = "fp32", target: str = "sm86", **more) -> BuildRequest:
    return BuildRequest(chain("a", "b"), Variant.of(precision, target=target, **more))


def engine(layer: str, version: str = NEW) -> Engine:
    layers = (Layer(layer, layer, "kgen", 0, origins=("a", "b")),)
    return Engine("tensorrt-rtx", version, Target("sm86"), layers, maker=compiler_info.TENSORRT_RTX)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Two builds, one of an older release, and a refusal; the package is not installed."""
    monkeypatch.setattr(recorded, "folder", lambda: tmp_path / "recordings")
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "none"))
    real = compilers.importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "tensorrt_rtx" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", hidden)
    # What other tests registered would be a builder, too.
    for name in backends._REGISTERED:
        monkeypatch.delitem(backends.registry(), name, raising=False)
    held = {
        recorded.compute_key(request(), NEW): build.encode(engine("new")),
        recorded.compute_key(request(), OLD): build.encode(engine("old", OLD)),
        recorded.compute_key(request(target="sm120"), NEW): msgspec.json.encode(
            recorded.RecordedRefusal("No. Refused. Give up.", "log")
        ),
    }
    forget()
    recorded.write(
        {"some": held}, {recorded.shorten_structure(chain("a", "b").structure): [OLD, NEW]}, ["some"]
    )
    forget()
    yield tmp_path / "recordings"
    monkeypatch.undo()
    forget()


def forget() -> None:
    recorded.index.cache_clear()
    recorded.read_builds.cache_clear()


def test_a_build_is_found_and_says_that_it_was_recorded(shelf):
    found = recorded.find(request(), NEW)
    assert ("new",) == tuple(y.id for y in found.layers)
    assert found.recorded
    assert ("old",) == tuple(y.id for y in recorded.find(request(), OLD).layers)


def test_a_refusal_is_an_answer_too(shelf):
    with pytest.raises(BuildError, match=r"No\. Refused\. Give up\.") as caught:
        recorded.find(request(target="sm120"), NEW)
    assert "log" == caught.value.details


@pytest.mark.parametrize(
    "other",
    [
        request(target="sm89"), request("tf32"), request(sparsity=True),
        request(options=BuildOptions.of(max_aux_streams=0)),
        dataclasses.replace(request(), model=chain("a", "c")),
    ],
    ids=["target", "tf32", "sparsity", "options", "model"],
)  # fmt: skip
def test_another_request_is_not_taken_for_one_that_was_recorded(shelf, other):
    assert recorded.find(other, NEW) is None
    assert recorded.find(request(), "1.5.0.114") is None


def test_the_backend_gives_the_newest_and_a_release_its_own(shelf):
    newest = TensorRTRTX().build(request(), Silent())
    older = TensorRTRTX(compilers.named("1.6")).build(request(), Silent())
    assert (NEW, "tensorrt-rtx") == (newest.version, newest.backend)
    assert (OLD, f"tensorrt-rtx:{OLD}") == (older.version, older.backend)


def test_a_sweep_keeps_recorded_builds_and_refusals(shelf, tmp_path):
    """A worker finds the release that the variant was planned with."""
    grid = rtlab.grid(chain("a", "b"), target=["sm86", "sm120"], backend="tensorrt-rtx")
    rows = rtlab.Store(tmp_path / "runs").run(grid, budget_s=0).rows()

    assert [("built", f"tensorrt-rtx {NEW}"), ("failed", f"tensorrt-rtx {NEW}")] == sorted(
        (row.status, row.compiler) for row in rows
    )
    assert {"No. Refused. Give up.", ""} == {row.error for row in rows}


def test_what_nobody_recorded_says_what_to_do(shelf):
    with pytest.raises(Unavailable, match=f"none of those recorded with TensorRT-RTX {NEW}"):
        TensorRTRTX().build(request(target="sm80"), Silent())


def test_a_model_with_builds_gets_the_backend_and_another_does_not(shelf):
    known, own = chain("a", "b"), chain("a", "c")
    assert "tensorrt-rtx" == usual_builder(known) == builder_for(None, None, model=known)
    assert "tensorrt-rtx" not in {usual_builder(own), usual_builder(), builder_for(None, None, model=own)}
    assert f"tensorrt-rtx:{OLD}" == builder_for(None, "sm86", "1.6", known)
    for asked in (("tensorrt-rtx", None, None), (None, "sm86", None), (None, None, "1.7")):
        with pytest.raises(Unavailable):
            builder_for(*asked, own)


def test_releases_are_listed_as_recorded_and_cannot_be_removed(shelf):
    known = compilers.known()
    assert [(OLD, f"tensorrt-rtx:{OLD}"), (NEW, "tensorrt-rtx")] == [(c.version, c.backend) for c in known]
    assert {"recorded builds only"} == {c.words for c in known}
    assert not any(c.own for c in known)
    assert "not installed" in known[0].tried().refusal
    with pytest.raises(VariantError, match="a part of rtlab"):
        compilers.remove("1.6")


def test_where_the_compiler_is_here_nothing_recorded_is_shown(shelf, monkeypatch):
    monkeypatch.setattr(TensorRTRTX, "_uses_recordings", False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: compilers)
    monkeypatch.setattr(
        compilers, "_get_environment_release", lambda: compilers.Compiler("1.9", "tensorrt-rtx")
    )
    assert ("1.9",) == tuple(c.version for c in compilers.known())
    assert not TensorRTRTX().capabilities().recalls


def test_a_damaged_list_is_no_list_and_a_damaged_file_is_told(shelf):
    (shelf / "some.xz").write_bytes(b"not xz")
    with pytest.raises(ReadError, match="Cannot read the recorded builds"):
        recorded.find(request(), NEW)
    (shelf / recorded.INDEX).write_bytes(b'{"schema": 1, "models"')
    forget()
    assert () == recorded.releases()
    assert recorded.find(request(), NEW) is None


def test_the_key_tells_tf32_from_fp32_and_not_one_calibrator_from_another():
    """Calibrators differ in numbers, and layers do not follow from them."""
    int8 = [request("int8", calibrator=c) for c in ("minmax", "entropy")]
    assert recorded.compute_key(int8[0], NEW) == recorded.compute_key(int8[1], NEW)
    assert Precision.TF32 is request("tf32").variant.precision
    assert recorded.compute_key(request(), NEW) != recorded.compute_key(request("tf32"), NEW)


def test_what_did_not_change_is_not_written_again(shelf) -> None:
    builds = {"some": {"k": b"1"}, "other": {"l": b"2"}}
    before = {p.name: p.read_bytes() for p in shelf.iterdir()}
    recorded.write(builds, {}, ["other"])
    after = {p.name: p.read_bytes() for p in shelf.iterdir()}
    assert {"other.xz", recorded.INDEX} == {n for n in after if after[n] != before.get(n)}
