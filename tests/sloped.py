"""Operators with random attributes and shapes, of which gradients are asked: each a small graph that writes "y"."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph from "x" and the other ``moving`` values, whose gradients are asked for, to "y", with numbers.

    Gradients may stop with "open" sizes, or those of a "batch" alone; ``linear`` lets large steps in FP32 tell a slope.
    """

    nodes: Sequence[NodeProto]
    moving: Mapping[str, np.ndarray]
    fixed: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    opset: int = 17
    stops: str = ""
    linear: bool = False


class Draw:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def of(self, *choices: Any) -> Any:
        return choices[self.int(0, len(choices) - 1)]

    def ints(self, count: int, low: int, high: int) -> list[int]:
        return [self.int(low, high) for _ in range(count)]

    def shape(self, low: int = 1, high: int = 4, least: int = 1) -> list[int]:
        return self.ints(self.int(low, high), least, 4)

    def noise(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32).astype(np.float64)

    def inside(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.rng.uniform(low, high, shape).astype(np.float32).astype(np.float64)

    def axes(self, rank: int, count: int) -> list[int]:
        chosen = self.rng.permutation(rank)[:count]
        return [int(a) - (rank if self.of(True, False) else 0) for a in chosen]


def node(op: str, reads: str = "x", writes: str = "y", name: str = "n", **attributes: Any) -> NodeProto:
    given = {k: v for k, v in attributes.items() if v is not None}
    return helper.make_node(op, [r.strip("_") for r in reads.split()], writes.split(), name, **given)


Maker = Callable[[Draw], Case]
CASES: dict[str, Maker] = {}


def case(make: Maker) -> Maker:
    CASES[make.__name__.strip("_")] = make
    return make


def function(
    op: str, low: float = -3.0, high: float = 3.0, opset: int = 17, **choices: tuple[Any, ...]
) -> None:
    def make(d: Draw) -> Case:
        x = d.inside(low, high, *d.shape())
        return Case([node(op, **{k: d.of(*v) for k, v in choices.items()})], {"x": x}, opset=opset)

    CASES[op] = make


_ALPHA = (None, 0.3, 1.7)
for _op in (
    "Relu", "Sigmoid", "Tanh", "Softplus", "Exp", "Erf", "Neg", "Abs", "Identity", "HardSwish", "Sin", "Cos", "Floor",
    "Ceil", "Sign",
):  # fmt: skip
    function(_op)
for _op in ("LeakyRelu", "Elu"):
    function(_op, alpha=_ALPHA)
function("HardSigmoid", alpha=(None, 0.4), beta=(None, 0.3))
function("Gelu", opset=20, approximate=(None, "tanh"))
function("Mish", opset=18)
function("Swish", opset=24, alpha=(None, 0.7))
for _op in ("Log", "Sqrt", "Reciprocal"):
    function(_op, 0.3, 3.0)


@case
def clip(d: Draw) -> Case:
    low, high = sorted(d.noise(2) * 2)
    moving = {"x": d.noise(*d.shape()) * 2}
    bounds = {"lo": np.asarray(low), "hi": np.asarray(high)}
    if d.of(True, False):
        return Case([node("Clip", "x lo hi")], {**moving, **bounds})
    return Case([node("Clip", d.of("x lo", "x _ hi", "x lo hi"))], moving, bounds)


@case
def prelu(d: Draw) -> Case:
    shape = d.shape(2)
    return Case(
        [node("PRelu", "x s")], {"x": d.noise(*shape), "s": d.noise(shape[1], *[1] * (len(shape) - 2))}
    )


def repeated(d: Draw, shape: Sequence[int]) -> list[int]:
    mine = [1 if d.int(0, 2) == 0 else n for n in shape]
    return mine[d.int(0, len(mine)) :]


def binary(op: str, low: float, high: float) -> None:
    def make(d: Draw) -> Case:
        shape = d.shape(1, 4)
        pair = [shape, repeated(d, shape)]
        if d.of(True, False):
            one = [n if d.of(True, False) else 1 for n in shape]
            pair = [one, list(shape)]
        names = d.of(("x", "w"), ("w", "x"))
        values = dict(zip(names, (d.inside(low, high, *p) for p in pair), strict=True))
        return Case([node(op, "x w" if names[0] == "x" else "w x")], {"x": values["x"], "w": values["w"]})

    CASES[op] = make


for _op in ("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"):
    binary(_op, -2, 2)
for _op in ("Div", "Pow"):
    binary(_op, 0.5, 2)


@case
def several(d: Draw) -> Case:
    shape = d.shape(2, 3)
    values = {"x": d.noise(*shape), "w": d.noise(*repeated(d, shape)), "v": d.noise(*shape)}
    return Case([node(d.of("Max", "Min", "Sum", "Mean"), "w x v")], values)


CASES["square"] = lambda d: Case(
    [node("Pow", "x p")], {"x": d.noise(*d.shape())}, {"p": np.asarray(float(d.of(1, 2, 3)))}
)


@case
def twice(d: Draw) -> Case:
    nodes = [node("Mul", "x x", "a", "a"), node("Sigmoid", "x", "b", "b"), node("Add", "a b", "y", "c")]
    return Case(nodes, {"x": d.noise(*d.shape())})


@case
def where(d: Draw) -> Case:
    shape = d.shape(2, 3)
    told = d.rng.integers(0, 2, repeated(d, shape)).astype(bool)
    return Case(
        [node("Where", "c x w")], {"x": d.noise(*shape), "w": d.noise(*repeated(d, shape))}, {"c": told}
    )


@case
def matmul(d: Draw) -> Case:
    m, k, n = d.ints(3, 1, 4)
    lead = d.ints(d.int(0, 2), 1, 3)
    kind = d.int(0, 4)
    one, other = [*lead, m, k], [*repeated(d, lead), k, n]
    if kind == 0:
        one, other = [*repeated(d, lead), m, k], [*lead, k, n]
    elif kind == 1:
        one = [k]
    elif kind == 2:
        other = [k]
    elif kind == 3:
        one, other = [k], [k]
    return Case([node("MatMul", "x w")], {"x": d.noise(*one), "w": d.noise(*other)})


@case
def gemm(d: Draw) -> Case:
    m, k, n = d.ints(3, 1, 4)
    over, under = d.int(0, 1), d.int(0, 1)
    values = {"x": d.noise(*((k, m) if over else (m, k))), "w": d.noise(*((n, k) if under else (k, n)))}
    reads = "x w"
    if d.of(True, False):
        values["c"], reads = d.noise(*d.of((n,), (1, n), (m, 1), (m, n), (1,))), "x w c"
    scaled = {"alpha": d.of(None, 0.5), "beta": d.of(None, 2.0)}
    return Case([node("Gemm", reads, transA=over, transB=under, **scaled)], values)


@case
def einsum(d: Draw) -> Case:
    text = d.of(
        "bij,bjk->bik", "bij,kj->bki", "bij->bji", "bij,bij->b", "bij,bjk", "ij,jk,kl->il", "bij->b", "i,j->ij",
    )  # fmt: skip
    sizes = {c: d.int(1, 3) for c in "bijkl"}
    terms = text.split("->")[0].split(",")
    names = ["x", "w", "v"][: len(terms)]
    values = {n: d.noise(*(sizes[c] for c in t)) for n, t in zip(names, terms, strict=True)}
    # A size of one against another one is told from a repeated one where both are known.
    return Case([node("Einsum", " ".join(names), equation=text)], values, stops="batch open")


@case
def conv(d: Draw) -> Case:
    rank = d.of(1, 2, 2, 2, 3)
    group, ins, outs = d.int(1, 3), d.int(1, 2), d.int(1, 2)
    if d.int(0, 3) == 0:
        group, ins = d.int(2, 4), 1
    kernel, holes, steps = d.ints(rank, 1, 3), d.ints(rank, 1, 2), d.ints(rank, 1, 3)
    if d.of(True, False):
        steps = [1] * rank
    spans = [h * (k - 1) + 1 for h, k in zip(holes, kernel, strict=True)]
    sides = [s + d.int(0, 4) for s in spans]
    names: dict[str, Any] = {"strides": steps, "dilations": holes}
    auto = d.of(None, None, "VALID", "SAME_UPPER", "SAME_LOWER")
    if auto:
        names["auto_pad"] = auto
        if auto != "VALID":
            names["dilations"] = [1] * rank
    else:
        names["pads"] = d.ints(2 * rank, 0, 3)
    values = {"x": d.noise(d.int(1, 3), group * ins, *sides), "w": d.noise(group * outs, ins, *kernel)}
    reads = "x w"
    if d.of(True, False):
        values["b"], reads = d.noise(group * outs), "x w b"
    return Case([node("Conv", reads, group=group, **names)], values, stops="open", linear=True)


@case
def conv_transpose(d: Draw) -> Case:
    rank = d.of(1, 2, 2)
    group, ins, outs = d.of(1, 1, 2), d.int(1, 2), d.int(1, 2)
    kernel, steps, holes = d.ints(rank, 2, 3), d.ints(rank, 1, 3), d.ints(rank, 1, 2)
    names: dict[str, Any] = {"strides": steps, "dilations": holes}
    auto = d.of(None, None, None, "VALID")
    if auto:
        names["auto_pad"] = auto
    else:
        names["pads"] = d.ints(2 * rank, 0, 1)
        names["output_padding"] = [d.int(0, s - 1) for s in steps]
    values = {
        "x": d.noise(d.int(1, 2), group * ins, *d.ints(rank, 2, 4)),
        "w": d.noise(group * ins, outs, *kernel),
    }
    fixed = {} if group == 1 and not any(names.get("output_padding", [])) else {"w": values.pop("w")}
    reads = "x w"
    if d.of(True, False):
        values["b"], reads = d.noise(group * outs), "x w b"
    return Case(
        [node("ConvTranspose", reads, group=group, **names)], values, fixed, stops="open", linear=True
    )


@case
def batch_normalization(d: Draw) -> Case:
    shape = d.shape(2, 4)
    c = shape[1]
    values = {"x": d.noise(*shape), "s": d.noise(c), "b": d.noise(c)}
    fixed = {"m": d.noise(c), "v": d.inside(0.2, 2, c)}
    return Case([node("BatchNormalization", "x s b m v", epsilon=d.of(None, 0.1))], values, fixed)


def layered(op: str, opset: int) -> None:
    def make(d: Draw) -> Case:
        shape = d.shape(2, 4, 2)
        axis = d.int(1, len(shape) - 1) - d.of(0, len(shape))
        inner = shape[axis:]
        values = {"x": d.noise(*shape), "s": d.noise(*inner)}
        reads = "x s"
        if op == "LayerNormalization" and d.of(True, False):
            values["b"], reads = d.noise(*inner), "x s b"
        return Case([node(op, reads, axis=axis, epsilon=d.of(None, 0.1))], values, opset=opset)

    CASES[op] = make


layered("LayerNormalization", 17)
layered("RMSNormalization", 23)


@case
def instance_normalization(d: Draw) -> Case:
    shape = [*d.ints(2, 1, 3), *d.ints(d.int(1, 2), 2, 4)]
    values = {"x": d.noise(*shape), "s": d.noise(shape[1]), "b": d.noise(shape[1])}
    return Case([node("InstanceNormalization", "x s b", epsilon=d.of(None, 0.1))], values)


@case
def group_normalization(d: Draw) -> Case:
    groups, each = d.int(1, 3), d.int(1, 2)
    shape = [d.int(1, 2), groups * each, 3, 2]
    fixed = {"s": d.noise(groups * each), "b": d.noise(groups * each)}
    made = node("GroupNormalization", "x s b", num_groups=groups, epsilon=d.of(None, 0.1))
    return Case([made], {"x": d.noise(*shape)}, fixed, opset=21)


CASES |= {
    "lrn": lambda d: Case(
        [node("LRN", size=d.of(1, 3, 5), alpha=d.of(None, 0.5), beta=d.of(None, 0.6), bias=d.of(None, 2.0))],
        {"x": d.noise(d.int(1, 2), d.int(1, 6), *d.ints(2, 1, 3))},
    ),
}


@case
def softmax(d: Draw) -> Case:
    shape = d.shape(2, 4)
    axis = d.int(-len(shape), len(shape) - 1)
    return Case([node(d.of("Softmax", "LogSoftmax"), axis=d.of(None, axis))], {"x": d.noise(*shape)})


def _pool(d: Draw) -> tuple[np.ndarray, dict[str, Any]]:
    rank = d.of(1, 2, 2, 3)
    kernel = d.ints(rank, 1, 3)
    steps = d.of([1] * rank, list(kernel), d.ints(rank, 1, 3))
    x = d.noise(d.int(1, 2), d.int(1, 3), *(k + d.int(0, 4) for k in kernel))
    names: dict[str, Any] = {"kernel_shape": kernel, "strides": steps}
    if d.of(True, False):
        names["pads"] = [d.int(0, k - 1) for k in (*kernel, *kernel)]
    return x, names


@case
def average_pool(d: Draw) -> Case:
    x, names = _pool(d)
    return Case([node("AveragePool", count_include_pad=d.int(0, 1), **names)], {"x": x}, linear=True)


@case
def average_pool_ceil(d: Draw) -> Case:
    x, names = _pool(d)
    # Windows that begin in the padding: ONNX Runtime counts some before a run that are none in it.
    names["strides"] = [min(s, k) for s, k in zip(names["strides"], names["kernel_shape"], strict=True)]
    sides = x.ndim - 2
    names["pads"] = [*names.get("pads", [0] * sides)[:sides], *[0] * sides]
    return Case(
        [node("AveragePool", ceil_mode=1, count_include_pad=d.int(0, 1), **names)], {"x": x}, opset=19, linear=True,
    )  # fmt: skip


@case
def max_pool(d: Draw) -> Case:
    x, names = _pool(d)
    return Case([node("MaxPool", ceil_mode=d.int(0, 1), **names)], {"x": x})


@case
def global_pool(d: Draw) -> Case:
    shape = [*d.ints(2, 1, 3), *d.ints(d.int(1, 3), 1, 4)]
    return Case([node(d.of("GlobalAveragePool", "GlobalMaxPool"))], {"x": d.noise(*shape)})


REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
    "ReduceLogSum",
)  # fmt: skip


def reduction(op: str) -> None:
    def make(d: Draw) -> Case:
        x = d.inside(0.3, 2, *d.shape(1, 4)) if op == "ReduceLogSum" else d.noise(*d.shape(1, 4))
        axes = d.axes(x.ndim, d.int(1, x.ndim))
        keep = d.of(None, 0, 1)
        if d.of(True, False):
            return Case([node(op, keepdims=keep)], {"x": x})
        if op == "ReduceSum" or d.of(True, False):
            return Case([node(op, "x a", keepdims=keep)], {"x": x}, {"a": np.array(axes)}, 18)
        return Case([node(op, axes=axes, keepdims=keep)], {"x": x})

    CASES[op] = make


for _op in REDUCTIONS:
    reduction(_op)


@case
def top_k(d: Draw) -> Case:
    x = d.noise(*d.shape(1, 3))
    axis = d.int(-x.ndim, x.ndim - 1)
    made = node("TopK", "x k", "y i", axis=axis, largest=d.int(0, 1))
    return Case([made], {"x": x}, {"k": np.array([d.int(1, x.shape[axis])])})


@case
def reshape(d: Draw) -> Case:
    x = d.noise(d.int(1, 3), 4, 3)
    return d.of(
        Case([node("Reshape", "x s")], {"x": x}, {"s": np.array([0, -1, 2])}),
        Case([node("Flatten", axis=d.int(-3, 3))], {"x": x}),
        Case([node("Unsqueeze", "x a")], {"x": x}, {"a": np.array([0, -1])}),
        Case([node("Squeeze", "x a")], {"x": x[:, :1]}, {"a": np.array([1])}),
    )


@case
def transpose(d: Draw) -> Case:
    x = d.noise(*d.shape(1, 4))
    return Case([node("Transpose", perm=d.of(None, [int(i) for i in d.rng.permutation(x.ndim)]))], {"x": x})


@case
def concat(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.int(-len(shape), len(shape) - 1)
    values = {}
    for name in ("x", "w", "v"):
        shape[axis] = d.int(1, 4)
        values[name] = d.noise(*shape)
    return Case([node("Concat", d.of("x w v", "w x v", "x v w x"), axis=axis)], values)


@case
def split(d: Draw) -> Case:
    x = d.noise(2, 5, 3)
    return Case([
        node("Split", "x s", "p q r", "s", axis=d.of(1, -2)), node("Mul", "p w", "y", "m")
    ], {"x": x, "w": d.noise(2, 2, 3)}, {"s": np.array([2, 2, 1])})  # fmt: skip


@case
def slices(d: Draw) -> Case:
    x = d.noise(*d.ints(d.int(1, 3), 2, 6))
    axes = d.axes(x.ndim, d.int(1, x.ndim))
    step = d.of(None, None, [d.of(-2, -1, 1, 2) for _ in axes])
    begin = [d.int(-6, 1) for _ in axes]
    end = [d.of(2**40, -1, x.shape[a]) if begin[i] > -2 else x.shape[a] for i, a in enumerate(axes)]
    if step:
        begin, end = [0 if s > 0 else 5 for s in step], [2**40 if s > 0 else -(2**40) for s in step]
    fixed = {"a": np.array(begin), "b": np.array(end), "c": np.array(axes)}
    if step:
        return Case([node("Slice", "x a b c d")], {"x": x}, {**fixed, "d": np.array(step)})
    return Case([node("Slice", "x a b c")], {"x": x}, fixed)


@case
def gather(d: Draw) -> Case:
    x = d.noise(*d.ints(d.int(1, 3), 2, 4))
    axis = d.int(-x.ndim, x.ndim - 1)
    n = x.shape[axis]
    index = d.of(
        np.asarray(d.int(-n, n - 1)), np.array([d.int(-n, n - 1)]), d.rng.integers(-n, n, (3,)),
        d.rng.integers(0, n, (2, 2)), np.array([[d.int(0, n - 1)]]),
    )  # fmt: skip
    return Case([node("Gather", "x i", axis=axis)], {"x": x}, {"i": index})


@case
def gather_elements(d: Draw) -> Case:
    x = d.noise(3, 4)
    axis = d.int(0, 1)
    index = d.rng.integers(-x.shape[axis], x.shape[axis], (3, 2) if axis else (2, 4))
    return Case([node("GatherElements", "x i", axis=axis)], {"x": x}, {"i": index})


@case
def gather_nd(d: Draw) -> Case:
    index = d.of(np.array([[0, 1], [1, 0], [0, 1]]), np.array([[1], [0], [1]]))
    return Case([node("GatherND", "x i")], {"x": d.noise(2, 3, 2)}, {"i": index})


@case
def scatter(d: Draw) -> Case:
    reduction = d.of("none", "add")
    if d.of(True, False):
        made = node("ScatterND", "x i w", reduction=reduction)
        return Case([made], {"x": d.noise(3, 2), "w": d.noise(2, 2)}, {"i": np.array([[2], [0]])}, 18)
    made = node("ScatterElements", "x i w", axis=1, reduction=reduction)
    return Case([made], {"x": d.noise(2, 4), "w": d.noise(2, 2)}, {"i": np.array([[1, 3], [0, 2]])}, 18)


@case
def pad(d: Draw) -> Case:
    x, mode = d.noise(2, 3, 4), d.of("constant", "constant", "reflect", "edge")
    low = -1 if mode == "constant" else 0
    fixed = {"p": np.array([*d.ints(3, low, 1), *d.ints(3, low, 1)]), "c": np.asarray(0.5)}
    reads = d.of("x p", "x p c") if mode == "constant" else "x p"
    return Case([node("Pad", reads, mode=mode)], {"x": x}, fixed, linear=True)


@case
def copies(d: Draw) -> Case:
    shape = d.shape(1, 3)
    if d.of(True, False):
        return Case([node("Tile", "x r")], {"x": d.noise(*shape)}, {"r": np.array(d.ints(len(shape), 1, 3))})
    x = d.noise(*repeated(d, shape))
    return Case([node("Expand", "x s")], {"x": x}, {"s": np.array(shape)})


@case
def depth(d: Draw) -> Case:
    size = d.int(1, 3)
    if d.of(True, False):
        x = d.noise(2, 2, 2 * size, 3 * size)
        return Case([node("SpaceToDepth", blocksize=size)], {"x": x})
    made = node("DepthToSpace", blocksize=size, mode=d.of("DCR", "CRD"))
    return Case([made], {"x": d.noise(2, 2 * size**2, 2, 3)}, stops="open")


@case
def resize(d: Draw) -> Case:
    x = d.noise(2, 2, *d.ints(2, 2, 4))
    mode = d.of("nearest", "linear", "linear", "cubic")
    places = d.of("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    nearest = d.of("round_prefer_floor", "floor", "ceil", "round_prefer_ceil") if mode == "nearest" else None
    made = {"mode": mode, "coordinate_transformation_mode": places, "nearest_mode": nearest}
    if d.of(True, False):
        scales = np.array([1, 1, d.of(1, 2, 3), d.of(1.5, 2, 3)], np.float32)
        return Case([node("Resize", "x _ f", **made)], {"x": x}, {"f": scales}, stops="open", linear=True)
    sizes = np.array([*x.shape[:2], *d.ints(2, 1, 7)])
    return Case([node("Resize", "x _ _ n", **made)], {"x": x}, {"n": sizes}, stops="batch open", linear=True)
