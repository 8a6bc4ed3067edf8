"""Which backend builds what a user asks for."""

from __future__ import annotations

from rtlab import backends
from rtlab.backends import compilers
from rtlab.backends.capabilities import list_capable, require_capability, suggest_backends
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Backend, Capabilities, Reader, Recaller
from rtlab.core.variant import Target, Variant
from rtlab.errors import Unavailable, VariantError

#: Where an engine is built for when the user does not say.
_DEFAULT_SM = "sm86"
#: What reads the files that people have, when nobody says.
_READER = "trtexec"
#: What is missing where no TensorRT builder is, and how to get it.
NO_BUILDER_REASON = (
    "no TensorRT builder is installed here, and no build of this model is recorded. TensorRT-RTX has wheels for "
    'x86-64 Linux and Windows only. Choose target="cpu" for the graph that ONNX Runtime makes here, or record a build '
    "where the builder is, with rtlab inspect MODEL --save build.json, and read it here: rtlab read build.json."
)


def default_target(builder: str) -> str:
    """Where a builder builds for when nobody says."""
    target_names = [str(t) for t in backends.get(builder).capabilities().targets]
    return _DEFAULT_SM if _DEFAULT_SM in target_names or not target_names else target_names[0]


def check_capable(builder: str, variant: Variant) -> None:
    """Raise ``VariantError`` unless the backend compiles this variant."""
    capabilities = backends.get(builder).capabilities()
    if variant.target not in capabilities.targets:
        target_names = quote_names(capabilities.targets)
        raise VariantError(
            f'Backend "{builder}" cannot build for target "{variant.target}": it does not compile for it. '
            f"Choose one of {target_names}, or another backend."
        )
    if variant.options is not None and not capabilities.options:
        raise VariantError(
            f'Backend "{builder}" cannot take options "{variant.options}": they are those of a TensorRT builder. '
            f"Leave them out, or choose {suggest_backends(lambda c: c.options)}."
        )
    for precision in sorted(variant.precisions - set(capabilities.precisions)):
        names = quote_names(capabilities.precisions)
        raise VariantError(
            f'Backend "{builder}" cannot build "{precision}": it has no such arithmetic. Choose one of {names}.'
        )


def usual_builder(model: Model | None = None) -> str:
    """The backend that an engine for a GPU is built with when nobody says which; where none is, what stands in.

    Where no compiler is here, it is the one whose builds of the model were recorded.
    """
    return next((n for n in list_capable(_builds_for_gpu) if is_usable(n, model)), "onnxruntime")


def _builds_for_gpu(capabilities: Capabilities) -> bool:
    builds = capabilities.builds and not capabilities.maker.predicts
    return builds and any(t.sm for t in capabilities.targets)


def is_usable(name: str, model: Model | None) -> bool:
    """Whether a builder works here, or recorded builds of a model are here in its place."""
    backend = backends.get(name)
    return backend.availability().ok or bool(list_recorded_releases(name, model))


def list_recorded_releases(name: str, model: Model | None) -> tuple[str, ...]:
    """The releases of a builder that is not here whose builds of a model are, the newest first."""
    backend = backends.get(name)
    if model is None or backend.availability().ok or not backend.capabilities().recalls:
        return ()
    recorded_builds: Recaller = require_capability(name, "recalls", "show recorded builds")
    return recorded_builds.recalled(model)


def list_predicting_backends() -> tuple[str, ...]:
    """The backends that predict engines by rules, which nobody gets unasked."""
    return list_capable(lambda c: c.builds and c.maker.predicts)


def get_additional_backend(backend: str | None) -> str | None:
    """The name of a backend that is chosen beside the usual one: an added release, or one that predicts; else None."""
    return backend if backend in list_predicting_backends() else compilers.get_added_backend(backend)


def opener_for(backend: str | Backend | None) -> str:
    """The backend that is asked for, or the best one that opens serialized engines."""
    if backend is not None:
        return backend if isinstance(backend, str) else backends.register(backend)
    openers = [n for n in list_capable(lambda c: c.opens and c.runs) if backends.get(n).availability().ok]
    # Where none is here, its own words say what is missing.
    return (openers or sorted(list_capable(lambda c: c.opens)))[0]


def reader_for(backend: str | Backend | None) -> Reader:
    """The backend that is asked for, or rtlab's own, that reads what another machine wrote.

    Raises:
        Unavailable: it reads no files.
        VariantError: it is handed over, and no backend.
    """
    if backend is not None and not isinstance(backend, str):
        backend = backends.register(backend)
    reader: Reader = require_capability(backend or _READER, "reads", "read files")
    return reader


def builder_for(
    backend: str | Backend | None,
    target: str | Target | None,
    compiler: str | None = None,
    model: Model | None = None,
) -> str:
    """The backend that is asked for, or the best one for a target; ``compiler`` is a release, such as ``1.5``.

    A compiler that is not here is taken where recorded builds of ``model`` are.

    Raises:
        Unavailable: it is missing, or there is none.
        VariantError: it is handed over, and no backend; or it has no releases.
    """
    if compiler is not None:
        release = compilers.named(compiler)
        name = backend if isinstance(backend, str) or backend is None else backend.name
        if name is not None and release not in compilers.list_releases(name):
            raise VariantError(
                f'Cannot build with compiler "{compiler}" and backend "{name}": it is a release of another backend. '
                f'Leave the backend out, or choose backend="{release.backend}" alone.'
            )
        return _require_builder(release.backend, model)
    if backend is not None:
        return _require_builder(backend if isinstance(backend, str) else backends.register(backend), model)
    if str(target) == "cpu":
        return "onnxruntime"
    builders = [name for name in list_capable(_builds_for_gpu) if is_usable(name, model)]
    for name in builders:
        if target is None or str(target) in map(str, backends.get(name).capabilities().targets):
            return name
    if builders:
        # None compiles for the target, and the first says for what it does.
        return builders[0]
    if target is not None:
        raise Unavailable(f'Cannot build for target "{target}": {NO_BUILDER_REASON}')
    return "onnxruntime"


def _require_builder(backend: str, model: Model | None) -> str:
    """The builder of this name, by its own spelling; what it lacks is told before any work begins."""
    candidate = backends.get(backend)
    availability, capable = candidate.availability(), candidate.capabilities()
    if not availability.ok and not list_recorded_releases(backend, model):
        raise Unavailable(f'Backend "{backend}" cannot build: {availability.reason}')
    if not capable.builds:
        raise Unavailable(
            f'Backend "{backend}" cannot build: it only runs or reads. Choose another backend, or use study.read.'
        )
    require_capability(candidate.name, "builds", "build")
    if capable.runs:
        require_capability(candidate.name, "runs", "run")
    return candidate.name
