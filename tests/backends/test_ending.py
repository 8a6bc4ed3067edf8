"""Runs of ONNX Runtime that do not end by themselves: Cancel and the limit end them, and no process is left."""

from __future__ import annotations

import threading

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from nets import graph
from rtlab import backends
from rtlab.backends.workers.session_child import POOL
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RunError
from sessions import copy_values

pytestmark = pytest.mark.slow
BATCH = {"x": np.arange(4, dtype=np.float32)[None], "n": np.array(2**62, np.int64)}


def model(empty: bool = False) -> Model:
    """A loop that adds 1 to ``x``, ``n`` times; or nothing without a node, which ONNX Runtime's switch never ends."""
    value = helper.make_tensor_value_info
    step = [
        helper.make_node("Identity", ["on"], ["go"]),
        helper.make_node("Add", ["sum", "one"], ["more"]),
    ]
    inputs = [("i", TensorProto.INT64, []), ("on", TensorProto.BOOL, []), ("sum", TensorProto.FLOAT, [1, 4])]
    outputs = [("go", TensorProto.BOOL, []), ("more", TensorProto.FLOAT, [1, 4])]
    if empty:
        step, outputs = [], inputs[1:]
    one = numpy_helper.from_array(np.ones(4, np.float32), "one")
    body = helper.make_graph(step, "body", [value(*i) for i in inputs], [value(*o) for o in outputs], [one])
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    x, y = ((name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    return graph([loop], [x, ("n", TensorProto.INT64, [])], [y], {})


def read(runner, model, batch, **options) -> None:
    with runner.reading(model, ["y"], **options) as fetch:
        fetch(batch)


def reduce(runner, model, batch, **options) -> None:
    with runner.reducing([(model, ["y"])], copy_values, pytest.fail, **options) as run:
        run(batch, 1)


CALLS = {
    "outputs": lambda r, e, m, **options: r.outputs(e, BATCH, **options),
    "profile": lambda r, e, m, progress, limit_s: r.profile(e, BATCH, progress, limit_s=limit_s),
    "reducing": lambda r, e, m, **options: reduce(r, m, BATCH, **options),
    "reading": lambda r, e, m, **options: read(r, m, BATCH, **options),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("call", "empty"),
    [*((c, False) for c in CALLS), ("outputs", True), ("profile", True), ("reducing", True)],
)
@pytest.mark.parametrize(("limit_s", "error"), [(None, Cancelled), (0.5, RunError)], ids=["cancel", "limit"])
def test_an_endless_loop_is_ended_by_cancel_and_by_its_limit(call, empty, limit_s, error) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    runner, progress, net = backends.get("onnxruntime"), Silent(), model(empty)
    engine = runner.build(BuildRequest(net, Variant.of("fp32")), Silent())
    if limit_s is None:
        threading.Timer(0.2, progress.cancel).start()
    with pytest.raises(error):
        CALLS[call](runner, engine, net, progress=progress, limit_s=limit_s)
    few = runner.outputs(engine, {**BATCH, "n": np.array(3, np.int64)})["y"]
    np.testing.assert_array_equal(BATCH["x"] + 3 * (not empty), few)
    assert not [c for c in POOL.children if c.process.busy]
    after = {p.pid for p in psutil.Process().children(recursive=True)}
    assert after <= before | {c.process.pid for c in POOL.children}
