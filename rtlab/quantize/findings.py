"""What is wrong with the quantization that a model brings along, what it costs, and how to be rid of it.

For models that have their own QuantizeLinear and DequantizeLinear: trained so in PyTorch or TensorFlow, or written by
ModelOpt or by ONNX Runtime's ``quantize_static``. The rules are those of ``rtlab.quantize.placement``; what each cost
says of TensorRT-RTX was seen in builds with version 1.7.1, which tests/backends/test_findings.py repeats.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from rtlab.core.finding import Finding
from rtlab.core.model import Model, of
from rtlab.core.phrases import quoted
from rtlab.errors import VariantError
from rtlab.quantize import integers, passes
from rtlab.quantize.edit import Edit, copied
from rtlab.quantize.encoding import Encoding
from rtlab.quantize.passes import Pass
from rtlab.quantize.placement import plan
from rtlab.quantize.qdq import QuantizedGraph
from rtlab.quantize.qdq_rules import PlacementRules
from rtlab.quantize.rule import Diagnosis, Repair

__all__ = ["apply", "check", "missing", "repair", "select"]


def check(model: Model, *, calibrated: bool = False) -> tuple[Finding, ...]:
    """Judge the quantize and dequantize pairs of a model's main graph. The model is not changed.

    Args:
        model: The model.
        calibrated: Whether ``repair`` will be given ``scale_of``, so that a missing pair can be put in.

    Returns:
        The findings, those that keep the model from building first; empty for a model without pairs.
    """
    if not _quantized(model.ir.graph):
        return ()
    found = _found(model.ir.graph, model.opset, _planned(model), _unknown if calibrated else None)
    listed = (*integers.check(model.ir.graph, model.opset), *(f.finding for f in found))
    return tuple(dataclasses.replace(f, fix=model.declined.get(f.id, f.fix)) for f in listed)


def missing(model: Model) -> tuple[str, ...]:
    """Values that lack a pair and whose scale no other pair tells: what ``scale_of`` will be asked for."""
    asked: dict[str, None] = {}
    for found in (
        _found(model.ir.graph, model.opset, _planned(model), _unknown) if _quantized(model.ir.graph) else ()
    ):
        if found.calibrates:
            asked[found.calibrates] = None
    return tuple(asked)


def repair(
    model: Model,
    findings: Iterable[Finding | str] | None = None,
    *,
    scale_of: Callable[[str], float] | None = None,
) -> Model:
    """A new model without the given faults.

    Nodes and values that stay keep their names; each new node names the node that it serves by ``rtlab.origin``.
    Repairing one fault may show another behind it: by default these are repaired too.

    Args:
        model: It is not changed.
        findings: Findings or their ids, from ``check`` of this model; by default all that are fixable.
        scale_of: Gives the scale of a value by name, from calibration; without it a missing pair is put in only where
            another pair tells its scale.

    Raises:
        VariantError: a given finding is not one of the model's, or rtlab cannot repair it.
    """
    return apply(model, select(model, findings, calibrated=scale_of is not None), scale_of)[0]


def select(
    model: Model, findings: Iterable[Finding | str] | None, *, calibrated: bool
) -> frozenset[str] | None:
    """The ids of findings that are to be repaired; None for all.

    Raises:
        VariantError: a given finding is not one of the model's, or rtlab cannot repair it.
    """
    if findings is None:
        return None
    given = findings if isinstance(findings, Iterable) else [findings]
    wanted = frozenset(f.id if isinstance(f, Finding) else str(f) for f in given)
    _refuse(model, wanted, calibrated=calibrated)
    return wanted


def apply(
    model: Model, wanted: AbstractSet[str] | None, scale_of: Callable[[str], float] | None = None
) -> tuple[Model, tuple[Finding, ...]]:
    """A model with the findings of some ids repaired, or with all, and what was repaired, in that order."""
    if not _quantized(model.ir.graph) or (wanted is not None and not wanted):
        return model, ()
    edit, applied = Edit(model, source=True), dict[str, Finding]()
    unfolded = {f.id: f for f in integers.check(model.ir.graph, model.opset)}
    for one in steps(edit, wanted, scale_of):
        if isinstance(one, Repair):
            applied.update({d.finding.id: d.finding for d in one.found})
        if isinstance(one, integers.Unfold):
            applied.update({i: unfolded[i] for i in one.findings if i in unfolded})
        passes.apply(one, edit)
    return edit.finish(), tuple(applied.values())


def steps(
    edit: Edit,
    wanted: AbstractSet[str] | None = None,
    scale_of: Callable[[str], float] | None = None,
) -> Iterator[Pass]:
    """The passes of a repair, each decided by the graph that those before it leave; as for ``repair``."""
    opset = edit.model.opset
    # What is unfolded may show stored integers that are dequantized late.
    while ids := [
        f.id for f in integers.check(edit.graph, opset) if f.fixable and (wanted is None or f.id in wanted)
    ]:
        yield integers.Unfold(tuple(ids))
        yield passes.Infer()
    planned, limit, done = _planned(edit.model), len(edit.model.nodes), Counter[str]()
    while open_ := [
        f
        for f in _found(edit.graph, opset, planned, scale_of)
        if f.apply is not None and done[f.finding.id] <= limit and (wanted is None or f.finding.id in wanted)
    ]:
        # One rule at a time, because what a later rule sees depends on the earlier ones. A fault may come again, as
        # where the largest scale passes from one Concat to the next; it cannot do so more often than there are nodes.
        now = tuple(f for f in open_ if f.finding.rule == open_[0].finding.rule)
        done.update(f.finding.id for f in now)
        yield Repair(now)
    yield passes.Infer()


def _refuse(model: Model, wanted: AbstractSet[str], *, calibrated: bool) -> None:
    known = {f.id: f for f in check(model, calibrated=calibrated)}
    for id_ in sorted(wanted):
        if id_ not in known:
            some = quoted(list(known)[:3]) or "none"
            raise VariantError(
                f'Cannot repair "{id_}" in model "{model.name}": it has no such finding. Its findings are {some}'
                f"{', ...' if len(known) > 3 else ''}; see rtlab.quantize.findings.check(model)."
            )
        if not known[id_].fixable:
            raise VariantError(
                f'Cannot repair "{id_}" in model "{model.name}": rtlab cannot know the fix. {known[id_].fix}'
            )


def _quantized(graph: ir.Graph) -> bool:
    return integers.present(graph) or any(n.op_type in {"QuantizeLinear", "DequantizeLinear"} for n in graph)


def _planned(model: Model) -> frozenset[tuple[str, int]]:
    """The inputs that rtlab itself would quantize in this model, were it not quantized yet."""
    work = copied(model.ir)
    graph, reading = work.graph, QuantizedGraph(work.graph)
    for pair in reversed(list(reading.pairs.values())):
        stand = pair.source
        if pair.q is None:
            if (
                pair.source not in reading.fixed
                or pair.source.shape is None
                or not pair.source.shape.is_static()
            ):
                continue
            # The plan asks for the type and the shape of a weight, not for its numbers.
            numbers = np.zeros(pair.source.shape.numpy(), np.float32)
            stand = ir.Value(name=f"{pair.out.name}/float", const_value=ir.tensor(numbers))
            stand.type, stand.shape = ir.TensorType(ir.DataType.FLOAT), pair.source.shape
            graph.register_initializer(stand)
        if pair.out.is_graph_output():
            continue
        pair.out.replace_all_uses_with(stand)
    for node in reversed(list(graph)):
        unread = not any(v.uses() or v.is_graph_output() for v in node.outputs)
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"} and unread:
            graph.remove(node, safe=True)
    decided = plan(of(work, name=model.name, shapes=model.shapes))
    return frozenset(edge for edges in decided.activations.values() for edge in edges)


def _unknown(value: str) -> float:
    """Stands for calibration where only the findings are asked for."""
    raise AssertionError(value)


def _found(
    graph: ir.Graph,
    opset: int,
    planned: AbstractSet[tuple[str, int]],
    scale_of: Callable[[str], float] | None = None,
) -> Iterator[Diagnosis]:
    """All findings, rule by rule in the order in which they are repaired; the first of those with one id.

    Of pairs whose numbers do not fit their tensor nothing else can be said: where there are any, they come alone.
    """
    reading, seen = QuantizedGraph(graph), set[str]()
    if misfits := [*Encoding(reading, opset).misfits()]:
        yield from misfits
        return
    for rules in (Encoding(reading, opset), PlacementRules(reading, opset, planned, scale_of)):
        for found in rules.found():
            if found.finding.id not in seen:
                seen.add(found.finding.id)
                yield found
