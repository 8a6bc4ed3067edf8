"""Two engines of one network, as different builders could make them, and which layers of both do the same work.

A network is a row of residual blocks. An engine of it runs each convolution with what follows it, or beside it; gives
the sum of a block to either branch; runs parallel branches in either order; puts a quantization between layers; and
calls everything by names of its own.
"""

from __future__ import annotations

import dataclasses
import random

from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation of a network: what it reads, and the shape that it writes."""

    name: str
    kind: str
    reads: tuple[str, ...]
    shape: tuple[int, ...]
    kernel: int = 0
    stride: int = 1


def network(blocks: int, stages: int = 4) -> list[Op]:
    size, width = 224, 64
    ops = [
        Op("stem", "Conv", ("input",), (width, size // 2, size // 2), 7, 2),
        Op("stem.relu", "Relu", ("stem",), (width, size // 2, size // 2)),
        Op("pool", "MaxPool", ("stem.relu",), (width, size // 4, size // 4), 3, 2),
    ]
    last, size, outer = "pool", size // 4, 64
    for block in range(blocks):
        stage = block * stages // blocks
        first = block == 0 or stage != (block - 1) * stages // blocks
        width, stride = 64 << stage, 2 if first and stage else 1
        size //= stride
        name = f"b{block}"
        ops += [
            Op(f"{name}.1", "Conv", (last,), (width, size * stride, size * stride), 1),
            Op(f"{name}.1.relu", "Relu", (f"{name}.1",), (width, size * stride, size * stride)),
            Op(f"{name}.2", "Conv", (f"{name}.1.relu",), (width, size, size), 3, stride),
            Op(f"{name}.2.relu", "Relu", (f"{name}.2",), (width, size, size)),
            Op(f"{name}.3", "Conv", (f"{name}.2.relu",), (4 * width, size, size), 1),
        ]
        short = last
        if first:
            short = f"{name}.0"
            ops.append(Op(short, "Conv", (last,), (4 * width, size, size), 1, stride))
        ops.append(Op(f"{name}.add", "Add", (f"{name}.3", short), (4 * width, size, size)))
        last, outer = f"{name}.relu", 4 * width
        ops.append(Op(last, "Relu", (f"{name}.add",), (4 * width, size, size)))
    ops.append(Op("mean", "GlobalAveragePool", (last,), (outer, 1, 1)))
    return [*ops, Op("classes", "Conv", ("mean",), (1000, 1, 1), 1)]


@dataclasses.dataclass(frozen=True)
class Habits:
    quantizes: float = 0.0
    #: A ReLU is a layer of its own.
    splits: float = 0.0
    #: The first convolution and the pooling are one layer.
    pools: bool = False
    #: The sum of a block is given to its short branch, which then runs last.
    shorts: float = 0.0
    batch: int = 1
    precision: str = "fp16"
    #: How many operators an exporter counted for each: more where it wrote Q/DQ.
    counts: int = 1


def build(
    ops: list[Op], habits: Habits, called: str, seed: int = 0
) -> tuple[Engine, dict[str, frozenset[str]]]:
    """An engine of a network, and the convolutions and poolings that each of its layers runs."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    by_name = {o.name: o for o in ops}
    numbers = {o.name: i * habits.counts for i, o in enumerate(ops)}
    home = _homes(ops, habits, chance)
    parts: dict[str, list[Op]] = {}
    for op in ops:
        parts.setdefault(home[op.name], []).append(op)
    order = _order(parts, home, by_name, chance)
    layers: list[Layer] = []
    truth: dict[str, frozenset[str]] = {}
    tensor = {"input": f"{called} in"}

    def shaped(name: str, op: Op | None, dtype: str) -> Tensor:
        return Tensor(name, dtype, (habits.batch, *(op.shape if op else (3, 224, 224))))

    for number, head in enumerate(order):
        mine = parts[head]
        inside = {o.name for o in mine}
        reads = list(dict.fromkeys(r for o in mine for r in o.reads if r not in inside))
        first = mine[0]
        writes = mine[-1]
        tensor[writes.name] = f"{called}/{number}"
        attributes: dict[str, object] = {}
        product = next((o for o in mine if o.kind == "Conv"), None)
        if product:
            attributes = {
                "ParameterType": "Convolution", "Kernel": [product.kernel] * 2, "Stride": [product.stride] * 2,
                "Groups": 1, "OutMaps": product.shape[0],
            }  # fmt: skip
        kind = "CaskConvolution" if product else {"Relu": "PointWise"}.get(first.kind, "CaskPooling")
        dtype = habits.precision
        inputs = []
        for r in reads:
            if chance.random() < habits.quantizes:
                # The next layer reads what was quantized for it.
                made = f"{called}/{number}/{len(inputs)} q"
                layers.append(
                    Layer(f"{called}q{len(layers)}", f"QuantizeLinear_{len(layers)}", "Reformat", len(layers),
                          (shaped(tensor[r], by_name.get(r), "fp16"),), (shaped(made, by_name.get(r), "int8"),),
                          attributes={"Origin": "QDQ"})
                )  # fmt: skip
                inputs.append(shaped(made, by_name.get(r), "int8"))
            else:
                inputs.append(shaped(tensor[r], by_name.get(r), dtype))
        name = " + ".join(f"{o.kind}_{numbers[o.name]}" for o in mine)
        layers.append(
            Layer(f"{called}{len(layers)}", name, kind, len(layers), tuple(inputs),
                  (shaped(tensor[writes.name], writes, dtype),), attributes=attributes)
        )  # fmt: skip
        truth[layers[-1].id] = frozenset(o.name for o in mine if o.kind not in {"Relu", "Add"})
    engine = Engine(
        "tensorrt", "10", Target("sm86"), tuple(layers), (shaped(tensor["input"], None, "fp32"),),
        (layers[-1].outputs[0],), maker=TENSORRT,
    )  # fmt: skip
    return engine, truth


def _homes(ops: list[Op], habits: Habits, chance: random.Random) -> dict[str, str]:
    home: dict[str, str] = {}
    for op in ops:
        home[op.name] = op.name
        if op.kind == "Add":
            long, short = op.reads
            home[op.name] = home[short if short.endswith(".0") and chance.random() < habits.shorts else long]
        elif op.kind == "Relu" and chance.random() >= habits.splits:
            home[op.name] = home[op.reads[0]]
        elif op.name == "pool" and habits.pools:
            home[op.name] = home[op.reads[0]] = home["stem"] = "stem"
    return home


def _order(
    parts: dict[str, list[Op]], home: dict[str, str], by_name: dict[str, Op], chance: random.Random
) -> list[str]:
    """Layers after those that they read from; which of several comes first is chance."""
    needs = {h: {home[r] for o in mine for r in o.reads if r in by_name} - {h} for h, mine in parts.items()}
    readers: dict[str, list[str]] = {h: [] for h in parts}
    for h, wanted in needs.items():
        for w in wanted:
            readers[w].append(h)
    missing = {h: len(w) for h, w in needs.items()}
    ready = [h for h, n in missing.items() if not n]
    found = []
    while ready:
        h = ready.pop(chance.randrange(len(ready)))
        found.append(h)
        for r in readers[h]:
            missing[r] -= 1
            if not missing[r]:
                ready.append(r)
    return found
