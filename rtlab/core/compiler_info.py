"""Properties of the compiler of an engine."""

from __future__ import annotations

import dataclasses
from typing import Literal

#: The family of compilers whose engines have TensorRT's fusions, names and kernels.
TENSORRT = "tensorrt"
#: Contents of engines besides layers: totals of memory, the stream of a layer, its tactic, and its 2:4 sparsity.
Report = Literal["memory", "streams", "tactics", "sparsity"]


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

    @property
    def tensorrt(self) -> bool:
        """Whether its layers are TensorRT's."""
        return self.family == TENSORRT
