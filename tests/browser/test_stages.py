"""A variant's result arrives in stages on the page: the engine first, and Cancel keeps what is there."""

from __future__ import annotations

import pytest

from explorer import EXPLORER, GATED, allow

pytestmark = pytest.mark.slow

#: Stages by the method that measures them, and what the page says meanwhile.
STAGES = {"_time": "timed", "_compare": "compared", "_score": "scored"}
WAITING = {"timed": "Timing …", "compared": "Comparing values …", "scored": "Scoring the task …"}


@pytest.fixture
def waiting(opened, lab_page):
    """An Explorer that builds int8 on the press of the button; its stages wait."""
    lab_page.open([GATED, "explorer"])
    lab_page.run_all()
    lab_page.page.wait_for_selector(f'{EXPLORER} [data-control="build"]:not([disabled])')
    # Waiting at a gate takes of the time that a stage has.
    allow(lab_page.page, "inf")
    lab_page.page.click(f'{EXPLORER} [data-tab="timing"]')
    lab_page.page.click(f'{EXPLORER} [data-control="build"]')
    lab_page.page.wait_for_selector(f'{EXPLORER} [data-stage="timed"][data-state="waiting"]')
    yield lab_page
    lab_page.python("ungate()")


def test_the_engine_is_on_screen_before_anything_is_measured_and_each_stage_follows(waiting) -> None:
    page = waiting.page
    assert waiting.python("explorer.build['running']")
    assert waiting.python("len(explorer.study[explorer.state.variant].engine.layers)") == waiting.python(
        "sum(b['kind'] == 'layer' for b in "
        "__import__('rtlab.documents.serialization').documents.serialization.decode(explorer.engine)['graph']['boxes'])"
    )
    # The engine can be looked at meanwhile: it has its memory, its findings, its table.
    for tab in ("memory", "engine", "table", "timing"):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
    assert WAITING["timed"] in page.inner_text(f"{EXPLORER} .rt-bottom")
    waiting.python("gates['_time'].set()")
    page.wait_for_selector(f'{EXPLORER} [data-chart="timing"] .points .point >> nth=0')
    page.wait_for_selector(f'{EXPLORER} [data-stage="compared"][data-state="waiting"]')
    waiting.python("gates['_compare'].set()")
    page.wait_for_selector(f'{EXPLORER} [data-chart="accuracy"] .points .point >> nth=0')
    waiting.python("gates['_score'].set()")
    waiting.wait_python("not explorer.build['running']")
    # What was compared on a part of the samples says so, and offers the others.
    page.wait_for_selector(f'{EXPLORER} [data-stage]:not([data-state="done"])', state="detached")
    assert [] == waiting.console_errors


@pytest.mark.parametrize("stage", list(STAGES))
def test_cancel_in_a_stage_keeps_the_earlier_ones_and_offers_to_go_on(waiting, stage) -> None:
    page = waiting.page
    for name in STAGES:
        if name == stage:
            break
        waiting.python(f"gates[{name!r}].set()")
    page.wait_for_selector(f"{EXPLORER} [data-chip] i.rt-spin", state="attached")
    done = list(STAGES)[: list(STAGES).index(stage)]
    waiting.wait_python(
        f"all(study[explorer.state.variant].stages[s].state == 'done' for s in {[STAGES[d] for d in done]!r})"
    )
    page.click(f'{EXPLORER} [data-control="cancel"]')
    waiting.wait_python("not explorer.build['running']")
    assert waiting.python("explorer.failure") is None
    told = page.wait_for_selector(f'{EXPLORER} [data-stage="{STAGES[stage]}"][data-state="missing"]')
    assert f"Not {STAGES[stage]}: it was cancelled." == told.inner_text()
    assert ["done"] * (1 + len(done)) == waiting.python(
        "[s.state for s in study[explorer.state.variant].stages.values() if s.state == 'done']"
    )
    waiting.python("[g.set() for g in gates.values()] and None")
    page.click(f'{EXPLORER} [data-control="measure"] >> nth=0')
    waiting.wait_python("not study[explorer.state.variant].missing and not explorer.build['running']")
    # What was compared on a part of the samples says so, and offers the others.
    page.wait_for_selector(f'{EXPLORER} [data-stage]:not([data-state="done"])', state="detached")
    assert [] == waiting.console_errors
