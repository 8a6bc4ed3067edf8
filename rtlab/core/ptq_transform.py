"""Transforms of a model against rounding errors."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Literal, cast, get_args

from rtlab.errors import VariantError

#: ``equalize`` and ``smooth`` move scale between neighbours without a change in fp32; ``correct`` subtracts the mean
#: rounding error of a node's output by its bias; ``reconstruct`` rounds weights to the least error of the output.
PtqTransformKind = Literal["equalize", "smooth", "reconstruct", "correct"]
#: The parameter of a kind with its default, what it may be at least and at most, and its name.
_SETTINGS: dict[str, tuple[float, float, float, str]] = {
    "smooth": (0.5, 0.0, 1.0, "alpha"),
    "reconstruct": (0.01, 1e-6, 1.0, "damping"),
}


@dataclasses.dataclass(frozen=True, order=True)
class PtqTransform:
    """One transform of some nodes.

    ``pattern`` is an id or a name with ``*`` and ``?``, or ``op:Conv``. ``setting`` is ``alpha`` of ``smooth`` (0
    leaves activations as they are, 1 moves all of their unevenness into the weights) or the ``damping`` of
    ``reconstruct``, a share of the mean second moment of a node's inputs; 0 for the others.
    """

    kind: PtqTransformKind
    pattern: str = "*"
    setting: float = 0.0

    def __str__(self) -> str:
        usual = _SETTINGS.get(self.kind)
        setting_text = "" if usual is None or usual[0] == self.setting else f"({self.setting:g})"
        return f"{self.kind}{setting_text}" + ("" if self.pattern == "*" else f" {self.pattern}")

    @property
    def done(self) -> str:
        """The participle of the kind: ``equalized``."""
        return f"{self.kind.removesuffix('e')}ed"

    @classmethod
    def of(cls, spec: PtqTransform | str) -> PtqTransform:
        """Parse ``equalize``, ``smooth(0.7)`` or ``reconstruct /head/*``; raises ``VariantError`` for anything else."""
        if isinstance(spec, PtqTransform):
            return spec
        match = re.fullmatch(
            r"\s*(\w+)\s*(?:\(\s*(?:\w+\s*=\s*)?([^()]*?)\s*\))?(?:\s+(\S.*?))?\s*", str(spec)
        )
        kinds = get_args(PtqTransformKind)
        if match is None or match[1] not in kinds:
            raise VariantError(
                f'Cannot transform a model by "{spec}": a transform is one of {", ".join(kinds)}, with its parameter '
                "in brackets where it has one, and nodes behind a space. Write for example "
                '"equalize", "smooth(0.7)" or "reconstruct /head/*".'
            )
        kind = cast("PtqTransformKind", match[1])
        usual, least, most, name = _SETTINGS.get(kind, (0.0, 0.0, 0.0, ""))
        setting = usual
        if match[2]:
            try:
                setting = float(match[2])
            except ValueError:
                setting = math.nan
        if not least <= setting <= most or (match[2] and not name):
            what = f'Give "{name}" a number from {least:g} to {most:g}.' if name else f'Write "{kind}".'
            raise VariantError(
                f'Cannot transform a model by "{spec}": "{match[2]}" is no parameter of {kind}. {what}'
            )
        return cls(kind, match[3] or "*", setting)
