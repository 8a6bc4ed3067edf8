"""What Netron's page is given: this model, the files that it names, and nothing else; to this page, and nobody else."""

from __future__ import annotations

import gc
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from rtlab import Study, load
from rtlab.testing import tiny_model
from visitor import asked, loaded


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A model with its weights in a file, in a folder with what is nobody's business."""
    proto = tiny_model().proto()
    convert_model_to_external_data(proto, location="weights/conv.bin", size_threshold=0)
    (tmp_path / "weights").mkdir()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("secret")
    (tmp_path / "other.onnx").write_text("secret")
    onnx.save(proto, tmp_path / "my model.onnx")
    return tmp_path / "my model.onnx"


@pytest.fixture
def url(beside: Path) -> Iterator[str]:
    """Of its page, for as long as its study is there."""
    study = Study(load(beside))
    yield study.explore().open_in_netron()  # noqa: PT022 - the study lives until the test has ended


def test_the_page_gets_the_model_and_the_files_that_hold_its_weights(beside: Path, url: str) -> None:
    assert beside.read_bytes() == loaded(url)
    assert (beside.parent / "weights/conv.bin").read_bytes() == asked(url, "data/weights/conv.bin")[1]


def test_nothing_else_of_the_folder_or_the_machine_is_given_away(url: str) -> None:
    for path in (
        ".ssh/id_rsa", "other.onnx", "weights/../.ssh/id_rsa", "weights/..%2f.ssh%2fid_rsa", "%2e%2e/other.onnx",
        "../" * 12 + "etc/passwd", "/etc/passwd", "weights", "weights/", "", ".", "my%20model.onnx%00", "\\etc\\passwd",
    ):  # fmt: skip
        assert (404, b"") == asked(url, f"data/{path}")[:2], path
    for path in ("server.py", "__init__.py", "../netron/server.py", "__pycache__", "data", "nothing.js"):
        assert (404, b"") == asked(url, path)[:2], path
    root = url[: url.index("/", 7) + 1]
    for path in ("", "index.html", "index.js", "data/my%20model.onnx", url.rsplit("/", 2)[1], "x" * 32 + "/"):
        assert (404, b"") == asked(root, path)[:2], path


def test_a_name_that_leads_here_from_elsewhere_is_refused(url: str) -> None:
    """As a page does whose own name was made to mean this machine, and one that asks across."""
    port = urllib.parse.urlsplit(url).port
    for headers in (
        {"Host": "evil.example"}, {"Host": f"evil.example:{port}"}, {"Host": ""}, {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"http://127.0.0.1:{port + 1}"},
    ):  # fmt: skip
        for path in ("", "index.js", "data/my%20model.onnx"):
            assert (403, b"") == asked(url, path, headers)[:2], headers
    for headers in ({"Host": f"localhost:{port}"}, {"Origin": f"http://127.0.0.1:{port}"}):
        assert 200 == asked(url, "", headers)[0], headers


def test_only_this_machine_can_connect(url: str) -> None:
    port = urllib.parse.urlsplit(url).port
    process = psutil.Process()
    # Its name until psutil 6.
    connections = getattr(process, "net_connections", None) or process.connections
    mine = [c.laddr.ip for c in connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]
    assert ["127.0.0.1"] == mine


def test_the_page_may_connect_to_nothing_but_its_server_and_asks_nobody_for_consent(url: str) -> None:
    for path in ("", "index.js", "worker.js", "data/nothing"):
        policy = asked(url, path)[2]["Content-Security-Policy"]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert "'self'" == rules["connect-src"]
        assert "'none'" == rules["default-src"]
        assert "'self'" == rules["script-src"]
    _, page, headers = asked(url)
    path = urllib.parse.urlsplit(url).path
    assert f"consent=1; Path={path}; SameSite=Strict" == headers["Set-Cookie"]
    assert 1 == page.count(b'<meta name="date"')


def test_an_old_installation_keeps_working(url: str) -> None:
    """Netron refuses to open 180 days after its release; the page believes that it is of today."""
    page = asked(url)[1].decode()
    told = re.search('<meta name="date" content="([^"]*)">', page)
    assert told
    age = np.datetime64("now") - np.datetime64(told[1].replace(" ", "T"))
    assert abs(age) < np.timedelta64(1, "D")


def test_a_page_closes_with_its_study(beside: Path) -> None:
    first, second = Study(load(beside)), Study(tiny_model())
    explorers = [first.explore(), second.explore()]
    mine, other = (e.open_in_netron() for e in explorers)
    assert mine == explorers[0].open_in_netron()
    assert mine.rsplit("/", 2)[1] != other.rsplit("/", 2)[1]
    assert loaded(other) == second.model.bytes()
    explorers.pop(0).close()
    del first
    gc.collect()
    assert 404 == asked(mine)[0]
    assert 200 == asked(other)[0]


def test_a_file_that_has_changed_is_shown_as_it_was_loaded(beside: Path) -> None:
    beside.write_bytes(tiny_model().bytes())
    study = Study(load(beside))
    before = study.model.bytes()
    beside.write_bytes(b"something else, and longer or shorter than before")
    url = study.explore().open_in_netron()
    assert before == loaded(url)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", '"><script>alert(1)</script>', "ünï/code\n", "", "a" * 500]
)
def test_whatever_a_model_is_called_its_page_opens(name: str) -> None:
    study = Study(load(tiny_model().proto(), name=name or "."))
    url = study.explore().open_in_netron()
    assert study.model.bytes() == loaded(url)
    assert b"<script>alert" not in asked(url)[1]
