"""Repeated blocks: against graphs made block by block, and the definition on any sequence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtlab.relation.blocks import Repeat, find_repeats


def decoder(blocks: int, odd: int = -1) -> tuple[list[str], list[list[int]]]:
    """A mask and an embedding, blocks of A to F with a residual that all read the mask, and a head of A and H.

    In block ``odd``, E reads A in place of D.
    """
    signs, reads = ["mask", "embedding"], [[-1], [-1]]
    last = 1
    for block in range(blocks):
        first = len(signs)
        for k, sign in enumerate("ABCDEF"):
            source = last if k == 0 else first if sign == "E" and block == odd else first + k - 1
            reads.append([source, *([0] if sign == "C" else []), *([last] if sign == "F" else [])])
            signs.append(sign)
        last = len(signs) - 1
    return [*signs, "A", "H"], [*reads, [last], [last + 1]]


def depths(signs: list[str]) -> list[int]:
    """Those of names in which all boxes of a block share one scope."""
    return [1 if k >= 2 and (k - 2) % 6 == 0 else 2 for k in range(len(signs))]


def test_blocks_with_a_residual_and_a_mask_that_all_read_are_one_run() -> None:
    """No node lies on every path here: the mask passes all blocks, the residual each."""
    assert [Repeat(start=2, period=6, count=24)] == find_repeats(*decoder(24))


def test_a_block_that_is_wired_in_another_way_is_none_of_the_run() -> None:
    signs, reads = decoder(12, odd=4)
    assert [Repeat(2, 6, 4), Repeat(32, 6, 7)] == find_repeats(signs, reads, depths(signs))


def test_a_block_starts_where_the_names_part_first() -> None:
    """What stands before may look like the end of a block: here an F, as the last node of the embedding."""
    signs, reads = decoder(8)
    signs = [signs[0], "F", *signs[2:]]
    reads[1] = [-1, -1]
    assert [Repeat(2, 6, 8)] == find_repeats(signs, reads, depths(signs))


def test_a_chain_of_equal_boxes_is_no_block() -> None:
    signs = ["A"] * 30
    assert [] == find_repeats(signs, [[k - 1] for k in range(30)])


@given(st.lists(st.integers(0, 2), max_size=40))
def test_runs_are_equal_blocks_that_do_not_overlap(signs: list[int]) -> None:
    end = 0
    for start, period, count in find_repeats(signs, [[k - 1] for k in range(len(signs))]):
        assert start >= end
        end = start + period * count
        assert 1 == len({tuple(signs[k : k + period]) for k in range(start, end, period)})
        assert count > 1
        assert count * period >= 12
    assert end <= len(signs)
