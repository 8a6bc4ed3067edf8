"""Verbose logs of the corpus, each in the grammar of a version of TensorRT, and the network that the oldest is of."""

from __future__ import annotations

from pathlib import Path

from onnx import NodeProto, helper

from nets import wired
from rtlab.core.model import Model

LOGS = Path(__file__).parent / "corpus" / "logs"
#: TensorRT 5 on an inception network; TensorRT 10 with regions, a timing cache and three strategies; 2:4 sparsity.
INCEPTION, REGIONS, SPARSE = (
    LOGS / f"{n}.log" for n in ("inception-trt5", "regions-trt10", "sparsity-trt10")
)
#: Regions of ``REGIONS``, and the nodes that its parser tells of.
CONV, REST = "{ForeignNode[conv...act]}", "{ForeignNode[fc.bias + ONNXTRT_Broadcast...best]}"
DIGIT = ("conv", "act", "pool", "view", "fc", "act_1", "fc_1", "soft", "best")


def inception() -> Model:
    nodes: list[NodeProto] = []

    def add(op: str, name: str, *reads: str) -> str:
        axis = {"axis": 1} if op == "Concat" else {}
        nodes.append(helper.make_node(op, list(reads), [f"{name}:0"], name, **axis))
        return f"{name}:0"

    def conv(name: str, value: str) -> str:
        scope, _, last = name.rpartition("/")
        return add("Relu", f"{scope}/relu_{last}", add("Neg", name, value))

    x = add("Neg", "stem/pool", add("Relu", "stem/relu", add("Neg", "stem/conv", "x")))
    deep = [conv(f"mix1/{n}", conv(f"mix1/{n}_reduce", x)) for n in "bc"]
    x = add("Concat", "mix1/join", conv("mix1/a", x), *deep, conv("mix1/d", add("Neg", "mix1/pool", x)))
    branches = conv("mix2/a", x), conv("mix2/b", conv("mix2/b_reduce", x)), add("Neg", "mix2/pool", x)
    x = add("Neg", "head/pool", add("Concat", "mix2/join", *branches))
    return wired(nodes, add("Softmax", "prob", add("Neg", "head/fc", x)))
