"""Hypothesis strategies, and small models, for all tests.

``protos`` draws valid ONNX graphs that mix what real ones contain: convolutions, branches, residuals,
concats, constants to fold, shape arithmetic, views, dead nodes, bodies, and names as people and exporters
write them. ``models`` loads them; ``engines`` and ``profiles`` draw what a compiler and a runner could say.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from nets import fp32_proto
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load
from rtlab.core.trace import Profile
from rtlab.core.variant import CALIBRATORS, SUPPORTED_TARGETS, Calibrator, Precision, Target, Variant

#: Names that have broken a tool somewhere: log separators, control characters, markup, ids of our own.
HOSTILE_NAMES = (
    "", "a", "a", " a ", "#0", "#3", "a|b", "]", "[ONNX Layer: n1]", "n1, Metadata: [ONNX Layer: n2]", "line\nbreak",
    "tab\there", "\x1e\x1f", "<script>alert(1)</script>", "&amp;", '"; DROP TABLE layers; --', "../../etc/passwd",
    "C:\\temp\\x", "%s%n{0}${x}", "é—✓ 模型", "\u202eright to left", "x" * 300, "__proto__", "constructor", "NaN",
)  # fmt: skip

_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "LeakyRelu", "Identity", "HardSigmoid")

Shape = tuple[int, int, int, int]


@dataclasses.dataclass
class _Graph:
    """A graph under construction: ``live`` holds fp32 values that a next node may read, with their shapes."""

    draw: st.DrawFn
    rng: np.random.Generator
    name: Callable[[], str]
    prefix: str
    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    weights: list[onnx.TensorProto] = dataclasses.field(default_factory=list)
    live: list[tuple[str, Shape]] = dataclasses.field(default_factory=list)
    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [self.fresh() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=self.name(), **attributes))
        return names[0]

    def weight(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name := self.fresh()))
        return name

    def noise(self, *shape: int) -> np.ndarray:
        fan = max(1, int(np.prod(shape[1:])))
        return (self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)

    def pick(self) -> tuple[str, Shape]:
        return self.draw(st.sampled_from(self.live))

    def put(self, value: str, shape: Shape) -> None:
        self.live.append((value, shape))


def _unary(g: _Graph) -> None:
    x, shape = g.pick()
    g.put(g.node(g.draw(st.sampled_from(_UNARY)), x), shape)


def _conv(g: _Graph) -> None:
    x, (n, c, h, w) = g.pick()
    out, k = g.draw(st.sampled_from([1, 2, 4])), g.draw(st.sampled_from([1, 3]))
    inputs = [x, g.weight(g.noise(out, c, k, k))]
    if g.draw(st.booleans()):
        inputs.append(g.weight(g.noise(out)))
    g.put(g.node("Conv", *inputs, kernel_shape=[k, k], pads=[k // 2] * 4), (n, out, h, w))


def _conv_norm_relu(g: _Graph) -> None:
    _conv(g)
    x, shape = g.live[-1]
    c = shape[1]
    scale, bias, mean = (g.weight(g.noise(c)) for _ in range(3))
    variance = g.weight(np.abs(g.noise(c)) + np.float32(0.5))
    g.put(g.node("Relu", g.node("BatchNormalization", x, scale, bias, mean, variance)), shape)


def _pool(g: _Graph) -> None:
    x, (n, c, h, w) = g.pick()
    op = g.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    if min(h, w) >= 4 and g.draw(st.booleans()):
        g.put(g.node(op, x, kernel_shape=[2, 2], strides=[2, 2]), (n, c, h // 2, w // 2))
    else:
        g.put(g.node(op, x, kernel_shape=[3, 3], pads=[1] * 4), (n, c, h, w))


def _binary(g: _Graph) -> None:
    x, shape = g.pick()
    y = g.draw(st.sampled_from([v for v, s in g.live if s == shape]))
    g.put(g.node(g.draw(st.sampled_from(["Add", "Mul", "Sub", "Max"])), x, y), shape)


def _concat(g: _Graph) -> None:
    x, (n, c, h, w) = g.pick()
    others = [(v, s) for v, s in g.live if s[2:] == (h, w) and s[1] + c <= 16] or [(x, (n, c, h, w))]
    y, (_, d, _, _) = g.draw(st.sampled_from(others))
    g.put(g.node("Concat", x, y, axis=1), (n, c + d, h, w))


def _split(g: _Graph) -> None:
    x, (n, c, h, w) = g.pick()
    if c < 2:
        return
    sizes = g.weight(np.array([1, c - 1], np.int64))
    first = g.node("Split", x, sizes, outputs=2, axis=1)
    g.put(first, (n, 1, h, w))
    g.put(g.nodes[-1].output[1], (n, c - 1, h, w))


def _constant(g: _Graph) -> None:
    x, shape = g.pick()
    tensor = numpy_helper.from_array(g.noise(1, shape[1], 1, 1))
    one = g.node("Constant", value=tensor)
    two = g.node("Mul", one, g.weight(np.float32([[[[2.0]]]])))
    g.put(g.node("Add", x, two), shape)


def _shape_arithmetic(g: _Graph) -> None:
    """``x.view(x.shape[0], -1).view(x.shape)`` as an exporter writes it."""
    x, shape = g.pick()
    whole = g.node("Shape", x)
    first = g.node("Gather", whole, g.weight(np.array(0, np.int64)), axis=0)
    row = g.node("Unsqueeze", first, g.weight(np.array([0], np.int64)))
    target = g.node("Concat", row, g.weight(np.array([-1], np.int64)), axis=0)
    g.put(g.node("Reshape", g.node("Reshape", x, target), whole), shape)


def _view(g: _Graph) -> None:
    x, (n, c, h, w) = g.pick()
    turned = g.node("Transpose", x, perm=[0, 2, 3, 1])
    g.put(g.node("Transpose", turned, perm=[0, 3, 1, 2]), (n, c, h, w))


def _quantized(g: _Graph) -> None:
    x, shape = g.pick()
    scale, zero = g.weight(np.float32(0.05)), g.weight(np.array(0, np.int8))
    g.put(g.node("DequantizeLinear", g.node("QuantizeLinear", x, scale, zero), scale, zero), shape)


def _dead(g: _Graph) -> None:
    g.node("Relu", g.pick()[0])


def _body(g: _Graph) -> None:
    """An If with a constant condition: its bodies are graphs of their own, with scopes of their own."""
    x, shape = g.pick()
    bodies = {}
    for branch, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        out = g.fresh()
        node = helper.make_node(op, [x], [out], name=g.name())
        info = helper.make_tensor_value_info(out, TensorProto.FLOAT, None)
        bodies[branch] = helper.make_graph([node], branch, [], [info])
    g.put(g.node("If", g.weight(np.array(g.draw(st.booleans()))), **bodies), shape)


_STEPS = (
    _unary, _conv, _conv_norm_relu, _pool, _binary, _concat, _split, _constant, _shape_arithmetic, _view,
    _quantized, _dead,
)  # fmt: skip


def node_names() -> st.SearchStrategy[str]:
    """Names for nodes: as exporters write them, and hostile ones; duplicates are wanted."""
    exporter = st.integers(0, 5).map(lambda i: f"/layer{i}/conv/Conv")
    return st.sampled_from(HOSTILE_NAMES) | exporter | st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def protos(
    draw: st.DrawFn,
    *,
    max_steps: int = 8,
    dynamic: bool | None = None,
    hostile: bool = True,
    bodies: bool = False,
    head: bool | None = None,
) -> onnx.ModelProto:
    """Valid fp32 models with one input ``image`` of shape N×C×H×W; ONNX Runtime runs all with unique names.

    A step is one to six nodes; ``dynamic`` leaves the batch open, ``bodies`` are those of If, ``head`` is a classifier.
    """
    batch: int | str = "N" if (draw(st.booleans()) if dynamic is None else dynamic) else 1
    shape = (1, draw(st.integers(1, 4)), draw(st.sampled_from([4, 8])), draw(st.sampled_from([4, 8])))
    numbers = iter(range(10_000))
    name = (lambda: draw(node_names())) if hostile else (lambda: f"n{next(numbers)}")
    prefix = draw(st.sampled_from(["v", "v|", "[v] ", "é, Datatype: "])) if hostile else "v"
    g = _Graph(
        draw, np.random.default_rng(draw(st.integers(0, 2**16))), name, prefix, live=[("image", shape)]
    )
    steps = (*_STEPS, _body) if bodies else _STEPS
    _conv(g)
    for step in draw(st.lists(st.sampled_from(steps), max_size=max_steps)):
        step(g)
    last, (_, c, h, w) = g.live[-1]
    result: list[int | str] = [batch, c, h, w]
    if draw(st.booleans()) if head is None else head:
        flat = g.node("Flatten", g.node("GlobalAveragePool", last))
        last = g.node("Softmax", g.node("Gemm", flat, g.weight(g.noise(c, 3)), g.weight(g.noise(3))))
        result = [batch, 3]
    edges = {"image": [batch, *shape[1:]]}, {last: result}
    return fp32_proto(g.nodes, *edges, g.weights, name="drawn", ir_version=9)


def models(**options: object) -> st.SearchStrategy[Model]:
    return protos(**options).map(lambda proto: load(proto, name="drawn"))


def variants() -> st.SearchStrategy[Variant]:
    precisions = st.sampled_from([Precision.FP32, Precision.FP16, Precision.INT8])
    return st.builds(
        lambda p, pins, c, t, w, s: Variant.of(
            {"*": p, **pins}, calibrator=c, target=t, weights=w, sparsity=s
        ),
        precisions,
        st.dictionaries(st.sampled_from(["op:Conv", "/head/*", "a"]), precisions, max_size=2),
        st.sampled_from([*CALIBRATORS, Calibrator.of("percentile(99.9)"), Calibrator.of("percentile(75)")]),
        st.sampled_from(["cpu", *SUPPORTED_TARGETS]),
        st.sampled_from(["channel", "tensor"]),
        st.sampled_from([False, True, "op:Conv"]),
    )


@st.composite
def mixes(draw: st.DrawFn, *, hostile: bool = True) -> tuple[Model, Variant]:
    model = draw(models(bodies=True, hostile=hostile))
    patterns = [*(f"op:{n.op}" for n in model.top), *(n.id for n in model.top)]
    # TF32 is one switch for a whole engine and cannot be pinned.
    pinned = st.sampled_from([p for p in Precision if p is not Precision.TF32])
    pins = draw(st.dictionaries(st.sampled_from(patterns), pinned, max_size=3))
    precision = {"*": draw(st.sampled_from(Precision)), **pins}
    return model, Variant.of(precision, target="sm120", weights=draw(st.sampled_from(["channel", "tensor"])))


@st.composite
def engines(draw: st.DrawFn, model: Model, *, declare: bool = True) -> Engine:
    """What a compiler could have made of a model.

    Runs of nodes become layers; some nodes are lost, as in folding, and helper layers without a node appear.
    ``declare`` False leaves out the declared origins, so that a mapping has to go by tensors.
    """
    layers: list[Layer] = []
    nodes = list(model.top)
    while nodes:
        size = draw(st.integers(1, 4))
        run, nodes = nodes[:size], nodes[size:]
        fate = draw(st.sampled_from(["layer", "layer", "layer", "lost", "helper"]))
        if fate == "lost":
            continue
        made = {out for n in run for out in n.outputs}
        reads = dict.fromkeys(i for n in run for i in n.inputs if i and i not in made)
        index, helper_layer = len(layers), fate == "helper"
        layers.append(
            Layer(
                id=f"l{index}",
                name=f"copy_{index}" if helper_layer else f"__myl_{''.join(n.op for n in run)}_myl0_{index}",
                kind="copy" if helper_layer else draw(st.sampled_from(["kgen", "runtime_fusion"])),
                index=index,
                inputs=tuple(_tensor(model, i) for i in reads if model.values[i].kind != "constant"),
                outputs=tuple(_tensor(model, o) for o in run[-1].outputs if o),
                stream=draw(st.integers(0, 3)),
                origins=tuple(n.id for n in run) if declare and not helper_layer else (),
            )
        )
    return Engine(
        backend="tensorrt-rtx", version="1.7.1", target=Target(draw(st.sampled_from(["sm86", "sm89", "sm120"]))),
        layers=tuple(layers), inputs=tuple(_tensor(model, n) for n in model.inputs),
        outputs=tuple(_tensor(model, n) for n in model.outputs), totals={"activations": draw(st.integers(0, 2**32))},
        seconds=draw(st.floats(0.01, 100)), maker=TENSORRT_RTX,
    )  # fmt: skip


def _tensor(model: Model, name: str) -> Tensor:
    value = model.values[name]
    known = value.shape is not None
    shape = tuple(d if isinstance(d, int) else -1 for d in value.shape) if known else None
    return Tensor(name, value.dtype, shape)


@st.composite
def profiles(draw: st.DrawFn, engine: Engine, *, runs: int = 8) -> Profile:
    times = st.floats(1e-4, 1e3, allow_nan=False)
    samples = {
        layer.id: np.array(draw(st.lists(times, min_size=runs, max_size=runs))) for layer in engine.layers
    }
    total = np.sum(list(samples.values()), axis=0) if samples else np.zeros(runs)
    taken = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return Profile("onnxruntime", "cpu", samples, total * 1.1, warmup=2, taken=taken)


def chain(length: int, ops: Sequence[str] = ("Relu", "Neg")) -> onnx.ModelProto:
    """``length`` pointwise nodes ``n0``, ``n1``, ... one after the other on a 1×4 tensor."""
    wires = ["x", *(f"v{i}" for i in range(1, length)), "y"]
    nodes = [
        helper.make_node(ops[i % len(ops)], [wires[i]], [wires[i + 1]], name=f"n{i}") for i in range(length)
    ]
    return of_nodes(nodes)


def of_nodes(
    nodes: Sequence[onnx.NodeProto],
    *,
    weights: Sequence[onnx.TensorProto] = (),
    shape: Sequence[int | str] = (1, 4),
    result: Sequence[int | str] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    edges = {"x": shape}, {"y": shape if result is None else result}
    return fp32_proto(nodes, *edges, weights, name="small", opset=opset, ir_version=9)
