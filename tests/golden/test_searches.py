"""What searches find that build and run: small models, a small budget, and times that are invented."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import onnx
import pytest
from onnx import helper

import rtlab
import scenes
from answers import refusable, without
from nets import fp32_proto
from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.variants.variations import list_variations
from rtlab.backends.bench import OrtBench
from rtlab.core.engine import Engine
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.quantize.existing_qdq import find_quantized_nodes
from rtlab.testing import tiny_model
from ruled import Ruled
from snapshots import plain

#: Fields that say when and how long, and how often somebody had the time to look.
WHEN = frozenset({"seconds", "asked", "taken", "recalled", "versions", "cost_x_plain"})
Search = Callable[[rtlab.Study], Any]


@functools.cache
def study(name: str) -> rtlab.Study:
    if name == "ruled":
        made = rtlab.Study(chain())
        for backend in (Older(), Newer()):
            made.add(backend.name, backend=backend)
        return made.run(compare=False)
    if name == "rtx":
        made = rtlab.Study(tiny_model(batch=1))
        for precision in ("fp32", "fp16"):
            made.add(precision, precision=precision, target="sm89", backend="tensorrt-rtx")
        return made.run(compare=False)
    return scenes.on_cpu(name)


def chain() -> rtlab.Model:
    """Nodes in a row on 1x4x8x8: one value in between is an output, another one has a second reader."""
    ops = ("Sigmoid", "Relu", "Exp", "Add", "Relu", "Tanh", "Add", "Relu")
    nodes = [
        helper.make_node(op, [f"v{i}", *(["v0"] if op == "Add" else [])], [f"v{i + 1}"], name=f"{op}{i}")
        for i, op in enumerate(ops)
    ]
    nodes.append(helper.make_node("Neg", ["v4"], ["aside"], name="Neg"))
    size = [1, 4, 8, 8]
    return rtlab.load(
        fp32_proto(nodes, {"v0": size}, dict.fromkeys(("v3", "v8", "aside"), size), name="chain")
    )


class Newer(Ruled):
    name = "newer"

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        return dataclasses.replace(super().build(request, progress), backend=self.name)


class Older(Newer):
    name = "older"

    def _makers(self, model: Any, node: str) -> list[str]:
        alone = model.by_id[node].op in {"Add", "BatchNormalization"}
        return [] if alone else super()._makers(model, node)


class Timed:
    """A session whose runs take as long as its operators have letters, and less with more threads."""

    def __init__(self, real: Any, model: bytes, threads: int) -> None:
        self.real, self.outputs = real, real.outputs
        graph = onnx.load_from_string(model).graph
        self.milliseconds = 0.01 * sum(len(n.op_type) for n in graph.node) / (1 + 0.5 * (threads - 1))

    def time(self, repeats: int = 1) -> float:
        return self.milliseconds


@contextlib.contextmanager
def timeless() -> Iterator[None]:
    real = OrtBench.open

    def opened(self: OrtBench, model: bytes, batch: Any, threads: int) -> Timed:
        return Timed(real(self, model, batch, threads), model, threads)

    cpu_name = mock.patch("rtlab.backends.bench.get_cpu_name", return_value="invented")
    with scenes.timeless(), cpu_name, mock.patch.object(OrtBench, "open", opened):
        yield


def sensitivity(**how: Any) -> Search:
    return lambda made: made.accuracy.sensitivity("int8", budget_s=600, **how)


def channels(value: str) -> Search:
    return lambda made: made.accuracy.channels("int8", value)


def ask(search: Search, question: str, variant: str = "int8", baseline: str = "fp32") -> Search:
    def both(made: rtlab.Study) -> Any:
        found, answer = search(made), made.ask(question, variant=variant, baseline=baseline).result
        context = PanelContext(made.state, made[variant].facts, made[baseline].facts, {})
        told = {"answer": answer, "panel": panels.render_panel(question, context)}
        return told if found is answer else {"made": found, **told}

    return both


def checked(made: rtlab.Study) -> Any:
    first = made.accuracy.check("fp32")
    every = ("fusion", "precision", "findings")
    limits = {"max_drop": 0.1, "max_latency_regression": 5.0, "fail_on": every}
    return {
        "first": first,
        "record": json.loads(first.record.text()),
        "same": made.accuracy.check("fp32", against=first.record, **limits),
        "other": made.accuracy.check("int8", against=first.record, **limits, sure=True),
    }


def why(*nodes: str, variant: str = "newer") -> Search:
    return lambda made: made.fusion.why(*nodes, variant=variant, seconds=600, builds=30, again=True)


def bisect(made: rtlab.Study) -> Any:
    return made.fusion.bisect("older", "newer", seconds=600)


def varied(made: rtlab.Study) -> Any:
    state, nodes = made.state, find_quantized_nodes(made.model)
    return {n: list_variations(n, v, state.results.get(n), nodes) for n, v in state.variants.items()}


def repair(made: rtlab.Study) -> Any:
    return {f"{drop}": made.accuracy.repair("int8", drop, runs=12, budget_s=600) for drop in (0.5, 40.0)}


def treated(made: rtlab.Study) -> Any:
    made.accuracy.diagnose("int8")
    name = made.calibration.transform("int8", as_="treated")
    return {"name": name, "variant": str(made.state.variants[name])}


SEARCHES: Mapping[str, tuple[str, Search]] = {
    f"{name} {what}": (name, search)
    for name, searches in {
        "two_outputs": {
            "only node": ask(sensitivity(), "sensitivity"),
            "only quantizer": sensitivity(by="quantizer", verify=None),
            "released node": sensitivity(asks="released", verify=0),
            "released quantizer": sensitivity(asks="released", by="quantizer"),
            "diagnosis": ask(lambda made: made.accuracy.diagnose("int8"), "diagnosis"),
            "channels": ask(channels("relu"), "channels"),
            "rank": lambda made: made.calibration.rank(("minmax", "entropy", "percentile(99)")),
            "sweep": ask(lambda made: made.tuning.batch_sizes("int8", (1, 2, 8)), "batches"),
            "tune": lambda made: made.tuning.tune(budget_s=60, threads=(1, 2)),
            "varied": varied,
            "check": checked,
        },
        "digits_outlier": {
            "only node": sensitivity(),
            "diagnosis": ask(lambda made: made.accuracy.diagnose("int8"), "diagnosis"),
            "channels": ask(channels("/blocks/3/pointwise/Relu"), "channels"), "repair": ask(repair, "repair"),
            "treated": treated, "rank": lambda made: made.calibration.rank(("minmax", "percentile", "mse")),
        },
        "digits_gru": {
            "only quantizer": sensitivity(by="quantizer"),
            "check": checked,
            "sweep": ask(lambda made: made.tuning.batch_sizes("fp32", (1, 4)), "batches", "fp32"),
        },
        "rtx": {
            "why apart": why("right/Conv", "join/Concat", variant="fp32"),
            "why step": why("stem/Conv", variant="fp16"),
        },
        "ruled": {
            "why output": why("Exp2", "Add3"),
            "why reader": why("Add3", "Relu4"),
            "why not found": why("Relu1", "Exp2"),
            "why step": why("Relu7"),
            "advise": ask(lambda made: made.fusion.advise("newer", seconds=600), "why", "newer", "older"),
            "bisect": ask(bisect, "bisection", "newer", "older"),
        },
    }.items()
    for what, search in searches.items()
}  # fmt: skip


@pytest.mark.parametrize(
    "search", [pytest.param(k, marks=pytest.mark.xdist_group(name)) for k, (name, _) in SEARCHES.items()]
)
def test_searches_find_what_the_file_says(search: str, golden: Any) -> None:
    name, look = SEARCHES[search]
    made = study(name)
    with timeless():
        found = refusable(lambda: look(made))
    golden(
        f"searches/{search.replace(' ', '-')}.json", {"found": without(plain(found), WHEN)}, rel=1e-2, least=1e-7,
    )  # fmt: skip
