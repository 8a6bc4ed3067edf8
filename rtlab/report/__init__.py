"""Report: a study as one HTML file that opens from disk, with no network and no kernel.

The file holds the Explorer's own code and every payload that the kernel would send. Charts are left out: Plotly
would make the file 5 MB larger, and the table shows the same numbers.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rtlab.core import files
from rtlab.documents.contract import Panel
from rtlab.documents.crossing import plain
from rtlab.documents.payload import encode
from rtlab.documents.tabs import Tab
from rtlab.errors import VariantError
from rtlab.questions import panels
from rtlab.questions.cards.picture import Graph
from rtlab.questions.scene import Scene
from rtlab.view import chrome
from rtlab.view.bundle import inlined
from rtlab.view.contract import EngineView, Saved, SavedVariant
from rtlab.view.effects import ranking_of
from rtlab.view.graph import engine_view, source_graph
from rtlab.view.state import ViewState

if TYPE_CHECKING:
    from rtlab.questions.snapshot import Snapshot

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
<script>{script}</script>
</body>
</html>
"""


def write(study: Snapshot, path: str | Path) -> Path:
    """Write a study's built variants as one HTML file; returns its path.

    The same study gives the same bytes. A file at ``path`` is replaced at once, when the new one is complete.

    Raises:
        VariantError: no variant is built.
        RtlabError: the file cannot be written there.
        Unavailable: the front end of a checkout was never built.
    """
    return files.write(path, page(saved(study)).encode("utf-8"), what="the report", model=study.model)


def saved(study: Snapshot) -> Saved:
    """Every payload of a study's built variants.

    Raises:
        VariantError: no variant is built.
    """
    built = [n for n in study.variants if n in study.facts]
    if not built:
        found = (
            f"none of its {len(study.variants)} variants is built" if study.variants else "it has no variant"
        )
        raise VariantError(
            f'Cannot write a report of "{study.model.name}": {found}. '
            'Plan variants with study.add("fp32"), run study.run(), then write it again.'
        )
    first = chrome.baseline(study)
    return Saved(
        model=study.model.name,
        source=_base64(encode(source_graph(study.model), Graph)),
        answers=_answers(Scene(study), shared=True),
        variants=[_variant(study, name) for name in built],
        chips=chrome.chips(study, baseline=first),
        view=ViewState(variant=built[0], baseline=first, tab=Tab("table")),
    )


def _variant(study: Snapshot, name: str) -> SavedVariant:
    model, result = study.model, study.facts[name]
    scene = Scene(study, result)
    return SavedVariant(
        id=name,
        engine=_base64(encode(engine_view(result, model, ranking_of(study, name)), EngineView)),
        answers=_answers(scene, shared=False),
        status=list(chrome.status(study, name)),
        panels=[Panel({**panels.answer(p, scene), "figures": []}) for p in panels.offered(model)],
    )


def _answers(scene: Scene, *, shared: bool) -> dict[str, str]:
    return {name: _base64(packed) for name, packed in panels.packed(scene, shared=shared).items()}


def page(content: Saved) -> str:
    """The HTML. Names stand in it as data only, and the browser is told to fetch nothing and to run one script."""
    # In a script, HTML still looks for the end tag and for the start of a comment; both can only be in strings.
    script = re.sub(r"<(?=/script|!--)", r"\\x3C", inlined(), flags=re.IGNORECASE)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; worker-src blob:; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    name = content["model"].encode("utf-8", "replace").decode("utf-8")
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"{name} · rtlab report"),
        # Base64 has no "<", which would be able to end the element.
        saved=_base64(
            gzip.compress(
                json.dumps(plain(content), separators=(",", ":"), allow_nan=False).encode(), mtime=0
            )
        ),
        script=script,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
