"""A test that needs a release that is not here says so in words: which, why, and what brings it."""

from __future__ import annotations

import pytest

import releases
from rtlab.backends import compilers
from rtlab.errors import BackendError


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A machine with the environment's own release at most, and no network."""

    def refused(version: str) -> None:
        raise BackendError(f'Cannot add compiler "{version}": the index cannot be reached. Bring the wheels.')

    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path))
    monkeypatch.setattr(compilers, "add", refused)
    own = compilers.Compiler("9.9.9.9", "tensorrt-rtx")
    monkeypatch.setattr(compilers, "known", lambda: (own,))
    releases.missing.cache_clear()
    yield
    releases.missing.cache_clear()


def test_a_release_that_is_not_here_is_told_with_its_command(alone) -> None:
    told = releases.missing("1.4.0.76")
    assert told.startswith("TensorRT-RTX 1.4.0.76 is not installed here; ")
    assert "rtlab compilers add 1.4.0.76 brings it (tests fetch 1.6.1.120 alone by themselves)" in told
    assert "" == releases.missing("9.9.9.9")


def test_what_could_not_be_fetched_is_told_with_its_reason(alone, monkeypatch) -> None:
    told = releases.missing(releases.QUICK)
    assert "rtlab compilers add 1.6.1.120 brings it, which tests tried: Cannot add" in told
    assert "the index cannot be reached" in told


def test_a_machine_without_any_is_told_that(alone, monkeypatch) -> None:
    monkeypatch.setattr(compilers, "known", tuple)
    assert "TensorRT-RTX is not installed" == releases.missing("1.4.0.76")
