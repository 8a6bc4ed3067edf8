"""The table of fusion rules that rtlab brings along is what TensorRT-RTX does, and what was found by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import releases
import rtlab
from rtlab import backends, cli
from rtlab.questions import rules
from rtlab.session.cataloguing import ask_rules
from rtlab.testing import tiny_model

RTX = backends.get("tensorrt-rtx")
SHIPPED = rules.shipped("tensorrt-rtx", "sm86")
PAGE = Path(__file__).parents[2] / "docs" / "fusion-rules.md"
#: What was found by hand with release 1.7, or is told by the layer counts of whole networks.
BY_HAND = {
    "conv-batchnorm-relu": "fused",
    "conv-add-relu": "fused",
    "conv-silu": "fused",
    # A planted output or reader keeps a fusion from happening; casts are absorbed.
    "conv-output-relu": "apart",
    "conv-reader-relu": "apart",
    "conv-cast-relu": "fused",
    # Nothing makes one step of an activation and a pooling.
    "conv-relu-maxpool": "apart",
    # GoogLeNet keeps its 57 convolutions, and eight of nine concatenations go.
    "siblings-1x1-relu": "apart",
    "concat-relu": "gone",
    # Twenty builds: an INT8 convolution never shares a step with its requantization.
    "int8-conv-requantize": "apart",
    "int8-conv-relu-requantize": "apart",
    "int8-conv-tensor-requantize": "apart",
    "attention-fp16": "fused",
}

needs_rtx = pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)


def test_what_was_found_by_hand_stands_in_the_table() -> None:
    found = {r.case: r.found for r in SHIPPED.rules}
    assert BY_HAND == {name: found[name] for name in BY_HAND}


def test_the_page_of_the_documentation_is_the_table() -> None:
    """Written by ``rtlab rules -o docs/fusion-rules.md``."""
    assert PAGE.read_text("utf-8") == rules.markdown(rules.tables()[0])


@needs_rtx
def test_the_compiler_answers_the_whole_catalogue_as_the_table_says() -> None:
    if RTX.availability().version != SHIPPED.version:
        pytest.skip(f"The table is of {SHIPPED.version}.")
    found = ask_rules("tensorrt-rtx", "sm86")
    assert dataclasses.replace(SHIPPED, date=found.date) == found


@needs_rtx
def test_the_study_of_an_engine_is_told_the_rules_of_its_compiler() -> None:
    study = rtlab.Study(tiny_model())
    study.add("fp32", target="sm86", backend="tensorrt-rtx")
    study.run(compare=False)
    told = study.ask("rules", variant="fp32")
    assert SHIPPED.compiler == told.noun.compiler
    assert len(told.noun.rules) == len(told.frame())


@needs_rtx
def test_int8_is_told_to_requantize_outside_beside_the_layers_of_fp32() -> None:
    """By release 1.7: INT8 has more layers than FP32, though each of its convolutions has fewer bytes to read."""
    sample = rtlab.samples.load("digits_inception")
    study = rtlab.Study(sample.model, data=sample.calibration)
    for name in ("fp32", "fp16", "int8"):
        study.add(name, precision=name, target="sm86", backend="tensorrt-rtx")
    study.run(compare=False)
    rule = "requantized-outside"
    assert [[], []] == [[f for f in study.findings(n) if f.rule == rule] for n in ("fp32", "fp16")]
    found = [f for f in study.findings("int8") if f.rule == rule]
    engine = study["int8"].engine
    convolutions = [y for y in engine.layers if y.kind == "correlation"]
    writing = {t.name for y in convolutions for t in y.outputs if t.dtype == "fp32"}
    made = [y for y in engine.layers if "Roun" in y.name and writing & {t.name for t in y.inputs}]
    assert 1 == len(found)
    assert {y.id for y in made} == {*found[0].layers}
    assert f"behind {len(convolutions)} of {len(convolutions)}, {len(made)} generated steps" in found[0].title
    layers = [len(study[n].engine.layers) - study[n].engine.sync for n in ("fp32", "int8")]
    told = f'The same model has {layers[0]} layers as "fp32" and {layers[1]} as "int8".'
    assert found[0].evidence.endswith(told)
    assert (
        told in next(f for f in study.ask("findings", variant="int8").noun.items if f.rule == rule).evidence
    )


@pytest.mark.parametrize(
    "told", [["--compiler", releases.QUICK], ["--compiler", "1.6", "--backend", "tensorrt-rtx"]]
)
def test_a_release_that_is_kept_is_asked_the_catalogue(told, capsys) -> None:
    if why := releases.missing(releases.QUICK):
        pytest.skip(why)
    assert 0 == cli.main(
        ["rules", "--build", "--target", "sm86", "--case", "conv-relu-fp16", "--json", *told]
    )
    found = json.loads(capsys.readouterr().out)
    assert ("TensorRT-RTX", releases.QUICK) == (found["compiler"], found["version"])
    assert ["fused"] == [r["found"] for r in found["rules"]]


def test_a_release_of_another_backend_and_a_table_that_there_is_not_are_refused(capsys) -> None:
    assert 1 == cli.main(["rules", "--compiler", "1.6"])
    assert 'Cannot show what "1.6" fuses: there are tables of' in capsys.readouterr().err
    if why := releases.missing(releases.QUICK):
        pytest.skip(why)
    assert 1 == cli.main(["rules", "--build", "--backend", "onnxruntime", "--compiler", releases.QUICK])
    assert "it is a release of another backend" in capsys.readouterr().err
