"""Numbers of boxes, times and losses in words, from values written by hand."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from rtlab.analyses.timing.times import LayerTime, Timing
from rtlab.web.page import chrome, graph


def space(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


@pytest.mark.parametrize(
    ("tensors", "note"), [(0, "1 output"), (1, "1 output"), (2, "2 outputs"), (3, "3 outputs")]
)
def test_memory_of_a_box_counts_its_outputs(tensors: int, note: str) -> None:
    told = graph._bytes(space(tensors=tensors, nbytes=2048, origin="reported"))
    assert {"value": 2048.0, "spread": None, "shared": 1, "note": f"{note}, reported"} == told


@pytest.mark.parametrize(
    ("layers", "shared", "note"),
    [
        ("a", 1, "timed as a"), ("a", 2, "timed as a, together with 1 other node"),
        ("abcd", 3, "timed as a, b, c, d, together with 2 other nodes"), ("abcde", 1, "timed as a, b, c, d ..."),
    ],
)  # fmt: skip
def test_a_time_names_the_layers_that_were_timed_and_how_many_share_it(layers, shared, note) -> None:
    time = space(layers=[f"{i}:{n}" for i, n in enumerate(layers)], shared=shared, median=2.0, spread=0.5)
    readings = graph._readings({"n": time}, "node")
    assert {"value": 2.0, "spread": 0.5, "shared": shared, "note": note} == readings["n"]
    assert graph._readings({"n": space(**{**vars(time), "spread": None})}, "node")["n"]["spread"] is None
    assert (
        "0:a:b" not in graph._readings({"n": space(**{**vars(time), "layers": ["0:a:b"]})}, "x")["n"]["note"]
    )


@pytest.mark.parametrize(("scaled", "origin"), [(False, "measured"), (True, "estimated")])
def test_a_scaled_time_is_an_estimate(scaled: bool, origin: str) -> None:
    taken = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    # Two milliseconds of layers in an inference of one.
    layers = (LayerTime("L", 2.0, None, 1.0),)
    times = Timing("here", "", taken, 3, 1.0 if scaled else 2.0, 2.0, layers)
    layer = {"L": space(layers=["0:a"], shared=1, median=0.5, spread=None)}
    time = graph._times(times, {}, layer)
    assert (origin, "time", "ms") == (time["origin"], time["id"], time["unit"])
    assert 0.5 == time["layers"]["L"]["value"]
    assert (scaled, scaled) == ("scaled" in time["title"], time["source"].startswith("estimated"))
    assert "here" in time["source"]


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({}, "max |error| 1.23, RMSE 0.00123, cosine 0.9877"),
        ({"overflowed": 3}, "max |error| 1.23, RMSE 0.00123, 3 not finite"),
        ({"infinite": 7}, "max |error| 1.23, RMSE 0.00123, cosine 0.9877, 7 infinite in fp32 too"),
    ],
)
def test_an_error_is_told_in_few_digits(fields: dict[str, Any], note: str) -> None:
    counts = {"overflowed": 0, "infinite": 0, **fields}
    value = space(**{"max_abs": 1.2345, "rmse": 0.0012345, "cosine": 0.98765, "sqnr": 20.0, **counts})
    assert {"value": 20.0, "spread": None, "shared": 1, "note": note} == graph._error(value)


@pytest.mark.parametrize(
    ("saturated", "sqnr", "end"),
    [
        (0.0, 20.0, "RMSE 0.00123"),
        (0.25, None, "25 % of it saturates"),
        (0.0123, 20.0, "1.2 % of it saturates"),
    ],
)
def test_an_error_of_its_own_tells_what_saturates(saturated: float, sqnr: float | None, end: str) -> None:
    told = graph._local_error(space(own_max=1.2345, own_rmse=0.0012345, saturated=saturated, own_sqnr=sqnr))
    assert told["note"].endswith(end)
    assert (sqnr or 0.0, 1) == (told["value"], told["shared"])


TIMES: dict[str, Any] = {
    "total": 0.5, "percentiles": {50: 0.5, 95: 0.75}, "layers": ("a",), "runs": 2, "source": "x", "summed": 2.0,
    "scaled": "", "scale": 0.256,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "x; layers sum to 2 ms over 2 runs, the whole takes 500 µs (p95 750 µs)"),
        ({"runs": 1, "percentiles": {}}, "x; layers sum to 2 ms over 1 run, the whole takes 500 µs"),
        ({"runs": 0, "total": None, "percentiles": {}}, "x; layers sum to 2 ms, the whole was not timed"),
        ({"layers": ()}, "x; the whole takes 500 µs (p95 750 µs), layers were not timed"),
        ({"scaled": "y", "percentiles": {}, "total": 0.0},
         "x; layers sum to 2 ms over 2 runs, the whole takes 0 ms; layers are scaled by 0.26"),
    ],
)  # fmt: skip
def test_times_say_who_measured_what(fields: dict[str, Any], text: str) -> None:
    assert text == chrome._times(space(**{**TIMES, **fields}))


def test_what_became_zero_is_counted_and_the_most_of_it_named(monkeypatch) -> None:
    """3 + 2 elements of two values; half of the second, three tenths of the first."""
    values = [
        space(node=n, underflowed=u, overflowed=0, elements=e)
        for n, u, e in (("a", 3, 10), ("b", 2, 4), ("c", 0, 1))
    ]
    study: Any = space(model=space(by_id={n: space(title=f"title {n}") for n in "abc"}))
    result: Any = space(variant=space(precisions=[space(is_half=True)]))
    monkeypatch.setattr(chrome, "find_undefined", lambda *_: None)

    def list_losses(*values: Any) -> list[Any]:
        errors = space(values=values, headline="", synthetic=False)
        monkeypatch.setattr(chrome, "compute_accuracy", lambda _: errors)
        return list(chrome._list_losses(study, result))

    (item,) = list_losses(*values)
    assert ("measured", True) == (item["origin"], item["warning"])
    assert ["5 elements" in item["text"], "2 values" in item["text"]] == [True, True]
    assert item["text"].endswith('"title b" (50 %)')
    assert [] == list_losses(values[2])
