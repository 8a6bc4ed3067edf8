"""Metrics that compare a model's outputs with labels: built-in ones by name, each with a value for every sample."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rtlab.core.slices import SliceSums
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

#: How the sum of amounts over the sum of weights becomes the score.
Link = Literal["share", "mean", "exp", "decibel"]
_LINKS: dict[Link, Callable[[Any], Any]] = {
    "share": lambda x: 100.0 * x,
    "mean": lambda x: x,
    "exp": np.exp,
    "decibel": lambda x: -10.0 * np.log10(x),
}
#: The metric of outputs that are no classes, where there are no labels.
_NMSE = "normalized squared error"
_NAMES = 'a "top-K" such as "top-1" or "top-5", "psnr", "mse", "cosine", "perplexity" or "nmse"'


def apply_link(link: Link, ratio: Any) -> Any:
    """The score of amounts over weights, element by element."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _LINKS[link](ratio)


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """The amounts and weights of each sample, from which the score of any subset follows.

    The score is ``link`` of the sum of ``amounts`` over the sum of ``weights``, both float64 of shape ``(N,)``; they
    are None for a metric that returns one number for all samples. ``broken`` counts the samples whose first output has
    a NaN. ``picked`` samples represent no others and have no interval. ``higher`` says that more is better. ``where``
    is the part of the outputs that is scored, empty for all of one.
    """

    value: float
    amounts: Floats | None = None
    weights: Floats | None = None
    link: Link = "mean"
    broken: int = 0
    picked: bool = False
    higher: bool = True
    where: str = ""

    @property
    def hits(self) -> bool:
        """Whether each sample is a hit (1) or a miss (0); never for a metric that counts mistakes."""
        if self.amounts is None or self.weights is None or self.link != "share" or not self.higher:
            return False
        return bool(np.isin(self.amounts, (0, 1)).all() and (self.weights == 1).all())

    def values(self) -> Floats | None:
        """The score of each sample alone, of shape ``(N,)``; None where the metric has none."""
        if self.amounts is None or self.weights is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            each: Floats = apply_link("mean" if self.hits else self.link, self.amounts / self.weights)
        return each


@dataclasses.dataclass(frozen=True, eq=False)
class Metric:
    """A score computed from a value for every sample, so that its uncertainty and the samples that flipped follow.

    ``each`` takes the outputs of N samples and their labels, and returns an array of shape ``(N,)``, whose mean is the
    score, or two of them, amounts and weights: the score is ``link`` of the sum of the amounts over that of the
    weights. With the link "share" the score is in percent, and amounts of 0 and 1 are misses and hits. ``unit`` is
    shown beside the score, ``higher`` says that more is better; ``says`` is "class" where a row of the output is the
    scores of classes. With ``joint``, ``each`` takes all outputs by name in place of the first; it may then return,
    third, which part of them it scored.
    """

    name: str
    each: Callable[[Any, NDArray[Any]], Any]
    unit: str = ""
    higher: bool = True
    link: Link = "mean"
    says: Literal["class", ""] = ""
    joint: bool = False

    def tally(self, outputs: Any, labels: NDArray[Any]) -> Tally:
        """The amounts of each sample, and the score of all.

        Raises:
            CalibrationError: outputs and labels do not fit, ``each`` returns something else than a value for each
                sample, or one of them is no number.
        """
        result = self.each(outputs, labels)
        amounts, weights, *where = result if isinstance(result, tuple) else (result, None)
        outputs = next(iter(outputs.values())) if self.joint else outputs
        amounts = np.asarray(amounts, np.float64)
        weights = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        if amounts.shape != (len(labels),) or weights.shape != amounts.shape:
            raise CalibrationError(
                f'Cannot score "{self.name}": it gave values of shape {shape_text(amounts.shape)} for '
                f"{len(labels)} samples. Let it return one value for each sample."
            )
        bad = np.flatnonzero(~np.isfinite(amounts) | ~np.isfinite(weights))
        if len(bad):
            raise CalibrationError(
                f'Cannot score "{self.name}": it is not a number in {len(bad)} of {len(labels)} samples, first in '
                f"sample {bad[0]}. Look at the output and the label of that sample for NaN or infinity."
            )
        total = weights.sum()
        if not total > 0:
            raise CalibrationError(
                f'Cannot score "{self.name}": there is nothing to count in the labels. Give labels that are not empty.'
            )
        value, broken = float(apply_link(self.link, amounts.sum() / total)), count_nan_samples(outputs)
        return Tally(
            value, amounts, weights, self.link, broken=broken, higher=self.higher, where="".join(where)
        )


def find_metric(text: str) -> Metric:
    """A built-in metric by its name; ``CalibrationError`` where there is none.

    ``top-K``: share of samples whose label, a class number of shape ``(N,)``, is among the K largest of the first
    output, ``(N, C)``; of equal ones the lower class counts first, and a NaN is no hit.

    ``mse``: mean over samples of the mean squared error to labels of the output's shape, ``(N, ...)``. ``psnr``:
    10 log10(peak² / that error), in dB (ITU-T J.247, annex on PSNR); the peak is 255 for labels of type uint8, else 1.
    ``cosine``: mean over samples of the cosine similarity of output and label. ``nmse``: the energy of the error in
    percent of that of the labels, over all samples; -10 log10 of the ratio is the SQNR in dB.

    ``perplexity``: e to the mean negative log-likelihood of a token (Jelinek et al. 1977); outputs are logits
    ``(N, T, C)`` or ``(N, C)``, or their softmax where each row sums to 1 and has nothing negative; labels are the
    expected ids, ``(N, T)`` or ``(N,)``, of which those below 0 do not count.
    """
    name = text.strip().lower()
    if (top := re.fullmatch(r"top-?([1-9]\d*)", name)) is not None:
        title = f"top-{top[1]} accuracy"
        return Metric(
            title, functools.partial(_score_top_k, title, int(top[1])), "%", link="share", says="class"
        )
    metrics = {
        "psnr": Metric("PSNR", functools.partial(_compute_mse, "PSNR"), "dB", link="decibel"),
        "mse": Metric(
            "mean squared error", functools.partial(_compute_mse, "mean squared error"), higher=False
        ),
        "cosine": Metric("cosine similarity", _compute_cosine),
        "nmse": Metric(_NMSE, _compute_nmse, "%", higher=False),
        "perplexity": Metric("perplexity", _compute_log_likelihood, higher=False, link="exp"),
    }
    if name not in metrics:
        raise CalibrationError(
            f'Cannot score "{text}": there is no metric of this name. Choose {_NAMES}; or give a function of outputs '
            "and labels."
        )
    return metrics[name]


def make_worst_slice_metric(shapes: Mapping[str, tuple[int, ...]]) -> Metric:
    """The normalized squared error of the worst slice of all outputs; see ``rtlab.core.slices``.

    Args:
        shapes: The shape of a row of each output that is scored, by name, in the order in which labels, of shape
            ``(N, F)``, hold them.
    """
    each = functools.partial(_compute_worst_slice, dict(shapes))
    return Metric(_NMSE, each, "%", higher=False, joint=True)


def get_slice_shapes(metric: Metric) -> Mapping[str, tuple[int, ...]] | None:
    """The shapes that ``make_worst_slice_metric`` made a metric of; None of another metric."""
    each = metric.each
    is_made = isinstance(each, functools.partial) and each.func is _compute_worst_slice
    return each.args[0] if is_made else None  # type: ignore[attr-defined]


def _compute_worst_slice(
    shapes: Mapping[str, tuple[int, ...]], outputs: Mapping[str, Any], labels: NDArray[Any]
) -> tuple[Floats, Floats, str]:
    """Energies of error and labels of each sample in the worst slice of all outputs, and its name."""
    begin, parts = 0, []
    if len(shapes) == len(outputs) == 1:
        outputs = dict(zip(shapes, outputs.values(), strict=True))
    for name, shape in shapes.items():
        end = begin + math.prod(shape)
        y, t = _match_shapes(_NMSE, outputs[name], labels[:, begin:end].reshape(-1, *shape))
        begin, sums = end, SliceSums(name)
        sums.add(t.reshape(-1, *shape), y.reshape(-1, *shape), len(t))
        worst = sums.worst()
        if worst is not None and worst.sqnr < sums.sqnr:
            pick = [np.take(a.reshape(-1, *shape), worst.indices, worst.axis) for a in (y, t)]
            y, t = (a.reshape(len(a), -1) for a in pick)
            parts.append((worst.sqnr, y, t, worst.where))
        else:
            parts.append((sums.sqnr, y, t, name if len(shapes) > 1 else ""))
    _, y, t, where = min(parts, key=lambda p: p[0])
    return *_sum_energies(y, t), where


def count_nan_samples(outputs: Any) -> int:
    """How many samples have a NaN in an output."""
    return sum(bool(np.isnan(row).any()) for row in _iter_rows(outputs) if row.dtype.kind == "f")


def _iter_rows(outputs: Any) -> Iterator[NDArray[Any]]:
    """The row of each sample; batches of rows whose shapes differ are a list."""
    for part in outputs if isinstance(outputs, list) else [outputs]:
        yield from np.asarray(part)


def _check_array(name: str, outputs: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Outputs with one row per sample; raises ``CalibrationError`` where rows differ in shape, or there are none."""
    if not isinstance(outputs, np.ndarray) or outputs.ndim == 0 or len(outputs) != len(labels):
        raise CalibrationError(
            f'Cannot score "{name}": the output has no row of one shape for each of {len(labels)} samples. Give '
            "Task(..., metric=...) with a function, which takes all outputs."
        )
    return outputs


def _score_top_k(name: str, k: int, outputs: Any, labels: NDArray[Any]) -> Floats:
    output_rows = _check_array(name, outputs, labels)
    scores = output_rows.reshape(len(output_rows), -1)
    class_ids = _check_classes(name, labels, scores.shape[1])
    label_scores = scores[np.arange(len(scores)), class_ids][:, None]
    before = np.arange(scores.shape[1])[None, :] < class_ids[:, None]
    # The largest first, of equal ones the first, as argmax takes it. A row with a NaN is no hit.
    rank = ((scores > label_scores) | ((scores == label_scores) & before)).sum(axis=1)
    hits: Floats = ((rank < k) & ~np.isnan(scores).any(axis=1)).astype(np.float64)
    return hits


def _check_classes(name: str, labels: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Labels as class numbers; raises ``CalibrationError`` where they are something else."""
    if labels.dtype.kind not in "biuf" or labels.ndim != 1:
        raise CalibrationError(
            f'Cannot score "{name}": labels are {_describe_labels(labels)}. Give the number of the class of each '
            "sample, counted from 0; labels.argmax(axis=1) makes them of rows with a 1 at the class."
        )
    bad = np.flatnonzero(~((labels >= 0) & (labels < count) & (np.floor(labels) == labels)))
    if len(bad):
        raise CalibrationError(
            f'Cannot score "{name}": label {float(labels[bad[0]]):g} of sample {bad[0]} is none of the {count} classes '
            f"of the output, 0 to {count - 1}. Give labels of this model, counted from 0."
        )
    return labels.astype(np.int64)


def _describe_labels(labels: NDArray[Any]) -> str:
    """Type and shape of labels in words."""
    kind = {"U": "text", "S": "text", "O": "Python objects"}.get(labels.dtype.kind, str(labels.dtype))
    return f"{kind} of shape {shape_text(labels.shape)}"


def _match_shapes(name: str, outputs: Any, labels: NDArray[Any]) -> tuple[Floats, Floats]:
    """Outputs and labels as rows of numbers of one shape; raises ``CalibrationError`` where they are not."""
    output_rows = _check_array(name, outputs, labels)
    if labels.dtype.kind not in "biuf" or output_rows.shape != labels.shape:
        raise CalibrationError(
            f'Cannot score "{name}": outputs have shape {shape_text(output_rows.shape)}, labels are '
            f"{_describe_labels(labels)}. Give numbers of the shape of the output, a row per sample."
        )
    rows = output_rows.reshape(len(output_rows), -1).astype(np.float64)
    return rows, labels.reshape(len(output_rows), -1).astype(np.float64)


def _compute_mse(name: str, outputs: Any, labels: NDArray[Any]) -> Floats:
    """Mean squared error of each sample; of PSNR in units of the squared peak."""
    y, t = _match_shapes(name, outputs, labels)
    peak = 255.0 if name == "PSNR" and labels.dtype == np.uint8 else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        errors: Floats = ((y - t) ** 2).mean(axis=1) / peak**2
    return errors


def _compute_cosine(outputs: Any, labels: NDArray[Any]) -> Floats:
    y, t = _match_shapes("cosine similarity", outputs, labels)
    norm = np.linalg.norm(y, axis=1) * np.linalg.norm(t, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        similarities: Floats = np.where(norm == 0, 0.0, (y * t).sum(axis=1) / norm)
    return similarities


def _compute_nmse(outputs: Any, labels: NDArray[Any]) -> tuple[Floats, Floats]:
    return _sum_energies(*_match_shapes(_NMSE, outputs, labels))


def _sum_energies(y: Floats, t: Floats) -> tuple[Floats, Floats]:
    """The energy of the error of each row in percent, and that of its label."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 100 * np.square(y - t).sum(axis=1), np.square(t).sum(axis=1)


def _compute_log_likelihood(outputs: Any, labels: NDArray[Any]) -> tuple[Floats, Floats]:
    """Negative log-likelihood and number of tokens of each sample."""
    from scipy import special

    error_prefix = 'Cannot score "perplexity": '
    if labels.dtype.kind not in "iu" or labels.ndim not in (1, 2):
        raise CalibrationError(
            f"{error_prefix}labels are {_describe_labels(labels)}. Give token ids, "
            "whole numbers of shape (N, T); those below 0 do not count."
        )
    rows = [r[None] if r.ndim == 1 else r for r in _iter_rows(outputs)]
    if len(rows) != len(labels) or any(r.ndim != 2 for r in rows):
        raise CalibrationError(
            f"{error_prefix}the output has no row of scores by position and token for each of {len(labels)} samples. "
            "Make the logits of shape (N, T, C) its first output, or give a metric of your own."
        )
    # A sum of logits is 1 everywhere by no accident.
    are_probabilities = all((r >= 0).all() and np.allclose(r.sum(axis=-1), 1.0, atol=1e-3) for r in rows)
    amounts, weights = np.zeros(len(rows)), np.zeros(len(rows))
    for i, (row, tokens) in enumerate(zip(rows, labels.reshape(len(labels), -1), strict=True)):
        aligned_tokens = tokens[: len(row)]
        if (tokens[len(row) :] >= 0).any() or (aligned_tokens >= row.shape[1]).any():
            raise CalibrationError(
                f"{error_prefix}sample {i} has {int((tokens >= 0).sum())} tokens up to id {int(tokens.max())}, its "
                f"output {len(row)} positions of {row.shape[1]} tokens. Give labels of this model."
            )
        at = np.flatnonzero(aligned_tokens >= 0)
        scores = row[at].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(scores) if are_probabilities else special.log_softmax(scores, axis=1)
        amounts[i], weights[i] = -logs[np.arange(len(at)), aligned_tokens[at]].sum(), len(at)
    return amounts, weights
