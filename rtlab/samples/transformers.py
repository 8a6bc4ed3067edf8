"""Transformer encoders with synthetic weights: a stack of any length, and BERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtlab.samples.architectures import SEED, SampledValue, Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.samples.architectures import Array


def transformer_stack(*, nodes: int = 1000) -> Model:
    """A runnable stack of small transformer encoder layers with about ``nodes`` nodes (33 to a layer).

    Input ``hidden``: ``N×16×32`` embeddings of 16 tokens; four heads; the output has the same shape. Weights
    are scaled as GPT-2 scales them, so that the residual stream stays of order one at any depth.
    """
    width, heads, tokens = 32, 4, 16
    layers = max(1, round((nodes - 1) / 33))
    net = _Encoder("transformer_stack", width, heads, tokens, epsilon=1e-5, fitted=False)
    x, branch = SampledValue("hidden", np.zeros((1, tokens, width), np.float32)), 1 / np.sqrt(2 * layers)
    for i in range(layers):
        at = f"/layer{i}"
        h = net.norm(x, f"{at}/attention")
        x = net.add(x, net.attention(h, f"{at}/attention", gains=(1, 1, branch)), f"{at}/attention")
        h = net.gelu(net.dense(net.norm(x, f"{at}/mlp"), f"{at}/mlp/up", 4 * width), f"{at}/mlp/gelu")
        x = net.add(x, net.dense(h, f"{at}/mlp/down", width, gain=branch), f"{at}/mlp")
    x, size = net.norm(x, ""), ("N", tokens, width)
    return net.writer.model({"hidden": size}, {"encoded": (x.name, size)})


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
    net = _Encoder("bert", _WIDTH, _HEADS, _TOKENS, epsilon=1e-12, fitted=True)
    x = _embed(net, sentences(_SENTENCES))
    for i in range(_LAYERS):
        at = f"/layer{i}"
        h = net.attention(x, f"{at}/attention", gains=(1.25, 1.25, 0.5))
        x = net.norm(net.add(x, h, f"{at}/attention/sum"), f"{at}/attention")
        h = net.gelu(net.dense(x, f"{at}/up", 4 * _WIDTH), f"{at}/gelu")
        x = net.norm(net.add(x, net.dense(h, f"{at}/down", _WIDTH, gain=0.5), f"{at}/sum"), at)
    size = ("N", _TOKENS)
    outputs = {"last_hidden_state": (x.name, (*size, _WIDTH))}
    return net.writer.model({"input_ids": size}, outputs, integers=("input_ids",))


def _embed(net: _Encoder, ids: NDArray[np.int64]) -> SampledValue:
    """Words and places, added and normalised."""
    words, places = (net.rng.standard_normal((n, _WIDTH), np.float32) for n in (_WORDS, _TOKENS))
    at, put, node = "/embeddings", net.writer.weight, net.writer.node
    name = node("Gather", [put(f"{at}/words/weight", words), "input_ids"], f"{at}/words")
    name = node("Add", [name, put(f"{at}/places/weight", places)], at)
    return net.norm(SampledValue(name, words[ids] + places), at)


def sentences(count: int) -> NDArray[np.int64]:
    """Token ids, shape ``(count, 128)``; how often one occurs falls with its rank, as words do (Zipf, 1935).

    Sentence i is the same for any ``count``.
    """
    share = 1 / np.arange(1, _WORDS + 1)
    ends = np.cumsum(share / share.sum())
    draws = [np.random.default_rng((SEED, i)).random(_TOKENS) for i in range(count)]
    ids: NDArray[np.int64] = np.searchsorted(ends[:-1], np.array(draws)).astype(np.int64)
    return ids


class _Encoder:
    """Writes encoder layers while running them on samples.

    ``fitted``: every dense layer is centred and gets the deviation asked for, on these samples; otherwise weights have
    the deviation ``gain / sqrt(inputs)``, and biases are zero.
    """

    def __init__(
        self, name: str, width: int, heads: int, tokens: int, *, epsilon: float, fitted: bool
    ) -> None:
        self.writer = Writer(name)
        self.rng = np.random.default_rng(SEED)
        self.width, self.heads, self.tokens = width, heads, tokens
        self.epsilon, self.fitted = epsilon, fitted
        put = self.writer.weight
        self.split = put("split_heads", np.array([0, tokens, heads, width // heads]))
        self.merge = put("merge_heads", np.array([0, tokens, width]))
        numbers = {"head_scale": np.sqrt(width // heads), "sqrt_two": np.sqrt(2), "one": 1, "half": 0.5}
        self.number = {k: put(k, np.array(v, np.float32)) for k, v in numbers.items()}

    def attention(self, x: SampledValue, at: str, *, gains: tuple[float, float, float]) -> SampledValue:
        """Heads over all tokens; ``gains`` are those of queries and keys, of values, and of the output."""
        node, (score_gain, value_gain, output_gain) = self.writer.node, gains
        parts: list[SampledValue] = []
        for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            # The scores' deviation is the product of the queries' and the keys'.
            y = self.dense(x, f"{at}/{part}", self.width, gain=value_gain if part == "value" else score_gain)
            name = node("Reshape", [y.name, self.split], f"{at}/{part}")
            name = node("Transpose", [name], f"{at}/{part}", perm=order)
            heads = y.data.reshape(-1, self.tokens, self.heads, self.width // self.heads)
            parts.append(SampledValue(name, heads.transpose(order)))
        query, key, value = parts
        name = node("MatMul", [query.name, key.name], f"{at}/scores")
        name = node("Div", [name, self.number["head_scale"]], f"{at}/scores")
        name = node("Softmax", [name], at, axis=-1)
        weights = np.exp(query.data @ key.data / np.float32(np.sqrt(self.width // self.heads)))
        weights /= weights.sum(axis=-1, keepdims=True)
        name = node("MatMul", [name, value.name], f"{at}/context")
        name = node("Transpose", [name], f"{at}/context", perm=(0, 2, 1, 3))
        name = node("Reshape", [name, self.merge], f"{at}/context")
        context = (weights @ value.data).transpose(0, 2, 1, 3).reshape(-1, self.tokens, self.width)
        return self.dense(SampledValue(name, context), f"{at}/output", self.width, gain=output_gain)

    def dense(self, x: SampledValue, where: str, width: int, *, gain: float = 1.0) -> SampledValue:
        """Product with random weights and a bias."""
        weight = self.rng.standard_normal((x.data.shape[-1], width), np.float32)
        raw: Array = x.data @ weight
        factor = np.float32(gain) / raw.std() if self.fitted else np.float32(gain / np.sqrt(len(weight)))
        weight, raw = weight * factor, raw * factor
        bias = -raw.mean(axis=(0, 1)) if self.fitted else np.zeros(width, np.float32)
        name = self.writer.node("MatMul", [x.name, self.writer.weight(f"{where}/weight", weight)], where)
        name = self.writer.node("Add", [name, self.writer.weight(f"{where}/bias", bias)], where)
        return SampledValue(name, raw + bias)

    def add(self, x: SampledValue, y: SampledValue, where: str) -> SampledValue:
        """Add a branch to what it branched from."""
        return SampledValue(self.writer.node("Add", [x.name, y.name], where), x.data + y.data)

    def norm(self, x: SampledValue, where: str) -> SampledValue:
        """Standardise every token."""
        at, put = f"{where}/norm", self.writer.weight
        ends = {"scale": np.ones(self.width, np.float32), "bias": np.zeros(self.width, np.float32)}
        inputs = [put(f"{at}/{k}", v) for k, v in ends.items()]
        name = self.writer.node("LayerNormalization", [x.name, *inputs], at, axis=-1, epsilon=self.epsilon)
        centred = x.data - x.data.mean(axis=-1, keepdims=True)
        deviation = centred.std(axis=-1, keepdims=True)
        return SampledValue(name, centred / deviation if self.fitted else centred)

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
