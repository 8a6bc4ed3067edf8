"""Changes that fix a size, or give a node the type of another one: what they do to a graph, and to its numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from nets import graph
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions
from rtlab.core.variant import Variant
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.changes import iter_type_changes
from rtlab.experiments.why.open_sizes import OpenSizes, open_sizes


def strided(batch: str | int = "N", *behind: onnx.NodeProto, **weights: np.ndarray) -> Model:
    """Two convolutions, the first of stride 2, and a flattened image, or what else is behind; 4 columns."""
    rng = np.random.default_rng(0)
    weights |= {"w": rng.normal(0, 1, (3, 2, 3, 3)), "v": rng.normal(0, 1, (3, 3, 3, 3))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first", strides=[2, 1], pads=[1] * 4),
        helper.make_node("Conv", ["c", "v"], ["d"], name="second", pads=[1] * 4),
        helper.make_node("Relu", ["d"], ["r"], name="relu"),
        *(behind or [helper.make_node("Flatten", ["r"], ["y"], name="flat")]),
    ]
    arrays = {k: w.astype(np.float32) if w.dtype == float else w for k, w in weights.items()}
    (end,) = nodes[-1].output
    return graph(nodes, [("x", 1, [batch, 2, "H", 4])], [(end, 1, ["n", "k"])], arrays)


OPTIONS = BuildOptions.of(profiles=[{"x": ((1, 2, 6, 4), (2, 2, 8, 4), (8, 2, 10, 4))}])


def opened(model: Model, options: BuildOptions = OPTIONS) -> OpenSizes:
    found = open_sizes(model, options)
    assert found is not None
    return found


def test_sizes_that_follow_from_open_ones_are_known_at_the_three_shapes_of_a_profile() -> None:
    """By hand: the height is halved, from 6, 8 and 10 rows to 3, 4 and 5; the batch goes through, columns stay."""
    found = opened(strided())
    batch, channels, rows, columns = found.model.values["c"].shape or ()
    assert ("N", 3, 4) == (batch, channels, columns)
    assert ((3, 4, 5),) == found.extents[str(rows)]
    assert {"H"} == found.driven[str(rows)]
    assert rows == (found.model.values["r"].shape or ())[2], "one size has one symbol"
    flat = (found.model.values["y"].shape or ())[1]
    # 3 channels of 3, 4 and 5 rows of 4 columns.
    assert ((36, 48, 60),) == found.extents[str(flat)]
    assert {"H"} == found.driven[str(flat)]


def test_a_part_has_the_profile_of_its_own_inputs() -> None:
    found = opened(strided())
    part = cutting.cut(found.model, {"second": None, "relu": None}, still_open=True)
    variant = found.variant(part, Variant.of("fp32", options=OPTIONS))
    assert variant.options is not None
    assert ((("c", ((1, 3, 3, 4), (2, 3, 4, 4), (8, 3, 5, 4))),),) == variant.options.profiles
    assert (2, 3, 4, 4) == part.sizes().get("d"), "what reads a part sees the usual sizes"
    shut = cutting.cut(found.model, {"second": None, "relu": None})
    assert Variant.of("fp32") == found.variant(shut, Variant.of("fp32", options=OPTIONS))


def test_a_size_is_fixed_with_all_that_follows_from_it_and_no_other() -> None:
    found = opened(strided())
    part = cutting.cut(found.model, {"second": None, "relu": None}, still_open=True)
    by = {c.words: c for c in found.iter_fixes(part)}
    words = tuple(by)
    assert ['"H" (6 to 10) to 8', '"N" (1 to 8) to 2'] == [w.removeprefix("fix the size ") for w in words]
    assert {("size", False)} == {(c.cause, c.keeps) for c in by.values()}
    assert ("N", 3, 4, 4) == changes.apply_changes(part, [by[words[0]]]).values["c"].shape
    both = changes.apply_changes(part, [*by.values()])
    assert (2, 3, 4, 4) == both.values["c"].shape
    assert found.variant(both, Variant.of("fp32", options=OPTIONS)).options is None


def test_a_profile_of_one_size_leaves_it_open_all_the_same() -> None:
    one = BuildOptions.of(profiles=[{"x": ((2, 2, 8, 4),) * 3}])
    found = opened(strided(batch=2), one)
    assert (2, 2, "H", 4) == found.model.values["x"].shape
    assert ["H"] == [*found.extents][:1]
    assert {'fix the size "H" (declared open) to 8'} == {c.words for c in found.iter_fixes(found.model)}


def test_a_size_that_follows_from_two_is_fixed_with_either() -> None:
    """Rows times batch, as a Reshape makes: with one of them fixed it is no symbol of the other alone."""
    rows = helper.make_node("Reshape", ["r", "s"], ["y"], name="rows")
    behind = helper.make_node("Sigmoid", ["y"], ["z"], name="behind")
    found = opened(strided("N", rows, behind, s=np.array([-1, 4])))
    product = str((found.model.values["y"].shape or ())[0])
    # 3 channels of 3, 4 and 5 rows, for 1, 2 and 8 pictures.
    assert ((9, 24, 120),) == found.extents[product]
    assert {"N", "H"} == found.driven[product]
    part = cutting.cut(found.model, {"behind": None}, still_open=True)
    for change in found.iter_fixes(part):
        assert (24, 4) == changes.apply_changes(part, [change]).values["y"].shape


def typed(*, back: bool = False) -> Model:
    """A product in FP32, a cast, and a sum in FP16 that a ReLU reads; the product has another reader too."""
    rng, other = np.random.default_rng(1), onnx.TensorProto.FLOAT16
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["c"], name="first"),
        helper.make_node("Cast", ["c"], ["h"], name="narrow", to=other),
        *([helper.make_node("Cast", ["h"], ["f"], name="wide", to=1)] if back else []),
        helper.make_node("Add", ["f" if back else "h", "b"], ["s"], name="second"),
        helper.make_node("Relu", ["s"], ["y"], name="relu"),
        helper.make_node("Sigmoid", ["c"], ["z"], name="beside"),
    ]
    weights = {"w": rng.normal(0, 1, (6, 5)).astype(np.float32)}
    weights["b"] = rng.normal(0, 1, 5).astype(np.float32 if back else np.float16)
    ends = [("y", 1 if back else other, [4, 5]), ("z", 1, [4, 5])]
    return graph(nodes, [("x", 1, [4, 6])], ends, weights)


def ran(model: Model) -> list[np.ndarray]:
    onnx.checker.check_model(model.proto(), full_check=True)
    given = {"x": np.random.default_rng(0).normal(0, 1, (4, 6)).astype(np.float32)}
    return ort.InferenceSession(model.bytes(), providers=["CPUExecutionProvider"]).run(None, given)


def test_each_of_two_nodes_gets_the_type_of_the_other_and_nobody_else_another_one() -> None:
    model = typed()
    reader, writer = iter_type_changes(model, "first", "second", ("narrow",))
    assert {("type", ("narrow",), False)} == {(c.cause, c.nodes, c.keeps) for c in (reader, writer)}
    wide, narrow = changes.apply_changes(model, [reader]), changes.apply_changes(model, [writer])
    assert ["fp32", "fp32"] == [wide.values[v].dtype for v in wide.by_id["second"].inputs]
    assert "first" == wide.producers[wide.by_id["second"].inputs[0]].id
    assert ["fp16", "fp16"] == [narrow.values[v].dtype for v in narrow.by_id["first"].inputs]
    assert "first" == narrow.producers[narrow.by_id["second"].inputs[0]].id
    for changed in (wide, narrow):
        assert ("fp16", "fp32") == tuple(changed.values[v].dtype for v in ("y", "z"))
        assert "fp32" == changed.values[changed.by_id["beside"].inputs[0]].dtype
        for was, now in zip(ran(model), ran(changed), strict=True):
            np.testing.assert_allclose(now, was, atol=0.02)


def test_casts_there_and_back_are_no_other_type() -> None:
    model = typed(back=True)
    assert [] == list(iter_type_changes(model, "first", "second", ("narrow", "wide")))
    assert [] == list(iter_type_changes(model, "first", "second", ()))
    (gone, *_) = changes.iter_changes_between(model, "first", "second", ("narrow", "wide"), ())
    assert ("cast", ("narrow", "wide")) == (gone.cause, gone.nodes)


def test_a_cast_that_nobody_takes_back_is_not_just_taken_away() -> None:
    found = list(changes.iter_changes_between(typed(), "first", "second", ("narrow",), ()))
    assert ["reader"] == [c.cause for c in found]


def test_each_profile_tells_sizes_of_its_own() -> None:
    shapes = [((1, 2, 6, 4), (1, 2, 8, 4), (1, 2, 10, 4)), ((4, 2, 20, 4), (4, 2, 20, 4), (4, 2, 40, 4))]
    options = BuildOptions.of(profiles=[{"x": s} for s in shapes])
    found = opened(strided(), options)
    part = cutting.cut(found.model, {"second": None}, still_open=True)
    variant = found.variant(part, Variant.of("fp32", options=options))
    assert variant.options is not None
    assert [((1, 3, 3, 4), (1, 3, 4, 4), (1, 3, 5, 4)), ((4, 3, 10, 4), (4, 3, 10, 4), (4, 3, 20, 4))] == [
        dict(p)["c"] for p in variant.options.profiles
    ]


def test_without_profiles_nothing_is_open() -> None:
    assert [None, None] == [open_sizes(strided(), o) for o in (None, BuildOptions.of(flags=["TF32"]))]


def test_what_leads_from_one_to_the_other_comes_along_where_no_product_is_among_it() -> None:
    """SiLU's Sigmoid does; the convolution of a residual block stays."""
    size = [1, 2, 8, 8]
    nodes = [
        helper.make_node("Relu", ["x"], ["c"], name="relu"),
        helper.make_node("Sigmoid", ["c"], ["s"], name="gate"),
        helper.make_node("Mul", ["c", "s"], ["m"], name="mul"),
        helper.make_node("Conv", ["m", "w"], ["d"], name="conv", pads=[1] * 4),
        helper.make_node("Add", ["d", "m"], ["y"], name="sum"),
    ]
    model = graph(nodes, [("x", 1, size)], [("y", 1, size)], {"w": np.ones((2, 2, 3, 3), np.float32)})
    known = set(model.by_id)
    assert {"relu", "gate", "mul"} == known & set(cutting.cut_pair(model, ("relu", "mul")).by_id)
    assert {"mul", "sum"} == known & set(cutting.cut_pair(model, ("mul", "sum")).by_id)


def test_what_is_no_number_of_the_type_keeps_its_own() -> None:
    """The indices of a Gather stay integers, in whichever type the table is read."""
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["c"], name="first"),
        helper.make_node("Cast", ["c"], ["h"], name="narrow", to=10),
        helper.make_node("Relu", ["h"], ["y"], name="second"),
    ]
    weights = {"w": np.ones((6, 5), np.float32)}
    model = graph(nodes, [("i", onnx.TensorProto.INT64, [3])], [("y", 10, [3, 5])], weights)
    for change in iter_type_changes(model, "first", "second", ("narrow",)):
        changed = changes.apply_changes(model, [change])
        onnx.checker.check_model(changed.proto(), full_check=True)
        assert "int64" == changed.values[changed.by_id["first"].inputs[1]].dtype
