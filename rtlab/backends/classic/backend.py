"""The backend: any model through the passes, with no compiler, no GPU and no numbers that anybody measured."""

from __future__ import annotations

import collections
import datetime
import time
import weakref
from collections.abc import Sequence

import onnx

from rtlab.backends import compiler_info
from rtlab.backends.classic import passes, rules
from rtlab.backends.classic.network import Network, NetworkLayer, sort_topologically
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress, Ruled
from rtlab.core.variant import SUPPORTED_TARGETS, Precision, Target
from rtlab.errors import BuildError, VariantError

_CANNOT_PREDICT = 'Backend "classic" cannot predict'
_RELEASES = "3 to 10"
_NOTE = (
    "Predicted by the documented rules of TensorRT 3 to 10: nothing was compiled. Kernels, formats and what TensorRT 8 "
    "and later hand to Myelin (attention, products after the last convolution) are not predicted."
)


class Classic:
    """Predicts layers by the passes of ``passes.PASSES``; it runs nothing."""

    name = "classic"

    def __init__(self) -> None:
        #: The networks of the models that were asked about last.
        self._networks: collections.OrderedDict[int, tuple[weakref.ref[Model], Network]] = (
            collections.OrderedDict()
        )

    def availability(self) -> Availability:
        """It is part of rtlab."""
        return Availability(ok=True, version=_RELEASES)

    def capabilities(self) -> Capabilities:
        """Every target and precision: the rules do not depend on them, but for what stands in the graph."""
        return Capabilities(
            tuple(Target(t) for t in ("sm86", *(t for t in SUPPORTED_TARGETS if t != "sm86"))),
            tuple(Precision),
            builds=True,
            explains=True,
            maker=compiler_info.CLASSIC,
        )

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Run the passes; the log tells what each decided.

        Raises:
            BuildError: the model has an operator that is none of ONNX's, or the limit of time is passed.
            VariantError: the target is none of a GPU.
            Cancelled: ``progress`` asked to stop.
        """
        model, target = request.model, request.variant.target
        if target.sm is None:
            raise VariantError(
                f'{_CANNOT_PREDICT} "{model.name}" for target "{target}": TensorRT is for GPUs. Choose a target such '
                'as "sm86".'
            )
        start = time.perf_counter()

        def each(pass_name: str) -> None:
            check(progress, "the prediction")
            progress.phase(f"Predicting: {pass_name}")
            if time.perf_counter() - start > request.limits.seconds:
                raise BuildError(
                    f'{_CANNOT_PREDICT} "{model.name}": {request.limits.seconds:g} s are over. Raise the limit.'
                )

        check(progress, "the prediction")
        _reject_unknown_operators(model)
        network = passes.run(Network(model), each)
        layers = _EngineLayers(network).build()
        return Engine(
            backend=self.name,
            version=_RELEASES,
            target=target,
            layers=layers,
            inputs=tuple(_make_tensor(model, v) for v in model.inputs),
            outputs=tuple(_make_tensor(model, v) for v in model.outputs),
            log="\n".join((_NOTE, *network.lines, "")),
            seconds=time.perf_counter() - start,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(_NOTE,),
            maker=compiler_info.CLASSIC,
        )

    def explain(self, model: Model, first: str, second: str) -> Ruled:
        """Whether two nodes become one layer, by which rule, and if not, what hinders those that there are.

        Raises:
            BuildError: the model has an operator that is none of ONNX's.
        """
        return explain_fusion(self._get_network(model), first, second)

    def _get_network(self, model: Model) -> Network:
        entry = self._networks.get(id(model))
        if entry is not None and entry[0]() is model:
            return entry[1]
        _reject_unknown_operators(model)
        network = passes.run(Network(model))
        self._networks[id(model)] = weakref.ref(model), network
        while len(self._networks) > _MAX_NETWORKS:
            self._networks.popitem(last=False)
        return network


#: Networks that are kept for questions.
_MAX_NETWORKS = 2


def explain_fusion(network: Network, first: str, second: str) -> Ruled:
    """What the rules say of two nodes."""
    layer_names = [{y.name for y in passes.find_layers(network, [n])} for n in (first, second)]
    if layer_names[0] & layer_names[1]:
        rule = next((j.rule for j in network.fusions if {first, second} <= {*j.nodes}), "")
        rule = rule or _find_shared_rule(network, first, second)
        return Ruled(
            fused=True, rule=rule, source=rules.get_source(rule), text=f"{rule} makes them one layer."
        )
    for node, names_of_node in zip((first, second), layer_names, strict=True):
        if not names_of_node:
            rule = network.removed_nodes.get(node, "")
            text = f'"{node}" has no layer: {rule} takes it away.'
            return Ruled(fused=None, rule=rule, source=rules.get_source(rule), text=text)
    ops = [network.model.by_id[n].op for n in (first, second)]
    refused_rules = network.refusals.get((first, second), {})
    if not refused_rules:
        possible = rules.find_rules(*ops)
        if not possible:
            text = f"No documented rule makes {ops[0]} and {ops[1]} one layer."
            return Ruled(fused=False, rule="", source=rules.CATALOG, text=text)
        names = " or ".join(dict.fromkeys(r.name for r in possible))
        text = f"{names} would, and another fusion took one of them first, or something stands between them."
        return Ruled(fused=False, rule=possible[0].name, source=possible[0].source, text=text)
    rule = [*refused_rules][-1]
    text = " ".join(f"{name} does not hold: {why}." for name, why in refused_rules.items())
    return Ruled(fused=False, rule=rule, source=rules.get_source(rule), text=text)


def _find_shared_rule(network: Network, first: str, second: str) -> str:
    """The rule by which a layer does the work of a node together with others."""
    layer = next(
        y for y in passes.find_layers(network, [first]) if {first, second} <= {*y.nodes, *y.absorbed}
    )
    return layer.rules[-1] if layer.rules else ""


def _reject_unknown_operators(model: Model) -> None:
    """Raise ``BuildError`` where TensorRT would ask for a plugin."""
    functions = {n.scope[0].removeprefix("function ") for n in model.nodes if n.scope}
    for node in model.nodes:
        if (
            node.domain not in ONNX_DOMAINS
            and node.op not in functions
            and not onnx.defs.has(node.op, node.domain)
        ):
            if node.domain in _PLUGINS:
                continue
            raise BuildError(
                f'{_CANNOT_PREDICT} "{model.name}": operator {node.domain}::{node.op} of "{node.id}" is none of '
                "ONNX's, and TensorRT would need a plugin for it. Choose standard operators."
            )


#: Domains whose operators TensorRT's parser knows.
_PLUGINS = frozenset({"trt", "com.microsoft", "ai.onnx.contrib"})


class _EngineLayers:
    """The layers of a network as those of an engine."""

    def __init__(self, network: Network) -> None:
        self.network, self.model = network, network.model
        self.inner_nodes: dict[str, list[str]] = {}
        functions: dict[str, list[str]] = {}
        for node in self.model.nodes:
            if node.scope:
                table = functions if node.scope[0].startswith("function ") else self.inner_nodes
                table.setdefault(node.scope[0], []).append(node.id)
        for node in self.model.top:
            if f"function {node.op}" in functions:
                self.inner_nodes[node.id] = functions[f"function {node.op}"]

    def build(self) -> tuple[Layer, ...]:
        return tuple(
            self._make_layer(y, i) for i, y in enumerate(sort_topologically(self.network.layers.values()))
        )

    def _make_layer(self, layer: NetworkLayer, index: int) -> Layer:
        nodes = list(dict.fromkeys([*layer.nodes, *layer.absorbed]))
        rule_names = list(dict.fromkeys(layer.rules))
        attributes: dict[str, object] = {}
        if rule_names:
            attributes = {
                "Rules": ", ".join(rule_names),
                "Sources": "; ".join(dict.fromkeys(rules.get_source(r) for r in rule_names)),
            }
        data = [v for v in layer.reads if v not in self.network.constants]
        weights = [v for v in layer.reads if v in self.network.constants]
        return Layer(
            id=f"{index}:{layer.name}",
            name=layer.name,
            kind=layer.kind,
            index=index,
            inputs=self._make_tensors(data),
            outputs=self._make_tensors(layer.writes),
            constants=self._make_tensors(weights),
            origins=tuple(n for i in nodes for n in (i, *self.inner_nodes.get(i, ()))),
            attributes=attributes,
        )

    def _make_tensors(self, names: Sequence[str]) -> tuple[Tensor, ...]:
        return tuple(_make_tensor(self.model, v) for v in names)


def _make_tensor(model: Model, name: str) -> Tensor:
    graph_value = model.values.get(name)
    if graph_value is None:
        return Tensor(name)
    shape = (
        None
        if graph_value.shape is None
        else tuple(d if isinstance(d, int) else -1 for d in graph_value.shape)
    )
    return Tensor(name, graph_value.dtype, shape)
