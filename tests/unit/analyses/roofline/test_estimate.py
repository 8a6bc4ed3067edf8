"""What layers compute and move, which roof bounds them, and how near estimates come to measured times."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import statistics

import numpy as np
import pytest
from scipy.stats import spearmanr

import engines as corpus
import nets
from roofs import LEAVE_ONE_OUT, compare_estimates, judged_layers
from rtlab import Study, backends, samples
from rtlab.analyses.roofline.estimate import (
    CROSS_VALIDATED,
    GPU_EFFICIENCY,
    RECORDED,
    compute_engine_roofline,
    describe_estimate_error,
    estimate_microseconds,
    pick_default_gpu,
    place_under_roofs,
)
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load, make_empty_model
from rtlab.core.peaks import Peaks, resolve_peaks
from rtlab.core.variant import Target
from rtlab.errors import VariantError
from rtlab.relation.layerwork import LayerWork, Product, layer_works
from rtlab.relation.mapping import Mapping, Pair
from rtlab.relation.relate import relate
from rtlab.relation.work import works
from rtlab.web.page.document import build_variant_document

rtx = pytest.mark.skipif(not backends.get("tensorrt-rtx").availability().ok, reason="not installed")
ROOFS = Peaks("test", bandwidth=1e9, cores={"fp32": 1e10}, tensor={"fp16": 1e12}, multiprocessors=10)
NOTHING = Mapping((), ())


@functools.cache
def sample(name: str) -> Model:
    return samples.load(name, samples=1).model


def engine(*layers: Layer, inputs: tuple[Tensor, ...] = ()) -> Engine:
    return Engine("trtexec", "10.0", Target("sm86"), layers, inputs or layers[0].inputs, maker=TENSORRT)


def layer(kind: str, reads: Tensor, writes: Tensor, index: int = 0, **attributes: object) -> Layer:
    return Layer(f"L{index}", f"layer {index}", kind, index, (reads,), (writes,), attributes=attributes)


X, Y = Tensor("x", "fp16", (2, 64, 8, 8)), Tensor("y", "fp16", (2, 32, 8, 8))
CONV = layer("CaskConvolution", X, Y, Kernel=[3, 3], OutMaps=32, Groups=1, ParameterType="Convolution",
             Weights={"Type": "Half", "Count": 32 * 64 * 9}, Bias={"Type": "Float", "Count": 32})  # fmt: skip


def of(one: Layer, **more) -> LayerWork:
    return layer_works(engine(one), NOTHING, make_empty_model(), **more)[one.id]


def test_estimates_are_within_a_factor_of_two_and_in_the_right_order() -> None:
    for told in (*RECORDED, *CROSS_VALIDATED):
        assert told.factor < 2
        assert told.rank > 0.8
    assert [(j.engine, j.gpu, j.layers) for j in RECORDED] == [
        (j.engine, j.gpu, j.layers) for j in CROSS_VALIDATED
    ]
    assert {j.gpu for j in RECORDED} == set(LEAVE_ONE_OUT)


def test_an_engine_is_judged_by_the_order_the_ratio_and_the_sum_of_its_layers(monkeypatch) -> None:
    """Against SciPy's rank correlation and NumPy's median, on an engine of the corpus as if an RTX 3090 had run it."""
    monkeypatch.setattr("roofs.resolve_peaks", lambda device: resolve_peaks("RTX 3090"))
    found, gpu, measured = judged_layers(corpus.MOBILE)
    # Of 59 layers, a view and a call of shapes launch nothing or tell nothing.
    assert 57 == len(measured)
    made = {i: estimate_microseconds(found[i], gpu, GPU_EFFICIENCY) / 1e3 for i in measured}
    judged = compare_estimates("mobile", gpu.name, made, measured)
    one, two = np.array([[made[i], t] for i, t in measured.items() if made[i] > 0]).T
    assert judged.layers == len(one)
    assert judged.rank == pytest.approx(spearmanr(one, two).statistic)
    assert judged.factor == pytest.approx(np.median(np.exp(np.abs(np.log(one / two)))))
    assert judged.total == pytest.approx(one.sum() / two.sum())


@pytest.mark.parametrize(
    ("gpu", "table", "rows"),
    [("A100 80GB PCIe", RECORDED, 4), ("RTX 3090", RECORDED, 2), ("H100 SXM", CROSS_VALIDATED, 11)],
)
def test_the_error_that_is_told_is_that_of_the_rows(gpu: str, table, rows: int) -> None:
    own = [j for j in table if j.gpu == gpu or rows == 11]
    assert rows == len(own)
    factors, totals = [j.factor for j in own], [100 * abs(j.total - 1) for j in own]
    told = [
        float(n) for n in re.findall(r"\d+\.\d+|\d+(?= %)", describe_estimate_error(gpu).partition(":")[2])
    ]
    expected = [statistics.median(factors), max(factors), statistics.median(totals), max(totals)]
    assert expected == pytest.approx(told, abs=0.51)
    assert expected[:2] == pytest.approx(told[:2], abs=0.0051)


@pytest.mark.parametrize(
    ("target", "device", "name"),
    [("sm86", "", "RTX 3090"), ("sm75", "", "TITAN RTX"), ("sm80", "", "A100 80GB PCIe"), ("cpu", "", "RTX 3090"),
     ("sm86", "NVIDIA A10", "A10"), ("sm86", "a GPU that nobody knows", "RTX 3090"), ("sm90", "", "H100 SXM")],
)  # fmt: skip
def test_the_usual_gpu_is_the_engines_own_or_a_recorded_one_of_its_target(target, device, name) -> None:
    assert (
        name == pick_default_gpu(dataclasses.replace(engine(CONV), target=Target(target), device=device)).name
    )


@pytest.mark.parametrize(
    ("folder", "macs"),
    [
        (corpus.RESIDUAL, 8 * (1024 * 32 * 27 + 2 * 256 * 32 * 288 + 64 * 48 * (288 + 32 + 3 * 432) + 480)),
        (corpus.MOBILE, None),
    ],
    ids=lambda v: getattr(v, "name", ""),
)  # fmt: skip
def test_the_layers_own_words_count_what_the_nodes_count(folder, macs: int | None) -> None:
    """Three ways to one number: the inspector's parameters, the nodes mapped to a layer, and shapes by hand."""
    found, _ = corpus.read(folder)
    model = corpus.structure(folder)
    nodes = layer_works(found, relate(model, model, found), model)
    words = layer_works(found, NOTHING, make_empty_model())
    assert {i: w.macs or 0 for i, w in words.items()} == {i: w.macs or 0 for i, w in nodes.items()}
    total = sum(w.macs or 0 for w in nodes.values())
    assert total == sum(w.macs or 0 for w in works(model).values()) == (macs or total)


def test_a_convolution_reads_its_input_and_its_weights_once() -> None:
    found = of(CONV)
    assert 2 * 8 * 8 * 32 * 64 * 9 == found.macs
    assert Product(128, 32, 576) == found.product
    assert 2 * 2 * 64 * 64 + 2 * 32 * 64 * 9 + 4 * 32 == found.read
    assert 2 * 2 * 32 * 64 == found.written
    assert ("fp16", True) == (found.precision, found.matrix)


@pytest.mark.parametrize("second", [(2, 12, 64, 96), (2, 12, 96, 64)])
def test_a_product_of_stacks_is_as_many_products_as_they_hold(second: tuple[int, ...]) -> None:
    """Attention of 12 heads and two samples: 24 products of 128 rows, 96 columns and a depth of 64."""
    first = Tensor("a", "fp16", (2, 12, 128, 64))
    one = layer("MatrixMultiply", first, Tensor("c", "fp16", (2, 12, 128, 96)))
    both = dataclasses.replace(one, inputs=(first, Tensor("b", "fp16", second)))
    assert Product(128, 96, 64, 24) == of(both).product
    # The second one's weights, which one matrix serves: rows of all samples and heads follow each other.
    weights = dataclasses.replace(one, inputs=(first, Tensor("b", "fp16", (64, 96))))
    assert Product(24 * 128, 96, 64) == of(weights).product
    assert [True, False] == [Product(4, columns, 8).thin for columns in (3, 4)]


def test_layouts_pad_channels() -> None:
    wide = "Thirty-two wide channel vectorized row major"
    padded = dataclasses.replace(X, shape=(2, 3, 8, 8), dtype="int8", format=wide)
    assert 2 * 32 * 64 == of(layer("Reformat", padded, Y)).read
    assert 2 * 3 * 64 == of(layer("Reformat", dataclasses.replace(padded, format=""), Y)).read


def test_a_depthwise_convolution_is_no_matter_of_matrix_units() -> None:
    told = {"Kernel": [3, 3], "OutMaps": 64, "Groups": 64, "Weights": {"Type": "Half", "Count": 576}}
    found = of(layer("CaskConvolution", X, X, **told))
    assert 2 * 64 * 64 * 9 == found.macs
    assert not found.matrix


def test_a_deconvolution_computes_at_each_position_that_it_reads() -> None:
    """4×4 positions of 8 channels, each into 16 maps of 2×2."""
    small, wide = Tensor("x", "fp16", (1, 8, 4, 4)), Tensor("y", "fp16", (1, 16, 8, 8))
    found = of(layer("CaskDeconvolutionV2", small, wide, Kernel=[2, 2], OutMaps=16, Groups=1))
    assert 4 * 4 * 8 * 16 * 2 * 2 == found.macs


def test_a_kernels_name_tells_its_units_and_its_tile() -> None:
    tiled = dataclasses.replace(CONV, tactic="sm80_xmma_fprop_implicit_gemm_f16f16_tilesize96x128x64_stage3")
    assert (96, 128) == of(tiled).product.tile
    assert not of(dataclasses.replace(CONV, tactic="ampere_scudnn_128x64_relu")).matrix


def test_a_matrix_product_has_its_depth_from_its_operands() -> None:
    a, b, c = Tensor("a", "fp16", (4, 10, 7)), Tensor("b", "fp16", (4, 7, 9)), Tensor("c", "fp16", (4, 10, 9))
    one = Layer("L0", "gemm", "gemm", 0, (a, b), (c,))
    assert 4 * 10 * 7 * 9 == of(one).macs
    weights = Layer("L0", "gemm", "gemm", 0, (Tensor("a", "fp16", (10, 7)), Tensor("w", "fp16", (9, 7))),
                    (Tensor("c", "fp16", (10, 9)),))  # fmt: skip
    assert 10 * 7 * 9 == of(weights).macs


def test_a_larger_batch_moves_more_activations_and_the_same_weights() -> None:
    weights = 2 * 32 * 64 * 9 + 4 * 32
    assert 2 * of(CONV).macs == of(CONV, batch=4).macs
    assert 2 * (of(CONV).read - weights) == of(CONV, batch=4).read - weights
    two, eight = (
        compute_engine_roofline(engine(CONV), NOTHING, make_empty_model(), ROOFS, batch=n) for n in (None, 8)
    )
    assert (2, 8, 4 * two.macs) == (two.batch, eight.batch, eight.macs)


def test_a_dynamic_tensor_takes_the_size_of_the_models_value() -> None:
    model = sample("digits_inception")
    first = model.top[0]
    x, y = Tensor(model.inputs[0], "fp32", (-1, 1, 32, 32)), Tensor(first.outputs[0], "fp32", None)
    one = Layer("L0", first.id, "Conv", 0, (x,), (y,))
    mapping = Mapping((Pair(first.id, "L0", "declared"),), ())
    for batch in (1, 4):
        found = layer_works(engine(one), mapping, model, batch=batch)["L0"]
        assert works(model, batch=batch)[first.id].macs == found.macs
        assert works(model, batch=batch)[first.id].written == found.written


def test_a_node_in_several_layers_counts_once() -> None:
    model = sample("digits_inception")
    conv = next(n for n in model.top if n.op == "Conv")
    x, y = Tensor("x", "fp32", (1, 1, 32, 32)), Tensor("y", "fp32", (1, 24, 32, 32))
    middle = dataclasses.replace(CONV, id="L1", index=1, inputs=(x,), outputs=(y,), attributes={})
    layers = (layer("Reformat", x, x), middle, layer("kgen", y, y, 2))
    mapping = Mapping(tuple(Pair(conv.id, i.id, "declared") for i in layers), ())
    found = layer_works(engine(*layers, inputs=(x,)), mapping, model)
    assert [0, works(model)[conv.id].macs] == [found["L0"].macs, found["L1"].macs]
    assert not found["L2"].macs


def test_a_node_that_runs_in_two_equal_layers_is_divided() -> None:
    model = sample("digits_inception")
    conv = next(n for n in model.top if n.op == "Conv")
    parts = tuple(dataclasses.replace(CONV, id=f"L{i}", index=i, attributes={}) for i in range(2))
    mapping = Mapping(tuple(Pair(conv.id, i.id, "declared") for i in parts), ())
    found = layer_works(engine(*parts), mapping, model)
    assert works(model)[conv.id].macs == sum(w.macs for w in found.values())


def test_what_is_not_told_stays_unknown() -> None:
    steps = engine(layer("kgen", X, Y), layer("Reformat", Tensor("z"), Y, 1))
    found = compute_engine_roofline(steps, NOTHING, make_empty_model(), ROOFS)
    assert ("L0", "L1") == found.uncounted
    kernel, copy = found.layers
    assert kernel.flops is None
    assert ("unknown", "unknown") == (kernel.bound, copy.bound)
    # What it moves it moves all the same; how long it takes nobody knows.
    assert kernel.moved
    assert [None] * 4 == [kernel.attainable, kernel.estimated, copy.attainable, copy.estimated]


def test_still_layers_have_no_point_and_take_no_time() -> None:
    steps = engine(layer("NoOp", X, X), layer("Reformat", X, Y, 1))
    assert ["L1"] == [
        p.layer for p in compute_engine_roofline(steps, NOTHING, make_empty_model(), ROOFS).layers
    ]
    roofline = compute_engine_roofline(steps, NOTHING, make_empty_model(), ROOFS)
    assert 0.0 == roofline.milliseconds(steps)["L0"]


@pytest.mark.parametrize(
    ("flops", "moved", "bound"),
    [(10**9, 10**5, "compute"), (10**6, 10**6, "memory"), (10, 10, "launch"), (10**4, 10, "launch")],
)
def test_the_longer_of_computing_and_moving_is_the_bound(flops: int, moved: int, bound: str) -> None:
    work = LayerWork("l", 0, flops, moved, 0, "fp32")
    found = place_under_roofs(work, ROOFS)
    assert bound == found.bound
    longest = max(flops / 1e10, moved / 1e9) * 1e3
    assert longest + GPU_EFFICIENCY.launch / 1e3 == pytest.approx(found.attainable)
    assert flops / moved == found.intensity


def test_a_time_of_zero_has_no_distance() -> None:
    work = LayerWork("l", 0, 10, 10, 10, "fp32")
    assert place_under_roofs(work, ROOFS, 0.0).distance is None
    assert 2 == pytest.approx(
        place_under_roofs(work, ROOFS, 2 * place_under_roofs(work, ROOFS).attainable).distance
    )


def test_an_estimate_is_never_below_the_attainable_and_grows_with_waves() -> None:
    def product(rows: int) -> LayerWork:
        macs = rows * 128 * 512
        return LayerWork("l", macs, 2 * macs, 8, 8, "fp16", True, Product(rows, 128, 512, tile=(128, 128)))

    one, full, more = (place_under_roofs(product(128 * n), ROOFS).estimated for n in (1, 10, 11))
    assert one == full
    assert more > 1.5 * full
    for n in (1, 10, 11, 100):
        found = place_under_roofs(product(128 * n), ROOFS)
        assert found.estimated >= found.attainable


@pytest.mark.parametrize(
    ("precision", "roofs", "note"),
    [("tf32", resolve_peaks("T4"), ""), ("fp32", resolve_peaks("T4"), ""), ("fp16", resolve_peaks("T4"), ""),
     ("int8", resolve_peaks("V100"), ""), ("fp8", resolve_peaks("A100"), "no rate of fp8"),
     ("bf16", resolve_peaks("T4"), "no rate of bf16")],
)  # fmt: skip
def test_only_a_precision_that_is_missed_is_said_to_be_missing(precision, roofs, note) -> None:
    """TF32 is how a compiler multiplies FP32 where it can: FP32 in its place is nothing to be told."""
    found = place_under_roofs(LayerWork("l", 1, 2, 8, 8, precision, True), roofs)
    assert bool(note) == bool(found.note)
    assert note in found.note


@pytest.mark.parametrize(("matrix", "units"), [(True, "matrix"), (False, "cores")])
def test_the_units_are_those_whose_rate_bounds_the_layer(matrix: bool, units: str) -> None:
    assert units == place_under_roofs(LayerWork("l", 1, 2, 8, 8, "fp16", matrix), ROOFS).units
    # What would go to matrix units goes to the cores of a processor that has none for it.
    assert "cores" == place_under_roofs(LayerWork("l", 1, 2, 8, 8, "fp32", matrix), ROOFS).units


def test_a_processor_that_was_measured_reaches_its_peaks() -> None:
    cpu = dataclasses.replace(ROOFS, origin="measured")
    for work in (
        LayerWork("l", 0, 10**9, 10**5, 0, "fp32"),
        LayerWork("l", 0, 10, 10**8, 0, "fp32", scattered=True),
        LayerWork("l", 10**8, 2 * 10**8, 10**5, 0, "fp16", True, Product(100, 100, 10**4)),
    ):
        found = place_under_roofs(work, cpu)
        assert found.attainable == pytest.approx(found.estimated)
        assert found.attainable < place_under_roofs(work, ROOFS).attainable


def test_the_totals_are_those_of_the_layers() -> None:
    tiny = Tensor("t", "fp16", (1, 1))
    steps = engine(CONV, layer("Reformat", Y, Y, 1), layer("Reformat", tiny, tiny, 2))
    found = compute_engine_roofline(steps, NOTHING, make_empty_model(), ROOFS, {"L0": 0.5})
    assert ["memory", "memory", "launch"] == [p.bound for p in found.layers]
    for k in ("flops", "estimated", "attainable", "macs", "moved"):
        assert sum(getattr(p, k) for p in found.layers) == getattr(found, k), k
    for bound in {p.bound for p in found.layers}:
        of_it = sum(p.estimated for p in found.layers if p.bound == bound)
        assert of_it / found.estimated == pytest.approx(found.share(bound))
    assert 1 == pytest.approx(sum(found.share(b) for b in ("compute", "memory", "launch", "unknown")))
    assert 0.5 == found.by_layer["L0"].measured
    assert found.flops / 0.5 * 1e3 == found.by_layer["L0"].rate
    assert {p.layer: p.estimated for p in found.layers} == found.milliseconds(steps)


def test_an_unknown_gpu_and_a_bad_batch_are_refused() -> None:
    with pytest.raises(VariantError, match="Voodoo"):
        compute_engine_roofline(engine(CONV), NOTHING, make_empty_model(), "Voodoo")
    for batch in (0, -1, 2.5, "many", float("nan")):
        with pytest.raises(VariantError, match="at least 1"):
            compute_engine_roofline(engine(CONV), NOTHING, make_empty_model(), ROOFS, batch=batch)  # type: ignore[arg-type]


def test_judging_leaves_out_what_has_no_time() -> None:
    found = compare_estimates("e", "g", {"a": 1.0, "b": 4.0, "c": 1.0}, {"a": 2.0, "b": 4.0, "c": 0.0})
    assert (2, 1.5, 1.0) == (found.layers, found.factor, pytest.approx(found.rank))
    assert 5 / 6 == pytest.approx(found.total)
    assert math.isnan(compare_estimates("e", "g", {}, {}).factor)


def copies(known: int, unknown: int, size: int = 1) -> Engine:
    """Layers that tell their work, 2×64×8×8 halves read and written, and kernels of ``size`` as many that do not."""
    wide = Tensor("x", "fp16", (2 * size, 64, 8, 8))
    told = [layer("Reformat", X, X, i) for i in range(known)]
    return engine(*told, *(layer("kgen", wide, wide, known + i) for i in range(unknown)))


@pytest.mark.parametrize(
    ("known", "unknown", "size", "enough"),
    [(19, 1, 1, True), (18, 1, 1, False), (0, 1, 1, False), (1, 0, 1, True), (95, 5, 1, True), (95, 5, 2, False)],
)  # fmt: skip
def test_below_95_percent_of_layers_or_bytes_there_is_no_sum(known, unknown, size, enough) -> None:
    """Nineteen of twenty are enough; five in a hundred that are twice as large move 10 of 105 parts, which are not."""
    found = compute_engine_roofline(copies(known, unknown, size), NOTHING, make_empty_model(), ROOFS)
    assert known / (known + unknown * size) == pytest.approx(found.coverage.moved)
    assert (known, known + unknown) == (found.coverage.layers, found.coverage.all_layers)
    assert enough == (found.estimated is not None) == (found.attainable is not None) == (not found.withheld)
    # What is known of single layers stands.
    assert known == sum(p.estimated is not None for p in found.layers)


@pytest.mark.parametrize(
    ("name", "each"),
    [
        # Multiply, least, most, round: four. A cast and a copy compute nothing.
        ("__myl_MulMinMaxRounCastConc_myl0_0", 4),
        # Multiply, add, SiLU of four, multiply, least, most, round.
        ("__myl_MulAddSiluMulMinMaxRounCast_myl0_2", 10), ("0:__myl_CastConc_myl0_0", 0),
        # How much a sum sums its output does not tell.
        ("__myl_AddMaxrSubExpSum_myl4_2", None), ("kernel", None),
    ],
)  # fmt: skip
def test_a_generated_kernel_without_a_node_of_its_own_is_counted_by_its_name(name, each) -> None:
    """In INT8 such kernels quantize for a convolution that another layer runs."""
    found = of(dataclasses.replace(layer("kgen", X, Y), name=name))
    size = 2 * 32 * 8 * 8
    assert (None if each is None else each * size) == found.flops


@pytest.mark.slow
@rtx
def test_every_layer_of_a_detector_in_int8_is_counted() -> None:
    study = Study(load(nets.detector()), data=None)
    for name in ("fp32", "int8"):
        study.add(name, target="sm86", backend="tensorrt-rtx")
    study.run(compare=False)
    convolutions = [n.id for n in study.model.nodes if n.op == "Conv"]
    for result in study.values():
        found = result.roofline("RTX 3090")
        assert [] == [p.layer for p in found.layers if p.flops is None]
        assert found.macs >= sum(works(study.model)[i].macs for i in convolutions)


@pytest.mark.slow
@rtx
def test_estimates_that_lack_their_inputs_are_not_compared() -> None:
    study = Study(sample("digits_gru"))
    for name in ("fp32", "fp16"):
        study.add(name, target="sm86", backend="tensorrt-rtx")
    study.run(compare=False)
    assert not study["fp32"].roofline("RTX 3090").coverage.enough

    found = study.difference("fp32", "fp16", gpu="RTX 3090")
    assert (None, None, False) == (found.totals, found.delta, found.has_layer_times)
    assert None is build_variant_document(study["fp32"].facts, study.model)["estimate"]["sum_of_layers_ms"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_tensors_that_onnx_runtime_names_anew_have_the_size_of_what_they_hold(precision: str) -> None:
    loaded = samples.load("digits_inception", samples=4)
    study = Study(loaded.model, data=loaded.calibration)
    study.add("it", precision=precision, backend="onnxruntime")
    result = study.run(compare=False)["it"]
    found = result.roofline("RTX 3090")
    assert (len(found.layers), 1.0) == (found.coverage.layers, found.coverage.moved)
    convolutions = [y for y in result.engine.layers if y.kind in {"Conv", "FusedConv", "QLinearConv"}]
    assert convolutions
    for one in convolutions:
        # By hand: the bytes of what it reads and writes are those of the source's values, at one sample.
        node = next(n for n in map(loaded.model.node, result.mapping.nodes(one.id)) if n.op == "Conv")
        shapes = [loaded.model.values[v].shape for v in (node.inputs[0], node.outputs[0])]
        width = 4 if one.precision == "fp32" else 1
        read, written = (width * math.prod(d for d in s if isinstance(d, int)) for s in shapes)
        point_ = found.by_layer[one.id]
        assert point_.written in {written, 4 * written}
        assert point_.read > read


def test_a_layer_that_moves_nothing_adds_no_byte_to_what_is_known() -> None:
    empty = Tensor("e", "fp16", (0, 64, 8, 8))
    steps = engine(layer("Reformat", X, X), layer("Reformat", empty, empty, 1))
    found = compute_engine_roofline(steps, NOTHING, make_empty_model(), ROOFS)
    assert 2 * 2 * 64 * 64 * 2 == found.moved
    assert 1.0 == found.coverage.moved


TWO = ((10, 7), (7, 9))


@pytest.mark.parametrize(
    ("reads", "writes"),
    [(TWO, (9,)), (TWO, (0, 9)), (TWO, ()), ((None, None), (10, 9))],
    ids=["a row", "empty", "a number", "unknown"],
)
def test_a_matrix_product_without_two_sizes_of_its_result_is_not_counted(reads, writes) -> None:
    tensors = tuple(Tensor(n, "fp16", s) for n, s in zip("ab", reads, strict=True))
    one = Layer("L0", "gemm", "gemm", 0, tensors, (Tensor("c", "fp16", writes),))
    assert not of(one).macs
