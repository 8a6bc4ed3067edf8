"""Properties of the compiler of an engine."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rtlab.core.precision import Precision

#: The family of compilers whose engines have TensorRT's fusions, names and kernels.
TENSORRT = "tensorrt"
#: Contents of engines besides layers: totals of memory, the stream of a layer, its tactic, and its 2:4 sparsity.
Report = Literal["memory", "streams", "tactics", "sparsity"]


@dataclasses.dataclass(frozen=True)
class AttentionKernel:
    """One kernel for both products of an attention of several heads and the softmax between, in a quantized type.

    Attributes:
        precision: The type of what both products read, by Q/DQ pairs.
        head_sizes: The numbers of channels of a head that it takes.
        lengths: The smallest and the largest number of queries and of keys, which are static.
        types: The types, such as ``fp16``, that may be around.
        output_pair: Whether it needs a Q/DQ pair behind the second product, too.
        avoided: Why it is left out all the same, as a note says it; empty where it is used.
    """

    precision: Precision
    head_sizes: frozenset[int]
    lengths: tuple[int, int]
    types: frozenset[str]
    output_pair: bool = False
    avoided: str = ""


@dataclasses.dataclass(frozen=True)
class Maker:
    """Properties of one compiler, which travel with each of its engines.

    Attributes:
        title: The compiler in words, such as ``TensorRT-RTX``; by default the name of the backend.
        family: Whose rules its layers follow: ``TENSORRT``, or empty where unknown.
        step: The noun for one step of its engines; by default a layer or a region, as the engine says.
        flags: Whether its options are flags of ``trtexec``, which the release in ``Engine.version`` decides; otherwise
            attributes of its builder.
        typed: Whether the model alone decides the types, in each of its releases.
        tunes: When it times tactics on the GPU: in the ``build``, at each ``load`` of an engine, or never.
        memory: Whether activations get their places before a run (``planned``) or in it (``running``); empty where
            unknown.
        reserves: Whether its total of memory has room for every library kernel that may run at a time.
        predicts: Whether its engines are predicted by rules, without a compiler.
        reports: Contents of its engines besides layers.
        float_ops: Weighted operators that have kernels of floating point only, whatever Q/DQ pairs stand round them.
        half_attention: Whether it has one kernel for a whole attention in FP16 and BF16, and none in FP32.
        half_attention_is_documented: Whether that is read in its documentation, and in no listing yet.
        attention_kernels: Such kernels for quantized types.
    """

    title: str = ""
    family: str = ""
    step: str = ""
    flags: bool = False
    typed: bool = False
    tunes: Literal["", "build", "load"] = ""
    memory: Literal["", "planned", "running"] = ""
    reserves: bool = False
    predicts: bool = False
    reports: frozenset[Report] = frozenset()
    float_ops: frozenset[str] = frozenset()
    half_attention: bool = False
    half_attention_is_documented: bool = False
    attention_kernels: tuple[AttentionKernel, ...] = ()

    @property
    def tensorrt(self) -> bool:
        """Whether its layers are TensorRT's."""
        return self.family == TENSORRT
