"""What a TensorRT builder is told beyond the model, by TensorRT's own names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: One optimization profile: least, usual and greatest shape of each dynamic input.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """Settings of a builder, resolved by ``of``. The binding of the backend decides which of them exist.

    ``config`` sets attributes of ``IBuilderConfig``, such as ``builder_optimization_level``; ``flags`` and
    ``cleared`` name members of ``BuilderFlag``; ``pools`` gives limits in bytes by ``MemoryPoolType``.
    ``timing_cache`` is a file that is read before a build and written after it. ``implicit`` asks for TensorRT 10's
    implicit INT8, whose scales come from its own calibrator instead of from Q/DQ pairs in the graph.
    """

    config: tuple[tuple[str, Any], ...] = ()
    flags: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    pools: tuple[tuple[str, int], ...] = ()
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...] = ()
    timing_cache: Path | None = None
    implicit: bool = False

    @classmethod
    def of(
        cls,
        *,
        flags: Sequence[str] = (),
        cleared: Sequence[str] = (),
        pools: Mapping[str, int] | None = None,
        profiles: Sequence[Mapping[str, Sequence[Sequence[int]]]] = (),
        timing_cache: str | Path | None = None,
        implicit: bool = False,
        **config: Any,
    ) -> BuildOptions:
        """Options as one writes them: ``of(builder_optimization_level=5, profiles=[{"x": (least, usual, most)}])``.

        Raises:
            VariantError: a profile is not three shapes of one rank in rising order.
        """
        raise NotImplementedError
