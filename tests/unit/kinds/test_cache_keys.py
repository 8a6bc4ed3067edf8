"""Keys of what is kept: whatever decides an answer is in its key, so that none is given for another question.

Each test changes one thing after the other and asks for a key of its own; what decides nothing shares one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from nets import graph, passing
from rtlab.analyses.why import FusedLayer, Verdict
from rtlab.backends import recorded
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.memo import Memoizable, memoized
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions
from rtlab.core.prepared import Prepared
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Calibrator, Precision, PtqTransform, Rewrite, Target, Variant
from rtlab.quantize import apply_transforms
from rtlab.study import fusion

FLOAT = TensorProto.FLOAT


def apart(keys: Iterable[Any]) -> bool:
    """Whether no two are equal."""
    listed = list(keys)
    return len(set(map(repr, listed))) == len(listed)


VARIANT = {
    "precision": Precision.FP16, "calibrator": Calibrator.MSE, "target": Target("sm89"), "backend": "classic",
    "pins": (("a", Precision.FP32),), "weights": "tensor", "sparsity": ("*",), "scales": "a.cache",
    "options": BuildOptions(flags=("FP16",)), "rewrites": (Rewrite.of("fold a"),),
    "calibrators": (("a", Calibrator.MSE),), "treatments": (PtqTransform.of("equalize"),),
    "sizes": (("length", 1),),
}  # fmt: skip


def test_a_variants_id_tells_each_of_its_fields() -> None:
    base = Variant(Precision.INT8, Calibrator.MINMAX)
    fields = [{"calibrator": None, k: v} if k == "scales" else {k: v} for k, v in VARIANT.items()]
    single = [dataclasses.replace(base, **f) for f in fields]
    assert VARIANT.keys() == {f.name for f in dataclasses.fields(base)}
    assert apart(v.id for v in (base, *single))
    for one, other in (
        ({"pins": (("a", Precision.FP32),)}, {"pins": (("a", Precision.FP16),)}),
        ({"sparsity": ("*",)}, {"sparsity": ("a",)}),
        ({"calibrators": (("a", Calibrator.MSE),)}, {"calibrators": (("b", Calibrator.MSE),)}),
        (
            {"treatments": (PtqTransform.of("smooth(0.7)"),)},
            {"treatments": (PtqTransform.of("smooth(0.6)"),)},
        ),
        ({"treatments": (PtqTransform.of("correct a"),)}, {"treatments": (PtqTransform.of("correct b"),)}),
        ({"rewrites": (Rewrite.of("fold a"),)}, {"rewrites": (Rewrite.of("drop a"),)}),
        ({"calibrator": Calibrator.of("percentile(99)")}, {"calibrator": Calibrator.of("percentile(99.5)")}),
    ):
        assert dataclasses.replace(base, **one).id != dataclasses.replace(base, **other).id


def product(value: float = 1.0, width: int = 2, op: str = "Relu") -> Model:
    weight = value * np.arange(1, 2 * width + 1, dtype=np.float32).reshape(2, width)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "a"), helper.make_node(op, ["h"], ["y"], "b")]
    return graph(nodes, [("x", FLOAT, ["N", 2])], [("y", FLOAT, ["N", width])], {"w": weight})


def test_a_recorded_build_is_told_by_all_that_decides_its_layers_and_by_no_weight() -> None:
    def key(model: Model | None = None, release: str = "10.0", **choice: Any) -> str:
        return recorded.compute_key(BuildRequest(model or product(), Variant.of(**choice)), release)

    others = [
        key(product(width=3)), key(product(op="Tanh")), key(release="10.1"), key(target="sm89"),
        key(options=BuildOptions(flags=("FP16",))),
        key(precision="tf32"), key(sparsity=True),
    ]  # fmt: skip
    assert apart([key(), *others])
    assert key() == key(product(7.0)) == key(backend="classic")


def test_activations_are_observed_anew_where_a_variant_moves_them_and_only_there() -> None:
    def key(**choice: Any) -> tuple[object, ...]:
        return apply_transforms.make_activation_key(Variant.of("int8", **choice))

    keys = [
        key(), key(sparsity=True), key(sparsity="a"), key(treatments=["equalize"]), key(treatments=["equalize a"]),
        key(treatments=["smooth"]), key(treatments=["smooth(0.7)"]), key(treatments=["smooth", "equalize"]),
        key(treatments=["smooth"], rewrites=["fold a"]), key(rewrites=["release a"]),
    ]  # fmt: skip
    assert apart(keys)
    others = key(calibrator="mse"), key(treatments=["correct", "reconstruct"]), key(weights="tensor")
    assert {key()} == {*others}


class Counted(Memoizable):
    """What questions are asked of."""

    def __init__(self) -> None:
        self.asked = 0


def question(title: str) -> Any:
    @memoized
    def asked(noun: Counted, *others: object) -> tuple[object, ...]:
        noun.asked += 1
        return (title, *others)

    return asked


def test_an_answer_stays_with_its_question_its_noun_and_all_that_it_was_asked_with() -> None:
    first, second = question("first"), question("second")
    noun, one, two = Counted(), Counted(), Counted()
    asked = [(), (one,), (two,), (one, two), (two, one), (None,)]
    for _ in range(2):
        for others in asked:
            assert first(noun, *others) == ("first", *others)
            assert second(noun, *others) == ("second", *others)
    assert noun.asked == 2 * len(asked)
    first(one)
    assert (one.asked, noun.asked) == (1, 2 * len(asked))
    assert "_answers" not in noun.__getstate__()


def test_records_are_told_by_all_that_an_answer_holds_for() -> None:
    def facts(model: Model | None = None, variant: Variant | None = None, **engine: Any) -> VariantResult:
        held = model or product()
        told = {"backend": "fake", "version": "1", "target": Target("sm86"), "layers": ()} | engine
        return VariantResult("v", variant or Variant.of(), product(), Prepared(held, held), Engine(**told))

    others = [
        *(facts(variant=Variant.of(options=BuildOptions(flags=(f,)))) for f in ("FP16", "INT8")),
        facts(variant=Variant.of("tf32")), facts(variant=Variant.of(sparsity=True)), facts(backend="other"),
        facts(version="2"), facts(target=Target("sm89")),
    ]  # fmt: skip
    others = [facts(), facts(product(2.0)), *others]
    abouts = [
        Verdict("a", "b", "blocked"), Verdict("b", "a", "blocked"), Verdict("a", "c", "blocked"),
        FusedLayer("a", ("a", "b"), None, ""), FusedLayer("a", ("b",), None, ""),
    ]  # fmt: skip
    paths = [fusion._path(fusion.create_record(f, a)) for f in others for a in abouts]
    assert apart(paths)
    # Layers are numbered anew by each build, and what was found is no part of the question.
    assert fusion._path(fusion.create_record(others[0], FusedLayer("z", ("a", "b"), None, ""))) == paths[3]
    assert fusion._path(fusion.create_record(others[0], Verdict("a", "b", "alone"))) == paths[0]


def test_a_models_digest_is_of_its_numbers_and_sizes_and_its_structure_of_its_sizes_alone() -> None:
    import rtlab

    sized = [rtlab.load(product().proto(), shapes={"x": (n, 2)}) for n in (1, 4)]
    models = [product(), product(2.0), product(width=3), *sized]
    assert apart(m.digest for m in models)
    assert models[0].structure == models[1].structure
    assert apart(m.structure for m in (models[0], *models[2:]))
    assert passing(x=(FLOAT, [1, 2])).structure != passing(x=(TensorProto.FLOAT16, [1, 2])).structure
