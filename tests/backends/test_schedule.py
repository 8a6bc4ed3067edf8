"""Schedules of real builds: on several streams, and with none but one allowed."""

from __future__ import annotations

import pytest

import shelf
from rtlab import backends
from rtlab.analyses.schedule.streams import compute_schedule, unit_durations
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant

here = backends.get("tensorrt-rtx").availability()
pytestmark = pytest.mark.skipif(not here.ok, reason=here.reason)


@pytest.mark.slow
def test_branches_of_googlenet_run_side_by_side_and_events_order_all_that_is_read() -> None:
    """Vector clocks find no reading that the builder's own signals and waits leave to chance."""
    model = shelf.load("googlenet").model
    plans = []
    for options in (None, BuildOptions.of(max_aux_streams=0)):
        request = BuildRequest(model, Variant.of("fp32", target="sm86", options=options))
        engine = backends.get("tensorrt-rtx").build(request, Silent())
        plans.append(compute_schedule(engine, unit_durations(engine), origin=""))
    several, one = plans
    assert ((), ()) == (several.notes, one.notes)
    assert several.serial == one.serial == one.makespan > several.makespan >= several.bound
    assert all(w.event is not None for w in several.waits)
