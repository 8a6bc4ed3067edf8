"""What a user may choose: precision, calibrator, target, backend."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, cast, get_args

from rtlab.core.calibrators import METHODS
from rtlab.core.options import BuildOptions
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.precision import Precision, parse_member
from rtlab.core.ptq_transform import PtqTransform, PtqTransformKind
from rtlab.errors import VariantError

#: Imported from here by others, with what this module defines.
__all__ = ["Calibrator", "Precision", "Rewrite", "Target", "Variant"]


@dataclasses.dataclass(frozen=True, order=True)
class Calibrator:
    """How observed activations become scales: a method of ``rtlab.core.calibrators.METHODS``, and its parameters.

    ``settings`` are the parameters that are not the default, in their order, written ``percentile(99.9)`` or by name,
    ``percentile(p=99.9)``. Each method has a constant here in capitals.
    """

    method: str
    settings: tuple[tuple[str, float], ...] = ()

    AUTO: ClassVar[Calibrator]
    MINMAX: ClassVar[Calibrator]
    ENTROPY: ClassVar[Calibrator]
    ENTROPY2: ClassVar[Calibrator]
    PERCENTILE: ClassVar[Calibrator]
    MSE: ClassVar[Calibrator]

    def __str__(self) -> str:
        if not self.settings:
            return self.method
        first = next(iter(METHODS[self.method].parameters))
        return f"{self.method}({', '.join(f'{v:.15g}' if k == first else f'{k}={v:.15g}' for k, v in self.settings)})"

    @classmethod
    def of(cls, spec: str | Calibrator) -> Calibrator:
        """Parse a calibrator's text; ``VariantError`` for an unknown method, parameter or number."""
        if isinstance(spec, Calibrator):
            return spec
        match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", str(spec))
        if match is None or match[1] not in METHODS:
            raise VariantError(
                f'Cannot choose calibrator "{spec}": no such calibrator exists. Choose one of {quote_names(METHODS)}, '
                'or a percentile such as "percentile(99.9)".'
            )
        parameters, values = METHODS[match[1]].parameters, {}
        for text in filter(None, map(str.strip, (match[2] or "").split(","))):
            name, _, number = text.rpartition("=")
            name = name.strip() or next(iter(parameters), "")
            _, least, most = parameters.get(name, (math.nan,) * 3)
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if name in values or not least <= value <= most:
                ranges = [f'"{k}" from {low:g} to {high:g}' for k, (_, low, high) in parameters.items()]
                raise VariantError(
                    f'Cannot choose calibrator "{spec}": "{match[1]}" takes {" and ".join(ranges) or "no parameter"}. '
                    'Write for example "percentile(99.9)".'
                )
            values[name] = value
        return cls(
            match[1], tuple((k, values[k]) for k, v in parameters.items() if values.get(k, v[0]) != v[0])
        )


#: Every method with its default parameters, and those that ``auto`` chooses from.
CALIBRATORS = tuple(Calibrator(name) for name in METHODS)
FIXED = tuple(c for c in CALIBRATORS if METHODS[c.method].in_auto)
for _calibrator in CALIBRATORS:
    setattr(Calibrator, _calibrator.method.upper(), _calibrator)


#: Compute capabilities that current builders accept, and where one meets them.
SUPPORTED_TARGETS = {
    "sm75": "RTX 20, T4",
    "sm80": "A100, A30",
    "sm86": "RTX 30, A10",
    "sm89": "RTX 40, L4, L40",
    "sm120": "RTX 50",
}


@dataclasses.dataclass(frozen=True, order=True)
class Target:
    """The processor an engine is built for: ``cpu`` or a compute capability such as ``sm89``.

    ``gpu`` and ``npu`` are those of execution providers of ONNX Runtime; ``unknown`` is the GPU of a recorded engine
    whose files do not name it.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in {"cpu", "gpu", "npu", "unknown"} and not re.fullmatch(r"sm\d{2,3}", self.name):
            raise VariantError(
                f'Cannot choose target "{self.name}": a target is "cpu" or a compute capability. '
                'Choose for example "sm86", "sm89" or "sm120".'
            )

    def __str__(self) -> str:
        return self.name

    @property
    def sm(self) -> int | None:
        """Compute capability as one number (86 for 8.6), or None for the CPU and where it is unknown."""
        return int(self.name[2:]) if self.name.startswith("sm") else None

    @property
    def title(self) -> str:
        """The name with the cards that have this compute capability."""
        cards = SUPPORTED_TARGETS.get(self.name)
        return f"{self.name} · {cards}" if cards else self.name

    def refusal(self, precision: Precision) -> str | None:
        """Why this target has no such arithmetic, or None when it has."""
        min_sm = precision.stored.min_sm
        if self.sm is None or self.sm >= min_sm:
            return None
        return (
            f'Target "{self.name}" has no "{precision}" arithmetic. Choose another precision, such as '
            f'"fp16" or "int8", or a target from "sm{min_sm}" upward.'
        )


#: Equivalent forms of a node: ``fold`` a normalization into the convolution before it, ``pool`` a global average as an
#: average over windows of the whole size, ``drop`` one without effect, ``merge`` a convolution and its siblings into a
#: wider one and a Split. Two are for models with Q/DQ pairs: ``mend`` repairs a QuantizeLinear in the wrong place, and
#: ``release`` lets a node read the input of its pairs, which rounds less than before. ``inline`` writes nodes as those
#: of the function that defines their operator, in ONNX's standard or in the model.
RewriteKind = Literal["fold", "pool", "drop", "merge", "lift", "mend", "release", "inline"]


@dataclasses.dataclass(frozen=True, order=True)
class Rewrite:
    """A node of the source in another form, which computes the same but for rounding.

    ``node`` is an id; of ``inline`` a pattern, as of a pin.
    """

    kind: RewriteKind
    node: str

    def __str__(self) -> str:
        return f"{self.kind} {self.node}"

    @classmethod
    def of(cls, spec: Rewrite | str) -> Rewrite:
        """Parse such as ``fold /stem/norm/BatchNormalization``; raises ``VariantError`` where there is no such form."""
        if isinstance(spec, Rewrite):
            return spec
        kind, _, node = str(spec).partition(" ")
        forms = get_args(RewriteKind)
        if kind not in forms or not node:
            raise VariantError(
                f'Cannot write a node anew by "{spec}": a form is one of {", ".join(forms)}, a space, and '
                'the id of a node. Write for example "fold /stem/norm/BatchNormalization".'
            )
        return cls(cast("RewriteKind", kind), node)


#: How weights of a quantized node are scaled: one scale per output channel, or one for the whole tensor.
Granularity = Literal["channel", "tensor"]


@dataclasses.dataclass(frozen=True)
class Variant:
    """One choice of precision, calibrator, target and backend.

    ``calibrator`` is None where no precision in use needs one; ``backend`` None is the best builder here. ``pins`` set
    other precisions by pattern: a node's id or name with ``*`` and ``?``, or ``op:Conv`` for an operator; the last
    match counts. ``weights`` is the granularity of their scales. ``sparsity`` has patterns of the nodes whose weights
    are pruned to 2:4. ``scales`` names the source of given scales, such as a calibration cache; the calibrator is None
    then. ``options`` are settings of a TensorRT builder. ``rewrites`` are nodes in another form. ``calibrators`` set
    other ones by pattern, of a value's name or of the nodes that read it; the last match counts. ``treatments`` are
    transforms of the model against rounding errors. ``sizes`` are those of dynamic dimensions that differ from the
    study's, by symbol or by input.
    """

    precision: Precision = Precision.FP32
    calibrator: Calibrator | None = None
    target: Target = Target("cpu")
    backend: str | None = None
    pins: tuple[tuple[str, Precision], ...] = ()
    weights: Granularity = "channel"
    sparsity: tuple[str, ...] = ()
    scales: str = ""
    options: BuildOptions | None = None
    rewrites: tuple[Rewrite, ...] = ()
    calibrators: tuple[tuple[str, Calibrator], ...] = ()
    treatments: tuple[PtqTransform, ...] = ()
    sizes: tuple[tuple[str, int | tuple[int, ...]], ...] = ()

    @classmethod
    def of(
        cls,
        precision: str | Precision | Mapping[str, str | Precision] = "fp32",
        *,
        calibrator: str | Calibrator | None = None,
        target: str | Target | None = None,
        backend: str | None = None,
        weights: str = "channel",
        sparsity: bool | str | Sequence[str] = False,
        scales: str = "",
        options: BuildOptions | None = None,
        rewrites: Iterable[str | Rewrite] = (),
        calibrators: Mapping[str, str | Calibrator] | None = None,
        treatments: Iterable[str | PtqTransform] = (),
        sizes: Mapping[str, int | Sequence[int]] | None = None,
    ) -> Variant:
        """A variant from strings.

        The default calibrator of a precision with scales is ``auto`` where int8 is in use, ``minmax`` for fp8 alone,
        whose range is wide, ``entropy2`` for TensorRT's own calibrator; without scales it is dropped, so that equal
        work has equal names, and so are treatments without effect. ``target`` None is ``cpu``. A mapping from patterns
        to precisions mixes them: ``{"*": "int8", "/head/*": "fp16"}``; without ``*`` the other nodes are fp32.
        ``sparsity`` True prunes every weight that can be.

        Raises:
            VariantError: a name is unknown, or the target cannot do a precision.
        """
        table = precision if isinstance(precision, Mapping) else {"*": precision}
        resolved = {pattern: parse_member(Precision, p, "precision") for pattern, p in table.items()}
        chosen = resolved.pop("*", Precision.FP32)
        pins = tuple((pattern, p) for pattern, p in resolved.items())
        used = {chosen, *(p for _, p in pins)}
        usual = Calibrator.AUTO if Precision.INT8 in used else Calibrator.MINMAX
        scaled = any(p.needs_calibrator for p in used)
        chosen_calibrator = usual if calibrator is None else Calibrator.of(calibrator)
        how = chosen_calibrator if scaled and not scales else None
        where = target if isinstance(target, Target) else Target(str(target or "cpu"))
        if where.name == "unknown":
            raise VariantError(
                'Cannot choose target "unknown": it only describes an engine from elsewhere. '
                'Choose "cpu" or a compute capability such as "sm86".'
            )
        for one in used:
            if refusal := where.refusal(one):
                raise VariantError(refusal)
        if any(p is Precision.TF32 for _, p in pins):
            raise VariantError(
                'Cannot pin nodes to "tf32": it is one switch for the whole engine, not a type in the graph. '
                'Choose precision={"*": "tf32", ...} and pin other nodes to what they need.'
            )
        if weights not in ("channel", "tensor"):
            raise VariantError(
                f'Cannot scale weights per "{weights}": there is no such granularity. Choose "channel" or "tensor".'
            )
        sparse = (("*",) if sparsity else ()) if isinstance(sparsity, bool) else sparsity
        sparse = (sparse,) if isinstance(sparse, str) else sparse
        if not isinstance(sparse, Iterable) or not all(isinstance(s, str) for s in sparse):
            raise VariantError(
                f'Cannot prune "{sparsity}": it is no pattern of nodes. Choose sparsity=True, or patterns such as '
                '"/head/*".'
            )
        if options is not None and not isinstance(options, BuildOptions):
            raise VariantError(
                f"Cannot use {options!r} as options of a builder: they are no mapping. "
                'Write options={"builder_optimization_level": 5}.'
            )
        if calibrators is not None and not isinstance(calibrators, Mapping):
            raise VariantError(
                f"Cannot calibrate single values by {calibrators!r}: it is no mapping. "
                'Write calibrators={"/layer1/*": "percentile(99.99)"}.'
            )
        return cls(
            chosen,
            how,
            where,
            backend,
            pins,
            "tensor" if weights == "tensor" and scaled else "channel",
            tuple(sparse),
            scales if scaled else "",
            options if options is not None and options.count else None,
            tuple(sorted({Rewrite.of(r) for r in rewrites})),
            tuple((str(pattern), Calibrator.of(c)) for pattern, c in (calibrators or {}).items())
            if how
            else (),
            _select_transforms(treatments, used),
            _parse_sizes(sizes),
        )

    @property
    def precisions(self) -> frozenset[Precision]:
        """Every precision that is asked for."""
        return frozenset({self.precision, *(p for _, p in self.pins)})

    @property
    def _numbers(self) -> str:
        """Precision, and where scales are from."""
        how = self.calibrator or self.scales
        return f"{self.precision}·{how}" if how else str(self.precision)

    @property
    def name(self) -> str:
        """What a chip shows: ``int8·auto``; ``int8·auto · 2 pinned · 2:4 · 3 options`` when it has more."""
        parts = [self._numbers]
        parts += map(format_size, self.sizes)
        if self.pins:
            parts.append(f"{len(self.pins)} pinned")
        if self.weights == "tensor":
            parts.append("per tensor")
        if self.sparsity:
            parts.append("2:4")
        if self.rewrites:
            parts.append(f"{len(self.rewrites)} rewritten")
        if self.calibrators:
            parts.append(f"{len(self.calibrators)} calibrated apart")
        parts += dict.fromkeys(t.done for t in self.treatments)
        if self.options is not None:
            parts += [pluralize(self.options.count, "option")]
        return " · ".join(parts)

    @property
    def id(self) -> str:
        """A name unique among all variants of a study: ``int8·auto@sm86``."""
        spelled = [self._numbers, *map(format_size, self.sizes)]
        spelled += [f"{pattern}={p}" for pattern, p in self.pins]
        if self.weights == "tensor":
            spelled.append("per tensor")
        if self.sparsity:
            spelled.append("2:4" + ("" if self.sparsity == ("*",) else f" {','.join(self.sparsity)}"))
        spelled += map(str, self.rewrites)
        spelled += [f"{pattern}={c}" for pattern, c in self.calibrators]
        spelled += map(str, self.treatments)
        if self.options is not None:
            spelled.append(str(self.options))
        return f"{' '.join(spelled)}@{self.target}" + (f"/{self.backend}" if self.backend else "")


def _parse_sizes(
    sizes: Mapping[str, int | Sequence[int]] | None,
) -> tuple[tuple[str, int | tuple[int, ...]], ...]:
    """Sizes by symbol or by input; ``VariantError`` where they are none."""
    try:
        return tuple(
            (str(name), int(size) if isinstance(size, numbers.Integral) else tuple(int(n) for n in size))  # type: ignore[union-attr]
            for name, size in (sizes or {}).items()
        )
    except (AttributeError, TypeError, ValueError):
        raise VariantError(
            f"Cannot build at the sizes {sizes!r}: they are no mapping from symbols or inputs to whole numbers. "
            'Write sizes={"sequence_length": 1}, or sizes={"input_ids": (1, 128)}.'
        ) from None


def format_size(named_size: tuple[str, int | tuple[int, ...]]) -> str:
    """The size of a symbol as ``length=128``, the shape of an input as ``ids=1x128``."""
    name, size = named_size
    return (
        f"{name}={size}"
        if isinstance(size, int)
        else f"{name}={'x'.join(map(str, size))}{'x' * (len(size) == 1)}"
    )


def parse_size(text: str) -> tuple[str, int | tuple[int, ...]]:
    """A size that ``format_size`` wrote."""
    name, _, size = text.rpartition("=")
    return name, tuple(int(n) for n in size.split("x") if n) if "x" in size else int(size)


def has_effect(kind: PtqTransformKind, used: Iterable[Precision]) -> bool:
    """Whether a treatment does something for one of these precisions."""
    few = kind in {"correct", "reconstruct"}
    return any(p.stored.scaled or (p.is_half and not few) for p in used)


def _select_transforms(
    source: Iterable[str | PtqTransform], used: Iterable[Precision]
) -> tuple[PtqTransform, ...]:
    """The treatments that do something for the precisions in use, in the order in which they are carried out."""
    specs = (source,) if isinstance(source, (str, PtqTransform)) else tuple(source)
    treatments = {PtqTransform.of(t) for t in specs}
    kinds = get_args(PtqTransformKind)
    effective = {t for t in treatments if has_effect(t.kind, used)}
    return tuple(sorted(effective, key=lambda t: (kinds.index(t.kind), t)))
