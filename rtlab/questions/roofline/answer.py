"""Layers under the roofs of a processor, with what they add up to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated

from rtlab.core.engine import Engine
from rtlab.core.schema import Meaning
from rtlab.documents.numbers import number
from rtlab.questions.roofline.estimate_error import known_error
from rtlab.questions.roofline.roofs import Roofline, efficiency_of


@dataclasses.dataclass(frozen=True)
class RoofedLayer:
    """A layer under the roofs: ``distance`` is its measured time by the attainable one."""

    step: Annotated[int, Meaning("Step")]
    layer: Annotated[str, Meaning(links="layers")]
    name: Annotated[str, Meaning("Layer")]
    bound: Annotated[str, Meaning("Bound")]
    units: Annotated[str, Meaning("Type")]
    flops: Annotated[int | None, Meaning("Operations", "FLOP", "estimated")]
    moved: Annotated[int | None, Meaning("Moved", "B", "estimated")]
    intensity: Annotated[float | None, Meaning("Intensity", "FLOP/byte", "estimated")]
    attainable: Annotated[float | None, Meaning("Attainable", "ms", "estimated")]
    estimated: Annotated[float | None, Meaning("Estimated", "ms", "estimated")]
    measured: Annotated[float | None, Meaning("Measured", "ms", "measured")]
    distance: Annotated[float | None, Meaning("Measured by attainable")]
    note: str


_BESIDE = "share of the estimated time"


@dataclasses.dataclass(frozen=True)
class RoofedEngine:
    """An engine under the roofs of a processor; words stand where a sum is withheld, None where there is none.

    ``more`` says how many layers are not counted, ``error`` how far the estimate may be off, ``start`` what it takes to
    start a layer.
    """

    operations: Annotated[
        str, Meaning("Operations", origin="estimated", note="two per multiply-accumulate{self.more}")
    ]
    macs: Annotated[
        str, Meaning("Multiply-accumulates", origin="estimated", note="at batch {self.batch}{self.more}")
    ]
    parameters: Annotated[str | None, Meaning("Parameters", note="of the ONNX model", omit=True)]
    moved: Annotated[
        int,
        Meaning(
            "Moved",
            "B",
            "estimated",
            note="read and written by all layers after fusion, as if no cache kept any of it{self.more}",
        ),
    ]
    estimated: Annotated[str, Meaning("Estimated time", origin="estimated", note="{self.error}")]
    counted: Annotated[
        str | None,
        Meaning(
            "Counted",
            note="Layers of which operations and bytes are known, and what they move of all that moves.",
            omit=True,
        ),
    ]
    attainable: Annotated[str, Meaning("Attainable time", origin="estimated", note="{self.start}")]
    measured: Annotated[
        float | None, Meaning("Measured time", "ms", "measured", note="sum of the layers", omit=True)
    ]
    memory: Annotated[str, Meaning("Bound by memory", origin="estimated", note=_BESIDE)]
    launch: Annotated[str, Meaning("Bound by the launch", origin="estimated", note=_BESIDE)]
    batch: int
    more: str
    error: str
    start: str
    layers: tuple[RoofedLayer, ...]


def roofed(found: Roofline, engine: Engine, called: Mapping[str, str]) -> RoofedEngine:
    """An estimate as its panel and its table tell it; ``called`` are the names of layers, by id."""
    roofs, known = found.peaks, found.known
    missing = len(found.uncounted)
    measured = [p.measured for p in found.layers if p.measured is not None]
    error = (
        "not known for a processor that was measured"
        if roofs.origin == "measured"
        else f"{known_error(roofs.name)}. Timed one by one, layers of recorded engines sum to 1.02 to 1.78 times a "
        "whole inference"
    )
    steps = {y.id: y for y in engine.layers}
    share = math.floor(100 * known.moved)
    return RoofedEngine(
        operations=scaled(found.flops, "FLOP"),
        macs=scaled(found.macs, "MAC"),
        parameters=scaled(found.parameters, "") if found.parameters else None,
        moved=found.moved,
        estimated=_time(found.estimated),
        counted=f"{known.layers} of {known.all_layers} layers, {share} % of the known bytes" if missing else None,
        attainable=_time(found.attainable),
        measured=sum(measured) if measured else None,
        memory=f"{found.share('memory'):.0%}",
        launch=f"{found.share('launch'):.0%}",
        batch=found.batch,
        more=f"; {missing} layers are not counted" if missing else "",
        error=found.withheld or f"sum of the layers on {roofs.name}; {error}",
        start=found.withheld
        or f"were every layer at its roof, after {efficiency_of(roofs).launch} µs to start it",
        layers=tuple(
            RoofedLayer(
                steps[p.layer].index + 1, p.layer, called[p.layer], p.bound, f"{p.precision} {p.units}".strip(),
                p.flops, p.moved, p.intensity, p.attainable, p.estimated, p.measured, p.distance,
                f"{steps[p.layer].name}: {p.note}" if p.note else steps[p.layer].name,
            )
            for p in found.layers
        ),
    )  # fmt: skip


def _time(milliseconds: float | None) -> str:
    return "withheld" if milliseconds is None else number(milliseconds, "ms")


def scaled(value: float, unit: str) -> str:
    """A large number in words, such as 1.82 GFLOP."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}".strip()
    return f"{value:.4g} {unit}".strip()
