"""What the examination of a backend asks for, check by check, and the models that it is tried on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from answers import graph
from rtlab.core.engine import Engine
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Ruled
from rtlab.core.variant import Precision, Variant
from rtlab.errors import RunError
from rtlab.testing import ReferenceBackend, conformance, tiny_model
from rtlab.testing.conforming import check_rules, make_unknown_op_model, product
from unit.kinds.test_conforming import Sound

CALLED = (
    "availability", "build", "profile", "outputs", "unfused", "release", "save", "open_plan", "throughput", "operators",
    "remembered", "forced", "read",
)  # fmt: skip


VARIANT = Variant.of("fp32", target="cpu")


def described(value: Any) -> Any:
    if isinstance(value, BuildRequest):
        variant, limits = value.variant, value.limits
        flags = variant.options.flags if variant.options else ()
        return f"{value.model.name} {variant.precision} {variant.target} {limits} {value.keep_plan} {flags}"
    if isinstance(value, Engine):
        return f"engine of {len(value.layers)}"
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Mapping):
        return {k: described(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return f"{value.shape} {value.sum():.4f}"
    if isinstance(value, Silent):
        return f"stops {value.stopped()}"
    return str(value)


def test_each_check_asks_for_what_the_file_says(golden: Any, tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text("{}")
    calls: list[Any] = []

    def method(name: str) -> Any:
        def call(self: Any, *args: Any, **more: Any) -> Any:
            calls.append([name, *map(described, args), *([described(more)] if more else [])])
            return getattr(Sound, name)(self, *args, **more)

        return call

    backend = type("Recorded", (Sound,), {name: method(name) for name in CALLED})()
    asked = {}
    for check in conformance(backend, files={"layers": tmp_path / "engine.json"}):
        check()
        asked[str(check)] = [" ".join(map(str, c)).replace(str(tmp_path), "FOLDER") for c in calls]
        calls.clear()
    models = {"tiny": tiny_model(), "seeded": tiny_model(batch=2, seed=1), "odd": make_unknown_op_model()}
    models |= {n: product(Precision(n)) for n in ("fp32", "fp16", "bf16", "int8", "fp8", "int4", "fp4")}
    golden("testing.json", {"asked": asked, **{name: graph(model) for name, model in models.items()}})


@pytest.mark.parametrize("gone", [0, -1])
def test_a_wrong_rule_is_found_before_and_behind_pairs_of_which_nothing_is_known(gone: int) -> None:
    """A node without a layer shares none, whatever is said of it; of another pair nothing is said."""
    model = tiny_model(batch=1)
    engine = Sound().build(BuildRequest(model, VARIANT), Silent())
    pairs = [(n.id, r.id) for n in model.top for v in n.outputs for r in model.consumers.get(v, ())]
    lost = (pairs[0][0], pairs[-1][1])[gone]
    engine = dataclasses.replace(engine, layers=tuple(y for y in engine.layers if y.name != lost))
    for wrong in pairs:

        class Told:
            def explain(self, _: Any, *pair: str, wrong: Any = wrong) -> Ruled:
                silent = None if pair == pairs[4] != wrong else pair == wrong
                return Ruled(lost in pair or silent, "a rule", "a source", "A sentence.")

        if lost in wrong:
            check_rules(Told(), model, engine)
        else:
            with pytest.raises(AssertionError, match=f'"{wrong[0]}" and "{wrong[1]}"'):
                check_rules(Told(), model, engine)


def test_the_reference_keeps_limits() -> None:
    backend, model = ReferenceBackend(), tiny_model(batch=1)
    engine = backend.build(BuildRequest(model, VARIANT), Silent())
    batch = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    assert [*backend.outputs(engine, batch, limit_s=60)] == ["y"]
    with pytest.raises(RunError, match="limit_s"):
        backend.outputs(engine, batch, limit_s=0.0)
    assert backend.profile(engine, batch, Silent(), runs=50, seconds=0).runs == 1
    assert backend.profile(engine, batch, Silent(), runs=2, limit_s=60).total.shape == (2,)
