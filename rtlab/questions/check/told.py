"""A check as people and pipelines read it: a table, Markdown, and JUnit's XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Tree

from rtlab.core.phrases import many
from rtlab.documents.answer import aligned
from rtlab.questions.check import CheckResult
from rtlab.questions.check.row import CheckRow

#: Changes that are named one by one.
_MOST = 10
#: What XML 1.0 cannot hold; a file can have any character in a name.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def headline(found: CheckResult) -> str:
    """The verdict on all of it in a line."""
    limits = sum(bool(r.limit) for r in found.rows)
    named = f"{found.model} · {found.variant}"
    if found.broken:
        return f"{named}: broken, {', '.join(found.broken)}"
    if found.unchecked:
        return f"{named}: could not be checked, {', '.join(found.unchecked)}"
    if not limits:
        return f"{named}: no limit was given"
    return f"{named}: {many(limits, 'limit holds', 'limits hold')}"


def text(found: CheckResult) -> str:
    """For a terminal: a row for each, then why, what changed and what to do."""
    head = ("check", "limit", "found", "verdict", "origin")
    rows = [(r.check, r.limit or "—", r.found or "—", r.verdict, r.origin or "—") for r in found.rows]
    parts = [headline(found), "", aligned(head, rows), ""]
    for row in found.rows:
        if said := _said(row):
            parts.append(f"{row.check}: {'. '.join(one.rstrip('.') for one in said)}")
        parts += [f"  {one}" for one in _changes(row)]
    parts += [f"note: {note}" for note in found.notes]
    return "\n".join(parts)


def markdown(found: CheckResult) -> str:
    """For the summary of a job."""
    lines = [
        f"### {_cell(headline(found))}",
        "",
        "| check | limit | found | verdict | origin |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.check} | {r.limit or '—'} | {_cell(r.found) or '—'} | {_bold(r)} | {r.origin or '—'} |"
        for r in found.rows
    ]
    for row in found.rows:
        if said := [*_said(row), *_changes(row)]:
            lines += ["", f"**{row.check}**", "", *(f"- {_cell(one)}" for one in said)]
    lines += ["", *(f"- {_cell(note)}" for note in found.notes)] if found.notes else []
    return "\n".join(lines) + "\n"


def junit(found: CheckResult) -> bytes:
    """As JUnit's XML: a test case for each check, failed where a limit is broken, skipped where it was not checked."""
    suite = _suite(found.model, found.variant, found.record.made.strftime("%Y-%m-%dT%H:%M:%S"))
    for row in found.rows:
        case = _case(suite, found.model, found.variant, row.check)
        if row.verdict == "not checked":
            Tree.SubElement(case, "skipped", message=_clean(_because(row)))
        elif row.verdict == "broken":
            failure = Tree.SubElement(
                case, "failure", type="limit", message=_clean(f"{row.check}: {row.found}")
            )
            parts = [f"expected: {row.limit}", f"found: {row.found}", *_changes(row)]
            parts += [one for one in (row.detail, row.reason) if one]
            failure.text = _clean("\n".join([*parts, f"what to do: {row.remedy}"]))
        Tree.SubElement(case, "system-out").text = _clean(
            "\n".join((row.found or row.verdict, *_said(row), *_changes(row), *found.notes))
        )
    return _written(suite)


def unfinished(model: str, variant: str, message: str) -> bytes:
    """As JUnit's XML: that the check itself failed, in words."""
    suite = _suite(model, variant, "")
    case = _case(suite, model, variant, "check")
    Tree.SubElement(case, "error", type="rtlab", message=_clean(message)).text = _clean(message)
    return _written(suite)


def _suite(model: str, variant: str, made: str) -> Tree.Element:
    suite = Tree.Element("testsuite", name=_clean(f"rtlab check {model} {variant}"))
    if made:
        suite.set("timestamp", made)
    return suite


def _case(suite: Tree.Element, model: str, variant: str, name: str) -> Tree.Element:
    # What stands before the last point is a package to most readers.
    group = f"rtlab.{model} {variant}".replace(".", "_").replace("rtlab_", "rtlab.", 1)
    return Tree.SubElement(suite, "testcase", classname=_clean(group), name=name, time="0")


def _written(suite: Tree.Element) -> bytes:
    counts = {
        "tests": "testcase",
        "failures": "testcase/failure",
        "errors": "testcase/error",
        "skipped": "testcase/skipped",
    }
    suites = Tree.Element("testsuites")
    for one in (suite, suites):
        for name, path in counts.items():
            one.set(name, str(len(suite.findall(path))))
        one.set("time", "0")
    suites.append(suite)
    Tree.indent(suites)
    made: bytes = Tree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _said(row: CheckRow) -> list[str]:
    return [one for one in (row.detail, row.reason, row.remedy) if one]


def _because(row: CheckRow) -> str:
    return ". ".join(filter(None, (row.reason or "nothing to compare", row.remedy)))


def _changes(row: CheckRow) -> list[str]:
    told = list(row.changes[:_MOST])
    if len(row.changes) > _MOST:
        told.append(f"and {len(row.changes) - _MOST} more")
    return told


def _bold(row: CheckRow) -> str:
    return f"**{row.verdict}**" if row.verdict == "broken" else row.verdict


def _cell(words: str) -> str:
    """Text that no name in it can turn into something else."""
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", words.replace("\n", " "))


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("�", words)
