"""What counts a model's outputs against labels: built-in metrics by name, each with a value for every sample."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rtlab.core.slices import SliceSums
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

#: How the amounts of all samples over their weights become the score: 100 times it, itself, e to the power of it, and
#: -10 log10 of it.
Link = Literal["share", "mean", "exp", "decibel"]
_LINKS: dict[Link, Callable[[Any], Any]] = {
    "share": lambda x: 100.0 * x,
    "mean": lambda x: x,
    "exp": np.exp,
    "decibel": lambda x: -10.0 * np.log10(x),
}
#: What counts outputs that are no classes, where there are no labels.
_NMSE = "normalized squared error"
#: What `named` knows, for messages and for help.
NAMES = 'a "top-K" such as "top-1" or "top-5", "psnr", "mse", "cosine", "perplexity", "nmse", "wer" or "cer"'


def apply_link(link: Link, ratio: Any) -> Any:
    """The score of amounts over weights, element by element."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _LINKS[link](ratio)


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """What was counted of each sample, from which the score of any choice of them follows.

    The score is ``link`` of the sum of ``amounts`` over the sum of ``weights``, both float64 of shape ``(N,)``; they
    are None of a metric that tells one number for all samples. ``hits`` says that amounts are 1 for a hit and 0 for a
    miss, which those of a metric that counts mistakes, not ``higher``, never are. ``resampled`` is in their place what
    such a metric says of samples drawn anew, always the same draws. ``broken`` counts the samples whose
    first output has a NaN; ``picked`` samples stand for no others, and have no interval; ``why`` says in words why
    there is none. ``where`` is the part of the outputs that was counted, where it is not all of one.
    """

    value: float
    amounts: Floats | None = None
    weights: Floats | None = None
    link: Link = "mean"
    resampled: Floats | None = None
    broken: int = 0
    picked: bool = False
    why: str = ""
    higher: bool = True
    where: str = ""

    @property
    def hits(self) -> bool:
        """Whether each sample is a hit or a miss."""
        if self.amounts is None or self.weights is None or self.link != "share" or not self.higher:
            return False
        # One mistake in a label of six characters is a sixth, and no miss.
        return bool(np.isin(self.amounts, (0, 1)).all() and (self.weights == 1).all())

    def values(self) -> Floats | None:
        """The score of each sample alone, of shape ``(N,)``; None where the metric tells none."""
        if self.amounts is None or self.weights is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            each: Floats = apply_link("mean" if self.hits else self.link, self.amounts / self.weights)
        return each


@dataclasses.dataclass(frozen=True, eq=False)
class Metric:
    """A score that is made of a value for every sample, so that its uncertainty and the samples that flipped follow.

    ``each`` takes the outputs of N samples and their labels, and returns an array of shape ``(N,)``, whose mean is the
    score, or two of them, amounts and weights: the score is ``link`` of the sum of the amounts over that of the
    weights. With the link "share" the score is in percent, and amounts of 0 and 1 are misses and hits. ``unit`` is
    shown beside the score, ``higher`` says that more is better; ``says`` is what a row of the output stands for: the
    "class" of its largest element, a "sequence" of ids, or neither. ``joint`` says that ``each`` takes all outputs by
    name in place of the first; it may then return, third, which part of them it counted.
    """

    name: str
    each: Callable[[Any, NDArray[Any]], Any]
    unit: str = ""
    higher: bool = True
    link: Link = "mean"
    says: Literal["class", "sequence", ""] = ""
    joint: bool = False

    def answers(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """What outputs say, as labels of this metric: classes, ids, or the numbers themselves."""
        if self.says == "class":
            classes: NDArray[Any] = outputs.reshape(len(outputs), -1).argmax(axis=1)
            return classes
        if self.says == "sequence" and outputs.ndim > 2:
            ids: NDArray[Any] = outputs.argmax(axis=-1)
            return ids
        return outputs

    def tally(self, outputs: Any, labels: NDArray[Any]) -> Tally:
        """What each sample counts, and the score of all.

        Raises:
            CalibrationError: outputs and labels do not fit, ``each`` gave something else than a value for each sample,
                or one of them is no number.
        """
        counted = self.each(outputs, labels)
        amounts, weights, *where = counted if isinstance(counted, tuple) else (counted, None)
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
                f"sample {bad[0]}. {_explain_bad_value(outputs, labels, int(bad[0]))}"
            )
        total = weights.sum()
        if not total > 0:
            raise CalibrationError(
                f'Cannot score "{self.name}": there is nothing to count in the labels. Give labels that are not empty.'
            )
        value = float(apply_link(self.link, amounts.sum() / total))
        broken, part = count_nan_samples(outputs), "".join(where)
        return Tally(value, amounts, weights, self.link, broken=broken, higher=self.higher, where=part)


def find_metric(text: str, vocabulary: Sequence[str] = ()) -> Metric:
    """A built-in metric by its name.

    ``top-K``: share of samples whose label, a class number of shape ``(N,)``, is among the K largest of the first
    output, ``(N, C)``; of equal ones the lower class counts first, and a NaN is no hit.

    ``mse``: mean over samples of the mean squared error to labels of the output's shape, ``(N, ...)``. ``psnr``:
    10 log10(peak² / that error), in dB (ITU-T J.247, annex on PSNR); the peak is 255 for labels of type uint8, else 1.
    ``cosine``: mean over samples of the cosine similarity of output and label. ``nmse``: the energy of the error in
    percent of that of the labels, over all samples; -10 log10 of the ratio is the SQNR in dB.

    ``perplexity``: e to the mean negative log-likelihood of a token (Jelinek et al. 1977); outputs are logits
    ``(N, T, C)`` or ``(N, C)``, or their softmax where each row sums to 1 and has nothing negative; labels ``(N, T)``
    or ``(N,)`` stand for what each position should tell; those below 0 do not count.

    ``wer``, ``cer``: word and character error rate in percent: insertions, deletions and substitutions of the shortest
    edit from label to output (Levenshtein 1966), summed over samples and divided by the length of all labels; above 100
    where outputs are longer. Outputs are ids ``(N, T)``, or scores ``(N, T, C)``, of which the largest is taken at each
    position; labels are ids ``(N, L)`` or texts ``(N,)``. Ids below 0 are padding. Without a vocabulary an id is a word
    and a character; with one ids are joined to text, which is cut at white space into words, or into characters.

    Raises:
        CalibrationError: there is none of this name.
    """
    name = text.strip().lower()
    if (top := re.fullmatch(r"top-?([1-9]\d*)", name)) is not None:
        k = int(top[1])
        title = f"top-{k} accuracy"
        return Metric(title, lambda y, t: _score_top_k(title, y, t, k), "%", link="share", says="class")
    if name in {"wer", "cer"}:
        words = name == "wer"
        title = "word error rate" if words else "character error rate"
        count = functools.partial(_count_edits, title, vocabulary=vocabulary, words=words)
        return Metric(title, count, "%", higher=False, link="share", says="sequence")
    metrics = {
        "psnr": Metric("PSNR", lambda y, t: _compute_mse("PSNR", y, t, _peak(t)), "dB", link="decibel"),
        "mse": Metric(
            "mean squared error", lambda y, t: _compute_mse("mean squared error", y, t), higher=False
        ),
        "cosine": Metric("cosine similarity", _compute_cosine),
        "nmse": Metric("normalized squared error", _compute_nmse, "%", higher=False),
        "perplexity": Metric("perplexity", _compute_log_likelihood, higher=False, link="exp"),
    }
    if name not in metrics:
        raise CalibrationError(
            f'Cannot score "{text}": there is no metric of this name. Choose {NAMES}; or give a function of outputs '
            "and labels."
        )
    return metrics[name]


@dataclasses.dataclass(frozen=True)
class _WorstSliceError:
    """Energies of error and labels of each sample in the worst part of all outputs; can be pickled."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __call__(self, outputs: Mapping[str, Any], labels: NDArray[Any]) -> tuple[Floats, Floats, str]:
        begin, parts = 0, []
        if len(self.shapes) == len(outputs) == 1:
            outputs = {self.shapes[0][0]: next(iter(outputs.values()))}
        for name, shape in self.shapes:
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
                parts.append((sums.sqnr, y, t, name if len(self.shapes) > 1 else ""))
        _, y, t, where = min(parts, key=lambda p: p[0])
        with np.errstate(over="ignore", invalid="ignore"):
            return 100 * np.square(y - t).sum(axis=1), np.square(t).sum(axis=1), where


def make_worst_slice_metric(shapes: Mapping[str, tuple[int, ...]]) -> Metric:
    """The normalized squared error of the part of all outputs that fares worst; see ``rtlab.core.slices``.

    Args:
        shapes: The shape of a row of each output that is counted, by name, in the order in which labels, of shape
            ``(N, F)``, hold them.
    """
    return Metric(_NMSE, _WorstSliceError(tuple(shapes.items())), "%", higher=False, joint=True)


def count_nan_samples(outputs: Any) -> int:
    """How many samples have a NaN in an output."""
    return sum(bool(np.isnan(row).any()) for row in _iter_rows(outputs) if row.dtype.kind == "f")


def _explain_bad_value(outputs: Any, labels: NDArray[Any], bad: int) -> str:
    """Whose fault a value is that is no number, and what to do."""
    row = next((r for i, r in enumerate(_iter_rows(outputs)) if i == bad), np.zeros(0))
    if row.dtype.kind == "f" and not np.isfinite(row).all():
        return "Its output has NaN or infinity: look at the errors of values for the first node that is not finite."
    if labels.dtype.kind == "f" and not np.isfinite(labels[bad]).all():
        return "Its label has NaN or infinity: repair the labels."
    return "Call the metric with this sample alone to see why."


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


def _score_top_k(name: str, outputs: Any, labels: NDArray[Any], k: int) -> Floats:
    output_rows = _check_array(name, outputs, labels)
    scores = output_rows.reshape(len(output_rows), -1)
    class_ids = _check_classes(name, labels, scores.shape[1])
    label_scores = scores[np.arange(len(scores)), class_ids][:, None]
    before = np.arange(scores.shape[1])[None, :] < class_ids[:, None]
    # The largest first, of equal ones the first, as argmax takes it; a NaN is larger than nothing.
    rank = ((scores > label_scores) | ((scores == label_scores) & before)).sum(axis=1)
    # An answer that has a NaN is no answer.
    sound = ~np.isnan(scores).any(axis=1) if scores.dtype.kind == "f" else True
    hits: Floats = ((rank < k) & sound).astype(np.float64)
    return hits


def _check_classes(name: str, labels: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Labels as class numbers; raises ``CalibrationError`` where they are something else."""
    error_prefix = f'Cannot score "{name}": '
    if labels.dtype.kind not in "biuf":
        raise CalibrationError(
            f"{error_prefix}labels are {_describe_type(labels)}. Give the number of the class of each sample, counted "
            "from 0."
        )
    if labels.ndim != 1:
        remedy = (
            "labels.argmax(axis=1) makes them of rows with a 1 at the class."
            if labels.ndim == 2 and labels.shape[1] == count
            else "A metric of your own takes others: metric=f(outputs, labels)."
        )
        raise CalibrationError(
            f"{error_prefix}labels have shape {shape_text(labels.shape)}, it takes one class number for each sample. "
            f"{remedy}"
        )
    integral = np.isfinite(labels) & (np.floor(labels) == labels) if labels.dtype.kind == "f" else np.True_
    if not integral.all():
        raise CalibrationError(
            f"{error_prefix}label {labels[~integral][0]:g} is no class number. Give whole numbers from 0, or a metric "
            f"for such labels: {NAMES}."
        )
    class_ids = labels.astype(np.int64)
    outside = (class_ids < 0) | (class_ids >= count)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise CalibrationError(
            f"{error_prefix}label {class_ids[first]} of sample {first} is none of the {count} classes of the output, 0 "
            f"to {count - 1}. Give labels of this model, counted from 0."
        )
    return class_ids


def _describe_type(labels: NDArray[Any]) -> str:
    """The type of labels in words."""
    kind = {"U": "text", "S": "text", "O": "Python objects"}.get(labels.dtype.kind)
    return kind or str(labels.dtype)


def _match_shapes(name: str, outputs: Any, labels: NDArray[Any]) -> tuple[Floats, Floats]:
    """Outputs and labels as rows of numbers of one shape; raises ``CalibrationError`` where they are not."""
    output_rows = _check_array(name, outputs, labels)
    if labels.dtype.kind not in "biuf":
        raise CalibrationError(
            f'Cannot score "{name}": labels are {_describe_type(labels)}. Give numbers of the shape of the output.'
        )
    if output_rows.shape != labels.shape:
        raise CalibrationError(
            f'Cannot score "{name}": outputs have shape {shape_text(output_rows.shape)}, labels '
            f"{shape_text(labels.shape)}. Give labels of the shape of the output, a row per sample."
        )
    rows = output_rows.reshape(len(output_rows), -1).astype(np.float64)
    return rows, labels.reshape(len(output_rows), -1).astype(np.float64)


def _peak(labels: NDArray[Any]) -> float:
    return 255.0 if labels.dtype == np.uint8 else 1.0


def _compute_mse(name: str, outputs: Any, labels: NDArray[Any], peak: float = 1.0) -> Floats:
    """Mean squared error of each sample in units of the peak."""
    y, t = _match_shapes(name, outputs, labels)
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
    """The energy of the error of each sample in percent, and that of its label."""
    y, t = _match_shapes("normalized squared error", outputs, labels)
    with np.errstate(over="ignore", invalid="ignore"):
        return 100 * ((y - t) ** 2).sum(axis=1), (t**2).sum(axis=1)


def _compute_log_likelihood(outputs: Any, labels: NDArray[Any]) -> tuple[Floats, Floats]:
    """Negative log-likelihood and number of tokens of each sample."""
    from scipy import special

    error_prefix = 'Cannot score "perplexity": '
    if labels.dtype.kind not in "iu" or labels.ndim not in (1, 2):
        raise CalibrationError(
            f"{error_prefix}labels are {_describe_type(labels)} of shape {shape_text(labels.shape)}. Give token ids, "
            "whole numbers of shape (N, T); those below 0 do not count."
        )
    rows = [r[None] if r.ndim == 1 else r for r in _iter_rows(outputs)]
    if len(rows) != len(labels) or any(r.ndim != 2 for r in rows):
        raise CalibrationError(
            f"{error_prefix}the output has no row of scores by position and token for each of {len(labels)} samples. "
            "Make the logits of shape (N, T, C) its first output, or give a metric of your own."
        )
    are_probabilities = all(_is_softmax(r) for r in rows)
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


def _is_softmax(row: NDArray[Any]) -> bool:
    """Whether scores are probabilities already: a sum of logits is 1 everywhere by no accident."""
    return bool((row >= 0).all() and np.allclose(row.sum(axis=-1), 1.0, atol=1e-3))


def _count_edits(
    name: str, outputs: Any, labels: NDArray[Any], vocabulary: Sequence[str], *, words: bool
) -> tuple[Floats, Floats]:
    """Edits and length of the label of each sample."""
    rows = list(_iter_rows(outputs))
    if len(rows) != len(labels) or any(r.ndim not in (1, 2) for r in rows):
        raise CalibrationError(
            f'Cannot score "{name}": the output has no sequence for each of {len(labels)} samples. Make ids of shape '
            "(N, T), or scores (N, T, C), the first output, or give a metric of your own."
        )
    is_text = labels.dtype.kind in "US"
    if (is_text and not vocabulary) or (not is_text and (labels.dtype.kind not in "iu" or labels.ndim != 2)):
        raise CalibrationError(
            f'Cannot score "{name}": labels are {_describe_type(labels)} of shape {shape_text(labels.shape)}. Give ids '
            "of shape (N, L), filled up with -1; or texts, with Task(..., vocabulary=...) for the ids of the output."
        )
    amounts, weights = np.zeros(len(rows)), np.zeros(len(rows))
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        if row.dtype.kind == "f" and np.isnan(row).any():
            amounts[i] = math.nan
            continue
        sequences = str(label) if is_text else decode_ids(label), decode_ids(row)
        label_units, output_units = (_split_units(name, s, vocabulary, words=words) for s in sequences)
        amounts[i], weights[i] = edit_distance(label_units, output_units), len(label_units)
    return amounts, weights


def decode_ids(row: NDArray[Any]) -> list[int]:
    """The ids of one sample without padding; of scores by position the largest ones."""
    ids = row.argmax(axis=-1) if row.ndim == 2 else row
    return [int(i) for i in ids if i >= 0]


def spell_ids(ids: Sequence[int], vocabulary: Sequence[str]) -> str:
    """Ids as text; as numbers where there is no vocabulary, or none that has them."""
    if not vocabulary or any(i >= len(vocabulary) for i in ids):
        return " ".join(map(str, ids))
    return "".join(vocabulary[i] for i in ids)


def _split_units(name: str, tokens: str | list[int], vocabulary: Sequence[str], *, words: bool) -> list[Any]:
    """What is counted of a sequence: ids, or the words or characters of its text."""
    if isinstance(tokens, list):
        if not vocabulary:
            return list(tokens)
        if (wild := max(tokens, default=0)) >= len(vocabulary):
            raise CalibrationError(
                f'Cannot score "{name}": id {wild} is none of the {len(vocabulary)} of the vocabulary. Give all of it.'
            )
        tokens = spell_ids(tokens, vocabulary)
    return tokens.split() if words else list(tokens)


def edit_distance(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions that make one sequence of the other (Wagner, Fischer 1974)."""
    above = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]
