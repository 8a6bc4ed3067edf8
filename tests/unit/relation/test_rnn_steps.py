"""Steps of a recurrence in layers that are written by hand: turns of a loop, sums without inputs, gates."""

from __future__ import annotations

import dataclasses

import pytest

from recurrent import listing, tensor
from rtlab.core.engine import Engine, Layer
from rtlab.relation.rnn_steps import Cell, Execution, LayerFlow, RnnSteps

CELL = Cell("/rnn0", 4, 8, 16, 8, 4, "LSTM", "Tanh", 2)


def divide(layers: list[Layer], cell: Cell = CELL, others: frozenset[str] = frozenset()) -> Execution:
    numbered = tuple(dataclasses.replace(y, index=i, id=f"{i}:{y.name}") for i, y in enumerate(layers))
    engine = dataclasses.replace(listing(1), layers=numbered)
    mine = dict.fromkeys(range(len(numbered)), "labelled")
    return RnnSteps(cell, numbered, LayerFlow.from_engine(engine), mine, others).result()


def loop(rise: str, limit: str, steps: int = 2) -> list[Layer]:
    """Some steps between a counter that is set and one that rises, until it is large enough."""
    engine: Engine = listing(steps)
    counter = (tensor("counter", 1),)
    return [
        Layer("", "set", "memset", 0, (), counter),
        *engine.layers,
        Layer("", "another", "add", 0, (tensor("other", 1), tensor("__d^5i32", 1)), (tensor("other", 1),)),
        Layer("", "rise", "add", 0, (*counter, tensor(rise, 1)), counter),
        Layer("", "jump", "cjmp", 0, (*counter, tensor(limit, 1)), ()),
    ]


def test_a_loop_repeats_its_steps_until_its_counter_reaches_the_limit() -> None:
    made = divide(loop("__d^2i32", "__d^8i32"))
    assert ("loop", 4, 2, 8) == (made.form, made.turns, made.body, made.steps)
    assert not [e for e in made.evidence if "not certain" in e]
    by_role = [(q.role, q.steps) for m in made.members for q in m.parts]
    assert [(), ()] == [steps for role, steps in by_role if role == "loop"][:2]
    for role in ("input product", "recurrent product", "pointwise"):
        assert [(0, 2, 4, 6), (1, 3, 5, 7)] == [steps for r, steps in by_role if r == role]
    assert [False, *[True] * 9] == [m.inside for m in made.members]


@pytest.mark.parametrize(("rise", "limit"), [("__d^3i32", "__d^8i32"), ("n", "__d^8i32"), ("__d^2i32", "n")])
def test_turns_that_no_number_tells_are_one(rise: str, limit: str) -> None:
    made = divide(loop(rise, limit))
    assert ("loop", 1, 2, 2) == (made.form, made.turns, made.body, made.steps)
    assert [False, True] == ["not certain" in e for e in made.evidence]


def test_a_layer_behind_a_loop_does_the_step_after_all_turns() -> None:
    kernel = Layer("", "__myl_SigmTanhTanh_myl0_9", "kgen", 0, (tensor("h0_0", 1, 4, 16),), (tensor("z", 4),))
    made = divide([*loop("__d^1i32", "__d^3i32", steps=1), kernel], dataclasses.replace(CELL, steps=4))
    (last,) = made.members[-1].parts
    assert (3, 4, False) == (made.turns, made.steps, made.members[-1].inside)
    assert ("pointwise", (3,)) == (last.role, last.steps)


@pytest.mark.parametrize(
    ("shapes", "origins", "role"),
    [
        ([(64,), (64,)], ("/rnn0",), "bias"),
        ([(64,), (64,)], (), "bias"),
        ([(1, 16, 64)], (), "recurrent product"),
        ([(1, 8, 32)], (), "bias"),
    ],
)
def test_a_sum_without_inputs_adds_biases_or_multiplies_a_constant_state(shapes, origins, role) -> None:
    constants = tuple(tensor(f"c{i}", *shape) for i, shape in enumerate(shapes))
    name = "__myl_Sum_myl0_0"
    layer = Layer("", name, "kgen", 0, (), (tensor("y", 64),), constants, name, origins=origins)
    assert [role] == [q.role for q in divide([layer, *listing(8).layers]).members[0].parts]


@pytest.mark.parametrize(("gates", "merged", "words"), [(1, False, "one gate"), (2, True, "2 gates")])
def test_gates_of_one_product_follow_from_the_width_of_its_weights(gates, merged, words) -> None:
    cell = dataclasses.replace(CELL, gates=gates, steps=1)
    layers = [
        dataclasses.replace(y, constants=tuple(tensor(t.name, *t.shape[:2], 16 * gates) for t in y.constants))
        for y in listing(1).layers
    ]
    made = divide(layers, cell)
    products = [q for m in made.members for q in m.parts if q.role.endswith("product")]
    assert [(gates, True)] * 2 == [(q.gates, words in q.evidence) for q in products]
    assert merged is made.merged


def test_weights_of_what_follows_are_no_products_of_the_recurrence() -> None:
    """Its weights are as wide as the state; those of the gates are wider."""
    cell = dataclasses.replace(CELL, op="GRU", gates=3)
    head = Layer(
        "", "head", "gemm", 0, (tensor("h0_7", 1, 4, 16),), (tensor("z", 4, 16),), (tensor("m", 16, 16),), "",
        origins=("/head",),
    )  # fmt: skip
    made = divide([*listing(8).layers, head], cell, frozenset({"/head"}))
    assert not [q for q in made.members[-1].parts if q.role.endswith("product")]
    assert ("/head",) == made.members[-1].also
