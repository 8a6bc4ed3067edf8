"""The report: one file that the browser neither fetches nor runs anything for; and Markdown and JSON beside it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html.parser
import json
import re
from pathlib import Path
from types import SimpleNamespace

import mistune
import pytest

from hostile_study import HOSTILE, hostile_model, planned
from rtlab import CalibrationData, Study, Task, load, samples
from rtlab.documents.serialization import decode
from rtlab.errors import BuildError, RtlabError, VariantError
from rtlab.testing import tiny_model
from rtlab.web.report.html import _choose_view, escape

#: As the name of a model, which stands in one line.
ONE_LINE = HOSTILE.replace("\u2028", " ")


class Page(html.parser.HTMLParser):
    """What a browser reads: elements with their attributes, and the text of scripts, by its rules."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") or tag

    def handle_endtag(self, tag) -> None:
        self._inside = ""

    def handle_data(self, data) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data

    @property
    def saved(self) -> dict:
        return json.loads(gzip.decompress(base64.b64decode(self.texts["saved"])))


@pytest.fixture(scope="module")
def study() -> Study:
    made = planned(hostile_model()).run()
    made.add("fp16", target="cpu", backend="onnxruntime")
    error = BuildError("Cannot build.", details=HOSTILE)
    made._holder.update(lambda state: state.with_entries(failures={"fp16": error}))
    made.add(HOSTILE, precision="fp32", target="cpu", backend="onnxruntime")
    return made.run([HOSTILE])


@pytest.fixture(scope="module")
def path(study, tmp_path_factory) -> Path:
    return study.report(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def page(path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_every_built_variant_is_inside(study, page) -> None:
    views = {v["id"]: decode(base64.b64decode(v["engine"])) for v in page.saved["variants"]}
    assert ["fp32", "int8", HOSTILE] == list(views) == [v["variant"] for v in views.values()]
    for name, view in views.items():
        layers = [b["id"] for b in view["graph"]["boxes"] if b["kind"] == "layer"]
        assert [layer.id for layer in study[name].engine.layers] == layers
    assert {"time", "error"} <= {o["id"] for o in views["int8"]["overlays"]}
    # Both sides, or there is nothing to link; and what failed says why.
    boxes = decode(base64.b64decode(page.saved["source"]))["boxes"]
    assert {n.id for n in study.model.top} == {b["id"] for b in boxes if b["kind"] == "node"}
    (failed,) = (c for c in page.saved["chips"] if c["status"] == "failed")
    assert "Cannot build." == failed["error"]["message"]


def test_names_are_data_and_never_markup(page) -> None:
    """Node names come from a file that somebody else made."""
    assert ["script", "script", "script"] == [t for t, _ in page.elements if t in {"script", "img"}]
    assert ONE_LINE == page.saved["model"]
    assert f"{ONE_LINE} · rtlab report" == page.texts["title"]


def test_the_browser_is_told_to_fetch_nothing_and_to_run_one_script(page) -> None:
    """Should a name ever get through as markup, it still cannot run or tell anybody."""
    assert [] == [(t, a) for t, a in page.elements if {"src", "href", "srcset", "data"} & set(a)]
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert not re.search(r"\w+://", policy)
    digest = base64.b64encode(hashlib.sha256(page.texts["script"].encode()).digest()).decode()
    # Only what that script itself unpacks may run beside it: who cannot run anything cannot make a blob.
    assert [f"'sha256-{digest}' blob:"] == re.findall(r"script-src ([^;]*);", policy)


def test_a_presentation_travels_along(study, path, tmp_path) -> None:
    steps = [
        {"words": HOSTILE, "view": {"variant": "int8", "tab": "memory", "settings": {"memory.batch": "8"}}},
        {"words": "gone", "view": {"variant": "int4", "compared": "none", "tab": "memory"}},
    ]
    saved = Page(study.report(tmp_path / "report.html", steps=steps).read_text(encoding="utf-8")).saved
    assert [{**step, "places": {}} for step in steps] == saved["steps"]
    assert [] == Page(path.read_text(encoding="utf-8")).saved["steps"]


def test_a_report_compares_with_the_chosen_baseline(study, tmp_path) -> None:
    written = study.report(tmp_path / "report.html", baseline="int8").read_text(encoding="utf-8")
    told = Page(written).saved
    assert "int8" == told["view"]["baseline"]
    assert ["int8"] == [c["id"] for c in told["chips"] if c["baseline"]]
    fp32 = next(v for v in told["variants"] if v["id"] == "fp32")
    title = next(p["title"] for p in fp32["panels"] if p["name"] == "difference")
    assert "From int8·minmax to fp32" == title
    with pytest.raises(VariantError):
        study.report(tmp_path / "report.html", baseline="fp16")
    with pytest.raises(RtlabError, match="step 1"):
        study.report(tmp_path / "report.html", steps=[{"text": "x"}])


@pytest.mark.slow
def test_a_name_that_no_encoding_has_is_written_all_the_same(study, tmp_path) -> None:
    model = load(tiny_model().bytes(), name="a\udcffb")
    made = Study(model, data=CalibrationData.random(model, samples=8))
    made.add("fp32", target="cpu", backend="onnxruntime")
    written = made.run(compare=False).report(tmp_path / "report.html")
    assert "a?b · rtlab report" == Page(written.read_text(encoding="utf-8")).texts["title"]


def test_a_report_is_replaced_as_a_whole_and_nothing_stays_beside_it(study, path, tmp_path) -> None:
    there = tmp_path / "report.html"
    there.write_text("the last one")
    assert there == study.report(str(there))
    assert path.read_bytes() == there.read_bytes()
    assert [there] == list(tmp_path.iterdir())


def test_a_study_without_a_built_variant_says_what_to_do(tmp_path) -> None:
    for empty in (Study(tiny_model()), planned(tiny_model())):
        for kind in ("html", "md", "json"):
            with pytest.raises(VariantError):
                empty.report(tmp_path / f"report.{kind}")
    assert [] == list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(study, tmp_path) -> None:
    for path, words in (
        ("nowhere/r.html", "no folder"),
        ("", "suffix"),
        ("long" * 100 + ".html", "Cannot write"),
    ):
        with pytest.raises(RtlabError, match=words):
            study.report(tmp_path / path)
    assert [] == list(tmp_path.iterdir())
    assert [] == [p for p in tmp_path.parent.iterdir() if p.name.startswith(f".{tmp_path.name}")]


@pytest.mark.slow
def test_the_model_is_never_overwritten(tmp_path) -> None:
    """Input files are never written to, whatever the user types."""
    file = tmp_path / "model.json"
    file.write_bytes(tiny_model().bytes())
    before = file.read_bytes()
    study = planned(load(file)).run(["fp32"], compare=False)
    with pytest.raises(RtlabError, match="model was read from"):
        study.report(tmp_path / ".." / tmp_path.name / "model.json")
    assert before == file.read_bytes()


@pytest.mark.parametrize(
    ("scores", "sure", "higher", "shown"),
    [
        # No drop that the samples show: what was added last, also where a score is better or missing.
        ({"fp32": 98.6, "int8": 97.9, "fp16": 98.6}, (), True, "fp16"),
        ({"fp32": 98.6, "int8": 98.9, "fp16": None}, (), True, "fp16"),
        ({"fp32": None, "int8": None, "fp16": None}, (), True, "fp16"),
        # A drop that is for sure comes before a larger one that is not.
        ({"fp32": 9.6, "int8": 6.1, "int4": 0.0, "fp16": 7.0}, ("int8", "fp16"), True, "int8"),
        # Of a perplexity more is worse.
        ({"fp32": 5.0, "int8": 5.3, "int4": 5.9, "fp16": 4.9}, ("int8", "int4"), False, "int4"),
        ({"fp32": 98.6}, (), True, "fp32"),
    ],
)
def test_a_report_opens_on_the_largest_drop(scores, sure, higher, shown) -> None:
    """By hand: the largest that the samples show, else the last variant."""
    told = SimpleNamespace(score=SimpleNamespace(higher=higher))
    facts = {n: SimpleNamespace(score=None) if v is None else told for n, v in scores.items()}
    base = scores["fp32"]
    deltas = {n: None if n == "fp32" or v is None or base is None else v - base for n, v in scores.items()}
    worse = {n: {"score_worse": n in sure, "score_delta": d} for n, d in deltas.items()}
    chips = [{"id": n, "baseline": n == "fp32", **told} for n, told in worse.items()]
    view = _choose_view(SimpleNamespace(results=facts, diagnoses={}), list(scores), chips, "fp32")
    assert (shown, "") == (view.variant, view.tab)
    assert "fp32" == view.baseline


NAMES = (
    "@octocat", "#12", "# a", "[x](http://e.test)", "a|b", "`c`", "*d*", "_e_", "1. e", "- f", "$g$", "~~h~~",
    "www.j.k", "&lt;", "<b>", "[ ] x", "a\nb", "\\*", "![p](q)", "http://e.test", "+ k", "== l", "[^1]",
)  # fmt: skip


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
    text = study.report(tmp_path / "r.md").read_text(encoding="utf-8")
    fell = re.findall(r"^- \*\*(.*?)\*\*", text[text.index("## What fell") :], re.MULTILINE)
    assert ["torn", "cut"] == fell


def test_hostile_names_are_text_in_markdown(study, tmp_path) -> None:
    """No link, no mention of a stranger, no row of a table that is another one's, no HTML."""
    text = study.report(tmp_path / "r.md").read_text(encoding="utf-8")
    fenced = re.compile(r"^(`{3,})\w+\n.*?^\1$", re.DOTALL | re.MULTILINE)
    told = fenced.sub("", text)
    assert not re.search(r"(?<!\\)<", told)
    assert "http://" not in told
    rows = [line for line in told.splitlines() if line.startswith(("| fp32", "| int8"))]
    assert {7} == {len(row.strip("|").split(" | ")) for row in rows}
    # As somebody else's renderer reads it, with all that GitHub adds.
    read = mistune.create_markdown(
        plugins=["table", "strikethrough", "url", "math", "task_lists", "footnotes"]
    )
    for name in NAMES:
        page = Page(read(f"- {escape(name)}\n"))
        assert ["ul", "li"] == [tag for tag, _ in page.elements], name
        text = page.texts["li"].strip()
        assert " ".join(name.split()) == text.replace("\u200b", ""), name
        # These are read from the finished page.
        assert not re.search(r"@\w|#\d", text), name


def test_json_has_all_of_every_variant(study, tmp_path) -> None:
    path = study.report(tmp_path / "r.json")
    told = json.loads(path.read_text(encoding="ascii"), parse_constant=pytest.fail)
    assert ["fp32", "int8", HOSTILE] == list(told["variants"])
    one = told["variants"]["int8"]
    assert [y.id for y in study["int8"].engine.layers] == [y["id"] for y in one["engine"]["layers"]]
    assert study["int8"].timing.total == pytest.approx(one["timing"]["total_ms"])
    assert ONE_LINE == told["model"]["name"]
    assert "study.add('int8'" in told["recipe"]["python"]
    assert {"rtlab", "Python"} <= {v["part"] for v in told["recipe"]["versions"]}


def test_the_same_study_gives_the_same_text(study, tmp_path) -> None:
    for name, write in (("md", study.report), ("json", study.report)):
        first = write(tmp_path / f"one.{name}").read_bytes()
        assert first == write(tmp_path / f"two.{name}").read_bytes()
