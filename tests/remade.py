"""Recorded engines whose ONNX model is not at hand, taken apart again: one node for each that a layer names.

A name such as ``fc.weight + QuantizeLinear_7 + Conv_9 + Add_10 + Relu_11`` tells the nodes of a layer, and the tensors
of the file tell which layer reads what another writes. From both follows the graph before it was fused, but for nodes
that no name tells: the pairs around what is quantized, which are put in where a tensor is INT8. Where names end in the
exporter's numbers these give the order of the nodes, else it is that of the layers. Widths are one.
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
    (r"PWN\(Clip|Clip_|/Clip$", "Clip"),
    (r"QuantizeLinear_|QuantLinearNode", "QuantizeLinear"),
    (r"^Conv_|/Conv$|Conv2D(__\d+)?$|\[CONVOLUTION\]|Conv__\d+$", "Conv"),
    (r"^Add_|/Add$|add/add$|\[ELEMENTWISE\].*add", "Add"),
    (r"^Relu_|/Relu$|\[RELU\]", "Relu"),
    (r"GlobalAveragePool|/Mean$|\[REDUCE\]", "GlobalAveragePool"),
    (r"MaxPool|\[MAX\]", "MaxPool"),
    (r"\[SCALE\]", "BatchNormalization"),
    (r"^Gemm_|/Gemm$|MatMul$|\[MATRIX_MULTIPLY\]", "Gemm"),
    (r"Softmax$", "Softmax"),
    (r"/Pad$", "Pad"),
    (r"BiasAdd$", "Conv"),
    (r"DequantizeLinear_", "DequantizeLinear"),
)
#: What is no node of the model, by what stands in its name or at its beginning.
_OTHERS = re.compile(r"weight|ReadVariableOp|Unnamed Layer|^unsqueeze|^transpose_before|^addmm")


def part_of(text: str) -> tuple[str, str] | None:
    """The node and the operator of a part of a layer's name; None where it is none."""
    name = text.strip()
    if name.startswith("PWN(") and name.endswith(")"):
        name = name[4:-1]
    if _OTHERS.search(name):
        return None
    op = next((op for pattern, op in _OPS if re.search(pattern, text.strip())), None)
    return None if op is None else (name, op)


def parts(layer: str) -> list[tuple[str, str]]:
    """The nodes that a layer's name tells, in its order."""
    found = [p for text in layer.split(" + ") if (p := part_of(text)) is not None]
    if any(op == "Gemm" for _, op in found):
        # What TensorFlow calls so is the convolution itself elsewhere.
        found = [(n, "Add" if n.endswith("BiasAdd") else op) for n, op in found]
    return found


class Remade:
    """The model of a recorded engine before it was fused, and which named nodes share a layer in truth."""

    def __init__(self, file: Path) -> None:
        layers = [y for y in json.loads(file.read_text(errors="replace"))["Layers"] if not isinstance(y, str)]
        self.together: list[list[str]] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {
            "scale": np.array(0.1, np.float32),
            "one": np.ones(1, np.float32),
        }
        self.alias: dict[str, str] = {}
        self.int8: set[str] = set()
        self._floats: dict[str, str] = {}
        self._flow, self._weight = "", ""
        self._others: list[str] = []
        for layer in layers:
            self._layer(layer)
        self.model = self._model()

    def _source(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def _float(self, name: str) -> str:
        """A value in floating point: behind a DequantizeLinear where it is INT8."""
        name = self._source(name)
        if name not in self.int8:
            return name
        if name not in self._floats:
            self._floats[name] = self._add("DequantizeLinear", f"DQ of {name}", [name, "scale"])
        return self._floats[name]

    def _add(self, op: str, name: str, inputs: list[str], out: str = "", **attributes: object) -> str:
        out = out or f"{name}.out"
        self.nodes.append(helper.make_node(op, inputs, [out], name=name, **attributes))
        return out

    def _layer(self, layer: dict) -> None:
        """The nodes of a layer, one after the other."""
        name, reads = layer["Name"], [t["Name"] for t in layer["Inputs"]]
        writes, found = [t["Name"] for t in layer["Outputs"]], parts(name)
        if not found or name.startswith("Reformatting"):
            self.alias.update((out, reads[0]) for out in writes if reads)
            return
        self.together.append([n for n, _ in found])
        ops = [op for _, op in found]
        first = self._source(reads[0]) if ops[0] == "DequantizeLinear" else self._float(reads[0])
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
                self._flow = self._add("QuantizeLinear", f"Q of {writes[0]}", [self._flow, "scale"])
            self.int8.add(self._flow)
        self.alias[writes[0]] = self._flow

    def _quantized_weight(self, layer: dict, node: str) -> None:
        """The pair of a weight, of which the name tells the first."""
        self.weights[f"{node}.weight"] = np.ones((1, 1, *self._kernel(layer)), np.float32)
        stored = self._add("QuantizeLinear", node, [f"{node}.weight", "scale"])
        self._weight = self._add("DequantizeLinear", f"DQ {node}", [stored, "scale"])

    def _step(self, layer: dict, node: str, op: str) -> None:
        """A node behind what is there by now."""
        flow, more = self._flow, {}
        inputs = [flow]
        if op in {"Conv", "Gemm"}:
            if not self._weight:
                self._weight = f"{node}.weight"
                self.weights[self._weight] = np.ones((1, 1, *self._kernel(layer)), np.float32)
            inputs, op, more = [flow, self._weight], "Conv", {"strides": self._strides(layer)}
        elif op == "Add":
            inputs = [flow, self._others.pop(0) if self._others and not node.endswith("BiasAdd") else "one"]
        elif op == "BatchNormalization":
            inputs = [flow, *["one"] * 4]
        elif op in {"QuantizeLinear", "DequantizeLinear"}:
            inputs = [flow, "scale"]
        elif op == "MaxPool":
            more = {"kernel_shape": [1, 1]}
        elif op == "Pad":
            self.weights["pads"] = np.zeros(8, np.int64)
            inputs = [flow, "pads"]
        self._flow = self._add(op, node, inputs, **more)

    @staticmethod
    def _kernel(layer: dict) -> tuple[int, int]:
        told = layer.get("Kernel") or [1, 1]
        return (1, 1) if len(told) != 2 else (int(told[0]), int(told[1]))

    @staticmethod
    def _strides(layer: dict) -> list[int]:
        told = layer.get("Stride") or [1, 1]
        return [int(d) for d in told] if len(told) == 2 else [1, 1]

    def _model(self) -> Model:
        made = {o for n in self.nodes for o in n.output}
        read = [i for n in self.nodes for i in n.input]
        given = [i for i in dict.fromkeys(read) if i not in made and i not in self.weights]
        last = [o for n in self.nodes for o in n.output if o not in set(read)]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in given]
        outs = [helper.make_empty_tensor_value_info(o) for o in last]
        constants = [numpy_helper.from_array(v, k) for k, v in self.weights.items()]
        graph = helper.make_graph(self._sorted(), "remade", ends, outs, constants)
        return wrap(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name="remade"
        )

    def _sorted(self) -> list[onnx.NodeProto]:
        """The nodes by the exporter's numbers as far as their inputs allow it."""

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
