"""A model and, beside each of its nodes that a variant computes otherwise, that node as the variant computes it.

Fed with what the model itself computes, such a shadow shows the error that its node *makes*; what a variant's own run
shows besides is error that has *arrived*. The sums of each error are taken inside the graph, so that no further tensor
leaves it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from rtlab.core.node import ORIGIN
from rtlab.errors import VariantError
from rtlab.quantize import passes
from rtlab.quantize.dequantized_weights import dequantize_in_place
from rtlab.quantize.edit import Edit
from rtlab.quantize.quantizer_toggles import Switch, find_switches, get_exact_value

if TYPE_CHECKING:
    from rtlab.core.model import Model

_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE}


@dataclasses.dataclass(frozen=True)
class IsolatedErrorSums:
    """Names of values of the graph: the own error of one, and its energy, largest and smallest element, scalars."""

    error: str
    energy: str
    maximum: str
    minimum: str

    @property
    def scalars(self) -> tuple[str, str, str]:
        """What sums it up."""
        return self.energy, self.maximum, self.minimum


@dataclasses.dataclass(frozen=True, eq=False)
class IsolatedErrorModel:
    """A model with shadows.

    Attributes:
        model: Inputs and outputs are the source's, and every value of the source is there under its name, exact.
        error_sums: By value of the source the sums of the error that its node makes.
    """

    model: Model = dataclasses.field(repr=False)
    error_sums: Mapping[str, IsolatedErrorSums]

    @property
    def names(self) -> tuple[str, ...]:
        """All scalars."""
        return tuple(n for s in self.error_sums.values() for n in s.scalars)


def build_isolated_error_model(source: Model, emulation: Model) -> IsolatedErrorModel | None:
    """The source with the shadows of its nodes; None where a variant computes none otherwise.

    Args:
        source: What was prepared; it is not changed.
        emulation: ``Prepared.emulation`` of it.
    """
    try:
        switches = find_switches(source, emulation)
    except VariantError:
        return None
    error_sums: dict[str, IsolatedErrorSums] = {}
    shadows = passes.Pass(
        "shadows",
        lambda edit: error_sums.update(_insert_shadows(edit, switches, source.by_id)),
        (passes.ORIGINS, passes.ORDER, passes.TYPES),
        changes="computed beside what it is without rounding",
    )
    model = passes.run(emulation, [shadows], keep_origins=True)
    return IsolatedErrorModel(model, error_sums)


def _insert_shadows(
    edit: Edit, switches: Sequence[Switch], keep: Container[str]
) -> dict[str, IsolatedErrorSums]:
    """Put shadows in the place of roundings; gives the sums of the error of each value."""
    nodes: dict[str, list[Switch]] = {}
    for switch in switches:
        nodes.setdefault(switch.quantizer.node, []).append(switch)
    builder = _ShadowBuilder(edit)
    shadow_values = [pair for node_switches in nodes.values() for pair in builder.split_node(node_switches)]
    error_sums = {
        value: builder.add_error_sums(value, shadow) for value, shadow in dict(shadow_values).items()
    }
    dequantize_in_place(edit, keep)
    edit.sort_and_reindex()
    return error_sums


class _ShadowBuilder:
    """Parts what is exact from what is rounded, node by node."""

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self._constants: dict[int, ir.Value] = {}
        #: Behind which node the sums of a value come.
        self._last: dict[str, ir.Node] = {}

    def split_node(self, switches: Sequence[Switch]) -> list[tuple[str, ir.Value]]:
        """Let a node read and write exact values; gives its values with those of its shadow."""
        edit, name = self._edit, switches[0].quantizer.node
        node = edit.nodes[name]
        reads = [s for s in switches if s.quantizer.part != "output"]
        writes = {s.quantizer.position: s for s in switches if s.quantizer.part == "output"}
        other = next((s.attributes for s in writes.values() if s.attributes), None)
        shadow = self._make_shadow(node) if reads or other else node
        if shadow is not node:
            edit.graph.insert_after(node, shadow)
        for switch in reads:
            edit.set_input(name, switch.quantizer.position, get_exact_value(edit, switch, self._constants))
        for key, attribute in (other or {}).items():
            node.attributes[key] = attribute
        shadow_outputs = []
        for k, (exact, shadow_output) in enumerate(zip(node.outputs, shadow.outputs, strict=True)):
            if k not in writes and (shadow is node or not exact.name):
                continue
            value, shadow_value = (
                self._move_rounding(node, writes[k], shadow_output)
                if k in writes
                else (exact.name or "", shadow_output)
            )
            if edit.values[value].dtype in _FLOATS:
                self._last[value] = shadow_value.producer() or shadow
                shadow_outputs.append((value, shadow_value))
        return shadow_outputs

    def _move_rounding(self, node: ir.Node, switch: Switch, shadow_value: ir.Value) -> tuple[str, ir.Value]:
        """Take the rounding of an output off a node, and give it to its shadow."""
        edit, quantizer = self._edit, switch.quantizer
        exact = node.outputs[quantizer.position]
        if exact.name == quantizer.value:
            # Other attributes alone make it another number.
            return quantizer.value, shadow_value
        inner, outer = edit.split(quantizer.value, f"{quantizer.id}/rounded")
        first = _find_first_reader(inner, exact)
        first.replace_input_with(list(first.inputs).index(exact), shadow_value)
        edit.insert(
            "Identity",
            f"{quantizer.id}/exact",
            [exact],
            origin=edit.get_origin(quantizer.node),
            after=quantizer.node,
            output=outer,
        )
        return quantizer.value, inner

    def add_error_sums(self, value: str, shadow_value: ir.Value) -> IsolatedErrorSums:
        """The energy, the largest and the smallest element of the difference."""
        exact, at = self._edit.values[value], self._get_placement(value)
        error = self._edit.insert("Sub", f"{value}/own error", [shadow_value, exact], like=exact, **at)
        return IsolatedErrorSums(
            error.name or "",
            self._add_reduction("ReduceSumSquare", f"{value}/own energy", error, at),
            self._add_reduction("ReduceMax", f"{value}/own most", error, at),
            self._add_reduction("ReduceMin", f"{value}/own least", error, at),
        )

    def _get_placement(self, value: str) -> dict[str, Any]:
        last = self._last[value].name or ""
        return {"origin": self._edit.get_origin(last), "after": last}

    def _add_reduction(self, op: str, name: str, source: ir.Value, at: Mapping[str, Any]) -> str:
        scalar = ir.Value(name=name, type=source.type, shape=ir.Shape([]))
        output = self._edit.insert(op, name, [source], like=scalar, attrs={"keepdims": 0}, **at)
        return output.name or ""

    def _make_shadow(self, node: ir.Node) -> ir.Node:
        """A node that computes the same of the same, and writes values of its own."""
        edit = self._edit
        ends = [
            ir.Value(name=edit.make_value_name(f"{v.name}/shadow"), type=v.type, shape=v.shape)
            if v.name
            else ir.Value(name="")
            for v in node.outputs
        ]
        name = edit.make_node_name(f"{node.name}/shadow")
        shadow_node = ir.Node(
            node.domain, node.op_type, list(node.inputs), [*node.attributes.values()], outputs=ends, name=name,
            metadata_props={ORIGIN: node.metadata_props[ORIGIN]},
        )  # fmt: skip
        edit.nodes[name] = shadow_node
        return shadow_node


def _find_first_reader(last: ir.Value, start: ir.Value) -> ir.Node:
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
