"""The builder's listing, read from logs of our own builds and from damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtlab.backends.readers import inspector, printed
from rtlab.backends.readers.log.listing import parse_node_ids
from rtlab.backends.readers.log.verbose import parse

DATA = Path(__file__).parents[2] / "data"
DIGITS = (DATA / "rtx-1.7.1-digits_inception.log").read_text(encoding="utf-8")
CONTROL = (DATA / "rtx-1.7.1-control_flow.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("log", [DIGITS, CONTROL], ids=["digits", "control flow"])
def test_every_line_of_a_listing_is_understood(log: str) -> None:
    found = parse(log)
    written = log.partition("Layers:\n")[2].partition("\nI/O Tensors:")[0]
    assert 0 == found.unread
    assert len([line for line in written.split("\n") if line.strip()]) == len(found.layers)
    assert list(range(len(found.layers))) == [layer.index for layer in found.layers]


def test_a_layer_carries_shapes_types_formats_strides_and_labels() -> None:
    """Checked by hand against the printed line of the stem."""
    stem = parse(DIGITS).layers[1]
    assert ("runtime_fusion", 0) == (stem.kind, stem.stream)
    assert ("/stem/conv/Conv", "/stem/norm/BatchNormalization", "/stem/relu/Relu") == stem.origins
    read, written = stem.inputs[0], stem.outputs[0]
    assert ("fp32", (1, 1, 32, 32)) == (read.dtype, read.shape)
    assert (1, 24, 32, 32) == written.shape
    assert written.format.startswith("(NHWC)")
    assert (24576, 1, 768, 24) == written.strides
    assert 3 == len(stem.constants)


def test_memory_totals_and_edges_are_reported_numbers() -> None:
    """They come from the log, so a changed digit in the log must change them."""
    found = parse(DIGITS)
    assert (["image"], ["logits"]) == ([t.name for t in found.inputs], [t.name for t in found.outputs])
    total = found.log.totals["weights"]
    assert total > 0
    planted = DIGITS.replace(f"Total Weights Memory: {total}", f"Total Weights Memory: {total + 1}")
    assert total + 1 == parse(planted).log.totals["weights"]


def test_bookkeeping_steps_of_control_flow_are_kept() -> None:
    kinds = {layer.kind for layer in parse(CONTROL).layers}
    assert {"kgen", "cjmp", "jmp"} <= kinds
    jump = next(layer for layer in parse(CONTROL).layers if layer.kind == "jmp")
    assert "" == jump.tactic
    assert jump.attributes["JumpTarget"] in {layer.name for layer in parse(CONTROL).layers}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        # The node of a branch, and the If that owns it.
        ("[ONNX Layer: n3 | then (then_branch) | n1 (If)]\x1f[ONNX Layer: plain]", ("n3", "n1", "plain")),
        ("words] [ONNX Layer: a]", ("a",)),
        ("[a] [ONNX Layer: b]\x1e[ONNX Layer: c]", ("b", "c")),
        ("[ONNX Layer: b] [ONNX Layer: a] [ONNX Layer: b] [ONNX Layer: ] [ONNX Layer: c", ("b", "a")),
        ("words]", ()),
        ("[ONNX Layer: a", ()),
        ("", ()),
    ],
)
def test_what_stands_ahead_of_the_labels_is_none(metadata, expected) -> None:
    assert expected == parse_node_ids(metadata)


def test_what_stands_behind_a_tactic_is_no_part_of_it() -> None:
    """A branch names where it goes; read as a tactic, it made two engines out of one."""
    told = "LayerType: cjmp, Inputs: [], Outputs: [], TacticName: , StreamId: 2, EventId: 7"
    row = f"Name: c, {told}, JumpTargetThen: __myl_Add_1, JumpTargetElse: __myl_Mul_2, Metadata: [ONNX Layer: /loop]"
    entry = printed.parse_entry(row)
    assert entry is not None
    found = inspector.make_layer("c", entry, 5)
    assert ("5:c", "cjmp", "", 2, 7) == (found.id, found.kind, found.tactic, found.stream, found.event)
    assert {"JumpTargetThen": "__myl_Add_1", "JumpTargetElse": "__myl_Mul_2"} == found.attributes
    assert ("/loop",) == found.origins


def test_a_line_of_a_listing_that_no_rule_reads_is_counted() -> None:
    before, mark, listed = DIGITS.rpartition("Layers:\n")
    damaged = parse(before + mark + listed.replace("LayerType: ", "Layer: ", 1))
    assert (1, len(parse(DIGITS).layers) - 1) == (damaged.unread, len(damaged.layers))


def test_a_type_that_a_later_release_adds_is_shown_as_it_is_told() -> None:
    found = parse(
        DIGITS.replace("Datatype: Float,", "Datatype: FP3,").replace("DataType: Float", "DataType: FP3")
    )
    tensors = [t for layer in found.layers for t in (*layer.inputs, *layer.outputs)]
    assert {"fp3"} == {t.dtype for t in (*found.inputs, *found.outputs)}
    assert "fp3" in {t.dtype for t in tensors}
    assert "fp32" not in {t.dtype for t in tensors}
