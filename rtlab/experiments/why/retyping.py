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


def iter_type_changes(model: Model, first: str, second: str, way: Sequence[str]) -> Iterator[Change]:
    """Each of two nodes in the other one's type, where casts between them lead from one to the other."""
    casts = tuple(n for n in way if model.by_id[n].op == "Cast")
    if not casts:
        return
    source, target = model.by_id[casts[0]].inputs[0], model.by_id[casts[-1]].outputs[0]
    before, after = model.values[source].dtype, model.values[target].dtype
    if before == after or not {before, after} <= _FLOATS:
        return
    for node, like, dtype, do in (
        (second, first, before, _retype_reader),
        (first, second, after, _retype_writer),
    ):
        yield Change(
            "type",
            f'compute "{node}" in {dtype.upper()}, as "{like}" does',
            casts,
            functools.partial(do, node=node, source=source, target=target),
        )


def _retype_reader(edit: Edit, node: str, source: str, target: str) -> None:
    """A reader in the type of what it reads, before the casts."""
    source_value, was, reader = edit.values.get(source), edit.values.get(target), edit.nodes.get(node)
    if (
        source_value is None
        or was is None
        or reader is None
        or source_value.dtype is None
        or was.dtype is None
    ):
        return
    for position, value in enumerate(reader.inputs):
        if value is was:
            edit.set_input(node, position, source_value)
        elif value is not None and value.dtype == was.dtype:
            edit.set_input(node, position, _insert_cast(edit, value, source_value.dtype, node))
    for out in reader.outputs:
        _cast_back(edit, node, out, source_value.dtype, was.dtype)


def _retype_writer(edit: Edit, node: str, source: str, target: str) -> None:
    """A writer in the type in which its value is read, behind the casts."""
    source_value, was, writer = edit.values.get(source), edit.values.get(target), edit.nodes.get(node)
    if (
        source_value is None
        or was is None
        or writer is None
        or source_value.dtype is None
        or was.dtype is None
    ):
        return
    kind, source_dtype = was.dtype, source_value.dtype
    for position, value in enumerate(writer.inputs):
        if value is not None and value.dtype == source_dtype:
            edit.set_input(node, position, _insert_cast(edit, value, kind, node))
    inner = _cast_back(edit, node, source_value, kind, source_dtype)
    was.replace_all_uses_with(inner)


def _insert_cast(edit: Edit, value: ir.Value, kind: ir.DataType, node: str) -> ir.Value:
    """A value in another type: of a constant, its numbers."""
    constant = edit.model.known.get(value.name or "")
    if constant is not None:
        return edit.add_constant(f"{value.name}/typed", constant.numpy().astype(kind.numpy()))
    attributes = {"to": int(kind)}
    return edit.insert(
        "Cast", f"{node}/typed", [value], origin=node, kind=kind, before=node, attrs=attributes
    )


def _cast_back(
    edit: Edit, node: str, out: ir.Value, kind: ir.DataType, original_dtype: ir.DataType
) -> ir.Value:
    """What a node writes becomes of one type, and all that read it read it in its own; gives what is written."""
    inner, outer = edit.split(out.name or "", f"{node}/in_{kind.name.lower()}")
    inner.type = ir.TensorType(kind)
    attributes = {"to": int(original_dtype)}
    edit.insert("Cast", f"{node}/back", [inner], origin=node, output=outer, after=node, attrs=attributes)
    return inner
