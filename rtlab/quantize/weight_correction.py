"""Rounding weights by GPTQ, and bias correction, from statistics of what products read.

Bias correction is empirical, as in Nagel, van Baalen, Blankevoort and Welling (ICCV 2019, section 4.2): a product is
linear, so the mean error of its output is ``Q mean(x̂) - W mean(x)``, with ``x`` its input in the source and ``x̂`` that
rounded. This is the error of the node itself; it is taken off its bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rtlab.core.phrases import pluralize
from rtlab.core.precision import compute_amax
from rtlab.core.variant import Precision
from rtlab.quantize import passes, weights
from rtlab.quantize.apply_transforms import match_treated_nodes
from rtlab.quantize.fp16_plan import describe_skipped_nodes
from rtlab.quantize.gptq import Array, fit_scales, reconstruct
from rtlab.quantize.input_statistics import ProductForm, make_product_form
from rtlab.quantize.isolated_error import compute_dequantized

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.layer_inputs import LayerInput, LayerInputs
    from rtlab.core.model import Model
    from rtlab.core.variant import Variant
    from rtlab.quantize.edit import Edit


Weight: TypeAlias = "NDArray[np.float32]"
#: The position of a bias among the inputs of Conv and Gemm.
_BIAS = 2


def compute_bias_shift(form: ProductForm, layer_input: LayerInput, weight: Weight, rounded: Weight) -> Array:
    """The mean error of each output channel."""
    pairs = ((rounded, layer_input.rounded_mean), (weight, layer_input.mean))
    products = [np.einsum("gok,gk->go", form.to_rows(np.asarray(w, np.float64)), mean) for w, mean in pairs]
    return np.asarray(products[0] - products[1], np.float64).reshape(-1)


def correct_biases(shifts: Mapping[str, Array], notes: tuple[str, ...] = ()) -> passes.Pass:
    """The mean errors of each node's output channels taken off its bias."""

    def edit_graph(edit: Edit) -> None:
        model = edit.model
        places = {node: place for node in shifts if (place := find_bias_input(model, node)) is not None}
        for node, (reader, position, factor) in places.items():
            inputs = model.by_id[reader].inputs
            name = inputs[position] if position < len(inputs) else ""
            offset = np.asarray(model.known[name].numpy()) if name else np.zeros((), np.float32)
            corrected = (offset.astype(np.float64) - shifts[node] / factor).astype(offset.dtype)
            edit.set_input(reader, position, edit.add_constant(f"{reader}/corrected_bias", corrected))

    return passes.Pass("bias correction", edit_graph, passes.INSERTION_PROMISES, notes=notes)


def find_bias_input(model: Model, node: str) -> tuple[str, int, float] | None:
    """Where the constant offset of a product's output is, or could be.

    Returns:
        A node, the position of its input, and the factor of that; None where there is no such place.
    """
    product, known = model.by_id[node], model.known
    out = product.outputs[0]
    if product.op in {"Conv", "Gemm"}:
        if len(product.inputs) > _BIAS and product.inputs[_BIAS] and product.inputs[_BIAS] not in known:
            return None
        beta = float(str(product.attributes.get("beta", 1.0))) if product.op == "Gemm" else 1.0
        return (node, _BIAS, beta) if beta else None
    readers = model.consumers.get(out, ())
    if product.op != "MatMul" or len(readers) != 1 or readers[0].op != "Add" or out in model.outputs:
        return None
    other = 1 - readers[0].inputs.index(out)
    addend = known.get(readers[0].inputs[other])
    # One number for each output channel, or for all.
    is_bias = addend is not None and math.prod(addend.shape.numpy()) == (addend.shape.numpy() or [1])[-1]
    return (readers[0].id, other, 1.0) if is_bias else None


class WeightCorrector:
    """GPTQ and bias correction of one variant, while its graph is prepared."""

    def __init__(
        self, model: Model, variant: Variant, inputs: LayerInputs | None, check: Callable[[], object]
    ) -> None:
        self.model, self.inputs, self._check = model, inputs, check
        reconstructing, correcting = (
            [t for t in variant.treatments if t.kind == kind] for kind in ("reconstruct", "correct")
        )
        #: Damping by node that is reconstructed.
        self._damping = {n: t.setting for t in reconstructing for n in match_treated_nodes(model, [t])}
        self._nodes_to_correct = match_treated_nodes(model, correcting)
        self._has_treatments = bool(reconstructing or correcting)
        #: Nodes whose weights GPTQ has rounded.
        self.reconstructed_nodes: list[str] = []

    def reconstruct_weight(
        self, nodes: Sequence[str], weight: Weight, scale: Weight, precision: Precision
    ) -> Array | None:
        """A weight as multiples of its scales, in its shape; None where its readers were not observed."""
        moments = self._pool_second_moments(nodes)
        if moments is None:
            return None
        form, second = moments
        rows, sizes = (form.to_rows(np.asarray(a, np.float64)) for a in (weight, scale))
        self._check()
        quantized_rows = reconstruct(rows, sizes, second, precision.stored.round, self._damping[nodes[0]])
        self.reconstructed_nodes += nodes
        return np.asarray(form.from_rows(quantized_rows))

    def quantize_four_bit(
        self, model: Model, plan: weights.FourBitPlan, precision: Precision
    ) -> weights.FourBitWeights:
        """The weights of a plan in four bits whose readers were observed; raises ModelError for NaN or infinity."""
        quantized: dict[tuple[str, weights.ScaleLayout], weights.FourBitWeight] = {}
        for (value, layout), nodes in plan.weights.items():
            if (moments := self._pool_second_moments(nodes)) is not None:
                weight, damping = weights.read_weight(model, value, nodes[0]), self._damping[nodes[0]]
                self._check()
                quantized[value, layout] = _quantize_four_bit_weight(
                    moments, weight, layout, precision, damping
                )
                self.reconstructed_nodes += nodes
        return quantized

    def _pool_second_moments(self, nodes: Sequence[str]) -> tuple[ProductForm, Array] | None:
        """The second moments of the inputs of all readers of a weight; None unless all were observed for GPTQ."""
        layer_inputs = {} if self.inputs is None else self.inputs.nodes
        observations = [layer_inputs[n] for n in nodes if n in layer_inputs and n in self._damping]
        form = make_product_form(self.model, self.model.by_id[nodes[0]])
        if len(observations) < len(nodes) or isinstance(form, str):
            return None
        shape = (form.groups, form.size, form.size)
        moments = [r.second_moment for r in observations]
        if any(m is None or m.shape != shape for m in moments):
            return None
        total = sum(r.rows for r in observations)
        parts = (
            np.asarray(m, np.float64) * (r.rows / total) for r, m in zip(observations, moments, strict=True)
        )
        return form, np.sum([*parts], axis=0)

    def build_correction(
        self,
        typed: Model,
        four_bit_weights: Mapping[Precision, weights.FourBitWeights],
        plans: Mapping[Precision, weights.FourBitPlan],
    ) -> passes.Pass | None:
        """The bias correction; None where there is none.

        ``typed`` is the graph with INT8 and FP8 in it and not yet four bits, ``four_bit_weights`` are rounded already,
        and ``plans`` name all weights that are to be in four bits.
        """
        shifts: dict[str, Array] = {}
        uncorrectable_nodes: list[str] = []
        rounded_weights = {
            **_collect_eight_bit_weights(typed, self._nodes_to_correct),
            **_collect_four_bit_weights(typed, four_bit_weights, plans, self._nodes_to_correct),
        }
        for node, numbers in rounded_weights.items():
            layer_input = self.inputs.nodes.get(node) if self.inputs is not None else None
            form = make_product_form(self.model, self.model.by_id[node])
            if layer_input is None or isinstance(form, str):
                continue
            if find_bias_input(typed, node) is None:
                uncorrectable_nodes.append(node)
                continue
            weight = np.asarray(self.model.known[form.weight].numpy())
            shifts[node] = compute_bias_shift(form, layer_input, weight, numbers)
        if not shifts:
            return None
        note = f"the mean error of rounding taken off {pluralize(len(shifts), 'bias', 'biases')}"
        skipped = {"nothing constant is added behind it": uncorrectable_nodes} if uncorrectable_nodes else {}
        return correct_biases(shifts, (note, *describe_skipped_nodes(skipped, "uncorrected")))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done, and what was left out, in words."""
        if not self._has_treatments:
            return ()
        if self.inputs is None:
            return ("neither reconstructed nor corrected: what products read was not observed",)
        notes = []
        if self.reconstructed_nodes:
            count = pluralize(len(set(self.reconstructed_nodes)), "node")
            notes = [f"weights of {count} reconstructed on {pluralize(self.inputs.samples, 'sample')}"]
        elif self._damping:
            notes = ["nothing to reconstruct: no product has weights of INT8, FP8, INT4 or FP4"]
        return (*notes, *describe_skipped_nodes(dict(self.inputs.skipped), "to nearest"))


def _quantize_four_bit_weight(
    form_and_second: tuple[ProductForm, Array],
    weight: Weight,
    layout: weights.ScaleLayout,
    precision: Precision,
    damping: float,
) -> weights.FourBitWeight:
    """Scales and steps with a small error of the output; blocks are of neighbours in a row."""
    (form, second), stored, is_integer = form_and_second, precision.stored, precision is Precision.INT4
    tiny = float(np.finfo(np.float32).tiny)
    rows = form.to_rows(weight.astype(np.float64))
    blocks = rows.reshape(form.groups, form.outputs, -1, layout.block or form.size)
    amax = compute_amax(blocks, axis=3)
    tensor_scale = weights.compute_tensor_scale(float(amax.max()))

    def to_relative(scale: Array) -> NDArray[Any]:
        return weights.round_block_scale(scale / float(tensor_scale))

    def round_scale(scale: Array) -> Array:
        """What is stored of a scale."""
        if is_integer:
            return np.asarray(np.maximum(scale, tiny).astype(np.float32), np.float64)
        return np.asarray(to_relative(scale).astype(np.float32) * tensor_scale, np.float64)

    largest = np.where(amax > 0, amax, 1.0 if is_integer else 0.0) / stored.largest
    scale, steps = fit_scales(rows, largest, second, stored.round, store=round_scale, damping=damping)
    flat = scale.reshape(form.groups * form.outputs, -1)
    scale_table = flat[:, 0] if not layout.block else flat.T if form.is_transposed else flat
    values = stored.quantize(form.from_rows(steps))
    if is_integer:
        return weights.FourBitWeight(layout, values, np.ascontiguousarray(scale_table, np.float32))
    return weights.FourBitWeight(layout, values, to_relative(scale_table), np.asarray(tensor_scale))


def _collect_eight_bit_weights(typed: Model, nodes: Collection[str]) -> dict[str, Weight]:
    """The numbers of weights in INT8 and FP8, by the node that reads them."""
    numbers: dict[str, Weight] = {}
    ir_nodes = {n.name: n for n in typed.ir.graph}
    for id_ in nodes:
        node = typed.by_id[id_]
        maker = typed.producers.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if maker is None or maker.op != "DequantizeLinear" or maker.origin == maker.id:
            continue
        # The second input of a sum or a Concat may be an activation.
        if (dequantized := compute_dequantized(ir_nodes[maker.id])) is not None:
            numbers[id_] = dequantized
    return numbers


def _collect_four_bit_weights(
    typed: Model,
    four_bit_weights: Mapping[Precision, weights.FourBitWeights],
    plans: Mapping[Precision, weights.FourBitPlan],
    nodes: Collection[str],
) -> dict[str, Weight]:
    """The numbers of weights in four bits, by the node that reads them."""
    numbers: dict[str, Weight] = {}
    for precision, plan in plans.items():
        selected = {k: r for k, r in plan.weights.items() if any(n in nodes for n in r)}
        part, stored = weights.FourBitPlan(selected, {}), four_bit_weights.get(precision, {})
        for _, readers, weight in weights.iter_stored_weights(typed, part, precision, stored):
            numbers.update(dict.fromkeys((n for n in readers if n in nodes), weight.dequantize()))
    return numbers
