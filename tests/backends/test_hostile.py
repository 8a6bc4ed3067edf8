"""Valid ONNX that hurts the compiler: an error that says what to do, and this process lives on."""

from __future__ import annotations

from pathlib import Path

import pytest

import hostile
import rtlab
from rtlab import backends
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.variant import Variant

here = backends.get("tensorrt-rtx").availability()


@pytest.mark.slow
@pytest.mark.skipif(not here.ok, reason=here.reason)
@pytest.mark.parametrize("case", hostile.BUILDABLE, ids=str)
def test_a_hostile_model_ends_in_words_or_in_an_engine(case: hostile.Case, tmp_path: Path) -> None:
    path = case.make(tmp_path)
    before = path.read_bytes()
    model = rtlab.load(path)
    request = BuildRequest(model, Variant.of("fp32", target="sm86"), Limits(seconds=120))
    if case.error is None:
        assert backends.get("tensorrt-rtx").build(request, Silent()).layers
    else:
        with pytest.raises(case.error) as caught:
            backends.get("tensorrt-rtx").build(request, Silent())
        assert all(word in str(caught.value) for word in case.words)
    assert before == path.read_bytes()
