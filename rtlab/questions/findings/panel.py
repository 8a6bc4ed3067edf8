"""What is worth changing in a model's own quantization, and in an engine, for the Findings tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.documents.contract import Finding, Findings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtlab.core.finding import Finding as Found
    from rtlab.core.model import Model

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


def listed(model: Model, found: Iterable[Found]) -> list[Finding]:
    """Findings as payloads; their nodes in every place where they run."""
    return [
        Finding(
            id=f.id,
            rule=f.rule,
            title=f.title,
            nodes=[i for n in f.nodes for i in model.where(n)],
            layers=list(f.layers),
            microseconds=f.microseconds,
            cost=f.cost,
            fix=f.fix,
            evidence=f.evidence,
            fixable=f.fixable,
        )
        for f in found
    ]


def findings(model: Model, found: Iterable[Found]) -> Findings:
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
