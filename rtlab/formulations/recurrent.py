"""A recurrence in other words: as the textbook writes it, with its gates merged, and with its input product hoisted.

The three forms differ in nothing but the grouping of their products, so that what each grouping buys can be timed. The
equations are those of ONNX's LSTM, GRU and RNN (https://onnx.ai/onnx/operators/) with default activations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper

from rtlab.core.model import Model
from rtlab.errors import ModelError
from rtlab.formulations.fragment import Fragment

if TYPE_CHECKING:
    from numpy.typing import NDArray

FormName = Literal["naive", "merged", "hoisted", "operator"]
#: Every form with its title, from the most products to the node itself.
FORMS: Mapping[FormName, str] = {
    "naive": "a product per gate and step",
    "merged": "gates merged into one product",
    "hoisted": "and the input product hoisted",
    "operator": "the node itself",
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: Longer sequences make graphs that take longer to load than to explain.
MOST_STEPS = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Recurrent:
    """A recurrent node with its weights, in ONNX's order of gates.

    ``w`` is ``(D, gates*H, I)``, ``r`` ``(D, gates*H, H)`` and ``b`` ``(D, 2*gates*H)``, where ``D`` is the number of
    directions. It reads ``(steps, batch, I)``.
    """

    node: str
    op: str
    w: NDArray[np.float32]
    r: NDArray[np.float32]
    b: NDArray[np.float32]
    steps: int
    batch: int
    direction: str = "forward"
    linear: bool = False

    @property
    def gates(self) -> int:
        """How many."""
        return _GATES[self.op]

    @property
    def hidden(self) -> int:
        """Width of the state."""
        return int(self.r.shape[2])

    @property
    def directions(self) -> int:
        """One or two."""
        return int(self.w.shape[0])

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the first states among the inputs of its forms."""
        return ("h", "c") if self.op == "LSTM" else ("h",)

    def create_batch(self, seed: int = 0) -> dict[str, NDArray[np.float32]]:
        """Inputs for its forms: normal noise, and first states of zeros as the node has them by default."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((self.steps, self.batch, self.w.shape[2])).astype(np.float32)
        zeros = np.zeros((self.directions, self.batch, self.hidden), np.float32)
        return {"x": x, **dict.fromkeys(self.states, zeros)}


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """One form as a model that reads ``x`` and the first states and writes ``Y``; ``products`` that it computes."""

    name: FormName
    model: onnx.ModelProto
    products: int

    @property
    def nodes(self) -> int:
        """Nodes of its graph."""
        return len(self.model.graph.node)


@dataclasses.dataclass(frozen=True)
class FormTiming:
    """A form, measured: milliseconds as median and quartiles of ``runs``, and how far it is from the node itself.

    ``error`` is the greatest absolute difference of any output. ``products`` is 0 where it does not tell.
    """

    name: FormName
    products: int
    nodes: int
    median: float
    low: float
    high: float
    runs: int
    error: float


def read_recurrent(model: Model, node: str) -> Recurrent:
    """A node of a model with its weights, at the sizes that the model's inputs have.

    Raises:
        ModelError: it is no LSTM, GRU or RNN; its weights are computed; it has settings that the forms do not have,
            such as peepholes or other activations; or it is too long.
    """
    recurrent_node = model.node(node)
    constants = model.constants(node)

    def refuse(why: str) -> ModelError:
        return ModelError(
            f'Cannot put "{recurrent_node.title}" in other words: {why}. Choose another recurrent node, or read its '
            "layers."
        )

    if recurrent_node.op not in _GATES:
        raise refuse(f"{recurrent_node.op} is no LSTM, GRU or RNN")
    unsupported_attributes = {"activations", "activation_alpha", "clip", "input_forget", "layout"} & {
        k for k, v in recurrent_node.attributes.items() if v not in (0, 0.0)
    }
    if unsupported_attributes:
        raise refuse(f"it sets {', '.join(sorted(unsupported_attributes))}")
    extra_inputs = [i for i, name in enumerate(recurrent_node.inputs) if name and i > 3]
    if extra_inputs:
        raise refuse("it reads lengths, first states or peepholes of its own")
    names = recurrent_node.inputs[1:4]
    if any(n and n not in constants for n in names):
        raise refuse("its weights are no constants")
    w, r = (np.asarray(constants[n].numpy(), np.float32) for n in names[:2])
    bias = (
        constants[names[2]].numpy() if len(names) > 2 and names[2] else np.zeros((w.shape[0], 2 * w.shape[1]))
    )
    value = model.static().values[recurrent_node.inputs[0]]
    sizes = [d for d in value.shape or () if isinstance(d, int)]
    if len(sizes) != 3:
        raise refuse(f'the shape of "{value.name}" is not known')
    if sizes[0] > MOST_STEPS:
        raise refuse(f"its {sizes[0]} steps are more than {MOST_STEPS}")
    direction = str(recurrent_node.attributes.get("direction", "forward"))
    linear = bool(recurrent_node.attributes.get("linear_before_reset"))
    return Recurrent(
        recurrent_node.id,
        recurrent_node.op,
        w,
        r,
        np.asarray(bias, np.float32),
        sizes[0],
        sizes[1],
        direction,
        linear,
    )


def build_forms(layer: Recurrent) -> dict[FormName, Form]:
    """All forms of a recurrent layer; they compute the same up to rounding."""
    return {name: _build_form(layer, name) for name in FORMS}


def _build_form(layer: Recurrent, name: FormName) -> Form:
    graph = Fragment(f"/{name}")
    if name == "operator":
        constants = [graph.constant(a) for a in (layer.w, layer.r, layer.b)]
        attributes: dict[str, Any] = {"linear_before_reset": int(layer.linear)} if layer.op == "GRU" else {}
        output_name = graph.node(
            layer.op, "x", *constants, "", *layer.states,
            hidden_size=layer.hidden, direction=layer.direction, **attributes,
        )  # fmt: skip
    else:
        writer = _Writer(layer, graph, name)
        output_name = writer.write()
    graph.nodes.append(helper.make_node("Identity", [output_name], ["Y"]))
    state = [layer.directions, layer.batch, layer.hidden]
    shapes = {"x": [layer.steps, layer.batch, layer.w.shape[2]], **dict.fromkeys(layer.states, state)}
    output = [layer.steps, layer.directions, layer.batch, layer.hidden]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, output)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return Form(name, model, sum(n.op_type == "MatMul" for n in model.graph.node))


class _Writer:
    """Writes one form, a direction after the other."""

    def __init__(self, layer: Recurrent, graph: Fragment, name: FormName) -> None:
        self.layer, self.graph, self.name = layer, graph, name
        #: Constants by direction and first gate.
        self.state_weights: dict[tuple[int, int], str] = {}

    def write(self) -> str:
        """All steps; the name of what holds every state, ``(steps, D, batch, H)``."""
        directions = [self._write_direction(d) for d in range(self.layer.directions)]
        return directions[0] if len(directions) == 1 else self.graph.node("Concat", *directions, axis=1)

    def _write_direction(self, at: int) -> str:
        layer, graph = self.layer, self.graph
        is_reverse = layer.direction == "reverse" or at == 1
        state = {n: self._read_initial_state(n, at) for n in layer.states}
        parts = self._write_input_terms(at)
        step_outputs: dict[int, str] = {}
        for step in range(layer.steps - 1, -1, -1) if is_reverse else range(layer.steps):
            state = self._write_step(parts[step], state, at)
            step_outputs[step] = graph.reshape(state["h"], (1, 1, layer.batch, layer.hidden))
        return graph.node("Concat", *(step_outputs[s] for s in range(layer.steps)), axis=0)

    def _read_initial_state(self, name: str, at: int) -> str:
        layer, graph = self.layer, self.graph
        cut = name if layer.directions == 1 else graph.cut(name, [0], [at], [at + 1])
        return graph.reshape(cut, (layer.batch, layer.hidden))

    def _write_input_terms(self, at: int) -> list[list[str]]:
        """By step what the input adds to each gate."""
        layer, graph = self.layer, self.graph
        weights = layer.w[at].T
        value = "x"
        if self.name == "hoisted":
            value = graph.node("MatMul", value, graph.constant(weights))
            value = graph.node("Add", value, graph.constant(self._merge_biases(at)))
        rows = self._split(value, layer.steps, 0)
        width = weights.shape[1] if self.name == "hoisted" else weights.shape[0]
        rows = [graph.reshape(r, (layer.batch, width)) for r in rows]
        if self.name == "naive":
            each = [graph.constant(w) for w in np.split(weights, layer.gates, axis=1)]
            return [[graph.node("MatMul", row, w) for w in each] for row in rows]
        if self.name == "merged":
            merged_weights = graph.constant(weights)
            rows = [graph.node("MatMul", row, merged_weights) for row in rows]
        return [[row] for row in rows]

    def _split(self, value: str, parts: int, axis: int) -> list[str]:
        """Equal parts along an axis."""
        if parts == 1:
            return [value]
        graph = self.graph
        first = graph.node("Split", value, axis=axis)
        names = [first, *(f"{first}.{i}" for i in range(1, parts))]
        graph.nodes[-1].output[:] = names
        return names

    def _write_state_terms(self, state: str, at: int, first: int, last: int) -> list[str]:
        """What the state adds to the gates from ``first`` to before ``last``."""
        layer, graph, h = self.layer, self.graph, self.layer.hidden
        weights = layer.r[at].T[:, first * h : last * h]
        if self.name != "naive":
            return [graph.node("MatMul", state, self._get_state_weights(at, first, weights))]
        each = np.split(weights, last - first, axis=1)
        return [
            graph.node("MatMul", state, self._get_state_weights(at, first + i, w)) for i, w in enumerate(each)
        ]

    def _get_state_weights(self, at: int, first: int, weights: NDArray[np.float32]) -> str:
        """Weights of the state as one constant for all steps."""
        key = (at, first)
        if key not in self.state_weights:
            self.state_weights[key] = self.graph.constant(weights)
        return self.state_weights[key]

    def _merge_biases(self, at: int) -> NDArray[np.float32]:
        """The biases that need not wait for the state."""
        wb, rb = np.split(self.layer.b[at], 2)
        if self.layer.linear:
            # The reset gate multiplies the last third of the state's.
            rb = rb * (np.arange(len(rb)) < 2 * self.layer.hidden)
        return np.asarray(wb + rb, np.float32)

    def _sum(self, lhs: str, rhs: str, bias: NDArray[np.float32]) -> str:
        """Two products and their bias, which the hoisted form has added before."""
        total = self.graph.node("Add", lhs, rhs)
        return total if self.name == "hoisted" else self.graph.node("Add", total, self.graph.constant(bias))

    def _write_step(self, input_terms: list[str], state: Mapping[str, str], at: int) -> dict[str, str]:
        layer, graph = self.layer, self.graph
        node = graph.node
        if layer.op == "GRU":
            return {"h": self._write_gru(input_terms, state["h"], at)}
        products = self._write_state_terms(state["h"], at, 0, layer.gates)
        biases = np.split(self._merge_biases(at), len(products))
        gates = [self._sum(*terms) for terms in zip(input_terms, products, biases, strict=True)]
        if layer.op == "RNN":
            return {"h": node("Tanh", gates[0])}
        if len(gates) == 1:
            gates = self._split(gates[0], 4, 1)
        i, o, f = (node("Sigmoid", g) for g in gates[:3])
        forget_term, cell_term = node("Mul", f, state["c"]), node("Mul", i, node("Tanh", gates[3]))
        c = node("Add", forget_term, cell_term)
        return {"h": node("Mul", o, node("Tanh", c)), "c": c}

    def _write_gru(self, input_terms: list[str], state: str, at: int) -> str:
        layer, graph, h = self.layer, self.graph, self.layer.hidden
        node, merged_biases = graph.node, self._merge_biases(at)
        products = self._write_state_terms(state, at, 0, 3 if layer.linear else 2)
        if self.name == "naive":
            biases = np.split(merged_biases[: 2 * h], 2)
            terms = zip(input_terms[:2], products[:2], biases, strict=True)
            z, r = (node("Sigmoid", self._sum(*t)) for t in terms)
            h_input, h_state = input_terms[2], products[-1]
        else:
            zr_input, h_input = self._split_columns(input_terms[0], (2 * h, h))
            zr_state, h_state = (
                self._split_columns(products[0], (2 * h, h)) if layer.linear else (products[0], "")
            )
            z, r = self._split(node("Sigmoid", self._sum(zr_input, zr_state, merged_biases[: 2 * h])), 2, 1)
        if layer.linear:
            candidate_term = node("Mul", r, node("Add", h_state, graph.constant(layer.b[at][-h:])))
        else:
            candidate_term = self._write_state_terms(node("Mul", r, state), at, 2, 3)[0]
        candidate = node("Tanh", self._sum(h_input, candidate_term, merged_biases[2 * h :]))
        state_term = node("Mul", z, state)
        return node("Add", node("Mul", node("Sub", graph.constant(np.ones(1)), z), candidate), state_term)

    def _split_columns(self, value: str, sizes: tuple[int, int]) -> tuple[str, str]:
        """The columns in two parts."""
        first = self.graph.node("Split", value, self.graph.constant(sizes, np.int64), axis=1)
        self.graph.nodes[-1].output[:] = [first, f"{first}.1"]
        return first, f"{first}.1"
