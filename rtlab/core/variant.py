"""What a user may choose: precision, calibrator, target, backend."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TypeVar

from rtlab.errors import VariantError


class Precision(str, enum.Enum):
    """The arithmetic a variant asks for. A member equals its lower-case name."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    FP8 = "fp8"
    INT4 = "int4"
    FP4 = "fp4"

    def __str__(self) -> str:
        return self.value

    @property
    def needs_calibrator(self) -> bool:
        """Whether activations need scales."""
        return self in {Precision.INT8, Precision.FP8}


class Calibrator(str, enum.Enum):
    """How observed activations become scales."""

    MINMAX = "minmax"
    ENTROPY = "entropy"
    ENTROPY2 = "entropy2"
    PERCENTILE = "percentile"
    MSE = "mse"

    def __str__(self) -> str:
        return self.value


_E = TypeVar("_E", bound=enum.Enum)


def _member(kind: type[_E], given: str | _E, noun: str) -> _E:
    try:
        return kind(given)
    except ValueError:
        names = ", ".join(f'"{m.value}"' for m in kind)
        raise VariantError(
            f'Cannot choose {noun} "{given}": no such {noun} exists. Choose one of {names}.'
        ) from None


#: First target of each arithmetic that not every processor has.
_FIRST_SM = {Precision.BF16: 80, Precision.FP8: 89, Precision.FP4: 120}

#: Compute capabilities that current builders accept, and where one meets them.
KNOWN_TARGETS = {
    "sm75": "RTX 20, T4",
    "sm80": "A100, A30",
    "sm86": "RTX 30, A10",
    "sm89": "RTX 40, L4, L40",
    "sm120": "RTX 50",
}


@dataclasses.dataclass(frozen=True, order=True)
class Target:
    """The processor an engine is built for: ``cpu`` or a compute capability such as ``sm89``.

    ``unknown`` stands for the GPU of an engine from elsewhere whose files do not tell; nothing is built for it.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in {"cpu", "unknown"} and not re.fullmatch(r"sm\d{2,3}", self.name):
            raise VariantError(
                f'Cannot choose target "{self.name}": a target is "cpu" or a compute capability. '
                'Choose for example "sm86", "sm89" or "sm120".'
            )

    def __str__(self) -> str:
        return self.name

    @property
    def sm(self) -> int | None:
        """Compute capability as one number (86 for 8.6), or None for the CPU and where it is unknown."""
        return int(self.name[2:]) if self.name.startswith("sm") else None

    @property
    def title(self) -> str:
        """The name with the cards that have this compute capability."""
        cards = KNOWN_TARGETS.get(self.name)
        return f"{self.name} · {cards}" if cards else self.name

    def refusal(self, precision: Precision) -> str | None:
        """Why this target has no such arithmetic, or None when it has."""
        first = _FIRST_SM.get(precision)
        if self.sm is None or first is None or self.sm >= first:
            return None
        return (
            f'Target "{self.name}" has no "{precision}" arithmetic. Choose another precision, such as '
            f'"fp16" or "int8", or a target from "sm{first}" upward.'
        )


@dataclasses.dataclass(frozen=True)
class Variant:
    """One choice of precision, calibrator, target and backend.

    ``calibrator`` is None where the precision needs none; ``backend`` None means the best builder here.
    """

    precision: Precision = Precision.FP32
    calibrator: Calibrator | None = None
    target: Target = Target("cpu")
    backend: str | None = None

    @classmethod
    def of(
        cls,
        precision: str | Precision = "fp32",
        *,
        calibrator: str | Calibrator | None = None,
        target: str | Target | None = None,
        backend: str | None = None,
    ) -> Variant:
        """Resolve strings once, at the edge.

        A precision that needs scales gets ``entropy2`` unless told otherwise; one that needs none drops the
        calibrator, so that equal work has equal names. ``target`` None means ``cpu``.

        Raises:
            VariantError: a name is unknown, or the target cannot do the precision.
        """
        chosen = _member(Precision, precision, "precision")
        how = _member(Calibrator, calibrator, "calibrator") if calibrator is not None else None
        how = (how or Calibrator.ENTROPY2) if chosen.needs_calibrator else None
        where = target if isinstance(target, Target) else Target(target or "cpu")
        if where.name == "unknown":
            raise VariantError(
                'Cannot choose target "unknown": it only describes an engine from elsewhere. '
                'Choose "cpu" or a compute capability such as "sm86".'
            )
        if refusal := where.refusal(chosen):
            raise VariantError(refusal)
        return cls(chosen, how, where, backend)

    @property
    def name(self) -> str:
        """Precision and calibrator, as a chip shows them: ``int8·entropy2``."""
        return f"{self.precision}·{self.calibrator}" if self.calibrator else str(self.precision)

    @property
    def id(self) -> str:
        """A name unique among all variants of a study: ``int8·entropy2@sm86``."""
        return f"{self.name}@{self.target}" + (f"/{self.backend}" if self.backend else "")
