"""The entropy search as NVIDIA published it, written from its description and apart from rtlab's.

``pytorch_quantization.calib.histogram`` (TensorRT, tools/pytorch-quantization) for S. Migacz, "8-bit Inference with
TensorRT", GTC 2017, S7310. One candidate at a time, on the elements themselves.
"""

from __future__ import annotations

import functools

import numpy as np


@functools.cache
def _level(i: int, levels: int) -> np.ndarray:
    return np.searchsorted(np.arange(levels + 1) * i / levels, np.arange(i), side="right") - 1


def divergences(histogram: np.ndarray, levels: int) -> np.ndarray:
    """KL divergence of keeping the first ``i`` bins, for each ``i`` from ``levels`` to all of them."""
    result = []
    for i in range(levels, len(histogram) + 1):
        kept = histogram[:i].astype(float)
        level = _level(i, levels)
        mass, filled = np.bincount(level, kept, levels), np.bincount(level, kept > 0, levels)
        quantized = np.where(kept > 0, (mass / np.maximum(filled, 1))[level], 0.0)
        reference = kept.copy()
        reference[-1] += histogram[i:].sum()
        result.append(_kullback_leibler(reference, quantized))
    return np.array(result)


def _kullback_leibler(p: np.ndarray, q: np.ndarray) -> float:
    """As scipy.stats.entropy computes it of unnormalised counts; where it divides zero by zero, infinite."""
    seen = p > 0
    if q.sum() == 0 or (q[seen] == 0).any():
        return np.inf
    p, q = p[seen] / p.sum(), q[seen] / q.sum()
    return float((p * np.log(p / q)).sum())


def histogram(x: np.ndarray, bins: int, *, zeros: bool) -> np.ndarray:
    """Magnitudes over [0, max]. With ``zeros`` the first bin takes the count of the second, as published."""
    size = np.abs(x.astype(np.float64)).reshape(-1)
    counts = np.histogram(size if zeros else size[size > 0], bins, (0, size.max()))[0].astype(float)
    if zeros:
        counts[0] = counts[1]
    return counts


def threshold(x: np.ndarray, *, zeros: bool, bins: int = 2048, levels: int = 128) -> float:
    """The upper edge of the last bin kept; of equal divergences that of the largest."""
    found = divergences(histogram(x, bins, zeros=zeros), levels)
    best = len(found) - 1 - int(np.argmin(np.round(found, 12)[::-1]))
    return float(np.abs(x).max()) * (best + levels) / bins
