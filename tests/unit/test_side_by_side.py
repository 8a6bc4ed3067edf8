"""A file that another process writes at the same time."""

from __future__ import annotations

from pathlib import Path

from rtlab.core import files


def test_a_file_that_another_process_puts_there_first_stays(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text("my own")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    files.write_if_missing(path, b"ours")
    assert b"my own" == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())
