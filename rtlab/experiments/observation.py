"""Values of the reference, watched sample by sample and channel by channel."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.channels import ChannelErrors, ChannelSums
from rtlab.analyses.diagnosis.causes import ActivationStats
from rtlab.core.budget import WorkContext
from rtlab.core.precision import compute_amax
from rtlab.core.progress import check
from rtlab.core.protocols import Evaluator, Progress
from rtlab.errors import BackendError, RunError
from rtlab.experiments.running import batch_size, open_engine
from rtlab.quantize.isolated_error import build_isolated_error_model
from rtlab.quantize.ranges import Collector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: Magnitudes beyond are counted as this one: a histogram has no place for what is not finite.
_LARGEST = float(np.finfo(np.float32).max)

_CHANNELS_FIRST = frozenset({
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization"
})  # fmt: skip
#: Samples on which every value is looked at.
_PEAK_SAMPLES = 32


def collect_activation_stats(
    model: Model,
    channels: Mapping[str, int | None],
    data: CalibrationData,
    runner: Evaluator,
    progress: Progress,
) -> Mapping[str, ActivationStats]:
    """Statistics of some values of a model in FP32, each with the axis of its channels, None for one that has none.

    Memory grows with the number of samples by one row of channels each. ``progress`` is advanced by samples.

    Raises:
        CalibrationError: there is no sample.
        Cancelled: the work was stopped.
    """
    names = tuple(channels)
    rows: dict[str, list[NDArray[np.float64]]] = {n: [] for n in names}
    energies: dict[str, list[NDArray[np.float64]]] = {n: [] for n in names}
    sizes = dict.fromkeys(names, 0)
    collector = Collector(names, stride=1)

    def fetch(batch: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        output_names = tuple(n for n in names if n not in batch)
        computed = runner.outputs(engine, batch, output_names, progress=progress) if output_names else {}
        outputs = {**batch, **computed}
        clean: dict[str, NDArray[np.generic]] = {}
        for name in names:
            array = np.asarray(outputs[name], dtype=np.float32)
            # An infinity of FP32 stays one in every type.
            array = np.where(np.isinf(array), np.float32(0), array)
            peaks, energy = _reduce_by_channel(array, channels[name], data.samples_in(model, batch))
            rows[name].append(peaks)
            energies[name].append(energy)
            sizes[name] += array.size
            clean[name] = np.nan_to_num(array, nan=0.0)
        return clean

    size = batch_size(model, names, data, runner)
    with open_engine(runner, model) as engine:
        collector.run(data.batches(model, size), fetch, progress, lambda b: data.samples_in(model, b))
    ranges = collector.ranges.values
    return {n: ActivationStats(n, ranges[n], *_join_batches(rows[n], energies[n], sizes[n])) for n in names}


def measure_peaks(
    model: Model,
    names: Sequence[str],
    data: CalibrationData,
    runner: Evaluator,
    progress: Progress,
    *,
    finite: bool = True,
) -> Mapping[str, float]:
    """The largest magnitude of values of a model; infinite where one is NaN.

    With ``finite``, infinities are left out: those of FP32, such as a mask's, are the same in every type.

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
                numbers = np.asarray(outputs[name], np.float64)
                largest = float(
                    compute_amax(np.where(np.isinf(numbers), 0.0, numbers) if finite else numbers)
                )
                peaks[name] = max(peaks[name], np.inf if np.isnan(largest) else largest)
    return peaks


def channel_axis(node: Node, value: str, model: Model) -> int | None:
    """The axis of a value's channels, by who reads it: pictures next to the batch, sequences at the end; or None."""
    shape = model.values[value].shape
    if shape is None or len(shape) < 2:
        return None
    axis = 1 if len(shape) == 4 or node.op in _CHANNELS_FIRST else -1
    if node.op == "MatMul":
        axis = -2 if node.inputs.index(value) == 1 else -1
    return axis


def _reduce_by_channel(
    array: NDArray[np.float32], axis: int | None, samples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Peaks by sample and channel, and the sum of squares by channel; one row where samples cannot be told apart."""
    wide = np.abs(array.astype(np.float64))
    wide[np.isnan(wide)] = np.inf
    has_sample_axis = bool(array.ndim) and array.shape[0] == samples
    channel = None if axis is None or not -array.ndim <= axis < array.ndim else axis % array.ndim
    if not has_sample_axis:
        flat = wide.reshape(1, 1, -1)
    elif not channel:
        flat = wide.reshape(samples, 1, -1)
    else:
        flat = np.moveaxis(wide, channel, 1).reshape(samples, array.shape[channel], -1)
    finite = np.where(np.isfinite(flat), flat, _LARGEST)
    return flat.max(axis=2, initial=0.0), (finite**2).sum(axis=(0, 2))


def _join_batches(
    rows: list[NDArray[np.float64]], energies: list[NDArray[np.float64]], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Peaks and mean squares of all batches, of ``size`` elements; of one channel where their channels differ."""
    if len({len(e) for e in energies}) > 1:
        rows = [r.max(axis=1, keepdims=True, initial=0.0) for r in rows]
        energies = [e.sum(keepdims=True) for e in energies]
    energy = np.sum(energies, axis=0)
    return np.concatenate(rows), energy / max(1, size // max(1, len(energy)))


@dataclasses.dataclass(frozen=True)
class ChannelSearch:
    """Measure the errors of the channels of a value of the reference and of the variant's emulation.

    ``axis`` is that of the channels, None without any; ``threshold`` the largest magnitude that the value's quantizer
    has a step for, None where it is not quantized.
    """

    variant: str
    source: Model
    emulation: Model
    value: str
    axis: int | None
    threshold: float | None
    data: CalibrationData
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[ChannelErrors]:
        """The errors after each batch."""
        with contextlib.ExitStack() as stack:
            open_model = functools.partial(context.tool.reading, progress=context)
            context.phase("Opening the model")
            error = ""
            with contextlib.suppress(BackendError):
                isolated = build_isolated_error_model(self.source, self.emulation)
                if isolated is not None and self.value in isolated.error_sums:
                    error = isolated.error_sums[self.value].error
                    plain = stack.enter_context(open_model(isolated.model, [self.value, error]))
            if not error:
                plain = stack.enter_context(open_model(self.source, [self.value]))
            rounded = stack.enter_context(open_model(self.emulation, [self.value]))
            context.phase("Measuring channels", self.data.count)
            sample_count, sums = 0, None
            size = batch_size(self.source, [self.value], self.data, context.tool)
            for batch in self.data.batches(self.source, size):
                context.check("measuring channels")
                exact = plain(batch)
                x, y = (np.asarray(one[self.value], np.float32) for one in (exact, rounded(batch)))
                local_error = np.asarray(exact[error], np.float32) if error else None
                if x.shape != y.shape:
                    raise RunError(
                        f'Cannot compare value "{self.value}": it has shape {x.shape} in the reference and {y.shape} '
                        "in the variant, since numbers decide its size. Ask for one before it."
                    )
                more = ChannelSums.from_batch(x, y, local_error, self.axis, self.threshold)
                if sums is None:
                    sums = more
                elif len(sums.sums) == len(more.sums):
                    sums.add(more)
                else:
                    raise RunError(
                        f'Cannot compare value "{self.value}" channel by channel: it has {len(sums.sums)} channels for '
                        f"some samples and {len(more.sums)} for others. Ask for one that has as many for all."
                    )
                count = self.data.samples_in(self.source, batch)
                sample_count += count
                context.count(runs=2)
                context.advance(count)
                yield ChannelErrors(
                    self.variant,
                    self.value,
                    self.source.producers[self.value].id,
                    self.axis,
                    self.threshold,
                    sample_count,
                    f"{context.tool.source}, {self.data.source}",
                    sums.compute_rows(quantized=self.threshold is not None),
                    self.data.synthetic,
                )
                if context.is_exhausted:
                    return
