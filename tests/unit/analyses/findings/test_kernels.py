"""Rules on kernels: each on an engine that has the fault and on its neighbour that has not."""

from __future__ import annotations

import dataclasses

import pytest

from judged import CHW32, FFMA, HWC8, SIMT, TENSOR_CORES, A, Y, conv, engine, of, single, step, tensor, timed
from rtlab.analyses.findings.rules import cores
from rtlab.core.buildlog import BuildLog, Sparsity
from rtlab.core.engine import Engine, Tensor


@pytest.mark.parametrize(
    ("tactic", "expected"),
    [
        (TENSOR_CORES, "tensor"), ("volta_h884gemm_128x64_ldg8_nn_v1", "tensor"),
        ("ampere_h16816cudnn_128x128_ldg8_relu_exp_stages_64x3_large_nhwc_tn_v1", "tensor"),
        ("turing_fp16_i8816cudnn_int8_128x128_ldg16_relu_small_nt_v1", "tensor"),
        ("trt_turing_cutlass_image_network_first_layer_hmma_fprop_f16f16f32_nhwc_nhwc_k64r7s7c4", "tensor"),
        ("sm80_xmma_fprop_image_first_layer_f16f16_f32_f16_nhwckrsc_nhwc_hmma_k64c4r7s7_tensor1688", "tensor"),
        ("sm50_xmma_convolution_depthwiseHMMA_FP16NHWCx8_TR3_TS3_STRIDEH1_STRIDEW1", "tensor"),
        ("ampere_s16816gemm_fp16_128x128_ldg8_stages_64x3_tn", "tensor"),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_wgmma", "tensor"),
        ("cutlass_80_tensorop_s16816gemm_f16_256x128_32x3_nn_align8", "tensor"),
        (SIMT, "cuda"), (FFMA, "cuda"), ("volta_sgemm_128x64_nn", "cuda"),
        ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "cuda"),
        ("volta_int8x4_icudnn_int8x4_128x32_relu_xregs_medium_c32_nn_v1", "cuda"),
        ("0x0000000000270101", ""), ("sm80_xmma_something_new", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_name_of_a_kernel_tells_its_cores_or_nothing(tactic, expected) -> None:
    """An "xmma" in it is no tensor core, which trex took it for; a number is no name."""
    assert expected == cores(tactic)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (single(SIMT, "int8"), ["off-tensor-cores:int8"]),
        (single(SIMT, "fp16", 3), ["off-tensor-cores:fp16/image"]),
        (single(FFMA, "fp32"), ["off-tensor-cores:fp32"]),
        (single(TENSOR_CORES), []), (single("0x0000000000270101"), []), (single(FFMA, "fp32", target="unknown"), []),
        (single(SIMT, size=1), []),  # one row: a matrix by a vector
        (single(SIMT, Groups=64), []), (single(FFMA, "fp32", target="sm75"), []),  # depthwise; no TF32 there
    ],
)  # fmt: skip
def test_products_off_tensor_cores(found, expected) -> None:
    assert expected == [f.id for f in of(found, "off-tensor-cores")]


def int8_conv(out: str, *behind) -> Engine:
    return engine(conv(tensor("x", "int8", format_=CHW32), tensor("a", out)), *behind)


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
        # A lone quantization has a rule of its own.
        (int8_conv("fp16", step("Scale", A, tensor("y", "int8"))), []),
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


def test_sparse_weights_that_run_dense() -> None:
    for allowed, sparse, count in ((1, 0, 1), (1, 1, 0), (0, 0, 0)):
        found = single("", AllowSparse=allowed, HasSparseWeights=sparse)
        assert count == len(of(found, "dense-though-sparse"))
    for chosen, count in (((), 1), (("conv",), 0)):
        log = BuildLog(sparsity=(Sparsity(("conv",), chosen),))
        assert count == len(of(single("", HasSparseWeights=0), "dense-though-sparse", log=log))


@pytest.mark.parametrize(
    ("device", "expected"),
    [("NVIDIA A100 80GB PCIe", 1), ("NVIDIA A10", 1), ("NVIDIA GeForce RTX 3090", 0), ("", 1)],
)
def test_tf32_is_missed_only_where_it_is_faster_than_fp32(device, expected) -> None:
    """GA102's whitepaper: 35.6 TFLOPS of TF32 and 35.6 of FP32 on GeForce RTX 3090."""
    found = dataclasses.replace(single(FFMA, "fp32"), device=device)
    assert expected == len(of(found, "off-tensor-cores"))


@pytest.mark.parametrize(
    ("reads", "writes", "expected"),
    [
        (tensor("x", "int8", 24), tensor("y", "int8"), "multiples of 16; quantize what they write"),
        (tensor("x"), tensor("y"), "multiples of 8; or allow"),
        (tensor("x", "fp32"), tensor("y", "fp32"), "TF32 is not turned off"),
        (tensor("x", "fp16", 3), tensor("y"), "space to depth"),
    ],
)
def test_the_way_onto_tensor_cores_depends_on_what_is_in_it(reads, writes, expected) -> None:
    (found,) = of(engine(conv(reads, writes, tactic=SIMT)), "off-tensor-cores")
    assert expected in found.fix


SIGNAL, CLASSES = Tensor("x", "fp16", (1, 4096, 100)), Tensor("y", "fp16", (1, 1000, 100))


def product(rows: int, size: int = 1, **told) -> Engine:
    """A convolution that stands for a matrix product, behind another layer."""
    x = Tensor("x", "fp16", (rows, 4096, size, size))
    y = Tensor("y", "fp16", (rows, 1000, size, size))
    return engine(step("Pooling", tensor("w"), x), conv(x, y, **told))


@pytest.mark.parametrize(
    ("found", "times", "expected"),
    [
        (product(1), (80, 20), 1), (product(7), (80, 20), 1), (product(1, Groups=4096), (80, 20), 0),
        (product(8), (80, 20), 0),  # enough for a tile of tensor cores
        (product(1, 2), (80, 20), 0),  # a convolution, whose positions are rows
        (product(1), (95, 5), 0),  # not what the engine waits for
        # The positions of a signal are rows too.
        (engine(step("Pooling", tensor("w"), SIGNAL), conv(SIGNAL, CLASSES)), (80, 20), 0),
    ],
)  # fmt: skip
def test_products_that_wait_for_their_weights(found, times, expected) -> None:
    judged = of(found, "few-rows", timed(found, *times))
    assert expected == len(judged)
    # Weights of 4096 by 1000 numbers of two bytes.
    assert all("with 8.19 MB of weights in 20 µs" in f.evidence for f in judged)
    assert [] == of(found, "few-rows")


def test_a_layer_that_misses_units_on_both_sides_is_told_once() -> None:
    found = engine(
        conv(tensor("x", "int8", 64, CHW32), tensor("a", "fp16", 20, "Thirty-two wide channel"), name="one"),
        conv(tensor("z", "int8", 24, CHW32), tensor("y", "int8", 64, CHW32), name="two"),
    )
    assert [("unaligned:int8", 2)] == [(f.id, len(f.layers)) for f in of(found, "unaligned")]


def test_layers_that_rtx_compiles_later_are_products_by_their_names() -> None:
    x, y = tensor("x", "fp16", 20), tensor("y")
    assert 1 == len(of(engine(step("runtime_fusion", x, y, name="__myl_CorrMulAdd_myl0_1")), "unaligned"))
    assert [] == of(engine(step("runtime_fusion", x, y, name="__myl_MulAdd_myl0_1")), "unaligned")


def test_a_product_that_is_no_small_one_hides_none_behind_it() -> None:
    wide, flat = Tensor("a", "fp16", (8, 4096, 1, 1)), Tensor("b", "fp16", (8, 1000, 1, 1))
    x, y = Tensor("x", "fp16", (1, 4096, 1, 1)), Tensor("y", "fp16", (1, 1000, 1, 1))
    found = engine(conv(wide, flat, name="many"), conv(x, y, name="one"), conv(wide, flat, name="again"))
    times = timed(found, 30, 40, 30)
    for known in (times, dataclasses.replace(times, layers=times.layers[1:])):
        (only,) = of(found, "few-rows", known)
        assert ("1:one",) == only.layers
    grouped = engine(conv(x, y, name="groups", Groups=2), conv(x, y, name="one"))
    (only,) = of(grouped, "few-rows", timed(grouped, 50, 50))
    assert ("1:one",) == only.layers
