"""Rules of operators that work on each element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from rtlab.adjoint.tape import Tape, Unruled

_Found = list["ir.Value | None"]


def held(node: ir.Node, name: str, default: Any) -> Any:
    """An attribute as a plain value."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def first(given: Sequence[ir.Value | None]) -> ir.Value:
    """The gradient of the first output."""
    if given[0] is None:
        raise Unruled("its first output has no gradient")
    return given[0]


def read(node: ir.Node, i: int = 0) -> ir.Value:
    """An input that is there."""
    value = node.inputs[i] if i < len(node.inputs) else None
    if value is None:
        raise Unruled(f"input {i} is missing")
    return value


def _unary(derivative: Callable[[Tape, ir.Node, ir.Value, ir.Value], ir.Value]) -> Any:
    """The rule of a function of one value: the gradient times the derivative, from what is read and written."""

    def rule(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
        slope = derivative(tape, node, read(node), node.outputs[0])
        return [tape.op("Mul", first(given), slope), *[None] * (len(node.inputs) - 1)]

    return rule


def _where(tape: Tape, kind: str, value: ir.Value, bound: float) -> ir.Value:
    """1 where a value is greater, or less, than a bound, else 0."""
    told = tape.op(kind, value, tape.constant(float(bound)))
    return tape.op("Cast", told, to=int(ir.DataType.FLOAT))


def _relu(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    # Its output is zero or positive: the sign is the slope.
    return tape.op("Sign", y)


def _leaky(tape: Tape, node: ir.Node, x: ir.Value, _: ir.Value) -> ir.Value:
    alpha = float(held(node, "alpha", 0.01))
    above = _where(tape, "Greater", x, 0.0)
    return tape.op("Add", tape.op("Mul", above, tape.constant(1 - alpha)), tape.constant(alpha))


def _sigmoid(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.op("Mul", y, tape.op("Sub", tape.constant(1.0), y))


def _tanh(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.op("Sub", tape.constant(1.0), tape.op("Mul", y, y))


def _hard_sigmoid(tape: Tape, node: ir.Node, _: ir.Value, y: ir.Value) -> ir.Value:
    alpha = float(held(node, "alpha", 0.2))
    inside = tape.op("Mul", _where(tape, "Greater", y, 0.0), _where(tape, "Less", y, 1.0))
    return tape.op("Mul", inside, tape.constant(alpha))


def _hard_swish(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    third = tape.op("Add", tape.op("Mul", x, tape.constant(1 / 3)), tape.constant(0.5))
    inside = tape.op("Mul", _where(tape, "Greater", x, -3.0), _where(tape, "Less", x, 3.0))
    above = tape.op("Sub", tape.constant(1.0), _where(tape, "Less", x, 3.0))
    return tape.op("Add", tape.op("Mul", third, inside), above)


def _erf(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    bell = tape.op("Exp", tape.op("Neg", tape.op("Mul", x, x)))
    return tape.op("Mul", bell, tape.constant(2 / math.sqrt(math.pi)))


def _gelu(tape: Tape, node: ir.Node, x: ir.Value, _: ir.Value) -> ir.Value:
    if held(node, "approximate", "none") != "none":
        raise Unruled("Gelu by tanh is not ruled")
    half = tape.op(
        "Add", tape.op("Erf", tape.op("Mul", x, tape.constant(math.sqrt(0.5)))), tape.constant(1.0)
    )
    bell = tape.op("Exp", tape.op("Mul", tape.op("Mul", x, x), tape.constant(-0.5)))
    slope = tape.op("Mul", tape.op("Mul", x, bell), tape.constant(1 / math.sqrt(2 * math.pi)))
    return tape.op("Add", tape.op("Mul", half, tape.constant(0.5)), slope)


def _elu(tape: Tape, node: ir.Node, x: ir.Value, y: ir.Value) -> ir.Value:
    alpha = float(held(node, "alpha", 1.0))
    above = _where(tape, "Greater", x, 0.0)
    below = tape.op("Sub", tape.constant(1.0), above)
    return tape.op("Add", above, tape.op("Mul", below, tape.op("Add", y, tape.constant(alpha))))


def _softplus(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    return tape.op("Sigmoid", x)


def _exp(_: Tape, __: ir.Node, ___: ir.Value, y: ir.Value) -> ir.Value:
    return y


def _log(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    return tape.op("Reciprocal", x)


def _sqrt(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.op("Div", tape.constant(0.5), y)


def _abs(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    return tape.op("Sign", x)


def _reciprocal(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.op("Neg", tape.op("Mul", y, y))


def _clip(tape: Tape, node: ir.Node, x: ir.Value, _: ir.Value) -> ir.Value:
    """1 between the bounds, which are attributes or inputs."""
    found: list[ir.Value] = []
    for i, (name, kind) in enumerate((("min", "Greater"), ("max", "Less")), 1):
        bound = node.inputs[i] if len(node.inputs) > i else None
        number = held(node, name, None)
        if bound is not None:
            found.append(tape.op("Cast", tape.op(kind, x, bound), to=int(ir.DataType.FLOAT)))
        elif number is not None:
            found.append(_where(tape, kind, x, number))
    return functools.reduce(lambda a, b: tape.op("Mul", a, b), found) if found else tape.constant(1.0)


def _same(_: Tape, node: ir.Node, given: Sequence[ir.Value | None], __: Sequence[bool]) -> _Found:
    """What is handed on as it is, or rounded: the slope of rounding is taken to be that of the values rounded."""
    return [first(given), *[None] * (len(node.inputs) - 1)]


def _quantize(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    """As it is where it is rounded, and nothing where it is clipped."""
    scale, least = tape.number(read(node, 1)), 127.5
    rest: _Found = [None] * (len(node.inputs) - 1)
    if scale is None or scale.size != 1 or node.outputs[0].dtype != ir.DataType.INT8:
        return [first(given), *rest]
    inside = _where(tape, "Less", tape.op("Abs", read(node)), float(scale.reshape(())) * least)
    return [tape.op("Mul", first(given), inside), *rest]


def _neg(tape: Tape, _: ir.Node, given: Sequence[ir.Value | None], __: Sequence[bool]) -> _Found:
    return [tape.op("Neg", first(given))]


def _add(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    return [
        tape.narrowed(first(given), read(node, i), node.outputs[0]) if w else None
        for i, w in enumerate(wanted)
    ]


def _sub(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    one, other = _add(tape, node, given, wanted)
    return [one, None if other is None else tape.op("Neg", other)]


def _mul(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    found: _Found = []
    for i, w in enumerate(wanted):
        part = tape.op("Mul", first(given), read(node, 1 - i)) if w else None
        found.append(None if part is None else tape.narrowed(part, read(node, i), node.outputs[0]))
    return found


def _div(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    x, y, gradient = read(node), read(node, 1), first(given)
    over = tape.op("Div", gradient, y)
    one = tape.narrowed(over, x, node.outputs[0]) if wanted[0] else None
    if not wanted[1]:
        return [one, None]
    other = tape.op("Neg", tape.op("Mul", over, node.outputs[0]))
    return [one, tape.narrowed(other, y, node.outputs[0])]


def _pow(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    power = tape.number(read(node, 1))
    if power is None or power.size != 1 or wanted[1]:
        raise Unruled("its power is no constant")
    number = float(power.reshape(()))
    x = read(node)
    less = x if number == 2.0 else tape.op("Pow", x, tape.constant(number - 1))
    slope = tape.op("Mul", less, tape.constant(number))
    return [tape.op("Mul", first(given), slope), None]


def _where_rule(
    tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]
) -> _Found:
    told, gradient = read(node), first(given)
    zero = tape.constant(0.0)
    parts = [(gradient, zero), (zero, gradient)]
    found: _Found = [None]
    for i, pair in enumerate(parts, 1):
        part = tape.op("Where", told, *pair) if wanted[i] else None
        found.append(None if part is None else tape.narrowed(part, read(node, i), node.outputs[0]))
    return found


def _largest(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    """Of Max and Min: to whichever equals what is written."""
    found: _Found = []
    for i, w in enumerate(wanted):
        if not w:
            found.append(None)
            continue
        mine = tape.op("Cast", tape.op("Equal", read(node, i), node.outputs[0]), to=int(ir.DataType.FLOAT))
        found.append(tape.narrowed(tape.op("Mul", first(given), mine), read(node, i), node.outputs[0]))
    return found


def _prelu(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    if wanted[1]:
        raise Unruled("its slope is no constant")
    above = _where(tape, "Greater", read(node), 0.0)
    below = tape.op("Mul", tape.op("Sub", tape.constant(1.0), above), read(node, 1))
    return [tape.op("Mul", first(given), tape.op("Add", above, below)), None]


RULES = {
    "Relu": _unary(_relu), "LeakyRelu": _unary(_leaky), "Sigmoid": _unary(_sigmoid), "Tanh": _unary(_tanh),
    "HardSigmoid": _unary(_hard_sigmoid), "HardSwish": _unary(_hard_swish), "Erf": _unary(_erf),
    "Gelu": _unary(_gelu), "Elu": _unary(_elu), "Softplus": _unary(_softplus), "Exp": _unary(_exp),
    "Log": _unary(_log), "Sqrt": _unary(_sqrt), "Abs": _unary(_abs), "Reciprocal": _unary(_reciprocal),
    "Clip": _unary(_clip), "Identity": _same, "Dropout": _same, "Cast": _same, "QuantizeLinear": _quantize,
    "DequantizeLinear": _same, "Neg": _neg, "Add": _add, "Sum": _add, "Sub": _sub, "Mul": _mul, "Div": _div,
    "Pow": _pow, "Where": _where_rule, "Max": _largest, "Min": _largest, "PRelu": _prelu,
}  # fmt: skip
