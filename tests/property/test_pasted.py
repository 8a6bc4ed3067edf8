"""Pieces of files as people paste them: what is told is true, what is whole is told, all else is refused in words.

A piece lacks its start, its end or both, and was quoted, indented, fenced, coloured or saved by Windows. What is true
is looked up in the whole file and its lines, and what must not be lost is found in another way than the readers'.
``tests/run fuzz`` cuts each file two hundred times.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pasted

CUTS = 12
#: A longer file is taken up to here: more of it is more of the same.
LONGEST = 200_000
FILES = pasted.fragments(pasted.CORPUS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_piece_tells_what_is_true_and_whole_in_it_or_is_refused_in_words(
    path: Path, tmp_path: Path
) -> None:
    assert set(pasted.outcomes(path, tmp_path, CUTS, LONGEST)) <= {"read", "refused"}


def test_every_look_is_the_same_text_again(tmp_path: Path) -> None:
    for path in pasted.fragments(pasted.CORPUS / "pasted"):
        text = path.read_text(encoding="utf-8")
        expected = pasted.facts(pasted.read(path))
        for look, made in pasted.LOOKS.items():
            piece = tmp_path / path.name
            piece.write_text(made(text), encoding="utf-8", newline="")
            assert expected == pasted.facts(pasted.read(piece)), (path.name, look)


def test_nothing_around_the_lines_is_taken_for_something() -> None:
    from rtlab.backends.readers.wrapping import strip_wrapping

    for text in (">>>>>>>>>>>>>>> Chose Runner Type: A Tactic: 1\n", '{"Name": "a -> b"}', "a\n> b\nc\n", ""):
        assert text == strip_wrapping(text)
    # Blanks within JSON mean nothing.
    assert '[\n  {"Name": "a"}\n]' == strip_wrapping('[\n  {"Name": "a"}\n]')
    # What stands deeper than the others stays so.
    assert "a\n  b\nc\n" == strip_wrapping("    a\n      b\n    c\n")
    rng = random.Random(1)  # noqa: S311
    lines = "\n".join("x" * rng.randrange(1, 9) for _ in range(40))
    for made in pasted.LOOKS.values():
        assert lines == strip_wrapping(made(lines)).strip("\n")
