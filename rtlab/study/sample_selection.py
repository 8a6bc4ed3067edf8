"""Some samples in place of all: errors and scores of every variant on these alone, until all are wanted again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from rtlab.analyses.study_state import SampleSelection
from rtlab.core.data import CalibrationData
from rtlab.core.images import Pictures
from rtlab.core.phrases import pluralize
from rtlab.core.task import Task
from rtlab.errors import CalibrationError


def select_samples(task: Task | None, study_data: CalibrationData, numbers: Iterable[int]) -> SampleSelection:
    """Samples by number, of the task's data, or of the study's where there is no task.

    Raises:
        CalibrationError: there is no such sample, or the data is a stream.
    """
    data = task.data if task is not None else study_data
    prefix = "Cannot choose samples"
    try:
        samples = tuple(sorted({_parse_sample_number(i) for i in numbers}))
    except TypeError as error:
        raise CalibrationError(f"{prefix}: {error}. Give whole numbers, such as [3, 17].") from error
    if not samples:
        raise CalibrationError(f"{prefix}: none is named. Give some numbers, or None for all samples.")
    if samples[0] < 0 or samples[-1] >= len(data):
        wild = samples[0] if samples[0] < 0 else samples[-1]
        raise CalibrationError(
            f"{prefix}: there is no sample {wild} in {data.source}, which has {len(data)}. Count from 0 to "
            f"{len(data) - 1}."
        )
    part = _part(data, samples)
    if task is not None:
        labels = task.labels[list(samples)]
        task = dataclasses.replace(task, data=part, labels=labels, picked=True)
    return SampleSelection(samples, part, task)


def _part(data: CalibrationData, samples: tuple[int, ...]) -> CalibrationData:
    """Some of the samples by number."""
    if not data.arrays:
        raise CalibrationError(
            f"Cannot choose samples of {data.source}: it is read from front to back. Give arrays, an .npy file or a "
            "folder of pictures."
        )
    rows = list(samples)
    arrays = {
        k: np.stack([np.asarray(a[i]) for i in rows]) if isinstance(a, Pictures) else a[rows]
        for k, a in data.arrays.items()
    }
    return dataclasses.replace(
        data, arrays=arrays, source=f"{pluralize(len(rows), 'chosen sample')} of {data.source}"
    )


def _parse_sample_number(number: Any) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f'"{number}" is no number of a sample')
    return int(number.__index__())
