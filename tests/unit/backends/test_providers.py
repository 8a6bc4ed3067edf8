"""Execution providers: their names, what is refused and how, whose nodes are whose, and what the clock tells."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import rtlab
from nets import graph
from ordered import orders
from rtlab import backends
from rtlab.backends import placement, providers
from rtlab.backends.compiler_info import ONNX_RUNTIME
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.backends.readers import optimized
from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import SessionSpec
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import Availability, BuildRequest
from rtlab.core.variant import Target, Variant
from rtlab.errors import Unavailable, VariantError
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model

CPU = "CPUExecutionProvider"
OPENVINO = providers.parse_provider("openvino")
CUDA = providers.parse_provider("cuda")
CPU_STAND_IN = dataclasses.replace(providers.CPU, title="Stand-in")


@pytest.fixture
def build(monkeypatch):
    """Pretend that ONNX Runtime has these providers, and these plug-ins with what is wrong with them."""

    def pretend(*names: str, plug_ins: dict[str, str] | None = None) -> None:
        monkeypatch.setattr(providers, "built_in", lambda: (*names, CPU))
        monkeypatch.setattr(providers, "plug_ins", lambda: plug_ins or {})
        monkeypatch.setattr(providers, "version", lambda: "1.99.0")

    return pretend


def test_a_provider_that_the_build_lacks_is_refused_with_what_brings_it(build, monkeypatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    build("OpenVINOExecutionProvider")
    with pytest.raises(Unavailable) as caught:
        OnnxRuntime(CUDA).build(BuildRequest(tiny_model(), Variant.of(target="gpu")), Silent())
    assert "pip uninstall --yes onnxruntime, then pip install onnxruntime-gpu" in str(caught.value)
    reasons = [providers.explain_missing(providers.parse_provider(n)) for n in ("nvtensorrtrtx", "coreml")]
    assert ["pip install onnxruntime-ep-nv-tensorrt-rtx," in reasons[0], "pip" in reasons[1]] == [True, False]
    # The cloud's runs no network, and is not listed.
    build("OpenVINOExecutionProvider", "AzureExecutionProvider")
    table = rtlab.available()
    assert (True, False) == (table["onnxruntime:openvino"].ok, table["onnxruntime:cuda"].ok)
    assert not {"onnxruntime:coreml", "onnxruntime:dml", "onnxruntime:azure"} & set(table)


def test_running_on_the_cpu_instead_is_refused(build, monkeypatch) -> None:
    """ONNX Runtime goes on without a provider that cannot start, and times would be those of the CPU."""

    class Fallen:
        def __init__(self, *_: object, providers: list[object], enable_fallback: int, **_more: object):
            assert [("CUDAExecutionProvider", {"use_tf32": "0"}), CPU] == providers
            assert 0 == enable_fallback

        def get_providers(self) -> list[str]:
            return [CPU]

    build("CUDAExecutionProvider")
    monkeypatch.setattr(onnxruntime, "InferenceSession", Fallen)
    with pytest.raises(Unavailable, match="CPUExecutionProvider alone"):
        inference.create_session(
            SessionSpec(b"", "", 1, provider=CUDA, provider_options={"use_tf32": "0"}, target=Target("gpu"))
        )


def test_the_target_chooses_the_device() -> None:
    assert [Target("cpu"), Target("gpu"), Target("npu")] == [*OPENVINO.targets]
    assert {"device_type": "NPU"} == providers.build_provider_options(OPENVINO, Target("npu"), None)
    assert "GPU" == providers.build_provider_options(OPENVINO, Target("gpu"), None)["device_type"]
    assert {} == providers.build_provider_options(providers.parse_provider("rocm"), Target("gpu"), None)


def test_fp32_is_fp32_and_tf32_is_tf32_on_cuda() -> None:
    """The provider's own default is TF32, so that the variant called fp32 had 67 to 76 dB."""
    for given in (None, BuildOptions.of(device_id=0), BuildOptions.of(device_id=0, use_tf32=0)):
        assert "0" == providers.build_provider_options(CUDA, Target("gpu"), given)["use_tf32"]
    assert "1" == providers.build_provider_options(CUDA, Target("gpu"), None, tf32=True)["use_tf32"]
    given = BuildOptions.of(use_tf32="True")
    assert "True" == providers.build_provider_options(CUDA, Target("gpu"), given, tf32=True)["use_tf32"]


@pytest.mark.parametrize("tf32", [False, True])
def test_an_option_that_contradicts_the_precision_is_refused(tf32) -> None:
    given = BuildOptions.of(use_tf32=int(not tf32))
    with pytest.raises(VariantError, match=f'Choose precision="{"fp32" if tf32 else "tf32"}"'):
        providers.build_provider_options(CUDA, Target("gpu"), given, tf32=tf32)


@pytest.mark.parametrize(
    ("name", "target", "options"),
    [
        ("openvino", "cpu", {"load_config": '{"CPU": {"EXECUTION_MODE_HINT": "ACCURACY"}}'}),
        ("openvino", "gpu", {"load_config": '{"GPU": {"EXECUTION_MODE_HINT": "ACCURACY"}}'}),
        ("qnn", "npu", {"enable_htp_fp16_precision": "0"}),
        ("cann", "npu", {"precision_mode": "must_keep_origin_dtype"}),
    ],
)
def test_a_provider_whose_default_is_less_than_fp32_is_told_to_keep_the_types(name, target, options) -> None:
    """OpenVINO, QNN and CANN compute FP32 in 16 bits by default, as their documentation says."""
    provider = providers.parse_provider(name)
    assert options.items() <= providers.build_provider_options(provider, Target(target), None).items()
    (key,) = options
    given = BuildOptions.of(**{key: "mine"})
    own = providers.build_provider_options(provider, Target(target), given)
    assert "mine" == own[key]
    assert all(
        key in providers.describe_arithmetic(provider, Target(target), told) for told in (options, own)
    )


@pytest.mark.slow
@pytest.mark.skipif(
    providers.parse_release() < (1, 24), reason="before 1.24, ONNX Runtime tells of no node who runs it"
)
def test_the_options_of_a_precision_reach_every_session_of_an_engine(monkeypatch) -> None:
    seen = orders(
        monkeypatch, lambda order: dataclasses.replace(order, provider=CPU_STAND_IN, provider_options={})
    )
    monkeypatch.setattr(OnnxRuntime, "availability", lambda self: Availability(ok=True, version="1.99.0"))
    provider = dataclasses.replace(CPU_STAND_IN, title="CUDA", devices={"cpu": {}}, tf32="use_tf32")
    runner, model = OnnxRuntime(provider), tiny_model()
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    for precision, wanted in (("fp32", "0"), ("fp16", "0"), ("tf32", "1")):
        seen.clear()
        engine = runner.build(BuildRequest(model, Variant.of(precision, target="cpu")), Silent())
        runner.profile(engine, x, Silent(), runs=1, warmup=0)
        runner.outputs(engine, x)
        assert [{"use_tf32": wanted}] * 5 == [order.provider_options for order in seen]
        assert any(f"(use_tf32={wanted})" in n for n in engine.notes)
        runner.release(engine)


def chain():
    """Two branches with nodes that are removed (Identity) or made anew by ONNX Runtime."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["a"]), make("Relu", ["a"], ["b"], "r1"), make("Identity", ["b"], ["c"], "id"),
        make("Unique", ["c"], ["u"], "uniq", sorted=1), make("Size", ["u"], ["s"], "size"),
        make("Cast", ["s"], ["f"], "cast", to=1), make("Mul", ["c", "f"], ["m"], "mul"),
        make("MatMul", ["m", "w"], ["d"], "m2"), make("Sigmoid", ["x"], ["e"], "sig"),
        make("MatMul", ["e", "w"], ["q"], "m3"), make("Det", ["q"], ["det"], "det"),
        make("Add", ["d", "e"], ["y0"], "add"), make("Add", ["y0", "det"], ["y"], "add2"),
    ]  # fmt: skip
    return graph(nodes, [("x", 1, [8, 8])], [("y", 1, [8, 8])], {"w": np.eye(8, dtype=np.float32)})


P = "OpenVINOExecutionProvider"
#: What OpenVINO 2025 takes of it, as ONNX Runtime 1.24 told.
PLACED = (
    placement.Partition(P, (("#0", "MatMul"), ("r1", "Relu"))),
    placement.Partition(P, (("cast", "Cast"), ("mul", "Mul"), ("m2/MatMulAddFusion", "Gemm"), ("sig", "Sigmoid"))),
    placement.Partition(P, (("add2", "Add"),)),
    placement.Partition(CPU, (("uniq", "Unique"),)),
    placement.Partition(CPU, (("size", "Size"),)),
    placement.Partition(CPU, (("m3", "MatMul"),)),
    placement.Partition(CPU, (("det", "Det"),)),
)  # fmt: skip


def test_compiled_subgraphs_are_layers_between_the_nodes_that_are_left() -> None:
    layers = placement.build_regions(chain(), PLACED, P, "OpenVINO")
    assert [
        ("OpenVINO subgraph 1", ("#0", "r1", "id"), ["x"], ["c"]),
        ("uniq", ("uniq",), ["c"], ["u"]),
        ("size", ("size",), ["u"], ["s"]),
        ("OpenVINO subgraph 2", ("cast", "mul", "m2", "sig", "add"), ["s", "c", "x"], ["e", "y0"]),
        ("m3", ("m3",), ["e"], ["q"]),
        ("det", ("det",), ["q"], ["det"]),
        ("OpenVINO subgraph 3", ("add2",), ["y0", "det"], ["y"]),
    ] == [(y.name, y.origins, [t.name for t in y.inputs], [t.name for t in y.outputs]) for y in layers]
    assert [P, CPU, CPU, P, CPU, CPU, P] == [y.attributes["provider"] for y in layers]
    assert ["w"] == [t.name for t in layers[0].constants]
    model = chain()
    assert () == relate(model, model, Engine("b", "", Target("cpu"), layers)).missing


@pytest.mark.parametrize("seed", range(12))
def test_layers_of_any_placement_hold_every_node_once_and_can_run_in_their_order(seed) -> None:
    rng, model = np.random.default_rng(seed), tiny_model()
    cuts = sorted({0, len(model.top), *rng.integers(0, len(model.top), 4).tolist()})
    given = []
    for a, b in itertools.pairwise(cuts):
        nodes = [(n.id, n.op) for n in model.top[a:b]]
        # The CPU's nodes are told one by one.
        taken = rng.choice([P, CPU])
        parts = [tuple(nodes)] if taken == P else [(n,) for n in nodes]
        given += [placement.Partition(taken, part) for part in parts]
    rng.shuffle(given)
    layers = placement.build_regions(model, given, P, "OpenVINO")
    origins = [o for y in layers for o in y.origins]
    assert sorted(n.id for n in model.top) == sorted(origins)
    have = set(model.inputs)
    for layer in layers:
        assert {t.name for t in layer.inputs} <= have
        have |= {t.name for t in layer.outputs}
    assert set(model.outputs) <= have


def event(name: str, dur: float, provider: str, index: int) -> dict[str, object]:
    return {
        "cat": "Node", "name": f"{name}_kernel_time", "dur": dur,
        "args": {"provider": provider, "node_index": str(index)},
    }  # fmt: skip


def test_times_of_compiled_subgraphs_are_joined_by_their_numbers() -> None:
    layers = placement.build_regions(chain(), PLACED, P, "OpenVINO")
    run = [
        event("ov_3_2", 3000, P, 15), event("ov_1_0", 1000, P, 13), event("ov_2_1", 2000, P, 14),
        event("det", 500, CPU, 9), event("copy", 700, CPU, 16),
    ]  # fmt: skip
    found = placement.collect_samples(optimized.collect_kernel_times(run), layers, P, "OpenVINO")
    named = {i.partition(":")[2]: s.tolist() for i, s in found.items()}
    subgraphs = {f"OpenVINO subgraph {n}": [float(n)] for n in (1, 2, 3)}
    assert {**subgraphs, "det": [0.5]} == named
    # A time at the wrong layer is worse than none.
    few = optimized.collect_kernel_times([event("ov_1_0", 1000, P, 13)])
    assert {} == placement.collect_samples(few, layers, P, "OpenVINO")


def test_a_fused_layer_has_the_provider_of_the_value_that_it_writes() -> None:
    rows = [("fused MatMul Relu", "b"), ("m2/MatMulAddFusion", "y0"), ("det", "det"), ("Memcpy", "Memcpy_0")]
    layers = [Layer(str(i), name, "", i, outputs=(Tensor(t),)) for i, (name, t) in enumerate(rows)]
    found = placement.add_providers(layers, chain(), PLACED)
    assert [P, P, CPU, None] == [y.attributes.get("provider") for y in found]


class Clock:
    """A clock that goes on only while something runs."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float):
        def run() -> float:
            self.now += seconds
            self.ran.append(seconds)
            return 1e3 * seconds

        self.ran = getattr(self, "ran", [])
        return run


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [
        (0.0001, (300, 30)),  # brief: as many as a histogram takes
        (0.015, (34, 30)),  # up to half a second
        (0.1, (30, 30)),  # longer: what was asked for
        (0.999, (11, 11)),  # ten seconds at most
        (60.0, (3, 3)),  # but a median's worth
    ],
)
def test_brief_inferences_are_timed_more_often_and_long_ones_less(monkeypatch, seconds, counts) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    found, warmup = inference.alternate([clock.work(seconds), clock.work(seconds)], Silent(), 30, 2)
    assert counts == tuple(len(f) for f in found)
    np.testing.assert_allclose(np.concatenate(found), seconds * 1e3)
    assert (1 if seconds > 1 else 2) == warmup
    assert sum(counts) + warmup == len(clock.ran)


def test_times_of_handing_work_over_are_not_shown_as_times_of_layers(monkeypatch) -> None:
    """CUDA's kernels run on after the profiler has stopped its watch, unless each launch waits."""
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    layer = Layer("0:det", "det", "Det", 0)
    engine = Engine("onnxruntime:cuda", "", Target("gpu"), (layer,), maker=ONNX_RUNTIME)
    events = [event("det", 5, "CUDAExecutionProvider", 0)]
    runner = OnnxRuntime(CUDA)
    found, notes = runner._collect_samples(engine, optimized.collect_kernel_times(events))
    assert {} == found
    assert notes[-1].endswith("; for them, set CUDA_LAUNCH_BLOCKING=1 before Python starts")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    found, _ = runner._collect_samples(engine, optimized.collect_kernel_times(events))
    assert [0.005] == found["0:det"].tolist()


def test_one_backend_answers_to_every_spelling_and_the_cpu_is_the_usual_one() -> None:
    assert backends.get("onnxruntime:OpenVINO") is backends.get("onnxruntime:openvinoexecutionprovider")
    assert "onnxruntime:nvtensorrtrtx" == backends.get("onnxruntime:nv-tensorrt-rtx").name
    assert backends.get("onnxruntime") is backends.get("onnxruntime:cpu")


@pytest.mark.parametrize(
    ("name", "target", "tf32", "override", "says"),
    [
        ("cuda", "gpu", False, "", "FP32 is computed as FP32"), ("cuda", "gpu", True, "1", "computed as TF32"),
        ("cuda", "gpu", True, "0", "NVIDIA_TF32_OVERRIDE=0 is set"), ("tensorrt", "gpu", False, "", "TF32 where that"),
        ("nvtensorrtrtx", "gpu", False, "0", "OVERRIDE=0 is set"), ("openvino", "npu", False, "", "FP16 on this"),
        ("openvino", "gpu", True, "", "has no TF32"), ("rocm", "gpu", False, "", ""),
    ],
)  # fmt: skip
def test_an_engine_says_what_fp32_is_computed_in(monkeypatch, name, target, tf32, override, says) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    found = providers.describe_arithmetic(providers.parse_provider(name), Target(target), {}, tf32=tf32)
    assert says in found
    assert bool(says) == bool(found)


@pytest.mark.parametrize(
    ("seconds", "counts", "warmup"),
    [
        (0.0001, (300, 30), 5),  # a budget is no wish
        (0.01, (50, 30), 5),
        (0.125, (18, 18), 3),  # a tenth of 2.5 s to warm up, and the other 4.625 s in halves
        (0.5, (4, 4), 1),
        (2.0, (1, 1), 1),
        (60.0, (1, 1), 1),  # one of each, whatever it costs, and nothing beyond
    ],
)
def test_a_budget_of_time_is_kept_down_to_one_run_of_each(monkeypatch, seconds, counts, warmup) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    works = [clock.work(seconds), clock.work(seconds)]
    found = inference.alternate(works, Silent(), 30, 5, seconds=5.0)
    assert counts == tuple(len(f) for f in found.milliseconds)
    assert warmup == found.warmup
    least = 3 * seconds
    assert clock.now <= max(5.0 + 1e-9, least + seconds)


def test_both_are_timed_in_turns(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    inference.alternate([clock.work(1.0), clock.work(2.0)], Silent(), 6, 0)
    assert [1.0, 1.0, 2.0, 2.0] * 3 == clock.ran


def test_what_is_made_for_a_run_is_time_spent_and_no_time_of_it(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)

    def prepared() -> float:
        clock.now += 0.4
        return clock.work(0.1)()

    found = inference.alternate([clock.work(0.1), prepared], Silent(), 30, 0, seconds=5.0)
    # 2.5 s of each: 25 runs of 0.1 s, and five of 0.5 s.
    assert (25, 5) == tuple(len(f) for f in found.milliseconds)
    np.testing.assert_allclose(np.concatenate(found.milliseconds), 100.0)


ROOT = Path(__file__).parents[3]
FOUND = json.loads((ROOT / "tests" / "data" / "cuda-h100.json").read_text(encoding="utf-8"))
MODELS = FOUND["models"]


def test_the_documentation_tells_these_numbers() -> None:
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    for name, row in MODELS.items():
        size = max(row["fp32"]["milliseconds"], key=int)
        small = name.startswith("digits")
        cells = []
        for precision in ("default", "fp32", "tf32", "fp16"):
            if precision not in row:
                cells.append("—")
                continue
            time = "" if small else f", {row[precision]['milliseconds'][size][1]:.1f} ms"
            cells.append(f"{row[precision]['sqnr_db']:.0f} dB{time}")
        title = "six products of 4096²" if name.startswith("mlp") else name
        title += "" if small else f", batch {size}"
        assert f"| {title} | {' | '.join(cells)} |" in text
    differences = {
        precision: [r[precision]["sqnr_db"] - r[precision]["emulated_db"] for r in FOUND["studies"].values()]
        for precision in ("tf32", "fp16")
    }
    low, high = (round(f(differences["tf32"])) for f in (min, max))
    assert f"tf32 was {-low} dB below to {high} dB above its emulation" in text
    assert f"fp16 up to {-round(min(differences['fp16']))} dB below" in text
    assert FOUND["versions"]["gpu"].removesuffix(" HBM3") in text


def test_options_by_other_names_are_passed_on_whatever_they_are() -> None:
    options = BuildOptions.of(arena_extend_strategy="kSameAsRequested", user_compute_stream="5")
    made = providers.build_provider_options(CUDA, Target("gpu"), options)
    assert ("kSameAsRequested", "5") == (made["arena_extend_strategy"], made["user_compute_stream"])
