"""What a check found of one variant, as a file that a later check compares with."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

import msgspec

from rtlab.analyses.difference.compare import Side
from rtlab.core.bootstrap import Interval
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.schema import Origin
from rtlab.core.variant import Target
from rtlab.errors import ReadError, RtlabError
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import Pair

_KIND, _SCHEMA = "rtlab check", 1


@dataclasses.dataclass(frozen=True)
class RecordedScore:
    """A variant's score, where it was counted, and its 95 % interval; None where nothing tells it."""

    name: str
    value: float
    unit: str
    higher: bool
    samples: int
    interval: Interval | None
    source: str


@dataclasses.dataclass(frozen=True)
class RecordedTime:
    """What an inference takes in milliseconds, and where that is from.

    ``low`` and ``high`` are between what it varied, ``varied`` says of what: the medians of rounds where it was timed
    here, or the quartiles of inferences; None where a single number is known. ``place`` is the processor or, of an
    estimate, the GPU that it is for; ``layers`` are milliseconds by id.
    """

    milliseconds: float
    low: float | None
    high: float | None
    varied: str
    origin: Origin
    source: str
    place: str
    layers: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RecordedMemory:
    """Bytes of an engine's activations, and whether the compiler reported them or a plan estimates them."""

    nbytes: int
    origin: Origin


@dataclasses.dataclass(frozen=True)
class RecordedEngine:
    """The layers of an engine with the nodes that they run, and what made them; ``step`` is what a layer is called.

    ``origin`` says whether a compiler reported them, or rules predict them.
    """

    backend: str
    version: str
    compiler: str
    target: str
    device: str
    step: str
    origin: Origin
    inputs: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    pairs: tuple[Pair, ...]

    @classmethod
    def from_engine(cls, engine: Engine, mapping: NodeMapping) -> RecordedEngine:
        """An engine as far as a later one is compared with it."""
        return cls(
            engine.backend,
            engine.version,
            engine.compiler,
            str(engine.target),
            engine.device,
            engine.maker.step or engine.detail,
            engine.origin,
            tuple(map(_strip_tensor, engine.inputs)),
            tuple(map(_strip_layer, engine.layers)),
            tuple(p._replace(note="") for p in mapping.pairs),
        )

    @property
    def count(self) -> int:
        """How many layers it has, without those that only order the streams."""
        return len(self.layers) - sum(y.kind in {"signal", "wait"} for y in self.layers)


@dataclasses.dataclass(frozen=True, eq=False)
class CheckRecord:
    """What a check found of one variant, with all that it holds for.

    ``digest`` is the SHA-256 of the source model with its weights and shapes, empty where they are not at hand;
    ``findings`` are titles by id; ``versions`` those of rtlab and of what built and ran, by name.
    """

    model: str
    digest: str
    variant: str
    options: str
    engine: RecordedEngine
    score: RecordedScore | None
    time: RecordedTime | None
    memory: RecordedMemory | None
    findings: Mapping[str, str]
    versions: Mapping[str, str]
    made: datetime.datetime
    kind: str = _KIND
    schema: int = _SCHEMA

    def text(self) -> str:
        """The record as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"

    def to_side(self, name: str) -> Side:
        """Its engine as one side of a comparison, under a name."""
        engine, time = self.engine, self.time
        rebuilt_engine = Engine(
            engine.backend,
            engine.version,
            Target(engine.target),
            engine.layers,
            engine.inputs,
            device=engine.device,
            maker=Maker(engine.compiler, step=engine.step, predicts=engine.origin == "predicted"),
        )
        times = () if time is None else (time.layers, time.milliseconds, time.origin)
        return Side(name, rebuilt_engine, NodeMapping(engine.pairs, ()), *times)


#: Attributes that distinguish kernels of the same kind.
_COMPARED = (
    "ParameterType",
    "Origin",
    "Kernel",
    "ConvKernel",
    "Stride",
    "ConvStride",
    "Groups",
    "ConvGroups",
)


def _strip_layer(layer: Layer) -> Layer:
    """A layer without what no comparison reads."""
    return Layer(
        layer.id,
        layer.name,
        layer.kind,
        layer.index,
        tuple(map(_strip_tensor, layer.inputs)),
        tuple(map(_strip_tensor, layer.outputs)),
        tactic=layer.tactic,
        stream=layer.stream,
        origins=layer.origins,
        attributes={k: layer.attributes[k] for k in _COMPARED if k in layer.attributes},
    )


def _strip_tensor(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.dtype, tensor.shape)


def read(text: str | bytes, name: str) -> CheckRecord:
    """A record from its JSON; ``name`` is what messages call it.

    Raises:
        ReadError: it is none, it is cut off, or it is one of another version of rtlab.
    """
    prefix = f'Cannot check against "{name}":'
    remedy = "Give a file that rtlab check --save wrote."
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise ReadError(f"{prefix} it is no whole JSON ({error}). {remedy}") from error
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise ReadError(f"{prefix} it is JSON, but no record of a check. {remedy}")
    if document.get("schema") != _SCHEMA:
        raise ReadError(
            f"{prefix} its schema is {document.get('schema')}, and this rtlab reads {_SCHEMA}. Save a new one with "
            "this rtlab."
        )
    try:
        record: CheckRecord = msgspec.convert(document, CheckRecord)
        Target(record.engine.target)
    except (msgspec.ValidationError, RtlabError, ValueError) as error:
        raise ReadError(f"{prefix} it is damaged: {error}. {remedy}") from error
    return record
