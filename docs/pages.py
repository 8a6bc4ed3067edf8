"""What the site has beyond the files of the repository: reports of studies, and pages written from rtlab's own tables.

A page says with ``<!-- written: NAME -->`` where one of ``TABLES`` goes. A notebook has its report where it shows the
Explorer.
"""

import argparse
import collections
import functools
import json
import os
import re
import tempfile

from rtlab import Study, samples
from rtlab.backends.classic import rules
from rtlab.cli import create_parser
from rtlab.documents.glossary import glossary_terms

__all__ = ["close_defaults", "complete", "write_entrance", "write_reports"]

# --- reports of studies -----------------------------------------------------------------------------------------------


def _study(sample: str) -> Study:
    loaded = samples.load(sample)
    return Study(loaded.model, data=loaded.calibration, task=loaded.task)


def study_precisions() -> Study:
    """Notebook 1, after fp16 and int8 were built in its Explorer."""
    study = _study("digits_inception")
    for precision in ("fp32", "fp16", "int8"):
        study.add(precision, target="sm86")
    study.run(budget_s=5)
    return study


def study_fusion() -> Study:
    """Notebook 2: the published rules beside a compiler."""
    study = Study(samples.load("digits_inception").model)
    study.add("classic", precision="fp32", backend="classic")
    study.add("rtx", precision="fp32", target="sm86", backend="tensorrt-rtx")
    study.run(compare=False, budget_s=0)
    return study


def study_drop() -> Study:
    """Notebook 11, with its diagnosis."""
    study = _study("digits_outlier")
    study.add("fp32", backend="onnxruntime")
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    study.run(budget_s=5)
    study.accuracy.diagnose("int8")
    return study


#: Of each notebook with a live report what makes its study.
REPORTS = {
    "01_first_look": study_precisions,
    "02_fusion": study_fusion,
    "11_from_a_drop_to_a_repaired_model": study_drop,
}

#: The report takes the room that the table of contents leaves.
_FRAME = """<style>
.page:has(iframe.report) .toc-drawer {{ display: none }}
.main .content:has(iframe.report) {{ width: 100%; max-width: 110rem; padding-inline: 1.5rem }}
iframe.report {{ width: 100%; height: min(52rem, 88vh); border: 1px solid var(--color-background-border) }}
</style>
<iframe class="report" src="../reports/{name}.html" title="The report of this study" loading="lazy"></iframe>
<p><a href="../reports/{name}.html">The report by itself</a>: one file, written while this page was built; it needs no
kernel and no network.</p>"""


@functools.cache
def make_study(notebook: str) -> Study:
    """The study of a notebook, run once."""
    return REPORTS[notebook]()


def write_reports(app) -> None:
    """Write the reports beside the pages."""
    folder = app.outdir / "reports"
    folder.mkdir(exist_ok=True)
    for name in REPORTS:
        make_study(name).report(folder / f"{name}.html")


def _add_report(notebook: str, name: str) -> str:
    """A notebook of which the first cell that shows the Explorer has the report as its output."""
    content = json.loads(notebook)
    cell = next(
        c for c in content["cells"] if c["cell_type"] == "code" and ".explore(" in "".join(c["source"])
    )
    html = _FRAME.format(name=name)
    cell["outputs"] = [{"output_type": "display_data", "data": {"text/html": html}, "metadata": {}}]
    return json.dumps(content)


# --- pages from tables ------------------------------------------------------------------------------------------------


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`"


def write_commands() -> str:
    """All commands with their arguments, from the parser."""
    # Usage is wrapped for this width, whatever the terminal's.
    os.environ["COLUMNS"] = "100"
    (commands,) = (a for a in create_parser({})._actions if isinstance(a, argparse._SubParsersAction))
    return "\n".join(
        _write_command(one.dest, one.help or "", commands.choices[one.dest])
        for one in commands._choices_actions
    )


def _write_command(name: str, summary: str, parser: argparse.ArgumentParser) -> str:
    formatter = parser._get_formatter()
    lines = [f"## rtlab {name}", "", f"{summary[:1].upper()}{summary[1:]}.", ""]
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        invocation = formatter._format_action_invocation(action)
        text = formatter._expand_help(action) if action.help else ""
        lines += [_code(invocation), f": {_escape(text) or '—'}", ""]
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Text as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_{}\[\]<>|#$])", r"\\\1", text)


def write_rules() -> str:
    """The rules of pairs, what passes do besides, and the pages that they are from."""
    lines = ["| rule | what becomes one layer | source |", "|---|---|---|"]
    for rule in rules._RULES:
        layers = " → ".join(map(_list, (rule.first, rule.second)))
        lines.append(f"| {rule.name} | {layers} | {_cite(rule.source)} |")
    lines += ["", "| other work of a pass | source |", "|---|---|"]
    lines += [f"| {name} | {_cite(source)} |" for name, source in rules.OTHERS.items()]
    return "\n".join([*lines, "", *(f"- {short}: {_escape(source)}" for source, short in _SOURCES.items())])


#: How a table names what it is often from.
_SOURCES = {rules.CATALOG: "Catalog", rules.PAIRS: "Placement", rules.GUIDE: "Builder"}


def _cite(source: str) -> str:
    for full, short in _SOURCES.items():
        source = source.replace(full, short)
    return _escape(source)


def _list(kinds: set[str]) -> str:
    names = sorted(kinds)
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:6])} and {len(names) - 6} more"


def write_glossary() -> str:
    """The terms that the page explains."""
    return "\n".join(f"{_escape(name)}\n: {_escape(meaning)}\n" for name, meaning, *_ in glossary_terms())


#: Keys below which the keys are names of a model or a study.
_NAMED = {
    "variants",
    "precisions",
    "scales",
    "evidence",
    "roles",
    "bytes",
    "failures",
    "sizes",
    "percentiles_ms",
}


def write_keys() -> str:
    """The keys of a study's JSON with their types, from a report."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_study("01_first_look").report(f"{folder}/report.json")
        document = json.loads(path.read_text(encoding="utf-8"))
    types: dict[str, set[str]] = {}
    _collect(document, "", types)
    return "\n".join(
        ["| key | type |", "|---|---|", *(f"| `{k}` | {' or '.join(sorted(v))} |" for k, v in types.items())]
    )


def _collect(value: object, path: str, types: dict[str, set[str]]) -> None:
    """Add the types of a value and of all in it to those of its path."""
    if path:
        types.setdefault(path, set()).add(_TYPES[type(value)])
    if isinstance(value, dict):
        named = path.rpartition(".")[2] in _NAMED
        for key, one in value.items():
            _collect(one, f"{path}.{'NAME' if named else key}".lstrip("."), types)
    elif isinstance(value, list):
        for one in value:
            _collect(one, f"{path}[]", types)


_TYPES = {
    dict: "object",
    list: "list",
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    type(None): "null",
}

TABLES = {
    "keys": write_keys,
    "commands": write_commands,
    "rules": write_rules,
    "glossary": write_glossary,
}


def _tabulate_rows(match: re.Match[str]) -> str:
    """The rows of ARCHITECTURE.md as a table: GitHub draws the diagram with a script from elsewhere."""
    targets = collections.defaultdict(list)
    for source, target in re.findall(r"(\w+) --> (\w+)", match[1]):
        targets[source].append(target)
    lines = ["| row | package | imports |", "|---|---|---|"]
    for number, names in re.findall(r"subgraph row(\d+)\[ \]\n(.*?)\n  end", match[1], re.DOTALL):
        lines += [f"| {number} | {name} | {', '.join(targets[name])} |" for name in names.split()]
    return "\n".join(lines)


def close_defaults(_app, _what, _name, _thing, _options, signature: str | None, returned: str | None):
    """A signature of a dataclass as Python, or Sphinx cuts it at each comma."""
    return (signature or "").replace("<factory>", "...") or None, returned


def complete(_app, name: str, source: list[str]) -> None:
    """The text of a page before it is read."""
    folder, _, stem = name.rpartition("/")
    if folder == "notebooks" and stem in REPORTS:
        source[0] = _add_report(source[0], stem)
    elif name == "ARCHITECTURE":
        source[0] = re.sub(r"```mermaid\n(.*?)```", _tabulate_rows, source[0], flags=re.DOTALL)
    elif folder.startswith("docs"):
        source[0] = re.sub(r"<!-- written: (\w+) -->", lambda match: TABLES[match[1]](), source[0])


def write_entrance(app, error: Exception | None) -> None:
    """A page at the top that leads to the first one."""
    if error is None:
        page = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=docs/index.html">'
        (app.outdir / "index.html").write_text(
            f'{page}<a href="docs/index.html">rtlab</a>\n', encoding="utf-8"
        )
