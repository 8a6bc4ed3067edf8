"""What the card of every layer says, of every sample in every precision and of every recorded engine.

Each line is checked against the layer's own kind and the operations in its kernel's name, which are read here once more
and otherwise than in the library; then the table is compared with the one that was kept.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab.core.engine import Layer
from rtlab.core.model import absent, load
from rtlab.errors import RtlabError
from rtlab.view.contract import Box
from rtlab.view.graph import engine_view

RECORDED = Path(__file__).parents[3] / "shared" / "recorded" / "engines"
ENGINES = sorted(RECORDED.iterdir()) if RECORDED.is_dir() else []
#: Samples that are large and made on demand repeat what the small ones have.
LARGE = {"googlenet", "resnet50", "mobilenet_v2", "bert"}
SMALL = sorted(set(rtlab.samples.names()) - LARGE)
#: Hundreds of names without kinds: checked, and not worth a table.
UNKEPT = {"detr-names-only"}

PRODUCTS = {
    "Conv",
    "ConvTranspose",
    "ConvInteger",
    "QLinearConv",
    "Gemm",
    "MatMul",
    "MatMulInteger",
    "Einsum",
}
#: What a kernel that only moves numbers can be called by.
MOVES = {
    "Transpose",
    "Reshape",
    "Flatten",
    "Concat",
    "Slice",
    "Split",
    "Cast",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Pad",
}
#: Operations in kernels' names and the operators one of which must then stand on the card.
TELLING = {
    "Relu": {"ReLU"}, "Erf": {"Erf", "Gelu"}, "Exp": {"Softmax", "Exp"}, "Tanh": {"LSTM", "GRU", "Tanh"},
    "Mean": {"LN", "GAP", "ReduceMean"},
}  # fmt: skip


def steps(layer: Layer) -> list[str]:
    """The operations in a generated kernel's name."""
    name = layer.tactic if layer.tactic.startswith("__myl_") else layer.name
    glued = name.split("_")[3] if name.startswith("__myl_") else ""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", glued).split()


def multiplies(layer: Layer) -> bool | None:
    """Whether a layer is a convolution or a matrix product by its kind or its kernel; None where nothing tells."""
    told = steps(layer)
    if told:
        return True if {"Corr", "Fc", "Gemm"} & {*told} else None if "Sum" in told else False
    if re.search("conv|correlation|gemm|matmul|matrix|fullyconnected", layer.kind, re.IGNORECASE):
        return True
    if re.search("foreignnode|myelin|_mha|_gemm", f"{layer.kind} {layer.name}", re.IGNORECASE):
        return None
    return layer.kind in {"If", "Loop", "Scan"} and None


def check(layer: Layer, box: Box, *, linked: bool) -> None:
    """What the kernel itself tells holds of the card."""
    where = f"{layer.name}: {box['title']} {[c['title'] for c in box['chips']]}"
    work = {c["op"] for c in box["chips"] if c["role"] == "work"}
    said = (
        {box["title"], *(c["role"] for c in box["chips"])}
        if box["slim"]
        else {c["role"] for c in box["chips"]}
    )
    told = steps(layer)
    assert box["slim"] == (not box["chips"]), where
    assert not box["slim"] or box["title"] not in PRODUCTS, where
    if multiplies(layer) is False and linked:
        assert set() == work & PRODUCTS, where
    if linked and layer.kind in {"correlation", "deconv", "Conv", "FusedConv"}:
        assert {"Conv", "ConvTranspose"} & work, where
    if linked and "Corr" in told:
        assert {"Conv", "ConvTranspose"} & work, where
    rounds = "RounCast" in "".join(told) or layer.kind == "QuantizeLinear"
    if rounds:
        assert any(re.match("Q", word) for word in said), where
    if layer.kind == "DequantizeLinear":
        assert any(word.startswith(("DQ", "Q/DQ")) for word in said), where
    if told and {*told} <= {"Move", "Cast", "Resh", "Tran", "Conc", "Slic", "Copy", "Repl"}:
        assert {w for w in work if not w.startswith("Reduce")} <= MOVES, where
    if linked and box["chips"] and any(c["node"] for c in box["chips"]):
        for step in {*told} & {*TELLING}:
            assert TELLING[step] & work, where


def line(layer: Layer, box: Box) -> str:
    """A layer of a table: number, kind, kernel, types, and what its card says; overhead stands behind a tilde."""
    name = ".".join(steps(layer)) or re.sub(r"\s+", " ", layer.name)
    kernel = name if len(name) <= 70 else f"{name[:67]}..."
    says = f"~ {box['title']}" if box["slim"] else " + ".join(_said(c) for c in box["chips"])
    types = f"{layer.reads or '-'} → {layer.writes or '-'}"
    return f"{layer.index + 1:4} {layer.kind} | {kernel} | {types} | {says}"


def _said(chip: Any) -> str:
    return chip["title"] if chip["role"] != "work" else chip["op"]


def table(result: Any, model: Any) -> list[str]:
    """The lines of one engine, each checked."""
    view = engine_view(result, model)
    boxes = {b["id"]: b for b in view["graph"]["boxes"]}
    for layer in result.engine.layers:
        check(layer, boxes[layer.id], linked=bool(view["pairs"]))
    return [line(y, boxes[y.id]) for y in result.engine.layers]


def study(name: str) -> Any:
    """A sample with one variant for each precision, and INT8 as ONNX Runtime runs it."""
    sample = rtlab.samples.load(name)
    made = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    for precision in ("fp32", "fp16", "int8", "fp8"):
        calibrator = "minmax" if precision in {"int8", "fp8"} else None
        made.add(precision, precision=precision, calibrator=calibrator, target="sm89", backend="tensorrt-rtx")
    made.add("int8 onnxruntime", precision="int8", calibrator="minmax", target="cpu", backend="onnxruntime")
    return made


def _built(made: Any) -> list[Any]:
    """The results of all variants that can be built."""
    for variant in made.variants:
        with contextlib.suppress(RtlabError):
            made.run([variant], compare=False)
    return list(made.results.values())


@pytest.mark.parametrize("name", SMALL)
def test_cards_of_a_sample_name_the_work_of_their_layers(name: str, golden: Any) -> None:
    """In INT8 a kernel that quantizes bears the label of the convolution; the layer that convolves alone says Conv."""
    made = study(name)
    known = {result.engine.title for result in _built(made)}
    lines = [f"# {', '.join(sorted({title.partition(' · ')[0] for title in known}))}"]
    for variant in made.variants:
        lines.append(f"# {variant}")
        lines += table(made[variant], made.model) if variant in made.results else ["     refused"]
    golden(f"cards/{name}.txt", lines)


@pytest.mark.parametrize(
    "folder",
    ENGINES
    or [pytest.param(None, marks=pytest.mark.skip(reason="no ../shared/recorded beside the checkout"))],
    ids=lambda f: f.name if f else "none",
)
def test_cards_of_a_recorded_engine_name_the_work_of_their_layers(folder: Any, golden: Any) -> None:
    """Engines of TensorRT 8 to 10, with their model where it was recorded."""
    files = [p for pattern in ("engine.graph.json", "*info.json") for p in folder.glob(pattern)]
    known = next(iter(folder.glob("*.onnx")), None)
    model = load(known, weights=False) if known else absent()
    made = rtlab.Study(model)
    result = made.read("engine", layers=files[0])
    lines = table(result, model)
    if folder.name not in UNKEPT:
        golden(f"cards/recorded-{folder.name}.txt", lines)
