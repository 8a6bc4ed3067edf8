"""What ``tests/run plant`` plants its bugs in is there, and belongs to one score."""

from __future__ import annotations

from collections import Counter

from plant import places


def test_every_package_that_is_examined_has_files_of_its_own() -> None:
    """A folder that moved is to be renamed there, before somebody runs it for two hours."""
    found = [*places.files()]
    assert {*places.PACKAGES} == {package for package, _ in found}
    assert {1} == {*Counter(path for _, path in found).values()}
    assert all(path.suffix == ".py" for _, path in found)
