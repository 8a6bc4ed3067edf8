"""What every message keeps to."""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import pickle
import re
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rtlab
from rtlab.errors import BuildError, ModelError, ReadError, RtlabError, boundary
from rtlab.testing import tiny_model


def test_a_message_quotes_both_ends_of_a_long_name_and_keeps_it_in_the_details() -> None:
    name = "first" + "x" * 5_000_000 + "last"
    error = ModelError(f'Cannot find node "{name}" in model "m": no node has this id.', details="as told")
    text = str(error)
    assert text.startswith('Cannot find node "firstxxx')
    assert text.endswith('xxxlast" in model "m": no node has this id.')
    assert 199 == len(text.split('"')[1])
    assert f'as told\nCannot find node "{name}" in model "m": no node has this id.' == error.details


def test_a_long_message_of_short_names_is_told_whole() -> None:
    text = "Cannot do it: " + ", ".join(f'"node {i}"' for i in range(1000))
    error = RtlabError(text)
    assert (text, "") == (str(error), error.details)
    between = f'Backend "a" cannot build "b": {"words " * 50}choose backend="c", or "d".'
    assert between == str(RtlabError(between))
    # Spaces do not end a name that is quoted: 200 characters are told, one more is cut.
    for count, whole in ((200, True), (201, False)):
        told = str(RtlabError(f'Cannot load "{"a b" * 66}{"c" * (count - 198)}": no such file.'))
        assert whole == ("…" not in told)


@given(st.lists(st.text(alphabet='ab "\n…é', max_size=700), max_size=5).map("".join))
def test_no_message_has_a_longer_name_and_it_survives_pickling(text: str) -> None:
    error = ModelError(text, details="d")
    assert all(len(word) <= 200 for word in str(error).replace('"', " ").split())
    again = pickle.loads(pickle.dumps(error))
    assert (str(error), error.details) == (str(again), again.details)
    assert text in error.details if text != str(error) else error.details == "d"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/there"), "/there"),
        (MemoryError(), "memory"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "not installed"),
        (BrokenProcessPool("A process was terminated abruptly"), "a worker"),
        (ValueError("not\n  so"), "ValueError: not so"),
    ],
)
def test_what_nobody_raised_on_purpose_is_told_in_words_with_pythons_own_beside(
    error: Exception, words: str
) -> None:
    with pytest.raises(ReadError) as found, boundary("read it", ReadError):
        raise error
    assert str(found.value).startswith("Cannot read it: ")
    assert words in str(found.value)
    assert type(error).__name__ in found.value.details
    assert "raise error" in found.value.details
    assert error is found.value.__cause__


@pytest.mark.parametrize("error", [ModelError("Cannot."), AssertionError("x"), BrokenPipeError()])
def test_what_is_in_words_already_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as found, boundary("do it"):
        raise error
    assert error is found.value


def test_a_traceback_names_files_from_where_they_are_imported() -> None:
    def fail() -> None:
        try:
            json.loads("{")
        except ValueError:
            raise KeyError("x")  # noqa: B904 - an error while another one is handled

    with pytest.raises(RtlabError) as raised, boundary("try"):
        fail()
    details = raised.value.details
    for words in ('File "json/decoder.py", line', 'test_errors.py", line', "obj, end = self.raw_decode"):
        assert words in details
    assert not re.search(r'File "(/|\w:)', details)


def test_a_file_is_named_from_the_nearest_folder_of_imports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    near = tmp_path / "far" / "near"
    near.mkdir(parents=True)
    (near / "broken_module.py").write_text("raise KeyError('x')\n")
    for folder in (near, tmp_path, tmp_path / "far"):
        monkeypatch.syspath_prepend(folder)
    with pytest.raises(RtlabError) as raised, boundary("try"):
        __import__("broken_module")
    assert 'File "broken_module.py"' in raised.value.details


@boundary("try")
def work(number: int) -> int:
    return len(number)  # a mistake of ours: a number has no length


def test_a_call_that_does_not_fit_stays_a_type_error_and_what_fails_inside_is_told() -> None:
    for passed in ({}, {"number": 1, "other": 2}):
        with pytest.raises(TypeError):
            work(**passed)
    with pytest.raises(RtlabError, match=r"Cannot try: TypeError: .*len\(\)"):
        work(1)


def test_every_public_method_of_a_study_is_a_boundary() -> None:
    study = rtlab.Study(tiny_model())
    for name, member in inspect.getmembers(type(study)):
        if not name.startswith("_") and inspect.isfunction(member):
            for arguments in ((), (object(),), (object(), object())):
                try:
                    inspect.signature(member).bind(study, *arguments)
                except TypeError:
                    continue
                with contextlib.suppress(RtlabError):
                    getattr(study, name)(*arguments)


def test_a_refusal_travels_with_the_nodes_that_it_names():
    error = pickle.loads(pickle.dumps(BuildError("No.", details="log", nodes=["a", "b"])))
    assert (str(error), error.details, error.nodes) == ("No.", "log", ("a", "b"))
