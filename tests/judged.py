"""Small engines for the rules that judge engines, times for them, and the findings of one rule."""

from __future__ import annotations

from rtlab.analyses.findings.rules import rank_findings
from rtlab.analyses.timing.times import LayerTime, Timing
from rtlab.backends.compiler_info import TENSORRT
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
        "trtexec", "8.6", Target(target), layers, inputs or tuple(loose.values()), outputs or layers[-1].outputs,
        maker=TENSORRT,
    )  # fmt: skip


def timed(found: Engine, *microseconds: float, total: float | None = None) -> Timing:
    every = [*microseconds, *[microseconds[-1]] * (len(found.layers) - len(microseconds))]
    summed = sum(every) / 1e3
    rows = tuple(
        LayerTime(y.id, t / 1e3, None, t / 1e3 / summed) for y, t in zip(found.layers, every, strict=True)
    )
    return Timing("trtexec", "", None, 1, None if total is None else total / 1e3, summed, rows)


def of(found: Engine, rule: str, times: Timing | None = None, **known) -> list[Finding]:
    return [f for f in rank_findings(found, timing=times, **known) if f.rule == rule]


def conv(reads: Tensor | tuple[Tensor, ...], writes: Tensor, *, name: str = "conv", tactic: str = "", **told):
    return step("CaskConvolution", reads, writes, name=name, tactic=tactic, **({"Groups": 1} | told))


def single(
    tactic: str, dtype: str = "fp16", channels: int = 64, size: int = 8, target: str = "sm80", **told
) -> Engine:
    x, y = tensor("x", dtype, channels, size=size), tensor("y", dtype, size=size)
    return engine(conv(x, y, tactic=tactic, **told), target=target)


A, Y = tensor("a"), tensor("y")


def chain(count: int) -> Engine:
    return engine(
        *(step("Pooling", tensor(f"t{i}"), tensor(f"t{i + 1}"), name=f"p{i}") for i in range(count))
    )
