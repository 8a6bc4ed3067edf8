"""What the card of every layer says, of every sample in every precision and of every recorded engine.

Each line is checked against the layer's own kind and the operations in its kernel's name, which are read here once more
and otherwise than in the library; then the table is compared with the one that was kept.
"""

from __future__ import annotations

import re
from typing import Any

import scenes
from rtlab.core.engine import Layer
from rtlab.questions.cards.picture import Box
from rtlab.view.graph import engine_view
from scenes import multiplies, spoken, steps

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
    kernel = spoken(layer)
    says = f"~ {box['title']}" if box["slim"] else " + ".join(_said(c) for c in box["chips"])
    types = f"{layer.reads or '-'} → {layer.writes or '-'}"
    return f"{layer.index + 1:4} {layer.kind} | {kernel} | {types} | {says}"


def _said(chip: Any) -> str:
    return chip["title"] if chip["role"] != "work" else chip["op"]


def table(result: Any, model: Any) -> list[str]:
    """The lines of one engine, each checked."""
    view = engine_view(result.facts, model)
    boxes = {b["id"]: b for b in view["graph"]["boxes"]}
    for layer in result.engine.layers:
        check(layer, boxes[layer.id], linked=bool(view["pairs"]))
    return [line(y, boxes[y.id]) for y in result.engine.layers]


@scenes.samples
def test_cards_of_a_sample_name_the_work_of_their_layers(name: str, golden: Any) -> None:
    """In INT8 a kernel that quantizes bears the label of the convolution; the layer that convolves alone says Conv."""
    model = scenes.study(name).model
    golden(f"cards/{name}.txt", {head: table(r, model) if r else [] for head, r in scenes.results(name)})


@scenes.recorded
def test_cards_of_a_recorded_engine_name_the_work_of_their_layers(folder: Any, golden: Any) -> None:
    """Engines of TensorRT 8 to 10, with their model where it was recorded."""
    result, model = scenes.engine(folder)
    lines = table(result, model)
    if folder.name not in scenes.UNKEPT:
        golden(f"cards/recorded-{folder.name}.txt", {f"# {result.engine.title}": lines})


@scenes.built
def test_cards_of_a_kept_build_name_the_work_of_their_layers(path: Any, golden: Any) -> None:
    """Of TensorRT-RTX for several cards and precisions."""
    result, model = scenes.listing(path)
    golden(f"cards/built-{path.stem}.txt", {f"# {path.stem}": table(result, model)})
