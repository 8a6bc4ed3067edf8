"""What a user may choose: precision, calibrator, target, backend."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, cast, get_args

from rtlab.core.calibrators import METHODS, Parameter
from rtlab.core.options import BuildOptions
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.precision import Precision, parse_member
from rtlab.core.ptq_transform import PtqTransform, PtqTransformKind
from rtlab.errors import VariantError

__all__ = [
    "CALIBRATORS",
    "FIXED",
    "SUPPORTED_TARGETS",
    "Calibrator",
    "Granularity",
    "Precision",
    "Rewrite",
    "RewriteKind",
    "Target",
    "Variant",
    "has_effect",
]


@dataclasses.dataclass(frozen=True, order=True)
class Calibrator:
    """How observed activations become scales: a method and those of its parameters that are not the default.

    Written as text: ``percentile(99.9)``, ``entropy2(bins=4096)``. The methods and their parameters are those of
    ``rtlab.core.calibrators.METHODS``; each has a constant here in capitals.
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
        inside = (_format_number(v) if k == first else f"{k}={_format_number(v)}" for k, v in self.settings)
        return f"{self.method}({', '.join(inside)})"

    def __getitem__(self, name: str) -> float:
        """A parameter, given or default."""
        return dict(self.settings).get(name, METHODS[self.method].parameters[name].default)

    def get_parameters(self) -> dict[str, float]:
        """All parameters, given or default, as the method takes them."""
        parameters = METHODS[self.method].parameters
        return {n: int(self[n]) if p.integral else self[n] for n, p in parameters.items()}

    @classmethod
    def of(cls, spec: str | Calibrator) -> Calibrator:
        """Parse a calibrator's text; ``VariantError`` for an unknown method, parameter or number."""
        if isinstance(spec, Calibrator):
            return spec
        spec = str(spec)
        match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(.*?)\s*\))?\s*", spec)
        if match is None and spec.count("(") != spec.count(")"):
            raise VariantError(
                f'Cannot choose calibrator "{spec}": a bracket is missing. Write it as in "percentile(99.9)".'
            )
        method = match[1] if match else spec
        if method not in METHODS:
            names = ", ".join(f'"{name}"' for name in METHODS)
            raise VariantError(
                f'Cannot choose calibrator "{method}": no such calibrator exists. Choose one of {names}.'
            )
        parameters = METHODS[method].parameters
        settings: dict[str, float] = {}
        for i, item in enumerate(filter(None, (match[2] or "").split(",")) if match else ()):
            name, _, text = item.rpartition("=")
            name = name.strip() or (next(iter(parameters), "") if i == 0 else "")
            if name not in parameters:
                names = quote_names(parameters) or "none"
                raise VariantError(
                    f'Cannot choose calibrator "{spec}": "{item.strip()}" is no parameter of {method}. '
                    f"Its parameters: {names}."
                )
            settings[name] = _parse_number(text, name, parameters[name], spec)
        if settings.get("levels", 0) > settings.get("bins", math.inf):
            raise VariantError(
                f'Cannot choose calibrator "{spec}": it has more levels than bins. Give more bins, or fewer levels.'
            )
        return cls(
            method,
            tuple((n, settings[n]) for n, p in parameters.items() if settings.get(n, p.default) != p.default),
        )


#: Every method with its default parameters, and those of them that ``auto`` takes its thresholds from.
CALIBRATORS = tuple(Calibrator(name) for name in METHODS)
FIXED = tuple(c for c in CALIBRATORS if METHODS[c.method].in_auto)
for _calibrator in CALIBRATORS:
    setattr(Calibrator, _calibrator.method.upper(), _calibrator)


def _parse_number(text: str, name: str, parameter: Parameter, spec: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    integral = parameter.integral
    if not parameter.least <= number <= parameter.most or (integral and not number.is_integer()):
        kind = "a whole number" if integral else "a number"
        raise VariantError(
            f'Cannot choose calibrator "{spec}": "{text.strip()}" is no value for "{name}". '
            f"Give {kind} from {_format_number(parameter.least)} to {_format_number(parameter.most)}."
        )
    return number


def _format_number(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


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

    ``gpu`` and ``npu`` are what an execution provider of ONNX Runtime runs on, whichever this machine has.
    ``unknown`` stands for the GPU of an engine from elsewhere whose files do not tell; nothing is built for it.
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


#: What a node can be written as so that the model computes the same: ``fold`` a normalization into the convolution
#: before it, ``pool`` a global average as an average over windows of the whole size; ``drop`` leaves out one without
#: effect; ``merge`` writes a convolution and its siblings as one wider one and a Split. Two are for what a model itself
#: has quantized: ``mend`` does what is to be done about a QuantizeLinear in the wrong place, and ``release``
#: lets a node read what enters its pairs, which rounds less than before.
RewriteKind = Literal["fold", "pool", "drop", "merge", "lift", "mend", "release"]


@dataclasses.dataclass(frozen=True, order=True)
class Rewrite:
    """A node of the source in another form, which computes the same but for what it rounds."""

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

    ``calibrator`` is None where no precision in use needs one; ``backend`` None means the best builder here.
    ``pins`` give nodes another precision than ``precision``, a pattern each: a node's id or name with ``*`` and
    ``?``, or ``op:Conv`` for an operator; of several that fit, the last counts. ``weights`` is the granularity of
    their scales. ``sparsity`` holds patterns of the nodes whose weights are pruned to 2:4. ``scales`` names where
    given scales come from, such as a calibration cache; the calibrator is None then. ``options`` is what a TensorRT
    builder is told beyond the model; None leaves everything to it. ``rewrites`` are nodes in another form, which the
    compiler may treat in another way. ``calibrators`` give single values another one than ``calibrator``, a pattern
    each, of which the last that fits counts: it means a value by its name, or what the nodes that it fits read.
    ``treatments`` are what is done to the model so that rounding costs it less accuracy.
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
    ) -> Variant:
        """Resolve strings once, at the edge.

        A precision that needs scales gets a calibrator unless told otherwise: ``auto`` where int8 is in use,
        ``minmax`` for fp8 alone, whose range is wide, ``entropy2`` where TensorRT's own calibrator is asked for. One
        that needs none drops it, so that equal work has equal names. ``target`` None means ``cpu``. A mapping from
        patterns to precisions mixes them: ``{"*": "int8", "/head/*": "fp16"}``; without ``*`` the other nodes are
        fp32. ``sparsity`` True prunes every weight that can be. Treatments and calibrators that would do nothing for
        these precisions are dropped.

        Raises:
            VariantError: a name is unknown, or the target cannot do a precision.
        """
        table = precision if isinstance(precision, Mapping) else {"*": precision}
        resolved = {pattern: parse_member(Precision, p, "precision") for pattern, p in table.items()}
        chosen = resolved.pop("*", Precision.FP32)
        pins = tuple((pattern, p) for pattern, p in resolved.items())
        used = {chosen, *(p for _, p in pins)}
        how = Calibrator.of(calibrator) if calibrator is not None else None
        usual = Calibrator.AUTO if Precision.INT8 in used else Calibrator.MINMAX
        scaled = any(p.needs_calibrator for p in used)
        how = (how or usual) if scaled and not scales else None
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
        spelled = [self._numbers]
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
