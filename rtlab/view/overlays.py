"""Numbers for many boxes at once, each with its origin."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.core.data import RANDOM
from rtlab.core.model import Model
from rtlab.questions.cards.picture import Overlay, OverlayValue
from rtlab.questions.roofline.estimate_error import known_error
from rtlab.questions.timing.times import LayerTime, Shared, Timing, on_nodes
from rtlab.relation.footprint import Footprint, of_layers, of_nodes, sizes
from rtlab.relation.roles import SERVING
from rtlab.view.effects import effects

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.questions.accuracy.errors import Accuracy, ValueDelta
    from rtlab.questions.roofline.roofs import Roofline
    from rtlab.questions.sensitivity import Sensitivity

#: Names of measured layers that a note lists before it says that there are more.
_LISTED = 4


def overlays(result: Facts, model: Model, guilty: Sensitivity | None = None) -> list[Overlay]:
    """The estimate for the engine's GPU, time, share of time and error where they were measured, memory of outputs.

    ``guilty`` is a ranking of what its nodes do to the outputs, which becomes numbers too.

    What was measured on a CPU in the place of a GPU comes after the estimate for that GPU.
    """
    made: list[Overlay] = []
    estimate, timing = questions.roofline.estimate(result), questions.timing.of(result)
    mapping, accuracy = questions.fusion.measured(result), questions.accuracy.of(result)
    if estimate is not None and estimate.known.enough:
        made.append(_estimate(result, estimate))
    if timing is not None and mapping is not None:
        made += _times(timing, on_nodes(timing, mapping), questions.timing.on_layers(result))
    if accuracy is not None:
        told = (_errors(result, model, accuracy), _errors(result, model, accuracy, own=True))
        made += [errors for errors in told if errors is not None]
    if guilty is not None:
        made += effects(result, guilty)
    for overlay in made:
        # What is known of a node of a function holds wherever the function is called.
        overlay["nodes"] = {i: r for n, r in overlay["nodes"].items() for i in model.where(n)}
    if found := _memory(result, model):
        made.append(found)
    return made


def _memory(result: Facts, model: Model) -> Overlay | None:
    nodes, layers = of_nodes(model), of_layers(result.engine, result.prepared.model)
    if not nodes and not layers:
        return None
    told = all(f.origin == "reported" for f in (*nodes.values(), *layers.values()))
    reading = functools.cache(_bytes)
    at = ", ".join(f"{symbol} = {size}" for symbol, size in sizes(model).items())
    return Overlay(
        id="memory",
        title="Output memory",
        unit="B",
        # One estimate among reported sizes makes the whole an estimate.
        origin="reported" if told else "estimated",
        source=result.engine.title if told else f"from shapes and types{at and ', at '}{at}",
        best="low",
        nodes={i: reading(f) for i, f in nodes.items()},
        layers={i: reading(f) for i, f in layers.items()},
    )


def _bytes(found: Footprint) -> OverlayValue:
    outputs = f"{found.tensors} outputs" if found.tensors > 1 else "1 output"
    note = f"{outputs}, {found.origin}"
    return OverlayValue(value=float(found.nbytes), spread=None, shared=1, note=note)


def _estimate(result: Facts, found: Roofline) -> Overlay:
    known = found.milliseconds(result.engine)
    whole = sum(known.values())
    layers = tuple(
        LayerTime(i, time, None, time / whole if whole else 0.0) for i, time in known.items() if time
    )
    # As if it had been measured, so that nodes get theirs in the same way.
    told = Timing("", "", None, 0, None, None, whole, layers, processor="GPU")
    return Overlay(
        id="estimate",
        title=f"{found.peaks.name} time",
        unit="ms",
        origin="estimated",
        source=f"estimated for {found.peaks.name} at batch {found.batch}: {known_error(found.peaks.name)}",
        best="low",
        nodes={
            i: OverlayValue(value=s.median, spread=None, shared=s.shared, note="")
            for i, s in on_nodes(told, questions.fusion.mapping(result)).items()
        },
        layers={t.layer: OverlayValue(value=t.median, spread=None, shared=1, note="") for t in layers},
    )


def _times(times: Timing, nodes: Mapping[str, Shared], layers: Mapping[str, Shared]) -> list[Overlay]:
    time = Overlay(
        id="time",
        title=f"{times.processor} time, scaled" if times.scaled else f"{times.processor} time",
        unit="ms",
        # What was scaled nobody has measured.
        origin="estimated" if times.scaled else "measured",
        source=f"estimated: {times.scaled}; {times.origin}" if times.scaled else times.origin,
        best="low",
        nodes=_readings(nodes, "node", times.scale),
        layers=_readings(layers, "layer", times.scale),
    )
    share = Overlay(
        id="share",
        title=f"Share of {times.processor} time",
        unit="%",
        origin="measured",
        source=times.origin,
        best="low",
        nodes=_shares(nodes, time["nodes"]),
        layers=_shares(layers, time["layers"]),
    )
    return [time, share]


def _readings(times: Mapping[str, Shared], what: str, scale: float = 1.0) -> dict[str, OverlayValue]:
    made = {}
    for id_, time in times.items():
        names = ", ".join([i.split(":", 1)[-1] for i in time.layers[:_LISTED]])
        more = " ..." if len(time.layers) > _LISTED else ""
        others = time.shared - 1
        together = f", together with {others} other {what}{'s' if others > 1 else ''}" if others else ""
        note = f"timed as {names}{more}{together}"
        spread = None if time.spread is None else time.spread * scale
        made[id_] = OverlayValue(value=time.median * scale, spread=spread, shared=time.shared, note=note)
    return made


def _shares(times: Mapping[str, Shared], readings: Mapping[str, OverlayValue]) -> dict[str, OverlayValue]:
    return {
        i: OverlayValue(value=100 * times[i].share, spread=None, shared=r["shared"], note=r["note"])
        for i, r in readings.items()
    }


def _errors(result: Facts, model: Model, errors: Accuracy, *, own: bool = False) -> Overlay | None:
    """Accumulated errors, or those that nodes make themselves."""
    nodes: dict[str, OverlayValue] = {}
    for value in errors.values:
        told = value.own_sqnr if own else value.sqnr
        # Equal values have no finite SQNR and need no mark; an overflow is told in the status line.
        if told is not None and math.isfinite(told):
            nodes.setdefault(value.node, _own_error(value) if own else _error(value))
    layers: dict[str, OverlayValue] = {}
    for layer in result.engine.layers:
        found = [
            p.node
            for p in questions.fusion.mapping(result).of(layer.id)
            if p.role not in SERVING and p.node in nodes
        ]
        if found:
            # A layer's error is that of the last value that it computes; what it makes, the most that its nodes make.
            worst = min(found, key=lambda n: nodes[n]["value"])
            layers[layer.id] = nodes[worst if own else max(found, key=lambda n: model.by_id[n].index)]
    if not nodes:
        return None
    return Overlay(
        id="own_error" if own else "error",
        title=f"{'Own SQNR' if own else 'SQNR'}{f', {RANDOM}' if errors.synthetic else ''}",
        unit="dB",
        origin="measured",
        source=f"{errors.origin}, against fp32",
        best="high",
        nodes=nodes,
        layers=layers,
    )


def _error(value: ValueDelta) -> OverlayValue:
    # Few digits: thousands of these sentences travel, and their digits are what does not compress.
    note = f"max |error| {value.max_abs:.3g}, RMSE {value.rmse:.3g}"
    note += f", {value.overflowed} not finite" if value.overflowed else f", cosine {value.cosine:.4f}"
    return OverlayValue(value=value.sqnr, spread=None, shared=1, note=note)


def _own_error(value: ValueDelta) -> OverlayValue:
    note = f"made here of exact inputs: max {value.own_max:.3g}, RMSE {value.own_rmse:.3g}"
    if value.saturated:
        note += f", {100 * value.saturated:.2g} % of it saturates"
    return OverlayValue(value=value.own_sqnr or 0.0, spread=None, shared=1, note=note)
