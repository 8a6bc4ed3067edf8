"""A model and what a variant makes of it in one graph, with a switch for each place where the variant rounds.

One session then answers what a single rounding does, and what any number of them do together: a run takes a vector of
booleans beside the samples. Nothing is multiplied by a switch, which would change bits: a value is selected.
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
#: The numbers that stand in attributes, which a type of 16 bits may bound.
_HELD = {"Clip": ("min", "max"), "Pad": ("value",), "ConstantOfShape": ("value",)}
#: A switch, the position of an input, and what is read there with the switch on and off.
_Choice: TypeAlias = "tuple[ir.Value, int, ir.Value, ir.Value]"
_HALVES = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


@dataclasses.dataclass(frozen=True, eq=False)
class Switched:
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
        table: dict[str, list[Quantizer]] = {}
        for one in self.quantizers:
            table.setdefault(one.node, []).append(one)
        return {node: tuple(several) for node, several in table.items()}

    @functools.cached_property
    def _places(self) -> Mapping[str, tuple[int, ...]]:
        places = {q.id: (i,) for i, q in enumerate(self.quantizers)}
        index = {q: i for i, q in enumerate(self.quantizers)}
        return {n: tuple(index[q] for q in several) for n, several in self.nodes.items()} | places

    def vector(self, chosen: Iterable[Quantizer | str]) -> NDArray[np.bool_]:
        """The switches with some quantizers on, and all others off; a node's id stands for all of its own.

        Raises:
            VariantError: there is no such quantizer, nor a node that has one.
        """
        made = np.zeros(len(self.quantizers), bool)
        for one in chosen:
            name = one.id if isinstance(one, Quantizer) else one
            if name not in self._places:
                raise VariantError(
                    f'Cannot switch "{name}": no quantizer has this id, and no node of this id rounds. '
                    "See Switched.quantizers."
                )
            made[list(self._places[name])] = True
        return made

    def released(self, chosen: Iterable[Quantizer | str]) -> NDArray[np.bool_]:
        """The switches with all quantizers on but some; errors are those of ``vector``."""
        return ~self.vector(chosen)


def switched(source: Model, emulation: Model) -> Switched:
    """Both models in one graph.

    With all switches off it computes what the source does, and with all of them on what the emulation does: bit for
    bit, in the emulation's opset and as the operators stand there. What ONNX Runtime fuses in one of the graphs alone,
    as a normalization with its convolution, adds in another order.

    Args:
        source: What was prepared: floating-point operators; it is not changed.
        emulation: ``Prepared.emulation`` of it.

    Raises:
        VariantError: nothing of the source is rounded in the emulation.
    """
    switches = compared(source, emulation)
    made = passes.run(emulation, [Switching(switches)], later=True)
    return Switched(made, tuple(s.quantizer for s in switches))


def compared(source: Model, emulation: Model) -> tuple[Switch, ...]:
    """Where an emulation rounds; arguments and errors are those of ``switched``."""
    switches = _Comparison(source, emulation).switches
    if not switches:
        raise VariantError(
            f'Cannot switch what rounds in model "{source.name}": nothing of it does. Choose a variant that quantizes '
            "nodes, or computes some in 16 bits. What a model itself computes in integers is told apart once it is "
            "written as pairs of QuantizeLinear and DequantizeLinear: Study(study.repaired(), ...)."
        )
    return switches


@dataclasses.dataclass(frozen=True, eq=False)
class Switch:
    """A quantizer; of a weight with the source's constant, of an output with attributes that its node had there."""

    quantizer: Quantizer
    tensor: ir.TensorProtocol | None = None
    attributes: Mapping[str, ir.Attr] = dataclasses.field(default_factory=dict)


class _Comparison:
    """What an emulation reads and writes otherwise than its source; what the opset converter wrote is the source's."""

    def __init__(self, source: Model, emulation: Model) -> None:
        self._source, self._known = source, (source.known, emulation.known)
        self._was = {n.name or "": n for n in source.ir.graph}
        self._now = {n.name or "": n for n in emulation.ir.graph}
        self._equal: dict[tuple[int, int], bool] = {}
        self.switches = tuple(s for n in source.top if n.op != "Constant" for s in self._of(n))

    def _of(self, node: Node) -> Iterator[Switch]:
        """The switches of a node: of what it reads, and of what it writes."""
        now = self._now.get(node.id)
        if now is None or now.op_type != node.op:
            return
        for i, (was, held) in enumerate(zip(node.inputs, now.inputs, strict=False)):
            if was and held is not None:
                yield from self._read(Quantizer(node.id, "input", i, was), held)
        other = self._other(now, self._was[node.id])
        for k, (name, written) in enumerate(zip(node.outputs, now.outputs, strict=True)):
            if name and (other or written.name != name):
                yield Switch(Quantizer(node.id, "output", k, name), attributes=other)

    def _read(self, place: Quantizer, held: ir.Value) -> Iterator[Switch]:
        root, before = self._root(held), self._known[0].get(place.value)
        if before is not None:
            after = self._known[1].get(held.name or "")
            if root is not held or (after is not None and not self._same(before, after)):
                yield Switch(dataclasses.replace(place, part="weight"), before)
        elif root is not held and root.name == place.value:
            yield Switch(place)

    def _root(self, value: ir.Value) -> ir.Value:
        """What a value is rounded from; the value itself where it is not."""
        maker = value.producer()
        if maker is None or value.name in self._source.values:
            return value
        under = maker.inputs[0].producer() if maker.inputs[0] is not None else None
        if under is None:
            # A weight is stored in its type, and only dequantized.
            stored = maker.inputs[0] if maker.op_type == "DequantizeLinear" else None
            return value if stored is None else stored
        pair = (under.op_type, maker.op_type)
        halved = pair == ("Cast", "Cast") and under.outputs[0].dtype in _HALVES
        if under.name not in self._was and (halved or pair == ("QuantizeLinear", "DequantizeLinear")):
            first = under.inputs[0]
        else:
            # Split after Veltkamp, but for what is too large.
            first = maker.inputs[2] if pair == ("Less", "Where") and maker.name not in self._was else None
        return value if first is None else self._root(first)

    def _same(self, before: ir.TensorProtocol, after: ir.TensorProtocol) -> bool:
        key = (id(before), id(after))
        if before is not after and key not in self._equal:
            one, two = np.asarray(before.numpy()), np.asarray(after.numpy())
            # What a converter made of a constant has another form.
            alike = (one.shape, one.dtype) == (two.shape, two.dtype)
            self._equal[key] = not alike or one.tobytes() == two.tobytes()
        return before is after or self._equal[key]

    def _other(self, now: ir.Node, was: ir.Node) -> Mapping[str, ir.Attr]:
        """The attributes of the source's node, where one holds another number in the emulation."""
        for name in _HELD.get(now.op_type, ()):
            one, two = was.attributes.get(name), now.attributes.get(name)
            if one is not None and two is not None and _number(one) != _number(two):
                return was.attributes
        return {}


def _number(held: ir.Attr) -> object:
    return held.as_tensor().tobytes() if held.type == ir.AttributeType.TENSOR else held.value


@dataclasses.dataclass(frozen=True, eq=False)
class Switching:
    """A switch in each of some places of an emulation.

    An If chooses between what is rounded and what is not, of which one is computed. A node with a large constant is
    written twice, in the branches of such an If: to select a weight first, as Where would, copies it in each inference,
    and a kernel that lays out constant weights beforehand would add in another order.
    """

    switches: tuple[Switch, ...]
    notes: tuple[str, ...] = ()
    name = "switches"
    needs = (passes.opset(_OPSET),)
    promises = (passes.ORIGINS, passes.ORDER, passes.TYPES)
    changes = "rounded where a switch says so"

    def __call__(self, edit: Edit) -> None:
        """Put them in."""
        size = ir.Shape([len(self.switches)])
        edit.graph.inputs.append(ir.Value(name=INPUT, type=ir.TensorType(ir.DataType.BOOL), shape=size))
        edit.settle()
        _Wiring(edit, self.switches).wire()
        edit.settle()


class _Wiring:
    """Writes switches into a graph, node by node."""

    def __init__(self, edit: Edit, switches: Sequence[Switch]) -> None:
        self._edit = edit
        self._constants: dict[int, ir.Value] = {}
        self._nodes: dict[str, list[tuple[ir.Value, Switch]]] = {}
        for i, switch in enumerate(switches):
            on = self._on(i, switch.quantizer)
            self._nodes.setdefault(switch.quantizer.node, []).append((on, switch))

    def wire(self) -> None:
        """Switch what every node reads, and then what it writes."""
        for several in self._nodes.values():
            weights = []
            for on, switch in several:
                tensor = switch.tensor
                if switch.quantizer.part == "output":
                    continue
                if tensor is not None and len(tensor.shape) > 1:
                    weights.append((on, switch))
                else:
                    self._read(on, switch)
            if weights:
                self._branch(weights)
            for on, switch in several:
                if switch.quantizer.part == "output":
                    self._write(on, switch)

    def _on(self, i: int, place: Quantizer) -> ir.Value:
        """The switch of a place, a boolean without dimensions."""
        edit = self._edit
        index = edit.constant(f"{place.id}/index", np.array(i))
        return edit.insert(
            "Gather", f"{place.id}/switch", [edit.values[INPUT], index],
            like=index, kind=ir.DataType.BOOL, origin=edit.origin(place.node), before=place.node,
        )  # fmt: skip

    def _both(self, switch: Switch) -> tuple[ir.Value, ir.Value]:
        """What is read where a switch is on, and where it is off."""
        edit, place, tensor = self._edit, switch.quantizer, switch.tensor
        rounded = edit.nodes[place.node].inputs[place.position]
        exact = edit.values.get(place.value)
        if tensor is not None and (exact is None or exact.const_value is not tensor):
            if id(tensor) not in self._constants:
                self._constants[id(tensor)] = edit.constant(place.value, np.asarray(tensor.numpy()))
            exact = self._constants[id(tensor)]
        assert exact is not None  # noqa: S101 - an emulation has every value that its source computes
        assert rounded is not None  # noqa: S101 - it was compared
        return rounded, exact

    def _read(self, on: ir.Value, switch: Switch) -> None:
        """Let a node read one of two values."""
        edit, place = self._edit, switch.quantizer
        node, (rounded, exact) = edit.nodes[place.node], self._both(switch)
        maker = rounded.producer()
        if switch.tensor is not None or maker is None:
            # A bias, of which no kernel makes a form of its own.
            read = edit.insert(
                "Where", f"{place.id}/Where", [on, rounded, exact],
                like=exact, origin=edit.origin(place.node), before=place.node,
            )  # fmt: skip
        else:
            plain = self._identity(node, exact)
            made = self._if(node, on, [self._body(self._rounding(maker)), self._body([plain])])
            edit.graph.insert_before(node, made)
            read = made.outputs[0]
        edit.feed(place.node, place.position, read)
        self._drop(rounded)

    def _rounding(self, last: ir.Node) -> list[ir.Node]:
        """What is done only where it is wanted: both casts of a pair, or the last step, where others read the first."""
        first = last.inputs[0].producer() if last.inputs[0] is not None else None
        if last.op_type != "Cast" or first is None:
            return [self._copy(last)]
        inner = self._copy(first)
        return [inner, self._copy(last, {0: inner.outputs[0]})]

    def _branch(self, weights: Sequence[tuple[ir.Value, Switch]]) -> None:
        """Let one of several copies of a node run, each of which reads other constants."""
        edit, name = self._edit, weights[0][1].quantizer.node
        node = edit.nodes[name]
        choices = [(on, s.quantizer.position, *self._both(s)) for on, s in weights]
        outputs = [edit.split(v.name, f"{name}/exact")[1] for v in node.outputs if v.name]
        made = self._tree(node, choices, {}, outputs)
        edit.graph.insert_after(node, made)
        edit.graph.remove(node, safe=True)
        edit.nodes[name] = made
        for _, _, rounded, _ in choices:
            self._drop(rounded)

    def _tree(
        self,
        node: ir.Node,
        choices: Sequence[_Choice],
        feeds: Mapping[int, ir.Value],
        outputs: Sequence[ir.Value] | None = None,
    ) -> ir.Node:
        (on, position, *both), *rest = choices
        branches = []
        for value in both:
            read = {**feeds, position: value}
            branches.append(self._body([self._tree(node, rest, read)]) if rest else self._leaf(node, read))
        return self._if(node, on, branches, outputs)

    def _leaf(self, node: ir.Node, feeds: Mapping[int, ir.Value]) -> ir.Graph:
        """A copy of a node with other constants; they are dequantized only where they are read."""
        nodes, inside, read = [], [], dict(feeds)
        for i, value in feeds.items():
            maker = value.producer()
            if maker is not None and maker.op_type == "DequantizeLinear":
                nodes.append(self._copy(maker))
                read[i] = nodes[-1].outputs[0]
            elif len(feeds) > 1 and value.const_value is not None:
                # Kernels look for constants no further than one graph outside their own.
                read[i] = ir.Value(
                    name=self._edit.value_name(value.name or ""),
                    type=value.type, shape=value.shape, const_value=value.const_value,
                )  # fmt: skip
                inside.append(read[i])
        return self._body([*nodes, self._copy(node, read)], inside)

    def _write(self, on: ir.Value, switch: Switch) -> None:
        """Let a value be what its node writes, or that rounded; or what the node writes with other attributes."""
        edit, place = self._edit, switch.quantizer
        node, last = edit.nodes[place.node], edit.values[place.value].producer()
        assert last is not None  # noqa: S101 - its node writes it, or a cast does
        inner, outer = edit.split(place.value, f"{place.id}/rounded")
        exact = node.outputs[place.position]
        rounding = [self._identity(node, exact)] if last is node else self._rounding(last)
        plain = (
            self._copy(node, attributes=switch.attributes)
            if switch.attributes
            else self._identity(node, exact)
        )
        made = self._if(node, on, [self._body(rounding), self._body([plain])], [outer])
        edit.graph.insert_after(last, made)
        if last is not node:
            self._drop(inner)

    def _drop(self, value: ir.Value) -> None:
        """Remove what makes a value that nobody reads any more."""
        maker = value.producer()
        if maker is not None and not value.uses():
            before = [v for v in maker.inputs if v is not None]
            self._edit.graph.remove(maker, safe=True)
            for one in before:
                under = one.producer()
                if under is not None and under.name != under.metadata_props[ORIGIN]:
                    self._drop(one)

    def _if(
        self,
        node: ir.Node,
        on: ir.Value,
        branches: Sequence[ir.Graph],
        outputs: Sequence[ir.Value] | None = None,
    ) -> ir.Node:
        held = [ir.AttrGraph(k, g) for k, g in zip(("then_branch", "else_branch"), branches, strict=True)]
        ends = outputs if outputs is not None else [self._like(v) for v in branches[-1].outputs]
        return self._node(node, "If", [on], held, ends)

    def _body(self, nodes: Sequence[ir.Node], inside: Sequence[ir.Value] = ()) -> ir.Graph:
        ends = [v for v in nodes[-1].outputs if v.name]
        return ir.Graph([], ends, nodes=nodes, initializers=inside, name=self._edit.node_name("branch"))

    def _identity(self, node: ir.Node, value: ir.Value) -> ir.Node:
        return self._node(node, "Identity", [value], (), [self._like(value)])

    def _copy(
        self,
        node: ir.Node,
        feeds: Mapping[int, ir.Value] | None = None,
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> ir.Node:
        reads = [(feeds or {}).get(i, v) for i, v in enumerate(node.inputs)]
        ends = [self._like(v) if v.name else ir.Value(name="") for v in node.outputs]
        return self._node(node, node.op_type, reads, (attributes or node.attributes).values(), ends)

    def _node(
        self,
        like: ir.Node,
        op: str,
        reads: Sequence[ir.Value | None],
        attributes: Iterable[ir.Attr],
        outputs: Sequence[ir.Value],
    ) -> ir.Node:
        """A node for the source node that another one serves, too."""
        name, origin = self._edit.node_name(f"{like.name}/{op}"), {ORIGIN: like.metadata_props[ORIGIN]}
        domain = like.domain if op == like.op_type else ""
        return ir.Node(domain, op, reads, attributes, outputs=outputs, name=name, metadata_props=origin)

    def _like(self, value: ir.Value) -> ir.Value:
        """A value of the same type and shape."""
        return ir.Value(name=self._edit.value_name(value.name or ""), type=value.type, shape=value.shape)
