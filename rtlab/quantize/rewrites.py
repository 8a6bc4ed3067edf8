"""Nodes in another form that computes the same, which a compiler may compile otherwise; values keep their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ORIGIN
from rtlab.core.phrases import quote_names
from rtlab.core.variant import Rewrite, RewriteKind
from rtlab.errors import VariantError
from rtlab.quantize import existing_qdq, findings, inlining, passes

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

_NORMAL, _GLOBAL = "BatchNormalization", "GlobalAveragePool"
#: First opset in which a Split has its sizes as an input.
_SPLIT_SIZES_ARE_INPUT = 13
_WINDOW = {"strides": 1, "pads": 0, "dilations": 1}
#: Operators that compute each element from those of its own place.
_POINTWISE = frozenset({
    "Abs", "Add", "Celu", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max",
    "Min", "Mish", "Mul", "Neg", "Pow", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh",
})  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Form:
    """Why a node has no such form (empty where it has), what is done as an order, and what does it."""

    refuse: Callable[[Model, Node], str]
    describe: Callable[[Model, Node], str]
    write: Callable[[Edit, Model, Node], None]


def iter_possible_rewrites(model: Model, nodes: Iterable[str]) -> Iterator[Rewrite]:
    """The forms that some nodes can be written in."""
    for node in dict.fromkeys(nodes):
        yield from (
            Rewrite(k, node) for k, form in _FORMS.items() if not form.refuse(model, model.by_id[node])
        )


def describe_rewrite(model: Model, rewrite: Rewrite) -> str:
    """A rewrite as an order."""
    if rewrite.kind == "mend":
        return f'put the pair "{rewrite.node}" right'
    if rewrite.kind == "release":
        return f'let "{rewrite.node}" read what its pairs round'
    return _FORMS[rewrite.kind].describe(model, model.by_id[rewrite.node])


def find_replacement(model: Model, rewrite: Rewrite) -> str:
    """The node that replaces one that is gone; empty where none does."""
    return model.producers[model.by_id[rewrite.node].inputs[0]].id if rewrite.kind == "fold" else ""


def iter_transposes_before(model: Model, rewrite: Rewrite) -> Iterator[str]:
    """The transpositions that a node is lifted over; none of another form."""
    if rewrite.kind == "lift":
        makers = (model.producers.get(v) for v in model.by_id[rewrite.node].inputs)
        yield from (m.id for m in makers if m is not None and m.op == "Transpose")


def apply_rewrites(model: Model, rewrites: Sequence[Rewrite]) -> Model:
    """The model with nodes in other forms, as a source of its own.

    Raises:
        VariantError: there is no such node, or it has no such form.
    """
    if not rewrites:
        return model
    promises = (passes.INTERFACE, passes.ORDER, passes.TYPES)
    rewriting = passes.Pass("rewrites", lambda edit: rewrite_nodes(edit, rewrites), promises)
    return passes.run(model, [rewriting], source=True)


def check(model: Model, rewrites: Sequence[Rewrite]) -> None:
    """Raise VariantError where there is no such node, or it has no such form."""
    inlining.check(model, _list_inline_patterns(rewrites))
    repairs, releases = _find_repairs(model, rewrites), any(r.kind == "release" for r in rewrites)
    releasable_nodes = existing_qdq.find_quantized_nodes(model) if releases else ()
    for rewrite in rewrites:
        if rewrite.kind == "inline":
            continue
        node, reason = model.by_id.get(rewrite.node), ""
        if node is None:
            reason = "there is no node of this id"
        elif rewrite.kind == "mend" and node.id not in repairs:
            reason = "there is no finding about a pair that begins there, or rtlab cannot know the fix"
        elif rewrite.kind == "release" and node.id not in releasable_nodes:
            reason = "it reads nothing that the model itself has quantized"
        elif rewrite.kind in _FORMS:
            reason = _FORMS[rewrite.kind].refuse(model, node)
        if reason:
            raise VariantError(
                f'Cannot {rewrite.kind} "{rewrite.node}" of model "{model.name}": {reason}. '
                "Leave it out, or choose another node."
            )


def _list_inline_patterns(rewrites: Iterable[Rewrite]) -> list[str]:
    return [r.node for r in rewrites if r.kind == "inline"]


#: What is done to the quantization that a model brings along.
QDQ_REWRITES = frozenset({"mend", "release"})


def _find_repairs(model: Model, rewrites: Iterable[Rewrite]) -> dict[str, list[str]]:
    """The findings that are to be repaired, by the QuantizeLinear that each rewrite names."""
    named_nodes = {r.node for r in rewrites if r.kind == "mend"}
    finding_ids: dict[str, list[str]] = {}
    for finding in findings.check(model) if named_nodes else ():
        if finding.fixable and finding.nodes[0] in named_nodes:
            finding_ids.setdefault(finding.nodes[0], []).append(finding.id)
    return finding_ids


def rewrite_nodes(edit: Edit, rewrites: Sequence[Rewrite]) -> None:
    """Write nodes of a graph under edit in other forms; errors are those of ``apply_rewrites``."""
    model = edit.model
    check(model, rewrites)
    # Collected now: one repair may remove the finding of another.
    finding_ids = {i for ids in _find_repairs(model, rewrites).values() for i in ids}
    for graph_pass in findings.iter_repair_passes(edit, finding_ids) if finding_ids else ():
        passes.apply(graph_pass, edit)
    if released_nodes := [r.node for r in rewrites if r.kind == "release"]:
        existing_qdq.release(edit, released_nodes)
    for rewrite in rewrites:
        if rewrite.kind in _FORMS:
            _FORMS[rewrite.kind].write(edit, model, model.by_id[rewrite.node])
    if patterns := _list_inline_patterns(rewrites):
        inlining.inline(edit, patterns)


def _explain_unfoldable(model: Model, node: Node) -> str:
    """Why a normalization cannot be folded; empty where it can."""
    if node.op != _NORMAL:
        return f"it is {node.op}, and this form is one of {_NORMAL}"
    maker = model.producers.get(node.inputs[0])
    if maker is None or maker.op != "Conv":
        return "no convolution stands before it"
    if len(model.consumers.get(node.inputs[0], ())) != 1 or node.inputs[0] in model.outputs:
        return "another node reads what it normalizes"
    if len([o for o in node.outputs if o]) != 1 or node.attributes.get("training_mode"):
        return "it is in training mode"
    if not all(v in model.known for v in (*node.inputs[1:5], *filter(None, maker.inputs[1:]))):
        return "its numbers, or the weights before it, are not constant"
    return ""


def _is_noop(model: Model, node: Node) -> bool:
    """Whether a node gives what it reads, and the value that it reads is not named by the model's interface."""
    if node.op not in {"Identity", "Dropout", "Cast"} or not node.inputs or not node.outputs:
        return False
    if node.outputs[0] in model.outputs or any(node.outputs[1:]):
        return False
    types = {model.values[v].dtype for v in (node.inputs[0], node.outputs[0])}
    return node.op != "Cast" or (len(types) == 1 and "" not in types)


def _explain_unpoolable(model: Model, node: Node) -> str:
    if node.op != _GLOBAL:
        return f"it is {node.op}, and this form is one of {_GLOBAL}"
    return "" if _get_pool_area(model, node) else "the size of what it reads is not known"


def _get_pool_area(model: Model, node: Node) -> tuple[int, ...]:
    """What a global pooling covers; empty where that is not known."""
    shape = model.values[node.inputs[0]].shape or ()
    area = tuple(d for d in shape[2:] if isinstance(d, int))
    return area if area and len(area) == len(shape) - 2 else ()


def _fold(edit: Edit, node: str) -> None:
    """``w' = w · g``, ``b' = (b - mean) · g + beta`` with ``g = gamma / sqrt(var + epsilon)``, per output channel.

    As ONNX defines BatchNormalization in inference; computed in float64 and stored in the weight's type.
    """
    tensors = edit.model.known
    normal = edit.nodes[node]
    conv_output = normal.inputs[0]
    conv = conv_output.producer() if conv_output is not None else None
    assert conv_output is not None and conv is not None  # noqa: S101, PT018 - it can be folded
    gamma, beta, mean, var = (
        np.asarray(tensors[v.name or ""].numpy(), np.float64) for v in normal.inputs[1:5] if v is not None
    )
    epsilon = normal.attributes.get("epsilon")
    gain = gamma / np.sqrt(var + (epsilon.as_float() if epsilon is not None else 1e-5))
    weight, *bias = (tensors[v.name or ""].numpy() for v in conv.inputs[1:3] if v is not None)
    shift = np.asarray(bias[0], np.float64) if bias else np.zeros(len(gain))
    folded_weight = np.asarray(weight, np.float64) * gain.reshape(-1, *[1] * (weight.ndim - 1))
    folded_bias, name = (shift - mean) * gain + beta, conv.name or ""
    for at, array, part in ((1, folded_weight, "weight"), (2, folded_bias, "bias")):
        edit.set_input(name, at, edit.add_constant(f"{name}/folded_{part}", array.astype(weight.dtype)))
    edit.substitute(conv_output, normal)


def _pool(edit: Edit, node: str, area: tuple[int, ...]) -> None:
    old = edit.nodes[node]
    reads = [v for v in old.inputs if v is not None]
    pool = edit.insert(
        "AveragePool", f"{node}/pool", reads, origin=node, before=node, like=old.outputs[0],
        attrs={"kernel_shape": list(area)},
    )  # fmt: skip
    _take_over(edit, pool, old)


def _take_over(edit: Edit, value: ir.Value, old: ir.Node) -> None:
    """Let a value replace the output of a node, and the node that writes it take its name."""
    name, maker = old.name, value.producer()
    edit.substitute(value, old)
    if maker is not None:
        maker.name = name
    edit.sort_and_reindex()


def _drop(edit: Edit, node: str) -> None:
    dropped_node = edit.nodes[node]
    source = dropped_node.inputs[0]
    assert source is not None  # noqa: S101 - it was checked that it reads something
    dropped_node.outputs[0].replace_all_uses_with(source)
    edit.graph.remove(dropped_node, safe=True)
    edit.sort_and_reindex()


def _find_siblings(model: Model, node: Node) -> tuple[str, ...]:
    """The convolutions that one wider one can replace, of which a node is the first; empty where there is none.

    They read one value through equal windows, in one group, with weights that are constant.
    """
    key = None if node.scope else _compute_merge_key(model, node)
    if key is None:
        return ()
    alike = tuple(
        n.id for n in model.consumers.get(node.inputs[0], ()) if _compute_merge_key(model, n) == key
    )
    return alike if len(alike) > 1 and alike[0] == node.id else ()


def _compute_merge_key(model: Model, node: Node) -> tuple[Any, ...] | None:
    """What siblings have in common; None for a node that can have none."""
    if node.op != "Conv" or node.attributes.get("group", 1) != 1:
        return None
    constants = [v for v in node.inputs[1:] if v]
    if not constants or not all(v in model.known for v in constants):
        return None
    weight = model.known[node.inputs[1]]
    window = []
    for name, default in _WINDOW.items():
        attribute = node.attributes.get(name)
        is_default = isinstance(attribute, list) and set(attribute) == {default}
        window.append(None if is_default else repr(attribute))
    kernel = tuple(weight.shape.numpy())[1:]
    return (node.inputs[0], kernel, *window, node.attributes.get("auto_pad", "NOTSET"), weight.dtype)


def _merge(edit: Edit, first: str, group: tuple[str, ...]) -> None:
    """Put one convolution with the weights of all in the place of siblings.

    Weights and biases follow one another along the output channels, so that each output is computed from the
    same numbers as before.
    """
    model, tensors, original = edit.model, edit.model.known, edit.nodes[first]
    nodes = [model.by_id[n] for n in group]
    weights = [tensors[n.inputs[1]].numpy() for n in nodes]
    widths = [len(w) for w in weights]
    merged_weight = edit.add_constant(f"{first}/merged_weight", np.concatenate(weights))
    inputs = [edit.values[nodes[0].inputs[0]], merged_weight]
    biases = [tensors[n.inputs[2]].numpy() if len(n.inputs) > 2 and n.inputs[2] else None for n in nodes]
    if any(b is not None for b in biases):
        arrays = (
            np.zeros(w, weights[0].dtype) if b is None else b for b, w in zip(biases, widths, strict=True)
        )
        inputs.append(edit.add_constant(f"{first}/merged_bias", np.concatenate([*arrays])))
    like = original.outputs[0]
    wide = edit.insert("Conv", f"{first}/merged", inputs, origin=first, like=like, before=first)
    _copy_attributes(original, wide)
    if like.shape is not None:
        wide.shape = ir.Shape([sum(widths) if i == 1 else d for i, d in enumerate(like.shape)])
    attributes: dict[str, Any] = {"axis": 1}
    split_inputs = [wide]
    if model.opset >= _SPLIT_SIZES_ARE_INPUT:
        split_inputs.append(edit.add_constant(f"{first}/merged_widths", np.array(widths, np.int64)))
    else:
        attributes["split"] = widths
    split_node = ir.Node(
        "", "Split", split_inputs, ir.convenience.convert_attributes(attributes), num_outputs=len(group),
        name=edit.make_node_name(f"{first}/parted"), metadata_props={ORIGIN: first},
    )  # fmt: skip
    edit.graph.insert_before(original, split_node)
    for node, out in zip(group, split_node.outputs, strict=True):
        out.name = edit.make_value_name(f"{node}/parted")
    edit.sort_and_reindex()
    for node, out in zip(group, tuple(split_node.outputs), strict=True):
        edit.substitute(out, edit.nodes[node])


def _copy_attributes(node: ir.Node, value: ir.Value) -> None:
    """Give the node that writes a value the attributes of another one."""
    maker = value.producer()
    if maker is not None:
        maker.attributes.update(node.attributes)


def _find_permutation(model: Model, node: Node) -> tuple[int, ...]:
    """How the transposition before a pointwise node permutes; empty where it cannot be moved before one."""
    if node.op not in _POINTWISE or node.scope or any(node.outputs[1:]):
        return ()
    permutation = next((p for v in node.inputs if (p := _get_permutation(model, v))), ())
    # Constants get the dimensions that they lack.
    is_possible = all(
        not v or v in model.known or len(model.values[v].shape or ()) == len(permutation) for v in node.inputs
    )
    return permutation if is_possible else ()


def _lift(edit: Edit, node: str, permutation: tuple[int, ...]) -> None:
    """Put the same operator before a transposition, under its id, and one behind it.

    Other inputs are transposed the other way, where they are not themselves transposed like that.
    """
    original, out = edit.nodes[node], edit.nodes[node].outputs[0]
    inverse = tuple(int(i) for i in np.argsort(permutation))
    inputs = list(_iter_lifted_inputs(edit, original, permutation, inverse))
    place: dict[str, Any] = {"origin": node, "before": node}
    lifted = edit.insert(original.op_type, f"{node}/lifted", inputs, like=out, **place)
    lifted.shape = _permute_shape(out.shape, inverse)
    _copy_attributes(original, lifted)
    perm = {"perm": list(permutation)}
    back = edit.insert("Transpose", f"{node}/moved", [lifted], like=out, attrs=perm, **place)
    maker = lifted.producer()
    edit.substitute(back, original)
    if maker is not None:
        maker.name = node
    edit.sort_and_reindex()


def _iter_lifted_inputs(
    edit: Edit, original: ir.Node, permutation: tuple[int, ...], inverse: tuple[int, ...]
) -> Iterator[ir.Value]:
    """The inputs of a node, as they are before the transposition."""
    model, node = edit.model, original.name or ""
    for position, value in enumerate(original.inputs):
        if value is None:
            yield value  # type: ignore[misc] # an input that is left out
            continue
        name, maker = value.name or "", value.producer()
        if maker is not None and _get_permutation(model, name) == permutation and maker.inputs[0] is not None:
            yield maker.inputs[0]
        elif name in model.known:
            array = model.known[name].numpy()
            expanded = array.reshape((1,) * (len(permutation) - array.ndim) + array.shape)
            yield edit.add_constant(f"{name}/moved", expanded.transpose(inverse)) if array.ndim else value
        else:
            title, perm = f"{node}/moved_{position}", {"perm": list(inverse)}
            transposed = edit.insert("Transpose", title, [value], origin=node, before=node, attrs=perm)
            transposed.shape = _permute_shape(value.shape, inverse)
            yield transposed


def _get_permutation(model: Model, value: str) -> tuple[int, ...]:
    """How the transposition that writes a value permutes; empty where none does."""
    maker = model.producers.get(value)
    if maker is None or maker.op != "Transpose":
        return ()
    permutation = maker.attributes.get("perm")
    rank = len(model.values[value].shape or ())
    return tuple(permutation) if isinstance(permutation, (list, tuple)) else tuple(reversed(range(rank)))


def _permute_shape(shape: ir.Shape | None, by: tuple[int, ...]) -> ir.Shape | None:
    return None if shape is None or len(shape) != len(by) else ir.Shape([shape[i] for i in by])


_FORMS: dict[RewriteKind, _Form] = {
    "fold": _Form(
        _explain_unfoldable,
        lambda model, node: f'fold "{node.id}" into the weights of "{model.producers[node.inputs[0]].id}"',
        lambda edit, _, node: _fold(edit, node.id),
    ),
    "pool": _Form(
        _explain_unpoolable,
        lambda model, node: (
            f'write "{node.id}" as AveragePool over {"×".join(map(str, _get_pool_area(model, node)))}'
        ),
        lambda edit, model, node: _pool(edit, node.id, _get_pool_area(model, node)),
    ),
    "drop": _Form(
        lambda model, node: "" if _is_noop(model, node) else f"it is {node.op}, and does something here",
        lambda _, node: f'leave out {node.op} "{node.id}", which does nothing',
        lambda edit, _, node: _drop(edit, node.id),
    ),
    "merge": _Form(
        lambda model, node: (
            ""
            if _find_siblings(model, node)
            else "it is not the first of several convolutions that read one value through equal windows"
        ),
        lambda model, node: (
            f"write {quote_names(_find_siblings(model, node))} as one wider convolution and a Split"
        ),
        lambda edit, model, node: _merge(edit, node.id, _find_siblings(model, node)),
    ),
    "lift": _Form(
        lambda model, node: (
            "" if _find_permutation(model, node) else "it is no pointwise operator on what a Transpose writes"
        ),
        lambda _, node: f'let {node.op} "{node.id}" stand before the Transpose that it reads',
        lambda edit, model, node: _lift(edit, node.id, _find_permutation(model, node)),
    ),
}
