"""What an engine says of the compiler that made it."""

from __future__ import annotations

import dataclasses
from typing import Literal

#: The family of compilers whose engines have TensorRT's layers: its fusions, its names, its kernels.
TENSORRT = "tensorrt"
#: What the engines of a compiler may tell beside their layers: totals of memory, the stream of a layer, its tactic, and
#: whether that uses 2:4 sparse weights.
Report = Literal["memory", "streams", "tactics", "sparsity"]


@dataclasses.dataclass(frozen=True)
class Maker:
    """What holds of every engine of one compiler; it travels with each, so that nobody has to know compilers by name.

    Attributes:
        title: The compiler in words, such as ``TensorRT-RTX``; empty where the name of the backend does.
        family: Whose rules its layers follow: ``TENSORRT``, or empty where nothing is known of them.
        step: What one step of its engines is called; empty where it is a layer or a region, as the engine says.
        flags: Whether it is told what to do by the flags of ``trtexec``, which the release in ``Engine.version``
            decides; otherwise by the attributes of its builder.
        typed: Whether the model alone decides the types, in each of its releases.
        tunes: When it times tactics on the GPU: in the ``build``, at each ``load`` of an engine, or never.
        memory: Whether activations get their places before a run (``planned``) or in it (``running``); empty where
            that is not known.
        reserves: Whether the total that it reports holds room for every library kernel that may run at a time.
        predicts: Whether its engines are what rules predict: no compiler made them, and none of it is reported.
        reports: What its engines may tell; what is not among it is never told.
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

    @property
    def tensorrt(self) -> bool:
        """Whether its layers are TensorRT's, so that what is known of its fusions and kernels holds."""
        return self.family == TENSORRT
