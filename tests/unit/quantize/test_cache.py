"""Calibration caches: what TensorRT wrote comes back bit for bit, and a damaged file says where."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.core.scale import Scale
from rtlab.errors import CalibrationError, ReadError, RtlabError
from rtlab.quantize.cache import ALGORITHMS, CacheDifference, CalibrationCache

# Recordings live beside the checkout, not in it.
RECORDED = Path(__file__).parents[4] / "shared" / "recorded" / "calibration-caches"
FILES = sorted(RECORDED.iterdir()) if RECORDED.is_dir() else []
ABSENT = pytest.mark.skip(reason="no ../shared/recorded beside the checkout")

HEAD = b"TRT-8600-EntropyCalibration2\n"
POSITIVE = st.floats(min_value=float(np.finfo(np.float32).tiny), max_value=2.0**100, width=32)
NAMES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)


def refusal(content: bytes) -> str:
    with pytest.raises(ReadError) as caught:
        CalibrationCache.parse(content, name="int8.cache")
    return str(caught.value)


@pytest.mark.parametrize(
    "path", FILES or [pytest.param(None, marks=ABSENT)], ids=lambda p: p.name if p else "none"
)
def test_a_recorded_cache_is_written_as_it_was_read(path, tmp_path) -> None:
    """A file that TensorRT wrote must be one that TensorRT reads, after it went through here."""
    cache = CalibrationCache.read(path)

    assert path.read_bytes() == cache.write(tmp_path / "again").read_bytes()
    assert len(path.read_bytes().splitlines()) - 1 == len(cache.values)
    ranged = {t: s for t, s in cache.values.items() if s}
    assert ranged == CalibrationCache.of(cache.scales(), version=cache.version).values
    assert ranged == {tensor: scale.scale for tensor, scale in cache.scales().items()}


def test_a_line_is_the_bits_of_amax_over_127():
    """3d418306 is 6/127 and 3c010204 is 1/127: the range of a ReLU6, and of a sigmoid."""
    cache = CalibrationCache.parse(HEAD + b"relu6: 3d418306\nsigmoid: 3c010204\nshape: 0\n")

    assert {"relu6": pytest.approx(6, rel=1e-7), "sigmoid": pytest.approx(1, rel=1e-7)} == cache.amax
    assert ("shape",) == cache.unranged
    assert ["relu6", "sigmoid"] == list(cache.scales())
    assert "<CalibrationCache TRT-8600-EntropyCalibration2: 3 tensors, 1 without range>" == repr(cache)


def test_names_may_hold_colons_spaces_and_brackets():
    """TensorRT names layers without a name like this; the last colon ends the name."""
    names = ["(Unnamed Layer* 82) [Shuffle]_output", "a: b: 0", "module:0", "", " ", "größe"]
    content = HEAD + "".join(f"{n}: 3c010204\n" for n in names).encode()
    cache = CalibrationCache.parse(content)

    assert names == list(cache.values)
    assert content == cache.encode()


@given(st.dictionaries(NAMES, POSITIVE | st.just(0.0)), st.sampled_from(ALGORITHMS))
def test_any_scales_come_back(values, algorithm):
    """The identity holds for every float32, not only those that a network happened to have."""
    cache = CalibrationCache("100300", algorithm, values)

    assert cache == CalibrationCache.parse(cache.encode())


@given(st.dictionaries(NAMES, POSITIVE, min_size=1))
def test_scales_to_a_cache_and_back_lose_nothing(values):
    """A cache turned into Q/DQ pairs and written again is the same cache."""
    cache = CalibrationCache("8600", "MinMaxCalibration", values)

    assert cache == CalibrationCache.of(cache.scales(), algorithm="MinMaxCalibration", version="8.6.0")


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_a_line_holds_what_a_graph_holds(amax):
    """An implicit and an explicit INT8 engine from one calibration quantize alike; struct is the oracle."""
    content = CalibrationCache.of({"x": Scale(amax)}, version="10.3.0").encode()
    bits = int(content.splitlines()[1].partition(b": ")[2], 16)

    assert Scale(amax).scale == struct.unpack(">f", bits.to_bytes(4, "big"))[0]


@given(st.binary(max_size=200) | st.binary(max_size=200).map(HEAD.__add__))
def test_any_bytes_are_read_or_refused(content):
    """A reader never fails in its own words, whatever the file."""
    try:
        cache = CalibrationCache.parse(content)
    except ReadError as error:
        assert str(error).startswith('Cannot read calibration cache "calibration cache": line ')  # noqa: PT017
    else:
        assert cache == CalibrationCache.parse(cache.encode())


@pytest.mark.parametrize(
    ("content", "found", "wanted"),
    [
        (b"", 'line 1 is ""', "TRT-<version>-<one of EntropyCalibration2, "),
        (b"TRT-8600-Entropy\nx: 0\n", 'line 1 is "TRT-8600-Entropy"', "LegacyCalibration>"),
        (HEAD + b"x: 3c010204\ny 3c010204\n", 'line 3 is "y 3c010204"', '"tensor: " and at most eight hexa'),
        (HEAD + b"x: 3c01020g\n", 'line 2 is "x: 3c01020g"', "hexadecimal digits"),
        (HEAD + b"x: 13c010204\n", 'line 2 is "x: 13c010204"', "at most eight"),
        (HEAD + b"x: -1\n", 'line 2 is "x: -1"', "hexadecimal digits"),
        (HEAD + b"x: 7fc00000\n", 'line 2 is "x: 7fc00000"', "these are nan"),
        (HEAD + b"x: 7f800000\n", 'line 2 is "x: 7f800000"', "these are inf"),
        (
            HEAD + b"x: bc010204\n",
            'line 2 is "x: bc010204"',
            "finite scale of zero or more; these are -0.007",
        ),
        (HEAD + b"x: 80000000\n", 'line 2 is "x: 80000000"', "these are -0.0"),
        (HEAD + b"x: 0\nx: 3c010204\n", 'line 3 is "x: 3c010204"', "each tensor once"),
        (HEAD + b"\xff: 0\n", 'line 2 is "\ufffd: 0"', "UTF-8 text"),
        (HEAD + b"\nx: 0\n", 'line 2 is ""', '"tensor: "'),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_a_damaged_file_names_line_and_expectation(content, found, wanted):
    """A cache has hundreds of lines; "invalid cache" helps nobody."""
    message = refusal(content)

    assert message.startswith('Cannot read calibration cache "int8.cache": ')
    assert found in message
    assert wanted in message
    assert message.endswith("Calibrate again, or repair that line.")


def test_a_file_that_is_not_there_is_a_read_error(tmp_path):
    """The same type as for a damaged one, so that a caller needs one branch."""
    with pytest.raises(ReadError, match=r'none\.cache": No such file.*Name a file that trtexec --calib'):
        CalibrationCache.read(tmp_path / "none.cache")


def test_line_ends_of_windows_are_read():
    """Caches travel through editors; what is written again has TensorRT's."""
    cache = CalibrationCache.parse(HEAD.replace(b"\n", b"\r\n") + b"x: 3c010204\r\n\r\n")

    assert HEAD + b"x: 3c010204\n" == cache.encode()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_scale_that_is_none_is_refused(bad):
    """TensorRT would take the bits as they are and compute garbage."""
    with pytest.raises(
        CalibrationError, match='Cannot put tensor "x" into a calibration cache: its scale is '
    ):
        CalibrationCache.of({"x": Scale(bad)}, version="8600")


def test_no_threshold_is_no_range_and_the_smallest_one_is():
    """Zero has a meaning of its own in the file, so a tiny scale must not become zero."""
    cache = CalibrationCache.of({"dead": Scale(0.0), "tiny": Scale(1e-44)}, version="8600")

    assert ("dead",) == cache.unranged
    assert {"tiny": float(np.finfo(np.float32).tiny)} == {t: s for t, s in cache.values.items() if s}


def test_a_name_of_two_lines_is_refused():
    """It would come back as another file."""
    with pytest.raises(CalibrationError, match="its name is not one line"):
        CalibrationCache("8600", "EntropyCalibration2", {"a\nb": 1.0})


@pytest.mark.parametrize(
    ("version", "number"),
    [("8.6.0", "8600"), ("8.6.1.6", "8601"), ("10.3.0", "100300"), ("10.14.1", "101401"), ("7.1.3", "7103")],
)
def test_versions_are_written_as_tensorrt_does(version, number):
    """NV_TENSORRT_VERSION: a thousand per major up to 8, ten thousand from 10 on."""
    assert f"TRT-{number}-EntropyCalibration2\n".encode() == CalibrationCache.of({}, version=version).encode()


@pytest.mark.parametrize("version", ["", "latest", "v10"])
def test_a_version_that_is_none_is_refused(version):
    """The header would be one that no TensorRT reads."""
    with pytest.raises(
        CalibrationError, match=r'as a TensorRT version: it is no number. Give for example "10\.3\.0"'
    ):
        CalibrationCache.of({}, version=version)


def test_an_algorithm_that_is_none_is_refused():
    """The method "mse" has no calibrator in TensorRT."""
    with pytest.raises(CalibrationError, match='of algorithm "mse": TensorRT has no such calibrator'):
        CalibrationCache.of({}, algorithm="mse", version="8600")


def test_another_version_is_told_and_the_remedy_works():
    """TensorRT ignores such a cache without an error; the build then asks for data or loses INT8."""
    cache = CalibrationCache.parse(HEAD + b"x: 3c010204\n")
    told = cache.check("10.3.0")

    assert "TensorRT 10.3.0 ignores this cache, which TRT-8600 wrote" in told
    assert 'dataclasses.replace(cache, version="100300").write(path)' in told
    again = dataclasses.replace(cache, version="100300")
    assert "TensorRT 10.3.0 reads this cache" in again.check("10.3.0")
    assert b"TRT-100300-EntropyCalibration2\nx: 3c010204\n" == again.encode()


def test_two_caches_are_compared_tensor_by_tensor():
    """What only one has comes first, then by how far apart; a factor and its inverse are equally far."""
    one = CalibrationCache("8600", "EntropyCalibration2", {"a": 1.0, "b": 1.0, "c": 3.0, "d": 1.0, "z": 0.0})
    two = CalibrationCache("8600", "MinMaxCalibration", {"a": 1.0, "b": 2.0, "c": 0.75, "e": 1.0, "z": 0.0})
    found = one.compare(two)

    assert [
        CacheDifference("d", 127.0, None),
        CacheDifference("e", None, 127.0),
        CacheDifference("c", 381.0, 95.25),
        CacheDifference("b", 127.0, 254.0),
        CacheDifference("a", 127.0, 127.0),
        CacheDifference("z", 0.0, 0.0),
    ] == list(found)
    assert [None, None, 0.25, 2.0, 1.0, None] == [d.ratio for d in found]


@given(st.dictionaries(NAMES, POSITIVE | st.just(0.0)), st.dictionaries(NAMES, POSITIVE | st.just(0.0)))
def test_a_comparison_has_every_tensor_once_and_is_symmetric(ours, theirs):
    """Which of two files one names first must not decide what is seen."""
    one, two = (CalibrationCache("8600", "EntropyCalibration2", v) for v in (ours, theirs))
    found = {d.tensor: d for d in one.compare(two)}

    assert set(ours) | set(theirs) == set(found)
    for back in two.compare(one):
        assert (back.two, back.one) == (found[back.tensor].one, found[back.tensor].two)
        assert back.distance == pytest.approx(found[back.tensor].distance)
    assert all(d.distance == 0 for d in one.compare(one))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """Writing is checked like reading."""
    with pytest.raises(RtlabError, match=r'Cannot write the calibration cache to ".*there is no folder'):
        CalibrationCache.of({}, version="8600").write(tmp_path / "none" / "x.cache")
