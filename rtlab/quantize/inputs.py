"""What products read, gathered in one streaming pass for mending their weights and biases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.layer_inputs import LayerInput, LayerInputs
from rtlab.core.progress import check
from rtlab.core.variant import Precision
from rtlab.errors import CalibrationError
from rtlab.quantize.blocks import to_fp8
from rtlab.quantize.treating import meant
from rtlab.quantize.windows import ProductForm, product

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
SAMPLES, _ROWS = 256, 256
#: Bytes that the second moments of a model may take: of those beyond, the largest are left out.
_ROOM = 1 << 30
_ROUNDED = frozenset({Precision.INT8, Precision.FP8, Precision.INT4, Precision.FP4})
_FP8_LARGEST = 448.0


@dataclasses.dataclass(frozen=True)
class WantedInput:
    """One product to look at: how the variant rounds what it reads, and whether second moments are asked for."""

    product: ProductForm
    scale: Scale | None
    second: bool

    def rounded(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the product reads in the variant, of what it reads in the source."""
        if self.scale is None:
            return x
        size = np.float32(self.scale.scale)
        if self.scale.largest == _FP8_LARGEST:
            fp8 = to_fp8(np.clip(x / size, -_FP8_LARGEST, _FP8_LARGEST)).astype(np.float32)
            return np.asarray(fp8 * size, np.float32)
        return np.asarray(np.clip(np.rint(x / size), -128, 127) * size, np.float32)


def wanted(
    model: Model, variant: Variant, ready: Prepared
) -> tuple[tuple[WantedInput, ...], Mapping[str, tuple[str, ...]]]:
    """The products that a variant's treatments ask to look at, and those that cannot be, by reason.

    Args:
        model: What is rounded.
        variant: Its treatments.
        ready: The model prepared for the variant, without what is asked here.
    """
    corrected = meant(model, (t for t in variant.treatments if t.kind == "correct"))
    rebuilt = meant(model, (t for t in variant.treatments if t.kind == "reconstruct"))
    found, skipped = list[WantedInput](), dict[str, list[str]]()
    for node in model.top:
        precision = ready.precisions.get(node.id)
        if node.id not in corrected | rebuilt or precision not in _ROUNDED or len(node.inputs) < 2:
            continue
        if node.op not in {"Conv", "ConvTranspose", "Gemm", "MatMul"}:
            continue
        one = product(model, node)
        if isinstance(one, str):
            skipped.setdefault(one, []).append(node.id)
            continue
        eight = precision in {Precision.INT8, Precision.FP8}
        found.append(WantedInput(one, ready.scales.get(one.value) if eight else None, node.id in rebuilt))
    room = _ROOM
    kept = []
    for want in sorted(found, key=lambda w: w.product.size):
        room -= _bytes(want)
        if want.second and room < 0:
            skipped.setdefault("second moments of all would take more than 1 GiB", []).append(
                want.product.node
            )
        kept.append(dataclasses.replace(want, second=want.second and room >= 0))
    return tuple(kept), {why: tuple(nodes) for why, nodes in skipped.items()}


class InputCollector:
    """Sums over batches; its memory does not grow with their number."""

    def __init__(self, wanted: Iterable[WantedInput]) -> None:
        self._wanted = tuple(wanted)
        self._sums: dict[str, list[Any]] = {}
        self.samples = 0

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the values to read."""
        return tuple(dict.fromkeys(w.product.value for w in self._wanted))

    def run(
        self,
        batches: Iterable[Batch],
        fetch: Callable[[Batch], Outputs],
        progress: Progress,
        samples_in: Callable[[Batch], int],
    ) -> None:
        """Look at all batches; what was seen when it is stopped is whole.

        Raises:
            CalibrationError: a value holds NaN or infinity.
            Cancelled: the user stopped.
        """
        for batch in batches:
            check(progress, "observing what products read")
            found = {**batch, **fetch(batch)}
            count = samples_in(batch)
            made = {w.product.node: _looked(w, found) for w in self._wanted}
            for node, sums in made.items():
                held = self._sums.get(node)
                self._sums[node] = (
                    sums if held is None else [_added(a, b) for a, b in zip(held, sums, strict=True)]
                )
            self.samples += count
            progress.advance(count)

    def result(self, skipped: Mapping[str, tuple[str, ...]]) -> LayerInputs:
        """What was seen so far."""
        nodes = {
            node: LayerInput(
                mean / places, rounded / places, None if second is None else second / max(rows, 1), rows
            )
            for node, (mean, rounded, places, second, rows) in self._sums.items()
        }
        return LayerInputs(nodes, self.samples, skipped)


def _looked(want: WantedInput, found: Outputs) -> list[Any]:
    """Sums over one batch: of rows, of rounded rows, places, of outer products, and rows of these."""
    x = np.asarray(found[want.product.value], np.float32)
    if not np.isfinite(x).all():
        raise CalibrationError(
            f'Cannot observe value "{want.product.value}": it holds NaN or infinity. Check the data and the model in '
            "FP32 first: its outputs must be finite."
        )
    rounded = want.rounded(x)
    mean, places = want.product.mean(x)
    near = mean if rounded is x else want.product.mean(rounded)[0]
    if not want.second:
        return [mean, near, places, None, 0]
    rows = want.product.read(rounded, _ROWS)
    second = rows.transpose(0, 2, 1) @ rows
    # Sums of many batches in double precision where that is cheap.
    wide = second.astype(np.float64) if _bytes(want) <= _ROOM // 64 else second
    return [mean, near, places, wide, rows.shape[1]]


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, np.ndarray):
        one += other
        return one
    return None if one is None else one + other


def _bytes(want: WantedInput) -> int:
    return want.product.groups * want.product.size**2 * 8 if want.second else 0
