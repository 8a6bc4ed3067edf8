"""Every pass that a test applies is watched: it keeps what it promises, or the test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rtlab.quantize import passes
from rtlab.quantize.edit import Edit
from rtlab.quantize.passes import Pass


@pytest.fixture(scope="module", autouse=True)
def promises() -> Iterator[set[str]]:
    seen: set[str] = set()
    apply = passes.apply

    def watched(one: Pass, edit: Edit, check: Callable[[], object] = lambda: None) -> None:
        before = edit.model
        apply(one, edit, check)
        after = edit.model
        seen.add(one.name)
        for promise in one.promises:
            assert "" == promise.check(before, after), f'"{one.name}" promises: {promise.name}'

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "apply", watched)
        yield seen
