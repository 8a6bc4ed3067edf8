"""What the generated samples are written with: nodes, weights, and the data that flows through them meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rtlab.core.model import Model, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

#: Where all random weights start from, so that a sample is the same everywhere.
SEED = 20


class SampledValue(NamedTuple):
    """A value of the graph with what it holds for the samples that the weights are fitted to."""

    name: str
    data: Array


class Writer:
    """Collects nodes and weights of an ONNX graph under readable names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add an initializer; ``/conv1/weight`` becomes ``conv1.weight`` as PyTorch's exporter writes it."""
        title = name.strip("/").replace("/", ".")
        self.weights[title] = numpy_helper.from_array(array, title)
        return title

    def node(self, op: str, inputs: Sequence[str], where: str, **attributes: Any) -> str:
        """Add a node ``where/op`` with one output and return the output's name."""
        name = f"{where}/{op}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    def rename(self, rules: Mapping[str, str]) -> None:
        """Give nodes, and the values they write, other names: patterns of whole names with what takes their place."""
        for node in self.nodes:
            for pattern, text in rules.items():
                if re.fullmatch(pattern, node.name):
                    node.name = re.sub(pattern, text, node.name)
                    break
        fresh = {o: n.name for n in self.nodes for o in n.output}
        for node in self.nodes:
            node.input[:] = [fresh.get(i, i) for i in node.input]
            node.output[:] = [fresh[o] for o in node.output]

    def model(
        self,
        source: tuple[str, Sequence[int | str]],
        result: str,
        target: tuple[str, Sequence[int | str]],
        *,
        kind: int = onnx.TensorProto.FLOAT,
    ) -> Model:
        """The finished model; the value ``result`` becomes the output ``target``, ``kind`` is the input's type."""
        last = next(n for n in self.nodes if result in n.output)
        last.output[:] = [target[0]]
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(source[0], kind, source[1])],
            [helper.make_tensor_value_info(target[0], onnx.TensorProto.FLOAT, target[1])],
            list(self.weights.values()),
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="rtlab"
        )
        return wrap(proto, name=self.name)
