"""What a compiler fuses, by the catalogue of planted cases: each beside what TensorRT's documentation says.

Tables are made by ``rtlab rules --build`` and stand in ``data``, one a compiler, release and target.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from rtlab.core.engine import Engine
from rtlab.core.phrases import quoted
from rtlab.core.schema import Meaning
from rtlab.errors import ReadError

#: What becomes of a pair: one step does both, each has a step, or there is no step to be had of one of them. Empty
#: where no rule says anything, or the compiler refused the case.
Fate = Literal["fused", "apart", "gone", ""]
#: Whether a compiler does what is documented; where no rule is, or it refused, that is not applicable.
Agreement = Literal["agrees", "differs", "not applicable"]
#: Fates after which nothing is written to memory and read again for the pair.
_JOINED = frozenset({"fused", "gone"})


@dataclasses.dataclass(frozen=True)
class RuleOutcome:
    """One case of the catalogue, and what a compiler made of it."""

    case: Annotated[str, Meaning("Case")]
    title: Annotated[str, Meaning("What is asked")]
    pair: Annotated[str, Meaning("Pair")]
    documented: Annotated[Fate, Meaning("Documented")]
    found: Annotated[Fate, Meaning("Found", origin="reported")]
    source: Annotated[str, Meaning("Rule")]
    target: Annotated[str, Meaning("Target")]
    layers: Annotated[int | None, Meaning("Layers", origin="reported")] = None
    refused: Annotated[str, Meaning("Refused")] = ""

    @property
    def agreement(self) -> Annotated[Agreement, Meaning("Agreement")]:
        """Whether it is as documented; a node without a step is as good as one that shares a step."""
        if not self.documented or not self.found:
            return "not applicable"
        return "agrees" if (self.documented in _JOINED) == (self.found in _JOINED) else "differs"


@dataclasses.dataclass(frozen=True)
class FusionRules:
    """What one release of a compiler fuses.

    Attributes:
        compiler: The compiler.
        version: Its release.
        target: What was built for, but for cases that need another.
        date: The day on which it was asked, as in ``2026-11-23``.
        rules: The cases, in the order of the catalogue.
    """

    compiler: Annotated[str, Meaning("Compiler")]
    version: Annotated[str, Meaning("Release")]
    target: Annotated[str, Meaning("Target")]
    date: Annotated[str, Meaning("Asked on")]
    rules: tuple[RuleOutcome, ...]

    @property
    def agrees(self) -> Annotated[int, Meaning("As documented")]:
        """Cases that are as documented."""
        return self._count("agrees")

    @property
    def differs(self) -> Annotated[int, Meaning("Otherwise")]:
        """Cases that are not as documented."""
        return self._count("differs")

    @property
    def rest(self) -> Annotated[int, Meaning("Not applicable", note="No rule, or refused.")]:
        """Cases that no rule is about, or that the compiler refused."""
        return self._count("not applicable")

    def _count(self, agreement: Agreement) -> int:
        return sum(r.agreement == agreement for r in self.rules)

    def only(self, pattern: str) -> FusionRules:
        """The cases of such names, with ``*`` and ``?``.

        Raises:
            ReadError: there is none.
        """
        chosen = tuple(r for r in self.rules if fnmatch.fnmatchcase(r.case, pattern))
        if not chosen:
            known = quoted(r.case for r in self.rules)
            raise ReadError(f'Cannot show the case "{pattern}": there is none. Choose of {known}.')
        return dataclasses.replace(self, rules=chosen)

    @property
    def title(self) -> str:
        """Of what, and of when it is."""
        return f"{self.compiler} {self.version}, {self.target}, asked on {self.date}"


@functools.cache
def tables() -> tuple[FusionRules, ...]:
    """The tables that rtlab brings along, the newest release first."""
    folder = resources.files(__package__) / "data"
    files = [f for f in folder.iterdir() if f.name.endswith(".json")]
    return tuple(
        sorted((read(f.read_text("utf-8")) for f in files), key=lambda t: _order(t.version), reverse=True)
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def read(text: str) -> FusionRules:
    """A table from its JSON.

    Raises:
        ReadError: it is none.
    """
    try:
        told = json.loads(text)
        rules = tuple(RuleOutcome(**rule) for rule in told.pop("rules"))
        return FusionRules(**told, rules=rules)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReadError(
            f"Cannot read a table of fusion rules: it is not what rtlab rules --build writes ({error}). Make it anew.",
        ) from error


def written(table: FusionRules) -> str:
    """A table as JSON, a rule a line."""
    told = dataclasses.asdict(table)
    rules = ",\n  ".join(json.dumps(r, ensure_ascii=False) for r in told.pop("rules"))
    head = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in told.items())
    return f'{{{head}, "rules": [\n  {rules}\n]}}\n'


def markdown(table: FusionRules) -> str:
    """A table for the documentation, what differs first."""
    lead = (
        f"{len(table.rules)} small planted cases, built for {table.target} (or for what a case needs) and asked on "
        f"{table.date}; what became of each is reported by the compiler. *Fused*: one step does the work of both "
        "nodes. *Gone*: a node has no step at all. *Apart*: each has a step of its own. A rule that holds in a small "
        "graph may still be spoilt by what stands around it in a model: `rtlab why` asks there. "
        "`rtlab rules --build` makes this table with another compiler."
    )
    parts = [f"# What {table.compiler} {table.version} fuses", lead]
    for agreement, title in _SECTIONS.items():
        rows = [r for r in table.rules if r.agreement == agreement]
        parts += [f"## {title}: {len(rows)}", "\n".join([*_HEAD, *map(_row, rows)])] if rows else []
    return "\n\n".join(parts) + "\n"


_SECTIONS: dict[Agreement, str] = {
    "differs": "Not as TensorRT's documentation says",
    "agrees": "As documented",
    "not applicable": "Without a rule, or refused",
}
_HEAD = ("| case | pair | documented | found (reported) | rule |", "|---|---|---|---|---|")


def _row(rule: RuleOutcome) -> str:
    told = (rule.title, rule.pair, rule.documented or "—", rule.found or "refused", rule.source)
    return f"| {' | '.join(t.replace('|', 'and') for t in told)} |"


def save(table: FusionRules, path: Path) -> None:
    """Write a table, as Markdown where the file's name ends in ``.md``, else as JSON."""
    path.write_text(markdown(table) if path.suffix == ".md" else written(table), "utf-8")


def shipped(backend: str | None = None, target: str | None = None, release: str | None = None) -> FusionRules:
    """The newest table that rtlab brings along, of a compiler, a target and a release where these are named.

    Raises:
        ReadError: there is none.
    """
    for table in tables():
        known = release is None or f"{table.version}.".startswith(f"{release}.")
        if known and backend in {None, _short(table.compiler)} and target in {None, table.target}:
            return table
    there = quoted(f"{_short(t.compiler)} {t.version} {t.target}" for t in tables())
    asked = " for ".join(filter(None, (" ".join(filter(None, (backend, release))), target)))
    raise ReadError(
        f'Cannot show what "{asked}" fuses: there are tables of {there}. Give --build to ask a compiler that is here.'
    )


def _short(compiler: str) -> str:
    return compiler.lower().replace(" ", "-")


def of(engine: Engine) -> FusionRules:
    """The table of an engine's compiler: of its release, else of the newest that is known.

    Raises:
        ReadError: there is none of this compiler.
    """
    known = [t for t in tables() if t.compiler == (engine.maker.title or engine.backend)]
    if not known:
        raise ReadError(
            f"Cannot tell what {engine.title} fuses: nobody asked this compiler the catalogue of cases yet. "
            f"Where it is installed, ask with rtlab rules --build --backend {engine.backend}."
        )
    return next((t for t in known if t.version == engine.version), known[0])
