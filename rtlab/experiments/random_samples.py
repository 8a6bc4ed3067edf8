"""Random samples of a model, with past keys and values that the model computes itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.data import OF_A_RUN, ZEROS, CalibrationData
from rtlab.core.input_names import is_mask, is_of_encoder, is_past, make_past_key
from rtlab.core.model import Model
from rtlab.core.random_inputs import PERIOD, find_past_axis, list_past, make_samples
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.protocols import Evaluator

#: Seconds that one run for past keys and values may take.
_LIMIT_S = 20.0


def draw_samples(model: Model, runner: Evaluator | None = None, *, samples: int = 64) -> CalibrationData:
    """Random samples; where a model reads past keys and values and ``runner`` is there, those of a run before.

    The run reads as many random tokens as lie in the past, with none before them. Where the model has no outputs for
    them, leaves no sizes open for such a run, or fails in it, they stay zeros; ``source`` says which.

    Raises:
        ModelError: a dimension of an input has no size.
        CalibrationError: one batch of the inputs alone takes more than 4 GiB.
    """
    data = CalibrationData.random(model, samples=samples)
    first = _size_first_run(model)
    if first is None or runner is None:
        return data
    try:
        past = _compute_past(first, runner)
    except RtlabError:
        return data
    arrays = dict(data.arrays)
    for name, values in past.items():
        if any(v.shape != model.input_shape(name) for v in values):
            return data
        array = arrays[name]
        rows = np.concatenate(values).reshape(-1, *array.shape[1:])
        arrays[name] = rows[np.arange(len(array)) % len(rows)].astype(array.dtype)
    return dataclasses.replace(data, arrays=arrays, source=data.source.removesuffix(ZEROS) + OF_A_RUN)


def _match_outputs(model: Model) -> dict[str, str]:
    """The output with new keys or values for each input with past ones; empty where one has none."""
    outputs = {make_past_key(o): o for o in model.outputs}
    pairs = {n: outputs.get(make_past_key(n), "") for n in list_past(model)}
    return pairs if all(pairs.values()) else {}


def _size_first_run(model: Model) -> Model | None:
    """The model at the sizes of a run without a past that reads as many tokens; None where these are not open."""
    past = [n for n in list_past(model) if not is_of_encoder(n)]
    if not past or not _match_outputs(model):
        return None
    length = model.input_shape(past[0])[find_past_axis(model, past[0])]
    if not length:
        return None
    sizes: dict[str, tuple[int, ...] | int] = {}
    for name in model.inputs:
        shape, declared = list(model.input_shape(name)), model.values[name].shape or ()
        if is_past(name) and not is_of_encoder(name):
            axis, size = find_past_axis(model, name), 0
        elif (
            is_of_encoder(name)
            or not shape
            or not (model.values[name].dtype.startswith("int") or is_mask(name))
        ):
            sizes[name] = tuple(shape)
            continue
        else:
            axis, size = len(shape) - 1, length
        # A mask with a row for each token has as many rows.
        axes = (
            [axis, axis - 1]
            if is_mask(name) and len(shape) > 2 and not isinstance(declared[axis - 1], int)
            else [axis]
        )
        if isinstance(declared[axis], int) and declared[axis] != size:
            return None
        for one in axes:
            shape[one] = size
        sizes[name] = tuple(shape)
    return dataclasses.replace(model, shapes=sizes)


def _compute_past(model: Model, runner: Evaluator) -> dict[str, list[NDArray[Any]]]:
    """Keys and values of a few samples, by the input that takes them; raises ``RtlabError`` where the run fails."""
    pairs = _match_outputs(model)
    data = CalibrationData(make_samples(model, PERIOD, 0, leading=True))
    past: dict[str, list[NDArray[Any]]] = {n: [] for n in pairs}
    with runner.reading(model, tuple(pairs.values()), limit_s=_LIMIT_S) as fetch:
        for batch in data.batches(model, 1):
            outputs = fetch(batch)
            for name, output in pairs.items():
                # Of padding alone a softmax may be NaN; no token attends to it later.
                past[name].append(np.nan_to_num(outputs[output]))
    return past
