"""What every test may use. Generators are in strategies.py, files that hurt in hostile.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest

import rtlab.core.model as rtlab_model
import strategies

if TYPE_CHECKING:
    from rtlab.core.model import Model

# The same examples on every run, so that a failure is of the change and not of the draw. To look further:
# pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(scope="session")
def tiny_model() -> Model:
    """Conv, BatchNormalization and Relu beside a residual, with a dynamic batch: N×3×8×8."""
    return rtlab_model.load(strategies.tiny_proto(), name="tiny")
