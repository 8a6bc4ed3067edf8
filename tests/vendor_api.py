"""Checks that code touches of a vendor's binding only what lists of its API have.

A list holds classes with their members, enums, signatures and functions, as read off one release. Types flow through a
function from a few declared names: what a signature returns is of its class, and so on. What cannot be followed is a
problem by itself, so that nothing escapes by being unclear. ``hasattr`` narrows the releases that a branch is for.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

Api = Mapping[str, Any]

#: A value that is no business of this check.
PLAIN = ("plain",)
#: A vendor's value whose class no list tells: it may be passed on, not looked into.
OPAQUE = ("opaque",)
MODULE = ("module",)
#: What every module or pybind11 enum has, beyond the lists.
_ALWAYS = {"module": {"__version__", "__name__"}, "enum": {"name", "value"}}
_BUILTIN = {"None", "bool", "str", "int", "float", "bytes"}
_ALIASES = {"IParserError": "ParserError"}


def instance(name: str) -> tuple[str, ...]:
    """A value of this class."""
    return ("instance", name)


def load(folder: Path) -> dict[str, Api]:
    """The lists in a folder, by file name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


@dataclasses.dataclass
class Declared:
    """What the reader of the code knows and the code does not say.

    ``names`` types parameters without a type of their own, ``fields`` attributes of rtlab's own objects, ``returns``
    the results of rtlab's own functions, ``properties`` those of the vendor (``Class.name``). ``virtual`` are methods
    that a subclass gives and the base does not list.
    """

    names: Mapping[str, Any]
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    returns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    properties: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    virtual: Collection[str] = ()


@dataclasses.dataclass
class Report:
    """Problems in words, and the members that were looked up."""

    problems: list[str] = dataclasses.field(default_factory=list)
    used: set[str] = dataclasses.field(default_factory=set)


def check(source: str, file: str, apis: Mapping[str, Api], declared: Declared) -> Report:
    """Follow the code of one file."""
    tree = ast.parse(source)
    walk = _Walk(file, apis, declared)
    walk.own = {n.name: n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    walk.body(tree.body, {}, frozenset(apis))
    return walk.report


def _union(types: Iterable[Any]) -> Any:
    kinds = list(dict.fromkeys(types))
    flat = list(dict.fromkeys(t for k in kinds for t in (k[1:] if k[0] == "union" else (k,))))
    return PLAIN if not flat else flat[0] if len(flat) == 1 else ("union", *flat)


class _Walk:
    def __init__(self, file: str, apis: Mapping[str, Api], declared: Declared) -> None:
        self.file, self.apis, self.declared = file, apis, declared
        self.own: dict[str, Any] = {}
        self.report = Report()

    def problem(self, node: ast.AST, words: str) -> None:
        self.report.problems.append(f"{self.file}:{getattr(node, 'lineno', 0)}: {words}")

    # Statements. Each returns the releases for which what follows runs, None where nothing does.

    def body(
        self, statements: list[ast.stmt], env: dict[str, Any], on: frozenset[str]
    ) -> frozenset[str] | None:
        for statement in statements:
            rest = self.statement(statement, env, on)
            if rest is None:
                return None
            on = rest
        return on

    def statement(  # noqa: C901, PLR0912 - one case for each kind of statement
        self, node: ast.stmt, env: dict[str, Any], on: frozenset[str]
    ) -> frozenset[str] | None:
        match node:
            case ast.FunctionDef():
                self.function(node, env, on, base=None)
            case ast.ClassDef():
                self.class_(node, env, on)
            case ast.Assign():
                kind = self.kind(node.value, env, on)
                for target in node.targets:
                    self.bind(target, kind, env, on)
            case ast.AnnAssign():
                self.annotated(node, env, on)
            case ast.If():
                yes, no = self.branches(node.test, env, on)
                ends = [self.body(node.body, env, yes), self.body(node.orelse, env, no)]
                open_ = [e for e in ends if e is not None]
                return frozenset().union(*open_) if open_ else None
            case ast.For():
                self.bind(node.target, self.element(self.kind(node.iter, env, on)), env, on)
                self.body(node.body, env, on)
                self.body(node.orelse, env, on)
            case ast.While():
                self.kind(node.test, env, on)
                self.body(node.body, env, on)
            case ast.With():
                for item in node.items:
                    kind = self.kind(item.context_expr, env, on)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, kind, env, on)
                return self.body(node.body, env, on)
            case ast.Try():
                end = self.body(node.body, env, on)
                ends = [end, *(self.body(h.body, env, on) for h in node.handlers)]
                self.body(node.orelse, env, on)
                self.body(node.finalbody, env, on)
                open_ = [e for e in ends if e is not None]
                return frozenset().union(*open_) if open_ else None
            case ast.Return() | ast.Raise():
                for child in ast.iter_child_nodes(node):
                    self.kind(child, env, on)
                return None
            case ast.Continue() | ast.Break():
                return None
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.kind(child, env, on)
        return on

    def annotated(self, node: ast.AnnAssign, env: dict[str, Any], on: frozenset[str]) -> None:
        kind = self.kind(node.value, env, on) if node.value is not None else PLAIN
        name = node.target.attr if isinstance(node.target, ast.Attribute) else ast.unparse(node.target)
        if kind == PLAIN and self.bare_any(node.annotation):
            if name not in self.declared.fields:
                self.problem(node, f'the type of "{name}" is not declared')
            kind = self.declared.fields.get(name, PLAIN)
        elif kind == OPAQUE:
            kind = PLAIN
        self.bind(node.target, kind, env, on)

    @staticmethod
    def bare_any(annotation: ast.expr | None) -> bool:
        return isinstance(annotation, ast.Name) and annotation.id == "Any"

    def function(self, node: ast.FunctionDef, env: dict[str, Any], on: frozenset[str], *, base: Any) -> None:
        inner = dict(env)
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for arg in given:
            kind = PLAIN
            if (
                base is None
                and arg.arg not in {"self", "cls"}
                and (arg.annotation is None or self.bare_any(arg.annotation))
            ):
                if arg.arg not in self.declared.names:
                    self.problem(arg, f'the type of parameter "{arg.arg}" of {node.name} is not declared')
                kind = self.declared.names.get(arg.arg, PLAIN)
            inner[arg.arg] = kind
        for extra in (node.args.vararg, node.args.kwarg):
            if extra is not None:
                inner[extra.arg] = PLAIN
        self.body(node.body, inner, on)

    def class_(self, node: ast.ClassDef, env: dict[str, Any], on: frozenset[str]) -> None:
        """A class of rtlab's; one that derives from the vendor's may override only what its base has."""
        bases = [b for b in (self.kind(b, env, on) for b in node.bases) if b[0] == "class"]
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                for base in bases:
                    if not item.name.startswith("_"):
                        self.override(item, base[1], on)
                self.function(item, env, on, base=bases[0] if bases else None)
            else:
                self.statement(item, env, on)
        env[node.name] = PLAIN

    def override(self, node: ast.FunctionDef, name: str, on: frozenset[str]) -> None:
        if f"{name}.{node.name}" in self.declared.virtual:
            return
        self.member(node, instance(name), node.name, on)
        count = len(node.args.args)
        for release in on or self.apis:
            listed = self.apis[release]["classes"].get(name, {}).get(node.name)
            if isinstance(listed, list) and all(len(_parameters(s)) != count for s in listed):
                self.problem(node, f"{name}.{node.name} has other parameters in {release}: {listed[0]}")

    def bind(self, target: ast.expr, kind: Any, env: dict[str, Any], on: frozenset[str]) -> None:
        match target:
            case ast.Name():
                env[target.id] = kind
            case ast.Tuple() | ast.List():
                parts = [
                    k[1:] if k[0] == "tuple" else None for k in (kind[1:] if kind[0] == "union" else (kind,))
                ]
                for i, one in enumerate(target.elts):
                    known = [p[i] for p in parts if p is not None and i < len(p)]
                    self.bind(one, _union(known) if known else self.element(kind), env, on)
            case ast.Starred():
                self.bind(target.value, PLAIN, env, on)
            case ast.Attribute():
                # Setting a vendor's attribute is using it.
                owner = self.kind(target.value, env, on)
                if owner != PLAIN:
                    self.attribute(target, owner, target.attr, on)
            case ast.Subscript():
                self.kind(target.value, env, on)

    # Expressions.

    def branches(
        self, test: ast.expr, env: dict[str, Any], on: frozenset[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The releases for which a test may be true, and may be false."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                yes, no = self.branches(test.operand, env, on)
                return no, yes
            case ast.BoolOp():
                both = isinstance(test.op, ast.And)
                yes, no, left = frozenset[str](), frozenset[str](), on
                for value in test.values:
                    one_yes, one_no = self.branches(value, env, left)
                    left = one_yes if both else one_no
                    yes, no = yes | one_yes, no | one_no
                return (left, no) if both else (yes, left)
            case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]):
                kind = self.kind(owner, env, on)
                if kind in (PLAIN, OPAQUE):
                    if kind == OPAQUE:
                        self.problem(test, f'cannot tell what "{ast.unparse(owner)}" is')
                    return on, on
                # Outside the lists is for releases before them; a name that none has guards nothing.
                if not any(self.there(kind, name, r) for r in self.apis):
                    self.problem(test, f'"{name}" of {ast.unparse(owner)} is in no list')
                yes = frozenset(r for r in on if self.there(kind, name, r))
                return yes, on - yes
            case _:
                self.kind(test, env, on)
                return on, on

    def element(self, kind: Any) -> Any:
        if kind[0] in {"list", "members"}:
            return kind[1] if kind[0] == "list" else PLAIN
        if kind[0] == "tuple":
            return _union(kind[1:])
        if kind[0] == "union":
            return _union(self.element(k) for k in kind[1:])
        return OPAQUE if kind == OPAQUE else PLAIN

    def kind(  # noqa: C901, PLR0912 - one case for each kind of expression
        self, node: ast.AST, env: dict[str, Any], on: frozenset[str]
    ) -> Any:
        """The type of an expression; everything inside it is checked on the way."""
        match node:
            case ast.Name():
                return env.get(node.id, PLAIN)
            case ast.Attribute():
                return self.attribute(node, self.kind(node.value, env, on), node.attr, on)
            case ast.Call():
                return self.call(node, env, on)
            case ast.IfExp():
                yes, no = self.branches(node.test, env, on)
                return _union([self.kind(node.body, env, yes), self.kind(node.orelse, env, no)])
            case ast.NamedExpr():
                kind = self.kind(node.value, env, on)
                self.bind(node.target, kind, env, on)
                return kind
            case ast.Tuple() | ast.List() | ast.Set():
                return ("tuple", *(self.kind(e, env, on) for e in node.elts))
            case ast.Dict():
                for key in filter(None, node.keys):
                    self.kind(key, env, on)
                return ("mapping", _union(self.kind(v, env, on) for v in node.values))
            case ast.Subscript():
                owner = self.kind(node.value, env, on)
                self.kind(node.slice, env, on)
                if owner[0] == "members":
                    return instance(owner[1])
                return owner[1] if owner[0] == "mapping" else self.element(owner)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = dict(env)
                for part in node.generators:
                    self.bind(part.target, self.element(self.kind(part.iter, inner, on)), inner, on)
                    for test in part.ifs:
                        self.kind(test, inner, on)
                if isinstance(node, ast.DictComp):
                    self.kind(node.key, inner, on)
                    return ("mapping", self.kind(node.value, inner, on))
                return ("list", self.kind(node.elt, inner, on))
            case ast.BoolOp():
                self.branches(node, env, on)
                return _union(self.kind(v, env, on) for v in node.values)
            case ast.Lambda():
                return self.kind(node.body, env, on)
            case _:
                for child in ast.iter_child_nodes(node):
                    self.kind(child, env, on)
                return PLAIN

    def call(self, node: ast.Call, env: dict[str, Any], on: frozenset[str]) -> Any:
        for one in (*node.args, *(k.value for k in node.keywords)):
            self.kind(one.value if isinstance(one, ast.Starred) else one, env, on)
        match node.func:
            case ast.Name(id="getattr"):
                owner, name = self.kind(node.args[0], env, on), node.args[1]
                if isinstance(name, ast.Constant) and len(node.args) == 2:
                    return self.attribute(node, owner, str(name.value), on)
                # A name that is known only at run time is the binding's own business there.
                return OPAQUE if owner != PLAIN else PLAIN
            case ast.Name(id="type") if node.args:
                kind = self.kind(node.args[0], env, on)
                return ("class", kind[1]) if kind[0] == "instance" else PLAIN if kind == PLAIN else OPAQUE
            case ast.Name(id="list" | "tuple" | "sorted" | "set" | "next" | "iter" | "reversed") if node.args:
                kind = self.kind(node.args[0], env, on)
                return self.element(kind) if node.func.id == "next" else kind if kind != OPAQUE else PLAIN
            case ast.Attribute(attr="import_module" | "binding") if node.args:
                dynamic = ast.unparse(node.args[0]).rpartition(".")[2]
                return MODULE if dynamic == "binding" else PLAIN
        kind = self.kind(node.func, env, on)
        return _union(self.result(node, k, on) for k in (kind[1:] if kind[0] == "union" else (kind,)))

    def result(self, node: ast.Call, kind: Any, on: frozenset[str]) -> Any:
        if kind[0] in {"method", "unbound"}:
            return self.called(node, kind[1], kind[2], on, bound=kind[0] == "method")
        if kind[0] == "class":
            self.called(node, kind[1], "__init__", on, bound=True)
            return instance(kind[1])
        if kind in (PLAIN, OPAQUE):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            if name in self.declared.returns:
                return self.declared.returns[name]
            mine = self.own.get(name)
            if kind == PLAIN and mine is not None and mine.returns is not None and self.opens(mine.returns):
                return OPAQUE
            return kind
        self.problem(node, f"{ast.unparse(node.func)} is called, and is no method of any list")
        return OPAQUE

    def opens(self, annotation: ast.expr) -> bool:
        return self.bare_any(annotation)

    def called(self, node: ast.Call, owner: str, name: str, on: frozenset[str], *, bound: bool) -> Any:
        """Check arguments against every release's signatures, and return the type of the result."""
        found: list[Any] = []
        for release in sorted(on or self.apis):
            api = self.apis[release]
            listed = api["functions"].get(name) if owner == "" else api["classes"].get(owner, {}).get(name)
            if not isinstance(listed, list):
                continue
            if not any(_accepts(_parameters(s)[bound:], node) for s in listed):
                self.problem(
                    node, f"{ast.unparse(node)} does not fit {owner}.{name} of {release}: {listed[0]}"
                )
            found += [self.returned(s) for s in listed]
        return _union(found) if found else OPAQUE

    def returned(self, signature: str) -> Any:
        text = signature.rpartition(" -> ")[2].strip()
        if text in _BUILTIN:
            return PLAIN
        several = re.fullmatch(r"(?:list|collections\.abc\.Sequence)\[(.*)\]", text)
        one = self.class_of(several[1] if several else text)
        return ("list", one) if several else one

    def class_of(self, text: str) -> Any:
        name = re.split(r"[.:]", text)[-1]
        name = _ALIASES.get(name, name)
        if any(name in api["classes"] for api in self.apis.values()):
            return instance(name)
        return PLAIN if text in _BUILTIN else OPAQUE

    def attribute(self, node: ast.AST, owner: Any, name: str, on: frozenset[str]) -> Any:
        if owner == PLAIN:
            return self.declared.fields.get(name, PLAIN) if isinstance(node, ast.Attribute) else PLAIN
        if owner[0] == "union":
            return _union(self.attribute(node, one, name, on) for one in owner[1:])
        if owner[0] in {"list", "tuple", "mapping", "members"}:
            # Methods of Python's own containers.
            return PLAIN
        if owner == OPAQUE or owner[0] in {"method", "unbound"}:
            self.problem(node, f'"{name}" is read of something whose class is not told: {ast.unparse(node)}')
            return OPAQUE
        return self.member(node, owner, name, on)

    def there(self, owner: Any, name: str, release: str) -> bool:
        api = self.apis[release]
        if owner == MODULE:
            return name in api["classes"] or name in api["functions"] or name in _ALWAYS["module"]
        if owner[0] not in {"class", "instance"}:
            return False
        listed = api["classes"].get(owner[1])
        if listed is None:
            return False
        if "enum" in listed:
            always = _ALWAYS["enum"] if owner[0] == "instance" else {"__members__"}
            return name in always or (owner[0] == "class" and name in listed["enum"])
        return name in listed

    def member(self, node: ast.AST, owner: Any, name: str, on: frozenset[str]) -> Any:
        spelled = name if owner == MODULE else f"{owner[1]}.{name}"
        self.report.used.add(spelled)
        lacking = [r for r in sorted(on) if not self.there(owner, name, r)]
        if lacking or not any(self.there(owner, name, r) for r in self.apis):
            self.problem(node, f'"{spelled}" is not in {", ".join(lacking or self.apis)}')
            return OPAQUE
        if owner == MODULE:
            if name in _ALWAYS["module"]:
                return PLAIN
            known = any(name in api["classes"] for api in self.apis.values())
            return ("class", name) if known else ("unbound", "", name)
        listed = next(api["classes"][owner[1]] for r, api in self.apis.items() if self.there(owner, name, r))
        if "enum" in listed:
            return (
                ("members", owner[1])
                if name == "__members__"
                else PLAIN
                if owner[0] == "instance"
                else instance(owner[1])
            )
        if isinstance(listed[name], list) or listed[name] == "instancemethod":
            return ("method" if owner[0] == "instance" else "unbound", owner[1], name)
        return self.declared.properties.get(spelled, OPAQUE)


def _parameters(signature: str) -> list[tuple[str, bool]]:
    """Names of a signature's parameters, and whether they have a default."""
    inside = re.sub(r"^\d+\. ", "", signature).partition("(")[2].rpartition(") ->")[0]
    parts, depth, part = [], 0, ""
    for character in inside:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    parts.append(part)
    return [(p.partition(":")[0].strip(" *"), "=" in p) for p in parts if p.strip()]


def _accepts(parameters: list[tuple[str, bool]], node: ast.Call) -> bool:
    """Whether a call's arguments may be these parameters."""
    names = [name for name, _ in parameters]
    starred = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
    given = {k.arg for k in node.keywords if k.arg is not None}
    if not given <= set(names) or (len(node.args) > len(names) and not starred):
        return False
    rest = [p for p in parameters[len(node.args) :] if p[0] not in given]
    return starred or all(optional for _, optional in rest)
