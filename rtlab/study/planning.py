"""From what a user asks for to a variant that can be built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.errors import VariantError
from rtlab.quantize import apply_transforms, assign, placement, rewrites, sparsity
from rtlab.quantize.assign import check_calibrators
from rtlab.quantize.cache import CalibrationCache

#: What a user may give in place of a calibrator.
Scales = CalibrationCache | Mapping[str, Scale | float] | str | Path | None


def resolve(
    model: Model,
    name: str,
    precision: str | Precision | Mapping[str, str | Precision] | None,
    *,
    scales: Scales,
    **choice: Any,
) -> tuple[Variant, Mapping[str, Scale] | None]:
    """A variant that fits the model, and its given scales.

    Raises:
        VariantError: the combination cannot exist, or a pattern fits no node.
        ReadError: the cache is damaged.
    """
    if precision is None:
        precision = Precision.called(name)
    label, explicit_scales = _parse_scales(scales)
    variant = Variant.of(precision, scales=label, **choice)
    assign(model, variant)
    sparsity.select_prunable_weights(model, variant.sparsity)
    rewrites.check(model, variant.rewrites)
    apply_transforms.check(model, variant)
    if variant.calibrators:
        check_calibrators(model, variant, placement.plan(model).activations)
    return variant, explicit_scales


def _parse_scales(
    scales: Scales,
) -> tuple[str, Mapping[str, Scale] | None]:
    """Scales that the user has already, and what to call them."""
    if scales is None:
        return "", None
    if isinstance(scales, CalibrationCache):
        return "cache", scales.scales()
    if isinstance(scales, (str, Path)):
        return Path(scales).name, CalibrationCache.read(scales).scales()
    if not isinstance(scales, Mapping):
        raise VariantError(
            f"Cannot use {type(scales).__name__} as scales. Give a calibration cache, its path, or amax by value."
        )
    return "given", {v: s if isinstance(s, Scale) else Scale(_parse_amax(v, s)) for v, s in scales.items()}


def _parse_amax(value: str, number: Any) -> float:
    try:
        return float(number)
    except (TypeError, ValueError):
        raise VariantError(
            f'Cannot use {number!r} as the scale of value "{value}": it is no number. Give its amax, the magnitude '
            "that the largest quantized number stands for."
        ) from None
