"""Layers under the roofs of a processor, with what they add up to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated

from rtlab.analyses.roofline.estimate import Roofline, get_efficiency
from rtlab.analyses.roofline.estimate_error import describe_estimate_error
from rtlab.core.engine import Engine
from rtlab.core.schema import FieldMeta
from rtlab.documents.numbers import format_number


@dataclasses.dataclass(frozen=True)
class RoofedLayer:
    """A layer under the roofs: ``distance`` is its measured time by the attainable one."""

    step: Annotated[int, FieldMeta("Step")]
    layer: Annotated[str, FieldMeta(links="layers")]
    name: Annotated[str, FieldMeta("Layer")]
    bound: Annotated[str, FieldMeta("Bound")]
    units: Annotated[str, FieldMeta("Type")]
    flops: Annotated[int | None, FieldMeta("Operations", "FLOP", "estimated")]
    moved: Annotated[int | None, FieldMeta("Moved", "B", "estimated")]
    intensity: Annotated[float | None, FieldMeta("Intensity", "FLOP/byte", "estimated")]
    attainable: Annotated[float | None, FieldMeta("Attainable", "ms", "estimated")]
    estimated: Annotated[float | None, FieldMeta("Estimated", "ms", "estimated")]
    measured: Annotated[float | None, FieldMeta("Measured", "ms", "measured")]
    distance: Annotated[float | None, FieldMeta("Measured by attainable")]
    note: str


_SHARE_NOTE = "share of the estimated time"


@dataclasses.dataclass(frozen=True)
class RoofedEngine:
    """An engine under the roofs of a processor; words stand where a sum is withheld, None where there is none.

    ``more`` says how many layers are not counted, ``error`` how far the estimate may be off, ``start`` what it takes to
    start a layer.
    """

    operations: Annotated[
        str, FieldMeta("Operations", origin="estimated", note="two per multiply-accumulate{self.more}")
    ]
    macs: Annotated[
        str, FieldMeta("Multiply-accumulates", origin="estimated", note="at batch {self.batch}{self.more}")
    ]
    parameters: Annotated[str | None, FieldMeta("Parameters", note="of the ONNX model", omit=True)]
    moved: Annotated[
        int,
        FieldMeta(
            "Moved",
            "B",
            "estimated",
            note="read and written by all layers after fusion, as if no cache kept any of it{self.more}",
        ),
    ]
    estimated: Annotated[str, FieldMeta("Estimated time", origin="estimated", note="{self.error}")]
    counted: Annotated[
        str | None,
        FieldMeta(
            "Counted",
            note="Layers of which operations and bytes are known, and what they move of all that moves.",
            omit=True,
        ),
    ]
    attainable: Annotated[str, FieldMeta("Attainable time", origin="estimated", note="{self.start}")]
    measured: Annotated[
        float | None, FieldMeta("Measured time", "ms", "measured", note="sum of the layers", omit=True)
    ]
    memory: Annotated[str, FieldMeta("Bound by memory", origin="estimated", note=_SHARE_NOTE)]
    launch: Annotated[str, FieldMeta("Bound by the launch", origin="estimated", note=_SHARE_NOTE)]
    batch: int
    more: str
    error: str
    start: str
    layers: tuple[RoofedLayer, ...]


def summarize_roofline(roofline: Roofline, engine: Engine, layer_names: Mapping[str, str]) -> RoofedEngine:
    """An estimate as its panel and its table tell it; ``layer_names`` are the names of layers, by id."""
    roofs, coverage = roofline.peaks, roofline.coverage
    missing = len(roofline.uncounted)
    measured = [p.measured for p in roofline.layers if p.measured is not None]
    error = (
        "not known for a processor that was measured"
        if roofs.origin == "measured"
        else f"{describe_estimate_error(roofs.name)}. Timed one by one, layers of recorded engines sum to 1.02 to 1.78 "
        "times a whole inference"
    )
    steps = {y.id: y for y in engine.layers}
    share = math.floor(100 * coverage.moved)
    return RoofedEngine(
        operations=format_si(roofline.flops, "FLOP"),
        macs=format_si(roofline.macs, "MAC"),
        parameters=format_si(roofline.parameters, "") if roofline.parameters else None,
        moved=roofline.moved,
        estimated=_time(roofline.estimated),
        counted=f"{coverage.layers} of {coverage.all_layers} layers, {share} % of the known bytes" if missing else None,
        attainable=_time(roofline.attainable),
        measured=sum(measured) if measured else None,
        memory=f"{roofline.share('memory'):.0%}",
        launch=f"{roofline.share('launch'):.0%}",
        batch=roofline.batch,
        more=f"; {missing} layers are not counted" if missing else "",
        error=roofline.withheld or f"sum of the layers on {roofs.name}; {error}",
        start=roofline.withheld
        or f"were every layer at its roof, after {get_efficiency(roofs).launch} µs to start it",
        layers=tuple(
            RoofedLayer(
                steps[p.layer].index + 1, p.layer, layer_names[p.layer], p.bound, f"{p.precision} {p.units}".strip(),
                p.flops, p.moved, p.intensity, p.attainable, p.estimated, p.measured, p.distance,
                f"{steps[p.layer].name}: {p.note}" if p.note else steps[p.layer].name,
            )
            for p in roofline.layers
        ),
    )  # fmt: skip


def _time(milliseconds: float | None) -> str:
    return "withheld" if milliseconds is None else format_number(milliseconds, "ms")


def format_si(value: float, unit: str) -> str:
    """A large number in words, such as 1.82 GFLOP."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}".strip()
    return f"{value:.4g} {unit}".strip()
