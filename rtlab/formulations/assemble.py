"""A layer as a model of its own, and a whole model with layers put in other words."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.errors import ModelError
from rtlab.formulations.fragment import Fragment
from rtlab.formulations.layer import WeightedNode
from rtlab.formulations.table import Formulation

#: The oldest operator set that has what the formulations are made of.
OLDEST = 11


def build_layer_model(layer: WeightedNode, formulation: Formulation) -> onnx.ModelProto:
    """One layer as a model with one input and one output, which bear the names that the layer knows."""
    graph = Fragment(formulation.name)
    output = formulation.build(layer, graph)
    graph.nodes.append(helper.make_node("Identity", [output], [layer.output]))
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            layer.node,
            [helper.make_tensor_value_info(layer.data, TensorProto.FLOAT, layer.shape)],
            [helper.make_tensor_value_info(layer.output, TensorProto.FLOAT, None)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def compose_model(
    model: Model, batch: Batch, choices: Mapping[str, tuple[WeightedNode, Formulation]]
) -> onnx.ModelProto:
    """The model for the shapes of ``batch``, with the formulations ``choices`` by node in place of these nodes.

    Raises:
        ModelError: its operator set is too old for the formulations, or weights cannot be read.
    """
    if choices and model.opset < OLDEST:
        raise ModelError(
            f'Cannot put layers of model "{model.name}" in other words: it is of operator set {model.opset}, and at '
            f"least {OLDEST} is needed. Convert it with onnx.version_converter.convert_version(model, 17)."
        )
    proto = model.proto()
    graph = proto.graph
    for graph_input in graph.input:
        if graph_input.name in batch:
            dims = graph_input.type.tensor_type.shape.dim
            for dim, size in zip(dims, batch[graph_input.name].shape, strict=True):
                dim.dim_value = size
    # What was known of inner values may be of other sizes.
    del graph.value_info[:]
    for graph_output in graph.output:
        graph_output.type.tensor_type.ClearField("shape")
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        choice = choices.get(node.name)
        if choice is None:
            graph.node.append(node)
            continue
        fragment = Fragment(f"{node.name}/{choice[1].name}")
        output = choice[1].build(choice[0], fragment)
        last = next(n for n in fragment.nodes if output in n.output)
        last.output[list(last.output).index(output)] = node.output[0]
        graph.node.extend(fragment.nodes)
        graph.initializer.extend(fragment.constants)
    read = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    bodies = any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute)
    # A body may read weights of the main graph by their names.
    if not bodies:
        used_initializers = [t for t in graph.initializer if t.name in read]
        del graph.initializer[:]
        graph.initializer.extend(used_initializers)
    return proto
