"""What helps where a compiler refuses nodes: operators written out, which is tried, or a part of the model."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Collection, Sequence

from rtlab.backends.workers.compiler import QUANTIZING
from rtlab.core.check import find_cut_values, format_until
from rtlab.core.model import Model, iter_reads
from rtlab.core.node import Node
from rtlab.core.phrases import quote_names
from rtlab.core.variant import Rewrite
from rtlab.errors import BuildError
from rtlab.quantize.findings import check
from rtlab.quantize.inlining import list_calls, list_patterns
from rtlab.quantize.rewrites import apply_rewrites

#: Operators that ONNX Runtime's ``quantize_dynamic`` writes; that ONNX defines one of them by others is no help.
_DYNAMIC = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"})
#: Values that a sentence names.
_MOST = 6
_UNTRIED = "This was not tried."


def add_remedies(
    error: BuildError, variant: str, model: Model, prepared: Model, build: Callable[[Model], object]
) -> BuildError:
    """The error with what helps against the nodes that it names; the error itself if it names none.

    Args:
        error: What the compiler says of ``prepared``.
        variant: The name of the variant.
        model: Its source.
        prepared: What was built.
        build: Builds another form of that, or raises ``BuildError``.
    """
    nodes = _find_sources(error, model, prepared)
    if not nodes:
        return error
    sentences: list[str] = []
    details = error.details
    values: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    quantizes = all(n.op in QUANTIZING for n in nodes)
    findings = check(model) if quantizes else ()
    hopeless = {n for f in findings if not f.fixable for n in f.nodes}
    if any(f.fixable for f in findings) and hopeless.isdisjoint(n.id for n in nodes):
        sentences += ["study.calibration.fix_qdq() writes the quantization in another form.", _UNTRIED]
    elif any(n.op in _DYNAMIC for n in nodes):
        sentences.append(
            "Scales that are computed at every inference have no form in TensorRT: quantize the FP32 model, with "
            f"constant scales, as rtlab inspect FP32.onnx --precision int8 does. {_UNTRIED}"
        )
    elif not quantizes:
        trial = _try_inlining(error, prepared, build)
        if trial.patterns:
            sentences.append(_describe_trial(trial, variant))
        if trial.refusal is None:
            rewrites = tuple(map(str, trial.rewrites))
        else:
            if trial.patterns:
                details = "\n".join((details, f"Written out: {trial.refusal}"))
            nodes = _find_sources(trial.refusal, model, trial.model) or nodes
            owners = [model.by_id[t] for n in nodes for t in model.iter_top_nodes(n.id) if t in model.by_id]
            if values := find_cut(model, {n.id for n in owners}):
                sentences += [_describe_cut(values, [n for n in owners if n not in nodes]), _UNTRIED]
            elif values := _find_inner_cut(model, nodes):
                sentences += [f"{_describe_cut(values, ())} Calls are written out for that.", _UNTRIED]
    message = " ".join((str(error), *sentences))
    return BuildError(message, details=details, nodes=error.nodes, until=values, rewrites=rewrites)


def find_cut(model: Model, refused: Collection[str]) -> tuple[str, ...]:
    """The values at which a model can be cut before some nodes, by id; empty where nothing is computed before them."""
    if not refused:
        return ()
    pairs = zip(model.ir.graph, model.top, strict=True)
    nodes = (([v.name or "" for v in iter_reads(i)], n.outputs, n.id in refused) for i, n in pairs)
    constants = {v for n in model.top if all(i in model.known for i in n.inputs if i) for v in n.outputs}
    return tuple(
        v for v in find_cut_values(nodes, model.outputs) if v not in constants and v not in model.known
    )


@dataclasses.dataclass(frozen=True)
class _Trial:
    """A model with operators written out, by ``patterns`` of nodes; ``refusal`` is None where it was built."""

    patterns: tuple[str, ...]
    model: Model
    refusal: BuildError | None

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        return tuple(Rewrite("inline", p) for p in self.patterns)


def _try_inlining(error: BuildError, prepared: Model, build: Callable[[Model], object]) -> _Trial:
    """Write out what is refused, and of that what is refused again, until it is built or nothing is left to do."""
    trial = _Trial((), prepared, error)
    while trial.refusal is not None:
        refused = [n for n in trial.refusal.nodes if (m := trial.model.by_id.get(n)) and m.op not in _DYNAMIC]
        patterns = tuple(dict.fromkeys((*trial.patterns, *list_patterns(trial.model, refused))))
        if patterns == trial.patterns:
            break
        trial = _Trial(patterns, prepared, None)
        trial = dataclasses.replace(trial, model=apply_rewrites(prepared, trial.rewrites))
        try:
            build(trial.model)
        except BuildError as refusal:
            trial = dataclasses.replace(trial, refusal=refusal)
    return trial


def _find_sources(error: BuildError, model: Model, built: Model) -> list[Node]:
    """The nodes of a model that an error names, or for which those stand that it names of what was built."""
    ids = (n if n in model.by_id or n not in built.by_id else built.by_id[n].origin for n in error.nodes)
    return [model.by_id[n] for n in dict.fromkeys(ids) if n in model.by_id]


def _describe_trial(trial: _Trial, variant: str) -> str:
    operators = quote_names(p.removeprefix("op:") for p in trial.patterns)
    start = f"With {operators} written as the operators that define {'it' if len(trial.patterns) == 1 else 'them'}"
    if trial.refusal is not None:
        names = trial.refusal.nodes[:_MOST]
        # The compiler's words, without who says them and what else to choose.
        words = str(trial.refusal).partition(": ")[2].partition(" Choose another")[0].rstrip(".")
        reason = f"it refuses {quote_names(names)}" if names else f'it fails too, as was tried: "{words}"'
        return f"{start}, {reason}, as was tried." if names else f"{start}, {reason}."
    rewrites = [str(r) for r in trial.rewrites]
    options = " ".join(f"--rewrite {shlex.quote(r)}" for r in rewrites)
    return (
        f"{start}, it builds the model, as was tried: study.fusion.suggest_edit({json.dumps(variant)}, "
        f"{json.dumps(rewrites)}), then study.run(); on the command line {options}."
    )


def _describe_cut(values: Sequence[str], owners: Sequence[Node]) -> str:
    shown = values[:_MOST]
    more = f" and {len(values) - _MOST} more values" if len(values) > _MOST else ""
    place = " and ".join(dict.fromkeys(f'{n.op} "{n.title}"' for n in owners))
    where = f"{place}, in which it lies" if place else "it"
    return (
        f"Or build the model before {where}: study.cut(until={json.dumps(shown)}), on the command line "
        f"{format_until(shown)}{more}."
    )


def _find_inner_cut(model: Model, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Where a model can be cut before nodes of local functions, once their calls are written out; empty if nowhere."""
    flat = _write_out_calls(model, list_calls(model, [n.id for n in nodes]))
    if flat is model:
        return ()
    return find_cut(flat, {f.id for f in flat.top if f.origin in {n.id for n in nodes}})


def expose_values(model: Model, values: Sequence[str]) -> Model:
    """The model with the calls of its functions written out, where one of some values lies in one; else itself."""
    if {v for n in model.top for v in n.outputs}.issuperset(values):
        return model
    flat = _write_out_calls(model, list_calls(model, list(model.by_id)))
    return flat if {v for n in flat.top for v in n.outputs}.issuperset(values) else model


def _write_out_calls(model: Model, patterns: Sequence[str]) -> Model:
    """The model with the calls that some patterns mean written out; itself where there is none."""
    return apply_rewrites(model, [Rewrite("inline", p) for p in patterns]) if patterns else model
