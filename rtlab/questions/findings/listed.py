"""What is worth changing in an engine, and in a model's own quantization."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab import questions
from rtlab.core.finding import Finding
from rtlab.core.schema import Meaning
from rtlab.quantize.findings import check

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What is worth changing, the most costly first, with nodes in every place where they run.

    ``note`` says what was looked at of the model's own quantization, or that there is nothing to look at; empty where
    something of it is placed badly.
    """

    note: Annotated[str, Meaning("Quantization")]
    items: tuple[Finding, ...]


def findings(model: Model, facts: Facts | None = None) -> Findings:
    """What a variant's engine shows, then what the model alone does: where its own quantization is placed badly."""
    misplaced = check(model, calibrated=True)
    found = (*(questions.findings.of(facts) if facts else ()), *misplaced)
    pairs = sum(n.op == "QuantizeLinear" for n in model.nodes)
    if not model.nodes:
        note = "No ONNX model was given: what is known comes from the engine's files."
    elif not any(n.op in _QUANTIZED for n in model.nodes):
        note = (
            "This model has no Q/DQ pairs of its own: rtlab places them when a variant asks for int8 or fp8. "
            "Load a model from quantization-aware training to have its placement checked."
        )
    elif misplaced:
        note = ""
    else:
        note = (
            f"{pairs} Q/DQ pair{'s' if pairs != 1 else ''} checked: all stand where TensorRT can absorb them."
        )
    return Findings(
        note,
        tuple(dataclasses.replace(f, nodes=tuple(i for n in f.nodes for i in model.where(n))) for f in found),
    )
