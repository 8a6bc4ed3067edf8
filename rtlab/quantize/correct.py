"""Bias correction: the mean of what rounding adds to a product's output is taken off its bias.

Empirical, as Nagel, van Baalen, Blankevoort and Welling (ICCV 2019, section 4.2) do where there is data. A product is
linear, so the mean error of its output is ``Q mean(x̂) - W mean(x)``, with ``x`` what it reads in the source and ``x̂``
that rounded: the error that this node makes itself. What arrives from others is theirs to correct.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.quantize import passes
from rtlab.quantize.im2col import ProductForm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.layer_inputs import LayerInput
    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

#: The position of a bias among the inputs of Conv and Gemm.
_BIAS = 2


def compute_bias_shift(
    form: ProductForm, layer_input: LayerInput, weight: NDArray[np.float32], rounded: NDArray[np.float32]
) -> NDArray[np.float64]:
    """What rounding adds to the mean of each output channel."""
    weight_rows, rounded_rows = (form.to_rows(np.asarray(w, np.float64)) for w in (weight, rounded))
    mean_error = np.einsum("gok,gk->go", rounded_rows, layer_input.rounded_mean) - np.einsum(
        "gok,gk->go", weight_rows, layer_input.mean
    )
    flat: NDArray[np.float64] = mean_error.reshape(-1)
    return flat


def correct_biases(shifts: Mapping[str, NDArray[np.float64]], notes: tuple[str, ...] = ()) -> passes.Pass:
    """Mean errors taken off biases: by node, what rounding adds to each of its output channels."""

    def edit_graph(edit: Edit) -> None:
        model = edit.model
        places = {node: find_bias_input(model, node) for node in shifts}
        for node, place in places.items():
            if place is None:
                continue
            reader, position, factor = place
            inputs = model.by_id[reader].inputs
            name = inputs[position] if position < len(inputs) else ""
            offset = np.asarray(model.known[name].numpy()) if name else np.zeros((), np.float32)
            corrected = (offset.astype(np.float64) - shifts[node] / factor).astype(offset.dtype)
            edit.set_input(reader, position, edit.add_constant(f"{reader}/corrected_bias", corrected))

    changes = "biases without the mean error of rounding"
    return passes.Pass("bias correction", edit_graph, passes.INSERTION_PROMISES, changes=changes, notes=notes)


def find_bias_input(model: Model, node: str) -> tuple[str, int, float] | None:
    """Where the constant offset of a product's output stands, or could.

    Returns:
        A node, the position of its input, and what that is multiplied with; None where there is no such place.
    """
    product_node = model.by_id[node]
    if product_node.op in {"Conv", "Gemm"}:
        if (
            len(product_node.inputs) > _BIAS
            and product_node.inputs[_BIAS]
            and product_node.inputs[_BIAS] not in model.known
        ):
            return None
        beta = product_node.attributes.get("beta", 1.0) if product_node.op == "Gemm" else 1.0
        return (node, _BIAS, float(beta)) if isinstance(beta, (int, float)) and beta else None
    readers = model.consumers.get(product_node.outputs[0], ())
    if (
        product_node.op != "MatMul"
        or len(readers) != 1
        or readers[0].op != "Add"
        or product_node.outputs[0] in model.outputs
    ):
        return None
    other = 1 - readers[0].inputs.index(product_node.outputs[0])
    addend = model.known.get(readers[0].inputs[other])
    # Of one number for each output channel, or for all; a place in front has another one.
    last = addend is not None and math.prod(addend.shape.numpy()) == (addend.shape.numpy() or [1])[-1]
    return (readers[0].id, other, 1.0) if last else None
