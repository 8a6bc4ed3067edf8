"""What tests of kinds share."""

from __future__ import annotations

import numpy as np
import pytest

#: Where each module's draws begin.
SEED = 5


@pytest.fixture(autouse=True)
def _same_draws(request: pytest.FixtureRequest) -> None:
    """A test draws the same, whatever ran before it."""
    if hasattr(request.module, "RNG"):
        request.module.RNG.bit_generator.state = np.random.default_rng(SEED).bit_generator.state
