"""What is written beside the HTML: Markdown for people, JSON for programs."""

from __future__ import annotations

import json
import re

import mistune
import pytest

from hostile_study import HOSTILE, hostile_model, planned
from rtlab import Study, Task, samples
from rtlab.report.markdown import escaped
from unit.report.test_report import Page


@pytest.fixture(scope="module")
def hostile() -> Study:
    return planned(hostile_model()).run()


NAMES = (
    "@octocat", "#12", "# a", "[x](http://e.test)", "a|b", "`c`", "*d*", "_e_", "1. e", "- f", "$g$", "~~h~~",
    "www.j.k", "&lt;", "<b>", "[ ] x", "a\nb", "\\*", "![p](q)", "http://e.test", "+ k", "== l", "[^1]",
)  # fmt: skip


def tables(text: str) -> list[list[str]]:
    return [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.slow
def test_what_fell_most_is_first_where_less_is_better_too(tmp_path) -> None:
    sample = samples.load("digits_inception", samples=32)
    task = Task(sample.task.data.take(200), metric="nmse")
    study = Study(sample.model, data=sample.calibration, task=task)
    study.add("fp32", target="cpu", backend="onnxruntime")
    cuts = {"cut": "percentile(90)", "torn": "percentile(50)"}
    for name, calibrator in cuts.items():
        study.add(name, precision="int8", target="cpu", backend="onnxruntime", calibrator=calibrator)
    study.run()
    assert study["fp32"].score.value < study["cut"].score.value < study["torn"].score.value
    text = study.to_markdown(tmp_path / "r.md").read_text(encoding="utf-8")
    fell = re.findall(r"^- \*\*(.*?)\*\*", text[text.index("## What fell") :], re.MULTILINE)
    assert ["torn", "cut"] == fell


def test_hostile_names_are_text_in_markdown(hostile, tmp_path) -> None:
    """No link, no mention of a stranger, no row of a table that is another one's, no HTML."""
    text = hostile.to_markdown(tmp_path / "r.md").read_text(encoding="utf-8")
    fenced = re.compile(r"^(`{3,})\w+\n.*?^\1$", re.DOTALL | re.MULTILINE)
    told = fenced.sub("", text)
    assert not re.search(r"(?<!\\)<", told)
    assert "http://" not in told
    assert {6} == {len(r) for r in tables(told) if r[0].strip().startswith(("fp32", "int8"))}
    # As somebody else's renderer reads it, with all that GitHub adds.
    read = mistune.create_markdown(
        plugins=["table", "strikethrough", "url", "math", "task_lists", "footnotes"]
    )
    for name in NAMES:
        page = Page(read(f"- {escaped(name)}\n"))
        assert ["ul", "li"] == [tag for tag, _ in page.elements], name
        text = page.texts["li"].strip()
        assert " ".join(name.split()) == text.replace("\u200b", ""), name
        # These are read from the finished page.
        assert not re.search(r"@\w|#\d", text), name


def test_json_has_all_of_every_variant(hostile, tmp_path) -> None:
    hostile.add("later", precision="fp16", target="cpu", backend="onnxruntime")
    path = hostile.to_json(tmp_path / "r.json")
    told = json.loads(path.read_text(encoding="ascii"), parse_constant=pytest.fail)
    assert ["fp32", "int8"] == list(told["variants"])
    one = told["variants"]["int8"]
    assert [y.id for y in hostile["int8"].engine.layers] == [y["id"] for y in one["engine"]["layers"]]
    assert hostile["int8"].timing.total == pytest.approx(one["timing"]["total_ms"])
    assert HOSTILE == told["model"]["name"]
    assert "study.add('int8'" in told["recipe"]["python"]
    assert {"rtlab", "Python"} <= {v["part"] for v in told["recipe"]["versions"]}
    built = hostile["int8"].engine.built.strftime("%Y-%m-%d %H:%M UTC")
    assert built == told["recipe"]["dates"]["int8"]["built"]


def test_the_same_study_gives_the_same_text(hostile, tmp_path) -> None:
    for name, write in (("md", hostile.to_markdown), ("json", hostile.to_json)):
        first = write(tmp_path / f"one.{name}").read_bytes()
        assert first == write(tmp_path / f"two.{name}").read_bytes()
