"""Report: a study as one HTML file that opens from disk, with no network and no kernel.

The file holds the Explorer's own code and every payload that the kernel would send, and for its figures the part of
Plotly that draws bars, lines and pictures: the whole would make it 5 MB larger.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.cards.card import name_layers
from rtlab.analyses.findings import list_findings
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.recipe import build_recipe
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.timing import get_engine_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core import files
from rtlab.core.phrases import pluralize, quote_names
from rtlab.documents import glossary
from rtlab.documents.contract import Figure, Panel
from rtlab.documents.figure import SIGNS
from rtlab.documents.numbers import format_number, shorten_name
from rtlab.documents.serialization import encode, to_builtins
from rtlab.errors import VariantError
from rtlab.web.page import charts, chrome
from rtlab.web.page.charts import figures, inline_script
from rtlab.web.page.contract import Chip, Saved, SavedVariant
from rtlab.web.page.document import build_study_document
from rtlab.web.page.graph import engine_view, source_graph
from rtlab.web.page.state import Step, ViewState, parse_steps
from rtlab.web.page.table import list_variant_rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.finding import Finding

#: The charts that the page has beside its panels, by name: title, and key in ``charts.build_charts``.
_CHARTS = {
    "layers": ("Time of each layer", "timing"),
    "errors": ("Signal to noise along the network", "accuracy"),
}


def plotly_figure(name: str, context: PanelContext, *, index: int = 0) -> go.Figure:
    """One chart of a panel, or of the layers.

    Raises:
        VariantError: there is no panel of this name, or it has no such chart for this variant.
    """
    import plotly.graph_objects as go

    title, figures, problem = _read_figures(name, context)
    if not 0 <= index < len(figures):
        count = f"it has {len(figures)} here, counted from 0" if figures else problem or "it has none here"
        raise VariantError(f'Cannot draw chart {index} of "{name}": {count}.')
    figure, names = figures[index], get_variant_titles(context.study)
    heading = " · ".join(
        dict.fromkeys(filter(None, (title, figure["title"], context.model.name, names[context.result.name])))
    )
    if context.baseline is not None:
        heading += f", beside {names[context.baseline.name]}"
    # The page writes the title above the chart and leaves no room for it inside.
    margin: dict[str, Any] = {**figure["layout"].get("margin", {})}
    margin["t"] = max(60, margin.get("t", 0))
    layout = {**figure["layout"], "title": {"text": heading}, "margin": margin}
    return go.Figure(data=figure["data"], layout={**layout, "height": figure["height"] or None})


def _read_figures(name: str, context: PanelContext) -> tuple[str, list[Figure], str]:
    """Title, charts, and what is wrong where there are none."""
    if name in _CHARTS:
        title, key = _CHARTS[name]
        if name == "layers" and context.settings.get("order") == "time":
            key = "longest"
        view = engine_view(context.result, context.model)
        chart: dict[str, Any] = charts.build_charts(view, context.result)[key]
        return title, [Figure(title="", height=0, data=chart["data"], layout=chart["layout"])], ""
    if name not in panels.PANELS:
        choices = ", ".join((*_CHARTS, *panels.PANELS))
        raise VariantError(f'Cannot draw "{name}": there is none of this name. Choose one of {choices}.')
    panel = panels.render_panel(name, context)
    return panel["title"], list(panel["figures"]), panel["problem"]


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
    head, *rows = list_variant_rows(chips)
    parts = [f"# {escape(study.model.name)}", "", *_table(head, rows), "", f"{marks}."]
    parts += _list_drops(study, chips)
    labels = {c["id"]: c["label"] for c in chips}
    for name in built:
        parts += _render_variant(study, study.results[name], labels[name])
    return "\n".join([*parts, *_format_recipe(study, built), ""])


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


def _render_variant(study: StudyState, facts: VariantResult, title: str) -> Iterator[str]:
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
        origin = SIGNS[timing.layer_origin]
        times = {t.layer: t.median * timing.scale for t in timing.layers}
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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(escape(shorten_name(cell, 3 * _NAME)) for cell in row)} |"


def _fence(text: str, language: str) -> Iterator[str]:
    """A block of code, whatever backticks are in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{language}", text.rstrip("\n"), fence)


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="rtlab">
<title>{title}</title>
<style>
body {{ margin: 0; font-family: system-ui, sans-serif; }}
body > p {{ padding: 16px; }}
#report .rtlab {{ border: 0; border-radius: 0; }}
</style>
</head>
<body>
<noscript><p>This report draws its graphs with JavaScript, which is switched off in this browser.</p></noscript>
<div id="report"></div>
<script type="text/plain" id="saved">{saved}</script>
<script type="text/plain" id="figures">{figures}</script>
<script>{script}</script>
</body>
</html>
"""


def write_html(
    study: StudyState,
    path: str | Path,
    *,
    steps: Iterable[Mapping[str, Any]] = (),
    baseline: str | None = None,
) -> Path:
    """Write a study's built variants as one HTML file; returns its path.

    The same study gives the same bytes. A file at ``path`` is replaced at once, when the new one is complete.

    Args:
        study: The study.
        path: The file.
        steps: A presentation, as ``Explorer.steps`` lists it.
        baseline: The variant that others are compared with.

    Raises:
        VariantError: no variant is built, or ``baseline`` is not.
        RtlabError: the file cannot be written there, or a step is none.
        Unavailable: the front end of a checkout was never built.
    """
    content = render_page(collect_payloads(study, parse_steps(steps), baseline))
    return files.write(path, content.encode("utf-8"), what="the report", model=study.model)


def write_markdown(study: StudyState, path: str | Path, *, baseline: str | None = None) -> Path:
    """Write a study's built variants as Markdown; arguments, errors and result are those of ``write_html``."""
    text = render_markdown(study, *_select_variants(study, baseline))
    return files.write(path, text.encode("utf-8", "replace"), what="the report", model=study.model)


def write_json(study: StudyState, path: str | Path, *, baseline: str | None = None) -> Path:
    """Write a study's built variants as one JSON object, as ``write_markdown`` does."""
    document = build_study_document(study, *_select_variants(study, baseline))
    text = json.dumps(to_builtins(document), indent=1) + "\n"
    return files.write(path, text.encode("ascii"), what="the report", model=study.model)


def collect_payloads(study: StudyState, steps: Sequence[Step] = (), baseline: str | None = None) -> Saved:
    """Every payload of a study's built variants, and a presentation of them.

    Raises:
        VariantError: no variant is built, or ``baseline`` is not.
    """
    built, first = _select_variants(study, baseline)
    chips = chrome.build_chips(study, baseline=first)
    return Saved(
        model=study.model.name,
        source=_base64(encode(source_graph(study.model))),
        answers=_answers(PanelContext(study), shared=True),
        variants=[_variant(study, name, first) for name in built],
        chips=chips,
        view=_choose_view(study, built, chips, first),
        steps=list(steps),
        terms=glossary.glossary_terms(),
    )


def _select_variants(study: StudyState, baseline: str | None) -> tuple[list[str], str]:
    """The variants of a report, and the one that it compares with.

    Raises:
        VariantError: no variant is built, or ``baseline`` is not.
    """
    built = [n for n in study.variants if n in study.results]
    if not built:
        count = len(study.variants)
        reason = f"none of its {count} variants is built" if count else "it has no variant"
        raise VariantError(
            f'Cannot write a report of "{study.model.name}": {reason}. '
            'Plan variants with study.add("fp32"), run study.run(), then write it again.'
        )
    first = chrome.pick_baseline(study) if baseline is None else baseline
    if baseline is not None and baseline not in built:
        raise VariantError(
            f'Cannot compare with "{baseline}" in a report of "{study.model.name}": it is not built. '
            f"Choose one of {quote_names(built)}."
        )
    return built, first


def _choose_view(study: StudyState, built: list[str], chips: list[Chip], first: str) -> ViewState:
    """The first view: the largest drop that the samples show, else what is different."""
    if fell := [c for c in chips if c["score_worse"]]:
        worst = max(fell, key=lambda chip: abs(chip["score_delta"] or 0.0))["id"]
        segment = {"accuracy": "diagnosis"} if worst in study.diagnoses else {}
        return ViewState(variant=worst, baseline=first, settings=segment)
    if first and (others := [name for name in built if name != first]):
        return ViewState(variant=others[-1], baseline=first)
    return ViewState(variant=built[0], baseline=first)


def _variant(study: StudyState, name: str, baseline: str) -> SavedVariant:
    model, result = study.model, study.results[name]
    first = study.results.get(baseline)
    context = PanelContext(study, result, first if first is not result else None)
    view = engine_view(result, model)
    return SavedVariant(
        id=name,
        engine=_base64(encode(view)),
        answers=_answers(context, shared=False),
        status=list(chrome.list_status(study, name)),
        panels=[_simplify_panel(panels.render_panel(p, context)) for p in panels.list_panels(model)],
        charts=charts.build_charts(view, result),
    )


def _simplify_panel(panel: Panel) -> Panel:
    """A panel whose figures the smaller library draws, too: without traces for graphics cards."""
    figures = []
    for figure in panel["figures"]:
        data = [{**trace, "type": trace["type"].removesuffix("gl")} for trace in figure["data"]]
        figures.append(Figure({**figure, "data": data}))
    return Panel({**panel, "figures": figures})


def _answers(context: PanelContext, *, shared: bool) -> dict[str, str]:
    return {name: _base64(packed) for name, packed in panels.encode_payloads(context, shared=shared).items()}


def render_page(content: Saved) -> str:
    """The HTML. Names are in it as data only, and its policy lets the browser fetch nothing and run one script."""
    # In a script, HTML still looks for the end tag and for the start of a comment; both can only be in strings.
    script = re.sub(r"<(?=/script|!--)", r"\\x3C", inline_script(), flags=re.IGNORECASE)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        # What draws figures is unpacked from the file, and imported as a blob of the page's own.
        f"default-src 'none'; script-src 'sha256-{digest}' blob:; worker-src blob:; img-src data: blob:; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    name = content["model"].encode("utf-8", "replace").decode("utf-8")
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"{name} · rtlab report"),
        figures=_base64(figures()),
        # Base64 has no "<", which would be able to end the element.
        saved=_base64(
            gzip.compress(json.dumps(to_builtins(content), separators=(",", ":")).encode(), mtime=0)
        ),
        script=script,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
