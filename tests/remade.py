"""Recorded engines whose ONNX model is not at hand, taken apart again: one node for each that a layer names.

A name such as ``fc.weight + QuantizeLinear_7 + Conv_9 + Add_10 + Relu_11`` tells the nodes of a layer, and the tensors
of the file tell which layer reads what another writes. From both follows the graph before it was fused, but for nodes
that no name tells: the pairs around what is quantized, which are put in where a tensor is INT8. Where names end in the
exporter's numbers these give the order of the nodes, else it is that of the layers. Widths are one, or those that the
file tells, with which a compiler can build the graph.

Such a graph comes from what it is compared with: it cannot show what names leave out, and each node that it has is one
that the engine named.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rtlab.core.model import Model, wrap

#: What a part of a name is, by how it begins or ends. What fits none of them is no node: weights, constants, shuffles.
_OPS = (
    (r"PWN\(Clip|Clip_|/Clip$", "Clip"), (r"QuantizeLinear_|QuantLinearNode", "QuantizeLinear"),
    (r"^Conv_|/Conv$|Conv2D(__\d+)?$|\[CONVOLUTION\]|Conv__\d+$", "Conv"),
    (r"^Add_|/Add$|add/add$|\[ELEMENTWISE\].*add", "Add"), (r"^Relu_|/Relu$|\[RELU\]", "Relu"),
    (r"GlobalAveragePool|/Mean$|\[REDUCE\]", "GlobalAveragePool"), (r"MaxPool|\[MAX\]", "MaxPool"),
    (r"\[SCALE\]", "BatchNormalization"), (r"^Gemm_|/Gemm$|MatMul$|\[MATRIX_MULTIPLY\]", "Gemm"),
    (r"Softmax$", "Softmax"), (r"/Pad$", "Pad"), (r"BiasAdd$", "Conv"), (r"DequantizeLinear_", "DequantizeLinear"),
)  # fmt: skip
#: What is no node of the model, by what stands in its name or at its beginning.
_OTHERS = re.compile(r"weight|ReadVariableOp|Unnamed Layer|^unsqueeze|^transpose_before|^addmm")


def part_of(text: str) -> tuple[str, str] | None:
    name = text.strip()
    if name.startswith("PWN(") and name.endswith(")"):
        name = name[4:-1]
    if _OTHERS.search(name):
        return None
    op = next((op for pattern, op in _OPS if re.search(pattern, text.strip())), None)
    return None if op is None else (name, op)


def parts(layer: str) -> list[tuple[str, str]]:
    found = [p for text in layer.split(" + ") if (p := part_of(text)) is not None]
    if any(op == "Gemm" for _, op in found):
        # What TensorFlow calls so is the convolution itself elsewhere.
        found = [(n, "Add" if n.endswith("BiasAdd") else op) for n, op in found]
    return found


class _Told:
    """The parameters of a layer in its file; those of two in one bear the name of the part before theirs."""

    def __init__(self, layer: dict, part: str = "Conv") -> None:
        self.layer, self.part = layer, part if layer.get("ParameterType") == "ConvActPool" else ""

    def _told(self, name: str) -> object:
        return self.layer.get(f"{self.part}{name}")

    def pair(self, name: str, usual: int) -> list[int]:
        found = self._told(name)
        return [int(d) for d in found] if isinstance(found, list) and len(found) == 2 else [usual] * 2

    def pads(self) -> list[int]:
        """As ONNX counts them: all before, then all behind."""
        return [*self.pair("PrePadding", 0), *self.pair("PostPadding", 0)]

    def around(self) -> np.ndarray:
        """The same of a layer that only pads: it is told as a slice that begins before its input."""
        start, size, shape = self.layer["Start"], self.layer["Size"], self.layer["Inputs"][0]["Dimensions"]
        behind = [n + a - d for a, n, d in zip(start, size, shape, strict=True)]
        return np.array([*(-a for a in start), *behind], np.int64)

    @property
    def wide(self) -> int:
        return int(self._told("OutMaps") or self.layer["Outputs"][0]["Dimensions"][1])

    @property
    def read(self) -> int:
        return int(self.layer["Inputs"][0]["Dimensions"][1])

    @property
    def groups(self) -> int:
        return int(self._told("Groups") or 1)

    @property
    def biased(self) -> bool:
        bias, name = self._told("Bias"), str(self.layer["Name"])
        apart = any(op in {"BatchNormalization", "Gemm"} for _, op in parts(name)) or "BiasAdd" in name
        return isinstance(bias, dict) and bool(bias.get("Count")) and not apart


class Remade:
    """The model of a recorded engine before it was fused, and which named nodes share a layer in truth."""

    def __init__(self, file: Path, *, sized: bool = False) -> None:
        layers = [y for y in json.loads(file.read_text(errors="replace"))["Layers"] if not isinstance(y, str)]
        self.together: list[list[str]] = []
        #: The layers that do a node's work, by their places: those that name it, read it as INT8 or write it so.
        self.homes: dict[str, set[int]] = {}
        self.sized = sized
        self.sizes: dict[str, list[int]] = {t["Name"]: t["Dimensions"] for y in layers for t in y["Inputs"]}
        self._at = 0
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {
            "scale": np.array(0.1, np.float32),
            "zero": np.array(0, np.int8),
            "one": np.ones(1, np.float32),
        }
        self.alias: dict[str, str] = {}
        self.int8: set[str] = set()
        self._floats: dict[str, str] = {}
        self._flow, self._weight = "", ""
        self._others: list[str] = []
        for self._at, layer in enumerate(layers):
            self._layer(layer)
        self.model = self._model()

    def source(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def _float(self, name: str) -> str:
        """A value in floating point: behind a DequantizeLinear where it is INT8."""
        name = self.source(name)
        if name not in self.int8:
            return name
        if name not in self._floats:
            self._floats[name] = self._add("DequantizeLinear", f"DQ of {name}", [name, "scale", "zero"])
        self.homes[f"DQ of {name}"].add(self._at)
        return self._floats[name]

    def _add(self, op: str, name: str, inputs: list[str], out: str = "", **attributes: object) -> str:
        out = out or f"{name}.out"
        self.nodes.append(helper.make_node(op, inputs, [out], name=name, **attributes))
        self.homes.setdefault(name, set()).add(self._at)
        return out

    def _layer(self, layer: dict) -> None:
        name, reads = layer["Name"], [t["Name"] for t in layer["Inputs"]]
        writes, found = [t["Name"] for t in layer["Outputs"]], parts(name)
        if self.sized and layer["LayerType"] == "Shuffle" and layer.get("FirstTranspose") == [0, 3, 1, 2]:
            source = self.source(reads[0])
            turned = self._add("Transpose", f"Transpose of {name}", [source], perm=[0, 3, 1, 2])
            self.alias[writes[0]] = turned
            self.int8 |= {turned} if source in self.int8 else set()
            return
        if not found or name.startswith("Reformatting") or layer["LayerType"] in {"Shuffle", "NoOp"}:
            self.alias.update((out, reads[0]) for out in writes if reads)
            return
        self.together.append([n for n, _ in found])
        ops = [op for _, op in found]
        first = self.source(reads[0]) if ops[0] == "DequantizeLinear" else self._float(reads[0])
        self._flow, self._others, self._weight = first, [self._float(r) for r in reads[1:]], ""
        for node, op in found:
            if op == "QuantizeLinear" and {"Conv", "Gemm"} & set(ops):
                self._quantized_weight(layer, node)
            else:
                self._step(layer, node, op)
        if layer.get("Activation") == "RELU" and not {"Relu", "Clip"} & set(ops):
            self._flow = self._add("Relu", f"Relu of {name}", [self._flow])
        if "Int8" in layer["Outputs"][0]["Format/Datatype"]:
            if ops[-1] != "QuantizeLinear":
                self._flow = self._add("QuantizeLinear", f"Q of {writes[0]}", [self._flow, "scale", "zero"])
            self.int8.add(self._flow)
        self.alias[writes[0]] = self._flow

    def _quantized_weight(self, layer: dict, node: str) -> None:
        self.weights[f"{node}.weight"] = self._numbers(_Told(layer))
        stored = self._add("QuantizeLinear", node, [f"{node}.weight", "scale", "zero"])
        self._weight = self._add("DequantizeLinear", f"DQ {node}", [stored, "scale", "zero"])

    def _step(self, layer: dict, node: str, op: str) -> None:
        flow, more, told = self._flow, {}, _Told(layer)
        inputs = [flow]
        if op in {"Conv", "Gemm"}:
            self._product(node, told)
            return
        if op == "Add":
            constant = not self._others or node.endswith("BiasAdd")
            other = self._vector(f"{node}.constant", told.wide, 1, 1) if constant else self._others.pop(0)
            inputs = [flow, other]
        elif op == "BatchNormalization":
            names = (f"{node}.{k}" for k in ("scale", "beta", "mean", "var"))
            inputs = [flow, *(self._vector(n, told.wide) for n in names)]
        elif op in {"QuantizeLinear", "DequantizeLinear"}:
            inputs = [flow, "scale", "zero"]
        elif op == "MaxPool":
            more = {"kernel_shape": [1, 1]}
            if self.sized:
                pool = _Told(layer, "Pooling")
                more = {"kernel_shape": pool.pair("WindowSize", 1), "strides": pool.pair("Stride", 1)}
                more |= {"pads": pool.pads()}
        elif op == "Pad":
            self.weights[f"{node}.pads"] = told.around() if self.sized else np.zeros(8, np.int64)
            inputs = [flow, f"{node}.pads"]
        elif op == "Softmax":
            more = {"axis": 1} if self.sized else {}
        self._flow = self._add(op, node, inputs, **more)

    def _product(self, node: str, told: _Told) -> None:
        if not self._weight:
            self._weight = f"{node}.weight"
            self.weights[self._weight] = self._numbers(told)
        inputs, more = [self._flow, self._weight], {"strides": told.pair("Stride", 1)}
        if self.sized:
            more |= {"pads": told.pads(), "group": told.groups}
            inputs += [self._vector(f"{node}.bias", told.wide)] if told.biased else []
        self._flow = self._add("Conv", node, inputs, **more)

    def _numbers(self, told: _Told) -> np.ndarray:
        kernel = told.pair("Kernel", 1)
        if not self.sized:
            return np.ones((1, 1, *kernel), np.float32)
        shape = (told.wide, told.read // told.groups, *kernel)
        spread = np.float32(np.sqrt(2 / np.prod(shape[1:])))
        return np.resize(np.random.default_rng(self._at).standard_normal(9973, np.float32) * spread, shape)

    def _vector(self, name: str, *shape: int) -> str:
        if not self.sized:
            return "one"
        self.weights[name] = np.full(shape, 0.5, np.float32)
        return name

    def _model(self) -> Model:
        made = {o for n in self.nodes for o in n.output}
        read = [i for n in self.nodes for i in n.input]
        given = [i for i in dict.fromkeys(read) if i not in made and i not in self.weights]
        last = [o for n in self.nodes for o in n.output if o not in set(read)]
        shapes = self.sizes if self.sized else {}
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes.get(n)) for n in given]
        outs = [helper.make_empty_tensor_value_info(o) for o in last]
        constants = [numpy_helper.from_array(v, k) for k, v in self.weights.items()]
        graph = helper.make_graph(self._sorted(), "remade", ends, outs, constants)
        return wrap(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name="remade"
        )

    def _sorted(self) -> list[onnx.NodeProto]:
        def key(i: int) -> tuple[int, int]:
            found = re.fullmatch(r"[A-Z][a-zA-Z]*_(\d+)", self.nodes[i].name)
            return (int(found[1]) if found else 0, i)

        makers = {o: i for i, n in enumerate(self.nodes) for o in n.output}
        needs = {i: {makers[v] for v in n.input if v in makers} for i, n in enumerate(self.nodes)}
        done: list[int] = []
        left = set(needs)
        while left:
            ready = min((i for i in left if needs[i] <= set(done)), key=key)
            done.append(ready)
            left.discard(ready)
        return [self.nodes[i] for i in done]
