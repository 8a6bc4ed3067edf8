"""A timing cache tells what was measured here, and refuses what was measured elsewhere."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtlab.errors import ReadError
from rtlab.formulations.cache import read_timing_cache
from rtlab.formulations.trial import Trial

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
TRIAL = Trial("im2col", 2, 1.5, (1.25, 1.75), 10, 1e-6, 2e-5, ok=True, taken=WHEN)


def test_what_is_kept_comes_back_in_the_next_process(tmp_path: Path) -> None:
    first = read_timing_cache(tmp_path / "t.json", "cpu", "ORT 1")
    first.store("key", TRIAL)
    first.store("key", dataclasses.replace(TRIAL, formulation="refused", ok=False))
    first.save()
    again = read_timing_cache(tmp_path / "t.json", "cpu", "ORT 1")
    blank = Trial("im2col", 2, None, None, 0, 3e-7, 2e-5, ok=False)
    assert dataclasses.replace(TRIAL, error=3e-7, cached=True) == again.recall("key", blank)
    for other in (("other", blank), ("key", dataclasses.replace(blank, threads=1))):
        assert other[1] is again.recall(*other)
    refused = dataclasses.replace(blank, formulation="refused")
    assert refused == again.recall("key", refused)


@pytest.mark.parametrize(("device", "source"), [("another", "ORT 1"), ("cpu", "ORT 2")])
def test_times_of_another_machine_are_refused(tmp_path: Path, device: str, source: str) -> None:
    read_timing_cache(tmp_path / "t.json", "cpu", "ORT 1").save()
    with pytest.raises(ReadError, match="another file"):
        read_timing_cache(tmp_path / "t.json", device, source)


FIELDS = ("median", "quartiles", "runs", "taken")
KEYS = st.sampled_from(["schema", "device", "source", "entries", *FIELDS])
WHOLE = {"schema": 1, "device": "cpu", "source": "ORT 1"}
PLAIN = st.none() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False)
NESTED = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner))
ENTRIES = st.dictionaries(st.sampled_from(FIELDS), st.integers() | st.none())
ODD = NESTED | ENTRIES.map(lambda entry: {**WHOLE, "entries": {"k": {"im2col, 2 threads": entry}}})


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40) | ODD.map(lambda content: json.dumps(content).encode()))
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(ReadError, match="another file"):
        read_timing_cache(path, "cpu", "ORT 1")
