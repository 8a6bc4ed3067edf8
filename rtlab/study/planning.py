"""From what a user asks for to a variant that can be built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlab import backends
from rtlab.core.model import Model
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import Unavailable, VariantError
from rtlab.quantize import Scale, assign, sparsity
from rtlab.quantize.cache import CalibrationCache

#: What a user may give in place of a calibrator.
Scales = CalibrationCache | Mapping[str, Scale | float] | str | Path | None
#: Where an engine is built for when the user does not say.
_DEFAULT_SM = "sm86"


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
        precision = name if name in {p.value for p in Precision} else Precision.FP32
    label, given = _given(scales)
    variant = Variant.of(precision, scales=label, **choice)
    assign(model, variant)
    sparsity.matching(model, variant.sparsity)
    return variant, given


def default_target(builder: str) -> str:
    """Where a builder builds for when nobody says."""
    known = [str(t) for t in backends.get(builder).capabilities().targets]
    return _DEFAULT_SM if _DEFAULT_SM in known or not known else known[0]


def check_capable(builder: str, variant: Variant) -> None:
    """Raise ``VariantError`` unless the backend compiles this variant."""
    capable = backends.get(builder).capabilities()
    if variant.target not in capable.targets:
        known = ", ".join(f'"{t}"' for t in capable.targets)
        raise VariantError(
            f'Backend "{builder}" cannot build for target "{variant.target}": it does not compile for it. '
            f"Choose one of {known}, or another backend."
        )
    if variant.options is not None and not capable.options:
        raise VariantError(
            f'Backend "{builder}" cannot take options "{variant.options}": they are those of a TensorRT builder. '
            'Leave them out, or choose backend="tensorrt-rtx" or "tensorrt".'
        )
    for refused in sorted(variant.precisions - set(capable.precisions)):
        names = ", ".join(f'"{p}"' for p in capable.precisions)
        raise VariantError(
            f'Backend "{builder}" cannot build "{refused}": it has no such arithmetic. Choose one of {names}.'
        )


def builder_for(backend: str | None, target: str | Target | None) -> str:
    """The backend that is asked for, or the best one for a target.

    Raises:
        Unavailable: it is missing, or there is none.
    """
    if backend is not None:
        found = backends.get(backend)
        here = found.availability()
        if not here.ok:
            raise Unavailable(f'Backend "{backend}" cannot build: {here.reason}')
        if not found.capabilities().builds:
            raise Unavailable(
                f'Backend "{backend}" cannot build: it only runs or reads. Choose another backend, or use study.read.'
            )
        return found.name
    if str(target) == "cpu":
        return "onnxruntime"
    builders = {
        name: candidate.capabilities().targets
        for name, candidate in backends.registry().items()
        if candidate.capabilities().builds and candidate.availability().ok
    }
    gpus = {name: targets for name, targets in builders.items() if any(t.sm for t in targets)}
    # Where none compiles for the target, the first says for what it does.
    for name, targets in gpus.items():
        if target is None or str(target) in map(str, targets):
            return name
    if gpus:
        return next(iter(gpus))
    if target is not None:
        raise Unavailable(
            f'Cannot build for target "{target}": no TensorRT builder is installed here. '
            'Choose target="cpu", or see rtlab.available().'
        )
    return "onnxruntime"


def _given(
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
    return "given", {v: s if isinstance(s, Scale) else Scale(_amax(v, s)) for v, s in scales.items()}


def _amax(value: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise VariantError(
            f'Cannot use {given!r} as the scale of value "{value}": it is no number. Give its amax, the magnitude that '
            "the largest quantized number stands for."
        ) from None
