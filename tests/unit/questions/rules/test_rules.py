"""The catalogue of fusions: its cases, what agreement means, and the tables as files."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import onnxruntime
import pytest

import rtlab
from rtlab import cli
from rtlab.core.engine import Engine, Layer
from rtlab.core.maker import TENSORRT, Maker
from rtlab.core.protocols import Target
from rtlab.errors import ReadError
from rtlab.experiments.experiment import Rig, carry_out
from rtlab.experiments.rules import RuleTable, cases
from rtlab.questions import rules
from rtlab.questions.rules import FusionRules, RuleOutcome
from ruled import Ruled

TABLE = FusionRules(
    "Some compiler",
    "2.0",
    "sm86",
    "2026-01-31",
    (
        RuleOutcome("a", "One", "Conv | Relu", "fused", "fused", "a page", "sm86", 3),
        RuleOutcome("b", "Two", "Conv | Add", "fused", "apart", "a page", "sm86", 4),
        RuleOutcome("c", "Three", "Concat", "gone", "fused", "a page", "sm86", 4),
        RuleOutcome("d", "Four", "Relu | Relu", "fused", "gone", "a page", "sm86", 4),
        RuleOutcome("e", "Five", "Conv | Mul", "apart", "gone", "a page", "sm86", 4),
        RuleOutcome("f", "Six", "Conv | Conv", "", "apart", "no rule", "sm86", 4),
        RuleOutcome("g", "Seven", "Conv | Conv", "fused", "", "a page", "sm86", None, "Refused."),
    ),
)


def test_a_node_without_a_step_is_as_good_as_one_that_shares_a_step() -> None:
    told = ["agrees", "differs", "agrees", "agrees", "differs", "not applicable", "not applicable"]
    assert told == [r.agreement for r in TABLE.rules]
    assert (3, 2, 2) == (TABLE.agrees, TABLE.differs, TABLE.rest)


def test_a_table_is_read_as_it_was_written(tmp_path) -> None:
    rules.save(TABLE, tmp_path / "table.json")
    assert TABLE == rules.read((tmp_path / "table.json").read_text("utf-8"))
    rules.save(TABLE, tmp_path / "table.md")
    page = (tmp_path / "table.md").read_text("utf-8")
    assert page.index("documentation says: 2") < page.index("As documented: 3") < page.index("or refused: 2")
    assert "| Two | Conv and Add | fused | apart | a page |" in page


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rules": [{"case": "a"}]}', '{"rules": 3}', "null"])
def test_what_is_no_table_is_refused(text) -> None:
    with pytest.raises(ReadError, match=r"Cannot read a table of fusion rules: .* Make it anew"):
        rules.read(text)


def test_the_catalogue_has_eighty_cases_and_more_each_of_its_own_name() -> None:
    names = [c.name for c in cases()]
    assert 80 <= len(names)
    assert len(names) == len({*names})
    assert len(names) == len({c.title for c in cases()})
    for case in cases():
        assert case.documented in {"fused", "apart", "gone", ""}, case.name
        assert bool(case.documented) == (not case.source.startswith("no rule")), case.name


def test_each_case_is_a_sound_model_with_the_nodes_that_it_asks_about() -> None:
    for case in cases():
        onnx.checker.check_model(case.model.proto(), full_check=True)
        asked = {n for side in case.pair for n in side}
        assert asked <= {*case.model.by_id}, case.name
        # Nothing that is asked about is an output, which a compiler writes in another layout.
        ends = {n.id for n in case.model.top if {*n.outputs} & {*case.model.outputs}}
        # TopK's places are of a type that no neutral reader reads.
        assert not (ends & asked) or case.outputs or case.name == "softmax-topk", case.name


@pytest.mark.slow
def test_a_case_computes_numbers() -> None:
    """A case whose numbers are all zero might be folded away."""
    for case in cases():
        # ONNX Runtime has no sum in BF16 on a CPU.
        narrow = any(v.dtype == "bf16" for v in case.model.values.values())
        if narrow or case.precision.value in {"fp8", "int4"} or case.profile is not None:
            continue
        session = onnxruntime.InferenceSession(
            case.model.proto().SerializeToString(), providers=["CPUExecutionProvider"]
        )
        rng = np.random.default_rng(0)
        given = {
            i.name: rng.integers(0, 9, i.shape)
            if i.type == "tensor(int64)"
            else np.abs(rng.normal(0, 1, i.shape)).astype(np.float16 if "16" in i.type else np.float32)
            for i in session.get_inputs()
        }
        for name, out in zip(case.model.outputs, session.run(None, given), strict=True):
            assert np.isfinite(out).all(), (case.name, name)
            assert (out != 0).any(), (case.name, name)


def test_a_compiler_is_asked_and_one_that_refuses_is_no_answer() -> None:
    """``Ruled`` joins Relu and BatchNormalization to what they read alone, and nothing else."""
    wanted = {"conv-relu", "conv-batchnorm-relu", "conv-sigmoid", "conv-reader-relu", "concat"}
    asked = [c for c in cases() if c.name in wanted]
    tool = Ruled({"Concat"})
    found = carry_out(RuleTable("ruled", "Ruled", "1.0", Target("cpu"), asked), Rig(tool, None))
    fates = {r.case: (r.found, r.agreement) for r in found.rules}
    assert {
        "conv-relu": ("fused", "agrees"),
        "conv-batchnorm-relu": ("fused", "agrees"),
        "conv-sigmoid": ("apart", "differs"),
        "conv-reader-relu": ("apart", "not applicable"),
        "concat": ("", "not applicable"),
    } == fates
    refused = next(r for r in found.rules if r.case == "concat")
    assert (None, True) == (refused.layers, "it refuses Concat" in refused.refused)


def test_an_engine_is_given_the_rules_of_its_release_or_of_the_newest() -> None:
    newest = rules.tables()[0]
    engine = Engine(
        backend="tensorrt-rtx",
        version=newest.version,
        target=Target("sm86"),
        layers=(Layer("0", "0", "kgen", 0),),
        maker=Maker(newest.compiler, TENSORRT),
    )
    assert newest is rules.of(engine)
    assert newest is rules.of(dataclasses.replace(engine, version="99.9"))
    with pytest.raises(ReadError, match="nobody asked this compiler the catalogue of cases yet"):
        rules.of(dataclasses.replace(engine, maker=Maker("Another")))


def test_the_command_line_shows_the_table_that_is_brought_along(capsys, tmp_path) -> None:
    path = tmp_path / "rules.json"
    assert 0 == cli.main(["rules", "--case", "conv-relu-maxpool", "-o", str(path)])
    words = capsys.readouterr().out
    assert "conv-relu-maxpool" in words
    assert "0 as documented, 1 not, 0 without a rule or an answer" in words
    assert 1 == len(rules.read(path.read_text("utf-8")).rules)
    assert 0 == cli.main(["rules", "--json"])
    assert len(cases()) == len(json.loads(capsys.readouterr().out)["rules"])
    for given, said in (
        (["--case", "nothing"], 'Cannot show the case "nothing"'),
        (["--backend", "other"], 'Cannot show what "other" fuses'),
    ):
        assert 1 == cli.main(["rules", *given])
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_is_asked_what_its_compiler_fuses() -> None:
    study = rtlab.Study(rtlab.samples.load("digits_inception").model)
    study.add("here", backend="onnxruntime")
    study.run(compare=False)
    with pytest.raises(ReadError, match="nobody asked this compiler"):
        study.ask("rules", variant="here")


def test_a_table_is_of_the_release_that_is_named() -> None:
    newest = rules.tables()[0]
    major, minor = newest.version.split(".")[:2]
    assert newest == rules.shipped("tensorrt-rtx", None, f"{major}.{minor}")
    assert newest == rules.shipped(release=newest.version)
    with pytest.raises(ReadError, match=f'Cannot show what "tensorrt-rtx {minor}" fuses: .* Give --build'):
        rules.shipped("tensorrt-rtx", None, minor)
    with pytest.raises(ReadError, match=f"{major}.{minor[:-1]}"):
        rules.shipped(None, None, f"{newest.version[:-1]}")
