"""Projects statistics of tensors to what the side panel shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import cast

from rtlab.documents import contract
from rtlab.questions.inspection.tensors import TensorStats


def inspection(node: str, tensors: Iterable[TensorStats], note: str = "") -> contract.Inspection:
    """The answer to the gesture ``inspect``."""
    made = [{**dataclasses.asdict(t), "counts": list(t.counts)} for t in tensors]
    return contract.Inspection(node=node, tensors=cast("list[contract.TensorStats]", made), note=note)
