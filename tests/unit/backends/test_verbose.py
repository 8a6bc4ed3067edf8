"""Verbose build logs: every recorded one against plain regular expressions, and the sentences of each version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtlab.backends.files import printed, recognise
from rtlab.backends.log import listing
from rtlab.backends.log.lines import LogLines
from rtlab.backends.log.verbose import Parsed, parse
from rtlab.core.buildlog import BuildLog, Decision
from rtlab.errors import ReadError

# Recordings live beside the checkout, not in it.
LOGS = Path(__file__).parents[4] / "shared" / "recorded" / "build-logs"
GOOGLENET = LOGS / "googlenet-caffe-trt5.1-fp32.log"
MNIST = LOGS / "mnist-trt10.16-h100-level5.log"
SPARSE = LOGS / "sparsity-trt10.16-h100.log"
RTX = Path(__file__).parents[2] / "data" / "rtx-1.7.1-digits_inception.log"
recorded = pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/recorded beside the checkout")


def decisions(log: BuildLog, action: str, attempt: int | None = None) -> list[Decision]:
    chosen = log.attempts[log.chosen if attempt is None else attempt]
    return [d for p in chosen.passes for d in p.decisions if d.action == action]


def told(text: str) -> tuple[tuple[object, ...], ...]:
    """Action, names, result and rule of every decision of a network that is said in these sentences."""
    log = parse(f"Original: 9 layers\n{text}\nAfter all: 3 layers\n").log
    return tuple((d.action, d.names, d.result, d.rule) for p in log.attempts[0].passes for d in p.decisions)


@recorded
def test_googlenet_goes_from_141_over_84_to_66_layers() -> None:
    """The reference of the facts sheet; every number here is counted again by a plain expression."""
    text = GOOGLENET.read_text()
    log = parse(GOOGLENET).log
    assert (141, 84, 66) == log.attempts[0].counts
    fused, merged = decisions(log, "fuse"), decisions(log, "merge")
    assert re.findall(r"Fusing (\S+) with (\S+)", text) == [d.names for d in fused]
    assert 57 == len(fused)
    assert 9 == len(merged)
    assert {3} == {len(d.names) for d in merged}
    assert re.findall(r"contatenation (\S+)", text) == [d.names[0] for d in decisions(log, "eliminate")]
    assert 9 == len(decisions(log, "eliminate"))
    assert text.count("Retargeting ") == len(decisions(log, "retarget"))
    assert text.count("Generating copy ") == len(decisions(log, "copy"))
    assert {"inception_3a/output"} == {d.names[1] for d in decisions(log, "retarget")[:3]}
    assert log.complete
    assert () == log.notes


@recorded
def test_tactics_of_old_builders_are_read_with_their_choice() -> None:
    """TensorRT 5 numbers runners and tactics and says which pair it takes."""
    found = [t for t in parse(GOOGLENET).log.tunings if t.timed]
    text = GOOGLENET.read_text()
    assert len(re.findall(r"Tactic -?\d+ time [\d.]+$", text, re.MULTILINE)) == sum(t.count for t in found)
    assert [("pool5/7x7_s1", "8"), ("loss3/classifier", "6"), ("loss3/classifier", "15")] == [
        (t.layer, t.runner) for t in found
    ]
    assert re.findall(r"Chose (\d+) \((\d+)\)", text) == [(t.runner, t.chosen) for t in found if t.won]
    assert "0" == parse(GOOGLENET).log.tunings[-1].chosen  # "prob" had one tactic, which was not timed.


@recorded
@pytest.mark.parametrize("path", [MNIST, SPARSE], ids=["mnist", "sparse"])
def test_every_timing_of_a_log_is_counted_and_winners_are_those_it_names(path: Path) -> None:
    """A timing that is lost would make another tactic win."""
    text = path.read_text()
    # What is timed within a region stands in tables of their own.
    tunings = [t for t in parse(path).log.tunings if not t.operator]
    rows = [line for line in text.split("\n") if re.search(r"Tactic: 0x[0-9a-f]+ Time: [\d.e-]+$", line)]
    timed = [line for line in rows if "Fastest Tactic" not in line]
    assert len(timed) == sum(t.count for t in tunings)
    fastest = [(r[0], float(r[1])) for r in re.findall(r"Fastest Tactic: (0x\w+) Time: ([\d.]+)", text)]
    own = [t for t in tunings if t.count]
    assert fastest == [(t.chosen, t.timed[0].milliseconds) for t in own]
    chosen = re.findall(r"Chose Runner Type: (\w+) Tactic: (0x\w+)", text)
    assert chosen == [(t.runner, t.chosen) for t in own if t.won]
    without = re.findall(r"Skipping \w+: No valid|Fastest Tactic: 0x\w+ Time: inf", text)
    assert len(without) == sum(not t.timed for t in tunings)
    assert text.count("got cached result") == sum(t.count == 0 and bool(t.timed) for t in tunings)
    assert all(t.layer and t.formats for t in tunings)
    assert all(sorted(r.milliseconds for r in t.timed) == [r.milliseconds for r in t.timed] for t in tunings)


@recorded
def test_the_attempt_that_became_the_engine_is_the_one_the_builder_names() -> None:
    """TensorRT 10 tries networks by strategy; here the second of three was fastest."""
    parsed = parse(MNIST)
    log = parsed.log
    assert [(24, 17, 13, 15), (24, 5, 6), (24, 7, 5, 6)] == [a.counts for a in log.attempts]
    assert ["backend strategy 4", "backend strategy 3", "backend strategy 2"] == [
        a.name for a in log.attempts
    ]
    assert [0.3344, 0.310688, 0.32816] == [a.milliseconds for a in log.attempts]
    assert 1 == log.chosen
    assert ("10.16.1", "NVIDIA H100 PCIe", "sm90") == (log.version, log.device, log.target.name)
    assert 24.4854 == log.seconds
    assert 4713 == log.lines
    totals = {"host": 8496, "device": 0, "scratch": 133120, "activation": 2007040, "weights": 6551296}
    assert totals == log.totals
    # Layers without memory are not printed; the others stand in the listing of the engine.
    assert {m.layer for m in log.memory} <= {layer.name for layer in parsed.layers}
    assert [133120] == [m.scratch for m in log.memory if m.scratch]
    assert 2 == len(log.streams)
    assert "node_linear" == log.nodes["node_linear_1"]
    assert log.complete


@recorded
def test_rules_that_are_only_tried_are_no_decisions() -> None:
    """A line "Running: ConvReluFusion on X" stands before the line that says what it did."""
    log = parse(MNIST).log
    text = MNIST.read_text()
    made = [d for a in range(3) for d in decisions(log, "fuse", a) if d.rule != "Myelin"]
    assert re.findall(r"(\w+): Fusing (\S+) with (\S+)$", text, re.MULTILINE) == [
        (d.rule, *d.names) for d in made
    ]
    removed = [d for a in range(3) for d in decisions(log, "remove", a)]
    assert text.count("] Removing ") == len(removed)
    assert {"ShuffleErasure"} == {d.rule for d in removed}
    regions = [d for d in decisions(log, "fuse") if d.rule == "Myelin"]
    assert ("node_conv2d", "node_relu") == regions[0].names
    assert "{ForeignNode[node_conv2d...node_relu]}" == regions[0].result


@recorded
def test_sparsity_tells_who_could_and_who_does() -> None:
    """Layers of regions are told by the region's own compiler."""
    log = parse(SPARSE).log
    assert [
        (("node_linear",), ()),
        (("node_conv2d + node_relu", "node_conv2d_1 + node_relu_1"), ()),
    ] == [(s.eligible, s.chosen) for s in log.sparsity]
    taken = parse(
        "Original: 1 layers\nAfter x: 1 layers\n(Sparsity) Found 2 layer(s) eligible to use sparse tactics: "
        "a + PWN(b, c), d\n(Sparsity) Chose 1 layer(s) using sparse tactics: a + PWN(b, c)\n"
    ).log.sparsity
    assert [(("a + PWN(b, c)", "d"), ("a + PWN(b, c)",))] == [(s.eligible, s.chosen) for s in taken]
    # Such a log has no header; the library it loads tells version and GPU.
    assert ("10.16.2", "sm90") == (log.version, log.target.name)


@recorded
@pytest.mark.parametrize("path", [MNIST, SPARSE], ids=["mnist", "sparse"])
def test_the_listing_of_the_engine_becomes_layers(path: Path) -> None:
    """Each printed line is a layer, and its tensors link it to the others."""
    parsed = parse(path)
    lines = [line for line in path.read_text().split("\n") if line.startswith("Layer(")]
    assert len(lines) == len(parsed.layers)
    assert [re.match(r"Layer\((\w+)\)", line)[1] for line in lines] == [x.kind for x in parsed.layers]  # type: ignore[index]
    last = parsed.layers[-1]
    assert (["y", "z"], ["fp32", "int64"]) == (
        [t.name for t in last.outputs],
        [t.dtype for t in last.outputs],
    )
    made = {"x"}
    for layer in parsed.layers:
        assert {t.name for t in layer.inputs} <= made
        made |= {t.name for t in layer.outputs}
    assert ["x"] == [t.name for t in parsed.inputs]
    assert ["y", "z"] == [t.name for t in parsed.outputs]


LAYERS = """\
Engine Layer Information:
Layer(Reformat): Reformatting CopyNode for Input Tensor 0 to a, Tactic: 0, x[Float(-7,3,8)] -> Reformatted Input Tensor 0 to a[Half(-7,3:8,8)]
Layer(CaskConvolution): w + Q, Tactic: 5 + a, Tactic: 0x5b, r (Int8[1,64:32,7,7]), b, c (Half[]) -> y -> z (Int8[1,64:32,7,7]), v (Int64[2])
Layer(Constant): k, Tactic: 0,  -> (Unnamed Layer* 1) [Shuffle]_output[Float(1,256)]
Layer(NoOp): two -> three, Tactic: -1, p[Float(1)] -> q[Float(1)]
"""  # noqa: E501


def test_lines_of_the_listing_hold_names_with_commas_arrows_and_brackets() -> None:
    """Names are not escaped, so only a type tells where a tensor's name ends."""
    reformat, conv, constant, noop = parse(LAYERS).layers
    assert ((-1, 3, 8), "fp16", "vectors of 8") == (
        reformat.outputs[0].shape, reformat.outputs[0].dtype, reformat.outputs[0].format,
    )  # fmt: skip
    assert "Reformatted Input Tensor 0 to a" == reformat.outputs[0].name
    assert ("w + Q, Tactic: 5 + a", "0x5b") == (conv.name, conv.tactic)
    assert ["r", "b, c"] == [t.name for t in conv.inputs]
    assert [("y -> z", (1, 64, 7, 7)), ("v", (2,))] == [(t.name, t.shape) for t in conv.outputs]
    assert () == conv.inputs[1].shape
    assert ((), ["(Unnamed Layer* 1) [Shuffle]_output"]) == (
        constant.inputs,
        [t.name for t in constant.outputs],
    )
    assert ("two -> three", ["p"], ["q"]) == (
        noop.name, [t.name for t in noop.inputs], [t.name for t in noop.outputs],
    )  # fmt: skip


LINE = (
    "Layer(CaskConvolution): a + b, Tactic: -390, x[Int8(1,8:4,3)], y[Half(2)] -> z[Float(1,16)], v[Int32()]"
)


@pytest.mark.parametrize(
    ("line", "tactic", "reads", "writes", "said"),
    [
        (LINE, "-390", ["x", "y"], ["z", "v"], ""),
        (LINE[:-1], "-390", ["x", "y"], ["z"], "3 tensors of it can be read; what else it writes is missing"),
        (
            LINE.partition("z")[0],
            "-390",
            ["x", "y"],
            [],
            "2 tensors of it can be read; what else it writes is",
        ),
        (
            LINE.partition(" ->")[0] + " -",
            "-390",
            ["x", "y"],
            [],
            "what it writes is missing, and what else it reads",
        ),
        (LINE.partition("2)")[0], "-390", ["x"], [], "1 tensor of it can be read; what it writes is missing"),
        (LINE.partition("8:4")[0], "-390", [], [], "none of them is whole; what it writes is missing"),
        (LINE.partition("0, x")[0], "", [], [], "its tactic and its tensors are missing"),
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_lone_line_of_the_listing_tells_what_is_whole_of_it(
    tmp_path: Path, line: str, tactic: str, reads: list[str], writes: list[str], said: str, end: str
) -> None:
    """A tactic without a comma behind it may be cut, and so may a tensor without its bracket."""
    path = tmp_path / "pasted.log"
    path.write_text(line + end, encoding="utf-8")
    found = parse(path)
    (layer,) = found.layers
    assert ("a + b", "CaskConvolution", tactic) == (layer.name, layer.kind, layer.tactic)
    assert (reads, writes) == ([t.name for t in layer.inputs], [t.name for t in layer.outputs])
    notes = [n for n in found.log.notes if n.startswith("The line is cut off")]
    assert bool(said) == len(notes)
    assert all(said in n and n.endswith(" Give the whole line.") for n in notes)


def test_a_line_cut_off_within_a_log_is_no_layer(tmp_path: Path) -> None:
    """More lines stand there, of which it is one that nobody understands."""
    path = tmp_path / "build.log"
    path.write_text(f"Engine Layer Information:\n{LINE}\n{LINE[:-1]}\n{LINE}\n", encoding="utf-8")
    found = parse(path)
    assert (2, 1) == (len(found.layers), found.unread)
    # Without its heading it may be anybody's line.
    path.write_text(f"{LINE}\n{LINE[:-1]}\n{LINE}\n", encoding="utf-8")
    found = parse(path)
    assert (2, 0) == (len(found.layers), found.unread)


def test_a_line_cut_off_within_the_name_of_its_layer_is_refused_for_that(tmp_path: Path) -> None:
    for line in ("Layer(Cask", "Layer(CaskConvolution): a +", "Layer(CaskConvolution): a + b, Tac"):
        path = tmp_path / "pasted.log"
        path.write_text(line, encoding="utf-8")
        with pytest.raises(
            ReadError, match="one line of a listing of layers, cut off within the name of its layer"
        ):
            recognise.kind(path)
    # What stands before a sign that only looks like a tactic is no name.
    assert listing.part("Layer(X): w + Q, Tactic: 5 + a", 0) is None


def test_a_listing_in_other_words_does_not_take_the_place_of_the_builder_s() -> None:
    """With --dumpLayerInfo trtexec repeats the layers in the words of its JSON."""
    row = "Name: a, LayerType: X, Inputs: [], Outputs: [ { Name: t, Format/Datatype: Half }], TacticValue: 0x0\n"
    again = parse(f"{LAYERS}[I] Layers:\n{row}")
    assert parse(LAYERS).layers == again.layers
    assert () == again.log.notes
    assert [(LAYERS.count("\n") + 2, row.rstrip())] == [*again.printed]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fusing a with b", [("fuse", ("a", "b"), "a + b", "")]),
        ("ConvReluFusion: Fusing a with b", [("fuse", ("a", "b"), "a + b", "ConvReluFusion")]),
        ("Running: R on a\nR: Fusing a with b", [("fuse", ("a", "b"), "a + b", "R")]),
        ("Running: R on a", []),
        # The layer that the rule runs on tells where its name ends.
        ("Running: R on a with b\nR: Fusing a with b with c", [("fuse", ("a with b", "c"), "a with b + c", "R")]),
        (
            "Running: R on a\nRunning: R on b with c\nRunning: R on a with b\nR: Fusing a with b with c",
            [("fuse", ("a with b", "c"), "a with b + c", "R")],
        ),
        ("Fusing convolution weights from c with scale bn", [("fuse", ("c", "bn"), "c", "")]),
        ("PointWiseFusion: Fusing a with PWN(b)", [("fuse", ("a", "PWN(b)"), "PWN(a, PWN(b))", "PointWiseFusion")]),
        (
            "Swap the layer type of a from ELEMENTWISE to POINTWISE\nQ: Fusing c with PWN(a)",
            [("other", ("a",), "PWN(a)", ""), ("fuse", ("c", "PWN(a)"), "c + PWN(a)", "Q")],
        ),
        ("Convert layer type of f from FULLY_CONNECTED to CONVOLUTION", [("other", ("f",), "", "")]),
        ("Merging layers: a + b || c || d", [("merge", ("a + b", "c", "d"), "a + b || c || d", "")]),
        (
            "Merging layers: a || b\nMerging layers: a || b || c",
            [("merge", ("a", "b"), "a || b", ""), ("merge", ("a || b", "c"), "a || b || c", "")],
        ),
        ("Eliminating concatenation c", [("eliminate", ("c",), "", "concatenation")]),
        ("Eliminating slice s by retargeting t from t to u", [("eliminate", ("s",), "", "slice")]),
        ("Retargeting x to c", [("retarget", ("x", "c"), "", "")]),
        # "Reformatted Output Tensor 0 to x" is a name.
        (
            "Retargeting x to c to d\nRetargeting y to d",
            [("retarget", ("x to c", "d"), "", ""), ("retarget", ("y", "d"), "", "")],
        ),
        ("Running: ShuffleErasure on s\nRemoving s", [("remove", ("s",), "", "ShuffleErasure")]),
        ("S: Fusing a with b\nRemoving a + b", [("fuse", ("a", "b"), "a + b", "S"), ("remove", ("a + b",), "", "")]),
        # A rule that has said what it joins is done: what goes next goes by itself.
        (
            "Running: ConvReluFusion on a\nConvReluFusion: Fusing a with b\nRemoving c",
            [("fuse", ("a", "b"), "a + b", "ConvReluFusion"), ("remove", ("c",), "", "")],
        ),
        # The rule joins and says only what goes.
        ("Running: QConvScaleFusion on c\nRemoving bn + r", [("fuse", ("c", "bn + r"), "c", "QConvScaleFusion")]),
        (
            "Running: HorizontalMergeQNodes on q\nEliminating q_1 which duplicates (Q) q\nRemoving q_1",
            [("eliminate", ("q_1", "q"), "q", "HorizontalMergeQNodes")],
        ),
        (
            "QuantizeDoubleInputNodes: fusing q into c\nQuantizeDoubleInputNodes: fusing (d and e) into c\nRemoving d",
            [
                ("fuse", ("c", "q"), "c", "QuantizeDoubleInputNodes"),
                ("fuse", ("c", "d", "e"), "c", "QuantizeDoubleInputNodes"),
            ],
        ),
        # Where no name was used before, the layer stands behind the last "into".
        ("Q: fusing a into b into c", [("fuse", ("c", "a into b"), "c", "Q")]),
        ("Running: V on s\nSwapping s with q", [("other", ("s", "q"), "", "V")]),
        (
            "Adding reformat layer: Reformatted Input Tensor 0 to a + b (t (1)) from Float(4,1) to Half(4,1)",
            [("other", ("a + b",), "Reformatting CopyNode for Input Tensor 0 to a + b", "reformat")],
        ),
    ],
)  # fmt: skip
def test_each_sentence_is_one_decision(text: str, expected: list[tuple[object, ...]]) -> None:
    """A decision that is said twice, first as a trial or afterwards as a removal, counts once."""
    assert tuple(expected) == told(text)


def test_a_copy_keeps_the_reason_for_it() -> None:
    """It is the answer to "why is there a copy"."""
    log = parse(
        "Original: 2 layers\nEliminating concatenation c\n"
        "Generating copy for a || b to c because input is not movable.\n"
        "Generating copy for d to c because of stomping hazard.\nAfter concat removal: 3 layers\n"
    ).log
    copies = decisions(log, "copy")
    assert ["input is not movable", "stomping hazard"] == [d.reason for d in copies]
    assert [("a || b", "c"), ("d", "c")] == [d.names for d in copies]


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
def test_the_logger_the_encoding_and_the_line_ends_change_nothing(
    tmp_path: Path, prefix: str, encoding: str
) -> None:
    """PowerShell writes UTF-16, Windows CRLF, and each logger its own prefix; the sentences differ, though."""
    expected = parse(logged(""))
    path = tmp_path / "build.log"
    path.write_bytes(logged(prefix).replace("\n", "\r\n").encode(encoding))
    assert expected == parse(path)
    assert (3, 2) == expected.log.attempts[0].counts


def test_old_tactics_take_the_name_that_stands_above_them() -> None:
    """Up to TensorRT 8 a tactic's name and its time are two lines."""
    first, none = parse(BARE).log.tunings
    assert [("-12", "second", 0.25), ("11", "first", 0.5)] == [
        (r.tactic, r.name, r.milliseconds) for r in first.timed
    ]
    assert (True, False) == (first.won, none.won)
    assert ("CudnnConvolution", (), "", 0) == (none.runner, none.timed, none.chosen, none.count)
    assert [(1664, 512, 0)] == [(m.host, m.device, m.scratch) for m in parse(BARE).log.memory]
    # trtexec counts in MiB, and would take the "B" of "2MiB" for bytes.
    assert any("2 tactics could not be timed" in n and "workspace:2 (" in n for n in parse(BARE).log.notes)


@pytest.mark.parametrize("front", ["", "a (R) "])
def test_a_name_of_a_tactic_belongs_to_its_own_number_with_and_without_the_layer_in_front(front: str) -> None:
    """It stands in the line above the time, and tells the number itself."""
    rows = f"{front}Set Tactic Name: first Tactic: 0x1\nTactic: 0x1 Time: 0.5\n"
    text = f"--------------- Timing Runner: a (R)\n{rows}Tactic: 0x2 Time: 0.25\n"
    (found,) = parse(f"Original: 1 layers\n{text}").log.tunings
    assert [("0x2", "", 0.25), ("0x1", "first", 0.5)] == [
        (t.tactic, t.name, t.milliseconds) for t in found.timed
    ]


@pytest.mark.parametrize(
    "layer",
    ["conv", "Generator/conv", "GraphConv_1", "Bindings/conv", "Building/x", ">>>>>x", "Layer(1)", "Memory/read",
     "Removal", "Tensor_0", "Running mean", "Input/a", "Fusing a with b"],
)  # fmt: skip
def test_a_layer_may_be_called_like_what_a_builder_says(layer: str) -> None:
    """Its tactics stay, whatever word its name begins with."""
    cached = f"{layer} [Float(8,1) -> Float(8,1)] got cached result: CaskConvolution, tactic 0x7, 0.125 ms"
    (found,) = parse(f"Original: 1 layers\n{cached}\n").log.tunings
    assert (layer, [("0x7", 0.125)]) == (found.layer, [(t.tactic, t.milliseconds) for t in found.timed])
    rows = f"{layer} (scudnn[0x2]) Set Tactic Name: first Tactic: 0x2\nTactic: 0x2 Time: 0.25\n"
    (found,) = parse(f"Original: 1 layers\n--------------- Timing Runner: {layer} (R)\n{rows}").log.tunings
    assert [("0x2", "first", 0.25)] == [(t.tactic, t.name, t.milliseconds) for t in found.timed]


@recorded
def test_a_workspace_of_bytes_where_mebibytes_were_meant_is_told() -> None:
    """Line 1 of the recorded log asks for "1024MiB"; by line 8 that is 0.000976562 MiB."""
    path = LOGS / "mnist-trt10.16-h100-foreign-node.log"
    lines = path.read_text().split("\n")
    assert "--memPoolSize=workspace:1024MiB " in lines[0]
    assert "Memory Pools: workspace: 0.000976562 MiB," in lines[7]
    (note,) = (n for n in parse(path).log.notes if "The builder had" in n)
    assert note.startswith("The builder had a workspace of 1,024 bytes.")
    assert note.endswith("write --memPoolSize=workspace:1024.")
    assert not any("The builder had" in n for n in parse(SPARSE).log.notes)


@recorded
def test_lines_of_a_python_build_are_read() -> None:
    """Eighteen lines of an issue, TensorRT 7; counted by hand."""
    found = parse(LOGS.parent / "pasted" / "i1090-trt7.log")
    (attempt,) = found.log.attempts
    assert 5 == len(decisions(found.log, "fuse"))
    assert ("vgg0_conv10_fwd", "vgg0_relu10_fwd") == decisions(found.log, "fuse")[0].names
    assert ("vertical fusions", "dupe layer removal") == tuple(p.name for p in attempt.passes)[:2]
    assert {29} == {p.after for p in attempt.passes}
    (tuning,) = found.log.tunings
    assert ("<reformat>", "Reformat", "0") == (tuning.layer, tuning.runner, tuning.chosen)
    assert [("0", 0.015424), ("1002", 0.059008)] == [(t.tactic, t.milliseconds) for t in tuning.timed]
    assert () == found.layers
    assert not found.log.complete


@recorded
def test_one_line_of_a_listing_is_one_layer() -> None:
    (layer,) = parse(LOGS.parent / "pasted" / "i993-layer-lines-trt8.log").layers
    name = "body.stage1.1.3.weight + QuantizeLinear_31_quantize_scale_node + Conv_33"
    assert ("CaskConvolution", name, "-3908975881807046106") == (layer.kind, layer.name, layer.tactic)
    assert [(f"Reformatted Input Tensor 0 to {name}", "int8", (1, 8, 320, 181))] == [
        (t.name, t.dtype, t.shape) for t in layer.inputs
    ]
    assert [("444", "fp32", (1, 16, 320, 181))] == [(t.name, t.dtype, t.shape) for t in layer.outputs]


@recorded
def test_the_log_of_a_run_tells_no_build_but_what_ran() -> None:
    """With trtexec --loadEngine the machine and the latency stand in it, in lines 54, 60, 66 and 549."""
    path = LOGS.parent / "pasted" / "trtexec-load-engine-verbose-trt10.16.log"
    with pytest.raises(ReadError) as refused:
        parse(path)
    assert "it tells TensorRT 10.16.1, NVIDIA H100 PCIe, 0.03882 ms per inference in the median" in str(
        refused.value
    )
    assert "none of its lines, 1 to 565, tells of a build" in str(refused.value)
    assert 'give the layers of the engine beside it: layers="layers.json"' in str(refused.value)
    found = parse(path, built=False)
    assert not found.built
    expected = ("10.16.1", "NVIDIA H100 PCIe", "sm90", 0.0388184)
    assert expected == (found.log.version, found.log.device, str(found.log.target), found.log.latency)
    assert () == found.log.attempts


def test_a_contest_whose_beginning_is_missing_takes_the_name_at_its_end() -> None:
    """Since TensorRT 8.6 the last line of a contest names the layer and the runner; a log may begin within one."""
    rows = "Tactic: 0x01 Time: 0.5\nTactic: 0x02 Time: 0.25\n"
    end = "a (CaskConvolution[0x80000009]) profiling completed in 0.1 seconds. Fastest Tactic: 0x02 Time: 0.25\n"
    log = parse(f"Original: 1 layers\n{rows}{end}{rows}After all: 1 layers\n").log
    (found,) = log.tunings
    assert ("a", "CaskConvolution", 2, "0x02") == (found.layer, found.runner, found.count, found.chosen)
    assert [("0x02", 0.25), ("0x01", 0.5)] == [(t.tactic, t.milliseconds) for t in found.timed]


def test_of_many_tactics_the_best_are_kept_and_all_are_counted() -> None:
    """A contest of ten thousand must not fill the memory."""
    rows = "".join(f"Tactic: 0x{i:04x} Time: {1 + (i * 7919 % 10_000) / 10_000}\n" for i in range(10_000))
    text = f"Original: 1 layers\n--------------- Timing Runner: a (R)\n{rows}Fastest Tactic: 0x0000 Time: 1\n"
    (found,) = parse(text).log.tunings
    assert 10_000 == found.count
    assert [1 + i / 10_000 for i in range(20)] == [r.milliseconds for r in found.timed]


@pytest.mark.parametrize("more", [[], ["x"]], ids=["numbers", "words too"])
def test_a_tactic_that_did_not_run_has_no_time(more: list[str]) -> None:
    """Builders write infinity, the largest float, or nothing that is a number."""
    times = ["inf", "0.5", "3.40282e+38", "nan", "-1", *more]
    rows = "".join(f"Tactic: 0x{i} Time: {t}\n" for i, t in enumerate(times))
    (found,) = parse(f"Original: 1 layers\n--------------- Timing Runner: a (R)\n{rows}").log.tunings
    assert [("0x1", 0.5)] == [(r.tactic, r.milliseconds) for r in found.timed]
    assert 1 == found.count


def test_a_network_that_is_tried_again_starts_from_the_same_count() -> None:
    """The passes that stand before the first attempt belong to all of them."""
    again = "After adding DebugOutput nodes: {0} layers\nFusing a with b\nAfter x: {1} layers\n"
    log = parse(f"Original: 9 layers\nAfter y: 7 layers\n{again.format(7, 6)}{again.format(7, 5)}").log
    assert [(9, 7, 6), (9, 7, 5)] == [a.counts for a in log.attempts]
    assert [(9, 7), (7, 7), (7, 5)] == [(p.before, p.after) for p in log.attempts[1].passes]
    assert [1, 1] == [len(a.passes[2].decisions) for a in log.attempts]


def test_each_strategy_starts_from_the_whole_network() -> None:
    """Also where no pass is told that all of them begin with: what the first made of it is not the second's."""
    way = "Building graph using backend strategy {0}\nAfter a: 9 layers\nAfter {1}: {2} layers\n"
    log = parse(f"Original: 9 layers\n{way.format(1, 'b', 7)}{way.format(2, 'c', 5)}").log
    assert [("backend strategy 1", ("a", "b")), ("backend strategy 2", ("a", "c"))] == [
        (a.name, tuple(p.name for p in a.passes)) for a in log.attempts
    ]


def test_a_build_that_was_stopped_at_a_strategy_is_not_the_one_behind_it() -> None:
    """Of two builds in one file the first ends in line 3, which begins a strategy; lines 4 to 6 are the second."""
    stopped = "Original: 9 layers\nAfter a: 8 layers\nBuilding graph using backend strategy 1\n"
    whole = "Original: 5 layers\nAfter b: 3 layers\nEngine generation completed in 1 seconds.\n"
    log = parse(stopped + whole).log
    assert [("", (5, 3))] == [(a.name, a.counts) for a in log.attempts]
    (note,) = log.notes
    assert note.startswith("The file holds 2 builds; this is the one in lines 4 to 6.")


def test_a_name_in_the_words_of_the_log_does_not_end_its_own_contest() -> None:
    """Names of layers are those of the ONNX file, which may hold any text."""
    name = "a has no valid tactics for this config"
    text = (
        f"--------------- Timing Runner: {name} (R)\nTactic: 0x1 Time: 0.5\nFastest Tactic: 0x1 Time: 0.5\n"
    )
    (found,) = parse(f"Original: 1 layers\n{text}").log.tunings
    assert (name, "R", "0x1", [0.5]) == (
        found.layer, found.runner, found.chosen, [t.milliseconds for t in found.timed],
    )  # fmt: skip


@recorded
def test_a_build_that_tries_strategies_is_not_complete_after_the_first() -> None:
    """Each strategy ends with the words with which other builds end."""
    whole = MNIST.read_bytes()
    log = parse([whole[: whole.index(b"\n", whole.index(b"] Engine generation completed")) + 1]]).log
    assert (1, False) == (len(log.attempts), log.complete)


def test_lines_of_other_programs_are_not_taken_for_decisions() -> None:
    """A container's own log runs in between."""
    clean = logged("[V] [TRT] ")
    rows = clean.splitlines(keepends=True)
    mixed = "".join(f"{row}Removing intermediate container\nFusing x with y\n[08:00] hello\n" for row in rows)
    ours, theirs = parse(clean).log, parse(mixed).log
    assert [d.names for p in ours.attempts[0].passes for d in p.decisions] == [
        d.names for p in theirs.attempts[0].passes for d in p.decisions
    ]
    assert ours.attempts[0].counts == theirs.attempts[0].counts
    assert [t.timed for t in ours.tunings] == [t.timed for t in theirs.tunings]


@recorded
def test_a_log_that_is_cut_off_says_so() -> None:
    """Half a build must not pass for a whole one."""
    whole = GOOGLENET.read_bytes()
    cut = parse([whole[: whole.index(b"After tensor merging") + 9]]).log
    assert not cut.complete
    assert (141, 84) == cut.attempts[0].counts
    assert ("unfinished", None) == (cut.attempts[0].passes[-1].name, cut.attempts[0].passes[-1].after)
    assert any("cut off in line" in note for note in cut.notes)
    early = parse([whole[: whole.index(b"[I] [TRT] Data")]]).log
    assert ("The log ends before the build does.",) == early.notes


@recorded
def test_of_several_builds_the_last_complete_one_is_taken(tmp_path: Path) -> None:
    """Logs are appended to; a build that was stopped must not hide the one before it."""
    path = tmp_path / "all.log"
    first, last = GOOGLENET.read_bytes(), MNIST.read_bytes()
    path.write_bytes(first + last + first[: len(first) // 2])
    both = parse(path)
    alone = parse(MNIST)
    assert alone.layers == both.layers
    assert alone.log.attempts[1].counts == both.log.attempts[1].counts
    assert alone.log.device == both.log.device
    note = next(n for n in both.log.notes if "holds 3 builds" in n)
    assert "lines 1 to" in note
    assert "not complete" in note


def test_the_listing_of_an_earlier_build_is_not_that_of_the_next() -> None:
    """A log may begin in the last lines of another build."""
    parsed = parse(f"{LAYERS}{BARE}")
    assert ((3, 2), ()) == (parsed.log.attempts[0].counts, parsed.layers)
    assert any("holds 2 builds" in note for note in parsed.log.notes)


def test_int8_calibration_is_an_attempt_of_the_same_build() -> None:
    """The builder first builds a network in fp32 to calibrate with."""
    text = "Original: 9 layers\nAfter a: 9 layers\nStarting Calibration.\nOriginal: 9 layers\nAfter a: 5 layers\n"
    log = parse(text + "Engine generation completed in 1 seconds.\n").log
    assert [(9,), (9, 5)] == [a.counts for a in log.attempts]
    assert 1 == log.chosen


@pytest.mark.parametrize(
    ("banner", "version"), [("v8502", "8.5.2"), ("v7103", "7.1.3"), ("v101601", "10.16.1")]
)
def test_the_banner_of_trtexec_tells_the_version(banner: str, version: str) -> None:
    """It packs the version into digits."""
    assert version == parse(f"&&&& RUNNING TensorRT.trtexec [TensorRT {banner}] # x\n{BARE}").log.version


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"hello\nworld\n", "lines, 1 to 2"),
        (b'{"Layers": []}', "JSON"),
        (b"ptrt\x00\x00\x01" + bytes(range(256)), "engine"),
        (b"[07/07/2026-02:11:00] [I] Verbose: Disabled\n" * 2, "--verbose"),
    ],
)  # fmt: skip
def test_a_file_without_a_build_is_refused_with_the_way_to_get_one(
    tmp_path: Path, content: bytes, words: str
) -> None:
    """The usual cause is a logger that keeps verbose messages away."""
    path = tmp_path / "build.log"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=re.escape(words)) as refused:
        parse(path)
    assert str(path) in str(refused.value)
    assert "trtexec --verbose" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A mistyped name is the commonest mistake."""
    with pytest.raises(ReadError, match="Name a file that exists"):
        parse(tmp_path / "none.log")


def test_parsing_in_pieces_of_any_size_gives_the_same() -> None:
    """Chunks end anywhere, also within a line."""
    data = logged("[V] [TRT] ").encode()
    whole = parse([data])
    for size in (1, 7, 100):
        assert whole == parse(data[i : i + size] for i in range(0, len(data), size))
    assert isinstance(whole, Parsed)


def test_a_log_that_comes_in_pieces_is_read_as_it_comes() -> None:
    """Logs are larger than memory: only what tells the encoding is gathered before the first lines are out."""
    piece, taken = b"[V] [TRT] Fusing a with b, and so on.\n" * 3, []

    def pieces() -> Iterator[bytes]:
        for i in range(1000):
            taken.append(i)
            yield piece

    first = next(iter(LogLines(pieces())))
    # 400 bytes tell the encoding: four pieces of 114.
    assert (114, 4) == (len(piece), len(taken))
    assert 4 * 3 == len(first)


def test_a_damaged_row_of_a_listing_is_named_by_its_line() -> None:
    """Counted by hand: three lines, the head of the listing, a whole row, and the row that is cut off."""
    whole = "Name: a, LayerType: Reformat, Inputs: [], Outputs: [ { Name: t, Dimensions: [1,3] }]"
    text = f"one\ntwo\n\nLayers:\n{whole}\nName: b, LayerType: Refor\n\nBindings:\nt\n"
    assert 6 == text.split("\n").index("Name: b, LayerType: Refor") + 1
    with pytest.raises(ReadError, match="line 6: it is cut off or changed"):
        printed.layers(text, "listing.txt")


def test_a_row_that_ends_behind_its_tensors_is_a_layer_without_the_rest() -> None:
    """Found by damaging logs: a row that is cut off there ended the reading with a ValueError of Python's."""
    tensors = "Inputs: [], Outputs: [ { Name: t, Dimensions: [1,3], Format/Datatype: Half }]"
    whole = f"Name: a, LayerType: gemm, {tensors}, TacticName: sm80"
    expected = {"Name": "a", "LayerType": "gemm", "Metadata": "", "TacticName": "sm80"}
    for row in (whole, whole.removesuffix(", TacticName: sm80")):
        found = printed.entry(row)
        assert found is not None
        assert {k: v for k, v in expected.items() if k in row or k == "Metadata"} == {
            k: v for k, v in found.items() if k in expected
        }


def test_a_value_of_a_thousand_characters_stays_the_text_that_was_printed() -> None:
    """Shorter ones are numbers or lists; of n ones, with brackets and commas, a list has 2 n + 1 characters."""
    lists = [f"[{','.join('1' * n)}]" for n in (499, 500)]
    assert [999, 1001] == [len(t) for t in lists]
    assert [[1] * 499, lists[1]] == [printed._value(t) for t in lists]
    even = f"[{lists[0][1:-1]} ]"
    assert (1000, even) == (len(even), printed._value(even))
