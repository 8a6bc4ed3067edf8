"""Files of what is right. ``tests/run golden --accept`` writes them anew; what changed is then for a person to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshots import Golden

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    at = [i for i, item in enumerate(items) if HERE in item.path.parents]
    for i, item in zip(at, sorted((items[i] for i in at), key=_group), strict=True):
        items[i] = item


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else ""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(HERE, request.config.getoption("--accept"))
