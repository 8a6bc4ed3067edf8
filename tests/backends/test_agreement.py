"""What is said of TensorRT beside a verdict of TensorRT-RTX is counted anew, where recordings and builder are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agreement
import recorded
from rtlab import backends
from rtlab.questions.why import agreement as shipped

here = backends.get("tensorrt-rtx").availability()


@recorded.present
@pytest.mark.skipif(not here.ok, reason=here.reason)
def test_the_table_that_is_shipped_is_what_is_counted() -> None:
    told = json.loads(agreement.WHERE.read_text(encoding="utf-8"))
    if not told["compilers"][0].startswith(f"TensorRT-RTX {here.version} "):
        pytest.skip(f"the table is of {told['compilers'][0]}, and here is {here.version}")
    found = agreement.table()
    assert {k: told[k] for k in ("compilers", "engines", "pairs")} == {
        k: found[k] for k in ("compilers", "engines", "pairs")
    }


def test_the_documentation_has_the_table() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert "\n".join(agreement.lines()) in readme
    known = shipped.known()
    assert f"Of {known.count} pairs of neighbours {known.alike} are one layer" in readme


def test_a_verdict_is_told_what_was_counted_of_its_kind() -> None:
    """MobileNetV2 has 35 convolutions with Clip; AlexNet five with Relu."""
    assert "In 2 recorded TensorRT engines, 35 of 35 Conv | Clip are one layer (reported)." == shipped.said(
        "Conv", "Clip"
    )
    assert "5 of 5 Conv | Relu" in shipped.said("Conv", "Relu")
    assert "0 of 3 Relu | MaxPool" in shipped.said("Relu", "MaxPool")
    assert "LSTM | Relu does not occur in the 2 recorded" in shipped.said("LSTM", "Relu")
