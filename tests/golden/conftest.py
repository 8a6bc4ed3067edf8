"""Tables of what is true. ``tests/run golden --accept`` writes them anew; what changed is then for a person to read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: Numbers in a table, with what stands around them.
_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")

#: What would break a line, such as a hostile name.
_BREAK = re.compile(r"[\x00-\x1f\x85\u2028\u2029]+")
#: Which of several alike ONNX Runtime numbers differs from run to run.
_ALIKE = re.compile(r"\b(Reorder(?:In|Out)put)_token_\d+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that accepts what the code gives now."""
    parser.addoption("--accept", action="store_true", help="write the tables of tests/golden anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of one sample behind each other: a worker takes neighbours, and builds the engines of a sample once."""
    at = [i for i, item in enumerate(items) if HERE in item.path.parents]
    for i, item in zip(at, sorted((items[i] for i in at), key=_group), strict=True):
        items[i] = item


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else ""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compares a table, such as ``cards/digits_vit.txt``, with the one that was kept, or accepts it.

    A table has sections under heads such as ``# int8 · TensorRT-RTX 1.7.1.116``. Another version of the compiler may
    fuse otherwise: where only such a section differs, the test ends as skipped, and after all that it checks by itself.
    With ``within``, numbers with a point may differ by that part of themselves, as sums of another processor do. Lines
    that differ by more are asked about: ``as_good(kept, now)`` says whether both are right.
    """

    def compared(
        name: str,
        sections: Mapping[str, Sequence[str]],
        *,
        within: float = 0.0,
        as_good: Callable[[str, str], bool] | None = None,
    ) -> None:
        path = HERE / name
        sections = {
            head: [_ALIKE.sub(r"\1", _BREAK.sub("⏎", line)) for line in body]
            for head, body in sections.items()
        }
        lines = [line for head, body in sections.items() for line in (head, *body)]
        if request.config.getoption("--accept"):
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return
        assert path.exists(), f"no table {name}: tests/run golden --accept writes it"
        kept = _sections(path.read_text(encoding="utf-8").splitlines())
        assert [_variant(h) for h in kept] == [_variant(h) for h in sections]
        others, changes = [], []
        for (head, was), (now_head, now) in zip(kept.items(), sections.items(), strict=True):
            if len(was) == len(now) and all(
                _alike(a, b, within) or (as_good is not None and as_good(a, b))
                for a, b in zip(was, now, strict=True)
            ):
                continue
            if head == now_head:
                changes += [head, *difflib.unified_diff(was, now, "kept", "now", lineterm="", n=1)]
            else:
                others.append(f"{head[2:]}, and here is {now_head[2:]}")
        assert not changes, "\n".join(
            [f"{name} differs; after reading, tests/run golden --accept writes it anew", *changes]
        )
        if others:
            pytest.skip(f"{name} is of {'; '.join(others)}")

    return compared


def _sections(lines: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("# "):
            found[line] = []
        else:
            found[next(reversed(found))].append(line)
    return found


def _variant(head: str) -> str:
    return head.partition(" · ")[0]


def _alike(kept: str, now: str, within: float) -> bool:
    if not within:
        return kept == now
    return _NUMBER.sub("#", kept) == _NUMBER.sub("#", now) and [
        float(n) for n in _NUMBER.findall(kept)
    ] == pytest.approx([float(n) for n in _NUMBER.findall(now)], rel=within)
