"""Every text of the corpora, cut at 200 places and dressed as people paste it: how many pieces were read and refused.

``tests/property/test_pasted.py`` does the same with fewer cuts. What is told must be true, what is whole must be told.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pasted

#: Of a larger file this much is taken: more of it is more of the same.
CUTS, LONGEST = 200, 400_000


def main() -> int:
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for path in [*pasted.fragments(pasted.CORPUS), *pasted.fragments(pasted.RECORDED)]:
            try:
                found = pasted.outcomes(path, Path(folder), CUTS, LONGEST)
            except AssertionError as error:
                found = Counter({"wrong": 1})
                sys.stdout.write(f"{str(error)[:400]}\n")
            total += found
            sys.stdout.write(f"{path.parent.name}/{path.name}: {dict(found)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"in all: {dict(total)}\n")
    return int(bool(total["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
