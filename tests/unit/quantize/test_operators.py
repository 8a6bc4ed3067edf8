"""Every operator that ONNX has, by the models that ONNX tests itself with."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from one_precision import fp16, int8
from rtlab.core.model import load
from rtlab.core.scale import Scale
from rtlab.errors import ModelError
from rtlab.quantize import quantizable


def _of_the_shape(padded: np.ndarray, x_shape: Sequence[int], *more: Sequence[int], **__) -> np.ndarray:
    return np.zeros([*x_shape[:2], *more[2]], padded.dtype)


def _models() -> list[onnx.ModelProto]:
    """One model for each set of operators, inputs and their types; there are 1,900 in all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their data overflow on purpose
        from onnx.backend.test.case import base
        from onnx.backend.test.case.node import collect_testcases
        from onnx.reference.ops import op_pool_common

        with pytest.MonkeyPatch.context() as patch:
            # What the pools give, element by element, and the text of each case take longer than all the models.
            patch.setattr(op_pool_common, "pool", _of_the_shape, raising=False)
            patch.setattr(base, "process_snippet", lambda *_: ("", ""), raising=False)
            cases = collect_testcases(None)
    distinct: dict[object, onnx.ModelProto] = {}
    for case in cases:
        graph = case.model.graph
        types = tuple(v.type.WhichOneof("value") or "" for v in (*graph.input, *graph.output))
        floats = any(v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for v in graph.input)
        if floats or "tensor_type" not in types:
            distinct.setdefault((tuple(n.op_type for n in graph.node), types), case.model)
    return list(distinct.values())


@pytest.mark.slow
def test_every_operator_can_be_prepared():
    """A rule that is wrong for one operator makes an invalid model, which a compiler refuses in its own words."""
    prepared, problems = 0, []
    for proto in _models():
        title = proto.graph.name
        try:
            model = load(proto, name=title)
        except ModelError:
            continue
        before, ids = model.bytes(), {n.id for n in model.nodes}
        halves = fp16(model)
        quantized = int8(model, {v: Scale(4.0) for v in quantizable(model)})
        prepared += 1
        for form, ready in (("typed", halves.typed), ("emulation", halves.emulation), ("int8", quantized)):
            try:
                onnx.checker.check_model(ready.proto(), full_check=True)
            except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
                problems.append(f"{title} {form}: {error}")
            if {n.origin for n in ready.nodes} != ids:
                problems.append(f"{title} {form}: origins are not the source's nodes")
        if before != model.bytes():
            problems.append(f"{title}: the source changed")
    assert [] == problems
    assert prepared >= 150
