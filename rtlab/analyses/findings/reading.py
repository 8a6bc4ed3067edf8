"""An engine with all that is known of it, as the rules read it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from rtlab.analyses.roofline.estimate import Roofline
from rtlab.analyses.timing.times import Timing
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.finding import Finding
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.prepared import Prepared
from rtlab.core.trt_operators import TRT_OPS
from rtlab.core.variant import Precision
from rtlab.documents.numbers import shorten_name
from rtlab.quantize.placement import WEIGHTED
from rtlab.relation.dataflow import FLOATS, QUANTIZED, Dataflow, Work
from rtlab.relation.mapping import Mapping as NodeMapping

#: Layers that the evidence of a finding quotes; the finding lists all by id.
_QUOTED = 3
#: Layers whose arithmetic is a matrix product: what tensor cores are for.
PRODUCTS: frozenset[Work] = frozenset({"convolution", "deconvolution", "matmul"})
_NUMBERS = FLOATS | QUANTIZED
PAIR_OPS = frozenset({"QuantizeLinear", "DequantizeLinear"}) | TRT_OPS
#: TensorRT-RTX's kind of layers that it compiles on the user's GPU, and what the codes in their names stand for.
_FUSED = "runtime_fusion"
_RESHAPED = re.compile("Resh|Tran")
_CODES: Mapping[str, Work] = {"Corr": "convolution", "Fc": "matmul"}
#: ONNX operators that work on each number alone, or on pairs of numbers.
POINTWISE = frozenset({
    "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu", "Softplus",
    "Gelu", "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Exp", "Pow", "Erf", "Max", "Min", "BatchNormalization",
})  # fmt: skip


class Reading:
    """An engine, its mapping to the model, its times and its build log; each but the engine may be lacking.

    ``estimate`` is what stands in for measured times where there are none.
    """

    def __init__(
        self,
        engine: Engine,
        mapping: NodeMapping | None = None,
        model: Model | None = None,
        timing: Timing | None = None,
        log: BuildLog | None = None,
        *,
        flow: Dataflow | None = None,
        estimate: Roofline | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self.engine, self.mapping, self.model, self.timing, self.log = engine, mapping, model, timing, log
        self.layers = engine.layers
        self.flow = flow or Dataflow(engine)
        self.times: Mapping[str, float] = {t.layer: t.median for t in timing.layers} if timing else {}
        self.estimate, self.precisions = estimate, prepared.precisions if prepared is not None else {}
        self._works = {layer.id: self._infer_work(layer) for layer in self.layers}

    def _infer_work(self, layer: Layer) -> Work:
        work = self.flow.works[layer.id]
        if work not in {"kernel", "other"}:
            return work
        # A generated kernel and a layer of an unknown kind are what the nodes in them are.
        if layer.kind == _FUSED:
            # A product with what follows it; its operation codes are in its name.
            return next((w for code, w in _CODES.items() if code in layer.name), work)
        if layer.kind == "kgen" and _RESHAPED.search(layer.name):
            # It does more than its nodes.
            return work
        ops = self.ops(layer)
        if ops and ops <= PAIR_OPS:
            return "quantization"
        if ops and ops <= POINTWISE:
            return "pointwise"
        return "softmax" if ops == {"Softmax"} else work

    @functools.cached_property
    def explicit(self) -> bool:
        """Whether the network's quantization is in Q/DQ nodes, as far as the model or the names show."""
        if self.model is not None and any(n.op in PAIR_OPS for n in self.model.nodes):
            return True
        return any("QuantizeLinear" in y.name or y.attributes.get("Origin") == "QDQ" for y in self.layers)

    def work(self, layer: Layer) -> Work:
        """What a layer does, also by the operators of its nodes where its kind does not tell."""
        return self._works[layer.id]

    def of(self, *works: Work) -> list[Layer]:
        """The layers that do one of these."""
        return [layer for layer in self.layers if self._works[layer.id] in works]

    def products(self) -> list[Layer]:
        """The convolutions and matrix products."""
        return self.of(*PRODUCTS)

    def nodes(self, layers: Iterable[Layer]) -> tuple[str, ...]:
        """Ids of the nodes of the model that layers run."""
        if self.mapping is None:
            return ()
        return tuple(dict.fromkeys(n for layer in layers for n in self.mapping.nodes(layer.id)))

    def ops(self, layer: Layer) -> set[str]:
        """Operators of the nodes that a layer runs; empty where they are unknown."""
        nodes_by_id = self.model.by_id if self.model is not None else {}
        return {nodes_by_id[n].op for n in self.nodes([layer]) if n in nodes_by_id}

    def is_float_only(self, layer: Layer) -> bool:
        """Whether a product is in floating point although it has its Q/DQ pairs, or since the compiler has no other."""
        if self.model is None or layer.reads in QUANTIZED:
            return False
        products = [
            n for n in map(self.model.by_id.get, self.nodes([layer])) if n is not None and n.op in WEIGHTED
        ]
        return bool(products) and all(
            n.op in self.engine.maker.float_ops
            or self.precisions.get(n.id, Precision.FP32).needs_calibrator
            or all((m := self.model.producers.get(v)) is not None and m.op in PAIR_OPS for v in n.inputs[:2])
            for n in products
        )

    def get_block_format(self, layer: Layer) -> str:
        """``FP4`` or ``MXFP8`` where all products of a layer read it in the model, dequantized; else empty."""
        model = self.model
        if model is None:
            return ""
        nodes = [model.by_id.get(n) for n in self.nodes([layer])]
        formats = {self._find_block_format(model, n) for n in nodes if n is not None and n.op in WEIGHTED}
        return formats.pop() if len(formats) == 1 else ""

    def _find_block_format(self, model: Model, node: Node) -> str:
        if self.precisions.get(node.id) is Precision.FP4:
            return "FP4"
        for value in node.inputs[:2]:
            maker = model.find_dequantizer(value)
            if maker is not None and maker.op == "TRT_MXFP8DequantizeLinear":
                return "MXFP8"
            if maker is not None and model.values[maker.inputs[0]].dtype == "fp4":
                return "FP4"
        return ""

    def microseconds(self, layers: Iterable[Layer]) -> float | None:
        """The measured time of layers together; None where none of them has one."""
        layer_times = [self.times[y.id] for y in layers if y.id in self.times]
        # Exactly rounded, so that findings that cost the same are in the same order with every Python.
        return math.fsum(layer_times) * 1e3 if layer_times else None

    def share(self, layers: Iterable[Layer]) -> float | None:
        """Their part of the sum of all layers, from 0 to 1; None without times."""
        time = self.microseconds(layers)
        if time is None or self.timing is None or not self.timing.summed:
            return None
        return time / self.timing.summed / 1e3

    def matters(self, layers: Sequence[Layer], least: float) -> bool:
        """Whether layers take at least this share of the time; where times are unknown, whether there are any."""
        share = self.share(layers)
        return bool(layers) if share is None else share >= least

    def cost(self, layers: Sequence[Layer]) -> str:
        """What layers take, in words: measured, or estimated where nothing was measured."""
        time, share = self.microseconds(layers), self.share(layers)
        if time is not None and self.timing is not None:
            source = f"measured, {self.timing.source}"
        elif self.estimate is None or self.timing is not None:
            return "Cost unknown: no times."
        else:
            estimates = self.estimate.milliseconds(self.engine)
            if not layers or any(not estimates.get(y.id) for y in layers):
                return "Cost unknown: no times, and no estimate of all that is at stake."
            time = math.fsum(estimates[y.id] for y in layers) * 1e3
            share = time / 1e3 / self.estimate.estimated if self.estimate.estimated else None
            source = f"estimated for {self.estimate.peaks.name}"
        part = f", {100 * share:.2g} % of the sum of all layers" if share is not None else ""
        subject = "This layer takes" if len(layers) == 1 else f"These {len(layers)} layers take"
        return f"{subject} {format_microseconds(time)}{part} ({source})."

    def finding(
        self,
        rule: str,
        key: str,
        layers: Sequence[Layer],
        title: str,
        *,
        evidence: str,
        fix: str,
        cost: str = "",
    ) -> Finding:
        """A finding about layers; ``key`` distinguishes findings of the same rule."""
        return Finding(
            id=f"{rule}:{key}" if key else rule,
            rule=rule,
            title=title,
            nodes=self.nodes(layers),
            cost=cost or self.cost(layers),
            fix=fix,
            evidence=evidence,
            fixable=False,
            layers=tuple(y.id for y in layers),
            microseconds=self.microseconds(layers),
        )

    def quote(self, layers: Sequence[Layer], descriptions: Mapping[str, str]) -> str:
        """The slowest layers by name, each with its entry of ``descriptions`` (by id), and how many more."""
        first = sorted(layers, key=lambda y: -self.times.get(y.id, 0.0))[:_QUOTED]
        text = "; ".join(f'"{shorten_name(y.name)}" {descriptions.get(y.id, "")}'.rstrip() for y in first)
        more = len(layers) - len(first)
        return f"{text}{f'; and {more} more' if more else ''}."


def format_microseconds(time: float) -> str:
    """A time in microseconds with three digits, or all before the point."""
    return f"{time:,.0f} µs" if time >= 100 else f"{time:.3g} µs"


def get_data_input(layer: Layer) -> Tensor | None:
    """The first input that is data of the network, not shapes or indices."""
    return next((t for t in layer.inputs if t.dtype in _NUMBERS), None)


def count_channels(tensor: Tensor | None) -> int | None:
    """Channels of an activation of shape ``(batch, channels, ...)``; None where not known."""
    if tensor is None or tensor.shape is None or len(tensor.shape) < 3 or tensor.shape[1] <= 0:
        return None
    return tensor.shape[1]


def get_integer(layer: Layer, key: str) -> int | None:
    """A whole number among a layer's attributes."""
    value = layer.attributes.get(key)
    # A damaged file may hold NaN or infinity.
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1 << 63 else None


def is_depthwise(layer: Layer) -> bool:
    """Whether a convolution has one channel per group."""
    groups = get_integer(layer, "Groups")
    return "depthwise" in layer.kind.lower() or (
        groups is not None and groups > 1 and groups == count_channels(get_data_input(layer))
    )
