"""What stands in the activations of networks that people feed: families of data, each drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], np.ndarray]


def _along(of: np.ndarray, shape: Shape) -> np.ndarray:
    """One number a channel, or a channel of each sample, over the rest of the shape."""
    first = of.shape if of.ndim > 1 else (1, of.size)
    return of.reshape(*first, *[1] * (len(shape) - len(first)))


def _constant(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.full(shape, rng.choice([0.0625, 1.0, 3.7, -2.0]))


def _planes(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return _along(rng.choice([0.0625, 0.3, 1.0, 7.0], shape[:2]), shape) + np.zeros(shape)


def _mask(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return (rng.random(shape) < rng.choice([0.05, 0.5, 0.95])).astype(float)


def _one_hot(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    x = np.zeros(shape)
    np.put_along_axis(x, rng.integers(0, shape[1], (shape[0], 1, *shape[2:])), 1.0, 1)
    return x


def _picture(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Bytes over 255: a few soft spots on black."""
    if len(shape) == 2:
        ink = np.abs(rng.standard_normal(shape)) * (rng.random(shape) < 0.3)
    else:
        rows, columns = np.mgrid[: shape[2], : shape[3]]
        spots = rng.uniform(size=(3, 4, *shape[:2], 1, 1))
        ink = 0
        for a, b, c, w in spots:
            far = (rows - shape[2] * a) ** 2 + (columns - shape[3] * b) ** 2
            ink = ink + (0.3 + 0.7 * c) * np.exp(-far / (2 * (0.8 + 1.7 * w) ** 2))
    return np.round(255 * np.clip(ink, 0, 1)) / 255


def _bimodal(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    far = rng.random(shape) < rng.choice([0.001, 0.01, 0.1])
    return rng.standard_normal(shape) + 40 * far


def _gated(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    gate = 1 / (1 + np.exp(-4 * rng.standard_normal(shape[:2])))
    return 4 * np.maximum(rng.standard_normal(shape), 0) * _along(gate, shape)


def _softmax(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    x = np.exp(rng.choice([2.0, 5.0]) * rng.standard_normal(shape))
    return x / x.sum(1, keepdims=True)


def _outlier_channel(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    gain = np.ones(shape[1])
    gain[rng.integers(shape[1])] = rng.choice([10.0, 50.0])
    return np.maximum(rng.standard_normal(shape) - rng.choice([0.0, 2.0]), 0) * _along(gain, shape)


def _padded(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    x = rng.standard_normal(shape)
    x[..., shape[-1] // 2 :] = 0
    return x


FAMILIES: dict[str, Draw] = {
    "constant": _constant, "constant planes": _planes, "mask": _mask, "one-hot": _one_hot,
    "integers 0..16": lambda r, s: r.integers(0, 17, s).astype(float),
    "sixteen levels": lambda r, s: r.integers(0, 16, s) / 15, "dark picture": _picture,
    "light picture": lambda r, s: 1 - _picture(r, s), "bytes": lambda r, s: np.round(255 * _picture(r, s)),
    "narrow": lambda r, s: 1 + 0.01 * r.standard_normal(s),
    "far from zero": lambda r, s: 5 + 0.3 * r.standard_normal(s), "bimodal": _bimodal, "gated": _gated,
    "softmax": _softmax, "student": lambda r, s: r.standard_t(3, s),
    "lognormal": lambda r, s: np.exp(r.standard_normal(s)), "laplace": lambda r, s: r.laplace(size=s),
    "tiny": lambda r, s: 1e-6 * r.standard_normal(s), "normal": lambda r, s: r.standard_normal(s),
    "relu": lambda r, s: np.maximum(r.standard_normal(s), 0), "uniform": lambda r, s: r.uniform(-1, 1, s),
    "sparse": lambda r, s: r.standard_normal(s) * (r.random(s) < 0.02), "outlier channel": _outlier_channel,
    "padded": _padded,
}  # fmt: skip


def drawn(family: str, seed: int, shape: Shape = (32, 8, 14, 14)) -> np.ndarray:
    return FAMILIES[family](np.random.default_rng(seed), shape).astype(np.float32)
