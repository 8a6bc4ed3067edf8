"""The child's side of running engines, against stand-ins generated from the lists of the three bindings."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fake_trt
from fake_trt import Spec, gpu, layers_of, plan
from rtlab.backends.live import listening, loaded, values
from rtlab.backends.live.driver import Device
from rtlab.backends.live.order import OpenOrder
from rtlab.backends.live.sensors import Sensors, sensors
from rtlab.errors import ReadError, RunError, Unavailable

pytestmark = pytest.mark.skipif(
    not fake_trt.LISTS.is_dir(), reason="no ../shared/reference beside the checkout"
)
RECORDED = Path(__file__).parents[4] / "shared" / "recorded" / "engines"
DEVICE = Device("Fake GPU", 86, "12.9")
PRODUCTS = {"fake_trt.trt10": "TensorRT", "fake_trt.trt11": "TensorRT", "fake_trt.rtx": "TensorRT-RTX"}
every = pytest.mark.parametrize("binding", fake_trt.BINDINGS)
X = np.array([[1, -2, 3, -4], [5, 6, -7, 8]], np.float32)


class Report:
    """Takes what is reported."""

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self, steps: int = 1) -> None: ...


@pytest.fixture(autouse=True)
def _clean():
    """Whatever a test does, memory and streams of the device are given back at its end."""
    gpu.memory.clear()
    gpu.streams.clear()
    gpu.limit, gpu.fault = 1 << 30, 0
    yield
    gpu.fault = 0
    loaded.close_plan(None, Report())
    assert {} == gpu.memory
    assert {} == gpu.streams


def model(dtype: int = TensorProto.FLOAT, batch: int | str = "n") -> onnx.ModelProto:
    """Value x -> double -> relu -> y, where relu's input ``t`` is an inner tensor and ``u`` another."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["t"], "double"),
            helper.make_node("Relu", ["t"], ["u"], "relu"),
            helper.make_node("Add", ["u", "u"], ["y"], "again"),
        ],
        "g",
        [helper.make_tensor_value_info("x", dtype, [batch, 4])],
        [helper.make_tensor_value_info("y", dtype, [batch, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def spec(binding: str = "fake_trt.trt10", onnx_model: onnx.ModelProto | None = None, **changed: Any) -> Spec:
    """A plan in which double and relu are one layer, so that ``t`` is gone."""
    found = onnx_model or model()
    groups = [["double", "relu"], ["again"]] if onnx_model is None else [[n.name] for n in found.graph.node]
    usual: dict[str, Any] = {
        "rows": (("double + relu", 0.25), ("again", 0.5)),
        "profiles": ({"x": ((1, 4), (2, 4), (8, 4))},),
        "inner": ("u",),
    }
    era = 11 if binding.endswith("11") else 10
    return Spec(binding, found.SerializeToString(), layers_of(found, groups, era=era), **usual | changed)


def order(data: bytes, binding: str = "fake_trt.trt10") -> OpenOrder:
    doing = 'Backend "fake" cannot run'
    return OpenOrder(binding, PRODUCTS[binding], data, doing, DEVICE, "fake_trt", "fake_trt")


def opened(made: Spec) -> loaded.EngineFacts:
    return loaded.open_plan(order(plan(made), made.binding), Report())


def run(feed: dict[str, Any], *names: str) -> dict[str, Any]:
    return loaded.outputs((feed, names), Report())


@every
def test_an_opened_engine_tells_its_layers_ports_and_memory(binding):
    facts = opened(spec(binding))
    assert fake_trt.api(binding).version == facts.version
    assert ["x", "y"] == [p.name for p in facts.ports]
    assert [True, False] == [p.reads for p in facts.ports]
    assert ["fp32", "fp32"] == [p.dtype for p in facts.ports]
    assert (-1, 4) == facts.ports[0].shape
    assert (((1, 4), (2, 4), (8, 4)),) == facts.ports[0].ranges
    assert (1, 2, 4096, 1000) == (facts.profiles, facts.aux_streams, facts.memory, facts.weights)
    assert "detailed" == facts.verbosity
    names = [layer["Name"] for layer in json.loads(facts.layers, strict=False)["Layers"]]
    assert ["double + relu", "again"] == names


@every
def test_dimensions_are_told_because_all_shapes_are_set(binding):
    """Without a context whose shapes are set, the inspector writes -1."""
    layers = json.loads(opened(spec(binding)).layers, strict=False)["Layers"]
    assert [[1, 4]] * 2 == [y["Outputs"][0]["Dimensions"] for y in layers]


@every
def test_outputs_are_those_of_the_model(binding):
    opened(spec(binding))
    found = run({"x": X})
    assert ["y"] == list(found)
    np.testing.assert_array_equal(4 * np.maximum(X, 0), found["y"])


@every
def test_inner_tensors_come_through_debug_tensors_and_the_rest_directly(binding):
    opened(spec(binding))
    found = run({"x": X}, "u", "y", "x")
    assert ["u", "y", "x"] == list(found)
    np.testing.assert_array_equal(np.maximum(2 * X, 0), found["u"])
    np.testing.assert_array_equal(4 * np.maximum(X, 0), found["y"])
    np.testing.assert_array_equal(X, found["x"])


def test_a_tensor_marked_at_the_build_needs_no_unfused_state():
    opened(spec(inner=None, marked=("t",)))
    np.testing.assert_array_equal(2 * X, run({"x": X}, "t")["t"])


def test_batches_of_other_shapes_follow_one_another():
    opened(spec())
    for n in (1, 8, 3):
        x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        np.testing.assert_array_equal(4 * x, run({"x": x})["y"])


def test_a_fused_value_is_told_with_near_ones():
    opened(spec())
    with pytest.raises(RunError) as caught:
        run({"x": X}, "u2")
    assert (
        'Backend "fake" cannot run: the value "u2" does not exist in the engine: it was fused away, folded or '
        'renamed. Choose one that does; near ones are "u".'
    ) == str(caught.value)
    assert "u" in caught.value.details.splitlines()


def test_an_engine_without_debug_tensors_says_so():
    opened(spec(inner=None))
    with pytest.raises(
        RunError, match='shows no inner tensors, such as "t"; it was built without debug tensors'
    ):
        run({"x": X}, "t")


def test_a_release_without_unfused_tensors_says_so(monkeypatch):
    """TensorRT 10.3 lists no such state; here it is taken off the stand-in."""
    opened(spec())
    monkeypatch.delattr(
        fake_trt.api("fake_trt.trt10").classes["IExecutionContext"], "unfused_tensors_debug_state"
    )
    with pytest.raises(
        RunError, match=r'"u" was not marked as a debug tensor at the build, and TensorRT 10\.16'
    ):
        run({"x": X}, "u")


def test_a_release_that_does_not_tell_the_weights_leaves_them_out(monkeypatch):
    monkeypatch.delattr(fake_trt.api("fake_trt.trt10").classes["ICudaEngine"], "get_engine_stat")
    assert opened(spec()).weights is None


@pytest.mark.parametrize("shape", [(9, 4), (0, 4), (2, 5), (2,)])
def test_a_shape_out_of_range_is_refused_with_the_range(shape):
    opened(spec())
    with pytest.raises(RunError) as caught:
        run({"x": np.zeros(shape, np.float32)})
    text = "×".join(map(str, shape))
    assert f'input "x" has shape {text}, and the engine takes 1×4 to 8×4. Give a batch within that' in str(
        caught.value
    )


def test_the_profile_that_holds_the_shapes_is_chosen():
    opened(spec(profiles=({"x": ((1, 4), (1, 4), (2, 4))}, {"x": ((3, 4), (4, 4), (9, 4))})))
    x = np.ones((9, 4), np.float32)
    np.testing.assert_array_equal(4 * x, run({"x": x})["y"])
    with pytest.raises(RunError, match="takes profile 0: 1×4 to 2×4; profile 1: 3×4 to 9×4"):
        run({"x": np.ones((10, 4), np.float32)})


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        ({}, 'input "x" is missing. Give all inputs of the engine: "x".'),
        ({"x": X, "z": X}, 'the engine has no input "z". Its inputs are "x".'),
        (
            {"x": X.astype(np.float64)},
            'input "x" is float64, and the engine takes float32. Convert it with .astype("float32").',
        ),
    ],
)
def test_a_feed_that_does_not_fit_is_refused(feed, told):
    opened(spec())
    with pytest.raises(RunError) as caught:
        run(feed)
    assert f'Backend "fake" cannot run: {told}' == str(caught.value)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.INT32, np.int32),
        (TensorProto.INT64, np.int64),
    ],
)
@every
def test_other_types_keep_their_values(binding, number, dtype):
    opened(spec(binding, model(number)))
    x = np.array([[1, 2, 300, 4]]).astype(dtype)
    found = run({"x": x}, "u", "y")
    assert np.dtype(dtype) == found["y"].dtype == found["u"].dtype
    np.testing.assert_array_equal(x + x, found["u"])
    np.testing.assert_array_equal((4 * x.astype(np.float64)).astype(dtype), found["y"])


@pytest.mark.parametrize(("kind", "op"), [(TensorProto.BOOL, "Not"), (TensorProto.FLOAT8E4M3FN, "Identity")])
def test_bool_and_fp8_keep_their_values(kind, op):
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], "only")],
        "g",
        [helper.make_tensor_value_info("x", kind, [3])],
        [helper.make_tensor_value_info("y", kind, [3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    opened(spec(onnx_model=made, profiles=()))
    x = np.array([0, 1, 1]).astype(bool if op == "Not" else ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(~x if op == "Not" else x, run({"x": x})["y"])


@pytest.mark.parametrize("member", ["INT4", "FP4"])
def test_half_byte_values_survive_the_way_through_bytes(member):
    """An odd number of values leaves half a byte over."""
    dtype = values.dtype(member)
    array = np.array([[-2, 1, 0], [4, -1, -4], [2, -3, 3]]).astype(dtype)
    raw = values.raw(array, member)
    assert 5 == len(raw) == values.size(member, (3, 3))
    np.testing.assert_array_equal(fake_trt._pack(array), raw)
    np.testing.assert_array_equal(array, values.unpacked(raw, member, (3, 3)))


def test_every_type_of_every_binding_has_one_here():
    listed = {m.name for b in fake_trt.BINDINGS for m in fake_trt.api(b).classes["DataType"]}
    assert listed == {m for m in listed if values.dtype(m) is not None and values.name(m)}


def counting() -> onnx.ModelProto:
    """Positions of values other than zero: how many there are is known only after the run."""
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"], "find")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, "k"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@every
def test_an_output_whose_size_depends_on_values_gets_memory_during_the_run(binding):
    opened(spec(binding, counting(), unknown=("y",)))
    x = np.array([[0, 1, 0, 2], [3, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(np.nonzero(x), run({"x": x})["y"])


def test_an_empty_output_is_an_empty_array():
    opened(spec(onnx_model=counting(), unknown=("y",)))
    assert (2, 0) == run({"x": np.zeros((1, 4), np.float32)})["y"].shape


def test_tensors_on_the_host_are_given_and_taken_there():
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "s"], ["y"], "shape"),
            helper.make_node("Shape", ["y"], ["k"], "ask"),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [2]),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    opened(spec(onnx_model=made, host=("s", "k")))
    found = run({"x": X, "s": np.array([4, 2])})
    np.testing.assert_array_equal(X.reshape(4, 2), found["y"])
    np.testing.assert_array_equal([4, 2], found["k"])


def test_a_vector_layout_at_the_edge_is_refused():
    opened(spec(formats={"y": "CHW32"}))
    with pytest.raises(RunError, match='"y" has the memory layout "CHW32"'):
        run({"x": X})


@every
def test_a_profile_has_one_sample_per_run_and_layer(binding):
    opened(spec(binding))
    timed = loaded.profile(({"x": X}, 6, 2, None), Report())
    assert (6,) == timed.total.shape == timed.profiled.shape
    assert {("double + relu", 0), ("again", 0)} == set(timed.layers)
    # Two runs to warm up, six without and one with a profiler come before: the stand-in varies times by run.
    wanted = [0.5 * (1 + 0.01 * ((10 + i) % 5)) for i in range(6)]
    np.testing.assert_allclose(wanted, timed.layers["again", 0])
    assert (timed.total > 0).all()


def test_a_name_that_reports_twice_in_an_inference_keeps_both_times():
    opened(spec(rows=(("loop", 1.0), ("loop", 2.0))))
    timed = loaded.profile(({"x": X}, 5, 0, None), Report())
    ratio = timed.layers["loop", 1] / timed.layers["loop", 0]
    np.testing.assert_allclose(np.full(5, 2.0), ratio)


def test_a_profile_tells_clocks_and_temperature_before_and_after():
    opened(spec())
    timed = loaded.profile(({"x": X}, 1, 0, None), Report())
    assert (1410, 1215) == (timed.before.clock, timed.before.memory_clock)
    assert timed.before.celsius < timed.after.celsius
    assert f"1410 MHz, memory 1215 MHz, {timed.after.celsius} °C" == str(timed.after)


def test_sensors_without_a_library_or_for_an_unknown_device_are_not_told():
    assert Sensors() == sensors("ctypes", "0000:01:00.0")
    assert Sensors() == sensors("fake_trt", "0000:99:00.0")
    assert "not told" == str(Sensors())


@every
def test_throughput_counts_finished_inferences_of_all_streams(binding):
    opened(spec(binding))
    gpu.done = 0
    counted = loaded.throughput(({"x": X}, 3, 0.05, 1), Report())
    # Each stream warms up with one, which is not counted.
    assert gpu.done - 3 == counted.inferences
    assert counted.seconds >= 0.05
    assert 0 == counted.inferences % 3
    assert counted.inferences >= 6


@pytest.mark.parametrize(
    ("moment", "told"),
    [("shape", 'the shape of input "x" was refused'), ("enqueue", "the inference was refused")],
)
def test_what_tensorrt_refuses_is_told_in_its_words(moment, told):
    opened(spec(faults={moment: "Error Code 9: (no)"}))
    with pytest.raises(RunError) as caught:
        run({"x": X})
    assert f"{told}: Error Code 9: (no) See the error's details" in str(caught.value)
    assert "Error Code 9: (no)" in caught.value.details


def test_no_memory_for_a_context_is_told_as_such():
    with pytest.raises(RunError, match="the GPU has not enough free memory"):
        opened(spec(faults={"context": "Error Code 2: OutOfMemory (Requested size was 1 bytes.)"}))


def test_no_memory_for_tensors_is_told_as_such():
    opened(spec())
    gpu.limit = 40
    with pytest.raises(RunError, match=r"the GPU has not enough free memory\. Close what else uses it"):
        run({"x": X})


def test_no_memory_for_an_output_of_unknown_size_is_an_error_of_the_run():
    opened(spec(onnx_model=counting(), unknown=("y",)))
    gpu.limit = 60
    with pytest.raises(RunError, match="the GPU has not enough free memory"):
        run({"x": np.ones((2, 4), np.float32)})


def test_a_failing_stream_names_the_cuda_error():
    opened(spec())
    gpu.fault = 700
    with pytest.raises(RunError, match="CUDA Error: 700"):
        run({"x": X})


def test_times_that_are_not_reported_are_an_error():
    opened(spec(faults={"report": "Error Code 3: no profiler"}))
    with pytest.raises(RunError, match="the times of layers were not reported: Error Code 3: no profiler"):
        loaded.profile(({"x": X}, 2, 0, None), Report())


def test_a_refused_listener_is_an_error():
    opened(spec(faults={"listener": "Error Code 3: no"}))
    with pytest.raises(RunError, match="the listener for inner tensors was refused"):
        run({"x": X}, "u")


def test_what_an_earlier_run_logged_is_not_told_again():
    opened(spec(faults={"listener": "Error Code 3: of old"}))
    with pytest.raises(RunError, match="of old"):
        run({"x": X}, "u")
    gpu.fault = 700
    with pytest.raises(RunError) as caught:
        run({"x": X})
    assert "of old" not in f"{caught.value} {caught.value.details}"


def test_running_before_opening_is_refused():
    with pytest.raises(RunError, match="no engine is open"):
        run({"x": X})


@pytest.mark.parametrize(
    ("binding", "told"),
    [
        (
            "fake_trt.trt10",
            "built with another version (serialization version 236, here 239), and here is TensorRT 10.16.1.11",
        ),
        ("fake_trt.trt11", "built with 9.9.9, and here is TensorRT 11.4.0.106"),
        ("fake_trt.rtx", "built with 9.9.9, and here is TensorRT-RTX 1.7.1.116"),
    ],
)
def test_a_plan_of_another_version_is_refused_with_both(binding, told):
    with pytest.raises(Unavailable) as caught:
        opened(spec(binding, version="9.9.9"))
    assert told in str(caught.value)
    assert "on Fake GPU (sm86). A plan runs only with the version and on the kind of GPU" in str(caught.value)
    assert "trtexec --exportLayerInfo=layers.json" in str(caught.value)


@every
def test_a_plan_of_another_gpu_is_refused_with_both(binding):
    with pytest.raises(
        Unavailable, match=r"it was built for compute capability 7\.5, and here is .* Fake GPU \(sm86\)"
    ):
        opened(spec(binding, sm="7.5"))


@every
@pytest.mark.parametrize("damage", ["json", "cut", "empty", "zeros"])
def test_bytes_that_are_no_whole_plan_are_a_read_error(binding, damage):
    whole = plan(spec(binding))
    data = {"json": b"{}", "cut": whole[:-20], "empty": b"", "zeros": bytes(999)}[damage]
    with pytest.raises(ReadError, match="it is no whole plan of TensorRT"):
        loaded.open_plan(order(data, binding), Report())


def test_a_missing_driver_is_unavailable():
    said = "Error Code 1: Cuda Runtime (cudaError 35: CUDA driver version is insufficient for CUDA runtime version)"
    with pytest.raises(Unavailable, match="no NVIDIA driver or GPU is found"):
        opened(spec(faults={"deserialize": said}))


def test_a_failure_leaves_no_engine_open():
    opened(spec())
    with pytest.raises(ReadError):
        loaded.open_plan(order(b""), Report())
    with pytest.raises(RunError, match="no engine is open"):
        run({"x": X})


RECORDINGS = sorted(
    p for p in RECORDED.glob("*/engine.graph.json") if p.with_name("engine.profile.json").exists()
)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda p: p.parent.name)
@every
def test_recorded_layers_and_times_pass_through_whole(binding, file):
    text = file.read_text(encoding="utf-8")
    table = json.loads(file.with_name("engine.profile.json").read_text(encoding="utf-8"), strict=False)
    rows = tuple((r["name"], r["averageMs"]) for r in table if "name" in r)
    facts = opened(dataclasses.replace(spec(binding), layers=text, rows=rows))
    assert text == facts.layers
    timed = loaded.profile(({"x": X}, 2, 0, None), Report())
    places = [sum(n == name for n, _ in rows[:i]) for i, (name, _) in enumerate(rows)]
    assert {(name, place) for (name, _), place in zip(rows, places, strict=True)} == set(timed.layers)


@every
def test_the_stand_in_refuses_what_is_not_listed(binding):
    """Else a misspelt name in rtlab would pass here and fail on the user's GPU."""
    trt = fake_trt.sys.modules[binding]
    with pytest.raises(AttributeError):
        _ = trt.IEngineInspector
    with pytest.raises(AttributeError):
        _ = trt.DataType.FLOAT32
    logger = listening.message_logger(trt, print)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan(spec(binding)))
    for name in ("num_bindings", "get_binding_name", "create_inspector"):
        with pytest.raises(AttributeError):
            getattr(engine, name)
    context = engine.create_execution_context()
    with pytest.raises(AttributeError):
        context.profiller = None
    with pytest.raises(AttributeError):
        context.set_binding_shape(0, (1,))
    with pytest.raises(TypeError, match="incompatible function arguments"):
        context.set_input_shape("x", 3)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        context.execute_async_v3(stream="s")
    with pytest.raises(TypeError, match="incompatible function arguments"):
        engine.get_tensor_name(name="x")
    with pytest.raises(TypeError, match="No constructor defined"):
        trt.ICudaEngine()


def test_members_that_only_some_bindings_have_stay_apart():
    ten, eleven, rtx = (fake_trt.api(b).classes for b in fake_trt.BINDINGS)
    assert [True, False, False] == [
        hasattr(c["ICudaEngine"], "device_memory_size") for c in (ten, eleven, rtx)
    ]
    assert [False, False, True] == [hasattr(c["Runtime"], "get_engine_validity") for c in (ten, eleven, rtx)]


def test_an_object_whose_base_was_not_initialized_is_refused():
    """The real bindings refuse it as well."""
    trt = fake_trt.sys.modules["fake_trt.trt10"]

    class Logger(trt.ILogger):
        def __init__(self) -> None: ...

    with pytest.raises(TypeError, match="incompatible"):
        trt.Runtime(Logger())


def test_every_listed_signature_of_the_runtime_parses():
    for binding, cls in itertools.product(
        fake_trt.BINDINGS, ["ICudaEngine", "IExecutionContext", "Runtime", "EngineInspector"]
    ):
        listed = json.loads((fake_trt.LISTS / f"{fake_trt.BINDINGS[binding]}.json").read_text())["classes"][
            cls
        ]
        unread = [
            s
            for kind in listed.values()
            if isinstance(kind, list)
            for s in kind
            if fake_trt._parameters(s) is None
        ]
        assert [] == unread
