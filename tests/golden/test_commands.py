"""What commands print: stories of several commands on one folder; and what they and the code take by default."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import rtlab
import scenes
from golden.test_page import _FILES, _MODEL, WRITTEN, anonymous
from rtlab.backends import compilers
from rtlab.cli import arguments, main, opening
from rtlab.cli.notebooks import lab
from rtlab.core.protocols import Availability
from rtlab.experiments.doctor import Probe, Report
from rtlab.testing import tiny_model
from ruled import Ruled

_CPU = ["--target", "cpu", "--backend", "onnxruntime"]
_INT8 = [*_CPU, "--precision", "int8", "--calibrator", "minmax"]
_DATA = ["--data", "FOLDER/d.npz"]
_LABELS = [*_DATA, "--labels", "FOLDER/l.npy"]
_ENGINE = ["check", _MODEL, "--engine"]
#: Commands of one folder, one after the other, by the name of their file.
STORIES: dict[str, list[list[str]]] = {
    "inspect": [
        ["inspect", "MODEL", *_INT8, *_LABELS, "--metric", "top-2"],
        ["inspect", "MODEL", *_INT8, *_DATA, "--ask", "score", "--metric", "cosine"],
        ["inspect", "MODEL", *_INT8, "--pin", "head=fp32", "--sparsity", "mix", "--calibrate", "r1=percentile(99.9)",
         "--treat", "equalize", "--weights", "tensor", "--no-run"],
        ["inspect", "MODEL", *_CPU, *_DATA, "--budget", "0", "--save", "FOLDER/b.json"],
        ["inspect", "MODEL", "--metric", "top-1"],
    ],
    "prepare": [
        ["prepare", "MODEL", "-o", "FOLDER/a.onnx", "--cache", "FOLDER/a.cache", "--cache-version", "8601"],
        ["prepare", "MODEL", "-o", "FOLDER/b.onnx", "--scales", "FOLDER/a.cache", "--json"],
        ["prepare", "MODEL", "-o", "FOLDER/c.onnx", "--precision", "fp16", "--pin", "op:Conv=fp32"],
        ["prepare", "MODEL", "-o", "FOLDER/d.onnx", *_DATA, "--sparsity", "--json"],
    ],
    "report": [
        ["report", "MODEL", "-o", "FOLDER/r.html", "--markdown", "FOLDER/r.md", "--json", "FOLDER/r.json",
         "--precision", "fp32", "--precision", "fp16", *_CPU, "--no-run"],
        ["report", "MODEL", "--steps", "FOLDER/d.npz", "-o", "FOLDER/other.html"],
    ],
    "check": [
        [*_ENGINE, *_FILES["fp16"], "--save", "FOLDER/b.json", "--junit", "FOLDER/b.xml", "--markdown", "FOLDER/b.md"],
        [*_ENGINE, *_FILES["int8"], "--against", "FOLDER/b.json", "--max-latency-regression", "20%"],
        [*_ENGINE, *_FILES["int8"], "--against", "FOLDER/b.json", "--fail-on", "findings", "--save", "FOLDER/c.json"],
        [*_ENGINE, *_FILES["fp16"], "--max-drop", "1", "--sure"],
        ["check", "nothing.onnx", "--junit", "FOLDER/d.xml"],
        ["check", "MODEL", *_CPU, "--no-run", "--precision", "fp16"],
        ["check", "MODEL", *_INT8, *_DATA, "--max-drop", "100"],
        ["check", "MODEL", *_INT8, *_DATA, "--max-drop", "0", "--sure"],
    ],
    "compare": [
        ["compare", WRITTEN["fp16"], WRITTEN["fp16"]],
        ["compare", "fp32", "fp16", "--model", "MODEL", "--target", "cpu"],
        ["compare", "fp32", "int8"],
        ["compare", "fp32", "compilers"],
    ],
    "read": [
        ["read", *_FILES["fp16"], "--output-html", "FOLDER/e.html"],
        ["read", "--ask", "nothing", *_FILES["fp16"]],
    ],
    "sensitivity": [["sensitivity", "MODEL", *_DATA, "--verify", "0", "--asks", "released", "--calibrator", "minmax"]],
    "rules": [
        ["rules", "--backend", "tensorrt-rtx", "--case", "conv*relu*"],
        ["rules", "--backend", "tensorrt-rtx", "--case", "conv-prelu", "--json", "-o", "FOLDER/r.md"],
        ["rules", "--build", "--case", "nothing"],
    ],
}  # fmt: skip
#: Of what a run takes and when it is, in the column of a table too.
_WHEN = [
    (re.compile(r"\b\d[\d.e−-]* s\b *"), "... s "),
    (re.compile(r"\b20\d\d-\d\d-\d\d([ T]\d\d:\d\d[\d:.+Z]*)?"), "<date>"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, six samples of it, and their labels."""
    (tmp_path / "model.onnx").write_bytes(scenes.two_outputs().SerializeToString())
    image = np.random.default_rng(0).standard_normal((6, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", image=image)
    np.save(tmp_path / "l.npy", np.arange(6))
    return tmp_path


def printed(commands: list[list[str]], folder: Path, capsys: Any) -> dict[str, Any]:
    """The exit code of each command, and what it prints and writes."""
    found: dict[str, Any] = {}
    for i, command in enumerate(commands):
        before = {*folder.iterdir()}
        code = main(
            [a.replace("MODEL", str(folder / "model.onnx")).replace("FOLDER", str(folder)) for a in command]
        )
        texts = [anonymous(text, folder) for text in capsys.readouterr()]
        for pattern, instead in _WHEN:
            texts = [pattern.sub(instead, text) for text in texts]
        out, err = (text.splitlines() for text in texts)
        files = sorted(p.name for p in {*folder.iterdir()} - before)
        found[f"{i} {command[0]}"] = {"code": code, "out": out, "err": err, "files": files}
    return found


@pytest.mark.parametrize("story", STORIES)
def test_commands_print_and_write_what_the_file_says(
    story: str, folder: Path, golden: Any, capsys: Any
) -> None:
    with scenes.timeless():
        golden(f"commands/story-{story}.json", printed(STORIES[story], folder, capsys), rel=1e-2, least=1e-6)


class Other(Ruled):
    """A second release, in which sums stand alone."""

    name = "other"

    def _makers(self, model: Any, node: str) -> list[str]:
        return [] if model.by_id[node].op == "Add" else super()._makers(model, node)

    def build(self, request: Any, progress: Any) -> Any:
        """With a name of its own."""
        return dataclasses.replace(super().build(request, progress), backend=self.name)


class Released(rtlab.Study):
    """A study in which two releases of a compiler are backends of the tests."""

    def add(self, name: str, *, compiler: str | None = None, **choice: Any) -> str:
        """A variant by one of them."""
        backend = {"1.6": Other(), "1.7": Ruled()}.get(compiler or "1.7")
        return super().add(name, precision="fp32", backend=backend)


COMPILED: dict[str, list[list[str]]] = {
    "why": [
        ["why", "MODEL", "stem/Conv", "stem/BatchNormalization", "-o", "FOLDER/w.json"],
        ["why", "MODEL", "stem/Relu", "left/Conv", "--builds", "9", "-o", "FOLDER/v.json"],
        ["why", "MODEL", "stem/Relu", "left/Conv", "--builds", "9"],
        ["why", "MODEL", "stem/Conv", "-o", "FOLDER/s.json"],
        ["why", "MODEL", "--replay", "FOLDER/v.json"],
        ["why", "MODEL", "--replay", "FOLDER/s.json"],
        ["why", "MODEL", "--json"],
    ],
    "advise": [["advise", "MODEL"], ["advise", "MODEL", "--seconds", "0"]],
    "bisect": [
        ["bisect", "MODEL", "--compiler", "1.6", "1.7", "-o", "FOLDER/found"],
        ["bisect", "MODEL", "--compiler", "1.6", "1.7", "--json", "--builds", "4"],
        ["bisect", "MODEL", "--compiler", "1.6"],
    ],
}


@pytest.mark.parametrize("story", COMPILED)
def test_questions_to_a_compiler_print_what_the_file_says(
    story: str, folder: Path, golden: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(opening, "opened", lambda _: Released(tiny_model(batch=1)))
    golden(f"commands/story-{story}.json", printed(COMPILED[story], folder, capsys), rel=1e-2, least=1e-6)


def test_what_is_here_is_listed_as_the_file_says(
    tmp_path: Path, golden: Any, capsys: Any, monkeypatch: Any
) -> None:
    """Backends, releases and a check of the machine, all invented; what is added is told with its size."""
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "compilers"))
    table = {"one": Availability(ok=True, version="1.2"), "another": Availability(ok=False, reason="No.")}
    monkeypatch.setattr("rtlab.study.available", lambda: table)
    added = tmp_path / "1.5.0.114"
    added.mkdir()
    (added / "library.so").write_bytes(bytes(3 << 20))
    known = [
        compilers.Compiler("1.5.0.114", "tensorrt-rtx:1.5.0.114", added),
        compilers.Compiler("1.6.1.120", "tensorrt-rtx:1.6.1.120", recorded=True),
    ]
    started = iter(
        [compilers.Started(routes=("a", "b")), compilers.Started(routes=()), compilers.Started()] * 2
    )
    monkeypatch.setattr(compilers, "known", lambda: tuple(known))
    monkeypatch.setattr(compilers.Compiler, "tried", lambda *_: next(started))
    monkeypatch.setattr(compilers, "add", lambda version, **_: known[version != "1.5"])
    monkeypatch.setattr(compilers, "remove", lambda _: known[0])
    report = Report({"rtlab": "1"}, (Probe("a", "ok", "seen", 1.0), Probe("b", "failed", "not seen", 0.5)))
    monkeypatch.setattr("rtlab.session.selftest.doctor", lambda *_, **__: report)
    sections = printed(
        [["backends"], ["backends", "--json"], ["compilers"], ["compilers", "list", "--json"],
         ["compilers", "add", "1.5"], ["compilers", "remove", "1.5", "--json"], ["doctor"], ["doctor", "--json"]],
        tmp_path, capsys,
    )  # fmt: skip
    known.clear()
    sections |= {"no " + k: v for k, v in printed([["compilers"]], tmp_path, capsys).items()}
    monkeypatch.setattr(
        compilers, "add", lambda *_, **__: compilers.Compiler("1.5", "tensorrt-rtx:1.5", added)
    )
    sections |= {"new " + k: v for k, v in printed([["compilers", "add", "1.5"]], tmp_path, capsys).items()}
    golden("commands/story-here.json", sections)


def test_arguments_are_those_of_the_file(golden: Any) -> None:
    """Of every command: how an argument is written, how often, what it may be, and what it is by default."""
    found: dict[str, Any] = {}

    def list_arguments(parser: argparse.ArgumentParser, name: str) -> None:
        rows = {}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner, one in action.choices.items():
                    list_arguments(one, f"{name} {inner}".strip())
            elif not isinstance(action, argparse._HelpAction):
                kind = getattr(action.type, "__name__", None)
                rows["/".join(action.option_strings) or action.dest] = [
                    action.dest, type(action).__name__, action.nargs, action.const, action.default, kind,
                    list(action.choices or ()), action.required,
                ]  # fmt: skip
        defaults = {k: v for k, v in parser._defaults.items() if not callable(v)}
        found[name] = {"arguments": rows, "defaults": defaults, "abbreviations": parser.allow_abbrev}

    list_arguments(arguments.parser({}), "rtlab")
    golden("commands/arguments.json", found)


def test_defaults_and_kinds_of_classes_and_functions_are_those_of_the_file(golden: Any) -> None:
    """Of all of rtlab: what a public name, a default or a decorator sets.

    Defaults are those other than None, False, 0 and what is empty; flags say which classes are not frozen or compared,
    and which fields stay out of a comparison or a ``repr``.
    """
    found: dict[str, dict[str, Any]] = {
        k: {} for k in ("defaults", "flags", "caches", "boundaries", "figures")
    }
    for info in sorted(pkgutil.walk_packages(rtlab.__path__, "rtlab."), key=lambda i: i.name):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            for section, name, value in list_module(module):
                found[section][f"{info.name.removeprefix('rtlab.')}.{name}"] = value
    golden("defaults.json", found)


def list_module(module: Any) -> Iterator[tuple[str, str, Any]]:
    """What a module's own names set, by section."""
    source = inspect.getsource(module)
    for name, value in [*vars(module).items()]:
        if name.isupper() and name[0] != "_" and is_figure(value):
            if re.search(rf"^(\w[^\n]*\W)?{name}\b[^\n]*=", source, re.MULTILINE):
                yield "figures", name, value
        elif getattr(value, "__module__", None) not in {module.__name__, "rtlab"}:
            continue
        elif inspect.isclass(value):
            for key, member in vars(value).items():
                if key != "__init__" or "__dataclass_params__" not in vars(value):
                    yield from list_function(
                        getattr(member, "__func__", getattr(member, "func", member)), f"{name}.{key}"
                    )
            if "__dataclass_params__" in vars(value):
                yield from list_dataclass(value, name)
        else:
            yield from list_function(value, name)


def list_function(function: Any, name: str) -> Iterator[tuple[str, str, Any]]:
    """Defaults of its parameters, how many answers it keeps, and what its error boundary says was done."""
    if hasattr(function, "cache_parameters"):
        yield "caches", name, function.cache_parameters()["maxsize"]
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    if getattr(getattr(closure.get("self"), "func", None), "__name__", "") == "boundary":
        yield "boundaries", name, closure["self"].args[0]
    inner = getattr(function, "__wrapped__", function)
    if inspect.isfunction(inner):
        for key, parameter in inspect.signature(inner).parameters.items():
            if parameter.default and is_figure(parameter.default):
                yield "defaults", f"{name}({key})", parameter.default


def list_dataclass(found: Any, name: str) -> Iterator[tuple[str, str, Any]]:
    """Defaults of its fields, and what is unusual about it."""
    odd = [n for n in ("frozen", "eq", "repr") if not getattr(found.__dataclass_params__, n)]
    for field in dataclasses.fields(found):
        odd += [f"{field.name} {n}" for n in ("repr", "compare", "init") if not getattr(field, n)]
        if field.default and is_figure(field.default):
            yield "defaults", f"{name}.{field.name}", field.default
    if odd:
        yield "flags", name, odd


def is_figure(value: Any) -> bool:
    """Whether a value is a number, or a table of numbers."""
    if isinstance(value, (Mapping, tuple, list)):
        return bool(value) and all(map(is_figure, value.values() if isinstance(value, Mapping) else value))
    return type(value) in {bool, int, float}


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (rtlab.errors.RunError("Cannot. No."), 1, "No."),
        (ValueError("odd"), 1, "odd"),
    ],
)
def test_a_command_that_is_ended_has_an_exit_code_of_its_own(
    error: BaseException, code: int, words: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("rtlab.study.available", mock.Mock(side_effect=error))
    assert main(["backends"]) == code
    assert words in capsys.readouterr().err


def test_a_reader_who_has_seen_enough_is_no_failure(monkeypatch: Any, capfd: Any) -> None:
    """What goes to the closed pipe afterwards goes nowhere."""
    monkeypatch.setattr("rtlab.study.available", mock.Mock(side_effect=BrokenPipeError()))
    kept = os.dup(1)
    with capfd.disabled(), mock.patch.object(sys, "stdout", os.fdopen(os.dup(1), "w")) as out:
        assert main(["backends"]) == 0
        assert os.fstat(out.fileno()).st_rdev == Path(os.devnull).stat().st_rdev
        out.close()
    os.close(kept)


def test_no_command_prints_the_help_and_is_a_wrong_command_line(capsys: Any) -> None:
    assert main([]) == 2
    assert "inspect" in capsys.readouterr().out
    for wrong in ("bisect M --compiler 1 2 3", "check M --max-drop -1", "check M --max-drop nan",
                  "check M --max-latency-regression x%"):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            main(wrong.split())
        assert end.value.code == 2


@pytest.mark.parametrize(
    ("system", "user", "more", "expected"),
    [
        ("posix", 0, ["--port", "9", "--no-browser"], ["--ServerApp.port=9", "--no-browser", "--allow-root"]),
        ("posix", 1, [], []),
        ("other", 1, [], []),
    ],
)
def test_the_server_of_notebooks_takes_the_place_of_the_command(
    system: str, user: int, more: list[str], expected: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """As root, Jupyter needs a permission; where a process cannot be replaced, the server is a child."""
    child, replaced = mock.Mock(return_value=5), mock.Mock(side_effect=SystemExit)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    monkeypatch.setattr("os.execv", replaced)
    monkeypatch.setattr("rtlab.cli.notebooks.subprocess.call", child)
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "mine")
    monkeypatch.setenv("NPM_CONFIG_UPDATE_NOTIFIER", "mine")
    given = arguments.parser({"lab": lab}).parse_args(["lab", str(tmp_path), *more])
    with mock.patch("rtlab.cli.notebooks.os.name", system):
        if system == "posix":
            with pytest.raises(SystemExit):
                lab(given)
        else:
            assert lab(given) == 5
    (call,) = (child if system == "other" else replaced).call_args_list
    assert call.args[-1] == [
        sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.default_url=/lab/tree/01_first_look.ipynb", "--LabApp.extension_manager=readonly", *expected,
    ]  # fmt: skip
    assert os.environ["JUPYTER_CONFIG_PATH"].endswith(f"static{os.pathsep}mine")
    assert os.environ["NPM_CONFIG_UPDATE_NOTIFIER"] == "mine"


@pytest.mark.parametrize("changes", [(), ("one",)])
@pytest.mark.parametrize("labels", [[], ["--labels", "FOLDER/l.npy"]])
def test_a_repair_is_scored_on_the_data_and_written(
    changes: tuple[str, ...], labels: list[str], folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    """Without labels the answers of fp32 count; what needs no repair is written as it is."""
    study = mock.Mock(data=rtlab.CalibrationData.of({"x": np.zeros((6, 3), np.float32)}))
    study.repair.return_value = mock.Mock(changes=changes, repaired="int8 repaired", text=lambda: "all of it")
    monkeypatch.setattr(opening, "built", lambda *_: study)
    command = ["repair", "M", "-o", "out", *_DATA, *labels, "--max-drop", "3", "--metric", "top-2"]
    assert main([a.replace("FOLDER", str(folder)) for a in [*command, "--seconds", "7"]]) == 0
    study.repair.assert_called_once_with("int8", 3.0, budget_s=7.0)
    study.export.assert_called_once_with("int8 repaired" if changes else "int8", "out")
    assert (np.array_equal(study.task.labels, np.arange(6)), study.task.metric) == (bool(labels), "top-2")
    assert capsys.readouterr().out.startswith("all of it\nwrote ")


def test_one_object_of_json_is_all_that_a_program_reads(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(opening, "opened", lambda _: Released(tiny_model(batch=1)))
    for command in (["advise", "MODEL", "--json"], ["why", "MODEL", "stem/Relu", "left/Conv", "--json"]):
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)["builds"] > 0
