"""Which bugs are planted: places of the code, drawn by a seed, and one of Cosmic Ray's mutations for each.

Cosmic Ray has eleven replacements for a ``+`` and two for a number, so a draw among mutations would be one of
operators, most of which end in a ``TypeError`` that any test notices. Here a place is drawn first, then what becomes
of it. Packages take turns, so that each has an equal share; the places of one are ordered by a digest of their own
line, so that the draw stays nearly the same where code around them changes, and a larger sample holds a smaller one.
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: The package that the files directly in ``rtlab/`` make together.
MODULES = "modules"
#: Kinds of syntax that an operator of Cosmic Ray may change.
_KINDS = frozenset(
    {"operator", "keyword", "number", "comparison", "if_stmt", "while_stmt", "assert_stmt", "for_stmt"}
    | {"test", "ternary", "decorator", "except_clause", "factor", "not_test", "term", "arith_expr", "expr"}
)
#: Where a star or a slash is no operator.
_NO_OPERATION = frozenset(
    {"parameters", "dictorsetmaker", "import_from", "lambdef", "exprlist", "testlist_star_expr"}
)


@dataclasses.dataclass(frozen=True)
class Place:
    """Some characters of a line, with what Cosmic Ray may do to them: names of operators and their occurrences."""

    package: str
    path: str
    key: str
    line: int
    mutations: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A bug: what a line is and what it becomes, and the code of the whole file with it."""

    id: str
    place: Place
    before: str
    after: str
    code: str


def list_files() -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((ROOT / "rtlab").rglob("*.py")):
        folder, *below = path.relative_to(ROOT / "rtlab").parts
        if folder != "static":
            files[folder if below else MODULES].append(path)
    return dict(files)


def list_places(cache: Path) -> list[Place]:
    cache.mkdir(parents=True, exist_ok=True)
    jobs = [
        (package, str(path.relative_to(ROOT)), cache)
        for package, paths in list_files().items()
        for path in paths
    ]
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        return [place for places in pool.map(_cached_places, jobs, chunksize=8) for place in places]


def draw(places: Iterable[Place], *, sample: int, seed: int) -> list[Mutant]:
    by_package: dict[str, list[Place]] = defaultdict(list)
    for place in sorted(places, key=lambda p: digest(seed, p.key)):
        by_package[place.package].append(place)
    turns = [_draw_package(by_package[p], seed) for p in sorted(by_package, key=lambda p: digest(seed, p))]
    drawn: list[Mutant] = []
    while turns and len(drawn) < sample:
        for turn in [*turns]:
            if (mutant := next(turn, None)) is None:
                turns.remove(turn)
            else:
                drawn.append(mutant)
    return drawn[:sample]


def _draw_package(places: Iterable[Place], seed: int) -> Iterator[Mutant]:
    for place in places:
        ranks: dict[str, int] = defaultdict(int)
        order = {}
        for name, occurrence in place.mutations:
            order[name, occurrence] = digest(seed, place.key, name, ranks[name])
            ranks[name] += 1
        mutants = (mutate(place, *mutation) for mutation in sorted(order, key=order.__getitem__))
        if (mutant := next((m for m in mutants if m is not None), None)) is not None:
            yield mutant


def mutate(place: Place, operator: str, occurrence: int) -> Mutant | None:
    """The file with one mutation; None where it is no Python, warns at once, or is the same program as before."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (ROOT / place.path).read_text(encoding="utf-8")
    try:
        code = mutate_code(source, get_operator(operator)(), occurrence)
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
    before, after = _changed_lines(source, code)
    return Mutant(digest(place.key, operator, after)[:12], place, before, after, code)


def _changed_lines(source: str, code: str) -> tuple[str, str]:
    changes = [*difflib.unified_diff(source.splitlines(), code.splitlines(), n=0, lineterm="")][2:]
    before, after = (" ".join(" ".join(x[1:] for x in changes if x[0] == sign).split()) for sign in "-+")
    return before, after


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _cached_places(job: tuple[str, str, Path]) -> list[Place]:
    package, path, cache = job
    source = (ROOT / path).read_text(encoding="utf-8")
    file = cache / f"{digest(path, source, Path(__file__).read_text(encoding='utf-8'))[:24]}.json"
    if not file.exists():
        file.write_text(json.dumps([*_find_places(path, source)]), encoding="utf-8")
    return [
        Place(package, path, key, line, tuple((name, occurrence) for name, occurrence in mutations))
        for key, line, mutations in json.loads(file.read_text(encoding="utf-8"))
    ]


def _find_places(path: str, source: str) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    operators = {
        name: get_operator(name)()
        for name in sorted(operator_names())
        if name != "NoOp" and not get_operator(name).arguments()
    }
    occurrences: dict[str, int] = defaultdict(int)
    mutations: dict[tuple[Any, Any], list[tuple[str, int]]] = defaultdict(list)
    for node in ast_nodes(get_ast(source)):
        if node.type not in _KINDS:
            continue
        runs = _is_evaluated(node)
        for name, operator in operators.items():
            for span in operator.mutation_positions(node):
                if runs:
                    mutations[span].append((name, occurrences[name]))
                occurrences[name] += 1
    lines = source.splitlines()
    repeats: dict[str, int] = defaultdict(int)
    for (start, end), of_span in sorted(mutations.items()):
        line = lines[start[0] - 1]
        before = line[: start[1]].strip()
        key = "\0".join((path, line.strip(), before, str(end[0] - start[0])))
        repeats[key] += 1
        yield f"{key}\0{repeats[key]}", start[0], of_span


def _is_evaluated(node: Any) -> bool:
    """Whether a node is code that runs: annotations never do, since every module postpones them, nor their imports."""
    if node.type == "if_stmt" and node.children[1].get_code().strip() == "TYPE_CHECKING":
        return False
    if node.type == "operator" and (
        node.value == "->" or (node.parent.type in _NO_OPERATION and node.value in "**/")
    ):
        return False
    child, parent = node, node.parent
    while parent is not None:
        annotation = {
            "annassign": lambda p: p.children[1],
            "tfpdef": lambda p: p.children[-1],
            "param": lambda p: p.annotation,
            "funcdef": lambda p: p.annotation,
        }.get(parent.type)
        if annotation is not None and child is annotation(parent):
            return False
        child, parent = parent, parent.parent
    return True
