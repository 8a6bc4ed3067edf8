"""The TensorRT-RTX backend: real builds on a machine without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab import backends
from rtlab.backends.readers.log import verbose
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.backends.workers import driver
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, Cancelled, VariantError
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model

here = backends.get("tensorrt-rtx").availability()
pytestmark = pytest.mark.skipif(not here.ok, reason=here.reason)


def build(
    model, *, precision="fp32", target: str = "sm86", limits: Limits | None = None, progress=None, **options
):
    variant = Variant.of(precision, target=target, options=BuildOptions.of(**options))
    request = BuildRequest(model, variant, limits or Limits())
    return backends.get("tensorrt-rtx").build(request, progress or Silent())


def chain(length: int):
    nodes = [
        helper.make_node("Sigmoid" if i % 2 else "Relu", [f"x{i}"], [f"x{i + 1}"], name=f"n{i}")
        for i in range(length)
    ]
    return graph(nodes, [("x0", TensorProto.FLOAT, [3])], [(f"x{length}", TensorProto.FLOAT, [3])], {})


def test_the_listing_accounts_for_every_node() -> None:
    model = tiny_model()
    engine = build(model)
    mapping = relate(model, model, engine)
    assert {n.id for n in model.nodes} == {p.node for p in mapping.pairs} | {m.node for m in mapping.missing}
    assert {"head/Flatten": "view"} == {m.node: m.reason for m in mapping.missing}
    names = ("stem/Conv", "stem/BatchNormalization", "stem/Relu")
    assert 1 == len({mapping.layers(name) for name in names})
    assert "declared" == next(p.evidence for p in mapping.pairs if p.node == "stem/Relu")


def test_a_pad_before_a_convolution_is_in_the_layer_that_convolves() -> None:
    """The compiler labels no layer with it: its convolution reads 16 by 16, and the Pad would have written 17 by 17."""
    n = helper.make_node
    rng = np.random.default_rng(0)
    weights = {
        "pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
        "u": rng.normal(size=(16, 8, 1, 1)).astype(np.float32),
        "w": rng.normal(size=(16, 16, 3, 3)).astype(np.float32),
    }
    model = graph(
        [n("Conv", ["x", "u"], ["a"], name="first"), n("Relu", ["a"], ["r"], name="relu"),
         n("Pad", ["r", "pads"], ["p"], name="pad"), n("Conv", ["p", "w"], ["y"], name="second", strides=[2, 2])],
        [("x", TensorProto.FLOAT, [1, 8, 16, 16])], [("y", TensorProto.FLOAT, [1, 16, 8, 8])], weights,
    )  # fmt: skip
    engine = build(model)
    assert not any("pad" in layer.origins for layer in engine.layers)
    mapping = relate(model, model, engine)
    assert mapping.layers("second") == mapping.layers("pad")
    (layer,) = mapping.layers("pad")
    assert (16, 16) == engine.layer(layer).inputs[0].shape[2:]
    assert "inferred" == next(p.evidence for p in mapping.pairs if p.node == "pad")


def test_names_that_would_break_the_listing_come_back_as_they_were() -> None:
    names = ["a]b|c", "Conv, LayerType: kgen, Inputs: [", "line\nbreak", "same", "same", "", "\x1f"]
    nodes = [
        helper.make_node("Relu" if i % 2 else "Exp", [f"v{i}"], [f"v{i + 1}"], name=n)
        for i, n in enumerate(names)
    ]
    for i, node in enumerate(nodes):
        node.input[0] = "x" if i == 0 else f"v{i}, Datatype: Half }}"
        node.output[0] = "y" if i == len(nodes) - 1 else f"v{i + 1}, Datatype: Half }}"
    model = graph(nodes, [("x", TensorProto.FLOAT, [2, 3])], [("y", TensorProto.FLOAT, [2, 3])], {})
    engine = build(model)
    assert names == [n.name for n in model.nodes]
    assert {n.id for n in model.nodes} == {i for layer in engine.layers for i in layer.origins}


@pytest.mark.slow
def test_a_chain_of_thousands_of_nodes_needs_the_large_stack() -> None:
    """On the usual 8 MiB the compiler overflows; here it must come back with an engine."""
    engine = build(chain(3000))
    assert 3000 == len({i for layer in engine.layers for i in layer.origins})


def test_a_crash_is_an_error_that_names_the_signal() -> None:
    """An integer division by a constant zero kills the compiler, and must not kill the notebook."""
    nodes = [
        helper.make_node("Div", ["a", "z"], ["d"], name="div"),
        helper.make_node("Cast", ["d"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"], name="add"),
    ]
    ends = [("x", TensorProto.FLOAT, [3])], [("y", TensorProto.FLOAT, [3])]
    model = graph(nodes, *ends, {"a": [1, 2, 3], "z": [0, 0, 0]})
    with pytest.raises(BuildError, match="the compiler crashed with SIGFPE") as caught:
        build(model)
    # What it said until then is kept: every line was written before the next one came.
    assert "Registering layer" in caught.value.details


def test_all_unsupported_operators_are_listed_with_their_nodes() -> None:
    made = {"a": ("Det", "first", [2]), "b": ("Relu", "fine", [2, 3, 3]), "c": ("Unique", "second", ["k"])}
    nodes = [helper.make_node(op, ["x"], [y], name=name) for y, (op, name, _) in made.items()]
    outputs = [(y, TensorProto.FLOAT, shape) for y, (*_, shape) in made.items()]
    model = graph(nodes, [("x", TensorProto.FLOAT, [2, 3, 3])], outputs, {})
    with pytest.raises(BuildError, match=r'2 nodes: "first".*Det.*"second".*Unique') as caught:
        build(model)
    assert "fine" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(seconds=0.5), r"finished after 0\.5"), (Limits(memory=40 << 20), "GiB of memory, and")],
    ids=["time", "memory"],
)
def test_a_build_past_a_limit_is_ended_with_the_limit_in_the_message(limits: Limits, words: str) -> None:
    with pytest.raises(BuildError, match=words):
        build(chain(3000), limits=limits)


@pytest.mark.slow
def test_cancelling_ends_the_compiler_at_once() -> None:
    class Stop(Silent):
        def phase(self, name: str, total: int | None = None) -> None:
            if name == "Compiling":
                threading.Timer(0.1, self.cancel).start()

    with pytest.raises(Cancelled) as caught:
        build(chain(3000), progress=Stop())
    # The end of the log is kept: what it was at when it was stopped.
    assert len(caught.value.details.splitlines()) > 100


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_build_ends_with_the_process_that_asked_for_it() -> None:
    script = (
        "import os, sys, threading; sys.path[:0] = sys.argv[1:]\n"
        "from test_tensorrt_rtx import chain, build\n"
        "from rtlab.core.progress import Silent\n"
        "class Tell(Silent):\n"
        "    def phase(self, name, total=None):\n"
        "        if name == 'Compiling':\n"
        "            print(*[c.pid for c in __import__('psutil').Process().children()], flush=True)\n"
        "            os._exit(0)\n"
        "build(chain(3000), progress=Tell())\n"
    )
    # Where this file lies, and what it imports.
    homes = [str(home) for home in Path(__file__).parents[:2]]
    out = subprocess.run([sys.executable, "-c", script, *homes], check=True, capture_output=True, text=True)
    children = [int(pid) for pid in out.stdout.split()]
    assert children
    gone = [psutil.Process(p) for p in children if psutil.pid_exists(p)]
    assert [] == psutil.wait_procs(gone, timeout=30)[1]


@pytest.mark.slow
def test_two_profiles_are_two_programs_and_the_first_is_shown() -> None:
    """Each profile is compiled by itself; a layer in both would count twice."""
    model = tiny_model()
    small, large = ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)), ((4, 3, 8, 8), (8, 3, 8, 8), (16, 3, 8, 8))
    engine = build(model, profiles=[{"x": small}, {"x": large}])
    listed = verbose.parse(engine.log).layers
    assert engine.layers == listed
    assert ((("x", small),), (("x", large),)) == engine.profiles
    assert (-1, 3, 8, 8) == engine.inputs[0].shape
    mapping = relate(model, model, engine)
    assert {n.id for n in model.nodes} == {p.node for p in mapping.pairs} | {m.node for m in mapping.missing}


def test_options_reach_the_builder() -> None:
    with pytest.raises(BuildError, match="no tactics to implement the operation within workspace limit"):
        build(tiny_model(), pools={"WORKSPACE": 1 << 20})
    with pytest.raises(VariantError, match=r"does not take builder_optimization_level=9: it keeps 5"):
        build(tiny_model(), builder_optimization_level=9)
    assert build(tiny_model(), builder_optimization_level=0, tiling_optimization_level="FAST").layers


@pytest.mark.slow
@pytest.mark.skipif(driver.device() is not None, reason="the engine can be loaded here")
def test_an_engine_that_cannot_be_loaded_is_shown_as_the_log_lists_it() -> None:
    """As with a driver too old; that inner values can be read later leaves the program as it was."""

    class WithGpu(TensorRTRTX):
        @property
        def device(self) -> driver.Device:
            return driver.Device("Card", 86, "12.9")

    backend = WithGpu()
    assert backend.capabilities().runs
    engine = backend.build(BuildRequest(tiny_model(), Variant.of("fp32", target="sm86")), Silent())
    assert build(tiny_model()).layers == engine.layers
    assert engine.plan
    assert 1 == len(engine.notes)
    assert 'not loaded: Backend "tensorrt-rtx" cannot load "fp32": no NVIDIA driver' in engine.notes[0]


def test_an_empty_profile_has_the_shapes_of_the_model() -> None:
    one = (1, 3, 8, 8)
    assert ((("x", (one, one, one)),),) == build(tiny_model(), profiles=[{}]).profiles
