"""What may help where a compiler refuses nodes of a model. Nothing of it is tried, and the sentences say so."""

from __future__ import annotations

import json
from collections.abc import Collection

import onnx

from rtlab.backends.workers.compiler import QUANTIZING
from rtlab.core.check import find_cut_values, format_until
from rtlab.core.model import Model
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.phrases import quote_names
from rtlab.errors import BuildError
from rtlab.quantize.findings import check

#: Operators that ONNX Runtime's ``quantize_dynamic`` writes.
_DYNAMIC = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"})
#: Values that a sentence names.
_MOST = 6


def add_remedies(error: BuildError, model: Model) -> BuildError:
    """The error with what may help against the nodes of a model that it names; the error itself if it names none."""
    nodes = [model.by_id[n] for n in error.nodes if n in model.by_id]
    if not nodes:
        return error
    sentences: list[str] = []
    values: tuple[str, ...] = ()
    quantizes = all(n.op in QUANTIZING for n in nodes)
    findings = check(model) if quantizes else ()
    hopeless = {n for f in findings if not f.fixable for n in f.nodes}
    if any(f.fixable for f in findings) and hopeless.isdisjoint(n.id for n in nodes):
        sentences.append("study.calibration.fix_qdq() writes the quantization in another form.")
    elif any(n.op in _DYNAMIC for n in nodes):
        sentences.append(
            "Scales that are computed at every inference have no form in TensorRT: quantize the FP32 model, with "
            "constant scales, as rtlab inspect FP32.onnx --precision int8 does."
        )
    elif not quantizes and (values := find_cut(model, {n.id for n in nodes})):
        shown = values[:_MOST]
        more = f" and {len(values) - _MOST} more values" if len(values) > _MOST else ""
        sentences.append(
            f"Or build the model before it: study.cut(until={json.dumps(shown)}), on the command line "
            f"{format_until(shown)}{more}."
        )
    if functions := [
        op for op in dict.fromkeys(n.op for n in nodes if n.domain in ONNX_DOMAINS) if _has_body(op, model)
    ]:
        sentences.append(
            f"ONNX defines {quote_names(functions)} by other operators, which "
            "onnx.inliner.inline_selected_functions writes in its place (inline_schema_functions=True)."
        )
    tried = " This was not tried." if sentences else ""
    message = f"{' '.join((str(error), *sentences))}{tried}"
    return BuildError(message, details=error.details, nodes=error.nodes, until=values)


def find_cut(model: Model, refused: Collection[str]) -> tuple[str, ...]:
    """The values at which a model can be cut before some nodes, by id; empty where nothing is computed before them."""
    nodes = ((n.inputs, n.outputs, n.id in refused) for n in model.top)
    constants = {v for n in model.top if all(i in model.known for i in n.inputs if i) for v in n.outputs}
    return tuple(
        v for v in find_cut_values(nodes, model.outputs) if v not in constants and v not in model.known
    )


def _has_body(op: str, model: Model) -> bool:
    """Whether ONNX defines an operator as a function of others that are no integer arithmetic."""
    try:
        schema = onnx.defs.get_schema(op, model.opset, "")
    except onnx.defs.SchemaError:
        return False
    return op not in _DYNAMIC and any(
        getattr(schema, kind) for kind in ("has_function", "has_context_dependent_function")
    )
