"""What commands print: stories of several commands on one folder; and what they and the code take by default."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import rtlab
import scenes
from golden.test_page import _FILES, _MODEL, WRITTEN, anonymous
from rtlab.backends import compilers
from rtlab.cli import _START, lab, main, opening, parser
from rtlab.core.peaks import TABLE
from rtlab.core.protocols import Availability
from rtlab.experiments.doctor import Probe, Report
from rtlab.testing import tiny_model
from ruled import Ruled

_WORDS = {
    "MODEL": "model.onnx", "CPU": "--target cpu --backend onnxruntime",
    "INT8": "--target cpu --backend onnxruntime --precision int8 --calibrator minmax", "DATA": "--data d.npz",
    "LABELS": "--data d.npz --labels l.npy", "WRITTEN": _MODEL,
    **{f"W-{name}": folder for name, folder in WRITTEN.items()},
    **{f"ENGINE-{name}": " ".join(files) for name, files in _FILES.items()},
}  # fmt: skip
#: Commands of one folder, one after the other, by the name of their file.
_TEXT = (Path(__file__).parent / "commands/stories.txt").read_text(encoding="utf-8")
STORIES = {title: commands for title, *commands in map(str.splitlines, _TEXT.split("\n\n"))}
#: What a compiler is asked for, with compilers of the tests.
COMPILED = ("# why", "# advise", "# bisect")
#: Of what a run takes and when it is, in the column of a table too.
_WHEN = {r"\b\d[\d.e−-]* s\b *": "... s ", r"\b20\d\d-\d\d-\d\d([ T]\d\d:\d\d[\d:.+Z]*)?": "<date>"}


#: Tables of all types that ONNX IR has, to which a release adds.
_VARYING = {"_BITS", "_TYPES"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(scenes.two_outputs().SerializeToString())
    image = np.random.default_rng(0).standard_normal((6, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", image=image)
    np.save(tmp_path / "l.npy", np.arange(6))
    return tmp_path


def printed(commands: Iterable[str], folder: Path, capsys: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for command in commands:
        before = {*folder.iterdir()}
        code = main([w for word in shlex.split(command) for w in _WORDS.get(word, word).split(" ")])
        texts = [anonymous(text, folder) for text in capsys.readouterr()]
        for pattern, instead in _WHEN.items():
            texts = [re.sub(pattern, instead, text) for text in texts]
        files = sorted(p.name for p in {*folder.iterdir()} - before)
        out, err = map(str.splitlines, texts)
        sections[command] = {"code": code, "out": out, "err": err, "files": files}
    return sections


@pytest.mark.parametrize("story", sorted(STORIES.keys() - {"# here"}))
def test_stories_are_printed(story: str, folder: Path, golden: Any, capsys: Any, monkeypatch: Any) -> None:
    if story in COMPILED:
        monkeypatch.setattr(opening, "open_study", lambda _: Released(tiny_model(batch=1)))
    with scenes.timeless():
        sections = printed(STORIES[story], folder, capsys)
    golden(f"commands/story-{story.removeprefix('# ')}.json", sections, rel=1e-2, least=1e-6)


class Other(Ruled):
    name = "other"

    def _makers(self, model: Any, node: str) -> list[str]:
        return [] if model.by_id[node].op == "Add" else super()._makers(model, node)

    def build(self, request: Any, progress: Any) -> Any:
        return dataclasses.replace(super().build(request, progress), backend=self.name)


class Released(rtlab.Study):
    def add(self, name: str, *, compiler: str | None = None, **choice: Any) -> str:
        backend = {"1.6": Other(), "1.7": Ruled()}.get(compiler or "1.7")
        return super().add(name, precision="fp32", backend=backend)


def test_what_is_here_is_listed(tmp_path: Path, golden: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "compilers"))
    table = {"one": Availability(ok=True, version="1.2"), "another": Availability(ok=False, reason="No.")}
    monkeypatch.setattr("rtlab.api.available", lambda: table)
    added = tmp_path / "1.5.0.114"
    added.mkdir()
    (added / "library.so").write_bytes(bytes(3 << 20))
    one = compilers.Compiler("1.5.0.114", "tensorrt-rtx:1.5.0.114", added)
    releases = [one, compilers.Compiler("1.6.1.120", "tensorrt-rtx:1.6.1.120", recorded=True)]
    started = iter([compilers.CompilerProbe(routes=routes) for routes in (("a", "b"), (), None, ())])
    monkeypatch.setattr(compilers, "known", lambda: tuple(releases))
    monkeypatch.setattr(compilers.Compiler, "tried", lambda *_: next(started))
    monkeypatch.setattr(compilers, "add", lambda *_, **__: one)
    monkeypatch.setattr(compilers, "remove", lambda _: one)
    report = Report({"rtlab": "1"}, (Probe("a", "ok", "seen", 1.0), Probe("b", "failed", "not seen", 0.5)))
    monkeypatch.setattr("rtlab.experiments.experiment.run_experiment", lambda *_: report)
    sections = printed(STORIES["# here"], tmp_path, capsys)
    releases.clear()
    golden("commands/story-here.json", sections)
    golden("commands/story-none.json", printed(["compilers", "compilers add 1.5"], tmp_path, capsys))


def test_arguments_are_those_of_the_file(golden: Any) -> None:
    commands: dict[str, Any] = {}

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
        commands[name] = {"arguments": rows, "defaults": defaults, "abbreviations": parser.allow_abbrev}

    list_arguments(parser.create_parser({}), "rtlab")
    golden("commands/arguments.json", commands)


def test_defaults_and_kinds_of_classes_and_functions_are_those_of_the_file(golden: Any) -> None:
    """Of all of rtlab: what a name of a module, a default or a decorator sets, and what a page shares.

    Defaults are those other than None, False, 0 and what is empty; flags say which classes are not frozen or compared,
    and which fields stay out of a comparison or a ``repr``.
    """
    sections: dict[str, Any] = {
        k: {} for k in ("defaults", "flags", "caches", "boundaries", "figures", "traits", "structs")
    }
    for info in sorted(pkgutil.walk_packages(rtlab.__path__, "rtlab."), key=lambda i: i.name):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            for section, name, value in list_module(module):
                sections[section][f"{info.name.removeprefix('rtlab.')}.{name}"] = value
    golden("defaults.json", {**sections, "peaks": TABLE})


def list_module(module: Any) -> Iterator[tuple[str, str, Any]]:
    source = Path(module.__file__).read_text(encoding="utf-8")
    for name in re.findall(r"^(?:def|class) (\w+)", source, re.MULTILINE):
        value = vars(module).get(name)
        made = "__dataclass_params__" in getattr(value, "__dict__", {})
        for key, trait in value.class_own_traits().items() if hasattr(value, "class_own_traits") else ():
            if trait.metadata:
                yield "traits", f"{name}.{key}", [type(trait).__name__, trait.metadata, trait.default()]
        config = getattr(value, "__struct_config__", None)
        if config is not None:
            flags = ("frozen", "eq", "tag", "forbid_unknown_fields", "omit_defaults")
            yield "structs", name, [getattr(config, flag) for flag in flags]
        for key, member in vars(value).items() if inspect.isclass(value) else ():
            if not (made and key == "__init__"):
                inner = getattr(member, "__func__", getattr(member, "func", member))
                yield from list_function(inner, f"{name}.{key}")
        yield from list_dataclass(value, name) if made else list_function(value, name)
    for targets in re.findall(r"^(_?[A-Z][\w, ]*)[:=]", source, re.MULTILINE):
        for name in targets.strip().split(", "):
            if name not in _VARYING and is_figure(vars(module).get(name)):
                yield "figures", name, vars(module)[name]


def list_function(function: Any, name: str) -> Iterator[tuple[str, str, Any]]:
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


def list_dataclass(kind: Any, name: str) -> Iterator[tuple[str, str, Any]]:
    odd = [n for n in ("frozen", "eq", "repr") if not getattr(kind.__dataclass_params__, n)]
    for field in dataclasses.fields(kind):
        odd += [f"{field.name} {n}" for n in ("repr", "compare", "init") if not getattr(field, n)]
        if field.default and is_figure(field.default):
            yield "defaults", f"{name}.{field.name}", field.default
    if odd:
        yield "flags", name, odd


def is_figure(value: Any) -> bool:
    leaves = [*list_leaves(value)]
    numbers = [type(v) in {bool, int, float} or isinstance(v, np.generic) for v in leaves]
    return any(numbers) and all(
        n or v is None or isinstance(v, (str, enum.Enum)) for n, v in zip(numbers, leaves, strict=True)
    )


def list_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (Mapping, tuple, list, frozenset, set, np.ndarray)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from list_leaves(inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from list_leaves(vars(value))
    else:
        yield value


def test_a_command_that_is_ended_has_an_exit_code_of_its_own(capsys: Any, monkeypatch: Any) -> None:
    for error, code in (
        (KeyboardInterrupt(), 130),
        (rtlab.errors.RunError("odd"), 1),
        (ValueError("odd"), 1),
    ):
        monkeypatch.setattr("rtlab.api.available", mock.Mock(side_effect=error))
        assert main(["backends"]) == code
        assert ("stopped" if code == 130 else "odd") in capsys.readouterr().err


def test_a_reader_who_has_seen_enough_is_no_failure(monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr("rtlab.api.available", mock.Mock(side_effect=BrokenPipeError()))
    saved = os.dup(1)
    with capfd.disabled(), mock.patch.object(sys, "stdout", os.fdopen(os.dup(1), "w")) as out:
        assert main(["backends"]) == 0
        assert os.fstat(out.fileno()).st_rdev == Path(os.devnull).stat().st_rdev
        out.close()
    os.close(saved)


def test_no_command_prints_the_help_and_is_a_wrong_command_line(capsys: Any) -> None:
    assert main([]) == 2
    assert "inspect" in capsys.readouterr().out
    for wrong in ("bisect M --compiler 1 2 3", "check M --max-drop -1", "check M --max-drop nan",
                  "check M --max-latency-regression x%"):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            main(wrong.split())
        assert end.value.code == 2


def test_the_server_of_notebooks_takes_the_place_of_the_command(tmp_path: Path, monkeypatch: Any) -> None:
    """As root, Jupyter needs a permission; where a process cannot be replaced, the server is a child."""
    child, replaced = mock.Mock(return_value=5), mock.Mock(side_effect=SystemExit)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    monkeypatch.setattr("os.execv", replaced)
    monkeypatch.setattr("rtlab.cli.subprocess.call", child)
    monkeypatch.setenv("NPM_CONFIG_UPDATE_NOTIFIER", "mine")
    for system, user, more in (
        ("posix", 0, ["--port", "9", "--no-browser"]),
        ("posix", 1, []),
        ("other", 1, []),
    ):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        monkeypatch.setenv("JUPYTER_CONFIG_PATH", "mine")
        parsed = parser.create_parser({"lab": lab}).parse_args(["lab", str(tmp_path), *more])
        with mock.patch("rtlab.cli.os.name", system), contextlib.suppress(SystemExit):
            assert lab(parsed) == 5
        assert os.environ["JUPYTER_CONFIG_PATH"].endswith(f"static{os.pathsep}mine")
        assert os.environ["NPM_CONFIG_UPDATE_NOTIFIER"] == "mine"
    command = [
        sys.executable, "-c", _START, "--ip=127.0.0.1", f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.default_url=/lab/tree/rtlab-notebooks/01_first_look.ipynb", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    for_root = [*command, "--ServerApp.port=9", "--no-browser", "--allow-root"]
    assert replaced.mock_calls == [mock.call(sys.executable, c) for c in (for_root, command)]
    assert child.mock_calls == [mock.call(command)]


@pytest.mark.parametrize("changes", [(), ("one",)])
@pytest.mark.parametrize("labels", [[], ["--labels", "l.npy"]])
@pytest.mark.usefixtures("folder")
def test_a_repair_is_scored_on_data(changes: Any, labels: Any, capsys: Any, monkeypatch: Any) -> None:
    """Without labels the answers of fp32 count; what needs no repair is written as it is."""
    study = mock.Mock()
    study.accuracy.repair.return_value = mock.Mock(
        changes=changes, repaired="int8 repaired", text=lambda: "all of it"
    )
    tasks = []
    monkeypatch.setattr(
        opening, "build_study", lambda args, _: tasks.append(opening.open_study(args).task) or study
    )
    command = ["repair", "model.onnx", "-o", "out", "--data", "d.npz", *labels, "--max-drop", "3"]
    assert main([*command, "--metric", "top-2", "--seconds", "7"]) == 0
    study.accuracy.repair.assert_called_once_with("int8", 3.0, budget_s=7.0)
    study.export.assert_called_once_with("int8 repaired" if changes else "int8", "out")
    (task,) = tasks
    assert (np.array_equal(task.labels, np.arange(6)), task.metric) == (bool(labels), "top-2")
    assert capsys.readouterr().out.startswith("all of it\nwrote ")
