"""The predicted passes on small graphs whose layers are known by hand, from the documentation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
import scenes
import strategies
from rtlab import backends
from rtlab.analyses.build.replay import replay_decisions
from rtlab.backends.classic import passes
from rtlab.backends.classic.network import Network
from rtlab.backends.readers.log import verbose
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant

Nodes = list[tuple[str, str, list[str]]]
W = np.ones((4, 4, 1, 1), np.float32)


def graph(*nodes: Any, outputs: tuple[str, ...] = ("y",), **weights: np.ndarray) -> Model:
    """Nodes as ``(op, name, inputs, outputs, attributes)``; input ``x`` is 1×4×8×8, and so is ``z``."""
    made = [helper.make_node(op, ins, outs, name=name, **dict(*rest)) for op, name, ins, outs, *rest in nodes]
    constants = [numpy_helper.from_array(v, k) for k, v in {"w": W, **weights}.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 8, 8]) for n in ("x", "z")]
    given = helper.make_graph(
        made, "g", ends, [helper.make_empty_tensor_value_info(o) for o in outputs], constants
    )
    proto = helper.make_model(given, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return rtlab.load(onnx.shape_inference.infer_shapes(proto))


def layers(model: Model) -> list[str]:
    """Names of the layers in their order."""
    engine = backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())
    return [y.name for y in engine.layers]


def conv(name: str, read: str, out: str, **more: Any) -> tuple[Any, ...]:
    return ("Conv", name, [read, "w"], [out], more)


NORM = {k: np.ones(4, np.float32) for k in ("s", "b", "m", "v")}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (graph(conv("c", "x", "a"), ("Relu", "r", ["a"], ["y"])), ["c + r"]),
        (graph(conv("c", "x", "a"), ("BatchNormalization", "n", ["a", "s", "b", "m", "v"], ["d"]),
               ("Relu", "r", ["d"], ["y"]), **NORM), ["c + r"]),
        # Somebody else sees what is between them.
        (graph(conv("c", "x", "a"), ("Relu", "r", ["a"], ["y"]), outputs=("y", "a")), ["c", "r"]),
        # A sum, and what follows it; of two convolutions the later one takes it.
        (graph(conv("c", "x", "a"), conv("d", "z", "b"), ("Add", "s", ["a", "b"], ["t"]), ("Relu", "r", ["t"], ["y"])),
         ["c", "d + s + r"]),
        # One that has an activation of its own does not.
        (graph(conv("c", "x", "a"), ("Relu", "q", ["a"], ["e"]), ("Add", "s", ["e", "z"], ["y"])), ["c + q", "s"]),
        # A second activation goes into nothing.
        (graph(conv("c", "x", "a"), ("Relu", "r", ["a"], ["b"]), ("Sigmoid", "s", ["b"], ["y"])), ["c + r", "s"]),
        # SiLU is a chain of its own behind the convolution.
        (graph(conv("c", "x", "a"), ("Sigmoid", "s", ["a"], ["b"]), ("Mul", "m", ["a", "b"], ["y"])),
         ["c", "PWN(s, m)"]),
        # A scale for each channel goes into the weights, one for each column does not.
        (graph(conv("c", "x", "a"), ("Mul", "m", ["a", "k"], ["y"]), k=np.ones((4, 1, 1), np.float32)), ["c"]),
        (graph(conv("c", "x", "a"), ("Mul", "m", ["a", "k"], ["y"]), k=np.ones((8,), np.float32)), ["c", "m"]),
        # A broadcast operand is no sum of a convolution.
        (graph(("ReduceMax", "p", ["z"], ["q"], {"axes": [2]}), conv("c", "x", "a"), ("Add", "s", ["a", "q"], ["y"])),
         ["p", "c", "s"]),
        # What nobody needs, what does nothing, what is known.
        (graph(("Identity", "i", ["x"], ["a"]), ("Exp", "e", ["x"], ["u"]), ("Relu", "r", ["a"], ["y"])), ["r"]),
        (graph(("Exp", "k", ["w"], ["e"]), ("Conv", "c", ["x", "e"], ["y"])), ["c"]),
        (graph(("Transpose", "t", ["x"], ["a"]), ("Flatten", "f", ["a"], ["y"])), ["t + f"]),
        (graph(("ReduceMean", "m", ["x"], ["y"], {"axes": [2, 3]})), ["m"]),
        # Siblings of one window; another stride is no sibling.
        (graph(conv("c", "x", "a"), conv("d", "x", "b"), ("Concat", "j", ["a", "b"], ["y"], {"axis": 1})),
         ["c || d", "c || d copy"]),
        (graph(conv("c", "x", "a"), conv("d", "z", "b"), ("Concat", "j", ["a", "b"], ["y"], {"axis": 1})), ["c", "d"]),
        (graph(conv("c", "x", "a"), conv("d", "x", "b", strides=[2, 2]), outputs=("a", "b")), ["c", "d"]),
        # Convolutions in groups are not merged.
        (graph(*(("Conv", n, ["x", "h"], [o], {"group": 2}) for n, o in (("c", "a"), ("d", "b"))), outputs=("a", "b"),
               h=np.ones((4, 2, 1, 1), np.float32)), ["c", "d"]),
        # Along another axis nothing is written in place.
        (graph(conv("c", "x", "a"), conv("d", "z", "b"), ("Concat", "j", ["a", "b"], ["y"], {"axis": 2})),
         ["c", "d", "j"]),
    ],
)  # fmt: skip
def test_layers_are_those_that_the_documentation_says(model: Model, expected: list[str]) -> None:
    assert expected == layers(model)


S = np.float32(0.1)
QW = np.ones((4, 4, 1, 1), np.int8)


def quantized(name: str, read: str, out: str) -> list[tuple[Any, ...]]:
    """A convolution between pairs, with weights in INT8."""
    return [
        ("QuantizeLinear", f"q{name}", [read, "scale"], [f"{name}.q"]),
        ("DequantizeLinear", f"d{name}", [f"{name}.q", "scale"], [f"{name}.d"]),
        ("DequantizeLinear", f"w{name}", ["qw", "scale"], [f"{name}.w"]),
        ("Conv", name, [f"{name}.d", f"{name}.w"], [out]),
    ]


def test_pairs_are_taken_in_by_what_computes_on_integers() -> None:
    """The second convolution's Q is the first one's output; the first Q reads an input of the model and stays."""
    model = graph(
        *quantized("c", "x", "a"), ("Relu", "r", ["a"], ["b"]), *quantized("e", "b", "y"), scale=np.array(S),
        qw=QW,
    )  # fmt: skip
    assert ["qc", "c + r", "e"] == layers(model)
    engine = backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())
    assert {"c", "r", "dc", "wc", "qe"} == {*engine.layers[1].origins}
    # ONNX's type where no zero point says another.
    assert "uint8" == engine.layers[1].writes


def test_a_sum_with_a_float_operand_keeps_the_q_behind_it_apart() -> None:
    """Figure 6 of the documentation's recommendations: the output of the fused convolution is then floating point."""
    inner = [*quantized("c", "x", "a"), ("Add", "s", ["a", "z"], ["b"]), *quantized("e", "b", "y")]
    model = graph(*inner, scale=np.array(S), qw=QW)
    assert ["qc", "c + s", "qe", "e"] == layers(model)
    told = backends.get("classic").explain(model, "s", "qe")
    assert not told.fused
    assert "is not quantized" in told.text


def test_a_pooling_runs_in_int8_where_q_is_behind_it() -> None:
    """The Q goes before the pooling, into the convolution; then both have one precision, and are one layer."""
    pool = ("MaxPool", "p", ["a"], ["b"], {"kernel_shape": [2, 2]})
    model = graph(*quantized("c", "x", "a"), pool, *quantized("e", "b", "y"), scale=np.array(S), qw=QW)
    assert ["qc", "c + p", "e"] == layers(model)
    plain = graph(conv("c", "x", "a"), ("MaxPool", "p", ["a"], ["y"], {"kernel_shape": [2, 2]}))
    assert ["c", "p"] == layers(plain)
    assert "INT8" in backends.get("classic").explain(plain, "c", "p").text


@pytest.mark.parametrize("name", [n for n in rtlab.samples.names() if n not in scenes.LARGE])
def test_the_log_says_what_was_done(name: str) -> None:
    model = rtlab.samples.load(name).model
    engine = backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())
    log = verbose.parse(engine.log).log
    assert [n for n, _ in passes.PASSES] == [p.name for p in log.attempts[0].passes]
    assert len(engine.layers) == log.attempts[0].passes[-1].after
    assert len(model.top) == log.attempts[0].passes[0].before
    played = replay_decisions(log, model, engine)
    homes = Counter(n for y in engine.layers for n in y.origins)
    removed = {s.decision.names[0] for s in played.steps if s.decision.action == "remove"}
    groups = [{*g} for g in played.get_groups(len(played.steps))]
    for layer in engine.layers:
        if layer.kind != "copy":
            # What several layers do is no group of the replay.
            own = {n for n in layer.origins if homes[n] == 1 and not model.by_id[n].scope} - removed
            assert own in groups or len(own) <= 1, layer.name


def test_layers_run_in_their_order() -> None:
    for name in ("digits_inception", "digits_qat", "digits_vit"):
        model = rtlab.samples.load(name).model
        engine = backends.get("classic").build(
            BuildRequest(model, Variant.of("fp32", target="sm86")), Silent()
        )
        written = {t.name: i for i, y in enumerate(engine.layers) for t in y.outputs}
        for i, layer in enumerate(engine.layers):
            assert all(written.get(t.name, -1) < i for t in layer.inputs), layer.name


def test_bodies_keep_what_they_read_alive() -> None:
    model = rtlab.samples.load("control_flow").model
    network = passes.run(Network(model))
    read = {v for n in model.nodes if n.scope for v in n.inputs if v in model.producers}
    assert all(v in network.writer for v in read)


def test_a_layer_of_a_predicted_engine_has_a_bounded_number_of_nodes() -> None:
    study = rtlab.Study(rtlab.load(strategies.chain(1200, ["Relu"])))
    study.add("a", backend="classic")
    study.run(compare=False)
    counts = [len(layer.origins) for layer in study["a"].engine.layers]
    assert sum(counts) == 1200
    assert max(counts) <= 500
    assert study["a"].coverage.nodes == 1200
