"""A model changed by a user's own hand, with ONNX GraphSurgeon."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rtlab.errors import ModelError

if TYPE_CHECKING:
    import onnx

#: First IR version in which an initializer need not be a graph input as well.
_MIN_IR = 8


def edit(source: onnx.ModelProto, title: str, change: Callable[[Any], Any]) -> onnx.ModelProto:
    """A model as ``change`` leaves its graph: see ``Model.edit``. ``title`` is what an error calls it."""
    import onnx_graphsurgeon as gs

    with gs.logger.G_LOGGER.suppress():
        graph = gs.import_onnx(source)
    changed = change(graph)
    changed = graph if changed is None else changed
    error_prefix = f'Cannot edit model "{title}":'
    if not isinstance(changed, gs.Graph):
        raise ModelError(
            f"{error_prefix} the function returned {type(changed).__name__}. Return the graph, or nothing where it was "
            "changed in place."
        )
    try:
        with gs.logger.G_LOGGER.suppress():
            proto: onnx.ModelProto = gs.export_onnx(changed.cleanup().toposort(), do_type_check=False)
    except Exception as error:
        raise ModelError(
            f"{error_prefix} ONNX GraphSurgeon cannot export what the function made of it. Try the function on "
            "onnx_graphsurgeon.import_onnx(model.proto()).",
            details=str(error),
        ) from error
    # The newest one ONNX Runtime may not know.
    proto.ir_version = max(source.ir_version, _MIN_IR)
    _restore(proto, source)
    return proto


def _restore(proto: onnx.ModelProto, source: onnx.ModelProto) -> None:
    """Put back what GraphSurgeon does not carry: what nodes and the model were told beside, such as original names."""
    source_nodes = {(node.name, node.op_type): node for node in source.graph.node}
    for node in proto.graph.node:
        was = source_nodes.get((node.name, node.op_type))
        if was is not None:
            del node.metadata_props[:]
            node.metadata_props.extend(was.metadata_props)
            node.doc_string = was.doc_string
    del proto.metadata_props[:]
    proto.metadata_props.extend(source.metadata_props)
