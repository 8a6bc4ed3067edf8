"""What the fields of a noun declare."""

from __future__ import annotations

import pytest

import rtlab
from rtlab.core import schema


@pytest.mark.parametrize("name", ["Finding", "Node", "Value"])
def test_the_fields_of_a_class_can_be_read_once_it_was_asked_for_by_its_public_name(name: str) -> None:
    """From then on it says that it is of ``rtlab``, where the names of its types mean nothing."""
    kind = getattr(rtlab, name)
    assert "rtlab" == kind.__module__
    read = getattr(schema.fields, "__wrapped__", schema.fields)
    declared = set(kind.__dataclass_fields__)
    assert {f.name for f in read(kind)} & declared
