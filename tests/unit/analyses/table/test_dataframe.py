"""The layer table: a row per layer, types that pandas can compute with, and blanks where nothing is known."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

import engines
from rtlab import Study
from rtlab.analyses.table.dataframe import layers_frame
from rtlab.testing import tiny_model


def frame(folder, **more) -> tuple[pd.DataFrame, object]:
    model = tiny_model()
    result = Study(model).read("elsewhere", **engines.files(folder) | more)
    return layers_frame(result.facts, model), result


@engines.each
def test_there_is_a_row_for_each_layer_with_the_file_s_own_words(folder) -> None:
    """Against the raw JSON, read on its own."""
    table, result = frame(folder)
    assert [y.id for y in result.engine.layers] == list(table.index)
    raw = json.loads(engines.files(folder)["layers"].read_text(), strict=False)["Layers"]
    if folder.name in engines.NAMES_ONLY:
        assert raw == list(table["name"])
        assert {""} == set(table["kind"])
        assert table["sparse"].isna().all()
    elif len(raw) == len(table):
        assert [y["LayerType"] for y in raw] == list(table["kind"])
        told = [None if (s := y.get("HasSparseWeights")) is None else bool(s) for y in raw]
        assert told == [None if pd.isna(s) else bool(s) for s in table["sparse"]]
    expected = {
        "stream": "int64", "time_ms": "float64", "share": "float64", "shared": "Int64", "sparse": "boolean",
        "output_bytes": "Int64", "weight_bytes": "Int64",
    }  # fmt: skip
    assert expected == {c: str(table[c].dtype) for c in expected}


@engines.each
def test_times_are_those_of_the_profile_and_say_where_they_are_from(folder) -> None:
    table, result = frame(folder)
    if result.timing is None:
        assert table["time_ms"].isna().all()
        assert "" == table.attrs["times"]
        return
    assert pytest.approx(result.timing.summed) == table["time_ms"].sum()
    assert pytest.approx(1.0) == table["share"].sum()
    assert "measured" in table.attrs["times"]
    assert {1} == set(table["shared"].dropna())


def test_bytes_are_what_shapes_and_counts_say() -> None:
    """The first convolution by hand: 32 maps of 3 by 3 by 3 in INT8 with an FP32 bias, and FP32 outputs."""
    table, _ = frame(engines.RESIDUAL)
    first = table[table["kind"] == "CaskConvolution"].iloc[0]
    assert 8 * 32 * 32 * 32 * 4 == first["output_bytes"]
    assert 32 * 27 + 32 * 4 == first["weight_bytes"]
    assert ("chw4",) == first["formats_in"]
    assert pd.isna(table[table["kind"] == "Reformat"].iloc[0]["weight_bytes"])
    assert "estimated" == table.attrs["output_bytes"]


def test_a_layer_without_a_time_is_blank_and_not_zero() -> None:
    _, result = frame(engines.RESIDUAL)
    first = result.timing.layers[0].layer
    samples = {i: s for i, s in result.profile.samples.items() if i != first}
    short = dataclasses.replace(result.profile, samples=samples)
    table = layers_frame(dataclasses.replace(result.facts, profile=short))
    assert [True] + [False] * (len(table) - 1) == list(table["time_ms"].isna())
