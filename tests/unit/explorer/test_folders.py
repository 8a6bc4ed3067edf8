"""Which files a page may open: whoever sees it need not be whose kernel it is."""

from __future__ import annotations

import pytest

from rtlab import Study, load
from rtlab.documents import commands
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
    monkeypatch.setattr(explorer, "load", loaded.append)
    monkeypatch.setattr(explorer, "use", loaded.append)
    explorer._receive(explorer, commands.OpenNamed(path.format(places)).crossing(), [])
    explorer.wait(20)
    assert bool(loaded) is opens
    assert (explorer.failure is None) is opens


def test_python_opens_any_file(places) -> None:
    explorer = Study(load(places / "models" / "net.onnx")).explore(files=[])
    explorer.load(places / "private" / "net.onnx").wait(120)
    assert explorer.failure is None
    assert explorer.study.model.path == places / "private" / "net.onnx"
