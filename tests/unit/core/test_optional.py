"""Optional packages: one gate that imports, or says what to install."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from rtlab.core import optional
from rtlab.core.optional import PACKAGES, Optional
from rtlab.errors import Unavailable


def test_a_package_that_is_missing_says_what_to_install():
    """The command can be copied."""
    with pytest.raises(Unavailable) as caught:
        Optional("absent", "rtlab_absent", "2.1", '"rtlab[absent]"').load(why="dance")

    assert (
        'Cannot dance: package "absent>=2.1" is not installed. Run pip install --upgrade "rtlab[absent]".'
        == str(caught.value)
    )


def test_a_version_that_is_too_old_is_named():
    """What is installed, and what is needed."""
    found = importlib.metadata.version("numpy")
    with pytest.raises(Unavailable) as caught:
        Optional("numpy", "numpy", "99.1", "numpy").load(why="count")

    assert f'Cannot count: package "numpy" {found} is installed, 99.1 or later is needed.' in str(
        caught.value
    )


def test_versions_are_compared_as_numbers():
    """As text, 9 comes after 10; and a local build or a release candidate is still its version."""
    assert optional._numbers("9.5.0") < optional._numbers("10.0") < optional._numbers("10.2.1")
    assert (11, 0, 1) == optional._numbers("11.0.1+cu129")
    assert (2024, 1) == optional._numbers("2024.1")


def test_minimum_versions_are_those_of_the_extras():
    """One number in two files must not drift apart."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    root = Path(optional.__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = {
        line.partition(">=")[0]: line.partition(">=")[2].partition(",")[0]
        for lines in extras.values()
        for line in lines
    }

    assert {p.package: declared[p.package] for p in PACKAGES.values()} == {
        p.package: p.minimum for p in PACKAGES.values()
    }
