"""A backend in a role, by what it says of itself; where it does not have it, words on who does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rtlab import backends
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Capabilities, lacking
from rtlab.errors import Unavailable

#: What a backend is that does not have a role.
_INSTEAD = {
    "builds": "it only runs or reads",
    "runs": "it does not run engines here",
    "opens": "it loads no engines",
    "counts": "it keeps no engine on a GPU here",
    "forces": "it remembers no tactics that could be edited",
    "explains": "what its engines are has to be found out by experiment",
    "reads": "it reads no files",
    "recalls": "no builds were recorded for it",
}


def require_capability(name: str, capability: str, verb: str) -> Any:
    """The backend of a name in a role, a key of ``protocols.ROLES``: what its protocol declares can be called.

    Raises:
        Unavailable: there is no such backend, it does not have the role, or it says so and lacks a method.
    """
    backend = backends.get(name)
    error_prefix = f'Backend "{name}" cannot {verb}'
    if not getattr(backend.capabilities(), capability):
        raise Unavailable(f"{error_prefix}: {_INSTEAD[capability]}. See rtlab.available().")
    if missing := lacking(backend, capability):
        missing_list = quote_names(missing)
        raise Unavailable(
            f"{error_prefix}: it says that it does and has no {missing_list}. Complete it after rtlab.core.protocols, "
            f"or leave {capability}=True out of its capabilities."
        )
    return backend


def list_capable(predicate: Callable[[Capabilities], bool]) -> tuple[str, ...]:
    """Names of the backends that can do something, where they are installed; those that are here come first."""
    return tuple(name for name, backend in backends.registry().items() if predicate(backend.capabilities()))


def suggest_backends(predicate: Callable[[Capabilities], bool]) -> str:
    """What to choose for something, to follow "Choose" or "with": each ``backend="..."`` that can do it."""
    return " or ".join(f'backend="{name}"' for name in sorted(list_capable(predicate))) or "another backend"
