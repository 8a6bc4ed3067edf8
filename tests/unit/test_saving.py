"""Studies on disk: saved, opened again, refused in words, and the entries that a store has too."""

from __future__ import annotations

import copy
import dataclasses
import errno
import io
import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rtlab
import scenes
from rtlab.analyses import panels
from rtlab.core.external_data import DetachedWeight
from rtlab.documents import commands
from rtlab.errors import CalibrationError, ModelError, ReadError, RtlabError
from rtlab.study import records, store
from rtlab.testing import tiny_model


def answers(study: rtlab.Study) -> dict[str, str]:
    """Every answer about each variant, beside the first one, as JSON; where there is none, the words."""
    found = {}
    first = next(iter(study))
    for name in study:
        baseline = None if name == first else first
        for question in panels.PANELS:
            try:
                plain = study.ask(question, variant=name, baseline=baseline).plain()
                found[f"{name}, {question}"] = json.dumps(plain)
            except RtlabError as error:  # noqa: PERF203 - the words are an answer
                found[f"{name}, {question}"] = f"{type(error).__name__}: {error}"
    return found


def own_data(model: rtlab.Model, seed: int = 3) -> rtlab.CalibrationData:
    draw = np.random.default_rng(seed).normal
    return rtlab.CalibrationData({n: draw(size=(16, 3, 8, 8)).astype(np.float32) for n in model.inputs})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a study of it, without weights in ``study.rtlab``, with them in ``all.rtlab``."""
    home = tmp_path_factory.mktemp("saved")
    onnx.save(tiny_model().proto(), home / "tiny.onnx")
    study = make_study(home / "tiny.onnx")
    study.save(home / "study.rtlab")
    study.save(home / "all.rtlab", weights=True)
    (home / "answers.json").write_text(json.dumps(answers(study)))
    return home


def make_study(path: Path) -> rtlab.Study:
    model = rtlab.load(path)
    data = own_data(model)
    study = rtlab.Study(model, data=data, task=rtlab.Task(data))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.add("int8", target="cpu", backend="onnxruntime", calibrator="minmax")
    study.add("even", precision="int8", target="cpu", backend="onnxruntime", treatments="equalize")
    study.add("fp16", target="sm86", backend="classic")
    study.add("later", precision="bf16", target="sm86", backend="classic")
    return study.run(["fp32", "int8", "even", "fp16"], budget_s=5)


def moved(folder: Path, home: Path, name: str = "study.rtlab") -> Path:
    """A saved study in a folder without its model."""
    return Path(shutil.copy(folder / name, home / name))


def without_recipes(found: dict[str, str]) -> dict[str, str]:
    """Answers without those that name the file of the model, by its place seen from here."""
    return {k: v for k, v in found.items() if "recipe" not in k}


def expected(folder: Path) -> dict[str, str]:
    return json.loads((folder / "answers.json").read_text())


def test_a_study_that_is_opened_again_gives_the_same_answers(folder: Path) -> None:
    """Each number of each panel; variants that are not built, and identities that other code rests on, come along."""
    opened = rtlab.open(folder / "study.rtlab")
    assert expected(folder) == answers(opened)
    assert ["fp32", "int8", "even", "fp16", "later"] == [*opened.state.variants]
    facts = opened["fp32"].facts
    assert facts.measured is facts.engine
    assert facts.prepared.model is facts.source is opened.model
    assert facts.profile is not None
    assert opened.model.path == (folder / "tiny.onnx").resolve()


def test_prepared_models_are_made_again_bit_for_bit(folder: Path) -> None:
    made, opened = make_study(folder / "tiny.onnx"), rtlab.open(folder / "study.rtlab")
    for name in ("fp32", "int8", "even", "fp16"):
        one, two = made[name].prepared, opened[name].prepared
        assert one.model.digest == two.model.digest
        assert one.emulation.digest == two.emulation.digest


def test_constants_keep_the_form_that_the_file_has_them_in(tmp_path: Path) -> None:
    """A bias as a list of floats, and not as bytes, is one in the model that is made again too."""
    kernel, bias = np.linspace(-1, 1, 12, dtype=np.float32), [0.25, 0.5, 0.75, 1.0]
    tensors = [
        onnx.numpy_helper.from_array(kernel.reshape(3, 4), "w"),
        helper.make_tensor("bias", onnx.TensorProto.FLOAT, [4], bias),
    ]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "bias"], ["y"])]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, c]) for n, c in (("x", 3), ("y", 4))]
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], tensors)
    model = rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    study = rtlab.Study(model)
    study.add("int8", target="cpu", backend="onnxruntime", calibrator="minmax")
    study.run(budget_s=0).save(tmp_path / "study.rtlab")
    again = rtlab.open(tmp_path / "study.rtlab", model=model)["int8"].prepared.model
    assert bias == [*next(t for t in again.proto().graph.initializer if t.name == "bias").float_data]
    assert study["int8"].prepared.model.digest == again.digest


def test_with_the_model_at_its_place_and_the_samples_work_goes_on(folder: Path, tmp_path: Path) -> None:
    """Variants are built, measured and exported as they were before; samples that are not there are asked for."""
    opened = rtlab.open(folder / "study.rtlab")
    assert "Open it with them, rtlab.open(path, data=...)" in measure_fresh(opened)
    opened = rtlab.open(folder / "study.rtlab", data=own_data(opened.model))
    assert opened.task is not None
    assert opened.task.data is opened.data
    opened.run(["later"], budget_s=1)
    assert "later" in opened
    opened.measure("int8", budget_s=1)
    made = make_study(folder / "tiny.onnx")
    for name, study in (("opened", opened), ("made", made)):
        study.export("int8", tmp_path / f"{name}.onnx")
    assert (tmp_path / "opened.onnx").read_bytes() == (tmp_path / "made.onnx").read_bytes()
    with pytest.raises(CalibrationError, match="they are not those that it was saved with"):
        rtlab.open(folder / "study.rtlab", data=own_data(opened.model, seed=4))


def measure_fresh(study: rtlab.Study) -> str:
    """Why a new variant cannot be compared, in words."""
    study.add("fresh", precision="fp32", target="cpu", backend="onnxruntime", sizes={"N": 1})
    study.remove("fresh")
    with pytest.raises(CalibrationError) as caught:
        next(study.data.batches(study.model))
    return str(caught.value)


def test_without_the_model_results_are_shown_and_the_rest_says_what_lacks(
    folder: Path, tmp_path: Path
) -> None:
    opened = rtlab.open(moved(folder, tmp_path))
    assert opened.model.weightless
    before, after = expected(folder), answers(opened)
    assert without_recipes(before) == without_recipes(after)
    words = r'they are not in the saved study\. Open it with its model, rtlab\.open\("study\.rtlab", model="tiny\.'
    for work in (
        lambda: opened.run(["later"]),
        lambda: opened.export("int8", tmp_path / "x.onnx"),
        opened.model.proto,
        opened["int8"].prepared.emulation.bytes,
        lambda: opened.accuracy.sensitivity("int8"),
    ):
        with pytest.raises(ModelError, match=words):
            work()
    with pytest.raises(RtlabError, match="whose weights are not here"):
        opened.fusion.advise("int8")
    with pytest.raises(ModelError, match="Cannot save the study with its weights"):
        opened.save(tmp_path / "x.rtlab", weights=True)
    status = [item["text"] for item in opened.explore(baseline="fp32").status]
    assert any(text.startswith("saved on 20") and "weights are not here" in text for text in status)
    assert any(text.startswith("measured on 20") for text in status)


def test_a_study_without_its_model_can_be_saved_again_and_given_the_model(
    folder: Path, tmp_path: Path
) -> None:
    rtlab.open(moved(folder, tmp_path)).save(tmp_path / "again.rtlab")
    assert not rtlab.open(tmp_path / "again.rtlab", model=folder / "tiny.onnx").model.weightless
    assert not rtlab.open(tmp_path / "again.rtlab", model=tiny_model()).model.weightless
    rtlab.load(folder / "tiny.onnx").sized({"N": 2})
    other = tmp_path / "other.onnx"
    onnx.save(fp32_with_other_weights(folder / "tiny.onnx"), other)
    with pytest.raises(ModelError, match="it is another model, or has other weights or sizes"):
        rtlab.open(tmp_path / "again.rtlab", model=other)


def fp32_with_other_weights(path: Path) -> onnx.ModelProto:
    proto = onnx.load(path)
    raw = bytearray(proto.graph.initializer[0].raw_data)
    raw[0] ^= 1
    proto.graph.initializer[0].raw_data = bytes(raw)
    return proto


def test_another_file_at_the_models_place_is_not_taken(folder: Path, tmp_path: Path) -> None:
    path = moved(folder, tmp_path)
    onnx.save(fp32_with_other_weights(folder / "tiny.onnx"), tmp_path / "tiny.onnx")
    opened = rtlab.open(path)
    assert opened.model.weightless
    with pytest.raises(ModelError, match=r'File "tiny\.onnx" is not as it was when the study was saved'):
        opened.model.proto()
    # Copied, it has another date, and the same digest.
    shutil.copy(folder / "tiny.onnx", tmp_path / "tiny.onnx")
    assert not rtlab.open(path).model.weightless


def test_weights_and_samples_come_along_where_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    opened = rtlab.open(moved(folder, tmp_path, "all.rtlab"))
    assert not opened.model.weightless
    assert np.array_equal(opened.data.arrays["x"], own_data(opened.model).arrays["x"])
    opened.run(["later"], budget_s=1)
    content = zipfile.ZipFile(folder / "study.rtlab")
    weight = rtlab.load(folder / "tiny.onnx").ir.graph.initializers["stem_w"].const_value.numpy().tobytes()
    assert not any(weight[:64] in content.read(name) for name in content.namelist())
    assert weight in zipfile.ZipFile(folder / "all.rtlab").read("model.onnx")


def test_a_saved_study_names_no_folder_of_the_machine(folder: Path) -> None:
    archive = zipfile.ZipFile(folder / "study.rtlab")
    assert not [n for n in archive.namelist() if str(folder.parent).encode() in archive.read(n)]
    assert "tiny.onnx" == json.loads(archive.read("study.json"))["model"]["place"]


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A saved study with its members changed; None leaves one out."""
    archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w") as written:
        for name in archive.namelist():
            if (content := change(name, archive.read(name))) is not None:
                written.writestr(name, content)
    return path


def test_a_damaged_result_costs_no_other(folder: Path, tmp_path: Path) -> None:
    path = moved(folder, tmp_path)
    key = json.loads(zipfile.ZipFile(path).read("study.json"))["entries"]["int8"]

    def damage(name: str, content: bytes) -> bytes:
        return content[:-9] if name == f"entries/{key}/arrays.npz" else content

    opened = rtlab.open(rewrite(path, damage))
    assert ["fp32", "even", "fp16"] == [*opened]
    with pytest.raises(
        ReadError, match=r'the result of "int8" in the study "study\.rtlab": it is cut short or damaged'
    ):
        _ = opened["int8"]


@pytest.mark.parametrize("length", [0, 3, 400, -400, -1])
def test_a_file_that_is_cut_short_is_refused(folder: Path, tmp_path: Path, length: int) -> None:
    path = moved(folder, tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ReadError, match="cut short"):
        rtlab.open(path)


def test_another_schema_is_refused_with_its_number(folder: Path, tmp_path: Path) -> None:
    def raise_schema(name: str, content: bytes) -> bytes:
        return content.replace(b'"rtlab_study": 1', b'"rtlab_study": 2') if name == "study.json" else content

    with pytest.raises(ReadError, match=r"its schema is 2, written by rtlab .*; this rtlab reads schema 1"):
        rtlab.open(rewrite(moved(folder, tmp_path), raise_schema))


def test_a_later_release_may_add_and_leave_out_fields(folder: Path, tmp_path: Path) -> None:
    def age(name: str, content: bytes) -> bytes:
        if not name.endswith(store.DOCUMENT):
            return content
        document = json.loads(content)
        engine = document["result"]["engine"]
        engine["of_tomorrow"] = 1
        del engine["device"]
        return json.dumps(document).encode()

    opened = rtlab.open(rewrite(moved(folder, tmp_path), age))
    assert "" == opened["fp32"].engine.device
    assert 4 == len(opened)


@pytest.mark.parametrize(
    "change",
    [
        {"$": "os.system", "value": "true"},
        {"$": "Path", "value": "x"},
        {"$": "Engine"},
        {"$": "array", "type": "float64", "shape": [9], "in": "f8", "at": 10**9},
        {"$": "ref", "to": 10**6},
        7,
    ],
)
def test_a_document_that_was_tampered_with_runs_nothing(folder: Path, tmp_path: Path, change: Any) -> None:
    def tamper(name: str, content: bytes) -> bytes:
        if not name.endswith(store.DOCUMENT):
            return content
        document = json.loads(content)
        document["result"]["engine"] = change
        return json.dumps(document).encode()

    opened = rtlab.open(rewrite(moved(folder, tmp_path), tamper))
    assert not len(opened)
    assert {"ReadError"} == {type(e).__name__ for e in opened.state.failures.values()}


@pytest.mark.parametrize("path", ["none.rtlab", "", "tiny.onnx", 3, None])
def test_what_is_no_saved_study_is_refused(folder: Path, path: Any) -> None:
    with pytest.raises(ReadError, match="Cannot open the study"):
        rtlab.open(folder / path if isinstance(path, str) else path)
    with pytest.raises(ReadError, match=r"it is a saved study\. Open it with rtlab\.open"):
        rtlab.read(folder / "study.rtlab")


class FullDisk(io.BytesIO):
    """A file on a disk that is full after some bytes."""

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > 2000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.write(piece)


def test_a_full_disk_loses_nothing_and_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    opened, old = rtlab.open(folder / "study.rtlab"), tmp_path / "old.rtlab"
    old.write_bytes(b"what was there")
    usual = Path.open

    def limited(path: Path, mode: str = "r", **more: Any) -> Any:
        if mode != "xb":
            return usual(path, mode, **more)
        usual(path, mode).close()
        return FullDisk()

    monkeypatch.setattr(Path, "open", limited)
    with pytest.raises(RtlabError, match=r"Cannot write the study to .*No space left on device"):
        opened.save(old)
    key, parts = entry_key(opened)
    with pytest.raises(RtlabError, match=r"Cannot write a result to .*No space left on device"):
        store.write_entry(tmp_path / "runs", key, store.encode_entry(opened["int8"].facts, parts))
    monkeypatch.undo()
    assert b"what was there" == old.read_bytes()
    assert ["old.rtlab", "runs"] == sorted(p.name for p in tmp_path.iterdir())
    assert [] == [*(tmp_path / "runs").iterdir()]
    assert 4 == len(opened)


def test_a_folder_that_is_none_and_the_models_own_file_are_refused(folder: Path) -> None:
    opened = rtlab.open(folder / "study.rtlab")
    with pytest.raises(RtlabError, match="there is no folder"):
        opened.save(folder / "none" / "x.rtlab")
    with pytest.raises(RtlabError, match="the model was read from this file"):
        opened.save(folder / "tiny.onnx")


def entry_key(study: rtlab.Study, name: str = "int8", **changes: Any) -> tuple[str, dict[str, Any]]:
    parts = {
        "model": store.hash_model(study.model),
        "data": store.describe_data(study.data, study.model),
        "task": store.hash_task(study.task, study.model),
    }
    return store.make_key(study[name].facts, **{**parts, **changes})


def test_an_entry_is_written_once_under_a_key_of_all_that_decides(folder: Path, tmp_path: Path) -> None:
    """Model, samples, task, choice and compiler are in the key, times are not; the second writer is no error."""
    study = rtlab.open(folder / "study.rtlab")
    key, parts = entry_key(study)
    facts = study["int8"].facts
    others = [
        entry_key(study, "even")[0],
        entry_key(study, model="m")[0],
        entry_key(study, data="d")[0],
        entry_key(study, task="t")[0],
        entry_key(study, samples=(1,))[0],
        entry_key(study, scales={"x": rtlab.CalibrationCache})[0],
    ]
    engine = dataclasses.replace(facts.engine, version="9")
    others.append(store.make_key(dataclasses.replace(facts, engine=engine), model="", data="", task="")[0])
    assert len({key, *others}) == 1 + len(others)
    assert (
        key
        == store.make_key(
            dataclasses.replace(facts, profile=None),
            model=parts["model"],
            data=parts["data"],
            task=parts["task"],
        )[0]
    )
    files = store.encode_entry(facts, parts)
    homes = {store.write_entry(tmp_path, key, files) for _ in range(2)}
    assert {tmp_path / key} == homes
    assert [key] == [p.name for p in tmp_path.iterdir()]
    read = store.read_entry(tmp_path / key, store.EntrySource(study.model))
    assert facts.errors is not None
    assert read.errors is not None
    assert read.errors.sums.keys() == facts.errors.sums.keys()
    assert all(np.array_equal(read.errors.sums[n], facts.errors.sums[n]) for n in facts.errors.sums)
    assert read.engine.layers == facts.engine.layers
    (tmp_path / key / store.ARRAYS).unlink()
    with pytest.raises(ReadError, match=r'"arrays\.npz" is missing'):
        store.read_entry(tmp_path / key, store.EntrySource(study.model))


HARD: tuple[Any, ...] = (
        0.1, float("inf"), float("-inf"), -0.0, 2**70, -(2**63), True, None, "", "\ud800", b"\0\xff", (), (1, (2,)),
        [1, 2], {1, 2}, frozenset({("a", "b")}), {"$": 1}, {("a", 1): "b"}, {"#": 2}, {"\udc00": 1}, np.float32(0.1),
        np.array(7), np.zeros((0, 3), np.float16), np.array(["a", "β"]), np.array(["a"], object), Path("a/b"),
        np.arange(6, dtype=">i4").reshape(2, 3)[:, ::2], np.array([True, False]), np.array([1 + 2j]),
)  # fmt: skip


@pytest.mark.parametrize("value", HARD, ids=repr)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    writer = records.RecordWriter()
    document = json.loads(store.format_document(writer.pack(value)))
    back = records.RecordReader(writer.encode_arrays()).unpack(document)
    if isinstance(value, (np.ndarray, np.generic)):
        assert (value.dtype.name, value.shape) == (back.dtype.name, back.shape)
        assert np.array_equal(value, back)
    else:
        assert (type(value), repr(value)) == (type(back), repr(back))


def test_small_floats_and_what_no_document_holds() -> None:
    import ml_dtypes

    writer = records.RecordWriter()
    array = np.array([1.5, -2, 0], ml_dtypes.bfloat16)
    document = writer.pack(array)
    back = records.RecordReader(writer.encode_arrays()).unpack(document)
    assert (array.dtype, [1.5, -2, 0]) == (back.dtype, back.astype(float).tolist())
    assert np.isnan(records.RecordReader().unpack(writer.pack(float("nan"))))
    with pytest.raises(TypeError, match="no document holds"):
        writer.pack(object())


def test_a_study_is_pickled_and_copied(folder: Path) -> None:
    study = rtlab.open(folder / "all.rtlab")
    for other in (pickle.loads(pickle.dumps(study)), copy.deepcopy(study), copy.copy(study)):
        assert answers(study) == answers(other)
        assert other.state.variants == study.state.variants
        other.remove("int8")
        assert "int8" in study


@pytest.mark.slow
def test_a_process_pool_takes_a_study_and_returns_one(folder: Path) -> None:
    with ProcessPoolExecutor(1) as pool:
        assert 4 == pool.submit(len, rtlab.open(folder / "study.rtlab")).result()
        assert "int8" in pool.submit(copy.copy, rtlab.open(folder / "study.rtlab")).result()


def test_a_metric_of_the_users_is_shown_and_not_run(folder: Path, tmp_path: Path) -> None:
    model = rtlab.load(folder / "tiny.onnx")
    data = own_data(model)

    def misses(outputs: Any, labels: Any) -> float:
        return float((np.asarray(outputs).argmax(1) != labels).mean())

    task = rtlab.Task(data, np.zeros(16, np.int64), metric=misses, higher=False)
    study = rtlab.Study(model, data=data, task=task)
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run(budget_s=5).save(tmp_path / "study.rtlab")
    opened = rtlab.open(tmp_path / "study.rtlab", data=data)
    assert answers(study) == {k: v.replace("../", "") for k, v in answers(opened).items()}
    assert opened.task is not None
    with pytest.raises(CalibrationError, match="it is a function of yours"):
        opened.task.score(np.zeros((16, 5)))
    assert misses is rtlab.open(tmp_path / "study.rtlab", task=task).task.metric


def test_selected_samples_and_those_set_aside_come_along(folder: Path, tmp_path: Path) -> None:
    study = rtlab.open(folder / "all.rtlab")
    everything = study["int8"].score
    study.accuracy.use_samples([1, 4, 7])
    study.save(tmp_path / "part.rtlab")
    opened = rtlab.open(tmp_path / "part.rtlab", model=folder / "tiny.onnx")
    assert (1, 4, 7) == opened.state.selected_samples
    assert without_recipes(answers(study)) == without_recipes(answers(opened))
    opened.accuracy.use_samples(None)
    assert everything == opened["int8"].score


def test_constants_of_an_opened_study_are_read_when_they_are_needed(folder: Path, monkeypatch: Any) -> None:
    """To open a study prepares nothing; the first number of a prepared model prepares that one."""
    names: list[str] = []
    usual = store.prepare_model
    monkeypatch.setattr(store, "prepare_model", lambda job: names.append(job.name) or usual(job))
    opened = rtlab.open(folder / "study.rtlab")
    answers(opened)
    prepared = opened["int8"].prepared.model
    assert "int8" not in names
    constants = [v.const_value for v in prepared.ir.graph.initializers.values()]
    next(c for c in constants if isinstance(c, DetachedWeight)).numpy()
    assert ["int8"] == names


def test_the_explorer_saves_and_says_where(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """A file of another study is never written over; its own is, and that is said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.rtlab").write_bytes(b"of somebody")
    explorer = rtlab.open(folder / "all.rtlab").explore()
    messages: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers=None: messages.append(content))
    for _ in range(2):
        explorer._receive(explorer, commands.SaveStudy().to_dict(), [])
        explorer.wait(60)
    path = tmp_path / "tiny 2.rtlab"
    first, second = (m for m in messages if m["type"] == "saved")
    assert first["text"].startswith(f'Saved: "{path}", ')
    assert second["text"].startswith(f'Saved again, over the file before: "{path}", ')
    assert "rtlab.open('tiny 2.rtlab')" == first["python"]
    assert b"of somebody" == (tmp_path / "tiny.rtlab").read_bytes()
    assert ["tiny 2.rtlab", "tiny.rtlab"] == sorted(p.name for p in tmp_path.iterdir())
    other = rtlab.Study(tiny_model()).explore()
    other.load(path).wait(60)
    assert other.failure is None
    assert ["fp32", "int8", "even", "fp16"] == [*other.study]
    assert 4 == len(rtlab.explore(path).study)


def test_a_page_finds_no_model_outside_of_its_folders(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """A study names a model by any path; whoever is served the page opens none with it, nor drops one to find it."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(folder / "tiny.onnx", tmp_path / "tiny.onnx")
    rtlab.open(folder / "study.rtlab", model=tmp_path / "tiny.onnx").save(home / "study.rtlab")
    assert not rtlab.open(home / "study.rtlab").model.weightless
    monkeypatch.chdir(home)
    explorer = rtlab.Study(tiny_model()).explore()
    explorer._receive(explorer, commands.OpenNamed("study.rtlab").to_dict(), [])
    explorer.wait(60)
    assert (4, True) == (len(explorer.study), explorer.study.model.weightless)
    content = rewrite(home / "study.rtlab", point_to(tmp_path / "tiny.onnx")).read_bytes()
    dropped = rtlab.Study(tiny_model()).explore()
    dropped._receive(dropped, commands.ReadDropped(["study.rtlab"]).to_dict(), [content])
    dropped.wait(60)
    assert (4, True) == (len(dropped.study), dropped.study.model.weightless)


def point_to(model: Path) -> Callable[[str, bytes], bytes]:
    """Lets a study say that its model lies at an absolute path."""

    def change(name: str, content: bytes) -> bytes:
        if name != "study.json":
            return content
        document = json.loads(content)
        document["model"]["place"] = str(model)
        return json.dumps(document).encode()

    return change


@pytest.mark.parametrize("constant", [False, True])
def test_a_structure_keeps_the_floats_that_decide_about_sizes(tmp_path: Path, constant: bool) -> None:
    """The scales of a Resize, 1 x 1 x 2 x 3, are no weights: 4 x 5 pixels become 8 x 15; a bias beside them is one."""
    scales = helper.make_tensor("scales", onnx.TensorProto.FLOAT, [4], [1, 1, 2, 3])
    bias = helper.make_tensor("bias", onnx.TensorProto.FLOAT, [3, 1, 1], [0.25, 0.5, 0.75])
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["big"]),
        helper.make_node("Add", ["big", "bias"], ["y"]),
    ]
    if constant:
        nodes[:0] = [helper.make_node("Constant", [], [t.name], value=t) for t in (scales, bias)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, 4, 5])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 3, "H", "W"])
    graph = helper.make_graph(nodes, "resize", [x], [y], [] if constant else [scales, bias])
    model = rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    study = rtlab.Study(model)
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run(budget_s=0).save(tmp_path / "study.rtlab")
    opened = rtlab.open(tmp_path / "study.rtlab")
    assert opened.model.weightless
    assert (2, 3, 8, 15) == model.sizes(batch=2).get("big") == opened.model.sizes(batch=2).get("big")
    with pytest.raises(ModelError, match=r'Cannot read the weights "bias": they are not in the saved study'):
        opened.model.bytes()


@scenes.of(scenes.SUBJECTS)
@pytest.mark.slow(but="^(two_outputs|written)$")
def test_every_answer_of_the_golden_studies_comes_back(subject: str, tmp_path: Path) -> None:
    """Samples in three precisions, models made in memory, and engines that were read from files."""
    study = scenes.study(subject)
    study.save(tmp_path / "study.rtlab")
    opened = rtlab.open(tmp_path / "study.rtlab")
    before, after = answers(study), answers(opened)
    assert before.keys() == after.keys()
    different = {k: (before[k], after[k]) for k in before if before[k] != after[k]}
    assert {} == {k: v for k, v in different.items() if "weights are needed" not in v[1]}


CHILD = """
import json, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
import rtlab
from test_saving import answers
print(json.dumps(answers(rtlab.open(sys.argv[2]))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_inception", "sentences"])
def test_a_fresh_process_shows_every_number(name: str, tmp_path: Path) -> None:
    sample = rtlab.samples.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.add("int8", target="cpu", backend="onnxruntime")
    study.add("fp16", target="sm86")
    study.run(budget_s=4)
    study.accuracy.diagnose("int8")
    path = study.save(tmp_path / "study.rtlab")
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert not child.returncode, child.stderr
    assert answers(study) == json.loads(child.stdout)
