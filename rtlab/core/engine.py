"""The result of a build: layers in execution order."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from rtlab.core.compiler_info import Maker
from rtlab.core.memo import Memoizable
from rtlab.core.options import Shapes
from rtlab.core.phrases import pluralize
from rtlab.core.schema import Origin
from rtlab.core.variant import Target

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: What stands for a device that no file names.
NOWHERE = "device not recorded"
#: TensorRT's names of types in rtlab's words, those of ``Tensor.dtype``.
DTYPES = {name: name.lower() for name in ("Int8", "Int32", "Int64", "UInt8", "Bool", "FP8", "Int4", "FP4")}
DTYPES |= {"Float": "fp32", "Half": "fp16", "BFloat16": "bf16", "FP4E2M1": "fp4", "FP8UE8M0": "e8m0"}
#: Floating and quantized types by resolution.
NARROWEST_FIRST = ("fp4", "int4", "fp8", "int8", "fp16", "bf16", "tf32", "fp32")


#: Kinds of entries in an engine's list that launch no kernel.
CONTROL = frozenset({"signal", "wait", "jmp", "cjmp"})


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor as a layer reads or writes it.

    ``dtype`` is in rtlab's names (``fp32``, ``fp16``, ``int8``, ...); ``shape`` has -1 for dynamic dimensions;
    ``format`` is the compiler's name of the memory layout.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    format: str = ""
    strides: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Layer:
    """One step of an engine's execution order.

    ``id`` is unique in its engine. ``origins`` are the ids of the nodes of the *built* model that the
    compiler itself declared for this layer, in its own order. ``kind`` is its word for the layer type.
    """

    id: str
    name: str
    kind: str
    index: int
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    constants: tuple[Tensor, ...] = ()
    tactic: str = ""
    stream: int = 0
    event: int | None = None
    origins: tuple[str, ...] = ()
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def precision(self) -> str:
        """The narrowest floating or quantized type among what the layer reads and writes."""
        return _narrowest({t.dtype for t in (*self.outputs, *self.inputs)})

    @functools.cached_property
    def reads(self) -> str:
        """The narrowest floating or quantized type among its inputs; empty where untold."""
        return _narrowest({t.dtype for t in self.inputs})

    @functools.cached_property
    def writes(self) -> str:
        """The narrowest floating or quantized type among its outputs; empty where untold."""
        return _narrowest({t.dtype for t in self.outputs})


def _narrowest(types: set[str]) -> str:
    return next((p for p in NARROWEST_FIRST if p in types), min(types, default=""))


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Memory of one value: size in bytes, first and last layer index that touches it, offset if known."""

    value: str
    nbytes: int
    first: int
    last: int
    offset: int | None
    origin: Origin


@dataclasses.dataclass(frozen=True)
class Engine(Memoizable):
    """A built model.

    ``detail`` is ``layer``, or ``region`` where a compiler reports a whole subgraph as one unit. ``totals`` are memory
    totals in bytes as *reported*. ``plan`` is the serialized engine, where one exists, ``runnable`` the model that a
    runner of the same backend executes, or its ONNX bytes. ``device`` names the GPU of an engine from elsewhere.
    ``profiles`` are the bounds of each dynamic input by optimization profile. ``maker``
    describes its compiler. ``recorded`` is True for a build on another machine, whose are ``seconds`` and ``built``
    then.
    """

    backend: str
    version: str
    target: Target
    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    detail: Literal["layer", "region"] = "layer"
    allocations: tuple[Allocation, ...] = ()
    totals: Mapping[str, int] = dataclasses.field(default_factory=dict)
    log: str = dataclasses.field(default="", repr=False)
    seconds: float = 0.0
    built: datetime.datetime | None = None
    notes: tuple[str, ...] = ()
    plan: bytes | None = dataclasses.field(default=None, repr=False)
    runnable: bytes | Model | None = dataclasses.field(default=None, repr=False)
    device: str = ""
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...] = ()
    maker: Maker = dataclasses.field(default_factory=Maker, repr=False)
    recorded: bool = False

    def __repr__(self) -> str:
        return f"<Engine {self.backend} {self.version} {self.target}: {self.size}>"

    @property
    def title(self) -> str:
        """Compiler, version, target, and date of a recording; without layers only what is read."""
        if not self.layers:
            place = "" if self.place == NOWHERE else f" · {self.place}"
            return f"{self.compiler} {self.version}".rstrip() + place
        when = f", recorded{f' {self.date}' * bool(self.built)}" if self.recorded else ""
        return f"{self.compiler} {self.version or '(version not reported)'}{when} · {self.place}"

    @property
    def date(self) -> str:
        """The day of the build."""
        return f"{self.built:%Y-%m-%d}" if self.built else "some day"

    @property
    def provenance(self) -> str:
        """The title with its kind: ``compiled: ...``, or ``recorded with ... on ...``."""
        if self.recorded:
            when = f" on {self.date}" if self.built else ""
            return f"recorded with {self.compiler} {self.version or '(version not reported)'}{when} · {self.place}"
        return f"{'predicted' if self.maker.predicts else 'compiled'}: {self.title}"

    @property
    def compiler(self) -> str:
        """The compiler in words."""
        return self.maker.title or self.backend

    @property
    def place(self) -> str:
        """The device, or the target where none is named."""
        if self.device:
            return self.device
        return NOWHERE if self.target.name == "unknown" else str(self.target)

    @property
    def origin(self) -> Origin:
        """The origin of its layers: reported by a compiler, or predicted by rules."""
        return "predicted" if self.maker.predicts else "reported"

    @functools.cached_property
    def control_count(self) -> int:
        """How many entries launch no kernel: they order the streams, or jump."""
        return sum(layer.kind in CONTROL for layer in self.layers)

    @property
    def layer_count(self) -> int:
        """How many layers the engine has, without those entries: the number that every surface shows."""
        return len(self.layers) - self.control_count

    @property
    def size(self) -> str:
        """That count in words, and how many entries are left out of it: "51 layers and 39 sync or jump entries"."""
        layers = pluralize(self.layer_count, self.detail)
        left_out = pluralize(self.control_count, "sync or jump entry", "sync or jump entries")
        return f"{layers} and {left_out}" if self.control_count else layers

    def layer(self, id: str) -> Layer:  # noqa: A002 - the field's word
        """The layer with this id; KeyError when there is none."""
        return self._by_id[id]

    @functools.cached_property
    def _by_id(self) -> Mapping[str, Layer]:
        return {layer.id: layer for layer in self.layers}
