"""What commands print, to whom, and where the system lets them write no more."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from rtlab import cli
from rtlab.cli import clean, clean_output
from rtlab.cli.printing import print_json
from rtlab.testing import tiny_model

PROGRAM = str(Path(sys.executable).with_name("rtlab"))


@pytest.mark.parametrize("code", [*range(32), *range(127, 160), 0x202E, 0x2066, 0x200F])
def test_control_characters_are_printed_escaped(code) -> None:
    text = clean(f"a{chr(code)}b µ→日本語")
    assert (text == f"a{chr(code)}b µ→日本語") is (chr(code) in "\t\n")
    assert text.isprintable() or chr(code) in "\t\n"


def test_json_is_json_after_control_characters_are_cleaned(capsys) -> None:
    text = "a\x9b\x7f\u202e µ\ud800"
    with clean_output():
        print_json({"text": text, "none": math.nan, "endless": [-math.inf, 1.5]})
    printed = capsys.readouterr().out
    assert json.loads(printed, parse_constant=pytest.fail) == {
        "text": text,
        "none": None,
        "endless": [None, 1.5],
    }
    assert printed.isascii()


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_names_of_a_model_cannot_command_the_terminal(tmp_path, capsys, json) -> None:
    name = "\x1b[31mred\x1b]0;title\x07\x9b"
    proto = tiny_model().proto()
    proto.graph.name = proto.graph.node[0].name = name
    onnx.save(proto, tmp_path / "model.onnx")
    command = ["inspect", str(tmp_path / "model.onnx"), "--backend", "classic", *json]
    assert cli.main(command) == 0
    assert cli.main(["inspect", f"{tmp_path}/{name}.onnx", *json]) == 1
    printed = capsys.readouterr()
    assert "red" in printed.out
    assert [c for c in printed.out + printed.err if not c.isprintable() and c != "\n"] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the limits are those of a POSIX shell")
@pytest.mark.parametrize(
    ("shell", "status", "words"),
    [
        ("{} inspect digits_inception --backend classic 2>&-", 0, ""),
        ("{} read - <&-", 1, "standard input"),
        ("{} read nothing.json --json >/dev/full", 1, "nothing.json"),
        ("{} inspect digits_inception --backend classic --json >/dev/full", 1, "disk is full"),
        ("{} inspect digits_inception --backend classic >&-", 0, ""),
        ("ulimit -f 1; {} report digits_inception -o out.html", 1, "ulimit -f"),
        ("ulimit -f 1; {} inspect digits_inception --target cpu --backend onnxruntime", 1, "ulimit -f"),
        ("ulimit -f 1; {} prepare digits_inception --precision int8 -o out.onnx", 1, "ulimit -f"),
        ("{} report digits_inception --backend classic -o /dev/full", 1, "No space left"),
    ],
)
def test_closed_streams_and_limits_of_files_end_in_words(tmp_path, shell, status, words) -> None:
    done = subprocess.run(
        ["bash", "-c", shell.format(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    assert not any(raw in done.stderr for raw in ("Nobody foresaw", "Traceback", "Exception ignored"))
    assert [*tmp_path.iterdir()] == []
