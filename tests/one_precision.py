"""Whole models in one precision, by its passes alone: what ``prepare`` does beside is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Granularity, Precision
from rtlab.quantize import fp16_passes, fp16_plan, passes
from rtlab.quantize.fp16_plan import HalfConstants
from rtlab.quantize.placement import QuantizationPlan, plan
from rtlab.quantize.rewrite import insert_pairs


class Halves(NamedTuple):
    typed: Model
    emulation: Model
    notes: tuple[str, ...]


def fp16(model: Model) -> Halves:
    constants = HalfConstants(model.known)
    plan = fp16_plan.plan(model, {n.id: Precision.FP16 for n in model.top}, constants=constants)
    notes = (
        *fp16_plan.describe_saturation(model, plan, constants),
        *fp16_plan.describe_skipped_nodes(plan.skipped_nodes),
    )
    forms = (fp16_passes.narrow, fp16_passes.round_values)
    typed, emulation = (passes.run(model, [form(plan, constants)]) for form in forms)
    return Halves(typed, emulation, notes)


def int8(model: Model, scales: Mapping[str, Scale]) -> Model:
    return quantize(model, plan(model), scales)


def quantize(
    model: Model,
    plan: QuantizationPlan,
    scales: Mapping[str, Scale],
    *,
    precision: Precision = Precision.INT8,
    weights: Granularity = "channel",
) -> Model:
    if not plan.activations:
        return model
    opset = passes.raise_opset(precision.stored.opset, f'in "{precision}"')
    return passes.run(model, [opset, insert_pairs(plan, scales, precision, weights)])
