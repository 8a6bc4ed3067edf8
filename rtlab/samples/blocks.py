"""Blocks of models of today with random weights: a decoder with a cache, a U-Net's, Whisper's encoder, and experts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from rtlab.samples.architectures import SEED, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: Heads of every attention, and numbers in each: 32 is a size that compilers have a kernel for.
_HEADS, _EACH = 4, 32
_WIDTH = _HEADS * _EACH
#: Of the decoder: heads of keys and values, layers, words; tokens that are new, and that the cache holds.
_SHARED_HEADS, _LAYERS, _WORDS, _NEW, _PAST = 2, 2, 512, 16, 16
_TOTAL = "past_sequence_length + sequence_length"
#: Of the U-Net's block: channels, groups, height and width; tokens and width of the text, width of the time.
_CHANNELS, _GROUPS, _SIDE, _TEXT, _TIME = _WIDTH, 8, 16, (20, 96), 64
#: Of Whisper's encoder: mel bins and frames.
_BINS, _FRAMES = 80, 128
#: Of the experts: tokens, and how many experts there are and are chosen for a token.
_TOKENS, _EXPERTS, _CHOSEN = 16, 4, 2


def decoder_with_cache() -> Model:
    """Two layers of a decoder as Llama's (Touvron et al., 2023), which reads keys and values of earlier tokens.

    Its four heads share two of keys and values; a token's position turns queries and keys (Su et al., 2021). Inputs and
    outputs have the names that Optimum gives to a decoder with a past.
    """
    net = _Blocks("decoder_with_cache")
    mask, turn = net.mask_later_tokens(), net.turn_by_position()
    x = net.node("Gather", [net.draw("/words/weight", (_WORDS, _WIDTH), deviation=1), "input_ids"], "/words")
    cache = ("batch_size", _SHARED_HEADS, "past_sequence_length", _EACH)
    tokens = ("batch_size", "sequence_length")
    inputs: dict[str, Sequence[int | str]] = {
        "input_ids": tokens,
        "attention_mask": ("batch_size", _TOTAL),
        "position_ids": tokens,
    }
    outputs: dict[str, tuple[str, Sequence[int | str]]] = {}
    for i in range(_LAYERS):
        at = f"/layers.{i}"
        past = {n: f"past_key_values.{i}.{n}" for n in ("key", "value")}
        y, present = net.attend_with_cache(net.norm_square(x, at), at, past, mask=mask, turn=turn)
        x = net.add(x, y, f"{at}/attention/residual")
        inputs |= dict.fromkeys(past.values(), cache)
        outputs |= {f"present.{i}.{n}": (v, (*cache[:2], _TOTAL, _EACH)) for n, v in present.items()}
        y = net.feed_gated(net.norm_square(x, f"{at}/mlp"), f"{at}/mlp")
        x = net.add(x, y, f"{at}/mlp/residual")
    x = net.dense(net.norm_square(x, ""), "/head", (_WIDTH, _WORDS), bias=False)
    outputs = {"logits": (x, (*tokens, _WORDS)), **outputs}
    sizes = {"sequence_length": _NEW, "past_sequence_length": _PAST, _TOTAL: _PAST + _NEW}
    return net.writer.model(inputs, outputs, integers=list(inputs)[:3], shapes=sizes)


def draw_prompts(count: int) -> dict[str, NDArray[Any]]:
    """Token ids, and normal noise as the cache of ``decoder_with_cache``; sample i is the same for any ``count``."""
    draws = [np.random.default_rng((SEED, i)) for i in range(count)]
    arrays: dict[str, NDArray[Any]] = {
        "input_ids": np.array([r.integers(_WORDS, size=_NEW) for r in draws], np.int64),
        "attention_mask": np.ones((count, _PAST + _NEW), np.int64),
        "position_ids": np.tile(np.arange(_PAST, _PAST + _NEW), (count, 1)),
    }
    for i in range(_LAYERS):
        for name in ("key", "value"):
            noise = [r.standard_normal((_SHARED_HEADS, _PAST, _EACH), np.float32) for r in draws]
            arrays[f"past_key_values.{i}.{name}"] = np.array(noise)
    return arrays


def unet_block() -> Model:
    """A block of a diffusion model's U-Net (Rombach et al., 2022): two convolutions that read the time, and attention.

    Attention is over the picture's places, and over those of a text. ``temb`` is the embedding of the time.
    """
    net = _Blocks("unet_block")
    square, kernel = (_WIDTH, _WIDTH), (_CHANNELS, _CHANNELS, 3, 3)
    y = net.silu(net.norm_groups("sample", "/resnet/norm1"), "/resnet/norm1")
    y = net.convolve(y, "/resnet/conv1", kernel)
    time = net.dense(net.silu("temb", "/resnet/time"), "/resnet/time", (_TIME, _CHANNELS))
    time = net.node("Unsqueeze", [time, net.constant("axes_2_3", [2, 3])], "/resnet/time")
    y = net.silu(net.norm_groups(net.add(y, time, "/resnet/time/add"), "/resnet/norm2"), "/resnet/norm2")
    x = net.add("sample", net.convolve(y, "/resnet/conv2", kernel), "/resnet/residual")
    y = net.convolve(net.norm_groups(x, "/transformer/norm"), "/transformer/in", (_WIDTH, _CHANNELS, 1, 1))
    y = net.node("Reshape", [y, net.constant("places", [0, _WIDTH, -1])], "/transformer/in")
    y = net.node("Transpose", [y], "/transformer/in", perm=(0, 2, 1))
    for name, text in (("self", ""), ("cross", "encoder_hidden_states")):
        at = f"/transformer/{name}"
        y = net.add(y, net.attention(net.norm(y, at), at, square, context=text), f"{at}/residual")
    y = net.feed(y, "/transformer/mlp")
    y = net.node("Transpose", [y], "/transformer/out", perm=(0, 2, 1))
    y = net.node("Reshape", [y, net.constant("picture", [0, _WIDTH, _SIDE, _SIDE])], "/transformer/out")
    x = net.add(x, net.convolve(y, "/transformer/out", (_CHANNELS, _WIDTH, 1, 1)), "/transformer/residual")
    picture = ("N", _CHANNELS, _SIDE, _SIDE)
    inputs = {"sample": picture, "temb": ("N", _TIME), "encoder_hidden_states": ("N", *_TEXT)}
    return net.writer.model(inputs, {"out_sample": (x, picture)})


def whisper_encoder() -> Model:
    """The encoder of Whisper (Radford et al., 2022) with two blocks of width 128: it reads the mel spectrum of a sound.

    The second convolution halves the number of frames; positions are sines and cosines.
    """
    net = _Blocks("whisper_encoder")
    x = net.gelu(net.convolve("input_features", "/conv1", (_WIDTH, _BINS, 3)), "/conv1/gelu")
    x = net.gelu(net.convolve(x, "/conv2", (_WIDTH, _WIDTH, 3), stride=2), "/conv2/gelu")
    x = net.node("Transpose", [x], "/positions", perm=(0, 2, 1))
    angles = np.outer(np.arange(_FRAMES // 2), 10_000 ** -np.linspace(0, 1, _WIDTH // 2))
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    x = net.add(x, net.writer.weight("/positions/weight", table), "/positions")
    for i in range(_LAYERS):
        at = f"/layers.{i}"
        y = net.attention(net.norm(x, f"{at}/attention"), f"{at}/attention", (_WIDTH, _WIDTH))
        x = net.feed(net.add(x, y, f"{at}/attention/residual"), f"{at}/mlp")
    size = ("N", _FRAMES // 2, _WIDTH)
    inputs = {"input_features": ("N", _BINS, _FRAMES)}
    return net.writer.model(inputs, {"last_hidden_state": (net.norm(x, ""), size)})


def mixture_of_experts() -> Model:
    """Two layers of attention and experts (Jiang et al., 2024): a router chooses two of four experts for each token.

    Every expert computes every token, as where an exporter unrolls them; what was not chosen is multiplied by zero.
    """
    net = _Blocks("mixture_of_experts")
    x = "hidden_states"
    for i in range(_LAYERS):
        at = f"/layers.{i}"
        y = net.attention(net.norm_square(x, f"{at}/attention"), f"{at}/attention", (_WIDTH, _WIDTH))
        x = net.add(x, y, f"{at}/attention/residual")
        x = net.add(x, net.choose_experts(net.norm_square(x, f"{at}/experts"), at), f"{at}/experts/residual")
    size = ("N", _TOKENS, _WIDTH)
    return net.writer.model({"hidden_states": size}, {"last_hidden_state": (net.norm_square(x, ""), size)})


class _Blocks:
    """Writes layers as exporters do; ``at`` is the path of their nodes, which names their weights too."""

    def __init__(self, name: str) -> None:
        self.writer = Writer(name)
        self.node = self.writer.node
        self.rng = np.random.default_rng(SEED)

    def draw(self, name: str, shape: Sequence[int], *, mean: float = 0, deviation: float = 0.1) -> str:
        """A weight of normal noise."""
        noise = self.rng.standard_normal(shape, np.float32)
        return self.writer.weight(name, np.float32(mean) + np.float32(deviation) * noise)

    def constant(self, name: str, value: float | Sequence[int]) -> str:
        """An FP32 number, or INT64 ones."""
        return self.writer.weight(name, np.array(value, np.float32 if np.ndim(value) == 0 else np.int64))

    def dense(self, x: str, at: str, size: tuple[int, int], *, bias: bool = True) -> str:
        """Product with a weight of this shape, (inputs, outputs), whose result has about the deviation of ``x``."""
        y = self.node("MatMul", [x, self.draw(f"{at}/weight", size, deviation=size[0] ** -0.5)], at)
        return self.node("Add", [y, self.draw(f"{at}/bias", size[1:])], at) if bias else y

    def convolve(self, x: str, at: str, size: tuple[int, ...], *, stride: int = 1) -> str:
        """Convolution with a weight of this shape, (outputs, inputs, kernel), and padding of half the kernel."""
        weight = self.draw(f"{at}/weight", size, deviation=math.prod(size[1:]) ** -0.5)
        kernel = size[2:]
        layout = {
            "kernel_shape": kernel,
            "strides": [stride] * len(kernel),
            "pads": [k // 2 for k in kernel] * 2,
        }
        return self.node("Conv", [x, weight, self.draw(f"{at}/bias", size[:1])], at, **layout)

    def add(self, x: str, y: str, at: str) -> str:
        """Sum of two values."""
        return self.node("Add", [x, y], at)

    def norm(self, x: str, at: str) -> str:
        """Layer normalisation."""
        ends = [self.draw(f"{at}/norm/{n}", (_WIDTH,), mean=m) for n, m in (("weight", 1), ("bias", 0))]
        return self.node("LayerNormalization", [x, *ends], f"{at}/norm", axis=-1, epsilon=1e-5)

    def norm_square(self, x: str, at: str) -> str:
        """Division by the root of the mean square (Zhang and Sennrich, 2019)."""
        at = f"{at}/norm"
        y = self.node("ReduceMean", [self.node("Pow", [x, self.constant("two", 2)], at)], at, axes=[-1])
        y = self.node("Sqrt", [self.node("Add", [y, self.constant("epsilon", 1e-6)], at)], at)
        y = self.node("Div", [x, y], at)
        return self.node("Mul", [self.draw(f"{at}/weight", (_WIDTH,), mean=1), y], at)

    def norm_groups(self, x: str, at: str) -> str:
        """Group normalisation, as exporters write it up to opset 17."""
        ends = [
            self.writer.weight(n, f([_GROUPS], np.float32))
            for n, f in (("ones", np.ones), ("zeros", np.zeros))
        ]
        y = self.node("Reshape", [x, self.constant("groups", [0, _GROUPS, -1])], at)
        y = self.node("InstanceNormalization", [y, *ends], at, epsilon=1e-5)
        y = self.node("Reshape", [y, self.constant("picture", [0, _CHANNELS, _SIDE, _SIDE])], f"{at}/join")
        y = self.node("Mul", [y, self.draw(f"{at}/weight", (_CHANNELS, 1, 1), mean=1)], at)
        return self.node("Add", [y, self.draw(f"{at}/bias", (_CHANNELS, 1, 1))], at)

    def silu(self, x: str, at: str) -> str:
        """Multiplication by the own sigmoid."""
        return self.node("Mul", [x, self.node("Sigmoid", [x], f"{at}/act")], f"{at}/act")

    def gelu(self, x: str, at: str) -> str:
        """The exact GELU."""
        y = self.node("Erf", [self.node("Div", [x, self.constant("sqrt_two", math.sqrt(2))], at)], at)
        y = self.node("Mul", [x, self.node("Add", [y, self.constant("one", 1)], at)], at)
        return self.node("Mul", [y, self.constant("half", 0.5)], f"{at}/half")

    def feed(self, x: str, at: str) -> str:
        """Normalisation and two dense layers beside a residual."""
        y = self.gelu(self.dense(self.norm(x, at), f"{at}/up", (_WIDTH, 2 * _WIDTH)), f"{at}/gelu")
        return self.add(x, self.dense(y, f"{at}/down", (2 * _WIDTH, _WIDTH)), f"{at}/residual")

    def feed_gated(self, x: str, at: str) -> str:
        """Three dense layers, of which one gates another (SwiGLU; Shazeer, 2020)."""
        gate, up = (self.dense(x, f"{at}/{n}", (_WIDTH, 2 * _WIDTH), bias=False) for n in ("gate", "up"))
        y = self.node("Mul", [self.silu(gate, f"{at}/gate"), up], at)
        return self.dense(y, f"{at}/down", (2 * _WIDTH, _WIDTH), bias=False)

    def split(self, x: str, at: str, heads: int = _HEADS) -> str:
        """From (N, tokens, width) to (N, heads, tokens, size of a head)."""
        y = self.node("Reshape", [x, self.constant(f"split_{heads}", [0, 0, heads, _EACH])], at)
        return self.node("Transpose", [y], at, perm=(0, 2, 1, 3))

    def attend(self, query: str, key: str, value: str, at: str, *, mask: str = "") -> str:
        """Attention of heads, joined; ``mask`` is added to the scores."""
        y = self.node("MatMul", [query, self.node("Transpose", [key], at, perm=(0, 1, 3, 2))], f"{at}/scores")
        y = self.node("Mul", [y, self.constant("head_scale", _EACH**-0.5)], f"{at}/scores")
        y = self.node("Softmax", [self.add(y, mask, f"{at}/mask") if mask else y], at, axis=-1)
        y = self.node("MatMul", [y, value], f"{at}/context")
        y = self.node("Transpose", [y], f"{at}/context", perm=(0, 2, 1, 3))
        return self.node("Reshape", [y, self.constant("join", [0, 0, _WIDTH])], f"{at}/context")

    def attention(self, x: str, at: str, size: tuple[int, int], *, context: str = "") -> str:
        """Attention with its four dense layers, over ``x`` itself or over the text ``context``."""
        query = self.split(self.dense(x, f"{at}/query", size), f"{at}/query")
        source = (_TEXT[1], _WIDTH) if context else size
        key, value = (
            self.split(self.dense(context or x, f"{at}/{n}", source), f"{at}/{n}") for n in ("key", "value")
        )
        return self.dense(self.attend(query, key, value, at), f"{at}/output", size)

    def attend_with_cache(
        self, x: str, at: str, past: Mapping[str, str], *, mask: str, turn: tuple[str, str]
    ) -> tuple[str, dict[str, str]]:
        """Attention to earlier tokens too, and the keys and values of all, for heads that share them."""
        square, narrow = (_WIDTH, _WIDTH), (_WIDTH, _SHARED_HEADS * _EACH)
        query = self.split(self.dense(x, f"{at}/query", square, bias=False), f"{at}/query")
        query = self.turn(query, f"{at}/query", turn)
        present: dict[str, str] = {}
        for name, values in past.items():
            y = self.dense(x, f"{at}/{name}", narrow, bias=False)
            y = self.split(y, f"{at}/{name}", _SHARED_HEADS)
            y = self.turn(y, f"{at}/key", turn) if name == "key" else y
            present[name] = self.node("Concat", [values, y], f"{at}/{name}/cache", axis=2)
        key, value = (self.repeat_heads(v, f"{at}/{n}/repeat") for n, v in present.items())
        y = self.attend(query, key, value, f"{at}/attention", mask=mask)
        return self.dense(y, f"{at}/output", square, bias=False), present

    def mask_later_tokens(self) -> str:
        """What is added to the scores: zero where a query may look, else the lowest number of FP32.

        The position of a key is the number of tokens before it, so that padding on the left counts for nothing.
        """
        at = "/mask"
        keys = self.node("CumSum", ["attention_mask", self.writer.weight("axis", np.array(1))], at)
        keys = self.node("Sub", [keys, self.writer.weight("one_token", np.array(1))], at)
        keys = self.node("Unsqueeze", [keys, self.constant("axes_1_2", [1, 2])], at)
        queries = self.node("Unsqueeze", ["position_ids", self.constant("axes_1_3", [1, 3])], f"{at}/queries")
        y = self.node("Cast", ["attention_mask"], at, to=onnx.TensorProto.BOOL)
        y = self.node("Unsqueeze", [y, self.constant("axes_1_2", [1, 2])], f"{at}/tokens")
        y = self.node("And", [y, self.node("LessOrEqual", [keys, queries], at)], at)
        ends = [self.constant("zero", 0), self.constant("lowest", float(np.finfo(np.float32).min))]
        return self.node("Where", [y, *ends], at)

    def turn_by_position(self) -> tuple[str, str]:
        """Cosines and sines of the angles by which positions turn pairs of numbers, (N, 1, tokens, size of a head)."""
        at = "/turn"
        rates = 10_000 ** -np.arange(0, 1, 2 / _EACH)
        y = self.node("Cast", ["position_ids"], at, to=onnx.TensorProto.FLOAT)
        y = self.node("Unsqueeze", [y, self.constant("axes_1_3", [1, 3])], at)
        y = self.node("Mul", [y, self.writer.weight("rates", np.tile(rates, 2).astype(np.float32))], at)
        return self.node("Cos", [y], at), self.node("Sin", [y], at)

    def turn(self, x: str, at: str, by: tuple[str, str]) -> str:
        """Rotary embedding: number k of a head's first half and number k of its second are a pair."""
        at, half = f"{at}/turn", _EACH // 2
        ends = {
            n: self.constant(f"slice_{n}", [v])
            for n, v in (("start", 0), ("half", half), ("end", _EACH), ("axis", 3))
        }
        first = self.node("Slice", [x, ends["start"], ends["half"], ends["axis"]], f"{at}/first")
        second = self.node("Slice", [x, ends["half"], ends["end"], ends["axis"]], f"{at}/second")
        other = self.node("Concat", [self.node("Neg", [second], at), first], at, axis=3)
        parts = [
            self.node("Mul", [v, w], f"{at}/{n}") for v, w, n in ((x, by[0], "cos"), (other, by[1], "sin"))
        ]
        return self.node("Add", parts, at)

    def repeat_heads(self, x: str, at: str) -> str:
        """Each head of keys or values for the queries that share it."""
        y = self.node("Unsqueeze", [x, self.constant("axis_2", [2])], at)
        y = self.node("Expand", [y, self.constant("sharing", [1, 1, _HEADS // _SHARED_HEADS, 1, 1])], at)
        return self.node("Reshape", [y, self.constant("all_heads", [0, _HEADS, -1, _EACH])], at)

    def choose_experts(self, x: str, at: str) -> str:
        """The sum of the experts' results, each times its share of the router's Softmax over the chosen."""
        top, last = f"{at}/router", self.constant("last", [-1])
        inputs = [self.dense(x, top, (_WIDTH, _EXPERTS), bias=False), self.constant("chosen", [_CHOSEN])]
        values, indices = f"{top}/values", f"{top}/indices"
        self.writer.nodes.append(onnx.helper.make_node("TopK", inputs, [values, indices], name=f"{top}/TopK"))
        shares = self.node("Unsqueeze", [self.node("Softmax", [values], top, axis=-1), last], top)
        y = self.node("Unsqueeze", [indices, last], f"{top}/chosen")
        y = self.node("Equal", [y, self.constant("experts", range(_EXPERTS))], f"{top}/chosen")
        y = self.node("Cast", [y], f"{top}/chosen", to=onnx.TensorProto.FLOAT)
        y = self.node("Mul", [y, shares], top)
        shares = self.node("ReduceSum", [y, self.constant("axis_2", [2])], top, keepdims=0)
        total = ""
        for i in range(_EXPERTS):
            expert = f"{at}/experts.{i}"
            share = self.node(
                "Gather", [shares, self.constant(f"expert_{i}", [i])], f"{expert}/share", axis=2
            )
            y = self.node("Mul", [self.feed_gated(x, expert), share], f"{expert}/share")
            total = self.add(total, y, f"{expert}/sum") if total else y
        return total
