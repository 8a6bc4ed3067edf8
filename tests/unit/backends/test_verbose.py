"""Verbose build logs: what was written into those of the corpus, and the sentences of each version."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from build_logs import CONV, INCEPTION, REGIONS, REST, SPARSE
from rtlab.analyses.build.tactics import find_contests, sum_fastest_times, sum_runner_up_losses
from rtlab.backends.readers import printed
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.buildlog import BuildLog, Decision, LayerMemory, Tuning
from rtlab.errors import ReadError


def decisions(log: BuildLog, action: str, attempt: int | None = None) -> list[Decision]:
    chosen = log.attempts[log.chosen if attempt is None else attempt]
    return [d for p in chosen.passes for d in p.decisions if d.action == action]


def tunings(text: str) -> tuple[Tuning, ...]:
    return parse(f"Original: 1 layers\n{text}").log.tunings


def times(tuning: Tuning) -> list[tuple[str, str, float]]:
    return [(t.tactic, t.name, t.milliseconds) for t in tuning.timed]


def test_the_passes_of_tensorrt_5_tell_each_decision_and_the_tactics_that_were_timed() -> None:
    """28 layers, less ten fusions, less a merge of three and one of two; two concatenations, each for a copy."""
    log = parse(INCEPTION).log
    assert (28, 18, 15) == log.attempts[0].counts
    assert ("mix1/c_reduce", "mix1/relu_c_reduce") == decisions(log, "fuse")[4].names
    expected = {"fuse": 10, "merge": 2, "eliminate": 2, "copy": 2, "retarget": 5}
    assert expected == {action: len(decisions(log, action)) for action in expected}
    assert [3, 2] == [len(d.names) for d in decisions(log, "merge")]
    assert [("mix1/join",), ("mix2/join",)] == [d.names for d in decisions(log, "eliminate")]
    assert ("mix2/pool", "mix2/join") == decisions(log, "retarget")[-1].names
    assert [
        ("head/pool", "8", "100", 3, [0.01, 0.011, 0.012], False),
        ("head/fc", "6", "4", 2, [0.03, 0.04], True),
        ("head/fc", "15", "-42000042", 2, [0.045, 0.05], False),
        # It had one tactic, which was not timed.
        ("prob", "11", "0", 0, [], False),
    ] == [
        (t.layer, t.runner, t.chosen, t.count, [r.milliseconds for r in t.timed], t.won) for t in log.tunings
    ]
    # The three phases of the build: 0.25, 1.5 and 0.125 s.
    assert (1.875, {"activation": 3 << 20}, (), True) == (log.seconds, log.totals, log.notes, log.complete)


def test_of_three_strategies_the_one_that_the_builder_names_became_the_engine() -> None:
    log = parse(REGIONS).log
    assert [
        ("backend strategy 4", 0.03125, (15, 11, 8, 9)),
        ("backend strategy 3", 0.026, (15, 3, 4)),
        ("backend strategy 2", 0.028, (15, 4, 3)),
    ] == [(a.name, a.milliseconds, a.counts) for a in log.attempts]
    assert (1, True, 3.25, 333) == (log.chosen, log.complete, log.seconds, log.lines)
    assert ("10.16.1", "Invented GPU", "sm90") == (log.version, log.device, log.target.name)
    assert {"host": 4256, "device": 64, "scratch": 1536, "activation": 40960, "weights": 9216} == log.totals
    assert (
        LayerMemory(CONV, 80, 0, 0), LayerMemory("pool", 4096, 64, 0), LayerMemory(REST, 80, 0, 1536),
    ) == (log.memory)  # fmt: skip
    assert 2 == len(log.streams)
    assert all(s.startswith("Multi stream is disabled") for s in log.streams)
    assert ({"fc_1": "fc", "fc_1_2": "fc_1"}, {"y_6": "y", "z_10": "z"}) == (log.nodes, log.tensors)
    # One tactic asked for 2 MiB; seven results were cached.
    assert 2048 == log.workspace
    rules = (r"^1 tactics .*workspace:2 \(", "^7 results")
    assert all(re.search(rule, note) for rule, note in zip(rules, log.notes, strict=True))


def test_every_timing_is_counted_and_winners_are_those_that_the_log_names() -> None:
    """Counted by hand, by attempt: what runners timed, what the tables of regions list, what a cache answered."""
    told = parse(REGIONS).log.tunings
    own, inside = [t for t in told if not t.operator], [t for t in told if t.operator]
    assert [16, 3, 1] == [sum(t.count for t in own if t.attempt == a) for a in range(3)]
    assert [3, 8, 0] == [sum(t.count for t in inside if t.attempt == a) for a in range(3)]
    assert [1, 3, 3] == [
        sum(t.count == 0 and bool(t.timed) for t in told if t.attempt == a) for a in range(3)
    ]
    # "Skipping ...: No valid tactics" stands five times, all in the first attempt.
    assert [5, 0, 0] == [sum(not t.timed for t in told if t.attempt == a) for a in range(3)]
    first = "Float(64,64,8,1) -> Float(512,64,8,1)"
    assert [
        ("CaskConvolution", first, "0x00000000000000a2", [0.004, 0.005, 0.006], True),
        ("CaskFlattenConvolution", first, "", [], False),
    ] == [(t.runner, t.formats, t.chosen, [r.milliseconds for r in t.timed], t.won) for t in told[:2]]
    assert ("0x00000000000000a3", "invented_fprop_f32_tile16x16", 0.005) == times(told[0])[1]
    # Copies between formats have no winner.
    assert {"Optimizer Reformat(x -> <out>)"} == {t.layer for t in own if t.count and not t.won}


def test_rules_that_are_only_tried_are_no_decisions() -> None:
    log = parse(REGIONS).log
    constant = ("ConstShuffleFusion", "fc.bias", "ONNXTRT_Broadcast")
    conv = ("ConvReluFusion", "conv", "act")
    assert [
        [constant, conv, ("EltReluFusion", "fc_1", "act_1"), ("LogSoftmaxTopKFusion", "soft", "best")],
        [constant],
        [constant, conv],
    ] == [[(d.rule, *d.names) for d in decisions(log, "fuse", a) if d.rule != "Myelin"] for a in range(3)]
    assert [("ShuffleErasure", ("ONNXTRT_ShapeShuffle",))] * 3 == [
        (d.rule, d.names) for a in range(3) for d in decisions(log, "remove", a)
    ]
    regions = [(d.names, d.result) for d in decisions(log, "fuse") if d.rule == "Myelin"]
    assert [(("conv", "act"), CONV), (("view", "fc", "act_1", "fc_1", "soft", "best"), REST)] == regions


def test_sparsity_tells_who_could_and_who_does() -> None:
    log = parse(SPARSE).log
    assert [(("fc",), ()), (("a + b", "PWN(gate, c)"), ("a + b",))] == [
        (s.eligible, s.chosen) for s in log.sparsity
    ]
    # Such a log has no header; the library it loads tells version and GPU.
    assert ("10.16.2", "", "sm90") == (log.version, log.device, log.target.name)
    assert [(2, "0x00000000000000f2"), (1, "0xf3"), (1, "0x0000000000000000")] == [
        (t.count, t.chosen) for t in log.tunings
    ]


def test_the_listing_of_the_engine_becomes_layers() -> None:
    parsed = parse(REGIONS)
    moved = f"Reformatted Input Tensor 0 to {REST}"
    assert [
        (CONV, "Myelin", "0x0000000000000000", ["x"], ["act_out"]),
        ("pool", "CaskPooling", "0x00000000000000b2", ["act_out"], ["pool_out"]),
        (moved.replace("ed", "ing CopyNode for", 1), "Reformat", "0x00000000000003e8", ["pool_out"], [moved]),
        (REST, "Myelin", "0x0000000000000000", [moved], ["y", "z"]),
    ] == [
        (y.name, y.kind, y.tactic, [t.name for t in y.inputs], [t.name for t in y.outputs])
        for y in parsed.layers
    ]
    assert ("fp16", (-1, 8, 4, 4)) == (parsed.layers[3].inputs[0].dtype, parsed.layers[3].inputs[0].shape)
    assert [("x", "fp32", (-1, 1, 8, 8)), ("y", "fp32", (-1, 10)), ("z", "int64", (-1,))] == [
        (t.name, t.dtype, t.shape) for t in (*parsed.inputs, *parsed.outputs)
    ]


LAYERS = """\
Engine Layer Information:
Layer(Reformat): Reformatting CopyNode for Input Tensor 0 to a, Tactic: 0, x[Float(-7,3,8)] -> Reformatted Input Tensor 0 to a[Half(-7,3:8,8)]
Layer(CaskConvolution): w + Q, Tactic: 5 + a, Tactic: 0x5b, r (Int8[1,64:32,7,7]), b, c (Half[]) -> y -> z (Int8[1,64:32,7,7]), v (Int64[2])
Layer(Constant): k, Tactic: 0,  -> (Unnamed Layer* 1) [Shuffle]_output[Float(1,256)]
Layer(NoOp): two -> three, Tactic: -1, p[Float(1)] -> q[Float(1)]
"""  # noqa: E501


def test_lines_of_the_listing_hold_names_with_commas_arrows_and_brackets() -> None:
    """Names are not escaped, so only a type tells where a tensor's name ends."""
    layers = parse(LAYERS).layers
    moved = "Reformatted Input Tensor 0 to a"
    assert [
        ("Reformatting CopyNode for Input Tensor 0 to a", "0", ["x"], [(moved, (-1, 3, 8))]),
        ("w + Q, Tactic: 5 + a", "0x5b", ["r", "b, c"], [("y -> z", (1, 64, 7, 7)), ("v", (2,))]),
        ("k", "0", [], [("(Unnamed Layer* 1) [Shuffle]_output", (1, 256))]),
        ("two -> three", "-1", ["p"], [("q", (1,))]),
    ] == [
        (y.name, y.tactic, [t.name for t in y.inputs], [(t.name, t.shape) for t in y.outputs]) for y in layers
    ]
    assert ("fp16", "vectors of 8") == (layers[0].outputs[0].dtype, layers[0].outputs[0].format)
    assert () == layers[1].inputs[1].shape


LINE = (
    "Layer(CaskConvolution): a + b, Tactic: -390, x[Int8(1,8:4,3)], y[Half(2)] -> z[Float(1,16)], v[Int32()]"
)


@pytest.mark.parametrize(("head", "unread"), [("Engine Layer Information:\n", 1), ("", 0)])
def test_a_line_cut_off_within_a_log_is_no_layer(tmp_path: Path, head: str, unread: int) -> None:
    path = tmp_path / "build.log"
    path.write_text(f"{head}{LINE}\n{LINE[:-1]}\n{LINE}\n", encoding="utf-8")
    found = parse(path)
    assert (2, unread) == (len(found.layers), found.unread)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fusing a with b", ["fuse a | b = a + b"]),
        ("ConvReluFusion: Fusing a with b", ["fuse a | b = a + b by ConvReluFusion"]),
        ("Running: R on a; R: Fusing a with b", ["fuse a | b = a + b by R"]),
        ("Running: R on a", []),
        # The layer that the rule runs on tells where its name ends.
        ("Running: R on a with b; R: Fusing a with b with c", ["fuse a with b | c = a with b + c by R"]),
        ("Running: R on a; Running: R on b with c; Running: R on a with b; R: Fusing a with b with c",
         ["fuse a with b | c = a with b + c by R"]),
        ("Fusing convolution weights from c with scale bn", ["fuse c | bn = c"]),
        ("PointWiseFusion: Fusing a with PWN(b)", ["fuse a | PWN(b) = PWN(a, PWN(b)) by PointWiseFusion"]),
        ("Swap the layer type of a from ELEMENTWISE to POINTWISE; Q: Fusing c with PWN(a)",
         ["other a = PWN(a)", "fuse c | PWN(a) = c + PWN(a) by Q"]),
        ("Convert layer type of f from FULLY_CONNECTED to CONVOLUTION", ["other f"]),
        ("Merging layers: a + b || c || d", ["merge a + b | c | d = a + b || c || d"]),
        ("Merging layers: a || b; Merging layers: a || b || c",
         ["merge a | b = a || b", "merge a || b | c = a || b || c"]),
        ("Eliminating concatenation c", ["eliminate c by concatenation"]),
        ("Eliminating slice s by retargeting t from t to u", ["eliminate s by slice"]),
        ("Retargeting x to c", ["retarget x | c"]),
        # "Reformatted Output Tensor 0 to x" is a name.
        ("Retargeting x to c to d; Retargeting y to d", ["retarget x to c | d", "retarget y | d"]),
        ("Running: ShuffleErasure on s; Removing s", ["remove s by ShuffleErasure"]),
        ("S: Fusing a with b; Removing a + b", ["fuse a | b = a + b by S", "remove a + b"]),
        # A rule that has said what it joins is done: what goes next goes by itself.
        ("Running: CFusion on a; CFusion: Fusing a with b; Removing c", ["fuse a | b = a + b by CFusion", "remove c"]),
        # The rule joins and says only what goes.
        ("Running: QConvScaleFusion on c; Removing bn + r", ["fuse c | bn + r = c by QConvScaleFusion"]),
        ("Running: HorizontalMergeQNodes on q; Eliminating q_1 which duplicates (Q) q; Removing q_1",
         ["eliminate q_1 | q = q by HorizontalMergeQNodes"]),
        ("QDoubleInput: fusing q into c; QDoubleInput: fusing (d and e) into c; Removing d",
         ["fuse c | q = c by QDoubleInput", "fuse c | d | e = c by QDoubleInput"]),
        # Where no name was used before, the layer stands behind the last "into".
        ("Q: fusing a into b into c", ["fuse c | a into b = c by Q"]),
        ("Running: V on s; Swapping s with q", ["other s | q by V"]),
        ("Adding reformat layer: Reformatted Input Tensor 0 to a + b (t (1)) from Float(4,1) to Half(4,1)",
         ["other a + b = Reformatting CopyNode for Input Tensor 0 to a + b by reformat"]),
    ],
)  # fmt: skip
def test_each_sentence_is_one_decision(text: str, expected: list[str]) -> None:
    """Action, names, result and rule. One that is said twice, as a trial or afterwards as a removal, counts once."""
    lines = text.replace("; ", "\n")
    (attempt,) = parse(f"Original: 9 layers\n{lines}\nAfter all: 3 layers\n").log.attempts
    assert expected == [
        f"{d.action} {' | '.join(d.names)}{d.result and f' = {d.result}'}{d.rule and f' by {d.rule}'}"
        for p in attempt.passes
        for d in p.decisions
    ]


def test_a_copy_keeps_the_reason_for_it() -> None:
    log = parse(
        "Original: 2 layers\nEliminating concatenation c\n"
        "Generating copy for a || b to c because input is not movable.\n"
        "Generating copy for d to c because of stomping hazard.\nAfter concat removal: 3 layers\n"
    ).log
    expected = [(("a || b", "c"), "input is not movable"), (("d", "c"), "stomping hazard")]
    assert expected == [(d.names, d.reason) for d in decisions(log, "copy")]


BARE = """\
Original: 3 layers
Fusing a with b
After vertical fusions: 2 layers
--------------- Timing Runner: a + b (CaskConvolution)
a + b (scudnn) Set Tactic Name: first
Tactic: 11 time 0.5
a + b (scudnn) Set Tactic Name: second
Tactic: -12 time 0.25
Tactic: 13 skipped. Scratch requested: 2097152, available: 0
Fastest Tactic: -12 Time: 0.25
--------------- Timing Runner: a + b (CudnnConvolution)
Tactic: 0 skipped. Scratch requested: 672, available: 0
Fastest Tactic: -3360065831133338131 Time: 3.40282e+38
>>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution Tactic: -12
Layer: a + b Weights: 0 HostPersistent: 1664 DevicePersistent: 512
Engine generation completed in 2.5 seconds.
"""
PREFIXES = [
    "", "[I] [TRT] ", "[07/07/2026-02:11:00] [V] [TRT] ", "[TRT] [V] ", "[07/07/2026-06:14:24] [TRT] [V] ", "[V]     ",
    "[TensorRT] VERBOSE: ", "[TRT]    ", "DEBUG: [Torch-TensorRT TensorRT Conversion Context] - ", "[INFO] ",
    "2026-01-02 03:04:05.678 [V:onnxruntime:, provider.h:47 log] [2026-01-02 03:04:05 VERBOSE] ",
]  # fmt: skip


def logged(prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in BARE.splitlines())


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_the_logger_the_encoding_and_the_line_ends_change_nothing(tmp_path, prefix, encoding) -> None:
    """PowerShell writes UTF-16, Windows CRLF, and each logger its own prefix; the sentences differ, though."""
    expected = parse(BARE)
    path = tmp_path / "build.log"
    path.write_bytes(logged(prefix).replace("\n", "\r\n").encode(encoding))
    found = parse(path)
    # Of a line that is marked as verbose no finding says that it states a success.
    assert {m.id for m in (*expected.messages, *found.messages)} <= {"outcome"}
    assert dataclasses.replace(expected, messages=()) == dataclasses.replace(found, messages=())
    assert (3, 2) == expected.log.attempts[0].counts


def test_old_tactics_take_the_name_that_stands_above_them() -> None:
    log = parse(BARE).log
    first, none = log.tunings
    assert [("-12", "second", 0.25), ("11", "first", 0.5)] == times(first)
    assert (True, "CudnnConvolution", (), "", 0, False) == (
        first.won, none.runner, none.timed, none.chosen, none.count, none.won,
    )  # fmt: skip
    assert (LayerMemory("a + b", 1664, 512, 0),) == log.memory
    # trtexec counts in MiB, and would take the "B" of "2MiB" for bytes.
    assert any("2 tactics could not be timed" in n and "workspace:2 (" in n for n in log.notes)


@pytest.mark.parametrize("front", ["", "a (R) "])
def test_a_name_of_a_tactic_belongs_to_its_own_number_with_and_without_the_layer_in_front(front: str) -> None:
    rows = f"{front}Set Tactic Name: first Tactic: 0x1\nTactic: 0x1 Time: 0.5\n"
    (found,) = tunings(f"--------------- Timing Runner: a (R)\n{rows}Tactic: 0x2 Time: 0.25\n")
    assert [("0x2", "", 0.25), ("0x1", "first", 0.5)] == times(found)


@pytest.mark.parametrize(
    "layer",
    ["conv", "Generator/conv", "GraphConv_1", "Bindings/conv", "Building/x", ">>>>>x", "Layer(1)", "Memory/read",
     "Removal", "Tensor_0", "Running mean", "Input/a", "Fusing a with b", "a has no valid tactics for this config"],
)  # fmt: skip
def test_a_layer_may_be_called_like_what_a_builder_says(layer: str) -> None:
    (found,) = tunings(f"{layer} [Float(8,1) -> Float(8,1)] got cached result: Cask, tactic 0x7, 0.125 ms\n")
    assert (layer, [("0x7", "", 0.125)]) == (found.layer, times(found))
    rows = f"{layer} (scudnn[0x2]) Set Tactic Name: first Tactic: 0x2\nTactic: 0x2 Time: 0.25\n"
    (found,) = tunings(f"--------------- Timing Runner: {layer} (R)\n{rows}")
    assert [("0x2", "first", 0.25)] == times(found)


def test_of_many_tactics_the_best_are_kept_and_all_are_counted() -> None:
    rows = "".join(f"Tactic: 0x{i:04x} Time: {1 + (i * 7919 % 10_000) / 10_000}\n" for i in range(10_000))
    (found,) = tunings(f"--------------- Timing Runner: a (R)\n{rows}Fastest Tactic: 0x0000 Time: 1\n")
    assert 10_000 == found.count
    assert [1 + i / 10_000 for i in range(20)] == [r.milliseconds for r in found.timed]


@pytest.mark.parametrize("more", [[], ["x"]], ids=["numbers", "words too"])
def test_a_tactic_that_did_not_run_has_no_time(more: list[str]) -> None:
    told = ["inf", "0.5", "3.40282e+38", "nan", "-1", *more]
    rows = "".join(f"Tactic: 0x{i} Time: {t}\n" for i, t in enumerate(told))
    (found,) = tunings(f"--------------- Timing Runner: a (R)\n{rows}")
    assert (1, [("0x1", "", 0.5)]) == (found.count, times(found))


def test_a_network_that_is_tried_again_starts_from_the_same_count() -> None:
    again = "After adding DebugOutput nodes: {0} layers\nFusing a with b\nAfter x: {1} layers\n"
    log = parse(f"Original: 9 layers\nAfter y: 7 layers\n{again.format(7, 6)}{again.format(7, 5)}").log
    assert [(9, 7, 6), (9, 7, 5)] == [a.counts for a in log.attempts]
    assert [(9, 7), (7, 7), (7, 5)] == [(p.before, p.after) for p in log.attempts[1].passes]
    assert [1, 1] == [len(a.passes[2].decisions) for a in log.attempts]


def test_a_build_that_tries_strategies_is_not_complete_after_the_first() -> None:
    whole = REGIONS.read_bytes()
    log = parse(whole[: whole.index(b"\n", whole.index(b"] Engine generation completed")) + 1].decode()).log
    assert (1, False) == (len(log.attempts), log.complete)
    # 1.75, 0.75 and 0.5 s of the three, where nothing tells the time of all.
    assert 3 == parse(whole.decode().replace("Engine built in", "")).log.seconds


def test_lines_of_other_programs_are_not_taken_for_decisions() -> None:
    clean = logged("[V] [TRT] ")
    rows = clean.splitlines(keepends=True)
    mixed = "".join(f"{row}Removing intermediate container\nFusing x with y\n[08:00] hello\n" for row in rows)
    ours, theirs = parse(clean).log, parse(mixed).log
    assert [d.names for d in decisions(ours, "fuse")] == [d.names for d in decisions(theirs, "fuse")]
    assert ours.attempts[0].counts == theirs.attempts[0].counts
    assert [t.timed for t in ours.tunings] == [t.timed for t in theirs.tunings]


def test_a_log_that_is_cut_off_says_so() -> None:
    whole = INCEPTION.read_bytes()
    cut = parse(whole[: whole.index(b"After tensor merging") + 9].decode()).log
    (*_, last) = cut.attempts[0].passes
    assert (False, (28, 18), "unfinished", None, 2) == (
        cut.complete, cut.attempts[0].counts, last.name, last.after, len(last.decisions),
    )  # fmt: skip
    assert any("cut off in line 21" in note for note in cut.notes)
    early = parse(whole[: whole.index(b"[I] [TRT] Data")].decode()).log
    assert (1, False) == (len(early.notes), early.complete)


def test_of_several_builds_the_last_complete_one_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    first, last = INCEPTION.read_bytes(), REGIONS.read_bytes()
    path.write_bytes(first + last + first[: len(first) // 2])
    both, alone = parse(path), parse(REGIONS)
    assert (alone.layers, alone.log.attempts[1].counts, alone.log.device) == (
        both.layers, both.log.attempts[1].counts, both.log.device,
    )  # fmt: skip
    assert any(re.search(r"3 builds.* begins in line \d+\.", note) for note in both.log.notes)


def test_int8_calibration_is_an_attempt_of_the_same_build() -> None:
    text = "Original: 9 layers\nAfter a: 9 layers\nStarting Calibration.\nOriginal: 9 layers\nAfter a: 5 layers\n"
    log = parse(text + "Engine generation completed in 1 seconds.\n").log
    assert ([(9,), (9, 5)], 1) == ([a.counts for a in log.attempts], log.chosen)


@pytest.mark.parametrize(
    ("banner", "version"), [("v8502", "8.5.2"), ("v7103", "7.1.3"), ("v101601", "10.16.1")]
)
def test_the_banner_of_trtexec_tells_the_version(banner: str, version: str) -> None:
    assert version == parse(f"&&&& RUNNING TensorRT.trtexec [TensorRT {banner}] # x\n{BARE}").log.version


def test_a_damaged_row_of_a_listing_is_named_by_its_line() -> None:
    """Counted by hand: three lines, the head of the listing, a whole row, and the row that is cut off."""
    whole = "Name: a, LayerType: Reformat, Inputs: [], Outputs: [ { Name: t, Dimensions: [1,3] }]"
    text = f"one\ntwo\n\nLayers:\n{whole}\nName: b, LayerType: Refor\n\nBindings:\nt\n"
    with pytest.raises(ReadError, match="line 6: it is cut off or changed"):
        printed.parse_layers(text, "listing.txt")


@pytest.mark.parametrize("end", [", TacticName: sm80", ""])
def test_a_row_that_ends_behind_its_tensors_is_a_layer_without_the_rest(end: str) -> None:
    """Found by damaging logs: a row that is cut off there ended the reading with a ValueError of Python's."""
    tensors = "Inputs: [], Outputs: [ { Name: t, Dimensions: [1,3], Format/Datatype: Half }]"
    row = f"Name: a, LayerType: gemm, {tensors}{end}"
    found = printed.parse_entry(row)
    assert found is not None
    # One of which a tensor is damaged is none.
    assert printed.parse_entry(row.replace("Dimensions", "Dim")) is None
    keys = ("Name", "LayerType", "Metadata", "TacticName")
    assert ("a", "gemm", "", "sm80" if end else None) == tuple(found.get(k) for k in keys)


def test_tables_inside_a_region_are_tactics_of_its_operators() -> None:
    """By hand: six tables of eleven rows; the region's own time stays what it was."""
    inside = [t for t in parse(REGIONS).log.tunings if t.operator]
    fp32, fp16 = "Float(64,64,8,1) -> Float(512,64,8,1)", "Half(64,1:8,8,1) -> Half(64,1:8,8,1)"
    assert [
        ("{ForeignNode[fc]}", "fc", ("fc",), [0.012, 0.014], "0xc1", "Float(128,1) -> Float(16,1)"),
        ("{ForeignNode[fc_1_2]}", "fc_1_2", ("fc_1",), [0.005], "0xc3", "Float(16,1) -> Float(10,1)"),
        (CONV, "conv", ("conv", "act"), [0.005, 0.006], "0xd1", fp32),
        (CONV, "conv", ("conv", "act"), [0.003, 0.004], "0xd3", fp16),
        (REST, "fc", ("fc", "act_1"), [0.01, 0.0125, 0.015], "0xe1", inside[4].formats),
        (REST, "fc_1_2", ("fc_1",), [0.004], "0xe4", inside[4].formats),
    ] == [
        (t.layer, t.operator, t.nodes, [r.milliseconds for r in t.timed], t.chosen, t.formats) for t in inside
    ]
    assert "Half(16,1:8,4,1) -> Float(10,1), Int64(1,1)" == inside[4].formats
    assert {("Myelin", False)} == {(t.runner, t.won) for t in inside}
    assert "invented_gemm_f16_nn_tile32x32" == inside[4].timed[1].name


def test_an_operator_has_a_contest_beside_that_of_its_region() -> None:
    found = find_contests(parse(REGIONS).log, {CONV: "region", "conv_myl0_3": "conv", REST: "rest"})
    assert [
        (CONV, "region", 2, 0.004),
        (f"conv in {CONV}", "conv", 4, 0.003),
        ("pool", "", 3, 0.002),
        (REST, "rest", 1, 0.02),
        (f"fc in {REST}", "rest", 3, 0.01),
        (f"fc_1_2 in {REST}", "rest", 1, 0.004),
    ] == [(c.layer, c.id, c.count, c.winner.tactic.milliseconds) for c in found]
    # What is inside is no time beside that of the whole; the runners-up are 2 and 0.5 µs slower.
    assert (26, 2.5) == (
        round(1e3 * sum_fastest_times(found), 9),
        round(1e3 * sum_runner_up_losses(found), 9),
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"hello\nworld\n", "none of its lines, 1 to 2"),
        (b"ptrt\x00\x00\x01" + bytes(range(256)), "of a form that rtlab knows"),
        (b"[07/07/2026-02:11:00] [I] Verbose: Disabled\n" * 2, "--verbose"),
        (None, "No such file"),
    ],
)  # fmt: skip
def test_a_file_without_a_build_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "build.log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReadError, match=re.escape(words)) as refused:
        parse(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("line", ["[W] [TRT] a tensor is unused", "[E] Error[4]: no kernel", ""])
def test_messages_that_nobody_reads_are_left_out_where_the_build_is_complete(line) -> None:
    """Where it is not, they decide what is said of its end."""
    text = INCEPTION.read_text(encoding="utf-8")
    whole, cut = f"{line}\n{text}", "\n".join([line, *text.splitlines()[:40], ""])
    expected, found = parse(whole), parse(whole, interpret=False)
    assert dataclasses.replace(expected, messages=()) == found
    assert expected.log.complete
    assert parse(cut) == parse(cut, interpret=False)
    assert not parse(cut).log.complete
