"""A place where a variant rounds, with what is known of the value that it rounds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from rtlab.core.finding import Finding
from rtlab.core.variant import Precision

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtlab.analyses.diagnosis.activation_stats import ActivationStats
    from rtlab.core.node import Node
    from rtlab.core.quantizer import Quantizer


@dataclasses.dataclass(frozen=True, eq=False)
class QuantizerSite:
    """One quantizer of a variant.

    ``node`` is the source node that the quantizer belongs to. ``amax`` is the threshold that the variant has for an
    activation in INT8 or FP8, None where it has none. ``calibration_stats`` is what the samples of the calibration
    showed and ``evaluation_stats`` what those showed that the accuracy was measured on, each None where nobody looked;
    they may be the same one. ``calibration_samples`` is the number of samples that the threshold rests on, 0 where that
    is not known. ``weight`` is the constant where one is rounded, its channels along the first axis, and
    ``granularity`` says whether all of them share one scale. ``other_operand`` is the other operand of a sum, None
    elsewhere. ``region`` are the nodes around it whose values do not fit FP16.
    """

    node: Node
    quantizer: Quantizer
    precision: Precision
    amax: float | None = None
    calibration_stats: ActivationStats | None = None
    evaluation_stats: ActivationStats | None = None
    calibration_samples: int = 0
    weight: NDArray[np.float32] | None = None
    granularity: Literal["channel", "tensor", "block"] = "channel"
    other_operand: ActivationStats | None = None
    region: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """The source's value that is rounded."""
        return self.quantizer.value

    @property
    def stats(self) -> ActivationStats | None:
        """What the value looks like where accuracy was lost."""
        return self.evaluation_stats or self.calibration_stats

    @property
    def steps(self) -> int:
        """Steps between zero and the threshold of INT8."""
        return 127

    def make_finding(
        self,
        rule: str,
        title: str,
        evidence: str,
        fix: str,
        *,
        nodes: tuple[str, ...] = (),
        samples: tuple[int, ...] = (),
        channels: tuple[int, ...] = (),
    ) -> Finding:
        """What a rule found here; ``nodes`` are those concerned beside its own."""
        return Finding(
            f"{rule} {self.quantizer}",
            rule,
            title,
            tuple(dict.fromkeys((self.node.id, *nodes))),
            "",
            fix,
            evidence,
            fixable=False,
            samples=samples,
            channels=channels,
            value=self.value,
        )
