"""Terms of the field as NVIDIA and ONNX use them, which the page explains where they occur."""

from __future__ import annotations

from collections.abc import Mapping

from rtlab.core.calibrators import METHODS
from rtlab.core.variant import FIXED

_NAMES = [c.method for c in FIXED]
#: The meaning of each term in a sentence or two; single calibrators are in ``METHODS``.
_MEANINGS: Mapping[str, str] = {
    "amax": "The largest magnitude that a quantized value holds before it is clipped. A calibrator chooses it; the "
    "scale of int8 is amax / 127.",
    "arithmetic intensity": "Operations for each byte that a layer moves. Below the GPU's own ratio memory is the "
    "limit, above it arithmetic is.",
    "baseline": "The variant that the others are compared with; a pin marks it.",
    "BF16": "Sixteen bits with the range of fp32 and eight bits of precision.",
    "calibration": "Running samples through the model to see which numbers each value takes. The scales of int8 "
    "follow.",
    "calibrator": "The rule that makes an amax of the numbers that were seen: auto, the default, which chooses for "
    f"each value among the others, {', '.join(_NAMES[:-1])} and {_NAMES[-1]}.",
    "clipping": "What lies beyond amax becomes amax: a small error of many is traded for a large one of few.",
    "concat elimination": "What a Concat joins is written straight to its place in the result, so that no layer "
    "copies it.",
    "constant folding": "Nodes that depend on weights alone are computed once, while the engine is built.",
    "correlation": "The compiler's word for a convolution, as the kind of a layer.",
    "dynamic shape": "A dimension whose size is known only when the engine runs.",
    "engine": "What the compiler makes of a model for one target: layers in a fixed order, each with its kernel, "
    "and the memory that they share.",
    "estimated": "○ Computed by rtlab from what is known, such as bytes and the bandwidth of the GPU; not measured.",
    "FP16": "Sixteen bits: half the bytes of fp32, three decimal digits, numbers up to 65504.",
    "FP32": "Thirty-two bits: what most models are trained and given in.",
    "FP4": "Four bits (E2M1) with a scale in E4M3 for each block of 16 numbers and one for the tensor (NVFP4). The "
    "scales of activations are computed at each run, by TRT_FP4DynamicQuantize; from Blackwell (sm100) on.",
    "FP8": "Eight bits with an exponent (E4M3): a wider range than int8 and fewer steps in it; from Ada (sm89) on.",
    "fusion": "Several nodes run as one layer, so that what passes between them need not go through memory. A chain "
    "is fused vertically, siblings that read the same value horizontally.",
    "INT4": "Four-bit integers, for weights alone: they are dequantized before they are used.",
    "INT8": "Eight-bit integers with a scale: a quarter of the bytes of fp32, and faster arithmetic on tensor cores.",
    "kernel": "A function that runs on the GPU; a layer usually is one. The kernel of a notebook is something else: "
    "its Python process.",
    "kgen": "A kernel that TensorRT generates for one place in the model, as the kind of a layer: mostly what works "
    "on each number alone, or reorders numbers.",
    "launch": "To start a kernel, which takes some microseconds however little it does. A layer bound by the launch "
    "is too small to gain from a faster kernel; to fuse it helps.",
    "layer": "One entry in an engine's order of execution, as its inspector reports. It is usually one kernel on "
    "the GPU, and often does the work of several nodes.",
    "mapping": "Which nodes became which layers, and on what evidence: declared by the compiler, or inferred from "
    "inputs and outputs.",
    "MXFP8": "E4M3 numbers in blocks of 32, each with a power of two as its scale (E8M0).",
    "McNemar": "A test of two variants on the same samples, by those that only one of them gets right: p is the "
    "chance of so uneven a split where both are equally good.",
    "measured": "● Timed or counted here, or on the machine whose profile was read.",
    "Myelin": "The compiler inside TensorRT that takes whole regions of a graph, such as attention, and makes "
    "kernels of its own for them. Such a region is called a foreign node.",
    "name scope": "The part of a node's name before the last slash, which exporters take from the modules of a "
    "model.",
    "node": "One operator of an ONNX graph, such as a Conv, with its attributes, inputs and outputs.",
    "optimization profile": "The smallest, usual and largest shapes for which an engine with dynamic dimensions is "
    "built.",
    "overhead": "Layers that only move, retype or quantize what others compute.",
    "per-channel": "One scale for each output channel of a weight.",
    "per-tensor": "One scale for all of a tensor.",
    "precision": "The number format in which a layer computes, from fp32 to fp4.",
    "predicted": "◌ By published rules: no compiler said so.",
    "Q/DQ": "QuantizeLinear and DequantizeLinear, a pair of nodes that says: hold this value in few bits, with this "
    "scale.",
    "QAT": "Quantization-aware training: a model learns with Q/DQ pairs in place, and comes with their scales.",
    "quantization": "Numbers are divided by a scale and rounded to 8 or 4 bits.",
    "reformat": "A layer that copies a tensor into another layout or type between two layers, and computes nothing.",
    "reported": "◐ Reported by the compiler or its files.",
    "roofline": "The speed that a layer cannot exceed: the GPU's bandwidth times its arithmetic intensity, or the "
    "GPU's peak, whichever is less.",
    "scale": "What a quantized integer is multiplied with to get the number that it stands for.",
    "score": "What the task counts on labelled samples, such as the share that the model gets right.",
    "sparsity": "Of each four weights in a row two are zero (2:4), which the tensor cores skip.",
    "SQNR": "Signal to quantization noise ratio in decibel: how much stronger a value is than its error. 6 dB more "
    "halve the error.",
    "stream": "A queue of work on the GPU. Layers of different streams may run at the same time.",
    "tactic": "One way to compute a layer: a kernel with its tiles and layouts. The builder times those that there "
    "are and keeps the fastest.",
    "target": "The processor that an engine is built for: cpu, or a GPU's compute capability, such as sm86 for 8.6.",
    "tensor core": "The part of a GPU that multiplies small matrices of 16, 8 or 4 bits at many times the usual "
    "rate.",
    "TF32": "fp32 numbers that the tensor cores multiply with ten bits of mantissa; on by default from Ampere on.",
    "time, scaled": "Layers timed one by one may add up to more than the whole inference, for to time each costs "
    "something: they are scaled down to it.",
    "timing cache": "The times of tactics that a builder keeps, so that the next build need not take them again.",
    "treatment": "A change of the model before it is quantized, so that rounding costs less, such as SmoothQuant. "
    "Without one a variant is unmodified.",
    "value": "A tensor that nodes of an ONNX graph write and read.",
    "variant": "One choice of precision, calibrator, target and compiler, with the engine built from it.",
    "view": "A node that only reads the same memory in another shape, such as Reshape: it needs no layer.",
    "withheld": "No estimate of the whole is given where less than 95 % of the layers, or of their bytes, can be "
    "counted: what is left out may be what costs most.",
    "workspace": "Memory that an engine needs while it runs, beside weights, inputs and outputs; values whose lives "
    "do not overlap share it.",
}
#: Other spellings of terms in texts of the page; a plural with s needs none.
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "amax": ("threshold",),
    "arithmetic intensity": ("intensity",),
    "BF16": ("bfloat16",),
    "calibration": ("calibration data",),
    "clipping": ("clipped",),
    "constant folding": ("folded to a constant",),
    "dynamic shape": ("dynamic dimension",),
    "FP16": ("half precision",),
    "FP4": ("NVFP4", "TRT_FP4DynamicQuantize", "TRT_FP4QDQ"),
    "FP8": ("TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear"),
    "fusion": ("fused", "fuse", "not fused"),
    "INT4": ("TRT_INT4QuantizeLinear", "TRT_INT4DequantizeLinear"),
    "launch": ("bound by the launch",),
    "McNemar": ("McNemar's test", "McNemar's exact test"),
    "MXFP8": ("TRT_MXFP8DynamicQuantize", "TRT_MXFP8QuantizeLinear", "TRT_MXFP8DequantizeLinear"),
    "Myelin": ("foreign node", "ForeignNode"),
    "per-channel": ("one per channel",),
    "per-tensor": ("one per tensor", "per tensor"),
    "Q/DQ": ("Q/DQ pair", "QuantizeLinear", "DequantizeLinear"),
    "QAT": ("quantization-aware training",),
    "quantization": ("quantized", "quantize"),
    "reformat": ("reformatting",),
    "sparsity": ("2:4",),
    "SQNR": ("signal to quantization noise",),
    "treatment": ("untreated",),
    "workspace": ("activation memory",),
}


def glossary_terms() -> list[list[str]]:
    """The terms for the page in alphabetical order: name, meaning, and other spellings."""
    terms = [[name, meaning, *_SPELLINGS.get(name, ())] for name, meaning in _MEANINGS.items()]
    terms += [[m.name, m.meaning, *m.spellings] for m in METHODS.values() if m.meaning]
    return sorted(terms, key=lambda term: term[0].lower())
