"""Laws of the placement check, over graphs of every kind and pairs in any place."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st

import strategies
from one_precision import int8
from promises import promises  # noqa: F401 - watches every pass
from qdq import repair
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.quantize import quantizable
from rtlab.quantize.edit import Edit
from rtlab.quantize.findings import check

MODELS = strategies.models(bodies=True)


def holds(model: Model) -> None:
    """The laws of one model: it is left alone; its repair is valid, complete, and changes nothing when repeated."""
    before, found = model.bytes(), check(model)
    assert len({f.id for f in found}) == len(found)
    assert {i for f in found for i in f.nodes} <= {n.id for n in model.top}
    mended = repair(model)
    assert before == model.bytes()
    onnx.checker.check_model(mended.proto(), full_check=True)
    assert [] == [f.id for f in check(mended) if f.fixable]
    assert (model.inputs, model.outputs) == (mended.inputs, mended.outputs)
    assert [n.id for n in mended.nodes] == [n.id for n in repair(mended).nodes]
    kinds = {"QuantizeLinear", "DequantizeLinear", "Constant", "Identity"}
    assert {n.id for n in model.top if n.op not in kinds} <= {n.id for n in mended.top}


@given(MODELS)
def test_any_model_is_checked_and_repaired(model):
    holds(model)


@given(MODELS, st.floats(0.5, 50))
def test_what_rtlab_places_has_no_findings(model, amax):
    if any(n.op.endswith("quantizeLinear") or n.op == "QuantizeLinear" for n in model.nodes):
        return
    ready = int8(model, {v: Scale(amax) for v in quantizable(model)})
    assert () == check(ready)


@given(MODELS, st.data())
def test_pairs_anywhere_are_judged_and_repaired(model, data):
    ready = int8(model, {v: Scale(4.0) for v in quantizable(model)})
    edges = [
        (n.id, i)
        for n in ready.top
        for i, v in enumerate(n.inputs)
        if v and not n.op.endswith("Linear") and (known := ready.values.get(v)) is not None
        if known.dtype == "fp32" and known.kind != "constant"
    ]
    if not edges or ready.opset < 13:
        return
    edit = Edit(ready)
    for node, position in data.draw(st.lists(st.sampled_from(edges), max_size=4, unique=True)):
        value = edit.nodes[node].inputs[position]
        scale = edit.add_constant("s", np.array(data.draw(st.sampled_from([0.1, 0.25])), np.float32))
        kind, zero = data.draw(st.sampled_from([(np.int8, 0), (np.int8, 7), (np.uint8, 0), (np.uint8, 128)]))
        point = edit.add_constant("z", np.array(zero, kind))
        q = edit.insert(
            "QuantizeLinear", f"{node}/q", [value, scale, point], origin=node, kind=point.dtype, before=node
        )
        floats = edit.insert(
            "DequantizeLinear", f"{node}/dq", [q, scale, point], origin=node, like=value, before=node
        )
        edit.set_input(node, position, floats)
    holds(edit.model)
