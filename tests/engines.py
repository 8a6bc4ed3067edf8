"""Engines of thousands of layers, as files: a recorded one many times in a row, and the model of its labels.

Tensors lead from copy to copy; labels and times name the nodes and layers of their own copy.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx

from rtlab.core.model import Model, wrap

# Recordings live beside the checkout, not in it.
RECORDED = (
    Path(__file__).parents[2] / "shared" / "recorded" / "engines" / "fuzzy-mobilenet_v2-rtx3060laptop-fp16"
)


def model(folder: Path) -> Model:
    """The model that was written there; not ``rtlab.load``, because logits are no image, and no weights are there."""
    return wrap(onnx.load(folder / "model.onnx", load_external_data=False), name="repeated")


def proto(copies: int) -> onnx.ModelProto:
    """The recorded engine's model, so many times in a row on the same weights."""
    recorded = _recorded()
    graph = recorded.graph
    weights = {t.name for t in graph.initializer}
    made = onnx.GraphProto(name="repeated")
    made.initializer.extend(graph.initializer)
    for i in range(copies):
        for node in graph.node:
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.name = f"c{i}{node.name}"
            copy.input[:] = [n if n in weights or not n else _value(n, i) for n in node.input]
            copy.output[:] = [_value(n, i) for n in node.output]
    for infos, new, name in (
        (graph.input, made.input, _value("input", 0)),
        (graph.output, made.output, _value("output", copies - 1)),
    ):
        info = new.add()
        info.CopyFrom(next(v for v in infos if v.name not in weights))
        info.name = name
    return onnx.helper.make_model(made, opset_imports=recorded.opset_import, ir_version=8)


def write(folder: Path, layers: int) -> int:
    """Write ``layers.json``, ``profile.json`` and ``model.onnx``, of at least so many layers; of how many copies."""
    document, profile = _json("engine.graph.json"), _json("engine.profile.json")
    copies = -(-layers // len(document["Layers"]))
    ends = [_value("input", 0), _value("output", copies - 1)]
    known = _known()
    content = {"Layers": _copied(document["Layers"], known, copies), "Bindings": ends}
    (folder / "layers.json").write_text(json.dumps(content))
    (folder / "profile.json").write_text(json.dumps([profile[0], *_copied(profile[1:], known, copies)]))
    onnx.save(proto(copies), folder / "model.onnx")
    return copies


def _recorded() -> onnx.ModelProto:
    return onnx.load(RECORDED / "model.structure-only.onnx", load_external_data=False)


def _json(name: str) -> Any:
    return json.loads((RECORDED / name).read_text(), strict=False)


def _value(name: str, copy: int) -> str:
    """A tensor's name in one copy: the output of each is the input of the next."""
    return f"c{copy + 1}input" if name == "output" else f"c{copy}{name}"


def _known() -> re.Pattern[str]:
    """Names of nodes and of values in text, also as Myelin spells them."""
    graph = _recorded().graph
    names = {n for node in graph.node for n in (node.name, *node.output)} - {"output"}
    names |= {n.replace(".", "_") for n in names}
    return re.compile("|".join(re.escape(n) for n in sorted(names, key=len, reverse=True)))


def _copied(found: list[Any], known: re.Pattern[str], copies: int) -> list[Any]:
    """Objects of JSON so many times in a row, under the names of each copy."""
    marked = [_each(y, lambda text: known.sub(lambda m: f"\0{m[0]}", text)) for y in found]

    def named(text: str, i: int) -> str:
        return _value(text, i) if text in {"input", "output"} else text.replace("\0", f"c{i}")

    return [_each(y, lambda text, i=i: named(text, i)) for i in range(copies) for y in marked]  # type: ignore[misc]


def _each(found: Any, change: Any) -> Any:
    """JSON with every text changed, keys apart."""
    if isinstance(found, dict):
        return {k: _each(v, change) for k, v in found.items()}
    if isinstance(found, list):
        return [_each(v, change) for v in found]
    return change(found) if isinstance(found, str) else found
