"""Each rule on an engine that has the fault and on its neighbour that has not; then on what real GPUs wrote."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recorded
from rtlab.analysis.findings import findings
from rtlab.analysis.mapping import Mapping, Pair
from rtlab.analysis.reformats import reformats
from rtlab.analysis.rules.kernels import cores
from rtlab.analysis.timing import LayerTime, Timing, timing
from rtlab.backends.trtexec import Trtexec
from rtlab.core.buildlog import BuildLog, Sparsity, TacticTime, Tuning
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.finding import Finding
from rtlab.core.variant import Target

LINEAR, CHW32, HWC8 = (
    "Row major linear FP32",
    "Thirty-two wide channel vectorized row major Int8 format",
    "Channel major FP16 format where channel % 8 == 0",
)
TENSOR_CORES = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize64x64x64_tensor16x8x16"
SIMT = "sm70_xmma_fprop_conv1x1_i8f32_f32_f32_nchw_vect_c_4kcrs_vect_c_4_nchw_simt_small_batch_bias_relu"
FFMA = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x64x8_stage3_g1_ffma_t1r3s3"


def tensor(name: str, dtype: str = "fp16", channels: int = 64, format_: str = "", size: int = 8) -> Tensor:
    return Tensor(name, dtype, (1, channels, size, size), format_)


def step(
    kind: str, reads: Tensor | tuple[Tensor, ...], writes: Tensor, *, name: str = "", tactic: str = "", **told
):
    inputs = reads if isinstance(reads, tuple) else (reads,)
    return name or kind, kind, inputs, writes, tactic, told


def engine(
    *steps, target: str = "sm80", outputs: tuple[Tensor, ...] = (), inputs: tuple[Tensor, ...] = ()
) -> Engine:
    """Steps in order; what no step writes is an input, and the last tensor the output, unless told."""
    layers = tuple(
        Layer(f"{i}:{name}", name, kind, i, reads, (writes,), tactic=tactic, attributes=told)
        for i, (name, kind, reads, writes, tactic, told) in enumerate(steps)
    )
    made = {t.name for y in layers for t in y.outputs}
    loose = {t.name: t for y in layers for t in y.inputs if t.name not in made}
    return Engine(
        "trtexec", "8.6", Target(target), layers, inputs or tuple(loose.values()), outputs or layers[-1].outputs
    )  # fmt: skip


def timed(found: Engine, *microseconds: float, total: float | None = None) -> Timing:
    """Times in microseconds, the last one for all layers that are left."""
    every = [*microseconds, *[microseconds[-1]] * (len(found.layers) - len(microseconds))]
    summed = sum(every) / 1e3
    rows = tuple(
        LayerTime(y.id, t / 1e3, None, t / 1e3 / summed) for y, t in zip(found.layers, every, strict=True)
    )
    return Timing("trtexec", "", None, 1, None if total is None else total / 1e3, None, summed, rows)


def of(found: Engine, rule: str, times: Timing | None = None, **known) -> list[Finding]:
    return [f for f in findings(found, timing=times, **known) if f.rule == rule]


def conv(reads: Tensor | tuple[Tensor, ...], writes: Tensor, *, name: str = "conv", tactic: str = "", **told):
    return step("CaskConvolution", reads, writes, name=name, tactic=tactic, **({"Groups": 1} | told))


def single(
    tactic: str, dtype: str = "fp16", channels: int = 64, size: int = 8, target: str = "sm80", **told
) -> Engine:
    x, y = tensor("x", dtype, channels, size=size), tensor("y", dtype, size=size)
    return engine(conv(x, y, tactic=tactic, **told), target=target)


@pytest.mark.parametrize(
    ("tactic", "expected"),
    [
        (TENSOR_CORES, "tensor"),
        ("ampere_h16816cudnn_128x128_ldg8_relu_exp_stages_64x3_large_nhwc_tn_v1", "tensor"),
        ("turing_fp16_i8816cudnn_int8_128x128_ldg16_relu_small_nt_v1", "tensor"),
        ("trt_turing_cutlass_image_network_first_layer_hmma_fprop_f16f16f32_nhwc_nhwc_k64r7s7c4", "tensor"),
        (
            "sm80_xmma_fprop_image_first_layer_f16f16_f32_f16_nhwckrsc_nhwc_hmma_k64c4r7s7_tensor1688",
            "tensor",
        ),
        ("sm50_xmma_convolution_depthwiseHMMA_FP16NHWCx8_TR3_TS3_STRIDEH1_STRIDEW1", "tensor"),
        ("volta_h884gemm_128x64_ldg8_nn_v1", "tensor"),
        ("ampere_s16816gemm_fp16_128x128_ldg8_stages_64x3_tn", "tensor"),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_wgmma", "tensor"),
        ("cutlass_80_tensorop_s16816gemm_f16_256x128_32x3_nn_align8", "tensor"),
        (SIMT, "cuda"),
        (FFMA, "cuda"),
        ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "cuda"),
        ("volta_int8x4_icudnn_int8x4_128x32_relu_xregs_medium_c32_nn_v1", "cuda"),
        ("volta_sgemm_128x64_nn", "cuda"),
        ("0x0000000000270101", ""),
        ("sm80_xmma_something_new", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_kernel_tells_its_cores_or_nothing(tactic, expected) -> None:
    """An "xmma" in it is no tensor core, which trex took it for; a number is no name."""
    assert expected == cores(tactic)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (single(SIMT, "int8"), ["off-tensor-cores:int8"]),
        (single(SIMT, "fp16", 3), ["off-tensor-cores:fp16/image"]),
        (single(FFMA, "fp32"), ["off-tensor-cores:fp32"]),
        (single(TENSOR_CORES), []),
        (single("0x0000000000270101"), []),
        (single(SIMT, size=1), []),  # one row: a matrix by a vector
        (single(SIMT, Groups=64), []),  # depthwise
        (single(FFMA, "fp32", target="sm75"), []),  # no TF32 there
        (single(FFMA, "fp32", target="unknown"), []),
    ],
)
def test_products_off_tensor_cores(found, expected) -> None:
    assert expected == [f.id for f in of(found, "off-tensor-cores")]


def test_the_build_log_tells_what_tensor_cores_would_have_taken() -> None:
    tried = (TacticTime("0x1", SIMT, 0.020), TacticTime("0x2", TENSOR_CORES, 0.025))
    log = BuildLog(tunings=(Tuning("conv", "CaskConvolution", "", tried, "0x1", 2, 1),))
    (found,) = of(single(SIMT), "off-tensor-cores", log=log)
    assert "20 µs, and 25 µs for the best on tensor cores" in found.evidence
    dropped = dataclasses.replace(log, chosen=1)
    assert "timed" not in of(single(SIMT), "off-tensor-cores", log=dropped)[0].evidence
    (silent,) = of(single(SIMT), "off-tensor-cores", log=BuildLog())
    assert "timed" not in silent.evidence


def int8_conv(out: str, *behind) -> Engine:
    return engine(conv(tensor("x", "int8", format_=CHW32), tensor("a", out)), *behind)


A, Y = tensor("a"), tensor("y")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (int8_conv("fp16", step("Pooling", A, Y)), ["float-output:int8-fp16"]),
        (int8_conv("fp32", step("Pooling", tensor("a", "fp32"), Y)), ["float-output:int8-fp32"]),
        (int8_conv("int8", step("Pooling", tensor("a", "int8"), Y)), []),
        (int8_conv("fp16"), []),  # the output of the network
        (int8_conv("fp16", step("Reformat", A, Y)), []),  # the same, through a copy
        (int8_conv("fp16", step("CudaSoftMax", A, Y)), []),  # which has no INT8
        (int8_conv("fp16", step("kgen", A, Y, name="__myl_MulMinMaxRounCast")), []),  # it may quantize
        (engine(conv(tensor("x"), A), step("Pooling", A, Y)), []),
        (int8_conv("fp16", step("Scale", A, tensor("y", "int8"))), ["float-output:int8-fp16"]),
        # What is an output must be as the caller reads it.
        (engine(conv(tensor("x", "int8"), A), step("Pooling", A, Y), outputs=(A, Y)), []),
    ],
)
def test_quantized_products_that_write_floating_point(found, expected) -> None:
    assert expected == [f.id for f in of(found, "float-output")]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (engine(conv(tensor("x", "int8", 24), tensor("y", "int8"))), ["unaligned:int8"]),
        (engine(conv(tensor("x", "int8", 16, CHW32), tensor("y", "int8", 64, CHW32))), ["unaligned:int8"]),
        (engine(conv(tensor("x", "int8", 64, CHW32), tensor("y", "int8", 40, CHW32))), ["unaligned:int8"]),
        (engine(conv(tensor("x", "fp16", 50, HWC8), tensor("y", "fp16", 64, HWC8))), ["unaligned:fp16"]),
        (engine(conv(tensor("x", "fp16", 24, HWC8), tensor("y", "fp16", 64, HWC8))), []),
        (engine(conv(tensor("x", "fp16", 64, HWC8), tensor("y", "fp16", 1000, CHW32))), []),  # 2 % of padding
        (engine(conv(tensor("x", "fp16", 3, HWC8), tensor("y", "fp16", 64, HWC8))), []),  # an image
        (engine(conv(tensor("x", "fp32", 6), tensor("y", "fp32"))), []),  # CUDA cores have no tiles
        (engine(conv(tensor("x", "fp32", 6), tensor("y", "fp32"), tactic=TENSOR_CORES)), ["unaligned:fp32"]),
        (engine(conv(tensor("x", "fp16", 12), tensor("y", "fp16", 12), Groups=12)), []),
        (engine(conv(tensor("x", "fp16", -1), tensor("y", "fp16", -1))), []),  # not known
    ],
)
def test_channels_that_do_not_fill_their_units(found, expected) -> None:
    assert expected == [f.id for f in of(found, "unaligned")]


@pytest.mark.parametrize(
    ("groups", "inside", "outside", "dtype", "expected"),
    [
        (32, 64, 128, "int8", 1),
        (32, 128, 64, "int8", 1),
        (8, 64, 64, "int8", 0),
        (64, 64, 64, "int8", 0),
        (1, 63, 63, "int8", 0),
        (32, 64, 64, "fp16", 0),
    ],
)
def test_groups_too_narrow_for_int8(groups, inside, outside, dtype, expected) -> None:
    found = engine(
        conv(tensor("x", dtype, inside), tensor("y", dtype, outside), Groups=groups, OutMaps=outside)
    )
    assert expected == len(of(found, "narrow-groups"))


def separable(dtype: str = "int8") -> Engine:
    x, a, b, y = (tensor(n, dtype) for n in "xaby")
    return engine(conv(x, a, name="up"), conv(a, b, name="deep", Groups=64), conv(b, y, name="down"))


@pytest.mark.parametrize(
    ("found", "times", "expected"),
    [
        (separable(), (10, 30, 10), 1),
        (separable(), (10, 12, 10), 0),
        (separable(), (10, 30, 40), 0),
        (separable("fp16"), (10, 30, 10), 0),
    ],
)
def test_depthwise_convolutions_slower_than_their_neighbours(found, times, expected) -> None:
    assert expected == len(of(found, "slow-depthwise", timed(found, *times)))
    assert [] == of(found, "slow-depthwise")


def test_weights_that_are_tensors() -> None:
    assert (
        "its weights and bias as a tensor"
        in of(single("", HasDynamicFilter=1, HasDynamicBias=1), "dynamic-weights")[0].evidence
    )
    assert [] == of(single("", HasDynamicFilter=0, HasDynamicBias=0), "dynamic-weights")


def test_sparse_weights_that_run_dense() -> None:
    """From the attributes of 8.x, or from the build log."""
    eligible = BuildLog(sparsity=(Sparsity(("conv",), ()),))
    assert 1 == len(of(single("", AllowSparse=1, HasSparseWeights=0), "dense-though-sparse"))
    assert 1 == len(of(single("", HasSparseWeights=0), "dense-though-sparse", log=eligible))
    assert [] == of(single("", AllowSparse=1, HasSparseWeights=1), "dense-though-sparse")
    assert [] == of(single("", AllowSparse=0, HasSparseWeights=0), "dense-though-sparse")
    chosen = BuildLog(sparsity=(Sparsity(("conv",), ("conv",)),))
    assert [] == of(single("", HasSparseWeights=0), "dense-though-sparse", log=chosen)


def mixed(kind: str, dtype: str, products: str = "fp16") -> Engine:
    a, b, x, y = tensor("a", dtype), tensor("b", dtype), tensor("x", products), tensor("y", products)
    return engine(conv(x, a), step(kind, a, b), conv(b, y, name="next"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (mixed("CudaSoftMax", "fp32"), ["wide-layer:softmax"]),
        (mixed("TiledPooling", "fp32"), ["wide-layer:pooling"]),
        (mixed("TiledPooling", "fp16"), []),
        (mixed("Reformat", "fp32"), []),  # a move, which other rules judge
        (engine(conv(tensor("x", "fp32"), tensor("a", "fp32")), step("Pooling", tensor("a", "fp32"), Y)), []),
    ],
)
def test_wide_layers_in_a_narrow_engine(found, expected) -> None:
    assert expected == [f.id for f in of(found, "wide-layer")]


def test_an_engine_that_is_mostly_wide_was_meant_so() -> None:
    a, b, y = tensor("a", "fp32"), tensor("b", "fp32"), tensor("y", "fp32")
    wide = [conv(a, b, name="two"), conv(b, y, name="three")]
    assert [] == of(engine(conv(tensor("x"), a, name="one"), *wide), "wide-layer")
    narrow = [conv(tensor("x"), A, name="one"), conv(A, Y, name="two"), conv(a, b, name="three")]
    assert 1 == len(of(engine(*narrow), "wide-layer"))


def test_a_wide_layer_that_takes_no_time_is_not_worth_a_word() -> None:
    found = mixed("TiledPooling", "fp32")
    assert [] == of(found, "wide-layer", timed(found, 1000, 1, 1000))
    assert 1 == len(of(found, "wide-layer", timed(found, 1000, 100, 1000)))


def detour(back: str) -> Engine:
    a, b, c, d = tensor("a"), tensor("b", "fp32"), tensor("c", "fp32"), tensor("d", back)
    return engine(
        conv(tensor("x"), a), step("Reformat", a, b), step("Pooling", b, c), step("Reformat", c, d),
        conv(d, tensor("y", back), name="next"),
    )  # fmt: skip


def test_conversions_that_undo_each_other() -> None:
    (found,) = of(detour("fp16"), "back-and-forth")
    assert ("1:Reformat", "3:Reformat") == found.layers
    assert [] == of(detour("int8"), "back-and-forth")


def paired(
    kind: str, told: dict[str, str], *, shortcut: str = "", also: bool = False, dtype: str = "int8"
) -> Engine:
    x, a, q, y = tensor("x", "int8"), tensor("a"), tensor("q", dtype), tensor("y", dtype)
    steps = [
        conv((x, tensor("s", shortcut)) if shortcut else x, a),
        step(kind, a, q, name="QuantizeLinear_1", **told),
        conv(q, y, name="next"),
    ]
    if also:
        steps.append(step("Pooling", a, tensor("z")))
    return engine(*steps, outputs=(y,))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (paired("Scale", {}), ["lone-pair:quantize"]),  # TensorRT 8.2
        (paired("Reformat", {"Origin": "QDQ"}), ["lone-pair:quantize"]),  # from 8.4 on; trex did not see it
        (paired("Reformat", {"Origin": "QDQ"}, also=True), ["lone-pair:branch"]),
        (paired("Reformat", {"Origin": "QDQ"}, shortcut="fp16"), ["lone-pair:shortcut"]),
        (paired("Reformat", {"Origin": "REFORMAT"}), []),
        (paired("Scale", {}, dtype="fp16"), []),  # a batch normalization
        (engine(step("Scale", tensor("x", "fp32"), A, name="q")), []),
        (
            engine(step("Scale", tensor("x", "fp32"), tensor("a", "int8")), conv(tensor("a", "int8"), Y)),
            [],
        ),  # the input
    ],
)
def test_quantization_steps_that_stand_alone(found, expected) -> None:
    assert expected == [f.id for f in of(found, "lone-pair")]


def epilogue(
    kind: str = "PointWiseV2", out: str = "fp16", between: str = "fp16", *more, outputs=()
) -> Engine:
    a, y = tensor("a", between), tensor("y", out)
    return engine(
        conv(tensor("x"), a, name="QuantizeLinear_1 + conv"),
        step(kind, a, y, name="relu"),
        *more,
        outputs=outputs,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (epilogue(), ["lone-epilogue:plain"]),
        (epilogue("Scale"), ["lone-epilogue:plain"]),
        (
            epilogue("PointWiseV2", "fp16", "fp16", step("Pooling", A, tensor("z"))),
            ["lone-epilogue:consumer"],
        ),
        (epilogue(outputs=(A, Y)), ["lone-epilogue:consumer"]),
        (epilogue(between="int8"), ["lone-epilogue:pair"]),
        (epilogue(out="fp32"), ["lone-epilogue:type"]),
        (epilogue("TiledPooling"), []),
        (engine(step("Pooling", tensor("x"), A), step("PointWiseV2", A, Y)), []),
    ],
)
def test_pointwise_layers_behind_a_product(found, expected) -> None:
    assert expected == [f.id for f in of(found, "lone-epilogue")]


def test_a_sum_of_two_products_is_held_up_by_the_one_that_is_free() -> None:
    """It would fuse with either: that one of them has another reader is no reason."""
    a, b, y = tensor("a"), tensor("b"), tensor("y")
    both = [
        conv(tensor("x"), a, name="left"),
        conv(tensor("x"), b, name="right"),
        step("ElementWise", (a, b), y),
    ]
    assert ["lone-epilogue:plain"] == [
        f.id for f in of(engine(*both, step("Pooling", a, tensor("z"))), "lone-epilogue")
    ]


def regional(name: str = "{ForeignNode[a...b]}", kind: str = "Myelin") -> Engine:
    return engine(step(kind, tensor("x"), A, name=name), conv(A, Y))


def test_regions_that_the_inspector_does_not_open() -> None:
    assert 1 == len(of(regional(), "opaque-region"))
    assert [] == of(regional(), "opaque-region", timed(regional(), 1, 100))
    assert [] == of(regional("a", "CaskConvolution"), "opaque-region")


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
    assert [f"reformat:{work}"] == [f.id for f in of(found, "reformat")]
    assert [] == of(
        found, "reformat", timed(found, *(0.001 if y.kind == "Reformat" else 1000 for y in found.layers))
    )


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


def test_slices_that_change_the_type() -> None:
    """The second check of trex on them compared "INT8" with the first letters "Int8" and could never speak."""
    assert 1 == len(of(engine(step("Slice", A, tensor("y", "int8"))), "converting-move"))
    assert [] == of(engine(step("Slice", A, Y)), "converting-move")


def chain(count: int) -> Engine:
    return engine(
        *(step("Pooling", tensor(f"t{i}"), tensor(f"t{i + 1}"), name=f"p{i}") for i in range(count))
    )


def test_many_layers_as_short_as_a_launch() -> None:
    assert 1 == len(of(chain(12), "tiny-layers", timed(chain(12), 4)))
    assert [] == of(chain(12), "tiny-layers", timed(chain(12), 6))
    assert [] == of(chain(5), "tiny-layers", timed(chain(5), 4))
    assert [] == of(chain(12), "tiny-layers", timed(chain(12), 1000, 4))
    assert [] == of(chain(12), "tiny-layers")


@pytest.mark.parametrize(
    ("total", "expected"), [(30, "idle:gaps"), (19, None), (21, None), (10, "idle:overstated"), (None, None)]
)
def test_a_latency_far_from_the_sum_of_the_layers(total, expected) -> None:
    found = of(chain(2), "idle", timed(chain(2), 10, total=total))
    assert ([expected] if expected else []) == [f.id for f in found]
    assert all(f.microseconds is None for f in found)


def test_names_alone_give_one_finding() -> None:
    """Nothing else can be said of such a file, so nothing else is."""
    bare = Engine(
        "trtexec", "", Target("unknown"), (Layer("0", "conv", "", 0), Layer("1", "Reformat", "", 1))
    )
    (found,) = findings(bare)
    assert "names-only" == found.rule
    assert "--profilingVerbosity=detailed" in found.fix
    assert [] == of(chain(2), "names-only")


def test_an_engine_of_another_compiler_is_not_judged_by_tensorrts_rules() -> None:
    found = epilogue()
    assert findings(found)
    assert () == findings(dataclasses.replace(found, backend="onnxruntime"))
    assert () == findings(dataclasses.replace(found, layers=()))


def test_findings_name_the_nodes_of_their_layers() -> None:
    mapping = Mapping((Pair("Conv_0", "0:conv", "declared"), Pair("Relu_1", "0:conv", "declared")), ())
    assert ("Conv_0", "Relu_1") == of(single(SIMT), "off-tensor-cores", mapping=mapping)[0].nodes


def test_the_longest_comes_first_and_costs_are_those_of_the_layers() -> None:
    found = engine(
        conv(tensor("x", "int8"), tensor("a", "int8"), tactic=SIMT, name="slow"),
        step("Slice", tensor("a", "int8"), tensor("b", "int8")),
        conv(tensor("b", "int8", 24, CHW32), tensor("y", "int8", 64, CHW32), name="narrow"),
    )
    judged = findings(found, timing=timed(found, 70, 20, 10))
    assert [("off-tensor-cores", 70.0), ("move", 20.0), ("unaligned", 10.0)] == [
        (f.rule, pytest.approx(f.microseconds)) for f in judged
    ]
    assert "70 µs, 70 % of the sum of all layers (measured, trtexec)" in judged[0].cost
    assert {"Cost unknown: no times."} == {f.cost for f in findings(found)}
    assert ["off-tensor-cores", "unaligned"] == [f.rule for f in findings(found)]


# What people can read off the recorded engines by hand.
EXPECTED = {
    "trex-resnet18-pytorch-a100-fp16": {"reformat:input"},
    "trex-resnet18-pytorch-a100-fp32": {"off-tensor-cores:fp32/image", "reformat:layout"},
    "trex-resnet18-pytorch-a100-int8-qat": {
        "float-output:int8-fp16", "float-output:int8-fp32", "off-tensor-cores:int8/image", "lone-pair:branch",
        "lone-pair:shortcut", "lone-pair:quantize", "wide-layer:pooling", "reformat:input", "reformat:type",
    },
    "trex-resnet18-pytorch-a100-int8-qat-residual": {
        "reformat:input", "float-output:int8-fp32", "back-and-forth", "wide-layer:pooling",
    },
    "trex-resnet50-tf-rtx3090-int8-qat": {
        "off-tensor-cores:int8/image", "move:slice", "move:shuffle", "lone-pair:quantize",
    },
    "fuzzy-alexnet-rtx3060laptop-fp16": {"reformat:input"},
    "fuzzy-mobilenet_v2-rtx3060laptop-fp16": {"reformat:input", "idle:overstated"},
    "fuzzy-jetson-orin-torchtrt-resnet18": {"reformat:input"},
    "cookbook-mnist-h100-trt10.16": {"reformat:output"},
}  # fmt: skip


@recorded.present
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_engines_show_what_is_in_them_and_no_more(name) -> None:
    found, times = recorded.read(name)
    assert EXPECTED[name] == {f.id for f in findings(found, timing=times)}


@recorded.each
def test_every_finding_has_its_parts_and_the_time_of_its_layers(folder) -> None:
    """Title, evidence, cost and remedy, a sentence each, and numbers that can be added up again."""
    found, times = recorded.read(folder)
    known = {t.layer: t.median for t in times.layers} if times else {}
    judged = findings(found, timing=times)
    assert len({f.id for f in judged}) == len(judged)
    costs = [-1.0 if f.microseconds is None else f.microseconds for f in judged]
    assert sorted(costs, reverse=True) == costs
    for f in judged:
        for part in (f.title, f.evidence, f.cost, f.fix):
            assert re.fullmatch(r"[A-Z0-9].*\.", part, re.DOTALL), part
            assert "  " not in part
        expected = [known[i] for i in f.layers if i in known]
        assert (pytest.approx(1e3 * sum(expected)) if expected else None) == f.microseconds
        assert set(f.layers) <= {y.id for y in found.layers}
        assert ("measured" in f.cost) == (f.microseconds is not None) or f.rule == "idle"


@recorded.present
def test_the_order_of_a_profile_changes_nothing(tmp_path) -> None:
    """A fault of trex, which joined rows to layers by position."""
    paths = recorded.files(recorded.FOLDER / "trex-resnet18-pytorch-a100-int8-qat")
    rows = json.loads(paths["profile"].read_text())
    (tmp_path / "profile.json").write_text(json.dumps(rows[::-1]))
    mixed_up = Trtexec().read(paths | {"profile": tmp_path / "profile.json"})
    assert mixed_up.profile is not None
    engine_, times = recorded.read("trex-resnet18-pytorch-a100-int8-qat")
    again = findings(mixed_up.engine, timing=timing(mixed_up.profile, mixed_up.engine))
    assert {(f.id, f.layers) for f in findings(engine_, timing=times)} == {(f.id, f.layers) for f in again}
    assert [pytest.approx(f.microseconds) for f in findings(engine_, timing=times)] == [
        f.microseconds for f in again
    ]


# Few names: buffers are used again, and layers read what they write.
_tensors = st.builds(
    Tensor,
    st.sampled_from("abcd"),
    st.sampled_from(("fp32", "fp16", "int8", "int32", "")),
    st.sampled_from((None, (), (-1,), (1, 0, 2), (1, -1, 8, 8), (2, 24, 8, 8), (1, 4096))),
    st.sampled_from((LINEAR, CHW32, HWC8, "", "Channel major", "chw-7")),
)
_KINDS = (
    "CaskConvolution",
    "gemm",
    "Reformat",
    "NoOp",
    "Scale",
    "PointWiseV2",
    "CudaSoftMax",
    "Shuffle",
    "kgen",
    "",
)
_NAMES = ("conv", "__myl_Resh", "Reformatting CopyNode for Input Tensor 0 to conv")
_KEYS = (
    "Groups",
    "OutMaps",
    "AllowSparse",
    "HasSparseWeights",
    "HasDynamicFilter",
    "Origin",
    "ParameterType",
)
_strange = st.sampled_from((None, True, -2, 0, 7, 64, float("nan"), float("inf"), "", "QDQ", [], {}))
_layers = st.builds(
    Layer,
    st.just(""),
    st.sampled_from(_NAMES),
    st.sampled_from(_KINDS),
    st.just(0),
    st.lists(_tensors, max_size=2).map(tuple),
    st.lists(_tensors, max_size=2).map(tuple),
    tactic=st.sampled_from(("", SIMT, FFMA, TENSOR_CORES)),
    attributes=st.dictionaries(st.sampled_from(_KEYS), _strange, max_size=2),
)


@given(
    st.lists(_layers, max_size=8),
    st.lists(_tensors, max_size=1),
    st.lists(_tensors, max_size=1),
    st.booleans(),
)
def test_no_engine_is_too_strange_to_judge(drawn, inputs, outputs, known) -> None:
    """Files of unknown releases: whatever they hold, there is an answer about layers that exist."""
    every = tuple(dataclasses.replace(y, id=f"{i}", index=i) for i, y in enumerate(drawn))
    found = Engine("trtexec", "", Target("unknown"), every, tuple(inputs), tuple(outputs))
    ids = {y.id for y in every}
    for f in findings(found, timing=timed(found, 1.0) if known and every else None):
        assert set(f.layers) <= ids
        assert f.title.endswith(".")
    assert {r.layer for r in reformats(found)} <= ids
