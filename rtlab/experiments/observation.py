"""Values of the reference, watched sample by sample and channel by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rtlab.analyses.diagnosis.quantizer_site import ActivationStats
from rtlab.core.precision import compute_amax
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Evaluator, Progress
from rtlab.experiments.running import open_engine
from rtlab.experiments.sizing import batch_size
from rtlab.quantize.ranges import Collector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: Magnitudes beyond are counted as this one: a histogram has no place for what is not finite.
_LARGEST = float(np.finfo(np.float32).max)

#: Samples on which every value is looked at.
_PEAK_SAMPLES = 32


def collect_activation_stats(
    model: Model,
    channels: Mapping[str, int | None],
    data: CalibrationData,
    runner: Evaluator,
    progress: Progress | None = None,
) -> Mapping[str, ActivationStats]:
    """What samples show of some values of a model in FP32.

    Args:
        model: The reference.
        channels: The values, each with the axis that its channels lie along, None for one that has none.
        data: The samples; memory grows with their number by one row of channels each.
        runner: What computes the values.
        progress: Asked before each batch whether to stop, and advanced by samples; the caller opens the phase.

    Raises:
        CalibrationError: there is no sample.
        Cancelled: the work was stopped.
    """
    progress = progress or Silent()
    names = tuple(channels)
    rows: dict[str, list[NDArray[np.float64]]] = {n: [] for n in names}
    squares: dict[str, list[tuple[NDArray[np.float64], int]]] = {n: [] for n in names}
    collector = Collector(names, stride=1)

    def fetch(batch: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        output_names = tuple(n for n in names if n not in batch)
        outputs = {**runner.outputs(engine, batch, output_names, progress=progress)} if output_names else {}
        clean: dict[str, NDArray[np.generic]] = {}
        for name in names:
            array = np.asarray(outputs[name] if name in outputs else batch[name], dtype=np.float32)
            peaks, energy = _reduce_by_channel(array, channels[name], data.samples_in(model, batch))
            rows[name].append(peaks)
            squares[name].append((energy, array.size // max(1, len(energy))))
            clean[name] = np.nan_to_num(array, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
        return clean

    size = batch_size(model, names, data, runner)
    with open_engine(runner, model) as engine:
        collector.run(data.batches(model, size), fetch, progress, lambda b: data.samples_in(model, b))
    ranges = collector.ranges.values
    return {
        n: ActivationStats(
            n,
            ranges[n],
            _stack_rows(rows[n]),
            _compute_mean([e for e, _ in squares[n]], [c for _, c in squares[n]]),
        )
        for n in names
    }


def measure_peaks(
    model: Model, names: Sequence[str], data: CalibrationData, runner: Evaluator, progress: Progress
) -> Mapping[str, float]:
    """The largest magnitude of values of a model in FP32; infinite where one is not finite.

    Raises:
        Cancelled: the work was stopped.
    """
    peaks = dict.fromkeys(names, 0.0)
    output_names = tuple(n for n in names if n not in model.inputs)
    with open_engine(runner, model) as engine:
        for batch in data.take(_PEAK_SAMPLES).batches(model, batch_size(model, names, data, runner)):
            check(progress, "looking for values that do not fit")
            outputs = {**batch, **runner.outputs(engine, batch, output_names, progress=progress)}
            for name in names:
                largest = float(compute_amax(np.asarray(outputs[name], np.float64)))
                peaks[name] = max(peaks[name], np.inf if np.isnan(largest) else largest)
    return peaks


def channel_axis(node: Node, value: str, model: Model) -> int | None:
    """Along which axis a value has its channels, by who reads it: pictures next to the batch, sequences at the end."""
    shape = model.values[value].shape
    if node.op == "MatMul":
        return -2 if node.inputs.index(value) == 1 and value in node.inputs else -1
    if node.op in {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "BatchNormalization",
    }:
        return 1
    return None if shape is None or len(shape) < 2 else 1 if len(shape) == 4 else -1


def _reduce_by_channel(
    array: NDArray[np.float32], axis: int | None, samples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Peaks by sample and channel, and the sum of squares by channel; one row where samples cannot be told apart."""
    wide = np.abs(array.astype(np.float64))
    wide[np.isnan(wide)] = np.inf
    rank = array.ndim
    has_sample_axis = bool(rank) and array.shape[0] == samples
    channel = None if axis is None or not -rank <= axis < rank else axis % rank
    if has_sample_axis and channel == 0:
        channel = None
    lead = wide.reshape(1, -1) if not has_sample_axis else wide
    if channel is None or not has_sample_axis:
        flat = lead.reshape(len(lead), 1, -1)
    else:
        flat = np.moveaxis(lead, channel, 1).reshape(len(lead), lead.shape[channel], -1)
    finite = np.where(np.isfinite(flat), flat, _LARGEST)
    return flat.max(axis=2, initial=0.0), (finite**2).sum(axis=(0, 2))


def _stack_rows(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Rows of all batches; where these have channels of other numbers, the largest of each row."""
    if len({r.shape[1] for r in rows}) > 1:
        rows = [r.max(axis=1, keepdims=True, initial=0.0) for r in rows]
    return np.concatenate(rows)


def _compute_mean(energy: Sequence[NDArray[np.float64]], counts: Sequence[int]) -> NDArray[np.float64]:
    if len({len(e) for e in energy}) > 1:
        energy, counts = (
            [e.sum(keepdims=True) for e in energy],
            [c * len(e) for e, c in zip(energy, counts, strict=True)],
        )
    means: NDArray[np.float64] = np.sum(energy, axis=0) / max(1, sum(counts))
    return means
