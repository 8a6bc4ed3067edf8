"""What a field declares, and what of a value crosses to JSON and to the page."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import pytest

from rtlab.core.schema import UNSENT, FieldMeta, fields
from rtlab.core.variant import Calibrator, Precision
from rtlab.documents.serialization import decode, encode, to_builtins


class Mood(str, enum.Enum):
    GLAD = "glad"
    SAD = "sad"

    def __str__(self) -> str:
        return self.value


class Ends(NamedTuple):
    """Two names."""

    first: str
    last: Annotated[str, UNSENT] = "unsent"


@dataclasses.dataclass(frozen=True)
class Everything:
    """All that a field may be."""

    name: Annotated[str, FieldMeta("Name")]
    ratio: Annotated[float, FieldMeta("Ratio", "dB", "{self.origin}", infinite=True)]
    origin: str
    mood: Mood
    calibrator: Calibrator | None
    ends: tuple[Ends, ...]
    precisions: Mapping[str, Precision]
    secret: Annotated[object, UNSENT] = None

    @property
    def twice(self) -> Annotated[float | None, FieldMeta("Twice")]:
        """A number that follows."""
        return 2 * self.ratio if math.isfinite(self.ratio) else None

    @property
    def other(self) -> str:
        """Declares nothing, and is nobody's business."""
        raise AssertionError


def thing(ratio: float = 1.5) -> Everything:
    return Everything(
        "a", ratio, "reported", Mood.SAD, Calibrator.MSE, (Ends("x"),), {"w": Precision.INT8}, object()
    )


def test_fields_stand_in_their_order_before_properties_that_declare_a_meaning() -> None:
    names = ["name", "ratio", "origin", "mood", "calibrator", "ends", "precisions", "twice"]
    assert names == [f.name for f in fields(Everything)]
    ratio = fields(Everything)[1]
    assert ("dB", "reported") == (ratio.meaning.unit, ratio.origin(thing()))
    assert ["first"] == [f.name for f in fields(Ends)]


@pytest.mark.parametrize(
    ("ratio", "sent", "twice"), [(1.5, 1.5, 3.0), (math.inf, None, None), (math.nan, None, None)]
)
def test_a_noun_as_builtins_is_what_its_bytes_tell(ratio, sent, twice) -> None:
    expected = {
        "name": "a", "ratio": sent, "origin": "reported", "mood": "sad", "calibrator": "mse",
        "ends": [{"first": "x"}], "precisions": {"w": "int8"}, "twice": twice,
    }  # fmt: skip
    assert expected == to_builtins(thing(ratio))
    assert expected == decode(encode(thing(ratio)))
