"""Projects a model and an engine to graphs that a browser can draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, Node, shape_text
from rtlab.view.contract import (
    Box,
    Detail,
    Edge,
    EngineView,
    Family,
    Graph,
    OpChip,
    Pair,
    Port,
    Unmapped,
)
from rtlab.view.overlays import histograms, overlays

if TYPE_CHECKING:
    from rtlab.study import Result

#: Netron's families of operators, after its own grouping of ONNX.
_FAMILIES: Mapping[Family, str] = {
    "convolution": "Conv ConvTranspose ConvInteger QLinearConv FusedConv DeformConv NhwcFusedConv QLinearConvTranspose",
    "matmul": "Gemm MatMul MatMulInteger QLinearMatMul FusedMatMul FusedGemm LSTM GRU RNN Attention Einsum "
    "MultiHeadAttention QGemm MatMulNBits DynamicQuantizeMatMul",
    "activation": "Relu LeakyRelu PRelu Sigmoid Tanh Clip Softmax LogSoftmax HardSigmoid HardSwish Elu Selu Celu "
    "Gelu Softplus Softsign ThresholdedRelu Mish QuickGelu BiasGelu FastGelu QLinearSigmoid QLinearLeakyRelu Swish",
    "pool": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool MaxUnpool ReduceMean "
    "QLinearAveragePool QLinearGlobalAveragePool",
    "normalization": "BatchNormalization LayerNormalization InstanceNormalization GroupNormalization LRN "
    "LpNormalization MeanVarianceNormalization SkipLayerNormalization RMSNormalization",
    "shape": "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Concat Expand Tile Gather GatherElements "
    "GatherND Pad Shape Size Resize Upsample DepthToSpace SpaceToDepth ReorderInput ReorderOutput QLinearConcat",
    "quantize": "QuantizeLinear DequantizeLinear DynamicQuantizeLinear Cast CastLike",
    "control": "If Loop Scan SequenceMap",
}
_FAMILY: Mapping[str, Family] = {op: f for f, ops in _FAMILIES.items() for op in ops.split()}
_SHORT = {"BatchNormalization": "BN", "GlobalAveragePool": "GAP", "LayerNormalization": "LN", "Relu": "ReLU",
          "QuantizeLinear": "Q", "DequantizeLinear": "DQ", "MaxPool": "MaxPool"}  # fmt: skip
#: Attributes that say at a glance what a node does.
_GLANCE = {"kernel_shape": "kernel", "strides": "stride", "axis": "axis", "perm": "perm", "alpha": "alpha"}


def family(op: str) -> Family:
    """The colour family of an operator."""
    return _FAMILY.get(op, "other")


def source_graph(model: Model) -> Graph:
    """The main graph of a model: nodes, input and output pills; constants show inside their consumers."""
    nodes = [n for n in model.top if n.op != "Constant"]
    boxes: list[Box] = [_pill(model, name, "input") for name in model.inputs]
    boxes += [_node_box(model, n) for n in nodes]
    boxes += [_pill(model, name, "output") for name in model.outputs]
    position = {b["id"]: i for i, b in enumerate(boxes)}
    edges: list[Edge] = []
    producers = {**{name: f"input {name}" for name in model.inputs}}
    producers.update({o: n.id for n in nodes for o in n.outputs if o})
    reads: list[tuple[str, Iterable[str]]] = [(n.id, _reads(model, n)) for n in nodes]
    reads += [(f"output {name}", (name,)) for name in model.outputs]
    for reader, names in reads:
        for name in dict.fromkeys(names):
            if name in producers:
                value = model.values.get(name)
                label = f"{shape_text(value.shape)} {value.dtype}".strip() if value else ""
                edges.append(
                    Edge(source=position[producers[name]], target=position[reader], value=name, label=label)
                )
    return Graph(
        id="source",
        title="ONNX",
        subtitle=f"{len(model.top)} nodes",
        boxes=boxes,
        edges=edges,
    )


def _reads(model: Model, node: Node) -> list[str]:
    """Values that a node reads, those of its bodies included."""
    names = [i for i in node.inputs if i]
    if any(str(v).startswith("graph of") for v in node.attributes.values()):
        names += [i for n in model.nodes if node.id in n.scope for i in n.inputs if i]
    return names


def engine_graph(engine: Engine, result: Result, model: Model) -> Graph:
    """The layers of an engine in order of execution."""
    boxes: list[Box] = [_engine_pill(t, "input") for t in engine.inputs]
    first = len(boxes)
    boxes += [_layer_box(layer, result, model) for layer in engine.layers]
    last = len(boxes)
    boxes += [_engine_pill(t, "output") for t in engine.outputs]
    edges: list[Edge] = []
    producers: defaultdict[str, list[int]] = defaultdict(list)
    for i, tensor in enumerate(engine.inputs):
        producers[tensor.name].append(i)
    loose: list[int] = []
    for layer in engine.layers:
        at = first + layer.index
        for tensor in {t.name: t for t in layer.inputs}.values():
            edges += [
                Edge(source=p, target=at, value=tensor.name, label=_tensor_label(tensor))
                for p in producers[tensor.name]
                if p != at
            ]
            if not producers[tensor.name]:
                loose.append(layer.index)
        for tensor in layer.outputs:
            if at not in producers[tensor.name]:
                producers[tensor.name].append(at)
    for i, tensor in enumerate(engine.outputs):
        edges += [
            Edge(source=p, target=last + i, value=tensor.name, label=_tensor_label(tensor))
            for p in producers[tensor.name][-1:]
        ]
        if not producers[tensor.name] and engine.layers:
            # A view of a step's output bears the output's name nowhere: the last step feeds it.
            edges.append(
                Edge(source=last - 1, target=last + i, value=tensor.name, label=_tensor_label(tensor))
            )
    edges += _through_model(result, model, loose, first, edges)
    return Graph(
        id=result.variant.id,
        title=f"{engine.title.rsplit(' · ', 1)[0]}",
        subtitle=f"{engine.place} · {len(engine.layers)} {engine.detail}s",
        boxes=boxes,
        edges=edges,
    )


def _through_model(
    result: Result, model: Model, loose: Sequence[int], first: int, have: Sequence[Edge]
) -> list[Edge]:
    """Edges into layers that read a tensor under another name, from the dataflow of the model."""
    engine = result.engine
    known = {(e["source"], e["target"]) for e in have}
    order = {layer.id: layer.index for layer in engine.layers}
    added: list[Edge] = []
    for index in dict.fromkeys(loose):
        layer = engine.layers[index]
        seen: set[str] = set()
        own = set(result.mapping.nodes(layer.id))
        todo = [i for n in own if n in model.by_id for i in model.by_id[n].inputs]
        while todo:
            name = todo.pop()
            node = model.producers.get(name)
            if node is None or node.id in seen:
                continue
            seen.add(node.id)
            sources = [order[i] for i in result.mapping.layers(node.id) if order[i] < index]
            if node.id in own or not sources:
                todo += node.inputs
                continue
            edge = (first + max(sources), first + index)
            if edge not in known:
                known.add(edge)
                value = model.values.get(name)
                label = f"{shape_text(value.shape)}" if value else ""
                added.append(Edge(source=edge[0], target=edge[1], value=name, label=label))
    return added


def engine_view(result: Result, model: Model) -> EngineView:
    """A variant's engine, its relation to the source model, and every number with its origin."""
    return EngineView(
        variant=result.name,
        graph=engine_graph(result.engine, result, model),
        pairs=[Pair(node=p.node, layer=p.layer, evidence=p.evidence) for p in result.mapping.pairs],
        unmapped=[Unmapped(node=m.node, reason=m.reason, text=m.text) for m in result.mapping.missing],
        overlays=overlays(result, model),
        histograms=histograms(result, model),
    )


def _node_box(model: Model, node: Node) -> Box:
    ports = [_port(model, i) for i in node.inputs if i]
    weights = [p["shape"] for p in ports if p["constant"] and "×" in p["shape"]][:1]
    glance = [
        f"{label} {_short(node.attributes[key])}" for key, label in _GLANCE.items() if key in node.attributes
    ]
    outputs = [_port(model, o) for o in node.outputs if o]
    details = [Detail(key="name", value=node.name or "—"), Detail(key="operator", value=_operator(node))]
    details += [Detail(key=k, value=_short(v)) for k, v in node.attributes.items()]
    return Box(
        id=node.id,
        kind="node",
        op=node.op,
        family=family(node.op),
        title=node.title,
        lines=weights or glance[:1],
        chips=[],
        precision=outputs[0]["dtype"] if outputs else "",
        stream=0,
        slim=False,
        inputs=ports,
        outputs=outputs,
        details=details,
    )


def _operator(node: Node) -> str:
    return f"{node.domain}.{node.op}" if node.domain not in {"", "ai.onnx"} else node.op


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        text = "×".join(str(v) for v in value) if all(isinstance(v, int) for v in value) else str(value)
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _port(model: Model, name: str) -> Port:
    value = model.values.get(name)
    return Port(
        name=name,
        dtype=value.dtype if value else "",
        shape=shape_text(value.shape if value else None),
        format="",
        constant=value is not None and value.kind == "constant",
    )


def _pill(model: Model, name: str, kind: str) -> Box:
    port = _port(model, name)
    return _empty_box(f"{kind} {name}", kind, name, port)


def _engine_pill(tensor: Tensor, kind: str) -> Box:
    return _empty_box(f"{kind} {tensor.name}", kind, tensor.name, _tensor_port(tensor))


def _empty_box(id_: str, kind: str, title: str, port: Port) -> Box:
    return Box(
        id=id_,
        kind="input" if kind == "input" else "output",
        op=kind,
        family="other",
        title=title,
        lines=[f"{port['shape']} {port['dtype']}".strip()],
        chips=[],
        precision=port["dtype"],
        stream=0,
        slim=False,
        inputs=[port] if kind == "output" else [],
        outputs=[port] if kind == "input" else [],
        details=[],
    )


def _layer_box(layer: Layer, result: Result, model: Model) -> Box:
    nodes = [model.by_id[i] for i in result.mapping.nodes(layer.id)]
    # Execution order is graph order; the compiler lists labels in an order of its own.
    nodes.sort(key=lambda n: n.index)
    chips = [
        OpChip(op=_SHORT.get(op, op), family=family(op), node=n.id)
        for n in nodes
        for op in _runs(layer, n, result.prepared.model)
    ]
    move = _move(layer) if not nodes else ""
    details = [
        Detail(key="layer", value=layer.name),
        Detail(key="kind", value=layer.kind),
        Detail(key="step", value=f"{layer.index + 1} of {len(result.engine.layers)}"),
    ]
    if layer.tactic:
        details.append(Detail(key="tactic", value=layer.tactic))
    details.append(Detail(key="stream", value=str(layer.stream)))
    return Box(
        id=layer.id,
        kind="layer",
        op=layer.kind,
        family=family(nodes[0].op) if nodes else "shape",
        title=move or layer.name,
        lines=[],
        chips=chips,
        precision=layer.precision,
        stream=layer.stream,
        slim=not nodes,
        inputs=[_tensor_port(t) for t in layer.inputs]
        + [_tensor_port(t, constant=True) for t in layer.constants],
        outputs=[_tensor_port(t) for t in layer.outputs],
        details=details,
    )


def _runs(layer: Layer, node: Node, built: Model) -> list[str]:
    """What a layer runs of a node: the node itself, or only what a preparation put around it, such as its Q."""
    parts = [built.by_id[i] for i in layer.origins if i in built.by_id and built.by_id[i].origin == node.id]
    if not parts or any(p.id == node.id for p in parts):
        return [node.op]
    return list(dict.fromkeys(p.op for p in parts))


def _move(layer: Layer) -> str:
    """What a step without nodes does, from the layouts and types that it reads and writes."""
    if not layer.inputs or not layer.outputs:
        return layer.kind
    a, b = layer.inputs[0], layer.outputs[0]
    if a.dtype != b.dtype:
        return f"reformat {a.dtype} → {b.dtype}"
    before, after = _layout(a.format), _layout(b.format)
    if before and after and before != after:
        return f"layout move {before} → {after}"
    return "layout move" if layer.kind in {"kgen", "ReorderInput", "ReorderOutput", "copy"} else layer.kind


def _layout(text: str) -> str:
    """The short name of a memory layout: the word in brackets that the compiler prints first."""
    inside = text.partition("(")[2].partition(")")[0]
    return {"Linear": "NCHW"}.get(inside, inside)


def _tensor_port(tensor: Tensor, *, constant: bool = False) -> Port:
    return Port(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=shape_text(tensor.shape),
        format=tensor.format,
        constant=constant,
    )


def _tensor_label(tensor: Tensor) -> str:
    return f"{shape_text(tensor.shape)} {tensor.dtype}".strip()
