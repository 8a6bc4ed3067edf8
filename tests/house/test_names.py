"""The public names of rtlab, and what is said about them."""

from __future__ import annotations

import inspect
import types

import pytest

import rtlab
import rtlab.errors

PUBLIC = sorted(set(rtlab.__all__))


def test_all_is_sorted_and_complete():
    """What a user finds with completion is what is promised."""
    found = [
        name for name, value in vars(rtlab).items() if not name.startswith("_") and not is_submodule(value)
    ]
    lazy = [name for name in PUBLIC if name not in vars(rtlab)]

    assert PUBLIC == list(rtlab.__all__)
    assert PUBLIC == sorted(n for n in {*found, *lazy} if n != "annotations")


def is_submodule(value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == "rtlab"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_objects_report_rtlab_as_their_module(name):
    """A traceback, a pickle and the documentation name the path that users import."""
    thing = getattr(rtlab, name)
    if isinstance(thing, types.ModuleType):
        assert f"rtlab.{name}" == thing.__name__
    elif inspect.isclass(thing) or inspect.isfunction(thing):
        assert "rtlab" == thing.__module__


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_and_methods_have_docstrings(name):
    """Help in a notebook is the docstring."""
    thing = getattr(rtlab, name)
    silent = []
    if callable(thing) and not inspect.getdoc(thing):
        silent.append(name)
    if inspect.isclass(thing):
        silent += [
            f"{name}.{key}"
            for key, member in vars(thing).items()
            if not key.startswith("_")
            and (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod)))
            and not inspect.getdoc(getattr(thing, key))
        ]

    assert [] == silent


def test_errors_are_one_tree():
    """``except rtlab.errors.RtlabError`` catches everything that rtlab raises on purpose."""
    classes = [v for v in vars(rtlab.errors).values() if inspect.isclass(v)]

    assert [] == [c.__name__ for c in classes if not issubclass(c, rtlab.errors.RtlabError)]
    assert [] == [c.__name__ for c in classes if c.__name__ not in (rtlab.errors.__doc__ or "")]
