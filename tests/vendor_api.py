"""Checks that code touches of a vendor's binding only what listings of its API have (see ``tensorrt_api``).

Names that are always of one class (``roots``) and what signatures return give an expression its class; what has none is
not looked into. ``hasattr`` narrows the releases that a branch is for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tensorrt_api import parameters

MODULE = "<module>"
_ALWAYS = {"__version__", "__name__", "__members__", "name", "value"}
_ALIASES = {"IParserError": "ParserError"}
_Releases = frozenset[str]
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Check:
    """Follows the code of a file; ``problems`` are lines in words, ``used`` the members that were looked up."""

    def __init__(self, apis: Mapping[str, Mapping[str, Any]], roots: Mapping[str, str]) -> None:
        self.apis, self.roots = apis, roots
        self.problems: list[str] = []
        self.used: set[str] = set()
        self.classes: dict[str, str] = {}

    def run(self, source: str) -> Check:
        self.block(ast.parse(source).body, frozenset(self.apis))
        return self

    def problem(self, node: ast.AST, words: str) -> None:
        self.problems.append(f"{getattr(node, 'lineno', 0)}: {words}")

    def members(self, owner: str, release: str) -> Collection[str]:
        api = self.apis[release]
        if owner == MODULE:
            return {*api["classes"], *api["functions"]}
        members = api["classes"].get(owner, {})
        return members.get("enum", members)

    def signatures(self, owner: str, name: str, release: str) -> list[str]:
        api = self.apis[release]
        if owner == MODULE:
            listed = api["classes"].get(name, {}).get("__init__", api["functions"].get(name))
        else:
            listed = api["classes"].get(owner, {}).get(name)
        return listed if isinstance(listed, list) else []

    def class_of(self, node: ast.AST | None) -> str | None:
        match node:
            case ast.Name(id=name):
                return self.classes.get(name, self.roots.get(name))
            case ast.Attribute(value=value, attr=name):
                owner = self.class_of(value)
                if owner == MODULE:
                    return name
                return self.roots.get(name) if owner is None else None
            case ast.Call(func=ast.Attribute(value=value, attr=name) as function):
                owner = self.class_of(value)
                if owner is None or owner == MODULE:
                    return self.class_of(function) if owner else None
                texts = [s for r in self.apis for s in self.signatures(owner, name, r)]
                found = re.split(r"[.:]", texts[0].rpartition(" -> ")[2])[-1].strip() if texts else ""
                found = _ALIASES.get(found, found)
                return found if any(found in api["classes"] for api in self.apis.values()) else None
        return None

    # The walk. A block returns the releases for which what follows it runs.

    def block(self, statements: Iterable[ast.stmt], on: _Releases) -> _Releases:
        for node in statements:
            if isinstance(node, ast.If):
                yes, no = self.branches(node.test, on)
                on = self.block(node.body, yes) | self.block(node.orelse, no)
            elif isinstance(node, ast.FunctionDef):
                outer, self.classes = self.classes, dict(self.classes)
                self.block(node.body, on)
                self.classes = outer
            else:
                self.statement(node, on)
            if isinstance(node, _ENDS):
                return frozenset()
        return on

    def statement(self, node: ast.AST, on: _Releases) -> None:
        if isinstance(node, ast.ClassDef):
            for base in filter(None, map(self.class_of, node.bases)):
                self.overrides(node, base, on)
        for field, value in ast.iter_fields(node):
            if field in {"body", "orelse", "finalbody"}:
                self.block(value, on)
            else:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, (ast.withitem, ast.ExceptHandler)):
                        self.statement(child, on)
                    elif isinstance(child, ast.AST):
                        self.expression(child, on)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.classes.pop(node.targets[0].id, None)
            if found := self.class_of(node.value):
                self.classes[node.targets[0].id] = found

    def expression(self, node: ast.AST, on: _Releases) -> None:
        match node:
            case ast.IfExp():
                yes, no = self.branches(node.test, on)
                self.expression(node.body, yes)
                self.expression(node.orelse, no)
                return
            case ast.BoolOp() | ast.Call(func=ast.Name(id="hasattr")):
                self.branches(node, on)
                return
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name))]):
                self.look_up(node, self.class_of(owner), name, on)
            case ast.Attribute():
                self.look_up(node, self.class_of(node.value), node.attr, on)
            case ast.Call(func=ast.Attribute(value=value, attr=name)):
                if owner := self.class_of(value):
                    self.call(node, owner, name, on)
        for child in ast.iter_child_nodes(node):
            self.expression(child, on)

    def branches(self, test: ast.expr, on: _Releases) -> tuple[_Releases, _Releases]:
        match test:
            case ast.UnaryOp(op=ast.Not()):
                return self.branches(test.operand, on)[::-1]
            case ast.BoolOp():
                both, left, out = isinstance(test.op, ast.And), on, frozenset[str]()
                for value in test.values:
                    yes, no = self.branches(value, left)
                    left, out = (yes, out | no) if both else (no, out | yes)
                return (left, out) if both else (out, left)
            case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]):
                kind = self.class_of(owner)
                there = {r for r in self.apis if kind and name in self.members(kind, r)}
                if not there:
                    self.problem(test, f"{name} is in no listing")
                return on & there, on - there
        self.expression(test, on)
        return on, on

    def look_up(self, node: ast.AST, owner: str | None, name: str, on: _Releases) -> None:
        if owner is None or name in _ALWAYS:
            return
        self.used.add(name if owner == MODULE else f"{owner}.{name}")
        there = {r for r in self.apis if name in self.members(owner, r)}
        # A branch for releases before these may use what they have at least.
        if lacking := sorted(on - there if there else self.apis):
            self.problem(node, f"{owner}.{name} is not in {', '.join(lacking)}")

    def call(self, node: ast.Call, owner: str, name: str, on: _Releases) -> None:
        for release in sorted(on):
            texts = self.signatures(owner, name, release)
            if texts and not any(_accepts(text, node, bound=name != "__init__") for text in texts):
                self.problem(node, f"{ast.unparse(node)} does not fit {texts[0]} of {release}")

    def overrides(self, node: ast.ClassDef, base: str, on: _Releases) -> None:
        """A class that derives from the vendor's has methods of its base, with as many parameters."""
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                self.look_up(item, base, item.name, on)
                texts = [s for r in on for s in self.signatures(base, item.name, r)]
                if any(len(parameters(s) or ()) != len(item.args.args) for s in texts):
                    self.problem(item, f"{base}.{item.name} has other parameters: {texts[0]}")


def _accepts(signature: str, node: ast.Call, *, bound: bool) -> bool:
    listed = [p for p in parameters(signature) or () if not bound or p[0] != "self"]
    names = [p[0] for p in listed]
    keywords = {k.arg for k in node.keywords}
    starred = None in keywords or any(isinstance(a, ast.Starred) for a in node.args)
    if not keywords - {None} <= set(names) or (len(node.args) > len(names) and not starred):
        return False
    rest = [p for p in listed[len(node.args) :] if p[0] not in keywords]
    return starred or all(default is not None for _, _, default in rest)
