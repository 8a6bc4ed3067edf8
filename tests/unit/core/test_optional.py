"""Optional packages: one gate that imports, or says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtlab.core import optional
from rtlab.core.optional import PACKAGES, Optional
from rtlab.errors import Unavailable


@pytest.mark.parametrize(
    ("package", "minimum", "said"),
    [("absent", "2.1", "is not installed"), ("numpy", "99.1", "or later is needed")],
)
def test_a_package_that_is_missing_or_too_old_says_what_to_install(package, minimum, said, monkeypatch):
    monkeypatch.setitem(PACKAGES, package, Optional(package, package, minimum, "rtlab"))
    with pytest.raises(Unavailable, match=rf"{package}.*{said}.*pip install --upgrade"):
        optional.require(package, why="dance")


def test_versions_are_compared_as_numbers():
    """As text, 9 comes after 10; and a local build or a release candidate is still its version."""
    assert optional._numbers("9.5.0") < optional._numbers("10.0") < optional._numbers("10.2.1")
    assert (11, 0, 1) == optional._numbers("11.0.1+cu129")
    assert (2024, 1) == optional._numbers("2024.1")


def test_minimum_versions_are_those_of_the_extras():
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
