"""Numbers on noise are no findings: whatever shows them says so, until the model's own data is there."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rtlab import CalibrationData, Study
from rtlab.backends.files.recognise import holds_arrays
from rtlab.documents.commands import ReadDropped
from rtlab.documents.payload import decode
from rtlab.errors import CalibrationError
from rtlab.report import saved
from rtlab.testing import tiny_model
from rtlab.view import charts, chrome
from rtlab.view.document import document
from rtlab.view.graph import engine_view


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def own(model, samples: int = 8) -> dict[str, np.ndarray]:
    """Arrays as a user has them: nothing about them says where they come from."""
    return dict(CalibrationData.random(model, samples=samples, seed=3).arrays)


def built(model, data) -> Study:
    study = Study(model, data=data)
    study.add("fp32", target="cpu")
    study.add("int8", calibrator="minmax", target="cpu")
    return study.run()


@pytest.fixture(scope="module")
def noise(model) -> Study:
    return built(model, None)


@pytest.fixture(scope="module")
def real(model) -> Study:
    return built(model, own(model))


def words_of(study: Study) -> dict[str, str]:
    """Everything that is shown of the int8 variant where its errors are shown."""
    view = engine_view(study["int8"].facts, study.model)
    chip = next(c for c in chrome.chips(study.snapshot(), baseline="fp32") if c["id"] == "int8")
    (error,) = [o for o in view["overlays"] if o["id"] == "error"]
    kept = saved(study.snapshot())
    return {
        "chip": chip["random"],
        "status": " ".join(s["text"] for s in chrome.status(study.snapshot(), "int8") if s["warning"]),
        "table": study._repr_html_(),
        "overlay": error["title"] + error["source"],
        "chart": charts.accuracy(view)["layout"]["title"]["text"],
        "hover": charts.accuracy(view)["data"][0]["hovertemplate"],
        "python": repr(study["int8"].accuracy),
        "report chip": next(c["random"] for c in kept["chips"] if c["id"] == "int8"),
        "report status": json.dumps([v["status"] for v in kept["variants"] if v["id"] == "int8"]),
    }


def test_wherever_errors_on_noise_are_shown_it_is_said(noise) -> None:
    """A reader sees one of them alone."""
    silent = [
        k for k, text in words_of(noise).items() if "random input" not in text and text != "errors and scales"
    ]
    assert [] == silent


def test_on_noise_no_value_is_called_the_worst(noise, real) -> None:
    """A number in the title stands there like a finding."""
    titles = [
        charts.accuracy(engine_view(s["int8"].facts, s.model))["layout"]["title"]["text"]
        for s in (noise, real)
    ]
    assert [False, True] == ["worst" in t for t in titles]


def test_the_document_tells_what_rests_on_noise(noise, real) -> None:
    """A program that reads the JSON must not take noise for accuracy; what was not measured is no answer."""
    told = [document(s["int8"].facts, s.model)["random_input"] for s in (noise, real)]
    assert [{"accuracy": True, "scales": True}, {"accuracy": False, "scales": False}] == told
    assert None is document(noise["fp32"].facts, noise.model)["random_input"]["scales"]


def test_data_that_comes_later_is_used_for_what_rested_on_noise(model) -> None:
    """What is built stays until it is run again, and says what it rests on."""
    study = built(model, None)
    before = study["int8"]
    study.use(own(model))

    assert study["int8"] is before
    assert [False, True] == [study.outdated(n) for n in ("missing", "int8")]

    study.run()
    assert not study["int8"].accuracy.synthetic
    assert not study["int8"].random_scales
    assert before.prepared.scales != study["int8"].prepared.scales
    assert not study.outdated("int8")


@pytest.mark.parametrize(
    ("name", "how"), [("d.npz", np.savez), ("d.npz", np.savez_compressed), ("d.npy", np.save)]
)
def test_arrays_are_known_by_what_is_in_the_file(tmp_path, name: str, how) -> None:
    path = tmp_path / name
    how(path, np.zeros((2, 3), np.float32))
    other = path.rename(tmp_path / "no suffix")

    assert holds_arrays(other)


def drop(explorer, *files) -> None:
    asked = ReadDropped([f.name for f in files])
    explorer._receive(explorer, asked.crossing(), [f.read_bytes() for f in files])
    explorer.wait(120)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["samples.npz", "samples.npy"])
def test_dropping_samples_builds_the_variant_on_screen_on_them(tmp_path, model, name: str) -> None:
    """The others stay, and say that they rest on noise, until somebody builds them."""
    study = built(model, None)
    study.add("fp16", target="cpu")
    study.run()
    (array,) = own(model).values()
    explorer = study.explore()
    explorer.show("int8")
    assert explorer.data["random"]
    assert "⚠" in explorer.charts["accuracy"]["layout"]["title"]["text"]

    path = tmp_path / name
    np.savez(path, anything=array) if name.endswith("z") else np.save(path, array)
    drop(explorer, path)

    assert explorer.failure is None
    assert [name, False] == [explorer.data["source"], explorer.data["random"]]
    assert "int8" == explorer.state.variant
    random = {c["id"]: c["random"] for c in explorer.chips}
    assert {"int8": "", "fp16": "errors"} == {n: random[n] for n in ("int8", "fp16")}
    # The numbers of a stage follow the picture.
    (error,) = [o for o in decode(explorer.engine_later)["overlays"] if o["id"] == "error"]
    assert "SQNR" == error["title"]
    assert "⚠" not in explorer.charts["accuracy"]["layout"]["title"]["text"]


def test_errors_on_data_of_ones_own_bear_no_mark(real) -> None:
    assert [] == [k for k, text in words_of(real).items() if "random" in text or "noise" in text]


def test_data_that_does_not_fit_changes_nothing(model) -> None:
    study = built(model, None)
    data = study.data
    with pytest.raises(CalibrationError, match='Cannot use arrays as data for model "tiny"'):
        study.use({"other": np.zeros((2, 3), np.float32)})

    assert data is study.data
