"""A study as Markdown, to paste into an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.core.phrases import many
from rtlab.documents.figure import SIGNS
from rtlab.documents.numbers import number, shortened, storage
from rtlab.questions import recipe
from rtlab.questions.cards.card import names
from rtlab.questions.recipe import lines
from rtlab.view import chrome

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.finding import Finding
    from rtlab.questions.snapshot import Snapshot
    from rtlab.view.contract import Chip

#: Layers and findings of a variant that a reader of an issue still reads.
_SLOW, _FOUND = 5, 8
#: Letters of a name, and of a sentence in a table.
_NAME = 80
#: What Markdown makes something of, and what it does so at the start of a line.
_MEANT, _FIRST = re.compile(r"[\\`*_\[\]|~$&<>]"), re.compile(r"^(\d+)(\.)(?=\s|$)|^()([-+=])")
#: What GitHub makes a mention, a reference, a formula or a link of, escaped or not, unless something stands within.
_JOINED = re.compile(r"[@#$]|:(?=//)|www(?=\.)", re.IGNORECASE)
_NOTHING = "\u200b"
#: What a time was taken on, in what is told of its source.
_PROCESSOR = re.compile(r"\b[CG]PU\b")


def escaped(text: str) -> str:
    """A text of somebody else's that stands in Markdown as it is, on one line: names of files, nodes and layers."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    told = _FIRST.sub(r"\1\3\\\2\4", _MEANT.sub(r"\\\g<0>", line))
    return _JOINED.sub(lambda found: found[0] + _NOTHING, told)


def markdown(study: Snapshot, built: Sequence[str], baseline: str) -> str:
    """The variants in a table, what fell, the slow layers, the findings, and how to make all of it again."""
    chips = chrome.chips(study, baseline=baseline)
    marks = ", ".join(f"{sign} {origin}" for origin, sign in SIGNS.items())
    parts = [f"# {escaped(study.model.name)}", "", *_table(_HEAD, map(_summary, chips)), "", f"{marks}."]
    parts += _drops(study, chips)
    called = {c["id"]: c["label"] for c in chips}
    for name in built:
        parts += _variant(study, study.facts[name], called[name])
    return "\n".join([*parts, *_again(study, built), ""])


_HEAD = ("Variant", "Target", "Nodes → layers", "Time", "Task", "Note")


def _summary(chip: Chip) -> tuple[str, ...]:
    """A variant in the table of all."""
    if chip["error"] is not None:
        return chip["label"], chip["target"], "—", "—", "—", chip["error"]["message"]
    sign = SIGNS["predicted" if chip["predicted"] else "reported"]
    times = []
    if chip["estimate"] is not None:
        times.append(f"{SIGNS['estimated']} {number(chip['estimate'], 'ms')} {chip['estimate_gpu']}")
    if chip["time"] is not None:
        processor = _PROCESSOR.search(chip["time_source"])
        taken = f"{SIGNS['measured']} {number(chip['time'], 'ms')}"
        times.append(f"{taken} {processor[0]}" if processor else taken)
    return (
        f"{chip['label']} (baseline)" if chip["baseline"] else chip["label"],
        chip["target"],
        f"{chip['nodes'] or '—'} → {sign} {many(chip['layers'], chip['counted'])}",
        ", ".join(times) or "—",
        f"{SIGNS['measured']} {chip['score_told']}" if chip["score_told"] else "—",
        f"⚠ {chip['random']}" if chip["random"] else "—",
    )


def _drops(study: Snapshot, chips: Sequence[Chip]) -> Iterator[str]:
    """What the samples can tell is worse, the largest first, with its causes as far as they are known."""
    fell = sorted((c for c in chips if c["score_worse"]), key=lambda c: -abs(c["score_delta"] or 0.0))
    if not fell:
        return
    yield from ("", "## What fell", "")
    for chip in fell:
        yield f"- **{escaped(chip['label'])}**: {SIGNS['measured']} {escaped(chip['score_told'])}"
        found = study.diagnoses.get(chip["id"])
        for finding in found.findings[:_FOUND] if found is not None else ():
            yield f"  - {_found(finding)}"


def _variant(study: Snapshot, facts: Facts, title: str) -> Iterator[str]:
    yield from ("", f"## {escaped(title)}", "")
    for item in chrome.status(study, facts.name):
        warned = "⚠ " if item["warning"] else ""
        yield f"- {SIGNS[item['origin']]} {warned}{escaped(item['text'])}"
    if slow := _slow(facts):
        head, rows = slow
        yield from ("", "### Slow layers", "", *_table(head, rows))
    found = questions.findings.of(facts)
    if found:
        yield from ("", f"### {many(len(found), 'finding')}", "")
        yield from (f"- {_found(finding)}" for finding in found[:_FOUND])
        if len(found) > _FOUND:
            yield f"- and {len(found) - _FOUND} more"


def _slow(facts: Facts) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """The layers that take most time, measured or else estimated; None where nobody knows."""
    called, mapping = names(facts, facts.source), questions.fusion.mapping(facts)
    own, roof = questions.timing.own(facts), questions.roofline.estimate(facts)
    if own is not None and own.layers:
        kind, told = SIGNS["measured"], [(t.layer, t.median, t.share) for t in own.layers]
    elif roof is not None and not roof.withheld:
        whole = sum(p.estimated or 0.0 for p in roof.layers) or 1.0
        kind = f"{SIGNS['estimated']} {roof.peaks.name}"
        told = [(p.layer, p.estimated or 0.0, (p.estimated or 0.0) / whole) for p in roof.layers]
    else:
        return None
    told.sort(key=lambda row: -row[1])
    rows: list[tuple[str, ...]] = [
        (
            called.get(layer, layer),
            number(ms, "ms"),
            number(100 * share, "%"),
            ", ".join(mapping.nodes(layer)),
        )
        for layer, ms, share in told[:_SLOW]
    ]
    head: tuple[str, ...] = ("Layer", f"Time ({kind})", "Share", "Nodes")
    return head, rows


def _found(finding: Finding) -> str:
    """A finding in a line: what, what it costs, what it rests on, what to do."""
    cost = "" if finding.microseconds is None else f" ({SIGNS['measured']} {finding.microseconds:.3g} µs)"
    where = f" at {_several(finding.nodes)}" if finding.nodes else ""
    # Where it happens stands within the sentence of the title.
    said = f"**{escaped(finding.title.removesuffix('.'))}**{where}{cost}. {escaped(finding.cost)}"
    return f"{said} Evidence: {escaped(finding.evidence)} Remedy: {escaped(finding.fix)}"


def _several(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return f"{escaped(shortened(nodes[0], _NAME))}{more}"


def _again(study: Snapshot, built: Sequence[str]) -> Iterator[str]:
    yield from ("", "## Make it again", "", *_fenced(lines.python(study, built), "python"))
    commands = lines.command(study, built)
    if commands:
        yield from ("", *_fenced("\n".join(commands) + "\n", "bash"))
    for name in built:
        if why := lines.untold(study, name):
            yield from ("", f"The command line cannot make {escaped(name)}: it {escaped(why)}.")
    made = recipe.identity(study.model)
    yield from ("", "## Made of and with", "")
    facts = [study.facts[n] for n in built]
    model = [("Model", made.file)]
    if made.nbytes is not None:
        model.append(("Size", storage(made.nbytes)))
    if made.sha256 is not None:
        model.append(("SHA-256", f"{made.sha256} · {made.basis}"))
    if made.weights is not None:
        model.append(("SHA-256 of the weights", made.weights))
    model.append(("Data", recipe.data(study)))
    dates = [(f"Built, {f.name}", told) for f in facts if (told := recipe.date(f.engine.built))]
    parts = [(v.part, v.version) for v in recipe.versions(facts)]
    yield from _table(("Part", "What"), [*model, *dates, *parts])


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(escaped(shortened(cell, 3 * _NAME)) for cell in row)} |"


def _fenced(text: str, language: str) -> Iterator[str]:
    """A block of code, whatever backticks are in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{language}", text.rstrip("\n"), fence)
