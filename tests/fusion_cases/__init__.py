"""Small graphs of a few nodes, each with the documented fusion that it asks about.

Cases stand in the ``.ini`` files beside this one, a section each. Their keys:

``title``
    What is asked, in words.
``graph``
    Nodes in ONNX's text form, divided by semicolons, each called as the first value that it writes. Names in capitals
    are constants.
``pair``
    The two nodes asked about; ``c|d`` is either of two, the same name twice asks whether a node has a step. By default
    the first node and the one that writes ``y``.
``documented``
    What TensorRT's documentation says: ``fused``, ``apart``, ``gone``; left out where no rule says anything.
``source``
    Where it says so: a page and its rule. ``types``, ``reductions`` and ``pointwise`` are sections of the "Layer Fusion
    Catalog" of the TensorRT documentation, ``explicit`` and ``placement`` of its "Explicit Quantization" (Q/DQ fusions,
    recommended places of Q/DQ), ``attention`` is its "Fused Attention", ``build`` the build phase in the developer
    guide of releases 5 to 7, ``log`` a verbose build log.
``precision``, ``target``, ``inputs``, ``weights``, ``outputs``, ``profile``
    What differs from FP32 at any target, and one picture of 32 channels called ``x``; shapes of further constants
    (``W: 33 31 3 3``); values that are outputs beside those that nobody reads; and where a size is open, the least,
    the usual and the greatest shape of the input (``x: 1 32 8 8, 1 32 16 16, 1 32 64 64``).
"""

from __future__ import annotations

import configparser
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper, parser, shape_inference

from rtlab.core.model import Model, wrap
from rtlab.core.variant import Precision
from rtlab.experiments.why.cutting import add_neutral_readers

#: The files, by what the cases are about.
_PARTS = ("convolutions", "products", "pointwise", "movement", "quantized")
_PICTURE = "float[1,32,16,16] x"
_OPSET, _SEED = 18, 7
_F8, _I4 = ml_dtypes.float8_e4m3fn, ml_dtypes.int4
#: Shapes of constants drawn at random, small enough that no sum of products leaves FP16.
_DRAWN: dict[str, tuple[int, ...]] = {
    "W": (32, 32, 3, 3), "W2": (32, 32, 3, 3), "P": (32, 32, 1, 1), "P2": (32, 32, 1, 1), "D": (32, 1, 3, 3),
    "GROUPED": (32, 4, 3, 3), "B": (32,), "GAMMA": (32,), "BETA": (32,), "MEAN": (32,), "CH": (1, 32, 1, 1),
    "SPOTS": (1, 1, 16, 16), "A": (128, 128), "A2": (128, 128), "C": (128,), "ROW": (128,), "HEAD": (32, 8),
}  # fmt: skip
#: Constants of one number, or of few, in the type of the model.
_NUMBERS: dict[str, Any] = {
    "ZERO": 0.0, "ONE": 1.0, "SIX": 6.0, "HALF": 0.5, "RSQRT2": 2**-0.5, "SMALL": 1e-5,
}  # fmt: skip
#: Constants whose type does not follow the model's.
_FIXED: dict[str, np.ndarray] = {
    "PADS": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
    "LAST": np.array([-1], np.int64),
    "SPOT": np.array([2, 3], np.int64),
    "FIVE": np.array([5], np.int64),
    "FLAT": np.array([1, 32, 256], np.int64),
    "SQUARE": np.array([1, 16, 512], np.int64),
    "SPLITUP": np.array([1, 4, 8, 16, 16], np.int64),
    "TWICE": np.array([1, 1, 2, 2], np.float32),
    "FROM0": np.array([0], np.int64),
    "TO8": np.array([8], np.int64),
    "TO16": np.array([16], np.int64),
    "AXIS1": np.array([1], np.int64),
    "AXIS2": np.array([2], np.int64),
    "SX": np.float32(0.05),
    "SW": np.linspace(0.01, 0.03, 32, dtype=np.float32),
    "Z": np.int8(0),
    "ZW": np.zeros(32, np.int8),
    "SH": np.float16(0.05),
    "ZF": np.zeros((), _F8),
    "CHALF": np.linspace(-0.1, 0.1, 128, dtype=np.float16),
    "SBLOCK": np.full((4, 128), 0.02, np.float16),
    "ZBLOCK": np.zeros((4, 128), _I4),
}
#: Shapes and types of quantized weights.
_QUANTIZED: dict[str, tuple[tuple[int, ...], Any]] = {
    "W8": ((32, 32, 3, 3), np.int8), "D8": ((32, 1, 3, 3), np.int8), "P8": ((32, 32, 1, 1), np.int8),
    "A8": ((128, 128), np.int8), "WF": ((32, 32, 3, 3), _F8), "AF": ((128, 128), _F8), "A4": ((128, 128), _I4),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class FusionCase:
    """A planted case.

    Attributes:
        name: What it is called.
        documented: ``fused``, ``apart`` or ``gone``; empty where no rule says anything.
        precision: What the graph expresses.
        target: What it needs at least, such as ``sm89``; empty for any.
        pair: The two nodes; each may be several, of which one will do.
        text: Nodes in ONNX's text form.
        inputs: Inputs in that form.
        weights: Shapes of constants of its own.
        outputs: Values that are outputs though somebody reads them.
        profile: An input of open size with its least, its usual and its greatest shape; None where all are known.
    """

    name: str
    documented: str
    precision: Precision
    target: str
    pair: tuple[tuple[str, ...], tuple[str, ...]]
    text: str
    inputs: str = _PICTURE
    weights: tuple[tuple[str, tuple[int, ...]], ...] = ()
    outputs: tuple[str, ...] = ()
    profile: tuple[str, tuple[tuple[int, ...], ...]] | None = None

    @functools.cached_property
    def model(self) -> Model:
        """Its graph, with constants that are the same everywhere, and neutral readers behind its ends.

        An output is written in the layout that is asked for, which would keep fusions from happening that the case is
        not about.
        """
        graph = _parsed(self.name, self.inputs, self.text)
        if self.precision is Precision.FP16:
            for value in graph.input:
                if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                    value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        written = {o for n in graph.node for o in n.output}
        read = {i for n in graph.node for i in n.input}
        rng = np.random.default_rng(_SEED)
        for name in sorted(n for n in read if n.isupper()):
            graph.initializer.append(numpy_helper.from_array(self._constant(name, rng), name))
        ends = [o for n in graph.node for o in n.output if o in self.outputs or o not in read]
        graph.output.extend(helper.make_empty_tensor_value_info(o) for o in ends if o in written)
        opset = 21 if self.precision in {Precision.INT4, Precision.FP8} else _OPSET
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        proto = shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
        return add_neutral_readers(wrap(proto, name=self.name), frozenset(self.outputs))

    def _constant(self, name: str, rng: np.random.Generator) -> np.ndarray:
        shapes, half = dict(self.weights), self.precision is Precision.FP16
        kind = np.float16 if half else np.float32
        if name in _QUANTIZED:
            shape, of = _QUANTIZED[name]
            return rng.integers(-7, 8, shapes.get(name, shape)).astype(of)
        if name in _FIXED and name not in shapes:
            return np.asarray(_FIXED[name])
        if name in _NUMBERS:
            return np.asarray(_NUMBERS[name], kind)
        if name == "VAR":
            return np.linspace(0.5, 1.5, 32).astype(kind)
        shape = shapes.get(name) or _DRAWN[name]
        return rng.normal(0, max(1, math.prod(shape[1:])) ** -0.5, shape).astype(kind)


def _parsed(name: str, inputs: str, text: str) -> onnx.GraphProto:
    graph = parser.parse_graph(
        f"{name.replace('-', '_')} ({inputs}) => () {{ {text.replace(';', chr(10))} }}"
    )
    for node in graph.node:
        node.name = node.output[0]
    return graph


@functools.cache
def cases() -> tuple[FusionCase, ...]:
    """All cases, part by part in the order of the files."""
    made = []
    for part in _PARTS:
        read = configparser.RawConfigParser()
        read.read_string(Path(__file__).with_name(f"{part}.ini").read_text("utf-8"))
        made += [_case(section, read[section]) for section in read.sections()]
    return tuple(made)


def _case(name: str, told: configparser.SectionProxy) -> FusionCase:
    graph = told["graph"]
    first = graph.split("=", 1)[0].split(",")[0].strip()
    one, other = told.get("pair", f"{first} y").split()
    weights = [w.split(":") for w in told.get("weights", "").split(",") if w]
    return FusionCase(
        name,
        told.get("documented", ""),
        Precision(told.get("precision", "fp32")),
        told.get("target", ""),
        (tuple(one.split("|")), tuple(other.split("|"))),
        graph,
        told.get("inputs", _PICTURE),
        tuple((n.strip(), tuple(map(int, shape.split()))) for n, shape in weights),
        tuple(told.get("outputs", "").split()),
        _profile(told.get("profile", "")),
    )


def _profile(text: str) -> tuple[str, tuple[tuple[int, ...], ...]] | None:
    name, _, shapes = text.partition(":")
    return (name, tuple(tuple(map(int, s.split())) for s in shapes.split(","))) if text else None
