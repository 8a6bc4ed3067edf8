"""Building with TensorRT, against a stand-in that is generated from the lists of the real bindings."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from fake_gpu import VERSIONS, Here, needs_api
from nets import graph
from rtlab import backends
from rtlab.backends.tensorrt import TensorRT, TensorRTRTX, build_plan
from rtlab.backends.workers import driver
from rtlab.core.engine import Engine
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import Availability, BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, Unavailable, VariantError


def model(batch: int | str = "n"):
    """Twice x, then relu; the inner value has a name that no listing survives."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["inner}, Datatype: Half"], "dou]ble"),
        helper.make_node("Relu", ["inner}, Datatype: Half"], ["y"], "relu"),
    ]
    return graph(nodes, *([(n, TensorProto.FLOAT, [batch, 4])] for n in "xy"), {})


def build(release="trt10", precision="fp32", *, of=None, request=None, **options: Any) -> Engine:
    variant = Variant.of(precision, **{"target": "sm86", **(of or {}), "options": BuildOptions.of(**options)})
    asked = BuildRequest(**{"model": model(), **(request or {}), "variant": variant})
    return Here(release).build(asked, Silent())


def configured(engine: Engine) -> dict[str, Any]:
    """How the builder was set up, as the stand-in logged it."""
    found: dict[str, Any] = json.loads(re.findall(r"^CONFIGURED (.*)$", engine.log, re.MULTILINE)[-1])
    return found


@needs_api
@pytest.mark.parametrize("release", VERSIONS)
def test_an_engine_tells_layers_nodes_device_and_totals_and_runs(release: str):
    source, backend = model(), Here(release)
    engine = backend.build(BuildRequest(source, Variant.of("fp32", target="sm86")), Silent())
    assert [n.id for n in source.nodes] == [o for layer in engine.layers for o in layer.origins]
    told = (engine.backend, engine.version, str(engine.target), engine.device)
    assert ("tensorrt", VERSIONS[release], "sm86", "Fake GPU") == told
    assert {"activation", "weights"} <= engine.totals.keys()
    assert None not in {engine.plan, engine.built}
    assert (["x"], ["y"]) == ([t.name for t in engine.inputs], [t.name for t in engine.outputs])
    told = configured(engine)
    assert (True, True, "DETAILED") == (told["strong"], told["debug"], told["state"]["profiling_verbosity"])
    # FP32 means FP32: the flag is set by default.
    assert ([], []) == (told["flags"], told["profiles"])
    x = np.array([[1, -2, 3, -4]], np.float32)
    np.testing.assert_array_equal(np.maximum(2 * x, 0), backend.outputs(engine, {"x": x})["y"])
    backend.release(engine)


@needs_api
def test_options_arrive_by_tensorrts_own_names():
    attributes = {"builder_optimization_level": 5, "max_aux_streams": 0, "tiling_optimization_level": "FULL"}
    engine = build(
        **attributes, flags=["STRICT_NANS", "TF32"], pools={"WORKSPACE": 1 << 30},
        tactic_sources=["JIT_CONVOLUTIONS", "EDGE_MASK_CONVOLUTIONS"], preview_features=["ALIASED_PLUGIN_IO_10_03"],
    )  # fmt: skip
    told = configured(engine)
    assert attributes == {k: told["state"][k] for k in attributes}
    assert ["STRICT_NANS", "TF32"] == told["flags"]
    assert {"WORKSPACE": 1 << 30} == told["pools"]
    assert 0b11000 == told["tactics"]
    assert ["ALIASED_PLUGIN_IO_10_03"] == told["preview"]
    # What the user says of a flag counts after what the precision says.
    assert ["TF32"] == configured(build(precision="tf32"))["flags"]
    assert [] == configured(build(precision="tf32", cleared=["TF32"]))["flags"]


@needs_api
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"builder_optimisation_level": 5}, "Did you mean builder_opt"),
        ({"builder_optimization_level": 9}, "it keeps 5"),
        ({"builder_optimization_level": "high"}, "is a str. Give a value like the default, 3"),
        ({"tiling_optimization_level": "FULLL"}, "Did you mean FULL?.*NONE, FAST, MODERATE, FULL"),
        ({"flags": ["STRICT_NAN"]}, "Did you mean STRICT_NANS"), ({"cleared": ["TF31"]}, "Did you mean TF32"),
        ({"flags": ["FP16"]}, 'precision="fp16"'), ({"pools": {"WORK": 1}}, "Did you mean WORKSPACE"),
        ({"pools": {"DLA_LOCAL_DRAM": 1}}, "there is no DLA"),
        ({"tactic_sources": ["CUDN"]}, "Did you mean CUDNN"),
        ({"profiling_verbosity": "NONE"}, "rtlab needs DETAILED"),
        ({"int8_calibrator": 1}, "Choose calibrator="),
        ({"profiles": [{"z": ([1], [1], [1])}]}, '"z", and the model has none.*"x"'),
    ],
)  # fmt: skip
def test_an_option_that_does_not_exist_or_fit_is_refused_with_what_does(options: dict[str, Any], said: str):
    with pytest.raises(VariantError, match=said):
        build(**options)


@needs_api
def test_what_exists_depends_on_the_release():
    """CUDNN is a tactic source of 10 and not of 11."""
    assert 4 == configured(build("trt10", tactic_sources=["CUDNN"]))["tactics"]
    with pytest.raises(VariantError, match=r'TensorRT 11\.4\.0\.106 has no member of tactic_sources "CUDNN"'):
        build("trt11", tactic_sources=["CUDNN"])


@needs_api
def test_profiles_are_added_in_order_and_completed():
    engine = build(profiles=[{"x": ((1, 4), (2, 4), (4, 4))}, {}])
    assert [{"x": [[1, 4], [2, 4], [4, 4]]}, {"x": [[1, 4]] * 3}] == configured(engine)["profiles"]
    assert ((("x", ((1, 4), (2, 4), (4, 4))),), (("x", ((1, 4),) * 3),)) == engine.profiles


@needs_api
def test_a_shape_tensor_gets_values_or_is_named():
    node = helper.make_node("Reshape", ["x", "to"], ["y"], "reshape")
    inputs = [("x", TensorProto.FLOAT, [2, 4]), ("to", TensorProto.INT64, [2])]
    shaped = graph([node], inputs, [("y", TensorProto.FLOAT, ["a", "b"])], {})
    with pytest.raises(BuildError, match='lacks input "to"'):
        build(request={"model": shaped})
    # The stand-in cannot run it; that the values arrived is in the log.
    options = BuildOptions.of(profiles=[{"to": ((1, 1), (2, 4), (8, 8))}])
    request = BuildRequest(shaped, Variant.of("fp32", target="sm86", options=options))
    plan = build_plan(request, Silent(), Here("trt10"), times=True, runs=False)
    assert ['"to": ["values", [1, 1], [2, 4], [8, 8]]'] == re.findall(r'"to": \["values".*?\]\]', plan.log)


@needs_api
def test_a_timing_cache_is_written_read_and_replaced(tmp_path: Path):
    file = tmp_path / "timing"
    build(timing_cache=file)
    assert b"TC:10.16.1.11:here:1" == file.read_bytes()
    assert not [n for n in build(timing_cache=file).notes if "timing" in n]
    assert b"TC:10.16.1.11:here:2" == file.read_bytes()
    for wrong in (b"\xff\x00garbage", b"TC:10.16.1.11:there:7", b"TC:8.6.1:here:7", b"none"):
        file.write_bytes(wrong)
        assert 1 == sum("timing cache replaced" in n for n in build(timing_cache=file).notes)
        assert b"TC:10.16.1.11:here:1" == file.read_bytes()
    assert [file] == list(tmp_path.iterdir())
    # The engine is worth more than its cache.
    for lost, said in ((tmp_path / "missing" / "timing", "not kept"), (tmp_path, "not read")):
        assert [n for n in build(timing_cache=lost).notes if said in n]


@needs_api
def test_another_target_than_the_gpu_is_refused():
    with pytest.raises(VariantError, match=r'Fake GPU\. Choose target="sm86"'):
        build(of={"target": "sm89"})


def test_without_a_gpu_or_package_the_reason_tells_both(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        driver, "_look", lambda: "no NVIDIA driver is installed. Install the driver of the GPU"
    )
    found = importlib.util.find_spec
    without = lambda name, *rest: None if name == "tensorrt" else found(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    backend = TensorRT()
    reason = backend.availability().reason
    assert "no NVIDIA driver is installed" in reason
    assert 'backend="tensorrt-rtx"' in reason
    assert '"tensorrt>=10.3" is not installed' in reason
    assert () == backend.capabilities().targets
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        backend.build(BuildRequest(model(), Variant.of("fp32", target="sm86")), Silent())


@pytest.mark.parametrize("usable", [True, False])
def test_the_registry_offers_it_first_where_it_can_be_used(usable: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TensorRT, "availability", lambda _: Availability(ok=usable))
    names = list(backends.registry.__wrapped__())
    assert "tensorrt" in names
    assert usable == (names[0] == "tensorrt")


@pytest.mark.parametrize(("sm", "runs"), [(86, True), (120, True), (90, False)])
def test_rtx_runs_engines_on_gpus_that_it_compiles_for(sm: int, runs: bool, monkeypatch: pytest.MonkeyPatch):
    # TensorRT-RTX 1.7.1 on an H200 loads none of its own plans.
    gpu = driver.Device("Some GPU", sm, "13.0")
    monkeypatch.setattr(TensorRTRTX, "device", property(lambda _: gpu))
    assert runs == TensorRTRTX().capabilities().runs
