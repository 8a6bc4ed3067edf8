"""Sizes that a variant's optimization profiles leave open, so that parts of the model leave them open too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions, Shapes
from rtlab.core.value import shape_text
from rtlab.core.variant import Variant
from rtlab.errors import VariantError
from rtlab.experiments.why.changes import Change
from rtlab.quantize.edit import Edit

#: For each profile, the least, the usual and the greatest size.
_Extent = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class OpenSizes:
    """What the symbols of a model stand for in the profiles of a variant.

    Attributes:
        model: The model, each size of which is a number or a symbol; of symbols it knows the usual size.
        extents: By symbol, for each profile the least, the usual and the greatest size.
        driven: By symbol, the open sizes of the model's own inputs that it follows from.
    """

    model: Model
    extents: Mapping[str, _Extent]
    driven: Mapping[str, frozenset[str]]

    def variant(self, model: Model, variant: Variant) -> Variant:
        """A variant with profiles for the inputs of a part; without any where the part leaves nothing open."""
        assert variant.options is not None  # noqa: S101 - it has profiles
        profiles = []
        for number in range(len(variant.options.profiles)):
            table = ((name, self._shapes(model, name, number)) for name in model.inputs)
            profiles.append(tuple((name, shapes) for name, shapes in table if shapes is not None))
        options = dataclasses.replace(variant.options, profiles=tuple(profiles) if any(profiles) else ())
        return dataclasses.replace(variant, options=None if options == BuildOptions() else options)

    def _shapes(self, model: Model, name: str, number: int) -> Shapes | None:
        dims = model.values[name].shape or ()
        if all(isinstance(d, int) for d in dims):
            return None
        if unknown := [d for d in dims if not isinstance(d, int) and d not in self.extents]:
            raise VariantError(
                f'Cannot give "{name}" a profile: nothing shows the size "{unknown[0]}" of {shape_text(dims)}. '
                "Choose other nodes."
            )
        sizes = [(d,) * 3 if isinstance(d, int) else self.extents[d or ""][number] for d in dims]
        least, usual, greatest = (tuple(size[k] for size in sizes) for k in range(3))
        return least, usual, greatest

    def iter_fixes(self, part: Model) -> Iterator[Change]:
        """Each open size that a part depends on, fixed to what it usually is."""
        there = {d for v in part.inputs for d in part.values[v].shape or () if isinstance(d, str)}
        for symbol in dict.fromkeys(s for t in sorted(there) for s in sorted(self.driven.get(t, ()))):
            least, usual, greatest = self.extents[symbol][0]
            range_text = f"{least} to {greatest}" if least < greatest else "declared open"
            sizes = {s: self.extents[s][0][1] for s, drivers in self.driven.items() if symbol in drivers}
            words = f'fix the size "{symbol}" ({range_text}) to {usual}'
            yield Change("size", words, (), _fix_sizes, (sizes,))


def _fix_sizes(edit: Edit, sizes: Mapping[str, int]) -> None:
    """Make symbols numbers in every shape."""
    for value in {id(v): v for v in (*edit.values.values(), *edit.graph.outputs)}.values():
        if value.shape is not None:
            dims = [sizes.get(d.value or "", d) if isinstance(d, ir.SymbolicDim) else d for d in value.shape]
            value.shape = ir.Shape(dims)


@memoized
def open_sizes(model: Model, options: BuildOptions | None) -> OpenSizes | None:
    """The open sizes of a model that is built with profiles; None where it is built with fixed sizes.

    The shape of every value is computed at the three shapes of each profile. Which open sizes of the inputs it follows
    from is seen where one of them alone is another.
    """
    if options is None or not options.profiles:
        return None
    input_axes = _map_input_axes(model)
    profile_shapes = [[_shapes(model, dict(profile), k) for k in range(3)] for profile in options.profiles]
    tables = [[model.sizes(shapes=shapes) for shapes in three] for three in profile_shapes]
    extents: dict[str, _Extent] = {
        symbol: tuple(tuple(shapes[name][axis] for shapes in three) for three in profile_shapes)
        for symbol, (name, axis) in input_axes.items()
    }
    driven = {symbol: frozenset([symbol]) for symbol in input_axes}
    usual_shapes = profile_shapes[0][1]
    varied = {
        symbol: model.sizes(shapes=_vary_size(model, usual_shapes, symbol, extent[0]))
        for symbol, extent in extents.items()
    }
    symbol_by_extent = {(driven[s], extents[s]): s for s in reversed(input_axes)}

    def find_dim(name: str, axis: int, extent: _Extent) -> int | str:
        """A size of a value: a number, or the symbol of the sizes that it follows from."""
        usual = extent[0][1]
        if name in model.inputs:
            return _get_input_symbol(model, name, axis) or usual
        drivers = frozenset(
            s for s, table in varied.items() if (table.get(name) or ())[axis : axis + 1] != (usual,)
        )
        if not drivers:
            return usual
        if (drivers, extent) not in symbol_by_extent:
            symbol = f"{'_'.join(sorted(drivers))}_as_{len(symbol_by_extent)}"
            symbol_by_extent[drivers, extent] = symbol
            extents[symbol], driven[symbol] = extent, drivers
        return symbol_by_extent[drivers, extent]

    edit = Edit(model, source=True)
    for name, value in edit.values.items():
        shapes = [[table.get(name) for table in three] for three in tables]
        ranks = {None if s is None else len(s) for three in shapes for s in three}
        if value.const_value is None and len(ranks) == 1 and None not in ranks:
            value.shape = ir.Shape(
                [
                    find_dim(
                        name, axis, tuple(tuple(s[axis] for s in three if s is not None) for three in shapes)
                    )
                    for axis in range(ranks.pop() or 0)
                ]
            )
    edit.sort_and_reindex()
    usual = {symbol: extent[0][1] for symbol, extent in extents.items()}
    return OpenSizes(dataclasses.replace(edit.model, shapes=usual), extents, driven)


def _map_input_axes(model: Model) -> dict[str, tuple[str, int]]:
    """The open sizes of the inputs by their symbols, each with an input and an axis that have it."""
    input_axes: dict[str, tuple[str, int]] = {}
    for name in model.inputs:
        for axis in range(len(model.values[name].shape or ())):
            if symbol := _get_input_symbol(model, name, axis):
                input_axes.setdefault(symbol, (name, axis))
    return input_axes


def _get_input_symbol(model: Model, name: str, axis: int) -> str:
    """The symbol of an open size of an input, which gets one where it has none; empty where it is a number."""
    dim = (model.values[name].shape or ())[axis]
    return "" if isinstance(dim, int) else dim or f"{name}_{axis}"


def _shapes(model: Model, profile: Mapping[str, Shapes], which: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs at one of the three of a profile."""
    return {n: profile[n][which] if n in profile else model.input_shape(n) for n in model.inputs}


def _vary_size(
    model: Model, usual: Mapping[str, tuple[int, ...]], symbol: str, extent: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """The usual shapes with one open size another one."""
    least, at, greatest = extent
    size = greatest if greatest != at else least if least != at else 2 * at
    return {
        name: tuple(
            size if _get_input_symbol(model, name, axis) == symbol else d for axis, d in enumerate(shape)
        )
        for name, shape in usual.items()
    }
