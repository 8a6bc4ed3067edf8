"""The Explorer on a store gets rows in the page while a sweep runs, without being opened again."""

from __future__ import annotations

import pytest

from explorer import EXPLORER

pytestmark = pytest.mark.slow

STORE = """
import rtlab
from rtlab.testing import tiny_model

def make_grid(*precisions):
    return rtlab.grid(tiny_model(), precision=[*precisions], backend="classic", target="sm86")

store = rtlab.Store("runs_as_they_come")
explorer = store.run(make_grid("fp32"), budget_s=0).explore()
explorer
"""


def test_rows_come_into_the_page_while_a_sweep_runs(lab_page) -> None:
    lab_page.open([STORE])
    lab_page.run_all()
    page = lab_page.page
    page.wait_for_selector(f'{EXPLORER} [data-chip="fp32"].rt-ready')
    assert 1 == page.locator(f"{EXPLORER} [data-chip]").count()
    lab_page.python("str(store.run(make_grid('fp32', 'fp16', 'int8'), budget_s=0, background=True))")
    for name in ("fp16", "int8"):
        page.wait_for_selector(f'{EXPLORER} [data-chip="{name}"].rt-ready')
    assert 3 == page.locator(f"{EXPLORER} [data-chip]").count()
    page.click(f'{EXPLORER} [data-chip="fp16"] button')
    lab_page.wait_python("explorer.state.variant == 'fp16'")
    lab_page.python("explorer.close()")
    lab_page.wait_python("not [t for t in __import__('threading').enumerate() if t.name == 'rtlab-store']")
