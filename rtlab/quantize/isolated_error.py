"""A model and, beside each node that a variant computes otherwise, a shadow: the node as the variant computes it.

Shadows read the model's own values, so they show the error that their node makes and not what arrives from others.
The error is summed up inside the graph.
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
from rtlab.quantize.quantizer_toggles import Switch, find_switches, get_exact_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: Bytes that the dequantized constants of a model may take.
_MOST = 1 << 30


def replace_stored_weights(model: Model, keep: Container[str] = ()) -> Model:
    """The model with its stored weights dequantized, which saves up to a third of a run; itself where there are none.

    ``keep`` are names of nodes that stay, such as those of the source.
    """
    edit = Edit(model, keep_origins=True)
    if not dequantize_in_place(edit, keep):
        return model
    edit.sort_and_reindex()
    return edit.model


def dequantize_in_place(edit: Edit, keep: Container[str] = ()) -> int:
    """Dequantize stored weights, and return how many; nothing is done where they would take more than a gigabyte."""
    candidates = [n for n in edit.graph if n.op_type == "DequantizeLinear" and (n.name or "") not in keep]
    dequantize_nodes = [n for n in candidates if _has_constant_inputs(n)]
    tensors = [n.inputs[0].const_value for n in dequantize_nodes if n.inputs[0] is not None]
    if 4 * sum(t.size for t in tensors if t is not None) > _MOST:
        return 0
    ends = {id(v) for v in edit.graph.outputs}
    replaced_count = 0
    for node in dequantize_nodes:
        numbers, end = compute_dequantized(node), node.outputs[0]
        if numbers is None or id(end) in ends:
            continue
        end.replace_all_uses_with(edit.add_constant(f"{node.name}/numbers", numbers))
        edit.graph.remove(node, safe=True)
        replaced_count += 1
    return replaced_count


def compute_dequantized(node: ir.Node) -> NDArray[np.float32] | None:
    """What a DequantizeLinear makes of constants, ``(q - zero) * scale`` in FP32; None where it makes another type."""
    if not _has_constant_inputs(node):
        return None
    tensors = [None if v is None else v.const_value for v in node.inputs]
    if tensors[0] is None or tensors[1] is None:
        return None
    integers, scale = tensors[0].numpy(), np.asarray(tensors[1].numpy())
    if scale.dtype != np.float32:
        return None
    axis = (node.attributes["axis"].as_int() if "axis" in node.attributes else 1) % max(integers.ndim, 1)
    size = node.attributes["block_size"].as_int() if "block_size" in node.attributes else 0

    def broadcast_parameters(table: NDArray[Any]) -> NDArray[Any]:
        if not table.ndim or table.size == 1:
            return table.reshape(())
        if size:
            return np.repeat(table, size, axis)[tuple(slice(n) for n in integers.shape)]
        return table.reshape([-1 if i == axis else 1 for i in range(integers.ndim)])

    values = integers.astype(np.float32)
    if len(tensors) > 2 and tensors[2] is not None:
        values = values - broadcast_parameters(np.asarray(tensors[2].numpy())).astype(np.float32)
    return np.asarray(values * broadcast_parameters(scale), np.float32)


def _has_constant_inputs(node: ir.Node) -> bool:
    return all(v is None or v.const_value is not None for v in node.inputs)


_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE}


@dataclasses.dataclass(frozen=True)
class IsolatedErrorSums:
    """Names of values of the graph: an error, and its energy, largest and smallest element as scalars."""

    error: str
    energy: str
    maximum: str
    minimum: str

    @property
    def scalars(self) -> tuple[str, str, str]:
        """Energy, maximum and minimum."""
        return self.energy, self.maximum, self.minimum


@dataclasses.dataclass(frozen=True, eq=False)
class IsolatedErrorModel:
    """A model with shadows.

    Attributes:
        model: Inputs and outputs are the source's, and every value of the source is there under its name, exact.
        error_sums: By value of the source the sums of the error that its node makes.
        parted: Values that several nodes write here in the place of one: the error of these together is unknown.
    """

    model: Model = dataclasses.field(repr=False)
    error_sums: Mapping[str, IsolatedErrorSums]
    parted: frozenset[str] = frozenset()


def build_isolated_error_model(source: Model, emulation: Model) -> IsolatedErrorModel | None:
    """The source with the shadows of its nodes; None where its emulation, ``Prepared.emulation``, needs none."""
    try:
        switches = find_switches(source, emulation)
    except VariantError:
        return None
    error_sums: dict[str, IsolatedErrorSums] = {}

    def insert_shadows(edit: Edit) -> None:
        builder, nodes = _ShadowBuilder(edit), dict[str, list[Switch]]()
        for switch in switches:
            nodes.setdefault(switch.quantizer.node, []).append(switch)
        shadows = dict(pair for node_switches in nodes.values() for pair in builder.split_node(node_switches))
        error_sums.update((value, builder.add_error_sums(value, shadow)) for value, shadow in shadows.items())
        dequantize_in_place(edit, source.by_id)
        edit.sort_and_reindex()

    promises = (passes.ORIGINS, passes.ORDER, passes.TYPES)
    shadow_pass = passes.Pass("shadows", insert_shadows, promises)
    return IsolatedErrorModel(passes.run(emulation, [shadow_pass], keep_origins=True), error_sums)


class _ShadowBuilder:
    """Separates exact values from rounded ones, node by node."""

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self._constants: dict[int, ir.Value] = {}
        #: The node behind which the sums of a value come.
        self._last: dict[str, ir.Node] = {}

    def split_node(self, switches: Sequence[Switch]) -> list[tuple[str, ir.Value]]:
        """Let a node read and write exact values; returns its values with those of its shadow."""
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
            value, shadow_value = exact.name or "", shadow_output
            if k in writes:
                value, shadow_value = self._move_rounding(node, writes[k], shadow_output)
            if edit.values[value].dtype in _FLOATS:
                self._last[value] = shadow_value.producer() or shadow
                shadow_outputs.append((value, shadow_value))
        return shadow_outputs

    def _move_rounding(self, node: ir.Node, switch: Switch, shadow_value: ir.Value) -> tuple[str, ir.Value]:
        """Move the rounding of an output from a node to its shadow."""
        edit, quantizer = self._edit, switch.quantizer
        exact = node.outputs[quantizer.position]
        if exact.name == quantizer.value:
            # Only attributes differ.
            return quantizer.value, shadow_value
        inner, outer = edit.split(quantizer.value, f"{quantizer.id}/rounded")
        first = _find_first_reader(inner, exact)
        first.replace_input_with(list(first.inputs).index(exact), shadow_value)
        place: dict[str, Any] = {"origin": edit.get_origin(quantizer.node), "after": quantizer.node}
        edit.insert("Identity", f"{quantizer.id}/exact", [exact], output=outer, **place)
        return quantizer.value, inner

    def add_error_sums(self, value: str, shadow_value: ir.Value) -> IsolatedErrorSums:
        """The energy, the largest and the smallest element of the difference."""
        exact, last = self._edit.values[value], self._last[value].name or ""
        place: dict[str, Any] = {"origin": self._edit.get_origin(last), "after": last}
        error = self._edit.insert("Sub", f"{value}/own error", [shadow_value, exact], like=exact, **place)
        scalar = ir.Value(type=error.type, shape=ir.Shape([]))
        operators = (("ReduceSumSquare", "energy"), ("ReduceMax", "most"), ("ReduceMin", "least"))
        sums = (
            self._edit.insert(op, f"{value}/own {n}", [error], like=scalar, attrs={"keepdims": 0}, **place)
            for op, n in operators
        )
        return IsolatedErrorSums(error.name or "", *(v.name or "" for v in sums))

    def _make_shadow(self, node: ir.Node) -> ir.Node:
        """A copy of a node that writes values of its own."""
        edit, ends = self._edit, []
        for v in node.outputs:
            title = edit.make_value_name(f"{v.name}/shadow") if v.name else ""
            ends.append(ir.Value(name=title, type=v.type, shape=v.shape))
        name = edit.make_node_name(f"{node.name}/shadow")
        attributes = [*node.attributes.values()]
        shadow = ir.Node(node.domain, node.op_type, list(node.inputs), attributes, outputs=ends, name=name)
        shadow.metadata_props[ORIGIN] = node.metadata_props[ORIGIN]
        edit.nodes[name] = shadow
        return shadow


def _find_first_reader(last: ir.Value, start: ir.Value) -> ir.Node:
    """The node that reads ``start`` on the way to ``last``."""
    maker = last.producer()
    assert maker is not None and maker.inputs[0] is not None  # noqa: S101, PT018 - the way begins at ``start``
    return maker if start in maker.inputs else _find_first_reader(maker.inputs[0], start)
