"""Calibration caches: what TensorRT wrote comes back bit for bit, and a damaged file says where."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.core.calibrators import TENSORRT_CALIBRATORS
from rtlab.core.scale import Scale
from rtlab.errors import CalibrationError, ReadError, RtlabError
from rtlab.quantize.cache import CacheDifference, CalibrationCache

HEAD = b"TRT-8600-EntropyCalibration2\n"
POSITIVE = st.floats(min_value=float(np.finfo(np.float32).tiny), max_value=2.0**100, width=32)
NAMES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
#: By tensor of a detector, what the largest magnitude is; NumPy makes the line of it, and 0 is no range.
DETECTOR = {
    "pixels": 1.0,
    "stem/conv: 0": 8.25,
    "(Unnamed Layer* 2) [Shuffle]": 0.0,
    "425": 6.0,
    "tiny": 1e-30,
}


def test_a_file_is_written_as_it_was_read(tmp_path):
    bits = [f"{int(np.float32(amax / 127).view(np.uint32)):x}" for amax in DETECTOR.values()]
    # Of 1/127 and 6/127 by hand: a sigmoid, and a ReLU6.
    assert ("3c010204", "0", "3d418306") == (bits[0], bits[2], bits[3])
    path = tmp_path / "detector.cache"
    path.write_bytes(HEAD + "".join(f"{t}: {b}\n" for t, b in zip(DETECTOR, bits, strict=True)).encode())
    cache = CalibrationCache.read(path)

    assert path.read_bytes() == cache.write(tmp_path / "again").read_bytes()
    assert ("8600", "EntropyCalibration2", [*DETECTOR]) == (cache.version, cache.algorithm, [*cache.values])
    ranged = {t: amax for t, amax in DETECTOR.items() if amax}
    assert pytest.approx(ranged, rel=1e-7) == cache.amax
    assert [*ranged] == [*cache.scales()]
    assert {t: s for t, s in cache.values.items() if s} == {t: s.scale for t, s in cache.scales().items()}


@given(st.dictionaries(NAMES, POSITIVE | st.just(0.0)), st.sampled_from(TENSORRT_CALIBRATORS))
def test_any_scales_come_back(values, algorithm):
    cache = CalibrationCache("100300", algorithm, values)
    assert cache == CalibrationCache.parse(cache.encode())
    cache = CalibrationCache("8600", algorithm, {n: v for n, v in values.items() if v})
    assert cache == CalibrationCache.of(cache.scales(), algorithm=algorithm, version="8.6.0")


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_a_line_holds_what_a_graph_holds(amax):
    """An implicit and an explicit INT8 engine from one calibration quantize alike; struct is the oracle."""
    content = CalibrationCache.of({"x": Scale(amax)}, version="10.3.0").encode()
    bits = int(content.splitlines()[1].partition(b": ")[2], 16)

    assert Scale(amax).scale == struct.unpack(">f", bits.to_bytes(4, "big"))[0]


@given(st.binary(max_size=200) | st.binary(max_size=200).map(HEAD.__add__))
def test_any_bytes_are_read_or_refused(content):
    try:
        cache = CalibrationCache.parse(content)
    except ReadError as error:
        assert str(error).startswith('Cannot read calibration cache "calibration cache": line ')  # noqa: PT017
    else:
        assert cache == CalibrationCache.parse(cache.encode())


BAD = ["x: 3c01020g", "x: 13c010204", "x: -1", "x: 7fc00000", "x: 7f800000", "x: bc010204", "x: 80000000", ""]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", 'line 1 is ""'),
        (b"TRT-8600-Entropy\nx: 0\n", 'line 1 is "TRT-8600-Entropy"'),
        (HEAD + b"x: 3c010204\ny 3c010204\n", 'line 3 is "y 3c010204"'),
        *((HEAD + line.encode() + b"\nz: 0\n", f'line 2 is "{line}"') for line in BAD),
        (HEAD + b"x: 0\nx: 3c010204\n", 'line 3 is "x: 3c010204"'),
        (HEAD + b"\xff: 0\n", 'line 2 is "\ufffd: 0"'),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_a_damaged_file_names_its_line(content, found):
    with pytest.raises(ReadError, match=re.escape(found)) as refused:
        CalibrationCache.parse(content, name="int8.cache")
    assert 'cache "int8.cache": ' in str(refused.value)


def test_a_place_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ReadError, match=r'none\.cache": No such file'):
        CalibrationCache.read(tmp_path / "none.cache")
    with pytest.raises(RtlabError, match=r'to ".*there is no folder'):
        CalibrationCache.of({}, version="8600").write(tmp_path / "none" / "x.cache")


def test_line_ends_of_windows_are_read():
    cache = CalibrationCache.parse(HEAD.replace(b"\n", b"\r\n") + b"x: 3c010204\r\n\r\n")

    assert HEAD + b"x: 3c010204\n" == cache.encode()


def test_no_threshold_is_no_range_and_the_smallest_one_is():
    cache = CalibrationCache.of({"dead": Scale(0.0), "tiny": Scale(1e-44)}, version="8600")

    assert {"tiny"} == {*cache.scales()}
    assert {"tiny": float(np.finfo(np.float32).tiny)} == {t: s for t, s in cache.values.items() if s}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        *(({"values": {"x": scale}}, "its scale is ") for scale in (float("nan"), float("inf"), -1.0)),
        ({"values": {"a\nb": 1.0}}, "its name is not one line"),
        *(({"version": version}, "it is no number") for version in ("", "latest", "v10")),
        ({"algorithm": "mse"}, 'algorithm "mse"'),
    ],
)
def test_what_no_tensorrt_reads_is_refused(wrong, words):
    fields = {"version": "8600", "algorithm": "EntropyCalibration2", "values": {}, **wrong}
    with pytest.raises(CalibrationError, match=words):
        CalibrationCache(**fields)


@pytest.mark.parametrize(
    ("version", "number"),
    [("8.6.0", "8600"), ("8.6.1.6", "8601"), ("10.3.0", "100300"), ("10.14.1", "101401"), ("7.1.3", "7103")],
)
def test_versions_are_written_as_tensorrt_does(version, number):
    """NV_TENSORRT_VERSION: a thousand per major up to 8, ten thousand from 10 on."""
    assert f"TRT-{number}-EntropyCalibration2\n".encode() == CalibrationCache.of({}, version=version).encode()


def test_two_caches_are_compared_tensor_by_tensor():
    one = CalibrationCache("8600", "EntropyCalibration2", {"a": 1.0, "b": 1.0, "c": 3.0, "d": 1.0, "z": 0.0})
    two = CalibrationCache("8600", "MinMaxCalibration", {"a": 1.0, "b": 2.0, "c": 0.75, "e": 1.0, "z": 0.0})
    found = one.compare(two)

    expected = [("d", 127.0, None), ("e", None, 127.0), ("c", 381.0, 95.25), ("b", 127.0, 254.0)]
    expected += [("a", 127.0, 127.0), ("z", 0.0, 0.0)]
    assert [CacheDifference(*e) for e in expected] == list(found)
    assert [None, None, 0.25, 2.0, 1.0, None] == [d.ratio for d in found]


@given(st.dictionaries(NAMES, POSITIVE | st.just(0.0)), st.dictionaries(NAMES, POSITIVE | st.just(0.0)))
def test_a_comparison_has_every_tensor_once_and_is_symmetric(ours, theirs):
    one, two = (CalibrationCache("8600", "EntropyCalibration2", v) for v in (ours, theirs))
    found = {d.tensor: d for d in one.compare(two)}

    assert set(ours) | set(theirs) == set(found)
    for back in two.compare(one):
        assert (back.two, back.one) == (found[back.tensor].one, found[back.tensor].two)
        assert back.distance == pytest.approx(found[back.tensor].distance)
    assert all(d.distance == 0 for d in one.compare(one))
