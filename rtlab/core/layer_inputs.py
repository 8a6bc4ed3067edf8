"""Input statistics of products (mean, second moment) for bias correction and GPTQ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class LayerInput:
    """Input statistics of one product over rows, one for each position of its output.

    ``mean`` is the mean row, and ``rounded_mean`` that of the rows as the variant rounds them: shape ``(groups, K)``,
    with ``K`` the weights of an output channel. ``second_moment`` is the mean of ``x xᵀ`` over ``rows`` rounded rows,
    shape ``(groups, K, K)``, None where not computed.
    """

    mean: NDArray[np.float64]
    rounded_mean: NDArray[np.float64]
    second_moment: NDArray[Any] | None = None
    rows: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class LayerInputs:
    """Input statistics by node on so many samples; ``skipped`` are the other nodes by reason."""

    nodes: Mapping[str, LayerInput]
    samples: int = 0
    skipped: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
