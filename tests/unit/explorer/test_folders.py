"""What a page may ask for: files of named folders alone, and commands of another version that hold anything."""

from __future__ import annotations

import pytest

import rtlab
from rtlab import Study, load
from rtlab.documents import commands
from rtlab.errors import RtlabError
from rtlab.testing import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folders: of the model, the current one, a third and one that is private; a model in each, and links into it."""
    for name in ("models", "here", "third", "private"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.onnx").write_bytes(tiny_model().bytes())
    (tmp_path / "here" / "link.onnx").symlink_to(tmp_path / "private" / "net.onnx")
    (tmp_path / "here" / "inside.onnx").symlink_to(tmp_path / "models" / "net.onnx")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.mark.parametrize(
    ("files", "path", "opens"),
    [
        (None, "{}/models/net.onnx", True), (None, "net.onnx", True), (None, "inside.onnx", True),
        (None, "{}/third/net.onnx", False), (None, "{}/models/../private/net.onnx", False),
        (None, "../private/net.onnx", False), (None, "link.onnx", False), (None, "/etc/passwd", False),
        (None, "~/net.onnx", False), ("{}/third", "{}/third/net.onnx", True), ("{}/third", "{}/models/net.onnx", False),
        (["{}/third", "{}/private"], "link.onnx", True), ([], "net.onnx", False), ([], "digits_inception", True),
        (None, "samples.npz", True), (None, "{}/third/samples.npz", False),
    ],
)  # fmt: skip
def test_a_page_opens_files_of_named_folders_alone(places, files, path, opens, monkeypatch) -> None:
    if files is not None:
        files = files.format(places) if isinstance(files, str) else [f.format(places) for f in files]
    explorer = Study(load(places / "models" / "net.onnx")).explore(files=files)
    loaded = []
    monkeypatch.setattr(explorer._opens, "load", loaded.append)
    monkeypatch.setattr(explorer._opens, "use", loaded.append)
    explorer._receive(explorer, commands.OpenNamed(path.format(places)).to_dict(), [])
    explorer.wait(20)
    assert bool(loaded) is opens
    assert (explorer.failure is None) is opens


def test_python_opens_any_file(places) -> None:
    explorer = Study(load(places / "models" / "net.onnx")).explore(files=[])
    explorer.load(places / "private" / "net.onnx").wait(120)
    assert explorer.failure is None
    assert explorer.study.model.path == places / "private" / "net.onnx"


@pytest.fixture(scope="module")
def page():
    study = rtlab.Study(tiny_model())
    study.add("a", backend="classic")
    return study.run(compare=False).explore()


@pytest.mark.parametrize(
    ("work", "values", "words"),
    [
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
    for take in (rtlab.load, rtlab.read, page.study.report):
        with pytest.raises(RtlabError) as refused:
            take(path)
        assert "Nobody foresaw" not in str(refused.value)
