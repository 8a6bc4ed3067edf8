"""How far the values of a variant lie from those of the reference, value by value.

Sums are taken batch by batch: Polygraphy's ``Comparator``, which has such measures too, keeps every tensor of every run
until both runs are over.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from rtlab.core.data import RANDOM
from rtlab.core.facts import Errors, VariantResult
from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.core.precision import compute_sqnr
from rtlab.core.schema import FieldMeta
from rtlab.core.slices import Slice, SliceSums
from rtlab.core.trace import Outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Elements that are summed at once.
_PIECE = 1 << 16
#: Decibels from which on a part of an output is told apart from the whole.
_MATTERS = 3.0
#: Sums of squares below it may have lost what float32 cannot hold.
_SAFE = 1e-30


@dataclasses.dataclass(frozen=True)
class ValueDelta:
    """Errors of one value over all samples.

    ``max_abs`` and ``rmse`` are in the value's own unit, ``cosine`` is the cosine similarity, ``sqnr`` the ratio of
    signal to quantization noise in decibel, ``10 log10(sum x^2 / sum (x - y)^2)``; infinite where both are equal.
    ``overflowed`` counts elements that are finite in one of the two alone, ``undefined`` those that are NaN in fp32
    itself, ``underflowed`` those that are zero in the variant and not in the reference, ``infinite`` those that are
    infinite in fp32 itself: an infinity of both, as in a mask, is no error. Where something overflowed ``cosine`` is
    NaN: the finite elements alone would say that all is well.

    ``own_sqnr``, ``own_rmse`` and ``own_max`` are of the error that the value's node *makes* of exact inputs, where the
    others are of all that has *accumulated* there; infinite and 0 where the node computes as in fp32, None where nobody
    knows. ``saturated`` is the share of elements beyond the threshold of a value that is quantized.
    """

    value: Annotated[str, FieldMeta("Value")]
    node: Annotated[str, FieldMeta("Node", links="nodes")]
    max_abs: Annotated[float, FieldMeta("Largest error", origin="measured", infinite=True)]
    rmse: Annotated[float, FieldMeta("RMSE", origin="measured", infinite=True)]
    cosine: Annotated[float, FieldMeta("Cosine", origin="measured", infinite=True)]
    sqnr: Annotated[float, FieldMeta("SQNR", "dB", "measured", infinite=True)]
    elements: Annotated[int, FieldMeta("Elements")]
    overflowed: Annotated[int, FieldMeta("Not finite", origin="measured")]
    underflowed: Annotated[int, FieldMeta("Became zero", origin="measured")] = 0
    undefined: Annotated[int, FieldMeta("NaN in fp32", origin="measured", omit=True)] = 0
    infinite: Annotated[int, FieldMeta("Infinite in fp32", origin="measured", omit=True)] = 0
    own_sqnr: Annotated[float | None, FieldMeta("Own SQNR", "dB", "measured", infinite=True, omit=True)] = (
        None
    )
    own_rmse: Annotated[float | None, FieldMeta("Own RMSE", origin="measured", infinite=True, omit=True)] = (
        None
    )
    own_max: Annotated[
        float | None, FieldMeta("Own largest", origin="measured", infinite=True, omit=True)
    ] = None
    saturated: Annotated[float | None, FieldMeta("Saturated", "%", "measured", omit=True)] = None

    @property
    def note(self) -> Annotated[str, FieldMeta("Note")]:
        """What an SQNR that is no number says."""
        return "" if math.isfinite(self.sqnr) else "equal to fp32" if self.sqnr > 0 else "not finite"


@dataclasses.dataclass(frozen=True, eq=False)
class Accuracy:
    """Errors of every compared value, in graph order, with what they were measured on.

    ``synthetic`` says that the samples were random: the errors are those of noise, and no finding about the task.
    ``samples`` were compared of every value in it. ``parts`` is of each output of the model the part that lost most,
    where it holds several kinds of numbers, or lost some of its indices. ``outputs`` are those that were compared.
    """

    source: str
    samples: int
    values: tuple[ValueDelta, ...]
    synthetic: bool = False
    parts: tuple[Slice, ...] = ()
    outputs: tuple[str, ...] = ()

    def __repr__(self) -> str:
        head = f"{self.outcome} on {self.samples} samples" if self.output else f"{self.samples} samples"
        tail = "".join(f", worst inside {v.node} {v.sqnr:.3g} dB" for v in self.worst(1))
        on = f", {RANDOM}" if self.synthetic else ""
        return f"<Accuracy {head}; {len(self.values)} values{tail}, measured, {self.source}{on}>"

    @property
    def origin(self) -> str:
        """What stands beside every one of these numbers."""
        on = f", {RANDOM}" if self.synthetic else ""
        return f"measured, {self.source}, {self.samples} samples{on}"

    def worst(self, count: int = 5) -> tuple[ValueDelta, ...]:
        """The values with the lowest SQNR."""
        return tuple(sorted(self.values, key=lambda v: v.sqnr)[:count])

    def guilty(self, count: int = 5) -> tuple[ValueDelta, ...]:
        """The values in whose nodes most error is made, by their own SQNR; none where nobody knows."""
        lossy_values = [v for v in self.values if v.own_sqnr is not None and v.own_sqnr != math.inf]
        return tuple(sorted(lossy_values, key=lambda v: v.own_sqnr or 0.0)[:count])

    @functools.cached_property
    def output(self) -> Slice | None:
        """The output, or the part of one, with the lowest SQNR; None where none was compared."""
        whole = (Slice(v.value, 0, (), v.sqnr) for v in self.values if v.value in self.outputs)
        return min((*self.parts, *whole), key=lambda part: part.sqnr, default=None)

    @property
    def outcome(self) -> str:
        """The SQNR of that, which says more of a variant than that of any inner value; empty where there is none."""
        if self.output is None:
            return ""
        return self.headline or f"{self.output.where}: {_format_decibels(self.output.sqnr)}"

    @property
    def headline(self) -> str:
        """What became of the outputs where the whole of one hides a part: both in words; empty elsewhere."""
        output_sqnr = {v.value: v.sqnr for v in self.values}
        parts = [p for p in self.parts if p.sqnr <= output_sqnr[p.output] - _MATTERS]
        worst = min(parts, key=lambda p: p.sqnr, default=None)
        if worst is None:
            return ""
        outcome = worst.fault or f"{worst.where}: {_format_decibels(worst.sqnr)}"
        return f"{outcome}; the whole output: {_format_decibels(output_sqnr[worst.output])}"

    def of(self, node: str) -> ValueDelta | None:
        """Errors of a node's first compared output, or None."""
        return next((v for v in self.values if v.node == node), None)


class Comparison:
    """Gathers errors batch by batch, so that memory does not grow with the number of samples.

    Args:
        model: The reference.
        values: Names of its values to compare.
        previous: Sums of an earlier comparison of the same variant, to continue.
        amax: Thresholds of the values that are quantized, whose elements beyond are counted.
    """

    def __init__(
        self,
        model: Model,
        values: Iterable[str],
        previous: Errors | None = None,
        amax: Mapping[str, float] | None = None,
    ) -> None:
        previous = previous or Errors("", {}, {}, isolated_errors={})
        self._amax = amax or {}
        self._sums: dict[str, NDArray[np.float64]] = {
            v: previous.sums[v].copy() if v in previous.sums else np.zeros(10) for v in values
        }
        self._sample_counts = {v: previous.sample_counts.get(v, 0) for v in self._sums}
        self._isolated_sums = {v: a.copy() for v, a in (previous.isolated_errors or {}).items()}
        self._saturated_counts = dict(previous.saturated or {})
        self._slices = {
            o: previous.slices[o].copy() if o in previous.slices else SliceSums(o)
            for o in model.outputs
            if o in self._sums
        }
        #: Whether the errors that nodes make themselves are known of every batch so far.
        self.has_isolated_errors = previous.isolated_errors is not None

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, reference: Outputs, variant: Outputs, samples: int) -> None:
        """Take one batch of both, with some of the values or all of them."""
        for name in reference.keys() & variant.keys() & self._sums.keys():
            sums = self._sums[name]
            self._sample_counts[name] += samples
            if name in self._slices:
                self._slices[name].add(reference[name], variant[name], samples)
            x = np.asarray(reference[name], dtype=np.float32).ravel()
            y = np.asarray(variant[name], dtype=np.float32).ravel()
            amax, saturated_count = self._amax.get(name), 0
            for at in range(0, x.size, _PIECE):
                x_piece = x[at : at + _PIECE]
                part = _compute_sums(x_piece, y[at : at + _PIECE])
                top = max(sums[4], part[4])
                sums += part
                sums[4] = top
                # Few pieces reach beyond; one with NaN may.
                if amax is not None and not max(float(x_piece.max()), -float(x_piece.min())) <= amax:
                    saturated_count += int(np.count_nonzero(np.abs(x_piece) > amax))
            if amax is not None:
                self._saturated_counts[name] = self._saturated_counts.get(name, 0.0) + saturated_count

    def add_isolated_errors(self, isolated_errors: Mapping[str, tuple[float, float]]) -> None:
        """Take what a batch tells of the errors that nodes make: energy and largest magnitude, by value."""
        for value, (energy, largest) in isolated_errors.items():
            sums = self._isolated_sums.setdefault(value, np.zeros(2))
            sums[:] = sums[0] + energy, max(sums[1], largest)

    def to_errors(self, source: str, *, synthetic: bool = False) -> Errors:
        """The sums of all batches so far, of values that saw any."""
        counts = {v: n for v, n in self._sample_counts.items() if n}
        sums = {v: self._sums[v].copy() for v in counts}
        slices = {o: s.copy() for o, s in self._slices.items() if o in counts}
        if not self.has_isolated_errors:
            return Errors(source, sums, counts, synthetic, slices=slices)
        isolated_sums = {v: a.copy() for v, a in self._isolated_sums.items() if v in counts}
        saturated_counts = {v: n for v, n in self._saturated_counts.items() if v in counts}
        return Errors(source, sums, counts, synthetic, isolated_sums, saturated_counts, slices)


def compare_values(
    comparison: Comparison,
    error_sums: Mapping[str, tuple[str, str, str]],
    parted: Iterable[str],
    values: Sequence[Outputs],
    samples: int,
) -> Errors:
    """The errors so far with a batch of the reference, the first of ``values``, and of the variant, the last one.

    ``error_sums`` has by value the names of the energy, the largest and the smallest element of the error that its node
    makes, numbers of the reference; that of ``parted`` values is unknown.
    """
    reference, variant = values[0], values[-1]
    comparison.add(reference, variant, samples)
    isolated_errors = dict.fromkeys(parted, (math.inf, math.inf))
    for value, names in error_sums.items():
        energy, most, least = (float(reference[n]) for n in names)
        isolated_errors[value] = energy, max(most, -least)
    comparison.add_isolated_errors(isolated_errors)
    return comparison.to_errors("")


@memoized
def summarize_errors(errors: Errors, model: Model) -> Accuracy:
    """The errors of each value of a model, from the sums of a comparison."""
    values = []
    for name, (xx, ee, xy, yy, top, count, *faults) in errors.sums.items():
        overflow_count, underflow_count, nan_count, infinite_count = map(int, faults)
        if not count and not overflow_count:
            continue
        producer = model.producers.get(name)
        sqnr = -math.inf if overflow_count else compute_sqnr(xx, ee)
        norm, elements = math.sqrt(xx * yy), int(count) + overflow_count
        values.append(
            ValueDelta(
                value=name,
                node=producer.id if producer else name,
                max_abs=math.inf if overflow_count else float(top),
                rmse=math.sqrt(ee / count) if count else math.inf,
                cosine=math.nan if overflow_count else float(xy / norm) if norm else 1.0 if ee == 0 else 0.0,
                sqnr=sqnr,
                elements=elements,
                overflowed=overflow_count,
                underflowed=underflow_count,
                undefined=nan_count,
                infinite=infinite_count,
                **_compute_isolated_errors(errors, name, xx, elements, sound=not overflow_count),
            )
        )
    samples = min(errors.sample_counts.values(), default=0)
    names = {v.value for v in values}
    parts = [p for o, one in errors.slices.items() if o in names and (p := one.worst()) is not None]
    outputs = tuple(o for o in model.outputs if o in names)
    return Accuracy(errors.source, samples, tuple(values), errors.synthetic, tuple(parts), outputs)


def _compute_isolated_errors(
    errors: Errors, value: str, signal: float, elements: int, *, sound: bool
) -> dict[str, float | None]:
    """The error that a value's node makes itself; ``sound`` where the value is as finite as in fp32."""
    if errors.isolated_errors is None:
        return {}
    count = (errors.saturated or {}).get(value)
    own: dict[str, float | None] = {"saturated": None if count is None else count / elements}
    energy, largest = errors.isolated_errors.get(value, (0.0, 0.0))
    if not math.isfinite(largest):
        # An infinity less itself is no number: the difference of two masks shows nothing.
        return own if sound else own | {"own_sqnr": -math.inf, "own_rmse": math.inf, "own_max": math.inf}
    own["own_max"] = float(largest)
    if math.isfinite(energy):
        # Masks hold -3.4e38: the square of what 16 bits leave of it is beyond float32.
        own |= {"own_sqnr": compute_sqnr(signal, energy), "own_rmse": math.sqrt(energy / elements)}
    return own


def list_comparable_values(source: Model, variant: Model) -> tuple[str, ...]:
    """Floating values of main-graph nodes that exist under the same name in both models, in graph order."""
    variant_outputs = {o for n in variant.top for o in n.outputs}
    return tuple(
        o
        for n in source.top
        if n.op != "Constant"
        for o in n.outputs
        if o and o in variant_outputs and source.values[o].dtype in {"fp32", "fp16", "bf16", "fp64"}
    )


def _compute_sums(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float64]:
    """``Errors.sums`` of a piece of one value, which the processor's own memory holds."""
    error = x - y
    dot_products = _compute_dots(x, y, error)
    count, bad, nan_count, infinite_count = x.size, 0, 0, 0
    if not math.isfinite(dot_products[1]):
        # Some element may be no number, which no sum of squares hides.
        is_nan = np.isnan(x)
        nan_count, infinite_count = int(np.count_nonzero(is_nan)), int(np.count_nonzero(np.isinf(x)))
        finite = np.isfinite(x) & np.isfinite(y)
        equal = finite | (x == y) | (is_nan & np.isnan(y))
        bad = int(x.size - np.count_nonzero(equal))
        count -= bad
        x, y, error = x[finite], y[finite], error[finite]
        dot_products = _compute_dots(x, y, error)
    most = max(float(error.max(initial=0.0)), -float(error.min(initial=0.0)))
    is_zero = y == 0
    underflow_count = int(np.count_nonzero(is_zero & (x != 0))) if is_zero.any() else 0
    faults = [bad, underflow_count, nan_count, infinite_count]
    return np.array([*dot_products, most, count, *faults], np.float64)


def _format_decibels(value: float) -> str:
    return f"{value:.1f} dB" if math.isfinite(value) else "equal to fp32" if value > 0 else "not finite"


def _compute_dots(x: NDArray[Any], y: NDArray[Any], error: NDArray[Any]) -> list[float]:
    return [_compute_dot(x, x), _compute_dot(error, error), _compute_dot(x, y), _compute_dot(y, y)]


def _compute_dot(x: NDArray[Any], y: NDArray[Any]) -> float:
    """A dot product of a piece, in double precision where float32 cannot hold it."""
    part = float(np.dot(x, y))
    if not _SAFE < abs(part) < math.inf:
        # A square leaves the range of float32 long before the number does: masks hold -3.4e38.
        part = float(np.dot(x.astype(np.float64), y.astype(np.float64)))
    return part


def compute_accuracy(facts: VariantResult) -> Accuracy | None:
    """Errors of every compared value against the source in fp32; None where none was compared."""
    return None if facts.errors is None else summarize_errors(facts.errors, facts.source)


def describe_random_inputs(facts: VariantResult) -> str:
    """What of a variant rests on random input, in words; empty where nothing does."""
    has_random_errors = facts.errors is not None and facts.errors.synthetic
    parts = (("errors", has_random_errors), ("scales", facts.random_scales))
    return " and ".join(name for name, is_random in parts if is_random)
