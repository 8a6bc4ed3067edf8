"""What ModelOpt itself exports, read, run, built and compared, where somebody has installed it; rtlab needs it nowhere.

Small models of the same forms, with numbers of their own, run always: ``test_block_formats``, ``test_trt_operators``.
"""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import rtlab
from rtlab import backends
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Precision, Variant
from rtlab.quantize.weights import ScaleLayout, quantize_to_four_bits
from rtlab.relation.relate import relate

torch = pytest.importorskip("torch", reason="ModelOpt needs PyTorch")
mtq = pytest.importorskip(
    "modelopt.torch.quantization", reason="ModelOpt is not installed", exc_type=ImportError
)
quantization = pytest.importorskip(
    "modelopt.onnx.quantization", reason="ModelOpt lacks its ONNX part", exc_type=ImportError
)
exporter = pytest.importorskip("modelopt.torch._deploy.utils.torch_onnx", exc_type=ImportError)
RTX = backends.get("tensorrt-rtx")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
WIDTH, INNER = 128, 256


class Mlp(torch.nn.Module):
    """Two products without biases, which ModelOpt's exporter would leave in another type."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = torch.nn.Linear(WIDTH, INNER, bias=False)
        self.down = torch.nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def draw(seed: int = 0):
    return torch.randn(2, 32, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are rounded by a CUDA extension; the exporter writes what rounds them, and not its numbers."""
    rounding = pytest.importorskip("modelopt.torch.quantization.tensor_quant")
    monkeypatch.setattr(rounding, "dynamic_block_quantize_op", lambda x, *_, **__: x.clone())


def export(config: str, folder, weights: str = "fp32"):
    """A file as ModelOpt's exporter for PyTorch writes it, and the numbers of the network without rounding."""
    x = draw()
    model = mtq.quantize(
        Mlp().eval(), getattr(mtq, config), forward_loop=lambda m: [m(draw(i)) for i in range(4)]
    )
    content, _ = exporter.get_onnx_bytes_and_metadata(
        model, (x,), model_name="net", onnx_opset=21, weights_dtype=weights
    )
    exporter.OnnxBytes.from_bytes(content).write_to_disk(str(folder / "export"), clean_dir=True)
    return rtlab.load(next((folder / "export").glob("*.onnx"))), Mlp()(x).detach().numpy()


def run(model) -> np.ndarray:
    (name,) = model.inputs
    x = draw().numpy().astype(np.float16 if model.values[name].dtype == "fp16" else np.float32)
    runner = OnnxRuntime()
    engine = runner.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    return runner.outputs(engine, {name: x}, tuple(model.outputs))[model.outputs[0]].astype(np.float64)


def ratio(exact: np.ndarray, rounded: np.ndarray) -> float:
    return 10 * np.log10((exact.astype(np.float64) ** 2).sum() / ((exact - rounded) ** 2).sum())


def read_products(model, target: str) -> set[str]:
    """What the builder multiplies in; every node of the model is in a layer."""
    if not RTX.availability().ok:
        pytest.skip(RTX.availability().reason)
    engine = RTX.build(BuildRequest(model, Variant.of("fp32", target=target)), Silent())
    mapping = relate(model, model, engine)
    assert {model.by_id[m.node].op for m in mapping.missing} <= {
        "Constant",
        "DequantizeLinear",
        "Transpose",
        "Cast",
    }
    assert {n.id for n in model.top if n.op == "MatMul"} <= {o for y in engine.layers for o in y.origins}
    return {y.inputs[0].dtype for y in engine.layers if y.kind in {"gemm", "runtime_fusion"}}


@pytest.mark.parametrize(
    ("config", "weights", "least", "target", "read"),
    [
        ("INT8_DEFAULT_CFG", "fp32", 30, "sm86", "int8"),
        ("FP8_DEFAULT_CFG", "fp32", 25, "sm89", "fp8"),
        ("FP8_DEFAULT_CFG", "fp16", 25, "sm120", "fp8"),
        ("MXFP8_DEFAULT_CFG", "fp16", 25, "sm120", "fp16"),
        ("NVFP4_DEFAULT_CFG", "fp32", 14, "sm120", "fp4"),
    ],
)
def test_exports_of_pytorch_are_read_run_and_built(
    config: str, weights: str, least: float, target: str, read: str, tmp_path
):
    model, exact = export(config, tmp_path, weights)
    assert least < ratio(exact, run(model)) < least + 20
    assert {read} == read_products(model, target)


def test_types_that_modelopt_left_behind_are_those_of_the_operators(tmp_path):
    """Products of FP16 are declared FP32 between nodes and at the end; TensorRT-RTX reads the operators, too."""
    model, _ = export("NVFP4_DEFAULT_CFG", tmp_path)
    (product, last) = [n for n in model.top if n.op == "MatMul"]
    assert {"fp16"} == {model.values[v].dtype for n in (product, last) for v in n.outputs}
    assert any("other types in the file than the operators" in n for n in model.notes)


def test_blocks_of_the_nvfp4_export(tmp_path):
    """Scales and codes are rtlab's to the bit."""
    model, _ = export("NVFP4_DEFAULT_CFG", tmp_path)
    weights = {n: p.detach().numpy() for n, p in Mlp().named_parameters()}
    compared = 0
    for name, w in weights.items():
        ours = quantize_to_four_bits(w, ScaleLayout(1, 16), Precision.FP4)
        codes, scales, whole = (
            model.known[f"{name}{part}"].numpy() for part in ("_f4", "_f8_scale", "_f8_scale_f32_scale")
        )
        np.testing.assert_array_equal(scales.view(np.uint8), ours.scale.view(np.uint8))
        assert whole.item() == float(ours.tensor_scale)
        theirs, mine = (c.astype(ml_dtypes.float4_e2m1fn).astype(np.float32) for c in (codes, ours.values))
        np.testing.assert_array_equal(theirs, mine)
        compared += 1
    assert compared == len(weights)


@pytest.mark.parametrize(
    ("mode", "method", "least", "target", "read"),
    [
        ("int8", "entropy", 25, "sm86", "int8"),
        ("fp8", "entropy", 20, "sm89", "fp8"),
        ("int4", "rtn_dq", 15, "sm86", "fp32"),
        ("int4", "awq_clip", 15, "sm86", "fp32"),
    ],
)
def test_what_it_makes_of_an_onnx_file_is_read_run_and_built(
    mode: str, method: str, least: float, target: str, read: str, tmp_path
):
    path, x = tmp_path / "plain.onnx", draw()
    torch.onnx.export(
        Mlp().eval(), (x,), str(path), opset_version=17, dynamo=False, input_names=["x"], output_names=["y"]
    )
    samples = {"x": np.concatenate([draw(i).numpy() for i in range(4)])}
    quantization.quantize(
        str(path), quantize_mode=mode, calibration_data=samples, calibration_method=method,
        output_path=os.fspath(tmp_path / "done.onnx"), calibration_eps=["cpu"], high_precision_dtype="fp32",
    )  # fmt: skip
    model = rtlab.load(tmp_path / "done.onnx")
    assert least < ratio(Mlp()(x).detach().numpy(), run(model)) < least + 25
    assert {read} == read_products(model, target)
