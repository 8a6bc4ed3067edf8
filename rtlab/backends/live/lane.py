"""One execution context with its stream and its memory: what one inference at a time needs.

Polygraphy's ``TrtRunner`` is not used: its time of an inference holds the copies from the host and back, and it sets no
profiler, so that layers have no times (0.53.6). Streams and memory are its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.live import refusals, values
from rtlab.backends.live.order import OpenOrder
from rtlab.core.phrases import quoted
from rtlab.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from rtlab.core.options import Shapes


@dataclasses.dataclass(frozen=True)
class EnginePort:
    """An input (``reads``) or output of an engine.

    ``type`` and ``format`` are members of DataType and TensorFormat; ``shape`` has -1 where a dimension is dynamic.
    ``ranges`` holds least, usual and greatest shape for each optimization profile of an input.
    """

    name: str
    reads: bool
    type: str
    format: str
    shape: tuple[int, ...]
    host: bool
    ranges: tuple[Shapes, ...] = ()

    @property
    def dynamic(self) -> bool:
        """Whether its shape must be set before a run."""
        return -1 in self.shape

    @property
    def dtype(self) -> str:
        """Its type in rtlab's names."""
        return values.name(self.type)


@dataclasses.dataclass
class OpenEngine:
    """The engine that this process keeps, with what it needs to be run; ``bus`` is the address of its GPU."""

    order: OpenOrder
    trt: Any
    cuda: Any
    runtime: Any
    engine: Any
    logger: Any
    lines: list[str]
    bus: str

    def failed(self, what: str) -> Exception:
        """The error for a failure, with what was logged."""
        return refusals.failed(self.order.doing, what, self.lines)


def ports(trt: Any, engine: Any) -> tuple[EnginePort, ...]:
    """Inputs and outputs in the engine's order."""
    found = []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        reads = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        host = engine.get_tensor_location(name) == trt.TensorLocation.HOST
        # For a tensor of shapes on the host, profiles bound its values, not its own shape.
        profiles = engine.num_optimization_profiles if reads and not host else 0
        ranges = []
        for profile in range(profiles):
            least, usual, most = engine.get_tensor_profile_shape(name, profile)
            ranges.append((tuple(least), tuple(usual), tuple(most)))
        found.append(
            EnginePort(
                name=name,
                reads=reads,
                type=engine.get_tensor_dtype(name).name,
                format=engine.get_tensor_format(name).name,
                shape=tuple(engine.get_tensor_shape(name)),
                host=host,
                ranges=tuple(ranges),
            )
        )
    return tuple(found)


class Lane:
    """A context, a stream and memory; leaving the block waits for the stream and gives all of it back."""

    def __init__(self, kept: OpenEngine) -> None:
        self._kept = kept
        self._stack = contextlib.ExitStack()
        self._host: dict[str, NDArray[Any]] = {}
        self._device: dict[str, int] = {}
        self._allocator: Any = None
        self.ports = ports(kept.trt, kept.engine)
        self.context: Any = None
        self.stream: Any = None

    def __enter__(self) -> Self:
        """Make the context and the stream."""
        cuda, engine = self._kept.cuda, self._kept.engine
        context = engine.create_execution_context()
        if context is None:
            raise self._kept.failed("no execution context could be made")
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
        if self._allocator is not None:
            for pointer, _ in self._allocator.buffers.values():
                self._device[f"allocated {pointer}"] = pointer
        with contextlib.suppress(PolygraphyException):
            for pointer in self._device.values():
                self._kept.cuda.wrapper().free(pointer)
        with contextlib.suppress(PolygraphyException):
            self._stack.close()

    def feed(self, feed: Mapping[str, NDArray[Any]]) -> None:
        """Copy one batch to the device and make room for the outputs.

        Raises:
            RunError: an input is missing, unknown, of another type, or out of range.
        """
        self._check(feed)
        context, stream = self.context, self.stream
        number = self._profile(feed)
        if number and not context.set_optimization_profile_async(number, stream.ptr):
            raise self._kept.failed(f"optimization profile {number} was refused")
        for port in self.ports:
            if not port.reads:
                continue
            value = feed[port.name]
            raw = values.raw(value, port.type)
            if not context.set_input_shape(port.name, tuple(value.shape)):
                raise self._kept.failed(f'the shape of input "{port.name}" was refused')
            # Bytes on the host live as long as the lane, because copies are asynchronous.
            self._host[port.name] = raw
            if port.host:
                context.set_tensor_address(port.name, raw.ctypes.data)
            else:
                self._copy_in(port.name, raw)
        missing = context.infer_shapes()
        if missing:
            raise self._kept.failed(f'shapes stay unknown for lack of "{missing[0]}"')
        for port in self.ports:
            if not port.reads:
                self._make_room(port)

    def run(self) -> None:
        """Enqueue one inference."""
        context = self.context
        if not context.execute_async_v3(self.stream.ptr):
            raise self._kept.failed("the inference was refused")

    def results(self) -> dict[str, NDArray[Any]]:
        """Inputs and outputs of the last inference, whose stream is synchronized."""
        wrapper, kinds = self._kept.cuda.wrapper(), self._kept.cuda.MemcpyKind
        found = {}
        for port in self.ports:
            shape = tuple(self.context.get_tensor_shape(port.name))
            pointer = self._device.get(port.name)
            if -1 in shape:
                if self._allocator.error or port.name not in self._allocator.shapes:
                    raise self._kept.failed(self._allocator.error or f'output "{port.name}" was not written')
                shape = self._allocator.shapes[port.name]
                pointer = self._allocator.buffers[port.name][0]
            if port.host or port.reads:
                raw = self._host[port.name][: values.size(port.type, shape)].copy()
            else:
                raw = values.array(port.type, shape)
                if raw.nbytes:
                    wrapper.memcpy(raw.ctypes.data, pointer, raw.nbytes, kinds.DeviceToHost)
            found[port.name] = values.unpacked(raw, port.type, shape)
        return found

    def _check(self, feed: Mapping[str, NDArray[Any]]) -> None:
        doing = self._kept.order.doing
        names = [port.name for port in self.ports if port.reads]
        listed = quoted(names) or "none"
        if missing := next((n for n in names if n not in feed), ""):
            raise RunError(f'{doing}: input "{missing}" is missing. Give all inputs of the engine: {listed}.')
        if unknown := next((n for n in feed if n not in names), ""):
            raise RunError(f'{doing}: the engine has no input "{unknown}". Its inputs are {listed}.')
        for port in self.ports:
            if port.format != "LINEAR":
                raise RunError(
                    f'{doing}: "{port.name}" has the memory layout "{port.format}", and rtlab gives and takes '
                    "linear tensors only. Build the engine without formats of its own for inputs and outputs."
                )
            wanted = values.dtype(port.type)
            if port.reads and feed[port.name].dtype != wanted:
                raise RunError(
                    f'{doing}: input "{port.name}" is {feed[port.name].dtype}, and the engine takes {wanted}. '
                    f'Convert it with .astype("{wanted}").'
                )

    def _profile(self, feed: Mapping[str, NDArray[Any]]) -> int:
        """The first optimization profile that takes these shapes."""
        bounded = [port for port in self.ports if port.ranges]
        count = max((len(port.ranges) for port in bounded), default=1)
        for number in range(count):
            if all(_fits(feed[port.name].shape, port.ranges[number]) for port in bounded):
                return number
        port = next(
            (p for p in bounded if not any(_fits(feed[p.name].shape, r) for r in p.ranges)), bounded[0]
        )
        told = "; ".join(
            (f"profile {i}: " if len(port.ranges) > 1 else "")
            + (_shape(least) if least == most else f"{_shape(least)} to {_shape(most)}")
            for i, (least, _, most) in enumerate(port.ranges)
        )
        raise RunError(
            f'{self._kept.order.doing}: input "{port.name}" has shape {_shape(feed[port.name].shape)}, and the engine '
            f"takes {told}. Give a batch within that, or build with an optimization profile that holds it: "
            f'profiles=[{{"{port.name}": (least, usual, most)}}].'
        )

    def _copy_in(self, name: str, raw: NDArray[Any]) -> None:
        wrapper, kinds = self._kept.cuda.wrapper(), self._kept.cuda.MemcpyKind
        pointer = self._malloc(name, raw.nbytes)
        if raw.nbytes:
            wrapper.memcpy(
                pointer, raw.ctypes.data, raw.nbytes, kinds.HostToDevice, stream_ptr=self.stream.ptr
            )
        self._address(name, pointer)

    def _make_room(self, port: EnginePort) -> None:
        context = self.context
        shape = tuple(context.get_tensor_shape(port.name))
        if -1 in shape:
            # Its values decide how large it is: TensorRT asks for memory during the run.
            self._allocator = self._allocator or _allocator(self._kept)
            if not context.set_output_allocator(port.name, self._allocator):
                raise self._kept.failed(f'memory for output "{port.name}" was refused')
            return
        nbytes = values.size(port.type, shape)
        if port.host:
            self._host[port.name] = np.zeros(max(1, nbytes), np.uint8)
            self._address(port.name, self._host[port.name].ctypes.data)
        else:
            self._address(port.name, self._malloc(port.name, nbytes))

    def _malloc(self, name: str, nbytes: int) -> int:
        # An empty tensor needs an address too.
        pointer = int(self._kept.cuda.wrapper().malloc(max(1, nbytes)))
        self._device[name] = pointer
        return pointer

    def _address(self, name: str, pointer: int) -> None:
        context = self.context
        if not context.set_tensor_address(name, pointer):
            raise self._kept.failed(f'the memory of "{name}" was refused')


def _allocator(kept: OpenEngine) -> Any:
    trt, wrapper = kept.trt, kept.cuda.wrapper()

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc,name-defined,unused-ignore] # base of the untyped binding
        """Gives memory to outputs whose size is known during the run only."""

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.buffers: dict[str, tuple[int, int]] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}
            self.error = ""

        def reallocate_output_async(
            self,
            tensor_name: str,
            memory: Any,
            size: int,
            alignment: int,
            stream: int,  # noqa: ARG002
        ) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def reallocate_output(self, tensor_name: str, memory: Any, size: int, alignment: int) -> int:  # noqa: ARG002
            pointer, there = self.buffers.get(tensor_name, (0, 0))
            if size > there or not pointer:
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
    least, _, most = bounds
    return len(shape) == len(least) and all(a <= n <= b for a, n, b in zip(least, shape, most, strict=True))


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
