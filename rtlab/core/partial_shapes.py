"""Shapes of a model's inputs: as declared, and with sizes that the user named for open dimensions."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rtlab.core.sizes import Sizes
from rtlab.core.value import shape_text
from rtlab.errors import ModelError, Unsized

if TYPE_CHECKING:
    import onnx_ir as ir

    from rtlab.core.node_instances import Subgraph


#: A declared shape: a symbol or None for an open dimension, None for an unknown rank.
Declared: TypeAlias = "Sequence[int | str | None] | None"
#: Sizes by the name of an input (all dimensions) or of a symbol (one size).
Named: TypeAlias = "Mapping[str, tuple[int, ...] | int]"

#: Channels of a picture.
_CHANNELS = (1, 3, 4)
#: Symbols of a batch, wherever they stand.
_BATCH = re.compile(r"b|n|bs|.*batch.*", re.IGNORECASE)


def resolve_shape(
    name: str,
    declared: Sequence[int | str | None],
    named: Named,
    proposed: Callable[[], Mapping[str, tuple[int, ...]]],
) -> tuple[int, ...]:
    """The concrete shape of an input: what the user named, else the model's own with a batch of 1.

    Raises:
        Unsized: a dimension other than the first is dynamic and has no size; the message has ``proposed`` shapes.
    """
    if axes := list_unsized_axes(name, declared, named):
        many = len(axes) > 1
        example = ", ".join(f'"{n}": {shape}' for n, shape in proposed().items())
        raise Unsized(
            f'Cannot fix the shape of input "{name}": dimension{"s" * many} {" and ".join(map(str, axes))} of '
            f"{shape_text(declared)} {'are' if many else 'is'} dynamic. Name sizes, for example rtlab.load(..., "
            f"shapes={{{example}}})."
        )
    named_shape = named.get(name)
    if isinstance(named_shape, tuple):
        return named_shape
    sizes = (named.get(d) if isinstance(d, str) else d for d in declared)
    return tuple(size if isinstance(size, int) else 1 for size in sizes)


def list_unsized_axes(name: str, declared: Sequence[int | str | None], named: Named) -> list[int]:
    """The dimensions of an input that need a size and have none: the open ones but the first."""
    if isinstance(named.get(name), tuple):
        return []
    sizes = (named.get(dim) if isinstance(dim, str) else dim for dim in declared)
    return [axis for axis, size in enumerate(sizes) if axis and not isinstance(size, int)]


def get_symbol(dim: int | str | None) -> str:
    """The symbol of a dimension; empty for none, or one without a letter, such as exporters' question mark."""
    return dim if isinstance(dim, str) and any(c.isalnum() for c in dim) else ""


def suggest_shapes(
    declared: Mapping[str, Declared],
    named: Named,
    *,
    picture: tuple[int, int] = (224, 224),
    length: int = 128,
) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs of known rank, with something to try where a dimension is open and has no named size.

    That is a batch of 1, which is a first dimension, or one with a symbol that says so, or the second of a recurrent
    state (layers, batch, width); in four dimensions three channels, and ``picture`` for height and width; else
    ``length``. A symbol has one size in all inputs.
    """
    symbols = {key: size for key, size in named.items() if isinstance(size, int)}
    for name, dims in declared.items():
        named_shape = named.get(name)
        if isinstance(named_shape, tuple):
            pairs = zip(dims or (), named_shape, strict=False)
            symbols |= {symbol: size for dim, size in pairs if (symbol := get_symbol(dim))}
    for dims in declared.values():
        if dims and (first := get_symbol(dims[0])):
            symbols.setdefault(first, 1)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, dims in declared.items():
        if dims is None:
            continue
        named_shape = named.get(name)
        if isinstance(named_shape, tuple):
            shapes[name] = named_shape
            continue
        usual = _suggest_sizes(dims, picture, length)
        sizes = []
        for dim, other in zip(dims, usual, strict=True):
            symbol = get_symbol(dim)
            size = dim if isinstance(dim, int) else 1 if _BATCH.fullmatch(symbol) else other
            sizes.append(symbols.setdefault(symbol, size) if symbol else size)
        shapes[name] = tuple(sizes)
    return shapes


def _suggest_sizes(dims: Sequence[int | str | None], picture: tuple[int, int], length: int) -> list[int]:
    """A size for each dimension, by where it stands."""
    if len(dims) == 4:
        last = dims[3] in _CHANNELS and dims[1] not in _CHANNELS
        return [1, *picture, 3] if last else [1, 3, *picture]
    if len(dims) == 3 and isinstance(dims[0], int) and dims[0] > 1 and isinstance(dims[2], int):
        return [dims[0], 1, dims[2]]
    return [1, *[length] * (len(dims) - 1)] if dims else []


def resolve_partial_shapes(
    declared: Mapping[str, Declared], named: Named, batch: int | None, shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int | None, ...] | None]:
    """The shapes of the inputs as far as they are known; a symbol has one size in all of them.

    ``batch`` is the first dimension of every input whose first dimension is dynamic, 1 by default; ``shapes`` stand in
    place of those that were ``named``.
    """
    input_shapes = {n: tuple(s) for n, s in {**named, **shapes}.items() if isinstance(s, Sequence)}
    symbols = {d: s for d, s in named.items() if isinstance(s, int)}
    for name, dims in declared.items():
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, str) and name in input_shapes and axis < len(input_shapes[name]):
                symbols[dim] = input_shapes[name][axis]
    for dims in declared.values():
        if dims and isinstance(dims[0], str):
            symbols[dims[0]] = batch if batch is not None else symbols.get(dims[0], 1)
    partial_shapes: dict[str, tuple[int | None, ...] | None] = {}
    for name, dims in declared.items():
        if dims is None:
            partial_shapes[name] = input_shapes.get(name)
            continue
        full_shape = input_shapes.get(name, ())
        fits = len(full_shape) == len(dims)
        sizes = [symbols.get(d) if isinstance(d, str) else d for d in (full_shape if fits else dims)]
        if dims and not isinstance(dims[0], int):
            sizes[0] = batch if batch is not None else sizes[0] or 1
        partial_shapes[name] = tuple(sizes)
    return partial_shapes


def with_batch(
    declared: Mapping[str, Declared], named: Named, batch: int
) -> dict[str, tuple[int, ...] | int]:
    """The named sizes with this first dimension of all inputs; unnamed where other dimensions are open."""
    batch_sizes = {n: (batch, *size[1:]) if isinstance(size, tuple) else size for n, size in named.items()}
    for name, dims in declared.items():
        first, *others = dims or (0,)
        if name in batch_sizes or isinstance(first, int):
            continue
        if isinstance(first, str):
            batch_sizes[first] = batch
        elif all(isinstance(d, int) for d in others):
            batch_sizes[name] = (batch, *(d for d in others if isinstance(d, int)))
    return batch_sizes


def parse_sizes(
    sizes: Mapping[str, Sequence[int] | int], inputs: Container[str]
) -> dict[str, tuple[int, ...] | int]:
    """Named sizes as tuples and numbers."""
    parsed_sizes: dict[str, tuple[int, ...] | int] = {}
    for key, size in sizes.items():
        shape = (size,) if isinstance(size, int) else tuple(int(d) for d in size)
        # A shape of one size, by a name that no input has, is that of a symbol.
        is_symbol = isinstance(size, int) or (len(shape) == 1 and key not in inputs)
        parsed_sizes[key] = shape[0] if is_symbol else shape
    return parsed_sizes


def check(model: str, inputs: Mapping[str, Declared], named: Named) -> None:
    """Raise ``ModelError`` unless the named sizes are those of inputs and symbols of the model of this name."""
    symbols = {d for declared in inputs.values() for d in declared or () if isinstance(d, str)}
    for key, named_size in named.items():
        sizes = named_size if isinstance(named_size, tuple) else (named_size,)
        if any(size < 1 for size in sizes):
            raise ModelError(
                f'Cannot give "{key}" the size {"×".join(map(str, sizes))} in model "{model}": a size is at least 1. '
                "Name positive sizes."
            )
        if isinstance(named_size, tuple):
            declared = inputs.get(key)
            fits = (
                declared is not None
                and len(named_size) == len(declared)
                and all(not isinstance(d, int) or d == g for d, g in zip(declared, named_size, strict=True))
            )
            if not fits:
                input_list = ", ".join(f'"{n}" {shape_text(shape)}' for n, shape in inputs.items())
                raise ModelError(
                    f'Cannot give "{key}" the shape {shape_text(named_size)} in model "{model}": '
                    f"its inputs are {input_list}. Name one of them with as many dimensions."
                )
        elif key not in symbols:
            raise ModelError(
                f'Cannot give dimension "{key}" a size in model "{model}": its symbols are '
                f"{', '.join(sorted(symbols)) or 'none'}. Name one of them, or an input with a full shape."
            )


#: Heights and widths of pictures.
_SQUARES = (640, 256, 512, 64, 32, 28)
_PICTURES = ((224, 224), (320, 320), (48, 320), (32, 320), *((size, size) for size in _SQUARES))
#: Lengths of anything else, such as words, frames and samples of sound.
_LENGTHS = (128, 512, 16000, 1024, 64, 256, 32, 4096)
#: Seconds after which no further sizes are tried, of which a large model may take one.
_SECONDS = 1.5


def propose_shapes(
    model: ir.Model, scopes: Sequence[Subgraph], declared: Mapping[str, Declared], named: Named
) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the inputs, with something to try where a dimension is open and has no named size.

    They follow from shape inference; nothing is run. Where no usual size fits, and where there is no time to try more,
    they are those that fit best. An input of no known rank is left out. ``declared`` are the shapes of the inputs in
    the graph, ``named`` the sizes that the user gave.
    """
    candidates: list[dict[str, tuple[int, ...]]] = []
    for picture, length in itertools.product(_PICTURES, _LENGTHS):
        shapes = suggest_shapes(declared, named, picture=picture, length=length)
        if shapes not in candidates:
            candidates.append(shapes)
    best_shapes, *others = candidates
    end = time.monotonic() + _SECONDS
    fewest = Sizes(model, scopes, best_shapes).misfits if others else 0
    for shapes in others:
        if not fewest or time.monotonic() > end:
            break
        misfits = Sizes(model, scopes, shapes).misfits
        if misfits < fewest:
            best_shapes, fewest = shapes, misfits
    return best_shapes
