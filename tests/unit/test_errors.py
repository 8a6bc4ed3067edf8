"""Errors as results: they cross processes and keep the vendor's words."""

from __future__ import annotations

import inspect
import pickle

import pytest

from rtlab import errors

KINDS = [v for v in vars(errors).values() if inspect.isclass(v) and issubclass(v, errors.RtlabError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_errors_survive_pickling_with_their_details(kind):
    """A build fails in a child process; the notebook shows its message and the vendor's own words."""
    error = pickle.loads(pickle.dumps(kind("Cannot build. Stopped. Try again.", details="vendor: 0x1f")))

    assert kind is type(error)
    assert "Cannot build. Stopped. Try again." == str(error)
    assert "vendor: 0x1f" == error.details


def test_a_backend_error_is_caught_as_one():
    """One except clause serves every way in which a backend fails."""
    backend = {k.__name__ for k in KINDS if issubclass(k, errors.BackendError)}

    assert {"BackendError", "Unavailable", "BuildError", "RunError"} == backend
