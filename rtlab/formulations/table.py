"""Every formulation there is, what it does, and for which layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

from rtlab.formulations import convolutions, products
from rtlab.formulations.fragment import Fragment
from rtlab.formulations.layer import WeightedNode

#: What each node is as the model has it.
DIRECT = "direct"


@dataclasses.dataclass(frozen=True)
class Formulation:
    """One way to compute a layer.

    ``fits`` tells why it is not for a layer, empty where it is; ``build`` adds its nodes and returns the value that
    they write. ``tolerance`` is the greatest error beside the direct formulation that rounding explains, relative to
    the greatest value: sums in another order keep near the last bit, transforms lose some.
    """

    name: str
    how: str
    tolerance: float
    fits: Callable[[WeightedNode], str]
    build: Callable[[WeightedNode, Fragment], str]


def _fits_always(_: WeightedNode) -> str:
    return ""


_SUMS, _TRANSFORMS, _LARGE = 2e-5, 2e-4, 1e-3

_CONVOLUTIONS = (
    Formulation(DIRECT, "as the model has it", _SUMS, _fits_always, convolutions.direct),
    Formulation(
        "row major",
        "convolution out of ONNX Runtime's blocked layout",
        _SUMS,
        _fits_always,
        convolutions.row_major,
    ),
    Formulation("im2col", "unfold, then one GEMM", _SUMS, convolutions.unfold_fits, convolutions.unfold),
    Formulation("GEMM", "weights by pixels", _SUMS, convolutions.pointwise_fits, convolutions.pointwise),
    Formulation(
        "GEMM, channels last",
        "transposed to NHWC, pixels by weights",
        _SUMS,
        convolutions.pointwise_fits,
        convolutions.channels_last,
    ),
    Formulation(
        "Winograd 2×2",
        "16 products for 4 outputs in place of 36",
        _TRANSFORMS,
        partial(convolutions.winograd_fits, step=2),
        convolutions.winograd_2,
    ),
    Formulation(
        "Winograd 4×4",
        "36 products for 16 outputs in place of 144",
        _LARGE,
        partial(convolutions.winograd_fits, step=4),
        convolutions.winograd_4,
    ),
    Formulation(
        "Fourier 8×8",
        "products of spectra of 8×8 tiles",
        _TRANSFORMS,
        partial(convolutions.fourier_fits, size=8),
        convolutions.fourier_8,
    ),
    Formulation(
        "Fourier 16×16",
        "products of spectra of 16×16 tiles",
        _TRANSFORMS,
        partial(convolutions.fourier_fits, size=16),
        convolutions.fourier_16,
    ),
    Formulation(
        "shifted sums",
        "a multiplication and an addition for each weight of the kernel",
        _SUMS,
        convolutions.shifted_sum_fits,
        convolutions.sum_shifted,
    ),
)
_PRODUCTS = (
    Formulation(DIRECT, "as the model has it", _SUMS, _fits_always, products.direct),
    Formulation(
        "weights transposed",
        "weights stored the other way round",
        _SUMS,
        _fits_always,
        products.transposed_storage,
    ),
    Formulation(
        "weights first", "both transposed, weights by rows", _SUMS, _fits_always, products.weights_first
    ),
    Formulation(
        "split columns",
        "two GEMMs, half of the outputs each",
        _SUMS,
        products.halves_fit,
        products.split_columns,
    ),
    Formulation(
        "split sum", "two GEMMs, half of the sum each, added", _SUMS, products.halves_fit, products.split_sum
    ),
    Formulation("1×1 convolution", "rows as pixels", _SUMS, _fits_always, products.as_convolution),
)

#: The formulations by operator, the direct one first.
FORMULATIONS: Mapping[str, tuple[Formulation, ...]] = {
    "Conv": _CONVOLUTIONS,
    "Gemm": _PRODUCTS,
    "MatMul": _PRODUCTS,
}


def list_formulations(layer: WeightedNode) -> tuple[Formulation, ...]:
    """The formulations that fit a layer, the direct one first."""
    return tuple(f for f in FORMULATIONS[layer.op] if not f.fits(layer))
