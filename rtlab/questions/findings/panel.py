"""What is worth changing in a model's own quantization, and in an engine, for the Findings tab."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rtlab.core.finding import Finding

if TYPE_CHECKING:
    from rtlab.core.model import Model

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


@dataclasses.dataclass(frozen=True)
class Findings:
    """Where quantization is placed badly; ``note`` says what was looked at, or that there is nothing to look at."""

    items: tuple[Finding, ...]
    note: str


def listed(model: Model, found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with their nodes in every place where they run."""
    return tuple(
        dataclasses.replace(f, nodes=tuple(i for n in f.nodes for i in model.where(n))) for f in found
    )


def findings(model: Model, found: Iterable[Finding]) -> Findings:
    """What the model alone shows: where its own quantization is placed badly."""
    items = listed(model, found)
    pairs = sum(n.op == "QuantizeLinear" for n in model.nodes)
    if not model.nodes:
        note = "No ONNX model was given: what is known comes from the engine's files."
    elif not any(n.op in _QUANTIZED for n in model.nodes):
        note = (
            "This model has no Q/DQ pairs of its own: rtlab places them when a variant asks for int8 or fp8. "
            "Load a model from quantization-aware training to have its placement checked."
        )
    elif items:
        note = ""
    else:
        note = (
            f"{pairs} Q/DQ pair{'s' if pairs != 1 else ''} checked: all stand where TensorRT can absorb them."
        )
    return Findings(items=items, note=note)
