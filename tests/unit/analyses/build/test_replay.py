"""Builds replayed on models: which nodes a decision joined."""

from __future__ import annotations

import dataclasses
import re

import pytest

from build_logs import CONV, DIGIT, INCEPTION, REGIONS, REST, inception
from nets import chain
from rtlab.analyses.build.replay import Replay, replay_decisions
from rtlab.backends.compiler_info import TENSORRT
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.engine import Engine, Layer
from rtlab.core.variant import Target
from rtlab.relation.mapping import Mapping, Pair


def played(text: str, *nodes: str, engine: Engine | None = None, mapping: Mapping | None = None) -> Replay:
    log = parse(f"Original: 9 layers\n{text}\nAfter all: 3 layers\n").log
    return replay_decisions(log, chain(*nodes), engine, mapping)


def engine(*names: str) -> Engine:
    layers = tuple(Layer(f"{i}:{n}", n, "x", i) for i, n in enumerate(names))
    return Engine("trtexec", "8.6", Target("unknown"), layers, maker=TENSORRT)


def test_every_decision_of_an_inception_network_finds_its_nodes() -> None:
    """10 pairs; a merge of three pairs and one of two; concatenations with three and two tensors moved, one copied."""
    found = replay_decisions(parse(INCEPTION).log, inception())
    assert (21, 21) == found.coverage
    actions = ("fuse", "merge", "copy", "retarget")
    fuse, merge, copy, retarget = ([s for s in found.steps if s.decision.action == a] for a in actions)
    assert (("stem/conv", "stem/relu"), True) == (fuse[0].nodes, fuse[0].joins)
    assert ([6, 4], [7, 5]) == ([len(s.nodes) for s in merge], [len(s.nodes) for s in copy])
    assert not any(s.joins for s in copy + retarget)
    assert ("mix1/b", "mix1/join") == retarget[0].nodes
    other = replay_decisions(parse(INCEPTION).log, chain("other"))
    assert ((0, 21), ()) == (other.coverage, other.get_groups(21))


def test_groups_at_any_step_are_those_of_an_own_reading() -> None:
    net, found = inception(), replay_decisions(parse(INCEPTION).log, inception())
    ids = {n.id for n in net.nodes}
    truth: list[set[frozenset[str]]] = [set()]
    for line in INCEPTION.read_text().splitlines():
        if not re.search(r"Fusing|Merging|Eliminating|Retargeting|Generating copy", line):
            continue
        groups = truth[-1]
        if joined := re.search(r"(?:Fusing|Merging layers:) (.*)", line):
            words = frozenset(re.split(r" with | \|\| | \+ ", joined[1]))
            assert words <= ids
            groups = {g for g in groups if not g & words} | {words}
        truth.append(groups)
    assert truth == [{frozenset(g) for g in found.get_groups(k)} for k in range(len(found.steps) + 1)]
    assert [2] * 5 + [4, 6] == sorted(len(group) for group in truth[-1])


def test_the_parser_s_names_of_layers_lead_to_the_right_node() -> None:
    """The layer "fc_1" belongs to the node "fc", though another node bears its name; labels tell a region's nodes."""
    parsed = parse(REGIONS)
    first = replay_decisions(dataclasses.replace(parsed.log, chosen=0), chain(*DIGIT))
    assert [("fc", "act_1")] == [s.nodes for s in first.steps if s.decision.rule == "EltReluFusion"]
    engine = Engine("trtexec", "10.16", Target("sm90"), parsed.layers, maker=TENSORRT)
    found = replay_decisions(parsed.log, chain(*DIGIT), engine)
    rest = ("view", "fc", "act_1", "fc_1", "soft", "best")
    assert [
        ("ConstShuffleFusion", (), False, ""),
        ("ShuffleErasure", (), False, ""),
        ("Myelin", ("conv", "act"), True, f"0:{CONV}"),
        ("Myelin", rest, True, f"3:{REST}"),
        ("reformat", rest, False, f"2:Reformatting CopyNode for Input Tensor 0 to {REST}"),
    ] == [(s.decision.rule, s.nodes, s.joins, s.layer) for s in found.steps]
    assert (3, 5) == found.coverage


def test_names_resolve_through_layers_that_were_made_before() -> None:
    found = played(
        "Fusing a with b\nSwap the layer type of c from ACTIVATION to POINTWISE\nQ: Fusing a + b with PWN(c)\n"
        "Running: EFusion on d\nRemoving e\nMerging layers: a + b + PWN(c) || d",
        *"abcde",
    )
    assert ["ab", "c", "abc", "de", "abcde"] == ["".join(s.nodes) for s in found.steps]
    assert (tuple("abc"),) == found.get_groups(3)
    assert (tuple("abc"), tuple("de")) == found.get_groups(4)
    assert (tuple("abcde"),) == found.get_groups(5)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("a", ("a",)), ("a_out", ("a",)), ("node_of_a_out", ("a",)), ("w + a + b", ("a", "b")),
        ("PWN(PWN(a), b)", ("a", "b")), ("a || b + c.d", ("a", "b", "c.d")), ("c_d", ("c.d",)),
        ("{ForeignNode[a...b]}", ("a", "b")), ("{ForeignNode[a]}", ("a",)), ("a_clone_0", ("a",)), ("a copy", ("a",)),
        ("Reformatting CopyNode for Input Tensor 0 to a + b", ("a", "b")), ("(Unnamed Layer* 7) [Shuffle]", ()),
        ("e + f", ("e + f",)), ("PWN(c.d, PWN(a, b))", ("c.d", "a", "b")), ("PWN(" * 5000, ()),
        ("PWN(" * 5000 + "a" + ")" * 5000, ()),
    ],
)  # fmt: skip
def test_the_grammar_of_names_is_the_last_resort(name: str, nodes: tuple[str, ...]) -> None:
    (step,) = played(f"Removing {name}", "a", "b", "c.d", "e + f").steps
    assert nodes == step.nodes


def test_a_result_is_found_in_the_engine_under_its_last_name() -> None:
    text = "Fusing a with b\nFusing a + b with c\nRetargeting d_out to e"
    found = played(text, *"abcde", engine=engine("a + b + c", "d"))
    assert ["0:a + b + c", "0:a + b + c", ""] == [s.layer for s in found.steps]
    mapping = Mapping((Pair("d", "1:d", "declared"), Pair("e", "1:d", "declared")), ())
    found = played(text, *"abcde", engine=engine("a + b + c", "d"), mapping=mapping)
    assert "1:d" == found.steps[-1].layer
    assert {""} == {s.layer for s in played(text, *"abcde", mapping=mapping).steps}


def test_groups_never_overlap() -> None:
    """A log may name a node whose layer has another name by then."""
    found = played("Fusing a with b\nFusing b with c", *"abc")
    assert [{"a", "b", "c"}] == [set(g) for g in found.get_groups(2)]
