"""Statistics of what products read, gathered in one streaming pass for bias correction and GPTQ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.layer_inputs import LayerInput, LayerInputs
from rtlab.core.precision import quantize_linear
from rtlab.core.progress import check
from rtlab.core.variant import Precision
from rtlab.errors import CalibrationError
from rtlab.quantize.apply_transforms import match_treated_nodes
from rtlab.quantize.im2col import ProductForm, make_product_form
from rtlab.quantize.placement import WEIGHTED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.arrays import Batch
    from rtlab.core.model import Model
    from rtlab.core.prepared import Prepared
    from rtlab.core.protocols import Progress
    from rtlab.core.scale import Scale
    from rtlab.core.trace import Outputs
    from rtlab.core.variant import Variant

#: Samples that are enough, and rows of each of them that go into a product's second moments.
SAMPLES, _MAX_ROWS = 256, 256
#: Bytes that the second moments of a model may take: of those beyond, the largest are left out.
_MAX_MOMENTS_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class InputStatsRequest:
    """One product to observe, the scale that rounds its input, and whether second moments are needed."""

    product: ProductForm
    scale: Scale | None
    second: bool

    def round_input(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The input as the variant rounds it."""
        if self.scale is None:
            return x
        size, largest = np.float32(self.scale.scale), self.scale.largest
        stored = next(p.stored for p in Precision if p.needs_calibrator and p.stored.largest == largest)
        is_float = stored.is_small_float
        steps = stored.round(x / size) if is_float else quantize_linear(x, size, np.float32(0), (-128, 127))
        return np.asarray(steps * size, np.float32)


def plan_input_stats(
    model: Model, variant: Variant, ready: Prepared
) -> tuple[tuple[InputStatsRequest, ...], Mapping[str, tuple[str, ...]]]:
    """The products that a variant's treatments need observed, and those that cannot be observed, by reason.

    ``ready`` is the model prepared for the variant without statistics.
    """
    corrected_nodes, reconstructed_nodes = (
        match_treated_nodes(model, (t for t in variant.treatments if t.kind == kind))
        for kind in ("correct", "reconstruct")
    )
    requests, skipped_nodes = list[InputStatsRequest](), dict[str, list[str]]()
    for node in model.top:
        precision = ready.precisions.get(node.id)
        if node.id not in corrected_nodes | reconstructed_nodes or node.op not in WEIGHTED:
            continue
        if precision is None or not precision.stored.scaled:
            continue
        form = make_product_form(model, node)
        if isinstance(form, str):
            skipped_nodes.setdefault(form, []).append(node.id)
            continue
        scale = ready.scales.get(form.value) if precision.needs_calibrator else None
        requests.append(InputStatsRequest(form, scale, node.id in reconstructed_nodes))
    remaining_bytes, accepted_requests = _MAX_MOMENTS_BYTES, []
    for request in sorted(requests, key=lambda w: w.product.size):
        remaining_bytes -= _count_moments_bytes(request)
        if request.second and remaining_bytes < 0:
            reason = "second moments of all would take more than 1 GiB"
            skipped_nodes.setdefault(reason, []).append(request.product.node)
        accepted_requests.append(dataclasses.replace(request, second=request.second and remaining_bytes >= 0))
    return tuple(accepted_requests), {reason: tuple(nodes) for reason, nodes in skipped_nodes.items()}


class InputCollector:
    """Sums over batches; its memory does not grow with their number."""

    def __init__(self, requests: Iterable[InputStatsRequest]) -> None:
        self._requests = tuple(requests)
        self._sums: dict[str, list[Any]] = {}
        self.samples = 0

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the values to read."""
        return tuple(dict.fromkeys(w.product.value for w in self._requests))

    def run(
        self,
        batches: Iterable[Batch],
        fetch: Callable[[Batch], Outputs],
        progress: Progress,
        samples_in: Callable[[Batch], int],
    ) -> None:
        """Observe all batches; each batch counts whole or not at all.

        Raises:
            CalibrationError: a value holds NaN or infinity.
            Cancelled: the user stopped.
        """
        for batch in batches:
            check(progress, "observing what products read")
            tensors = {**batch, **fetch(batch)}
            count = samples_in(batch)
            batch_sums = {w.product.node: _sum_batch(w, tensors) for w in self._requests}
            for node, sums in batch_sums.items():
                before = self._sums.get(node)
                self._sums[node] = sums if before is None else [*map(_accumulate, before, sums)]
            self.samples += count
            progress.advance(count)

    def build_layer_inputs(self, skipped: Mapping[str, tuple[str, ...]]) -> LayerInputs:
        """What was seen so far."""
        nodes: dict[str, LayerInput] = {}
        for node, (mean, rounded, places, second, rows) in self._sums.items():
            moment = None if second is None else second / max(rows, 1)
            nodes[node] = LayerInput(mean / places, rounded / places, moment, rows)
        return LayerInputs(nodes, self.samples, skipped)


def _sum_batch(request: InputStatsRequest, tensors: Outputs) -> list[Any]:
    """Sums over one batch: of rows, of rounded rows, places, of outer products, and rows of these."""
    x = np.asarray(tensors[request.product.value], np.float32)
    if not np.isfinite(x).all():
        raise CalibrationError(
            f'Cannot observe value "{request.product.value}": it holds NaN or infinity. Check the data and the model '
            "in FP32 first: its outputs must be finite."
        )
    rounded_inputs = request.round_input(x)
    mean, places = request.product.sum_positions(x)
    near = mean if rounded_inputs is x else request.product.sum_positions(rounded_inputs)[0]
    if not request.second:
        return [mean, near, places, None, 0]
    rows = request.product.sample_rows(rounded_inputs, _MAX_ROWS)
    second = (rows.transpose(0, 2, 1) @ rows).astype(np.float64)
    return [mean, near, places, second, rows.shape[1]]


def _accumulate(total: Any, addend: Any) -> Any:
    if isinstance(total, np.ndarray):
        total += addend
        return total
    return None if total is None else total + addend


def _count_moments_bytes(request: InputStatsRequest) -> int:
    return request.product.groups * request.product.size**2 * 8 if request.second else 0
