"""With which operators the gradient of each operator is written: what is known of sizes saves some, or stops it.

That the gradients are right is said by finite differences (``tests/property/test_adjoint.py``).
"""

from __future__ import annotations

from typing import Any

import pytest

from property.test_adjoint import declared, differentiated, evaluated, model
from rtlab.core.model import load
from sloped import CASES, Draw
from snapshots import plain

#: How many draws of each operator are looked at; forms that are alike are listed once.
FORMS = 4


def written(name: str, seed: int, sizes: str) -> str:
    """The operators in their order with their attributes, constants by their numbers; or why there is no gradient."""
    case = CASES[name](Draw(seed))
    shapes = {n: list(v.shape) for n, v in case.moving.items()}
    shapes["y"] = list(evaluated(case, set(), {**shapes, "y": None})(case.moving).shape)
    dims = {n: declared(n, s, sizes) for n, s in shapes.items()}
    source = load(model(case, set(), dims, double=False))
    both, _, stopped = differentiated(source, [*case.moving])
    if stopped:
        return f"stops: {'; '.join(stopped.values())}"
    known = {n: t.numpy().ravel().tolist() for n, t in both.known.items() if n not in source.known}
    words = []
    for node in both.top[len(source.top) :]:
        reads = [str(plain(known[v])) for v in node.inputs if v in known and len(known[v]) < 12]
        told = [f"{k}={plain(v)}" for k, v in sorted(node.attributes.items())]
        words.append(f"{node.op}({', '.join([*reads, *told])})")
    return " ".join(words)


@pytest.mark.parametrize("sizes", ["known", "open"])
def test_gradients_are_written_as_in_the_file(sizes: str, golden: Any) -> None:
    found = {name: [*dict.fromkeys(written(name, s, sizes) for s in range(FORMS))] for name in CASES}
    golden(f"gradients/{sizes}.json", found)
