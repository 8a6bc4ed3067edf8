"""The only home of vendor imports, and the registry of backends.

Built-in backends stand in a table; others register through the entry-point group ``rtlab.backends`` with an
object or a class that follows ``core.protocols``, or are handed to ``Study.add``, which keeps them by ``register``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.core.phrases import quote_names
from rtlab.errors import Unavailable, VariantError

if TYPE_CHECKING:
    # Only named here: a child process imports this package for every build and should not load ONNX for it.
    from rtlab.backends.compilers import Compiler
    from rtlab.core.protocols import Availability, Backend


@functools.cache
def registry() -> dict[str, Backend]:
    """Every backend by name, best builder first; those that cannot be used here come after those that can."""
    import importlib.metadata

    from rtlab.backends.classic.passes import Classic
    from rtlab.backends.onnxruntime import OnnxRuntime
    from rtlab.backends.readers.reading import Trtexec
    from rtlab.backends.tensorrt import TensorRT, TensorRTRTX

    built_in: list[Backend] = [TensorRT(), TensorRTRTX(), OnnxRuntime(), Classic(), Trtexec()]
    table = {b.name: b for b in sorted(built_in, key=lambda b: not b.availability().ok)}
    for point in importlib.metadata.entry_points(group="rtlab.backends"):
        try:
            plugin = point.load()
            backend = plugin() if isinstance(plugin, type) else plugin
            reason = _explain_unusable(backend)
        except Exception as error:  # noqa: BLE001 - a broken plug-in must not take the others along
            warnings.warn(f'Cannot load backend "{point.name}": {error}', RuntimeWarning, stacklevel=2)
            continue
        if not reason and backend.name != point.name:
            reason = f'it calls itself "{backend.name}". Register it under that name.'
        if not reason and point.name in table:
            reason = "another one of this name is registered."
        if reason:
            warnings.warn(f'Cannot use backend "{point.name}": {reason}', RuntimeWarning, stacklevel=2)
        else:
            table[point.name] = backend
    return table


def _explain_unusable(backend: object) -> str:
    """Why an object is no backend; empty where it is one."""
    missing = ", ".join(n for n in ("name", "availability", "capabilities") if not hasattr(backend, n))
    words = f"{type(backend).__name__} has no {missing}. A backend follows rtlab.core.protocols: see docs/backend.md."
    return words if missing else ""


#: Backends that were handed over, which a later one of their name may replace, as when a cell runs again.
_REGISTERED: set[str] = set()


def register(backend: Backend) -> str:
    """Keep a backend under its own name in this process, not in those of an executor.

    Raises:
        VariantError: the object is no backend, or its name is that of another one.
    """
    if reason := _explain_unusable(backend):
        raise VariantError(f"Cannot use this backend: {reason}")
    table, name = registry(), backend.name
    if name in table and table[name] is not backend and name not in _REGISTERED:
        raise VariantError(
            f'Cannot use this {type(backend).__name__} as backend "{name}": another backend has this name. Give it '
            "a name of its own."
        )
    if table.get(name) is not backend:
        _REGISTERED.add(name)
        table[name] = backend
    return name


def get(name: str) -> Backend:
    """The backend with this name; ``onnxruntime:openvino`` is ONNX Runtime on one of its execution providers.

    ``tensorrt-rtx:1.5`` is a release of TensorRT-RTX that was added.

    Raises:
        Unavailable: there is none; the message names those that exist.
    """
    from rtlab.backends import compilers, providers

    if isinstance(name, str) and name.startswith(f"{compilers.BACKEND}:"):
        release = compilers.named(name.partition(":")[2])
        return registry().get(release.backend) or _get_release_backend(release)
    if isinstance(name, str) and name.startswith(providers.PREFIX):
        return _get_provider_backend(providers.parse_provider(name.removeprefix(providers.PREFIX)).short)
    try:
        return registry()[name]
    except (KeyError, TypeError):
        names = quote_names(registry())
        raise Unavailable(
            f'Cannot use backend "{name}": no backend has this name. Choose one of {names}.'
        ) from None


@functools.cache
def _get_provider_backend(provider: str) -> Backend:
    """ONNX Runtime on a provider, one object for all spellings; its sessions are kept there."""
    from rtlab.backends import providers
    from rtlab.backends.onnxruntime import OnnxRuntime

    named = providers.parse_provider(provider)
    return registry()["onnxruntime"] if named == providers.CPU else OnnxRuntime(named)


@functools.cache
def _get_release_backend(release: Compiler) -> Backend:
    """A release of a compiler, one object for all spellings; its engines are kept there."""
    from rtlab.backends.tensorrt import TensorRTRTX

    return TensorRTRTX(release)


def available() -> Mapping[str, Availability]:
    """Availability of every backend, release and execution provider, with the reason where one is missing."""
    from rtlab.backends import compilers, providers

    table = {name: backend.availability() for name, backend in registry().items()}
    for c in compilers.known():
        table.setdefault(c.backend, _get_release_backend(c).availability())
    for provider in (*providers.list_available(), *providers.list_installable()):
        backend = _get_provider_backend(provider.short)
        table[backend.name] = backend.availability()
    return table
