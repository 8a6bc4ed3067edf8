"""Models run for what they compute, and how far two answers lie apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Evaluator, Progress
from rtlab.core.task import Predictions
from rtlab.core.variant import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.budget import WorkContext
    from rtlab.core.data import CalibrationData
    from rtlab.core.engine import Engine
    from rtlab.core.model import Model


@contextlib.contextmanager
def open_engine(runner: Evaluator, model: Model, progress: Progress | None = None) -> Iterator[Engine]:
    """An engine of a model in FP32 as it is, released in the end."""
    engine = runner.build(BuildRequest(model, Variant(), level="basic"), progress or Silent())
    try:
        yield engine
    finally:
        runner.release(engine)


def predict(
    model: Model,
    data: CalibrationData,
    output_names: tuple[str, ...],
    size: int,
    *,
    runner: Evaluator,
    context: WorkContext[Any],
) -> Predictions:
    """The outputs of a model for samples, ``size`` of them at a time."""
    predictions = Predictions()
    with open_engine(runner, model) as engine:
        for batch in data.batches(model, size):
            context.check("looking for a repair")
            context.count(runs=1)
            outputs = runner.outputs(engine, batch, output_names, progress=context)
            predictions.add(outputs, data.samples_in(model, batch))
    return predictions


def difference(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """The greatest difference of two tensors, relative to the greatest value of the second.

    Infinite where shapes differ, where one is not a number, and where whole numbers are not the same.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    scale = float(np.abs(expected).max(initial=0)) or 1.0
    error = float(np.abs(actual.astype(np.float64) - expected).max(initial=0)) / scale
    return error if np.isfinite(error) else float("inf")
