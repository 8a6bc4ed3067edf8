"""Shapes of a model's inputs: what the graph declares, and the sizes that the user named for what it leaves open."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TypeAlias

from rtlab.core.value import shape_text
from rtlab.errors import ModelError

#: A shape as the graph declares it: a symbol, or None, where a dimension is open; None where nothing is told.
Declared: TypeAlias = "Sequence[int | str | None] | None"
#: Sizes by the name of an input (all dimensions) or of a symbol (one size).
Named: TypeAlias = "Mapping[str, tuple[int, ...] | int]"

#: Height and width of a picture, and the length of anything else, where nobody named a size: something to begin with.
_PICTURE, _LENGTH = 224, 128
_CHANNELS = (1, 3, 4)


def fixed(name: str, declared: Sequence[int | str | None], named: Named) -> tuple[int, ...]:
    """The concrete shape of an input: what the user named, else the model's own with a batch of 1.

    Raises:
        ModelError: a dimension other than the first is dynamic and has no named size.
    """
    whole = named.get(name)
    if isinstance(whole, tuple):
        return whole
    sizes: list[int] = []
    for axis, dim in enumerate(declared):
        if isinstance(dim, int):
            sizes.append(dim)
        elif isinstance(dim, str) and isinstance(size := named.get(dim), int):
            sizes.append(size)
        elif axis == 0:
            sizes.append(1)
        else:
            raise ModelError(
                f'Cannot fix the shape of input "{name}": dimension {axis} of '
                f"{shape_text(declared)} is dynamic. Name sizes, for example rtlab.load(..., "
                f'shapes={{"{name}": {suggested(name, declared, named)}}}).'
            )
    return tuple(sizes)


def suggested(name: str, declared: Sequence[int | str | None], named: Named) -> tuple[int, ...]:
    """The shape of an input with something to try where a dimension is open and has no named size.

    That is a batch of 1; in four dimensions three channels and 224 for height and width; else 128.
    """
    whole = named.get(name)
    if isinstance(whole, tuple):
        return whole
    usual = [1, *[_LENGTH] * (len(declared) - 1)]
    if len(declared) == 4:
        last = declared[3] in _CHANNELS and declared[1] not in _CHANNELS
        usual = [1, _PICTURE, _PICTURE, 3] if last else [1, 3, _PICTURE, _PICTURE]
    sizes = []
    for dim, other in zip(declared, usual, strict=False):
        own = named.get(dim) if isinstance(dim, str) else dim
        sizes.append(own if isinstance(own, int) else other)
    return tuple(sizes)


def known(
    declared: Mapping[str, Declared],
    named: Named,
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, tuple[int | None, ...] | None]:
    """The shapes of the inputs as far as they are known; a symbol has one size in all of them.

    ``batch`` is the first dimension of every input whose first dimension is dynamic, 1 by default; ``shapes`` stand in
    place of those that were ``named``.
    """
    given = {n: tuple(s) for n, s in {**named, **shapes}.items() if isinstance(s, Sequence)}
    symbols = {d: s for d, s in named.items() if isinstance(s, int)}
    for name, dims in declared.items():
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, str) and name in given and axis < len(given[name]):
                symbols[dim] = given[name][axis]
    for dims in declared.values():
        if dims and isinstance(dims[0], str):
            symbols[dims[0]] = batch if batch is not None else symbols.get(dims[0], 1)
    found: dict[str, tuple[int | None, ...] | None] = {}
    for name, dims in declared.items():
        if dims is None:
            found[name] = given.get(name)
            continue
        whole = given.get(name)
        own: Sequence[int | str | None] = whole if whole is not None and len(whole) == len(dims) else dims
        sizes = [symbols.get(d) if isinstance(d, str) else d for d in own]
        if dims and not isinstance(dims[0], int):
            sizes[0] = batch if batch is not None else sizes[0] or 1
        found[name] = tuple(sizes)
    return found


def read(
    given: Mapping[str, Sequence[int] | int], inputs: Container[str]
) -> dict[str, tuple[int, ...] | int]:
    """Sizes as they were given, as tuples and numbers."""
    found: dict[str, tuple[int, ...] | int] = {}
    for key, size in given.items():
        named = size if isinstance(size, int) else tuple(int(d) for d in size)
        # A shape of one size, by a name that no input has, is that of a symbol.
        lone = isinstance(named, tuple) and len(named) == 1 and key not in inputs
        found[key] = named[0] if lone and isinstance(named, tuple) else named
    return found


def check(model: str, inputs: Mapping[str, Declared], named: Named) -> None:
    """Raise ``ModelError`` unless the named sizes are those of inputs and symbols of the model of this name."""
    symbols = {d for declared in inputs.values() for d in declared or () if isinstance(d, str)}
    for key, given in named.items():
        if any(size < 1 for size in (given if isinstance(given, tuple) else (given,))):
            raise ModelError(
                f'Cannot give "{key}" the size {shape_text(given) if isinstance(given, tuple) else given} in '
                f'model "{model}": a size is at least 1. Name positive sizes.'
            )
        if isinstance(given, tuple):
            declared = inputs.get(key)
            fits = (
                declared is not None
                and len(given) == len(declared)
                and all(not isinstance(d, int) or d == g for d, g in zip(declared, given, strict=True))
            )
            if not fits:
                told = ", ".join(f'"{n}" {shape_text(shape)}' for n, shape in inputs.items())
                raise ModelError(
                    f'Cannot give "{key}" the shape {shape_text(given)} in model "{model}": '
                    f"its inputs are {told}. Name one of them with as many dimensions."
                )
        elif key not in symbols:
            raise ModelError(
                f'Cannot give dimension "{key}" a size in model "{model}": its symbols are '
                f"{', '.join(sorted(symbols)) or 'none'}. Name one of them, or an input with a full shape."
            )
