"""A model and its emulation in one graph, with a switch for each place where the variant rounds.

One session then shows the effect of any set of roundings: a run takes a vector of booleans beside the samples. Values
are selected by switches, never multiplied by them, which would change bits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ORIGIN
from rtlab.core.quantizer import Quantizer
from rtlab.errors import VariantError
from rtlab.quantize import passes
from rtlab.quantize.edit import Edit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: The input that holds the switches: a boolean for each quantizer, true where it rounds.
INPUT = "rtlab.switches"
#: First opset whose operators take booleans here.
_OPSET = 9
#: A switch, the position of an input, and what is read there with the switch on and off.
_Choice: TypeAlias = "tuple[ir.Value, int, ir.Value, ir.Value]"
#: Operators that round together.
_PAIRS = {("QuantizeLinear", "DequantizeLinear"), ("TRT_FP4DynamicQuantize", "DequantizeLinear")}
_HALVES = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


@dataclasses.dataclass(frozen=True, eq=False)
class SwitchedModel:
    """A source and its emulation in one graph.

    Attributes:
        model: Inputs and outputs of the source, and the input ``INPUT`` of shape ``(quantizers,)``. Every value of the
            source keeps its name.
        quantizers: What the entries of the vector switch, in graph order.
    """

    model: Model = dataclasses.field(repr=False)
    quantizers: tuple[Quantizer, ...]

    @functools.cached_property
    def nodes(self) -> Mapping[str, tuple[Quantizer, ...]]:
        """The quantizers of each node that has some, in graph order."""
        nodes = dict.fromkeys(q.node for q in self.quantizers)
        return {node: tuple(q for q in self.quantizers if q.node == node) for node in nodes}

    def make_vector(self, enabled: Iterable[Quantizer | str]) -> NDArray[np.bool_]:
        """The switches with some quantizers on, and all others off; a node's id means all of its own."""
        names = {e.id if isinstance(e, Quantizer) else e for e in enabled}
        return np.array([q.id in names or q.node in names for q in self.quantizers])

    def make_inverse_vector(self, disabled: Iterable[Quantizer | str]) -> NDArray[np.bool_]:
        """The switches with all quantizers on but some."""
        return ~self.make_vector(disabled)


def build_switched_model(source: Model, emulation: Model) -> SwitchedModel:
    """Both models in one graph.

    With all switches off it computes what the source does, and with all of them on what the emulation does, bit for
    bit in the emulation's opset, except for what ONNX Runtime fuses in one of the graphs alone. ``emulation`` is the
    source's ``Prepared.emulation``.

    Raises:
        VariantError: nothing of the source is rounded in the emulation.
    """
    switches = find_switches(source, emulation)
    switched_model = passes.run(emulation, [insert_switches(switches)], keep_origins=True)
    return SwitchedModel(switched_model, tuple(s.quantizer for s in switches))


def find_switches(source: Model, emulation: Model) -> tuple[Switch, ...]:
    """Where an emulation rounds; arguments and errors are those of ``build_switched_model``."""
    switches = _SwitchFinder(source, emulation).switches
    if not switches:
        raise VariantError(
            f'Cannot switch what rounds in model "{source.name}": nothing of it does. Choose a variant that quantizes '
            "nodes, or computes some in 16 bits. What a model itself computes in integers is distinguished once it is "
            "written as pairs of QuantizeLinear and DequantizeLinear: Study(study.calibration.fix_qdq(), ...)."
        )
    return switches


@dataclasses.dataclass(frozen=True, eq=False)
class Switch:
    """A quantizer, with the source's constant of a weight, or the source's attributes of the node of an output."""

    quantizer: Quantizer
    tensor: ir.TensorProtocol | None = None
    attributes: Mapping[str, ir.Attr] = dataclasses.field(default_factory=dict)


class _SwitchFinder:
    """Finds what an emulation rounds; what the opset converter wrote counts as the source's."""

    def __init__(self, source: Model, emulation: Model) -> None:
        self._source, self._constants = source, (source.known, emulation.known)
        self._was = {n.name or "": n for n in source.ir.graph}
        self._now = {n.name or "": n for n in emulation.ir.graph}
        self.switches = tuple(
            s for n in source.top if n.op != "Constant" for s in self._iter_node_switches(n)
        )

    def _iter_node_switches(self, node: Node) -> Iterator[Switch]:
        """The switches of a node: of its inputs, and of its outputs."""
        now = self._now.get(node.id)
        if now is None or now.op_type != node.op:
            return
        for i, (source_name, input_value) in enumerate(zip(node.inputs, now.inputs, strict=False)):
            if source_name and input_value is not None:
                yield from self._iter_input_switches(Quantizer(node.id, "input", i, source_name), input_value)
        other = self._get_changed_attributes(now, self._was[node.id])
        for k, (name, output) in enumerate(zip(node.outputs, now.outputs, strict=True)):
            if name and (other or output.name != name):
                yield Switch(Quantizer(node.id, "output", k, name), attributes=other)

    def _iter_input_switches(self, place: Quantizer, input_value: ir.Value) -> Iterator[Switch]:
        root, before = self._find_unrounded(input_value), self._constants[0].get(place.value)
        if before is not None:
            emulated = self._constants[1].get(input_value.name or "")
            if root is not input_value or (emulated is not None and not _is_same_tensor(before, emulated)):
                yield Switch(dataclasses.replace(place, part="weight"), before)
        elif root is not input_value and root.name == place.value:
            yield Switch(place)

    def _find_unrounded(self, value: ir.Value) -> ir.Value:
        """What a value is rounded from; the value itself where it is not rounded."""
        maker = value.producer()
        if maker is None or value.name in self._source.values:
            return value
        under = maker.inputs[0].producer() if maker.inputs[0] is not None else None
        if under is None:
            # A stored weight is only dequantized.
            stored = maker.inputs[0] if maker.op_type == "DequantizeLinear" else None
            return stored or value
        pair = (under.op_type, maker.op_type)
        is_half_cast = pair == ("Cast", "Cast") and under.outputs[0].dtype in _HALVES
        if under.name not in self._was and (is_half_cast or pair in _PAIRS):
            first = under.inputs[0]
        else:
            # Split after Veltkamp, but for what is too large.
            first = maker.inputs[2] if pair == ("Less", "Where") and maker.name not in self._was else None
        return value if first is None else self._find_unrounded(first)

    def _get_changed_attributes(self, emulation_node: ir.Node, source_node: ir.Node) -> Mapping[str, ir.Attr]:
        """The attributes of the source's ConstantOfShape where its number is another in the emulation."""
        fills = [n.attributes.get("value") for n in (source_node, emulation_node)]
        if emulation_node.op_type != "ConstantOfShape" or None in fills:
            return {}
        one, two = (f.as_tensor().tobytes() for f in fills if f is not None)
        return source_node.attributes if one != two else {}


def _is_same_tensor(before: ir.TensorProtocol, after: ir.TensorProtocol) -> bool:
    one, two = np.asarray(before.numpy()), np.asarray(after.numpy())
    # A constant that the opset converter wrote has another form.
    return (
        before is after or (one.shape, one.dtype) != (two.shape, two.dtype) or one.tobytes() == two.tobytes()
    )


def insert_switches(switches: tuple[Switch, ...]) -> passes.Pass:
    """Insert a switch at each of some places of an emulation.

    An If chooses between the rounded and the exact value, and computes one of them. A node with a large constant is
    written twice, in the branches of such an If: Where would copy the weight in each inference, and kernels that lay
    out constant weights beforehand would add in another order.
    """

    def edit_graph(edit: Edit) -> None:
        size = ir.Shape([len(switches)])
        edit.graph.inputs.append(ir.Value(name=INPUT, type=ir.TensorType(ir.DataType.BOOL), shape=size))
        edit.sort_and_reindex()
        _SwitchWriter(edit, switches).wire()
        edit.sort_and_reindex()

    promises = (passes.ORIGINS, passes.ORDER, passes.TYPES)
    return passes.Pass("switches", edit_graph, promises, _OPSET)


def get_exact_value(edit: Edit, switch: Switch, constants: dict[int, ir.Value]) -> ir.Value:
    """What is read where a switch is off; ``constants`` are those of the source that were added, by tensor."""
    value, tensor = switch.quantizer.value, switch.tensor
    exact = edit.values.get(value)
    if tensor is not None and (exact is None or exact.const_value is not tensor):
        if id(tensor) not in constants:
            constants[id(tensor)] = edit.add_constant(value, np.asarray(tensor.numpy()))
        exact = constants[id(tensor)]
    assert exact is not None  # noqa: S101 - an emulation has every value that its source computes
    return exact


class _SwitchWriter:
    """Writes switches into a graph, node by node."""

    def __init__(self, edit: Edit, switches: Sequence[Switch]) -> None:
        self._edit = edit
        self._constants: dict[int, ir.Value] = {}
        self._nodes: dict[str, list[tuple[ir.Value, Switch]]] = {}
        for i, switch in enumerate(switches):
            on = self._add_switch(i, switch.quantizer)
            self._nodes.setdefault(switch.quantizer.node, []).append((on, switch))

    def wire(self) -> None:
        """Switch the inputs of every node, and then its outputs."""
        for switches in self._nodes.values():
            weights = []
            for on, switch in switches:
                if switch.tensor is not None and len(switch.tensor.shape) > 1:
                    weights.append((on, switch))
                elif switch.quantizer.part != "output":
                    self._switch_input(on, switch)
            if weights:
                self._switch_weights(weights)
            for on, switch in switches:
                if switch.quantizer.part == "output":
                    self._switch_output(on, switch)

    def _add_switch(self, i: int, place: Quantizer) -> ir.Value:
        """The switch of a place, a boolean without dimensions."""
        edit = self._edit
        index = edit.add_constant(f"{place.id}/index", np.array(i))
        return edit.insert(
            "Gather", f"{place.id}/switch", [edit.values[INPUT], index],
            like=index, kind=ir.DataType.BOOL, origin=edit.get_origin(place.node), before=place.node,
        )  # fmt: skip

    def _get_rounded_and_exact(self, switch: Switch) -> tuple[ir.Value, ir.Value]:
        """What is read where a switch is on, and where it is off."""
        rounded = self._edit.nodes[switch.quantizer.node].inputs[switch.quantizer.position]
        assert rounded is not None  # noqa: S101 - it was compared
        return rounded, get_exact_value(self._edit, switch, self._constants)

    def _switch_input(self, on: ir.Value, switch: Switch) -> None:
        """Let a node read one of two values."""
        edit, place = self._edit, switch.quantizer
        node, (rounded, exact) = edit.nodes[place.node], self._get_rounded_and_exact(switch)
        maker = rounded.producer()
        if switch.tensor is not None or maker is None:
            # A bias, which kernels do not lay out beforehand.
            selected = edit.insert(
                "Where", f"{place.id}/Where", [on, rounded, exact],
                like=exact, origin=edit.get_origin(place.node), before=place.node,
            )  # fmt: skip
        else:
            branches = (self._copy_rounding(maker), [self._make_identity(node, exact)])
            if_node = self._make_if(node, on, [self._make_body(b) for b in branches])
            edit.graph.insert_before(node, if_node)
            selected = if_node.outputs[0]
        edit.set_input(place.node, place.position, selected)
        self._drop(rounded)

    def _copy_rounding(self, last: ir.Node) -> list[ir.Node]:
        """Copies of both casts of a pair, or of the last node where other nodes read the first."""
        first = last.inputs[0].producer() if last.inputs[0] is not None else None
        if last.op_type != "Cast" or first is None:
            return [self._copy(last)]
        inner = self._copy(first)
        return [inner, self._copy(last, {0: inner.outputs[0]})]

    def _switch_weights(self, weights: Sequence[tuple[ir.Value, Switch]]) -> None:
        """Replace a node by copies that read other constants, of which one runs."""
        edit, name = self._edit, weights[0][1].quantizer.node
        node = edit.nodes[name]
        choices = [(on, s.quantizer.position, *self._get_rounded_and_exact(s)) for on, s in weights]
        outputs = [edit.split(v.name, f"{name}/exact")[1] for v in node.outputs if v.name]
        if_node = self._build_if_tree(node, choices, {}, outputs)
        edit.graph.insert_after(node, if_node)
        edit.graph.remove(node, safe=True)
        edit.nodes[name] = if_node
        for _, _, rounded, _ in choices:
            self._drop(rounded)

    def _build_if_tree(
        self,
        node: ir.Node,
        choices: Sequence[_Choice],
        feeds: Mapping[int, ir.Value],
        outputs: Sequence[ir.Value] = (),
    ) -> ir.Node:
        (on, position, *both), *remaining = choices
        branches = []
        for value in both:
            new_feeds = {**feeds, position: value}
            if remaining:
                branches.append(self._make_body([self._build_if_tree(node, remaining, new_feeds)]))
            else:
                branches.append(self._build_leaf(node, new_feeds))
        return self._make_if(node, on, branches, outputs)

    def _build_leaf(self, node: ir.Node, feeds: Mapping[int, ir.Value]) -> ir.Graph:
        """A copy of a node with other constants, which are dequantized in its branch."""
        nodes, inside, new_feeds = [], [], dict(feeds)
        for i, value in feeds.items():
            maker = value.producer()
            if maker is not None and maker.op_type == "DequantizeLinear":
                nodes.append(self._copy(maker))
                new_feeds[i] = nodes[-1].outputs[0]
            elif len(feeds) > 1 and value.const_value is not None:
                # Kernels look for constants no further than one graph outside their own.
                new_feeds[i] = ir.Value(
                    name=self._edit.make_value_name(value.name or ""),
                    type=value.type, shape=value.shape, const_value=value.const_value,
                )  # fmt: skip
                inside.append(new_feeds[i])
        return self._make_body([*nodes, self._copy(node, new_feeds)], inside)

    def _switch_output(self, on: ir.Value, switch: Switch) -> None:
        """Select between what a node writes and that rounded, or what it writes with the source's attributes."""
        edit, place = self._edit, switch.quantizer
        node, last = edit.nodes[place.node], edit.values[place.value].producer()
        assert last is not None  # noqa: S101 - its node writes it, or a cast does
        inner, outer = edit.split(place.value, f"{place.id}/rounded")
        plain = self._make_identity(node, node.outputs[place.position])
        rounding = [plain] if last is node else self._copy_rounding(last)
        if switch.attributes:
            plain = self._copy(node, attributes=switch.attributes)
        if_node = self._make_if(node, on, [self._make_body(rounding), self._make_body([plain])], [outer])
        edit.graph.insert_after(last, if_node)
        if last is not node:
            self._drop(inner)

    def _drop(self, value: ir.Value) -> None:
        """Remove what makes a value that is not read any more."""
        maker = value.producer()
        if maker is not None and not value.uses():
            reads = [v for v in maker.inputs if v is not None]
            self._edit.graph.remove(maker, safe=True)
            for read in reads:
                under = read.producer()
                if under is not None and under.name != under.metadata_props[ORIGIN]:
                    self._drop(read)

    def _make_if(
        self, node: ir.Node, on: ir.Value, branches: Sequence[ir.Graph], outputs: Sequence[ir.Value] = ()
    ) -> ir.Node:
        attributes = [
            ir.AttrGraph(k, g) for k, g in zip(("then_branch", "else_branch"), branches, strict=True)
        ]
        ends = outputs or [self._make_value_like(v) for v in branches[-1].outputs]
        return self._make_node(node, "If", [on], attributes, ends)

    def _make_body(self, nodes: Sequence[ir.Node], inside: Sequence[ir.Value] = ()) -> ir.Graph:
        ends = [v for v in nodes[-1].outputs if v.name]
        return ir.Graph([], ends, nodes=nodes, initializers=inside, name=self._edit.make_node_name("branch"))

    def _make_identity(self, node: ir.Node, value: ir.Value) -> ir.Node:
        return self._make_node(node, "Identity", [value], (), [self._make_value_like(value)])

    def _copy(
        self,
        node: ir.Node,
        feeds: Mapping[int, ir.Value] | None = None,
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> ir.Node:
        reads = [(feeds or {}).get(i, v) for i, v in enumerate(node.inputs)]
        ends = [self._make_value_like(v) if v.name else ir.Value(name="") for v in node.outputs]
        return self._make_node(node, node.op_type, reads, (attributes or node.attributes).values(), ends)

    def _make_node(
        self, like: ir.Node, op: str, reads: Sequence[ir.Value | None], attributes: Iterable[ir.Attr],
        outputs: Sequence[ir.Value],
    ) -> ir.Node:  # fmt: skip
        """A node with the origin of another one."""
        name, domain = (
            self._edit.make_node_name(f"{like.name}/{op}"),
            like.domain if op == like.op_type else "",
        )
        node = ir.Node(domain, op, reads, attributes, outputs=outputs, name=name)
        node.metadata_props[ORIGIN] = like.metadata_props[ORIGIN]
        return node

    def _make_value_like(self, value: ir.Value) -> ir.Value:
        """A value of the same type and shape."""
        return ir.Value(name=self._edit.make_value_name(value.name or ""), type=value.type, shape=value.shape)
