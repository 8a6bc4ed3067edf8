"""Blocks of today's models compute what NumPy computes of the same weights, and the decoder's cache is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

import rtlab
import shelf

Weights = Mapping[str, np.ndarray]
HEADS, EACH = 4, 32


def run(name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    model = shelf.load(name).model
    return dict(zip(model.outputs, shelf.expose(model, []).run(None, dict(inputs)), strict=True))


def weights(name: str) -> Weights:
    found = shelf.load(name).model.ir.graph.initializers
    return {
        n: v.const_value.numpy().astype(np.float64) for n, v in found.items() if v.dtype.is_floating_point()
    }


def some(name: str) -> dict[str, np.ndarray]:
    return {n: a[:2] for n, a in shelf.load(name).calibration.arrays.items()}


def dense(w: Weights, at: str, x: np.ndarray) -> np.ndarray:
    return x @ w[f"{at}.weight"] + w.get(f"{at}.bias", 0)


def norm(w: Weights, at: str, x: np.ndarray) -> np.ndarray:
    """Layer normalisation where there is a bias, else by the root of the mean square."""
    at = f"{at}.norm".strip(".")
    if f"{at}.bias" not in w:
        return w[f"{at}.weight"] * x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)
    unit = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return unit * w[f"{at}.weight"] + w[f"{at}.bias"]


def heads(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], -1, EACH)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: Any = True) -> np.ndarray:
    """Of heads as the third axis; ``seen`` says which key (last axis) a query may look at."""
    scores = np.where(seen, np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(EACH), -np.inf)
    y = np.einsum("bhqk,bkhd->bqhd", special.softmax(scores, axis=-1), v)
    return y.reshape(*y.shape[:2], -1)


def attention(w: Weights, at: str, x: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
    source = x if context is None else context
    parts = (heads(dense(w, f"{at}.{n}", y)) for n, y in (("query", x), ("key", source), ("value", source)))
    return dense(w, f"{at}.output", attend(*parts))


def gelu(x: np.ndarray) -> np.ndarray:
    return x * special.ndtr(x)


def silu(x: np.ndarray) -> np.ndarray:
    return x * special.expit(x)


def feed(w: Weights, at: str, x: np.ndarray) -> np.ndarray:
    return x + dense(w, f"{at}.down", gelu(dense(w, f"{at}.up", norm(w, at, x))))


def feed_gated(w: Weights, at: str, x: np.ndarray) -> np.ndarray:
    return dense(w, f"{at}.down", silu(dense(w, f"{at}.gate", x)) * dense(w, f"{at}.up", x))


def convolve(w: Weights, at: str, x: np.ndarray, stride: int = 1) -> np.ndarray:
    weight = w[f"{at}.weight"]
    kernel = weight.shape[2:]
    axes = tuple(range(2, 2 + len(kernel)))
    padded = np.pad(x, [(0, 0), (0, 0), *((k // 2, k // 2) for k in kernel)])
    windows = sliding_window_view(padded, kernel, axis=axes)
    windows = windows[(..., *(slice(None, None, stride) for _ in kernel), *(slice(None) for _ in kernel))]
    letters = "xy"[: len(kernel)], "ij"[: len(kernel)]
    y = np.einsum(f"nc{letters[0]}{letters[1]},oc{letters[1]}->no{letters[0]}", windows, weight)
    return y + w[f"{at}.bias"].reshape(-1, *[1] * len(kernel))


def norm_groups(w: Weights, at: str, x: np.ndarray) -> np.ndarray:
    y = x.reshape(len(x), 8, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * w[f"{at}.weight"] + w[f"{at}.bias"]


def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Numbers k and k + 16 as a complex one, turned by position / 10,000^(k / 16)."""
    pairs = x[..., : EACH // 2] + 1j * x[..., EACH // 2 :]
    pairs = pairs * np.exp(
        1j * positions[:, :, None, None] * 10_000.0 ** (-np.arange(EACH // 2) / (EACH // 2))
    )
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def decode(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    w, positions, found = weights("decoder_with_cache"), inputs["position_ids"], {}
    mask = inputs["attention_mask"]
    order = mask.cumsum(1) - 1
    seen = ((order[:, None] <= positions[:, :, None]) & (mask[:, None] == 1))[:, None]
    x = w["words.weight"][inputs["input_ids"]]
    for i in range(2):
        at = f"layers.{i}"
        h = norm(w, at, x)
        query, key, value = (heads(dense(w, f"{at}.{n}", h)) for n in ("query", "key", "value"))
        both = {"key": rotate(key, positions), "value": value}
        for name, part in both.items():
            past = inputs[f"past_key_values.{i}.{name}"].transpose(0, 2, 1, 3)
            both[name] = np.concatenate([past, part], axis=1)
            found[f"present.{i}.{name}"] = both[name].transpose(0, 2, 1, 3)
        key, value = (v.repeat(2, axis=2) for v in both.values())
        x = x + dense(w, f"{at}.output", attend(rotate(query, positions), key, value, seen))
        x = x + feed_gated(w, f"{at}.mlp", norm(w, f"{at}.mlp", x))
    return {"logits": dense(w, "head", norm(w, "", x)), **found}


def diffuse(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    w, x = weights("unet_block"), inputs["sample"].astype(np.float64)
    y = convolve(w, "resnet.conv1", silu(norm_groups(w, "resnet.norm1", x)))
    y = y + dense(w, "resnet.time", silu(inputs["temb"]))[:, :, None, None]
    x = x + convolve(w, "resnet.conv2", silu(norm_groups(w, "resnet.norm2", y)))
    y = convolve(w, "transformer.in", norm_groups(w, "transformer.norm", x))
    y = y.reshape(*y.shape[:2], -1).transpose(0, 2, 1)
    for name, text in (("self", None), ("cross", inputs["encoder_hidden_states"])):
        at = f"transformer.{name}"
        y = y + attention(w, at, norm(w, at, y), text)
    y = feed(w, "transformer.mlp", y).transpose(0, 2, 1).reshape(x.shape)
    return {"out_sample": x + convolve(w, "transformer.out", y)}


def listen(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    w = weights("whisper_encoder")
    x = gelu(convolve(w, "conv1", inputs["input_features"].astype(np.float64)))
    x = gelu(convolve(w, "conv2", x, stride=2)).transpose(0, 2, 1)
    angles = np.arange(64)[:, None] / 10_000 ** (np.arange(64) / 63)
    x = x + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    for i in range(2):
        at = f"layers.{i}"
        x = x + attention(w, f"{at}.attention", norm(w, f"{at}.attention", x))
        x = feed(w, f"{at}.mlp", x)
    return {"last_hidden_state": norm(w, "", x)}


def consult(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each token on its own, through the two experts with the largest logits alone."""
    w, x = weights("mixture_of_experts"), inputs["hidden_states"].astype(np.float64)
    for i in range(2):
        at = f"layers.{i}"
        x = x + attention(w, f"{at}.attention", norm(w, f"{at}.attention", x))
        y = norm(w, f"{at}.experts", x)
        for token in np.ndindex(*x.shape[:2]):
            logits = dense(w, f"{at}.router", y[token])
            chosen = np.argsort(logits)[-2:]
            results = [feed_gated(w, f"{at}.experts.{e}", y[token]) for e in chosen]
            x[token] += special.softmax(logits[chosen]) @ np.array(results)
    return {"last_hidden_state": norm(w, "", x)}


COMPUTED = {
    "decoder_with_cache": decode,
    "unet_block": diffuse,
    "whisper_encoder": listen,
    "mixture_of_experts": consult,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_block_computes_what_numpy_does(name: str) -> None:
    inputs = some(name)
    found, expected = run(name, inputs), COMPUTED[name](inputs)
    assert [*expected] == [*found]
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, atol=1e-4, err_msg=output)
        assert 0.3 < array.std() < 3, output


def test_tokens_with_a_cache_are_those_of_the_whole_text() -> None:
    """The first half, and the second with what the first wrote; padding on the left changes nothing."""
    ids = np.random.default_rng(0).integers(512, size=(2, 12))
    empty = {n: a[:2, :, :0] for n, a in some("decoder_with_cache").items() if n.startswith("past")}

    def read(begin: int, end: int, past: Mapping[str, np.ndarray], padding: int = 0) -> dict[str, np.ndarray]:
        mask = np.ones((2, padding + end), np.int64)
        mask[:, :padding] = 0
        words = np.pad(ids[:, begin:end], ((0, 0), (padding, 0)))
        at = np.maximum(np.arange(begin - padding, end), 0)[None].repeat(2, 0)
        given = {"input_ids": words, "attention_mask": mask, "position_ids": at, **past}
        return run("decoder_with_cache", given)

    whole, first = read(0, 12, empty), read(0, 5, empty)
    cache = {n.replace("present", "past_key_values"): a for n, a in first.items() if n != "logits"}
    second = read(5, 12, cache)
    np.testing.assert_allclose(first["logits"], whole["logits"][:, :5], atol=1e-4)
    np.testing.assert_allclose(second["logits"], whole["logits"][:, 5:], atol=1e-4)
    padded = read(0, 12, empty, padding=3)
    np.testing.assert_allclose(padded["logits"][:, 3:], whole["logits"], atol=1e-4)


def test_the_decoder_is_named_as_optimum_names_it() -> None:
    model = shelf.load("decoder_with_cache").model
    total = "past_sequence_length + sequence_length"
    shapes = {n: [*map(str, model.values[n].shape or ())] for n in (*model.inputs, *model.outputs)}
    assert shapes["input_ids"] == shapes["position_ids"] == ["batch_size", "sequence_length"]
    assert shapes["attention_mask"] == ["batch_size", total]
    caches = [f"{i}.{n}" for i in range(2) for n in ("key", "value")]
    assert [*model.inputs][3:] == [f"past_key_values.{c}" for c in caches]
    assert [*model.outputs] == ["logits", *(f"present.{c}" for c in caches)]
    assert {tuple(shapes[n]) for n in model.inputs[3:]} == {("batch_size", "2", "past_sequence_length", "32")}
    assert {tuple(shapes[n]) for n in model.outputs[1:]} == {("batch_size", "2", total, "32")}


def test_samples_of_the_decoder_are_the_same_for_any_count() -> None:
    few, many = (rtlab.samples.load("decoder_with_cache", samples=n).calibration.arrays for n in (2, 4))
    for name, array in few.items():
        np.testing.assert_array_equal(array, many[name][:2])
