"""The loss of a variant on each sample, as a continuous number."""

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

    from rtlab.core.model import Model
    from rtlab.core.trace import Outputs

_FLOATS = {"fp16", "bf16", "fp32", "fp64"}
#: What a sample loses at most: a hundred times the energy of its outputs. An output that is not finite loses as much.
MOST = 100.0


def list_float_outputs(model: Model) -> tuple[str, ...]:
    """The floating-point outputs of a model.

    Raises:
        ModelError: it has none.
    """
    # Importing it takes a while, and much address space.

    names = tuple(o for o in model.outputs if model.values[o].dtype in _FLOATS)
    if not names:
        raise ModelError(
            f'Cannot rank what rounds in model "{model.name}": none of its outputs is floating-point, so that a small '
            "error shows nowhere. Give the model without what chooses at its end, such as ArgMax."
        )
    return names


@dataclasses.dataclass(frozen=True, eq=False)
class SampleLoss:
    """The loss of each sample of one batch.

    ``reference`` are the floating-point outputs of the source; ``rows`` is the number of samples where each output has
    a row for each, else 1. ``labels`` are those of the samples, where the loss is their cross-entropy.
    """

    reference: Mapping[str, NDArray[np.float64]]
    samples: int
    rows: int
    labels: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        reference: Outputs,
        names: Sequence[str],
        samples: int,
        labels: NDArray[np.int64] | None,
        first: int,
    ) -> SampleLoss:
        """The loss beside what the source gives for samples from number ``first`` on.

        Raises:
            RunError: the source itself gives NaN or infinity.
            CalibrationError: a label is no class.
        """
        reference_arrays: dict[str, NDArray[np.float64]] = {
            n: np.asarray(reference[n], np.float64) for n in names
        }
        for name, array in reference_arrays.items():
            if not np.isfinite(array).all():
                raise RunError(
                    f'Cannot rank what rounds: the model itself gives NaN or infinity in output "{name}" for a sample '
                    f"from number {first} on, before anything is rounded. Leave that sample out, or repair the model."
                )
        each = all(a.ndim and len(a) == samples for a in reference_arrays.values())
        if labels is None:
            return cls(reference_arrays, samples, samples if each else 1)
        classes, batch_labels = reference_arrays[names[0]], labels[first : first + samples]
        if classes.ndim != 2 or not each:
            raise CalibrationError(
                f'Cannot take the cross-entropy of labels: output "{names[0]}" has shape {classes.shape}, and no row '
                'of classes for each sample. Use loss="outputs".'
            )
        if (
            batch_labels.dtype.kind not in "iu"
            or batch_labels.ndim != 1
            or not np.all((batch_labels >= 0) & (batch_labels < classes.shape[1]))
        ):
            raise CalibrationError(
                f"Cannot take the cross-entropy of labels: they are to be one whole number from 0 to "
                f'{classes.shape[1] - 1} for each sample. Use loss="outputs" for others.'
            )
        return cls(reference_arrays, samples, samples, batch_labels.astype(np.int64))

    def each(self, outputs: Outputs) -> NDArray[np.float64]:
        """What is lost on each sample, or on each the mean of all, beyond the reference.

        Raises:
            RunError: an output has another shape than in the reference.
        """
        for name, one in self.reference.items():
            if np.shape(outputs[name]) != one.shape:
                raise RunError(
                    f'Cannot compare output "{name}": it has shape {one.shape}, and {np.shape(outputs[name])} where '
                    "something is rounded, so that its numbers follow from what the model chooses. Give the model "
                    "without its last steps, such as NonMaxSuppression."
                )
        losses = self._entropy(outputs) if self.labels is not None else self._errors(outputs)
        bounded_losses = np.clip(np.where(np.isfinite(losses), losses, MOST), -MOST, MOST)
        return np.repeat(bounded_losses, self.samples // self.rows)

    def scales(self, name: str) -> NDArray[np.float64]:
        """By what each row of an output's error is divided, in squares: the energy of the output, times the outputs."""
        rows = self.reference[name].reshape(self.rows, -1)
        energy = np.square(rows).sum(axis=1)
        mean = float(energy.mean()) or 1.0
        return np.where(energy > 0, energy, mean) * len(self.reference)

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

    def _errors(self, outputs: Outputs) -> NDArray[np.float64]:
        total = np.zeros(self.rows)
        with np.errstate(all="ignore"):
            for name, one in self.reference.items():
                error = np.square(np.asarray(outputs[name], np.float64) - one) * self.weights[name]
                total += error.reshape(self.rows, -1).sum(axis=1) / self.scales(name)
        return total

    def _entropy(self, outputs: Outputs) -> NDArray[np.float64]:
        name = next(iter(self.reference))
        with np.errstate(all="ignore"):
            return self._logs(self.reference[name]) - self._logs(np.asarray(outputs[name], np.float64))

    def _logs(self, classes: NDArray[np.float64]) -> NDArray[np.float64]:
        """The logarithm of the probability of each label, of logits or of probabilities."""
        # Importing it takes a while, and much address space.
        from scipy import special

        reference = next(iter(self.reference.values()))
        are_probabilities = (reference >= 0).all() and np.allclose(reference.sum(axis=1), 1, atol=1e-3)
        logs = (
            np.log(np.maximum(classes, 1e-12)) if are_probabilities else special.log_softmax(classes, axis=1)
        )
        log_probs: NDArray[np.float64] = logs[np.arange(len(logs)), self.labels]
        return log_probs
