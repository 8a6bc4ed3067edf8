"""A study as Markdown, to paste into an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rtlab.analyses.cards.card import name_layers
from rtlab.analyses.findings import list_findings
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.recipe import build_recipe
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.timing import get_engine_timing
from rtlab.core.phrases import pluralize
from rtlab.documents.figure import SIGNS
from rtlab.documents.numbers import format_number, shorten_name
from rtlab.web.page import chrome
from rtlab.web.page.table import list_chip_cells

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.finding import Finding
    from rtlab.web.page.contract import Chip

#: Layers and findings of a variant that a reader of an issue still reads.
_MOST_LAYERS, _MOST_FINDINGS = 5, 8
#: Letters of a name, and of a sentence in a table.
_NAME = 80
#: What Markdown makes something of, and what it does so at the start of a line.
_MEANT, _FIRST = re.compile(r"[\\`*_\[\]|~$&<>]"), re.compile(r"^(\d+)(\.)(?=\s|$)|^()([-+=])")
#: What GitHub makes a mention, a reference, a formula or a link of, escaped or not, unless something stands within.
_AUTOLINK = re.compile(r"[@#$]|:(?=//)|www(?=\.)", re.IGNORECASE)
_NOTHING = "\u200b"


def escape(text: str) -> str:
    """A text from outside, such as a name of a file, node or layer, that Markdown shows as it is, on one line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    markup = _FIRST.sub(r"\1\3\\\2\4", _MEANT.sub(r"\\\g<0>", line))
    return _AUTOLINK.sub(lambda match: match[0] + _NOTHING, markup)


def render_markdown(study: StudyState, built: Sequence[str], baseline: str) -> str:
    """The variants in a table, what fell, the slow layers, the findings, and how to make all of it again."""
    chips = chrome.build_chips(study, baseline=baseline)
    marks = ", ".join(f"{sign} {origin}" for origin, sign in SIGNS.items())
    parts = [f"# {escape(study.model.name)}", "", *_table(_HEAD, map(_summary, chips)), "", f"{marks}."]
    parts += _list_drops(study, chips)
    labels = {c["id"]: c["label"] for c in chips}
    for name in built:
        parts += _variant(study, study.results[name], labels[name])
    return "\n".join([*parts, *_format_recipe(study, built), ""])


_HEAD = ("Variant", "Target", "Nodes → layers", "Time", "Task", "Note")


def _summary(chip: Chip) -> tuple[str, ...]:
    """A variant in the table of all."""
    if chip["error"] is not None:
        return chip["label"], chip["target"], "—", "—", "—", chip["error"]["message"]
    label, *cells = list_chip_cells(chip)
    title = f"{label} (baseline)" if chip["baseline"] else label
    return title, *cells, f"⚠ {chip['random']}" if chip["random"] else "—"


def _list_drops(study: StudyState, chips: Sequence[Chip]) -> Iterator[str]:
    """The significant drops, the largest first, with their diagnosed causes."""
    fell = sorted((c for c in chips if c["score_worse"]), key=lambda c: -abs(c["score_delta"] or 0.0))
    if not fell:
        return
    yield from ("", "## What fell", "")
    for chip in fell:
        yield f"- **{escape(chip['label'])}**: {SIGNS['measured']} {escape(chip['score_told'])}"
        diagnosis = study.diagnoses.get(chip["id"])
        for finding in diagnosis.findings[:_MOST_FINDINGS] if diagnosis is not None else ():
            yield f"  - {_format_finding(finding)}"


def _variant(study: StudyState, facts: VariantResult, title: str) -> Iterator[str]:
    yield from ("", f"## {escape(title)}", "")
    for item in chrome.list_status(study, facts.name):
        warned = "⚠ " if item["warning"] else ""
        yield f"- {SIGNS[item['origin']]} {warned}{escape(item['text'])}"
    origin, rows = _list_slow_layers(facts)
    if rows:
        yield from ("", "### Slow layers", "", *_table(("Layer", f"Time ({origin})", "Share", "Nodes"), rows))
    findings = list_findings(facts)
    if findings:
        yield from ("", f"### {pluralize(len(findings), 'finding')}", "")
        yield from (f"- {_format_finding(finding)}" for finding in findings[:_MOST_FINDINGS])
        if len(findings) > _MOST_FINDINGS:
            yield f"- and {len(findings) - _MOST_FINDINGS} more"


def _list_slow_layers(facts: VariantResult) -> tuple[str, list[tuple[str, ...]]]:
    """The origin of the times, and the layers that take most, measured or else estimated; none without either."""
    titles, mapping = name_layers(facts, facts.source), map_nodes(facts)
    timing, roof = get_engine_timing(facts), estimate_timing(facts)
    origin, times = "", {}
    if timing is not None and timing.layers:
        origin, times = SIGNS["measured"], {t.layer: t.median for t in timing.layers}
    elif roof is not None and not roof.withheld:
        origin = f"{SIGNS['estimated']} {roof.peaks.name}"
        times = {p.layer: p.estimated or 0.0 for p in roof.layers}
    total = sum(times.values()) or 1.0
    return origin, [
        (
            titles.get(layer, layer),
            format_number(time, "ms"),
            format_number(100 * time / total, "%"),
            ", ".join(mapping.nodes(layer)),
        )
        for layer, time in sorted(times.items(), key=lambda item: -item[1])[:_MOST_LAYERS]
    ]


def _format_finding(finding: Finding) -> str:
    """A finding in a line: what, what it costs, what it rests on, what to do."""
    cost = "" if finding.microseconds is None else f" ({SIGNS['measured']} {finding.microseconds:.3g} µs)"
    where = ""
    if finding.nodes:
        more = f" and {len(finding.nodes) - 1} more" if len(finding.nodes) > 1 else ""
        where = f" at {escape(shorten_name(finding.nodes[0], _NAME))}{more}"
    # Where it happens stands within the sentence of the title.
    summary = f"**{escape(finding.title.removesuffix('.'))}**{where}{cost}. {escape(finding.cost)}"
    return f"{summary} Evidence: {escape(finding.evidence)} Remedy: {escape(finding.fix)}"


def _format_recipe(study: StudyState, built: Sequence[str]) -> Iterator[str]:
    recipe = build_recipe(study, built)
    yield from ("", "## Make it again", "", *_fence(recipe.python, "python"))
    yield from ("", "## Made of and with", "")
    digest = [("SHA-256", recipe.sha256)] if recipe.sha256 is not None else []
    parts = [(v.part, v.version) for v in recipe.versions]
    yield from _table(("Part", "What"), [("Model", recipe.model), *digest, *parts])


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(escape(shorten_name(cell, 3 * _NAME)) for cell in row)} |"


def _fence(text: str, language: str) -> Iterator[str]:
    """A block of code, whatever backticks are in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{language}", text.rstrip("\n"), fence)
