"""A build as one file: what ``rtlab inspect --save`` writes where the compiler is, and anybody reads elsewhere.

It is JSON: all that the compiler told of the engine, its times where it was measured, and the structure of what was
built, without weights. Whoever sends such a file gives away names, shapes and times, and no other numbers but single
ones and integers that decide about shapes.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import lzma
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import onnx
import onnx_ir as ir

from rtlab.backends.readers import contents
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import Allocation, Engine, Layer, Tensor
from rtlab.core.external_data import DetachedWeight, iter_constants, strip_weights
from rtlab.core.model import Model, load
from rtlab.core.module_path import MODULE_KEYS
from rtlab.core.options import Shapes
from rtlab.core.trace import Processor, Profile, Recording
from rtlab.core.variant import Target
from rtlab.errors import ModelError, VariantError

#: What this rtlab writes and reads; the key of it tells the kind of the file.
SCHEMA, KEY = 1, "rtlab_build"
#: Bytes of a file, and of the graph that is packed in one: far more than any build has, and no danger to a laptop.
_LARGEST, _UNPACKED = 256 << 20, 256 << 20
#: How hard a graph is compressed: by xz's own preset it is 2 to 14 % smaller, in ten times the time.
_PRESET = 3
#: Bytes of a dictionary: the least that there is, and those of that preset.
_SMALLEST, _DICTIONARY = 4 << 10, 4 << 20
#: What in a log tells of the machine: the folder of the model, and of the files that the compiler was given.
_FOLDER = re.compile(r"(?<=Input filename:)([ \t]*)[^\r\n]*[\\/]")
_SCRATCH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s\"']*?rtlab-[^\\/\s]+[\\/](?:[^\\/\s\"']+[\\/])*")
#: Integers of these types decide about shapes; so many at most.
_SHAPE_TYPES = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL})
_FEW = 1024
#: Inputs by which an operator is told a size in floating numbers.
_SIZING = {"Resize": (1, 2), "Upsample": (1,)}
_NOWHERE, _OURS = "weights not recorded", "rtlab."


class RecordedGraph(msgspec.Struct, frozen=True):
    """A model without its weights: its name, the sizes of its dynamic dimensions, and an xz of its ONNX in base64."""

    name: str
    shapes: dict[str, tuple[int, ...] | int]
    onnx: str


class SavedTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of an engine in milliseconds. Fields are those of ``Profile``; see there."""

    source: str
    device: str
    processor: Processor
    samples: dict[str, tuple[float, ...]]
    total: tuple[float, ...] = ()
    warmup: int = 0
    taken: datetime.datetime | None = None
    note: str = ""
    runs: int | None = None


class BuildFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file. Fields are those of ``Engine``, whose plan does not go along; see there.

    ``variant`` is what was built in rtlab's words, ``structure`` that of the model that it was built from,
    ``source`` that model, ``graph`` what the compiler was given, where it is another one, ``times`` what a runner
    measured of the engine.
    """

    rtlab_build: int
    backend: str
    version: str
    target: str
    built: datetime.datetime | None
    seconds: float
    maker: Maker
    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    detail: Literal["layer", "region"] = "layer"
    allocations: tuple[Allocation, ...] = ()
    totals: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    device: str = ""
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...] = ()
    log: str = ""
    variant: str = ""
    structure: str = ""
    source: RecordedGraph | None = None
    graph: RecordedGraph | None = None
    times: SavedTimes | None = None


#: What a file and an engine have by one name.
_SHARED = tuple(f for f in BuildFile.__struct_fields__ if f in Engine.__dataclass_fields__)


def _get_fields(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def encode(
    engine: Engine,
    *,
    words: str = "",
    source: Model | None = None,
    graph: Model | None = None,
    profile: Profile | None = None,
) -> bytes:
    """A build as the content of a file: the engine, and as far as given its times and the variant (``Variant.id``).

    ``source`` is the model that was built, whose structure goes along; ``graph`` what the compiler got in its place,
    such as with pairs around its convolutions.
    """
    compiled_graph = (
        graph if graph is not None and (source is None or graph.structure != source.structure) else None
    )
    content = _get_fields(engine, _SHARED) | {
        "target": str(engine.target),
        "built": engine.built and engine.built.replace(microsecond=0),
        "seconds": round(engine.seconds, 3),
        "totals": dict(engine.totals),
        "log": remove_folders(engine.log),
    }
    build_file = BuildFile(
        rtlab_build=SCHEMA,
        variant=words,
        structure="" if source is None else source.structure,
        source=None if source is None else _pack_graph(source),
        graph=None if compiled_graph is None else _pack_graph(compiled_graph),
        times=None if profile is None else _pack_times(profile),
        **content,
    )
    return msgspec.json.encode(build_file, order="deterministic")


def remove_folders(text: str) -> str:
    """What a compiler printed, without the folders in which its files lay."""
    return _SCRATCH.sub("", _FOLDER.sub(r"\1", text))


def to_engine(build_file: BuildFile) -> Engine:
    """The engine of a recorded build; raises ``VariantError`` where its target is none."""
    shared = _get_fields(build_file, _SHARED) | {"target": Target(build_file.target)}
    return Engine(**shared, recorded=True)


def decode(content: bytes, name: str) -> BuildFile:
    """A file's content, checked; raises ``ReadError`` where it is cut, damaged, of another rtlab, or no such file."""
    try:
        build_file = msgspec.json.decode(content, type=BuildFile)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise contents.fault("build", name, str(error), "a recorded build") from error
    if build_file.rtlab_build != SCHEMA:
        problem = f"its schema is {build_file.rtlab_build}"
        raise contents.fault("build", name, problem, f"schema {SCHEMA}, which this rtlab reads,")
    contents.check_layer_count("build", name, len(build_file.layers))
    ids = [layer.id for layer in build_file.layers]
    if len({*ids}) != len(ids):
        raise contents.fault("build", name, "two of its layers have one id", "an id for each")
    return build_file


def read(path: Path) -> Recording:
    """A file as what it tells; ``ReadError`` where it is cut, damaged, too large, of another rtlab, or no such file."""
    with contents.open_file(path, f'Cannot read build file "{path}"') as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        problem = f"it has more than {_LARGEST >> 20} MiB"
        raise contents.fault("build", path.name, problem, "a recorded build")
    build_file = decode(content, path.name)
    try:
        recorded_engine = to_engine(build_file)
    except VariantError as error:
        problem = f'target "{build_file.target}" is none'
        raise contents.fault("build", path.name, problem, "a compute capability") from error
    source = None if build_file.source is None else _unpack_graph(build_file.source, path.name)
    graph = None if build_file.graph is None else _unpack_graph(build_file.graph, path.name)
    words = (f"built as {build_file.variant}",) if build_file.variant else ()
    recorded_engine = dataclasses.replace(recorded_engine, notes=(*words, *recorded_engine.notes))
    profile = (
        None if build_file.times is None else _unpack_times(build_file.times, recorded_engine, path.name)
    )
    return Recording(recorded_engine, profile, source=source, graph=graph, structure=build_file.structure)


def _pack_times(profile: Profile) -> SavedTimes:
    """The times of an engine as a file has them."""
    samples = {layer: tuple(times.tolist()) for layer, times in profile.samples.items()}
    numbers = {"samples": samples, "total": tuple(profile.total.tolist())}
    return SavedTimes(**(_get_fields(profile, SavedTimes.__struct_fields__) | numbers))


def _unpack_times(saved_times: SavedTimes, engine: Engine, name: str) -> Profile:
    """The times in a file; raises ``ReadError`` where they are no times, or those of another engine's layers."""
    if unknown_layers := saved_times.samples.keys() - {layer.id for layer in engine.layers}:
        problem = f'it times layer "{min(unknown_layers)}", which the engine lacks'
        raise contents.fault("build", name, problem, "the times of its own layers")
    if any(
        not 0 <= time < math.inf
        for times in (saved_times.total, *saved_times.samples.values())
        for time in times
    ):
        raise contents.fault("build", name, "a time of it is negative", "milliseconds")
    samples = {layer: np.array(times, np.float64) for layer, times in saved_times.samples.items()}
    numbers = {"samples": samples, "total": np.array(saved_times.total, np.float64)}
    return Profile(**(_get_fields(saved_times, SavedTimes.__struct_fields__) | numbers))


def _pack_graph(model: Model) -> RecordedGraph:
    """A model's structure."""
    text = base64.b64encode(compress_structure(model)).decode("ascii")
    return RecordedGraph(model.name, dict(model.shapes), text)


def compress_structure(model: Model) -> bytes:
    """An xz of a model's ONNX without weights, as ``decompress_structure`` reads it."""
    content = _strip_weights(model).SerializeToString(deterministic=True)
    # The dictionary of a preset is megabytes, which take longer to clear than a graph to compress.
    size = max(_SMALLEST, min(_DICTIONARY, len(content)))
    return lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "preset": _PRESET, "dict_size": size}])


def _strip_weights(model: Model) -> onnx.ModelProto:
    """A proto whose weights lie in a file that nobody has, and without what a tool wrote down about its own files."""
    # Weights that are not here have types and shapes all the same.
    is_detached = model.weightless or any(isinstance(t, DetachedWeight) for t, _ in iter_constants(model.ir))
    proto, _ = strip_weights(model.ir) if is_detached else model.outline()
    proto.ClearField("metadata_props")
    proto.ClearField("doc_string")
    sizing = _find_sizing(proto.graph)
    for tensor in proto.graph.initializer:
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if (_is_weight(tensor) and tensor.name not in sizing) or is_external:
            stub = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            stub.data_location = onnx.TensorProto.EXTERNAL
            stub.external_data.add(key="location", value=_NOWHERE)
            tensor.CopyFrom(stub)
    _strip_graph(proto.graph)
    for function in proto.functions:
        _strip_graph(function)
    return proto


def _is_weight(tensor: onnx.TensorProto) -> bool:
    """Whether a constant has numbers that decide about nothing but values."""
    few = _FEW if tensor.data_type in _SHAPE_TYPES else 1
    return tensor.data_type != onnx.TensorProto.STRING and math.prod(tensor.dims) > few


def _find_sizing(graph: Any) -> set[str]:
    """The constants of a graph that decide about sizes although they are no integers."""
    reads = ((node, _SIZING.get(node.op_type, ())) for node in graph.node)
    return {
        name for node, places in reads for place in places for name in node.input[place : place + 1] if name
    }


def is_stripped(tensor: ir.TensorProtocol) -> bool:
    """Whether a constant of a decompressed structure stands without its numbers."""
    return isinstance(tensor, ir.ExternalTensor) or tensor.doc_string == _NOWHERE


def _strip_graph(graph: Any) -> None:
    """Take from nodes and bodies what tells of the machine, and zero the weights that only stand inside."""
    graph.ClearField("doc_string")
    sizing = _find_sizing(graph)
    for node in graph.node:
        node.ClearField("doc_string")
        names = [
            (p.key, p.value) for p in node.metadata_props if p.key.startswith(_OURS) or p.key in MODULE_KEYS
        ]
        node.ClearField("metadata_props")
        for key, value in names:
            node.metadata_props.add(key=key, value=value)
        for attribute in node.attribute:
            bodies = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
            tensors = [*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])]
            for tensor in (*tensors, *(t for body in bodies for t in body.initializer)):
                if _is_weight(tensor) and sizing.isdisjoint((tensor.name, *node.output)):
                    zeros = onnx.TensorProto(
                        name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, doc_string=_NOWHERE
                    )
                    bits = ir.DataType(tensor.data_type).bitwidth
                    zeros.raw_data = bytes((math.prod(tensor.dims) * bits + 7) // 8)
                    tensor.CopyFrom(zeros)
            for body in bodies:
                _strip_graph(body)


def _unpack_graph(recorded_graph: RecordedGraph, name: str) -> Model:
    """The model of a packed structure; ``ReadError`` where it is damaged, or grows to more than a structure has."""
    try:
        compressed = base64.b64decode(recorded_graph.onnx, validate=True)
        return decompress_structure(compressed, recorded_graph.name, recorded_graph.shapes)
    except (binascii.Error, lzma.LZMAError, EOFError, ModelError) as error:
        raise contents.fault("build", name, f"its graph is damaged ({error})", "a whole graph") from error


def decompress_structure(compressed: bytes, name: str, shapes: Mapping[str, tuple[int, ...] | int]) -> Model:
    """The model of a compressed structure, whose weights cannot be read.

    Raises:
        LZMAError: it is damaged.
        EOFError: it is cut, or grows to more than a structure has.
        ModelError: it is no model.
    """
    unpacker = lzma.LZMADecompressor(memlimit=_UNPACKED)
    content = unpacker.decompress(compressed, _UNPACKED)
    if not unpacker.eof:
        raise EOFError("it is cut or too large")
    return load(content, name=name, shapes=shapes, weights=False)
