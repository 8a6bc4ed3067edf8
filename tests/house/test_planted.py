"""``tests/run plant`` draws from every file of rtlab, and from each package alike."""

from __future__ import annotations

from collections import Counter

import pytest

from plant import mutants
from plant.mutants import Mutant, Place


def test_every_file_of_rtlab_belongs_to_one_package() -> None:
    files = mutants.list_files()
    listed = [path for paths in files.values() for path in paths]
    assert sorted(listed) == sorted((mutants.ROOT / "rtlab").rglob("*.py"))
    assert {"api.py", "errors.py"} <= {path.name for path in files[mutants.MODULES]}
    folders = {
        path.parts[len(mutants.ROOT.parts) + 1] for path in listed if path not in files[mutants.MODULES]
    }
    assert set(files) == {*folders, mutants.MODULES}


def test_packages_have_equal_shares_and_a_larger_sample_holds_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mutate(place: Place, operator: str, occurrence: int) -> Mutant | None:
        return None if operator == "nothing" else Mutant(place.key, place, "", operator, "")

    monkeypatch.setattr(mutants, "mutate", mutate)
    sizes = {"large": 50, "middle": 20, "small": 3}
    places = [
        Place(package, f"{package}.py", f"{package}{k}", k, (("nothing", 0), ("plus", 0)))
        for package, size in sizes.items()
        for k in range(size)
    ]
    drawn = mutants.draw(places, sample=30, seed=7)
    # Three of the small package are all that it has; the others share what is left of 30.
    counts = Counter(m.place.package for m in drawn)
    assert counts["small"] == 3
    assert sorted(counts.values()) == [3, 13, 14]
    assert {m.after for m in drawn} == {"plus"}
    for smaller in (1, 2, 10, 29):
        assert mutants.draw(places, sample=smaller, seed=7) == drawn[:smaller]
    assert mutants.draw(reversed(places), sample=30, seed=7) == drawn
    assert {m.id for m in mutants.draw(places, sample=30, seed=8)} != {m.id for m in drawn}
    assert len(mutants.draw(places, sample=500, seed=7)) == sum(sizes.values())


def test_annotations_are_no_code_that_runs() -> None:
    pytest.importorskip("cosmic_ray")
    source = "def f(x: int | None = 1 + 2) -> int | str:\n    y: int | None = x * 3\n    return y\n"
    found = [*mutants._find_places("f.py", source)]
    assert [line for _, line, _ in found] == [1, 1, 1, 2, 2]
