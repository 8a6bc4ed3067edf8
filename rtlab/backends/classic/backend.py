"""The backend: any model through the passes, with no compiler, no GPU and no numbers that anybody measured."""

from __future__ import annotations

import datetime
import functools
import time

import onnx

from rtlab.backends import compiler_info
from rtlab.backends.classic import passes, rules
from rtlab.backends.classic.network import Network, sort_topologically
from rtlab.backends.readers import optimized
from rtlab.core.engine import Engine, Layer
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
        layers = _make_layers(network)
        return Engine(
            backend=self.name,
            version=_RELEASES,
            target=target,
            layers=layers,
            inputs=optimized.to_tensors(model.values, model.inputs),
            outputs=optimized.to_tensors(model.values, model.outputs),
            log="\n".join((_NOTE, *network.lines, "")),
            seconds=time.perf_counter() - start,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(_NOTE,),
            maker=compiler_info.CLASSIC,
        )

    def explain(self, model: Model, first: str, second: str) -> Ruled:
        """Whether two nodes become one layer, by which rule, and what hinders; ``BuildError`` as from ``build``."""
        return explain_fusion(_create_network(model), first, second)


@functools.lru_cache(2)
def _create_network(model: Model) -> Network:
    """The network behind all passes; those of the models that were asked about last stay."""
    _reject_unknown_operators(model)
    return passes.run(Network(model))


def explain_fusion(network: Network, first: str, second: str) -> Ruled:
    """What the rules say of two nodes."""
    layer_names = [{y.name for y in passes.find_layers(network, [n])} for n in (first, second)]
    if layer_names[0] & layer_names[1]:
        rule = next((rule for rule, nodes in network.fusions if {first, second} <= {*nodes}), "")
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


def _make_layers(network: Network) -> tuple[Layer, ...]:
    """The layers of a network as those of an engine."""
    model = network.model
    inner_nodes: dict[str, list[str]] = {}
    for node in model.nodes:
        if node.scope:
            inner_nodes.setdefault(node.scope[0], []).append(node.id)
    for node in model.top:
        if (function := f"function {node.op}") in inner_nodes:
            inner_nodes[node.id] = inner_nodes[function]
    layers = []
    for index, layer in enumerate(sort_topologically(network.layers.values())):
        nodes = dict.fromkeys([*layer.nodes, *layer.absorbed])
        rule_names = dict.fromkeys(layer.rules)
        sources = dict.fromkeys(map(rules.get_source, rule_names))
        layers.append(
            Layer(
                id=f"{index}:{layer.name}",
                name=layer.name,
                kind=layer.kind,
                index=index,
                inputs=optimized.to_tensors(model.values, network.get_data_inputs(layer)),
                outputs=optimized.to_tensors(model.values, layer.writes),
                constants=optimized.to_tensors(
                    model.values, (v for v in layer.reads if v in network.constants)
                ),
                origins=tuple(n for i in nodes for n in (i, *inner_nodes.get(i, ()))),
                attributes={"Rules": ", ".join(rule_names), "Sources": "; ".join(sources)}
                if rule_names
                else {},
            )
        )
    return tuple(layers)
