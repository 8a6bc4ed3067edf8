"""What the tables of ``tests/golden`` are of: every sample in every precision, and every recorded engine."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import rtlab
from recorded import ENGINES
from rtlab.core.model import absent, load
from rtlab.errors import RtlabError

#: What TensorRT-RTX 1.7.1 printed of samples: the name of the sample is the first word of the file's.
BUILDS = sorted((Path(__file__).parent / "corpus" / "builds").glob("*.log"))
#: Samples that are large and made on demand repeat what the small ones have.
LARGE = {"googlenet", "resnet50", "mobilenet_v2", "bert", "csp_detector"}
SMALL = sorted(set(rtlab.samples.names()) - LARGE)
#: Hundreds of names without kinds: checked, and not worth a table.
UNKEPT = {"detr-names-only"}

#: A test of every sample as ``name``; those of one sample stand behind each other (``tests/golden/conftest.py``), and
#: run in one process but where two workers share the rest, so that its engines are built once.
samples = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in SMALL])
#: A test of every recorded engine as ``folder``.
recorded = pytest.mark.parametrize(
    "folder", [pytest.param(f, marks=pytest.mark.xdist_group(f.name)) for f in ENGINES], ids=lambda f: f.name
)
#: A test of every listing of a build that is kept, as ``path``: the same whatever compiler is installed.
built = pytest.mark.parametrize("path", BUILDS, ids=lambda p: p.stem)


@functools.cache
def study(name: str) -> Any:
    """A sample with one variant for each precision, and INT8 as ONNX Runtime runs it; what can be built is built."""
    sample = rtlab.samples.load(name)
    made = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    for precision in ("fp32", "fp16", "int8", "fp8"):
        calibrator = "minmax" if precision in {"int8", "fp8"} else None
        made.add(precision, precision=precision, calibrator=calibrator, target="sm89", backend="tensorrt-rtx")
    made.add("int8 onnxruntime", precision="int8", calibrator="minmax", target="cpu", backend="onnxruntime")
    # All samples, however long that takes: the budget of a first answer is another test's.
    made.ranges()
    for variant in made.variants:
        with contextlib.suppress(RtlabError):
            made.run([variant], compare=False)
    return made


def results(name: str) -> Iterator[tuple[str, Any]]:
    """The head of the section of each variant, and its result; None where it was refused."""
    made = study(name)
    for variant in made.variants:
        found = made.results.get(variant)
        compiler = found.engine.title.partition(" · ")[0] if found else "refused"
        # On the CPU what is made depends on the processor too, as on another release of the compiler.
        where = f", {blocks()}" if found and found.engine.target.name == "cpu" else ""
        yield f"# {variant} · {compiler}{where}", found


@functools.cache
def blocks() -> str:
    """In how many channels ONNX Runtime blocks pictures here: 16 on processors with AVX-512, 8 on others.

    A pooling of 8 channels tells: only whole blocks are pooled, where a convolution of 8 would be padded to 16.
    """
    pooling = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])
    graph = helper.make_graph(
        [pooling],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 6, 6])],
    )
    made = rtlab.Study(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    made.add("fp32", backend="onnxruntime", target="cpu")
    made.run(compare=False)
    layers = made["fp32"].engine.layers
    return f"blocks of {8 if any(x.kind == 'ReorderOutput' for x in layers) else 16}"


@functools.cache
def engine(folder: Path) -> tuple[Any, Any]:
    """A recorded engine as it is read, and its model where that was recorded."""
    files = [p for pattern in ("engine.graph.json", "*info.json") for p in folder.glob(pattern)]
    known = next(iter(folder.glob("*.onnx")), None)
    model = load(known, weights=False) if known else absent()
    profiles = [p for pattern in ("engine.profile.json", "*-profile.json") for p in folder.glob(pattern)]
    given = {"profile": profiles[0]} if profiles else {}
    return rtlab.Study(model).read("engine", layers=files[0], **given), model


@functools.cache
def listing(path: Path) -> tuple[Any, Any]:
    """A build as its print is read, and the sample that was built."""
    model = rtlab.samples.load(path.name.partition("-")[0], samples=1).model
    return rtlab.Study(model).read("engine", path), model


def steps(layer: Any) -> list[str]:
    """The operations in a generated kernel's name, four letters each."""
    name = layer.tactic if layer.tactic.startswith("__myl_") else layer.name
    glued = name.split("_")[3] if name.startswith("__myl_") else ""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", glued).split()


def multiplies(layer: Any) -> bool | None:
    """Whether a layer is a convolution or a matrix product by its kind or its kernel; None where nothing tells."""
    told = steps(layer)
    if told:
        return True if {"Corr", "Fc", "Gemm"} & {*told} else None if "Sum" in told else False
    if re.search("conv|correlation|gemm|matmul|matrix|fullyconnected", layer.kind, re.IGNORECASE):
        return True
    if re.search("foreignnode|myelin|_mha|_gemm", f"{layer.kind} {layer.name}", re.IGNORECASE):
        return None
    return layer.kind in {"If", "Loop", "Scan"} and None


def spoken(layer: Any) -> str:
    """A layer in a line: its number, and what its kernel is called."""
    name = ".".join(steps(layer)) or re.sub(r"\s+", " ", layer.name)
    return name if len(name) <= 70 else f"{name[:67]}..."
