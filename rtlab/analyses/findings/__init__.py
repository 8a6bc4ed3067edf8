"""What is worth changing in an engine, and in a model's own quantization."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.analyses import build, fusion, roofline, timing
from rtlab.analyses.findings.messages import report_messages
from rtlab.analyses.findings.rules import rank_findings
from rtlab.analyses.reformats.reasons import build_flow
from rtlab.core.facts import VariantResult
from rtlab.core.finding import Finding
from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta
from rtlab.core.trt_operators import TRT_OPS
from rtlab.quantize.findings import check

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What is worth changing, the most costly first, with nodes in every place where they run.

    ``note`` says what was checked of the model's own quantization, or that it has none; empty where a part of it is
    placed badly.
    """

    note: Annotated[str, FieldMeta("Quantization")]
    items: tuple[Finding, ...]


@memoized
def list_findings(facts: VariantResult) -> tuple[Finding, ...]:
    """What its log reports, failures first; then what is worth changing about the engine, the most costly first."""
    return report_messages(facts) + rank_findings(
        facts.engine,
        fusion.map_nodes(facts),
        facts.source,
        timing.get_engine_timing(facts),
        build.get_build_log(facts),
        flow=build_flow(facts.engine),
        estimate=roofline.estimate_timing(facts),
        prepared=facts.prepared,
    )


def summarize_findings(model: Model, facts: VariantResult | None = None) -> Findings:
    """The findings about a variant's engine, then about the placement of the model's own quantization."""
    misplaced = check(model, calibrated=True)
    pairs = sum(n.op == "QuantizeLinear" for n in model.nodes)
    if not model.nodes:
        note = "No ONNX model was given: what is known comes from the engine's files."
    elif own_ops := dict.fromkeys(n.op for n in model.nodes if n.op in TRT_OPS):
        note = (
            f"Quantized by TensorRT's own operators ({', '.join(own_ops)}): where these stand is not checked."
        )
    elif not any(n.op in _QUANTIZED for n in model.nodes):
        note = (
            "This model has no Q/DQ pairs of its own: rtlab places them when a variant asks for int8 or fp8. "
            "Load a model from quantization-aware training to have its placement checked."
        )
    elif misplaced:
        note = ""
    else:
        note = f"{pluralize(pairs, 'Q/DQ pair')} checked: all stand where TensorRT can absorb them."
    return Findings(
        note,
        tuple(
            dataclasses.replace(f, nodes=tuple(i for n in f.nodes for i in model.where(n)))
            for f in (*(list_findings(facts) if facts else ()), *misplaced)
        ),
    )
