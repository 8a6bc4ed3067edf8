"""The child's side of running engines, against stand-ins with the names of the three bindings."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fake_trt
from fake_gpu import DEVICE, needs_api
from fake_trt import Spec, gpu, layers_of, plan
from rtlab.backends.workers import execution_context, loaded
from rtlab.backends.workers.execution_context import EnginePort, OpenSpec
from rtlab.core.progress import Silent
from rtlab.errors import ReadError, RunError, Unavailable

pytestmark = needs_api
every = pytest.mark.parametrize("binding", fake_trt.BINDINGS)
X = np.array([[1, -2, 3, -4], [5, 6, -7, 8]], np.float32)


@pytest.fixture(autouse=True)
def _clean():
    """Whatever a test does, memory and streams of the device are given back at its end."""
    gpu.memory.clear()
    gpu.streams.clear()
    gpu.limit, gpu.fault = 1 << 30, 0
    yield
    gpu.fault = 0
    loaded.close_plan(None, Silent())
    assert ({}, {}) == (gpu.memory, gpu.streams)


def network(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.ModelProto:
    """A model of nodes, (op, inputs, output) each, and of edges by name: (type, shape)."""
    made = [helper.make_node(op, reads, [writes], f"{op}_{i}") for i, (op, reads, writes) in enumerate(nodes)]
    edges = [[helper.make_tensor_value_info(n, *e) for n, e in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph(made, "g", *edges)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def model(dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Value x -> double -> relu -> y, where relu's input ``t`` is an inner tensor and ``u`` another."""
    nodes = [("Add", ["x", "x"], "t"), ("Relu", ["t"], "u"), ("Add", ["u", "u"], "y")]
    return network(nodes, {"x": (dtype, ["n", 4])}, {"y": (dtype, ["n", 4])})


def spec(binding: str = "fake_trt.trt10", onnx_model: onnx.ModelProto | None = None, **changed: Any) -> Spec:
    """A plan in which the first two nodes are one layer, so that ``t`` is gone."""
    proto = onnx_model or model()
    groups = [[n.name] for n in proto.graph.node]
    if onnx_model is None:
        groups = [groups[0] + groups[1], groups[2]]
    usual: dict[str, Any] = {
        "rows": (("Add_0 + Relu_1", 0.25), ("Add_2", 0.5)),
        "profiles": ({"x": ((1, 4), (2, 4), (8, 4))},),
        "inner": ("u",),
    }
    era = 11 if binding.endswith("11") else 10
    return Spec(binding, proto.SerializeToString(), layers_of(proto, groups, era=era), **usual | changed)


def opened(made: Spec, data: bytes | None = None) -> loaded.EngineFacts:
    product = "TensorRT-RTX" if made.binding.endswith("rtx") else "TensorRT"
    data = plan(made) if data is None else data
    order = OpenSpec(made.binding, product, data, "Cannot run", DEVICE, "fake_trt")
    return loaded.open_plan(order, Silent())


def run(feed: dict[str, Any], *names: str) -> dict[str, Any]:
    return loaded.outputs((feed, names), Silent())


@every
def test_an_opened_engine_tells_its_layers_ports_and_memory(binding):
    facts = opened(spec(binding))
    assert fake_trt.api(binding).version == facts.version
    assert [("x", True, "fp32"), ("y", False, "fp32")] == [(p.name, p.is_input, p.dtype) for p in facts.ports]
    assert (-1, 4) == facts.ports[0].shape
    assert (((1, 4), (2, 4), (8, 4)),) == facts.ports[0].ranges
    assert (2, 4096, {"weights": 1000}) == (facts.aux_streams, facts.memory, facts.weights)
    # Without a context whose shapes are set, the inspector writes -1.
    assert [("Add_0 + Relu_1", [1, 4]), ("Add_2", [1, 4])] == [
        (y["Name"], y["Outputs"][0]["Dimensions"]) for y in json.loads(facts.layers, strict=False)["Layers"]
    ]


@every
def test_outputs_and_inner_tensors_are_those_of_the_model(binding):
    """Inner ones come through debug tensors, the rest directly; batches of other shapes follow one another."""
    opened(spec(binding))
    assert ["y"] == list(run({"x": X}))
    found = run({"x": X}, "u", "y", "x")
    assert ["u", "y", "x"] == list(found)
    np.testing.assert_array_equal(np.maximum(2 * X, 0), found["u"])
    np.testing.assert_array_equal(4 * np.maximum(X, 0), found["y"])
    np.testing.assert_array_equal(X, found["x"])
    for n in (1, 8, 3):
        x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        np.testing.assert_array_equal(4 * x, run({"x": x})["y"])


def test_a_tensor_marked_at_the_build_needs_no_unfused_state():
    opened(spec(inner=None, marked=("t",)))
    np.testing.assert_array_equal(2 * X, run({"x": X}, "t")["t"])


def test_a_release_that_lacks_a_member_says_so_or_leaves_it_out(monkeypatch):
    classes = fake_trt.api("fake_trt.trt10").classes
    monkeypatch.delattr(classes["IExecutionContext"], "unfused_tensors_debug_state")
    monkeypatch.delattr(classes["ICudaEngine"], "get_engine_stat")
    assert not opened(spec()).weights
    with pytest.raises(RunError, match=r'"u" was not marked .* TensorRT 10\.16'):
        run({"x": X}, "u")


def test_the_profile_that_holds_the_shapes_is_chosen():
    opened(spec(profiles=({"x": ((1, 4), (1, 4), (2, 4))}, {"x": ((3, 4), (4, 4), (9, 4))})))
    x = np.ones((9, 4), np.float32)
    np.testing.assert_array_equal(4 * x, run({"x": x})["y"])
    with pytest.raises(RunError, match="takes 1×4 to 2×4; 3×4 to 9×4"):
        run({"x": np.ones((10, 4), np.float32)})


@pytest.mark.parametrize(
    ("feed", "names", "said"),
    [
        ({}, (), 'input "x" is missing'),
        ({"x": X, "z": X}, (), 'input "z" is unknown'),
        ({"x": X.astype(np.float64)}, (), "is float64, and the engine takes float32"),
        *(({"x": np.zeros(s, np.float32)}, (), "takes 1×4 to 8×4") for s in [(9, 4), (0, 4), (2, 5), (2,)]),
        ({"x": X}, ("u2",), 'shows no value "u2".* choose one of "u"'),
    ],
)
def test_a_request_that_does_not_fit_is_refused(feed, names, said):
    opened(spec())
    with pytest.raises(RunError, match=said):
        run(feed, *names)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16), (TensorProto.INT32, np.int32),
     (TensorProto.INT64, np.int64)],
)  # fmt: skip
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
    opened(spec(onnx_model=network([(op, ["x"], "y")], {"x": (kind, [3])}, {"y": (kind, [3])}), profiles=()))
    x = np.array([0, 1, 1]).astype(bool if op == "Not" else ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(~x if op == "Not" else x, run({"x": x})["y"])


@pytest.mark.parametrize("member", ["INT4", "FP4"])
def test_half_byte_values_survive_the_way_through_bytes(member):
    """An odd number of values leaves half a byte over; the first of two lies in the lower half."""
    array = np.array([[-2, 1, 0], [4, -1, -4], [2, -3, 3]]).astype(execution_context.get_dtype(member))
    raw = execution_context.pack(array, member)
    assert 5 == len(raw) == execution_context.count_bytes(member, (3, 3))
    np.testing.assert_array_equal(fake_trt._pack(array), raw)
    np.testing.assert_array_equal(array, execution_context.unpack(raw, member, (3, 3)))


def test_every_type_of_every_binding_has_one_here():
    listed = {m.name for b in fake_trt.BINDINGS for m in fake_trt.api(b).classes["DataType"]}
    assert listed == {
        m
        for m in listed
        if execution_context.get_dtype(m) is not None and EnginePort("", True, m, "", (), False).dtype
    }


#: Positions of values other than zero: how many there are is known only after the run.
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
COUNTING = network([("NonZero", ["x"], "y")], {"x": (FLOAT, ["n", 4])}, {"y": (INT64, [2, "k"])})


@every
@pytest.mark.parametrize("x", [[[0, 1, 0, 2], [3, 0, 0, 0]], [[0, 0, 0, 0]]], ids=["some", "none"])
def test_an_output_whose_size_depends_on_values_gets_memory_during_the_run(binding, x):
    opened(spec(binding, COUNTING, unknown=("y",)))
    np.testing.assert_array_equal(np.nonzero(x), run({"x": np.array(x, np.float32)})["y"])


def test_tensors_on_the_host_are_given_and_taken_there():
    made = network(
        [("Reshape", ["x", "s"], "y"), ("Shape", ["y"], "k")], {"x": (FLOAT, ["n", 4]), "s": (INT64, [2])},
        {"y": (FLOAT, ["a", "b"]), "k": (INT64, [2])},
    )  # fmt: skip
    opened(spec(onnx_model=made, host=("s", "k")))
    found = run({"x": X, "s": np.array([4, 2])})
    np.testing.assert_array_equal(X.reshape(4, 2), found["y"])
    np.testing.assert_array_equal([4, 2], found["k"])


@every
def test_a_profile_has_one_sample_per_run_and_layer(binding):
    opened(spec(binding))
    timed = loaded.profile(({"x": X}, 6, 2, None), Silent())
    assert (6,) == timed.total.shape == timed.profiled_total.shape
    assert {("Add_0 + Relu_1", 0), ("Add_2", 0)} == set(timed.layers)
    # Two runs to warm up, six without and one with a profiler come before: the stand-in varies times by run.
    wanted = [0.5 * (1 + 0.01 * ((10 + i) % 5)) for i in range(6)]
    np.testing.assert_allclose(wanted, timed.layers["Add_2", 0])
    assert (timed.total > 0).all()


def test_a_name_that_reports_twice_in_an_inference_keeps_both_times():
    opened(spec(rows=(("loop", 1.0), ("loop", 2.0))))
    timed = loaded.profile(({"x": X}, 5, 0, None), Silent())
    np.testing.assert_allclose(np.full(5, 2.0), timed.layers["loop", 1] / timed.layers["loop", 0])


@every
def test_throughput_counts_finished_inferences_of_all_streams(binding):
    opened(spec(binding))
    gpu.done = 0
    counted, seconds = loaded.throughput(({"x": X}, 3, 0.05, 1), Silent())
    # Each stream warms up with one, which is not counted.
    assert gpu.done - 3 == counted >= 6
    assert seconds >= 0.05
    assert 0 == counted % 3


def listening_run() -> None:
    run({"x": X}, "u")


def timed_run() -> None:
    loaded.profile(({"x": X}, 2, 0, None), Silent())


def plain_run() -> None:
    run({"x": X})


@pytest.mark.parametrize(
    ("changed", "act", "said"),
    [
        (
            {"faults": {"shape": "Error Code 9: (no)"}},
            plain_run,
            r'input "x" was refused: Error Code 9: \(no\)',
        ),
        ({"faults": {"enqueue": "Error Code 9: (no)"}}, plain_run, r"was refused: Error Code 9: \(no\)"),
        ({"faults": {"report": "Error Code 3: no"}}, timed_run, "not reported: Error Code 3: no"),
        ({"faults": {"listener": "Error Code 3: no"}}, listening_run, "listener .* was refused"),
        ({"inner": None}, listening_run, "without debug tensors"),
        ({"formats": {"y": "CHW32"}}, plain_run, '"CHW32"'),
        ({"limit": 40}, plain_run, "not enough free memory"),
        ({"limit": 60, "onnx_model": COUNTING, "unknown": ("y",)}, plain_run, "not enough free memory"),
        ({"fault": 700}, plain_run, "CUDA Error: 700"),
    ],
)
def test_what_fails_in_a_run_is_told_in_its_words(changed, act, said):
    limit, fault = changed.pop("limit", gpu.limit), changed.pop("fault", 0)
    opened(spec(**changed))
    gpu.limit, gpu.fault = limit, fault
    with pytest.raises(RunError, match=said):
        act()


def test_what_an_earlier_run_logged_is_not_told_again():
    opened(spec(faults={"listener": "Error Code 3: of old"}))
    with pytest.raises(RunError, match="of old"):
        run({"x": X}, "u")
    gpu.fault = 700
    with pytest.raises(RunError) as caught:
        run({"x": X})
    assert "of old" not in f"{caught.value} {caught.value.details}"


@every
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "9.9.9"}, r"{version}.* on Fake GPU \(sm86\)"),
        ({"sm": "7.5"}, r"capability 7\.5, and here is .* Fake GPU \(sm86\)"),
        ({"faults": {"deserialize": "Error Code 1: Cuda Runtime (cudaError 35: no)"}}, "no NVIDIA driver"),
    ],
)
def test_a_plan_of_another_place_is_refused_with_both(binding, changed, said):
    with pytest.raises(Unavailable, match=said.replace("{version}", fake_trt.api(binding).version)) as caught:
        opened(spec(binding, **changed))
    if "version" in changed:
        # TensorRT 10 names serialization versions only.
        assert ("236, here 239" if binding.endswith("10") else "9.9.9") in str(caught.value)


@every
@pytest.mark.parametrize("damage", ["json", "cut", "empty", "zeros"])
def test_bytes_that_are_no_whole_plan_are_a_read_error_and_leave_no_engine_open(binding, damage):
    opened(spec(binding))
    data = {"json": b"{}", "cut": plan(spec(binding))[:-20], "empty": b"", "zeros": bytes(999)}[damage]
    with pytest.raises(ReadError, match="no whole plan of TensorRT"):
        opened(spec(binding), data)
    with pytest.raises(RunError, match="no engine is open"):
        run({"x": X})
