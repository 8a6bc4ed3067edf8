"""What a layer does by its name alone: of an engine built without detailed verbosity a file tells nothing else.

TensorRT's own signs in names come first (copies, reshapes around a product, chains of pointwise operations, Myelin's
kernels), then the operators of the nodes that a name joins. All of it is a reading of the name, and called so.
"""

from __future__ import annotations

import re

from rtlab.core.engine import Layer
from rtlab.relation.dataflow import COPY
from rtlab.relation.names import operator
from rtlab.relation.names import words as spelled

#: A step that changes a shape for the layer whose name follows.
_AROUND = re.compile(r"^(?:copied_)?(?:(?:un)?squeeze|reshape|transpose)(?:_node)?_(?:before|after)_")
_MYELIN = re.compile(r"^__myl_|_myl\d+_\d+$|\{ForeignNode\[")
#: Constants that the builder repeats before their readers.
_CLONE = re.compile(r"_clone_\d+$")
#: What operators are called; of several in a name the first in this order says what the layer is for.
_WORKS: tuple[tuple[str, frozenset[str]], ...] = (
    ("convolution", frozenset({"Conv", "ConvTranspose", "ConvInteger"})),
    ("matrix product", frozenset({"MatMul", "Gemm", "Einsum", "MatMulInteger"})),
    ("softmax", frozenset({"Softmax", "LogSoftmax"})),
    ("normalization", frozenset({"BatchNormalization", "LayerNormalization", "InstanceNormalization", "LRN"})),
    ("pooling", frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})),
    ("reduction", frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"})),
    ("quantization", frozenset({"QuantizeLinear", "DequantizeLinear"})),
    ("slice or concatenation", frozenset({"Slice", "Concat", "Split", "Pad", "Gather"})),
    ("shuffle", frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand"})),
    ("pointwise", frozenset({"Add", "Sub", "Mul", "Div", "Relu", "Clip", "Sigmoid", "Tanh", "Sqrt", "Pow", "Erf"})),
)  # fmt: skip


def has_only_name(layer: Layer) -> bool:
    """Whether all that is told of a layer is its name."""
    return not (layer.kind or layer.inputs or layer.outputs)


def infer_work(layer: Layer) -> str:
    """The work of a layer of which only the name is known, such as "convolution"; empty where nothing tells."""
    if not has_only_name(layer):
        return ""
    if COPY.match(layer.name) or layer.name.endswith(" copy"):
        return "reformat"
    if _MYELIN.search(layer.name):
        return "myelin"
    if layer.name.startswith("PWN("):
        return "pointwise"
    if _CLONE.search(layer.name):
        return "constant"
    operators = {operator(word) for word in split_name(layer)}
    if work_name := next((work for work, ops in _WORKS if operators & ops), ""):
        return work_name
    return "shuffle" if _AROUND.match(layer.name) else ""


def split_name(layer: Layer) -> list[str]:
    """The words of a name, without those of layers that it only stands before or behind."""
    layer_part = " + ".join(part for part in layer.name.split(" + ") if not _AROUND.match(part))
    return spelled(layer_part) if has_only_name(layer) else spelled(layer.name)
