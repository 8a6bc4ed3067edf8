"""Shapes of a model's inputs: as declared, and with sizes that the user named for open dimensions."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rtlab.core.input_names import is_mask, is_of_encoder, is_past
from rtlab.core.size_expressions import evaluate, list_names, list_symbols, solve, substitute
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
    proposed: Callable[[], Named],
) -> tuple[int, ...]:
    """The concrete shape of an input: what the user named, else the model's own with a batch of 1.

    Raises:
        Unsized: a dimension other than the first is dynamic and has no size; the message has ``proposed`` sizes.
    """
    if axes := list_unsized_axes(name, declared, named):
        many = len(axes) > 1
        example = ", ".join(f'"{n}": {size}' for n, size in proposed().items())
        raise Unsized(
            f'Cannot fix the shape of input "{name}": dimension{"s" * many} {" and ".join(map(str, axes))} of '
            f"{shape_text(declared)} {'are' if many else 'is'} dynamic. Name sizes, for example rtlab.load(..., "
            f"shapes={{{example}}})."
        )
    named_shape = named.get(name)
    if isinstance(named_shape, tuple):
        return named_shape
    sizes = (resolve_size(d, named) for d in declared)
    return tuple(1 if size is None else size for size in sizes)


def list_unsized_axes(name: str, declared: Sequence[int | str | None], named: Named) -> list[int]:
    """The dimensions of an input that need a size and have none: the open ones but the first."""
    if isinstance(named.get(name), tuple):
        return []
    return [axis for axis, dim in enumerate(declared) if axis and resolve_size(dim, named) is None]


def resolve_size(dim: int | str | None, named: Named) -> int | None:
    """The size of a dimension: its own, that of its symbol, or what is computed of symbols; None for an open one."""
    if not isinstance(dim, str):
        return dim
    return evaluate(dim, {symbol: size for symbol, size in named.items() if isinstance(size, int)})


def get_symbol(dim: int | str | None) -> str:
    """The symbol of a dimension; empty for none, or one without a letter, such as exporters' question mark."""
    return dim if isinstance(dim, str) and any(c.isalnum() for c in dim) else ""


def list_open_symbols(declared: Mapping[str, Declared]) -> tuple[str, ...]:
    """The symbols whose sizes decide all dimensions that have one, in the order of the inputs."""
    return list_symbols(
        d for dims in declared.values() for d in dims or () if get_symbol(d) and isinstance(d, str)
    )


def list_batch_symbols(declared: Mapping[str, Declared]) -> tuple[str, ...]:
    """The symbols of first dimensions, but for lengths: an input has those behind a first dimension of another symbol.

    So ``cache_position``, which has one position for each of the words in ``input_ids``, has no batch.
    """
    firsts = dict.fromkeys(symbol for dims in declared.values() if dims and (symbol := get_symbol(dims[0])))
    lengths = {
        name
        for dims in declared.values()
        for dim in (dims or ())[1:]
        if isinstance(dim, str) and dims and isinstance(dims[0], str)
        for name in list_names(dim)
        if name != dims[0]
    }
    return tuple(symbol for symbol in firsts if symbol not in lengths)


def has_batch(declared: Mapping[str, Declared]) -> bool:
    """Whether the first dimension of every input is dynamic, and none of them is a length."""
    batches = list_batch_symbols(declared)
    firsts = [dims[0] if dims else 0 for dims in declared.values()]
    return all(not isinstance(d, int) and (not get_symbol(d) or d in batches) for d in firsts)


#: Sizes that tell symbols apart: primes, of which no two have the sum of two others.
_APART = (17, 29, 53, 97, 181, 347, 673, 1301)
#: Symbols that nobody wrote.
_NUMBERED = re.compile(r"(?:s|u|unk__|\w*\.)\d+")


def find_equal_symbols(
    model: ir.Model, scopes: Sequence[Subgraph], declared: Mapping[str, Declared]
) -> dict[str, str]:
    """Symbols with the symbol, or the sum of two, that the graph adds, multiplies or joins them with.

    An exporter may write ``mask_length`` beside ``sequence_length``, or ``s27``. Shapes are inferred with a size of its
    own for each symbol; what does not fit is equal, but for a size of 1 that is broadcast.
    """
    symbols = list_open_symbols(declared)
    batches = [s for s in list_batch_symbols(declared) if s in symbols]
    equal: dict[str, str] = {}
    if len(batches) < 2 and len(symbols) - len(batches) < 2:
        return equal
    while True:
        others = [s for s in symbols if s not in equal]
        sizes = dict(zip(others, _APART, strict=False))
        texts = {size: symbol for symbol, size in sizes.items()}
        texts |= {
            sizes[a] + sizes[b]: f"{a} + {b}"
            for a, b in itertools.combinations([s for s in sizes if s not in batches and s.isidentifier()], 2)
        }
        shapes = {
            name: None if dims is None else tuple(resolve_size(d, sizes) for d in dims)
            for name, dims in ((n, substitute_symbols(dims, equal)) for n, dims in declared.items())
        }
        pairs = [
            (texts[one], texts[two])
            for one, two in sorted(Sizes(model, scopes, shapes).list_conflicts())
            if one in texts and two in texts
        ]
        match = next(filter(None, (_match(one, two) for one, two in pairs)), None)
        if match is None:
            return equal
        symbol, text = match
        equal = {s: substitute(t, {symbol: text}) for s, t in equal.items()} | {symbol: text}


def _match(one: str, two: str) -> tuple[str, str] | None:
    """A symbol, and what it equals: of two symbols the first that somebody wrote; None for two sums."""
    is_symbol = [list_names(text) == (text,) for text in (one, two)]
    if not any(is_symbol):
        return None
    swap = not is_symbol[1] or (all(is_symbol) and _NUMBERED.fullmatch(one) and not _NUMBERED.fullmatch(two))
    symbol, text = (one, two) if swap else (two, one)
    return None if symbol in list_names(text) else (symbol, text)


def substitute_symbols(dims: Declared, texts: Mapping[str, str]) -> tuple[int | str | None, ...] | None:
    """A declared shape with other symbols in the place of some of its own."""
    if dims is None:
        return None
    return tuple(substitute(d, texts) if isinstance(d, str) else d for d in dims)


def collect_symbols(declared: Mapping[str, Declared], named: Named) -> dict[str, int]:
    """The sizes of symbols: as they are named, or as the named shape of an input has them."""
    symbols = {symbol: size for symbol, size in named.items() if isinstance(size, int)}
    for name, dims in declared.items():
        named_shape = named.get(name)
        if isinstance(named_shape, tuple):
            pairs = zip(dims or (), named_shape, strict=False)
            symbols |= {symbol: size for dim, size in pairs if (symbol := get_symbol(dim))}
    for dim, size in tuple(symbols.items()):
        symbols |= solve(dim, size, symbols)
    return symbols


def list_open_sizes(declared: Mapping[str, Declared]) -> dict[str, list[str]]:
    """The names of sizes that are open, each with the inputs that have it: symbols, and ``image[2]`` without one.

    Sizes without a symbol that are one by their meaning, which are the batch and those of a cache, have one name.
    """
    symbols, unnamed = list_open_symbols(declared), _name_without_symbol(declared)
    inputs: dict[str, list[str]] = {}
    for name, dims in declared.items():
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, int):
                continue
            symbol = get_symbol(dim)
            names = [n for n in list_names(symbol) if n in symbols] if symbol else [unnamed[name, axis]]
            for one in names:
                if name not in inputs.setdefault(one, []):
                    inputs[one].append(name)
    return inputs


def _name_without_symbol(declared: Mapping[str, Declared]) -> dict[tuple[str, int], str]:
    """By input and dimension the names of open sizes without a symbol: ``image[2]``, of the first of equal ones.

    Equal are the batch, where each input has one, and sizes of caches of all layers, those of an encoder apart.
    """
    batched = has_batch(declared)
    names: dict[tuple[str, int], str] = {}
    firsts: dict[object, str] = {}
    for name, dims in declared.items():
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, int) or get_symbol(dim):
                continue
            own: object = f"{name}[{axis}]"
            rank = len(dims or ())
            # One of one dimension, such as positions, may be a length.
            if batched and not axis and rank > 1:
                own = "batch"
            elif is_past(name) and rank > 2:
                own = is_of_encoder(name), axis, rank
            names[name, axis] = firsts.setdefault(own, f"{name}[{axis}]")
    return names


def from_open_sizes(
    declared: Mapping[str, Declared], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...] | int]:
    """Sizes by the names of ``list_open_sizes`` as symbols and shapes."""
    unnamed = _name_without_symbol(declared)
    symbols = {name: size for name, size in sizes.items() if name not in unnamed.values()}
    shapes: dict[str, tuple[int, ...] | int] = {}
    for name, dims in declared.items():
        if dims and not all(isinstance(d, int) or get_symbol(d) for d in dims):
            shapes[name] = tuple(
                sizes.get(unnamed.get((name, axis), ""), resolve_size(d, symbols) or 1)
                for axis, d in enumerate(dims)
            )
    return {**symbols, **shapes}


def list_past_sizes(declared: Mapping[str, Declared]) -> set[str]:
    """The names of sizes that may be 0: inputs with keys and values of tokens before, and symbols of their lengths."""
    inputs = [
        n for n, dims in declared.items() if is_past(n) and not is_of_encoder(n) and len(dims or ()) > 2
    ]
    lengths = ((declared[n] or ())[-2] for n in inputs)
    return {
        *inputs,
        *(f"{n}[{len(declared[n] or ()) - 2}]" for n in inputs),
        *filter(None, map(get_symbol, lengths)),
    }


def override_sizes(
    declared: Mapping[str, Declared], named: Named, sizes: Named
) -> dict[str, tuple[int, ...] | int]:
    """The ``named`` sizes with others in their place; a named shape stands for its symbols, which others may change."""
    symbols = {s: n for s, n in collect_symbols(declared, named).items() if list_names(s) == (s,)}
    symbols |= collect_symbols(declared, sizes)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, named_shape in named.items():
        if isinstance(named_shape, tuple) and not all(
            isinstance(d, int) or get_symbol(d) for d in declared[name] or ()
        ):
            resolved = (resolve_size(d, symbols) if get_symbol(d) else None for d in declared[name] or ())
            shapes[name] = tuple(
                n if n is not None else old for n, old in zip(resolved, named_shape, strict=True)
            )
    return {**{s: n for s, n in symbols.items() if list_names(s) == (s,)}, **shapes, **sizes}


def list_missing_sizes(
    declared: Mapping[str, Declared], named: Named, proposed: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...] | int]:
    """The ``proposed`` sizes of what is open but for the batch: by symbol, and where one lacks that, a whole shape."""
    symbols = collect_symbols(declared, proposed)
    missing: dict[str, tuple[int, ...] | int] = {}
    for name, shape in proposed.items():
        dims = declared[name] or ()
        open_dims = [dims[axis] for axis in list_unsized_axes(name, dims, {**named, **missing})]
        names = {s for d in open_dims if isinstance(d, str) and get_symbol(d) for s in list_names(d)} - {
            *named
        }
        if names <= {*symbols} and all(get_symbol(d) for d in open_dims):
            missing |= {s: symbols[s] for s in symbols if s in names}
        else:
            missing[name] = shape
    return missing


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
    ``length``. A decoder with a cache gets one step: one token behind as many that all are ``length``. A symbol has one
    size in all inputs, and a dimension that is computed of symbols follows from theirs.
    """
    symbols = collect_symbols(declared, named)
    for symbol in list_batch_symbols(declared):
        symbols.setdefault(symbol, 1)
    has_cache = any(is_past(name) and len(dims or ()) > 2 for name, dims in declared.items())
    shapes: dict[str, tuple[int, ...]] = {}
    # Of a mask's length both parts are known by then.
    for name in sorted(declared, key=lambda n: (not is_past(n), is_mask(n))):
        dims, named_shape = declared[name], named.get(name)
        if dims is None or isinstance(named_shape, tuple):
            shapes |= {name: named_shape} if dims is not None and isinstance(named_shape, tuple) else {}
            continue
        usual = (
            _suggest_step(name, dims, shapes, length) if has_cache else _suggest_sizes(dims, picture, length)
        )
        for dim, size in zip(dims, usual, strict=True):
            for symbol in list_names(get_symbol(dim)) if get_symbol(dim) else ():
                if evaluate(symbol, symbols) is None:
                    is_batch, is_plain = _BATCH.fullmatch(symbol), symbol == dim
                    symbols[symbol] = 1 if is_batch else size if is_plain else length
        sizes = (
            dim
            if isinstance(dim, int)
            else evaluate(symbol, symbols)
            if (symbol := get_symbol(dim))
            else None
            for dim in dims
        )
        shapes[name] = tuple(max(1, u if n is None else n) for n, u in zip(sizes, usual, strict=True))
    return {name: shapes[name] for name in declared if name in shapes}


def _suggest_step(
    name: str, dims: Sequence[int | str | None], shapes: Mapping[str, tuple[int, ...]], length: int
) -> list[int]:
    """A size for each dimension of an input of a decoder that has a cache: one token behind ``length - 1``.

    ``shapes`` are those of inputs before it, of which a mask spans the past and the new tokens.
    """
    if is_past(name) and not is_of_encoder(name):
        return [1, *[length - 1] * (len(dims) - 1)]
    if is_of_encoder(name):
        return [1, *[length] * (len(dims) - 1)]
    sizes = [1] * len(dims)
    if is_mask(name) and len(dims) > 1:
        past = [
            shape[-2] for n, shape in shapes.items() if is_past(n) and not is_of_encoder(n) and len(shape) > 2
        ]
        words = [
            s[1]
            for n, s in shapes.items()
            if not (is_past(n) or is_mask(n) or is_of_encoder(n)) and len(s) > 1
        ]
        sizes[-1] = past[0] + words[0] if past and words else length
    return sizes


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

    ``batch`` is the first dimension of every input whose first dimension is dynamic, but for a length; 1 by default.
    ``shapes`` stand in place of those that were ``named``.
    """
    input_shapes = {n: tuple(s) for n, s in {**named, **shapes}.items() if isinstance(s, Sequence)}
    symbols = collect_symbols(declared, {**named, **input_shapes})
    batches = list_batch_symbols(declared)
    for symbol in batches:
        symbols[symbol] = batch if batch is not None else symbols.get(symbol, 1)
    partial_shapes: dict[str, tuple[int | None, ...] | None] = {}
    for name, dims in declared.items():
        if dims is None:
            partial_shapes[name] = input_shapes.get(name)
            continue
        full_shape = input_shapes.get(name, ())
        fits = len(full_shape) == len(dims)
        sizes = [resolve_size(d, symbols) for d in (full_shape if fits else dims)]
        if dims and not isinstance(dims[0], int) and (not get_symbol(dims[0]) or dims[0] in batches):
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


def rename_symbols(
    model: str, named: Mapping[str, tuple[int, ...] | int], equal: Mapping[str, str]
) -> dict[str, tuple[int, ...] | int]:
    """The named sizes by the symbols that others equal; ``ModelError`` where both are named, and differ."""
    renamed = {key: size for key, size in named.items() if key not in equal}
    for key in equal.keys() & named.keys():
        size, other = named[key], resolve_size(equal[key], renamed)
        if other not in (None, size):
            raise ModelError(
                f'Cannot give "{key}" the size {size} in model "{model}": its nodes need it to be equal to '
                f'"{equal[key]}", which is {other}. Name one of them, or an input with a full shape.'
            )
        renamed[equal[key]] = size
    return renamed


def check(model: str, inputs: Mapping[str, Declared], named: Named) -> None:
    """Raise ``ModelError`` unless the named sizes are those of inputs and symbols of the model of this name."""
    written = [d for declared in inputs.values() for d in declared or () if isinstance(d, str)]
    symbols = {*written, *(name for dim in written for name in list_names(dim))}
    past = list_past_sizes(inputs)
    for key, named_size in named.items():
        sizes = named_size if isinstance(named_size, tuple) else (named_size,)
        least = int(key not in past)
        if any(size < least for size in sizes):
            raise ModelError(
                f'Cannot give "{key}" the size {"×".join(map(str, sizes))} in model "{model}": a size is at least '
                f"{least}. Name {'positive sizes' if least else 'sizes from 0 on'}."
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
                f"{', '.join(sorted(list_open_symbols(inputs))) or 'none'}. Name one of them, or an input with a full "
                "shape."
            )
    _check_computed_sizes(model, inputs, named)


def _check_computed_sizes(model: str, inputs: Mapping[str, Declared], named: Named) -> None:
    """Raise ``ModelError`` where a dimension that is computed of symbols comes out below 1, or not as it is named."""
    symbols = {s: n for s, n in collect_symbols(inputs, named).items() if list_names(s) == (s,)}
    for name, declared in inputs.items():
        named_shape = named.get(name)
        for axis, dim in enumerate(declared or ()):
            size = resolve_size(dim, symbols)
            if not isinstance(dim, str) or size is None or dim in symbols:
                continue
            own = named_shape[axis] if isinstance(named_shape, tuple) else size
            if size < 1 or own != size:
                sizes = ", ".join(f'"{s}" is {symbols[s]}' for s in list_names(dim) if s in symbols)
                raise ModelError(
                    f'Cannot give dimension {axis} of "{name}" a size in model "{model}": "{dim}" is {size}, as '
                    f"{sizes}. Name sizes of which it becomes {'at least 1' if size < 1 else own}."
                )


#: Heights and widths of pictures.
_SQUARES = (640, 256, 512, 64, 32, 28)
_PICTURES = ((224, 224), (320, 320), (48, 320), (32, 320), *((size, size) for size in _SQUARES))
#: Lengths of anything else, such as words, frames and samples of sound.
_LENGTHS = (128, 512, 16000, 1024, 64, 256, 32, 4096)
#: Seconds after which no further sizes are tried, of which a large model may take one.
_SECONDS = 1.5


class Proposal(NamedTuple):
    """Shapes of the inputs to try; ``fits`` where shape inference finds nothing in the graph that contradicts them."""

    shapes: Mapping[str, tuple[int, ...]]
    fits: bool


def propose_shapes(
    model: ir.Model,
    scopes: Sequence[Subgraph],
    declared: Mapping[str, Declared],
    named: Named,
    *,
    written: Sequence[int] = (),
    longest: int | None = None,
    picture: tuple[int, int] | None = None,
) -> Proposal:
    """The shapes of the inputs, with something to try where a dimension is open and has no named size.

    They follow from shape inference; nothing is run. Where no usual size fits, and where there is no time to try more,
    they are those that fit best. An input of no known rank is left out. ``declared`` are the shapes of the inputs in
    the graph, ``named`` the sizes that the user gave; ``written`` are sizes in constants of the graph, which may be
    lengths, ``longest`` is the number of positions in its table, and ``picture`` the height and width that the file's
    metadata name.
    """
    candidates: list[dict[str, tuple[int, ...]]] = []
    lengths = [n for n in (_LENGTHS[0], *written, *_LENGTHS[1:]) if n <= (longest or n)] or [longest or 1]
    pictures = (*filter(None, [picture]), *_PICTURES)
    for each, length in itertools.product(pictures, lengths):
        shapes = suggest_shapes(declared, named, picture=each, length=length)
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
    return Proposal(best_shapes, not fewest)
