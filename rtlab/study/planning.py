"""Variants from the arguments of ``Study.add``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlab import backends
from rtlab.analyses.variants.variations import variations
from rtlab.backends.selection import builder_for, check_capable, default_target
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions
from rtlab.core.protocols import Backend
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import VariantError
from rtlab.quantize import apply_transforms, assign, existing_qdq, placement, rewrites, sparsity
from rtlab.quantize.assign import check_calibrators
from rtlab.quantize.cache import CalibrationCache
from rtlab.study.state_holder import StateHolder, check_variant_name

#: What may stand in place of a calibrator.
Scales = CalibrationCache | Mapping[str, Scale | float] | str | Path | None


def add_variant(
    holder: StateHolder,
    name: str,
    *,
    precision: str | Precision | Mapping[str, str | Precision] | None = None,
    target: str | Target | None = None,
    backend: str | Backend | None = None,
    compiler: str | None = None,
    scales: Scales = None,
    options: BuildOptions | Mapping[str, Any] | None = None,
    **choice: Any,
) -> Variant:
    """Plan a variant that a builder here can build; the arguments are those of ``Study.add``.

    Raises:
        VariantError: the combination cannot exist.
        Unavailable: the backend, or the release, is not installed.
        ReadError: the cache is damaged.
    """
    check_variant_name(name)
    builder = builder_for(backend, target, compiler, holder.state.model)
    variant, explicit_scales = resolve(
        holder.state.model,
        name,
        precision,
        target=target if target is not None else default_target(builder),
        backend=builder,
        scales=scales,
        options=BuildOptions.of(**options) if isinstance(options, Mapping) else options,
        **choice,
    )
    check_capable(builder, variant)
    holder.plan(name, variant, explicit_scales)
    return variant


def vary(holder: StateHolder, name: str, what: str) -> tuple[str, ...]:
    """Plan the variants that differ from one in a single choice; returns their names: see ``Study.vary``.

    Raises:
        VariantError: there is no such choice, or nothing of it would differ.
        Unavailable: the builder is not installed.
    """
    variant, model = holder.variant(name, "vary"), holder.state.model
    builder = variant.backend or builder_for(None, variant.target, model=model)
    targets = backends.get(builder).capabilities().targets
    choices = variations(name, variant, what, targets, existing_qdq.find_quantized_nodes(model))
    for title, choice in choices.items():
        if title not in holder.state.variants:
            add_variant(holder, title, **choice)
    return tuple(choices)


def resolve(
    model: Model,
    name: str,
    precision: str | Precision | Mapping[str, str | Precision] | None = None,
    *,
    scales: Scales = None,
    **choice: Any,
) -> tuple[Variant, Mapping[str, Scale] | None]:
    """A variant that fits the model, and its given scales.

    Raises:
        VariantError: the combination cannot exist, or a pattern fits no node.
        ModelError: a size is that of neither an input nor a symbol.
        ReadError: the cache is damaged.
    """
    label, explicit_scales = _parse_scales(scales)
    variant = Variant.of(Precision.called(name) if precision is None else precision, scales=label, **choice)
    if variant.sizes:
        model.resized(dict(variant.sizes))
    assign(model, variant)
    sparsity.select_prunable_weights(model, variant.sparsity)
    rewrites.check(model, variant.rewrites)
    apply_transforms.check(model, variant)
    if variant.calibrators:
        check_calibrators(model, variant, placement.plan(model).activations)
    return variant, explicit_scales


def _parse_scales(scales: Scales) -> tuple[str, Mapping[str, Scale] | None]:
    """A name for scales, and the scales by value."""
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
