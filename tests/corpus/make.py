"""Makes the corpus: engines written by hand, and what compilers print here. ``python tests/corpus/make.py [--builds]``.

The engines are of no GPU. They are layer lists as TensorRT's inspector and trtexec write them, with shapes and times so
small that each answer is arithmetic by hand. ``--builds`` also compiles samples with TensorRT-RTX and runs them on ONNX
Runtime, and keeps what those print.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
BATCH, RUNS = 4, 100
#: The network that all of the written engines are of: by the name of a value, its shape.
SHAPES = {
    "image": (BATCH, 3, 16, 16), "stem": (BATCH, 16, 16, 16), "pooled": (BATCH, 16, 8, 8), "inner": (BATCH, 16, 8, 8),
    "joined": (BATCH, 16, 8, 8), "means": (BATCH, 16, 1, 1), "scores": (BATCH, 10), "classes": (BATCH, 10),
}  # fmt: skip
#: The words of a layout, by its type.
LINEAR = {
    "fp32": "Row major linear FP32",
    "fp16": "Row major linear FP16 format",
    "int8": "Row major Int8 format",
}
PACKED = {
    "fp16": "Channel major FP16 format where channel % 8 == 0",
    "int8": "Thirty-two wide channel vectorized row major Int8 format",
    "fp32": "Row major linear FP32",
}
_MANY = {"fp32": "Float", "fp16": "Half", "int8": "Int8"}


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of an engine: its name, its type, and the words of its layout."""

    name: str
    dtype: str
    words: str
    shape: tuple[int, ...] = ()

    def document(self, *, old: bool) -> dict[str, Any]:
        """As the inspector writes it; before TensorRT 8.6 without a location."""
        place = {} if old else {"Location": "Device"}
        shape = self.shape or SHAPES[self.name]
        return {"Name": self.name, **place, "Dimensions": [*shape], "Format/Datatype": self.words}


@dataclasses.dataclass(frozen=True)
class Step:
    """A layer: the nodes that it runs, its microseconds, and what else the inspector tells of it."""

    kind: str
    nodes: tuple[str, ...]
    reads: tuple[Value, ...]
    writes: Value
    microseconds: float
    told: Mapping[str, Any]
    name: str = ""

    @property
    def title(self) -> str:
        """Its name, as TensorRT joins those of nodes."""
        return self.name or " + ".join(self.nodes)


def value(name: str, dtype: str, *, packed: bool = False) -> Value:
    """A tensor of the network in a type, in the layout that kernels of that type like or row by row."""
    return Value(name, dtype, (PACKED if packed else LINEAR)[dtype])


def kernel(channels: int, maps: int, dtype: str, *, relu: bool = True) -> dict[str, Any]:
    """What is told of a convolution of 3 by 3 with a border of one."""
    return {
        "ParameterType": "Convolution", "Kernel": [3, 3], "PaddingMode": "kEXPLICIT_ROUND_DOWN", "PrePadding": [1, 1],
        "PostPadding": [1, 1], "Stride": [1, 1], "Dilation": [1, 1], "OutMaps": maps, "Groups": 1,
        "Weights": {"Type": _MANY[dtype], "Count": maps * channels * 9},
        "Bias": {"Type": "Float" if dtype == "int8" else _MANY[dtype], "Count": maps},
        "HasSparseWeights": 0, "Activation": "RELU" if relu else "NONE",
    }  # fmt: skip


POOL = {
    "ParameterType": "Pooling", "PoolingType": "MAX", "WindowSize": [2, 2], "PrePadding": [0, 0],
    "PostPadding": [0, 0], "Stride": [2, 2],
}  # fmt: skip
MEANS = {**POOL, "PoolingType": "AVERAGE", "WindowSize": [8, 8], "Stride": [1, 1]}
SOFTMAX = {"ParameterType": "SoftMax", "Axes": 2}
REFORMAT = {"ParameterType": "Reformat", "Origin": "REFORMAT"}


def fully(dtype: str) -> dict[str, Any]:
    """What is told of the matrix product: sixteen numbers in, ten out."""
    return {
        **kernel(16, 10, dtype, relu=False), "Kernel": [1, 1], "PrePadding": [0, 0], "PostPadding": [0, 0],
        "Weights": {"Type": _MANY[dtype], "Count": 160}, "Bias": {"Type": _MANY[dtype], "Count": 10},
    }  # fmt: skip


def fp32() -> list[Step]:
    """Seven layers of TensorRT 8.4, which knows neither labels nor places: 100 microseconds."""
    v = {n: value(n, "fp32") for n in SHAPES}
    return [
        Step("CaskConvolution", ("conv1", "relu1"), (v["image"],), v["stem"], 32, kernel(3, 16, "fp32")),
        Step("CaskPooling", ("pool",), (v["stem"],), v["pooled"], 8, POOL),
        Step("CaskConvolution", ("conv2", "relu2"), (v["pooled"],), v["inner"], 20, kernel(16, 16, "fp32")),
        Step("CaskConvolution", ("conv3", "add", "relu3"), (v["inner"], v["pooled"]), v["joined"], 24,
             kernel(16, 16, "fp32")),
        Step("CaskPooling", ("mean",), (v["joined"],), v["means"], 6, MEANS),
        Step("CaskGemmConvolution", ("fc",), (v["means"],), v["scores"], 6, fully("fp32")),
        Step("CudaSoftMax", ("softmax",), (v["scores"],), v["classes"], 4, SOFTMAX),
    ]  # fmt: skip


def fp16() -> list[Step]:
    """The same in FP16 by TensorRT 10: two copies at the ends, 72 microseconds."""
    v = {n: value(n, "fp16", packed=n not in {"scores", "classes"}) for n in SHAPES}
    image, classes = value("image", "fp32"), value("classes", "fp32")
    first = dataclasses.replace(
        v["image"], name="Reformatted Input Tensor 0 to conv1 + relu1", shape=SHAPES["image"]
    )
    last = dataclasses.replace(
        v["classes"], name="Reformatted Output Tensor 0 to softmax", shape=SHAPES["classes"]
    )
    return [
        Step("Reformat", (), (image,), first, 5, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to conv1 + relu1"),
        Step("CaskConvolution", ("conv1", "relu1"), (first,), v["stem"], 20, kernel(3, 16, "fp16")),
        Step("CaskPooling", ("pool",), (v["stem"],), v["pooled"], 5, POOL),
        Step("CaskConvolution", ("conv2", "relu2"), (v["pooled"],), v["inner"], 12, kernel(16, 16, "fp16")),
        Step("CaskConvolution", ("conv3", "add", "relu3"), (v["inner"], v["pooled"]), v["joined"], 14,
             kernel(16, 16, "fp16")),
        Step("CaskPooling", ("mean",), (v["joined"],), v["means"], 4, MEANS),
        Step("CaskGemmConvolution", ("fc",), (v["means"],), v["scores"], 5, fully("fp16")),
        Step("CudaSoftMax", ("softmax",), (v["scores"],), last, 4, SOFTMAX),
        Step("Reformat", (), (last,), classes, 3, REFORMAT,
             name="Reformatting CopyNode for Output Tensor 0 to softmax"),
    ]  # fmt: skip


def int8() -> list[Step]:
    """In INT8 where the pooling stayed in FP16, so that it stands between two copies: 88 microseconds."""
    v = {n: value(n, "int8", packed=True) for n in SHAPES}
    image, means = value("image", "fp32"), value("means", "fp32")
    first = dataclasses.replace(
        v["image"], name="Reformatted Input Tensor 0 to conv1 + relu1", shape=SHAPES["image"]
    )
    wide = Value("Reformatted Input Tensor 0 to pool", "fp16", PACKED["fp16"], SHAPES["stem"])
    kept = Value("Reformatted Output Tensor 0 to pool", "fp16", PACKED["fp16"], SHAPES["pooled"])
    scores, classes = value("scores", "fp32"), value("classes", "fp32")
    return [
        Step("Reformat", (), (image,), first, 6, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to conv1 + relu1"),
        Step("CaskConvolution", ("conv1", "relu1"), (first,), v["stem"], 18, kernel(3, 16, "int8")),
        Step("Reformat", (), (v["stem"],), wide, 9, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to pool"),
        Step("CaskPooling", ("pool",), (wide,), kept, 5, POOL),
        Step("Reformat", (), (kept,), v["pooled"], 7, REFORMAT,
             name="Reformatting CopyNode for Output Tensor 0 to pool"),
        Step("CaskConvolution", ("conv2", "relu2"), (v["pooled"],), v["inner"], 10, kernel(16, 16, "int8")),
        Step("CaskConvolution", ("conv3", "add", "relu3"), (v["inner"], v["pooled"]), v["joined"], 12,
             kernel(16, 16, "int8")),
        Step("CaskPooling", ("mean",), (v["joined"],), means, 8, MEANS),
        Step("CaskGemmConvolution", ("fc",), (means,), scores, 8, fully("fp32")),
        Step("CudaSoftMax", ("softmax",), (scores,), classes, 5, SOFTMAX),
    ]  # fmt: skip


def layers(steps: Sequence[Step], *, old: bool) -> dict[str, Any]:
    """The document of the inspector; TensorRT 10 tells the nodes and the stream of each layer too."""
    entries = []
    for i, step in enumerate(steps):
        more = {} if old else {
            "StreamId": 0, "Metadata": "\x1e".join(f"[ONNX Layer: {n}]" for n in step.nodes),
        }  # fmt: skip
        entries.append({
            "Name": step.title, "LayerType": step.kind,
            "Inputs": [v.document(old=old) for v in step.reads], "Outputs": [step.writes.document(old=old)],
            **step.told, "TacticName": "", "TacticValue": f"0x{i + 1:016x}", **more,
        })  # fmt: skip
    return {"Layers": entries, "Bindings": ["image", "classes"]}


def profile(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Times of a hundred runs, all alike."""
    whole = sum(s.microseconds for s in steps)
    return [{"count": RUNS}] + [
        {
            "name": s.title, "timeMs": s.microseconds * RUNS / 1e3, "averageMs": s.microseconds / 1e3,
            "medianMs": s.microseconds / 1e3, "percentage": 100 * s.microseconds / whole,
        }
        for s in steps
    ]  # fmt: skip


def times(steps: Sequence[Step]) -> list[dict[str, float]]:
    """Five inferences; whole ones take four fifths of what their layers take one by one."""
    whole = 0.8e-3 * sum(s.microseconds for s in steps)
    return [{"computeMs": round(whole + d * 1e-3, 6), "latencyMs": round(whole + d * 1e-3, 6)}
            for d in (0, -1, 1, -2, 2)]  # fmt: skip


def metadata(steps: Sequence[Step], capability: float) -> dict[str, Any]:
    """Least, greatest, mean, median of the same; the GPU is invented, and says so."""
    found = [t["computeMs"] for t in times(steps)]
    least, greatest, middle = min(found), max(found), sorted(found)[2]
    return {
        "performance_summary": {"GPU Compute Time": [least, greatest, middle, middle, greatest]},
        "device_information": {"Selected Device": "Invented GPU", "Compute Capability": capability},
    }


def network() -> onnx.ModelProto:
    """The network as ONNX, with random weights of a seed."""
    draw = np.random.default_rng(0)
    weights: list[TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        values = draw.standard_normal(shape, np.float32) / math.sqrt(math.prod(shape[1:]) or 1)
        weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(name: str, read: str, channels: int, write: str) -> onnx.NodeProto:
        inputs = [read, weight(f"{name}.weight", 16, channels, 3, 3), weight(f"{name}.bias", 16)]
        return helper.make_node("Conv", inputs, [write], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    nodes = [
        conv("conv1", "image", 3, "c1"), helper.make_node("Relu", ["c1"], ["stem"], "relu1"),
        helper.make_node("MaxPool", ["stem"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("conv2", "pooled", 16, "c2"), helper.make_node("Relu", ["c2"], ["inner"], "relu2"),
        conv("conv3", "inner", 16, "c3"), helper.make_node("Add", ["c3", "pooled"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["joined"], "relu3"),
        helper.make_node("GlobalAveragePool", ["joined"], ["means"], "mean"),
        helper.make_node("Flatten", ["means"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", weight("fc.weight", 10, 16), weight("fc.bias", 10)], ["scores"], "fc",
                         transB=1),
        helper.make_node("Softmax", ["scores"], ["classes"], "softmax"),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPES[n]) for n in ("image", "classes")]
    graph = helper.make_graph(nodes, "written", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def put(path: Path, document: Any) -> None:
    """Write JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def engines() -> None:
    """Write the engines, each in a folder as trtexec and trex leave it."""
    for name, steps, old, capability in (
        ("written-fp32", fp32(), True, 8.0), ("written-fp16", fp16(), False, 8.6), ("written-int8", int8(), False, 8.6),
    ):  # fmt: skip
        folder = HERE / "engines" / name
        put(folder / "engine.graph.json", layers(steps, old=old))
        put(folder / "engine.profile.json", profile(steps))
        put(folder / "engine.timing.json", times(steps))
        put(folder / "engine.profile.metadata.json", metadata(steps, capability))
        onnx.save(network(), folder / "model.structure-only.onnx")
    folder = HERE / "engines" / "written-names-only"
    put(folder / "engine.graph.json", {"Layers": [s.title for s in fp32()], "Bindings": ["image", "classes"]})
    put(folder / "engine.profile.json", profile(fp32()))


#: What is compiled: samples, precisions and targets, and whether the whole log is kept or what it lists at its end.
BUILDS = (
    ("digits_inception", "fp16", "sm80", False), ("digits_inception", "int8", "sm89", False),
    ("digits_lstm", "fp32", "sm86", True), ("digits_vit", "fp8", "sm120", False),
    ("control_flow", "fp16", "sm86", True),
)  # fmt: skip
#: Where the builder's own listing begins, and the folder of a build in a path.
_LISTED, _FOLDER = "Total Host Persistent Memory:", re.compile(r"/\S*/(?=(?:model\.onnx|weights)\b)")


def builds() -> None:
    """Compile with TensorRT-RTX and keep what it prints."""
    import rtlab

    for name, precision, target, whole in BUILDS:
        sample = rtlab.samples.load(name, samples=8)
        study = rtlab.Study(sample.model, data=sample.calibration)
        calibrator = "minmax" if precision in {"int8", "fp8"} else None
        study.add("built", precision=precision, calibrator=calibrator, target=target, backend="tensorrt-rtx")
        study.run(compare=False)
        engine = study["built"].engine
        log = engine.log if whole else engine.log[engine.log.rindex(_LISTED) :]
        path = HERE / "builds" / f"{name}-{precision}-{target}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_FOLDER.sub("", log), encoding="utf-8")


def onnxruntime() -> None:
    """Run the written network twice on ONNX Runtime and keep its profile and the model that it optimized."""
    import onnxruntime as ort

    folder = HERE / "onnxruntime"
    folder.mkdir(exist_ok=True)
    options = ort.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    session = ort.InferenceSession(network().SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(2):
        session.run(None, {"image": np.ones(SHAPES["image"], np.float32)})
    Path(session.end_profiling()).replace(folder / "profile.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--builds", action="store_true", help="compile and run too")
    engines()
    if parser.parse_args(arguments).builds:
        builds()
        onnxruntime()
    return 0


if __name__ == "__main__":
    sys.exit(main())
