"""Products as rows of the input times rows of weights, and statistics of those rows for bias correction and GPTQ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.layer_inputs import LayerInput, LayerInputs
from rtlab.core.precision import NVFP4_RANGE, quantize_linear
from rtlab.core.progress import check
from rtlab.core.variant import Precision
from rtlab.errors import CalibrationError
from rtlab.quantize import weights
from rtlab.quantize.apply_transforms import match_treated_nodes
from rtlab.quantize.placement import WEIGHTED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.arrays import Batch
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.core.prepared import Prepared
    from rtlab.core.protocols import Progress
    from rtlab.core.scale import Scale
    from rtlab.core.trace import Outputs
    from rtlab.core.variant import Variant

_MATRIX = 2


@dataclasses.dataclass(frozen=True)
class ProductForm:
    """A Conv, Gemm or MatMul with a constant weight: ``groups`` times ``(rows, K) x (K, outputs)``.

    ``kernel`` is empty for a product of matrices; ``is_transposed`` says that its weight is stored ``(K, outputs)``.
    """

    node: str
    value: str
    weight: str
    shape: tuple[int, ...]
    groups: int = 1
    is_transposed: bool = False
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    padding: str = "NOTSET"

    @property
    def size(self) -> int:
        """K: the weights of one output channel."""
        return self.shape[0] if self.is_transposed else math.prod(self.shape[1:])

    @property
    def outputs(self) -> int:
        """Output channels of each group."""
        return (self.shape[1] if self.is_transposed else self.shape[0]) // self.groups

    def to_rows(self, weight: NDArray[Any]) -> NDArray[Any]:
        """A tensor of the weight's shape as ``(groups, outputs, K)``."""
        flat = weight.T if self.is_transposed else weight.reshape(self.shape[0], -1)
        return flat.reshape(self.groups, self.outputs, self.size)

    def from_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The way back from ``to_rows``."""
        flat = rows.reshape(-1, self.size)
        return np.ascontiguousarray(flat.T) if self.is_transposed else flat.reshape(self.shape)

    def sum_positions(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """The sum of all input rows, shape ``(groups, K)``, and how many there are."""
        if not self.kernel:
            flat = x.reshape(-1, self.size)
            return flat.sum(axis=0, dtype=np.float64)[None], len(flat)
        patches = self._extract_patches(x)
        total = np.stack([v.sum(axis=(0, *range(2, v.ndim)), dtype=np.float64) for v in patches], axis=1)
        places = len(x) * math.prod(patches[0].shape[2:])
        return total.reshape(self.groups, self.size), places

    def sample_rows(self, x: NDArray[np.float32], most: int) -> NDArray[np.float32]:
        """Input rows, at most ``most`` of each sample, spread evenly: shape ``(groups, rows, K)``."""
        if not self.kernel:
            flat = x.reshape(-1, self.size)
            step = max(1, -(-len(flat) // (most * max(1, len(x)))))
            return flat[None, ::step]
        patches = self._extract_patches(x)
        places = patches[0].shape[2:]
        total = math.prod(places)
        step = max(1, -(-total // most))
        # A divisor of the length of a line would meet the same columns in every line.
        while step > 1 and math.gcd(step, places[-1]) != 1:
            step += 1
        at = np.unravel_index(np.arange(0, total, step), places)
        index: tuple[Any, ...] = (slice(None), slice(None), *at)
        columns = [patch[index].reshape(len(x), self.groups, -1, len(at[0])) for patch in patches]
        # From (weights of the kernel, samples, groups, channels, places) to (groups, samples and places, K).
        rows = np.stack(columns).transpose(2, 1, 4, 3, 0)
        return np.ascontiguousarray(rows, np.float32).reshape(self.groups, -1, self.size)

    def _extract_patches(self, x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """What each weight of the kernel reads at all places, shape ``(samples, channels, *places)``."""
        n = len(self.kernel)
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        pads = list(zip(self.pads[:n], self.pads[n:], strict=True))
        if self.padding.startswith("SAME"):
            pads = []
            for size, s, r in zip(x.shape[2:], self.strides, reach, strict=True):
                total = max(0, (-(-size // s) - 1) * s + r - size)
                less, more = total // 2, total - total // 2
                pads.append((less, more) if self.padding == "SAME_UPPER" else (more, less))
        elif self.padding == "VALID":
            pads = [(0, 0)] * n
        padded_input = np.pad(x, [(0, 0), (0, 0), *pads]) if any(map(any, pads)) else x
        spatial = padded_input.shape[2:]
        sizes = [(s - r) // t + 1 for s, r, t in zip(spatial, reach, self.strides, strict=True)]
        patches = []
        for at in np.ndindex(*self.kernel):
            lines = [
                slice(i * d, i * d + (size - 1) * s + 1, s)
                for i, d, s, size in zip(at, self.dilations, self.strides, sizes, strict=True)
            ]
            index: tuple[Any, ...] = (slice(None), slice(None), *lines)
            patches.append(padded_input[index])
        return patches


def make_product_form(model: Model, node: Node) -> ProductForm | str:
    """A node as such a product, or why it is none."""
    weight = model.known.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None:
        return "its weight is no constant"
    shape = tuple(weight.shape.numpy())
    value, name = node.inputs[0], node.inputs[1]
    if node.op == "Conv":
        kernel = shape[2:]
        n = len(kernel)

        def get_ints(key: str, default: list[int]) -> tuple[int, ...]:
            attribute = node.attributes.get(key)
            return tuple(attribute) if isinstance(attribute, list) and attribute else tuple(default)

        return ProductForm(
            node.id, value, name, shape, int(str(node.attributes.get("group", 1))), is_transposed=False, kernel=kernel,
            strides=get_ints("strides", [1] * n), dilations=get_ints("dilations", [1] * n),
            pads=get_ints("pads", [0] * 2 * n), padding=str(node.attributes.get("auto_pad", "NOTSET")),
        )  # fmt: skip
    if node.op not in {"Gemm", "MatMul"} or len(shape) != _MATRIX:
        return f"{node.op} of {len(shape)} dimensions has no such form"
    if node.op == "Gemm" and (node.attributes.get("transA", 0) or node.attributes.get("alpha", 1.0) != 1.0):
        return "its input is turned, or its product multiplied"
    return ProductForm(
        node.id, value, name, shape, is_transposed=node.op == "MatMul" or not node.attributes.get("transB", 0)
    )


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
        if largest == NVFP4_RANGE:
            rows = x.reshape(-1, x.shape[-1])
            return weights.quantize_blocks(rows, weights.FP4_ROWS, size).dequantize().reshape(x.shape)
        stored = next(
            p.stored for p in Precision if p.stored.scaled == "activations" and p.stored.largest == largest
        )
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
