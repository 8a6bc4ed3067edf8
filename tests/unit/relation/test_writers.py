"""Who writes what a layer reads, where names repeat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.writers import Writers


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


def test_a_reader_gets_the_last_writer_before_it() -> None:
    found = sources(("x", "a"), ("a", "b"), ("b", "a"), ("a", "y"), inputs="x")
    assert [[()], [(0,)], [(1,)], [(2,)]] == found


def test_a_layer_that_writes_what_it_reads_reads_what_was_there_before() -> None:
    assert [[()], [(0,)], [(1,)], [(2,)]] == sources(
        ("x", "a"), ("a", "a"), ("a", "a"), ("a", "y"), inputs="x"
    )


def test_the_parts_of_an_eliminated_concatenation_all_reach_its_reader() -> None:
    """Three convolutions write into one buffer; what the sizes add up to is what is read."""
    parts = [("x", "c:64"), ("x", "c:128"), ("x", "c:32")]
    assert [(0, 1, 2)] == sources(*parts, ("c:224", "y"), inputs="x")[-1]
    assert [(1, 2)] == sources(*parts, ("c:160", "y"), inputs="x")[-1]
    # Where no size is told, nothing was read in between, so that each has to be a part.
    assert [(0, 1, 2)] == sources(("x", "c"), ("x", "c"), ("x", "c"), ("c", "y"), inputs="x")[-1]


def test_a_block_that_reads_its_own_parts_keeps_them_all() -> None:
    """DenseNet: each layer reads the buffer so far and appends to it."""
    found = sources(("x", "c:8"), ("c:8", "c:4"), ("c:12", "c:4"), ("c:16", "y"), inputs="x")
    assert [[()], [(0,)], [(0, 1)], [(0, 1, 2)]] == found


def test_a_whole_rewriting_hides_what_was_there() -> None:
    assert [(1,)] == sources(("x", "a:8"), ("x", "a:8"), ("a:8", "y"), inputs="x")[-1]


def test_a_tensor_that_is_written_only_later_comes_from_the_loop_s_end() -> None:
    """The last of the later writers is what the next turn sees; no layer feeds itself."""
    assert [[(2,)], [(0,)], [(1,)]] == sources(("state", "a"), ("a", "state"), ("state", "state"))
    assert [[()]] == sources(("a", "a"))


def test_an_input_of_the_engine_is_no_loop() -> None:
    assert [[()], [(0,)]] == sources(("x", "a"), ("a", "x"), inputs="x")


def test_what_nobody_writes_and_what_has_no_name_has_no_writer() -> None:
    """Constants of Myelin, and tensors that the inspector does not name."""
    assert [[()], [(), ()]] == sources(("x", "a"), ("w b", "y"), inputs="x")
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
