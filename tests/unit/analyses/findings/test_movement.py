"""Rules on moves: each on an engine that has the fault and on its neighbour that has not."""

from __future__ import annotations

import dataclasses

import pytest

from judged import HWC8, A, Y, conv, engine, of, step, tensor, timed


@pytest.mark.parametrize("work", ["input", "layout", "type", "output"])
def test_reformats_by_their_source(work) -> None:
    x, b, y = tensor("x"), tensor("b", "fp16", 64, HWC8), tensor("y")
    wide = tensor("w", "fp32", 64, HWC8)
    engines = {
        "input": engine(step("Reformat", tensor("x", "fp32"), b), conv(b, y)),
        "output": engine(conv(x, b), step("Reformat", b, tensor("y", "fp32"))),
        "layout": engine(conv(x, A), step("Reformat", A, b), conv(b, y, name="next")),
        "type": engine(conv(x, A), step("Reformat", A, wide), conv(wide, y, name="next")),
    }
    found = engines[work]
    assert [f"reformat:{work}"] == [f.id for f in of(found, "reformat", timed(found, 10))]
    short = timed(found, *(0.001 if y.kind == "Reformat" else 1000 for y in found.layers))
    assert [] == of(found, "reformat", short)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("Shuffle", "move:shuffle"), ("Slice", "move:slice"), ("Padding", "move:slice"), ("Concat", "move:concat"),
     ("Gather", "move:gather")],
)  # fmt: skip
def test_moves_that_take_time(kind, expected) -> None:
    found = engine(conv(tensor("x"), A), step(kind, A, Y))
    assert [expected] == [f.id for f in of(found, "move", timed(found, 100, 10))]
    assert [] == of(found, "move", timed(found, 10_000, 10))
    assert [] == of(found, "move")


def test_a_copy_that_nothing_asks_for_is_told_only_with_its_time() -> None:
    b = tensor("b", format_=HWC8)
    found = engine(conv(tensor("x"), A), step("Reformat", A, b), conv(b, Y))
    assert [] == of(found, "reformat")
    assert "Nothing in the model asks for it" in of(found, "reformat", timed(found, 10))[0].fix


def test_a_layout_that_no_input_can_have_is_not_complained_of() -> None:
    x = tensor("x", channels=3, size=99)
    b = tensor("b", "fp16", 3, "Channel major FP16 format where channel % 4 == 0", 99)
    found = engine(step("Reformat", x, b), conv(b, Y))
    assert [] == of(found, "reformat", timed(found, 10))
    wide = engine(step("Reformat", dataclasses.replace(x, dtype="fp32"), b), conv(b, Y))
    assert ["reformat:input"] == [f.id for f in of(wide, "reformat", timed(wide, 10))]


@pytest.mark.parametrize(("size", "expected"), [(8, 0), (64, 1)])
def test_tensors_of_few_numbers_are_not_worth_a_word_without_times(size, expected) -> None:
    b = tensor("b", "fp16", 16, HWC8, size)
    found = engine(step("Reformat", tensor("x", "fp32", 16, size=size), b), conv(b, Y))
    assert expected == len(of(found, "reformat"))
    assert 1 == len(of(found, "reformat", timed(found, 10)))


def test_conversions_that_undo_each_other_are_told_by_that_rule_alone() -> None:
    a, b, c, d = tensor("a"), tensor("b", "fp32"), tensor("c", "fp32"), tensor("d")
    found = engine(
        conv(tensor("x"), a), step("Reformat", a, b, name="up"), step("Pooling", b, c),
        step("Reformat", c, d, name="down"),
        conv(d, Y, name="next"),
    )  # fmt: skip
    assert [] == of(found, "reformat", timed(found, 10))
    assert 1 == len(of(found, "back-and-forth", timed(found, 10)))
