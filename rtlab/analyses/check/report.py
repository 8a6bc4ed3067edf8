"""A check as people and pipelines read it: a table, Markdown, and JUnit's XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Tree

from rtlab.analyses.check import CheckResult
from rtlab.analyses.check.record import CheckRow
from rtlab.core.phrases import pluralize
from rtlab.documents.results import align_columns

#: Changes that are named one by one.
_MOST = 10
#: What XML 1.0 cannot hold; a file can have any character in a name.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def format_headline(check_result: CheckResult) -> str:
    """The verdict on all of it in a line."""
    limits = sum(bool(r.limit) for r in check_result.rows)
    title = f"{check_result.model} · {check_result.variant}"
    if check_result.broken:
        return f"{title}: broken, {', '.join(check_result.broken)}"
    if check_result.unchecked:
        return f"{title}: could not be checked, {', '.join(check_result.unchecked)}"
    if not limits:
        return f"{title}: no limit was given"
    return f"{title}: {pluralize(limits, 'limit holds', 'limits hold')}"


def format_text(check_result: CheckResult) -> str:
    """For a terminal: a row for each, then why, what changed and what to do."""
    head = ("check", "limit", "found", "verdict", "origin")
    rows = [(r.check, r.limit or "—", r.found or "—", r.verdict, r.origin or "—") for r in check_result.rows]
    parts = [format_headline(check_result), "", align_columns(head, rows), ""]
    for row in check_result.rows:
        if details := _list_details(row):
            parts.append(f"{row.check}: {'. '.join(one.rstrip('.') for one in details)}")
        parts += [f"  {one}" for one in _list_changes(row)]
    parts += [f"note: {note}" for note in check_result.notes]
    return "\n".join(parts)


def format_markdown(check_result: CheckResult) -> str:
    """For the summary of a job."""
    lines = [
        f"### {_escape_markdown(format_headline(check_result))}",
        "",
        "| check | limit | found | verdict | origin |",
        "|---|---|---|---|---|",
    ]
    for row in check_result.rows:
        bold = "**" if row.verdict == "broken" else ""
        cells = (
            row.check,
            row.limit or "—",
            _escape_markdown(row.found) or "—",
            f"{bold}{row.verdict}{bold}",
        )
        lines.append(f"| {' | '.join(cells)} | {row.origin or '—'} |")
    for row in check_result.rows:
        if details := [*_list_details(row), *_list_changes(row)]:
            lines += ["", f"**{row.check}**", "", *(f"- {_escape_markdown(one)}" for one in details)]
    lines += (
        ["", *(f"- {_escape_markdown(note)}" for note in check_result.notes)] if check_result.notes else []
    )
    return "\n".join(lines) + "\n"


def format_junit(check_result: CheckResult) -> bytes:
    """As JUnit's XML: a test case for each check, failed where a limit is broken, skipped where it was not checked."""
    cases = []
    for row in check_result.rows:
        case = _build_case(check_result.model, check_result.variant, row.check)
        if row.verdict == "not checked":
            words = filter(None, (row.reason or "nothing to compare", row.remedy))
            Tree.SubElement(case, "skipped", message=_sanitize_xml(". ".join(words)))
        elif row.verdict == "broken":
            message = _sanitize_xml(f"{row.check}: {row.found}")
            parts = [f"expected: {row.limit}", f"found: {row.found}", *_list_changes(row)]
            parts += [one for one in (row.detail, row.reason) if one]
            failure = Tree.SubElement(case, "failure", type="limit", message=message)
            failure.text = _sanitize_xml("\n".join([*parts, f"what to do: {row.remedy}"]))
        lines = (row.found or row.verdict, *_list_details(row), *_list_changes(row), *check_result.notes)
        Tree.SubElement(case, "system-out").text = _sanitize_xml("\n".join(lines))
        cases.append(case)
    made = check_result.record.made.strftime("%Y-%m-%dT%H:%M:%S")
    return _serialize_suite(check_result.model, check_result.variant, cases, timestamp=made)


def format_junit_error(model: str, variant: str, message: str) -> bytes:
    """As JUnit's XML: that the check itself failed, in words."""
    case, text = _build_case(model, variant, "check"), _sanitize_xml(message)
    Tree.SubElement(case, "error", type="rtlab", message=text).text = text
    return _serialize_suite(model, variant, [case])


def _build_case(model: str, variant: str, name: str) -> Tree.Element:
    # What stands before the last point is a package to most readers.
    group = f"rtlab.{model} {variant}".replace(".", "_").replace("rtlab_", "rtlab.", 1)
    return Tree.Element("testcase", classname=_sanitize_xml(group), name=name, time="0")


def _serialize_suite(model: str, variant: str, cases: list[Tree.Element], **attributes: str) -> bytes:
    tags = [c.tag for case in cases for c in case]
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    sums = {"tests": str(len(cases)), **{k: str(tags.count(tag)) for k, tag in counts.items()}, "time": "0"}
    suites = Tree.Element("testsuites", sums)
    name = _sanitize_xml(f"rtlab check {model} {variant}")
    Tree.SubElement(suites, "testsuite", {"name": name, **attributes, **sums}).extend(cases)
    Tree.indent(suites)
    document: bytes = Tree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _list_details(row: CheckRow) -> list[str]:
    return [one for one in (row.detail, row.reason, row.remedy) if one]


def _list_changes(row: CheckRow) -> list[str]:
    changes = list(row.changes[:_MOST])
    if len(row.changes) > _MOST:
        changes.append(f"and {len(row.changes) - _MOST} more")
    return changes


def _escape_markdown(words: str) -> str:
    """Text that no name in it can turn into something else."""
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", words.replace("\n", " "))


def _sanitize_xml(words: str) -> str:
    return _FORBIDDEN.sub("�", words)
