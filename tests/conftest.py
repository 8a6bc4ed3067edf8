"""What every test may use. Generators are in strategies.py, files that hurt in hostile.py."""

from __future__ import annotations

import hashlib

import hypothesis
import pytest

import rtlab.testing
from rtlab.core.model import Model

# The same examples on every run, so that a failure is of the change and not of the draw. To look further:
# pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _own_records(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a test finds out is kept for that test alone, and what was found before it is not known to it."""
    own = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    monkeypatch.setenv("RTLAB_RECORDS", str(tmp_path_factory.getbasetemp() / "records" / own))


@pytest.fixture(scope="session")
def tiny_model() -> Model:
    """Ten nodes with every trait that fusion cares about, N×3×8×8 in."""
    return rtlab.testing.tiny_model()
