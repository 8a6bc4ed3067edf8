"""A model and, beside each of its nodes that a variant computes otherwise, that node as the variant computes it.

Fed with what the model itself computes, such a shadow shows the error that its node *makes*; what a variant's own run
shows besides is error that has *arrived*. The sums of each error are taken inside the graph, so that no further tensor
leaves it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ORIGIN
from rtlab.errors import VariantError
from rtlab.quantize import passes
from rtlab.quantize.edit import Edit
from rtlab.quantize.stored import stand
from rtlab.quantize.switched import Switch, compared

if TYPE_CHECKING:
    from rtlab.core.model import Model

_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE}


@dataclasses.dataclass(frozen=True)
class OwnSums:
    """Names of values of the graph: the own error of one, and its energy, largest and smallest element, scalars."""

    error: str
    energy: str
    most: str
    least: str

    @property
    def scalars(self) -> tuple[str, str, str]:
        """What sums it up."""
        return self.energy, self.most, self.least


@dataclasses.dataclass(frozen=True, eq=False)
class Shadowed:
    """A model with shadows.

    Attributes:
        model: Inputs and outputs are the source's, and every value of the source is there under its name, exact.
        own: By value of the source the sums of the error that its node makes.
    """

    model: Model = dataclasses.field(repr=False)
    own: Mapping[str, OwnSums]

    @property
    def names(self) -> tuple[str, ...]:
        """All scalars."""
        return tuple(n for s in self.own.values() for n in s.scalars)


def shadowed(source: Model, emulation: Model) -> Shadowed | None:
    """The source with the shadows of its nodes; None where a variant computes none otherwise.

    Args:
        source: What was prepared; it is not changed.
        emulation: ``Prepared.emulation`` of it.
    """
    try:
        switches = compared(source, emulation)
    except VariantError:
        return None
    casting = Shadowing(switches, source.by_id)
    model = passes.run(emulation, [casting], later=True)
    return Shadowed(model, casting.own)


@dataclasses.dataclass(frozen=True, eq=False)
class Shadowing:
    """Shadows in the place of the roundings of an emulation; ``own`` is known once it is applied."""

    switches: tuple[Switch, ...]
    keep: Container[str] = ()
    own: dict[str, OwnSums] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    name = "shadows"
    needs = ()
    promises = (passes.ORIGINS, passes.ORDER, passes.TYPES)
    changes = "computed beside what it is without rounding"

    def __call__(self, edit: Edit) -> None:
        """Part the two."""
        nodes: dict[str, list[Switch]] = {}
        for switch in self.switches:
            nodes.setdefault(switch.quantizer.node, []).append(switch)
        parting = _Parting(edit)
        cast = {value: made for several in nodes.values() for value, made in parting.part(several)}
        for value, made in cast.items():
            self.own[value] = parting.sums(value, made)
        stand(edit, self.keep)
        edit.settle()


class _Parting:
    """Parts what is exact from what is rounded, node by node."""

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self._constants: dict[int, ir.Value] = {}
        #: Behind which node the sums of a value come.
        self._last: dict[str, ir.Node] = {}

    def part(self, several: Sequence[Switch]) -> list[tuple[str, ir.Value]]:
        """Let a node read and write exact values; gives its values with those of its shadow."""
        edit, name = self._edit, several[0].quantizer.node
        node = edit.nodes[name]
        reads = [s for s in several if s.quantizer.part != "output"]
        writes = {s.quantizer.position: s for s in several if s.quantizer.part == "output"}
        other = next((s.attributes for s in writes.values() if s.attributes), None)
        shadow = self._copy(node) if reads or other else node
        if shadow is not node:
            edit.graph.insert_after(node, shadow)
        for switch in reads:
            edit.feed(name, switch.quantizer.position, self._exact(switch))
        for key, attribute in (other or {}).items():
            node.attributes[key] = attribute
        found = []
        for k, (exact, made) in enumerate(zip(node.outputs, shadow.outputs, strict=True)):
            if k not in writes and (shadow is node or not exact.name):
                continue
            value, own = self._rounded(node, writes[k], made) if k in writes else (exact.name or "", made)
            if edit.values[value].dtype in _FLOATS:
                self._last[value] = own.producer() or shadow
                found.append((value, own))
        return found

    def _rounded(self, node: ir.Node, switch: Switch, own: ir.Value) -> tuple[str, ir.Value]:
        """Take the rounding of an output off a node, and give it to its shadow."""
        edit, place = self._edit, switch.quantizer
        exact = node.outputs[place.position]
        if exact.name == place.value:
            # Other attributes alone make it another number.
            return place.value, own
        inner, outer = edit.split(place.value, f"{place.id}/rounded")
        first = _first(inner, exact)
        first.replace_input_with(list(first.inputs).index(exact), own)
        edit.insert(
            "Identity",
            f"{place.id}/exact",
            [exact],
            origin=edit.origin(place.node),
            after=place.node,
            output=outer,
        )
        return place.value, inner

    def _exact(self, switch: Switch) -> ir.Value:
        tensor, known = switch.tensor, self._edit.values.get(switch.quantizer.value)
        if tensor is not None and (known is None or known.const_value is not tensor):
            if id(tensor) not in self._constants:
                array = np.asarray(tensor.numpy())
                self._constants[id(tensor)] = self._edit.constant(switch.quantizer.value, array)
            return self._constants[id(tensor)]
        assert known is not None  # noqa: S101 - an emulation has every value that its source computes
        return known

    def sums(self, value: str, own: ir.Value) -> OwnSums:
        """The energy, the largest and the smallest element of the difference."""
        exact, at = self._edit.values[value], self._at(value)
        error = self._edit.insert("Sub", f"{value}/own error", [own, exact], like=exact, **at)
        return OwnSums(
            error.name or "",
            self._scalar("ReduceSumSquare", f"{value}/own energy", error, at),
            self._scalar("ReduceMax", f"{value}/own most", error, at),
            self._scalar("ReduceMin", f"{value}/own least", error, at),
        )

    def _at(self, value: str) -> dict[str, Any]:
        last = self._last[value].name or ""
        return {"origin": self._edit.origin(last), "after": last}

    def _scalar(self, op: str, name: str, given: ir.Value, at: Mapping[str, Any]) -> str:
        scalar = ir.Value(name=name, type=given.type, shape=ir.Shape([]))
        made = self._edit.insert(op, name, [given], like=scalar, attrs={"keepdims": 0}, **at)
        return made.name or ""

    def _copy(self, node: ir.Node) -> ir.Node:
        """A node that computes the same of the same, and writes values of its own."""
        edit = self._edit
        ends = [
            ir.Value(name=edit.value_name(f"{v.name}/shadow"), type=v.type, shape=v.shape)
            if v.name
            else ir.Value(name="")
            for v in node.outputs
        ]
        name = edit.node_name(f"{node.name}/shadow")
        made = ir.Node(
            node.domain, node.op_type, list(node.inputs), [*node.attributes.values()], outputs=ends, name=name,
            metadata_props={ORIGIN: node.metadata_props[ORIGIN]},
        )  # fmt: skip
        edit.nodes[name] = made
        return made


def _first(last: ir.Value, start: ir.Value) -> ir.Node:
    """The node that reads ``start`` on the way to ``last``."""
    stack = [last]
    while stack:
        maker = stack.pop().producer()
        if maker is None:
            continue
        if any(v is start for v in maker.inputs):
            return maker
        stack += [v for v in maker.inputs if v is not None]
    raise AssertionError(last.name)
