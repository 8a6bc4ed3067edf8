"""One execution context with its stream and its memory: what one inference at a time needs.

Polygraphy's ``TrtRunner`` is not used: its time of an inference holds the copies from the host and back, and it sets no
profiler, so that layers have no times (0.53.6). Streams and memory are its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rtlab.backends.workers import refusals
from rtlab.backends.workers.driver import Device
from rtlab.core.phrases import quote_names
from rtlab.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from rtlab.core.options import Shapes


#: Members of DataType: rtlab's name and NumPy's type.
_TYPES: dict[str, tuple[str, Any]] = {
    "FLOAT": ("fp32", np.float32),
    "HALF": ("fp16", np.float16),
    "BF16": ("bf16", ml_dtypes.bfloat16),
    "INT8": ("int8", np.int8),
    "INT32": ("int32", np.int32),
    "INT64": ("int64", np.int64),
    "BOOL": ("bool", np.bool_),
    "UINT8": ("uint8", np.uint8),
    "FP8": ("fp8", ml_dtypes.float8_e4m3fn),
    "INT4": ("int4", ml_dtypes.int4),
    "FP4": ("fp4", ml_dtypes.float4_e2m1fn),
    "E8M0": ("e8m0", ml_dtypes.float8_e8m0fnu),
}
_HALF_BYTE = frozenset({"INT4", "FP4"})


@dataclasses.dataclass(frozen=True)
class OpenSpec:
    """A plan to open; ``device`` is the GPU that the parent found.

    ``binding`` is ``tensorrt`` or ``tensorrt_rtx``, ``product`` its name for people, ``cuda`` the module that reaches
    the CUDA runtime.
    """

    binding: str
    product: str
    plan: bytes
    error_prefix: str
    device: Device | None = None
    cuda: str = "polygraphy.cuda"


@dataclasses.dataclass(frozen=True)
class EnginePort:
    """An input (``is_input``) or output of an engine.

    ``type`` and ``format`` are members of DataType and TensorFormat; ``shape`` has -1 where a dimension is dynamic.
    ``ranges`` holds least, usual and greatest shape for each optimization profile of an input.
    """

    name: str
    is_input: bool
    type: str
    format: str
    shape: tuple[int, ...]
    host: bool
    ranges: tuple[Shapes, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """Whether its shape must be set before a run."""
        return -1 in self.shape

    @property
    def dtype(self) -> str:
        """Its type in rtlab's names."""
        return _TYPES[self.type][0] if self.type in _TYPES else self.type.lower()


@dataclasses.dataclass
class OpenEngine:
    """The engine that this process keeps, with what it needs to be run."""

    spec: OpenSpec
    trt: Any
    cuda: Any
    runtime: Any
    engine: Any
    logger: Any
    lines: list[str]

    def create_error(self, what: str) -> Exception:
        """The error for a failure, with what was logged."""
        return refusals.create_run_error(self.spec.error_prefix, what, self.lines)


def list_ports(trt: Any, engine: Any) -> tuple[EnginePort, ...]:
    """Inputs and outputs in the engine's order."""
    io_ports = []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        reads = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        host = engine.get_tensor_location(name) == trt.TensorLocation.HOST
        # For a tensor of shapes on the host, profiles bound its values, not its own shape.
        profiles = engine.num_optimization_profiles if reads and not host else 0
        ranges = []
        for profile in range(profiles):
            min_shape, opt_shape, max_shape = engine.get_tensor_profile_shape(name, profile)
            ranges.append((tuple(min_shape), tuple(opt_shape), tuple(max_shape)))
        io_ports.append(
            EnginePort(
                name=name,
                is_input=reads,
                type=engine.get_tensor_dtype(name).name,
                format=engine.get_tensor_format(name).name,
                shape=tuple(engine.get_tensor_shape(name)),
                host=host,
                ranges=tuple(ranges),
            )
        )
    return tuple(io_ports)


class ExecutionContext:
    """A context, a stream and memory; leaving the block waits for the stream and gives all of it back."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self._open_engine = open_engine
        self._stack = contextlib.ExitStack()
        self._host: dict[str, NDArray[Any]] = {}
        self._device: dict[str, int] = {}
        self._allocator: Any = None
        self.ports = list_ports(open_engine.trt, open_engine.engine)
        self.context: Any = None
        self.stream: Any = None

    def __enter__(self) -> Self:
        """Make the context and the stream."""
        cuda, engine = self._open_engine.cuda, self._open_engine.engine
        context = engine.create_execution_context()
        if context is None:
            raise self._open_engine.create_error("no execution context could be made")
        self.context = context
        self.stream = self._stack.enter_context(cuda.Stream())
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what still runs, then free memory and stream."""
        from polygraphy.exception import PolygraphyException

        # After a failure the stream fails again; the first error is the one to tell.
        with contextlib.suppress(PolygraphyException):
            self.stream.synchronize()
        self.context = None
        buffers = () if self._allocator is None else self._allocator.buffers.values()
        with contextlib.suppress(PolygraphyException):
            for pointer in (*self._device.values(), *(pointer for pointer, _ in buffers)):
                self._open_engine.cuda.wrapper().free(pointer)
        with contextlib.suppress(PolygraphyException):
            self._stack.close()

    def feed(self, feed: Mapping[str, NDArray[Any]]) -> None:
        """Copy one batch to the device and make room for the outputs.

        Raises:
            RunError: an input is missing, unknown, of another type, or out of range.
        """
        self._check(feed)
        context, stream = self.context, self.stream
        number = self._select_profile(feed)
        if number and not context.set_optimization_profile_async(number, stream.ptr):
            raise self._open_engine.create_error(f"optimization profile {number} was refused")
        for port in [port for port in self.ports if port.is_input]:
            raw = pack(feed[port.name], port.type)
            if not context.set_input_shape(port.name, tuple(feed[port.name].shape)):
                raise self._open_engine.create_error(f'the shape of input "{port.name}" was refused')
            # Bytes on the host live as long as the lane, because copies are asynchronous.
            self._host[port.name] = raw
            if port.host:
                self._set_address(port.name, raw.ctypes.data)
                continue
            pointer = self._malloc(port.name, raw.nbytes)
            if raw.nbytes:
                self._open_engine.cuda.wrapper().memcpy(
                    pointer,
                    raw.ctypes.data,
                    raw.nbytes,
                    self._open_engine.cuda.MemcpyKind.HostToDevice,
                    stream_ptr=self.stream.ptr,
                )
            self._set_address(port.name, pointer)
        missing = context.infer_shapes()
        if missing:
            raise self._open_engine.create_error(f'shapes stay unknown for lack of "{missing[0]}"')
        for port in self.ports:
            if not port.is_input:
                self._allocate_output(port)

    def run(self) -> None:
        """Enqueue one inference."""
        if not self.context.execute_async_v3(self.stream.ptr):
            raise self._open_engine.create_error("the inference was refused")

    def copy_tensors(self) -> dict[str, NDArray[Any]]:
        """Inputs and outputs of the last inference, whose stream is synchronized."""
        wrapper, kinds = self._open_engine.cuda.wrapper(), self._open_engine.cuda.MemcpyKind
        tensors = {}
        for port in self.ports:
            shape = tuple(self.context.get_tensor_shape(port.name))
            pointer = self._device.get(port.name)
            if -1 in shape:
                if self._allocator.error or port.name not in self._allocator.shapes:
                    raise self._open_engine.create_error(
                        self._allocator.error or f'output "{port.name}" was not written'
                    )
                shape = self._allocator.shapes[port.name]
                pointer = self._allocator.buffers[port.name][0]
            if port.host or port.is_input:
                raw = self._host[port.name][: count_bytes(port.type, shape)].copy()
            else:
                raw = allocate_array(port.type, shape)
                if raw.nbytes:
                    wrapper.memcpy(raw.ctypes.data, pointer, raw.nbytes, kinds.DeviceToHost)
            tensors[port.name] = unpack(raw, port.type, shape)
        return tensors

    def _check(self, feed: Mapping[str, NDArray[Any]]) -> None:
        error_prefix = self._open_engine.spec.error_prefix
        names = [port.name for port in self.ports if port.is_input]
        if different := sorted(set(names).symmetric_difference(feed)):
            raise RunError(
                f'{error_prefix}: input "{different[0]}" is {"missing" if different[0] in names else "unknown"}. Give '
                f"all inputs of the engine, and no others: {quote_names(names) or 'none'}."
            )
        for port in self.ports:
            if port.format != "LINEAR":
                raise RunError(
                    f'{error_prefix}: "{port.name}" has the memory layout "{port.format}", and rtlab gives and takes '
                    "linear tensors only. Build the engine without formats of its own for inputs and outputs."
                )
            dtype = get_dtype(port.type)
            if port.is_input and feed[port.name].dtype != dtype:
                raise RunError(
                    f'{error_prefix}: input "{port.name}" is {feed[port.name].dtype}, and the engine takes {dtype}. '
                    f'Convert it with .astype("{dtype}").'
                )

    def _select_profile(self, feed: Mapping[str, NDArray[Any]]) -> int:
        """The first optimization profile that takes these shapes."""
        bounded_ports = [port for port in self.ports if port.ranges]
        fits = [[_fits(feed[p.name].shape, bounds) for bounds in p.ranges] for p in bounded_ports]
        for number, profile_fits in enumerate(zip(*fits, strict=True)):
            if all(profile_fits):
                return number
        if not bounded_ports:
            return 0
        port = next((p for p, own in zip(bounded_ports, fits, strict=True) if not any(own)), bounded_ports[0])
        shape, ranges = _format_shape(feed[port.name].shape), dict.fromkeys(map(_format_range, port.ranges))
        raise RunError(
            f'{self._open_engine.spec.error_prefix}: input "{port.name}" has shape {shape}, and the engine takes '
            f"{'; '.join(ranges)}. Give a batch within that, or build with an optimization profile that holds it: "
            f'profiles=[{{"{port.name}": (least, usual, most)}}].'
        )

    def _allocate_output(self, port: EnginePort) -> None:
        context = self.context
        shape = tuple(context.get_tensor_shape(port.name))
        if -1 in shape:
            # Its values decide how large it is: TensorRT asks for memory during the run.
            self._allocator = self._allocator or _create_allocator(self._open_engine)
            if not context.set_output_allocator(port.name, self._allocator):
                raise self._open_engine.create_error(f'memory for output "{port.name}" was refused')
            return
        nbytes = count_bytes(port.type, shape)
        if port.host:
            self._host[port.name] = np.zeros(max(1, nbytes), np.uint8)
            self._set_address(port.name, self._host[port.name].ctypes.data)
        else:
            self._set_address(port.name, self._malloc(port.name, nbytes))

    def _malloc(self, name: str, nbytes: int) -> int:
        # An empty tensor needs an address too.
        pointer = int(self._open_engine.cuda.wrapper().malloc(max(1, nbytes)))
        self._device[name] = pointer
        return pointer

    def _set_address(self, name: str, pointer: int) -> None:
        if not self.context.set_tensor_address(name, pointer):
            raise self._open_engine.create_error(f'the memory of "{name}" was refused')


def _create_allocator(open_engine: OpenEngine) -> Any:
    trt, wrapper = open_engine.trt, open_engine.cuda.wrapper()

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc,name-defined,unused-ignore] # base of the untyped binding
        """Gives memory to outputs whose size is known during the run only."""

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.buffers: dict[str, tuple[int, int]] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}
            self.error = ""

        def reallocate_output_async(self, tensor_name: str, *sizes: Any) -> int:
            return self.reallocate_output(tensor_name, *sizes[:3])

        def reallocate_output(self, tensor_name: str, memory: Any, size: int, alignment: int) -> int:  # noqa: ARG002
            pointer, capacity = self.buffers.get(tensor_name, (0, 0))
            if size > capacity or not pointer:
                try:
                    if pointer:
                        wrapper.free(pointer)
                        del self.buffers[tensor_name]
                    pointer = int(wrapper.malloc(max(1, size)))
                except Exception as error:  # noqa: BLE001 - no memory is told by a null pointer
                    self.error = str(error).split(". To figure out")[0]
                    return 0
                self.buffers[tensor_name] = pointer, size
            return pointer

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shapes[tensor_name] = tuple(shape)

    return Allocator()


def _fits(shape: tuple[int, ...], bounds: Shapes) -> bool:
    min_shape, _, max_shape = bounds
    return len(shape) == len(min_shape) and all(
        a <= n <= b for a, n, b in zip(min_shape, shape, max_shape, strict=True)
    )


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _format_range(bounds: Shapes) -> str:
    return " to ".join(dict.fromkeys(map(_format_shape, bounds[::2])))


def get_dtype(member: str) -> np.dtype[Any]:
    """NumPy's type of a member of DataType."""
    numpy_dtype: np.dtype[Any] = np.dtype(_TYPES[member][1])
    return numpy_dtype


def count_bytes(member: str, shape: tuple[int, ...]) -> int:
    """Bytes of a dense tensor."""
    count = math.prod(shape)
    return (count + 1) // 2 if member in _HALF_BYTE else count * get_dtype(member).itemsize


def allocate_array(member: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Memory on the host that takes what is copied from the device; ``unpack`` makes it a tensor."""
    return np.empty(count_bytes(member, shape), dtype=np.uint8)


def unpack(raw: NDArray[Any], member: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Bytes as the tensor that they are; of two 4-bit values in a byte, the first is the lower half."""
    if member not in _HALF_BYTE:
        return raw.view(get_dtype(member)).reshape(shape)
    halves = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    if member == "INT4":
        return ((halves ^ 8).astype(np.int8) - 8).astype(ml_dtypes.int4).reshape(shape)
    values: NDArray[Any] = halves.view(ml_dtypes.float4_e2m1fn).reshape(shape)
    return values


def pack(value: NDArray[Any], member: str) -> NDArray[Any]:
    """A tensor as the bytes that the device gets."""
    flat = np.ascontiguousarray(value).reshape(-1)
    if member not in _HALF_BYTE:
        return flat.view(np.uint8)
    halves = (flat.astype(np.int8).view(np.uint8) if member == "INT4" else flat.view(np.uint8)) & 15
    halves = np.append(halves, np.zeros(len(halves) % 2, np.uint8))
    packed_bytes: NDArray[Any] = halves[::2] | (halves[1::2] << 4)
    return packed_bytes
