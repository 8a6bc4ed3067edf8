"""The Python of the README and of the documentation runs, block after block, as for a reader from the top."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What the pages call the files that trtexec writes, by the names that they have in the corpus.
FILES = {
    "layers.json": "engine.graph.json", "profile.json": "engine.profile.json", "times.json": "engine.timing.json",
    "model.onnx": "model.structure-only.onnx",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pages", "written"),
    [
        (["README.md"], "report.html"),
        (["docs/tour.md", "docs/engines.md"], "out.onnx"),
        (["docs/index.md", "docs/errors.md"], "report.html"),
    ],
    ids=["README", "docs", "site"],
)
def test_the_blocks_of_a_page_run_in_their_order(pages, written, tmp_path, monkeypatch) -> None:
    for name, file in FILES.items():
        shutil.copy(ROOT / "tests/corpus/engines/written-fp16" / file, tmp_path / name)
    shutil.copy(ROOT / "tests/corpus/logs/regions-trt10.log", tmp_path / "build.log")
    monkeypatch.chdir(tmp_path)
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 1
    scope: dict[str, object] = {}
    for number, block in enumerate(blocks):
        # The log is one of another engine: it is read by other tests.
        exec(compile(block.replace(', "build.log"', ""), f"{pages[0]}, block {number}", "exec"), scope)  # noqa: S102
    assert (tmp_path / written).is_file()
