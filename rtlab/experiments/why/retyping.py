"""Two nodes that compute in two types, one of them in the type of the other: that rounds otherwise, and diagnoses."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from rtlab.experiments.why.changes import Change

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

_FLOATS = frozenset({"fp32", "fp16", "bf16"})


def retyped(model: Model, first: str, second: str, way: Sequence[str]) -> Iterator[Change]:
    """Each of two nodes in the other one's type, where casts between them lead from one to the other."""
    casts = tuple(n for n in way if model.by_id[n].op == "Cast")
    if not casts:
        return
    source, target = model.by_id[casts[0]].inputs[0], model.by_id[casts[-1]].outputs[0]
    before, after = model.values[source].dtype, model.values[target].dtype
    if before == after or not {before, after} <= _FLOATS:
        return
    for node, like, told, do in ((second, first, before, _as_written), (first, second, after, _as_read)):
        yield Change(
            "type",
            f'compute "{node}" in {told.upper()}, as "{like}" does',
            casts,
            functools.partial(do, node=node, source=source, target=target),
        )


def _as_written(edit: Edit, node: str, source: str, target: str) -> None:
    """A reader in the type of what it reads, before the casts."""
    given, was, reader = edit.values.get(source), edit.values.get(target), edit.nodes.get(node)
    if given is None or was is None or reader is None or given.dtype is None or was.dtype is None:
        return
    for position, value in enumerate(reader.inputs):
        if value is was:
            edit.feed(node, position, given)
        elif value is not None and value.dtype == was.dtype:
            edit.feed(node, position, _cast(edit, value, given.dtype, node))
    for out in reader.outputs:
        _back(edit, node, out, given.dtype, was.dtype)


def _as_read(edit: Edit, node: str, source: str, target: str) -> None:
    """A writer in the type in which its value is read, behind the casts."""
    given, was, writer = edit.values.get(source), edit.values.get(target), edit.nodes.get(node)
    if given is None or was is None or writer is None or given.dtype is None or was.dtype is None:
        return
    kind, own = was.dtype, given.dtype
    for position, value in enumerate(writer.inputs):
        if value is not None and value.dtype == own:
            edit.feed(node, position, _cast(edit, value, kind, node))
    inner = _back(edit, node, given, kind, own)
    was.replace_all_uses_with(inner)


def _cast(edit: Edit, value: ir.Value, kind: ir.DataType, node: str) -> ir.Value:
    """A value in another type: of a constant, its numbers."""
    held = edit.model.known.get(value.name or "")
    if held is not None:
        return edit.constant(f"{value.name}/typed", held.numpy().astype(kind.numpy()))
    told = {"to": int(kind)}
    return edit.insert("Cast", f"{node}/typed", [value], origin=node, kind=kind, before=node, attrs=told)


def _back(edit: Edit, node: str, out: ir.Value, kind: ir.DataType, own: ir.DataType) -> ir.Value:
    """What a node writes becomes of one type, and all that read it read it in its own; gives what is written."""
    inner, outer = edit.split(out.name or "", f"{node}/in_{kind.name.lower()}")
    inner.type = ir.TensorType(kind)
    told = {"to": int(own)}
    edit.insert("Cast", f"{node}/back", [inner], origin=node, output=outer, after=node, attrs=told)
    return inner
