"""No file of rtlab is so long that a second noun hides in it."""

from __future__ import annotations

from pathlib import Path

import rtlab

ROOT = Path(rtlab.__file__).parent
#: Lines of a file, blank ones and docstrings among them.
LONGEST = 500


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in ROOT.rglob("*.py")
    }

    assert {} == {name: n for name, n in lengths.items() if n > LONGEST}
