"""ONNX in, ONNX out: a model that expresses a precision in its own graph, once, for every backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rtlab.core.model import Model
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, VariantError
from rtlab.quantize.calibrators import Scale, display, scales
from rtlab.quantize.half import fp16
from rtlab.quantize.placement import quantizable
from rtlab.quantize.ranges import Range, Ranges, collect
from rtlab.quantize.rewrite import int8, share

__all__ = [
    "Prepared",
    "Range",
    "Ranges",
    "Scale",
    "collect",
    "display",
    "fp16",
    "int8",
    "prepare",
    "quantizable",
    "scales",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A model whose graph expresses a precision.

    ``model`` is the typed graph for compilers. ``emulation`` is what the CPU computes faithfully at ONNX
    Runtime's level BASIC; it is ``model`` itself for FP32 and INT8. In both, nodes name their source by
    ``rtlab.origin``, and in ``emulation`` every value of the source keeps its name. ``scales`` are those of
    the quantized activations; ``notes`` say what differs from what one would expect.
    """

    model: Model
    emulation: Model
    scales: Mapping[str, Scale] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def prepare(model: Model, variant: Variant, ranges: Ranges | None = None) -> Prepared:
    """Express a variant's precision in the graph. The given model is never changed.

    Args:
        model: The source.
        variant: Its precision decides, and for INT8 its calibrator.
        ranges: Observed ranges of ``quantizable(model)``, which INT8 needs.

    Raises:
        CalibrationError: INT8 without ranges, or without those of some value.
        ModelError: a weight holds NaN or infinity.
        VariantError: the precision is not offered, or the model's opset cannot be raised as far as it needs.
    """
    if variant.precision is Precision.FP32:
        return Prepared(model, model)
    if variant.precision is Precision.FP16:
        halves = fp16(model)
        return Prepared(halves.typed, halves.emulation, notes=halves.notes)
    if variant.precision is Precision.INT8:
        return _int8(model, variant, ranges)
    raise VariantError(
        f'Cannot prepare model "{model.name}" in "{variant.precision}": this precision is not offered yet. '
        'Choose "fp32", "fp16" or "int8".'
    )


def _int8(model: Model, variant: Variant, ranges: Ranges | None) -> Prepared:
    wanted = quantizable(model)
    if not wanted:
        note = "no node has an INT8 form here: the model is unchanged"
        return Prepared(model, model, notes=(note,))
    if ranges is None or variant.calibrator is None:
        raise CalibrationError(
            f'Cannot prepare model "{model.name}" in "int8": the scales of {len(wanted)} activations need observed '
            "ranges. Give calibration data, for example Study(model, data=CalibrationData.random(model))."
        )
    missing = [v for v in wanted if v not in ranges.values]
    if missing:
        raise CalibrationError(
            f'Cannot prepare model "{model.name}" in "int8": value "{missing[0]}" and {len(missing) - 1} more were '
            "not observed. Collect every value of rtlab.quantize.quantizable(model)."
        )
    seen = Ranges({v: ranges.values[v] for v in wanted})
    chosen = share(model, scales(seen, variant.calibrator))
    ready = int8(model, chosen)
    return Prepared(ready, ready, chosen, tuple(s.note for s in chosen.values() if s.note))
