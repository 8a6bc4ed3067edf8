"""Laws of replaying builds: on random graphs and logs that are right about them, the truth of their author is found."""

from __future__ import annotations

import dataclasses

import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nets import graph_proto
from rtlab.analyses.build.replay import COPY, rebuild_layers, replay_decisions
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.model import Model, wrap

#: What stands before a message, and how the two releases spell what they do.
_RELEASES = {5: "[I] [TRT] ", 10: "[07/07/2026-02:11:00] [V] [TRT] "}


@dataclasses.dataclass
class Layer:
    """A layer of the author's own compiler."""

    name: str
    nodes: list[str]
    outputs: list[str]


class Compiler:
    """Fuses, merges and eliminates what it may, writes what TensorRT would, and keeps the truth.

    It knows the graph by its own tables, not by rtlab's.
    """

    def __init__(self, draw, release: int, nodes: list[onnx.NodeProto]) -> None:
        self.draw, self.release = draw, release
        self.nodes = {n.name: n for n in nodes}
        self.layers = [Layer(n.name, [n.name], list(n.output)) for n in nodes]
        self.readers = {o: [n.name for n in nodes if o in n.input] for m in nodes for o in m.output}
        self.lines: list[str] = []
        self.truth: list[set[frozenset[str]]] = [set()]
        self.gone: dict[str, set[str]] = {}
        self.copies = 0

    def say(self, message: str, *, decides: bool = True) -> None:
        self.lines.append(_RELEASES[self.release] + message)
        if decides:
            groups = {frozenset(y.nodes) for y in self.layers if len(y.nodes) > 1}
            self.truth.append(groups)

    def count(self, name: str) -> None:
        self.say(f"{name}: {len(self.layers) + self.copies} layers", decides=False)

    def reads(self, layer: Layer) -> set[str]:
        inside = {o for n in layer.nodes for o in self.nodes[n].output}
        return {i for n in layer.nodes for i in self.nodes[n].input} - inside

    def computes(self, layer: Layer) -> bool:
        return not any(self.nodes[n].op_type == "Concat" for n in layer.nodes)

    def fuse(self) -> bool:
        """A layer into the only one that reads it."""
        pairs = [
            (a, b)
            for a in self.layers
            for b in self.layers
            if a is not b and self.computes(a) and self.computes(b)
            if all(self.readers[o] and {*self.readers[o]} <= {*a.nodes, *b.nodes} for o in a.outputs)
            and any(r in b.nodes for o in a.outputs for r in self.readers[o])
        ]
        if not pairs:
            return False
        a, b = self.draw(st.sampled_from(pairs))
        self.layers.remove(a)
        names = a.name, b.name
        b.name, b.nodes, b.outputs = f"{a.name} + {b.name}", a.nodes + b.nodes, a.outputs + b.outputs
        if self.release == 5:
            self.say("Fusing {} with {}".format(*names))
        else:
            self.say(f"Running: SomeFusion on {names[0]}", decides=False)
            self.say("SomeFusion: Fusing {} with {}".format(*names))
        return True

    def merge(self) -> bool:
        """Two or three layers that read the same."""
        alike = [
            [b for b in self.layers if self.computes(b) and self.reads(b) == self.reads(a)][:3]
            for a in self.layers
            if self.computes(a)
        ]
        alike = [found for found in alike if len(found) > 1]
        if not alike:
            return False
        found = self.draw(st.sampled_from(alike))
        name = " || ".join(y.name for y in found)
        merged = Layer(name, [n for y in found for n in y.nodes], [o for y in found for o in y.outputs])
        self.layers[self.layers.index(found[0])] = merged
        for layer in found[1:]:
            self.layers.remove(layer)
        self.say(f"Merging layers: {name}")
        return True

    def eliminate(self) -> bool:
        """A concatenation, into whose output its inputs are written, some of them through a copy."""
        concats = [y for y in self.layers if not self.computes(y)]
        if not concats:
            return False
        layer = self.draw(st.sampled_from(concats))
        self.layers.remove(layer)
        word = "contatenation" if self.release == 5 else "concatenation"
        self.say(f"Eliminating {word} {layer.name}")
        copied: set[str] = set()
        for value in dict.fromkeys(self.nodes[layer.name].input):
            if value == "x" or self.draw(st.booleans()):
                copied.add(value)
                self.copies += 1
                why = "" if self.release == 5 else " because input is not movable."
                self.say(f"Generating copy for {value} to {layer.name}{why}")
            else:
                self.say(f"Retargeting {value} to {layer.name}")
        self.gone[layer.name] = copied
        return True


_WORDS = st.text("ab/._01", min_size=1, max_size=5)


@st.composite
def built(draw) -> tuple[Model, Compiler, str]:
    """A model, what a compiler did to it, and the log of that."""
    names = draw(
        st.lists(_WORDS, min_size=2, max_size=12, unique_by=lambda n: n.strip("/._").replace("/", "_"))
    )
    values, nodes = ["x"], []
    for i, name in enumerate(names):
        op = draw(st.sampled_from(("Neg", "Relu", "Add", "Concat")))
        # Names of layers and of values must not be the same words.
        count = {"Add": 2, "Concat": draw(st.integers(1, 3))}.get(op, 1)
        reads = [draw(st.sampled_from(values)) for _ in range(count)]
        more = {"axis": 0} if op == "Concat" else {}
        nodes.append(helper.make_node(op, reads, [f"t{i}"], f"n{i}{name}", **more))
        values.append(f"t{i}")
    read = {i for n in nodes for i in n.input}
    ends = [o for n in nodes for o in n.output if o not in read]

    proto = graph_proto(
        nodes, [("x", TensorProto.FLOAT, None)], [(o, TensorProto.FLOAT, None) for o in ends], {}
    )
    compiler = Compiler(draw, draw(st.sampled_from((5, 10))), nodes)
    compiler.count("Original")
    for title, action in (
        ("After vertical fusions", compiler.fuse),
        ("After tensor merging", compiler.merge),
        ("After concat removal", compiler.eliminate),
    ):
        for _ in range(draw(st.integers(0, 6))):
            if not action():
                break
        compiler.count(title)
    return wrap(proto, name="drawn"), compiler, "\n".join(compiler.lines) + "\n"


@given(built())
def test_the_groups_after_each_step_are_what_the_compiler_made(drawn) -> None:
    model, compiler, log = drawn
    played = replay_decisions(parse(log).log, model)
    assert len(compiler.truth) == len(played.steps) + 1
    for k, truth in enumerate(compiler.truth):
        groups = played.get_groups(k)
        assert truth == {frozenset(g) for g in groups}
        assert len(groups) == len(truth)


@given(built())
def test_layers_that_are_rebuilt_part_the_nodes_as_the_compiler_did(drawn) -> None:
    model, compiler, log = drawn
    layers = rebuild_layers(replay_decisions(parse(log).log, model), model)
    if len(compiler.truth) == 1:
        assert () == layers
        return
    computing = [y for y in layers if y.kind != COPY]
    assert {frozenset(y.nodes) for y in compiler.layers} == {frozenset(y.origins) for y in computing}
    assert len(compiler.layers) == len(computing)
    assert sorted(y.name for y in compiler.layers) == sorted(y.name for y in computing)
    copied = sorted((y.origins, y.inputs[0].name) for y in layers if y.kind == COPY)
    assert sorted(((c,), v) for c, values in compiler.gone.items() for v in values) == copied
