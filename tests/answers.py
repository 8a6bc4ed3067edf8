"""What ``tests/golden`` asks of a variant, by name: what ``Study.ask`` knows, and what these answers stand on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import onnx

import nets
from rtlab.analyses.panels import PANELS
from rtlab.errors import RtlabError
from rtlab.relation.layerwork import layer_works
from rtlab.relation.work import works
from rtlab.web.page.graph import engine_view
from snapshots import array, plain

Ask = Callable[[Any, str], Any]
#: Of these only the head and every so many rows are compared.
_THINNED = {"table": 4, "recurrence": 4}


def asked(name: str) -> Ask:

    def ask(study: Any, variant: str) -> Any:
        first = next(iter(study))
        baseline = None if variant == first else first
        return thinned(
            refusable(lambda: study.ask(name, variant=variant, baseline=baseline).result), _THINNED.get(name)
        )

    return ask


def refusable(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except RtlabError as error:
        return {"refused": type(error).__name__, "why": str(error)}


def without(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {k: "..." if k in names else without(v, names) for k, v in value.items()}
    return [without(v, names) for v in value] if isinstance(value, list) else value


def thinned(noun: Any, step: int | None) -> Any:
    found = plain(noun)
    if step is None or "refused" in found:
        return found
    return {k: v[::step] if isinstance(v, list) and len(v) > step else v for k, v in found.items()}


def mapping(study: Any, variant: str) -> Any:
    """By node the layers with what they do for it and how that is known, or why there is none."""
    found = study[variant].mapping
    number = {y.id: y.index + 1 for y in study[variant].engine.layers}
    nodes = dict.fromkeys([*(n.id for n in study.model.nodes), *(p.node for p in found.pairs)])
    return {
        n: [f"{number[p.layer]} {p.role} {p.evidence} {p.note}".strip() for p in found.pairs if p.node == n]
        or ((m := found.why(n)) and f"{m.reason}: {m.text}")
        for n in nodes
    }


def timing(study: Any, variant: str) -> Any:
    result = study[variant]
    layers = None if result.timing is result.own_times else result.layer_times
    return {"timing": result.timing, "layers": layers}


def fusion(study: Any, variant: str) -> Any:
    result = study[variant]
    words = {n.id: study.explain(n.id, variant=variant) for n in study.model.nodes}
    return {"coverage": result.coverage, "unmapped": result.unmapped, "explained": words}


def reformats(study: Any, variant: str) -> Any:
    return refusable(study[variant].reformats)


def cards(study: Any, variant: str) -> Any:
    boxes = engine_view(study[variant].facts, study.model)["graph"]["boxes"]
    chips = [" + ".join(f"{c['title']} ({c['role']} {c['op']})" for c in b["chips"]) for b in boxes]
    return [{"card": b["title"], "slim": b["slim"], "chips": c} for b, c in zip(boxes, chips, strict=True)]


def work(study: Any, variant: str) -> Any:
    result = study[variant]
    done = layer_works(result.engine, result.mapping, study.model)
    return {f"{y.index + 1} {y.kind}": _work(done[y.id]) for y in result.engine.layers}


def node_work(study: Any, variant: str) -> Any:
    return {n: _work(w) for n, w in works(study.model).items()} if variant == next(iter(study)) else {}


def _work(found: Any) -> dict[str, Any]:
    return {k: v for k, v in plain(found).items() if k not in {"node", "layer"}}


def scales(study: Any, variant: str) -> Any:
    ready = study[variant].prepared
    return {"scales": ready.scales, "notes": ready.notes, "precisions": ready.precisions}


def recipe(study: Any, variant: str) -> Any:
    return without(plain(asked("recipe")(study, variant)), {"versions", "size", "sha256"})


#: Answers to searches: ``test_searches.py`` asks them.
SEARCHED = {"batches", "bisection", "channels", "diagnosis", "formulations", "repair", "sensitivity"}
ASKED: Mapping[str, Ask] = {
    **{name: asked(name) for name in PANELS if name not in SEARCHED}, "recipe": recipe, "mapping": mapping,
    "timing": timing, "fusion": fusion, "reformats": reformats, "cards": cards, "work": work, "node_work": node_work,
    "scales": scales,
}  # fmt: skip


def graph(model: Any) -> Any:
    """A graph as lines: each node with what it reads and writes, each weight by its numbers or their sums."""
    proto = model.proto()
    nodes = [_node(n) for n in proto.graph.node]
    used = {i for n in proto.graph.node for i in n.input}
    weights = {w.name: _weight(w) for w in proto.graph.initializer if w.name in used}
    edges = {side: [_value(v) for v in getattr(proto.graph, side)] for side in ("input", "output")}
    opsets = {o.domain or "ai.onnx": o.version for o in proto.opset_import}
    return {"opsets": opsets, **edges, "nodes": nodes, "weights": weights}


def _value(value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type
    sizes = [d.dim_param or d.dim_value for d in kind.shape.dim]
    return f"{value.name} {onnx.TensorProto.DataType.Name(kind.elem_type)} {sizes}"


def _node(node: onnx.NodeProto) -> str:
    settings = " ".join(f"{a.name}={_setting(a)}" for a in sorted(node.attribute, key=lambda a: a.name))
    return f"{node.op_type}({', '.join(node.input)}) -> {', '.join(node.output)} {settings}".strip()


def _setting(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return str(_weight(value))
    if isinstance(value, onnx.GraphProto):
        return f"[{'; '.join(map(_node, value.node))}]"
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _weight(tensor: onnx.TensorProto) -> Any:
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if tensor.data_type >= onnx.TensorProto.FLOAT8E4M3FN:
        # NumPy has no such numbers.
        told = hashlib.sha256(tensor.raw_data).hexdigest()[:12]
        return {"type": kind, "shape": list(tensor.dims), "digest": told}
    numbers = onnx.numpy_helper.to_array(tensor)
    return {"type": kind, "is": array(numbers.astype("f4") if numbers.dtype.kind == "V" else numbers)}


def values(model: Any, names: Iterable[str], batches: Iterable[Any]) -> dict[str, np.ndarray]:
    """Values of a model by ONNX Runtime itself, of all batches behind each other."""
    proto, names = model.proto(), list(names)
    proto.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in model.outputs
    )
    session = nets.session(proto.SerializeToString())
    kinds = {"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(int64)": "i8", "tensor(int32)": "i4"}
    types = {i.name: kinds[i.type] for i in session.get_inputs()}
    runs = [
        session.run(names, {k: np.asarray(v, types[k]) for k, v in b.items() if k in types}) for b in batches
    ]
    return {
        n: np.concatenate([np.asarray(r[i]) for r in runs]) if runs[0][i].ndim else runs[0][i]
        for i, n in enumerate(names)
    }
