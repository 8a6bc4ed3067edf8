"""Projects a model and an engine to graphs that a browser can draw."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.calibration.pairs import trace_pairs
from rtlab.analyses.cards.card import BoxBuilder, get_family
from rtlab.analyses.cards.picture import Box, Detail, Edge, Graph, Overlay, OverlayValue, Port, Told, make_box
from rtlab.analyses.fusion import map_measured_engine, map_nodes
from rtlab.analyses.panels import list_panels
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.roofline.estimate import describe_estimate_error
from rtlab.analyses.timing import compute_timing, get_layer_times
from rtlab.analyses.timing.times import LayerTime, SharedTime, Timing, map_times_to_nodes
from rtlab.core.data import RANDOM
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.module_path import read_module_class, read_module_path, read_source_line
from rtlab.core.node import Node
from rtlab.core.node_instances import NodeInstance, Subgraph
from rtlab.core.phrases import pluralize
from rtlab.core.value import describe, shape_text
from rtlab.quantize.export import build_commands, make_file_stem
from rtlab.relation.dataflow import Writers
from rtlab.relation.footprint import Footprint, of_layers, of_nodes, sizes
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import map_to_places
from rtlab.relation.roles import SERVING
from rtlab.web.page.contract import EngineView, Later
from rtlab.web.page.repeats import find_repeated_blocks

if TYPE_CHECKING:
    from rtlab.analyses.accuracy import Accuracy, ValueDelta
    from rtlab.analyses.roofline.estimate import Roofline
    from rtlab.core.facts import VariantResult

#: Names of measured layers that a note lists before it says that there are more.
_LISTED = 4


def build_overlays(result: VariantResult, model: Model) -> list[Overlay]:
    """The estimate for the engine's GPU, time and error where they were measured, memory of outputs.

    What was measured on a CPU in the place of a GPU comes after the estimate for that GPU.
    """
    overlay_list: list[Overlay] = []
    estimate, timing = estimate_timing(result), compute_timing(result)
    mapping, accuracy = map_measured_engine(result), compute_accuracy(result)
    if estimate is not None and estimate.coverage.enough:
        overlay_list.append(_estimate(result, estimate))
    if timing is not None and mapping is not None:
        overlay_list.append(_times(timing, map_times_to_nodes(timing, mapping), get_layer_times(result)))
    if accuracy is not None:
        error_overlays = (_errors(result, model, accuracy), _errors(result, model, accuracy, local_only=True))
        overlay_list += [errors for errors in error_overlays if errors is not None]
    for overlay in overlay_list:
        # What is known of a node of a function holds wherever the function is called.
        overlay["nodes"] = {i: r for n, r in overlay["nodes"].items() for i in model.where(n)}
    if memory_overlay := _memory(result, model):
        overlay_list.append(memory_overlay)
    return overlay_list


def _memory(result: VariantResult, model: Model) -> Overlay | None:
    nodes, layers = of_nodes(model), of_layers(result.engine, result.prepared.model)
    if not nodes and not layers:
        return None
    is_reported = all(f.origin == "reported" for f in (*nodes.values(), *layers.values()))
    reading = functools.cache(_bytes)
    at = ", ".join(f"{symbol} = {size}" for symbol, size in sizes(model).items())
    return Overlay(
        id="memory",
        title="Output memory",
        unit="B",
        # One estimate among reported sizes makes the whole an estimate.
        origin="reported" if is_reported else "estimated",
        source=result.engine.title if is_reported else f"from shapes and types{at and ', at '}{at}",
        best="low",
        ranked=True,
        nodes={i: reading(f) for i, f in nodes.items()},
        layers={i: reading(f) for i, f in layers.items()},
    )


def _bytes(footprint: Footprint) -> OverlayValue:
    outputs = f"{footprint.tensors} outputs" if footprint.tensors > 1 else "1 output"
    note = f"{outputs}, {footprint.origin}"
    return _single_value(float(footprint.nbytes), note)


def _estimate(result: VariantResult, roofline: Roofline) -> Overlay:
    times = roofline.milliseconds(result.engine)
    total = sum(times.values())
    layers = tuple(
        LayerTime(i, time, None, time / total if total else 0.0) for i, time in times.items() if time
    )
    # As if it had been measured, so that nodes get theirs in the same way.
    timing = Timing("", "", None, 0, None, total, layers, processor="GPU")
    return Overlay(
        id="estimate",
        title=f"{roofline.peaks.name} time",
        unit="ms",
        origin="estimated",
        source=(
            f"estimated for {roofline.peaks.name} at batch {roofline.batch}: "
            f"{describe_estimate_error(roofline.peaks.name)}"
        ),
        best="low",
        ranked=True,
        nodes=_readings(map_times_to_nodes(timing, map_nodes(result)), "node", "estimated"),
        layers={t.layer: _single_value(t.median) for t in layers},
    )


def _times(times: Timing, nodes: Mapping[str, SharedTime], layers: Mapping[str, SharedTime]) -> Overlay:
    return Overlay(
        id="time",
        title=f"{times.processor} time, scaled" if times.scaled else f"{times.processor} time",
        unit="ms",
        origin=times.layer_origin,
        source=times.layer_source,
        best="low",
        # Of one run a second would have another order.
        ranked=times.runs != 1,
        nodes=_readings(nodes, "node"),
        layers=_readings(layers, "layer"),
    )


def _readings(times: Mapping[str, SharedTime], what: str, how: str = "timed") -> dict[str, OverlayValue]:
    """Times with what says whose they are, by which those of several boxes are known to be one."""
    readings = {}
    for id_, time in times.items():
        names = ", ".join([i.split(":", 1)[-1] for i in time.layers[:_LISTED]])
        more = " ..." if len(time.layers) > _LISTED else ""
        together = f", together with {pluralize(time.shared - 1, f'other {what}')}" if time.shared > 1 else ""
        note = f"{how} as {names}{more}{together}"
        readings[id_] = OverlayValue(value=time.median, spread=time.spread, shared=time.shared, note=note)
    return readings


def _errors(
    result: VariantResult, model: Model, errors: Accuracy, *, local_only: bool = False
) -> Overlay | None:
    """Accumulated errors, or those that nodes make themselves."""
    nodes: dict[str, OverlayValue] = {}
    for value in errors.values:
        sqnr = value.own_sqnr if local_only else value.sqnr
        # Equal values have no finite SQNR and need no mark; the status line names an overflow.
        if sqnr is not None and math.isfinite(sqnr):
            nodes.setdefault(value.node, _local_error(value) if local_only else _error(value))
    if not nodes:
        return None
    # A layer's error is that of the last value that it computes; what it makes, the most that its nodes make.
    layers = {
        layer: nodes[
            min(ids, key=lambda n: nodes[n]["value"])
            if local_only
            else max(ids, key=lambda n: model.by_id[n].index)
        ]
        for layer, ids in _list_layer_nodes(result, nodes)
    }
    return Overlay(
        id="own_error" if local_only else "error",
        title=f"{'Own SQNR' if local_only else 'SQNR'}{f', {RANDOM}' if errors.synthetic else ''}",
        unit="dB",
        origin="measured",
        source=f"{errors.origin}, against fp32",
        best="high",
        ranked=errors.samples != 1,
        nodes=nodes,
        layers=layers,
    )


def _error(value: ValueDelta) -> OverlayValue:
    # Few digits: thousands of these sentences travel, and their digits are what does not compress.
    note = f"max |error| {value.max_abs:.3g}, RMSE {value.rmse:.3g}"
    note += f", {value.overflowed} not finite" if value.overflowed else f", cosine {value.cosine:.4f}"
    note += f", {value.infinite} infinite in fp32 too" if value.infinite else ""
    return _single_value(value.sqnr, note)


def _local_error(value: ValueDelta) -> OverlayValue:
    note = f"made here of exact inputs: max {value.own_max:.3g}, RMSE {value.own_rmse:.3g}"
    if value.saturated:
        note += f", {100 * value.saturated:.2g} % of it saturates"
    return _single_value(value.own_sqnr or 0.0, note)


def _list_layer_nodes(
    result: VariantResult, nodes: Mapping[str, OverlayValue]
) -> Iterator[tuple[str, list[str]]]:
    """The layers that do the work of any of these nodes, with those."""
    for layer in result.engine.layers:
        pairs = map_nodes(result).of(layer.id)
        if ids := [p.node for p in pairs if p.role not in SERVING and p.node in nodes]:
            yield layer.id, ids


def _single_value(value: float, note: str = "") -> OverlayValue:
    """A number of one node or layer alone."""
    return OverlayValue(value=value, spread=None, shared=1, note=note)


#: Attributes that say at a glance what a node does.
_GLANCE = {"kernel_shape": "kernel", "strides": "stride", "axis": "axis", "perm": "perm", "alpha": "alpha"}

_INTEGER_TYPES = frozenset({int, bool})


class _ModelGraph:
    """The boxes and edges of a model under construction, scope by scope."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.boxes: list[Box] = []
        self.edges: list[Edge] = []
        # Node ids are taken even where a node is drawn later, so that they stay what selections name.
        self.box_ids = set(model.places)
        self.position: dict[str, int] = {}
        #: Position of the box that makes a value, by call of a function and identity.
        self.makers: dict[tuple[int, int], int] = {}
        #: Values as ports by identity: most are written once and read once or more.
        self.ports: dict[int, Port] = {}
        #: Of symbols that somebody named the sizes are shown.
        self.sizes = model.sizes() if model.shapes else None

    def graph(self) -> Graph:
        model = self.model
        for scope in model.scopes:
            self.scope(scope)
        repeats, folded = find_repeated_blocks(self.boxes, self.edges)
        return Graph(
            id=model.name,
            title="ONNX",
            subtitle=model.size,
            boxes=self.boxes,
            edges=self.edges,
            repeats=repeats,
            folded=folded,
            later=False,
            details=_describe_model(model.ir),
        )

    def scope(self, scope: Subgraph) -> None:
        parent = self.position.get(scope.owner, -1)
        prefix = f"{scope.owner}/{scope.body}/" if scope.body else ""
        for value in _inputs(scope):
            self.put(self.pill(value, "input", prefix), scope, parent, [value])
        readers: list[tuple[int, Iterable[ir.Value | None]]] = []
        for node, place in zip(scope.nodes, scope.places, strict=True):
            if node.op_type != "Constant":
                self.put(self.node(node, place), scope, parent, node.outputs)
                readers.append((len(self.boxes) - 1, node.inputs))
        for value in scope.graph.outputs:
            self.put(self.pill(value, "output", prefix), scope, parent, [])
            readers.append((len(self.boxes) - 1, [value]))
        # Bodies come later in ``scopes``, so what they read from outside is known by then.
        for at, values in readers:
            for value in dict.fromkeys(v for v in values if v is not None):
                maker = self.makers.get((scope.space, id(value)))
                if maker is not None:
                    sizes = self.sizes.of(value, scope.space) if self.sizes else None
                    label = _label(self.port(value), sizes)
                    self.edges.append(Edge(source=maker, target=at, value=value.name or "", label=label))

    def node(self, runs: ir.Node, place: NodeInstance) -> Box:
        node = place.node
        reads = [self.port(v) for v in runs.inputs if v is not None]
        weights = [p["shape"] for p in reads if p["constant"] and "×" in p["shape"]][:1]
        # The shape of a weight includes its kernel, and sizes of one are the usual ones.
        glance = [
            f"{label} {_format_value(node.attributes[key])}"
            for key, label in _GLANCE.items()
            if key in node.attributes
            and not (weights and label == "kernel")
            and not _is_all_ones(node.attributes[key])
        ]
        writes = [self.port(v) for v in runs.outputs if v.name]
        details = [Detail(key="name", value=node.name or "—"), Detail(key="operator", value=_operator(node))]
        details += [
            Detail(key=key, value=text)
            for key, text in (
                ("module", ".".join(read_module_path(runs) or ())),
                ("class", read_module_class(runs)),
                ("source", read_source_line(runs)),
            )
            if text
        ]
        details += [Detail(key=k, value=_format_value(v)) for k, v in node.attributes.items()]
        return make_box(
            place.id,
            "node",
            node.op,
            get_family(node.op),
            node.title,
            lines=[*weights, *glance][:2],
            precision=writes[0]["dtype"] if writes else "",
            inputs=[self.port(v) for v in runs.inputs if v is not None and v.name],
            outputs=writes,
            details=details,
        )

    def port(self, value: ir.Value) -> Port:
        if id(value) not in self.ports:
            self.ports[id(value)] = _port(value)
        return self.ports[id(value)]

    def put(self, box: Box, scope: Subgraph, parent: int, makes: Iterable[ir.Value]) -> None:
        box["parent"], box["body"] = parent, scope.body
        at = self.position[box["id"]] = len(self.boxes)
        self.boxes.append(box)
        for value in makes:
            self.makers[scope.space, id(value)] = at

    def pill(self, value: ir.Value, kind: Literal["input", "output"], prefix: str) -> Box:
        id_ = f"{prefix}{kind} {value.name}"
        while id_ in self.box_ids:
            id_ += "'"
        self.box_ids.add(id_)
        port = self.port(value)
        box = _pill(id_, kind, value.name or "", port)
        box["outputs" if kind == "input" else "inputs"] = [port]
        return box


def _describe_model(model: ir.Model) -> list[Detail]:
    """Who wrote a model and what they say of it, such as its license or the names of its classes."""
    producer = " ".join(filter(None, (model.producer_name, model.producer_version)))
    opsets = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in model.graph.opset_imports.items())
    facts = {
        "producer": producer,
        "domain": model.domain or "",
        "version": str(model.model_version or ""),
        "IR version": str(model.ir_version),
        "opset": opsets,
        "description": model.doc_string or "",
        **model.metadata_props,
    }
    return [Detail(key=key, value=text) for key, text in facts.items() if text]


def source_graph(model: Model) -> Graph:
    """A model as boxes: nodes, and pills for inputs and outputs; constants show inside their consumers.

    The boxes of a body or of a called function stand after their owner and name it as ``parent``; edges lead from a
    value outside straight to the node inside that reads it.
    """
    return _ModelGraph(model).graph()


def _inputs(scope: Subgraph) -> list[ir.Value]:
    """The inputs that a graph is given; up to IR version 3, initializers are among its inputs."""
    initializers = {} if isinstance(scope.graph, ir.Function) else scope.graph.initializers
    return [v for v in scope.graph.inputs if v.name not in initializers]


def engine_graph(result: VariantResult, model: Model, mapping: NodeMapping) -> Graph:
    """The layers of an engine in order of execution; ``mapping`` is that of the places of the model's nodes."""
    engine = result.engine
    layers = BoxBuilder(result, model, mapping)
    boxes: list[Box] = [_engine_pill(t, "input") for t in engine.inputs]
    boxes += [layers.build_box(y) for y in engine.layers]
    boxes += [_engine_pill(t, "output") for t in engine.outputs]
    edges = engine_edges(result, model, find_unwritten_tensors(engine))
    names = {b["id"]: model.places[n].node.title for b in boxes for c in b["chips"][:1] if (n := c["node"])}
    repeats, folded = find_repeated_blocks(boxes, edges, names)
    return Graph(
        id=result.variant.id,
        title=f"{engine.title.rsplit(' · ', 1)[0]}",
        subtitle=f"{engine.place} · {engine.size}",
        boxes=boxes,
        edges=edges,
        repeats=repeats,
        folded=folded,
        later=True,
        details=[],
    )


def _engine_details(engine: Engine) -> list[Told]:
    """The details of the boxes of an engine, in their order."""
    # Layers read what others write.
    port = functools.cache(_tensor_port)
    missing, count = find_unwritten_tensors(engine), len(engine.layers)
    box_details = [Told(inputs=[], outputs=[port(t)], details=[]) for t in engine.inputs]
    for layer in engine.layers:
        details = [
            Detail(key="layer", value=layer.name),
            Detail(key="kind", value=layer.kind),
            Detail(key="step", value=f"{layer.index + 1} of {count}"),
        ]
        if layer.tactic:
            details.append(Detail(key="tactic", value=layer.tactic))
        details.append(Detail(key="stream", value=str(layer.stream)))
        if names := missing.get(layer.id):
            details.append(Detail(key="written by no layer", value=", ".join(names)))
        reads = [port(t) for t in layer.inputs] + [port(t, constant=True) for t in layer.constants]
        box_details.append(Told(inputs=reads, outputs=[port(t) for t in layer.outputs], details=details))
    return box_details + [Told(inputs=[port(t)], outputs=[], details=[]) for t in engine.outputs]


def engine_view(result: VariantResult, model: Model, *, defer_details: bool = False) -> EngineView:
    """A variant's engine, its relation to the source model, and every number with its origin.

    With ``defer_details``, ``describe_engine_boxes`` has what is not needed to draw it.
    """
    mapping = map_to_places(map_nodes(result), model)
    view = EngineView(
        variant=result.name,
        calibrator=str(result.variant.calibrator or ""),
        commands=[]
        if result.recorded
        else list(build_commands(model, result.variant, f"{make_file_stem(model, result.variant)}.onnx")),
        precisions={i: str(p) for n, p in result.prepared.precisions.items() for i in model.where(n)},
        # Those that the model brought along.
        quantized=list(trace_pairs(model, mapping, result.engine)),
        graph=engine_graph(result, model, mapping),
        # Those of a layer that only serves the node, such as by its Q, last.
        pairs=sorted(mapping.pairs, key=lambda p: p.role != "work"),
        unmapped=[m for m in mapping.missing if model.places[m.node].node.op != "Constant"],
        overlays=[],
        panels=list_panels(model),
    )
    if not defer_details:
        add_details(view, describe_engine_boxes(result, model))
    return view


def describe_engine_boxes(result: VariantResult, model: Model) -> Later:
    """What follows the picture of ``engine_view``: the details of its boxes, and their numbers."""
    return Later(of=result.name, boxes=_engine_details(result.engine), overlays=build_overlays(result, model))


def add_details(view: EngineView, details: Later) -> None:
    """Put what came later where the page puts it."""
    for box, more in zip(view["graph"]["boxes"], details["boxes"], strict=True):
        box["inputs"], box["outputs"], box["details"] = more["inputs"], more["outputs"], more["details"]
    view["graph"]["later"] = False
    view["overlays"] = details["overlays"]


def _operator(node: Node) -> str:
    return f"{node.domain}.{node.op}" if node.domain not in {"", "ai.onnx"} else node.op


def _is_all_ones(value: object) -> bool:
    return (
        value == 1.0 if isinstance(value, float) else isinstance(value, (list, tuple)) and set(value) == {1}
    )


def _format_value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        text = "×".join(map(str, value)) if _INTEGER_TYPES.issuperset(map(type, value)) else str(value)
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _port(value: ir.Value) -> Port:
    maker = value.producer()
    is_constant = value.const_value is not None or (maker is not None and maker.op_type == "Constant")
    description = describe(value, "constant" if is_constant else "activation")
    return Port(
        name=description.name,
        dtype=description.dtype,
        shape=shape_text(description.shape),
        format="",
        constant=is_constant,
    )


def _label(port: Port, sizes: Sequence[int] | None) -> str:
    """What an edge says of its value: its sizes where they are known, else its shape as the file has it."""
    shape = port["shape"] if sizes is None else shape_text(sizes)
    return f"{'' if shape == '?' else shape} {port['dtype']}".strip()


def _engine_pill(tensor: Tensor, kind: Literal["input", "output"]) -> Box:
    return _pill(f"{kind} {tensor.name}", kind, tensor.name, _tensor_port(tensor))


def _pill(id_: str, kind: Literal["input", "output"], title: str, port: Port) -> Box:
    lines = [f"{port['shape']} {port['dtype']}".strip()]
    return make_box(id_, kind, kind, "other", title, lines=lines, precision=port["dtype"])


def _tensor_port(tensor: Tensor, *, constant: bool = False) -> Port:
    return Port(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=shape_text(tensor.shape),
        format=tensor.format,
        constant=constant,
    )


def engine_edges(result: VariantResult, model: Model, missing: Iterable[str]) -> list[Edge]:
    """Edges between the boxes of an engine: its inputs, then its layers in order of execution, then its outputs.

    An edge leads from the last writer before a reader, and against the order of execution only where a tensor is
    written after every reading, as in a loop. A tensor that no layer writes under its name is followed through the
    model, for the layers ``missing`` (see ``find_unwritten_tensors``); without tensors there are no edges.
    """
    engine = result.engine
    writers = Writers(engine)
    first = len(engine.inputs)
    input_index = {t.name: i for i, t in reversed(list(enumerate(engine.inputs)))}

    def sources(position: int, tensor: Tensor) -> list[int]:
        writer_indices = [first + w for w in writers.of(position, tensor)]
        return writer_indices or ([input_index[tensor.name]] if tensor.name in input_index else [])

    edges = [
        _edge(source, first + position, tensor)
        for position, layer in enumerate(engine.layers)
        for tensor in {t.name: t for t in layer.inputs}.values()
        for source in sources(position, tensor)
    ]
    edges += _through_model(result, model, missing, edges)
    end = len(engine.layers)
    for i, tensor in enumerate(engine.outputs):
        source_indices = sources(end, tensor)
        if not source_indices and any(y.outputs for y in engine.layers):
            # A view of a step's output bears the output's name nowhere: the last step feeds it.
            source_indices = [first + end - 1]
        edges += [_edge(source, first + end + i, tensor) for source in source_indices]
    return edges


def find_unwritten_tensors(engine: Engine) -> dict[str, list[str]]:
    """The tensors that layers read, by layer id, and that are neither a layer's output nor an input of the engine."""
    written = {t.name for layer in engine.layers for t in layer.outputs} | {t.name for t in engine.inputs}
    read = {
        y.id: list(dict.fromkeys(t.name for t in y.inputs if t.name not in written)) for y in engine.layers
    }
    return {layer: names for layer, names in read.items() if names}


def _edge(source: int, target: int, tensor: Tensor) -> Edge:
    shape = "" if tensor.shape is None else shape_text(tensor.shape)
    return Edge(source=source, target=target, value=tensor.name, label=f"{shape} {tensor.dtype}".strip())


def _through_model(
    result: VariantResult, model: Model, missing: Iterable[str], have: Sequence[Edge]
) -> list[Edge]:
    """Edges into layers that read a tensor under another name, from the dataflow of the model."""
    layers, first = result.engine.layers, len(result.engine.inputs)
    edge_keys = {(e["source"], e["target"]) for e in have}
    order = {layer.id: position for position, layer in enumerate(layers)}
    new_edges: dict[tuple[int, int], Edge] = {}
    for index in (order[id_] for id_ in missing):
        for position, name in _sources(layers[index], result, model, order):
            source, target = first + position, first + index
            if (source, target) not in edge_keys:
                label = shape_text(model.values[name].shape)
                new_edges.setdefault(
                    (source, target), Edge(source=source, target=target, value=name, label=label)
                )
    return list(new_edges.values())


def _sources(
    layer: Layer, result: VariantResult, model: Model, order: dict[str, int]
) -> Iterable[tuple[int, str]]:
    """The layers before one that run the nodes before its own, and the values that lead there."""
    index = order[layer.id]
    visited: set[str] = set()
    layer_nodes = set(map_nodes(result).nodes(layer.id))
    todo = [i for n in layer_nodes if n in model.by_id for i in model.by_id[n].inputs]
    while todo:
        name = todo.pop()
        node = model.producers.get(name)
        if node is None or node.id in visited:
            continue
        visited.add(node.id)
        layers = [order[i] for i in map_nodes(result).layers(node.id)]
        if node.id in layer_nodes or not layers:
            todo += node.inputs
        elif before := [at for at in layers if at < index]:
            yield max(before), name
