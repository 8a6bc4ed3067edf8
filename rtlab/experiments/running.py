"""Models run for what they compute, and how far two answers lie apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from rtlab.core.data import Inputs
from rtlab.core.external_data import LARGE_WEIGHTS
from rtlab.core.model import Model, wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Evaluator, Progress
from rtlab.core.task import Predictions
from rtlab.core.variant import Variant
from rtlab.errors import RtlabError
from rtlab.relation.footprint import nbytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.arrays import Batch
    from rtlab.core.budget import WorkContext
    from rtlab.core.data import CalibrationData
    from rtlab.core.engine import Engine
    from rtlab.core.model import Model
    from rtlab.core.sizes import Sizes
    from rtlab.core.trace import Outputs


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
    names: tuple[str, ...],
    *,
    source: Model,
    context: WorkContext[Any],
    runner: Evaluator,
) -> Predictions:
    """Outputs of a model for samples, in batches for which the values of its ``source`` fit in memory."""
    predictions, size = Predictions(), batch_size(source, None, data, runner)
    with open_engine(runner, model) as engine:
        for batch in data.batches(model, size):
            context.check("looking for a repair")
            context.count(runs=1)
            outputs = runner.outputs(engine, batch, names, progress=context)
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


#: Bytes of the values of one batch: larger batches save no time, and memory holds them more than once.
_BATCH_BYTES = 8 << 20
#: Seconds for the run that tells shapes; a loop without end must not keep everybody waiting.
_LEARNING = 10.0
_MOST_BATCH = 64


def batch_size(
    model: Model,
    names: Sequence[str] | None,
    data: CalibrationData | None = None,
    runner: Evaluator | None = None,
) -> int:
    """Samples per batch that keep the values of one batch within bounds; 1 where the graph fixes the batch.

    ``names`` are the values of the main graph that are there at once, None stands for all. Where the model leaves sizes
    open, the shapes of ``data`` count; where shapes follow from numbers, ``runner`` runs one sample.
    """
    if not model.free_batch:
        return 1
    if names is None:
        names = [o for n in model.top for o in n.outputs if o]
    total = sum(value_bytes(model, names, data, runner).values())
    return max(1, min(_MOST_BATCH, _BATCH_BYTES // max(1, total)))


def value_bytes(
    model: Model, names: Sequence[str], data: CalibrationData | None = None, runner: Evaluator | None = None
) -> dict[str, int]:
    """Bytes of values of the main graph for one sample; the arguments are those of ``batch_size``.

    What nobody knows is taken to be as large as the largest that is known.
    """
    sizes = sizes_of(model, data, runner)
    value_names = [n for n in dict.fromkeys(names) if n in model.values]
    bytes_by_name = {n: nbytes(model.values[n].dtype or "fp32", sizes.get(n)) for n in value_names}
    most = max((size for size in bytes_by_name.values() if size is not None), default=_BATCH_BYTES)
    return {name: most if size is None else size for name, size in bytes_by_name.items()}


def fixed_batch(model: Model) -> int:
    """The batch that the graph itself demands, or that was named; 1 where it is free."""
    firsts = [shape[0] for shape in model.sizes().inputs.values() if shape]
    return max((d for d in firsts if d is not None), default=1)


def run_samples(model: Model, batch: Batch, count: int, run: Callable[[Batch], Outputs]) -> Outputs | None:
    """The outputs of so many samples; a batch that the graph fixes is filled up, and what that gives is cut off.

    None where a row of an output is no sample, so that nothing can be cut off.
    """
    whole = Inputs(model).fixed
    if not whole or whole == len(next(iter(batch.values()))):
        return run(batch)
    outputs = run(
        {n: np.concatenate([a, np.repeat(a[-1:], whole - count, axis=0)]) for n, a in batch.items()}
    )
    if any(not isinstance(a, np.ndarray) or a.shape[:1] != (whole,) for a in outputs.values()):
        return None
    return {n: a[:count] for n, a in outputs.items()}


def sizes_of(model: Model, data: CalibrationData | None = None, runner: Evaluator | None = None) -> Sizes:
    """Shapes of all values for one sample; those that only a run can tell are read from one run of a small model."""
    try:
        first = next(data.batches(model, 1)) if data is not None else None
        sizes = model.sizes(batch=1, shapes={n: a.shape for n, a in first.items()} if first else None)
        is_small = model.weight_bytes < LARGE_WEIGHTS
        if first is not None and runner is not None and not sizes.learned and sizes.unknown and is_small:
            _learn(model, sizes, first, runner)
    except RtlabError:
        # What is wrong with the samples is told where they are used.
        return model.sizes(batch=1)
    return sizes


def _learn(model: Model, sizes: Sizes, batch: Batch, runner: Evaluator) -> None:
    """Run one batch and read the shapes of values, not the values: together they may be larger than memory."""
    names = sizes.unknown
    proto, weights = model.outline()
    shape_names = [f"{name}/shape of value {i}" for i, name in enumerate(names)]
    for name, shape in zip(names, shape_names, strict=True):
        proto.graph.node.append(onnx.helper.make_node("Shape", [name], [shape], shape))
        proto.graph.output.append(onnx.helper.make_tensor_value_info(shape, onnx.TensorProto.INT64, [None]))
    shapes: dict[str, Sequence[int]] = {}
    try:
        shape_model = wrap(proto, name=model.name, shapes=model.shapes, weights=weights)
        with open_engine(runner, shape_model) as engine:
            outputs = runner.outputs(engine, batch, shape_names, limit_s=_LEARNING)
        shapes = {name: outputs[shape].tolist() for name, shape in zip(names, shape_names, strict=True)}
    except RtlabError:
        shapes = {}
    sizes.learn(shapes)
