"""Which bugs are planted: places of the code, drawn by a seed, and one of Cosmic Ray's mutations for each.

Cosmic Ray has eleven replacements for a ``+`` and two for a number, so a draw of mutations would be one of operators,
most of which end in a ``TypeError`` that any test notices. Here a place is drawn first, and then what becomes of it.
The draw is by a digest of the place's own line: it stays nearly the same where code around it changes or moves, and a
larger sample holds a smaller one.
"""

from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import difflib
import hashlib
import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: The functions of facts that questions are, without their panels.
_FACTS = (
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "rtlab" / "questions").glob("*/__init__.py"))),
    "rtlab/questions/snapshot.py",
    "rtlab/questions/calibration/seen.py",
    "rtlab/questions/variants/variations.py",
)
#: What is examined, by the name of its score. A file belongs to the first that names it or a folder above it.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "relation": tuple(
        f"rtlab/relation/{name}.py"
        for name in ("mapping", "flow", "dataflow", "given", "kernel", "names", "roles", "steps")
    ),
    "analysis": (
        "rtlab/relation",
        *(
            f"rtlab/questions/{name}"
            for name in (
                "accuracy/errors.py",
                "batches/sweeps.py",
                "build/layers_from_log.py",
                "build/replay.py",
                "build/tactics.py",
                "calibration/pairs.py",
                "difference/diff.py",
                "engine/breakdown.py",
                "findings/rank.py",
                "findings/rules",
                "inspection/tensors.py",
                "memory/arena.py",
                "memory/extents.py",
                "memory/lifetimes.py",
                "memory/plan.py",
                "recurrence/fused.py",
                "recurrence/unrolling.py",
                "reformats/reasons.py",
                "roofline/estimate_error.py",
                "roofline/roofs.py",
                "samples/spread.py",
                "schedule/streams.py",
                "timing/times.py",
            )
        ),
    ),
    "quantize": ("rtlab/quantize",),
    "readers": ("rtlab/backends/files", "rtlab/backends/log"),
    "study": ("rtlab/study.py", "rtlab/session", "rtlab/experiments", *_FACTS),
}
#: Kinds of syntax that an operator of Cosmic Ray may change.
_KINDS = frozenset(
    {"operator", "keyword", "number", "comparison", "if_stmt", "while_stmt", "assert_stmt", "for_stmt"}
    | {"test", "ternary", "decorator", "except_clause", "factor", "not_test", "term", "arith_expr", "expr"}
)
#: Where a star or a slash is no operator, and what is never evaluated.
_NO_OPERATION = frozenset(
    {"parameters", "dictorsetmaker", "import_from", "lambdef", "exprlist", "testlist_star_expr"}
)


@dataclasses.dataclass(frozen=True)
class Place:
    """Some characters of a line, with what Cosmic Ray may do to them: names of operators and their occurrences."""

    package: str
    path: str
    key: str
    start: tuple[int, int]
    end: tuple[int, int]
    ways: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A bug: what a line is and what it becomes, and the code of the whole file with it."""

    id: str
    place: Place
    operator: str
    occurrence: int
    was: str
    becomes: str
    code: str


def files() -> Iterator[tuple[str, Path]]:
    """Every file that is examined, with the name of its score."""
    seen = set()
    for package, named in PACKAGES.items():
        for name in named:
            path = ROOT / name
            if not path.exists():
                raise SystemExit(
                    f'tests/plant/places.py: "{name}" of "{package}" is not there: name its new place.'
                )
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                if file not in seen:
                    seen.add(file)
                    yield package, file


def places(cache: Path) -> list[Place]:
    """All places of all packages. What a file holds is kept in a folder by the digest of the file."""
    cache.mkdir(parents=True, exist_ok=True)
    jobs = [(package, str(path.relative_to(ROOT)), cache) for package, path in files()]
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        return [place for found in pool.map(_kept, jobs) for place in found]


def drawn(found: Iterable[Place], *, sample: int, seed: int) -> Iterator[Mutant]:
    """So many mutants, each at a place of its own; what is no other program than before is passed over."""
    left = sample
    for place in sorted(found, key=lambda p: _digest(seed, p.key)):
        if not left:
            return
        for name, occurrence in sorted(
            place.ways, key=lambda w: _digest(seed, place.key, w[0], _rank(place, w))
        ):
            made = mutant(place, name, occurrence)
            if made is not None:
                yield made
                left -= 1
                break


def mutant(place: Place, name: str, occurrence: int) -> Mutant | None:
    """The file with one mutation; None where it is no Python, warns at once, or means what it meant."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (ROOT / place.path).read_text(encoding="utf-8")
    try:
        code = mutate_code(source, get_operator(name)(), occurrence)
    except AttributeError:
        # Cosmic Ray knows names of exceptions, and none behind a point: "except errors.ReadError".
        return None
    try:
        with warnings.catch_warnings():
            # Such as "is" with a number: Python itself notices.
            warnings.simplefilter("error", SyntaxWarning)
            if code is None or ast.dump(ast.parse(code)) == ast.dump(ast.parse(source)):
                return None
            compile(code, place.path, "exec")
    except (SyntaxError, ValueError):
        return None
    was, becomes = _changed(source, code)
    return Mutant(_digest(place.key, name, becomes)[:12], place, name, occurrence, was, becomes, code)


def _changed(source: str, code: str) -> tuple[str, str]:
    one, two = source.splitlines(), code.splitlines()
    gone, come = [], []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += one[a:b]
            come += two[c:d]
    before, after = (
        "\n".join(" ".join(line.split()) for line in lines if line.strip()) for lines in (gone, come)
    )
    return before, after


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _rank(place: Place, way: tuple[str, int]) -> int:
    """Which of the mutations of one operator at this place."""
    return [w for w in place.ways if w[0] == way[0]].index(way)


def _kept(job: tuple[str, str, Path]) -> list[Place]:
    package, path, cache = job
    source = (ROOT / path).read_text(encoding="utf-8")
    kept = cache / f"{_digest(path, source, Path(__file__).read_text(encoding='utf-8'))[:24]}.json"
    if kept.exists():
        told = json.loads(kept.read_text(encoding="utf-8"))
    else:
        told = [dataclasses.asdict(p) for p in _places(package, path, source)]
        kept.write_text(json.dumps(told), encoding="utf-8")
    return [
        Place(
            package,
            path,
            t["key"],
            tuple(t["start"]),
            tuple(t["end"]),
            tuple((name, occurrence) for name, occurrence in t["ways"]),
        )
        for t in told
    ]


def _places(package: str, path: str, source: str) -> Iterator[Place]:
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    operators = {
        n: get_operator(n)()
        for n in sorted(operator_names())
        if n != "NoOp" and not get_operator(n).arguments()
    }
    counted: dict[str, int] = defaultdict(int)
    ways: dict[tuple[Any, Any], list[tuple[str, int]]] = defaultdict(list)
    for node in ast_nodes(get_ast(source)):
        if node.type not in _KINDS:
            continue
        alive = None
        for name, operator in operators.items():
            for span in operator.mutation_positions(node):
                occurrence = counted[name]
                counted[name] += 1
                alive = _evaluated(node) if alive is None else alive
                if alive:
                    ways[span].append((name, occurrence))
    lines, scopes = source.splitlines(), _scopes(source)
    known: dict[str, int] = defaultdict(int)
    for (start, end), found in sorted(ways.items()):
        line = lines[start[0] - 1]
        before = line[: start[1]].strip()
        key = "\0".join(
            (Path(path).name, scopes.get(start[0], ""), line.strip(), before, str(end[0] - start[0]))
        )
        known[key] += 1
        yield Place(package, path, f"{key}\0{known[key]}", start, end, tuple(found))


def _evaluated(node: Any) -> bool:
    """Whether a node is code that runs: annotations never do, since every module postpones them, nor their imports."""
    if node.type == "if_stmt" and node.children[1].get_code().strip() == "TYPE_CHECKING":
        return False
    if node.type == "operator" and (
        node.value == "->" or (node.parent.type in _NO_OPERATION and node.value in "**/")
    ):
        return False
    child, parent = node, node.parent
    while parent is not None:
        if parent.type == "annassign" and child is parent.children[1]:
            return False
        if parent.type == "tfpdef" and child is parent.children[-1]:
            return False
        if parent.type == "param" and child is getattr(parent, "annotation", None):
            return False
        if parent.type == "funcdef" and child is parent.annotation:
            return False
        child, parent = parent, parent.parent
    return True


def _scopes(source: str) -> dict[int, str]:
    """By line, the functions and classes around it."""
    found: dict[int, str] = {}

    def into(node: ast.AST, scope: Sequence[str]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = (*scope, child.name)
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                for line in range(first, (child.end_lineno or first) + 1):
                    found[line] = ".".join(inner)
            into(child, inner)

    into(ast.parse(source), ())
    return found
