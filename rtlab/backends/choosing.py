"""Which backend builds what a user asks for."""

from __future__ import annotations

from rtlab import backends
from rtlab.core.variant import Target, Variant
from rtlab.errors import Unavailable, VariantError

#: Where an engine is built for when the user does not say.
_DEFAULT_SM = "sm86"


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
