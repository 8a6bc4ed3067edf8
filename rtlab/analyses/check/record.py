"""The rows and limits of a check, and what it found of one variant as a file that a later check compares with."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from rtlab.analyses.difference import Side
from rtlab.core.bootstrap import Interval
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import CONTROL, Engine, Layer, Tensor
from rtlab.core.schema import FieldMeta, Origin
from rtlab.core.variant import Target
from rtlab.errors import ReadError, RtlabError, VariantError
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import Pair

#: What is looked at, in this order.
CheckName = Literal["numbers", "accuracy", "score", "latency", "fusion", "precision", "findings", "memory"]
#: Whether a limit holds; what nobody set a limit for is told, and what has nothing to compare with is not checked.
CheckVerdict = Literal["holds", "broken", "told", "not checked"]
#: What may be refused to get worse at all, and what stands in the place of a number for it.
NOT_WORSE: Mapping[CheckName, str] = {
    "fusion": "nothing in more layers",
    "precision": "nothing in a wider type",
    "findings": "no new one",
}


@dataclasses.dataclass(frozen=True)
class CheckRow:
    """One thing that was looked at.

    ``limit`` is empty where nobody set one, ``detail`` tells what ``found`` rests on. ``reason`` says why the verdict
    is what it is, or why there is none, ``remedy`` what to do, and ``changes`` name what differs from the earlier
    check. ``value`` and ``bound`` are what was found and what is allowed, in ``unit``; None where it is no number.
    """

    check: Annotated[CheckName, FieldMeta("Check")]
    limit: Annotated[str, FieldMeta("Limit")]
    found: Annotated[str, FieldMeta("Found", origin="{self.origin}")]
    verdict: Annotated[CheckVerdict, FieldMeta("Verdict")]
    origin: Annotated[Origin | None, FieldMeta("Origin")] = None
    detail: str = ""
    reason: str = ""
    remedy: str = ""
    changes: tuple[str, ...] = ()
    value: float | None = None
    bound: float | None = None
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class CheckLimits:
    """What a variant has to keep.

    ``max_drop`` is in the unit of the score, beside fp32 of the same model; ``max_latency_regression`` in percent of
    the earlier time; ``fail_on`` names what may not get worse at all, of ``NOT_WORSE``. ``sure`` asks the whole
    interval of a drop to be within its limit, and not the drop alone.

    Raises:
        VariantError: one of them is no limit.
    """

    max_drop: float | None = None
    max_latency_regression: float | None = None
    fail_on: tuple[CheckName, ...] = ()
    sure: bool = False

    def __post_init__(self) -> None:
        for name in ("max_drop", "max_latency_regression"):
            bound = getattr(self, name)
            number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
            if bound is not None and not (number and 0 <= bound < float("inf")):
                raise VariantError(
                    f"Cannot check with {name}={bound!r}: a limit is a number from 0 upward. Give for example 0.5."
                )
        for one in self.fail_on:
            if one not in NOT_WORSE:
                raise VariantError(
                    f'Cannot fail on "{one}": nothing of this name is compared. Choose among '
                    f"{', '.join(NOT_WORSE)}."
                )
        if self.sure and self.max_drop is None:
            raise VariantError(
                "Cannot ask a drop to be surely within its limit: there is no limit. Give max_drop too."
            )


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
        """How many layers it has, as ``Engine.layer_count``."""
        return sum(y.kind not in CONTROL for y in self.layers)


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
