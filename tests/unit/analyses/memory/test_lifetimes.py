"""Lifetimes of small engines, worked out by hand."""

from __future__ import annotations

import pytest

import engines
from rtlab.analyses.memory.plan import Life, compute_clocks, compute_lifetimes
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.dataflow import Writers


def engine(*steps, inputs=("x",), outputs=("y",)) -> Engine:
    """Layers from (kind, inputs, outputs[, stream[, event]]); names of tensors carry a size as ``name:64``."""
    layers = []
    for i, (kind, reads, writes, *rest) in enumerate(steps):
        stream, event = (*rest, 0, None)[:2] if len(rest) < 2 else rest
        ends = tensors(reads), tensors(writes)
        layers.append(Layer(str(i), f"layer {i}", kind, i, *ends, stream=stream, event=event))
    ends = tensors(inputs), tensors(outputs)
    return Engine("tensorrt-rtx", "1", Target("sm86"), tuple(layers), *ends, maker=TENSORRT_RTX)


def tensors(names) -> tuple[Tensor, ...]:
    found = (n.partition(":") for n in (names.split() if isinstance(names, str) else names))
    return tuple(Tensor(name, "int8", (int(size or 64),)) for name, _, size in found)


def by_id(lives: tuple[Life, ...]) -> dict[str, tuple[str, int, int]]:
    return {life.id: (life.place, life.first, life.last) for life in lives}


def test_a_tensor_lives_from_its_writer_to_its_last_reader() -> None:
    found = compute_lifetimes(engine(("conv", "x w", "a"), ("relu", "a", "b unread"), ("add", "a b", "y")))
    assert by_id(found) == {
        "x": ("input", 0, 0), "w": ("constant", 0, 0), "a": ("arena", 0, 2), "b": ("arena", 1, 2),
        "unread": ("arena", 1, 1), "y": ("output", 2, 2),
    }  # fmt: skip


def test_a_name_that_is_used_again_is_another_tensor() -> None:
    found = compute_lifetimes(engine(("k", "x", "t"), ("k", "t", "a"), ("k", "a", "t"), ("k", "t", "y")))
    assert by_id(found)["t"] == ("arena", 0, 1)
    assert by_id(found)["t (2)"] == ("arena", 2, 3)


def test_parts_of_an_eliminated_concatenation_are_one_tensor() -> None:
    steps = (("k", "x", "c:32"), ("k", "x", "other"), ("k", "other", "c:32"), ("k", "c:64", "y"))
    found = compute_lifetimes(engine(*steps))
    assert by_id(found)["c"] == ("arena", 0, 3)
    assert [life.writers for life in found if life.name == "c"] == [(0, 2)]


def test_a_layer_that_only_renames_adds_no_tensor() -> None:
    found = compute_lifetimes(engine(("k", "x", "a"), ("NoOp", "a", "b"), ("k", "x", "z"), ("k", "b", "y")))
    assert by_id(found)["a"] == ("arena", 0, 3)
    assert "b" not in by_id(found)
    found = compute_lifetimes(engine(("k", "x", "a"), ("k", "a", "b"), ("NoOp", "b", "y")))
    assert by_id(found)["b"] == ("output", 1, 2)


def test_what_a_loop_reads_in_each_turn_lives_to_its_end() -> None:
    """``state`` is read before it is written: a loop of steps 1 to 4, which reads ``scale`` in step 1 again."""
    steps = (
        ("k", "x", "scale"), ("k", "scale state", "a"), ("k", "a", "b"), ("k", "b", "state"), ("cjmp", "b", ""),
        ("k", "b", "y"),
    )  # fmt: skip
    found = by_id(compute_lifetimes(engine(*steps)))
    assert (("arena", 0, 3), ("arena", 1, 3)) == (found["scale"], found["state"])


def test_where_steps_repeat_a_name_is_one_tensor() -> None:
    first, last = (("k", "x", "state"), ("k", "state", "a"), ("k", "a", "state")), ("k", "state", "y")
    assert by_id(compute_lifetimes(engine(*first, ("cjmp", "a", ""), last)))["state"] == ("arena", 0, 4)
    assert by_id(compute_lifetimes(engine(*first, last)))["state"] == ("arena", 0, 1)


def clocks(*steps) -> tuple[tuple[int, ...], ...]:
    given = engine(*steps)
    return tuple(compute_clocks(given, Writers(given)))


#: Stream 0 writes ``a`` and reads it; stream 1 reads it too, and says so by event 1 before ``d`` is written.
TWO = (
    ("k", "x", "a", 0), ("signal", "", "", 0, 0), ("wait", "", "", 1, 0), ("k", "a", "b", 1), ("k", "a", "c", 0),
    ("k", "c", "e", 0), ("signal", "", "", 1, 1), ("wait", "", "", 0, 1), ("k", "e b", "d", 0), ("k", "d", "y", 0),
)  # fmt: skip


def test_clocks_count_what_is_done_on_each_stream() -> None:
    """By hand: a wait takes over what the signal's stream had done, nothing else does."""
    assert clocks(*TWO) == (
        (0, 0), (1, 0), (2, 0), (2, 1), (2, 0), (3, 0), (2, 2), (4, 3), (5, 3), (6, 3),
    )  # fmt: skip


def test_only_a_signal_sets_an_event() -> None:
    """By hand: stream 1 waits for event 0 and works on, and who waits for it later learns nothing of stream 1."""
    steps = [
        ("k", "x", "a", 0), ("signal", "", "", 0, 0), ("k", "x", "b", 1), ("wait", "", "", 1, 0),
        ("wait", "", "", 2, 0), ("k", "x", "c", 2),
    ]  # fmt: skip
    assert clocks(*steps) == (
        (0, 0, 0),
        (1, 0, 0),
        (0, 0, 0),
        (2, 1, 0),
        (2, 0, 0),
        (2, 0, 1),
    )
    # A signal without an event is none, and no wait without one hears of it.
    mute = [("k", "x", "a", 0), ("signal", "", "", 0, None), ("wait", "", "", 1, None), ("k", "x", "b", 1)]
    assert clocks(*mute) == ((0, 0), (1, 0), (0, 0), (0, 1))


def test_a_tensor_is_free_only_when_every_stream_is_past_it() -> None:
    """In the order of issue ``a`` is done before ``e`` is written, but stream 1 may still read it."""
    found = {life.id: life for life in compute_lifetimes(engine(*TWO))}
    assert found["a"].last < found["e"].first
    assert not found["a"].frees(found["e"])
    assert found["a"].frees(found["d"])
    alone = {life.id: life for life in compute_lifetimes(engine(*TWO), one_stream=True)}
    assert alone["a"].frees(alone["e"])


def test_streams_without_events_are_ordered_by_what_they_read() -> None:
    steps = (("k", "x", "a", 0), ("k", "a", "b", 1), ("k", "x", "c", 0), ("k", "b c", "y", 0))
    found = {life.id: life for life in compute_lifetimes(engine(*steps))}
    assert not found["a"].frees(found["c"])
    assert found["a"].frees(found["y"])


@engines.each
def test_every_tensor_of_an_engine_is_written_before_it_is_read(folder) -> None:
    given, _ = engines.read(folder)
    found = compute_lifetimes(given)
    named = {t.name for layer in given.layers for t in (*layer.inputs, *layer.outputs)}
    assert {t.name for life in found for t in life.mentions} >= named
    for life in found:
        if life.place in {"arena", "output"}:
            assert life.writers
            assert life.first == life.writers[0]


@pytest.mark.parametrize("one", [False, True])
def test_an_empty_engine_has_no_lifetimes(one) -> None:
    assert compute_lifetimes(engine(inputs=(), outputs=()), one_stream=one) == ()
