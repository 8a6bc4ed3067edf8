"""Numbers as text, figures' common parts, answers as text, as HTML and as frames, and what a payload takes."""

from __future__ import annotations

import dataclasses
import gzip
from typing import Annotated, Any

import pytest

import scenes
from answers import refusable, without
from rtlab.analyses.panels import PANELS
from rtlab.core.schema import FieldMeta
from rtlab.documents import figure, numbers
from rtlab.documents.results import ResultTable, align_columns, list_facts
from rtlab.documents.serialization import decode, encode
from rtlab.web.page.graph import engine_view
from snapshots import plain

VALUES = (
    None, 0, 0.0004, 0.0123, 0.999, 0.9999, 1, 1.005, 12.345, 999.4, 999.6, 1000, 1234.5, 9999999, 1e7, 1.5e9, 1e-7,
    -0.5, -1, -12345, float("inf"),
)  # fmt: skip
BYTES = (None, 0, 1, -1, 1023, 1024, -1024, 1536, 2**20 - 1, 2**20, 5 * 2**20, 2**30, -(2**31), 2**40)
RANGES = (
    (1, 2), (1, 3.9), (1, 4), (3, 11), (10, 12), (97, 98), (0.2, 0.3), (1, 300), (1, 350), (0.01, 1e4), (5, 5),
    (1e-7, 1e-3),
)  # fmt: skip


def test_numbers_and_axes_are_written_as_in_the_file(golden: Any) -> None:
    lengths = ("a" * 69 + "b", "a" * 35 + "b" * 36, "", "abcdef" * 20)
    parts = {
        "layout": figure.layout("A title", height=3), "axis": figure.axis("An axis", type="log"),
        "across": figure.make_horizontal_line(2.5, dash="dot"),
        "legend": figure.legend(x=1), "figure": figure.figure("What is said", [], height=7, title="t"),
        "empty": figure.figure("", []),
    }  # fmt: skip
    golden(
        "documents/numbers.json",
        {
            "numbers": {
                str(v): [
                    numbers.format_number(v, u, signed=s) for u in ("", "ms", "dB") for s in (False, True)
                ]
                for v in VALUES
            },
            "bytes": {str(v): [numbers.format_bytes(v), numbers.format_bytes(v, signed=True)] for v in BYTES},
            "units": {
                str(v): [numbers.choose_byte_unit(v), numbers.choose_time_unit(v)]
                for v in (0, 0.5, 1, 1023, 2**10, 2**20, 2**30)
            },
            "shortened": [numbers.shorten_name(n) for n in lengths]
            + [numbers.shorten_name("abcdefgh", m) for m in (7, 8, 3)],
            "logarithmic": {f"{a} {b}": figure.make_log_ticks(a, b) for a, b in RANGES},
            "parts": parts,
        },
    )


@dataclasses.dataclass(frozen=True)
class Row:
    name: Annotated[str, FieldMeta("Name", links="nodes")]
    time: Annotated[float | None, FieldMeta("Time", "ms", "measured")]
    whole: Annotated[float | None, FieldMeta("Whole", "ms", "{self.origin}")]
    size: Annotated[int | None, FieldMeta("Size", "B", "reported")]
    share: Annotated[float | None, FieldMeta("Share", "%")]
    parts: Annotated[tuple[str, ...], FieldMeta("Parts")]
    known: Annotated[bool | None, FieldMeta("Known")]
    rare: Annotated[str, FieldMeta("Rare", omit=True)] = ""
    origin: str = "measured"


def rows(count: int) -> list[Row]:
    return [
        Row(
            f"node{i % 40}", None if i % 3 == 0 else 0.3 * i, 0.9 * i, None if i % 4 == 0 else 700 * i,
            i / 50 if i % 5 else None,
            tuple("ab" * (i % 3)), (True, False, None)[i % 3], origin=("measured", "estimated")[i % 2],
        )
        for i in range(count)
    ]  # fmt: skip


def test_tables_of_nouns_are_those_of_the_file(golden: Any) -> None:
    """Around the lengths at which a table is cut, and a name counts; of one origin and of two, known and predicted."""
    sections: dict[str, Any] = {}
    for count in (0, 1, 2, 25, 26):
        table = ResultTable(Row, rows(count), {"node1": "First"}, placeholder="none", predicted=count == 2)
        sections[f"{count} rows"] = {
            "columns": table.columns(), "text": table.text().splitlines()[:4],
            "html": table.html("; and more").split("<tr>")[-2:],
            "keys": table.keys()[:2], "rows": table.rows()[:2], "units": table.frame().attrs,
        }  # fmt: skip
    both = ResultTable(Row, rows(3), units={"ms": ("s", 1e-3)})
    sections["other units"] = both.columns()
    for length in (57, 58, 59, 60, 61):
        (one,) = rows(1)
        told = dataclasses.replace(one, parts=("a" * (length - 3), "b"), rare="r" if length > 59 else "")
        sections[f"facts of {length}"] = [list_facts(told), list_facts(told, predicted=True)]
        sections[f"text of {length}"] = align_columns(
            ["a", "b"], [["x" * length, "y"], ["\x1b[1m", "z"]]
        ).splitlines()
    golden("documents/tables.json", sections)


@scenes.of(("written", "cpu"))
def test_answers_in_text_and_in_a_notebook_are_those_of_the_file(subject: str, golden: Any) -> None:
    study = scenes.study(subject)

    def told(name: str) -> Any:
        answer = study.ask(name, variant="fp16", baseline="fp32")
        frame = answer.frame()
        return {
            "text": repr(answer).splitlines()[:12],
            "html": answer._repr_html_()[:600].split("<tr>"), "rows": len(frame),
            "types": {c: str(t) for c, t in frame.dtypes.items()}, "units": frame.attrs,
        }  # fmt: skip

    asked = [n for n in PANELS if n not in {"recipe", "samples", "calibration", "accuracy"}]
    found = {n: without(plain(refusable(lambda n=n: told(n))), {"versions"}) for n in asked}
    golden(f"documents/{subject}.json", found, rel=1e-3)


@pytest.mark.xdist_group("written")
def test_a_payload_takes_as_much_as_in_the_file(golden: Any) -> None:
    study = scenes.study("written")
    made = {n: encode(engine_view(study[n].facts, study.model)) for n in study}
    golden("documents/payload.json", {n: len(gzip.decompress(m)) for n, m in made.items()}, rel=2e-2)
    assert decode(encode([2**53, -1])) == [2**53, -1]
    assert decode(encode([2**65])) == [2**65]
