"""What people read: the page of two studies as it is sent, reports in Markdown, and what commands print.

These files are where the product's wording is compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rtlab
import scenes
from answers import without
from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.cli import main
from rtlab.documents.serialization import decode
from snapshots import plain

#: The studies whose page is compared, with the variant that is shown beside fp32 and a node that is selected.
SHOWN = {"written": ("fp16", "conv2"), "two_outputs": ("int8", "head")}
SENT = (
    "source", "engine", "other", "engine_later", "other_later", "controls", "choice", "chips", "view",
    "status", "data", "notice", "charts", "engine_answer", "build_answer", "calibration_answer", "findings_answer",
)  # fmt: skip
shown = scenes.of(SHOWN)


def context(subject: str, settings: Mapping[str, str]) -> PanelContext:
    study = scenes.study(subject)
    return PanelContext(study.state, study[SHOWN[subject][0]].facts, study["fp32"].facts, settings)


@shown
def test_the_page_is_sent_what_the_file_says(subject: str, golden: Any) -> None:
    variant, node = SHOWN[subject]
    explorer = scenes.study(subject).explore(baseline="fp32")
    explorer.show(variant)
    explorer.compare("fp32")
    explorer.select(node)
    sent = {name: getattr(explorer, name) for name in SENT}
    sent = {k: (decode(v) if v else {}) if isinstance(v, bytes) else v for k, v in sent.items()}
    golden(f"page/{subject}.json", sent, rel=1e-3, least=1e-6)


@shown
@pytest.mark.parametrize("question", panels.PANELS)
def test_panels_are_those_of_the_file(subject: str, question: str, golden: Any) -> None:
    found = panels.render_panel(question, context(subject, {}))
    sections: dict[str, Any] = {"as it opens": found}
    for setting in found["settings"]:
        if setting.get("choices"):
            *_, last = setting["choices"]
            chosen = {setting["name"]: last["value"]}
            sections[f"{setting['name']}={last['value']}"] = panels.render_panel(
                question, context(subject, chosen)
            )
    masked = {k: without(plain(v), {"versions"}) for k, v in sections.items()}
    if question == "recipe":
        masked = {k: {n: p for n, p in v.items() if n != "rows"} for k, v in masked.items()}
    golden(f"page/{subject}/{question}.json", masked, rel=1e-3, least=1e-6)


@scenes.of(("written", "digits_outlier", "cpu"))
def test_reports_in_markdown_are_those_of_the_file(subject: str, golden: Any, tmp_path: Any) -> None:
    text = scenes.study(subject).report(tmp_path / "report.md").read_text(encoding="utf-8")
    head = next(iter(scenes.sections(subject, lambda *_: None)))
    golden(f"page/{subject}.md.json", {head: anonymous(text, tmp_path).splitlines()})


WRITTEN = {n: str(scenes.CORPUS / "engines" / f"written-{n}") for n in ("fp32", "fp16", "int8", "names-only")}
_FILES = {n: [f"{f}/engine.{k}.json" for k in ("graph", "profile")] for n, f in WRITTEN.items()}
_MODEL = f"{WRITTEN['fp32']}/model.structure-only.onnx"
COMMANDS: dict[str, list[str]] = {
    "read": ["read", *_FILES["int8"], _MODEL],
    "read-alone": ["read", *_FILES["fp16"]],
    "read-names": ["read", *_FILES["names-only"]],
    "read-memory": ["read", *_FILES["fp16"], _MODEL, "--ask", "memory"],
    "read-findings": ["read", *_FILES["int8"], _MODEL, "--ask", "findings"],
    "read-json": ["read", *_FILES["names-only"], "--json"],
    "compare": ["compare", WRITTEN["fp16"], WRITTEN["int8"], "--model", _MODEL],
    "inspect": ["inspect", "digits_gru", "--target", "cpu", "--no-run"],
    "inspect-calibration": [
        "inspect", "MODEL", "--precision", "int8", "--target", "cpu", "--ask", "calibration",
    ],
    "inspect-table": ["inspect", "MODEL", "--target", "cpu", "--ask", "table", "--json"],
    "check": ["check", _MODEL, "--engine", *_FILES["fp16"]],
    "check-json": ["check", _MODEL, "--engine", *_FILES["fp16"], "--json"],
    "prepare": ["prepare", "MODEL", "-o", "FOLDER/out.onnx", "--precision", "int8", "--calibrator", "minmax"],
    "sensitivity": ["sensitivity", "MODEL", "--verify", "99", "--calibrator", "minmax", "--target", "cpu"],
    "wrong": ["read", *_FILES["fp16"], _MODEL, "--ask", "sensitivity"],
    "missing": ["inspect", "nothing.onnx"],
}  # fmt: skip


@pytest.mark.xdist_group("written")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_what_the_file_says(command: str, golden: Any, capsys: Any, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(scenes.two_outputs().SerializeToString())
    given = [a.replace("MODEL", str(model)).replace("FOLDER", str(tmp_path)) for a in COMMANDS[command]]
    with scenes.timeless():
        code = main(given)
    out, err = (anonymous(text, tmp_path).splitlines() for text in capsys.readouterr())
    golden(f"commands/{command}.json", {"code": {"is": code}, "out": out, "err": err})


def anonymous(text: str, folder: Path) -> str:
    for path, name in (
        (folder, "FOLDER"),
        (scenes.CORPUS, "CORPUS"),
        (Path(rtlab.__file__).parents[1], "HERE"),
    ):
        text = text.replace(str(path), name)
    text = re.sub(r"\b(Python|NumPy|ONNX|rtlab|Linux)(:| \||) v?\d[^\s|,;]*", r"\1\2 ...", text)
    text = re.sub(r"(System|Processor)(:| \|)[^\n|]*", r"\1\2 ...", text)
    return re.sub(r'"(seconds|version|built)": ("[^"]*"|[\d.]+)', r'"\1": ...', text)
