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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.core import files
from rtlab.core.phrases import quote_names
from rtlab.documents import glossary
from rtlab.documents.contract import Figure, Panel
from rtlab.documents.serialization import encode, to_builtins
from rtlab.documents.tabs import Tab
from rtlab.errors import VariantError
from rtlab.web.page import charts, chrome
from rtlab.web.page.bundle import figures, inline_script
from rtlab.web.page.contract import Chip, Saved, SavedVariant
from rtlab.web.page.document import build_study_document
from rtlab.web.page.graph import engine_view, source_graph
from rtlab.web.page.state import Step, ViewState, parse_steps
from rtlab.web.report.markdown import render_markdown

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState

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
        return ViewState(variant=worst, baseline=first, tab=Tab("accuracy"), settings=segment)
    if first and (others := [name for name in built if name != first]):
        return ViewState(variant=others[-1], baseline=first, tab=Tab("compare"))
    return ViewState(variant=built[0], baseline=first, tab=Tab("timing"))


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
