"""What each layer takes: measured times, of the engine itself or joined by node from the one that ran."""

from __future__ import annotations

from collections.abc import Mapping

from rtlab.analyses import fusion
from rtlab.analyses.timing import times as _times_of
from rtlab.analyses.timing.times import SharedTime, Timing
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.trace import Profile
from rtlab.core.variant import Precision, Variant

#: What ONNX Runtime's CPU kernels compute in; of other precisions it runs FP32 kernels between conversions.
_NATIVE = {Precision.FP32, Precision.INT8}


def compute_timing(facts: VariantResult) -> Timing | None:
    """Times of the layers of the engine that was measured; None where none was."""
    if facts.profile is None or facts.measured is None:
        return None
    return _times(facts.profile, facts.measured, None if facts.recorded else facts.variant)


@memoized
def _times(profile: Profile, engine: Engine, ran: Variant | None) -> Timing:
    """``ran`` is the variant that was run here; on a CPU its arithmetic may be another than its types say."""
    foreign = sorted(str(p) for p in ran.precisions - _NATIVE) if ran and profile.processor == "CPU" else []
    kernels = f"The CPU has no {' or '.join(foreign)} arithmetic: these are times of FP32 kernels"
    note = ". ".join(filter(None, (kernels if foreign else "", profile.note)))
    return _times_of.summarize_profile(profile, engine, note=note)


def get_engine_timing(facts: VariantResult) -> Timing | None:
    """The times of the engine's own layers; None where they are those of another engine, or there are none."""
    return compute_timing(facts) if facts.measured is facts.engine else None


@memoized
def get_layer_times(facts: VariantResult) -> Mapping[str, SharedTime]:
    """Times on the layers of the engine, by layer id; empty where nothing was measured.

    An engine that ran itself shows its own times. Otherwise they are joined by the nodes of the prepared model,
    which both engines were built from: a layer that only quantizes the input of a convolution gets the time of
    that quantization, not of the convolution.
    """
    times, ran = compute_timing(facts), facts.measured
    if times is None or ran is None:
        return {}
    if ran is facts.engine:
        return _times_of.share_times(times, {t.layer: (t.layer,) for t in times.layers})
    built = facts.prepared.model
    mappings = (fusion.relate_engine(e, built, built) for e in (ran, facts.engine))
    return _times_of.map_times_to_layers(times, *mappings)


def get_milliseconds(facts: VariantResult) -> Mapping[str, float]:
    """Measured times of the engine's own layers; empty where there are none."""
    times = get_engine_timing(facts)
    return {t.layer: t.median for t in times.layers} if times else {}
