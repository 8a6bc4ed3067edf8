"""Engines and layers: what every picture says of them, and who runs them."""

from __future__ import annotations

import dataclasses

import pytest

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.protocols import Capabilities
from rtlab.core.variant import Target


def layer(*types: str) -> Layer:
    """A layer that writes the first type and reads the others."""
    written, *read = (Tensor(f"t{i}", t) for i, t in enumerate(types))
    return Layer("l0", "step", "kgen", 0, inputs=tuple(read), outputs=(written,))


@pytest.mark.parametrize(
    ("types", "precision"),
    [
        (["fp32", "fp32"], "fp32"), (["fp32", "int8", "fp32"], "int8"), (["fp16", "fp32"], "fp16"),
        (["fp32", "bf16"], "bf16"), (["fp16", "fp8"], "fp8"), (["int64", "bool"], "bool"), ([""], ""),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, list) else None,
)  # fmt: skip
def test_a_layer_has_the_precision_of_its_narrowest_data(types, precision):
    """A convolution that reads int8 and writes fp32 computes in int8; its tag must say so."""
    assert precision == layer(*types).precision


@pytest.mark.parametrize(
    ("able", "target", "itself"),
    [
        ({"runs": True}, "cpu", True),
        ({"runs": False}, "cpu", False),
        # Compiled for another GPU than the one that is here.
        ({"runs": True, "local": Target("sm86")}, "sm89", False),
        ({"runs": True, "local": Target("sm86")}, "sm86", True),
        # Its times are its own, its values are those of an emulation.
        ({"runs": True, "emulates": True}, "cpu", False),
    ],
)
def test_an_engine_is_run_by_its_backend_where_its_target_is_here(able, target, itself) -> None:
    engine = Engine("any", "1", Target(target), ())
    assert itself is Capabilities((), (), **able).runs_itself(engine)


def test_entries_that_launch_nothing_are_counted_apart():
    kinds = ("kgen", "signal", "wait", "cjmp", "jmp", "gemm")
    layers = tuple(Layer(f"l{i}", kind, kind, i) for i, kind in enumerate(kinds))
    engine = Engine("made", "1", Target("sm86"), layers=layers)
    assert (2, 4, "2 layers and 4 sync or jump entries") == (
        engine.layer_count,
        engine.control_count,
        engine.size,
    )
    assert "1 layer" == dataclasses.replace(engine, layers=layers[:1]).size
