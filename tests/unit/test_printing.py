"""What the command line prints of parts written by hand, its limits, budgets and folders."""

from __future__ import annotations

import argparse
import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rtlab.cli import budget, checking, copy_notebooks, printing
from rtlab.errors import Cancelled, RtlabError


def space(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def overflown(*counts: int) -> Any:
    values = [space(overflowed=n, elements=100, value=f"v{i}") for i, n in enumerate(counts)]
    return space(accuracy=space(values=values, samples=7))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (space(accuracy=None), None),
        (overflown(0, 0), None),
        (overflown(0, 3), '3 of 100 elements of "v1" overflow (measured on 7 samples)'),
        (
            overflown(2, 0, 5, 1),
            '2 of 100 elements of "v0" overflow, and in 2 more values (measured on 7 samples)',
        ),
    ],
)
def test_an_overflow_names_its_first_value_and_counts_the_others(result: Any, text: str | None) -> None:
    assert (() if text is None else (text,)) == printing._overflow(result)


def row(sqnrs: list[float], time: Any = None, *, nodes: bool = True, estimate: Any = None) -> Any:
    """The row of a layer whose nodes have these errors; the node that it only serves has one of its own."""
    ids = [f"n{i}" for i in range(len(sqnrs))]
    pairs = [space(node=n, role="work") for n in reversed(ids)] + [space(node="served", role="Q")]
    errors = dict(zip(ids, sqnrs, strict=True)) | {"served": 99.0}
    by_id = {n: space(id=n, index=i) for i, n in enumerate([*ids, "served"])}
    result = space(
        mapping=space(of=lambda _: pairs), layer_times={} if time is None else {"L": time}, estimate=estimate,
        accuracy=space(of=lambda n: None if math.isnan(errors[n]) else space(sqnr=errors[n])),
    )  # fmt: skip
    layer = space(id="L", index=4, kind="kind", name="compiler's", precision="")
    return printing._line(result, space(model=space(by_id=by_id, nodes=nodes)), layer, "title")


@pytest.mark.parametrize(
    ("sqnrs", "shown"),
    [
        ([], "—"), ([math.nan], "—"), ([math.inf], "equal"), ([20.0, math.inf], "equal"), ([math.inf, 20.0], "20 dB"),
        ([10.0, 20.0, 30.5], "30.5 dB"), ([30.0, -10.0], "−10 dB"), ([0.0], "0 dB"), ([10.0, math.nan], "10 dB"),
    ],
)  # fmt: skip
def test_the_error_of_a_layer_is_that_of_the_last_node_that_it_runs(sqnrs: list[float], shown: str) -> None:
    assert ("5", "kind", "title", "—", "—", shown) == row(sqnrs)


@pytest.mark.parametrize(
    ("median", "shared", "shown"), [(0.25, 1, "250 µs"), (0.25, 2, "250 µs /2"), (2.0, 3, "2 ms /3")]
)
def test_the_time_of_a_layer_says_who_shares_it(median, shared, shown) -> None:
    assert shown == row([], space(median=median, shared=shared))[4]


def test_a_layer_has_its_estimate_where_there_are_enough_and_its_own_name_without_a_model() -> None:
    estimate = space(by_layer={"L": space(estimated=0.5)}, coverage=space(enough=True))
    assert ("500 µs", "—") == row([], estimate=estimate)[4:6]
    other = space(by_layer={"M": space(estimated=0.5)}, coverage=space(enough=True))
    assert ("—", "—") == row([], estimate=other)[4:6]
    few = space(by_layer={"L": space(estimated=0.5)}, coverage=space(enough=False))
    assert 6 == len(row([], estimate=few))
    assert "compiler's" == row([], nodes=False)[2]


def test_whole_inferences_are_told_with_what_takes_longer_than_half_of_them(capsys, monkeypatch) -> None:
    monkeypatch.setattr("rtlab.analyses.roofline.estimate_source", lambda facts: facts)
    times = space(
        shown=0.5, origin="here", percentiles={50: 0.5, 95: 0.75, 99: 2.0}, inferences=30, scaled="scaled",
        processor="CPU"
    )  # fmt: skip
    result = space(
        source=space(named_batch=2), facts="from rules", estimate=space(estimated=0.25), timing=times
    )
    printing._print_times(result)
    lines = capsys.readouterr().out.splitlines()
    assert ["2 samples" in lines[0], "250 µs (from rules)" in lines[1], "500 µs (here)" in lines[2]] == [
        True
    ] * 3
    assert "  of 30 inferences: p95 750 µs, p99 2 ms" == lines[3]
    assert 5 == len(lines)
    plain = space(**{**vars(times), "percentiles": {50: 0.5}, "scaled": ""})
    printing._print_times(space(source=space(named_batch=1), facts="", estimate=None, timing=plain))
    assert ["whole inference: 500 µs (here)"] == capsys.readouterr().out.splitlines()
    printing._print_times(space(source=space(named_batch=1), facts="withheld", estimate=None, timing=None))
    assert ["estimate: withheld"] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("count", "start"), [(0, "no findings"), (1, "1 finding"), (2, "2 findings")])
def test_findings_are_counted_and_numbered(capsys, count: int, start: str) -> None:
    one = space(title="title", microseconds=12.345, cost="cost", fix="fix", evidence="evidence")
    two = space(**{**vars(one), "microseconds": None})
    result = space(kinds=tuple, precisions=tuple, findings=[one, two][:count])
    printing.print_assessment(result)
    out = capsys.readouterr().out
    assert start in out.splitlines()
    assert ("1. title · 12.3 µs (measured)" in out) == (count > 0)
    assert ("2. title\n" in out) == (count > 1)


@pytest.mark.parametrize(
    ("text", "limit"), [("0", 0.0), ("0.5", 0.5), ("-0.1", None), ("nan", None), ("inf", None), ("x", None)]
)
def test_a_limit_is_a_number_from_zero_upward(text: str, limit: float | None) -> None:
    if limit is None:
        with pytest.raises(argparse.ArgumentTypeError):
            checking._limit(text)
    else:
        assert [limit] * 2 == [checking._limit(text), checking._percent(f" {text} % ")]


@pytest.mark.parametrize(
    ("broken", "unchecked", "code"), [((), (), 0), ((), ("a",), 1), (("a",), (), 3), (("a",), ("b",), 3)]
)
def test_a_broken_limit_comes_before_one_that_was_not_checked(
    monkeypatch, capsys, broken, unchecked, code
) -> None:
    study = space(model=None)
    monkeypatch.setattr(checking, "_open_study", lambda _: (study, "x"))
    monkeypatch.setattr(checking, "_run_check", lambda *_: space(broken=broken, unchecked=unchecked))
    monkeypatch.setattr("rtlab.analyses.check.report.format_text", lambda _: "text")
    args = argparse.Namespace(precision="int8", junit=None, markdown=None, json=False, save="b.json")
    assert code == checking.run(args)
    assert (capsys.readouterr().out.splitlines()[1] == "wrote b.json") == (not broken)


def test_only_a_budget_of_the_command_line_ends_a_command() -> None:
    for seconds in (5.0, budget.Seconds(0), budget.Seconds(math.inf)):
        args = argparse.Namespace(budget=seconds, program=False, command="x")
        with budget.enforce_budget(args):
            assert args.deadline is None
            assert float(seconds) == budget.share_budget(args, 4) or math.isinf(seconds)
    args = argparse.Namespace(budget=budget.Seconds(100), program=False, command="x")
    with budget.enforce_budget(args):
        # Three of them are for printing.
        assert 96 < args.deadline.remaining <= 97
        assert 25.0 == budget.share_budget(args, 4)


def test_a_command_says_how_far_it_came() -> None:
    """Fifteen parts in a hundred of ten seconds are for printing."""
    args = argparse.Namespace(budget=budget.Seconds(10), program=False, command="x")
    words = r'"rtlab x" in 10 s: .* used up, in "Calibrating, 3 of 64"\. Give more'

    def work() -> None:
        assert 8 < args.deadline.remaining <= 8.5
        args.deadline.phase("Calibrating", 64)
        args.deadline.advance(3)
        args.deadline.until = 0.0
        raise Cancelled("stopped")

    with pytest.raises(RtlabError, match=words), budget.enforce_budget(args):
        work()


def test_a_command_whose_time_is_over_says_so_and_one_that_was_stopped_does_not() -> None:
    args = argparse.Namespace(budget=budget.Seconds(1e-9), program=False, command="x")
    with pytest.raises(RtlabError, match=r"rtlab x.* 1e-09 s"), budget.enforce_budget(args):
        raise Cancelled("stopped")
    args.budget = budget.Seconds(100)
    with pytest.raises(Cancelled), budget.enforce_budget(args):
        raise Cancelled("stopped")


def test_a_program_counts_its_seconds_from_its_start(monkeypatch) -> None:
    """Ten seconds of a hundred have gone with what was imported before, and three are left for printing."""
    started = []
    monkeypatch.setattr(
        budget.threading,
        "Timer",
        lambda *a: started.append(a) or space(start=lambda: started.append(0), cancel=list),
    )
    monkeypatch.setattr(budget, "_start_time", time.monotonic() - 10)
    for program, left in ((True, 90), (False, 100)):
        args = argparse.Namespace(budget=budget.Seconds(100), program=program, command="x")
        with budget.enforce_budget(args):
            assert left - 4 < args.deadline.remaining <= left - 3
        assert left + 2 < started[0][0] < left + 3
        assert [0][: int(program)] == started[1:]
        started.clear()


def test_notebooks_are_copied_into_a_folder_below_folders_that_are_not_there(tmp_path) -> None:
    folder = tmp_path / "a" / "b"
    first = copy_notebooks(folder)
    assert min(p.name for p in folder.iterdir()) == first.name
