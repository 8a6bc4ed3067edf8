"""What a model is for: held-out samples with labels, and the metric that counts its outputs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.phrases import quoted
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Predictions:
    """Outputs of a task's samples, gathered batch by batch until its metric counts them.

    ``samples`` is how many there are, ``nbytes`` what they take in memory.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.nbytes = 0
        self._parts: dict[str, list[Any]] = {}
        self._aligned: dict[str, bool] = {}

    def add(self, outputs: Mapping[str, Any], samples: int) -> None:
        """Append the outputs of one batch of so many samples."""
        self.samples += samples
        for name, value in outputs.items():
            self._parts.setdefault(name, []).append(value)
            self.nbytes += getattr(value, "nbytes", 0)
            rows = value.shape[:1] if isinstance(value, np.ndarray) else ()
            self._aligned[name] = self._aligned.get(name, True) and rows == (samples,)

    def copy(self) -> Predictions:
        """The same outputs, to which others can be added."""
        made = Predictions()
        made.samples, made.nbytes = self.samples, self.nbytes
        made._parts = {name: list(parts) for name, parts in self._parts.items()}
        made._aligned = dict(self._aligned)
        return made

    def joined(self) -> dict[str, Any]:
        """By output, one array with a row per sample; a list with an entry per batch where rows are something else.

        Such are boxes found in a picture, numbers per batch, sequences, and rows whose shapes differ.
        """
        return {
            name: np.concatenate(parts)
            if self._aligned[name] and len({(p.shape[1:], p.dtype) for p in parts}) == 1
            else parts
            for name, parts in self._parts.items()
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What the model is for, so that accuracy can be counted: data, labels and a metric.

    ``metric`` takes the outputs of all samples and the labels, and returns one number. A model with one output gives
    that, of shape ``(N, ...)``; one with several gives a mapping of all by name, as ``Predictions.joined`` makes it.
    The default counts top-1 hits of the first output in percent. ``unit`` is shown beside the number.
    """

    data: CalibrationData
    labels: NDArray[Any]
    metric: Callable[[Any, NDArray[Any]], float] | None = None
    name: str = "top-1 accuracy"
    unit: str = "%"

    def wanted(self, model: Model) -> tuple[str, ...]:
        """The outputs that the metric is given."""
        return model.outputs if self.metric is not None else model.outputs[:1]

    def score(self, outputs: NDArray[Any] | Mapping[str, Any], samples: int | None = None) -> float:
        """The metric over the outputs of the first samples.

        Args:
            outputs: An array with a row per sample; or the outputs by name, as ``Predictions.joined`` makes them.
            samples: How many there are; the rows of the first output by default.

        Raises:
            CalibrationError: there are fewer labels than samples, the metric raised, or hits cannot be counted.
        """
        named: Mapping[str, Any] = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        count = len(next(iter(named.values()))) if samples is None else samples
        labels = self.labels[:count]
        if len(labels) < count:
            raise CalibrationError(
                f'Cannot score "{self.name}": there are {len(labels)} labels for {count} samples. '
                "Give one for each."
            )
        if self.metric is None:
            return self._hits(named, labels)
        try:
            return self._measured(self.metric, named, labels)
        except Exception as error:
            shapes = ", ".join(f'"{k}" {_shaped(v)}' for k, v in named.items())
            given = f"outputs of shape {_shaped(next(iter(named.values())))}" if len(named) == 1 else shapes
            raise CalibrationError(
                f'Cannot score "{self.name}": its metric raised {type(error).__name__}: {error}. Call it with '
                f"{given if len(named) == 1 else f'a mapping of {given}'} and the labels to see where.",
                details=repr(error),
            ) from error

    def _measured(
        self, metric: Callable[[Any, NDArray[Any]], float], named: Mapping[str, Any], labels: NDArray[Any]
    ) -> float:
        first = next(iter(named.values()))
        if len(named) == 1:
            return float(metric(first, labels))
        try:
            return float(metric(named, labels))
        except Exception:
            # Until 0.2.0 a metric was given the first output, whatever else there was.
            try:
                value = float(metric(first, labels))
            except Exception:  # noqa: BLE001 - the first reason is the one to tell
                value = None
            if value is None:
                raise
        names = quoted(named)
        warnings.warn(
            f'The metric of "{self.name}" takes one array, and the model has the outputs {names}: it was given the '
            f'first. Let it take a mapping, outputs["{next(iter(named))}"].',
            FutureWarning,
            stacklevel=2,
        )
        return value

    def _hits(self, named: Mapping[str, Any], labels: NDArray[Any]) -> float:
        name, first = next(iter(named.items()))
        if not isinstance(first, np.ndarray) or first.ndim == 0 or len(first) != len(labels):
            raise CalibrationError(
                f'Cannot count hits for "{self.name}": the first output, "{name}", has no row per sample. Give '
                "Task(..., metric=...), which takes all outputs."
            )
        hits = first.reshape(len(first), -1).argmax(axis=1) == labels
        return float(100.0 * hits.mean())


def _shaped(value: Any) -> str:
    return shape_text(value.shape) if isinstance(value, np.ndarray) else f"list of {len(value)}"
