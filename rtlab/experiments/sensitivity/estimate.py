"""What every place that rounds does to the outputs, from one graph: its own error, times the gradient there.

With ``e`` the error that a place makes by itself and ``J`` the derivative of the outputs at that place, ``J e`` is what
becomes of it at the outputs, as far as the model is linear. For random signs u the mean of ``(u . J e)^2`` over u is
``|J e|^2`` (Hutchinson 1990), and ``u . J`` is one gradient for all places; ``SampleLoss.seed`` gives u the covariance
of the loss's curvature. The products are summed inside of the graph, so that no value leaves it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.quantizer import Quantizer
from rtlab.core.trace import Outputs
from rtlab.errors import VariantError
from rtlab.experiments.sensitivity.loss import MOST, SampleLoss
from rtlab.experiments.why.cutting import remove_unused_nodes
from rtlab.gradients import Gradients, Tape, differentiate
from rtlab.quantize import passes
from rtlab.quantize.edit import Edit
from rtlab.quantize.isolated_error import dequantize_in_place
from rtlab.quantize.quantizer_toggles import Switch, find_switches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.analyses.sensitivity import Asks

#: First opset in which all that gradients need is there.
_OPSET = 16


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatorGraph:
    """A graph that computes, for each sample, the products of a seed with the effect of each place's own error.

    Attributes:
        model: It reads the source's inputs, and for each probe and output a seed of the output's shape.
        seeds: Names of those inputs, by probe, in the order of ``outputs``, the source's floating-point ones.
        products: Names of its outputs, by probe: ``(samples, places)``, or ``(1, places)`` where it runs one sample.
        places: The quantizers.
        alone: Whether samples are to run one at a time, since values do not tell them apart.
        stopped: Nodes that no rule covers, with the reason.
    """

    model: Model
    seeds: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    products: tuple[str, ...]
    places: tuple[Quantizer, ...]
    alone: bool
    stopped: Mapping[str, str]


class EffectEstimator:
    """Estimates of places, batch by batch; ``notes`` say what is not estimated, and why."""

    def __init__(
        self,
        graph: EstimatorGraph,
        run: Callable[[Batch], Outputs],
        places: Sequence[str],
        nodes: Mapping[str, Sequence[Quantizer]] | None,
    ) -> None:
        self.graph, self._run, self.alone = graph, run, graph.alone
        column = {q.id: i for i, q in enumerate(graph.places)}
        members = {p: [p] if nodes is None else [q.id for q in nodes[p]] for p in places}
        #: The columns of each place; none where one of its quantizers has no estimate.
        self._columns = [
            [column[q] for q in members[p]] if column.keys() >= {*members[p]} else [] for p in places
        ]
        missing_count = sum(not c for c in self._columns)
        why = next(iter(graph.stopped.items()), None)
        self.notes = (
            (f"{missing_count} of {len(places)} places were run, since gradients end at {why[0]}: {why[1]}",)
            if missing_count and why is not None
            else ()
        )

    def products(
        self,
        batch: Batch,
        quantized_outputs: Outputs,
        loss: SampleLoss,
        first: int,
        *,
        released: bool,
    ) -> list[NDArray[np.float64]]:
        """The products of each probe; of ``released``, the first is that with the variant's whole error."""
        graph, feed, rng = self.graph, dict(batch), np.random.default_rng(first)
        for p, names in enumerate(graph.seeds):
            for seed, name in zip(names, graph.outputs, strict=True):
                signs = rng.choice(np.array([-1.0, 1.0]), loss.reference[name].shape)
                vector = loss.seed(
                    name, None if released and p == 0 else signs, quantized_outputs, released=released
                )
                feed[seed] = vector.astype(np.float32)
        outputs = self._run(feed)
        return [np.asarray(outputs[name], np.float64) for name in graph.products]

    def effects(
        self, products: Sequence[NDArray[np.float64]], samples: int, *, released: bool
    ) -> NDArray[np.float64]:
        """Effects of all places, ``(places, samples)``, NaN where a place has no estimate."""
        rows = np.full((len(self._columns), samples), np.nan)
        probes = products[1:] if released else products
        for row, columns in zip(rows, self._columns, strict=True):
            if columns:
                each = [p[:, columns].sum(axis=1) for p in probes]
                row[:] = np.mean(np.square(each), axis=0)
                if released:
                    row[:] = 2 * products[0][:, columns].sum(axis=1) - row
        clipped_rows: NDArray[np.float64] = np.clip(rows, -MOST, MOST)
        return clipped_rows


def build_estimator(
    source: Model, emulation: Model, outputs: Sequence[str], probes: int, asks: Asks
) -> EstimatorGraph | None:
    """The graph for a question; None where no place can be estimated.

    Of ``only``, errors and gradients are those at the values of the source; of ``released``, at those of the variant,
    and there is one seed more.
    """
    count = probes + (asks == "released")
    if emulation.opset < _OPSET:
        try:
            source, emulation = (
                passes.run(m, [passes.raise_opset(_OPSET, "for gradients")], keep_origins=True)
                for m in (source, emulation)
            )
        except VariantError:
            return None
    return _GraphBuilder(source, emulation, tuple(outputs), count, asks).build()


class _GraphBuilder:
    """Writes the graph."""

    def __init__(
        self, source: Model, emulation: Model, outputs: tuple[str, ...], probes: int, asks: Asks
    ) -> None:
        self.switches = [s for s in find_switches(source, emulation) if not s.attributes]
        self.source, self.outputs, self.probes, self.only = source, outputs, probes, asks == "only"
        self.edit = Edit(emulation, keep_origins=True)
        dequantize_in_place(self.edit, source.by_id)
        #: By place the value that is read or written there, rounded and exact.
        self.pairs = [self._make_pair(s) for s in self.switches]
        self.tape = Tape(self.edit.graph, emulation.opset, {**emulation.known, **source.known})

    def _make_pair(self, switch: Switch) -> tuple[ir.Value, ir.Value]:
        """A value rounded and exact; the forward part reads one of them after this."""
        edit, place = self.edit, switch.quantizer
        node = edit.nodes[place.node]
        if place.part == "output":
            rounded, exact = edit.values[place.value], node.outputs[place.position]
            if self.only:
                for i, end in enumerate(edit.graph.outputs):
                    if end is rounded:
                        edit.graph.outputs[i] = exact
                rounded.replace_all_uses_with(exact)
            return rounded, exact
        read = node.inputs[place.position]
        assert read is not None  # noqa: S101 - it was compared
        exact = (
            edit.values[place.value]
            if switch.tensor is None
            else edit.add_constant(place.value, np.asarray(switch.tensor.numpy()))
        )
        if self.only:
            edit.set_input(place.node, place.position, exact)
        return read, exact

    def build(self) -> EstimatorGraph | None:
        tape, graph = self.tape, self.tape.graph
        forward = list(graph)
        ends = dict(zip(self.source.outputs, graph.outputs, strict=True))
        output_values = {n: ends[n] for n in self.outputs}
        seeds, gradients = [], []
        for p in range(self.probes):
            seed_values = [
                ir.Value(name=f"rtlab.seed/{p}/{k}", type=ir.TensorType(ir.DataType.FLOAT), shape=v.shape)
                for k, v in enumerate(output_values.values())
            ]
            graph.inputs.extend(seed_values)
            seeds.append(tuple(v.name or "" for v in seed_values))
            outputs = dict(zip(output_values.values(), seed_values, strict=True))
            gradients.append(differentiate(tape, forward, outputs))
        errors = list(self._iter_errors(gradients[0]))
        if not errors:
            return None
        places = tuple(self.switches[i].quantizer for i, *_ in errors)
        alone = any(not self._has_batch_dim(error) for _, error, _ in errors)
        products = []
        for one in gradients:
            parts = []
            for i, error, at in errors:
                gradient = one.edges.get(at) if isinstance(at, tuple) else one.values.get(at)
                assert gradient is not None, i  # noqa: S101 - the probes differ in their seeds alone
                parts.append(self._emit_product(gradient, error, alone=alone))
            products.append(tape.op("Concat", *parts, axis=1))
        graph.outputs[:] = [*output_values.values(), *products]
        remove_unused_nodes(graph)
        self.edit.sort_and_reindex()
        return EstimatorGraph(
            self.edit.model,
            tuple(seeds),
            self.outputs,
            tuple(v.name or "" for v in products),
            places,
            alone,
            dict(gradients[0].unsupported_nodes),
        )

    def _iter_errors(
        self, gradients: Gradients
    ) -> Iterator[tuple[int, ir.Value, tuple[ir.Node, int] | ir.Value]]:
        """The own error of each place that has a gradient, and where that is."""
        tape, incomplete = self.tape, gradients.incomplete_values
        for i, (switch, (rounded, exact)) in enumerate(zip(self.switches, self.pairs, strict=True)):
            place, node = switch.quantizer, self.edit.nodes[switch.quantizer.node]
            if place.part == "input":
                edge = (node, place.position)
                if edge in gradients.edges and incomplete.isdisjoint(node.outputs):
                    yield i, _with_shape(tape.op("Sub", rounded, exact), exact), edge
                continue
            at = node.outputs[0]
            if place.part == "output":
                at = exact if self.only else rounded
            if at not in gradients.values or at in incomplete:
                continue
            if place.part == "output":
                yield i, _with_shape(tape.op("Sub", rounded, exact), exact), at
            elif len(node.outputs) == 1:
                yield i, _with_shape(self._compute_weight_error(node, place.position, rounded, exact), at), at

    def _compute_weight_error(
        self, node: ir.Node, position: int, rounded: ir.Value, exact: ir.Value
    ) -> ir.Value:
        """What a weight's rounding changes of what its node writes."""
        tape = self.tape
        attributes = {n: a.value for n, a in node.attributes.items()}
        one, two, data = rounded.const_value, exact.const_value, node.inputs[0]
        is_linear = node.op_type in {"Conv", "MatMul", "Gemm"} and position == 1
        if is_linear and one is not None and two is not None and data is not None:
            difference = tape.constant(one.numpy().astype(np.float32) - two.numpy().astype(np.float32))
            return tape.op(node.op_type, tape.cast_to_float(data), difference, **attributes)
        both = [
            tape.op(
                node.op_type, *(w if i == position else v for i, v in enumerate(node.inputs)), **attributes
            )
            for w in (rounded, exact)
        ]
        return tape.op("Sub", *both)

    def _has_batch_dim(self, error: ir.Value) -> bool:
        """Whether the first dimension of a value is that of the samples."""
        first = self.source.inputs[0]
        batch = (self.source.values[first].shape or (None,))[0]
        if error.shape is None or not len(error.shape):
            return False
        mine = error.shape[0]
        return (mine if isinstance(mine, int) else mine.value) == batch and batch is not None

    def _emit_product(self, gradient: ir.Value, error: ir.Value, *, alone: bool) -> ir.Value:
        tape = self.tape
        # Elements are multiplied and summed: a product of matrices with one row and one column is no faster kernel.
        product = tape.op("Mul", gradient, tape.cast_to_float(error))
        return tape.reduce_sum(
            tape.op("Reshape", product, tape.constant([1 if alone else 0, -1])), [1], keep=True
        )


def _with_shape(error: ir.Value, like: ir.Value) -> ir.Value:
    error.shape = like.shape
    return error
