"""Whole numbers that people give: batches, threads, seconds."""

from __future__ import annotations

import operator
from typing import Any

from rtlab.errors import VariantError

#: The largest dimension that ONNX Runtime and TensorRT count to.
LARGEST = 2**31 - 1


def validate_integer(
    candidate: Any, error_prefix: str, what: str, *, least: int = 1, most: int = LARGEST
) -> int:
    """The number, as Python's own.

    Args:
        candidate: Any object.
        error_prefix: What it is needed for, as the start of a message: ``Cannot plan memory for``.
        what: What it counts, such as ``batch``.
        least: The least that can be.
        most: The most that can be.

    Raises:
        VariantError: it is no whole number, or out of bounds.
    """
    try:
        number = least - 1 if isinstance(candidate, bool) else operator.index(candidate)
    except TypeError:
        number = least - 1
    if least <= number <= most:
        return number
    raise VariantError(
        f'{error_prefix} {what} "{candidate}": a {what} is at least {least}, and a whole number up to {most:,}. '
        f"Choose {max(least, min(8, most))}."
    )
