"""The README's own lines of Python run, one block after the other, as somebody would who reads it from the top."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
#: What the README calls the files that trtexec writes, by the names that they have in the corpus.
FILES = {
    "layers.json": "engine.graph.json", "profile.json": "engine.profile.json", "times.json": "engine.timing.json",
    "model.onnx": "model.structure-only.onnx",
}  # fmt: skip


@pytest.mark.slow
def test_the_blocks_of_the_readme_run_in_their_order(tmp_path, monkeypatch) -> None:
    for name, file in FILES.items():
        shutil.copy(ROOT / "tests/corpus/engines/written-fp16" / file, tmp_path / name)
    shutil.copy(ROOT / "tests/corpus/logs/regions-trt10.log", tmp_path / "build.log")
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) > 2
    scope: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        # The log is one of another engine: it is read by other tests.
        exec(compile(block.replace(', "build.log"', ""), f"README, block {number}", "exec"), scope)  # noqa: S102
    assert (tmp_path / "out.onnx").is_file()
