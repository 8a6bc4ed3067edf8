"""The rule of each operator: what the gradients of its outputs say of those of its inputs."""

from __future__ import annotations

from rtlab.gradients import arithmetic, conv, moves, norms, pointwise, pools, products, reductions
from rtlab.gradients.vjp_context import Rules

_FAMILIES = (pointwise, arithmetic, products, conv, pools, norms, reductions, moves)
RULES: Rules = {kind: rule for family in _FAMILIES for kind, rule in family.RULES.items()}
