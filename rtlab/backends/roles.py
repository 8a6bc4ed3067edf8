"""A backend in a role, by what it says of itself; where it does not have it, words on who does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rtlab import backends
from rtlab.core.phrases import quoted
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


def role(name: str, wanted: str, verb: str) -> Any:
    """The backend of a name in a role, a key of ``protocols.ROLES``: what its protocol declares can be called.

    Raises:
        Unavailable: there is no such backend, it does not have the role, or it says so and lacks a method.
    """
    found = backends.get(name)
    doing = f'Backend "{name}" cannot {verb}'
    if not getattr(found.capabilities(), wanted):
        raise Unavailable(f"{doing}: {_INSTEAD[wanted]}. See rtlab.available().")
    if missing := lacking(found, wanted):
        listed = quoted(missing)
        raise Unavailable(
            f"{doing}: it says that it does and has no {listed}. Complete it after rtlab.core.protocols, or leave "
            f"{wanted}=True out of its capabilities."
        )
    return found


def able(what: Callable[[Capabilities], bool]) -> tuple[str, ...]:
    """Names of the backends that can do something, where they are installed; those that are here come first."""
    return tuple(name for name, found in backends.registry().items() if what(found.capabilities()))


def advice(what: Callable[[Capabilities], bool]) -> str:
    """What to choose for something, to follow "Choose" or "with": each ``backend="..."`` that can do it."""
    return " or ".join(f'backend="{name}"' for name in sorted(able(what))) or "another backend"
