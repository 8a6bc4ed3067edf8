"""A model without data: the page says so everywhere, and takes the data."""

from __future__ import annotations

import io

import numpy as np
import pytest

from explorer import EXPLORER, Explorer

pytestmark = pytest.mark.slow

TINY = """import rtlab
study = rtlab.Study(rtlab.testing.tiny_model())
study.add("int8", calibrator="minmax", target="cpu")
study.run()
explorer = study.explore()
explorer"""


def npz(**arrays) -> dict[str, object]:
    """A file of samples as the browser's dialog would hand it over."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    return {"name": "photographs.npz", "mimeType": "application/zip", "buffer": content.getvalue()}


def marks(shown: Explorer) -> dict[str, bool]:
    """Where the page says that what it shows rests on random input."""
    page = shown.page
    places = {
        "row": '[data-control="random"]',
        "banner": '[data-control="random-banner"]',
        "status": ".rt-status .rt-warning",
        "chart": '[data-chart="accuracy"] .gtitle:has-text("random input")',
    }
    return {name: page.locator(f"{EXPLORER} {where}").count() > 0 for name, where in places.items()}


def test_numbers_on_random_input_are_marked_until_data_is_given(lab_page) -> None:
    """A reader who looks at one place alone must not take noise for accuracy."""
    lab_page.open([TINY])
    lab_page.run_all()
    shown = Explorer(lab_page)
    shown.ready()
    page = shown.page
    page.click(f'{EXPLORER} [data-tab="timing"]')
    page.wait_for_selector(f'{EXPLORER} [data-chart="accuracy"] .gtitle')
    # Once, above the table of variants.
    assert "random input" in page.inner_text(f"{EXPLORER} .rt-variants")
    assert "random input" not in page.inner_text(f"{EXPLORER} .rt-variants table")

    assert [] == [place for place, marked in marks(shown).items() if not marked]
    page.click(f'{EXPLORER} [data-tab="table"]')
    page.wait_for_selector(f'{EXPLORER} th:has-text("SQNR, random input")')
    page.click(f'{EXPLORER} [data-tab="timing"]')

    samples = np.random.default_rng(0).standard_normal((8, 3, 8, 8), np.float32)
    page.set_input_files(f'{EXPLORER} [data-control="random"] input', npz(x=samples))
    lab_page.wait_python("explorer.data['source'] == 'photographs.npz' and not explorer.build['running']")
    page.wait_for_selector(f'{EXPLORER} [data-control="random"]', state="detached")
    page.wait_for_selector(f'{EXPLORER} [data-chart="accuracy"] .gtitle:has-text("worst")')

    assert None is lab_page.python("explorer.failure")
    assert [] == [place for place, marked in marks(shown).items() if marked]
    assert [] == lab_page.console_errors
