"""How far a variant's outputs lie from those of fp32, on each sample: a number that no noise makes smaller than 0.

Of class scores it is the Kullback-Leibler divergence ``sum p (log p - log q)`` of the classes' probabilities, p of fp32
and q of the variant (Kullback and Leibler 1951); of other outputs the squared error over the energy, by kind of number.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.slices import SliceSums
from rtlab.errors import CalibrationError, ModelError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.metrics import Tally
    from rtlab.core.model import Model
    from rtlab.core.task import Task
    from rtlab.core.trace import Outputs

_FLOATS = {"fp16", "bf16", "fp32", "fp64"}
#: What a sample loses at most: a hundred times the energy of its outputs, or nats. What is not finite loses as much.
MOST = 100.0
#: Probabilities below are taken for this: its inverse is still a number in FP32.
_LEAST = 1e-30
#: How far a sum of probabilities may be from 1, such as in FP16.
_NEAR_ONE = 1e-2


def list_float_outputs(model: Model) -> tuple[str, ...]:
    """The floating-point outputs of a model.

    Raises:
        ModelError: it has none.
    """
    names = tuple(o for o in model.outputs if model.values[o].dtype in _FLOATS)
    if not names:
        raise ModelError(
            f'Cannot rank what rounds in model "{model.name}": none of its outputs is floating-point, so that a small '
            "error shows nowhere. Give the model without what chooses at its end, such as ArgMax."
        )
    return names


@dataclasses.dataclass(frozen=True, eq=False)
class SampleLoss:
    """The loss of each sample of one batch: the mean over its outputs.

    ``reference`` are the floating-point outputs of the source; ``rows`` is the number of samples where each output has
    a row for each, else 1. ``axes`` has the axis of the classes by output, where there are any, and ``probabilities``
    those whose scores are probabilities. ``task`` has the labels of these samples; None where it counts no samples.
    """

    reference: Mapping[str, NDArray[np.float64]]
    samples: int
    rows: int
    axes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    probabilities: frozenset[str] = frozenset()
    task: Task | None = None

    @classmethod
    def of(
        cls, reference: Outputs, names: Sequence[str], numbers: NDArray[np.int64], task: Task | None = None
    ) -> SampleLoss:
        """The loss beside what the source gives for the samples of these numbers.

        Raises:
            RunError: the source itself gives NaN or infinity.
            CalibrationError: the task has fewer labels, or they do not fit.
        """
        arrays: dict[str, NDArray[np.float64]] = {n: np.asarray(reference[n], np.float64) for n in names}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise RunError(
                    f'Cannot rank what rounds: the model itself gives NaN or infinity in output "{name}" for one of '
                    f"the samples {', '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}, before "
                    "anything is rounded. Leave that sample out, or repair the model."
                )
        samples, first = len(numbers), arrays[names[0]]
        each = all(a.ndim and len(a) == samples for a in arrays.values())
        task = _select_labels(task, {n: reference[n] for n in names}, numbers) if each else None
        metric = None if task is None else task.counted
        axes = {n: axis for n, a in arrays.items() if (axis := _find_probabilities(a)) is not None}
        probabilities = frozenset(axes)
        if task is not None and metric is not None and first.ndim > 1:
            if metric.says == "class":
                axes.setdefault(names[0], 1)
                task.tally({names[0]: reference[names[0]]})  # Labels that are no classes raise here.
            elif metric.link == "exp":
                # A perplexity is of the scores of tokens.
                axes.setdefault(names[0], first.ndim - 1)
        task = None if metric is None or metric.joint else task
        return cls(arrays, samples, samples if each else 1, axes, probabilities, task)

    @property
    def words(self) -> str:
        """What is measured, with its unit."""
        classes = "Kullback-Leibler divergence of the class probabilities from those of fp32, in nats"
        energy = "|z - z_ref|² / |z_ref|² of the outputs z"
        parts = [classes] * bool(self.axes) + [energy] * (len(self.axes) < len(self.reference))
        return f"mean over samples of {' and '.join(parts)}"

    def each(self, outputs: Outputs) -> NDArray[np.float64]:
        """What is lost on each sample, or on each the mean of all, beside the reference.

        Raises:
            RunError: an output has another shape than in the reference.
        """
        losses = np.zeros(self.rows)
        for name, one in self.reference.items():
            if np.shape(outputs[name]) != one.shape:
                raise RunError(
                    f'Cannot compare output "{name}": it has shape {one.shape}, and {np.shape(outputs[name])} where '
                    "something is rounded, so that its numbers follow from what the model chooses. Give the model "
                    "without its last steps, such as NonMaxSuppression."
                )
            z = np.asarray(outputs[name], np.float64)
            with np.errstate(all="ignore"):
                if name in self.axes:
                    logs = self._reference_logs[name]
                    terms = np.exp(logs) * (logs - self._logs(name, z))
                else:
                    terms = np.square(z - one) * self.weights[name]
                losses += terms.reshape(self.rows, -1).sum(axis=1) / self.scales(name)
        bounded_losses = np.clip(np.where(np.isfinite(losses), losses, MOST), 0.0, MOST)
        return np.repeat(bounded_losses, self.samples // self.rows)

    def tally(self, outputs: Outputs) -> Tally | None:
        """The task's amounts of each sample; None without a task, and where outputs cannot be counted."""
        name = next(iter(self.reference))
        try:
            return None if self.task is None else self.task.tally({name: outputs[name]})
        except CalibrationError:
            return None

    def scales(self, name: str) -> NDArray[np.float64]:
        """The divisor of the sum over each row of an output: its energy, or its distributions; times the outputs."""
        rows = self.reference[name].reshape(self.rows, -1)
        if name in self.axes:
            count = rows.shape[1] / self.reference[name].shape[self.axes[name]]
            return np.full(self.rows, count * len(self.reference))
        energy = np.square(rows).sum(axis=1)
        mean = float(energy.mean()) or 1.0
        return np.where(energy > 0, energy, mean) * len(self.reference)

    def seed(
        self, name: str, signs: NDArray[np.float64] | None, quantized: Outputs, *, released: bool
    ) -> NDArray[np.float64]:
        """A vector u whose mean of (u . d)² over random signs is what an error d of an output costs, to second order.

        Without signs u . d is half of the slope of the loss at the variant's outputs. The curvature of the divergence
        is ``(diag(p) - p p') / 2`` at probabilities p: those of the variant for ``released``, else the mean of those of
        fp32 and the variant, for between two classes that are both sure it is flat at either end.
        """
        one = self.reference[name]
        z = np.nan_to_num(np.asarray(quantized[name], np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
        shape = [-1, *[1] * (one.ndim - 1)]
        scale = self.scales(name).reshape(shape) if one.ndim else self.scales(name)[0]
        if name not in self.axes:
            weights = self.weights[name] / scale
            return (z - one) * weights if signs is None else signs * np.sqrt(weights)
        axis = self.axes[name]
        p, q = np.exp(self._reference_logs[name]), np.exp(self._logs(name, z))
        if signs is None:
            seed = (q - p) / 2 / scale
        else:
            middle = q if released else (p + q) / 2
            noise = np.sqrt(middle) * signs
            seed = (noise - middle * noise.sum(axis=axis, keepdims=True)) / np.sqrt(2 * scale)
        # The slope of a softmax at probabilities multiplies by them.
        return seed / np.maximum(q if released else p, _LEAST) if name in self.probabilities else seed

    @functools.cached_property
    def _reference_logs(self) -> Mapping[str, NDArray[np.float64]]:
        return {name: self._logs(name, self.reference[name]) for name in self.axes}

    def _logs(self, name: str, classes: NDArray[np.float64]) -> NDArray[np.float64]:
        """The logarithms of probabilities, of logits or of themselves."""
        # Importing it takes a while, and much address space.
        from scipy import special

        if name in self.probabilities:
            classes = np.log(np.maximum(classes, _LEAST))
        logs: NDArray[np.float64] = special.log_softmax(classes, axis=self.axes[name])
        return logs

    @functools.cached_property
    def weights(self) -> Mapping[str, NDArray[np.float64]]:
        """By output, what the squared error of each element counts; 1 where the output holds one kind of numbers.

        Kinds, which ``rtlab.core.slices`` tells apart, count the same, each divided by its own energy in place of that
        of the whole: errors of scores would not count beside boxes.
        """
        return {name: self._weigh(name, one) for name, one in self.reference.items()}

    def _weigh(self, name: str, one: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = SliceSums(name)
        sums.add(one, one, self.samples)
        axes: dict[int, list[tuple[int, ...]]] = {}
        for part in sums.by_kind():
            if part.indices:
                axes.setdefault(part.axis, []).append(part.indices)
        if not axes:
            return np.ones(())
        weights = np.ones(one.shape)
        axis, kinds = max(axes.items(), key=lambda a: len(a[1]))
        squares = np.square(one).reshape(self.rows, -1).sum(axis=1)
        for indices in kinds:
            at = (slice(None),) * axis + (list(indices),)
            energy = np.square(one[at]).reshape(self.rows, -1).sum(axis=1)
            share = np.divide(squares, energy, out=np.ones(self.rows), where=energy > 0) / len(kinds)
            weights[at] = share.reshape([-1, *[1] * (one.ndim - 1)]) if self.rows > 1 else share[0]
        return weights


def _find_probabilities(array: NDArray[np.float64]) -> int | None:
    """The axis along which numbers are probabilities; None where they are none."""
    if array.ndim < 2 or not array.size or (array < 0).any():
        return None
    axes = (a for a in (-1, *range(1, array.ndim - 1)) if array.shape[a] > 1)
    return next((a % array.ndim for a in axes if np.allclose(array.sum(axis=a), 1.0, atol=_NEAR_ONE)), None)


def _select_labels(task: Task | None, reference: Outputs, numbers: NDArray[np.int64]) -> Task | None:
    """The task of these samples alone; of one without labels those are what fp32 says."""
    if task is None or task.counted is None:
        return None
    if task.unanswered:
        return task.answered(reference)
    if numbers.max() >= len(task.labels):
        raise CalibrationError(
            f'Cannot score "{task.name}": there are {len(task.labels)} labels, and more samples. Give one for each.'
        )
    return dataclasses.replace(task, labels=task.labels[numbers])
