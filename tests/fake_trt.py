"""A stand-in for TensorRT on a machine without a GPU: ``fake_trt.trt10``, ``fake_trt.trt11`` and ``fake_trt.rtx``.

The names are those of the three real bindings (``tensorrt_api``): whatever is not listed does not exist, and calls are
checked against the listed signatures. Behind the names that the runtime needs stands a small real implementation: plans
hold an ONNX model that the reference evaluator computes, device memory is its own address space, streams do their work
when they are waited for, and so a forgotten wait shows garbage. Polygraphy's CUDA wrapper is the real one over a fake
CUDA runtime. rtlab imports this module by name, as it imports the real ones; nothing of rtlab is patched.
"""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import enum
import functools
import json
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import tensorrt_api

BINDINGS = ("fake_trt.trt10", "fake_trt.trt11", "fake_trt.rtx")
MAGIC = b"fake plan\n"
#: Compute capability of the GPU that is "here".
HERE = "8.6"
_PLAIN_TYPES: dict[str, Any] = {
    "str": str, "bool": bool, "tuple": tuple, "list": list, "bytes": bytes, "typing.SupportsFloat": (int, float),
    "typing_extensions.Buffer": (bytes, bytearray, memoryview),
}  # fmt: skip
_SEVERITIES = ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE")
_BY_NUMPY = {
    "float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16", "int8": "INT8", "uint8": "UINT8", "int32": "INT32",
    "int64": "INT64", "bool": "BOOL", "float8_e4m3fn": "FP8", "int4": "INT4", "float4_e2m1fn": "FP4",
}  # fmt: skip


class Gpu:
    """Device memory and streams. Addresses are none of this process, so that touching one without a copy is fatal."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.streams: dict[int, list[Callable[[], None]]] = {}
        self.limit = 1 << 30
        self.done = 0
        #: From now on, waiting for a stream fails with this code.
        self.fault = 0
        self._next, self._handle = 0x7000_0000_0000, 0x100

    def allocate(self, nbytes: int) -> int | None:
        if sum(len(m) for m in self.memory.values()) + nbytes > self.limit:
            return None
        address = self._next
        self._next += (nbytes + 511) // 256 * 256
        # Fresh memory holds garbage, not zeros.
        self.memory[address] = np.full(nbytes, 0xA5, np.uint8)
        return address

    def view(self, address: int, nbytes: int) -> np.ndarray:
        for start, block in self.memory.items():
            if start <= address and address + nbytes <= start + len(block):
                return block[address - start : address - start + nbytes]
        raise MemoryError(f"{nbytes} bytes at {address:#x} are not allocated")

    def wait(self, stream: int) -> None:
        work, self.streams[stream] = self.streams[stream], []
        for step in work:
            step()


class Cudart:
    """The functions of libcudart that Polygraphy calls, with the arguments that it gives them; results are codes."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def cudaStreamCreate(self, out):  # noqa: N802 - CUDA's name, as are those that follow
        self.gpu._handle += 8
        self.gpu.streams[self.gpu._handle] = []
        out._obj.value = self.gpu._handle
        return 0

    def cudaStreamSynchronize(self, stream):  # noqa: N802
        if self.gpu.fault:
            return self.gpu.fault
        if stream.value not in self.gpu.streams:
            return 400
        self.gpu.wait(stream.value)
        return 0

    def cudaStreamDestroy(self, stream):  # noqa: N802
        return 0 if self.gpu.streams.pop(stream.value, None) is not None else 400

    def cudaMalloc(self, out, nbytes):  # noqa: N802
        address = self.gpu.allocate(nbytes.value)
        out._obj.value = address
        return 0 if address is not None else 2

    def cudaFree(self, pointer):  # noqa: N802
        return 0 if pointer.value is None or self.gpu.memory.pop(pointer.value, None) is not None else 1

    def cudaMemcpy(self, to, source, nbytes, kind):  # noqa: N802
        return self._copy(to.value, source.value, nbytes.value, kind.value, None)

    def cudaMemcpyAsync(self, to, source, nbytes, kind, stream):  # noqa: N802
        return self._copy(to.value, source.value, nbytes.value, kind.value, stream.value)

    def _copy(self, to, source, nbytes, kind, stream):
        if stream is not None and stream not in self.gpu.streams:
            return 400
        try:
            device = self.gpu.view({1: to, 2: source}[kind], nbytes)
        except (KeyError, MemoryError) as error:
            return 21 if isinstance(error, KeyError) else 1
        # The source of pageable memory is read at once, whenever the copy arrives.
        data = np.frombuffer(ctypes.string_at(source, nbytes), np.uint8) if kind == 1 else None

        def step():
            if data is None:
                ctypes.memmove(to, device.tobytes(), nbytes)
            else:
                device[:] = data

        if stream is None:
            step()
        else:
            self.gpu.streams[stream].append(step)
        return 0


gpu = Gpu()


def wrapper():
    from polygraphy.cuda import cuda

    if cuda.G_CUDA is None or not isinstance(cuda.G_CUDA.handle, Cudart):
        cuda.G_CUDA = cuda.Cuda.__new__(cuda.Cuda)
        cuda.G_CUDA.handle = Cudart(gpu)
    return cuda.G_CUDA


def __getattr__(name: str) -> Any:
    if name in {"Stream", "MemcpyKind"}:
        import polygraphy.cuda

        wrapper()
        return getattr(polygraphy.cuda, name)
    raise AttributeError(name)


@dataclasses.dataclass(frozen=True)
class Spec:
    """What a fake plan holds.

    ``layers`` is the inspector's text, ``rows`` what a profiler hears. ``inner`` are the tensors that fusion left
    (None where the plan was built without debug tensors), ``marked`` those marked by name. ``faults`` maps a moment
    (``deserialize``, ``context``, ``shape``, ``enqueue``, ``listener``, ``report``, ``profile``) to what is logged.
    """

    binding: str
    model: bytes
    layers: str
    rows: tuple[tuple[str, float], ...] = ()
    profiles: tuple[dict[str, Any], ...] = ()
    inner: tuple[str, ...] | None = ()
    marked: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    formats: dict[str, str] = dataclasses.field(default_factory=dict)
    version: str = ""
    sm: str = HERE
    faults: dict[str, str] = dataclasses.field(default_factory=dict)


def plan(spec: Spec) -> bytes:
    told = dataclasses.asdict(spec)
    told["model"] = base64.b64encode(spec.model).decode()
    told["version"] = spec.version or api(spec.binding).version
    return MAGIC + json.dumps(told).encode() + b"end"


def layers_of(model: onnx.ModelProto, groups: list[list[str]], *, era: int = 10) -> str:
    graph = model.graph
    nodes = {n.name: n for n in graph.node}
    weights = {w.name for w in graph.initializer}
    kind = {"Format": "Row major linear", "Datatype": "Float"}
    if era < 11:
        kind = {"Format/Datatype": "Row major linear FP32"}

    def tensor(name: str, **more: str) -> dict[str, Any]:
        return {"Name": name, "Dimensions": [1, 4], **kind, **more}

    layers = []
    for group in groups:
        inside = {o for n in group for o in nodes[n].output}
        layers.append({
            "Name": " + ".join(group),
            "LayerType": "kgen",
            "Inputs": [tensor(i) for n in group for i in nodes[n].input if i not in weights | inside],
            "Outputs": [tensor(o) for o in nodes[group[-1]].output],
            "TacticName": "fake",
            "StreamId": 0,
            "Metadata": "\x1e".join(f"[ONNX Layer: {n}]" for n in group),
        })  # fmt: skip
    edges = [(i.name, "Input") for i in graph.input] + [(o.name, "Output") for o in graph.output]
    top: dict[str, Any] = {"Layers": layers}
    if era >= 11:
        top["I/O Tensors"] = [tensor(name, IOMode=mode) for name, mode in edges]
    else:
        top["Bindings"] = [name for name, _ in edges]
    # The real writer leaves control characters as they are.
    return json.dumps(top, indent=1).replace("\\u001e", "\x1e")


class Api:
    """One binding: classes and enums with the names of its listing."""

    def __init__(self, name: str, listing: dict[str, Any]) -> None:
        self.name, self.version = name, listing["version"]
        self.rtx = "rtx" in name
        self.severity = enum.IntEnum("Severity", _SEVERITIES, start=0)
        self.classes = {cls: self._class(cls, members) for cls, members in listing["classes"].items()}
        self.functions = {f: self._function(f, signatures) for f, signatures in listing["functions"].items()}

    def module(self) -> types.ModuleType:
        made = types.ModuleType(self.name)
        vars(made).update({"__version__": self.version, **self.classes, **self.functions})
        return made

    def wrap(self, cls: str, driver: Any) -> Any:
        made = object.__new__(self.classes[cls])
        vars(made).update(_driver=driver, _ready=True)
        return made

    def dims(self, values: Any) -> Any:
        return self.classes["Dims"](tuple(values))

    def _class(self, name: str, members: dict[str, Any]) -> Any:
        if "enum" in members:
            return enum.IntEnum(name, members["enum"], start=0)
        if name.startswith("Dims"):
            return type(name, (tuple,), {"MAX_DIMS": 8})
        made: Any = type(
            name, (), {m: self._member(name, m, k) for m, k in members.items() if m != "__init__"}
        )
        signatures = members["__init__"]
        properties = {m for m, kind in members.items() if kind == "property"}

        def __init__(this, *given, **named):  # noqa: N807 - it becomes one
            if not isinstance(signatures, list):
                raise TypeError(f"{name}: No constructor defined!")
            bound = self.bind(f"{name}.__init__", signatures, (this, *given), named)
            vars(this)["_ready"] = True
            if name in _DRIVERS:
                vars(this)["_driver"] = _DRIVERS[name](self, **bound)

        def __setattr__(this, attribute, value):  # noqa: N807
            if type(this) is made and attribute not in properties:
                raise AttributeError(f"'{name}' object has no attribute '{attribute}'")
            object.__setattr__(this, attribute, value)

        made.__init__, made.__setattr__ = __init__, __setattr__
        return made

    def _member(self, cls: str, name: str, kind: Any) -> Any:
        if kind == "property":
            return property(functools.partial(_get, name), functools.partial(_set, name))
        if not isinstance(kind, list):
            return self.severity if name == "Severity" else getattr(self.severity, name, None)
        first = tensorrt_api.parameters(kind[0])
        if first is not None and [p[0] for p in first[:1]] != ["self"]:
            return staticmethod(
                lambda *given, **named: _STATIC[f"{cls}.{name}"](self, **self.bind(name, kind, given, named))
            )

        def method(this, *given, **named):
            return _get(name, this)(**self.bind(f"{cls}.{name}", kind, (this, *given), named))

        return method

    def _function(self, name: str, signatures: list[str]) -> Callable[..., Any]:
        def function(*given, **named):
            self.bind(name, signatures, given, named)
            if name == "init_libnvinfer_plugins":
                return True
            raise NotImplementedError(f"{name} is listed, but nothing stands behind it here")

        return function

    def bind(
        self, what: str, signatures: list[str], given: tuple[Any, ...], named: dict[str, Any]
    ) -> dict[str, Any]:
        """Arguments by name, as the first fitting signature has them; a TypeError like pybind's where none fits."""
        for signature in signatures:
            parameters = tensorrt_api.parameters(signature)
            if parameters is None:
                return named
            names = [p[0] for p in parameters]
            bound = dict(zip(names, given, strict=False)) | named
            if len(bound) < len(given) + len(named) or not bound.keys() <= set(names):
                continue
            if all(self._fits(bound, *parameter) for parameter in parameters):
                bound.pop("self", None)
                return bound
        raise TypeError(
            f"{what}(): incompatible function arguments. Supported: {signatures}; invoked with {given[1:]} {named}"
        )

    def _fits(self, bound: dict[str, Any], name: str, type_: str, default: str | None) -> bool:
        if name not in bound:
            return default is not None
        return name == "self" or self._is(bound[name], type_)

    def _is(self, value: Any, type_: str) -> bool:
        if type_ in _PLAIN_TYPES:
            return isinstance(value, _PLAIN_TYPES[type_])
        if type_ == "typing.SupportsInt":
            return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, enum.Enum))
        last = type_.rsplit(".", 1)[-1]
        cls = self.severity if last == "Severity" else self.classes.get(last)
        if cls is None or "[" in type_:
            return True
        if value is None:
            return not issubclass(cls, enum.Enum)
        if last == "Dims":
            # The real bindings make dimensions of any sequence of integers.
            return isinstance(value, (tuple, list))
        # An object whose base was never initialized is refused, as pybind does.
        return isinstance(value, cls) and (issubclass(cls, enum.Enum) or vars(value).get("_ready", False))


def _get(name: str, this: Any) -> Any:
    driver = vars(this).get("_driver")
    if driver is None or not hasattr(driver, name):
        raise NotImplementedError(
            f"{type(this).__name__}.{name} is listed, but nothing stands behind it here"
        )
    return getattr(driver, name)


def _set(name: str, this: Any, value: Any) -> None:
    _get(name, this)
    setattr(vars(this)["_driver"], name, value)


class _Runtime:
    def __init__(self, api: Api, logger: Any) -> None:
        self.api, self.logger = api, logger

    def log(self, severity: str, message: str) -> None:
        self.logger.log(self.api.severity[severity], message)

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Any:
        data = bytes(serialized_engine)
        spec = json.loads(data[len(MAGIC) : -3]) if data.startswith(MAGIC) and data.endswith(b"end") else None
        refused = self._refusal(data, spec)
        if refused:
            self.log("ERROR", refused)
            return None
        return self.api.wrap("ICudaEngine", _Engine(self, spec))

    def _refusal(self, data: bytes, spec: Any) -> str:
        where = "IRuntime::deserializeCudaEngine: Error Code"
        if not data.startswith(MAGIC):
            return (
                f"{where} 1: Serialization (Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed."
                "Trying to load an engine created with incompatible serialization version (1 != 2)."
            )
        if spec is None:
            return f"{where} 1: Serialization (Serialization assertion plan.header.size == blobSize failed.)"
        here, there = self.api.version, spec["version"]
        if "deserialize" in spec["faults"]:
            return str(spec["faults"]["deserialize"])
        if (there, spec["binding"]) == (here, self.api.name):
            if spec["sm"] == HERE:
                return ""
            return (
                f"{where} 6: API Usage Error (The engine plan file is generated on an incompatible device, expecting "
                f"compute {HERE} got compute {spec['sm']}, please rebuild.)"
            )
        if self.api.rtx:
            self.log(
                "INFO",
                f"The engine has been created with TensorRT-RTX version {there}, but the current runtime is "
                f"TensorRT-RTX version {here}. Rebuild the engine.",
            )
            return (
                f"{where} 1: Internal Error (Failed due to an old deserialization call on a newer plan file.)"
            )
        if here.startswith("11"):
            return (
                f"{where} 6: The engine plan file is not compatible with this version of TensorRT, expecting library "
                f"version {here} got {there}, please rebuild."
            )
        return (
            f"{where} 1: Serialization (Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed."
            "Version tag does not match. Note: Current Version: 239, Serialized Engine Version: 236)"
        )


class _Engine:
    def __init__(self, runtime: _Runtime, spec: dict[str, Any]) -> None:
        self.runtime, self.api, self.spec = runtime, runtime.api, spec
        self.model = onnx.load_from_string(base64.b64decode(spec["model"]))
        graph = self.model.graph
        self.inputs = {i.name: i for i in graph.input}
        self.io = {**self.inputs, **{o.name: o for o in graph.output}}
        self.evaluator = ReferenceEvaluator(self.model)
        enums = self.api.classes
        self.name = "fake"
        self.num_io_tensors = len(self.io)
        self.num_optimization_profiles = max(1, len(spec["profiles"]))
        self.num_aux_streams = 2
        self.device_memory_size_v2 = 4096
        self.profiling_verbosity = enums["ProfilingVerbosity"].DETAILED

    def fails(self, moment: str) -> bool:
        said = self.spec["faults"].get(moment)
        if said:
            self.runtime.log("ERROR", said)
        return said is not None

    def create_execution_context(self, **_: Any) -> Any:
        return None if self.fails("context") else self.api.wrap("IExecutionContext", _Context(self))

    def create_engine_inspector(self) -> Any:
        return self.api.wrap("EngineInspector", _Inspector(self))

    def get_engine_stat(self, stat: Any) -> int:
        return 1000 + int(stat)

    def get_tensor_name(self, index: int) -> str:
        return list(self.io)[index]

    def get_tensor_mode(self, name: str) -> Any:
        modes = self.api.classes["TensorIOMode"]
        return modes.INPUT if name in self.inputs else modes.OUTPUT if name in self.io else modes.NONE

    def get_tensor_location(self, name: str) -> Any:
        places = self.api.classes["TensorLocation"]
        return places.HOST if name in self.spec["host"] else places.DEVICE

    def get_tensor_dtype(self, name: str) -> Any:
        return self.api.classes["DataType"][_BY_NUMPY[self.numpy(name).name]]

    def numpy(self, name: str) -> np.dtype:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(self.io[name].type.tensor_type.elem_type))

    def get_tensor_format(self, name: str) -> Any:
        return self.api.classes["TensorFormat"][self.spec["formats"].get(name, "LINEAR")]

    def get_tensor_shape(self, name: str) -> Any:
        dims = self.io[name].type.tensor_type.shape.dim
        return self.api.dims(d.dim_value if d.HasField("dim_value") else -1 for d in dims)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Any]:
        return [self.api.dims(s) for s in self.bounds(name, profile_index)]

    def bounds(self, name: str, profile: int) -> Any:
        profiles = self.spec["profiles"]
        given = profiles[profile].get(name) if profiles else None
        return given or [tuple(self.get_tensor_shape(name))] * 3

    def is_debug_tensor(self, name: str) -> bool:
        return name in self.spec["marked"]


class _Inspector:
    def __init__(self, engine: _Engine) -> None:
        self.engine, self.execution_context = engine, None

    def get_engine_information(self, format: Any) -> str:  # noqa: A002 - the binding's name
        text = self.engine.spec["layers"]
        context = self.execution_context
        if context is None or context._driver.infer_shapes():
            # Without shapes, dimensions are not known.
            return re.sub(r'("Dimensions": )\[[^\]]*\]', r"\1[-1]", text)
        return text


class _Context:
    def __init__(self, engine: _Engine) -> None:
        self.engine, self.api = engine, engine.api
        self.active = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.allocators: dict[str, Any] = {}
        self.profiler: Any = None
        self.enqueue_emits_profile = True
        self.listener: Any = None
        self.states: dict[str, bool] = {}
        self.unfused_tensors_debug_state = False
        self.runs, self.unreported = 0, False
        #: Inputs and all values of the last inference: the evaluator is slow.
        self.computed: tuple[Any, dict[str, np.ndarray]] | None = None
        self.stream = 0

    def set_input_shape(self, name: str, shape: Any) -> bool:
        shape = tuple(shape)
        if self.engine.fails("shape") or name not in self.engine.inputs:
            return False
        if name not in self.engine.spec["host"]:
            least, _, most = self.engine.bounds(name, self.active)
            if len(shape) != len(least) or not all(
                a <= n <= b for a, n, b in zip(least, shape, most, strict=True)
            ):
                self.engine.runtime.log(
                    "ERROR", f"IExecutionContext::setInputShape: Error Code 3: {name} {shape}"
                )
                return False
        self.shapes[name] = shape
        return True

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.active, self.shapes = profile_index, {}
        return stream_handle in gpu.streams and not self.engine.fails("profile")

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.addresses[name] = memory
        return memory != 0

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        self.allocators[name] = output_allocator
        return True

    def infer_shapes(self) -> list[str]:
        dynamic = [n for n in self.engine.inputs if -1 in self.engine.get_tensor_shape(n)]
        return [n for n in dynamic if n not in self.shapes]

    def get_tensor_shape(self, name: str) -> Any:
        if name in self.engine.spec["unknown"]:
            return self.api.dims([-1])
        if name in self.engine.inputs:
            return self.api.dims(self.shapes.get(name, self.engine.get_tensor_shape(name)))
        zeros = {n: np.zeros(self.get_tensor_shape(n), self.engine.numpy(n)) for n in self.engine.inputs}
        if self.engine.spec["host"]:
            zeros |= {n: self._read(n) for n in self.engine.spec["host"] if n in self.engine.inputs}
        return self.api.dims(self.engine.evaluator.run([name], zeros)[0].shape)

    def set_debug_listener(self, listener: Any) -> bool:
        self.listener = listener
        return not self.engine.fails("listener")

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        self.states[name] = flag
        return name in self.engine.spec["marked"]

    def report_to_profiler(self) -> bool:
        # Times of layers exist once the inference is done.
        if (
            self.profiler is None
            or not self.unreported
            or gpu.streams[self.stream]
            or self.engine.fails("report")
        ):
            return False
        self.unreported = False
        for name, milliseconds in self.engine.spec["rows"]:
            self.profiler.report_layer_time(name, milliseconds * (1 + 0.01 * (self.runs % 5)))
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        spec = self.engine.spec
        lost = [n for n in self.engine.io if not self.addresses.get(n) and n not in self.allocators]
        if lost or self.infer_shapes() or stream_handle not in gpu.streams:
            self.engine.runtime.log(
                "ERROR", f"IExecutionContext::enqueueV3: Error Code 3: address of {lost} is not set"
            )
            return False
        if self.engine.fails("enqueue"):
            return False
        self.stream, self.unreported = stream_handle, True
        self.runs += 1
        gpu.streams[stream_handle].append(self._work)
        if self.profiler is not None and self.enqueue_emits_profile:
            gpu.wait(stream_handle)
            self.report_to_profiler()
        if self.listener is not None and (self.states or self.unfused_tensors_debug_state):
            # The listener must wait for the stream by itself, or it copies garbage.
            for name in dict.fromkeys([*spec["marked"], *(spec["inner"] or ())]):
                if self.states.get(name) or (
                    self.unfused_tensors_debug_state and name in (spec["inner"] or ())
                ):
                    self._show(name, stream_handle)
        return True

    def _values(self) -> dict[str, np.ndarray]:
        feed = {n: self._read(n) for n in self.engine.inputs}
        key = [(value.shape, value.tobytes()) for value in feed.values()]
        if self.computed is None or self.computed[0] != key:
            self.computed = key, self.engine.evaluator.run(None, feed, intermediate=True)
        return self.computed[1]

    def _work(self) -> None:
        gpu.done += 1
        values = self._values()
        for name in self.engine.io:
            if name in self.engine.inputs:
                continue
            value = np.asarray(values[name])
            raw = _pack(value)
            address = self.addresses.get(name, 0)
            if name in self.allocators:
                allocator = self.allocators[name]
                address = allocator.reallocate_output_async(name, None, max(1, raw.nbytes), 256, self.stream)
                if not address:
                    continue
                allocator.notify_shape(name, self.api.dims(value.shape))
            if name in self.engine.spec["host"]:
                ctypes.memmove(address, raw.tobytes(), raw.nbytes)
            elif address:
                gpu.view(address, raw.nbytes)[:] = raw

    def _show(self, name: str, stream: int) -> None:
        # All that came before on the stream is needed to know the shape here; the tensor itself arrives with a wait.
        work, gpu.streams[stream] = gpu.streams[stream], []
        for step in work:
            step()
        value = np.asarray(self._values()[name])
        raw = _pack(value)
        address = gpu.allocate(max(1, raw.nbytes))
        target = gpu.view(address, raw.nbytes)

        def arrive() -> None:
            target[:] = raw

        gpu.streams[stream].append(arrive)
        places, kinds = self.api.classes["TensorLocation"], self.api.classes["DataType"]
        kind = kinds[_BY_NUMPY[value.dtype.name]]
        try:
            told = self.listener.process_debug_tensor(
                address, places.DEVICE, kind, self.api.dims(value.shape), name, stream
            )
            if told is not True:
                raise TypeError(f"process_debug_tensor returned {told!r}, and True was expected")
        finally:
            # The memory is TensorRT's own and is used for other tensors afterwards.
            del gpu.memory[address]
            gpu.streams[stream] = [s for s in gpu.streams[stream] if s is not arrive]

    def _read(self, name: str) -> np.ndarray:
        shape, dtype = tuple(self.get_tensor_shape(name)), self.engine.numpy(name)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        address = self.addresses[name]
        if name in self.engine.spec["host"]:
            return np.frombuffer(ctypes.string_at(address, nbytes), dtype).reshape(shape)
        return gpu.view(address, nbytes).copy().view(dtype).reshape(shape)


def _pack(value: np.ndarray) -> np.ndarray:
    """The bytes of a tensor; 4-bit values two to a byte, the first in the lower half."""
    flat = np.ascontiguousarray(value).reshape(-1)
    if value.dtype.name not in {"int4", "float4_e2m1fn"}:
        return flat.view(np.uint8)
    nibbles = [
        int(x) & 15 for x in (flat.astype(np.int8) if value.dtype.name == "int4" else flat.view(np.uint8))
    ]
    nibbles += [0] * (len(nibbles) % 2)
    return np.array([a | b << 4 for a, b in zip(nibbles[::2], nibbles[1::2], strict=True)], np.uint8)


_DRIVERS: dict[str, Any] = {"Runtime": _Runtime}
_STATIC: dict[str, Callable[..., Any]] = {}


@functools.cache
def api(binding: str) -> Api:
    return Api(binding, tensorrt_api.listing(binding.partition(".")[2]))


if tensorrt_api.AVAILABLE:
    for _name in BINDINGS:
        sys.modules[_name] = api(_name).module()
