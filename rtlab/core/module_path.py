"""Where a node stands in the PyTorch module that it was exported from, as torch.onnx writes it into its metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_NAMESPACE, _STACK = "namespace", "pkg.torch.onnx.stack_trace"
#: The keys that name modules and their classes.
MODULE_KEYS = frozenset({_SCOPES, _CLASSES, _NAMESPACE})
_QUOTED = re.compile(r"'([^']*)'")
_LINE = re.compile(r'File "([^"]*)", line (\d+), in (\S+)(?:\n\s*(.*))?')


def read_module_path(node: ir.Node) -> tuple[str, ...] | None:
    """The modules around a node, outermost first and each without the name of the one around it.

    ``("model", "layers.0", "self_attn")``; empty in the outermost module, None where the exporter wrote none.
    """
    metadata = node.metadata_props
    if _SCOPES in metadata:
        scopes = _QUOTED.findall(metadata[_SCOPES])
    elif ": " in metadata.get(_NAMESPACE, ""):
        scopes = [part.partition(": ")[0] for part in metadata[_NAMESPACE].split("/")]
    else:
        return None
    # The first is the exported module, the last the operation.
    modules = [s for s in scopes[:-1] if s]
    return tuple(m.removeprefix(f"{outer}.") for outer, m in zip(["", *modules], modules, strict=False))


def read_module_class(node: ir.Node) -> str:
    """The class of the innermost module around a node; empty where the exporter wrote none."""
    classes = _QUOTED.findall(node.metadata_props.get(_CLASSES, ""))
    return classes[-2] if len(classes) > 1 else ""


def read_source_line(node: ir.Node) -> str:
    """The line of Python that a node comes from, behind its file and function; empty where the exporter wrote none."""
    lines = _LINE.findall(node.metadata_props.get(_STACK, ""))
    if not lines:
        return ""
    path, number, function, text = lines[-1]
    file = "/".join(re.split(r"[/\\\\]", path)[-2:])
    return f"{file}:{number} in {function}{text and f': {text.strip()}'}"
