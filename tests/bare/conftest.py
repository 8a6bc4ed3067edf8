"""What runs where TensorRT-RTX is not installed; the stages bare and tour make such an environment."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="every precision of every sample, and not of a few")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Elsewhere there is a builder, and nothing to see."""
    if importlib.util.find_spec("tensorrt_rtx") is not None:
        skip = pytest.mark.skip(
            reason="TensorRT-RTX is installed; tests/run bare makes an environment without it"
        )
        for item in items:
            if item.path.parent.name == "bare":
                item.add_marker(skip)
