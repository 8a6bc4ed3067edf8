"""What products read, summed over samples and positions: all of the data that mending them needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class LayerInput:
    """What one product read, a row for each place of its output.

    ``mean`` is the mean row, and ``rounded_mean`` that of the rows as the variant rounds them: shape ``(groups, K)``,
    with ``K`` the weights of an output channel. ``second_moment`` is the mean of ``x xᵀ`` over the rounded rows that
    were taken, ``rows`` of them: shape ``(groups, K, K)``; None where nobody asked.
    """

    mean: NDArray[np.float64]
    rounded_mean: NDArray[np.float64]
    second_moment: NDArray[Any] | None = None
    rows: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class LayerInputs:
    """What products read on some samples, by node; ``skipped`` are those that nobody looked at, by reason."""

    nodes: Mapping[str, LayerInput]
    samples: int = 0
    skipped: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
