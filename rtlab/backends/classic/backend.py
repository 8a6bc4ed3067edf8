"""The backend: any model through the passes, with no compiler, no GPU and no numbers that anybody measured."""

from __future__ import annotations

import collections
import datetime
import time
import weakref
from collections.abc import Sequence

import onnx

from rtlab.backends import makers
from rtlab.backends.classic import passes, rules
from rtlab.backends.classic.network import Network, NetworkLayer, ordered
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress, Ruled
from rtlab.core.variant import KNOWN_TARGETS, Precision, Target
from rtlab.errors import BuildError, VariantError

_DOING = 'Backend "classic" cannot predict'
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
        self._known: collections.OrderedDict[int, tuple[weakref.ref[Model], Network]] = (
            collections.OrderedDict()
        )

    def availability(self) -> Availability:
        """It is part of rtlab."""
        return Availability(ok=True, version=_RELEASES)

    def capabilities(self) -> Capabilities:
        """Every target and precision: the rules do not depend on them, but for what stands in the graph."""
        return Capabilities(
            tuple(Target(t) for t in ("sm86", *(t for t in KNOWN_TARGETS if t != "sm86"))),
            tuple(Precision),
            builds=True,
            explains=True,
            maker=makers.CLASSIC,
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
                f'{_DOING} "{model.name}" for target "{target}": TensorRT is for GPUs. Choose a target such as "sm86".'
            )
        began = time.perf_counter()

        def each(name: str) -> None:
            check(progress, "the prediction")
            progress.phase(f"Predicting: {name}")
            if time.perf_counter() - began > request.limits.seconds:
                raise BuildError(
                    f'{_DOING} "{model.name}": {request.limits.seconds:g} s are over. Raise the limit.'
                )

        check(progress, "the prediction")
        _refuse(model)
        network = passes.run(Network(model), each)
        layers = _Laid(network).all()
        return Engine(
            backend=self.name,
            version=_RELEASES,
            target=target,
            layers=layers,
            inputs=tuple(_tensor(model, v) for v in model.inputs),
            outputs=tuple(_tensor(model, v) for v in model.outputs),
            log="\n".join((_NOTE, *network.lines, "")),
            seconds=time.perf_counter() - began,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(_NOTE,),
            maker=makers.CLASSIC,
        )

    def explain(self, model: Model, first: str, second: str) -> Ruled:
        """Whether two nodes become one layer, by which rule, and if not, what hinders those that there are.

        Raises:
            BuildError: the model has an operator that is none of ONNX's.
        """
        return ruled(self._network(model), first, second)

    def _network(self, model: Model) -> Network:
        known = self._known.get(id(model))
        if known is not None and known[0]() is model:
            return known[1]
        _refuse(model)
        network = passes.run(Network(model))
        self._known[id(model)] = weakref.ref(model), network
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return network


#: Networks that are kept for questions.
_KEPT = 2


def ruled(network: Network, first: str, second: str) -> Ruled:
    """What the rules say of two nodes."""
    homes = [{y.name for y in passes.layers_of(network, [n])} for n in (first, second)]
    if homes[0] & homes[1]:
        rule = next((j.rule for j in network.joined if {first, second} <= {*j.nodes}), "")
        rule = rule or _shared(network, first, second)
        return Ruled(fused=True, rule=rule, source=rules.source(rule), text=f"{rule} makes them one layer.")
    for node, home in zip((first, second), homes, strict=True):
        if not home:
            rule = network.gone.get(node, "")
            text = f'"{node}" has no layer: {rule} takes it away.'
            return Ruled(fused=None, rule=rule, source=rules.source(rule), text=text)
    ops = [network.model.by_id[n].op for n in (first, second)]
    tried = network.refused.get((first, second), {})
    if not tried:
        possible = rules.between(*ops)
        if not possible:
            text = f"No documented rule makes {ops[0]} and {ops[1]} one layer."
            return Ruled(fused=False, rule="", source=rules.CATALOG, text=text)
        names = " or ".join(dict.fromkeys(r.name for r in possible))
        text = f"{names} would, and another fusion took one of them first, or something stands between them."
        return Ruled(fused=False, rule=possible[0].name, source=possible[0].source, text=text)
    rule = [*tried][-1]
    text = " ".join(f"{name} does not hold: {why}." for name, why in tried.items())
    return Ruled(fused=False, rule=rule, source=rules.source(rule), text=text)


def _shared(network: Network, first: str, second: str) -> str:
    """The rule by which a layer does the work of a node together with others."""
    layer = next(y for y in passes.layers_of(network, [first]) if {first, second} <= {*y.nodes, *y.absorbed})
    return layer.rules[-1] if layer.rules else ""


def _refuse(model: Model) -> None:
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
                f'{_DOING} "{model.name}": operator {node.domain}::{node.op} of "{node.id}" is none of ONNX\'s, and '
                "TensorRT would need a plugin for it. Choose standard operators."
            )


#: Domains whose operators TensorRT's parser knows.
_PLUGINS = frozenset({"trt", "com.microsoft", "ai.onnx.contrib"})


class _Laid:
    """The layers of a network as those of an engine."""

    def __init__(self, network: Network) -> None:
        self.network, self.model = network, network.model
        self.inside: dict[str, list[str]] = {}
        functions: dict[str, list[str]] = {}
        for node in self.model.nodes:
            if node.scope:
                table = functions if node.scope[0].startswith("function ") else self.inside
                table.setdefault(node.scope[0], []).append(node.id)
        for node in self.model.top:
            if f"function {node.op}" in functions:
                self.inside[node.id] = functions[f"function {node.op}"]

    def all(self) -> tuple[Layer, ...]:
        return tuple(self._layer(y, i) for i, y in enumerate(ordered(self.network.layers.values())))

    def _layer(self, layer: NetworkLayer, index: int) -> Layer:
        nodes = list(dict.fromkeys([*layer.nodes, *layer.absorbed]))
        told = list(dict.fromkeys(layer.rules))
        attributes: dict[str, object] = {}
        if told:
            attributes = {
                "Rules": ", ".join(told),
                "Sources": "; ".join(dict.fromkeys(rules.source(r) for r in told)),
            }
        data = [v for v in layer.reads if v not in self.network.constants]
        weights = [v for v in layer.reads if v in self.network.constants]
        return Layer(
            id=f"{index}:{layer.name}",
            name=layer.name,
            kind=layer.kind,
            index=index,
            inputs=self._tensors(data),
            outputs=self._tensors(layer.writes),
            constants=self._tensors(weights),
            origins=tuple(n for i in nodes for n in (i, *self.inside.get(i, ()))),
            attributes=attributes,
        )

    def _tensors(self, names: Sequence[str]) -> tuple[Tensor, ...]:
        return tuple(_tensor(self.model, v) for v in names)


def _tensor(model: Model, name: str) -> Tensor:
    known = model.values.get(name)
    if known is None:
        return Tensor(name)
    shape = None if known.shape is None else tuple(d if isinstance(d, int) else -1 for d in known.shape)
    return Tensor(name, known.dtype, shape)
