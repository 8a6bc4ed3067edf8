# ruff: noqa: INP001
"""Writes what the golden pages of the front end show; ``python widgets/test/data/make.py`` from the checkout's root.

A file is a study's saved report, and what the Explorer of the same study has besides. Numbers of the machine that
writes them stand in them: write them anew only when what the page is sent has changed.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tests"))

import scenes  # noqa: E402
from rtlab.web.report.html import collect_payloads  # noqa: E402

#: The subjects of ``tests/scenes.py``, each with the variants that are shown.
SHOWN = {
    "written": ("fp32", "fp16", "int8"),
    "two_outputs": ("fp32", "int8"),
    "control_flow-fp16-sm86": ("engine",),
}
#: What a report does not have.
TRAITS = ("controls", "choice", "status", "data", "notice", "inspection", "build")


def plain(value: Any) -> Any:
    """The fields of what JSON does not know."""
    return dataclasses.asdict(value)


for subject, names in SHOWN.items():
    study = scenes.study(subject)
    explorer = study.explore()
    explorer.show(names[-1])
    saved = collect_payloads(study.state)
    saved["variants"] = [v for v in saved["variants"] if v["id"] in names]
    sent = {"saved": saved, "traits": {name: getattr(explorer, name) for name in TRAITS}}
    text = json.dumps(sent, default=plain, separators=(",", ":"))
    file = HERE / f"{subject.partition('-')[0]}.json.gz"
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
