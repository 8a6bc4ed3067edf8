"""What a model is for: held-out samples with labels, and the metric that counts its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.data import CalibrationData
from rtlab.core.metrics import Metric, Tally, count_nan_samples, find_metric, make_worst_slice_metric
from rtlab.core.model import Model
from rtlab.core.value import shape_text
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The labels where none were given.
_NONE: NDArray[Any] = np.empty(0)


class Predictions:
    """Outputs of a task's samples, gathered batch by batch."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._parts: dict[str, list[Any]] = {}

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(self._counts)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(getattr(part, "nbytes", 0) for parts in self._parts.values() for part in parts)

    def add(self, outputs: Mapping[str, Any], samples: int) -> None:
        """Append the outputs of one batch of so many samples."""
        self._counts.append(samples)
        for name, value in outputs.items():
            self._parts.setdefault(name, []).append(value)

    def extend(self, others: Predictions) -> None:
        """Append the outputs of the samples that come next."""
        self._counts += others._counts
        for name, parts in others._parts.items():
            self._parts.setdefault(name, []).extend(parts)

    def copy(self) -> Predictions:
        """An independent copy."""
        duplicate = Predictions()
        duplicate.extend(self)
        return duplicate

    def parts(self) -> dict[str, list[NDArray[Any]]]:
        """By output, the floating arrays of its batches."""
        arrays = {
            name: [p for p in parts if isinstance(p, np.ndarray)] for name, parts in self._parts.items()
        }
        return {name: [p for p in parts if p.dtype.kind == "f"] for name, parts in arrays.items()}

    @property
    def finite(self) -> bool:
        """Whether all numbers in outputs are finite."""
        return all(np.isfinite(part).all() for parts in self.parts().values() for part in parts)

    def concatenate(self) -> dict[str, Any]:
        """By output, one array with a row per sample; a list with an entry per batch where rows differ."""
        rows = [(count,) for count in self._counts]
        return {
            name: np.concatenate(parts)
            if all(isinstance(p, np.ndarray) for p in parts)
            and [p.shape[:1] for p in parts] == rows
            and len({(p.shape[1:], p.dtype) for p in parts}) == 1
            else parts
            for name, parts in self._parts.items()
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What the model is for, so that accuracy can be counted: data, labels and a metric.

    ``metric`` is a function of the outputs of all samples and the labels that returns one number; the name of a
    built-in one, such as "top-5" or "psnr" (see ``rtlab.core.metrics.find_metric``); or a ``Metric``, which has a value
    for each sample and so an interval. A function takes the output of a model that has one, of shape ``(N, ...)``, and
    of one that has several a mapping of all by name, as ``Predictions.concatenate`` makes it; the others score the
    first output. The default is top-1 in percent.

    Without ``labels`` the model's own answers in fp32 are the labels, which a study computes before it scores: the
    score is then how far a variant agrees with fp32, and not how often it is right. The default is top-1 where the
    first output has a row of several numbers for each sample, else the "nmse" of the worst slice of all outputs: boxes
    and scores in one output are two kinds of numbers. ``reference`` is True for such labels.

    ``name`` and ``unit`` are shown beside the number, ``higher`` says that more of it is better: those of the metric
    by default, and of a function its name, no unit, and that more is better. ``vocabulary`` are the names of classes by
    number. ``picked`` says that the samples were picked by hand or for what they show: there are no intervals.
    """

    data: CalibrationData
    labels: NDArray[Any] = dataclasses.field(default_factory=lambda: _NONE, repr=False)
    metric: Callable[[Any, NDArray[Any]], float] | str | Metric | None = None
    name: str = ""
    unit: str | None = None
    higher: bool | None = None
    vocabulary: Sequence[str] = ()
    picked: bool = False
    reference: bool = False

    def __post_init__(self) -> None:
        labels: Any = self.labels
        if labels is None or labels is _NONE:
            object.__setattr__(self, "reference", True)
            object.__setattr__(self, "labels", _NONE)
        metric = self.counted
        named_metric = metric or Metric(_get_metric_name(self.metric), lambda *_: ())
        object.__setattr__(self, "labels", np.asarray(self.labels))
        object.__setattr__(self, "name", self.name or named_metric.name)
        object.__setattr__(self, "unit", named_metric.unit if self.unit is None else self.unit)
        object.__setattr__(self, "higher", named_metric.higher if self.higher is None else self.higher)

    @property
    def counted(self) -> Metric | None:
        """The metric with a value for each sample, None of a function; ``CalibrationError`` for an unknown name."""
        if self.metric is None or isinstance(self.metric, str):
            return find_metric(self.metric or "top-1")
        return self.metric if isinstance(self.metric, Metric) else None

    @property
    def unanswered(self) -> bool:
        """Whether the labels are the model's own answers, which are not computed yet."""
        return self.reference and not self.labels.size

    def answered(self, outputs: Mapping[str, Any]) -> Task:
        """The same with the answers of the model in fp32 as labels.

        Args:
            outputs: The outputs of all samples by name, as ``Predictions.concatenate`` makes them.

        Raises:
            CalibrationError: the first output has no row of one shape per sample.
        """
        name, first = next(iter(outputs.items()))
        if not isinstance(first, np.ndarray) or not first.ndim:
            raise CalibrationError(
                f'Cannot take the answers of fp32 as labels: the first output, "{name}", has no row of one shape per '
                "sample. Give labels, Task(data, labels, metric=...)."
            )
        several = first.ndim == 2 and first.shape[1] > 1 and first.dtype.kind == "f"
        usual = Task(self.data, np.empty(0), self.metric, vocabulary=self.vocabulary)
        task = self
        rows = {n: v for n, v in outputs.items() if _is_rows(v, len(first))}
        if self.metric is None:
            metric: Any = "top-1" if several else "nmse"
            if name in rows and not several:
                metric = make_worst_slice_metric({n: v.shape[1:] for n, v in rows.items()})
            task = dataclasses.replace(usual, metric=metric, name="", unit=None, higher=None)
        scored, title, labels = task.counted, self.name, first
        if title == usual.name:
            title = f"{task.name.removesuffix(' accuracy')} against fp32"
        if scored is not None and scored.says:
            labels = first.reshape(len(first), -1).argmax(axis=1)
        elif scored is not None and scored.joint:
            labels = np.concatenate([v.reshape(len(v), -1) for v in rows.values()], axis=1)
        return dataclasses.replace(task, labels=labels, name=title, picked=self.picked, reference=True)

    def wanted(self, model: Model) -> tuple[str, ...]:
        """The outputs that the metric or its labels need."""
        several = self.counted is None or self.counted.joint or (self.unanswered and self.metric is None)
        return model.outputs if several else model.outputs[:1]

    def score(self, outputs: NDArray[Any] | Mapping[str, Any], samples: int | None = None) -> float:
        """The metric over the outputs of the first samples; arguments and errors are those of ``tally``."""
        return self._tally(*self._check_outputs(outputs, samples)).value

    def tally(self, outputs: NDArray[Any] | Mapping[str, Any], samples: int | None = None) -> Tally:
        """The amounts of the first samples and their score, from which its uncertainty follows.

        Args:
            outputs: An array with a row per sample; or the outputs by name, as ``Predictions.concatenate`` makes them.
            samples: How many there are; the rows of the first output by default.

        Raises:
            CalibrationError: there are fewer labels than samples, outputs and labels do not fit the metric, or it
                raised, or returned no number.
        """
        named, labels = self._check_outputs(outputs, samples)
        return dataclasses.replace(self._tally(named, labels), picked=self.picked)

    def _check_outputs(
        self, outputs: NDArray[Any] | Mapping[str, Any], samples: int | None
    ) -> tuple[Mapping[str, Any], NDArray[Any]]:
        """Outputs by name, and the labels of their samples."""
        named: Mapping[str, Any] = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        count = len(next(iter(named.values()))) if samples is None else samples
        if not self.labels.ndim:
            raise CalibrationError(
                f'Cannot score "{self.name}": labels are one {type(self.labels.item()).__name__}, no array. Give one '
                "for each sample."
            )
        if self.unanswered:
            raise CalibrationError(
                f'Cannot score "{self.name}": there are no labels, and those of the model are not computed. Give '
                "the task to a Study, which does, or take task.answered(outputs of fp32)."
            )
        labels = self.labels[:count]
        if len(labels) < count:
            raise CalibrationError(
                f'Cannot score "{self.name}": there are {len(labels)} labels for {count} samples. '
                "Give one for each."
            )
        return named, labels

    def _tally(self, named: Mapping[str, Any], labels: NDArray[Any]) -> Tally:
        metric, first = self.counted, next(iter(named.values()))
        try:
            if metric is not None:
                self._check_rows(next(iter(named)), first, len(labels))
                return dataclasses.replace(metric, name=self.name).tally(
                    named if metric.joint else first, labels
                )
            function: Any = self.metric
            value = function(first if len(named) == 1 else named, labels)
        except CalibrationError:
            raise
        except Exception as error:
            shapes = ", ".join(f'"{k}" {_describe_shape(v)}' for k, v in named.items())
            outputs = (
                f"outputs of shape {_describe_shape(first)}" if len(named) == 1 else f"a mapping of {shapes}"
            )
            raise CalibrationError(
                f'Cannot score "{self.name}": its metric raised {type(error).__name__}: {error}. Call it with '
                f"{outputs} and the labels to see where.",
                details=repr(error),
            ) from error
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            what = f"an array of shape {shape_text(array.shape)}" if array.ndim else repr(value)
            raise CalibrationError(
                f'Cannot score "{self.name}": its metric returned {what}, not one finite number. Return its mean; or '
                "give Metric(name, each=...), which takes a value for each sample."
            )
        return Tally(float(array.item()), broken=_count_nans(first))

    def _check_rows(self, name: str, first: Any, count: int) -> None:
        parts = first if isinstance(first, list) else [first]
        if any(not isinstance(p, np.ndarray) or p.ndim == 0 for p in parts) or count != sum(map(len, parts)):
            raise CalibrationError(
                f'Cannot score "{self.name}": the first output, "{name}", has no row per sample. Give '
                "Task(..., metric=...) with a function, which takes all outputs."
            )


def _get_metric_name(metric: Any) -> str:
    """The name of a function, where it has one."""
    name = getattr(metric, "__name__", "")
    return name if name.isidentifier() else "metric"


def _is_rows(output: Any, samples: int) -> bool:
    """Whether an output is floating, with a row of one shape for each sample."""
    return isinstance(output, np.ndarray) and output.dtype.kind == "f" and output.shape[:1] == (samples,)


def _count_nans(first: Any) -> int:
    """How many samples have a NaN in an output, where it is made of arrays."""
    parts = first if isinstance(first, list) else [first]
    return count_nan_samples(first) if all(isinstance(p, np.ndarray) and p.ndim for p in parts) else 0


def _describe_shape(value: Any) -> str:
    return shape_text(value.shape) if isinstance(value, np.ndarray) else f"list of {len(value)}"
