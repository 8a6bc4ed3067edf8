"""Rows of a sweep: the numbers of one variant with where and when they were taken, as bytes and as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.variants.summary import VariantSummary
from rtlab.core.schema import FieldMeta
from rtlab.documents.results import ResultTable
from rtlab.errors import ReadError, RtlabError
from rtlab.study import store
from rtlab.study.records import RecordWriter

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class SweepRow(VariantSummary):
    """A variant of a sweep; ``status`` may also be damaged, of an entry that cannot be read.

    ``compiler`` is the builder and its release, ``key`` that of its entry. ``host`` is the machine that it ran on,
    ``load`` the share of its processors that other programs took while it was timed, from 0 to 1; ``timings`` counts
    how often it was timed, of which the quietest counts, and ``runs`` the inferences of that one. ``taken`` is when it
    was finished, ``work_s`` what all of its work took. ``higher`` says that more of the score is better. ``error`` of a
    variant that is built says what could not be measured.
    """

    model: Annotated[str, FieldMeta("Model")] = ""
    data: str = ""
    compiler: str = ""
    host: Annotated[str, FieldMeta("Host", omit=True)] = ""
    load: Annotated[float | None, FieldMeta("Load", omit=True)] = None
    runs: Annotated[int | None, FieldMeta("Runs", omit=True)] = None
    timings: Annotated[int | None, FieldMeta("Timings", omit=True)] = None
    taken: str = ""
    work_s: Annotated[float | None, FieldMeta("Work", "s", "measured", omit=True)] = None
    higher: bool = True
    study: str = ""
    key: str = ""

    @property
    def order(self) -> tuple[str, bool, str]:
        """By model and name; what others are compared with comes first."""
        return self.model, self.precision != "fp32", self.variant


_FIELDS = frozenset(f.name for f in dataclasses.fields(SweepRow))


def encode_row(row: SweepRow) -> bytes:
    """The file of a row."""
    writer = RecordWriter()
    fields = {name: writer.pack(getattr(row, name)) for name in sorted(_FIELDS)}
    return store.format_document({"rtlab_row": store.SCHEMA, **fields})


def decode_row(content: bytes, key: str) -> SweepRow:
    """A row; one that says so where it is damaged, or of another schema."""
    title = f'the row of result "{key}"'
    try:
        document = store.parse_document(content, "rtlab_row", title)
        # Numbers that JSON lacks, such as infinity, are objects.
        fields: dict[str, Any] = {
            k: float(v["value"]) if isinstance(v, dict) else v for k, v in document.items() if k in _FIELDS
        }
        return SweepRow(**fields)
    except (TypeError, KeyError, ValueError) as error:
        problem = store.make_damage_error(title, str(error))
    except ReadError as error:
        problem = error
    return SweepRow(key[:8], key[:8], "damaged", "", "", "", "", error=str(reword_damage(problem)), key=key)


def reword_damage(error: RtlabError) -> ReadError:
    """The error of a damaged entry with what to do about it in a store."""
    remedy = "Remove it with store.collect_garbage(), or rtlab store gc, and run the sweep again."
    return ReadError(str(error).replace(store.COPY_REMEDY, remedy))


def make_frame(rows: Sequence[SweepRow]) -> pd.DataFrame:
    """The table of rows."""
    return ResultTable(SweepRow, add_deltas(rows)).frame()


def select_rows(rows: Sequence[SweepRow], keys: Sequence[str]) -> tuple[SweepRow, ...]:
    """Rows by key, by the beginning of one, or by the name of a model; all without any."""
    whole, parts = {*keys}, tuple(filter(None, keys))
    return tuple(
        row for row in rows if not keys or row.key in whole or row.model in whole or row.key.startswith(parts)
    )


def add_deltas(rows: Sequence[SweepRow]) -> tuple[SweepRow, ...]:
    """Rows with the difference of each score to that of fp32 of the same study, where both are of as many samples."""
    references: dict[tuple[str, str, int | None], SweepRow] = {}
    for row in rows:
        if row.precision == "fp32" and row.score is not None:
            references.setdefault((row.study, row.metric, row.scored), row)

    def add(row: SweepRow) -> SweepRow:
        reference = references.get((row.study, row.metric, row.scored))
        if row.score is None or reference is None or reference is row or reference.score is None:
            return row
        return dataclasses.replace(row, score_delta=row.score - reference.score)

    return tuple(map(add, rows))
