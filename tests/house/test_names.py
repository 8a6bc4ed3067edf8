"""The public names of rtlab, what is said about them, and that a class has its name for itself."""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections import Counter
from pathlib import Path

import pytest

import rtlab
import rtlab.errors

PUBLIC = sorted(set(rtlab.__all__))


def test_all_is_sorted_and_is_what_completion_offers():
    assert PUBLIC == list(rtlab.__all__)
    assert PUBLIC == [name for name in dir(rtlab) if not name.startswith("_")]


def test_names_are_known_to_editors():
    """Names that are resolved on first use must stand as imports too, or editors and mypy do not see them."""
    tree = ast.parse(Path(rtlab.__file__).read_text(encoding="utf-8"))
    guarded = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    imported = [a.name for n in guarded for i in n.body if isinstance(i, ast.ImportFrom) for a in i.names]
    assert PUBLIC == sorted(imported)


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
    thing = getattr(rtlab, name)
    silent = []
    if callable(thing) and not inspect.getdoc(thing):
        silent.append(name)
    if inspect.isclass(thing):
        silent += [
            f"{name}.{key}"
            for key, member in vars(thing).items()
            if not key.startswith("_")
            and (inspect.isroutine(member) or hasattr(member, "__get__"))
            and not inspect.getdoc(getattr(thing, key))
        ]
    assert [] == silent


def test_errors_are_one_tree():
    """``except rtlab.errors.RtlabError`` catches everything that rtlab raises on purpose."""
    own = [v for v in vars(rtlab.errors).values() if getattr(v, "__module__", "") == rtlab.errors.__name__]
    classes = [v for v in own if inspect.isclass(v)]
    assert [] == [c.__name__ for c in classes if not issubclass(c, rtlab.errors.RtlabError)]
    assert [] == [c.__name__ for c in classes if c.__name__ not in (rtlab.errors.__doc__ or "")]


#: Words that name neither what a function does nor what a value is.
VAGUE = re.compile(
    "told|found|held|given|asked|kept|known|called|wanted|seen|said|made|brought|lent|drawn|parted|apart|left|gone"
    "|lost|stood|stands|stays|lacks|later|doing|beside",
    re.IGNORECASE,
)


def test_names_are_of_the_field() -> None:
    """At most three of 1,000 lines bind such a name; libraries of the field have about one."""
    lines, vague = 0, Counter[str]()
    for path in Path(rtlab.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines += source.count("\n")
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                    pass
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    pass
                case _:
                    continue
            vague.update(word for word in re.findall(r"[A-Z]?[a-z]+", name) if VAGUE.fullmatch(word))
    assert 1000 * vague.total() <= 3 * lines, vague.most_common(9)
