"""Transformer encoders with synthetic weights: a stack of any length, and BERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from rtlab.samples.writer import SEED, SampledValue, Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.samples.writer import Array


def transformer_stack(*, nodes: int = 1000) -> Model:
    """A runnable stack of small transformer encoder layers with about ``nodes`` nodes (33 to a layer).

    Input ``hidden``: ``N×16×32`` embeddings of 16 tokens; four heads; the output has the same shape. Weights
    are scaled as GPT-2 scales them, so that the residual stream stays of order one at any depth.
    """
    width, heads, tokens = 32, 4, 16
    layers = max(1, round((nodes - 1) / 33))
    writer = Writer("transformer_stack")
    rng = np.random.default_rng(SEED)
    x = "hidden"

    def constant(name: str, value: float) -> str:
        return writer.weight(name, np.array(value, np.float32))

    def dense(x: str, where: str, fan_in: int, fan_out: int, gain: float = 1.0) -> str:
        scale = gain / np.sqrt(fan_in)
        weight = rng.standard_normal((fan_in, fan_out), np.float32) * np.float32(scale)
        x = writer.node("MatMul", [x, writer.weight(f"{where}/weight", weight)], where)
        return writer.node("Add", [x, writer.weight(f"{where}/bias", np.zeros(fan_out, np.float32))], where)

    def norm(x: str, where: str) -> str:
        scale = writer.weight(f"{where}/scale", np.ones(width, np.float32))
        bias = writer.weight(f"{where}/bias", np.zeros(width, np.float32))
        return writer.node("LayerNormalization", [x, scale, bias], where, axis=-1, epsilon=1e-5)

    split = writer.weight("split_heads", np.array([0, tokens, heads, width // heads]))
    merge = writer.weight("merge_heads", np.array([0, tokens, width]))
    shrink = constant("head_scale", np.sqrt(width // heads))
    root, one, half = constant("sqrt_two", np.sqrt(2)), constant("one", 1), constant("half", 0.5)
    for i in range(layers):
        at, branch = f"/layer{i}", 1 / np.sqrt(2 * layers)
        h = norm(x, f"{at}/attention/norm")
        parts: list[str] = []
        for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            where = f"{at}/attention/{part}"
            p = writer.node("Reshape", [dense(h, where, width, width), split], where)
            parts.append(writer.node("Transpose", [p], where, perm=order))
        where = f"{at}/attention"
        h = writer.node("MatMul", parts[:2], f"{where}/scores")
        h = writer.node("Div", [h, shrink], f"{where}/scores")
        h = writer.node("Softmax", [h], where, axis=-1)
        h = writer.node("MatMul", [h, parts[2]], f"{where}/context")
        h = writer.node("Transpose", [h], f"{where}/context", perm=(0, 2, 1, 3))
        h = writer.node("Reshape", [h, merge], f"{where}/context")
        x = writer.node("Add", [x, dense(h, f"{where}/output", width, width, branch)], where)
        h = dense(norm(x, f"{at}/mlp/norm"), f"{at}/mlp/up", width, 4 * width)
        where = f"{at}/mlp/gelu"
        e = writer.node("Erf", [writer.node("Div", [h, root], where)], where)
        e = writer.node("Mul", [h, writer.node("Add", [e, one], where)], where)
        h = writer.node("Mul", [e, half], f"{where}/half")
        x = writer.node("Add", [x, dense(h, f"{at}/mlp/down", 4 * width, width, branch)], f"{at}/mlp")
    x = norm(x, "/norm")
    return writer.model(("hidden", ("N", tokens, width)), x, ("encoded", ("N", tokens, width)))


def sentence_input(ids: NDArray[np.uint8]) -> dict[str, NDArray[np.int64]]:
    """What a tokenizer returns for sentences of these ids: the ids, and a mask with 0 for padding, which has id 0."""
    return {"input_ids": ids.astype(np.int64), "attention_mask": (ids > 0).astype(np.int64)}


#: BERT's sizes (Devlin et al., 2019, section 3), but fewer layers and words, so that it is made in a second.
_WIDTH, _HEADS, _TOKENS, _LAYERS, _WORDS = 768, 12, 128, 4, 8192
#: Sentences that the weights are fitted to.
_SENTENCES = 4


def bert() -> Model:
    """Four of the twelve encoder layers of BERT-base, normalised after each residual addition.

    Input ``input_ids``: ``N×128`` token ids below 8,192, as ``sentences`` draws them.
    """
    net = _Bert(sentences(_SENTENCES))
    x = net.embed()
    for i in range(_LAYERS):
        x = net.layer(x, f"/layer{i}")
    size = ("N", _TOKENS)
    source, target = ("input_ids", size), ("last_hidden_state", (*size, _WIDTH))
    return net.writer.model(source, x.name, target, kind=onnx.TensorProto.INT64)


def sentences(count: int) -> NDArray[np.int64]:
    """Token ids, shape ``(count, 128)``; how often one occurs falls with its rank, as words do (Zipf, 1935).

    Sentence i is the same for any ``count``.
    """
    share = 1 / np.arange(1, _WORDS + 1)
    ends = np.cumsum(share / share.sum())
    draws = [np.random.default_rng((SEED, i)).random(_TOKENS) for i in range(count)]
    ids: NDArray[np.int64] = np.searchsorted(ends[:-1], np.array(draws)).astype(np.int64)
    return ids


class _Bert:
    """Writes BERT while running it; every dense layer is centred and gets the deviation asked for."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self.writer = Writer("bert")
        self.rng = np.random.default_rng(SEED)
        self.ids = ids
        put = self.writer.weight
        self.split = put("split_heads", np.array([0, _TOKENS, _HEADS, _WIDTH // _HEADS]))
        self.merge = put("merge_heads", np.array([0, _TOKENS, _WIDTH]))
        numbers = {"head_scale": np.sqrt(_WIDTH // _HEADS), "sqrt_two": np.sqrt(2), "one": 1, "half": 0.5}
        self.number = {k: put(k, np.array(v, np.float32)) for k, v in numbers.items()}

    def embed(self) -> SampledValue:
        """Words and places, added and normalised."""
        words, places = (self.rng.standard_normal((n, _WIDTH), np.float32) for n in (_WORDS, _TOKENS))
        at, put, node = "/embeddings", self.writer.weight, self.writer.node
        name = node("Gather", [put(f"{at}/words/weight", words), "input_ids"], f"{at}/words")
        name = node("Add", [name, put(f"{at}/places/weight", places)], at)
        return self.norm(SampledValue(name, words[self.ids] + places), at)

    def layer(self, x: SampledValue, at: str) -> SampledValue:
        """Attention, then two dense layers with GELU between them."""
        x = self.norm(self.add(x, self.attention(x, f"{at}/attention"), f"{at}/attention"), f"{at}/attention")
        h = self.gelu(self.dense(x, f"{at}/up", 4 * _WIDTH), f"{at}/gelu")
        return self.norm(self.add(x, self.dense(h, f"{at}/down", _WIDTH, deviation=0.5), at), at)

    def attention(self, x: SampledValue, at: str) -> SampledValue:
        """Twelve heads over all tokens."""
        node = self.writer.node
        parts: list[SampledValue] = []
        for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            # The scores' deviation is the product of the queries' and the keys'.
            y = self.dense(x, f"{at}/{part}", _WIDTH, deviation=1.25)
            name = node("Reshape", [y.name, self.split], f"{at}/{part}")
            name = node("Transpose", [name], f"{at}/{part}", perm=order)
            heads = y.data.reshape(-1, _TOKENS, _HEADS, _WIDTH // _HEADS)
            parts.append(SampledValue(name, heads.transpose(order)))
        query, key, value = parts
        name = node("MatMul", [query.name, key.name], f"{at}/scores")
        name = node("Div", [name, self.number["head_scale"]], f"{at}/scores")
        name = node("Softmax", [name], at, axis=-1)
        weights = np.exp(query.data @ key.data / np.float32(np.sqrt(_WIDTH // _HEADS)))
        weights /= weights.sum(axis=-1, keepdims=True)
        name = node("MatMul", [name, value.name], f"{at}/context")
        name = node("Transpose", [name], f"{at}/context", perm=(0, 2, 1, 3))
        name = node("Reshape", [name, self.merge], f"{at}/context")
        context = (weights @ value.data).transpose(0, 2, 1, 3).reshape(-1, _TOKENS, _WIDTH)
        return self.dense(SampledValue(name, context), f"{at}/output", _WIDTH, deviation=0.5)

    def dense(self, x: SampledValue, where: str, width: int, *, deviation: float = 1.0) -> SampledValue:
        """Product with random weights and a bias."""
        weight = self.rng.standard_normal((x.data.shape[-1], width), np.float32)
        raw: Array = x.data @ weight
        factor = np.float32(deviation) / raw.std()
        weight, raw = weight * factor, raw * factor
        bias = -raw.mean(axis=(0, 1))
        name = self.writer.node("MatMul", [x.name, self.writer.weight(f"{where}/weight", weight)], where)
        name = self.writer.node("Add", [name, self.writer.weight(f"{where}/bias", bias)], where)
        return SampledValue(name, raw + bias)

    def add(self, x: SampledValue, y: SampledValue, where: str) -> SampledValue:
        """Add a branch to what it branched from."""
        return SampledValue(self.writer.node("Add", [x.name, y.name], f"{where}/sum"), x.data + y.data)

    def norm(self, x: SampledValue, where: str) -> SampledValue:
        """Standardise every token."""
        at, put = f"{where}/norm", self.writer.weight
        ends = {"scale": np.ones(_WIDTH, np.float32), "bias": np.zeros(_WIDTH, np.float32)}
        inputs = [put(f"{at}/{k}", v) for k, v in ends.items()]
        name = self.writer.node("LayerNormalization", [x.name, *inputs], at, axis=-1, epsilon=1e-12)
        centred = x.data - x.data.mean(axis=-1, keepdims=True)
        return SampledValue(name, centred / centred.std(axis=-1, keepdims=True))

    def gelu(self, x: SampledValue, at: str) -> SampledValue:
        """The exact GELU, in the five nodes that exporters write."""
        from scipy import special

        node = self.writer.node
        name = node("Erf", [node("Div", [x.name, self.number["sqrt_two"]], at)], at)
        name = node("Mul", [x.name, node("Add", [name, self.number["one"]], at)], at)
        name = node("Mul", [name, self.number["half"]], f"{at}/half")
        inner = x.data / np.float32(np.sqrt(2))
        # In double precision, so that the weights are the same on every machine.
        erf = special.erf(inner.astype(np.float64)).astype(np.float32)
        return SampledValue(name, x.data * (1 + erf) / 2)
