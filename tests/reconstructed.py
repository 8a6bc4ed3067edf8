"""Weights in four bits by reconstruction beside plain rounding: what each layer's output keeps, and what it takes.

``python tests/reconstructed.py`` measures every trained sample and writes the page.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import onnxruntime as ort

import pages
import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.variant import Variant
from rtlab.quantize import inputs, mending, prepare
from rtlab.quantize.windows import ProductForm, product
from rtlab.session.observer import Observer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.layer_inputs import LayerInputs
    from rtlab.quantize.compose import Prepared

PAGE = Path(__file__).parents[1] / "docs" / "reconstruction.md"
#: Samples that are trained; recurrent ones have no product of these kinds in front of their recurrence.
SAMPLES = (
    "digits_inception", "digits_outlier", "digits_mobilenet", "digits_dark", "digits_light", "digits_vit",
    "digits_lstm", "digits_gru", "digits_sparse24", "fp16_overflow", "sentences",
)  # fmt: skip
#: Samples that are observed, and those that are held out.
MINE, OTHERS = 256, 512


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer: its kind, the weights of an output, SQNR of its output in dB with both roundings, and times.

    ``observed``, ``rounded`` and ``plain`` are seconds: looking at what it reads, rounding its weights, and computing
    it once for the same samples in ONNX Runtime.
    """

    node: str
    kind: str
    size: int
    nearest: float
    reconstructed: float
    observed: float
    rounded: float
    plain: float

    @property
    def gain(self) -> float:
        """Decibels over rounding to nearest."""
        return self.reconstructed - self.nearest

    @property
    def cost(self) -> float:
        """Times a plain inference of the layer."""
        return (self.observed + self.rounded) / self.plain


@contextlib.contextmanager
def timed(owner: Any, name: str, node: Callable[..., str]) -> Iterator[dict[str, float]]:
    """Seconds in a function, by the node that its arguments are about."""
    spent: dict[str, float] = {}
    known = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        began = time.perf_counter()
        found = known(*arguments)
        key = node(*arguments)
        spent[key] = spent.get(key, 0.0) + time.perf_counter() - began
        return found

    with mock.patch.object(owner, name, call):
        yield spent


def measured(model: Model, mine: CalibrationData, others: CalibrationData, precision: str) -> list[Layer]:
    """Every layer whose weights are rounded so, in the order of the graph."""
    variant, observer = Variant.of(precision, treatments=["reconstruct"]), Observer(model)
    nearest = prepare(model, Variant.of(precision))
    with timed(inputs, "_looked", lambda want, _: want.product.node) as observed:
        seen = observer.inputs(variant, nearest, mine, Silent())
    with mock.patch.object(inputs, "SAMPLES", OTHERS), mock.patch("rtlab.session.observer.SAMPLES", OTHERS):
        held = observer.inputs(variant, nearest, others, Silent())
    with timed(mending.Mending, "_four", lambda _, read, *__: read[0].node) as rounded:
        mended = prepare(model, variant, inputs=seen)
    assert seen is not None and held is not None  # noqa: PT018 - both are there or none
    found = []
    for node in [n for n in model.top if n.id in rounded]:
        one = product(model, node)
        assert isinstance(one, ProductForm)
        kept = sqnr(model, one, held, nearest), sqnr(model, one, held, mended)
        found.append(
            Layer(
                node.id, kind(node.op, one), one.size, *kept, observed[node.id], rounded[node.id],
                plain(model, node.id, mine),
            )
        )  # fmt: skip
    return found


def sqnr(model: Model, one: ProductForm, held: LayerInputs, ready: Prepared) -> float:
    """Of what a layer writes for held-out samples, with nothing but its own weights rounded."""
    second = held.nodes[one.node].second
    assert second is not None
    weight = one.rows(weights(model, one.node))
    off = weight - one.rows(weights(ready.emulation, one.node))
    power, noise = (np.einsum("goi,gij,goj->", w, second, w, optimize=True) for w in (weight, off))
    return float(10 * np.log10(power / noise))


def weights(model: Model, node: str) -> NDArray[np.float64]:
    """What a product multiplies with."""
    return np.asarray(model.known[model.by_id[node].inputs[1]].numpy(), np.float64)


def kind(op: str, one: ProductForm) -> str:
    """What a table calls a layer."""
    if not one.kernel:
        return op
    places = "x".join(map(str, one.kernel))
    return f"{'depthwise ' if one.groups > 1 and one.outputs == 1 else ''}{op} {places}"


def plain(model: Model, node: str, data: CalibrationData) -> float:
    """Seconds that ONNX Runtime computes one layer alone for, on all samples at once."""
    alone = model.extract([node])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(alone.bytes(), options, providers=["CPUExecutionProvider"])
    (read,) = session.get_inputs()
    shape = [MINE, *[d if isinstance(d, int) else 1 for d in model.values[read.name].shape][1:]]
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    spent = []
    for _ in range(7):
        began = time.perf_counter()
        session.run(None, {read.name: x})
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def of_sample(name: str, precision: str) -> list[Layer]:
    """Every layer of a sample: observed on samples for calibration, judged on those of its task."""
    sample = rtlab.samples.load(name)
    assert sample.task is not None
    return measured(sample.model, sample.calibration.take(MINE), sample.task.data.take(OTHERS), precision)


def table(names: Iterable[str] = SAMPLES) -> Iterator[tuple[str, str, list[Layer]]]:
    """Samples, precisions and their layers, as far as there are any."""
    for precision in ("int4", "fp4"):
        for name in names:
            layers = of_sample(name, precision)
            if layers:
                yield name, precision, layers


def gain(layers: Iterable[Layer]) -> float:
    """Decibels over rounding to nearest, of the median layer."""
    return float(np.median([one.gain for one in layers]))


def cost(layers: list[Layer]) -> float:
    """What all layers take, in plain inferences of them on the same samples."""
    return sum(one.observed + one.rounded for one in layers) / sum(one.plain for one in layers)


def written(found: list[tuple[str, str, list[Layer]]]) -> str:
    """The page."""
    every = {
        p: [one for _, precision, layers in found for one in layers if precision == p]
        for p in ("int4", "fp4")
    }
    lines = pages.flow(
        f"""
        # Weights in four bits by reconstruction

        What a layer's output keeps, rounded to nearest and reconstructed (`treatments=["reconstruct"]`), as SQNR on
        {OTHERS} held-out samples with nothing but its own weights rounded; scales and rounding rest on {MINE} others.
        Computed from second moments of what the layer reads, which is exact for a linear layer. Times are measured on
        one thread: what is observed and rounded, beside ONNX Runtime's plain inference of the same layer on the same
        samples. `python tests/reconstructed.py` counts anew.

        In the median of all layers {gain(every["int4"]):.1f} dB are won in INT4 ({len(every["int4"])} layers) and
        {gain(every["fp4"]):.1f} dB in FP4 ({len(every["fp4"])} layers, products of matrices alone). Least is won
        where a block of weights has few inputs that matter, as in depthwise convolutions, whose nine weights leave
        rounding little to trade with. A model of one tiny product costs many inferences of it, which are microseconds
        each.
        """
    )
    lines += pages.rows(
        (
            "sample",
            "precision",
            "layers",
            "dB won, median",
            "least",
            "most",
            "x plain, all layers",
            "ms, all layers",
        ),
        (
            (
                name,
                precision,
                len(layers),
                f"{gain(layers):.1f}",
                f"{min(one.gain for one in layers):.1f}",
                f"{max(one.gain for one in layers):.1f}",
                f"{cost(layers):.0f}",
                f"{1e3 * sum(one.observed + one.rounded for one in layers):.0f}",
            )
            for name, precision, layers in found
        ),
    )
    lines += pages.rows(
        ("kind of layer", "precision", "layers", "dB won, median", "x plain, median"),
        (
            (
                what,
                precision,
                len(alike),
                f"{gain(alike):.1f}",
                f"{np.median([one.cost for one in alike]):.0f}",
            )
            for precision in ("int4", "fp4")
            for what in sorted({one.kind for one in every[precision]})
            for alike in [[one for one in every[precision] if one.kind == what]]
        ),
    )
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(written([*table()]), encoding="utf-8")
