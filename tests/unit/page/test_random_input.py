"""Numbers on noise are no findings: whatever shows them says so, until the model's own data is there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from nets import fp32_proto
from rtlab import CalibrationData, Study, load
from rtlab.backends.readers.recognise import holds_arrays
from rtlab.errors import CalibrationError
from rtlab.testing import tiny_model
from rtlab.web.page import charts, chrome
from rtlab.web.page.document import build_variant_document
from rtlab.web.page.graph import engine_view
from rtlab.web.report.html import collect_payloads


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


def marks_of(study: Study) -> dict[str, str]:
    """Everything that is shown of the int8 variant where its errors are shown."""
    view = engine_view(study["int8"].facts, study.model)
    snapshot = study.state
    (error,) = [o for o in view["overlays"] if o["id"] == "error"]
    chart = charts.draw_errors(view)
    return {
        "status": " ".join(s["text"] for s in chrome.list_status(snapshot, "int8") if s["warning"]),
        "table": study._repr_html_(), "overlay": error["title"] + error["source"],
        "chart": chart["layout"]["title"]["text"], "hover": chart["data"][0]["hovertemplate"],
        "python": repr(study["int8"].accuracy),
        "report status": str([v["status"] for v in collect_payloads(snapshot)["variants"] if v["id"] == "int8"]),
    }  # fmt: skip


def test_wherever_errors_on_noise_are_shown_it_is_said(noise, real) -> None:
    """A reader sees one of them alone; and no value on noise is called the worst."""
    assert [] == [k for k, text in marks_of(noise).items() if "random input" not in text]
    assert [] == [k for k, text in marks_of(real).items() if "random" in text or "noise" in text]
    assert [False, True] == ["worst" in marks_of(s)["chart"] for s in (noise, real)]
    for study, told in ((noise, "errors and scales"), (real, "")):
        chips = chrome.build_chips(study.state, baseline="fp32")
        assert [told] * 2 == [
            c["random"]
            for s in (chips, collect_payloads(study.state)["chips"])
            for c in s
            if c["id"] == "int8"
        ]


def test_where_nothing_is_quantized_no_scale_rests_on_noise_and_that_is_a_warning() -> None:
    """The weight of the one product is computed, so that it has no form in INT8."""
    nodes = [
        onnx.helper.make_node("Neg", ["w"], ["v"], "negate"),
        onnx.helper.make_node("MatMul", ["x", "v"], ["y"], "product"),
    ]
    study = Study(load(fp32_proto(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"w": np.eye(4, dtype=np.float32)})))
    study.add("int8", calibrator="minmax", target="cpu")
    status = list(chrome.list_status(study.run().state, "int8"))
    assert ["no node has an INT8 form here: the model is unchanged"] == [
        s["text"] for s in status if s["warning"]
    ]
    assert not study["int8"].random_scales


def test_the_document_tells_what_rests_on_noise(noise, real) -> None:
    """A program that reads the JSON must not take noise for accuracy; what was not measured is no answer."""
    told = [build_variant_document(s["int8"].facts, s.model)["random_input"] for s in (noise, real)]
    assert [{"accuracy": True, "scales": True}, {"accuracy": False, "scales": False}] == told
    assert None is build_variant_document(noise["fp32"].facts, noise.model)["random_input"]["scales"]


def test_data_that_comes_later_is_used_for_what_rested_on_noise(model) -> None:
    study = built(model, None)
    before = study["int8"]
    with pytest.raises(CalibrationError):
        study.accuracy.use_samples(data={"other": np.zeros((2, 3), np.float32)})
    study.accuracy.use_samples(data=own(model))
    assert study["int8"] is before
    assert [False, True] == [study.state.is_outdated(n) for n in ("missing", "int8")]
    study.run()
    assert not study["int8"].accuracy.synthetic
    assert not study["int8"].random_scales
    assert before.prepared.scales != study["int8"].prepared.scales
    assert not study.state.is_outdated("int8")


@pytest.mark.parametrize(
    ("name", "how"), [("d.npz", np.savez), ("d.npz", np.savez_compressed), ("d.npy", np.save)]
)
def test_arrays_are_known_by_what_is_in_the_file(tmp_path, name: str, how) -> None:
    path = tmp_path / name
    how(path, np.zeros((2, 3), np.float32))
    assert holds_arrays(path.rename(tmp_path / "no suffix"))
