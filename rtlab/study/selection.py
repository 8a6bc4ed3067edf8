"""Some of the samples of a study, by number."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

from rtlab.analyses.study_state import SampleSelection
from rtlab.core.data import CalibrationData, SampleStream
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
        # A mask is no list of numbers.
        listed: list[Any] = [None if isinstance(i, bool) else i for i in numbers]
        samples = tuple(sorted({operator.index(i) for i in listed}))
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
    if isinstance(data, SampleStream):
        raise CalibrationError(
            f"{prefix} of {data.source}: it is read from front to back. Give arrays, an .npy file or a "
            "folder of pictures."
        )
    rows = list(samples)
    source = f"{pluralize(len(rows), 'chosen sample')} of {data.source}"
    part = dataclasses.replace(data.pick(rows), source=source)
    if task is not None:
        task = dataclasses.replace(task, data=part, labels=task.labels[rows], picked=True)
    return SampleSelection(samples, part, task)
