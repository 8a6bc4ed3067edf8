"""How many bytes cross to the browser, and how long packing and projecting them takes beside plain JSON."""

from __future__ import annotations

import datetime
import functools
import gzip
import json
import time

import numpy as np
import pytest

from rtlab import samples
from rtlab.analyses.cards.picture import Graph
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.facts import Errors, VariantResult
from rtlab.core.model import Model
from rtlab.core.prepared import Prepared
from rtlab.core.trace import Profile
from rtlab.core.variant import Precision, Target, Variant
from rtlab.documents.serialization import encode, to_builtins
from rtlab.web.page.contract import EngineView
from rtlab.web.page.graph import engine_view, source_graph

NODES, SMALL = 10_000, 4_000
#: What both graphs may take together.
BYTES = {NODES: 2_000_000, SMALL: 800_000}
#: Operators that a compiler starts a layer with; what follows joins it.
HEADS = {"Conv", "MatMul", "Gemm", "MaxPool", "Concat", "LayerNormalization", "Softmax", "GlobalAveragePool"}


def engine_of(model: Model, rng: np.random.Generator) -> Engine:
    """Layers as TensorRT fuses and names them, with three exceptions in a hundred nodes and 200 tactics."""
    tactics = [f"0x{i:016x}" for i in rng.integers(2**60, size=200)]
    runs = []
    for node in model.top:
        if not runs or node.op in HEADS or rng.random() < 0.03:
            runs.append([])
        runs[-1].append(node)

    def tensor(name: str) -> Tensor:
        value = model.values[name]
        dtype = "fp16" if value.dtype == "fp32" else value.dtype
        return Tensor(name, dtype, tuple(d if isinstance(d, int) else 1 for d in value.shape or ()), "Linear")

    layers = []
    for i, run in enumerate(runs):
        made = {o for n in run for o in n.outputs}
        reads = dict.fromkeys(v for n in run for v in n.inputs if v and v not in made)
        fixed = [v for v in reads if model.values[v].kind == "constant"]
        name = f"__myl_{''.join(n.op[:4] for n in run)}_myl0_{i}"
        layers.append(
            Layer(
                id=f"{i}:{name}",
                name=name,
                kind="kgen",
                index=i,
                inputs=tuple(tensor(v) for v in reads if v not in fixed),
                outputs=tuple(tensor(o) for n in run for o in n.outputs),
                constants=tuple(map(tensor, fixed)),
                tactic=tactics[rng.integers(200)],
                stream=int(rng.integers(2)),
                origins=tuple(n.id for n in run),
            )
        )
    ends = (tuple(map(tensor, names)) for names in (model.inputs, model.outputs))
    return Engine("tensorrt-rtx", "1.7.1", Target("sm86"), tuple(layers), *ends, maker=TENSORRT_RTX)


@functools.cache
def projected(make: str, nodes: int) -> tuple[Graph, EngineView]:
    """Both sides with every overlay; all readings are random, as no measurement repeats."""
    model, rng = getattr(samples, make)(nodes=nodes), np.random.default_rng(0)
    engine = engine_of(model, rng)
    times = {
        layer.id: rng.lognormal(-4, 1.5) * (1 + 0.05 * rng.standard_normal(30)) for layer in engine.layers
    }
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    profile = Profile("onnxruntime 1.31", "a processor", times, np.full(30, 50.0), 5, now)
    # Squares of 1,000 elements of the reference, of the error, the product, squares of the variant, the largest error.
    sums = {
        o: np.array([1e3, 1e3 / 10 ** rng.normal(3.5, 0.8), 1e3 * (1 - rng.lognormal(-8)), 1e3, rng.lognormal(-4),
                     1000, 0, 0, 0, 0])
        for n in model.top
        for o in n.outputs
    }  # fmt: skip
    halves = Prepared(model, model, precisions=dict.fromkeys((n.id for n in model.top), Precision.FP16))
    result = VariantResult(
        "fp16", Variant.of("fp16", target="sm86"), model, halves, engine, measured=engine, profile=profile,
        errors=Errors("a processor", sums, dict.fromkeys(sums, 32)),
    )  # fmt: skip
    return source_graph(model), engine_view(result, model)


@pytest.mark.parametrize("make", ["inception_chain", "transformer_stack"])
def test_ten_thousand_nodes_with_all_overlays_take_at_most_two_megabytes(benchmark, care, make: str) -> None:
    """Both graphs together, packed in the time of the standard library's JSON alone."""
    nodes = care.size(NODES, SMALL)
    source, view = projected(make, nodes)
    assert {"estimate", "time", "error", "memory"} == {o["id"] for o in view["overlays"]}
    assert all(o["nodes"] and o["layers"] for o in view["overlays"])
    packed = benchmark.pedantic(lambda: (encode(source), encode(view)), rounds=5, warmup_rounds=1)
    whole = [to_builtins(v) for v in (source, view)]
    started = time.perf_counter()
    for payload in whole:
        gzip.compress(json.dumps(payload, ensure_ascii=False).encode(), 6, mtime=0)
    peer = time.perf_counter() - started
    benchmark.extra_info |= {
        "source_bytes": len(packed[0]),
        "engine_bytes": len(packed[1]),
        "ratio_to_json_time": benchmark.stats.stats.median / peer,
    }
    assert sum(map(len, packed)) <= BYTES[nodes]
    assert benchmark.stats.stats.median <= care.most(peer)
