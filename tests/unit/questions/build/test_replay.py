"""Builds replayed on models: which nodes a decision joined, and how many layers are left after each."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import helper

from nets import chain, wired
from rtlab.backends.log.verbose import parse
from rtlab.backends.makers import TENSORRT
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.variant import Target
from rtlab.questions.build.replay import Replay, replay
from rtlab.questions.build.tactics import contests
from rtlab.relation.mapping import Mapping, Pair

# Recordings live beside the checkout, not in it.
LOGS = Path(__file__).parents[5] / "shared" / "recorded" / "build-logs"
GOOGLENET = LOGS / "googlenet-caffe-trt5.1-fp32.log"
MNIST = LOGS / "mnist-trt10.16-h100-level5.log"
SPARSE = LOGS / "sparsity-trt10.16-h100.log"
recorded = pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/recorded beside the checkout")


def inception() -> Model:
    """The graph of GoogLeNet in the names that Caffe gave, which the recorded log uses; all operators are tame."""
    nodes: list[onnx.NodeProto] = []

    def add(op: str, name: str, *reads: str) -> str:
        nodes.append(
            helper.make_node(op, list(reads), [f"{name}:0"], name, **({"axis": 1} if op == "Concat" else {}))
        )
        return f"{name}:0"

    def conv(name: str, value: str) -> str:
        """A convolution and its activation, which stand for any operators here."""
        scope, _, last = name.rpartition("/")
        return add("Relu", f"{scope}/relu_{last.removesuffix('_s2')}", add("Neg", name, value))

    x = add("Neg", "pool1/norm1", add("Neg", "pool1/3x3_s2", conv("conv1/7x7_s2", "x")))
    x = conv("conv2/3x3", conv("conv2/3x3_reduce", x))
    x = add("Neg", "pool2/3x3_s2", add("Neg", "conv2/norm2", x))
    for block in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        at = f"inception_{block}"
        if block in {"4a", "5a"}:
            x = add("Neg", f"pool{int(block[0]) - 1}/3x3_s2", x)
        branches = (
            conv(f"{at}/1x1", x),
            conv(f"{at}/3x3", conv(f"{at}/3x3_reduce", x)),
            conv(f"{at}/5x5", conv(f"{at}/5x5_reduce", x)),
            conv(f"{at}/pool_proj", add("Neg", f"{at}/pool", x)),
        )
        x = add("Concat", f"{at}/output", *branches)
    x = add("Softmax", "prob", add("Neg", "loss3/classifier", add("Neg", "pool5/7x7_s1", x)))
    return wired(nodes, x)


def played(text: str, *nodes: str, engine: Engine | None = None, mapping: Mapping | None = None) -> Replay:
    log = parse(f"Original: 9 layers\n{text}\nAfter all: 3 layers\n").log
    return replay(log, chain(*nodes), engine, mapping)


def engine(*names: str) -> Engine:
    layers = tuple(Layer(f"{i}:{n}", n, "x", i) for i, n in enumerate(names))
    return Engine("trtexec", "8.6", Target("unknown"), layers, maker=TENSORRT)


@recorded
def test_every_decision_of_googlenet_finds_its_nodes() -> None:
    """57 pairs, 9 merges of three pairs, 9 concatenations with three tensors moved and one copied."""
    net = inception()
    assert 141 == len(net.nodes)
    found = replay(parse(GOOGLENET).log, net)
    steps = 57 + 9 + 9 * 5
    assert (steps, steps) == found.coverage
    assert [found.count(k) for k in (0, 57, 66, steps)] == [141, 84, 66, 66]
    by_action = {
        a: [s for s in found.steps if s.decision.action == a] for a in ("fuse", "merge", "copy", "retarget")
    }
    assert [("conv1/7x7_s2", "conv1/relu_7x7"), True] == [
        by_action["fuse"][0].nodes,
        by_action["fuse"][0].joins,
    ]
    assert {6} == {len(s.nodes) for s in by_action["merge"]}
    assert {7} == {len(s.nodes) for s in by_action["copy"]}
    assert not any(s.joins for s in by_action["copy"] + by_action["retarget"])
    assert ("inception_3a/3x3", "inception_3a/output") == by_action["retarget"][0].nodes


@recorded
def test_groups_grow_from_pairs_to_merged_layers() -> None:
    """A group stands for one layer, so nodes less what groups save is the number of layers."""
    net = inception()
    found = replay(parse(GOOGLENET).log, net)
    assert () == found.groups(0)
    assert [("conv1/7x7_s2", "conv1/relu_7x7")] == list(found.groups(1))
    for k in range(67):
        saved = sum(len(group) - 1 for group in found.groups(k))
        assert found.count(k) == len(net.nodes) - saved
    sizes = sorted(len(group) for group in found.groups(len(found.steps)))
    assert [2] * 30 + [6] * 9 == sizes


@recorded
def test_groups_at_any_step_are_those_of_an_own_reading() -> None:
    """By the log's sentences alone: a name is the set of words between its signs, and sets that meet are one."""
    net, found = inception(), replay(parse(GOOGLENET).log, inception())
    ids = {n.id for n in net.nodes}
    truth: list[set[frozenset[str]]] = [set()]
    for line in GOOGLENET.read_text().splitlines():
        if not re.search(r"Fusing|Merging|Eliminating|Retargeting|Generating copy", line):
            continue
        groups = truth[-1]
        if joined := re.search(r"(?:Fusing|Merging layers:) (.*)", line):
            words = frozenset(re.split(r" with | \|\| | \+ ", joined[1]))
            assert words <= ids
            groups = {g for g in groups if not g & words} | {words}
        truth.append(groups)
    assert len(truth) == len(found.steps) + 1 == 112
    for k in (0, 1, 2, 30, 57, 58, 65, 66, 67, 90, 111):
        assert truth[k] == {frozenset(g) for g in found.groups(k)}


@recorded
def test_counts_inside_a_pass_follow_from_its_steps() -> None:
    """Each concatenation that goes is made up by a copy, so the pass ends where it began."""
    found = replay(parse(GOOGLENET).log, chain("other"))
    counts = [found.count(k) for k in range(67, 112)]
    assert {65, 66} == set(counts)
    assert 66 == counts[-1]
    assert (0, 111) == found.coverage
    assert () == found.groups(111)


@recorded
def test_the_parser_s_names_of_layers_lead_to_the_right_node() -> None:
    """In this log the layer "node_linear_1" belongs to the node "node_linear", though another node bears its name."""
    names = re.findall(r"Parsing node: (\w+) ", SPARSE.read_text())
    log = parse(MNIST).log
    net = chain(*names)
    first = replay(log_of(log, 0), net)
    fused = next(s for s in first.steps if s.decision.rule == "EltReluFusion")
    assert ("node_linear_1", "node_relu_2") == fused.decision.names
    assert ("node_linear", "node_relu_2") == fused.nodes
    # A region of its own compiler tells the nodes in it.
    chosen = replay(log, net, *_engine_of(MNIST))
    region = next(s for s in chosen.steps if s.decision.rule == "Myelin")
    assert (("node_conv2d", "node_relu"), True) == (region.nodes, region.joins)
    assert "0:{ForeignNode[node_conv2d...node_relu]}" == region.layer
    moved = next(s for s in chosen.steps if s.decision.rule == "reformat")
    assert moved.layer.startswith("2:Reformatting CopyNode")
    assert [24, 6] == [chosen.count(0), chosen.count(len(chosen.steps))]


def log_of(log: BuildLog, attempt: int) -> BuildLog:
    import dataclasses

    return dataclasses.replace(log, chosen=attempt)


def _engine_of(path: Path) -> tuple[Engine]:
    parsed = parse(path)
    return (Engine("trtexec", "10.16", Target("sm90"), parsed.layers, maker=TENSORRT),)


def test_counts_that_do_not_add_up_are_not_told() -> None:
    """A pass that also does what the log does not say must not show invented numbers."""
    log = parse(
        "Original: 9 layers\nFusing a with b\nFusing c with d\nAfter x: 3 layers\nAfter y: 2 layers\n"
    ).log
    found = replay(log, chain("a", "b"))
    assert [9, None, 2] == [found.count(k) for k in range(3)]


def test_names_resolve_through_layers_that_were_made_before() -> None:
    """The layer "a + b" holds the nodes of a and b, and keeps them under later names."""
    found = played(
        "Fusing a with b\nSwap the layer type of c from ACTIVATION to POINTWISE\nQ: Fusing a + b with PWN(c)\n"
        "Running: EFusion on d\nRemoving e\nMerging layers: a + b + PWN(c) || d",
        *"abcde",
    )
    assert [("a", "b"), ("c",), ("a", "b", "c"), ("d", "e"), ("a", "b", "c", "d", "e")] == [
        s.nodes for s in found.steps
    ]
    assert (tuple("abc"),) == found.groups(3)
    assert (tuple("abc"), tuple("de")) == found.groups(4)
    assert (tuple("abcde"),) == found.groups(5)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("a", ("a",)),
        ("a_out", ("a",)),
        ("node_of_a_out", ("a",)),
        ("w + a + b", ("a", "b")),
        ("PWN(PWN(a), b)", ("a", "b")),
        ("a || b + c.d", ("a", "b", "c.d")),
        ("c_d", ("c.d",)),
        ("{ForeignNode[a...b]}", ("a", "b")),
        ("{ForeignNode[a]}", ("a",)),
        ("Reformatting CopyNode for Input Tensor 0 to a + b", ("a", "b")),
        ("a_clone_0", ("a",)),
        ("a copy", ("a",)),
        ("(Unnamed Layer* 7) [Shuffle]", ()),
        ("e + f", ("e + f",)),
        ("PWN(c.d, PWN(a, b))", ("c.d", "a", "b")),
        ("PWN(" * 5000, ()),
        ("PWN(" * 5000 + "a" + ")" * 5000, ()),
    ],
)
def test_the_grammar_of_names_is_the_last_resort(name: str, nodes: tuple[str, ...]) -> None:
    """Logs use names that no decision told of, made of names that the model has."""
    (step,) = played(f"Removing {name}", "a", "b", "c.d", "e + f").steps
    assert nodes == step.nodes


def test_groups_never_overlap() -> None:
    """A log may name a node whose layer has another name by then."""
    found = played("Fusing a with b\nFusing b with c", *"abc")
    assert [{"a", "b", "c"}] == [set(g) for g in found.groups(2)]


def test_a_result_is_found_in_the_engine_under_its_last_name() -> None:
    """A layer is fused again and again; only the last name is in the engine."""
    text = "Fusing a with b\nFusing a + b with c\nRetargeting d_out to e"
    found = played(text, *"abcde", engine=engine("a + b + c", "d"))
    assert ["0:a + b + c", "0:a + b + c", ""] == [s.layer for s in found.steps]
    mapping = Mapping((Pair("d", "1:d", "declared"), Pair("e", "1:d", "declared")), ())
    found = played(text, *"abcde", engine=engine("a + b + c", "d"), mapping=mapping)
    assert "1:d" == found.steps[-1].layer
    assert {""} == {s.layer for s in played(text, *"abcde", mapping=mapping).steps}


def test_a_log_without_attempts_has_nothing_to_replay() -> None:
    """TensorRT-RTX tells layers, but no passes."""
    found = replay(BuildLog(), chain("a"))
    assert ((), (0, 0), None, ()) == (found.steps, found.coverage, found.count(3), found.groups(3))


@recorded
@pytest.mark.parametrize("path", [MNIST, SPARSE], ids=["mnist", "sparse"])
def test_the_winner_of_a_contest_is_the_fastest_line_of_its_layer(path: Path) -> None:
    """Times of all attempts count, for a builder does not time a layer twice."""
    fastest: dict[str, float] = {}
    layer = ""
    for line in path.read_text().split("\n"):
        if found := re.search(r"Timing Runner: (.*) \((\w+)\[", line):
            layer = "" if found[2] == "Reformat" else found[1]
        elif (
            layer and "Fastest" not in line and (found := re.search(r"Tactic: 0x\w+ Time: ([\d.e-]+)$", line))
        ):
            fastest[layer] = min(fastest.get(layer, 1e9), float(found[1]))
    found_ = {c.layer: c for c in contests(parse(path).log) if not c.operator}
    assert set(found_) <= set(fastest)
    assert {n: fastest[n] for n in found_} == {n: c.winner.tactic.milliseconds for n, c in found_.items()}
    assert all(c.margin is None or c.margin >= 1 for c in found_.values())
    assert all(1 <= len(c.candidates) <= min(20, c.count) for c in found_.values())


def test_a_contest_counts_every_tactic_once_and_tells_the_margin() -> None:
    """A second profile times the same tactics again, and a cache repeats a winner."""
    section = (
        "*************** Autotuning format combination: Float(1) -> Float(1) ***************\n"
        "--------------- Timing Runner: a (R)\nTactic: 0x1 Time: 0.5\nTactic: 0x2 Time: 0.75\n"
        "Fastest Tactic: 0x1 Time: 0.5\n"
        "--------------- Timing Runner: a (S)\nTactic: 0x1 Time: 0.6\nFastest Tactic: 0x1 Time: 0.6\n"
    )
    cached = "a [Float(1) -> Float(1)] got cached result: R, tactic 0x1, 0.5 ms\n"
    (found,) = contests(parse(f"Original: 1 layers\nAfter x: 1 layers\n{section}{section}{cached}").log)
    assert 3 == found.count
    assert [("R", "0x1"), ("S", "0x1"), ("R", "0x2")] == [
        (c.runner, c.tactic.tactic) for c in found.candidates
    ]
    assert 1.2 == found.margin
    assert not found.winner.cached
    (alone,) = contests(parse(f"Original: 1 layers\nAfter x: 1 layers\n{cached}").log)
    assert (None, 1, True) == (alone.margin, alone.count, alone.winner.cached)
