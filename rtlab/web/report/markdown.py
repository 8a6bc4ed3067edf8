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
#: What a time was taken on, in what is told of its source.
_PROCESSOR = re.compile(r"\b[CG]PU\b")


def escape(text: str) -> str:
    """A text of somebody else's that stands in Markdown as it is, on one line: names of files, nodes and layers."""
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
    sign = SIGNS["predicted" if chip["predicted"] else "reported"]
    times = []
    if chip["estimate"] is not None:
        times.append(f"{SIGNS['estimated']} {format_number(chip['estimate'], 'ms')} {chip['estimate_gpu']}")
    if chip["time"] is not None:
        processor = _PROCESSOR.search(chip["time_source"])
        taken = f"{SIGNS['measured']} {format_number(chip['time'], 'ms')}"
        times.append(f"{taken} {processor[0]}" if processor else taken)
    return (
        f"{chip['label']} (baseline)" if chip["baseline"] else chip["label"],
        chip["target"],
        f"{chip['nodes'] or '—'} → {sign} {pluralize(chip['layers'], chip['counted'])}",
        ", ".join(times) or "—",
        f"{SIGNS['measured']} {chip['score_told']}" if chip["score_told"] else "—",
        f"⚠ {chip['random']}" if chip["random"] else "—",
    )


def _list_drops(study: StudyState, chips: Sequence[Chip]) -> Iterator[str]:
    """What the samples can tell is worse, the largest first, with its causes as far as they are known."""
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
    if slow := _list_slow_layers(facts):
        head, rows = slow
        yield from ("", "### Slow layers", "", *_table(head, rows))
    findings = list_findings(facts)
    if findings:
        yield from ("", f"### {pluralize(len(findings), 'finding')}", "")
        yield from (f"- {_format_finding(finding)}" for finding in findings[:_MOST_FINDINGS])
        if len(findings) > _MOST_FINDINGS:
            yield f"- and {len(findings) - _MOST_FINDINGS} more"


def _list_slow_layers(facts: VariantResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """The layers that take most time, measured or else estimated; None where nobody knows."""
    layer_titles, mapping = name_layers(facts, facts.source), map_nodes(facts)
    timing, roof = get_engine_timing(facts), estimate_timing(facts)
    if timing is not None and timing.layers:
        kind, layer_times = SIGNS["measured"], [(t.layer, t.median, t.share) for t in timing.layers]
    elif roof is not None and not roof.withheld:
        total = sum(p.estimated or 0.0 for p in roof.layers) or 1.0
        kind = f"{SIGNS['estimated']} {roof.peaks.name}"
        layer_times = [(p.layer, p.estimated or 0.0, (p.estimated or 0.0) / total) for p in roof.layers]
    else:
        return None
    layer_times.sort(key=lambda row: -row[1])
    rows: list[tuple[str, ...]] = [
        (
            layer_titles.get(layer, layer),
            format_number(ms, "ms"),
            format_number(100 * share, "%"),
            ", ".join(mapping.nodes(layer)),
        )
        for layer, ms, share in layer_times[:_MOST_LAYERS]
    ]
    head: tuple[str, ...] = ("Layer", f"Time ({kind})", "Share", "Nodes")
    return head, rows


def _format_finding(finding: Finding) -> str:
    """A finding in a line: what, what it costs, what it rests on, what to do."""
    cost = "" if finding.microseconds is None else f" ({SIGNS['measured']} {finding.microseconds:.3g} µs)"
    where = f" at {_several(finding.nodes)}" if finding.nodes else ""
    # Where it happens stands within the sentence of the title.
    summary = f"**{escape(finding.title.removesuffix('.'))}**{where}{cost}. {escape(finding.cost)}"
    return f"{summary} Evidence: {escape(finding.evidence)} Remedy: {escape(finding.fix)}"


def _several(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return f"{escape(shorten_name(nodes[0], _NAME))}{more}"


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
