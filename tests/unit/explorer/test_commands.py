"""Commands of a page of another version, or of somebody who wrote them: fields that lack, or hold anything."""

from __future__ import annotations

import pytest

import rtlab
from rtlab.errors import RtlabError
from rtlab.testing import tiny_model


@pytest.fixture(scope="module")
def page():
    study = rtlab.Study(tiny_model())
    study.add("a", backend="classic")
    return study.run(compare=False).explore()


@pytest.mark.parametrize(
    ("work", "values", "words"),
    [
        ("remedy", {}, '"rewrites"'), ("treat", {"why": "x"}, '"cause"'), ("channels", {}, '"value"'),
        ("tune", {"budget_s": "soon"}, "'soon'"), ("bisect", {"from": "a", "seconds": "1e"}, "'1e'"),
    ],
)  # fmt: skip
def test_the_work_of_a_button_says_what_it_lacks(page, work, values, words) -> None:
    page._receive(page, {"type": "work", "work": work, "variant": "a", "values": values}, [])
    page.wait(20)
    message = page.failure["message"]
    assert words in message
    assert "Nobody foresaw" not in message
    page._receive(page, {"type": "dismiss"}, [])
    assert not page.failure


@pytest.mark.parametrize("path", ["a\0b", "~nobody-of-this-name/x.onnx", "", "n" * 5000])
def test_a_path_that_is_none_is_refused_in_words(page, path) -> None:
    page._receive(page, {"type": "open", "path": path}, [])
    page.wait(20)
    assert "Nobody foresaw" not in page.failure["message"]
    for take in (rtlab.load, rtlab.read, page.study.to_html):
        with pytest.raises(RtlabError) as refused:
            take(path)
        assert "Nobody foresaw" not in str(refused.value)
