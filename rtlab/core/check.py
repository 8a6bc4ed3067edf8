"""Reading ONNX files, and refusing those that nothing can be done with. Files are only ever read."""

from __future__ import annotations

import functools
import graphlib
import json
import math
import shlex
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from rtlab.core import proto_repair, trt_operators
from rtlab.core.external_data import LARGE
from rtlab.core.inputs import read_input
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.phrases import quote_names
from rtlab.core.proto_repair import check_extent
from rtlab.errors import ModelError

#: Bytes from which on the checker is spared a constant.
_LARGE = 1 << 16
#: Calls of local functions in whose types the checker takes seconds; a file with three functions more, a minute.
_MOST_CALLS = 2_000_000
#: Fields of a tensor that hold its numbers where its bytes do not, and types of which each is two.
_NUMBERS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_COMPLEX = frozenset({onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128})
#: Functions of a circle that a message names.
_NAMED = 8

#: Domain, name and overload of a local function.
_FunctionKey = tuple[str, str, str]


def read(source: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, Path | None]:
    """A copy of the proto of a source, and its path; ``ModelError`` where it is not there, not ONNX, or too large."""
    if isinstance(source, onnx.ModelProto):
        check_extent(source, "Cannot load the given model:")
        proto = onnx.ModelProto()
        proto.CopyFrom(source)
        return proto, None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(bytes(source), "the given bytes"), None
    if not isinstance(source, (str, Path)):
        raise ModelError(
            f"Cannot load an object of type {type(source).__name__}. "
            "Pass a path, the bytes of a file, or an onnx.ModelProto."
        )
    path = Path(source)
    try:
        if path.is_dir():
            raise ModelError(f'Cannot load "{path}": this is a folder. Name the .onnx file in it.')
        return _parse(read_input(path), f'"{path}"'), path.absolute()
    except FileNotFoundError:
        raise ModelError(
            f'Cannot load "{path}": no such file. Check the path, or see rtlab.samples.names().'
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(
            f'Cannot load "{path}": {reason}. Name an .onnx file that is yours to read.', details=repr(error)
        ) from error


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"Cannot load {what}: it is empty. Export the model again.")
    try:
        proto = onnx.load_model_from_string(data)
    except Exception as error:
        raise ModelError(
            f"Cannot load {what}: the {len(data)} bytes are not an ONNX model, or the file is truncated. "
            "Export it again, or check that a download was complete.",
            details=str(error),
        ) from error
    if not proto.ir_version and not proto.graph.node:
        raise ModelError(
            f"Cannot load {what}: the {len(data)} bytes are not an ONNX model. Name an .onnx file."
        )
    check_extent(proto, f"Cannot load {what}:")
    return proto


def check(proto: onnx.ModelProto, path: Path | None, title: str, *, weights: bool = True) -> tuple[str, ...]:
    """Raise ``ModelError`` unless the model can be compiled as far as ONNX itself can tell.

    Impossible sizes and nodes out of order are repaired in ``proto``; returns a sentence about each. Without
    ``weights``, the files that hold those of the graph may be missing.
    """
    error_prefix = f'Cannot load model "{title}":'
    if not proto.graph.node:
        raise ModelError(
            f"{error_prefix} its graph has no nodes, so there is nothing to compile. "
            "Export it again with the network inside."
        )
    opset = next((o.version for o in proto.opset_import if o.domain in ONNX_DOMAINS), None)
    if opset is not None and opset < 7:
        raise ModelError(
            f"{error_prefix} it uses opset {opset}, and operators before opset 7 have other meanings. "
            "Convert it with onnx.version_converter to opset 13 or later."
        )
    _check_calls(proto, error_prefix)
    _check_maps(proto, error_prefix)
    _check_numbers(proto, error_prefix)
    all_present = _check_external(proto, path, error_prefix, weights=weights)
    _check_operators(proto, error_prefix)
    notes = tuple(proto_repair.repair(proto, error_prefix))
    light = replace_weights_with_inputs(proto, is_heavy)
    trt_operators.move_early_pairs(light)
    checked: str | onnx.ModelProto = light
    if any(_is_external(tensor) for tensor, _ in _iter_tensors(light)):
        # Constants of bodies lie in files too. The file on disk is as it was; a proto would look for them from here.
        checked = str(path) if all_present and not notes else _replace_external_with_inputs(light)
    try:
        note = _check_types(proto, checked)
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        first = (text if len(text) <= 300 else text[:300] + "…").rstrip(".")
        raise ModelError(
            f"{error_prefix} the ONNX checker refuses it: {first}. Fix the named part and export again.",
            details=str(error),
        ) from error
    return (*notes, note) if note else notes


def _check_types(proto: onnx.ModelProto, checked: str | onnx.ModelProto) -> str:
    """Let ONNX check a model; a sentence where types of values are replaced first, in ``proto`` too.

    ModelOpt 0.47 makes weights FP16 and leaves the types of what is computed from them. ONNX's checker sees nothing
    behind operators of TensorRT's domain, and so no such mistake.
    """
    has_trt = any(n.domain == trt_operators.DOMAIN for n in proto.graph.node)
    note = _replace_types(proto, checked) if has_trt and not isinstance(checked, str) else ""
    try:
        onnx.checker.check_model(checked, full_check=True)
    except onnx.shape_inference.InferenceError:
        if note or isinstance(checked, str) or not (note := _replace_types(proto, checked)):
            raise
        onnx.checker.check_model(checked, full_check=True)
    return note


def _replace_types(proto: onnx.ModelProto, light: onnx.ModelProto) -> str:
    """Let values have the types that ONNX infers from the operators alone, in a model and in its light copy."""
    bare = onnx.ModelProto()
    bare.CopyFrom(light)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    trt_operators.add_functions(bare)
    inferred = onnx.shape_inference.infer_shapes(bare).graph
    types = {i.name: i.type.tensor_type.elem_type for i in (*inferred.value_info, *inferred.output)}
    proto_repair.replace_types(light, types)
    return proto_repair.replace_types(proto, types)


def _check_calls(proto: onnx.ModelProto, error_prefix: str) -> None:
    """Refuse functions that call each other too often, before the checker infers the types of each call."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    if not functions:
        return
    calls = {key: _collect_calls(f.node, functions) for key, f in functions.items()}
    expanded: dict[_FunctionKey, int] = {}
    try:
        for key in graphlib.TopologicalSorter(calls).static_order():
            expanded[key] = sum(1 + expanded[c] for c in calls[key])
    except graphlib.CycleError as error:
        # Checkers up to ONNX 1.21 follow it until the process crashes.
        names = quote_names(name for _, name, _ in reversed(error.args[1][:_NAMED]))
        raise ModelError(
            f"{error_prefix} its local functions call each other in a circle: {names}. Export the model without local "
            "functions."
        ) from None
    total = sum(1 + expanded[c] for c in _collect_calls(proto.graph.node, functions))
    if total > _MOST_CALLS:
        raise ModelError(
            f"{error_prefix} its local functions call each other so often that its {len(proto.graph.node)} nodes stand "
            f"for {total:.3g} calls, and at most {_MOST_CALLS:,} are read. Export the model without local "
            "functions, or a smaller part of it."
        )


def _collect_calls(nodes: Iterable[onnx.NodeProto], functions: Container[_FunctionKey]) -> list[_FunctionKey]:
    """The local functions that nodes and their bodies call, once for each call."""
    calls = []
    todo = list(nodes)
    while todo:
        node = todo.pop()
        key = node.domain, node.op_type, node.overload
        if key in functions:
            calls.append(key)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                todo.extend(body.node)
    return calls


def _iter_tensors(proto: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, bool]]:
    """Every tensor, and whether it is an initializer."""
    for graph in proto_repair.iter_graphs(proto):
        if isinstance(graph, onnx.GraphProto):
            yield from ((tensor, True) for tensor in graph.initializer)
            for sparse in graph.sparse_initializer:
                yield from ((tensor, False) for tensor in (sparse.values, sparse.indices))
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t, False
                yield from ((tensor, False) for tensor in attribute.tensors)


def replace_weights_with_inputs(
    proto: onnx.ModelProto, heavy: Callable[[onnx.TensorProto], bool]
) -> onnx.ModelProto:
    """A copy with inputs in place of heavy constants of the main graph, for types and shapes."""
    light = onnx.ModelProto()
    _merge(light, proto, skip="graph")
    _merge(light.graph, proto.graph, skip="initializer")
    listed = {i.name for i in light.graph.input}
    for tensor in proto.graph.initializer:
        if not heavy(tensor):
            light.graph.initializer.append(tensor)
        elif tensor.name not in listed:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def _merge(into: Any, message: Any, *, skip: str) -> None:
    """Copy all fields of a message but one."""
    for field, value in message.ListFields():
        if field.name == skip:
            continue
        if field.is_repeated:
            getattr(into, field.name).MergeFrom(value)
        elif field.type == field.TYPE_MESSAGE:
            getattr(into, field.name).CopyFrom(value)
        else:
            setattr(into, field.name, value)


def list_external_files(proto: onnx.ModelProto) -> tuple[str, ...]:
    """The files with external constants of a checked model, relative to its folder."""
    entries = (e for tensor, _ in _iter_tensors(proto) if _is_external(tensor) for e in tensor.external_data)
    return tuple(dict.fromkeys(e.value for e in entries if e.key == "location"))


def _is_external(tensor: onnx.TensorProto) -> bool:
    """Whether the numbers of a constant are in a file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _replace_external_with_inputs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with inputs in place of external constants, also of bodies."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    listed = {i.name for i in bare.graph.input}
    for graph in proto_repair.iter_graphs(bare):
        if isinstance(graph, onnx.FunctionProto):
            continue
        external = [t for t in graph.initializer if _is_external(t)]
        embedded = [t for t in graph.initializer if not _is_external(t)]
        bare.graph.input.extend(
            onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            for t in external
            if t.name not in listed
        )
        graph.ClearField("initializer")
        graph.initializer.extend(embedded)
    return bare


def is_heavy(tensor: onnx.TensorProto) -> bool:
    """Whether a constant is large, and has all the bytes that the checker would count."""
    return _is_external(tensor) or (
        len(tensor.raw_data) >= _LARGE and len(tensor.raw_data) == _count_bytes(tensor)
    )


def _count_bytes(tensor: onnx.TensorProto) -> int | None:
    """Bytes that the numbers of a constant take; None of types that have no such size."""
    try:
        return int(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth + 7) // 8
    except (ValueError, TypeError):
        return None


def _check_numbers(proto: onnx.ModelProto, error_prefix: str) -> None:
    """Raise ``ModelError`` for a constant with too few numbers, which checkers up to ONNX 1.23 accept."""
    for tensor, _ in _iter_tensors(proto):
        needed = _count_bytes(tensor)
        if needed is None or _is_external(tensor):
            continue
        if tensor.HasField("raw_data"):
            stored, what = len(tensor.raw_data), "bytes"
        else:
            stored, what = sum(len(getattr(tensor, field)) for field in _NUMBERS), "entries"
            bits, count = ir.DataType(tensor.data_type).bitwidth, math.prod(tensor.dims)
            # Numbers of less than a byte share one, and complex ones are two.
            needed = needed if bits < 8 else count * (2 if tensor.data_type in _COMPLEX else 1)
        if stored != needed:
            raise ModelError(
                f'{error_prefix} tensor "{tensor.name}" takes {needed} {what}, and the file holds {stored} '
                "of it. Export the model again."
            )


def _check_external(proto: onnx.ModelProto, path: Path | None, error_prefix: str, *, weights: bool) -> bool:
    """Whether all external constants are there; without ``weights``, those of initializers may be missing."""
    sizes: dict[str, int | None] = {}
    all_present = True
    for tensor, initializer in _iter_tensors(proto):
        if not _is_external(tensor):
            continue
        needed = weights or not initializer
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        if path is None and needed:
            raise ModelError(
                f"{error_prefix} its weights are in external files, which bytes do not carry. "
                "Pass the path of the file instead."
            )
        if location not in sizes:
            sizes[location] = None if path is None else _get_external_size(path, location, error_prefix)
        size = sizes[location]
        if size is not None:
            _check_extent(tensor, entries, size, error_prefix)
        elif needed and path is not None:
            raise ModelError(
                f'{error_prefix} its external data "{location}" is missing. Put that file beside "{path.name}", or '
                "give weights=False to look at the graph alone."
            )
        else:
            all_present = False
    return all_present


def _get_external_size(path: Path, location: str, error_prefix: str) -> int | None:
    """Size in bytes of an external file that lies in the model's folder; None where it is missing."""
    if not location:
        raise ModelError(f"{error_prefix} a tensor with external data names no file. Export the model again.")
    folder = path.parent.resolve()
    parts = location.replace("\\", "/")
    file = folder / parts
    if not file.resolve().is_relative_to(folder) or Path(parts).is_absolute() or ".." in Path(parts).parts:
        raise ModelError(
            f'{error_prefix} its external data "{location}" lies outside the model\'s folder. '
            "Move the data file beside the model and save it again."
        )
    return file.stat().st_size if file.is_file() else None


def _check_extent(tensor: onnx.TensorProto, entries: dict[str, str], size: int, error_prefix: str) -> None:
    """Raise ``ModelError`` unless the file holds all bytes of a tensor, which ONNX tools cut short silently."""
    needed = _count_bytes(tensor)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or needed or 0)
    except ValueError:
        offset = length = -1
    if needed is None or offset < 0 or length != needed:
        raise ModelError(
            f'{error_prefix} tensor "{tensor.name}" takes {needed} bytes, and its external data declares '
            f"{entries.get('length', 'all')} bytes at offset {entries.get('offset', 0)}. Save the model again with "
            "onnx.save_model(..., save_as_external_data=True)."
        )
    if offset + needed > size:
        raise ModelError(
            f'{error_prefix} tensor "{tensor.name}" takes bytes {offset} to {offset + needed} of external data '
            f'"{entries["location"]}", which has {size} bytes. Copy the complete file beside the model.'
        )


def _check_operators(proto: onnx.ModelProto, error_prefix: str) -> None:
    """Raise ``ModelError`` with all operators that ONNX's own domains do not have; the checker stops at the first."""
    local = {(f.domain, f.name) for f in proto.functions}
    default = {o.domain: o.version for o in proto.opset_import}
    missing: dict[str, list[str]] = {}
    for graph in proto_repair.iter_graphs(proto):
        versions = default
        if isinstance(graph, onnx.FunctionProto):
            versions = {**default, **{o.domain: o.version for o in graph.opset_import}}
        for node in graph.node:
            domain = "" if node.domain == "ai.onnx" else node.domain
            version = versions.get(domain, versions.get("ai.onnx", 0) if not domain else 0)
            if domain not in {"", "ai.onnx.ml"} or not version or (node.domain, node.op_type) in local:
                continue
            if not _has_operator(domain, node.op_type, version):
                missing.setdefault(node.op_type, []).append(node.name or "unnamed")
    if missing:
        listed = "; ".join(f'"{op}" (node {quote_names(names)})' for op, names in missing.items())
        raise ModelError(
            f"{error_prefix} ONNX has no such operators in the opset that the model declares: {listed}. "
            "Export with a later opset, or replace these nodes."
        )


@functools.lru_cache(4096)
def _has_operator(domain: str, op: str, version: int) -> bool:
    try:
        # Versions that this onnx does not know yet are left to its checker.
        newest = onnx.defs.onnx_opset_version() if not domain else version
        onnx.defs.get_schema(op, min(version, newest), domain)
    except onnx.defs.SchemaError:
        return False
    return True


def escape(proto: onnx.ModelProto) -> None:
    """Escape text that is not UTF-8: protobuf returns it as bytes, which no tool downstream expects."""
    stack: list[Any] = [proto]
    while stack:
        message = stack.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                stack += value if field.is_repeated else (value,)
            elif field.type == field.TYPE_STRING and not field.is_repeated:
                if isinstance(value, bytes):
                    setattr(message, field.name, value.decode("utf-8", "backslashreplace"))
            elif field.type == field.TYPE_STRING and any(isinstance(v, bytes) for v in value):
                value[:] = [
                    v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else v for v in value
                ]


def _check_maps(proto: onnx.ModelProto, error_prefix: str) -> None:
    """Raise ``ModelError`` for a value that is a map, as scikit-learn's converters put at the end of a classifier."""
    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type
        while kind.WhichOneof("value") in {"sequence_type", "optional_type"}:
            kind = getattr(kind, kind.WhichOneof("value")).elem_type
        if not kind.HasField("map_type"):
            continue
        raise ModelError(
            f'{error_prefix} value "{value.name}" is a map, and no compiler of tensors takes one. Export the model '
            f"without it, or load it up to values before: {_offer_cut(graph, value.name)}"
        )


def _offer_cut(graph: onnx.GraphProto, name: str) -> str:
    """The command that cuts off the nodes that make a value, and those that read it."""
    nodes = ((n.input, n.output, name in (*n.input, *n.output)) for n in graph.node)
    values = find_cut_values(nodes, (v.name for v in graph.output)) or ("VALUE",)
    return f"rtlab.load(..., until={json.dumps(values)}), on the command line {format_until(values)}."


def find_cut_values(
    nodes: Iterable[tuple[Iterable[str], Iterable[str], bool]], ends: Iterable[str]
) -> tuple[str, ...]:
    """The values at which a graph can be cut before some nodes: what these and all behind them read, and outputs.

    Args:
        nodes: Inputs and outputs of each node in the order of the graph, and whether it is one of those to avoid.
        ends: The outputs of the graph.
    """
    left: dict[str, None] = {}
    lost, read = set[str](), set(ends)
    for inputs, outputs, is_avoided in nodes:
        if is_avoided or not lost.isdisjoint(inputs):
            lost.update(filter(None, outputs))
            read.update(inputs)
        else:
            left.update(dict.fromkeys(outputs))
    return tuple(v for v in left if v and v in read)


def format_until(values: Iterable[str]) -> str:
    """The options of a command that cut a model at values."""
    return " ".join(f"--until {shlex.quote(v)}" for v in values)


#: Sizes beyond this one are not propagated through nodes that fill tensors.
_MOST_FILLED = 1 << 24


def infer_types(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Fill in types and shapes, as far as ONNX can infer them from the same graph as a proto.

    ONNX copies the model several times for this, so large weights are replaced by inputs. The pass of onnx-ir turns
    sequences into tensors (seen in 1.1).
    """
    light = replace_weights_with_inputs(proto, lambda t: math.prod(t.dims) > LARGE)
    trt_operators.add_functions(light)
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=not _fills(light))
    del light
    # Read from the proto: making a second model of it takes as long as all the rest.
    todo: list[tuple[ir.Graph, onnx.GraphProto]] = [(model.graph, inferred.graph)]
    while todo:
        graph, inferred_graph = todo.pop()
        types = {
            i.name: i.type
            for i in (*inferred_graph.value_info, *inferred_graph.input, *inferred_graph.output)
        }
        for value in (*graph.inputs, *(o for n in graph for o in n.outputs)):
            type_proto = types.get(value.name or "", onnx.TypeProto())
            if (kind := ir.serde.deserialize_type_proto_for_type(type_proto)) is not None:
                value.type, value.shape = kind, ir.serde.deserialize_type_proto_for_shape(type_proto)
        for node, source in zip(graph, inferred_graph.node, strict=True):
            todo += [(node.attributes[a.name].as_graph(), a.g) for a in source.attribute if a.HasField("g")]


def _fills(proto: onnx.ModelProto) -> bool:
    """Whether a node may fill a tensor of absurd size: ONNX makes that, as it propagates data, and takes all memory."""
    filled = {n.input[0] for n in proto.graph.node if n.op_type == "ConstantOfShape" and n.input}
    if not filled:
        return False
    counts = [onnx.numpy_helper.to_array(t) for t in proto.graph.initializer if t.name in filled]
    dims = [d.dim_value for i in proto.graph.input for d in i.type.tensor_type.shape.dim]
    return max((int(n) for n in (*dims, *(c.max(initial=0) for c in counts))), default=0) > _MOST_FILLED
