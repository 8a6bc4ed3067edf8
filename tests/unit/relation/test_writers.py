"""Who writes what a layer reads, where names repeat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.dataflow import Writers


def sources(*steps: tuple[str, str], inputs: str = "") -> list[list[tuple[int, ...]]]:
    """For each layer the writers of what it reads; steps are names that are read and written, ``a:4`` with a size."""

    def tensors(text: str) -> tuple[Tensor, ...]:
        parts = (t.partition(":") for t in text.split())
        return tuple(Tensor(name, shape=(1, int(size)) if size else None) for name, _, size in parts)

    layers = tuple(
        Layer(f"L{i}", f"L{i}", "", i, inputs=tensors(reads), outputs=tensors(writes))
        for i, (reads, writes) in enumerate(steps)
    )
    engine = Engine("test", "1", Target("unknown"), layers, inputs=tensors(inputs))
    writers = Writers(engine)
    return [[writers.of(y.index, t) for t in y.inputs] for y in layers]


X = "x"
#: Three convolutions that write into one buffer: what the sizes add up to is what is read.
PARTS = [(X, "c:64"), (X, "c:128"), (X, "c:32")]
LOOP = [("state", "a"), ("a", "state"), ("state", "state")]


@pytest.mark.parametrize(
    ("steps", "inputs", "expected"),
    [
        ([(X, "a"), ("a", "b"), ("b", "a"), ("a", "y")], X, [[()], [(0,)], [(1,)], [(2,)]]),
        ([(X, "a"), ("a", "a"), ("a", "a"), ("a", "y")], X, [[()], [(0,)], [(1,)], [(2,)]]),
        ([*PARTS, ("c:224", "y")], X, [[()]] * 3 + [[(0, 1, 2)]]),
        ([*PARTS, ("c:160", "y")], X, [[()]] * 3 + [[(1, 2)]]),
        # Where no size is told, nothing was read in between, so that each has to be a part.
        ([(X, "c")] * 3 + [("c", "y")], X, [[()]] * 3 + [[(0, 1, 2)]]),
        # DenseNet: each layer reads the buffer so far and appends to it.
        ([(X, "c:8"), ("c:8", "c:4"), ("c:12", "c:4"), ("c:16", "y")], X, [[()], [(0,)], [(0, 1)], [(0, 1, 2)]]),
        ([(X, "a:8"), (X, "a:8"), ("a:8", "y")], X, [[()], [()], [(1,)]]),
        # The last of the later writers is what the next turn sees; no layer feeds itself.
        (LOOP, "", [[(2,)], [(0,)], [(1,)]]), ([("a", "a")], "", [[()]]),
        # An input is there before anything runs; constants of Myelin have no writer.
        ([(X, "a"), ("a", X)], X, [[()], [(0,)]]), ([(X, "a"), ("w b", "y")], X, [[()], [(), ()]]),
    ],
    ids=["buffers", "in place", "parts", "last", "no sizes", "blocks", "rewritten", "loop", "own", "input", "none"],
)  # fmt: skip
def test_writers_of_what_a_layer_reads(steps, inputs: str, expected) -> None:
    assert expected == sources(*steps, inputs=inputs)


def test_a_tensor_without_a_name_has_no_writer() -> None:
    unnamed = Engine("t", "1", Target("unknown"), (Layer("L", "L", "", 0, outputs=(Tensor(""),)),))
    assert () == Writers(unnamed).of(1, Tensor(""))


@given(st.lists(st.tuples(st.text("abc ", max_size=4), st.text("abc ", max_size=4)), max_size=8))
def test_edges_go_forwards_unless_every_writer_comes_later(steps) -> None:
    steps = [(" ".join(reads.replace(" ", "")), " ".join(writes.replace(" ", ""))) for reads, writes in steps]
    written = {n: [i for i, (_, w) in enumerate(steps) if n in w.split()] for n in "abc"}
    for at, ((reads, _), found) in enumerate(zip(steps, sources(*steps), strict=True)):
        for name, writers in zip(reads.split(), found, strict=True):
            before = [w for w in written[name] if w < at]
            assert set(writers) <= set(written[name]) - {at}
            assert bool(before) <= (before[-1:] == list(writers[-1:]))
            assert (max(writers, default=-1) < at) or not before
